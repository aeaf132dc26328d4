//! One word by which many threads wake one sleeper, and pay nothing while it is awake.
//!
//! # What it is
//!
//! A flag "rung" and a flag "asleep" in one word. A ringer sets the first; only a ringer that sets
//! it *and* finds the second has to make the system call that ends the sleep. So a busy worker is
//! never interrupted and never costs its neighbours a system call.
//!
//! It announces two kinds of events:
//!
//! * What must be looked at even by a busy owner (a request in a queue): [`Alarm::ring`]. One
//!   read-modify-write.
//! * What the owner looks at anyway whenever it is awake (a hand-off ring): [`Alarm::nudge`]. A
//!   fence and a load of a line that only changes when the owner falls asleep or wakes.
//!
//! # Callers
//!
//! `dispatch::Bell`, which adds the descriptor: the owner sleeps on it, and a ringer for which
//! `ring` returned true writes to it.
//!
//! # Why no wake-up is lost
//!
//! *Ring.* Both flags live in one word that only read-modify-writes touch, so ringing and falling
//! asleep have an order. Ring first: [`Alarm::doze`] finds it and refuses. Sleep first: the ringer
//! finds the flag and wakes.
//!
//! *Nudge.* The news is in another place (Dekker's pattern): the owner writes "asleep", fences,
//! looks for news; the neighbour writes news, fences, looks for "asleep". The fences have one
//! order, so at least one of the two sees what the other wrote. Hence the rule for the owner: after
//! [`Alarm::doze`] returned true, look once more at everything that is announced by nudges, and
//! [`Alarm::rise`] instead of sleeping if there is something.
//!
//! # Orderings, and why
//!
//! * [`Alarm::ring`] **releases** and [`Alarm::heard`] **acquires**: the owner sees what the ringer
//!   did before. All changes of the word are read-modify-writes, so a later ring, a doze or a rise
//!   in between continues the ringer's release sequence.
//! * The **full fences** of [`Alarm::nudge`] and [`Alarm::doze`] are Dekker's, as above.
//! * All else is relaxed. That ringing and falling asleep have an order is the order of changes of
//!   one word, which every read-modify-write takes part in. A ringer that finds the owner asleep
//!   needs nothing from it: the wake-up goes through the system. [`Alarm::doze`] that finds a ring
//!   hands over nothing, as the owner then calls [`Alarm::heard`]. And [`Alarm::rise`] may be seen
//!   late: a needless wake-up, or an owner that is awake and will look before it sleeps again.
//!
//! # Progress and cost
//!
//! Wait-free, all of it. An owner that is awake looks with one relaxed load.

use core::fmt;

use crate::CachePadded;
use crate::shim::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::weaken::{WeakenPoint, fence_at, order};

/// It was rung since the owner last checked.
const RUNG: u32 = 1;
/// The owner sleeps, or is about to.
const ASLEEP: u32 = 2;

/// The word with both flags: rings and nudges for one owner that may sleep.
pub struct Alarm {
    word: CachePadded<AtomicU32>,
}

impl Default for Alarm {
    fn default() -> Self {
        Self::new()
    }
}

impl Alarm {
    /// Silent, its owner awake.
    #[must_use]
    pub fn new() -> Self {
        Self { word: CachePadded::new(AtomicU32::new(0)) }
    }

    /// Requests the owner's attention, awake or asleep. True where the caller must end the owner's
    /// sleep.
    #[must_use = "true means that the sleeper must be woken"]
    #[inline]
    pub fn ring(&self) -> bool {
        self.word.fetch_or(RUNG, order(WeakenPoint::RingRelease, Release)) == ASLEEP
    }

    /// The same, for news that an owner that is awake finds by itself: rings only where it sleeps.
    /// To be called after the news were published.
    #[must_use = "true means that the sleeper must be woken"]
    #[inline]
    pub fn nudge(&self) -> bool {
        fence_at(WeakenPoint::NudgeFence);
        self.word.load(Relaxed) & ASLEEP != 0 && self.ring()
    }

    /// For the owner: whether it was rung since the last time.
    #[inline]
    pub fn heard(&self) -> bool {
        let acquire = order(WeakenPoint::HeardAcquire, Acquire);
        self.word.load(Relaxed) & RUNG != 0 && self.word.fetch_and(!RUNG, acquire) & RUNG != 0
    }

    /// For the owner: it is about to sleep. False where it was rung, and then it is awake still.
    /// After true, what is announced by [`Alarm::nudge`] must be looked at once more.
    #[must_use = "after false the owner must not sleep"]
    pub fn doze(&self) -> bool {
        let rung = self.word.fetch_or(ASLEEP, Relaxed) & RUNG != 0;
        fence_at(WeakenPoint::DozeFence);
        if rung {
            self.rise();
        }
        !rung
    }

    /// For the owner: it is awake. A ringer need not wake it from now on.
    pub fn rise(&self) {
        self.word.fetch_and(!ASLEEP, Relaxed);
    }
}

impl fmt::Debug for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.word.load(Relaxed);
        f.debug_struct("Alarm")
            .field("rung", &(word & RUNG != 0))
            .field("asleep", &(word & ASLEEP != 0))
            .finish()
    }
}

#[cfg(test)]
mod tests;
