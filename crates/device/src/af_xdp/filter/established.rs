//! `EstablishedFlows`: the table of established flows that the XDP program prefers, with the tokens
//! of each, and of the prefixes that they come from.
//!
//! Filled by the device with flows that the stack's triage has verified, and with no others. A flow
//! is the addresses, the protocol and the ports of a packet. The table stores a keyed hash of it
//! (its print); no hash value leaves the process. Several workers may write at once: at worst one
//! of two newcomers is not entered this time.
//!
//! Under pressure a frame of such a flow costs a token. A flow earns them by progress: each
//! datagram and each TCP segment that triage takes for established and that moves the flow on (its
//! data ends further, or it acknowledges more, than any before) is worth [`TOKENS_EARNED`] and one
//! more for each [`TOKEN_BYTES`]; up to [`TOKENS_MAX`] are kept. A quarter of a second without
//! progress is worth [`TOKENS_AT_REST`]. So replays, duplicates and repeated ACKs cost no more than
//! that, and a flow with progress never lacks tokens.
//!
//! A source prefix (/24, /64) with flows in progress is known, too: each such frame earns it
//! [`TOKENS_EARNED`] tokens, and a datagram or SYN of an unverified flow from there takes one and
//! goes on without credit. So new flows of clients that have proved that they exist do not share
//! the fate of a flood from sources at random, which is of no known prefix.
//!
//! # Under flood
//! Reachable by peers that triage has verified. Bound: `XDP_ESTABLISHED_FLOWS` entries, allocated
//! at the start, and the caller's limit of newcomers a turn. Work per packet of an established
//! flow: a hash and one set of four entries. When a set is full of recent flows, a newcomer
//! replaces the least recently used (LRU) of the two entries that are not held, if that was silent
//! for [`CROWDED_SILENCE`]; the first two stay until they are silent. An unverified flow with a
//! colliding print (one in 2^30 tries) passes here and is still unverified for triage. Legitimate
//! flows and prefixes that find no place are treated as unverified. A sender that forges sources
//! of a known prefix has its tokens: at most [`TOKENS_EARNED`] frames for one of progress, and
//! `flow_share.rs` limits what all frames of a prefix have together. The prefix's new flows are
//! then unverified as any other; its established flows have tokens of their own.

use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

use floodwall_base::Instant;
use floodwall_base::limits::XDP_ESTABLISHED_FLOWS;

use crate::af_xdp::mapped_words::MappedWords;

/// Entries of one set.
pub(super) const SET_WAYS: usize = 4;
pub(super) const SETS: usize = XDP_ESTABLISHED_FLOWS / SET_WAYS;
const _: () = assert!(SETS.is_power_of_two(), "a set is named by bits of a print");
/// Words of an entry: the print, the tokens used and those granted since the entry was made.
pub(super) const ENTRY_WORDS: usize = 3;
pub(super) const USED: usize = 1;
pub(super) const GRANTED: usize = 2;
/// Tokens for a frame that makes progress, and bytes of progress that are worth another one.
const TOKENS_EARNED: u64 = 4;
const TOKEN_BYTES: u64 = 512;
/// Tokens that a flow may keep, that a new one has, and that one without progress gets.
const TOKENS_MAX: u64 = 1024;
const TOKENS_AT_FIRST: u64 = 64;
pub(super) const TOKENS_AT_REST: u64 = 16;
/// The time in which every set is swept once, where there are turns.
const SWEEP_PERIOD: Duration = Duration::from_millis(250);
/// Maximum number of sets swept in a turn.
const SWEPT_MAX: u64 = 256;
/// A segment that lies further behind is of a newer connection between the same ends.
const BEHIND_MAX: u32 = 1 << 26;
/// Entries of a set that keep their flows until those are silent.
const HELD_ENTRIES: usize = 2;
/// Words of the key: the initial value, and one for each word of a flow.
pub(super) const KEY_WORDS: usize = 11;
/// The same of a prefix: the initial values of both families, and one for each word.
pub(super) const PREFIX_KEY_WORDS: usize = 4;
/// Entries that were not seen for so long are removed.
const FLOW_SILENCE: Duration = Duration::from_secs(30);
/// Entries that were not seen for so long are replaced where a set is full.
const CROWDED_SILENCE: Duration = Duration::from_millis(500);
/// Time is kept in steps of 2^20 ns, about a millisecond, which wrap after seven weeks.
const TICK_BITS: u32 = 20;

/// A set-associative table of flow hashes, shared with the XDP program.
#[derive(Debug)]
pub(super) struct EstablishedFlows {
    entries: MappedWords,
    seen: Box<[AtomicU32]>,
    /// Where a TCP flow's data ended and what it acknowledged, the furthest of each; zero is not
    /// known.
    reached: Box<[AtomicU64]>,
    /// The set to check next for silent flows, and when the last one was.
    swept: AtomicUsize,
    swept_at: AtomicU32,
    key: [u64; KEY_WORDS],
    prefix_key: [u64; PREFIX_KEY_WORDS],
}

impl EstablishedFlows {
    /// An empty table; both keys are secret.
    pub(super) fn create(
        key: [u64; KEY_WORDS],
        prefix_key: [u64; PREFIX_KEY_WORDS],
    ) -> io::Result<Self> {
        let seen = (0..SETS * SET_WAYS).map(|_| AtomicU32::new(0)).collect();
        let reached = (0..SETS * SET_WAYS).map(|_| AtomicU64::new(0)).collect();
        let entries = MappedWords::create(SET_WAYS * ENTRY_WORDS, SETS as u32)?;
        let (swept, swept_at) = (AtomicUsize::new(0), AtomicU32::new(0));
        Ok(Self { entries, seen, reached, swept, swept_at, key, prefix_key })
    }

    pub(super) fn fd(&self) -> i32 {
        self.entries.fd()
    }

    pub(super) const fn key(&self) -> &[u64; KEY_WORDS] {
        &self.key
    }

    pub(super) const fn prefix_key(&self) -> &[u64; PREFIX_KEY_WORDS] {
        &self.prefix_key
    }

    /// A word of the entry with this number.
    fn word(&self, entry: usize, word: usize) -> Option<&AtomicU64> {
        self.entries.all().get(entry * ENTRY_WORDS + word)
    }

    fn print_of(&self, entry: usize) -> u64 {
        self.word(entry, 0).map_or(0, |print| print.load(Relaxed))
    }

    fn seen_at(&self, entry: usize) -> u32 {
        self.seen.get(entry).map_or(0, |seen| seen.load(Relaxed))
    }

    /// Records a frame of an established flow, and what it and its prefix earn. A new flow or
    /// prefix is entered if `may`; returns whether one was.
    pub(super) fn note(&self, now: Instant, (frame, flow): (&[u8], FlowKind), may: bool) -> bool {
        let Some(print) = self.print(frame, flow) else { return false };
        let now = tick(now);
        match self.find(print) {
            Some(entry) => {
                self.see(entry, now);
                let is_progress = self.earn(entry, flow.reached(frame));
                is_progress && flow == FlowKind::Ports && self.note_prefix(now, frame, may)
            }
            None => self.make(now, print, may).is_some_and(|entry| {
                self.enter(entry, print, (TOKENS_AT_FIRST, flow.reached(frame)));
                true
            }),
        }
    }

    /// The prefix of a flow that has made progress earns for its newcomers.
    fn note_prefix(&self, now: u32, frame: &[u8], may: bool) -> bool {
        let Some(print) = self.prefix_print(frame) else { return false };
        if let Some(entry) = self.find(print) {
            self.see(entry, now);
            self.grant_earned(entry, TOKENS_EARNED);
            return false;
        }
        let made = self.make(now, print, may);
        made.is_some_and(|entry| {
            self.enter(entry, print, (TOKENS_EARNED, None));
            true
        })
    }

    /// The entry with this print.
    fn find(&self, print: u64) -> Option<usize> {
        let first = set_of(print) * SET_WAYS;
        (first..first + SET_WAYS).find(|entry| self.print_of(*entry) == print)
    }

    /// A place for a new entry, seen now, if there is one and it `may` be taken.
    fn make(&self, now: u32, print: u64, may: bool) -> Option<usize> {
        let first = set_of(print) * SET_WAYS;
        let silence = |entry: usize| match self.print_of(entry) {
            0 => u32::MAX,
            _ => now.wrapping_sub(self.seen_at(entry)),
        };
        let gives_way = |entry: &usize| {
            let after = if *entry - first < HELD_ENTRIES { FLOW_SILENCE } else { CROWDED_SILENCE };
            silence(*entry) >= ticks(after)
        };
        let candidates = (first..first + SET_WAYS).filter(gives_way);
        let place = candidates.max_by_key(|entry| silence(*entry)).filter(|_| may);
        if let Some(entry) = place {
            self.see(entry, now);
        }
        place
    }

    /// Forgets all flows: those that go on are entered again.
    pub(super) fn clear(&self) {
        for entry in 0..SETS * SET_WAYS {
            self.remove(entry);
        }
    }

    fn remove(&self, entry: usize) {
        if let (Some(print), Some(reached)) = (self.word(entry, 0), self.reached.get(entry)) {
            print.store(0, Relaxed);
            // The program may make an entry of its own here.
            reached.store(0, Relaxed);
        }
    }

    fn see(&self, entry: usize, now: u32) {
        if let Some(seen) = self.seen.get(entry) {
            seen.store(now, Relaxed);
        }
    }

    /// A new flow or prefix, with so many tokens.
    fn enter(&self, entry: usize, print: u64, (tokens, reached): (u64, Option<Reached>)) {
        let reached = reached.map_or(0, Reached::word);
        if let Some(place) = self.reached.get(entry) {
            place.store(reached, Relaxed);
        }
        for (word, value) in [(USED, 0), (GRANTED, tokens), (0, print)] {
            if let Some(place) = self.word(entry, word) {
                place.store(value, Relaxed);
            }
        }
    }

    /// A known flow earns tokens where it has come further; where that cannot be told, always.
    /// Returns whether it has.
    fn earn(&self, entry: usize, now: Option<Reached>) -> bool {
        let Some(reached) = self.reached.get(entry) else { return false };
        let earned = match now {
            None => TOKENS_EARNED,
            Some(now) => {
                let (furthest, bytes) = Reached(reached.load(Relaxed)).and(now);
                if bytes == 0 {
                    return false;
                }
                reached.store(furthest.word(), Relaxed);
                TOKENS_EARNED + u64::from(bytes) / TOKEN_BYTES
            }
        };
        self.grant_earned(entry, earned);
        true
    }

    fn grant_earned(&self, entry: usize, earned: u64) {
        self.grant(entry, |used, granted| {
            granted.saturating_add(earned).min(used.saturating_add(TOKENS_MAX))
        });
    }

    /// Changes what an entry has been granted, given what it has used and that.
    fn grant(&self, entry: usize, anew: impl FnOnce(u64, u64) -> u64) {
        if let (Some(used), Some(granted)) = (self.word(entry, USED), self.word(entry, GRANTED)) {
            let before = granted.load(Relaxed);
            let after = anew(used.load(Relaxed), before);
            if after > before {
                granted.store(after, Relaxed);
            }
        }
    }

    /// Removes the silent flows of the sets that are due, and lets others rest.
    pub(super) fn sweep(&self, now: Instant) {
        let now = tick(now);
        let passed = now.wrapping_sub(self.swept_at.swap(now, Relaxed));
        let due =
            (u64::from(passed) * SETS as u64 / u64::from(ticks(SWEEP_PERIOD))).clamp(1, SWEPT_MAX);
        let first = self.swept.fetch_add(due as usize, Relaxed);
        for set in first..first.wrapping_add(due as usize) {
            let entry = set % SETS * SET_WAYS;
            (entry..entry + SET_WAYS).for_each(|entry| self.sweep_entry(entry, now));
        }
    }

    fn sweep_entry(&self, entry: usize, now: u32) {
        if self.print_of(entry) == 0 {
            return;
        }
        if now.wrapping_sub(self.seen_at(entry)) < ticks(FLOW_SILENCE) {
            self.grant(entry, |used, granted| granted.max(used.saturating_add(TOKENS_AT_REST)));
            return;
        }
        self.remove(entry);
    }

    /// The print of a frame's flow; `None` where its ports cannot be read at a glance. As the
    /// program computes it: a multilinear hash, of which bit 0 marks that it is one.
    fn print(&self, frame: &[u8], flow: FlowKind) -> Option<u64> {
        let word = |at: usize| {
            let word = frame.get(at..)?.first_chunk::<4>()?;
            Some(u64::from(u32::from_ne_bytes(*word)))
        };
        let byte = |at: usize| frame.get(at).copied().map(u64::from);
        let kind = u16::from_be_bytes(*frame.get(12..)?.first_chunk()?);
        let (addresses, ports, protocol) = match kind {
            0x0800 if byte(14)? == 0x45 && !is_fragment(frame)? => (26..34, 34, byte(23)?),
            0x86dd => (22..54, 54, byte(20)?),
            _ => return None,
        };
        if !matches!(protocol, 6 | 17) {
            return None;
        }
        let ends = [word(ports)?, protocol];
        let ends = ends.into_iter().filter(|_| flow == FlowKind::Ports).map(Some);
        let words = addresses.step_by(4).map(word).chain(ends);
        let (start, factors) = self.key.split_first()?;
        let sum = words.zip(factors).try_fold(*start, |sum, (word, factor)| {
            Some(sum.wrapping_add(word?.wrapping_mul(*factor)))
        })?;
        Some(sum | 1)
    }

    /// The print of the prefix (24 or 64 bits) of the source of a frame that has a flow's print.
    fn prefix_print(&self, frame: &[u8]) -> Option<u64> {
        let word = |at: usize| Some(u32::from_ne_bytes(*frame.get(at..)?.first_chunk()?));
        let [v4, v6, first, second] = self.prefix_key;
        let product = |word: u32, factor: u64| u64::from(word).wrapping_mul(factor);
        let sum = match u16::from_be_bytes(*frame.get(12..)?.first_chunk()?) {
            0x0800 => v4.wrapping_add(product(word(26)? & V4_PREFIX, first)),
            _ => {
                let begun = v6.wrapping_add(product(word(22)?, first));
                begun.wrapping_add(product(word(26)?, second))
            }
        };
        Some(sum | 1)
    }
}

/// The first 24 bits of an IPv4 address, as it is loaded.
pub(super) const V4_PREFIX: u32 = u32::from_ne_bytes([0xff, 0xff, 0xff, 0]);

/// What tells a flow from others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FlowKind {
    /// Addresses, protocol and ports.
    Ports,
    /// The addresses alone: two hosts with a router of ours between them.
    Pair,
}

impl FlowKind {
    /// How far a flow of this kind has come; `None` where that cannot be told.
    fn reached(self, frame: &[u8]) -> Option<Reached> {
        (self == Self::Ports).then(|| Reached::of(frame))?
    }
}

/// How far a TCP flow has come: where its data ends, and what it acknowledges.
#[derive(Clone, Copy)]
struct Reached(u64);

impl Reached {
    /// Of a frame with its print; `None` where it is not TCP's, or too short.
    fn of(frame: &[u8]) -> Option<Self> {
        let half = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
        let word = |at: usize| Some(u32::from_be_bytes(*frame.get(at..)?.first_chunk()?));
        let (header, end, protocol) = match half(12)? {
            0x0800 => (34, 14 + usize::from(half(16)?), *frame.get(23)?),
            _ => (54, 54 + usize::from(half(18)?), *frame.get(20)?),
        };
        let text = header + usize::from(*frame.get(header + 12)? >> 4) * 4;
        let len = end.saturating_sub(text) as u32;
        let reached = u64::from(word(header + 4)?.wrapping_add(len)) << 32;
        (protocol == 6).then(|| Some(Self(reached | u64::from(word(header + 8)?))))?
    }

    /// As it is kept: zero is not known.
    const fn word(self) -> u64 {
        if self.0 == 0 { 1 } else { self.0 }
    }

    /// The furthest of both, and how many bytes of progress `next` is.
    fn and(self, next: Self) -> (Self, u32) {
        if self.0 == 0 {
            return (next, 1);
        }
        let (old, new) = ([self.0 >> 32, self.0], [next.0 >> 32, next.0]);
        let (mut furthest, mut bytes) = ([0; 2], 0_u32);
        for ((old, new), place) in old.into_iter().zip(new).zip(&mut furthest) {
            let ahead = (new as u32).wrapping_sub(old as u32);
            let is_new = ahead != 0 && ahead < u32::MAX - BEHIND_MAX;
            *place = if is_new { new as u32 } else { old as u32 };
            bytes = bytes.saturating_add(if is_new { ahead.min(BEHIND_MAX) } else { 0 });
        }
        let [end, ack] = furthest.map(u64::from);
        (Self(end << 32 | ack), bytes)
    }
}

fn is_fragment(frame: &[u8]) -> Option<bool> {
    Some(u16::from_be_bytes(*frame.get(20..)?.first_chunk()?) & 0x3fff != 0)
}

const fn set_of(print: u64) -> usize {
    (print >> 32) as usize & (SETS - 1)
}

fn tick(now: Instant) -> u32 {
    ((now - Instant::ORIGIN).as_nanos() >> TICK_BITS) as u32
}

const fn ticks(time: Duration) -> u32 {
    (time.as_nanos() >> TICK_BITS) as u32
}
