//! `CoreShare`: whether other programs use the worker's core, and what the worker does about it:
//! the time of its kernel half's thread counts as its own, and while their share is used up that
//! thread stands behind all others. A thread that does not let go of the core in time (a kernel
//! without preemption, at a flood that keeps it busy) sleeps, and the worker runs the half itself.
//!
//! Called by the worker after each of its turns. Whether others want the core is found outside of
//! the packet path, by `core_watch.rs`.
//!
//! # Under flood
//! Nothing grows. While others use the core the worker keeps to its share: what it has no time for
//! is dropped in the card's ring.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use floodwall_base::Instant;
use floodwall_device::ThreadTime;

use crate::turn_gate::{ApplicationShare, AtWork};

/// How often the times are looked at while the worker has the core for itself, and while it shares
/// it.
const LOOK_ALONE: Duration = Duration::from_millis(4);
const LOOK_SHARED: Duration = Duration::from_micros(50);
/// The same while the half's thread is busy and the worker sleeps.
const SLEEP_ALONE: Duration = Duration::from_millis(5);
const SLEEP_SHARED: Duration = Duration::from_micros(100);
/// A half's thread that had the core for so long between two looks, so often, each time at most so
/// long after the last, does not let go of it in time.
const CORE_HELD: Duration = Duration::from_millis(1);
const HELD_OFTEN: u32 = 3;
const HELD_AGAIN: Duration = Duration::from_millis(50);
/// A half is given back after so many periods in which hardly anything came, or to see whether its
/// thread lets go by now: after the first time, and after twice as long each time that it did not,
/// up to the second.
const LIGHT_PERIODS: u32 = 64;
const TAKEN_FOR: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(8));

/// What a worker and the thread that watches cores tell each other.
#[derive(Debug, Default)]
pub(crate) struct CoreNote {
    /// Nanoseconds of the core that the worker and its half have used since their start.
    pub(crate) ours: AtomicU64,
    /// Others want the core, beyond what we leave to them.
    pub(crate) others: AtomicBool,
}

/// What a look has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CoreLook {
    /// What the half's thread has had of the core since the last look.
    pub(crate) half: Duration,
    /// Others came or went: whether they are at work now.
    pub(crate) changed: Option<bool>,
}

/// A worker's view of its core.
#[derive(Debug)]
pub(crate) struct CoreShare {
    /// Where a watch tells of others; without one the worker's applications report themselves.
    watched: Option<WatchedHalf>,
    looked: Instant,
    half: ThreadTime,
    /// The half's thread had much of the time between the last two looks.
    is_half_busy: bool,
    /// How often it held the core for too long, and when last.
    held: (u32, Instant),
    /// The half runs within the worker's calls, and for how many light periods in a row.
    taken: bool,
    light: u32,
    /// When it is given back at the latest, and for how long it was taken.
    until: Instant,
    length: Duration,
}

/// What a watched core needs.
#[derive(Debug)]
struct WatchedHalf {
    note: Arc<CoreNote>,
    share: ApplicationShare,
    /// Exists while others are at work.
    at_work: Option<AtWork>,
}

impl CoreShare {
    /// Of a worker with applications that report themselves, or are always at work.
    pub(crate) fn reported() -> Self {
        Self {
            watched: None,
            looked: Instant::ORIGIN,
            half: ThreadTime::default(),
            is_half_busy: false,
            held: (0, Instant::ORIGIN),
            taken: false,
            light: 0,
            until: Instant::ORIGIN,
            length: TAKEN_FOR.0,
        }
    }

    /// On a core that is watched. Others are reported by `share`.
    pub(crate) fn watched(note: Arc<CoreNote>, share: ApplicationShare) -> Self {
        let watched = WatchedHalf { note, share, at_work: None };
        Self { watched: Some(watched), ..Self::reported() }
    }

    /// Whether others come and go as the watch tells.
    pub(crate) const fn is_watched(&self) -> bool {
        self.watched.is_some()
    }

    /// Whether it is time for [`CoreShare::look`]; `shared` is whether others are at work.
    #[inline]
    pub(crate) fn is_due(&self, now: Instant, shared: bool) -> bool {
        now - self.looked >= if shared { LOOK_SHARED } else { LOOK_ALONE }
    }

    /// When a sleeping worker must look again, if it must.
    pub(crate) fn wake_at(&self, now: Instant, shared: bool) -> Option<Instant> {
        let wait = if shared { SLEEP_SHARED } else { SLEEP_ALONE };
        self.is_half_busy.then(|| now + wait)
    }

    /// Looks at the times: `half` is that of the half's thread, `ran` what the worker has run.
    pub(crate) fn look(&mut self, now: Instant, ran: Duration, half: ThreadTime) -> CoreLook {
        let wall = now - core::mem::replace(&mut self.looked, now);
        let of_half = half - core::mem::replace(&mut self.half, half);
        self.is_half_busy = of_half.ran * 16 > wall;
        if of_half.ran > CORE_HELD {
            let again = now - self.held.1 < HELD_AGAIN;
            self.held = (if again { self.held.0 + 1 } else { 1 }, now);
        }
        let mut look = CoreLook { half: of_half.ran, changed: None };
        let Some(watched) = &mut self.watched else { return look };
        let ours = ran.saturating_add(half.ran).as_nanos();
        watched.note.ours.store(u64::try_from(ours).unwrap_or(u64::MAX), Ordering::Relaxed);
        let at_work = watched.note.others.load(Ordering::Relaxed);
        if at_work != watched.at_work.is_some() {
            watched.at_work = at_work.then(|| watched.share.at_work());
            look.changed = Some(at_work);
        }
        look
    }

    /// Whether the half is to run within the worker's calls from now on, while the core is shared:
    /// its thread does not let go of the core.
    pub(crate) fn takes_half(&mut self, now: Instant) -> bool {
        let takes = !self.taken && self.held.0 >= HELD_OFTEN;
        if takes {
            // It let go for as long as it was taken before, or it does not at this load.
            let anew = now - self.until > self.length;
            self.length = if anew { TAKEN_FOR.0 } else { (self.length * 2).min(TAKEN_FOR.1) };
            (self.taken, self.light, self.held.0) = (true, 0, 0);
            self.until = now + self.length;
        }
        takes
    }

    /// Whether the half runs within the worker's calls.
    pub(crate) const fn has_taken(&self) -> bool {
        self.taken
    }

    /// A period of a worker that has the half ends; whether it is given back now, because hardly
    /// anything has come for a while, or to try its thread again.
    pub(crate) fn gives_back(&mut self, now: Instant, is_light: bool) -> bool {
        self.light = if is_light { self.light + 1 } else { 0 };
        let gives = self.light >= LIGHT_PERIODS || now >= self.until;
        if gives {
            (self.taken, self.until) = (false, now);
        }
        gives
    }

    /// The half is its thread's again.
    pub(crate) const fn give_back(&mut self) {
        self.taken = false;
    }

    /// Whether that thread had much of the time between the last two looks.
    pub(crate) const fn is_half_busy(&self) -> bool {
        self.is_half_busy
    }

    /// Whether a thread of the kernel has ever run the half here.
    pub(crate) fn has_half(&self) -> bool {
        self.half.ran > Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(length: u64) -> Duration {
        Duration::from_millis(length)
    }

    fn time(ran: u64, waited: u64) -> ThreadTime {
        ThreadTime { ran: millis(ran), waited: millis(waited) }
    }

    #[test]
    fn others_are_at_work_while_the_watch_says_so() {
        let (note, share) = (Arc::<CoreNote>::default(), ApplicationShare::new());
        let mut core = CoreShare::watched(Arc::clone(&note), share.clone());
        let start = Instant::ORIGIN + millis(60_000);
        let half = time(100, 0);
        assert_eq!(core.look(start, millis(5), half).changed, None, "the first look knows nothing");
        assert!(share.are_idle());
        note.others.store(true, Ordering::Relaxed);
        let look = core.look(start + millis(4), millis(6), time(103, 70));
        assert_eq!((look.half, look.changed), (millis(3), Some(true)));
        assert!(!share.are_idle());
        assert_eq!(note.ours.load(Ordering::Relaxed), millis(109).as_nanos() as u64);
        assert_eq!(core.look(start + millis(6), millis(6), half).changed, None);
        note.others.store(false, Ordering::Relaxed);
        assert_eq!(core.look(start + millis(8), millis(6), half).changed, Some(false));
        assert!(share.are_idle());
    }

    #[test]
    fn a_half_is_taken_when_its_thread_holds_the_core_and_given_back_after_light_periods() {
        let mut core = CoreShare::reported();
        let start = Instant::ORIGIN + millis(1000);
        for (number, after) in [(2, 0), (4, 4), (6, 100), (8, 104)] {
            core.look(start + millis(after), Duration::ZERO, time(number, 0));
            assert!(!core.takes_half(start), "twice, and twice again much later");
        }
        let mut at = start + millis(108);
        core.look(at, Duration::ZERO, time(10, 0));
        assert!(core.takes_half(at) && core.has_taken());
        assert!(!core.takes_half(at), "it is taken already");
        for _ in 1..LIGHT_PERIODS {
            assert!(!core.gives_back(at, true));
        }
        assert!(!core.gives_back(at, false), "a period with work begins the count anew");
        for _ in 1..LIGHT_PERIODS {
            assert!(!core.gives_back(at, true));
        }
        assert!(core.gives_back(at, true) && !core.has_taken());
        // It does not let go: it is tried again later each time.
        let mut half = 10;
        for length in [2, 4, 8, 8] {
            for _ in 0..HELD_OFTEN {
                (at, half) = (at + millis(2), half + 2);
                core.look(at, Duration::ZERO, time(half, 0));
            }
            assert!(core.takes_half(at));
            assert!(!core.gives_back(at + millis(length * 1000 - 1), false));
            at += millis(length * 1000);
            assert!(core.gives_back(at, false) && !core.has_taken());
        }
    }

    #[test]
    fn a_sleeping_worker_looks_at_a_busy_half() {
        let mut core = CoreShare::reported();
        let start = Instant::ORIGIN + millis(1000);
        core.look(start, Duration::ZERO, time(0, 0));
        assert_eq!(core.wake_at(start, true), None);
        core.look(start + millis(1), Duration::ZERO, time(1, 0));
        assert_eq!(core.wake_at(start, true), Some(start + SLEEP_SHARED));
        assert_eq!(core.wake_at(start, false), Some(start + SLEEP_ALONE));
        assert!(core.has_half());
    }
}
