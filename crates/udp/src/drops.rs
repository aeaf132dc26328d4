//! `UdpDrops`: how many datagrams each socket of a shard refused, and why.
//!
//! Written by the shard's worker where it refuses, in cache lines that no other worker writes; read
//! by any thread. A socket that several shards have is counted by each of them, and summed when
//! read. Invariant: one writer, so that counting is a load and a store; a place's numbers begin
//! again when a socket is opened there.

use core::sync::atomic::{AtomicU64, Ordering};

/// What one socket refused since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RefusedDatagram {
    /// Because it was full.
    pub full: u64,
    /// Because their source was over its share of it.
    pub over_share: u64,
    /// Because their source was to prove its address first.
    pub challenged: u64,
    /// Because all sockets together held too much.
    pub memory: u64,
}

impl RefusedDatagram {
    /// All of them: the value of `SO_RXQ_OVFL`.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.full + self.over_share + self.challenged + self.memory
    }
}

impl core::ops::AddAssign for RefusedDatagram {
    fn add_assign(&mut self, more: Self) {
        self.full += more.full;
        self.over_share += more.over_share;
        self.challenged += more.challenged;
        self.memory += more.memory;
    }
}

/// Why a socket refuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DropCause {
    Full,
    OverShare,
    Challenged,
    Memory,
}

#[derive(Debug, Default)]
struct UdpDropCounts([AtomicU64; 4]);

/// Drop counts of each socket of a shard, by reason.
#[derive(Debug)]
pub struct UdpDrops(Box<[UdpDropCounts]>);

impl UdpDrops {
    /// For so many sockets. Takes 32 bytes each.
    #[must_use]
    pub fn new(sockets: usize) -> Self {
        Self((0..sockets).map(|_| UdpDropCounts::default()).collect())
    }

    /// One more. By the worker alone.
    #[inline]
    pub(crate) fn count(&self, index: u32, cause: DropCause) {
        let count = self.0.get(index as usize).and_then(|counts| counts.0.get(cause as usize));
        if let Some(count) = count {
            count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        }
    }

    /// The place has a new socket.
    pub(crate) fn begin(&self, index: u32) {
        self.set(index, RefusedDatagram::default());
    }

    /// A place's numbers are these now. By the worker alone.
    pub fn set(&self, index: u32, now: RefusedDatagram) {
        let RefusedDatagram { full, over_share, challenged, memory } = now;
        let counts = self.0.get(index as usize).map(|counts| &counts.0);
        for (count, now) in counts.into_iter().flatten().zip([full, over_share, challenged, memory])
        {
            count.store(now, Ordering::Relaxed);
        }
    }

    /// What a socket refused, by its place ([`SocketId::index`](crate::SocketId::index)).
    #[must_use]
    pub fn of(&self, index: usize) -> RefusedDatagram {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        self.0.get(index).map_or_else(RefusedDatagram::default, |UdpDropCounts(counts)| {
            let [full, over_share, challenged, memory] = counts.each_ref().map(read);
            RefusedDatagram { full, over_share, challenged, memory }
        })
    }
}
