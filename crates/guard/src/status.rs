//! `Status`: what a guard has counted, by port and reason, and the prefixes that it refused most.

use core::net::IpAddr;
use core::time::Duration;
use std::io;

use floodwall_bpf::cookie::host::{RANK_WORDS, RANKED, RankedSource, Tally};
use floodwall_device::host_bpf::HostMap;

/// The reasons by which is counted, with their names in output.
const COUNTS: &[(&str, Tally)] = &[
    ("syn_answered", Tally::Answered),
    ("syn_asleep", Tally::Asleep),
    ("syn_left", Tally::Left),
    ("syn_left_dropped", Tally::LeftRefused),
    ("syn_queue_full", Tally::Full),
    ("ack_proven", Tally::Proven),
    ("ack_repeated", Tally::Repeated),
    ("ack_kernel_cookie", Tally::KernelCookie),
    ("ack_forged", Tally::Refused),
    ("stray", Tally::Stray),
    ("adopted", Tally::Adopted),
    ("not_adopted", Tally::NotAdopted),
    ("no_metadata", Tally::NoMetadata),
    ("multipath", Tally::Multipath),
    ("woken", Tally::Woken),
    ("datagrams", Tally::Datagrams),
    ("datagrams_dropped", Tally::Uncredited),
    ("datagrams_challenged", Tally::Challenged),
    ("datagrams_unproven", Tally::Unproven),
    ("sources_proven", Tally::SourceProven),
];

/// What one port has counted since the start, over all cores.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortStatus {
    /// `tcp` or `udp`.
    pub protocol: &'static str,
    /// The port.
    pub port: u16,
    /// How long SYNs have been answered; `None` while asleep.
    pub awake: Option<Duration>,
    words: [u64; Tally::WORDS],
}

impl PortStatus {
    /// Of the values of all cores, at a time of the programs' clock.
    pub(crate) fn of(protocol: &'static str, port: u16, values: &[u8], now: u64) -> Self {
        let mut words = [0_u64; Tally::WORDS];
        let mut awake = None;
        for core in values.chunks_exact(Tally::WORDS * 8) {
            let mut of_core = [0_u64; Tally::WORDS];
            for (place, word) in of_core.iter_mut().zip(core.chunks_exact(8)) {
                *place = word.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
            }
            let at = |tally: Tally| of_core.get(tally as usize).copied().unwrap_or(0);
            if at(Tally::AwakeUntil) > now {
                let since = Duration::from_nanos(now.saturating_sub(at(Tally::AwakeSince)));
                awake = Some(awake.map_or(since, |longest: Duration| longest.max(since)));
            }
            words.iter_mut().zip(of_core).for_each(|(sum, word)| *sum = sum.wrapping_add(word));
        }
        Self { protocol, port, awake, words }
    }

    pub(crate) fn count(&self, tally: Tally) -> u64 {
        self.words.get(tally as usize).copied().unwrap_or(0)
    }

    /// What was counted, with the reasons' names.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        COUNTS.iter().map(|(name, tally)| (*name, self.count(*tally)))
    }
}

/// Prefixes that are told at most.
pub const REFUSED_MAX: usize = 16;

/// A source prefix of which many frames were dropped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RefusedPrefix {
    /// The prefix: its first address, and its bits (IPv4 24, IPv6 64).
    pub prefix: (IpAddr, u8),
    /// `tcp` or `udp`, and the port.
    pub port: (&'static str, u16),
    /// Why: a name of [`PortStatus::counts`].
    pub reason: &'static str,
    /// About how many frames: one in 16 is looked at, and what others of the same entry of the
    /// table sent is taken off.
    pub frames: u64,
    /// How long ago the last was looked at.
    pub ago: Duration,
}

/// The loudest of them, the loudest first. `port` knows a port by its number.
pub(crate) fn refused(
    ranked: &HostMap,
    now: u64,
    port: impl Fn(u8) -> Option<(&'static str, u16)>,
) -> io::Result<Vec<RefusedPrefix>> {
    let mut found = Vec::new();
    for number in 0..RANKED as u32 {
        let bytes = ranked.get(&number.to_ne_bytes())?;
        let mut words = [0_u64; RANK_WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        }
        let Some(source) = RankedSource::of(words) else { continue };
        let reason = COUNTS.iter().find(|it| it.1 as usize == usize::from(source.reason));
        let (Some((reason, _)), Some(port)) = (reason, port(source.port)) else { continue };
        found.push(RefusedPrefix {
            prefix: (source.prefix, source.bits),
            port,
            reason,
            frames: source.frames,
            ago: Duration::from_nanos(now.saturating_sub(source.last)),
        });
    }
    found.sort_by_key(|it| core::cmp::Reverse(it.frames));
    found.truncate(REFUSED_MAX);
    Ok(found)
}

/// What a guard does and has counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// The interface.
    pub interface: String,
    /// Everything passes: `net.ipv4.tcp_syncookies` is 0.
    pub paused: bool,
    /// Port by port.
    pub ports: Vec<PortStatus>,
    /// The prefixes that were refused most, at most [`REFUSED_MAX`].
    pub refused: Vec<RefusedPrefix>,
}
