//! `watch`: a thread that sees whether others use the cores of a worker group's workers.
//!
//! Started by `worker_group.rs` where workers give way to other programs only while there are any.
//! Twice a second it reads the cores' idle time (`/proc/stat`, proc_stat(5)) and what the workers
//! and their kernel halves have used; the rest is others'. Not on the packet path.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::clock::Clock;
use crate::core_share::CoreNote;
use crate::stop::Stop;

/// How often it looks.
const WATCH_WINDOW: Duration = Duration::from_millis(500);
/// Others that have more than this part of a window are at work; they are not if they have less
/// than that. A program that wants all of the core has 9 % beside the thread of a flooded half that
/// stands before it; the kernel's own threads have had 5 %. The idle time is told in hundredths of
/// a second.
const AT_WORK: f64 = 0.08;
const IDLE_SHARE: f64 = 0.06;

/// Ticks of `/proc/stat` in a second (`USER_HZ`), on every architecture but Alpha.
const TICKS_PER_SECOND: f64 = 100.0;

/// Watches these cores until the stop.
pub(crate) fn watch(
    cores: Vec<(usize, Arc<CoreNote>)>,
    stop: Stop,
) -> std::io::Result<JoinHandle<()>> {
    let thread = std::thread::Builder::new().name("core-watch".to_owned());
    thread.spawn(move || {
        let clock = Clock::new();
        let mut last: Vec<Option<CoreTimes>> = vec![None; cores.len()];
        let mut at = clock.now();
        while !waits(&stop) {
            let Ok(text) = std::fs::read_to_string("/proc/stat") else { return };
            let now = clock.now();
            let wall = now - core::mem::replace(&mut at, now);
            for ((core, note), last) in cores.iter().zip(&mut last) {
                let Some(away) = away(&text, *core) else { continue };
                let ours = Duration::from_nanos(note.ours.load(Ordering::Relaxed));
                let times = CoreTimes { away, ours };
                if let Some(before) = last.replace(times) {
                    let was = note.others.load(Ordering::Relaxed);
                    note.others.store(times.others(&before, wall, was), Ordering::Relaxed);
                }
            }
        }
    })
}

/// Waits for a window; whether the stop was triggered meanwhile.
fn waits(stop: &Stop) -> bool {
    let window = Timespec { tv_sec: 0, tv_nsec: i64::from(WATCH_WINDOW.subsec_nanos()) };
    let mut watched = [PollFd::new(stop, PollFlags::IN)];
    let _ = poll(&mut watched, Some(&window));
    stop.is_triggered()
}

/// A core at one moment: the time in which no thread of this machine had it, and what we had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct CoreTimes {
    away: Duration,
    ours: Duration,
}

impl CoreTimes {
    /// Whether others are at work, in the time `wall` since `before`; `was` is what was found then.
    fn others(&self, before: &Self, wall: Duration, was: bool) -> bool {
        let away = self.away.saturating_sub(before.away);
        let ours = self.ours.saturating_sub(before.ours);
        let others = wall.saturating_sub(away).saturating_sub(ours);
        let part = others.as_secs_f64() / wall.as_secs_f64().max(f64::EPSILON);
        part > if was { IDLE_SHARE } else { AT_WORK }
    }
}

/// The time in which a core was idle, waited for a disk, or was another machine's.
fn away(text: &str, core: usize) -> Option<Duration> {
    let name = format!("cpu{core}");
    let mut words = text.lines().map(str::split_whitespace);
    let line = words.find_map(|mut words| (words.next()? == name).then_some(words))?;
    let ticks: Vec<u64> = line.map_while(|word| word.parse().ok()).collect();
    let of = |index: usize| ticks.get(index).copied().unwrap_or(0);
    // User, nice, system, idle, waiting for a disk, interrupts, softirqs, steal.
    let away = of(3) + of(4) + of(7);
    (ticks.len() >= 4).then(|| Duration::from_secs_f64(away as f64 / TICKS_PER_SECOND))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  9 9 9 9 9 9 9 9 0 0\n\
                        cpu0 100 0 50 700 20 1 2 30 0 0\n\
                        cpu1 1 2 3 4\n\
                        cpu10 1 2 3 400 0 0 0 0 0 0\n\
                        intr 1 2 3\n";

    #[test]
    fn idle_and_stolen_time_of_one_core_is_read() {
        assert_eq!(away(STAT, 0), Some(Duration::from_millis(7500)));
        assert_eq!(away(STAT, 1), Some(Duration::from_millis(40)));
        assert_eq!(away(STAT, 10), Some(Duration::from_millis(4000)));
        assert_eq!(away(STAT, 2), None);
        assert_eq!(away("cpu0 none\n", 0), None);
    }

    #[test]
    fn others_are_what_is_neither_idle_nor_ours_and_go_later_than_they_come() {
        let millis = Duration::from_millis;
        let times = |away, ours| CoreTimes { away: millis(away), ours: millis(ours) };
        let found = |away: u64, ours: u64, was| {
            times(1000 + away, 50 + ours).others(&times(1000, 50), millis(500), was)
        };
        assert!(!found(500, 0, true), "an idle core");
        assert!(!found(0, 500, false), "all ours");
        assert!(!found(215, 250, false), "35 of 500 are too few to come");
        assert!(found(215, 250, true), "and too many to go");
        assert!(!found(225, 250, true), "25 may be the kernel's own");
        assert!(found(0, 250, false));
        assert!(!found(400, 400, true), "what is told late is no others");
    }
}
