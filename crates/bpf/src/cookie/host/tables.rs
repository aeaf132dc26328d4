//! What lies in the maps of `guard`, as user space writes and reads it.
//!
//! Called by the loader and by tests. Invariant: the programs read each word whole; the secret is
//! put in force by a new [`HostSettings::generation`], which is written last.

use crate::cookie::tables::Offer;
use crate::siphash;

/// Values of the map of ports: one for each.
pub const PORT_ENTRIES: usize = 1 << 16;
/// Protected ports at most, with 0, which is none.
pub const PORTS_MAX: usize = 64;
/// Entries of the table of recent proofs, one a flow; a power of two.
pub const PROOFS: usize = 1 << 16;
/// Source prefixes with a credit of their own at UDP ports; a power of two.
pub const BUCKETS: usize = 1 << 16;
/// Entries of the table of proven sources of datagrams; a power of two.
pub const SOURCES: usize = 1 << 18;
/// Entries of the table of loud prefixes; a power of two.
pub const RANKED: usize = 1 << 10;
/// Words of such an entry.
pub const RANK_WORDS: usize = 4;
/// Of so many dropped frames one is ranked; a power of two.
pub const RANK_EACH: u64 = 16;
/// In the word of a port: the protocol of its datagrams ([`DatagramProtocol`]), a byte.
pub const PROTOCOL_SHIFT: i32 = 16;
/// In the word of a port: whether a TCP connection proves its source for datagrams, a bit.
pub const PROVES_SHIFT: i32 = 24;
/// SYNs to one port at one core within 134 ms that go to the kernel while awake, because no cookie
/// can stand for them: a thousand a second.
pub const LEFT_MAX: u64 = 134;
/// Words of the settings.
pub const SETTING_WORDS: usize = 24;
/// In the word of an [`Offer`]: no window scale is said.
pub const NO_SCALING: u64 = 1 << (Offer::FLAGS_SHIFT + 3);

/// A protocol with questions that can be answered with a challenge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatagramProtocol {
    /// DNS: the answer is truncated, so that the client asks again by TCP (RFC 1035 section 4.2.1,
    /// RFC 7766).
    Dns = 1,
    /// Queries of the Source engine's servers (A2S): the challenge of the protocol.
    A2s = 2,
}

/// What user space follows and the programs obey.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostSettings {
    /// What IPv4 clients are answered: [`Offer::word`], with [`NO_SCALING`].
    pub offer_v4: u64,
    /// What IPv6 clients are answered.
    pub offer_v6: u64,
    /// SYNs are answered at any time.
    pub always: bool,
    /// Everything passes.
    pub paused: bool,
    /// No SYN is answered any more; cookies that were given are redeemed.
    pub ending: bool,
    /// SYNs to one port at one core within 134 ms that wake the program.
    pub wakes: u64,
    /// Half-open connections wake it beyond the listener's backlog shifted right by this.
    pub watch_shift: u64,
    /// The wall clock less the one of `bpf_ktime_get_boot_ns`, in nanoseconds; wraps.
    pub wall_offset: u64,
    /// Counts what below is new.
    pub generation: u64,
    /// The key of the cookies' keys, as `syncache` derives them.
    pub secret: (u64, u64),
    /// The key of the hash by which clocks are shifted and proofs are found.
    pub clock: (u64, u64),
    /// The number of the link, which counts for link-local addresses.
    pub zone: u64,
    /// Nanoseconds from one datagram of a prefix to the next that it is owed.
    pub interval: u64,
    /// Nanoseconds of datagrams that it may send at once.
    pub burst: u64,
    /// Datagrams of unproven sources to one port at one core within 134 ms that pass; those beyond
    /// are challenged.
    pub unproven: u64,
    /// A bit for each of our own addresses ([`HostSettings::own_bit`]): a source without one is
    /// not looked for among them.
    pub own_filter: u64,
}

impl HostSettings {
    pub(super) const OFFER_V4: i16 = 0;
    pub(super) const OFFER_V6: i16 = 8;
    pub(super) const MODE: i16 = 16;
    pub(super) const WAKES: i16 = 24;
    pub(super) const WATCH_SHIFT: i16 = 32;
    pub(super) const WALL: i16 = 40;
    pub(super) const GENERATION: i16 = 48;
    pub(super) const SECRET: i16 = 56;
    pub(super) const CLOCK: i16 = 88;
    pub(super) const ZONE: i16 = 120;
    pub(super) const INTERVAL: i16 = 128;
    pub(super) const BURST: i16 = 136;
    pub(super) const UNPROVEN: i16 = 144;
    pub(super) const OWN_FILTER: i16 = 152;
    /// The word of the generation, to be written last.
    pub const GENERATION_WORD: usize = Self::GENERATION as usize / 8;
    /// Bits of the mode.
    pub(super) const ALWAYS: i32 = 1;
    pub(super) const PAUSED: i32 = 2;
    pub(super) const ENDING: i32 = 4;

    /// Secret and clock of settings that lie in a map.
    #[must_use]
    pub fn keys_of(words: &[u64; SETTING_WORDS]) -> [(u64, u64); 2] {
        let [one, two, ..] = siphash::start((0, 0));
        [Self::SECRET, Self::CLOCK].map(|at| {
            let word = |n: usize| words.get(at as usize / 8 + n).copied().unwrap_or(0);
            (word(0) ^ one, word(1) ^ two)
        })
    }

    /// The bit of an address in [`HostSettings::own_filter`].
    #[must_use]
    pub const fn own_bit(address: [u8; 16]) -> u64 {
        1 << (address[15] & 63)
    }

    /// As it lies in the map.
    #[must_use]
    pub fn words(&self) -> [u64; SETTING_WORDS] {
        let flag = |set: bool, bit: u32| u64::from(set) << bit;
        let mode = flag(self.always, 0) | flag(self.paused, 1) | flag(self.ending, 2);
        let mut words = [0; SETTING_WORDS];
        let head = [
            self.offer_v4,
            self.offer_v6,
            mode,
            self.wakes,
            self.watch_shift,
            self.wall_offset,
            self.generation,
        ];
        let all = head
            .into_iter()
            .chain(siphash::start(self.secret))
            .chain(siphash::start(self.clock))
            .chain([self.zone, self.interval, self.burst, self.unproven, self.own_filter]);
        words.iter_mut().zip(all).for_each(|(place, word)| *place = word);
        words
    }
}

/// A source prefix of which frames were dropped, as [`rank_source`](super::rank_source) keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RankedSource {
    /// The prefix's first address.
    pub prefix: core::net::IpAddr,
    /// Bits of the prefix: 24 or 64.
    pub bits: u8,
    /// The number of the port.
    pub port: u8,
    /// Why they were dropped: the number of a [`Tally`].
    pub reason: u8,
    /// About how many, as far as they were more than others of the same entry.
    pub frames: u64,
    /// When the last was ranked, by the clock that counts suspension.
    pub last: u64,
}

impl RankedSource {
    pub(super) const PREFIX: i16 = 0;
    pub(super) const LABEL: i16 = 8;
    pub(super) const COUNT: i16 = 16;
    pub(super) const LAST: i16 = 24;
    /// In the label, above the number of the port.
    pub(super) const REASON_SHIFT: i32 = 8;
    pub(super) const FAMILY_SHIFT: i32 = 16;

    /// From the words of an entry; `None` of an empty one.
    #[must_use]
    pub fn of(words: [u64; RANK_WORDS]) -> Option<Self> {
        use core::net::{Ipv4Addr, Ipv6Addr};
        let [prefix, label, count, last] = words;
        let [port, reason, family, ..] = label.to_le_bytes();
        let (prefix, bits) = match family {
            4 => (Ipv4Addr::from_bits((prefix << 8) as u32).into(), 24),
            6 => (Ipv6Addr::from_bits(u128::from(prefix) << 64).into(), 64),
            _ => return None,
        };
        let frames = count.saturating_mul(RANK_EACH);
        (count > 0).then_some(Self { prefix, bits, port, reason, frames, last })
    }
}

/// Words of a port's tally at one core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tally {
    /// Until when SYNs are answered, by the clock that counts suspension.
    AwakeUntil = 0,
    /// Since when it has been awake.
    AwakeSince = 1,
    /// The window in which SYNs are counted, and how many came in it.
    Window = 2,
    /// See [`Tally::Window`].
    Syns = 3,
    /// SYNs that were answered.
    Answered = 4,
    /// ACKs with a valid cookie.
    Proven = 5,
    /// ACKs to a listener with a number that is no cookie of this guard.
    NotOurs = 6,
    /// SYNs that went to the kernel while awake: options that no cookie can hold, own addresses.
    Left = 7,
    /// How often it woke.
    Woken = 8,
    /// SYNs that went to the kernel while asleep.
    Asleep = 9,
    /// SYNs that were dropped because the accept queue was full.
    Full = 10,
    /// Segments of a flow that was proven a moment ago: the kernel has its connection.
    Repeated = 11,
    /// ACKs with a cookie of the kernel's own.
    KernelCookie = 12,
    /// ACKs that were dropped: no cookie of ours nor of the kernel's.
    Refused = 13,
    /// RST, SYN-ACK and others of no connection that were dropped.
    Stray = 14,
    /// Connections that the kernel took over.
    Adopted = 15,
    /// Connections that the kernel did not take over.
    NotAdopted = 16,
    /// Proofs that could not be noted: the driver has no room for metadata.
    NoMetadata = 17,
    /// Datagrams that passed.
    Datagrams = 18,
    /// Datagrams that were dropped because their prefix had no credit.
    Uncredited = 19,
    /// Datagrams that were answered with a challenge.
    Challenged = 20,
    /// Segments that went to the kernel because the listener is MPTCP.
    Multipath = 21,
    /// SYNs that went to the kernel while awake in the present window.
    LeftInWindow = 22,
    /// SYNs that were dropped while awake: too many that only the kernel could answer.
    LeftRefused = 23,
    /// Datagrams of unproven sources that were dropped: too many, and no question that can be
    /// answered.
    Unproven = 24,
    /// Sources that were proven by their answer to a challenge.
    SourceProven = 25,
}

impl Tally {
    /// Words of a tally.
    pub const WORDS: usize = 26;

    /// The offset of the word in bytes.
    #[must_use]
    pub const fn offset(self) -> i16 {
        self as i16 * 8
    }
}

const _: () = {
    use crate::cookie::Desk;
    assert!(Tally::Answered as usize == Desk::Answered as usize, "`answer.rs` counts it");
    assert!(Tally::Proven as usize == Desk::Proven as usize, "`ack.rs` counts it");
    assert!(Tally::NotOurs as usize == Desk::Forged as usize, "`ack.rs` counts it");
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_settings_can_be_read_again() {
        let (secret, clock) = ((1 << 60 | 7, 8), (9, u64::MAX));
        let settings = HostSettings {
            offer_v4: 1,
            offer_v6: 2,
            always: true,
            paused: false,
            ending: false,
            wakes: 3,
            watch_shift: 4,
            wall_offset: 5,
            generation: 6,
            secret,
            clock,
            zone: 10,
            interval: 11,
            burst: 12,
            unproven: 13,
            own_filter: 15,
        };
        let words = settings.words();
        assert_eq!(HostSettings::keys_of(&words), [secret, clock]);
        assert_eq!(words[HostSettings::GENERATION_WORD], 6);
        assert_eq!(words[HostSettings::ZONE as usize / 8], 10);
        assert_eq!(words[HostSettings::BURST as usize / 8], 12);
        assert_eq!(words[HostSettings::UNPROVEN as usize / 8], 13);
        assert_eq!(words[HostSettings::OWN_FILTER as usize / 8], 15);
    }
}
