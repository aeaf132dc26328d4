//! `TableHeads`: the prefixes of one table, each with what the table keeps of it.
//!
//! Called by `table.rs`. A map that grows moves all that it has, and one that many keys have gone
//! through cleans itself up by moving them: of a million prefixes that would be tens of
//! milliseconds in one call. So a large table has many small maps, each for the prefixes of some
//! parts of the space: one of them moves at a time, about a thousand prefixes. Those that stand
//! together in the space stand together here, so that a sorted list is loaded within the cache.
//! Invariant: which map a prefix is in depends on its first bits alone, until
//! [`TableHeads::spread`].
//!
//! # Under flood
//! Filled by the operator and routers of the link, within the bounds of [`crate::Fib`]. Each map is
//! keyed: its places cannot be aimed at. Which of the maps is no secret: a source of many routes
//! can fill one more than the others, and makes that one's moves longer.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use floodwall_base::{Prefix, limits};

use crate::keyed::Keyed;
use crate::lpm::LpmFamily;
use crate::table::TableHead;

/// Prefixes of one map, where all are spread evenly.
const MAP_PREFIXES: usize = 1024;

/// The writer's maps from a prefix to the head of its list of routes.
pub(crate) struct TableHeads<A: LpmFamily> {
    maps: Vec<HashMap<Prefix<A>, TableHead, Keyed>>,
    keyed: Keyed,
}

impl<A: LpmFamily> TableHeads<A> {
    /// For a small table.
    pub(crate) fn new(keyed: Keyed) -> Self {
        let map = HashMap::with_capacity_and_hasher(limits::ROUTES_LISTED_MAX, keyed);
        Self { maps: vec![map], keyed }
    }

    /// Becomes that of a table of so many prefixes: moves what there is.
    pub(crate) fn spread(&mut self, prefixes: usize) {
        let count = (prefixes / MAP_PREFIXES).next_power_of_two();
        let maps = (0..count).map(|_| HashMap::with_hasher(self.keyed)).collect();
        let former = core::mem::replace(&mut self.maps, maps);
        for (prefix, head) in former.into_iter().flatten() {
            if let Entry::Vacant(place) = self.entry(prefix) {
                place.insert(head);
            }
        }
    }

    /// Which map: by the first 16 bits of IPv4, 32 of IPv6.
    #[inline]
    fn map(&self, prefix: Prefix<A>) -> usize {
        let first = prefix.addr().to_bits_aligned() >> if A::BITS == 32 { 112 } else { 96 };
        let mixed = (first as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        mixed as usize & (self.maps.len() - 1)
    }

    #[inline]
    pub(crate) fn get(&self, prefix: &Prefix<A>) -> Option<&TableHead> {
        self.maps.get(self.map(*prefix))?.get(prefix)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, prefix: &Prefix<A>) -> Option<&mut TableHead> {
        let map = self.map(*prefix);
        self.maps.get_mut(map)?.get_mut(prefix)
    }

    #[expect(clippy::indexing_slicing, reason = "there is a map for each number of `map`")]
    #[inline]
    pub(crate) fn entry(&mut self, prefix: Prefix<A>) -> Entry<'_, Prefix<A>, TableHead> {
        let map = self.map(prefix);
        self.maps[map].entry(prefix)
    }

    pub(crate) fn remove(&mut self, prefix: &Prefix<A>) {
        let map = self.map(*prefix);
        if let Some(map) = self.maps.get_mut(map) {
            map.remove(prefix);
        }
    }

    pub(crate) fn prefixes(&self) -> impl Iterator<Item = Prefix<A>> + '_ {
        self.maps.iter().flat_map(|map| map.keys().copied())
    }

    /// About what they take, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let places: usize = self.maps.iter().map(HashMap::capacity).sum();
        places * (size_of::<(Prefix<A>, TableHead)>() + 1) + size_of_val(self.maps.as_slice())
    }

    /// Prefixes of the fullest map.
    #[cfg(test)]
    pub(crate) fn fullest(&self) -> usize {
        self.maps.iter().map(HashMap::len).max().unwrap_or(0)
    }
}
