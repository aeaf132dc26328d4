//! `ConnectionMemory`: the total memory of a shard's connections, the limit for each, and the
//! choice of connections to end when memory is short.
//!
//! Updated by `connection_table.rs` after every change of a connection, and by the stack with the
//! memory that other users of the same frames hold. Invariants: `held` is the sum of the true bytes
//! of all connections, both halves and chunks handed out to programs; every connection that holds
//! memory is on a list, ordered by the time it last made progress: a peer acknowledged a whole
//! chunk, or a program read one (LRU). Not here: the configured maximum of one connection
//! (`TcpSettings`).
//!
//! Each half of a connection may hold half of the free memory (a dynamic threshold: Choudhury and
//! Hahne, IEEE/ACM Transactions on Networking 6, 1998), so that some stays free for new
//! connections, and always [`FLOOR`]. Beyond [`FIRST`], where windows and buffers have grown, it
//! may hold half of the free memory above [`KEPT_DIVISOR`]: so a few connections that have grown
//! never make memory short, which would end others that only paused. Windows promised before may
//! exceed the limit; data beyond it is refused, and retransmitted by the peer.
//!
//! # Under flood
//! Reachable by any peer with a proven handshake, by data that is not read or by not acknowledging
//! data. Bound: a half of the pool's frames (`TCP_MEMORY_DIVISOR`), or what sockets, fragments and
//! neighbours leave where that is less, and a quarter in any case (`TCP_MEMORY_PART_LEAST`); an
//! eighth of that more, and the data of one round, for floors. Worst work: two list operations per
//! segment, and one connection ended for each that grows; `TCP_MEMORY_ENDED_MAX` per round while
//! more is held than the bound. Eviction, once less than a quarter is free: among the connections
//! that hold more than [`FLOOR`], then among all, the one that has made no progress for longest,
//! and for at least [`PATIENCE`]; as free memory shrinks this falls to [`PATIENCE_MIN`] when
//! nothing is free, and to zero at the bound. Honest traffic loses window, and connections with a
//! peer or program that made no progress for so long. Counter: `TcpExtTCPAbortOnMemory`; segments:
//! `TcpReceiveFull`.

use core::time::Duration;

use floodwall_base::limits::{
    PACKETS_KEPT_DIVISOR, TCP_BUFFER_BYTES_FIRST, TCP_MEMORY_DIVISOR, TCP_MEMORY_EXCESS_DIVISOR,
    TCP_MEMORY_PART_LEAST,
};
use floodwall_base::{IndexLists, Instant};
use floodwall_packet::Pool;
use floodwall_sync::prefetch;

/// True bytes of a frame: one full Ethernet segment.
pub(crate) const FRAME: u32 = 2048 + 128;
/// True bytes that each half of a connection may always hold.
pub(crate) const FLOOR: u32 = 2 * FRAME;
/// The part of the free memory that a half of a connection may hold.
const PART: u64 = 2;
/// The limit of a half of a connection before it grows.
pub(crate) const FIRST: u32 = TCP_BUFFER_BYTES_FIRST as u32;
/// The part of all memory that is reserved against halves that hold more than [`FIRST`].
const KEPT_DIVISOR: u64 = 2;
/// Memory is short when less than this part of it is free.
const SHORT_DIVISOR: u64 = 4;
/// How long a connection may make no progress when memory begins to be short: the first
/// retransmission timeout (RFC 6298 section 2.1).
const PATIENCE: Duration = Duration::from_secs(1);
/// The same when nothing is free: the shortest timeout.
const PATIENCE_MIN: Duration = Duration::from_millis(200);
/// The list of connections that hold more than [`FLOOR`], and that of the others.
const LARGE: u32 = 0;
const SMALL: u32 = 1;

/// The memory of one connection.
#[derive(Clone, Copy, Default, Debug)]
struct MemoryHolder {
    held: u32,
    /// When it last made progress, or began to hold memory.
    since: Instant,
}

/// The memory accounting of all connections of a shard.
pub(crate) struct ConnectionMemory {
    /// The current limit: `most`, or what other users leave.
    limit: u64,
    most: u64,
    /// True bytes of the pool's frames, once known.
    frames: Option<u64>,
    held: u64,
    holders: Box<[MemoryHolder]>,
    lists: IndexLists,
}

impl ConnectionMemory {
    /// Accounting for so many connections; allocates its tables now.
    pub(crate) fn new(limit: u64, connections: usize) -> Self {
        let holders = vec![MemoryHolder::default(); connections].into();
        let lists = IndexLists::new(connections, 2);
        Self { limit, most: limit, frames: None, held: 0, holders, lists }
    }

    /// Limits the total to `limit`.
    pub(crate) fn limit(&mut self, limit: u64) {
        self.most = self.most.min(limit);
        self.limit = self.limit.min(limit);
    }

    /// Limits the total to its part of the pool's frames, so that packets can still arrive.
    #[inline]
    pub(crate) fn fit(&mut self, pool: &Pool) {
        if self.frames.is_none() {
            let frames = pool.frames_true_bytes();
            self.frames = Some(frames);
            self.limit(frames / TCP_MEMORY_DIVISOR);
        }
    }

    /// Accounts for memory that other users of the same frames hold: connections get the rest, and
    /// at least their minimum part.
    pub(crate) fn beside(&mut self, others: u64) {
        let Some(frames) = self.frames else { return };
        // Connections may exceed their limit by some, which is not reserved twice.
        let left = frames.saturating_sub(frames / PACKETS_KEPT_DIVISOR + others);
        let left = left - left.div_ceil(TCP_MEMORY_EXCESS_DIVISOR + 1);
        self.limit = left.max(frames / TCP_MEMORY_PART_LEAST).min(self.most);
    }

    /// Whether other users hold so much that the limit of connections is lowered.
    pub(crate) const fn is_lowered(&self) -> bool {
        self.limit < self.most
    }

    /// True bytes that all connections hold.
    pub(crate) const fn held(&self) -> u64 {
        self.held
    }

    /// Prefetches the accounting of the connection at `index`.
    #[inline]
    pub(crate) fn prefetch(&self, index: u32) {
        if let Some(holder) = self.holders.get(index as usize) {
            prefetch(holder);
        }
    }

    /// Sets the memory of the connection at `index`; returns whether it grew.
    pub(crate) fn note(&mut self, index: u32, held: u32, now: Instant) -> bool {
        let Some(holder) = self.holders.get_mut(index as usize) else { return false };
        let before = core::mem::replace(&mut holder.held, held);
        if held == before {
            return false;
        }
        self.held = (self.held + u64::from(held)).saturating_sub(u64::from(before));
        let moved = held < before || before == 0;
        if moved {
            holder.since = now;
        }
        if held == 0 {
            self.lists.unlink(index);
        } else if moved || list_of(held) != list_of(before) {
            self.lists.push_back(list_of(held), index);
        }
        held > before
    }

    /// True bytes that each half of a connection may currently hold.
    pub(crate) fn allowance(&self) -> u32 {
        let free = self.limit.saturating_sub(self.held);
        let usual = (free / PART).min(u64::from(FIRST));
        let grown = free.saturating_sub(self.limit / KEPT_DIVISOR) / PART;
        u32::try_from(usual.max(grown)).unwrap_or(u32::MAX).max(FLOOR)
    }

    /// Whether memory is short, so that a connection may have to be ended.
    #[inline]
    pub(crate) const fn is_short(&self) -> bool {
        self.limit.saturating_sub(self.held) < self.limit / SHORT_DIVISOR
    }

    /// Whether nothing is free.
    pub(crate) const fn is_full(&self) -> bool {
        self.held >= self.limit
    }

    /// By how much the limit may be exceeded.
    const fn excess(&self) -> u64 {
        self.limit / TCP_MEMORY_EXCESS_DIVISOR
    }

    /// Whether more is held than allowed: a connection must be ended, regardless of which one grew.
    #[inline]
    pub(crate) const fn is_exceeded(&self) -> bool {
        self.held > self.limit && self.held - self.limit > self.excess()
    }

    /// The connection to end, if any.
    pub(crate) fn victim(&self, now: Instant) -> Option<u32> {
        let (free, short) = (self.limit.saturating_sub(self.held), self.limit / SHORT_DIVISOR);
        if free >= short {
            return None;
        }
        let left = PATIENCE.as_millis() as u64 * free / short.max(1);
        let patience = Duration::from_millis(left).max(PATIENCE_MIN);
        let firsts = [LARGE, SMALL].map(|list| self.lists.first(list));
        let stood = |index: &u32| now.saturating_since(self.since(*index));
        let found = firsts.into_iter().flatten().find(|index| stood(index) >= patience);
        if found.is_some() || self.held <= self.limit {
            return found;
        }
        let oldest = firsts.into_iter().flatten().max_by_key(stood);
        oldest.filter(|index| stood(index) >= self.patience_beyond())
    }

    fn since(&self, index: u32) -> Instant {
        self.holders.get(index as usize).map_or(Instant::FAR, |holder| holder.since)
    }

    /// The permitted time without progress while the limit is exceeded: it shrinks with the rest of
    /// the excess.
    fn patience_beyond(&self) -> Duration {
        let left = self.limit.saturating_add(self.excess()).saturating_sub(self.held);
        let part = left.min(self.excess()) as f64 / self.excess().max(1) as f64;
        PATIENCE_MIN.mul_f64(part)
    }
}

const fn list_of(held: u32) -> u32 {
    if held > FLOOR { LARGE } else { SMALL }
}

#[cfg(test)]
mod tests {
    use floodwall_packet::PoolConfig;

    use super::*;

    const MEGABYTE: u64 = 1 << 20;

    const fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn what_each_may_hold_falls_with_what_is_free_and_never_below_the_floor() {
        let mut memory = ConnectionMemory::new(MEGABYTE, 1000);
        assert_eq!(u64::from(memory.allowance()), MEGABYTE / 4);
        for index in 0..200 {
            let part = memory.allowance();
            assert!(memory.note(index, part, at(0)));
            assert!(memory.allowance() <= part && memory.allowance() >= FLOOR);
        }
        assert_eq!(memory.allowance(), FLOOR);
        // Geometric steps, then floors.
        assert!(memory.held() < MEGABYTE + 200 * u64::from(FLOOR), "{}", memory.held());
        (0..200).for_each(|index| assert!(!memory.note(index, 0, at(1))));
        assert_eq!((memory.held(), memory.victim(at(9999))), (0, None));
    }

    #[test]
    fn a_few_that_have_grown_never_make_memory_short() {
        for count in [1, 3, 10, 30] {
            let mut memory = ConnectionMemory::new(64 * MEGABYTE, count);
            // Each takes its maximum, again and again.
            for turn in 0..50 * count as u32 {
                let index = turn % count as u32;
                memory.note(index, memory.allowance(), at(0));
                assert_eq!(memory.victim(at(100_000)), None, "{count}: {}", memory.held());
            }
            assert!(memory.held() / count as u64 > u64::from(FIRST), "{count}: {}", memory.held());
        }
    }

    #[test]
    fn nobody_goes_while_a_quarter_is_free() {
        let mut memory = ConnectionMemory::new(MEGABYTE, 10);
        memory.note(0, (MEGABYTE * 3 / 4) as u32, at(0));
        assert_eq!(memory.victim(at(100_000)), None);
        memory.note(1, 5000, at(0));
        assert_eq!(memory.victim(at(100_000)), Some(0));
    }

    #[test]
    fn who_gave_nothing_back_for_longest_goes_and_patience_shrinks_with_what_is_free() {
        let mut memory = ConnectionMemory::new(MEGABYTE, 10);
        memory.note(3, 500_000, at(0));
        memory.note(4, 400_000, at(10));
        assert_eq!((memory.victim(at(400)), memory.victim(at(700))), (None, Some(3)));
        // It makes progress.
        memory.note(3, 490_000, at(600));
        assert_eq!(memory.victim(at(700)), Some(4));
        // Growth is no progress.
        memory.note(4, 410_000, at(650));
        memory.note(3, MEGABYTE as u32 - 410_000, at(660));
        assert!(memory.is_full());
        assert_eq!(memory.victim(at(700)), Some(4));
        assert_eq!((memory.victim(at(209)), memory.victim(at(210))), (None, Some(4)));
    }

    #[test]
    fn small_holders_go_last() {
        let mut memory = ConnectionMemory::new(MEGABYTE, 10);
        memory.note(0, FLOOR, at(0));
        memory.note(1, 900_000, at(5));
        assert_eq!(memory.victim(at(2000)), Some(1));
        memory.note(1, 0, at(2000));
        for index in 2..10 {
            memory.note(index, 120_000, at(1900));
        }
        assert_eq!(memory.victim(at(2000)), Some(0), "the large ones have all just made progress");
    }

    #[test]
    fn others_have_theirs_first_and_a_quarter_is_kept() {
        let pool = Pool::new(&PoolConfig { frames: 720, ..PoolConfig::default() }).unwrap();
        let frames = pool.frames_true_bytes();
        let mut memory = ConnectionMemory::new(u64::MAX, 10);
        memory.beside(1);
        assert_eq!(memory.limit, u64::MAX, "the pool is not known");
        memory.fit(&pool);
        for percent in 0..=100 {
            let others = frames * percent / 100;
            memory.beside(others);
            assert!(memory.limit >= frames / 4 && memory.limit <= frames / 2);
            let all = others + memory.limit + memory.excess();
            assert!(all <= frames * 7 / 8 || memory.limit == frames / 4, "{percent} %");
        }
        // As much as the other users may hold by their own bounds.
        memory.beside(frames / 4 + 2 * (frames / 8) + 2 * (frames / 32));
        assert!(memory.limit > frames / 4);
        memory.beside(0);
        assert_eq!(memory.limit, frames / 2);
        memory.limit(1000);
        memory.beside(0);
        assert_eq!(memory.limit, 1000, "nor more than was configured");
    }

    #[test]
    fn beyond_the_limit_patience_ends() {
        let mut memory = ConnectionMemory::new(MEGABYTE, 10);
        memory.note(1, MEGABYTE as u32, at(0));
        memory.note(2, FLOOR, at(10));
        let least = PATIENCE_MIN.as_millis() as u64;
        assert_eq!((memory.victim(at(190)), memory.victim(at(least))), (None, Some(1)));
        // It makes progress, and holds more than before.
        memory.note(1, 0, at(20));
        memory.note(1, MEGABYTE as u32 + (MEGABYTE / 16) as u32, at(20));
        assert_eq!(memory.victim(at(100)), None);
        assert_eq!(
            memory.victim(at(115)),
            Some(2),
            "the one without progress for longest, not the largest"
        );
        assert!(!memory.is_exceeded());
        memory.note(3, (MEGABYTE / 8) as u32, at(20));
        assert!(memory.is_exceeded());
        assert_eq!(memory.victim(at(20)), Some(2));
        memory.note(2, 0, at(20));
        assert_eq!(memory.victim(at(20)), Some(1));
    }
}
