//! `PacketMailbox`: packets and flags from one thread to another, in one word.
//!
//! The owning form of [`Mailbox`] over the pool's own descriptors: no memory of its own, no bound
//! of its own, and nothing is copied. Called by `stack`'s remote sockets: a worker pushes what
//! arrived in a round as one batch, a program pushes what it sends. Invariant: a packet belongs to
//! its pusher, to the mailbox, or to the list that was taken; the mailbox drops what it still
//! holds. Any number of threads may push; batches of one thread arrive in its order. Reading:
//! `floodwall_sync::mailbox`.
//!
//! # Under flood
//! No bound of its own: a producer has been charged for every packet before (an account, credit).

use floodwall_sync::Mailbox;
use floodwall_sync::mailbox::Bits;

use crate::descriptor::Descriptor;
use crate::list::PacketList;

/// A mailbox of packets: many producers, one consumer, flags in the same word. One word.
pub struct PacketMailbox(Mailbox<Descriptor>);

// SAFETY: packets may change threads (`PacketBuf: Send`), and the word is atomic.
unsafe impl Send for PacketMailbox {}
// SAFETY: as above; by a shared reference packets are moved in and out, never borrowed.
unsafe impl Sync for PacketMailbox {}

impl PacketMailbox {
    /// An empty mailbox without flags.
    #[must_use]
    pub fn new() -> Self {
        Self(Mailbox::new())
    }

    /// Gives all packets of a list, behind those that are there, with flags. Clears
    /// [`Bits::WAIT`]. The flags before tell which side to wake and whether to ring. One exchange
    /// without contention, and a pass over the packets' links. An empty list sets the flags.
    #[inline]
    pub fn push(&self, packets: PacketList, bits: Bits) -> Bits {
        match packets.into_newest_first() {
            // SAFETY: the list owned these descriptors, linked from the newest to the oldest, and
            // has given them up; they stay valid until they are taken.
            Some((newest, oldest)) => unsafe { self.0.push_chain(newest, oldest, bits) },
            None => self.0.set(bits),
        }
    }

    /// Takes every packet, in the order of the pushes, and clears the flags in `clear`; the flags
    /// before.
    #[inline]
    #[must_use]
    pub fn take(&self, clear: Bits) -> (PacketList, Bits) {
        let (chain, bits) = self.0.take(clear);
        // SAFETY: every node of the chain was pushed by `push`, so it is a packet's head, and is
        // ours by the exchange.
        (unsafe { PacketList::from_newest_first(chain) }, bits)
    }

    /// Goes to sleep if there is nothing: see [`Mailbox::park`].
    #[inline]
    #[must_use]
    pub fn park(&self, unless: Bits) -> bool {
        self.0.park(unless)
    }

    /// Sets flags, and clears [`Bits::WAIT`] unless it is among them; the flags before.
    #[inline]
    pub fn set(&self, bits: Bits) -> Bits {
        self.0.set(bits)
    }

    /// The flags as they stand: a hint.
    #[must_use]
    #[inline]
    pub fn bits(&self) -> Bits {
        self.0.bits()
    }

    /// Whether no packet is there just now: a hint.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Default for PacketMailbox {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for PacketMailbox {
    fn drop(&mut self) {
        drop(self.take(Bits::NONE));
    }
}

impl core::fmt::Debug for PacketMailbox {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("PacketMailbox").field(&self.0).finish()
    }
}

#[cfg(test)]
mod tests;
