//! `Throttle`: how loaded the host's workers are now, so that a flood stays below the load under
//! which floors are promised (decision F27).
//!
//! Asked by `wire.rs` at each look. What a host takes of a flood is measured before the flood's
//! phase, and what that was need not last: on a machine that others share, the hypervisor moves
//! virtual cores while they run. Two of them answered each other within 54 ns in one second and
//! within 330 ns in the next, and a worker that reads packets written on the other core handled
//! half as many; calculations were as fast as before. So while honest clients ask, a flood is held
//! back for as long as the workers have been busy for more than [`OFFERED_MAX`] of the last looks,
//! by their own account. How much of it is offered all the same has a floor of its own.

use core::time::Duration;

use floodwall_base::Instant;

use crate::floors::OFFERED_MAX;

/// Looks that are judged together: a burst of a few milliseconds is none of them alone.
const LOOKS: usize = 5;

/// See the file's head.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    /// When each of the last looks was, and how long all workers had been busy by then.
    looks: [Option<(Instant, Duration)>; LOOKS],
    next: usize,
}

impl Throttle {
    /// The part of the time since the oldest of the last looks in which each of so many workers,
    /// on average, was busy; `ran` is how long they have been in all.
    pub(crate) fn load(&mut self, at: Instant, ran: Duration, workers: usize) -> f64 {
        let Some(place) = self.looks.get_mut(self.next) else { return 0.0 };
        let before = place.replace((at, ran));
        self.next = (self.next + 1) % LOOKS;
        let Some((began, had_run)) = before.filter(|(began, _)| *began < at) else { return 0.0 };
        let time = (at - began).as_secs_f64() * workers.max(1) as f64;
        ran.saturating_sub(had_run).as_secs_f64() / time
    }

    /// Whether the host is loaded beyond that now.
    pub(crate) fn is_loaded(&mut self, at: Instant, ran: Duration, workers: usize) -> bool {
        self.load(at, ran, workers) > OFFERED_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks 2 ms apart of workers that are busy for so many us of each: whether they are loaded.
    fn looks(busy: &[u64], workers: usize) -> Vec<bool> {
        let (mut throttle, mut ran) = (Throttle::default(), Duration::ZERO);
        let look = |(n, micros): (usize, &u64)| {
            ran += Duration::from_micros(*micros);
            throttle.is_loaded(Instant::from_nanos(1 + n as u64 * 2_000_000), ran, workers)
        };
        busy.iter().enumerate().map(look).collect()
    }

    #[test]
    fn a_host_is_loaded_when_it_has_been_for_some_looks() {
        assert!(looks(&[1600; 20], 1).iter().all(|loaded| !loaded), "0.8 is promised");
        let loaded = looks(&[1700; 20], 1);
        assert!(loaded[..LOOKS].iter().all(|loaded| !loaded), "nothing to compare with");
        assert!(loaded[LOOKS..].iter().all(|loaded| *loaded));
        let mut once = [1000; 20];
        once[8] = 2000;
        assert!(looks(&once, 1).iter().all(|loaded| !loaded), "a burst");
        assert!(looks(&[3200; 20], 2).iter().all(|loaded| !loaded), "two of them");
        assert!(looks(&[3400; 20], 2)[LOOKS]);
    }

    #[test]
    fn a_host_that_says_nothing_is_not_loaded() {
        assert!(looks(&[0; 20], 1).iter().all(|loaded| !loaded));
        let mut throttle = Throttle::default();
        for _ in 0..20 {
            let (at, ran) = (Instant::from_nanos(7), Duration::from_secs(1));
            assert!(!throttle.is_loaded(at, ran, 0), "one moment");
        }
    }
}
