//! `SharedPressure`: whether any worker's devices currently drop unverified flows.
//!
//! Read by the worker's turn. Where a device passes established flows and limits unverified ones by
//! credit, the worker that receives a flow need not be the one that can classify it. So, while one
//! worker's devices drop packets, all workers classify the packets handed to them, and report the
//! established flows to the interface. Invariant: the shared word is written where a worker begins
//! or ends to drop, and read once a turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One worker's handle to the worker group's shared pressure flag.
#[derive(Debug, Default)]
pub(crate) struct SharedPressure {
    /// How many workers' devices choose.
    choosing: Arc<AtomicUsize>,
    own: bool,
}

impl SharedPressure {
    /// Another worker's end.
    pub(crate) fn join(&self) -> Self {
        Self { choosing: Arc::clone(&self.choosing), own: false }
    }

    /// Whether this worker's devices choose in this turn.
    #[inline]
    pub(crate) fn tell(&mut self, own: bool) {
        if own != self.own {
            self.own = own;
            let by = if own { 1 } else { usize::MAX };
            self.choosing.fetch_add(by, Ordering::Relaxed);
        }
    }

    /// Whether another worker's do.
    #[inline]
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.choosing.load(Ordering::Relaxed) > usize::from(self.own)
    }
}

impl Drop for SharedPressure {
    fn drop(&mut self) {
        self.tell(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_worker_hears_of_the_others_until_they_end() {
        let mut one = SharedPressure::default();
        let (mut two, three) = (one.join(), one.join());
        assert!(!one.is_elsewhere());
        one.tell(true);
        one.tell(true);
        assert!(!one.is_elsewhere() && two.is_elsewhere() && three.is_elsewhere());
        two.tell(true);
        assert!(one.is_elsewhere());
        one.tell(false);
        assert!(!two.is_elsewhere() && three.is_elsewhere());
        drop(two);
        assert!(!three.is_elsewhere() && !one.is_elsewhere());
    }
}
