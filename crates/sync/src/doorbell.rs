//! One word that notifies a worker of the slots that need service: an intrusive list of indexes.
//!
//! # What it is
//!
//! The head of a list that is linked through a word in each slot, as in
//! [`take_all`](crate::take_all), but by *index*, so that all of it is safe code: the owner of the
//! slots passes a reference to the link of the slot that rings. It cannot be full, needs no
//! registration of threads, and carries no data, so nothing that is sent depends on its order. Two
//! flags are in the same word: the worker sleeps (the next ringer wakes it), and the worker has
//! stopped (there will be no answer any more).
//!
//! # Callers
//!
//! Programs on any thread ring for a connection's or socket's slot after they put something into
//! its mailbox; the slot's worker takes the whole list once a round.
//!
//! # Invariant
//!
//! A slot is in the list at most once. The bell does not check that: the ringer has changed
//! `QUEUED` in the slot's mailbox from clear to set, and the worker clears it *after* it has taken
//! the slot out of the list ([`DoorbellRung`] reads a slot's link before it yields the slot).
//!
//! The list is newest first. The taker reverses it: else the first ringer would be served last,
//! and never where others ring faster than they are served.
//!
//! # Orderings, and why
//!
//! Only read-modify-writes touch the word. [`Doorbell::ring`] releases: what the ringer did before
//! is seen by the worker that takes the list, later rings being in the same release sequence.
//! [`Doorbell::take`] acquires. [`Doorbell::park`] is both, so that a ringer that finds the worker
//! asleep also sees what it did before it slept. Links are relaxed: they belong to the owner of the
//! slot's place in the list, and change owners through the word.
//!
//! # Under flood
//!
//! No memory of its own. As many entries as there are slots; the taker serves a bounded number a
//! round.

use core::fmt;

use crate::shim::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};

/// The worker sleeps: wake it.
const SLEEP: u64 = 1 << 62;
/// The worker has stopped.
const STOPPED: u64 = 1 << 63;
/// The first slot's index plus one; 0: none.
const HEAD: u64 = u32::MAX as u64;

/// What a ringer has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ring {
    /// Nothing: the worker is awake and will come by.
    Heard,
    /// The worker sleeps: wake it.
    Wake,
}

/// There will be no answer: the worker has stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the worker has stopped")]
pub struct DoorbellStopped;

/// The doorbell of one worker: the list of slots with work. One word: put it on a line of its own.
pub struct Doorbell(AtomicU64);

impl Doorbell {
    /// A bell without rings, of a worker that is awake.
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Puts the slot `index` into the list, linked through `link`. One exchange without contention.
    ///
    /// # Errors
    /// The worker has stopped; the slot is in no list then.
    #[inline]
    pub fn ring(&self, index: u32, link: &AtomicU32) -> Result<Ring, DoorbellStopped> {
        let mut word = self.0.load(Relaxed);
        loop {
            if word & STOPPED != 0 {
                return Err(DoorbellStopped);
            }
            link.store((word & HEAD) as u32, Relaxed);
            let rung = u64::from(index) + 1;
            match self.0.compare_exchange_weak(word, rung, AcqRel, Relaxed) {
                Ok(_) if word & SLEEP != 0 => return Ok(Ring::Wake),
                Ok(_) => return Ok(Ring::Heard),
                Err(now) => word = now,
            }
        }
    }

    /// Takes the whole list, first ringer first. The worker is awake then. One load where the list
    /// is empty.
    #[inline]
    pub fn take<'a, L: Fn(u32) -> Option<&'a AtomicU32>>(&self, link_of: L) -> DoorbellRung<L> {
        let mut word = self.0.load(Relaxed);
        while word & !STOPPED != 0 {
            match self.0.compare_exchange_weak(word, word & STOPPED, AcqRel, Relaxed) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        DoorbellRung { next: reverse((word & HEAD) as u32, &link_of), link_of }
    }

    /// Whether the list has entries: a hint.
    #[must_use]
    #[inline]
    pub fn has_rung(&self) -> bool {
        self.0.load(Relaxed) & HEAD != 0
    }

    /// Announces that the worker is about to sleep; `false` where the list has entries: look first.
    #[must_use]
    pub fn park(&self) -> bool {
        let mut word = self.0.load(Acquire);
        while word & HEAD == 0 {
            match self.0.compare_exchange_weak(word, word | SLEEP, AcqRel, Acquire) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Announces that the worker has stopped. Earlier rings are still in the list.
    pub fn stop(&self) {
        self.0.fetch_or(STOPPED, AcqRel);
    }

    /// Whether the worker has stopped.
    #[must_use]
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.0.load(Acquire) & STOPPED != 0
    }
}

/// Turns the list round, from newest first to first ringer first; the new first.
fn reverse<'a, L: Fn(u32) -> Option<&'a AtomicU32>>(mut at: u32, link_of: &L) -> u32 {
    let mut done = 0;
    while let Some(link) = at.checked_sub(1).and_then(link_of) {
        let next = link.load(Relaxed);
        link.store(done, Relaxed);
        (done, at) = (at, next);
    }
    done
}

impl Default for Doorbell {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Doorbell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.0.load(Relaxed);
        let (sleeps, stopped) = (word & SLEEP != 0, word & STOPPED != 0);
        f.debug_struct("Doorbell")
            .field("rung", &(word & HEAD != 0))
            .field("sleeps", &sleeps)
            .field("stopped", &stopped)
            .finish()
    }
}

/// The slots that rang, first ringer first. Once a slot has been yielded, it may ring again.
/// What is not taken out of it is lost: those slots will never be in the list again.
#[must_use = "slots that are not taken out are lost"]
pub struct DoorbellRung<L> {
    next: u32,
    link_of: L,
}

impl<L> DoorbellRung<L> {
    /// Whether the list is at its end.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.next == 0
    }
}

impl<'a, L: Fn(u32) -> Option<&'a AtomicU32>> Iterator for DoorbellRung<L> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        let index = self.next.checked_sub(1)?;
        self.next = (self.link_of)(index)?.load(Relaxed);
        Some(index)
    }
}

impl<L> fmt::Debug for DoorbellRung<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rung").field("empty", &self.is_empty()).finish()
    }
}

#[cfg(test)]
mod tests;
