//! `Stop`: the shutdown signal to all workers and threads.
//!
//! Triggered by a signal handler's thread, a test, or another worker's end. Workers check the flag
//! once a turn and sleep on the descriptor, which stays readable once triggered, so that every
//! waiting thread wakes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fmt, io};

use rustix::event::{EventfdFlags, eventfd};

/// A shutdown flag with a pollable descriptor. Clones refer to the same stop.
#[derive(Clone)]
pub struct Stop(Arc<StopInner>);

struct StopInner {
    triggered: AtomicBool,
    descriptor: OwnedFd,
}

impl Stop {
    /// A stop that is not triggered.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(StopInner { triggered: AtomicBool::new(false), descriptor })))
    }

    /// Requests the end of all threads. Repeated calls have no effect.
    pub fn trigger(&self) {
        if !self.0.triggered.swap(true, Ordering::AcqRel) {
            // The counter is far from full, so this can only fail if the descriptor is broken;
            // the flag is set in any case.
            let _ = rustix::io::write(&self.0.descriptor, &1_u64.to_ne_bytes());
        }
    }

    /// Whether the stop was triggered. One load.
    #[must_use]
    #[inline]
    pub fn is_triggered(&self) -> bool {
        self.0.triggered.load(Ordering::Acquire)
    }
}

impl AsFd for Stop {
    /// Readable from [`Stop::trigger`] on. Only to be polled, never to be read.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.descriptor.as_fd()
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stop(triggered: {})", self.is_triggered())
    }
}
