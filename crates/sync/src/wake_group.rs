//! Where a worker leaves all the wakers of one runtime, once a round, for that runtime to wake.
//!
//! # What it is
//!
//! A list under a lock that the worker only ever *tries*, a word with a bit for a runtime driver
//! task that sleeps, and the driver's waker. Waking a task from outside its runtime is slow (a
//! system call each, on a runtime of one thread) and unfair (such tasks wait behind all that were
//! woken from inside). So the worker hands all wakers over at once and wakes one task of the
//! runtime, the driver, which wakes the others from inside: 8 instead of 457 ns each for a thousand
//! sleeping tasks (`docs/design/ownership.md`).
//!
//! # Callers
//!
//! A worker at the end of its round ([`WakeGroup::hand_over`]); the driver, which each runtime's
//! adapter spawns once ([`WakeGroup::drive`]), and which closes the group when its runtime ends
//! ([`WakeGroup::close`]).
//!
//! # Invariant
//!
//! A waker that was handed over is woken by exactly one of: the driver; the thread that closes the
//! group; the worker itself, where the list was locked, full or closed. The worker never waits: it
//! is at most slower. At most one foreign wake a runtime and round, unless the lock was held.
//!
//! # Orderings, and why
//!
//! The list is ordered by its lock. `WAIT` is set by the driver *before* it looks at the list for
//! the last time, and found by the worker *after* it has added to the list: if the driver's look
//! came first, the worker's lock orders the mark before its swap, and the driver is woken; else the
//! driver sees what was added. Both are **swaps**: a plain store may be overtaken by the very look
//! that it announces (a model of the prototype found that).

use core::fmt;
use core::task::{Context, Poll, Waker};
use std::collections::VecDeque;

use crate::shim::atomic::{AtomicU32, Ordering::AcqRel};
use crate::shim::{Mutex, MutexGuard};
use crate::waker::WakerCell;

/// The driver sleeps: wake it.
const WAIT: u32 = 1;

/// What the lock keeps.
struct WakeList {
    wakers: VecDeque<Waker>,
    dead: bool,
}

/// The wakers of one runtime's tasks, handed over by workers and woken by the runtime's driver.
pub struct WakeGroup {
    list: Mutex<WakeList>,
    word: AtomicU32,
    driver: WakerCell,
    /// What the driver wakes just now: it alone locks this.
    drawn: Mutex<Vec<Waker>>,
    max: usize,
}

impl WakeGroup {
    /// A group with memory for `max` wakers.
    #[must_use]
    pub fn new(max: usize) -> Self {
        let list = WakeList { wakers: VecDeque::with_capacity(max), dead: false };
        Self {
            list: Mutex::new(list),
            word: AtomicU32::new(0),
            driver: WakerCell::new(),
            drawn: Mutex::new(Vec::new()),
            max,
        }
    }

    /// Hands wakers over, and wakes the driver where it sleeps. Never waits: what cannot be handed
    /// over is woken here. Returns how many foreign wakes that took.
    pub fn hand_over(&self, wakers: impl IntoIterator<Item = Waker>) -> usize {
        let mut wakers = wakers.into_iter();
        let mut handed = false;
        if let Ok(mut list) = self.list.try_lock()
            && !list.dead
        {
            let room = self.max - list.wakers.len().min(self.max);
            list.wakers.extend(wakers.by_ref().take(room));
            handed = !list.wakers.is_empty();
        }
        let mut woken = 0;
        if handed
            && self.word.swap(0, AcqRel) == WAIT
            && let Some(driver) = self.driver.take()
        {
            driver.wake();
            woken += 1;
        }
        for waker in wakers {
            waker.wake();
            woken += 1;
        }
        woken
    }

    /// One poll of the driver: wakes up to `most` tasks. Ready where there may be more: let others
    /// run and come back. Pending where all have been woken: the driver sleeps until the next.
    pub fn drive(&self, cx: &mut Context<'_>, most: usize) -> Poll<()> {
        if self.wake_some(most) {
            return Poll::Ready(());
        }
        self.driver.register(cx.waker());
        self.word.swap(WAIT, AcqRel);
        match lock(&self.list).wakers.is_empty() {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    }

    /// Wakes up to `most`; whether there were that many. The list is locked once, and not while
    /// the wakers are called.
    fn wake_some(&self, most: usize) -> bool {
        let mut drawn = lock(&self.drawn);
        {
            let mut list = lock(&self.list);
            let count = list.wakers.len().min(most);
            drawn.extend(list.wakers.drain(..count));
        }
        let full = drawn.len() >= most;
        drawn.drain(..).for_each(Waker::wake);
        full
    }

    /// The group has a runtime, again.
    pub fn open(&self) {
        lock(&self.list).dead = false;
    }

    /// The runtime ends: wakes what was handed over; from now on workers wake directly.
    pub fn close(&self) {
        let left = {
            let mut list = lock(&self.list);
            list.dead = true;
            core::mem::take(&mut list.wakers)
        };
        left.into_iter().for_each(Waker::wake);
    }
}

/// The value of a lock; a panic with the lock held left it valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl fmt::Debug for WakeGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WakeGroup").field("max", &self.max).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
