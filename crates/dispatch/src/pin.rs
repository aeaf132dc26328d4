//! Threads to cores.
//!
//! Called by a program on the thread that will be a worker, before it makes its pool, so that the
//! memory is touched first by the core that will use it.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use thiserror::Error;

/// Why a thread was not pinned.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum PinError {
    /// There is no such core for this process.
    #[error(
        "core {core} is not among those that this process may use ({allowed}); choose one of \
             these, or widen the set (taskset, cpuset of the container)"
    )]
    NotAllowed {
        /// The requested core.
        core: usize,
        /// The cores that the process may use.
        allowed: String,
    },
    /// Fewer cores than workers.
    #[error(
        "{workers} workers are more than the {cores} cores that this process may use ({allowed}): \
         use {cores} at most, or widen the set (taskset, cpuset of the container)"
    )]
    TooFew {
        /// The requested number.
        workers: usize,
        /// How many cores there are.
        cores: usize,
        /// The cores that the process may use.
        allowed: String,
    },
    /// The system does not report the available cores.
    #[error("cannot find out which cores this process may use: {0}")]
    Unknown(String),
    /// The system refused for another reason.
    #[error("cannot pin the worker to core {core}: {reason}")]
    System {
        /// The requested core.
        core: usize,
        /// The system's error.
        reason: String,
    },
}

/// One core for each of so many workers: the first that this process may use.
///
/// # Errors
/// There are fewer, or the system does not report them.
pub fn cores_for(workers: usize) -> Result<Vec<usize>, PinError> {
    let allowed = sched_getaffinity(None).map_err(|e| PinError::Unknown(e.to_string()))?;
    choose(workers, &allowed)
}

fn choose(workers: usize, allowed: &CpuSet) -> Result<Vec<usize>, PinError> {
    let cores: Vec<_> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
    match cores.get(..workers) {
        Some(first) => Ok(first.to_vec()),
        None => Err(PinError::TooFew { workers, cores: cores.len(), allowed: ranges(allowed) }),
    }
}

/// Whether this process may use `core`.
///
/// # Errors
/// As [`pin_to_core`], which it does not do.
pub fn check_core(core: usize) -> Result<(), PinError> {
    let allowed = sched_getaffinity(None).map_err(|e| PinError::Unknown(e.to_string()))?;
    if core >= CpuSet::MAX_CPU || !allowed.is_set(core) {
        return Err(PinError::NotAllowed { core, allowed: ranges(&allowed) });
    }
    Ok(())
}

/// Pins the calling thread to `core`, as the system numbers them from 0.
///
/// # Errors
/// The core does not exist, the process may not use it, or the system call fails.
pub fn pin_to_core(core: usize) -> Result<(), PinError> {
    let system = |error: rustix::io::Errno| PinError::System { core, reason: error.to_string() };
    check_core(core)?;
    let mut one = CpuSet::new();
    one.set(core);
    sched_setaffinity(None, &one).map_err(system)
}

/// Keeps the calling thread off these cores where it may use others; true if it may.
pub(crate) fn avoid_cores(cores: &[usize]) -> bool {
    let Ok(mut others) = sched_getaffinity(None) else { return false };
    cores.iter().filter(|core| **core < CpuSet::MAX_CPU).for_each(|core| others.unset(*core));
    others.count() > 0 && sched_setaffinity(None, &others).is_ok()
}

/// The set as text: `0-3,8`.
fn ranges(set: &CpuSet) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for core in (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)) {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == core => *last = core,
            _ => parts.push((core, core)),
        }
    }
    let word = |(first, last): &(usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    parts.iter().map(word).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a thread of its own is what is pinned")]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_on_the_core_that_it_was_pinned_to() {
        std::thread::spawn(|| {
            let allowed = sched_getaffinity(None).unwrap();
            let core = (0..CpuSet::MAX_CPU).rfind(|core| allowed.is_set(*core)).unwrap();
            pin_to_core(core).unwrap();
            assert_eq!(rustix::thread::sched_getcpu(), core);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_avoids_cores_where_it_may_use_others() {
        std::thread::spawn(|| {
            let allowed = sched_getaffinity(None).unwrap();
            let cores: Vec<_> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
            assert!(!avoid_cores(&cores), "there are no others");
            assert_eq!(sched_getaffinity(None).unwrap(), allowed);
            let Some((first, others)) = cores.split_first().filter(|(_, rest)| !rest.is_empty())
            else {
                println!("skipped: this machine has one core");
                return;
            };
            assert!(avoid_cores(&[*first, usize::MAX]));
            assert_eq!(cores_for(others.len()), Ok(others.to_vec()));
            assert!(check_core(*first).is_err());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_core_that_is_not_there_is_refused_with_those_that_are() {
        for core in [CpuSet::MAX_CPU - 1, CpuSet::MAX_CPU, usize::MAX] {
            let text = pin_to_core(core).unwrap_err().to_string();
            assert!(text.contains(&format!("core {core} is not among")), "{text}");
            assert!(text.contains("may use ("), "{text}");
        }
    }

    #[test]
    fn a_cpuset_that_forbids_a_core_is_named_and_leaves_the_others() {
        std::thread::spawn(|| {
            let allowed = sched_getaffinity(None).unwrap();
            let cores: Vec<_> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
            let (Some(first), Some(other)) = (cores.first(), cores.get(1)) else {
                println!("skipped: this machine has one core");
                return;
            };
            // As taskset does: from now on this thread may use one core only.
            pin_to_core(*other).unwrap();
            let refused = pin_to_core(*first).unwrap_err();
            let allowed = other.to_string();
            assert_eq!(refused, PinError::NotAllowed { core: *first, allowed: allowed.clone() });
            assert_eq!(cores_for(1), Ok(vec![*other]));
            let refused = cores_for(2).unwrap_err();
            assert_eq!(refused, PinError::TooFew { workers: 2, cores: 1, allowed });
        })
        .join()
        .unwrap();
    }

    #[test]
    fn more_workers_than_cores_are_refused_with_how_many_there_may_be() {
        let mut set = CpuSet::new();
        [1, 4, 5].into_iter().for_each(|core| set.set(core));
        assert_eq!(choose(2, &set), Ok(vec![1, 4]));
        let text = choose(4, &set).unwrap_err().to_string();
        assert!(text.starts_with("4 workers are more than the 3 cores"), "{text}");
        assert!(text.contains("(1,4-5): use 3 at most"), "{text}");
    }

    #[test]
    fn a_set_of_cores_reads_as_ranges() {
        let mut set = CpuSet::new();
        for core in [0, 1, 2, 5, 7, 8] {
            set.set(core);
        }
        assert_eq!(ranges(&set), "0-2,5,7-8");
    }
}
