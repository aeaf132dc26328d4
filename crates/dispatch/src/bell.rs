//! `Bell`: how another thread wakes a sleeping worker, or makes a busy one look up.
//!
//! Rung by [`Control`](crate::Control) and by devices in memory whose other end sends. The worker
//! looks at a flag once a turn and sleeps on the descriptor.
//!
//! Invariant: whatever was posted before [`Bell::ring`] is seen by the worker, because the flag is
//! lowered before the worker looks at what was posted, and the descriptor is written by whoever
//! raised the flag. A ring on a raised flag costs no system call.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fmt, io};

use rustix::event::{EventfdFlags, eventfd};

/// See the file's head. Clones ring for the same worker.
#[derive(Clone)]
pub struct Bell(Arc<Inner>);

struct Inner {
    raised: AtomicBool,
    descriptor: OwnedFd,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(Inner { raised: AtomicBool::new(false), descriptor })))
    }

    /// Wakes the worker. One atomic exchange, and one system call if nobody rang before.
    pub fn ring(&self) {
        if !self.0.raised.swap(true, Ordering::AcqRel) {
            // Fails only where the counter is full, and then it is readable anyway.
            let _ = rustix::io::write(&self.0.descriptor, &1_u64.to_ne_bytes());
        }
    }

    /// Whether it was rung since the last time; lowers the flag. One load where it was not.
    #[inline]
    pub(crate) fn heard(&self) -> bool {
        self.0.raised.load(Ordering::Acquire) && {
            self.silence();
            self.0.raised.swap(false, Ordering::AcqRel)
        }
    }

    /// After a sleep that the descriptor ended: makes it quiet where its flag was heard before it
    /// was written, so that it does not end the next sleep too.
    pub(crate) fn silence_if_quiet(&self) {
        if !self.0.raised.load(Ordering::Acquire) {
            self.silence();
        }
    }

    fn silence(&self) {
        // Nothing to read is as good as something read.
        let _ = rustix::io::read(&self.0.descriptor, &mut [0; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.descriptor.as_fd()
    }
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bell")
    }
}
