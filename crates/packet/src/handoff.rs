//! `HandoffList`: packets that one worker's engine wants another worker to have.
//!
//! Called by engines, which push in their rounds and take in [`Engine::adopt`](crate::Engine), and
//! by their callers (`dispatch`, `world`), which carry the packets over. Invariant: never more than
//! its bound, allocated at construction; a packet that finds no room is given back, so that its
//! engine drops it by name.

use floodwall_base::WorkerId;

use crate::buf::PacketBuf;

/// What the other worker shall do with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandoffKind {
    /// A frame as it arrived: take it in.
    Frame,
    /// An IP packet of ours without link header, its interface named: send it. Its sender does not
    /// know the neighbour.
    Outgoing,
    /// A datagram put together from fragments, from its IP header on: take it in.
    Reassembled,
    /// An ICMP message from its ICMP header on, which may be about a packet that the other sent:
    /// check whether it did.
    Quoting,
    /// An ICMP message from its ICMP header on, about a flow of the worker that hands it over: its
    /// path information is accepted.
    Believed,
}

/// One packet on its way to another worker.
#[derive(Debug)]
pub struct Handoff {
    /// The worker that receives it.
    pub to: WorkerId,
    /// What for.
    pub kind: HandoffKind,
    /// The packet.
    pub packet: PacketBuf,
}

/// A bounded list of packets for other workers, and the workers to be nudged.
#[derive(Debug)]
pub struct HandoffList {
    list: Vec<Handoff>,
    max: usize,
    /// The workers to be called soon though nothing is handed to them: one bit a worker, the
    /// highest for all from there on.
    nudged: u64,
}

impl HandoffList {
    /// An empty list with memory for `max` packets.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { list: Vec::with_capacity(max), max, nudged: 0 }
    }

    /// Appends one; gives it back where there is no room.
    ///
    /// # Errors
    /// The list is full.
    pub fn push(&mut self, handoff: Handoff) -> Result<(), Handoff> {
        if self.list.len() >= self.max {
            return Err(handoff);
        }
        self.list.push(handoff);
        Ok(())
    }

    /// Requests that `worker` be called soon, though no packet goes there: something else waits for
    /// it.
    pub fn nudge(&mut self, worker: WorkerId) {
        self.nudged |= 1 << worker.0.min(63);
    }

    /// Whether `worker` is to be called soon.
    #[must_use]
    pub const fn is_nudged(&self, worker: WorkerId) -> bool {
        let bit = if worker.0 < 63 { worker.0 } else { 63 };
        self.nudged >> bit & 1 == 1
    }

    /// Whether any worker is to be called; clears that.
    pub const fn take_nudges(&mut self) -> bool {
        core::mem::replace(&mut self.nudged, 0) != 0
    }

    /// Takes all, in order.
    pub fn drain(&mut self) -> impl Iterator<Item = Handoff> + '_ {
        self.list.drain(..)
    }

    /// Takes the first `n`, in order.
    pub fn drain_first(&mut self, n: usize) -> impl Iterator<Item = Handoff> + '_ {
        self.list.drain(..n.min(self.list.len()))
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Handoff> {
        self.list.iter()
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// How many more there is room for.
    #[must_use]
    pub fn room(&self) -> usize {
        self.max - self.list.len()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Pool, PoolConfig};

    #[test]
    fn a_full_list_gives_the_packet_back_and_keeps_the_order() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let mut list = HandoffList::new(2);
        let handoff = |to| Handoff {
            to: WorkerId(to),
            kind: HandoffKind::Frame,
            packet: pool.packet_from(&[1]).unwrap(),
        };
        assert!(list.push(handoff(0)).is_ok() && list.push(handoff(1)).is_ok());
        assert_eq!(list.room(), 0);
        assert_eq!(list.push(handoff(2)).unwrap_err().to, WorkerId(2));
        assert_eq!(list.drain().map(|h| h.to.0).collect::<Vec<_>>(), [0, 1]);
        assert!(list.is_empty() && list.room() == 2);
    }

    #[test]
    fn one_that_is_nudged_is_called_once() {
        let mut list = HandoffList::new(1);
        assert!(!list.take_nudges());
        list.nudge(WorkerId(3));
        list.nudge(WorkerId(70));
        assert!(list.is_nudged(WorkerId(3)) && !list.is_nudged(WorkerId(2)));
        assert!(list.is_nudged(WorkerId(64)) && list.take_nudges() && !list.take_nudges());
        assert!(!list.is_nudged(WorkerId(3)));
    }
}
