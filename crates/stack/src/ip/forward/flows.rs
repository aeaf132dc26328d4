//! `ForwardedFlows`: pairs of hosts that lately exchanged packets through this router in both
//! directions, for triage. Their packets are established traffic; all others are unverified, for
//! any destination.
//!
//! Written by `forward.rs` for a sample of the packets that left to resolved neighbours, read by
//! `triage.rs` under pressure. A packet is of an active pair where one of the opposite direction
//! was forwarded within [`DIALOGUE_SILENCE`]: one-way traffic establishes nothing. Invariants:
//! entries exist for pairs, never for single destinations, and only within the bound; a pair seen
//! in both directions is never evicted. Not here: ports (a router ignores them), peers of this
//! host's own sockets (`recent_peers.rs`).
//!
//! # Under flood
//! Any forwarded source fills the table. Bound: `DIALOGUES` pairs, allocated at the start where
//! anything is forwarded. Worst work: one cache line a packet that is looked up, and of a burst
//! [`BURST_NOTES`] lines for each interface. A newcomer evicts an entry that has been idle for
//! [`DIALOGUE_SILENCE`], else the oldest pair that was seen in one direction only, never one seen
//! in both; else it is not recorded. Random destinations thus evict each other, and an answer
//! establishes its pair if it comes before the entry is evicted by unverified traffic (a second or
//! so). An attacker that forges the address of one host of an active pair towards the other shares
//! the pair's priority: a router cannot distinguish them. One that makes many hosts answer fills
//! the table with active pairs; then new pairs remain unverified until some become idle, as all
//! were without the table. No packet is dropped for it, so there is no counter.

use core::time::Duration;

use floodwall_base::limits::DIALOGUES;
use floodwall_base::{Address, Family, IfIndex, Instant, SecretRandom};
use floodwall_sync::prefetch;

use crate::triage::recent_peers::{pair, scattered};

/// Idle time of the opposite direction after which a packet is unverified again.
const DIALOGUE_SILENCE: Duration = Duration::from_secs(30);
/// Packets sampled from a burst, for each input interface.
const BURST_NOTES: usize = 8;
/// Time is kept in ticks of 2^27 ns, 134 ms, which wrap after 2.4 hours.
const TICK_BITS: u32 = 27;
const SILENCE_TICKS: u16 = (DIALOGUE_SILENCE.as_nanos() as u64 >> TICK_BITS) as u16;
/// Pairs of one set.
const SET_WAYS: usize = 8;
/// Sets swept for expired entries in each tick: all of them in 17 s, long before an old tick could
/// be taken for a new one.
const SETS_SWEPT: usize = DIALOGUES / SET_WAYS / 128;
/// No packet of this direction was seen.
const NEVER_HEARD: u16 = 0;

/// The position of a pair's entry, if it has one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DialogueSlot {
    set: u32,
    print: u32,
    /// Direction: whether the packet goes from the greater address to the lesser.
    falls: bool,
}

impl DialogueSlot {
    /// Matches no pair: for initializing arrays.
    pub(crate) const UNUSED: Self = Self { set: 0, print: 0, falls: false };
}

/// One cache-associative set, in one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct DialogueSet {
    /// Fingerprints; 0 marks a free entry.
    prints: [u32; SET_WAYS],
    /// Tick of the last forwarded packet, for each direction.
    heard: [[u16; SET_WAYS]; 2],
}

const EMPTY_SET: DialogueSet =
    DialogueSet { prints: [0; SET_WAYS], heard: [[NEVER_HEARD; SET_WAYS]; 2] };
const _: () = assert!(size_of::<DialogueSet>() == 64, "one cache line");
const _: () = assert!(DIALOGUES.is_power_of_two() && SETS_SWEPT > 0, "a mask and a sweep");

/// Set-associative table of the pairs of hosts that exchange packets through this router.
pub(crate) struct ForwardedFlows {
    sets: Box<[DialogueSet]>,
    /// Key of a multilinear hash as in `recent_peers.rs`; its values are never exposed to a peer.
    key: [u64; 18],
    /// The absolute time step of the last round, and the tick stored for it.
    step: u64,
    tick: u16,
    /// The next set to sweep.
    sweep: usize,
    /// Sampling offset, rotated with each burst.
    phase: usize,
}

impl ForwardedFlows {
    /// An empty table; `random` gives its key.
    pub(crate) fn new(random: &mut SecretRandom) -> Self {
        Self {
            sets: vec![EMPTY_SET; DIALOGUES / SET_WAYS].into(),
            key: core::array::from_fn(|_| random.next_u64()),
            step: 0,
            tick: 1,
            sweep: 0,
            phase: 0,
        }
    }

    /// Starts a round: sets the current time.
    #[inline]
    pub(crate) fn begin(&mut self, now: Instant) {
        let step = now.as_nanos() >> TICK_BITS;
        if step != self.step {
            self.turn(step);
        }
    }

    /// Advances time: sweeps expired entries, all of them after a long idle period.
    #[cold]
    fn turn(&mut self, step: u64) {
        let passed = usize::try_from(step.abs_diff(self.step)).unwrap_or(usize::MAX);
        self.step = step;
        self.tick = (step as u16).max(1);
        let tick = self.tick;
        let old = |heard: u16| !is_fresh(heard, tick);
        for _ in 0..passed.saturating_mul(SETS_SWEPT).min(self.sets.len()) {
            let Some(set) = self.sets.get_mut(self.sweep) else { break };
            for heard in set.heard.as_flattened_mut() {
                *heard = if old(*heard) || passed > usize::from(u16::MAX) {
                    NEVER_HEARD
                } else {
                    *heard
                };
            }
            self.sweep = (self.sweep + 1) % (DIALOGUES / SET_WAYS);
        }
    }

    /// Position of the entry of a packet's two ends. No load from the table.
    #[inline(always)]
    pub(crate) fn place<A: Address>(&self, src_addr: A, dst_addr: A) -> DialogueSlot {
        let [a0, a1, a2, a3, a4, a5, a6, a7, a8, b0, b1, b2, b3, b4, b5, b6, b7, b8] = self.key;
        let (from, to) = (src_addr.to_bits_aligned(), dst_addr.to_bits_aligned());
        let (low, high) = if from > to { (to, from) } else { (from, to) };
        let word = |bits: u128, shift: u32| (bits >> shift) as u32;
        let mut one = a0.wrapping_add(pair(a1, word(low, 96), a2, word(high, 96)));
        let mut other = b0.wrapping_add(pair(b1, word(low, 96), b2, word(high, 96)));
        if matches!(A::FAMILY, Family::V6) {
            one = one
                .wrapping_add(pair(a3, word(low, 64), a4, word(high, 64)))
                .wrapping_add(pair(a5, word(low, 32), a6, word(high, 32)))
                .wrapping_add(pair(a7, word(low, 0), a8, word(high, 0)));
            other = other
                .wrapping_add(pair(b3, word(low, 64), b4, word(high, 64)))
                .wrapping_add(pair(b5, word(low, 32), b6, word(high, 32)))
                .wrapping_add(pair(b7, word(low, 0), b8, word(high, 0)));
        }
        let print = ((one >> 32) as u32).max(1);
        DialogueSlot { set: (scattered(other) >> 32) as u32, print, falls: from > to }
    }

    /// Prefetches an entry.
    #[inline(always)]
    pub(crate) fn prefetch(&self, place: DialogueSlot) {
        if let Some(set) = self.sets.get(place.set as usize & (self.sets.len() - 1)) {
            prefetch(set);
        }
    }

    /// Whether a packet of the opposite direction was lately forwarded.
    #[inline(always)]
    pub(crate) fn is_established(&self, place: DialogueSlot) -> bool {
        let set = self.sets.get(place.set as usize & (self.sets.len() - 1));
        set.is_some_and(|set| {
            let way = set.prints.iter().position(|print| *print == place.print);
            let [rising, falling] = &set.heard;
            let back = if place.falls { rising } else { falling };
            way.and_then(|way| back.get(way)).is_some_and(|heard| is_fresh(*heard, self.tick))
        })
    }

    /// Records a forwarded packet.
    #[inline]
    pub(crate) fn note(&mut self, place: DialogueSlot) {
        let (tick, mask) = (self.tick, self.sets.len() - 1);
        let Some(set) = self.sets.get_mut(place.set as usize & mask) else { return };
        let known = set.prints.iter().position(|print| *print == place.print);
        let Some(way) = known.or_else(|| set.room(tick, place.print)) else { return };
        let DialogueSet { prints, heard: [rising, falling] } = set;
        let places = (prints.get_mut(way), rising.get_mut(way), falling.get_mut(way));
        let (Some(print), Some(rising), Some(falling)) = places else { return };
        if known.is_none() {
            (*print, *rising, *falling) = (place.print, NEVER_HEARD, NEVER_HEARD);
        }
        *(if place.falls { falling } else { rising }) = tick;
    }

    /// Selects the packets of the next burst to record, given each packet's input interface.
    pub(crate) fn sample(&mut self, ifaces: impl Iterator<Item = IfIndex>) -> DialogueSample {
        let mut counts = [0_usize; DialogueSample::LANES];
        ifaces.for_each(|iface| {
            if let Some(count) = counts.get_mut(usize::from(iface.0) % DialogueSample::LANES) {
                *count += 1;
            }
        });
        self.phase = self.phase.wrapping_add(1);
        let phase = self.phase;
        let lane = |count: usize| {
            let step = count.div_ceil(BURST_NOTES).max(1);
            (phase % step, step)
        };
        DialogueSample { lanes: counts.map(lane) }
    }

    /// Pairs, and how many of them were seen in both directions: for tests.
    #[cfg(test)]
    fn count(&self) -> (usize, usize) {
        let fresh =
            |set: &DialogueSet, lane: usize, way: usize| is_fresh(set.heard[lane][way], self.tick);
        let all = self.sets.iter().flat_map(|set| (0..SET_WAYS).map(move |way| (set, way)));
        all.fold((0, 0), |(some, both), (set, way)| {
            let (rising, falling) = (fresh(set, 0, way), fresh(set, 1, way));
            (some + usize::from(rising || falling), both + usize::from(rising && falling))
        })
    }
}

/// The sampling pattern of one burst: see [`ForwardedFlows::sample`].
pub(crate) struct DialogueSample {
    /// For each lane: packets until the next sampled one, and the sampling interval.
    lanes: [(usize, usize); Self::LANES],
}

impl DialogueSample {
    /// Interfaces that are sampled separately.
    const LANES: usize = 4;

    /// Whether the next packet of an interface is sampled.
    #[inline]
    pub(crate) fn takes(&mut self, iface: IfIndex) -> bool {
        let Some((left, step)) = self.lanes.get_mut(usize::from(iface.0) % Self::LANES) else {
            return false;
        };
        let now = *left == 0;
        *left = if now { *step - 1 } else { *left - 1 };
        now
    }
}

impl DialogueSet {
    /// Finds an entry for a newcomer: a free or idle one, else that of the oldest pair seen in one
    /// direction only; among equally old ones the newcomer's fingerprint decides.
    fn room(&self, tick: u16, print: u32) -> Option<usize> {
        let [rising, falling] = &self.heard;
        let age = |heard: &u16| match is_fresh(*heard, tick) {
            true => tick.wrapping_sub(*heard),
            false => u16::MAX,
        };
        let ways = (0..SET_WAYS).map(|way| (way + print as usize) % SET_WAYS);
        let ages = ways.filter_map(|way| {
            let (a, b) = (age(rising.get(way)?), age(falling.get(way)?));
            // A pair seen lately in neither direction is the oldest of these.
            (a == u16::MAX || b == u16::MAX).then_some((way, a.min(b)))
        });
        ages.max_by_key(|(_, age)| *age).map(|(way, _)| way)
    }
}

#[inline(always)]
const fn is_fresh(heard: u16, tick: u16) -> bool {
    heard != NEVER_HEARD && tick.wrapping_sub(heard) <= SILENCE_TICKS
}

impl core::fmt::Debug for ForwardedFlows {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Dialogues({} sets)", self.sets.len())
    }
}

#[cfg(test)]
mod tests;
