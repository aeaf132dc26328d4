//! What a sender may still use, in bytes, with a bit for a sender that sleeps until there is more.
//!
//! Called by a connection's two ends: the application takes before it writes, the worker gives back
//! what was acknowledged. A counted word in true bytes (decision B8), so that small writes cannot
//! use up memory that is not counted. Invariant: what was taken and not given back never exceeds
//! what the credit began with; a sleeper sets `WAIT` in the very word that it found empty, so no
//! wake-up is lost. Reading: `mailbox.rs` on why it is one word.
//!
//! Orderings: **acquire-release** on each change. The memory that was given back is reached by
//! other means, which order it; but the waker stored before [`Credit::park`] must be seen by the
//! side that finds `WAIT`.

use core::fmt;

use crate::shim::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};

/// The sender sleeps.
const WAIT: u64 = 1 << 63;

/// The send credit of a connection in bytes: the backpressure between application and worker.
pub struct Credit(AtomicU64);

impl Credit {
    /// A credit of so many bytes.
    #[must_use]
    pub fn new(bytes: u32) -> Self {
        Self(AtomicU64::new(u64::from(bytes)))
    }

    /// Takes up to `wanted` bytes; how many, 0 where nothing is left.
    #[must_use]
    #[inline]
    pub fn take(&self, wanted: u32) -> u32 {
        let mut word = self.0.load(Relaxed);
        loop {
            let granted = (word & !WAIT).min(u64::from(wanted));
            if granted == 0 {
                return 0;
            }
            match self.0.compare_exchange_weak(word, word - granted, AcqRel, Relaxed) {
                Ok(_) => return granted as u32,
                Err(now) => word = now,
            }
        }
    }

    /// Gives bytes back; `true` where the sender sleeps and now has at least `enough`: wake it.
    #[must_use]
    #[inline]
    pub fn give(&self, bytes: u32, enough: u32) -> bool {
        let mut word = self.0.load(Relaxed);
        loop {
            let left = (word & !WAIT).saturating_add(u64::from(bytes)).min(!WAIT);
            let wake = word & WAIT != 0 && left >= u64::from(enough);
            let waits = if wake { 0 } else { word & WAIT };
            match self.0.compare_exchange_weak(word, left | waits, AcqRel, Relaxed) {
                Ok(_) => return wake,
                Err(now) => word = now,
            }
        }
    }

    /// Goes to sleep if fewer than `enough` bytes are left; `false`: look again. The waker must
    /// have been stored before.
    #[must_use]
    #[inline]
    pub fn park(&self, enough: u32) -> bool {
        let mut word = self.0.load(Acquire);
        while word & !WAIT < u64::from(enough) {
            match self.0.compare_exchange_weak(word, word | WAIT, AcqRel, Acquire) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Bytes left just now: a hint.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.0.load(Relaxed) & !WAIT
    }
}

impl fmt::Debug for Credit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.0.load(Relaxed);
        let waits = word & WAIT != 0;
        f.debug_struct("Credit").field("left", &(word & !WAIT)).field("waits", &waits).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_never_exceeds_what_there_was() {
        let credit = Credit::new(100);
        assert_eq!((credit.take(60), credit.take(60), credit.take(1)), (60, 40, 0));
        assert!(!credit.give(30, 1), "there is no sleeper");
        assert_eq!((credit.take(100), credit.left()), (30, 0));
    }

    #[test]
    fn a_sleeper_is_woken_once_and_only_when_enough_is_there() {
        let credit = Credit::new(10);
        assert!(!credit.park(10), "there is enough");
        assert_eq!(credit.take(10), 10);
        assert!(credit.park(5));
        assert!(!credit.give(4, 5));
        assert!(credit.give(1, 5));
        assert!(!credit.give(5, 5), "it was woken");
        assert_eq!(credit.left(), 10);
    }

    #[test]
    fn giving_too_much_does_not_turn_into_a_sleeper() {
        let credit = Credit::new(u32::MAX);
        for _ in 0..3 {
            assert!(!credit.give(u32::MAX, 1));
        }
        assert_eq!(credit.left(), 4 * u64::from(u32::MAX));
    }
}

/// Weakened by hand: a `park` that sleeps although two bytes are left deadlocks here.
#[cfg(all(test, loom))]
mod model {
    use loom::{sync::Notify, thread};

    use super::*;
    use crate::shim::Arc;

    /// One takes until it has four, sleeping in between; one gives one at a time. A sleeper that is
    /// not woken when all is given waits for the flag for ever.
    #[test]
    fn a_sleeping_sender_is_always_told() {
        loom::model(|| {
            let shared = Arc::new((Credit::new(0), Notify::new()));
            let giver = Arc::clone(&shared);
            let thread = thread::spawn(move || {
                for _ in 0..2 {
                    if giver.0.give(2, 1) {
                        giver.1.notify();
                    }
                }
            });
            let mut had = 0;
            while had < 4 {
                had += shared.0.take(4);
                if had < 4 && shared.0.park(1) {
                    shared.1.wait();
                }
            }
            thread.join().unwrap();
            assert_eq!((had, shared.0.left()), (4, 0));
        });
    }
}
