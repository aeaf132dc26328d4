//! `Stop`: one word to every worker and thread that the program ends.
//!
//! Called by whoever decides it: a signal's thread, a test, another worker's end. Workers look at
//! the flag once a turn and sleep on the descriptor, which stays readable once triggered, so that
//! everybody who waits wakes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fmt, io};

use rustix::event::{EventfdFlags, eventfd};

/// See the file's head. Clones mean the same stop.
#[derive(Clone)]
pub struct Stop(Arc<Inner>);

struct Inner {
    triggered: AtomicBool,
    descriptor: OwnedFd,
}

impl Stop {
    /// One that nobody has triggered.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(Inner { triggered: AtomicBool::new(false), descriptor })))
    }

    /// Asks everybody to end. Again is allowed, and does nothing.
    pub fn trigger(&self) {
        if !self.0.triggered.swap(true, Ordering::AcqRel) {
            // The counter is far from full, so this can only fail if the descriptor is broken;
            // the flag is set in any case.
            let _ = rustix::io::write(&self.0.descriptor, &1_u64.to_ne_bytes());
        }
    }

    /// Whether somebody has asked. One load.
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
