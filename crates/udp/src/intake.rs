//! The interface between the worker that finds a socket and the reader of its queue.
//!
//! One [`Intake`] belongs to one socket. `input.rs` reserves room before it spends anything on the
//! datagram, and queues it once its checksum was verified. [`LocalIntake`] is for one worker: a
//! list and an account. Intakes for many workers, with a queue per memory node and fair shares per
//! source, have the same contract (`contract.rs`).
//!
//! # Under flood
//! Reachable by any sender. Bound: `UDP_RECEIVE_BYTES` true bytes a socket, and one datagram more
//! where it was empty; of all sockets together, `memory.rs`. Worst work per refused datagram: two
//! loads and a compare, before any byte of the payload is read. When full the new datagram is
//! refused; what waits stays. Honest traffic to the same socket is refused as well, other sockets
//! lose nothing. Counter: `UdpRcvbufErrors`.

use core::net::IpAddr;
use std::sync::Arc;

use floodwall_base::Instant;
use floodwall_packet::{CapacityHints, PacketBuf, PacketList, Pool};

use crate::allowance::Allowance;

/// The metadata of a datagram, in addition to its packet.
#[derive(Clone, Copy, Debug)]
pub struct IntakeOffer {
    /// The source address.
    pub source: IpAddr,
    /// When.
    pub now: Instant,
}

/// A socket's receive queue.
pub trait Intake: Sized {
    /// A queue for `limit` true bytes, which publishes in `rooms`, under `index`, how much room is
    /// left; `None` where the pool has no account left.
    fn open(pool: &Pool, limit: u64, rooms: &Arc<CapacityHints>, index: u32) -> Option<Self>;

    /// Charges a packet, or refuses it, before anything is spent on its bytes. A packet that is
    /// dropped after that releases its charge by itself.
    fn reserve(&self, packet: &mut PacketBuf, offer: &IntakeOffer) -> bool;

    /// Whether a packet of so many true bytes would be taken. Triage reads the rooms instead, which
    /// have the same answer for one chunk.
    fn admits(&self, true_size: u32) -> bool;

    /// Queues a packet that was charged by [`Intake::reserve`]; returns whether the queue was
    /// empty.
    fn push(&mut self, packet: PacketBuf) -> bool;

    /// Takes the oldest packet, still charged: its drop releases the charge.
    fn take(&mut self) -> Option<PacketBuf>;

    /// The oldest packet.
    fn first(&self) -> Option<&PacketBuf>;

    /// How many packets wait.
    fn len(&self) -> usize;

    /// Whether none waits.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True bytes charged, those that were taken and still live included.
    fn charged(&self) -> u64;

    /// True bytes that may be charged.
    fn limit(&self) -> u64;

    /// Changes the limit. What waits stays.
    fn set_limit(&mut self, limit: u64);

    /// Accepts, and publishes in the rooms, as if the limit were this, where that is less: for
    /// sockets that hold too much of the common memory. Ends with [`Intake::set_limit`] or a call
    /// with more.
    fn hold_to(&mut self, bytes: u64);
}

/// The intake of a stack with one worker.
#[derive(Debug)]
pub struct LocalIntake {
    queue: PacketList,
    allowance: Allowance,
}

impl Intake for LocalIntake {
    fn open(pool: &Pool, limit: u64, rooms: &Arc<CapacityHints>, index: u32) -> Option<Self> {
        let allowance = Allowance::open_watched(pool, limit, rooms, index)?;
        Some(Self { queue: PacketList::new(), allowance })
    }

    #[inline(always)]
    fn reserve(&self, packet: &mut PacketBuf, _offer: &IntakeOffer) -> bool {
        self.allowance.charge(packet)
    }

    #[inline]
    fn admits(&self, true_size: u32) -> bool {
        self.allowance.admits(true_size)
    }

    #[inline(always)]
    fn push(&mut self, packet: PacketBuf) -> bool {
        let was_empty = self.queue.is_empty();
        self.queue.push_back(packet);
        was_empty
    }

    #[inline]
    fn take(&mut self) -> Option<PacketBuf> {
        self.queue.pop_front()
    }

    fn first(&self) -> Option<&PacketBuf> {
        self.queue.iter().next()
    }

    #[inline]
    fn len(&self) -> usize {
        self.queue.len()
    }

    #[inline(always)]
    fn charged(&self) -> u64 {
        self.allowance.used()
    }

    #[inline(always)]
    fn limit(&self) -> u64 {
        self.allowance.limit()
    }

    fn set_limit(&mut self, limit: u64) {
        self.allowance.set_limit(limit);
    }

    fn hold_to(&mut self, bytes: u64) {
        self.allowance.hold_to(bytes);
    }
}
