//! `Throttle`: when a flood is held back, so that it stays below the load under which criteria are
//! guaranteed (decision F27).
//!
//! Called by `wire.rs` at each look. What a host takes of a flood is measured before the flood's
//! phase, and on a machine that others share that need not last: the same worker was seen to take
//! 0.5 to 0.8 million packets a second of a flood of which it had taken 1.35 just before, every
//! function slower in proportion. Why was not found out (the time that a line takes from one core
//! to the other and back changes between 54 and 330 ns there, but that the two go together was not
//! shown). So while honest clients send, a flood is held back for as long as the workers have been
//! busy for more than [`OFFERED_MAX`] of the last looks, by their own account, or packets pile up
//! before them. Without the first, two of five runs missed a criterion where five of five with it,
//! in turns, met all. Two criteria see to it that this hides no host that is slower than it should
//! be: how much of a flood must be offered, and for how long one may be held back
//! ([`HELD_MAX`](crate::criteria::HELD_MAX)).

use core::time::Duration;

use floodwall_base::Instant;

use crate::bench::BenchLook;
use crate::criteria::OFFERED_MAX;
use crate::traffic::TrafficStretch;
use crate::wire::WIRE_RING;

/// Packets in the ring from which on a flood is held back: the host's thread is off its core.
const RING_PILE: u64 = WIRE_RING as u64 / 8;
/// Looks that are judged together: a burst of a few milliseconds is none of them alone.
const LOOKS_JUDGED: usize = 5;

/// The throttle of one stretch: decides at each look whether the flood is held back.
pub(crate) struct Throttle {
    /// Whether packets that pile up hold the flood back: a measurement wants the ring full.
    by_pile: bool,
    /// Whether load does: established clients are guaranteed their goodput beyond what the host can
    /// handle.
    by_load: bool,
    load: Load,
    looks: u64,
    held: u64,
}

impl Throttle {
    /// For a stretch; it holds nothing back but on a wire: a TAP's queue length is not known, and
    /// its worker's time is the kernel's too.
    pub(crate) fn new(stretch: &TrafficStretch, on_a_wire: bool) -> Self {
        let holds = on_a_wire && !stretch.probes && stretch.floods();
        let asking = stretch.asking.filter(|_| holds);
        Self {
            by_pile: asking.is_some(),
            by_load: asking.is_some_and(|asking| !asking.established),
            load: Load::default(),
            looks: 0,
            held: 0,
        }
    }

    /// Whether to hold the flood back until the next look, of a host with so many workers.
    pub(crate) fn look(&mut self, look: &BenchLook, workers: usize) -> bool {
        let piled_up = look.given.saturating_sub(look.worker.received) > RING_PILE;
        let loaded = self.load.now(look.at, look.worker.ran, workers) > OFFERED_MAX;
        let held = self.by_pile && piled_up || self.by_load && loaded;
        self.looks += 1;
        self.held += u64::from(held);
        held
    }

    /// For what part of the looks it did, in percent; `None` where it never would.
    pub(crate) fn percent(&self) -> Option<u64> {
        self.by_pile.then(|| self.held * 100 / self.looks.max(1))
    }
}

/// How busy workers were of late.
#[derive(Debug, Default)]
struct Load {
    /// When each of the last looks was, and how long all workers had been busy by then.
    looks: [Option<(Instant, Duration)>; LOOKS_JUDGED],
    next: usize,
}

impl Load {
    /// The part of the time since the oldest of the last looks in which each of so many workers,
    /// on average, was busy; `ran` is how long they have been in all.
    fn now(&mut self, at: Instant, ran: Duration, workers: usize) -> f64 {
        let Some(place) = self.looks.get_mut(self.next) else { return 0.0 };
        let before = place.replace((at, ran));
        self.next = (self.next + 1) % LOOKS_JUDGED;
        let Some((began, had_run)) = before.filter(|(began, _)| *began < at) else { return 0.0 };
        let time = (at - began).as_secs_f64() * workers.max(1) as f64;
        ran.saturating_sub(had_run).as_secs_f64() / time
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flood::{Flood, FloodKind};
    use crate::honest::{CallPlan, QuestionSource};

    fn stretch(established: bool, probes: bool) -> TrafficStretch {
        let length = Duration::from_secs(1);
        let asking = QuestionSource {
            rate: 1,
            length,
            discover: false,
            established,
            calls: CallPlan::None,
            id: 1,
        };
        let flood = Flood { kind: FloodKind::UdpOpen, rate: 1, length, seed: 1 };
        TrafficStretch { asking: Some(asking), flood: Some(flood), probes }
    }

    /// Looks 2 ms apart of workers that are busy for so many us of each: whether it holds back.
    fn looks(throttle: &mut Throttle, busy: &[u64], workers: usize) -> Vec<bool> {
        let mut look = BenchLook::default();
        let mut step = |micros: &u64| {
            look.at += Duration::from_millis(2);
            look.worker.ran += Duration::from_micros(*micros);
            throttle.look(&look, workers)
        };
        busy.iter().map(&mut step).collect()
    }

    #[test]
    fn a_flood_is_held_back_when_the_host_has_been_loaded_for_some_looks() {
        let looks = |busy: &[u64], workers| {
            looks(&mut Throttle::new(&stretch(false, false), true), busy, workers)
        };
        let never = |held: Vec<bool>| held.iter().all(|held| !held);
        assert!(never(looks(&[1600; 20], 1)), "0.8 is guaranteed");
        let held = looks(&[1700; 20], 1);
        assert!(never(held[..LOOKS_JUDGED].to_vec()), "nothing to compare with");
        assert!(held[LOOKS_JUDGED..].iter().all(|held| *held));
        let mut once = [1000; 20];
        once[8] = 2000;
        assert!(never(looks(&once, 1)), "a burst");
        assert!(never(looks(&[3200; 20], 2)), "two of them");
        assert!(looks(&[3400; 20], 2)[LOOKS_JUDGED]);
        assert!(never(looks(&[0; 20], 1)), "it reports nothing");
    }

    #[test]
    fn measurements_established_flows_and_other_devices_are_not_held_back_by_load() {
        let full = [2000; 20];
        for (stretch, on_a_wire, percent) in [
            (stretch(true, false), true, Some(0)),
            (stretch(false, true), true, None),
            (stretch(false, false), false, None),
            (TrafficStretch { flood: None, ..stretch(false, false) }, true, None),
            (stretch(false, false), true, Some(75)),
        ] {
            let mut throttle = Throttle::new(&stretch, on_a_wire);
            let held = looks(&mut throttle, &full, 1).into_iter().filter(|held| *held).count();
            assert_eq!(throttle.percent(), percent, "{held}");
        }
    }

    #[test]
    fn what_piles_up_holds_a_flood_back_at_once() {
        let mut throttle = Throttle::new(&stretch(true, false), true);
        let look = |given| BenchLook { given, ..BenchLook::default() };
        assert!(!throttle.look(&look(RING_PILE), 1));
        assert!(throttle.look(&look(RING_PILE + 1), 1));
        assert!(!throttle.look(&look(0), 1));
        assert_eq!(throttle.percent(), Some(33));
    }
}
