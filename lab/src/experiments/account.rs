//! `Account`: how long third threads ran on a core while the program on it was ready, by the
//! system's accounting.
//!
//! Called by `stamps.rs`, in the program's own thread. A program that is ready and does not run
//! waits for the running thread: the receiver, the kernel's own threads for packets (`ksoftirqd`,
//! and those of an interface's receive halves), or a third thread, unrelated to the experiment.
//! What interrupts the program is not among its waits: interrupts stay what they are, the flood's.
//! Invariant: where the system reports less, fewer third threads are found, never more; but where
//! it hides the kernel's packet threads, their runs count as a third's, to the advantage of the
//! receiver that they serve.

use core::time::Duration;
use std::fs;

use super::namespace::VETH_FAR;

/// Both numbers of the system's account of a thread.
#[derive(Clone, Copy, Debug, Default)]
struct Schedule {
    ran: Duration,
    waited: Duration,
}

impl Schedule {
    /// `None` where the system does not report it.
    fn read(path: &str) -> Option<Self> {
        Self::parse(&fs::read_to_string(path).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_whitespace().map(str::parse);
        let mut next = || Some(Duration::from_nanos(numbers.next()?.ok()?));
        Some(Self { ran: next()?, waited: next()? })
    }
}

/// The time that third threads had the core while the program was ready, counted from creation on.
#[derive(Debug)]
pub(crate) struct Account {
    /// Of the threads that belong to the experiment.
    own: Vec<String>,
    before: Option<(Schedule, Duration)>,
}

impl Account {
    /// Opened by the program itself; `receiver` is a thread of this process.
    pub(crate) fn open(receiver: i32, core: usize) -> Self {
        let mut own = vec![format!("/proc/self/task/{receiver}/schedstat")];
        own.extend(threads_called(&format!("ksoftirqd/{core}"), true));
        own.extend(threads_called(&format!("napi/{VETH_FAR}-"), false));
        let mut account = Self { own, before: None };
        account.before = account.now();
        account
    }

    /// For how long thirds had the core since.
    pub(crate) fn thirds(&self) -> Duration {
        let Some(((before, own_before), (now, own_now))) = self.before.zip(self.now()) else {
            return Duration::ZERO;
        };
        let waited = now.waited.saturating_sub(before.waited);
        waited.saturating_sub(own_now.saturating_sub(own_before))
    }

    /// The program's schedule, and how long those of the experiment have run.
    fn now(&self) -> Option<(Schedule, Duration)> {
        let program = Schedule::read("/proc/thread-self/schedstat")?;
        let ran = |path: &String| Schedule::read(path).map(|schedule| schedule.ran);
        Some((program, self.own.iter().map(ran).sum::<Option<Duration>>()?))
    }
}

/// The system's accounting files of the threads with that name, or with that prefix of a name.
fn threads_called(name: &str, whole: bool) -> Vec<String> {
    let is_called = |comm: &str| if whole { comm == name } else { comm.starts_with(name) };
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let paths = all.map(|entry| entry.path()).filter(|path| {
        fs::read_to_string(path.join("comm")).is_ok_and(|comm| is_called(comm.trim_end()))
    });
    paths.map(|path| path.join("schedstat").to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_two_numbers_of_nanoseconds() {
        let read = Schedule::parse("1500 2000000 7\n").unwrap();
        assert_eq!(read.ran, Duration::from_nanos(1500));
        assert_eq!(read.waited, Duration::from_millis(2));
        for text in ["", "12", "12 x"] {
            assert!(Schedule::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn where_the_system_tells_nothing_there_are_no_thirds() {
        assert_eq!(Account::open(0, usize::MAX).thirds(), Duration::ZERO);
    }
}
