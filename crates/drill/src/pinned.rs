//! `Pinned`: a thread that stays on one core while this exists, and may run where it could before
//! when it is dropped.
//!
//! Made by `wire.rs` for the crowd, which runs in its caller's thread.

use floodwall_dispatch::pin_to_core;
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};

/// A pinned thread, and its former set of cores.
pub(crate) struct Pinned {
    thread: Pid,
    before: CpuSet,
}

impl Pinned {
    /// The calling thread, on `core`; `None` where the system does not let it.
    pub(crate) fn to(core: usize) -> Option<Self> {
        let before = sched_getaffinity(None).ok()?;
        pin_to_core(core).ok()?;
        Some(Self { thread: gettid(), before })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Where the cores have changed meanwhile, it stays where it is.
        let _ = sched_setaffinity(Some(self.thread), &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_may_go_where_it_could_before() {
        let cores = || sched_getaffinity(None).unwrap();
        let before = cores();
        let core = (0..CpuSet::MAX_CPU).find(|core| before.is_set(*core)).unwrap();
        let pinned = Pinned::to(core).unwrap();
        assert_eq!((cores().count(), cores().is_set(core)), (1, true));
        drop(pinned);
        assert_eq!(cores(), before);
    }
}
