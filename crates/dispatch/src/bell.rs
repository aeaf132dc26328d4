//! `Bell`: how another thread wakes a sleeping worker, or makes a busy one look up.
//!
//! Rung by [`Control`](crate::Control), by devices in memory when their other end sends, by the
//! other workers of a worker group, and (as a [`Waker`]) by programs that use sockets from their
//! own threads. The worker checks a flag once a turn and sleeps on the descriptor.
//!
//! Invariant: everything posted before [`Bell::ring`] is seen by the worker; the descriptor is
//! written only while the worker sleeps, once a sleep. The proof and its loom models are in
//! `sync::Alarm`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::{fmt, io};

use floodwall_sync::Alarm;
use rustix::event::{EventfdFlags, eventfd};

/// A doorbell that wakes one worker. Clones ring for the same worker.
#[derive(Clone)]
pub struct Bell(Arc<BellInner>);

struct BellInner {
    alarm: Alarm,
    descriptor: OwnedFd,
}

impl BellInner {
    #[cold]
    fn call(&self) {
        // Fails only where the counter is full, and then it is readable anyway.
        let _ = rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes());
    }
}

impl Wake for BellInner {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        Bell(Arc::clone(self)).ring();
    }
}

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(BellInner { alarm: Alarm::new(), descriptor })))
    }

    /// Wakes the worker. One atomic operation, and one system call if it sleeps and was not woken
    /// before.
    #[inline]
    pub fn ring(&self) {
        if self.0.alarm.ring() {
            self.0.call();
        }
    }

    /// As [`Bell::ring`], for state that an awake worker checks anyway, published before: a fence
    /// and a load while it is awake.
    #[inline]
    pub(crate) fn nudge(&self) {
        if self.0.alarm.nudge() {
            self.0.call();
        }
    }

    /// The same as a [`Waker`], for engines, which do not depend on dispatch. Allocates nothing.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.0))
    }

    /// Whether it was rung since the last time. One load where it was not.
    #[inline]
    pub(crate) fn heard(&self) -> bool {
        self.0.alarm.heard()
    }

    /// The worker is about to sleep; false where it must not. After true, what is announced by
    /// nudges is to be looked at once more.
    pub(crate) fn doze(&self) -> bool {
        self.0.alarm.doze()
    }

    /// The worker is awake. `called`: its descriptor was readable, and must not end the next sleep.
    pub(crate) fn rise(&self, called: bool) {
        self.0.alarm.rise();
        if called {
            // Nothing to read is as good as something read.
            let _ = rustix::io::read(&self.0.descriptor, &mut [0; 8]);
        }
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
