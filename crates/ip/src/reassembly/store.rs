//! The memory of the reassembly store: datagrams, shares of sources, eviction order (LRU).
//!
//! Called by `reassembly.rs`, which decides what becomes of a fragment. Invariants: a datagram is
//! in the list of its source's share and in that of all, least recently extended first, or else in
//! the list of free ones; the counts of a share and of the store are the sums over their datagrams;
//! a free datagram holds no packet. Making, touching and giving up a datagram are constant but for
//! its packets, which go home one by one.

use floodwall_base::{
    Address, DropReason, HashKey, IfIndex, IndexLists, Instant, TimerWheel, limits,
};
use floodwall_packet::PacketList;

use super::ReassemblyConfig;
use super::gather;
use super::piece::FragmentPiece;
use super::runs::{FragmentChain, FragmentRuns, Grown};
use crate::neighbor::NeighborIndex;

/// Sources are assigned by a keyed hash to so many shares; two unrelated ones may share one.
const SOURCE_SHARES: usize = 1024;
/// The list of all datagrams in use.
const IN_USE: u32 = 0;
/// The list of those that are not.
const FREE_LIST: u32 = 1;

/// What fragments of one datagram have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ReassemblyKey<A> {
    src_addr: A,
    dst_addr: A,
    id: u32,
    /// IPv4 only: IPv6's first fragment alone determines what the datagram carries.
    protocol: u8,
    /// Where an address means something on one link only.
    zone: Option<IfIndex>,
}

impl<A: Address> ReassemblyKey<A> {
    pub(super) fn of(piece: &FragmentPiece<A>) -> Self {
        let (src_addr, dst_addr) = (piece.heading.src_addr, piece.heading.dst_addr);
        let scoped = src_addr.is_link_scope() || dst_addr.is_link_scope() || dst_addr.is_group();
        Self {
            src_addr,
            dst_addr,
            id: piece.id,
            protocol: if A::BITS == 32 { piece.protocol.0 } else { 0 },
            zone: scoped.then_some(piece.iface),
        }
    }

    /// Whether it is the key of `piece`, without making that.
    #[inline]
    fn is_of(&self, piece: &FragmentPiece<A>) -> bool {
        self.id == piece.id
            && self.src_addr == piece.heading.src_addr
            && self.dst_addr == piece.heading.dst_addr
            && (A::BITS != 32 || self.protocol == piece.protocol.0)
            && self.zone.is_none_or(|zone| zone == piece.iface)
    }

    fn hash(&self, key: &HashKey) -> u32 {
        let halves = |addr: A| {
            let bits = addr.to_bits_aligned();
            [(bits >> 64) as u64, bits as u64]
        };
        let ([a, b], [c, d]) = (halves(self.src_addr), halves(self.dst_addr));
        let zone = self.zone.map_or(0, |zone| zone.0);
        let rest = u64::from(self.id) << 32 | u64::from(zone) << 8 | u64::from(self.protocol);
        let mut bytes = [0; 40];
        for (out, word) in bytes.chunks_exact_mut(8).zip([a, b, c, d, rest]) {
            out.copy_from_slice(&word.to_le_bytes());
        }
        key.bytes(&bytes) as u32
    }
}

/// The first fragment, as long as its datagram is incomplete.
#[derive(Clone, Copy, Debug)]
pub(super) struct DatagramHead<A> {
    pub(super) piece: FragmentPiece<A>,
    /// Bytes of its packet, headers included; what is behind was copied there.
    pub(super) len: usize,
}

/// One datagram.
pub(super) struct PartialDatagram<A> {
    key: ReassemblyKey<A>,
    hash: u32,
    share: u32,
    pub(super) deadline: Instant,
    pub(super) chain: FragmentChain,
    pub(super) head: Option<DatagramHead<A>>,
    /// Distinct bytes that have arrived.
    pub(super) received: u32,
    /// All bytes of the datagram, once its last fragment has arrived.
    pub(super) total: Option<u32>,
    /// Fragments held, and where each starts, in units of eight bytes.
    pub(super) fragments: usize,
    starts: [u16; limits::REASSEMBLY_FRAGMENTS_MAX],
    /// True bytes held.
    pub(super) bytes: u64,
    /// One bit for each value of the congestion field that arrived.
    pub(super) ecn: u8,
    pub(super) link_group: bool,
    /// It was given up, and further fragments are dropped for this reason.
    pub(super) dead: Option<DropReason>,
}

impl<A: Address> PartialDatagram<A> {
    const fn free() -> Self {
        Self {
            key: ReassemblyKey {
                src_addr: A::UNSPECIFIED,
                dst_addr: A::UNSPECIFIED,
                id: 0,
                protocol: 0,
                zone: None,
            },
            hash: 0,
            share: 0,
            deadline: Instant::ORIGIN,
            chain: FragmentChain::EMPTY,
            head: None,
            received: 0,
            total: None,
            fragments: 0,
            starts: [0; limits::REASSEMBLY_FRAGMENTS_MAX],
            bytes: 0,
            ecn: 0,
            link_group: false,
            dead: None,
        }
    }

    /// Notes a fragment of which `missing` bytes were new; not beyond as many as there may be.
    #[inline]
    pub(super) fn take_in(&mut self, piece: &FragmentPiece<A>, missing: u32, link_group: bool) {
        if let Some(slot) = self.starts.get_mut(self.fragments) {
            *slot = (piece.offset / 8) as u16;
            self.fragments += 1;
        }
        self.received += missing;
        self.ecn |= gather::ecn_bit(piece.ecn);
        self.link_group |= link_group;
        if !piece.more {
            self.total = Some(piece.end() as u32);
        }
    }

    /// Where the fragment that begins at `start` ended, given the run's end behind it.
    pub(super) fn end_of(&self, start: u32, run_end: u32) -> Option<u32> {
        let starts = || self.starts.iter().take(self.fragments).map(|s| u32::from(*s) * 8);
        if !starts().any(|s| s == start) {
            return None;
        }
        Some(starts().filter(|s| *s > start).min().map_or(run_end, |next| next.min(run_end)))
    }
}

/// What one source, or all together, hold.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Holding {
    pub(super) bytes: u64,
    pub(super) datagrams: usize,
    pub(super) fragments: u64,
}

/// What was taken out of a datagram: its packets, and how many fragments they were.
pub(super) type Emptied = (PacketList, u64);

/// The datagrams that are being reassembled, with their shares and LRU lists.
pub(super) struct Store<A> {
    config: ReassemblyConfig,
    datagrams: Box<[PartialDatagram<A>]>,
    pub(super) runs: FragmentRuns,
    index: NeighborIndex,
    by_age: IndexLists,
    by_share: IndexLists,
    shares: Box<[Holding]>,
    pub(super) all: Holding,
    pub(super) wheel: TimerWheel,
    key: HashKey,
    /// What was made or grew last, and is the last of its lists therefore: fragments of one
    /// datagram mostly come one after the other, and need neither a hash nor a new place then.
    recent: Option<u32>,
}

impl<A: Address> Store<A> {
    pub(super) fn new(config: ReassemblyConfig, key: HashKey, now: Instant) -> Self {
        let count = config.datagrams;
        let mut by_age = IndexLists::new(count, 2);
        (0..by_age.items()).for_each(|at| by_age.push_back(FREE_LIST, at));
        Self {
            config,
            datagrams: (0..count).map(|_| PartialDatagram::free()).collect(),
            runs: FragmentRuns::new(count.saturating_mul(4)),
            index: NeighborIndex::new(count),
            by_age,
            by_share: IndexLists::new(count, SOURCE_SHARES),
            shares: vec![Holding::default(); SOURCE_SHARES].into(),
            all: Holding::default(),
            wheel: TimerWheel::new(count, now),
            key,
            recent: None,
        }
    }

    /// Holds no more than so many true bytes from now on.
    pub(super) fn limit_bytes(&mut self, bytes: u64) {
        self.config.bytes = self.config.bytes.min(bytes);
    }

    pub(super) fn at(&mut self, at: u32) -> Option<&mut PartialDatagram<A>> {
        self.datagrams.get_mut(at as usize)
    }

    /// The datagram and the runs, to be changed together.
    pub(super) fn parts(
        &mut self,
        at: u32,
    ) -> Option<(&mut PartialDatagram<A>, &mut FragmentRuns)> {
        self.datagrams.get_mut(at as usize).map(|datagram| (datagram, &mut self.runs))
    }

    /// The datagram that grew last, if `piece` is of it.
    #[inline]
    pub(super) fn recent(&self, piece: &FragmentPiece<A>) -> Option<u32> {
        let is_it = |datagram: &PartialDatagram<A>| datagram.key.is_of(piece);
        self.recent.filter(|at| self.datagrams.get(*at as usize).is_some_and(is_it))
    }

    pub(super) fn find(&self, key: &ReassemblyKey<A>) -> Option<u32> {
        let is_it =
            |at: u32| self.datagrams.get(at as usize).is_some_and(|datagram| datagram.key == *key);
        let recent = self.recent.filter(|at| is_it(*at));
        recent.or_else(|| self.index.find(key.hash(&self.key), is_it))
    }

    /// The share of a source: of an IPv4 address, of an IPv6 /64.
    fn share_of(&self, src_addr: A) -> u32 {
        let prefix = (src_addr.to_bits_aligned() >> 64) as u64;
        (self.key.bytes(&prefix.to_be_bytes()) % SOURCE_SHARES as u64) as u32
    }

    /// A new datagram; `None` where there is no room.
    pub(super) fn make(&mut self, key: ReassemblyKey<A>, deadline: Instant) -> Option<u32> {
        let at = self.by_age.first(FREE_LIST)?;
        let hash = key.hash(&self.key);
        if !self.index.insert(hash, at) {
            return None;
        }
        let share = self.share_of(key.src_addr);
        let datagram = self.datagrams.get_mut(at as usize)?;
        *datagram = PartialDatagram { key, hash, share, deadline, ..PartialDatagram::free() };
        self.by_share.push_back(share, at);
        self.by_age.push_back(IN_USE, at);
        self.recent = Some(at);
        self.wheel.insert(at, deadline);
        self.all.datagrams += 1;
        if let Some(share) = self.shares.get_mut(share as usize) {
            share.datagrams += 1;
        }
        Some(at)
    }

    /// A datagram has grown by a fragment: it becomes the most recently used.
    #[inline]
    pub(super) fn grow(&mut self, at: u32, grown: Grown) {
        let Some(datagram) = self.datagrams.get_mut(at as usize) else { return };
        let share = self.shares.get_mut(datagram.share as usize);
        datagram.bytes = (datagram.bytes + grown.added).saturating_sub(grown.freed);
        for holding in [share, Some(&mut self.all)].into_iter().flatten() {
            holding.bytes = (holding.bytes + grown.added).saturating_sub(grown.freed);
            holding.fragments += 1;
        }
        if self.recent != Some(at) {
            self.by_share.push_back(datagram.share, at);
            self.by_age.push_back(IN_USE, at);
            self.recent = Some(at);
        }
    }

    /// Takes the packets of a datagram, which stays.
    pub(super) fn empty(&mut self, at: u32) -> Emptied {
        let Some(datagram) = self.datagrams.get_mut(at as usize) else {
            return (PacketList::new(), 0);
        };
        let packets = self.runs.take(&mut datagram.chain);
        let (bytes, fragments) = (datagram.bytes, datagram.fragments as u64);
        (datagram.bytes, datagram.fragments, datagram.head) = (0, 0, None);
        let share = self.shares.get_mut(datagram.share as usize);
        for holding in [share, Some(&mut self.all)].into_iter().flatten() {
            holding.bytes = holding.bytes.saturating_sub(bytes);
            holding.fragments = holding.fragments.saturating_sub(fragments);
        }
        (packets, fragments)
    }

    /// Takes the packets of a datagram, which is free afterwards.
    pub(super) fn remove(&mut self, at: u32) -> Emptied {
        let packets = self.empty(at);
        self.recent = self.recent.filter(|recent| *recent != at);
        let Some(datagram) = self.datagrams.get_mut(at as usize) else { return packets };
        self.index.remove(datagram.hash, at);
        self.by_share.unlink(at);
        self.by_age.push_back(FREE_LIST, at);
        self.wheel.cancel(at);
        self.all.datagrams -= 1;
        if let Some(share) = self.shares.get_mut(datagram.share as usize) {
            share.datagrams = share.datagrams.saturating_sub(1);
        }
        packets
    }

    /// The datagram to evict before `bytes` more of this source fit, in a datagram (`newcomer`: in
    /// one that is not there yet); never `spared`.
    #[inline]
    pub(super) fn crowd(
        &self,
        src_addr: A,
        bytes: u64,
        spared: Option<u32>,
        apart: bool,
    ) -> Option<ReassemblyQueue> {
        let newcomer = usize::from(spared.is_none());
        let known = spared.and_then(|at| self.datagrams.get(at as usize));
        let share = known.map_or_else(|| self.share_of(src_addr), |datagram| datagram.share);
        let held = self.shares.get(share as usize).copied().unwrap_or_default();
        let free = self.config.bytes.saturating_sub(self.all.bytes);
        let bytes_max = free.max(limits::REASSEMBLY_SOURCE_BYTES as u64);
        let free = self.config.datagrams.saturating_sub(self.all.datagrams);
        let datagrams_max = free.max(limits::REASSEMBLY_SOURCE_DATAGRAMS);
        let other =
            |list: &IndexLists, of: u32| list.iter(of).take(2).find(|at| Some(*at) != spared);
        if held.bytes + bytes > bytes_max || held.datagrams + newcomer > datagrams_max {
            let oldest = other(&self.by_share, share);
            return Some(ReassemblyQueue { oldest, reason: DropReason::FragmentSourceFull });
        }
        let full = self.all.bytes + bytes > self.config.bytes
            || self.all.datagrams + newcomer > self.config.datagrams
            || (apart && !self.runs.has_room());
        full.then(|| ReassemblyQueue {
            oldest: other(&self.by_age, IN_USE),
            reason: DropReason::FragmentStoreFull,
        })
    }
}

/// There is no room.
pub(super) struct ReassemblyQueue {
    /// The next datagram to evict, if any can be.
    pub(super) oldest: Option<u32>,
    pub(super) reason: DropReason,
}
