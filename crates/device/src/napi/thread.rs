//! The thread that runs a receive half: its cores, its nice value, its control group.
//!
//! Called by `linux.rs`. A thread of the kernel is set like any other; moving it into our control
//! group is what makes it compete with us, and not with whole groups of others.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, getpriority_process, setpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// What a thread is set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ThreadStanding {
    /// The cores that it may use.
    pub(super) cores: Vec<usize>,
    /// From -20, before all others, to 19.
    pub(super) nice: i32,
}

fn pid(thread: u32) -> io::Result<Pid> {
    let number = i32::try_from(thread).ok().and_then(Pid::from_raw);
    number.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))
}

/// Reads the scheduling state of a thread.
pub(super) fn standing(thread: u32) -> io::Result<ThreadStanding> {
    let pid = pid(thread)?;
    let set = sched_getaffinity(Some(pid))?;
    let cores = (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect();
    Ok(ThreadStanding { cores, nice: getpriority_process(Some(pid))? })
}

/// Lets it run on these cores only.
pub(super) fn pin(thread: u32, cores: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    cores.iter().filter(|core| **core < CpuSet::MAX_CPU).for_each(|core| set.set(*core));
    Ok(sched_setaffinity(Some(pid(thread)?), &set)?)
}

/// Sets its nice value.
pub(super) fn set_nice(thread: u32, nice: i32) -> io::Result<()> {
    Ok(setpriority_process(Some(pid(thread)?), nice)?)
}

/// What `sched_getattr(2)` and `sched_setattr(2)` exchange, in its first version.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct SchedAttributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Sets how long a thread of the default class runs at a stretch while others wait (Linux 6.12;
/// before, it has no effect); 0 is the calling thread. Everything else stays as it is.
pub(super) fn set_slice(thread: u32, slice: Duration) -> io::Result<()> {
    let mut attributes = SchedAttributes::default();
    let size = size_of::<SchedAttributes>();
    let none: libc::c_uint = 0;
    // SAFETY: the kernel writes at most `size` bytes into the structure, which has them.
    let read =
        unsafe { libc::syscall(libc::SYS_sched_getattr, thread, &raw mut attributes, size, none) };
    if read != 0 {
        return Err(io::Error::last_os_error());
    }
    if attributes.policy != libc::SCHED_OTHER.cast_unsigned() {
        return Ok(());
    }
    attributes.size = size as u32;
    attributes.flags = 0;
    attributes.runtime = slice.as_nanos() as u64;
    // SAFETY: the kernel reads `size` bytes of the structure.
    let set =
        unsafe { libc::syscall(libc::SYS_sched_setattr, thread, &raw const attributes, none) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets nice value and slice of a thread of the default class.
pub(super) fn set_turns(thread: u32, nice: i32, slice: Duration) -> io::Result<()> {
    let attributes = SchedAttributes {
        size: size_of::<SchedAttributes>() as u32,
        policy: libc::SCHED_OTHER.cast_unsigned(),
        nice,
        runtime: slice.as_nanos() as u64,
        ..SchedAttributes::default()
    };
    let none: libc::c_uint = 0;
    // SAFETY: the kernel reads `size` bytes of the structure.
    let set =
        unsafe { libc::syscall(libc::SYS_sched_setattr, thread, &raw const attributes, none) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The group of the processor's controller that a thread is in: its path within the hierarchy.
pub(super) fn group(thread: u32) -> io::Result<String> {
    let text = std::fs::read_to_string(format!("/proc/{thread}/cgroup"))?;
    own_line(&text).map(|(_, path)| path.to_owned()).ok_or_else(none)
}

/// The calling thread's group.
pub(super) fn our_group() -> io::Result<String> {
    let text = std::fs::read_to_string("/proc/thread-self/cgroup")?;
    own_line(&text).map(|(_, path)| path.to_owned()).ok_or_else(none)
}

/// How often a thread that has not run yet is tried again, and how long after.
const THREAD_TRIES: u32 = 100;
const THREAD_TRY_PAUSE: Duration = Duration::from_millis(2);

/// Moves a thread into a group. A thread of the kernel's that was made just now cannot be moved
/// before it has run for the first time, which on a busy core takes a while: it is waited for, up
/// to 0.2 s.
#[expect(clippy::disallowed_methods, reason = "at the start, before there is a packet")]
pub(super) fn move_to(thread: u32, group: &str) -> io::Result<()> {
    let text = std::fs::read_to_string(format!("/proc/{thread}/cgroup"))?;
    let (is_old, _) = own_line(&text).ok_or_else(none)?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    let folder = folder(&mounts, is_old, group).ok_or_else(none)?;
    let file = folder.join("cgroup.procs");
    for _ in 1..THREAD_TRIES {
        match std::fs::write(&file, thread.to_string()) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                std::thread::sleep(THREAD_TRY_PAUSE);
            }
            moved => return moved,
        }
    }
    std::fs::write(&file, thread.to_string())
}

fn none() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "no control group of the processor is mounted")
}

/// The line of the processor's controller: whether it has a hierarchy of its own (version 1), and
/// the path.
fn own_line(text: &str) -> Option<(bool, &str)> {
    let lines = text.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        rest.split_once(':')
    });
    let mut unified = None;
    for (controllers, path) in lines {
        if controllers.split(',').any(|controller| controller == "cpu") {
            return Some((true, path));
        }
        if controllers.is_empty() {
            unified = Some((false, path));
        }
    }
    unified
}

/// Where the files of a group are, by the process's mounts.
fn folder(mounts: &str, is_old: bool, group: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (mount, system) = line.split_once(" - ")?;
        let mut system = system.split(' ');
        let kind = system.next()?;
        let options = system.nth(1)?;
        let is_it = match is_old {
            true => kind == "cgroup" && options.split(',').any(|option| option == "cpu"),
            false => kind == "cgroup2",
        };
        let mut mount = mount.split(' ').skip(3);
        let (root, at) = (mount.next()?, mount.next()?);
        let within = group.strip_prefix(root.trim_end_matches('/'))?;
        is_it.then(|| Path::new(at).join(within.trim_start_matches('/')))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_in_old_and_new_hierarchies() {
        let old = "4:memory:/a/b\n1:cpu,cpuacct:/c\n0::/d\n";
        assert_eq!(own_line(old), Some((true, "/c")));
        assert_eq!(own_line("0::/d\n"), Some((false, "/d")));
        assert_eq!(own_line("nonsense"), None);
        let mounts = "22 1 0:2 / /proc rw - proc proc rw\n\
                      30 1 0:3 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
                      31 1 0:4 /box /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let folder = |is_old, group| folder(mounts, is_old, group);
        assert_eq!(folder(true, "/c"), Some("/sys/fs/cgroup/cpu/c".into()));
        assert_eq!(folder(false, "/box/d"), Some("/sys/fs/cgroup/unified/d".into()));
        assert_eq!(folder(false, "/elsewhere"), None, "outside of what we see");
    }

    #[test]
    fn a_thread_that_is_gone_is_an_error() {
        for thread in [0, u32::MAX, i32::MAX as u32] {
            assert!(standing(thread).is_err() && set_nice(thread, 19).is_err());
            assert!(pin(thread, &[0]).is_err() && group(thread).is_err());
        }
    }
}
