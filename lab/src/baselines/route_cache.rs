//! A cache with an entry for each destination; unlinked entries wait for a grace period.
//!
//! Models: the IPv4 route cache of Linux 2.6.0 (`net/ipv4/route.c`, `net/core/dst.c`, 2003) with
//! that machine's sizes of 256 MB: a hash of chains; a bound on entries that counts those which are
//! unlinked and not yet freed; a collector that is started for every entry made above a threshold,
//! at most twice a second until the bound is reached, and at every new destination from then on;
//! and a chain that is too long gives up its oldest entry for each new one.
//! Simplified: what the collector unlinks it takes in the order of its walk, not by age; entries
//! have no users; IPv6 kept its clones in the routing tree, under locks: here it has the same cache
//! with IPv6's own bounds, which is kinder to it. The hash has no key, as that of 2.6.0 had none
//! until later.
//! Serves: every claim of the plan `route-flood` about caches, their overflow and their grace
//! periods.

use core::time::Duration;

use floodwall_base::Instant;
use floodwall_sync::qsbr::{Domain, Limbo, LimboCaps, Policy};

/// How large a cache is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Chains.
    pub buckets: usize,
    /// Entries at most, linked or not yet freed.
    pub entries_max: usize,
    /// Entries above which making one starts the collector.
    pub collect_from: usize,
    /// Entries of a chain above which a new one costs the oldest.
    pub chain_max: usize,
    /// The least time between two collections below the bound.
    pub collect_gap: Duration,
    /// Bytes of an entry.
    pub entry_bytes: usize,
}

impl Sizes {
    /// IPv4 on the source's machine of 256 MB: 2048 chains, sixteen entries for each.
    pub const V4: Self = Self {
        buckets: 2048,
        entries_max: 32_768,
        collect_from: 2048,
        chain_max: 8,
        collect_gap: Duration::from_millis(500),
        entry_bytes: 256,
    };
    /// IPv6: 4096 entries on every machine.
    pub const V6: Self = Self { buckets: 256, entries_max: 4096, collect_from: 1024, ..Self::V4 };
}

/// What became of a packet's destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It had an entry.
    Known,
    /// It was given one.
    New,
    /// There is no room for one: "dst cache overflow", and the packet is lost.
    Overflow,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    addr: u128,
    used: u64,
}

/// The route cache: one hash entry for each destination, freed after a grace period.
pub struct RouteCache<P: Policy> {
    sizes: Sizes,
    chains: Vec<Vec<Entry>>,
    linked: usize,
    /// Unlinked entries: when each was, and behind how many passes.
    limbo: Limbo<(u64, u64), P>,
    /// Passes that freed what they might, so far.
    passes: u64,
    waiting: usize,
    retired: u64,
    last_collection: Option<Instant>,
    equilibrium: usize,
    rover: usize,
}

impl<P: Policy> RouteCache<P> {
    /// An empty cache; its unlinked entries wait for the readers of `domain`.
    #[must_use]
    pub fn new(sizes: Sizes, domain: &Domain<P>) -> Self {
        let bytes = sizes.entries_max.saturating_mul(sizes.entry_bytes);
        Self {
            sizes,
            chains: vec![Vec::new(); sizes.buckets.max(1)],
            linked: 0,
            limbo: domain.limbo(LimboCaps { items: sizes.entries_max, bytes }),
            passes: 0,
            waiting: 0,
            retired: 0,
            last_collection: None,
            equilibrium: 0,
            rover: 0,
        }
    }

    /// Entries that count against the bound.
    #[must_use]
    pub const fn entries(&self) -> usize {
        self.linked + self.waiting
    }

    /// Of these, how many are unlinked and not yet freed.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.waiting
    }

    /// How many were ever unlinked.
    #[must_use]
    pub const fn retired(&self) -> u64 {
        self.retired
    }

    /// How long the oldest unlinked entry has waited.
    #[must_use]
    pub fn oldest(&self, now: Instant) -> Option<Duration> {
        self.limbo.oldest(now)
    }

    /// Looks the destination of a packet up, and makes an entry where it has none. Also returns how
    /// many chains and entries were visited.
    pub fn packet(&mut self, addr: u128, now: Instant) -> (Found, u64) {
        let (at, stamp) = (bucket(addr, self.chains.len()), now.as_nanos());
        let chain = self.chains.get_mut(at);
        let known = chain.and_then(|chain| {
            let place = chain.iter().position(|entry| entry.addr == addr)?;
            chain.get_mut(place)?.used = stamp;
            Some(place)
        });
        if let Some(place) = known {
            return (Found::Known, place as u64 + 1);
        }
        let mut visited = 0;
        if self.entries() > self.sizes.collect_from && !self.collect(now, &mut visited) {
            return (Found::Overflow, visited);
        }
        let (chains, chain_max) = (&mut self.chains, self.sizes.chain_max);
        let Some(chain) = chains.get_mut(at) else { return (Found::Overflow, visited) };
        visited += chain.len() as u64;
        chain.push(Entry { addr, used: stamp });
        self.linked += 1;
        if chain.len() > chain_max + 1 {
            let oldest = (0..chain.len()).min_by_key(|place| chain.get(*place).map(|e| e.used));
            if let Some(oldest) = oldest {
                chain.swap_remove(oldest);
                self.unlinked(now);
            }
        }
        (Found::New, visited)
    }

    /// An entry has left its chain: it waits. The limbo has room for as many as there may be.
    fn unlinked(&mut self, now: Instant) {
        self.linked -= 1;
        if let Ok(slot) = self.limbo.reserve(self.sizes.entry_bytes) {
            slot.retire((now.as_nanos(), self.passes), now);
            self.waiting += 1;
            self.retired += 1;
        }
    }

    /// One collection, where it is time for one. Returns whether there is room for an entry: what
    /// was unlinked makes none until it is freed.
    fn collect(&mut self, now: Instant, visited: &mut u64) -> bool {
        let Sizes { buckets, entries_max, collect_from, chain_max, collect_gap, .. } = self.sizes;
        let entries = self.entries();
        let soon = self.last_collection.is_some_and(|last| now - last < collect_gap);
        if soon && entries < entries_max {
            return true;
        }
        let above = entries.saturating_sub(chain_max * buckets);
        let goal = if above > 0 {
            let goal = (above / 2).max(buckets);
            self.equilibrium = entries.saturating_sub(goal);
            goal
        } else {
            self.equilibrium = self.equilibrium.max(collect_from);
            let over = entries.saturating_sub(self.equilibrium);
            self.equilibrium += (over / 2).min(buckets);
            entries.saturating_sub(self.equilibrium)
        };
        if !soon {
            self.last_collection = Some(now);
        }
        self.walk(goal, now, visited);
        self.entries() < entries_max
    }

    /// Unlinks chain after chain until the goal is reached, once round at most.
    fn walk(&mut self, goal: usize, now: Instant, visited: &mut u64) {
        let mut left = goal;
        for step in 0..self.chains.len() {
            if left == 0 {
                return;
            }
            // Where no other is left, empty chains are paid for and not walked: eight chain heads
            // share a cache line.
            if self.linked == 0 {
                *visited += (self.chains.len() - step).div_ceil(8) as u64;
                return;
            }
            self.rover = (self.rover + 1) % self.chains.len();
            let chain = self.chains.get_mut(self.rover).map(core::mem::take).unwrap_or_default();
            *visited += 1 + chain.len() as u64;
            left = left.saturating_sub(chain.len());
            chain.iter().for_each(|_| self.unlinked(now));
            if let Some(place) = self.chains.get_mut(self.rover) {
                *place = chain;
                place.clear();
            }
        }
    }

    /// Frees what may be freed in one pass: to `freed` goes when each entry was unlinked, and how
    /// many passes ago, this one included.
    pub fn reclaim(&mut self, now: Instant, mut freed: impl FnMut(u64, u64)) -> usize {
        self.passes += 1;
        let passes = self.passes;
        let count = self.limbo.reclaim(|| now, &mut |(at, pass)| freed(at, passes - pass));
        self.waiting -= count;
        count
    }
}

/// Which chain: the address folded, as 2.6.0 did.
fn bucket(addr: u128, buckets: usize) -> usize {
    let mut fold = (addr >> 64) as u64 ^ addr as u64;
    fold = fold.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (fold >> 40) as usize % buckets.max(1)
}

#[cfg(test)]
mod tests {
    use floodwall_sync::qsbr::{Moment, Paced};

    use super::*;
    use crate::baselines::lazy_quiescence::LazyQuiescence;

    const fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1000)
    }

    #[test]
    fn a_destination_that_comes_again_is_known() {
        let domain = Domain::new(1);
        let mut cache: RouteCache<Paced> = RouteCache::new(Sizes::V4, &domain);
        assert_eq!(cache.packet(7, at(1)).0, Found::New);
        assert_eq!(cache.packet(7, at(2)).0, Found::Known);
        assert_eq!((cache.entries(), cache.waiting()), (1, 0));
    }

    #[test]
    fn what_is_unlinked_counts_against_the_bound_until_it_is_freed() {
        let domain = Domain::with_policy(1, LazyQuiescence::UNBOUNDED);
        let mut reader = domain.reader_at(at(0)).unwrap();
        let mut cache = RouteCache::new(Sizes::V4, &domain);
        let mut overflows = 0;
        for n in 0..60_000_u64 {
            overflows += u64::from(cache.packet(u128::from(n) << 96, at(n)).0 == Found::Overflow);
            assert!(cache.entries() <= Sizes::V4.entries_max);
            reader.pass(Moment::RoundEnd, at(n));
            cache.reclaim(at(n), |_, _| {});
        }
        assert!(overflows > 10_000, "{overflows}");
        assert!(cache.waiting() > 30_000, "{}", cache.waiting());
        reader.pass(Moment::Idle, at(60_000));
        let mut freed = 0;
        while cache.reclaim(at(60_001), |_, _| freed += 1) > 0 {}
        assert_eq!((freed, cache.waiting()), (cache.retired(), 0));
        assert_eq!(cache.packet(1, at(60_002)).0, Found::New);
    }
}
