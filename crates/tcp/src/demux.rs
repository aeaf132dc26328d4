//! The demultiplexer: maps a segment's four-tuple and zone to a connection's place.
//!
//! Used by `connection_table.rs`, which hashes flows under a secret key: the same key as for
//! half-open connections, which are looked up next, so that a segment is hashed once. A hash table
//! with chains; the links lie beside the hashes, so that the look-up of an unknown flow usually
//! touches two cache lines. Invariant: a place is in the chain of its hash, once, from
//! [`ConnectionTableIndex::enter`] to [`ConnectionTableIndex::leave`].
//!
//! Beside it is a small direct-mapped cache of the flows that were found last, by a mix of their
//! ports and addresses without a key ([`RecentFlows`]): where some dozens of connections take
//! turns, a segment is not hashed at all. It only proposes a place, of which the caller compares
//! the flow.
//!
//! # Under flood
//! Unverified sources cause look-ups only. The table grows with connections, which are proven or
//! our own, up to `TCP_CONNECTIONS_MAX`, and all memory is allocated at the start. Worst work: the
//! longest chain, which cannot be made longer than random without the key (there are as many heads
//! as places).

use floodwall_base::{FlowKey, limits};

/// No place.
const NONE: u32 = u32::MAX;
/// Marks a place that is not in the table.
const OUTSIDE_TABLE: u32 = u32::MAX - 1;

#[derive(Clone, Copy, Debug)]
struct DemuxLink {
    hash: u32,
    next: u32,
}

/// A flow that was found, as its mix and its place.
#[derive(Clone, Copy, Debug)]
struct RecentFlow {
    tag: u32,
    place: u32,
}

/// The places of flows that were found last. Only flows of connections are noted, so that invented
/// sources change nothing; a peer with a connection of its own may displace the flow that has
/// the same entry; the segments of that flow are hashed then.
#[derive(Debug)]
pub(crate) struct RecentFlows([RecentFlow; limits::TCP_RECENT_FLOWS]);

impl RecentFlows {
    /// None yet; allocated now.
    pub(crate) fn new() -> Box<Self> {
        Box::new(Self([RecentFlow { tag: 0, place: NONE }; limits::TCP_RECENT_FLOWS]))
    }

    /// The entry of a flow, and what distinguishes it there. All of a peer's connections to one
    /// port differ in the ports, which are mixed into the bits of both.
    #[inline(always)]
    fn entry_of(flow: &FlowKey) -> (usize, u32) {
        let low = |addr: &core::net::Ipv6Addr| {
            let octets = addr.octets();
            octets.last_chunk().map_or(0, |low| u64::from_ne_bytes(*low))
        };
        let ports = u64::from(flow.local.port) << 16 | u64::from(flow.remote.port);
        let addrs = low(&flow.remote.addr).rotate_left(17) ^ low(&flow.local.addr);
        let mixed = (addrs ^ ports).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed >> 48) as usize % limits::TCP_RECENT_FLOWS, (mixed >> 16) as u32)
    }

    /// Where a flow's connection probably is.
    #[inline(always)]
    pub(crate) fn propose(&self, flow: &FlowKey) -> Option<u32> {
        let (at, tag) = Self::entry_of(flow);
        self.0.get(at).filter(|entry| entry.tag == tag).map(|entry| entry.place)
    }

    /// Notes where it is.
    #[inline]
    pub(crate) fn note(&mut self, flow: &FlowKey, place: u32) {
        let (at, tag) = Self::entry_of(flow);
        if let Some(entry) = self.0.get_mut(at) {
            *entry = RecentFlow { tag, place };
        }
    }
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
    fn a_flow_that_was_noted_is_proposed_until_another_takes_its_entry() {
        let mut recent = RecentFlows::new();
        assert_eq!(recent.propose(&flow(1)), None);
        for n in 0..50_000 {
            recent.note(&flow(n), n);
            assert_eq!(recent.propose(&flow(n)), Some(n));
            let other = FlowKey { zone: IfIndex(1), ..flow(n) };
            // The zone is compared by the caller.
            assert_eq!(recent.propose(&other), Some(n));
        }
        let of = |all: &mut dyn Iterator<Item = u32>| {
            let mut recent = RecentFlows::new();
            let all: Vec<u32> = all.collect();
            all.iter().for_each(|n| recent.note(&flow(*n), *n));
            all.iter().filter(|n| recent.propose(&flow(**n)) == Some(**n)).count()
        };
        // Ports of one peer, and one port of many peers: few displace each other.
        assert!(of(&mut (0..256)) >= 220);
        assert!(of(&mut (0..256).map(|n| n << 8)) >= 220);
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
