//! What lies in the maps, as user space writes and reads it.
//!
//! Called by `device` and by tests. Invariant: the programs read each of these words whole, so that
//! a word is the old one or the new one; where two belong together, the order of writing says which
//! comes first.

use core::net::IpAddr;

use crate::siphash;

/// How long one key makes cookies: `SYN_COOKIE_PERIOD` of `syncache`.
pub const EPOCH_NANOS: u64 = 15_000_000_000;

/// Bytes of a listener's key.
pub const LISTENER_KEY_BYTES: usize = 20;

/// The key of a listener: an address of ours (IPv4 as IPv6 has it) and a port.
#[must_use]
pub fn listener_key(addr: IpAddr, port: u16) -> [u8; LISTENER_KEY_BYTES] {
    let addr = match addr {
        IpAddr::V4(addr) => addr.to_ipv6_mapped(),
        IpAddr::V6(addr) => addr,
    };
    let mut key = [0; LISTENER_KEY_BYTES];
    let (front, back) = key.split_at_mut(16);
    front.copy_from_slice(&addr.octets());
    back.copy_from_slice(&u32::from(port).to_ne_bytes());
    key
}

/// What a listener at one address answers to SYNs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Offer {
    /// The window field, not scaled.
    pub window: u16,
    /// Our largest segment, said to clients that say theirs.
    pub mss: u16,
    /// Our window scale, said to clients that say theirs; at most 14.
    pub window_scale: u8,
    /// Whether selective acknowledgments are permitted.
    pub sack: bool,
    /// Whether timestamps are sent.
    pub timestamps: bool,
    /// Whether ECN is agreed to.
    pub ecn: bool,
    /// The hop limit of the answer.
    pub hop_limit: u8,
    /// The traffic class of the answer.
    pub traffic_class: u8,
}

impl Offer {
    pub(super) const MSS_SHIFT: i32 = 16;
    pub(super) const SCALE_SHIFT: i32 = 32;
    pub(super) const FLAGS_SHIFT: i32 = 40;
    pub(super) const HOP_LIMIT_SHIFT: i32 = 48;
    pub(super) const CLASS_SHIFT: i32 = 56;

    /// As it lies in the map.
    #[must_use]
    pub fn word(&self) -> u64 {
        let flag = |set: bool, bit: u32| u64::from(set) << bit;
        let flags = flag(self.sack, 0) | flag(self.timestamps, 1) | flag(self.ecn, 2);
        u64::from(self.window)
            | u64::from(self.mss) << Self::MSS_SHIFT
            | u64::from(self.window_scale.min(14)) << Self::SCALE_SHIFT
            | flags << Self::FLAGS_SHIFT
            | u64::from(self.hop_limit) << Self::HOP_LIMIT_SHIFT
            | u64::from(self.traffic_class) << Self::CLASS_SHIFT
    }
}

/// Words of a queue's desk, where programs and the queue's worker tell each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Desk {
    /// Until when SYNs are answered, by the clock that counts suspension; written by the program.
    AwakeUntil = 0,
    /// Not 0 while more comes than the worker handles; written by the worker.
    Pressed = 1,
    /// The window in which SYNs are counted, and how many came in it; the program's own.
    Window = 2,
    /// See [`Desk::Window`].
    Syns = 3,
    /// SYNs that were answered.
    Answered = 4,
    /// ACKs with a valid cookie.
    Proven = 5,
    /// ACKs without a valid cookie.
    Forged = 6,
    /// SYNs that were left to the stack while awake: of no listener, malformed, without keys.
    Left = 7,
    /// How often the program woke.
    Woken = 8,
    /// Segments of no known connection that the worker takes, and how many it was given, since the
    /// start. The credit is the worker's, the use is counted by the caller's code.
    Granted = 9,
    /// See [`Desk::Granted`].
    Used = 10,
    /// Segments that were refused because there was no credit; counted by the caller's code.
    Refused = 11,
}

impl Desk {
    /// Words of a desk.
    pub const WORDS: usize = 16;

    /// The offset of the word in bytes.
    #[must_use]
    pub const fn offset(self) -> i16 {
        self as i16 * 8
    }
}

/// Values of the map of keys: one header, and the keys of four epochs.
pub const KEY_ENTRIES: usize = 5;
/// Words of each.
pub const KEY_WORDS: usize = 8;

/// What is written into the map of keys. The key of epoch `n` is value `1 + n % 4`; those of the
/// last, the present and the next epoch must be there, so that the program turns them by its own
/// clock, at the very moment, and goes on for an epoch without its user.
#[derive(Clone, Copy, Debug)]
pub struct KeyTable;

impl KeyTable {
    /// Of the header: until when the key in force is, with its number in the low two bits; 0 where
    /// there is none.
    pub(super) const UNTIL_OFFSET: i16 = 0;
    /// Of the header: the state of the hash by which our clock is shifted for each flow.
    pub(super) const CLOCK_OFFSET: i16 = 8;
    /// Of the header: the number of the link, which counts for link-local addresses.
    pub(super) const ZONE_OFFSET: i16 = 40;

    /// Which value has the key of an epoch.
    #[must_use]
    pub const fn entry_of(epoch: u64) -> usize {
        1 + (epoch & 3) as usize
    }

    /// The words of an epoch's key.
    #[must_use]
    pub const fn key(key: (u64, u64)) -> [u64; KEY_WORDS] {
        let [a, b, c, d] = siphash::start(key);
        [a, b, c, d, 0, 0, 0, 0]
    }

    /// The word of the header that puts an epoch in force until then. To be written after the keys.
    #[must_use]
    pub const fn until(epoch: u64, until_nanos: u64) -> u64 {
        until_nanos & !3 | epoch & 3
    }

    /// The words of the header. `clock` is the key of the hash by which timestamps are shifted,
    /// `zone` the number of the link.
    #[must_use]
    pub const fn header(until: u64, clock: (u64, u64), zone: u16) -> [u64; KEY_WORDS] {
        let [a, b, c, d] = siphash::start(clock);
        [until, a, b, c, d, zone as u64, 0, 0]
    }
}
