//! `watch`: a thread that sees whether other programs wait for the cores of a group's workers.
//!
//! Started by `worker_group.rs` where workers give way to other programs only while there are any.
//! Twenty times a second it looks at what the workers and their kernel halves have used; where that
//! is much of a core, it asks what the threads there wanted (`core_demand.rs`). Nothing that is the
//! kernel's own or ours counts, and no time that nothing wanted. Not on the packet path.
//!
//! A program that wants the whole core is found within two windows and four milliseconds: 0.11 s,
//! up to a second where others have wanted the core just before for a moment only, and longer where
//! a look takes long (thousands of threads): no more than a thirtieth of the time is spent on it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use floodwall_base::Instant;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::setpriority_process;

use crate::clock::Clock;
use crate::core_demand::CoreDemand;
use crate::core_share::CoreNote;
use crate::pin::avoid_cores;
use crate::stop::Stop;

/// How often it looks, and how much longer than a look it waits for the next one.
const WATCH_WINDOW: Duration = Duration::from_millis(50);
const LOOK_COST: u32 = 30;
const WATCH_NICE: i32 = -20;
/// A core of which we have used no more than this part leaves others more than half anyway.
const OURS_PART: f64 = 0.35;
/// Others that wanted this part of a window are at work; they are not if they wanted less than that
/// although we left them half of it.
const WANTED_PART: f64 = 0.6;
const UNWANTED_PART: f64 = 0.4;
/// How long they must want it in vain after a time at work that was as short as [`AT_WORK_SHORT`]:
/// twice as long each time.
const HOLD: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
const AT_WORK_SHORT: Duration = Duration::from_secs(2);

/// Watches these cores until the stop.
pub(crate) fn watch(
    cores: Vec<(usize, Arc<CoreNote>)>,
    stop: Stop,
) -> std::io::Result<JoinHandle<()>> {
    let thread = std::thread::Builder::new().name("core-watch".to_owned());
    thread.spawn(move || {
        // A flood leaves it little of any core, and others would wait for it. Without the privilege
        // they do.
        let _ = setpriority_process(None, WATCH_NICE);
        let numbers: Vec<usize> = cores.iter().map(|(core, _)| *core).collect();
        // A look takes a millisecond and more, in which a worker's ring fills up.
        avoid_cores(&numbers);
        let clock = Clock::new();
        let mut demand = CoreDemand::new(numbers);
        let mut verdicts: Vec<CoreVerdict> = cores.iter().map(|_| CoreVerdict::default()).collect();
        let mut at = clock.now();
        let mut window = WATCH_WINDOW;
        while !waits(&stop, window) {
            let (now, spent) = (clock.now(), clock.thread_time());
            let wall = now - core::mem::replace(&mut at, now);
            let mut wanted = false;
            for ((_, note), verdict) in cores.iter().zip(&mut verdicts) {
                wanted |=
                    verdict.used(wall, Duration::from_nanos(note.ours.load(Ordering::Relaxed)));
            }
            let found = if wanted { demand.look(wall) } else { demand.forget() };
            for (((_, note), verdict), found) in cores.iter().zip(&mut verdicts).zip(found) {
                note.others.store(verdict.judge(now, found), Ordering::Relaxed);
            }
            let spent = clock.thread_time().saturating_sub(spent);
            window = WATCH_WINDOW.max(spent * LOOK_COST);
        }
    })
}

/// Waits for a window; whether the stop was triggered meanwhile.
fn waits(stop: &Stop, window: Duration) -> bool {
    let window =
        Timespec { tv_sec: window.as_secs().cast_signed(), tv_nsec: window.subsec_nanos().into() };
    let mut watched = [PollFd::new(stop, PollFlags::IN)];
    let _ = poll(&mut watched, Some(&window));
    stop.is_triggered()
}

/// What is known of one core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct CoreVerdict {
    /// What we have used since the start, and whether that was much of the last window.
    ours: Duration,
    busy: bool,
    /// Others are at work, or were last, since or until then.
    others: bool,
    since: Instant,
    /// After the last time, others must want the core for so long before they are at work again.
    hold: Duration,
    /// Since when they do.
    wanted: Option<Instant>,
}

impl Default for CoreVerdict {
    fn default() -> Self {
        Self {
            ours: Duration::ZERO,
            busy: false,
            others: false,
            since: Instant::ORIGIN,
            hold: Duration::ZERO,
            wanted: None,
        }
    }
}

impl CoreVerdict {
    /// By now we have used `ours` of the core since the start; whether it matters what others want.
    fn used(&mut self, wall: Duration, ours: Duration) -> bool {
        let used = ours.saturating_sub(core::mem::replace(&mut self.ours, ours));
        self.busy = used.as_secs_f64() > wall.as_secs_f64() * OURS_PART;
        self.busy || self.others
    }

    /// In the window that ends `now` others wanted this part of the core; whether they are at work.
    fn judge(&mut self, now: Instant, wanted: f64) -> bool {
        let was = self.others;
        if was && wanted < UNWANTED_PART {
            let is_short = now - self.since < AT_WORK_SHORT;
            self.hold =
                if is_short { (self.hold * 2).clamp(HOLD.0, HOLD.1) } else { Duration::ZERO };
            (self.others, self.wanted) = (false, None);
        } else if !was && self.busy && wanted >= WANTED_PART {
            let since = *self.wanted.get_or_insert(now);
            self.others = now - since >= self.hold;
        } else if !was {
            self.wanted = None;
        }
        if was != self.others {
            self.since = now;
        }
        self.others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALL: Duration = Duration::from_millis(50);

    fn at(millis: u64) -> Instant {
        Instant::ORIGIN + Duration::from_secs(60) + Duration::from_millis(millis)
    }

    #[test]
    fn others_are_at_work_where_they_want_a_core_that_we_use_until_they_do_not() {
        let mut core = CoreVerdict::default();
        assert!(!core.used(WALL, Duration::from_millis(17)), "a third of the window");
        assert!(!core.judge(at(0), 1.0), "two thirds are theirs anyway");
        assert!(core.used(WALL, Duration::from_millis(40)));
        assert!(!core.judge(at(50), 0.59), "what is a tenth used and half waited may be short");
        assert!(core.judge(at(100), 0.6));
        assert!(core.used(WALL, Duration::from_millis(40)), "they may go at any time");
        assert!(core.judge(at(150), 0.4));
        assert!(!core.judge(at(3000), 0.39));
        assert!(!core.used(WALL, Duration::from_millis(40)));
    }

    #[test]
    fn others_that_want_it_for_a_moment_each_time_must_want_it_longer_each_time() {
        let mut core = CoreVerdict::default();
        let mut now = 0;
        for hold in [0, 100, 200, 400, 800, 1000, 1000] {
            core.busy = true;
            let began = now;
            while !core.judge(at(now), 1.0) {
                now += 50;
            }
            assert_eq!(now - began, hold);
            assert!(!core.judge(at(now + 50), 0.2));
            now += 100;
        }
        // A pause in between begins the count anew.
        core.judge(at(now), 1.0);
        core.judge(at(now + 500), 0.0);
        assert!(!core.judge(at(now + 1000), 1.0));
        assert!(core.judge(at(now + 2000), 1.0));
        assert!(!core.judge(at(now + 5000), 0.0), "after a long time at work one look is enough");
        assert!(core.judge(at(now + 5050), 1.0));
    }
}
