//! The demultiplexer: maps a segment's four-tuple and zone to a connection's place.
//!
//! Used by `connection_table.rs`, which hashes flows under a secret key: the same key as for
//! half-open connections, which are looked up next, so that a segment is hashed once. A hash table
//! with chains; the links lie beside the hashes, so that the look-up of an unknown flow usually
//! touches two cache lines. Invariant: a place is in the chain of its hash, once, from
//! [`ConnectionTableIndex::enter`] to [`ConnectionTableIndex::leave`].
//!
//! # Under flood
//! Unverified sources cause look-ups only. The table grows with connections, which are proven or
//! our own, up to `TCP_CONNECTIONS_MAX`, and all memory is allocated at the start. Worst work: the
//! longest chain, which cannot be made longer than random without the key (there are as many heads
//! as places).

/// No place.
const NONE: u32 = u32::MAX;
/// Marks a place that is not in the table.
const OUTSIDE_TABLE: u32 = u32::MAX - 1;

#[derive(Clone, Copy, Debug)]
struct DemuxLink {
    hash: u32,
    next: u32,
}

/// The hash table from flows to places.
#[derive(Debug)]
pub(crate) struct ConnectionTableIndex {
    heads: Box<[u32]>,
    links: Box<[DemuxLink]>,
    len: usize,
}

impl ConnectionTableIndex {
    /// A table for the places below `places`.
    pub(crate) fn new(places: usize) -> Self {
        let heads = places.max(1).next_power_of_two();
        Self {
            heads: vec![NONE; heads].into(),
            links: vec![DemuxLink { hash: 0, next: OUTSIDE_TABLE }; places].into(),
            len: 0,
        }
    }

    /// Number of places in the table.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn head(&self, hash: u32) -> u32 {
        self.heads.get(hash as usize & (self.heads.len() - 1)).copied().unwrap_or(NONE)
    }

    /// The place of a flow with that hash; `is_it` compares the full flow of a place.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let hash = hash as u32;
        let mut at = self.head(hash);
        while let Some(link) = self.links.get(at as usize) {
            if link.hash == hash && is_it(at) {
                return Some(at);
            }
            at = link.next;
        }
        None
    }

    /// Inserts a place that is not in the table.
    pub(crate) fn enter(&mut self, hash: u64, place: u32) {
        let hash = hash as u32;
        let next = self.head(hash);
        let at = hash as usize & (self.heads.len() - 1);
        if let (Some(link), Some(head)) =
            (self.links.get_mut(place as usize), self.heads.get_mut(at))
        {
            *link = DemuxLink { hash, next };
            *head = place;
            self.len += 1;
        }
    }

    /// The hash with which a place was inserted last.
    pub(crate) fn hash_of(&self, place: u32) -> u32 {
        self.links.get(place as usize).map_or(0, |link| link.hash)
    }

    /// Removes a place; false where it was not in the table.
    pub(crate) fn leave(&mut self, place: u32) -> bool {
        let Some(link) =
            self.links.get_mut(place as usize).filter(|link| link.next != OUTSIDE_TABLE)
        else {
            return false;
        };
        let DemuxLink { hash, next } = *link;
        link.next = OUTSIDE_TABLE;
        self.len -= 1;
        let first = hash as usize & (self.heads.len() - 1);
        if let Some(head) = self.heads.get_mut(first).filter(|head| **head == place) {
            *head = next;
            return true;
        }
        let mut at = self.head(hash);
        while let Some(link) = self.links.get_mut(at as usize) {
            if link.next == place {
                link.next = next;
                break;
            }
            at = link.next;
        }
        true
    }

    /// The length of the longest chain: for tests.
    #[cfg(test)]
    pub(crate) fn longest_chain(&self) -> usize {
        let chain = |head: &u32| {
            let link = |at: &u32| self.links.get(*at as usize).map(|link| link.next);
            core::iter::successors(Some(*head), |at| link(at)).filter(|at| *at != NONE).count()
        };
        self.heads.iter().map(chain).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use core::net::IpAddr;

    use floodwall_base::{Endpoint, FlowKey, HashKey, IfIndex};

    use super::*;

    fn flow(n: u32) -> FlowKey {
        let remote = IpAddr::from((n >> 8).to_be_bytes());
        FlowKey {
            local: Endpoint::new("10.0.0.1".parse().unwrap(), 80),
            remote: Endpoint::new(remote, 1000 + (n & 0xff) as u16),
            zone: IfIndex(0),
            protocol: 6,
        }
    }

    #[test]
    fn entered_flows_are_found_until_they_leave() {
        let (mut demux, key) = (ConnectionTableIndex::new(1000), HashKey::new(1, 2));
        (0..1000).for_each(|n| demux.enter(key.flow(&flow(n)), n));
        let find =
            |demux: &ConnectionTableIndex, n| demux.find(key.flow(&flow(n)), |place| place == n);
        assert!((0..1000).all(|n| find(&demux, n) == Some(n)));
        assert!((0..1000).step_by(3).all(|n| demux.leave(n)));
        assert!((0..1000).step_by(3).all(|n| !demux.leave(n)), "removed already");
        assert!((0..1000).all(|n| find(&demux, n).is_some() == (n % 3 != 0)));
        assert_eq!(demux.len(), 666);
    }

    #[test]
    fn chains_of_tuples_chosen_without_the_key_are_as_short_as_random_ones() {
        // Row 15 of the bar: regular tuples, as an attacker would choose without the key.
        let (one, other) = (HashKey::new(3, 4), HashKey::new(3, 5));
        for key in [one, other] {
            let mut demux = ConnectionTableIndex::new(1 << 16);
            (0..1 << 16).for_each(|n| demux.enter(key.flow(&flow(n)), n));
            assert!(demux.longest_chain() <= 12, "{}", demux.longest_chain());
        }
        assert_ne!(one.flow(&flow(7)), other.flow(&flow(7)));
    }
}
