//! `XdpRedirects`: the entries by which the program at an interface passes a router's packets on.
//!
//! Filled by the devices of the interface with what the stack offers; read by the program
//! (`floodwall_bpf::redirect`, which has their layout). Invariants: an entry is good under the
//! generation that was in force when its worker's turn began, so that what changed since cancels
//! it; an entry that the program may be reading is never rewritten: it must have been out of force
//! for [`GRACE_NANOS`]. Two workers may write at once: each claims its place first.
//!
//! # Under flood
//! Reachable by pairs of hosts that talk through this router. Bound: `XDP_REDIRECTS` entries,
//! allocated at the start, and the stack's offers a turn. A pair that finds no place takes the
//! ordinary way.

use core::net::IpAddr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};
use std::io;

use floodwall_base::Instant;
use floodwall_base::limits::XDP_REDIRECTS;
use floodwall_bpf::redirect::{
    ACTIVE, ADDRESSES, BOARD_WORDS, BYTES, ENTRY_WORDS, FAMILY, GENERATION, KEY_WORDS, MADE_UNDER,
    MTU, PACKETS, RedirectMaps, SETS, SLOT, STATIONS, TAG, UNTIL, WAYS, set_of, tag_of,
};
use floodwall_packet::RedirectOffer;

use super::bpf::{Map, MapKind};
use super::mapped_words::MappedWords;

const _: () = assert!(SETS * WAYS == XDP_REDIRECTS, "the bound is the table's size");
/// Interfaces to redirect to, by the stack's number of them.
const INTERFACES: usize = 64;
/// How long after an entry went out of force a run of the program may still use it: far longer than
/// a run takes.
const GRACE_NANOS: u64 = 1_000_000;
/// The tag of an entry that is being written: even, so that no hash is the same.
const CLAIMED: u64 = 2;
/// Words of an entry that hold addresses.
const ADDRESS_WORDS: usize = STATIONS - ADDRESSES;

/// The table, shared with the program and by all queues of the interface.
#[derive(Debug)]
pub(crate) struct XdpRedirects {
    board: MappedWords,
    entries: MappedWords,
    interfaces: Map,
    /// The interface of the host in each slot of that map; 0 for none.
    shown: [AtomicU32; INTERFACES],
    /// When the generation changed last, in nanoseconds.
    changed_at: AtomicU64,
    key: [u64; KEY_WORDS],
}

impl XdpRedirects {
    /// Without entries; `key` is secret.
    pub(crate) fn create(key: [u64; KEY_WORDS]) -> io::Result<Self> {
        Ok(Self {
            board: MappedWords::create(BOARD_WORDS, 1)?,
            entries: MappedWords::create(WAYS * ENTRY_WORDS, SETS as u32)?,
            interfaces: Map::create(MapKind::Interfaces, 4, INTERFACES as u32)?,
            shown: [const { AtomicU32::new(0) }; INTERFACES],
            changed_at: AtomicU64::new(0),
            key,
        })
    }

    /// What the program's code needs.
    pub(super) fn maps(&self) -> RedirectMaps<'_> {
        let (board, entries) = (self.board.fd(), self.entries.fd());
        RedirectMaps { board, entries, interfaces: self.interfaces.fd(), key: &self.key }
    }

    fn board(&self, word: usize) -> Option<&AtomicU64> {
        self.board.all().get(word)
    }

    fn count_of(&self, word: usize) -> u64 {
        self.board(word).map_or(0, |place| place.load(Relaxed))
    }

    /// The generation in force: to be read before the tables that an offer is made from.
    pub(crate) fn generation(&self) -> u64 {
        self.board(GENERATION).map_or(0, |place| place.load(Acquire))
    }

    /// From now on no entry is in force.
    pub(crate) fn forget(&self, now: Instant) {
        if let Some(generation) = self.board(GENERATION) {
            generation.fetch_add(1, Release);
            self.changed_at.fetch_max(now.as_nanos(), Release);
        }
    }

    /// Whether there is an entry that the program looks for.
    pub(crate) fn is_active(&self) -> bool {
        self.count_of(ACTIVE) != 0
    }

    /// Packets that were redirected, and their bytes.
    pub(crate) fn redirected(&self) -> (u64, u64) {
        (self.count_of(PACKETS), self.count_of(BYTES))
    }

    /// From now on the offered pair leaves by the host's interface `target`, under that generation.
    /// Costs a system call the first time for an interface.
    pub(crate) fn enter(
        &self,
        now: Instant,
        generation: u64,
        offer: &RedirectOffer,
        target: u32,
    ) -> bool {
        let Some(addresses) = addresses_of(offer) else { return false };
        let slot = usize::from(offer.leaves.0);
        if !self.shows(slot, target) {
            return false;
        }
        let halves = |word: &u64| {
            let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
            [u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])]
        };
        let is_v4 = offer.from.is_ipv4();
        let words = addresses.iter().flat_map(halves).take(if is_v4 { 2 } else { 8 });
        let tag = tag_of(&self.key, words);
        let first = set_of(tag) * WAYS;
        let mut entry = [0; ENTRY_WORDS];
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5] = offer.stations;
        let stations = [[d0, d1, d2, d3, d4, d5, s0, s1], [s2, s3, s4, s5, 0, 0, 0, 0]];
        let fields = [
            (MADE_UNDER, generation),
            (UNTIL, offer.until.as_nanos()),
            (MTU, offer.mtu.into()),
            (SLOT, slot as u64),
            (FAMILY, if is_v4 { 4 } else { 6 }),
        ];
        let addresses = (ADDRESSES..).zip(addresses);
        let stations = (STATIONS..).zip(stations.map(u64::from_ne_bytes));
        for (word, value) in fields.into_iter().chain(addresses).chain(stations) {
            if let Some(place) = entry.get_mut(word) {
                *place = value;
            }
        }
        let entered = (first..first + WAYS).find_map(|at| self.renew(at, tag, &entry));
        entered.unwrap_or_else(|| self.write(now, first, tag, &entry))
    }

    /// The entry at a place, if it is this one, prolonged; `None` where it is another.
    fn renew(&self, at: usize, tag: u64, entry: &[u64; ENTRY_WORDS]) -> Option<bool> {
        let words = self.entry(at)?;
        let [place, rest @ ..] = words else { return None };
        if place.load(Acquire) != tag {
            return None;
        }
        let same = |word: &usize| {
            let is = rest.get(*word - 1).map(|place| place.load(Relaxed));
            *word == UNTIL || is == entry.get(*word).copied()
        };
        if !(MADE_UNDER..ENTRY_WORDS).all(|word| same(&word)) {
            return None;
        }
        if let (Some(place), Some(until)) = (words.get(UNTIL), entry.get(UNTIL)) {
            place.fetch_max(*until, Relaxed);
        }
        Some(true)
    }

    /// Writes it to a place of its set that is out of force; false where there is none.
    fn write(&self, now: Instant, first: usize, tag: u64, entry: &[u64; ENTRY_WORDS]) -> bool {
        let (now, generation) = (now.as_nanos(), self.generation());
        let is_settled = now >= self.changed_at.load(Acquire).saturating_add(GRACE_NANOS);
        let is_free = |at: &usize| {
            let word = |number| self.word(*at, number).map_or(0, |place| place.load(Acquire));
            match word(TAG) {
                0 => true,
                CLAIMED => false,
                _ if word(MADE_UNDER) != generation => is_settled,
                _ => now >= word(UNTIL).saturating_add(GRACE_NANOS),
            }
        };
        // A pair has one entry: the program takes the first.
        let mut set = first..first + WAYS;
        let has_tag = |at: &usize| self.word(*at, TAG).is_some_and(|t| t.load(Acquire) == tag);
        let at = match set.clone().find(has_tag) {
            Some(at) => Some(at).filter(is_free),
            None => set.find(is_free),
        };
        let Some(at) = at else { return false };
        let Some([place, rest @ ..]) = self.entry(at) else { return false };
        let old = place.load(Relaxed);
        if old == CLAIMED || place.compare_exchange(old, CLAIMED, Acquire, Relaxed).is_err() {
            return false;
        }
        for (place, value) in rest.iter().zip(entry.iter().skip(1)) {
            place.store(*value, Release);
        }
        place.store(tag, Release);
        true
    }

    fn entry(&self, at: usize) -> Option<&[AtomicU64]> {
        self.entries.all().get(at * ENTRY_WORDS..(at + 1) * ENTRY_WORDS)
    }

    fn word(&self, at: usize, word: usize) -> Option<&AtomicU64> {
        self.entry(at)?.get(word)
    }

    /// Whether the slot leads to that interface of the host, or does so from now on.
    fn shows(&self, slot: usize, target: u32) -> bool {
        let Some(shown) = self.shown.get(slot) else { return false };
        if shown.load(Acquire) != target {
            if self.interfaces.set(slot as u32, target).is_err() {
                return false;
            }
            shown.store(target, Release);
            // From now on the program looks for entries.
            if let Some(active) = self.board(ACTIVE) {
                active.store(1, Release);
            }
        }
        true
    }
}

/// The addresses as words of an entry; `None` where they are of two families.
fn addresses_of(offer: &RedirectOffer) -> Option<[u64; ADDRESS_WORDS]> {
    let mut bytes = [0; ADDRESS_WORDS * size_of::<u64>()];
    match (offer.from, offer.to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let both = from.octets().into_iter().chain(to.octets());
            bytes.iter_mut().zip(both).for_each(|(place, byte)| *place = byte);
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let both = from.octets().into_iter().chain(to.octets());
            bytes.iter_mut().zip(both).for_each(|(place, byte)| *place = byte);
        }
        _ => return None,
    }
    let mut words = [0; ADDRESS_WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(size_of::<u64>())) {
        *word = u64::from_ne_bytes(*bytes.first_chunk()?);
    }
    Some(words)
}

#[cfg(test)]
mod tests;
