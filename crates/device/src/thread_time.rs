//! `ThreadTime`: what a thread has had of the processor, and how long it has waited for it.
//!
//! Read by devices of the kernel's thread that runs their receive half, and by the worker of
//! itself. Reading: the kernel's `Documentation/scheduler/sched-stats.rst`,
//! `/proc/<pid>/schedstat`.

use core::ops::{Add, Sub};
use core::time::Duration;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Time of one thread, or of several together, since their start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ThreadTime {
    /// What it has run; the present turn of a thread that runs now may be missing.
    pub ran: Duration,
    /// How long it was ready to run and did not.
    pub waited: Duration,
}

impl ThreadTime {
    /// Where the time of the calling thread is read. Costs a system call.
    ///
    /// # Errors
    /// The system shows no `/proc`.
    pub fn file_of_this_thread() -> io::Result<File> {
        File::open("/proc/thread-self/schedstat")
    }

    /// Where the time of another thread is read.
    pub(crate) fn file_of(thread: u32) -> io::Result<File> {
        File::open(format!("/proc/{thread}/schedstat"))
    }

    /// The time by now; `None` where the system does not tell. Costs a system call of about a
    /// microsecond.
    #[must_use]
    pub fn read(file: &File) -> Option<Self> {
        let mut text = [0_u8; 96];
        let len = file.read_at(&mut text, 0).ok()?;
        Self::of_line(text.get(..len)?)
    }

    fn of_line(line: &[u8]) -> Option<Self> {
        let mut numbers = line.split(|byte| *byte == b' ').map(nanos);
        Some(Self { ran: numbers.next()??, waited: numbers.next()?? })
    }
}

fn nanos(word: &[u8]) -> Option<Duration> {
    core::str::from_utf8(word).ok()?.parse().ok().map(Duration::from_nanos)
}

impl Add for ThreadTime {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let (ran, waited) =
            (self.ran.saturating_add(other.ran), self.waited.saturating_add(other.waited));
        Self { ran, waited }
    }
}

impl Sub for ThreadTime {
    type Output = Self;

    /// What has come since `earlier`; nothing where time went backwards.
    fn sub(self, earlier: Self) -> Self {
        let (ran, waited) =
            (self.ran.saturating_sub(earlier.ran), self.waited.saturating_sub(earlier.waited));
        Self { ran, waited }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_and_waiting_time_are_read_and_nonsense_is_nothing() {
        let (ran, waited) = (Duration::from_nanos(1_234_567), Duration::from_nanos(89));
        assert_eq!(ThreadTime::of_line(b"1234567 89 3\n"), Some(ThreadTime { ran, waited }));
        for line in [&b""[..], b"7", b"7\n", b"none at all"] {
            assert_eq!(ThreadTime::of_line(line), None);
        }
    }

    #[test]
    fn the_calling_thread_has_run() {
        let Ok(file) = ThreadTime::file_of_this_thread() else { return };
        let first = ThreadTime::read(&file).unwrap();
        let later = ThreadTime::read(&file).unwrap();
        assert_eq!((first - later).ran, Duration::ZERO, "it never runs backwards");
        assert_eq!(first + (later - first), later);
    }
}
