//! `HandedGate`: a worker's gate for frames that arrived at another worker's queue.
//!
//! Called by `dispatch` and `world` for packets taken from the rings between workers, as [`Gate`]
//! is for packets from devices: a worker's established flows and its application fare the same on
//! whichever queue a flood comes. A gate of its own, because the pressure is another one: full
//! rings imply nothing about the device, and unverified packets that wait here delay none that came
//! by the right queue. Packets that another engine has worked on (packets to be sent, reassembled
//! datagrams) and packets that only leave here pass without classification.
//!
//! Invariants: as of [`Gate`], with its counters; what is handed to the engine is in the order
//! in which it came, frames of one class and family among themselves.
//!
//! # Under flood
//! As [`Gate`]: `UNVERIFIED_WAITING_MAX` packets a family once more.

use core::time::Duration;

use floodwall_base::limits::BURST_MAX;
use floodwall_base::{Instant, WorkerId};
use floodwall_packet::{Burst, Engine, Handoff, HandoffKind, HandoffList, PacketBuf};

use crate::gate::{Gate, GateConfig, GateStats, Poll};

/// A [`Gate`] for packets that other workers hand over.
#[derive(Debug)]
pub struct HandedGate {
    gate: Gate,
    own: WorkerId,
    /// Scratch space for frames that are classified, and for other packets.
    frames: Burst,
    others: HandoffList,
    /// How many of these stood before the frames that were admitted last.
    first: usize,
}

impl HandedGate {
    /// A gate of the worker `own` without waiting packets. Allocates all that it will need.
    #[must_use]
    pub fn new(own: WorkerId, config: GateConfig) -> Self {
        let others = HandoffList::new(BURST_MAX);
        Self { gate: Gate::new(config), own, frames: Burst::new(), others, first: 0 }
    }

    /// What has happened so far.
    #[must_use]
    pub const fn stats(&self) -> &GateStats {
        self.gate.stats()
    }

    /// How many frames wait.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.gate.waiting()
    }

    /// As [`Gate::uses_free_frames`].
    #[must_use]
    pub const fn uses_free_frames(&self) -> bool {
        self.gate.uses_free_frames()
    }

    /// As [`Gate::set_free_frames`].
    pub fn set_free_frames(&mut self, frames: usize) {
        self.gate.set_free_frames(frames);
    }

    /// As [`Gate::ran`].
    pub fn ran(&mut self, took: Duration) {
        self.gate.ran(took);
    }

    /// A device of another worker drops unverified flows, at `now`: frames are classified for a
    /// while, so that established flows are found ([`HandedGate::established`]); no packet waits
    /// for that.
    pub const fn others_choose(&mut self, now: Instant) {
        self.gate.overflowed(now);
    }

    /// Of what the last [`HandedGate::admit`] left in `handed`, the packets of established flows.
    pub fn established<'a>(
        &self,
        handed: &'a HandoffList,
    ) -> impl Iterator<Item = &'a PacketBuf> + use<'a> {
        handed.iter().skip(self.first).take(self.gate.established()).map(|handoff| &handoff.packet)
    }

    /// As [`Gate::rests`].
    pub fn rests(&mut self, length: Duration) {
        self.gate.rests(length);
    }

    /// How many packets to take from the rings, given the engine's `rx_capacity`.
    #[must_use]
    pub fn ask(&self, capacity: usize) -> usize {
        self.gate.ask(capacity)
    }

    /// Reduces the packets of a `poll` of the rings to what the engine gets now. Costs a compare or
    /// two without pressure; under pressure one classification a frame.
    pub fn admit<E: Engine + ?Sized>(&mut self, engine: &E, handed: &mut HandoffList, poll: &Poll) {
        let looks = poll.taken >= poll.asked.min(poll.capacity + 1)
            || self.gate.is_under_pressure()
            || self.gate.waiting() > 0;
        if looks {
            self.frames.set_limit(BURST_MAX);
            for handoff in handed.drain() {
                self.part(handoff);
            }
        }
        self.gate.admit(engine, &mut self.frames, poll);
        self.first = self.others.len();
        if looks {
            let Self { own, frames, others, .. } = self;
            let to = *own;
            let frames = frames.drain();
            let frames = frames.map(|packet| Handoff { to, kind: HandoffKind::Frame, packet });
            for handoff in others.drain().chain(frames) {
                // There is room: no more than a burst was taken.
                let _ = handed.push(handoff);
            }
        }
    }

    fn part(&mut self, handoff: Handoff) {
        let Handoff { to, kind, packet } = handoff;
        if kind != HandoffKind::Frame {
            let _ = self.others.push(Handoff { to, kind, packet });
        } else {
            let _ = self.frames.push(packet);
        }
    }
}

#[cfg(test)]
mod tests {
    use floodwall_base::Instant;
    use floodwall_packet::{Pool, PoolConfig};
    use floodwall_testkit::by_byte::ByByte;

    use super::*;

    #[test]
    fn under_pressure_frames_are_judged_and_what_work_was_put_into_passes() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let mut gate = HandedGate::new(WorkerId(1), GateConfig::default());
        let (mut handed, mut ahead) = (HandoffList::new(BURST_MAX), 0);
        for burst in 0..8 {
            let asked = gate.ask(BURST_MAX);
            for n in 0..asked {
                let byte = [b'f', b's', b'r', b's'][n % 4];
                let kind = if n == 1 { HandoffKind::Outgoing } else { HandoffKind::Frame };
                let packet = pool.packet_from(&[n as u8, byte]).unwrap();
                handed.push(Handoff { to: WorkerId(1), kind, packet }).unwrap();
            }
            let now = Instant::from_nanos(burst * 10_000);
            let poll = Poll { now, asked, taken: asked, capacity: BURST_MAX };
            gate.admit(&ByByte::default(), &mut handed, &poll);
            let got: Vec<_> = handed.drain().collect();
            assert!(got.iter().all(|handoff| handoff.to == WorkerId(1)));
            let of = |byte| got.iter().filter(|h| h.packet.first()[1] == byte).count();
            if burst == 0 {
                assert_eq!(got.len(), asked, "one full burst is no pressure");
                continue;
            }
            if burst > 2 {
                assert_eq!(of(b'r'), 0, "refusable");
                assert_eq!(of(b'f'), asked.div_ceil(4), "all of established flows");
                ahead += u32::from(of(b's') <= 5);
            }
            let out = got.iter().filter(|h| h.kind == HandoffKind::Outgoing).count();
            assert_eq!(out, 1, "it passes unasked");
        }
        assert!(ahead >= 3, "{ahead} turns in which unverified packets had the rest");
        assert!(gate.waiting() > 0 && gate.stats().conserves(gate.waiting()));
        let waited = gate.waiting();
        let poll = Poll {
            now: Instant::from_nanos(100_000),
            asked: BURST_MAX,
            taken: 0,
            capacity: BURST_MAX,
        };
        gate.admit(&ByByte::default(), &mut handed, &poll);
        assert!(!handed.is_empty() && gate.waiting() < waited, "waiting packets go on afterwards");
    }
}
