//! Established peers of unconnected UDP sockets: those that this host has lately sent to more than
//! once, for triage beside the peers of connected sockets. ICMP messages about datagrams sent to
//! them are accepted (`exceptions.rs`).
//!
//! Written where an unconnected socket sends along a path that it looks up (for an established peer
//! every 100 ms, for any other [`SENT_AGAIN_AFTER`] after the last time). Read by triage, and by
//! sockets that fill up: their last eighth is reserved for such peers (`udp/fair.rs`). Where RSS
//! steers the flow to another shard, that shard is notified of the established peer
//! (`shards/notes.rs`). A peer is an address and port with our port, and for link-local addresses
//! the link. It is established once we have sent to it *again*, later than the first time: either
//! it came back after our first answer, or we initiated twice.
//!
//! # Under flood
//! Only our own answers fill the table; inbound packets alone never add an entry. Bound:
//! `ANSWERED_PEERS` entries, allocated at the start; an IPv4 /24 or IPv6 /64 has at most
//! `ANSWERED_PREFIX_MAX` of them. Worst work: one set of eight, in two cache lines. Replacement: a
//! newcomer evicts an entry that has been idle for [`PEER_SILENCE`], else, one newcomer in
//! [`NEWCOMERS_PER_EVICTION`], the oldest entry that was answered once only; where all entries of
//! the set are established, the least recently used, if idle for [`CROWDED_SILENCE`]. A newcomer
//! that evicted nothing may be remembered beside the set, one for each set, with the same
//! probability; answered again, it replaces the least recently used entry of the unprotected half.
//! Established peers in the first [`PROTECTED_WAYS`] ways of a set are protected: without the
//! unprotected half, the first arrivals would lock out later peers of the same prefix. Most
//! newcomers evict nothing, by an unpredictable toss: this is what lets more peers than there are
//! places come back in turn. What a flood from forged sources can do: each source that it uses at
//! least twice becomes established, as nothing in UDP proves that it exists. Therefore peers of
//! this kind get at most [`PEER_QUOTA`] places of a burst as soon as there are connected sockets,
//! so they cannot crowd out those sockets' peers; and half of a set's established peers keep their
//! entries as long as they remain active. Honest peers behind the same prefix, or in a full set,
//! lose the preference and nothing else. No packet is dropped for it, so there is no counter.

use core::time::Duration;

use floodwall_base::limits::{ANSWERED_PEERS, ANSWERED_PREFIX_MAX, BURST_MAX};
use floodwall_base::{IfIndex, Instant, SecretRandom};
use floodwall_sync::prefetch;
use floodwall_udp::DatagramKey;

/// Idle time after which a peer is unverified again.
const PEER_SILENCE: Duration = Duration::from_secs(30);
/// The same where a newcomer finds a set full of established peers: short, so that sources that
/// sent twice and stopped, as those of a flood do, do not lock others out.
const CROWDED_SILENCE: Duration = Duration::from_secs(8);
/// Maximum places in a burst for peers of this kind where there are connected sockets.
pub(crate) const PEER_QUOTA: usize = BURST_MAX / 4;
/// Entries of one set.
const SET_WAYS: usize = 8;
/// Entries of a set that are protected while their established peers are active.
const PROTECTED_WAYS: usize = SET_WAYS / 2;
/// One in so many newcomers evicts an entry that was answered once only: if all did, clients that
/// return in turn would never find their entries. A power of two.
const NEWCOMERS_PER_EVICTION: u64 = 4;
/// Sets that one prefix may use.
const SETS_OF_A_PREFIX: u32 = (ANSWERED_PREFIX_MAX / SET_WAYS) as u32;
/// Time is kept in ticks of 2^16 ns, 66 us, which wrap after three days.
const TICK_BITS: u32 = 16;
/// A send this long after the previous one to the same peer counts as sent again.
pub(crate) const SENT_AGAIN_AFTER: Duration = Duration::from_nanos(1 << TICK_BITS);
/// Other shards are notified of an established peer once in 2^16 ticks, 4.3 s: several times within
/// [`PEER_SILENCE`].
const TELL_BITS: u32 = 16;
/// No other shard was notified.
const UNTOLD_SHARD: u16 = 0;

/// The remote end of a datagram, with the local port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecentPeer {
    /// Its address, IPv4 mapped.
    pub(crate) addr: u128,
    pub(crate) port: u16,
    pub(crate) local_port: u16,
    /// The link of a link-local address, 0 for others.
    pub(crate) zone: u16,
}

/// The sender of a datagram, in the form in which peers are stored.
pub(crate) fn peer_of(datagram_key: &DatagramKey, iface: IfIndex) -> RecentPeer {
    let (addr, port) = datagram_key.remote();
    let zone = if datagram_key.is_link_scope() { iface.0 + 1 } else { 0 };
    RecentPeer { addr, port, local_port: datagram_key.local_port(), zone }
}

/// The position of a peer's entry, if it has one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerSlot {
    set: u32,
    print: u64,
}

impl PeerSlot {
    /// Matches no peer: for initializing arrays.
    pub(crate) const UNUSED: Self = Self { set: 0, print: 0 };
}

/// Result of recording a send to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct NotedPeer {
    /// The peer is established by now.
    pub(crate) is_established: bool,
    /// The peer is established, and the owner shard of its flow was not notified lately.
    pub(crate) is_untold: bool,
}

/// One cache-associative set. Fingerprints are in the first cache line: a miss costs one line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct PeerSet {
    /// Fingerprints; 0 marks a free entry.
    prints: [u64; SET_WAYS],
    /// Fingerprint of a newcomer that was answered once and found no free entry; 0: none.
    newcomer: u64,
    sent_at: [u32; SET_WAYS],
    /// Tick at which the newcomer was answered.
    newcomer_at: u32,
    /// When the owner shard of the flow was notified, where that is another.
    told: [u16; SET_WAYS],
    /// Bitmap of established entries: those that were sent to again.
    established: u8,
}

const EMPTY_SET: PeerSet = PeerSet {
    prints: [0; SET_WAYS],
    newcomer: 0,
    sent_at: [0; SET_WAYS],
    newcomer_at: 0,
    told: [UNTOLD_SHARD; SET_WAYS],
    established: 0,
};
const _: () = assert!(size_of::<PeerSet>() == 128, "two cache lines");

/// Set-associative table, with LRU replacement, of the peers that unconnected sockets sent to.
pub(crate) struct RecentPeers {
    sets: Box<[PeerSet]>,
    /// Key of a multilinear hash as in the socket tables; its values are never exposed to a peer.
    key: [u64; 16],
    /// The tick of the last round.
    now: u32,
}

impl RecentPeers {
    /// An empty table; `random` gives its key.
    pub(crate) fn new(random: &mut SecretRandom) -> Self {
        let sets = (ANSWERED_PEERS / SET_WAYS).next_power_of_two();
        Self {
            sets: vec![EMPTY_SET; sets].into(),
            key: core::array::from_fn(|_| random.next_u64()),
            now: 0,
        }
    }

    /// Starts a round: sets the current time.
    #[inline]
    pub(crate) const fn begin(&mut self, now: Instant) {
        self.now = ticks(now);
    }

    /// Position of this peer's entry. No load from the table.
    #[inline(always)]
    pub(crate) fn place(&self, peer: &RecentPeer) -> PeerSlot {
        let [p0, p1, p2, a0, a1, a2, a3, a4, a5, a6, b0, b1, b2, b3, b4, b5] = self.key;
        let word = |shift: u32| (peer.addr >> shift) as u32;
        let ports = u32::from(peer.port) << 16 | u32::from(peer.local_port);
        let zone = u32::from(peer.zone);
        let v4 = peer.addr >> 32 == 0xffff;
        // IPv4 differs in the lowest word only, and its prefix in the upper 24 bits of that.
        let (upper, lower) = if v4 { (word(0) >> 8, 1) } else { (word(96), word(64)) };
        let prefix = scattered(p0.wrapping_add(pair(p1, upper, p2, lower)));
        let one = a0
            .wrapping_add(pair(a1, word(0), a2, ports))
            .wrapping_add(pair(a3, word(32), a4, zone))
            .wrapping_add(pair(a5, word(64), a6, word(96)));
        let other = b0
            .wrapping_add(pair(b1, word(0), b2, ports))
            .wrapping_add(pair(b3, word(32) ^ zone, b4, word(64)))
            .wrapping_add(pair(b5, word(96), p2, zone));
        let print = (one >> 32) << 32 | other >> 32;
        let within = (print as u32) % SETS_OF_A_PREFIX;
        PeerSlot { set: ((prefix >> 32) as u32).wrapping_add(within), print: print.max(1) }
    }

    /// Prefetches a peer's entry.
    #[inline(always)]
    pub(crate) fn prefetch(&self, place: PeerSlot) {
        if let Some(set) = self.sets.get(place.set as usize & (self.sets.len() - 1)) {
            prefetch(set);
        }
    }

    /// Whether this peer is established: sent to again, and lately.
    #[inline(always)]
    pub(crate) fn is_established(&self, place: PeerSlot) -> bool {
        let Some(set) = self.sets.get(place.set as usize & (self.sets.len() - 1)) else {
            return false;
        };
        let hit = set.prints.iter().position(|print| *print == place.print);
        hit.is_some_and(|way| {
            set.established >> way & 1 == 1
                && set.sent_at.get(way).is_some_and(|sent| is_fresh(*sent, self.now))
        })
    }

    /// The same for a single lookup.
    pub(crate) fn knows(&self, peer: &RecentPeer) -> bool {
        self.is_established(self.place(peer))
    }

    /// Records a send to this peer.
    pub(crate) fn note(&mut self, peer: &RecentPeer, now: Instant) -> NotedPeer {
        self.enter(peer, now, false)
    }

    /// Records another shard's notification that this peer is established.
    pub(crate) fn hear(&mut self, peer: &RecentPeer, now: Instant) {
        self.enter(peer, now, true);
    }

    fn enter(&mut self, peer: &RecentPeer, now: Instant, is_established: bool) -> NotedPeer {
        let (place, now) = (self.place(peer), ticks(now));
        let mask = self.sets.len() - 1;
        let Some(set) = self.sets.get_mut(place.set as usize & mask) else {
            return NotedPeer::default();
        };
        let known = set.prints.iter().position(|print| *print == place.print);
        let (way, is_established) =
            match known.or_else(|| set.room(place.print, now, is_established)) {
                Some(way) => (way, is_established),
                // Only a peer that was answered again gets an entry this way.
                None => match set.give_way(place.print, now, is_established) {
                    Some(way) => (way, true),
                    None => return NotedPeer::default(),
                },
            };
        let places = (set.prints.get_mut(way), set.sent_at.get_mut(way), set.told.get_mut(way));
        let (Some(print), Some(sent_at), Some(told)) = places else { return NotedPeer::default() };
        let bit = 1 << way;
        if known.is_none() || !is_fresh(*sent_at, now) {
            set.established &= !bit;
            *told = UNTOLD_SHARD;
        } else if *sent_at != now {
            set.established |= bit;
        }
        if is_established {
            set.established |= bit;
        }
        (*print, *sent_at) = (place.print, now);
        let is_established = set.established & bit != 0;
        let noted =
            NotedPeer { is_established, is_untold: is_established && *told != telling(now) };
        set.settle(way, now);
        noted
    }

    /// Marks the owner shard of this peer's flow as notified.
    pub(crate) fn told(&mut self, peer: &RecentPeer, now: Instant) {
        let place = self.place(peer);
        let mask = self.sets.len() - 1;
        let Some(set) = self.sets.get_mut(place.set as usize & mask) else { return };
        let way = set.prints.iter().position(|print| *print == place.print);
        if let Some(told) = way.and_then(|way| set.told.get_mut(way)) {
            *told = telling(ticks(now));
        }
    }

    /// Whether we sent to this peer lately, at least once.
    pub(crate) fn has_sent(&self, peer: &RecentPeer, now: Instant) -> bool {
        let (place, now) = (self.place(peer), ticks(now));
        let mask = self.sets.len() - 1;
        let Some(set) = self.sets.get(place.set as usize & mask) else { return false };
        let way = set.prints.iter().position(|print| *print == place.print);
        way.and_then(|way| set.sent_at.get(way)).is_some_and(|sent| is_fresh(*sent, now))
    }

    /// Entries in use, and established ones among them: for tests.
    #[cfg(test)]
    fn count(&self) -> (usize, usize) {
        let used = self.sets.iter().flat_map(|set| set.prints).filter(|print| *print != 0).count();
        (used, self.sets.iter().map(|set| set.established.count_ones() as usize).sum())
    }
}

impl PeerSet {
    fn age(&self, way: usize, now: u32) -> u32 {
        self.sent_at.get(way).map_or(0, |sent| now.wrapping_sub(*sent))
    }

    fn is_silent(&self, way: usize, now: u32) -> bool {
        self.sent_at.get(way).is_some_and(|sent| !is_fresh(*sent, now))
    }

    /// Finds an entry for a newcomer: a free or idle one, else with some probability the oldest one
    /// that is not established, else the least recently used established one, if idle for
    /// [`CROWDED_SILENCE`].
    fn room(&self, print: u64, now: u32, is_established: bool) -> Option<usize> {
        let is_free = |way: &usize| self.prints.get(*way) == Some(&0) || self.is_silent(*way, now);
        if let Some(free) = (0..SET_WAYS).find(is_free) {
            return Some(free);
        }
        let oldest = |established: u8| {
            let ways = (0..SET_WAYS).filter(|way| self.established >> way & 1 == established);
            ways.max_by_key(|way| self.age(*way, now))
        };
        let outlasted = |way: &usize| {
            self.sent_at.get(*way).is_some_and(|sent| !is_within(CROWDED_SILENCE, *sent, now))
        };
        match oldest(0) {
            Some(way) => (is_established || displaces(print, now)).then_some(way),
            None => oldest(1).filter(outlasted),
        }
    }

    /// Finds an entry for a newcomer that found no room and was answered again: the least recently
    /// used of the unprotected ones. A first-time newcomer may be remembered instead.
    fn give_way(&mut self, print: u64, now: u32, is_established: bool) -> Option<usize> {
        let remembers = self.newcomer != 0 && is_fresh(self.newcomer_at, now);
        let is_known = remembers && self.newcomer == print;
        if is_established || is_known && self.newcomer_at != now {
            if is_known {
                self.newcomer = 0;
            }
            return (PROTECTED_WAYS..SET_WAYS).max_by_key(|way| self.age(*way, now));
        }
        if !remembers || displaces(print, now) {
            (self.newcomer, self.newcomer_at) = (print, now);
        }
        None
    }

    /// Moves an established entry from the unprotected half to a protected way that is not in use.
    fn settle(&mut self, way: usize, now: u32) {
        if way < PROTECTED_WAYS || self.established >> way & 1 == 0 {
            return;
        }
        let is_held = |way: &usize| self.established >> way & 1 == 1 && !self.is_silent(*way, now);
        if let Some(held) = (0..PROTECTED_WAYS).find(|way| !is_held(way)) {
            self.prints.swap(way, held);
            self.sent_at.swap(way, held);
            self.told.swap(way, held);
            let was = self.established >> held & 1;
            self.established = self.established & !(1 << way) | was << way | 1 << held;
        }
    }
}

/// Hash sums of neighbouring prefixes differ by one constant, which under an unlucky key maps them
/// to few sets: this finalizer removes that (the finish of SplitMix64, Steele and others 2014).
#[inline(always)]
pub(crate) const fn scattered(sum: u64) -> u64 {
    let sum = (sum ^ sum >> 32).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    sum ^ sum >> 29
}

/// Whether this newcomer is the one in [`NEWCOMERS_PER_EVICTION`] that evicts: decided by its
/// fingerprint and the tick. The fingerprint is keyed, so a peer cannot predict it. Mixed twice:
/// after one multiplication, ticks at equal distances give bits in a pattern, and a client with a
/// steady period could lose every toss.
const fn displaces(print: u64, now: u32) -> bool {
    (scattered(scattered(print ^ (now as u64) << 32)) >> 32).is_multiple_of(NEWCOMERS_PER_EVICTION)
}

/// Two words' contribution to a multilinear hash sum.
#[inline(always)]
pub(crate) const fn pair(key_a: u64, a: u32, key_b: u64, b: u32) -> u64 {
    key_a.wrapping_add(a as u64).wrapping_mul(key_b.wrapping_add(b as u64))
}

/// The notification period that contains a tick; never [`UNTOLD_SHARD`].
const fn telling(tick: u32) -> u16 {
    (tick >> TELL_BITS) as u16 | 1 << 15
}

const fn ticks(now: Instant) -> u32 {
    (now.as_nanos() >> TICK_BITS) as u32
}

#[inline(always)]
const fn is_fresh(sent_at: u32, now: u32) -> bool {
    is_within(PEER_SILENCE, sent_at, now)
}

#[inline(always)]
const fn is_within(silence: Duration, sent_at: u32, now: u32) -> bool {
    // A send from a slice of timed work may be later than the last round.
    const AHEAD: u32 = 1 << 16;
    let age = now.wrapping_sub(sent_at);
    age <= (silence.as_nanos() as u64 >> TICK_BITS) as u32 || age > u32::MAX - AHEAD
}

impl core::fmt::Debug for RecentPeers {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Answered({} sets)", self.sets.len())
    }
}

#[cfg(test)]
mod tests {
    use floodwall_base::Randomness;

    use super::*;

    const fn at(ms: u64) -> Instant {
        Instant::from_nanos(1_000_000_000 + ms * 1_000_000)
    }

    fn table() -> RecentPeers {
        RecentPeers::new(&mut Randomness::from_number(3).secret)
    }

    fn v4(addr: u32, port: u16) -> RecentPeer {
        RecentPeer { addr: (0xffff << 32) + u128::from(addr), port, local_port: 53, zone: 0 }
    }

    fn v6(prefix: u64, host: u64, port: u16) -> RecentPeer {
        let addr = u128::from(prefix) << 64 | u128::from(host);
        RecentPeer { addr, port, local_port: 53, zone: 0 }
    }

    fn is_established(table: &mut RecentPeers, peer: &RecentPeer, now: Instant) -> bool {
        table.begin(now);
        table.is_established(table.place(peer))
    }

    #[test]
    fn one_that_is_answered_again_is_established_until_silence() {
        for peer in [v4(0x0a00_0001, 99), v6(0x2001_0db8 << 32, 7, 99)] {
            let mut table = table();
            assert!(!is_established(&mut table, &peer, at(0)));
            table.note(&peer, at(0));
            assert!(
                !is_established(&mut table, &peer, at(1)),
                "a single answer establishes nothing"
            );
            table.note(&peer, at(0));
            assert!(!is_established(&mut table, &peer, at(1)), "twice in one round is once");
            table.note(&peer, at(2));
            assert!(is_established(&mut table, &peer, at(3)));
            for other in [
                RecentPeer { port: 98, ..peer },
                RecentPeer { local_port: 54, ..peer },
                RecentPeer { zone: 2, ..peer },
                RecentPeer { addr: peer.addr ^ 1, ..peer },
            ] {
                assert!(!is_established(&mut table, &other, at(3)), "{other:?}");
            }
            assert!(is_established(&mut table, &peer, at(29_000)));
            assert!(!is_established(&mut table, &peer, at(31_000)));
            table.note(&peer, at(31_000));
            assert!(!is_established(&mut table, &peer, at(31_001)), "it begins anew");
        }
    }

    #[test]
    fn a_flood_of_forged_sources_neither_grows_the_table_nor_displaces_established_flows() {
        for v6_flood in [false, true] {
            let mut table = table();
            let established: Vec<RecentPeer> =
                (0..200).map(|n| v4(0x0a00_0000 + n * 997, 9)).collect();
            for now in [at(0), at(1)] {
                established.iter().for_each(|established| _ = table.note(established, now));
            }
            let established: Vec<RecentPeer> =
                established.into_iter().filter(|f| is_established(&mut table, f, at(2))).collect();
            assert!(established.len() > 190, "{}", established.len());
            let mut random = Randomness::from_number(4).public;
            for n in 0..200_000 {
                let source = match v6_flood {
                    true => v6(random.next_u64(), random.next_u64(), 9),
                    false => v4(random.next_u64() as u32, 9),
                };
                table.note(&source, at(3 + n / 1000));
            }
            assert!(established.iter().all(|f| is_established(&mut table, f, at(250))));
            let (used, established) = table.count();
            assert!(used <= ANSWERED_PEERS && established < 250, "{used} {established}");
        }
    }

    #[test]
    fn one_prefix_has_a_bounded_share_however_many_peers_it_shows() {
        for of_one_prefix in
            [(|n: u32| v4(0x0a01_0200 + n % 256, (n / 256) as u16)) as fn(u32) -> RecentPeer, |n| {
                v6(0x2001_0db8_0000_0001, u64::from(n) * 7919, 9)
            }]
        {
            let mut table = table();
            for now in [at(0), at(1)] {
                (0..20_000).for_each(|n| _ = table.note(&of_one_prefix(n), now));
            }
            // Each was answered twice, but most were evicted before the second time.
            let (used, established) = table.count();
            assert!(used <= ANSWERED_PREFIX_MAX && established <= used, "{used} {established}");
            for n in 0..100 {
                let (peer, later) = (of_one_prefix(n), at(2 + u64::from(n)));
                table.note(&peer, later);
                table.note(&peer, at(3 + u64::from(n)));
            }
            let (used, established) = table.count();
            assert!(used <= ANSWERED_PREFIX_MAX && established > 8, "{used} {established}");
        }
    }

    #[test]
    fn established_flows_that_ended_make_room_for_newcomers_and_those_that_stay_do_not() {
        for of_one_prefix in
            [(|n: u32| v4(0x0a01_0200 + n % 256, (n / 256) as u16)) as fn(u32) -> RecentPeer, |n| {
                v6(0x2001_0db8_0000_0001, u64::from(n) * 7919, 9)
            }]
        {
            let mut table = table();
            let stays = of_one_prefix(0);
            for n in 0..2000 {
                // Back to back: no other newcomer in between.
                table.note(&of_one_prefix(n), at(u64::from(2 * n)));
                table.note(&of_one_prefix(n), at(u64::from(2 * n) + 1));
            }
            assert_eq!(table.count(), (ANSWERED_PREFIX_MAX, ANSWERED_PREFIX_MAX));
            for second in 4..12 {
                table.note(&stays, at(1000 * second));
                let newcomer = of_one_prefix(5000 + second as u32);
                table.note(&newcomer, at(1000 * second + 1));
                table.note(&newcomer, at(1000 * second + 2));
                assert!(is_established(&mut table, &newcomer, at(1000 * second + 3)), "{second} s");
                assert!(is_established(&mut table, &stays, at(1000 * second + 3)));
            }
        }
    }

    #[test]
    fn neighbouring_prefixes_do_not_meet_in_few_sets_under_any_key() {
        for peer_of in [(|n: u32| v4(0x0a00_0001 + (n << 8), 9)) as fn(u32) -> RecentPeer, |n| {
            v6(0x2001_0db8_0000_0000 + u64::from(n), 1, 9)
        }] {
            for key in 0..200 {
                let mut table = RecentPeers::new(&mut Randomness::from_number(key).secret);
                for now in [at(0), at(1)] {
                    (0..800).for_each(|n| _ = table.note(&peer_of(n), now));
                }
                let established =
                    (0..800).filter(|n| is_established(&mut table, &peer_of(*n), at(2)));
                // 800 balls into 512 sets: chance alone fills one with nine for a key in thirty.
                let established = established.count();
                assert!(established >= 797, "{established} under key {key}");
            }
        }
    }

    #[test]
    fn the_owner_is_told_of_an_established_flow_alone_and_once_in_a_while() {
        for peer in [v4(0x0a00_0001, 99), v6(0x2001_0db8 << 32, 7, 99)] {
            let mut table = table();
            assert!(!table.note(&peer, at(0)).is_untold, "a single answer establishes nothing");
            assert!(table.note(&peer, at(1)).is_untold);
            assert!(table.note(&peer, at(2)).is_untold, "not notified yet: there was no room");
            table.told(&peer, at(2));
            let told: Vec<u64> = (3..20_000)
                .filter(|ms| {
                    let due = table.note(&peer, at(*ms)).is_untold;
                    if due {
                        table.told(&peer, at(*ms));
                    }
                    due
                })
                .collect();
            assert!((3..=6).contains(&told.len()), "in 20 s, of 20,000 answers: {told:?}");
            assert!(!table.note(&peer, at(60_000)).is_untold, "it was silent: unverified again");
            assert!(table.note(&peer, at(60_001)).is_untold);
        }
    }

    #[test]
    fn one_that_is_heard_of_is_established_at_once_and_displaces_at_most_half() {
        for peer in [v4(0x0a00_0001, 99), v6(0x2001_0db8 << 32, 7, 99)] {
            let mut table = table();
            table.hear(&peer, at(0));
            assert!(is_established(&mut table, &peer, at(1)));
            assert!(!is_established(&mut table, &peer, at(31_000)), "a notified peer expires too");
        }
        let mut table = table();
        let crowd = |n: u32| v4(0x0a01_0200 + n % 256, (n / 256) as u16);
        (0..20_000).for_each(|n| table.hear(&crowd(n), at(0)));
        let (used, established) = table.count();
        assert!(used <= ANSWERED_PREFIX_MAX && established == used, "{used} {established}");
        let first: Vec<RecentPeer> =
            (0..20_000).map(crowd).filter(|p| is_established(&mut table, p, at(1))).collect();
        (20_000..40_000).for_each(|n| table.hear(&crowd(n), at(1)));
        let kept = first.iter().filter(|p| is_established(&mut table, p, at(2))).count();
        assert!(kept * 2 >= first.len(), "{kept} of {}", first.len());
    }

    /// Makes a peer of a distinct prefix for each number.
    const OF_ONE_PREFIX: [fn(u32) -> RecentPeer; 2] = [
        |n| v4(0x0a01_0200 + n % 256, (1000 + n / 256) as u16),
        |n| v6(0x2001_0db8_0000_0001, n as u64 * 7919, 9),
    ];

    /// A table with only established entries for one prefix, and these peers; ends at 1000 ms.
    fn full_of_established_flows(peer_of: fn(u32) -> RecentPeer) -> (RecentPeers, Vec<RecentPeer>) {
        let mut table = table();
        for n in 0..1600 {
            let now = at(0) + Duration::from_micros(500) * n;
            table.note(&peer_of(n), now);
            table.note(&peer_of(n), now + Duration::from_micros(100));
        }
        assert_eq!(table.count(), (ANSWERED_PREFIX_MAX, ANSWERED_PREFIX_MAX));
        let established =
            (0..1600).map(peer_of).filter(|p| is_established(&mut table, p, at(1000)));
        let established: Vec<RecentPeer> = established.collect();
        assert_eq!(established.len(), ANSWERED_PREFIX_MAX);
        (table, established)
    }

    #[test]
    fn one_that_comes_back_is_established_soon_although_others_of_its_prefix_came_before() {
        for peer_of in OF_ONE_PREFIX {
            let (mut table, before) = full_of_established_flows(peer_of);
            let late: Vec<RecentPeer> = (1000..1004).map(peer_of).collect();
            for answer in 0..10 {
                for (n, peer) in (0..).zip(&late) {
                    table.note(peer, at(1001 + answer * 4 + n));
                }
            }
            assert!(late.iter().all(|p| is_established(&mut table, p, at(1050))));
            let kept = before.iter().filter(|p| is_established(&mut table, p, at(1050))).count();
            assert_eq!(kept, before.len() - late.len(), "one place each");
        }
    }

    /// Regression test: independent of the number of established peers in a set, three new clients
    /// that return in turn all get entries. With six idle ones they used to evict each other from
    /// the two places left, for good.
    #[test]
    fn clients_that_come_in_turn_all_become_established_flows_beside_earlier_ones() {
        for peer_of in OF_ONE_PREFIX {
            for before in 0..40 {
                let mut table = table();
                for n in 0..before {
                    table.note(&peer_of(n), at(u64::from(n) * 4));
                    table.note(&peer_of(n), at(u64::from(n) * 4 + 1));
                }
                // Of one set, one fewer than it has unprotected places.
                let set = table.place(&peer_of(1000)).set;
                let same = |peer: &RecentPeer| table.place(peer).set == set;
                let late: Vec<RecentPeer> = (1000..).map(peer_of).filter(same).take(3).collect();
                for answer in 0..50 {
                    for (n, peer) in (0..).zip(&late) {
                        table.note(peer, at(1000 + answer * 4 + n));
                    }
                }
                let established = late.iter().filter(|p| is_established(&mut table, p, at(1210)));
                assert_eq!(established.count(), 3, "after {before}");
            }
        }
    }

    /// Regression test: with 32 places of a prefix, five of eight active clients met in one set's
    /// unprotected half under one key in nine, and one of them was never established.
    #[test]
    fn active_clients_of_one_site_stay_established_under_nearly_every_key() {
        for peer_of in OF_ONE_PREFIX {
            let mut unknown = 0;
            for key in 0..200 {
                let mut table = RecentPeers::new(&mut Randomness::from_number(key).secret);
                for n in 0..400 {
                    table.note(&peer_of(n), at(u64::from(n) * 2));
                    table.note(&peer_of(n), at(u64::from(n) * 2 + 1));
                }
                let site: Vec<RecentPeer> = (1000..1008).map(peer_of).collect();
                for answer in 0..50 {
                    for (n, peer) in (0..).zip(&site) {
                        table.note(peer, at(1000 + answer * 8 + n));
                    }
                }
                let known = site.iter().filter(|peer| is_established(&mut table, peer, at(1401)));
                unknown += site.len() - known.count();
            }
            assert!(unknown <= 8, "{unknown} of 1600");
        }
    }

    /// Regression test: a client that is answered at a steady pace does not lose every toss.
    #[test]
    fn tosses_at_equal_distances_are_independent() {
        let mut random = Randomness::from_number(5).public;
        for distance in 1..200 {
            let (mut lost, mut all) = (0, 0);
            for _ in 0..200 {
                let (print, first) = (random.next_u64(), random.next_u64() as u32);
                let at = |n: u32| first.wrapping_add(n * distance);
                lost += u32::from((0..25).all(|n| !displaces(print, at(n))));
                all += (0..25).filter(|n| displaces(print, at(*n))).count();
            }
            // Expected: 0.15 and 1250.
            assert!(lost <= 3 && (1100..1400).contains(&all), "{distance}: {lost} {all}");
        }
    }

    #[test]
    fn sources_forged_in_a_full_prefix_displace_no_established_flow_and_if_used_again_half_of_them()
    {
        for peer_of in OF_ONE_PREFIX {
            let (mut table, before) = full_of_established_flows(peer_of);
            let after = |ms: u64, n: u32| at(ms) + Duration::from_micros(u64::from(n) * 200);
            for n in 0..10_000 {
                table.note(&peer_of(10_000 + n), after(1000, n));
            }
            assert!(before.iter().all(|p| is_established(&mut table, p, at(3000))));
            let mut kept_after = |ms: u64| {
                for n in 0..10_000 {
                    table.note(&peer_of(30_000 + n), after(ms, n));
                    table.note(&peer_of(30_000 + n), after(ms, n) + Duration::from_micros(100));
                }
                before.iter().filter(|p| is_established(&mut table, p, at(ms + 2001))).count()
            };
            assert_eq!(kept_after(3000), ANSWERED_PREFIX_MAX / 2, "the protected entries stay");
            assert_eq!(kept_after(9000), 0, "not after eight seconds of silence");
        }
    }

    #[test]
    fn time_that_wraps_makes_no_established_flows_of_unverified_packets() {
        let mut table = table();
        let peer = v4(1, 1);
        table.note(&peer, Instant::ORIGIN);
        let wrapped = Instant::from_nanos(1 << (32 + TICK_BITS));
        table.note(&v4(2, 2), wrapped);
        assert!(!is_established(&mut table, &peer, wrapped));
    }
}
