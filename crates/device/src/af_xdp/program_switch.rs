//! `ProgramSwitch`: a thread that puts an interface's cookie programs into force and out of it.
//!
//! Started by `cookies.rs` when an interface is opened. What it does waits for the kernel: to ask a
//! veth for its peer's features takes the lock of the interface, which any process that changes
//! links may hold, and to take a program out of the map takes a grace period of every processor. On
//! a machine where the workers come before all else both can take seconds, so no worker does it.
//!
//! Invariant: the thread ends with the interface; it holds nothing that a worker waits for.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::cookie_programs::CookiePrograms;

/// How often the peer of a veth is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The longest sleep where nothing is to be looked at.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct ProgramSwitch {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl ProgramSwitch {
    /// Starts it.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(super) fn start(programs: &Arc<CookiePrograms>) -> io::Result<Self> {
        let ends = Arc::new(AtomicBool::new(false));
        let (end, programs) = (Arc::clone(&ends), Arc::clone(programs));
        let thread = Builder::new().name("xdp-switch".to_owned()).spawn(move || {
            loop {
                std::thread::park_timeout(if programs.is_veth() { LOOK_EVERY } else { SLEEP_MAX });
                if end.load(Ordering::Acquire) {
                    return;
                }
                programs.follow();
            }
        })?;
        Ok(Self { ends, thread })
    }

    /// What is wanted has changed. Costs a system call where it sleeps.
    pub(super) fn wake(&self) {
        self.thread.thread().unpark();
    }
}

impl Drop for ProgramSwitch {
    /// Does not wait for it: it may wait for the kernel.
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        self.wake();
    }
}
