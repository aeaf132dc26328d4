//! `EstablishedFlows`: the table of established flows that the XDP program always passes.
//!
//! Filled by the device with flows that the stack's triage has verified, and with no others. A flow
//! is the addresses, the protocol and the ports of a packet. The table stores a keyed hash of it
//! (its print); no hash value leaves the process. Several workers may write at once: at worst one
//! of two newcomers is not entered this time.
//!
//! # Under flood
//! Reachable by peers that triage has verified. Bound: `XDP_FRIENDS` prints, allocated at the
//! start, and the caller's limit of newcomers a turn. Work per packet of an established flow: a
//! hash and one set of four entries. When a set is full of recent flows, a newcomer replaces the
//! least recently used (LRU) of the two entries that are not held, if that was silent for
//! [`CROWDED`]; the first two stay until they are silent. An unverified flow with a colliding print
//! (one in 2^30 tries) passes here and is still unverified for triage. Legitimate flows that find
//! no place are treated as unverified.

use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicUsize};

use floodwall_base::Instant;
use floodwall_base::limits::XDP_FRIENDS;

use crate::af_xdp::words::UmemWords;

/// Entries of one set.
pub(super) const WAYS: usize = 4;
pub(super) const SETS: usize = XDP_FRIENDS / WAYS;
const _: () = assert!(SETS.is_power_of_two(), "a set is named by bits of a print");
/// Entries of a set that keep their flows until those are silent.
const HELD: usize = 2;
/// Words of the key: the initial value, and one for each word of a flow.
pub(super) const KEY_WORDS: usize = 11;
/// Entries that were not seen for so long are removed.
const SILENCE: Duration = Duration::from_secs(30);
/// Entries that were not seen for so long are replaced where a set is full.
const CROWDED: Duration = Duration::from_millis(500);
/// Time is kept in steps of 2^20 ns, about a millisecond, which wrap after seven weeks.
const TICK_BITS: u32 = 20;

/// A set-associative table of flow hashes, shared with the XDP program.
#[derive(Debug)]
pub(super) struct EstablishedFlows {
    prints: UmemWords,
    seen: Box<[AtomicU32]>,
    /// The set to check next for silent flows.
    swept: AtomicUsize,
    key: [u64; KEY_WORDS],
}

impl EstablishedFlows {
    /// An empty table; `key` is secret.
    pub(super) fn create(key: [u64; KEY_WORDS]) -> io::Result<Self> {
        let seen = (0..SETS * WAYS).map(|_| AtomicU32::new(0)).collect();
        let prints = UmemWords::create(WAYS, SETS as u32)?;
        Ok(Self { prints, seen, swept: AtomicUsize::new(0), key })
    }

    pub(super) fn fd(&self) -> i32 {
        self.prints.fd()
    }

    pub(super) const fn key(&self) -> &[u64; KEY_WORDS] {
        &self.key
    }

    /// Records a frame of an established flow. A new flow is entered if `may`; returns whether one
    /// was.
    pub(super) fn note(&self, now: Instant, frame: &[u8], may: bool) -> bool {
        let Some(print) = self.print(frame) else { return false };
        let first = set_of(print) * WAYS;
        let ways = first..first + WAYS;
        let (Some(prints), Some(seen)) = (self.prints.all().get(ways.clone()), self.seen.get(ways))
        else {
            return false;
        };
        let now = tick(now);
        if let Some(way) = prints.iter().position(|way| way.load(Relaxed) == print) {
            seen[way].store(now, Relaxed);
            return false;
        }
        let silence = |way: usize| match prints[way].load(Relaxed) {
            0 => u32::MAX,
            _ => now.wrapping_sub(seen[way].load(Relaxed)),
        };
        let gives_way = |way: &usize| {
            let after = if *way < HELD { SILENCE } else { CROWDED };
            silence(*way) >= ticks(after)
        };
        let place = (0..WAYS).filter(gives_way).max_by_key(|way| silence(*way)).filter(|_| may);
        if let Some(way) = place {
            seen[way].store(now, Relaxed);
            prints[way].store(print, Relaxed);
        }
        place.is_some()
    }

    /// Removes the silent flows of one set.
    pub(super) fn sweep(&self, now: Instant) {
        let first = self.swept.fetch_add(1, Relaxed) % SETS * WAYS;
        let now = tick(now);
        let entries = self.prints.all().iter().zip(&self.seen).skip(first).take(WAYS);
        for (print, seen) in entries {
            if now.wrapping_sub(seen.load(Relaxed)) >= ticks(SILENCE) {
                print.store(0, Relaxed);
            }
        }
    }

    /// The print of a frame's flow; `None` where its ports cannot be read at a glance. As the
    /// program computes it: a multilinear hash, of which bit 0 marks that it is one.
    fn print(&self, frame: &[u8]) -> Option<u64> {
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
        let words = addresses.step_by(4).chain([ports]).map(word).chain([Some(protocol)]);
        let (start, factors) = self.key.split_first()?;
        let sum = words.zip(factors).try_fold(*start, |sum, (word, factor)| {
            Some(sum.wrapping_add(word?.wrapping_mul(*factor)))
        })?;
        Some(sum | 1)
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
