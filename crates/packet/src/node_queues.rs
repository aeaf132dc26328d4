//! `NodeQueues`: what workers hand to one reader, a queue for each memory node.
//!
//! Where several workers meet one socket (a program's, on a thread of its own), each pushes its
//! round's datagrams as one batch onto the queue of its own node: one exchange of a word that only
//! workers of that node write, and the reader takes. The reader takes every queue whole, node by
//! node, in the order of arrival of each: a flow stays with its worker, and so keeps its order.
//!
//! Source: Linux 6.18's UDP producer queues (commit b650bf0977d3), where the producer that finds a
//! node's list empty drains it under the lock of the reader. Here it does not: no worker takes a
//! lock that a program may hold (decision D17), and the reader is never further than one exchange
//! per node from all that waits. A producer that finds a queue with a sleeping reader wakes it,
//! once for all that follows. Called by `stack`'s remote sockets. Invariants: a batch is charged
//! before it is pushed (the queues themselves have no bound); a queue that is not empty when the
//! reader goes to sleep keeps it awake.
//!
//! # Under flood
//! As [`PacketMailbox`]: a producer has been charged for every packet. What is refused touches no
//! queue, and no line that workers share.

use floodwall_base::NumaNode;
use floodwall_sync::CachePadded;
use floodwall_sync::mailbox::Bits;

use crate::list::PacketList;
use crate::mailbox::PacketMailbox;

/// The receive queues of one socket, a mailbox per memory node. A word, and a line more for each
/// further node.
pub struct NodeQueues {
    first: PacketMailbox,
    others: Box<[CachePadded<PacketMailbox>]>,
}

impl NodeQueues {
    /// Empty queues without flags, for so many nodes, one at least.
    #[must_use]
    pub fn new(nodes: usize) -> Self {
        let others = (1..nodes).map(|_| CachePadded::new(PacketMailbox::new())).collect();
        Self { first: PacketMailbox::new(), others }
    }

    /// The queue of a node: the first one's where it has none.
    #[inline]
    fn of(&self, node: NumaNode) -> &PacketMailbox {
        let other = usize::from(node.0).checked_sub(1).and_then(|n| self.others.get(n));
        other.map_or(&self.first, |queue| &**queue)
    }

    fn all(&self) -> impl Iterator<Item = &PacketMailbox> {
        core::iter::once(&self.first).chain(self.others.iter().map(|queue| &**queue))
    }

    /// Gives a batch to a node's queue, with flags, and clears that queue's [`Bits::WAIT`]. The
    /// flags before tell whether the reader is to be woken. One exchange without contention.
    #[inline]
    pub fn push(&self, node: NumaNode, packets: PacketList, bits: Bits) -> Bits {
        self.of(node).push(packets, bits)
    }

    /// Takes all that waits, node by node, and clears the flags in `clear`; the flags before, of
    /// all nodes together. One exchange a node.
    #[must_use]
    #[inline]
    pub fn take(&self, clear: Bits) -> (PacketList, Bits) {
        let (mut all, mut bits) = self.first.take(clear);
        for queue in &self.others {
            let (mut more, flags) = queue.take(clear);
            all.append(&mut more);
            bits = bits.and(flags);
        }
        (all, bits)
    }

    /// Goes to sleep if there is nothing: sets [`Bits::WAIT`] in every queue and returns `true`
    /// where none holds a packet or one of `unless`. The waker must have been stored before. Where
    /// it returns `false`, look again; a producer meanwhile may wake for nothing, once a node.
    #[must_use]
    pub fn park(&self, unless: Bits) -> bool {
        self.all().all(|queue| queue.park(unless))
    }

    /// Sets flags, in the first queue; see [`PacketMailbox::set`].
    pub fn set(&self, bits: Bits) -> Bits {
        self.first.set(bits)
    }
}

impl core::fmt::Debug for NodeQueues {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.all()).finish()
    }
}

#[cfg(test)]
mod tests;
