//! Stalls: when no thread could have a core, while something is measured beside it.
//!
//! Called by `first_line/trials.rs`. A virtual machine's processors stop for milliseconds at a time
//! where its host has other work, and its count of stolen time need not show it. A ring of 256
//! packets is full after 1.3 ms at 200,000 packets a second, with any receiver. A thread that
//! precedes all others wakes on each core every [`STEP`]; what it is late by more than [`LATE`] is
//! a stall. A system call or kernel thread that cannot be preempted is one, too: where a victim has
//! such work itself, its calls meet it as well, so nothing is excused by a stall: what is answered
//! outside of stalls only explains a figure. Where there is no right to such a thread nothing is
//! known, which is told.

#![expect(clippy::disallowed_methods, reason = "this part measures real time in real threads")]

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::sync::Barrier;
use std::thread;

use floodwall_base::Instant;
use floodwall_dispatch::Clock;
use rustix::thread::{CpuSet, gettid, sched_setaffinity};

use super::namespace;

/// Between two wake-ups: the thread has about one hundredth of its core.
const STEP: Duration = Duration::from_micros(500);
/// A receiver's turn, and a burst of interrupts, takes less.
const LATE: Duration = Duration::from_millis(1);
/// Before threads that receive (1), and those of programs.
const PRIORITY: u32 = 50;

/// What is spoilt before a stall: what was on its way when it began.
const BEFORE: Duration = Duration::from_millis(2);
/// And after it: full rings, and what a generator makes up for.
const AFTER: Duration = Duration::from_millis(10);

/// The stalls of some cores: when each began and ended; `None` where nothing is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stalls(Option<Vec<(Instant, Instant)>>);

impl Stalls {
    /// Whether what was due at that moment met a stall.
    pub(crate) fn spoil(&self, due: Instant) -> bool {
        let mut all = self.0.iter().flatten();
        all.any(|(from, to)| due + BEFORE >= *from && due <= *to + AFTER)
    }

    /// The sum of them, of all cores; `None` where nothing is known.
    pub(crate) fn sum(&self) -> Option<Duration> {
        self.0.as_ref().map(|all| all.iter().map(|(from, to)| *to - *from).sum())
    }
}

/// What `work` returns, and the stalls of `cores` meanwhile.
pub(crate) fn beside<T>(cores: &[usize], work: impl FnOnce() -> T) -> (T, Stalls) {
    let (begun, ended) = (Barrier::new(cores.len() + 1), AtomicBool::new(false));
    let (begun, ended) = (&begun, &ended);
    thread::scope(|scope| {
        let watch = |core: &usize| {
            let core = *core;
            scope.spawn(move || {
                let stands = stand(core);
                begun.wait();
                stands.then(|| watch(ended))
            })
        };
        let watches: Vec<_> = cores.iter().map(watch).collect();
        begun.wait();
        let outcome = work();
        ended.store(true, Ordering::Relaxed);
        let stalls: Option<Vec<_>> =
            watches.into_iter().map(|watch| watch.join().ok().flatten()).collect();
        (outcome, Stalls(stalls.map(|all| all.concat())))
    })
}

/// Puts the calling thread on a core, before all others there; whether that went well.
fn stand(core: usize) -> bool {
    let mut set = CpuSet::new();
    set.set(core);
    // The thread that has started this one may be pinned elsewhere.
    sched_setaffinity(None, &set).is_ok()
        && namespace::put_first(gettid().as_raw_nonzero().get(), PRIORITY).is_ok()
}

/// The stalls of the calling thread's core, until the end.
fn watch(ended: &AtomicBool) -> Vec<(Instant, Instant)> {
    let clock = Clock::new();
    let (mut last, mut stalls) = (clock.now(), Vec::new());
    while !ended.load(Ordering::Relaxed) {
        thread::sleep(STEP);
        let now = clock.now();
        if now - last > STEP + LATE {
            stalls.push((last + STEP, now));
        }
        last = now;
    }
    stalls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_around_a_stall_is_spoilt_and_nothing_else() {
        let at = |millis| Instant::ORIGIN + Duration::from_millis(millis);
        let stalls = Stalls(Some(vec![(at(100), at(104)), (at(200), at(201))]));
        let spoilt: Vec<_> = (0..300).filter(|millis| stalls.spoil(at(*millis))).collect();
        assert_eq!(spoilt, (98..=114).chain(198..=211).collect::<Vec<_>>());
        assert_eq!(stalls.sum(), Some(Duration::from_millis(5)));
        assert_eq!((Stalls(None).spoil(at(1)), Stalls(None).sum()), (false, None));
    }

    #[test]
    fn no_core_stalls_where_none_is_watched() {
        let (seven, stalls) = beside(&[], || 7);
        assert_eq!((seven, stalls.sum()), (7, Some(Duration::ZERO)));
    }
}
