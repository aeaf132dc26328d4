//! One word that carries a list of nodes one way, with a bit for a consumer that sleeps on it.
//!
//! # What it is
//!
//! The head of an intrusive list, as in [`take_all`](crate::take_all), with flag bits where the
//! alignment of the nodes leaves the pointer's low bits free. A producer puts a batch in front by
//! one compare-and-exchange; the consumer takes the whole list by one. Because data and flags are
//! one word, "it was empty, so sleep" and "here is something, is there a sleeper?" are decided by
//! the order of changes of that word, and no wake-up is lost.
//!
//! # Callers
//!
//! Each connection has two: what the application sends, and what the worker received (decision
//! D17). An idle connection owns no other queue memory. A worker's doorbell is one more, of
//! connection slots.
//!
//! # Invariant
//!
//! Nodes belong to their producer, the mailbox or a [`Chain`], as in `take_all.rs`. A bit that is
//! set stays set until it is cleared by the same word: [`Bits::WAIT`] by the next push or
//! [`Mailbox::set`], the rest by [`take`](Mailbox::take).
//!
//! Only read-modify-writes touch the word. A flag in a word of its own, set after a look at the
//! list, would lose wake-ups: the model `a_naive_sleeper_sleeps_for_ever` shows one that does.
//!
//! # Orderings, and why
//!
//! Every change that hands nodes over is **release**, every one that takes them **acquire**, as in
//! `take_all.rs`; a change of flags alone is both, so that a thread that sees `FIN` or `GONE` also
//! sees what was done before it. [`Mailbox::park`] is acquire-release for the same reason: the
//! waker that was stored before it must be seen by the thread that finds `WAIT`.
//!
//! # Under flood
//!
//! No bound of its own: a producer pays for its nodes before (send credit, the advertised window).

use core::{fmt, ptr, ptr::NonNull};

use crate::shim::atomic::{
    AtomicPtr,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use crate::take_all::{Chain, Node};

/// Flags in a mailbox's word. What the last four mean is for the two ends to agree upon.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Bits(u8);

impl Bits {
    /// None.
    pub const NONE: Self = Self(0);
    /// The mailbox's owner stands in the doorbell's list, or is about to.
    pub const QUEUED: Self = Self(1);
    /// The consumer sleeps: wake it.
    pub const WAIT: Self = Self(2);
    /// Nothing follows.
    pub const FIN: Self = Self(4);
    /// It ended badly.
    pub const RESET: Self = Self(8);
    /// The consumer has gone: what is pushed will not be taken.
    pub const GONE: Self = Self(16);
    /// The producer has gone, and will never touch this again.
    pub const DROPPED: Self = Self(32);

    const ALL: usize = 63;

    /// Whether all of `bits` are set.
    #[must_use]
    pub const fn has(self, bits: Self) -> bool {
        self.0 & bits.0 == bits.0
    }

    /// Both.
    #[must_use]
    pub const fn and(self, bits: Self) -> Self {
        Self(self.0 | bits.0)
    }

    /// These without `bits`.
    #[must_use]
    pub const fn without(self, bits: Self) -> Self {
        Self(self.0 & !bits.0)
    }
}

impl fmt::Debug for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Self::QUEUED, "QUEUED"),
            (Self::WAIT, "WAIT"),
            (Self::FIN, "FIN"),
            (Self::RESET, "RESET"),
            (Self::GONE, "GONE"),
            (Self::DROPPED, "DROPPED"),
        ];
        f.debug_set().entries(names.iter().filter(|(b, _)| self.has(*b)).map(|(_, n)| n)).finish()
    }
}

/// A list of nodes and its flags, from one side of a connection to the other. One word. Dropping it
/// does not free the nodes that it holds.
pub struct Mailbox<N> {
    word: AtomicPtr<N>,
}

// SAFETY: the mailbox is a word that is only accessed atomically, and hands nodes from thread to
// thread, which `N: Send` allows.
unsafe impl<N: Node + Send> Send for Mailbox<N> {}
// SAFETY: as above; by a shared reference nodes are moved in and out, never borrowed.
unsafe impl<N: Node + Send> Sync for Mailbox<N> {}

/// The word's two parts.
fn split<N>(word: *mut N) -> (Option<NonNull<N>>, Bits) {
    let bits = Bits((word.addr() & Bits::ALL) as u8);
    (NonNull::new(word.map_addr(|addr| addr & !Bits::ALL)), bits)
}

/// The word of a list and its flags.
fn join<N>(first: Option<NonNull<N>>, bits: Bits) -> *mut N {
    first.map_or(ptr::null_mut(), NonNull::as_ptr).map_addr(|addr| addr | usize::from(bits.0))
}

impl<N: Node> Mailbox<N> {
    /// Refuses to compile where a node's alignment leaves no room for the flags.
    const ROOM_FOR_BITS: () = assert!(align_of::<N>() > Bits::ALL, "nodes are aligned to 64 bytes");

    /// An empty mailbox without flags.
    #[must_use]
    pub fn new() -> Self {
        let () = Self::ROOM_FOR_BITS;
        Self { word: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Changes the word by `change`, repeated under contention; returns the word before.
    #[inline]
    fn change(&self, mut change: impl FnMut(*mut N) -> *mut N) -> *mut N {
        let mut word = self.word.load(Relaxed);
        loop {
            match self.word.compare_exchange_weak(word, change(word), AcqRel, Relaxed) {
                Ok(before) => return before,
                Err(now) => word = now,
            }
        }
    }

    /// Gives the nodes from `first` to `last`, linked newest first, with flags. Clears
    /// [`Bits::WAIT`]; the flags before tell which side to wake and whether to ring. One exchange
    /// without contention.
    ///
    /// # Safety
    ///
    /// As for [`TakeAllList::push_chain`](crate::take_all::TakeAllList::push_chain).
    #[inline]
    pub unsafe fn push_chain(&self, first: NonNull<N>, last: NonNull<N>, bits: Bits) -> Bits {
        let before = self.change(|word| {
            let (head, flags) = split(word);
            // SAFETY: `last` is live and ours until the exchange succeeds.
            unsafe { N::link(last).as_ref().set_next(head) };
            join(Some(first), flags.and(bits).without(Bits::WAIT))
        });
        split(before).1
    }

    /// Gives one node; see [`Mailbox::push_chain`].
    ///
    /// # Safety
    ///
    /// As there.
    #[inline]
    pub unsafe fn push(&self, node: NonNull<N>, bits: Bits) -> Bits {
        // SAFETY: one node is a chain of one.
        unsafe { self.push_chain(node, node, bits) }
    }

    /// Sets flags, and clears [`Bits::WAIT`] unless it is among them; the flags before.
    #[inline]
    pub fn set(&self, bits: Bits) -> Bits {
        let before = self.change(|word| {
            let (head, flags) = split(word);
            join(head, flags.without(Bits::WAIT).and(bits))
        });
        split(before).1
    }

    /// Takes every node, newest first, and clears the flags in `clear`; the flags before.
    #[inline]
    pub fn take(&self, clear: Bits) -> (Chain<N>, Bits) {
        let (first, bits) = split(self.change(|word| join(None, split(word).1.without(clear))));
        // SAFETY: every node of the list was given up by its producer, linked, the last one to
        // what was there before it; the exchange has handed all of them to us alone.
        (unsafe { Chain::from_first(first) }, bits)
    }

    /// Goes to sleep if there is nothing: sets [`Bits::WAIT`] and returns `true` where the mailbox
    /// holds no node and none of `unless`. The waker must have been stored before. Where it
    /// returns `false`, look again.
    #[must_use]
    #[inline]
    pub fn park(&self, unless: Bits) -> bool {
        let mut word = self.word.load(Acquire);
        loop {
            let (head, bits) = split(word);
            if head.is_some() || bits.without(bits.without(unless)) != Bits::NONE {
                return false;
            }
            let waiting = join(None, bits.and(Bits::WAIT));
            match self.word.compare_exchange_weak(word, waiting, AcqRel, Acquire) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// The flags as they stand: a hint.
    #[must_use]
    pub fn bits(&self) -> Bits {
        split(self.word.load(Acquire)).1
    }

    /// Whether no node is there just now: a hint.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        split(self.word.load(Relaxed)).0.is_none()
    }
}

impl<N: Node> Default for Mailbox<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<N: Node> fmt::Debug for Mailbox<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.bits();
        f.debug_struct("Mailbox").field("bits", &bits).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
