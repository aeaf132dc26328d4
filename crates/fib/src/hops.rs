//! `Hops`: the next-hop objects as readers see them, arrays of atomics.
//!
//! Written by `hop_writer.rs`, read by [`crate::FibReader`] and [`crate::Fib`] for every look-up.
//! Invariants: the words of a place are written before the object's number leads there, and written
//! again only after a grace period; so what a reader finds under a number is one object as it was
//! at one moment, never half of two. A change of an object is one store.

use floodwall_base::{Address, IfIndex};
use floodwall_sync::shim::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::next_hop::{Found, NextHop, NextHopId};
use crate::route::RouteKind;

/// Parts into which a group's flows fall: a member's share is exact to one of them.
pub(crate) const BUCKETS: usize = 128;
/// Words of an object: flags, gateway, source address.
const HOP_WORDS: usize = 5;
const HAS_GATEWAY: u64 = 1 << 8;
const HAS_SOURCE: u64 = 1 << 9;
const IS_GROUP: u64 = 1 << 10;
/// The gateway does not answer: groups pass it over while another member does not have this.
const IS_SILENT: u64 = 1 << 11;
const IFACE_SHIFT: u32 = 16;
const BLOCK_SHIFT: u32 = 32;

/// The next-hop objects as readers see them.
pub(crate) struct Hops {
    /// The place of each number; 0 for none.
    places: Box<[AtomicU32]>,
    words: Box<[[AtomicU64; HOP_WORDS]]>,
    /// Numbers of members, [`BUCKETS`] for each group.
    buckets: Box<[AtomicU32]>,
}

impl Hops {
    /// Room for so many objects and groups. Numbers and places begin at 1.
    pub(crate) fn new(hops: usize, groups: usize) -> Self {
        Self {
            places: (0..=hops).map(|_| AtomicU32::new(0)).collect(),
            // Each object may change once while its former self waits for readers.
            words: (0..=2 * hops).map(|_| core::array::from_fn(|_| AtomicU64::new(0))).collect(),
            buckets: (0..2 * groups * BUCKETS).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Places that there are, the first not counted.
    pub(crate) fn capacity(&self) -> usize {
        self.words.len().saturating_sub(1)
    }

    /// Writes an object to a place that no reader looks at.
    pub(crate) fn write<A: Address>(&self, place: u32, hop: &NextHop<A>) {
        let mut flags = kind_bits(hop.kind) | u64::from(hop.iface.0) << IFACE_SHIFT;
        flags |= if hop.gateway.is_some() { HAS_GATEWAY } else { 0 };
        flags |= if hop.src_addr.is_some() { HAS_SOURCE } else { 0 };
        let bits = |addr: Option<A>| addr.map_or(0, A::to_bits_aligned);
        let (via, src) = (bits(hop.gateway), bits(hop.src_addr));
        let all = [flags, (via >> 64) as u64, via as u64, (src >> 64) as u64, src as u64];
        if let Some(words) = self.words.get(place as usize) {
            words.iter().zip(all).for_each(|(word, value)| word.store(value, Relaxed));
        }
    }

    /// Writes a group to a place that no reader looks at; its members stand in `block`.
    pub(crate) fn write_group(&self, place: u32, block: u32) {
        if let Some([flags, ..]) = self.words.get(place as usize) {
            flags.store(IS_GROUP | u64::from(block) << BLOCK_SHIFT, Relaxed);
        }
    }

    /// Lets one part of a group's flows go to a member.
    pub(crate) fn set_bucket(&self, block: u32, bucket: usize, member: u32) {
        if let Some(slot) = self.buckets.get(block as usize * BUCKETS + bucket) {
            slot.store(member, Release);
        }
    }

    /// The member that one part of a group's flows goes to.
    pub(crate) fn bucket(&self, block: u32, bucket: usize) -> u32 {
        member_of(&self.buckets, block, bucket)
    }

    /// Notes whether an object's gateway answers, for the groups that have it. One store.
    pub(crate) fn set_silent(&self, place: u32, silent: bool) {
        if let Some([flags, ..]) = self.words.get(place as usize) {
            match silent {
                true => flags.fetch_or(IS_SILENT, Relaxed),
                false => flags.fetch_and(!IS_SILENT, Relaxed),
            };
        }
    }

    /// Shows a number's object at another place.
    pub(crate) fn show(&self, id: u32, place: u32) {
        if let Some(slot) = self.places.get(id as usize) {
            slot.store(place, Release);
        }
    }

    /// The objects by where their arrays are.
    #[inline(always)]
    pub(crate) fn bind(&self) -> BoundHops<'_> {
        let Self { places, words, buckets } = self;
        BoundHops { places, words, buckets }
    }
}

/// The next-hop objects, and where their arrays are: an atomic access makes the compiler forget
/// what it read of [`Hops`] before, but not what a loop holds in registers.
#[derive(Clone, Copy)]
pub(crate) struct BoundHops<'a> {
    places: &'a [AtomicU32],
    words: &'a [[AtomicU64; HOP_WORDS]],
    buckets: &'a [AtomicU32],
}

impl<'a> BoundHops<'a> {
    /// The next hop of a number, where its interface carries packets (a bit of `down` for each that
    /// does not). An ECMP group gives the member of the flow; one with an interface that is down,
    /// or with a gateway that does not answer while another's does, is left out, and the flows of
    /// the others stay where they are.
    #[inline(always)]
    pub(crate) fn found<A: Address>(
        &self,
        id: u32,
        down: u64,
        flow: impl FnOnce() -> u64,
    ) -> Option<Found<A>> {
        let (words, flags) = self.at(id)?;
        if flags & IS_GROUP == 0 {
            return found_at(id, words, flags, down);
        }
        let block = (flags >> BLOCK_SHIFT) as u32;
        let first = flow() as usize;
        let choose = |passed_over: u64| {
            (0..BUCKETS).find_map(|n| {
                let member = member_of(self.buckets, block, first.wrapping_add(n));
                let (words, flags) = self.at(member)?;
                if flags & passed_over != 0 {
                    return None;
                }
                let found = found_at(member, words, flags & !IS_GROUP, down)?;
                Some(Found { is_choice: true, ..found })
            })
        };
        choose(IS_SILENT).or_else(|| choose(0))
    }

    #[inline]
    fn at(&self, id: u32) -> Option<(&'a [AtomicU64; HOP_WORDS], u64)> {
        let place = self.places.get(id as usize)?.load(Acquire);
        let words = self.words.get(place as usize)?;
        let flags = words.first()?.load(Relaxed);
        (place != 0).then_some((words, flags))
    }
}

/// The member that one part of a group's flows goes to.
#[inline]
fn member_of(buckets: &[AtomicU32], block: u32, bucket: usize) -> u32 {
    let slot = buckets.get(block as usize * BUCKETS + bucket % BUCKETS);
    slot.map_or(0, |slot| slot.load(Acquire))
}

#[inline(always)]
fn found_at<A: Address>(
    id: u32,
    words: &[AtomicU64; HOP_WORDS],
    flags: u64,
    down: u64,
) -> Option<Found<A>> {
    let iface = IfIndex((flags >> IFACE_SHIFT) as u16);
    let kind = kind_of(flags)?;
    if kind.is_unicast() && down.unbounded_shr(u32::from(iface.0)) & 1 != 0 {
        return None;
    }
    let [_, via_high, via_low, src_high, src_low] = words;
    let addr = |high: &AtomicU64, low: &AtomicU64| {
        A::from_bits_aligned(u128::from(high.load(Relaxed)) << 64 | u128::from(low.load(Relaxed)))
    };
    let gateway = (flags & HAS_GATEWAY != 0).then(|| addr(via_high, via_low));
    let src_addr = (flags & HAS_SOURCE != 0).then(|| addr(src_high, src_low));
    let next_hop = NextHopId(id);
    Some(Found { kind, iface, gateway, src_addr, next_hop, is_choice: false })
}

const fn kind_bits(kind: RouteKind) -> u64 {
    match kind {
        RouteKind::Unicast => 1,
        RouteKind::Local => 2,
        RouteKind::Blackhole => 3,
        RouteKind::Unreachable => 4,
        RouteKind::Prohibit => 5,
    }
}

#[inline]
const fn kind_of(flags: u64) -> Option<RouteKind> {
    Some(match flags & 255 {
        1 => RouteKind::Unicast,
        2 => RouteKind::Local,
        3 => RouteKind::Blackhole,
        4 => RouteKind::Unreachable,
        5 => RouteKind::Prohibit,
        _ => return None,
    })
}
