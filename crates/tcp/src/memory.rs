//! `ConnectionMemory`: the total memory of a shard's connections, the limit for each, and the
//! choice of connections to end when memory is short.
//!
//! Updated by `tcp.rs` after every change of a connection, and by the stack with the memory that
//! other users of the same frames hold. Invariants: `held` is the sum of the true bytes of all
//! connections, both halves and chunks handed out to programs; every connection that holds memory
//! is on a list of its source prefix's share, ordered by the time of its last *turnover*: since
//! then it has given back less than it held. So what a connection holds is weighed by what it
//! drains: a peer that takes a little of much, however steadily, is at the front of the list, and a
//! long-distance download, which turns over in a few round trips, is not. Not here: the configured
//! maximum of one connection (`TcpSettings`).
//!
//! While less than an eighth is in use, shares decide nothing, and connections that hold little
//! only note what they hold; they are weighed a few at a time once more is in use. So a short
//! message costs no list operation.
//!
//! Each half of a connection may hold half of the free memory (a dynamic threshold: Choudhury and
//! Hahne, IEEE/ACM Transactions on Networking 6, 1998), so that some stays free for new
//! connections, and always [`HALF_FLOOR`]. Beyond [`HALF_LIMIT_FIRST`], where windows and buffers
//! have grown, it may hold half of the free memory above [`KEPT_DIVISOR`]: so a few connections
//! that have grown never make memory short, which would end others that only paused. The last
//! quarter ([`OTHERS_DIVISOR`]) is for prefixes with less than their fair share: the others do not
//! grow into it, so that their programs wait (backpressure) and nothing has to be ended. Where
//! several source prefixes hold memory, a half of a connection may also hold what is missing to its
//! prefix's fair share: others give way. Windows advertised before may exceed the limit; data
//! beyond it is refused, and retransmitted by the peer, unless its prefix holds less than an eighth
//! of what is left of the excess ([`RESERVED_DIVISOR`]).
//!
//! A send buffer advertises nothing, so it may hold more where several prefixes share memory:
//! within the fair share [`SEND_PART`] times what is missing to it, so that a connection that is
//! alone in its prefix has most of the share and several have the same; and as many times what is
//! free beyond [`UNSHARED_KEPT`], which is what others do not need. They need little: unless less
//! than [`LITTLE_DIVISOR`] is in use, a send buffer is then no larger than its peer's window and a
//! frame (`connection.rs`), which is closed where the peer reads slowly. So a long-distance
//! download keeps its window beside many of these.
//!
//! Those that hold more than their share are throttled before they are candidates: nothing is
//! written, and what is buffered drains. Meanwhile nothing grows into memory that is not free yet:
//! a send buffer takes what is free, and where nothing of it is in flight one frame, or a small one
//! where no frame is free: the excess has room for hundreds of these. So a download that turns over
//! is not reset because others take their share at once.
//!
//! A connection is ended in three cases. Where memory is crowded, one that holds more than
//! [`HALF_FLOOR`] and has given nothing back for [`STILL_FOR`]. Where memory is short and a prefix
//! with less than its fair share has grown, the slowest one of a prefix that has more. Where more
//! is held than the limit, the same, or those that are still, earlier; at the bound in any case. So
//! slow peers of one prefix wait for each other, as long as no other one needs memory.
//!
//! # Under flood
//! Reachable by any peer with a proven handshake, by data that is not read or by not acknowledging
//! data. Bound: a half of the pool's frames (`TCP_MEMORY_DIVISOR`), or what sockets, fragments and
//! neighbours leave where that is less, and a quarter in any case (`TCP_MEMORY_PART_LEAST`); an
//! eighth of that more, and the data of one round, for floors. Worst work: list operations and
//! shares of five connections per segment, and one connection ended for each that grows;
//! `TCP_MEMORY_ENDED_MAX` per round while more is held than the bound. Eviction: of the source
//! prefixes that hold most ([`PREFIXES_LOOKED_AT`], none that holds less than the average), among
//! the connections that hold more than [`HALF_FLOOR`], then among all, the one with the slowest
//! turnover, and at least [`TURNOVER_PATIENCE`] once less than an eighth is free; beyond the limit
//! this falls to a half, and it ends at the bound. Still ones, as above, before that: of
//! `TCP_EVICT_LOOKS` of each list. Honest traffic of other prefixes loses nothing; beside the
//! attacker, windows, and connections with a peer or program as slow once others need their share.
//! Counter: `TcpExtTCPAbortOnMemory`; segments: `TcpReceiveFull`.

use core::hint::cold_path;
use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;

use floodwall_base::limits::{
    PACKETS_KEPT_DIVISOR, TCP_BUFFER_BYTES_FIRST, TCP_EVICT_LOOKS, TCP_MEMORY_DIVISOR,
    TCP_MEMORY_EXCESS_DIVISOR, TCP_MEMORY_PART_LEAST,
};
use floodwall_base::{HashKey, IndexLists, Instant};
use floodwall_fair::{ShareId, Shares};
use floodwall_packet::{Pool, SMALL_BYTES};
use floodwall_sync::{HugeArray, prefetch};

/// True bytes of a frame: one full Ethernet segment.
pub(crate) const FRAME_TRUE_BYTES: u32 = 2048 + 128;
/// True bytes of a small frame, and bytes that fit one behind the headers.
pub(crate) const SMALL_TRUE_BYTES: u32 = SMALL_BYTES as u32 + 128;
pub(crate) const SMALL_PIECE: usize = 128;
/// True bytes that each half of a connection may always hold.
pub(crate) const HALF_FLOOR: u32 = 2 * FRAME_TRUE_BYTES;
/// The part of the free memory that a half of a connection may hold.
const FREE_DIVISOR: u64 = 2;
/// How many times what is missing to the fair share of its prefix, and what is free before memory
/// is short, a send buffer may hold: one that is alone holds eight ninths of it.
const SEND_PART: u64 = 8;
/// The limit of a half of a connection before it grows.
pub(crate) const HALF_LIMIT_FIRST: u32 = TCP_BUFFER_BYTES_FIRST as u32;
/// The part of all memory that is reserved against halves that hold more than [`HALF_LIMIT_FIRST`].
const KEPT_DIVISOR: u64 = 2;
/// The part of all memory that prefixes with their fair share leave to the others.
const OTHERS_DIVISOR: u64 = 4;
/// Memory is crowded when less than this part of it is free.
const CROWDED_BELOW: (u64, u64) = (3, 8);
/// Memory is short when less than this part of it is free.
const SHORT_DIVISOR: u64 = 8;
/// The part of the memory that prefixes share before it is short.
const SHARED_MEMORY: (u64, u64) = (3, 4);
/// The part of the memory that send buffers beyond their share leave free: what others that hold
/// little send in a burst does not make memory short.
const UNSHARED_KEPT: (u64, u64) = (3, 16);
/// The part of what is left of the excess that a prefix may hold where nothing is free.
const RESERVED_DIVISOR: u64 = 8;
/// Less than this part in use is plenty: shares are not computed.
const PLENTY_DIVISOR: u64 = 8;
/// Less than this part in use is little: send buffers are not limited by their peers' windows.
const LITTLE_DIVISOR: u64 = 32;
/// How long the turnover of a connection may take when memory is short: a buffer of two windows
/// turns over in two round trips, and one may be lost. A download that holds more than its share
/// when others begin to take theirs has so long to drain.
const TURNOVER_PATIENCE: Duration = Duration::from_secs(4);
/// How long a connection may give nothing back while memory is crowded: some retransmissions of a
/// path that was interrupted, or a program that pauses.
const STILL_FOR: Duration = Duration::from_secs(10);
/// The least part of it, however much more is held than the limit: to the bound.
const PATIENCE_PART_MIN: f64 = 0.5;
/// Connections that are weighed with each change, once memory is not plenty any more.
const WEIGHED_BESIDE: usize = 4;
/// Connections that are weighed before one is chosen to end.
const WEIGHED_BEFORE: usize = 64;
/// Prefixes that are looked at to find a connection to end.
const PREFIXES_LOOKED_AT: usize = 8;
/// The only group of shares.
const ALL_SHARES: usize = 0;
/// The only list of connections that are not weighed.
const UNWEIGHED_LIST: u32 = 0;

/// The memory of one connection: a cache line.
#[derive(Clone, Copy, Default, Debug)]
#[repr(align(64))]
struct MemoryHolder {
    held: u32,
    /// What it must still give back until its turnover is complete.
    owed: u32,
    /// When that began: at its last turnover, or when it began to hold memory.
    since: Instant,
    /// When it gave anything back last, or began to hold memory.
    moved: Instant,
    /// Its peer, mapped; the share is looked up once it is weighed.
    peer: Option<Ipv6Addr>,
    share: Option<ShareId>,
    /// What its share accounts for, and whether it has turned over since.
    weighed: u32,
    turned: bool,
}

const _: () = assert!(size_of::<MemoryHolder>() == 64);

/// What a connection may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ConnectionAllowance {
    /// True bytes of its receive half: windows are advertised by it.
    pub(crate) receive: u32,
    /// True bytes of its send half.
    pub(crate) send: u32,
    pub(crate) scarcity: Scarcity,
}

/// How much memory there is for what a connection sends.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Scarcity {
    /// Enough.
    #[default]
    None,
    /// Several prefixes hold memory, and not little: hardly anything may wait that the peer's
    /// window does not permit to be sent.
    Scarce,
    /// The same, and no frame is left: where nothing is in flight a small one may be sent.
    NoFrame,
}

/// The memory accounting of all connections of a shard.
pub(crate) struct ConnectionMemory {
    /// The current limit: `most`, or what other users leave.
    limit: u64,
    most: u64,
    /// Less than this in use is little.
    little: u64,
    /// What each half of a connection may hold until more is in use.
    allowed_of_little: u32,
    /// More than this in use is crowded.
    crowded_above: u64,
    /// True bytes of the pool's frames, once known.
    frames: Option<u64>,
    held: u64,
    /// Memory is short, and a prefix with less than its fair share has grown since the last relief.
    contested: bool,
    /// The last round in which a search for a connection to end found none.
    in_vain: Instant,
    /// Whether prefixes are guaranteed their fair share.
    is_fair: bool,
    holders: HugeArray<MemoryHolder>,
    shares: Shares,
    /// Two lists for each share: of connections that hold more than [`HALF_FLOOR`], and of the
    /// others.
    lists: IndexLists,
    /// Connections that hold little, and changed while memory was plenty: their shares and lists do
    /// not know it.
    unweighed: IndexLists,
}

impl ConnectionMemory {
    /// Accounting for so many connections; allocates its tables now.
    pub(crate) fn new(limit: u64, connections: usize, key: HashKey) -> Self {
        let holders = HugeArray::filled(MemoryHolder::default(), connections);
        let lists = IndexLists::new(connections, 2 * connections);
        let shares = Shares::new(connections, 1, key);
        let unweighed = IndexLists::new(connections, 1);
        let mut memory = Self {
            limit,
            most: limit,
            little: 0,
            allowed_of_little: 0,
            crowded_above: 0,
            frames: None,
            held: 0,
            contested: false,
            in_vain: Instant::FAR,
            is_fair: true,
            holders,
            shares,
            lists,
            unweighed,
        };
        memory.set_limit(limit);
        memory
    }

    /// The same where whichever connection takes memory first keeps it, unless `is_fair`.
    pub(crate) fn sharing(self, is_fair: bool) -> Self {
        Self { is_fair, ..self }
    }

    /// There is a connection with that peer at `index`.
    pub(crate) fn join(&mut self, index: u32, peer: IpAddr) {
        // Usually the one before it has quit.
        if self.holders.get(index as usize).is_some_and(|it| it.held > 0 || it.share.is_some()) {
            self.quit(index);
        }
        if let Some(holder) = self.holders.get_mut(index as usize) {
            holder.peer = Some(match peer {
                IpAddr::V4(peer) => peer.to_ipv6_mapped(),
                IpAddr::V6(peer) => peer,
            });
        }
    }

    /// There is no connection at `index` any more.
    pub(crate) fn quit(&mut self, index: u32) {
        // The time is not read where no memory is held any more.
        self.note(index, 0, Instant::ORIGIN);
        if self.holders.get(index as usize).is_some_and(|it| it.weighed == 0 && it.share.is_none())
        {
            self.unweighed.unlink(index);
        } else {
            self.weigh(index);
        }
        let Some(holder) = self.holders.get_mut(index as usize) else { return };
        holder.peer = None;
        if let Some(share) = holder.share.take() {
            self.shares.quit(share);
        }
    }

    /// Limits the total to `limit`.
    pub(crate) fn limit(&mut self, limit: u64) {
        self.most = self.most.min(limit);
        self.set_limit(self.limit.min(limit));
    }

    /// Sets the current limit, and what follows from it.
    fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
        self.little = limit / LITTLE_DIVISOR;
        self.crowded_above = limit - limit / CROWDED_BELOW.1 * CROWDED_BELOW.0;
        let free = limit - self.little;
        let usual = (free - limit / OTHERS_DIVISOR) / FREE_DIVISOR;
        let grown = (free - limit / KEPT_DIVISOR) / FREE_DIVISOR;
        let both = usual.min(u64::from(HALF_LIMIT_FIRST)).max(grown);
        self.allowed_of_little = both.min(u64::from(u32::MAX)) as u32;
        self.allowed_of_little = self.allowed_of_little.max(HALF_FLOOR);
    }

    /// Limits the total to its part of the pool's frames, so that packets can still arrive.
    #[inline]
    pub(crate) fn fit(&mut self, pool: &Pool) {
        if self.frames.is_none() {
            cold_path();
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
        self.set_limit(left.max(frames / TCP_MEMORY_PART_LEAST).min(self.most));
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
    #[inline(always)]
    pub(crate) fn note(&mut self, index: u32, held: u32, now: Instant) -> bool {
        let Some(holder) = self.holders.get_mut(index as usize) else { return false };
        let before = core::mem::replace(&mut holder.held, held);
        if held == before {
            return false;
        }
        self.held = (self.held + u64::from(held)).saturating_sub(u64::from(before));
        if before == 0 {
            (holder.since, holder.owed, holder.turned, holder.moved) = (now, held, true, now);
        } else if held == 0 && holder.weighed == 0 && self.held < self.limit / PLENTY_DIVISOR {
            // Shares and lists never knew it; all else begins anew with what it holds next.
            return false;
        } else if held < before {
            holder.owed = holder.owed.saturating_sub(before - held);
            if holder.owed == 0 {
                (holder.since, holder.owed, holder.turned) = (now, held, true);
            }
            holder.moved = now;
        }
        let is_small = held <= HALF_FLOOR && holder.weighed <= HALF_FLOOR;
        if is_small && self.has_plenty() {
            // So memory is not short either.
            if !self.unweighed.is_linked(index) {
                self.unweighed.push_back(UNWEIGHED_LIST, index);
            }
        } else {
            cold_path();
            self.note_weighed(index, held, before);
        }
        held > before
    }

    /// The same of what is large, or where memory is no longer plenty.
    #[inline(never)]
    fn note_weighed(&mut self, index: u32, held: u32, before: u32) {
        self.weigh(index);
        self.weigh_others(WEIGHED_BESIDE);
        if held > before && !self.contested && self.is_short() {
            self.contested = self.missing(index) > 0;
        }
    }

    /// Updates the share and the list of the connection at `index`.
    fn weigh(&mut self, index: u32) {
        self.unweighed.unlink(index);
        let Some(holder) = self.holders.get_mut(index as usize) else { return };
        let held = holder.held;
        if holder.share.is_none() && held > 0 {
            holder.share = holder.peer.and_then(|peer| self.shares.join(ALL_SHARES, peer.into()));
        }
        let Some(share) = holder.share else { return };
        let before = core::mem::replace(&mut holder.weighed, held);
        let turned = core::mem::take(&mut holder.turned);
        if held != before {
            self.shares.exchange(share, u64::from(held), u64::from(before));
        }
        if held == 0 {
            self.lists.unlink(index);
        } else if turned || before == 0 || is_large(held) != is_large(before) {
            self.lists.push_back(list_of(share, is_large(held)), index);
        }
    }

    /// Weighs up to `most` connections that were not, unless memory is plenty.
    fn weigh_others(&mut self, most: usize) {
        if self.has_plenty() {
            return;
        }
        for _ in 0..most {
            let Some(index) = self.unweighed.first(UNWEIGHED_LIST) else { return };
            self.weigh(index);
        }
    }

    /// What the connection at `index` may currently hold.
    #[inline(always)]
    pub(crate) fn allowance(&self, index: u32) -> ConnectionAllowance {
        if self.held < self.little {
            let both = self.allowed_of_little;
            return ConnectionAllowance { receive: both, send: both, scarcity: Scarcity::None };
        }
        cold_path();
        self.allowance_of_share(index)
    }

    /// The same where more than a little is in use.
    #[inline(never)]
    fn allowance_of_share(&self, index: u32) -> ConnectionAllowance {
        let free = self.limit.saturating_sub(self.held);
        let share = self.fair_share(index);
        let missing = match share {
            Some((share, held)) if !self.has_plenty() => share.saturating_sub(held),
            _ => 0,
        };
        let kept = self.limit / OTHERS_DIVISOR;
        let usual = (free.saturating_sub(kept) / FREE_DIVISOR).min(u64::from(HALF_LIMIT_FIRST));
        let grown = free.saturating_sub(self.limit / KEPT_DIVISOR) / FREE_DIVISOR;
        let of_free = usual.max(grown);
        let bytes = |allowed| u32::try_from(allowed).unwrap_or(u32::MAX);
        let receive = bytes(of_free.max(missing)).max(HALF_FLOOR);
        if share.is_none() {
            return ConnectionAllowance { receive, send: receive, scarcity: Scarcity::None };
        }
        // What is missing falls with what the connection holds itself.
        let weight = self.weight_of(index);
        let of_share = missing.saturating_add(weight).min(missing * SEND_PART);
        let kept = self.limit / UNSHARED_KEPT.1 * UNSHARED_KEPT.0;
        let unshared = free.saturating_sub(kept) * SEND_PART;
        // It advertises nothing, and so waits for what others give back.
        let there_is = weight.saturating_add(free);
        let has_frame = free >= u64::from(FRAME_TRUE_BYTES);
        let scarcity = if has_frame { Scarcity::Scarce } else { Scarcity::NoFrame };
        let send = of_free.max(of_share).max(unshared).min(there_is);
        ConnectionAllowance { receive, send: bytes(send), scarcity }
    }

    const fn has_plenty(&self) -> bool {
        self.held < self.limit / PLENTY_DIVISOR
    }

    /// What is missing to the fair share of the prefix of the connection at `index`; nothing where
    /// no other prefix holds any memory.
    fn missing(&self, index: u32) -> u64 {
        self.fair_share(index).map_or(0, |(share, held)| share.saturating_sub(held))
    }

    /// The fair share of the prefix of the connection at `index`, and what it holds; `None` where
    /// no other prefix holds any memory.
    fn fair_share(&self, index: u32) -> Option<(u64, u64)> {
        let held = self.prefix_weight(index);
        let prefixes = self.shares.prefixes(ALL_SHARES) as u64 + u64::from(held == 0);
        (prefixes >= 2 && self.is_fair).then(|| (self.shared() / prefixes, held))
    }

    /// What the prefix of the connection at `index` may receive where nothing is free: up to a part
    /// of what is left of the excess, so that any number of prefixes leave some.
    fn reserved(&self, index: u32) -> u64 {
        (self.left_of_excess() / RESERVED_DIVISOR).saturating_sub(self.prefix_weight(index))
    }

    /// True bytes of the connection at `index`, as far as it is weighed.
    fn weight_of(&self, index: u32) -> u64 {
        self.holders.get(index as usize).map_or(0, |holder| u64::from(holder.weighed))
    }

    /// What prefixes share.
    const fn shared(&self) -> u64 {
        self.limit / SHARED_MEMORY.1 * SHARED_MEMORY.0
    }

    /// What the prefix of the connection at `index` holds, as far as it is weighed.
    fn prefix_weight(&self, index: u32) -> u64 {
        let Some(holder) = self.holders.get(index as usize) else { return 0 };
        match (holder.share, holder.peer) {
            (Some(share), _) => self.shares.prefix_weight(share),
            (None, Some(peer)) => self.shares.held_by(ALL_SHARES, peer.into()),
            (None, None) => 0,
        }
    }

    /// Whether memory is crowded, so that a connection may have to be ended.
    #[inline]
    pub(crate) const fn is_crowded(&self) -> bool {
        self.held > self.crowded_above
    }

    const fn is_short(&self) -> bool {
        self.limit.saturating_sub(self.held) < self.limit / SHORT_DIVISOR
    }

    /// What was looked for by [`ConnectionMemory::victim`] has been ended.
    pub(crate) const fn relieved(&mut self) {
        self.contested = false;
    }

    /// Whether nothing is free for the connection at `index`: all is held, and its prefix has its
    /// fair share; or more is held than allowed.
    #[inline(always)]
    pub(crate) fn is_full(&self, index: u32) -> bool {
        self.held >= self.limit && self.is_full_at_limit(index)
    }

    /// The same where no memory is free.
    #[cold]
    fn is_full_at_limit(&self, index: u32) -> bool {
        self.is_exceeded() || self.missing(index).min(self.reserved(index)) == 0
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

    /// The connection to end, if any. A search reads some hundred connections, so a round has one
    /// in vain at most, unless more is held than allowed.
    pub(crate) fn next_victim(&mut self, now: Instant) -> Option<u32> {
        if self.in_vain == now && !self.is_exceeded() {
            return None;
        }
        let found = self.victim(now);
        self.in_vain = if found.is_none() { now } else { Instant::FAR };
        found
    }

    /// The connection to end, if any.
    fn victim(&mut self, now: Instant) -> Option<u32> {
        if !self.is_crowded() || !self.is_fair && !self.is_exceeded() {
            return None;
        }
        self.weigh_others(WEIGHED_BEFORE);
        if let Some(still) = self.still(now) {
            return Some(still);
        }
        let slowest = if self.contested && self.is_short() { self.slowest(now) } else { None };
        if slowest.is_some() || self.held <= self.limit {
            return slowest;
        }
        // Uncontested, those that move wait for each other up to the bound.
        let patience = TURNOVER_PATIENCE.mul_f64(self.excess_left().max(PATIENCE_PART_MIN));
        let mut shares = self.shares.heaviest_first(ALL_SHARES).take(PREFIXES_LOOKED_AT);
        let beyond = shares.find_map(|share| self.firsts(share).min_by_key(|it| self.since(*it)));
        let may = |index: &u32| now.saturating_since(self.since(*index)) >= patience;
        beyond.filter(|index| self.is_exceeded() || self.contested && may(index))
    }

    /// The prefixes that hold most, none of which holds less than the average, or than its share.
    fn heavy(&self) -> impl Iterator<Item = ShareId> {
        let prefixes = (self.shares.prefixes(ALL_SHARES) as u64).max(1);
        let share = if prefixes < 2 { 0 } else { self.shared() / prefixes };
        let least = (self.held / prefixes).max(share);
        let shares = self.shares.heaviest_first(ALL_SHARES).take(PREFIXES_LOOKED_AT);
        shares.filter(move |share| self.shares.prefix_weight(*share) >= least)
    }

    /// Of a share, the connection with the slowest turnover among those that hold much, and among
    /// the others.
    fn firsts(&self, share: ShareId) -> impl Iterator<Item = u32> {
        [true, false].into_iter().filter_map(move |large| self.lists.first(list_of(share, large)))
    }

    /// Of the prefixes that hold most, the connection that has given nothing back for longest, if
    /// that is too long: approximately. One that holds little is ended only where memory is short.
    fn still(&self, now: Instant) -> Option<u32> {
        let patience = STILL_FOR.mul_f64(self.excess_left());
        let is_over = |since| now.saturating_since(since) >= patience;
        let kinds = if self.is_short() { &[true, false][..] } else { &[true] };
        self.heavy().find_map(|share| {
            let lists = kinds.iter().map(|large| list_of(share, *large));
            let firsts = lists.flat_map(|list| self.lists.iter(list).take(TCP_EVICT_LOOKS));
            let stillest = firsts.min_by_key(|index| self.moved(*index))?;
            is_over(self.moved(stillest)).then_some(stillest)
        })
    }

    /// The slowest to turn over of the connections of the prefixes that hold most, if that is too
    /// long.
    fn slowest(&self, now: Instant) -> Option<u32> {
        let is_slow = |index: &u32| now.saturating_since(self.since(*index)) >= TURNOVER_PATIENCE;
        self.heavy().find_map(|share| self.firsts(share).find(is_slow))
    }

    fn since(&self, index: u32) -> Instant {
        self.holders.get(index as usize).map_or(Instant::FAR, |holder| holder.since)
    }

    fn moved(&self, index: u32) -> Instant {
        self.holders.get(index as usize).map_or(Instant::FAR, |holder| holder.moved)
    }

    /// The part of the excess that is left: 1 up to the limit, 0 at the bound.
    fn excess_left(&self) -> f64 {
        self.left_of_excess() as f64 / self.excess().max(1) as f64
    }

    /// True bytes of the excess that are not held.
    fn left_of_excess(&self) -> u64 {
        let left = self.limit.saturating_add(self.excess()).saturating_sub(self.held);
        left.min(self.excess())
    }
}

const fn is_large(held: u32) -> bool {
    held > HALF_FLOOR
}

const fn list_of(share: ShareId, large: bool) -> u32 {
    2 * share.index() + if large { 0 } else { 1 }
}

#[cfg(test)]
mod tests;
