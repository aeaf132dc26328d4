//! `CoreDemand`: what the threads of other programs have wanted of some cores: what they ran there,
//! and what they waited for it.
//!
//! Asked by `core_watch.rs`, outside of the packet path. Reads the processor that each thread of
//! each other process was on last (`/proc/PID/task/TID/stat`, proc_pid_stat(5)), and of those on
//! one of the cores the time (`schedstat`). The kernel's threads and this process's own are left
//! out. Where the system hides other users' processes (`hidepid`), or they are in another namespace
//! of processes, nothing is found, and nothing is left to them.
//!
//! # Under flood
//! Grows with the threads of the system, at most [`THREADS_MAX`] at a time.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Threads that are looked at; what is beyond them wants nothing.
const THREADS_MAX: usize = 16_384;
/// Looks for which a thread of the kernel is known as one without being read: its number may become
/// a program's.
const KERNELS_KNOWN: u32 = 100;
/// The flag of the kernel's own threads (`PF_KTHREAD`).
const KERNELS: u64 = 0x0020_0000;
/// Words of a thread's `stat` behind its name: its flags, and the processor that it was on.
const FLAGS: usize = 6;
const PROCESSOR: usize = 36;

/// What was found of each thread on one of the cores: what it ran and waited for since its start.
type WantedTimes = HashMap<u32, Duration>;

/// The threads on some cores, as they were last.
#[derive(Debug)]
pub(crate) struct CoreDemand {
    cores: Vec<usize>,
    /// Of each core; empty before the first look.
    last: Vec<WantedTimes>,
    /// Threads of the kernel, by the last looks.
    kernels: HashSet<u32>,
    looks: u32,
}

impl CoreDemand {
    pub(crate) fn new(cores: Vec<usize>) -> Self {
        Self { cores, last: Vec::new(), kernels: HashSet::new(), looks: 0 }
    }

    /// For each core: which part of it was wanted in the time `wall` since the last look, 1 being
    /// one thread that wants all of it; nothing by the first look.
    pub(crate) fn look(&mut self, wall: Duration) -> Vec<f64> {
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(KERNELS_KNOWN) {
            self.kernels.clear();
        }
        let proc = Path::new("/proc");
        let now = threads(proc, &self.cores, std::process::id(), &mut self.kernels);
        self.compare(now, wall)
    }

    /// It did not matter what was wanted.
    pub(crate) fn forget(&mut self) -> Vec<f64> {
        self.last.clear();
        vec![0.0; self.cores.len()]
    }

    fn compare(&mut self, now: Vec<WantedTimes>, wall: Duration) -> Vec<f64> {
        let last = core::mem::replace(&mut self.last, now);
        let parts = self
            .last
            .iter()
            .enumerate()
            .map(|(number, now)| last.get(number).map_or(0.0, |last| wanted(last, now, wall)));
        parts.collect()
    }
}

/// Which part of a window of length `wall` the threads of a core have wanted.
fn wanted(last: &WantedTimes, now: &WantedTimes, wall: Duration) -> f64 {
    let of = |(thread, now): (&u32, &Duration)| match last.get(thread) {
        Some(last) => now.saturating_sub(*last),
        // A thread that came just now; or from another core, where it had the rest of its time.
        None if *now <= wall => *now,
        None => Duration::ZERO,
    };
    let all: Duration = now.iter().map(of).sum();
    all.as_secs_f64() / wall.as_secs_f64().max(f64::EPSILON)
}

/// The threads on each of these cores, without the kernel's and those of process `own`. Of those in
/// `kernels` nothing is read; those that are found are added.
fn threads(proc: &Path, cores: &[usize], own: u32, kernels: &mut HashSet<u32>) -> Vec<WantedTimes> {
    let mut all = vec![WantedTimes::new(); cores.len()];
    let mut left = THREADS_MAX;
    for process in numbers(proc).filter(|process| *process != own) {
        if kernels.contains(&process) {
            continue;
        }
        let path = proc.join(process.to_string());
        let Ok(stat) = fs::read_to_string(path.join("stat")) else { continue };
        if word(&stat, FLAGS).is_none_or(|flags| flags & KERNELS != 0) {
            kernels.insert(process);
            continue;
        }
        for thread in numbers(&path.join("task")).take(left) {
            left -= 1;
            let path = path.join("task").join(thread.to_string());
            let Ok(stat) = fs::read_to_string(path.join("stat")) else { continue };
            let on = word(&stat, PROCESSOR).and_then(|on| usize::try_from(on).ok());
            let Some(number) = cores.iter().position(|core| Some(*core) == on) else { continue };
            let time = fs::read_to_string(path.join("schedstat")).ok();
            if let (Some(time), Some(all)) =
                (time.and_then(|text| time_of(&text)), all.get_mut(number))
            {
                all.insert(thread, time);
            }
        }
    }
    all
}

/// The entries of a folder that are numbers.
fn numbers(folder: &Path) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// A word of a thread's `stat` that is a number, counted from behind its name, which may contain
/// anything.
fn word(stat: &str, number: usize) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(number)?.parse().ok()
}

/// What a thread ran and waited, together, by its `schedstat`.
fn time_of(text: &str) -> Option<Duration> {
    let mut nanos = text.split_whitespace().map(|word| word.parse().ok().map(Duration::from_nanos));
    Some(nanos.next()??.saturating_add(nanos.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALL: Duration = Duration::from_millis(50);

    fn times(all: &[(u32, u64)]) -> WantedTimes {
        all.iter().map(|(thread, millis)| (*thread, Duration::from_millis(*millis))).collect()
    }

    #[test]
    fn what_was_wanted_is_what_has_come_of_each_thread_and_new_ones_count() {
        let last = times(&[(1, 1000), (2, 500), (3, 70)]);
        let now = times(&[(1, 1050), (2, 505), (4, 20), (5, 9000)]);
        // All of it, a tenth, a new one, and one that was elsewhere.
        let found = wanted(&last, &now, WALL);
        assert!((found - 1.5).abs() < 1e-9, "{found}");
        let mut demand = CoreDemand::new(vec![1, 3]);
        let both = || vec![now.clone(), WantedTimes::new()];
        assert_eq!(demand.compare(both(), WALL), [0.0, 0.0], "by the first look nothing is known");
        assert_eq!(demand.compare(both(), WALL), [0.0, 0.0]);
        assert_eq!(demand.compare(vec![WantedTimes::new(), times(&[(7, 25)])], WALL), [0.0, 0.5]);
        assert_eq!(demand.forget(), [0.0, 0.0]);
        assert_eq!(demand.compare(both(), WALL), [0.0, 0.0]);
    }

    #[test]
    fn a_threads_files_are_read_whatever_its_name_is() {
        let mut stat = String::from("42 (a) b (c)) R 1 42 42 0 -1 4194368");
        (10..39).for_each(|number| stat.push_str(&format!(" {number}")));
        stat.push_str(" 3 0 0\n");
        assert_eq!((word(&stat, FLAGS), word(&stat, PROCESSOR)), (Some(4_194_368), Some(3)));
        assert_eq!(time_of("1500 2500 7\n"), Some(Duration::from_nanos(4000)));
        assert_eq!(
            (word("42 x", FLAGS), word("1 (a) R", FLAGS), time_of("7\n")),
            (None, None, None)
        );
    }

    #[test]
    fn threads_of_other_processes_are_found_on_their_core_without_the_kernels_and_our_own() {
        let proc = std::env::temp_dir().join(format!("floodwall-demand-{}", std::process::id()));
        let put = |process: u32, thread: u32, flags: u64, core: usize| {
            let words =
                format!("(n) R 0 0 0 0 0 {flags} {} {core} 0\n", "0 ".repeat(29).trim_end());
            let task = proc.join(format!("{process}/task/{thread}"));
            fs::create_dir_all(&task).unwrap();
            fs::write(proc.join(format!("{process}/stat")), format!("{process} {words}")).unwrap();
            fs::write(task.join("stat"), format!("{thread} {words}")).unwrap();
            fs::write(task.join("schedstat"), format!("{thread} 1000 1\n")).unwrap();
        };
        put(10, 10, 0x40, 1);
        put(10, 11, 0x40, 2);
        put(20, 20, KERNELS, 1);
        put(30, 30, 0, 1);
        fs::create_dir_all(proc.join("sys")).unwrap();
        let of = |thread, nanos| WantedTimes::from([(thread, Duration::from_nanos(nanos))]);
        let mut kernels = HashSet::new();
        let found = threads(&proc, &[1, 2], 30, &mut kernels);
        assert_eq!(found, [of(10, 1010), of(11, 1011)]);
        // A thread of the kernel is not read again, and a number of it may be a program's later.
        assert_eq!(kernels, HashSet::from([20]));
        put(20, 20, 0, 1);
        assert_eq!(threads(&proc, &[1], 30, &mut kernels), [of(10, 1010)]);
        kernels.clear();
        assert_eq!(threads(&proc, &[1], 30, &mut kernels)[0].len(), 2);
        fs::remove_dir_all(&proc).unwrap();
    }

    /// However busy the machine is: what it cannot run it waits for.
    #[test]
    fn a_program_of_another_process_that_wants_a_core_is_found_there() {
        let all: Vec<_> = (0..1024).collect();
        let mut program = std::process::Command::new("sh");
        let mut program = program.args(["-c", "while :; do :; done"]).spawn().unwrap();
        let mut found = false;
        let look = || threads(Path::new("/proc"), &all, std::process::id(), &mut HashSet::new());
        let mut before = look();
        for _ in 0..1000 {
            let pause = rustix::event::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            let _ = rustix::event::poll(&mut [], Some(&pause));
            let now = look();
            let has_come = |(before, now): (&WantedTimes, &WantedTimes)| {
                let of = |times: &WantedTimes| times.get(&program.id()).copied();
                of(before).zip(of(now)).is_some_and(|(before, now)| now > before)
            };
            found = before.iter().zip(&now).any(has_come);
            if found {
                break;
            }
            before = now;
        }
        program.kill().unwrap();
        program.wait().unwrap();
        assert!(found);
    }
}
