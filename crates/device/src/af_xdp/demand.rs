//! `Demand`: whether a flood is on that is worth what the program costs the interface's peer.
//!
//! Used by `packet_line.rs` where the peer hands over GSO frames: while a program is attached the
//! driver has it cut them first, which makes its bulk slower. So the program is attached once there
//! are many SYNs, or most of what arrives under pressure is unverified, and leaves once nothing was
//! dropped or answered there for a while. Bulk of established flows never attaches it, however much
//! there is. A worker that goes before the kernel's half handles all that it is given: what is lost
//! then is lost in the card's ring, and there is no pressure. So SYNs count without it, and where
//! many frames of any kind come without it, the gate is made to classify for a moment, once a
//! second: nothing is dropped by that.
//!
//! # Under flood
//! Any sender can bring the program to the interface, by as many packets as press the worker, and
//! keep it there at little cost: what established peers lose is their segmentation in hardware, not
//! their packets. Work per turn: a comparison. No memory grows.

use std::time::Duration;

use floodwall_base::Instant;

/// How long frames are counted before it is decided.
const DEMAND_WINDOW: Duration = Duration::from_millis(20);
/// Unverified frames of a window that are a flood: 50,000 a second.
const FLOOD_FRAMES_MIN: u64 = 1000;
/// SYNs of a window that are one: 20,000 a second, of which a stack alone answers all.
const FLOOD_SYNS_MIN: u64 = 400;
/// Frames of a window, without pressure, that are worth a look: 100,000 a second; and how often
/// they get one.
const LOOK_FRAMES_MIN: u64 = 2000;
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Frames dropped or answered in a second below which that second is a quiet one, and how many
/// quiet seconds in a row end it.
const QUIET_FRAMES_MAX: u64 = 1000;
const QUIET_SECONDS: u32 = 10;
const QUIET_PERIOD: Duration = Duration::from_secs(1);

/// What was seen since the last decision.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Demand {
    /// Since when frames, or what the program judged, are counted.
    since: Option<Instant>,
    /// Frames that arrived under pressure, and how many of these were of established flows.
    frames: u64,
    established: u64,
    presses: bool,
    /// Frames and SYNs that arrived, under pressure or not.
    all: u64,
    syns: u64,
    /// When frames were last found to be worth a look, and whether the gate is to be told.
    looked_at: Option<Instant>,
    looks: bool,
    /// What the program had judged at `since`, and the quiet seconds by then.
    judged: u64,
    quiet: u32,
    /// The decision.
    wants: bool,
}

impl Demand {
    /// So many frames have arrived.
    pub(super) const fn arrived(&mut self, frames: u64) {
        self.all += frames;
        if self.presses {
            self.frames += frames;
        }
    }

    /// One of them is this.
    pub(super) fn sees(&mut self, frame: &[u8]) {
        self.syns += u64::from(is_syn(frame));
    }

    /// One of them is of an established flow.
    pub(super) const fn is_established(&mut self) {
        self.established += 1;
    }

    /// A turn begins, under pressure or not; the program has judged so many frames since the start.
    /// Returns whether it is to be at the interface.
    pub(super) fn turn(&mut self, now: Instant, presses: bool, judged: u64) -> bool {
        self.presses = presses;
        let since = *self.since.get_or_insert(now);
        let length = if self.wants { QUIET_PERIOD } else { DEMAND_WINDOW };
        if now.saturating_since(since) < length {
            return self.wants;
        }
        match self.wants {
            false => {
                let unverified = self.frames.saturating_sub(self.established);
                let is_most = unverified >= FLOOD_FRAMES_MIN && unverified > self.established;
                self.wants = is_most || self.syns >= FLOOD_SYNS_MIN;
                self.quiet = 0;
                self.consider(now, since);
            }
            true => {
                let is_quiet = judged.saturating_sub(self.judged) < QUIET_FRAMES_MAX;
                self.quiet = if is_quiet { self.quiet + 1 } else { 0 };
                self.wants = self.quiet < QUIET_SECONDS;
            }
        }
        (self.since, self.frames, self.established, self.judged) = (Some(now), 0, 0, judged);
        (self.all, self.syns) = (0, 0);
        self.wants
    }

    /// A window ends: whether so many frames came without pressure that they are worth a look.
    fn consider(&mut self, now: Instant, since: Instant) {
        let is_long = now.saturating_since(since) > 2 * DEMAND_WINDOW;
        let is_due = self.looked_at.is_none_or(|at| now.saturating_since(at) >= LOOK_EVERY);
        if !self.presses && self.all >= LOOK_FRAMES_MIN && !is_long && is_due {
            (self.looked_at, self.looks) = (Some(now), true);
        }
    }

    /// Whether the gate is to classify what comes: once for each time that this is found.
    pub(super) const fn looks(&mut self) -> bool {
        core::mem::replace(&mut self.looks, false)
    }
}

/// Whether a frame is a plain SYN, as far as its first bytes show it: lengths are believed, and
/// options or extension headers are not looked behind.
fn is_syn(frame: &[u8]) -> bool {
    const LINK: usize = 14;
    const TCP: u8 = 6;
    let flags = match frame.get(LINK - 2..) {
        Some([0x08, 0x00, 0x45, packet @ ..]) if packet.get(8) == Some(&TCP) => LINK + 20 + 13,
        Some([0x86, 0xdd, packet @ ..]) if packet.get(6) == Some(&TCP) => LINK + 40 + 13,
        _ => return false,
    };
    // SYN without ACK, RST or FIN.
    frame.get(flags).is_some_and(|flags| flags & 0x17 == 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: Duration = Duration::from_millis(1);

    /// Runs turns of a millisecond: so many frames each, how many of them established, judged.
    fn turns(it: &mut Demand, now: &mut Instant, count: u32, each: (u64, u64, u64)) -> bool {
        let (frames, established, judged) = each;
        let mut wants = false;
        for _ in 0..count {
            *now += TURN;
            wants = it.turn(*now, true, it.judged + judged);
            it.arrived(frames);
            (0..established).for_each(|_| it.is_established());
        }
        wants
    }

    #[test]
    fn a_flood_of_unverified_frames_brings_the_program_and_bulk_of_established_flows_does_not() {
        let (mut it, mut now) = (Demand::default(), Instant::ORIGIN);
        assert!(!turns(&mut it, &mut now, 1000, (256, 256, 0)), "bulk");
        assert!(!turns(&mut it, &mut now, 1000, (256, 140, 0)), "most of it is established");
        assert!(!turns(&mut it, &mut now, 1000, (20, 0, 0)), "20,000 a second");
        assert!(turns(&mut it, &mut now, 45, (128, 60, 0)));
    }

    #[test]
    fn many_frames_without_pressure_are_looked_at_once_a_second_and_then_decided() {
        let (mut it, mut now) = (Demand::default(), Instant::ORIGIN);
        let mut calm = |it: &mut Demand, count: u32, frames: u64| {
            let looks = (0..count).map(|_| {
                now += TURN;
                assert!(!it.turn(now, false, 0));
                it.arrived(frames);
                u32::from(it.looks())
            });
            looks.sum::<u32>()
        };
        assert_eq!(calm(&mut it, 3000, 90), 0, "90,000 a second");
        assert_eq!(calm(&mut it, 3000, 200), 3);
        // The gate classifies for a while: bulk is bulk, and a flood is one.
        assert!(!turns(&mut it, &mut now, 100, (200, 190, 0)));
        assert!(!it.looks(), "under pressure all are classified");
        assert!(turns(&mut it, &mut now, 45, (200, 10, 0)));
    }

    #[test]
    fn without_pressure_only_syns_bring_it() {
        for (at, version) in [(14, 0x45), (14, 0x60)] {
            let (mut it, mut now) = (Demand::default(), Instant::ORIGIN);
            let mut frame = vec![0; 74];
            let (kind, protocol, flags) =
                if version == 0x45 { ([8, 0], 23, 47) } else { ([0x86, 0xdd], 20, 67) };
            frame[12..14].copy_from_slice(&kind);
            (frame[at], frame[protocol]) = (version, 6);
            let mut turns = |frame: &[u8], each: u32, count: u32| {
                (0..count).fold(false, |_, _| {
                    now += TURN;
                    let wants = it.turn(now, false, 0);
                    it.arrived(64);
                    (0..each).for_each(|_| it.sees(frame));
                    wants
                })
            };
            for other in [0x10, 0x12, 0x04, 0x11, 0x00] {
                frame[flags] = other;
                assert!(!turns(&frame, 64, 200), "{other:#x}");
            }
            (0..frame.len()).for_each(|len| assert!(!is_syn(&frame[..len])));
            frame[flags] = 0x02;
            assert!(!turns(&frame, 15, 200), "15,000 a second");
            frame[flags] = 0xc2;
            assert!(turns(&frame, 30, 45), "30,000 a second, with the bits of ECN");
        }
    }

    #[test]
    fn it_stays_for_ten_seconds_after_the_last_that_it_judged_and_comes_again() {
        let (mut it, mut now) = (Demand::default(), Instant::ORIGIN);
        assert!(turns(&mut it, &mut now, 50, (64, 0, 0)));
        for second in 0..60 {
            now += QUIET_PERIOD;
            assert!(it.turn(now, true, (second + 1) * QUIET_FRAMES_MAX), "a flood goes on");
        }
        let judged = 60 * QUIET_FRAMES_MAX;
        for second in 1..=QUIET_SECONDS {
            now += QUIET_PERIOD;
            let wants = it.turn(now, false, judged + u64::from(second) * (QUIET_FRAMES_MAX - 1));
            assert_eq!(wants, second < QUIET_SECONDS, "{second}");
        }
        assert!(turns(&mut it, &mut now, 50, (64, 0, 0)));
    }
}
