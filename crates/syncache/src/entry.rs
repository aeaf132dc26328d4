//! `SynEntry`: the state kept for one SYN, reduced to the minimum.
//!
//! Written by `syn_cache.rs`, stored by `cache.rs`. Invariant: it is one cache line, so that a SYN
//! costs one memory access that misses the cache (FreeBSD's entry takes 160 bytes and its links); a
//! test and an assertion hold the size. Not here: when it is due (`cache.rs`, beside the row), data
//! of SYNs.

use floodwall_base::{Endpoint, FlowKey, IfIndex, Instant, Seq};

use crate::cache::CacheTick;
use crate::half_open::SynAck;
use crate::listener::ListenerId;
use crate::proven::ProvenBy;
use crate::settings::ListenSettings;
use crate::timestamp;

/// Encodes the absence of a window scale.
const NO_SCALE: u8 = u8::MAX;

const SACK: u8 = 1;
const TIMESTAMPS: u8 = 2;
const ECN: u8 = 4;
/// An ICMP error has quoted our SYN-ACK once already.
const UNREACHED: u8 = 8;
/// Another SYN of the same endpoints, with another sequence number, was answered by a cookie.
const RIVAL: u8 = 16;
/// The client sent an MSS option.
const SAID_MSS: u8 = 32;

/// Our SYN-ACK was sent again because the SYN was received again: it is ambiguous which of them
/// an ACK acknowledges.
const REPEATED: u8 = 64;

/// The options agreed on with a client: its offer, limited to what the listener allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AgreedOptions {
    pub(crate) mss: u16,
    /// Whether the client sent an MSS option, so that we send ours.
    pub(crate) said_mss: bool,
    pub(crate) window_scale: Option<u8>,
    pub(crate) sack: bool,
    pub(crate) ecn: bool,
    /// The client's TSval.
    pub(crate) timestamp: Option<u32>,
}

impl AgreedOptions {
    /// The option bits of our timestamp, where timestamps are in use.
    pub(crate) fn marks(&self) -> Option<u8> {
        self.timestamp.map(|_| timestamp::marks(self.window_scale, self.sack, self.ecn))
    }
}

/// The state of one half-open connection: one cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct SynEntry {
    irs: u32,
    iss: u32,
    recent: u32,
    pub(crate) listener: ListenerId,
    local: EntryEnd,
    remote: EntryEnd,
    zone: u16,
    window: u16,
    mss: u16,
    pub(crate) share: u16,
    window_scale: u8,
    flags: u8,
    pub(crate) retransmits: u8,
    /// Fraction of its tick (`cache.rs`) at which it was created, in [`FRACTION`]s.
    born: u8,
}

/// A 256th of a tick: 2^18 ns, about a quarter of a millisecond.
pub(crate) const FRACTION: u32 = CacheTick::SHIFT - u8::BITS;

/// An endpoint in 18 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
struct EntryEnd {
    addr: [u8; 16],
    port: u16,
}

const _: () = assert!(size_of::<SynEntry>() == 64);

impl From<Endpoint> for EntryEnd {
    #[inline]
    fn from(end: Endpoint) -> Self {
        Self { addr: end.addr.octets(), port: end.port }
    }
}

impl From<EntryEnd> for Endpoint {
    #[inline]
    fn from(end: EntryEnd) -> Self {
        Self { addr: end.addr.into(), port: end.port }
    }
}

/// Protocol number of TCP.
const TCP: u8 = 6;

impl SynEntry {
    /// The entry of a SYN.
    #[inline]
    pub(crate) fn new(
        flow: &FlowKey,
        (irs, iss, window): (Seq, Seq, u16),
        agreed: &AgreedOptions,
        listener: ListenerId,
        share: u16,
    ) -> Self {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        Self {
            irs: irs.0,
            iss: iss.0,
            recent: agreed.timestamp.unwrap_or(0),
            listener,
            local: flow.local.into(),
            remote: flow.remote.into(),
            zone: flow.zone.0,
            window,
            mss: agreed.mss,
            share,
            window_scale: agreed.window_scale.unwrap_or(NO_SCALE),
            flags: flag(agreed.sack, SACK)
                | flag(agreed.ecn, ECN)
                | flag(agreed.said_mss, SAID_MSS)
                | flag(agreed.timestamp.is_some(), TIMESTAMPS),
            retransmits: 0,
            born: 0,
        }
    }

    /// The same, created at the given time, when its SYN-ACK left.
    #[inline]
    pub(crate) const fn made_at(self, now: Instant) -> Self {
        Self { born: (now.as_nanos() >> FRACTION) as u8, ..self }
    }

    /// Fraction of its tick at which it was created.
    pub(crate) const fn born(&self) -> u8 {
        self.born
    }

    #[inline]
    pub(crate) fn is_of(&self, flow: &FlowKey) -> bool {
        self.local == flow.local.into()
            && self.remote == flow.remote.into()
            && self.zone == flow.zone.0
    }

    #[inline]
    pub(crate) fn flow(&self) -> FlowKey {
        FlowKey {
            local: self.local.into(),
            remote: self.remote.into(),
            zone: IfIndex(self.zone),
            protocol: TCP,
        }
    }

    pub(crate) const fn irs(&self) -> Seq {
        Seq(self.irs)
    }

    pub(crate) const fn iss(&self) -> Seq {
        Seq(self.iss)
    }

    /// The window of the SYN.
    pub(crate) const fn window(&self) -> u16 {
        self.window
    }

    pub(crate) fn agreed(&self) -> AgreedOptions {
        AgreedOptions {
            mss: self.mss,
            said_mss: self.flags & SAID_MSS != 0,
            window_scale: Some(self.window_scale).filter(|scale| *scale != NO_SCALE),
            sack: self.flags & SACK != 0,
            ecn: self.flags & ECN != 0,
            timestamp: (self.flags & TIMESTAMPS != 0).then_some(self.recent),
        }
    }

    /// The client has sent its SYN again: its latest timestamp is the one to echo (RFC 7323
    /// section 4.3). An older one belongs to an old segment.
    pub(crate) const fn refresh(&mut self, timestamp: Option<u32>) {
        if let Some(value) = timestamp
            && self.flags & TIMESTAMPS != 0
            && value.wrapping_sub(self.recent) as i32 > 0
        {
            self.recent = value;
        }
    }

    /// Records that the SYN was received again and answered again.
    pub(crate) const fn set_repeated(&mut self) {
        self.flags |= REPEATED;
    }

    pub(crate) const fn is_repeated(&self) -> bool {
        self.flags & REPEATED != 0
    }

    pub(crate) const fn set_rival(&mut self) {
        self.flags |= RIVAL;
    }

    pub(crate) const fn has_rival(&self) -> bool {
        self.flags & RIVAL != 0
    }

    /// Records an ICMP error; returns whether there was one before.
    pub(crate) const fn unreached(&mut self) -> bool {
        let before = self.flags & UNREACHED != 0;
        self.flags |= UNREACHED;
        before
    }

    /// The SYN-ACK of this entry, with the current time.
    pub(crate) fn syn_ack(&self, role: &ListenSettings, clock: u32) -> SynAck {
        let by = (ProvenBy::Cache, clock);
        syn_ack(self.flow(), self.irs(), self.iss(), &self.agreed(), role, by)
    }
}

/// The SYN-ACK of a client and a listener.
#[inline]
pub(crate) fn syn_ack(
    flow: FlowKey,
    irs: Seq,
    iss: Seq,
    agreed: &AgreedOptions,
    role: &ListenSettings,
    (by, clock): (ProvenBy, u32),
) -> SynAck {
    let v4 = flow.remote.ipv4_bits().is_some();
    let marks = agreed.marks().unwrap_or(0);
    SynAck {
        flow,
        seq: iss,
        ack: irs + 1,
        window: role.window,
        // Ours is sent whether or not the client sent its own (RFC 9293 section 3.7.1, SHLD-5)
        // while the cache has room; where cookies answer, a flood may be under way, and the answer
        // to a SYN without options is not longer than that (row 10 of the security bar).
        mss: (agreed.said_mss || by == ProvenBy::Cache).then_some(if v4 {
            role.mss.0
        } else {
            role.mss.1
        }),
        window_scale: agreed.window_scale.map(|_| role.window_scale),
        sack: agreed.sack,
        timestamp: agreed.timestamp.map(|echo| (timestamp::marked(clock, marks), echo)),
        ecn: agreed.ecn,
    }
}

#[cfg(test)]
mod tests {
    use core::net::IpAddr;

    use super::*;

    #[test]
    fn an_entry_is_one_cache_line_and_keeps_what_it_was_given() {
        assert_eq!((size_of::<SynEntry>(), align_of::<SynEntry>()), (64, 64));
        let end = |addr: &str, port| Endpoint::new(addr.parse::<IpAddr>().unwrap(), port);
        for (local, remote, zone) in [("10.0.0.1", "10.0.0.2", 0), ("fe80::1", "fe80::2", 3)] {
            let flow = FlowKey {
                local: end(local, 80),
                remote: end(remote, 9),
                zone: IfIndex(zone),
                protocol: 6,
            };
            let agreed = AgreedOptions {
                mss: 1440,
                said_mss: true,
                window_scale: Some(14),
                sack: true,
                ecn: false,
                timestamp: Some(u32::MAX),
            };
            let mut entry =
                SynEntry::new(&flow, (Seq(1), Seq(2), 3), &agreed, ListenerId::default(), 4);
            assert!(entry.is_of(&flow) && entry.flow() == flow);
            assert!(!entry.is_of(&FlowKey { zone: IfIndex(zone + 1), ..flow }));
            assert_eq!((entry.irs(), entry.iss(), entry.window()), (Seq(1), Seq(2), 3));
            assert_eq!(entry.agreed(), agreed);
            entry.refresh(Some(u32::MAX - 1));
            assert_eq!(entry.agreed().timestamp, Some(u32::MAX), "an old one does not count");
            entry.refresh(Some(5));
            assert_eq!(entry.agreed().timestamp, Some(5), "a later one does, across the wrap");
            assert!(!entry.unreached() && entry.unreached());
            let bare = AgreedOptions { window_scale: None, timestamp: None, ..agreed };
            let entry = SynEntry::new(&flow, (Seq(1), Seq(2), 3), &bare, ListenerId::default(), 4);
            assert_eq!((entry.agreed(), bare.marks()), (bare, None));
        }
    }
}
