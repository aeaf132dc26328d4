//! The SYN cookie: the options of a SYN, encoded in our initial sequence number.
//!
//! Called by `syn_cache.rs` for every SYN-ACK, cached or not, and for an ACK that matches no entry.
//! The design document with every choice and its reason is `docs/design/syn-cookie.md`. The layout,
//! from the top:
//!
//! ```text
//! 31                                8 7     5 4   2   1      0
//! |  24 bits of SipHash-2-4          | scale | MSS | SACK | odd | ^ the top eight bits
//! ```
//!
//! The hash covers both ends, the zone, the client's sequence number, the flags themselves and,
//! where timestamps are in use, the six option bits of ours (`timestamp.rs`): so any change to what
//! the client sends back makes the cookie invalid. Invariants: a cookie never encodes more than the
//! client offered (segment size and scale are rounded down); verification reads no memory but the
//! keys and takes the same time for every cookie value.

use floodwall_base::{FlowKey, FlowWords, Seq};

use crate::secret::CookieKey;

/// Segment sizes that a cookie can encode for an IPv4 client: the floor, the default, tunnels,
/// PPPoE and Ethernet, jumbo frames.
const MSS_V4: [u16; 8] = [88, 536, 1220, 1360, 1400, 1440, 1460, 8960];
/// The same for IPv6: 20 bytes less of each link.
const MSS_V6: [u16; 8] = [88, 1220, 1280, 1360, 1380, 1420, 1440, 8940];
/// Window scales that a cookie can encode; the first means no scaling.
const COOKIE_SCALES: [u8; 7] = [0, 2, 4, 6, 7, 8, 10];
/// How many of these are at most each window scale that there is (RFC 7323 section 2.3).
const SCALES_WITHIN: [u8; 15] = [1, 1, 2, 2, 3, 3, 4, 5, 6, 6, 7, 7, 7, 7, 7];

/// The flags byte of a cookie, as table indices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CookieOptions {
    mss: u8,
    scale: u8,
    sack: bool,
}

impl CookieOptions {
    /// The encodable part of a SYN's options, rounded down.
    #[inline]
    pub(crate) fn of(flow: &FlowKey, mss: u16, scale: Option<u8>, sack: bool) -> Self {
        // Most links carry one of the largest.
        let fitting = sizes(flow).iter().rposition(|size| *size <= mss);
        let within = |shift| SCALES_WITHIN.get(usize::from(shift)).copied();
        let scale = scale.map_or(0, |shift: u8| within(shift).unwrap_or(7));
        Self { mss: fitting.unwrap_or(0) as u8, scale, sack }
    }

    #[inline]
    const fn flags(self, odd: bool) -> u8 {
        self.scale << 5 | self.mss << 2 | (self.sack as u8) << 1 | odd as u8
    }

    #[inline]
    const fn of_flags(flags: u8) -> Self {
        Self { scale: flags >> 5, mss: flags >> 2 & 7, sack: flags & 2 != 0 }
    }

    /// The encoded segment size.
    pub(crate) fn mss(self, flow: &FlowKey) -> u16 {
        sizes(flow).get(usize::from(self.mss)).copied().unwrap_or(MSS_V4[0])
    }

    /// The encoded window scale.
    pub(crate) fn scale(self) -> Option<u8> {
        COOKIE_SCALES.get(usize::from(self.scale.checked_sub(1)?)).copied()
    }

    /// Whether the client permits selective acknowledgements.
    pub(crate) const fn sack(self) -> bool {
        self.sack
    }
}

#[inline]
fn sizes(flow: &FlowKey) -> &'static [u16; 8] {
    if flow.remote.ipv4_bits().is_some() { &MSS_V4 } else { &MSS_V6 }
}

/// Whether a cookie was made in an odd epoch; selects the key.
#[inline]
pub(crate) const fn is_odd(cookie: Seq) -> bool {
    flags_of(cookie) & 1 == 1
}

#[inline]
const fn flags_of(cookie: Seq) -> u8 {
    cookie.0 as u8 ^ (cookie.0 >> 24) as u8
}

/// Computes the cookie. `marks` are the option bits of our timestamp, where the client uses
/// timestamps.
#[inline]
pub(crate) fn make(
    key: &CookieKey,
    odd: bool,
    flow: &FlowWords,
    irs: Seq,
    kept: CookieOptions,
    marks: Option<u8>,
) -> Seq {
    seal(key, flow, irs, kept.flags(odd), marks)
}

#[inline]
fn seal(key: &CookieKey, flow: &FlowWords, irs: Seq, flags: u8, marks: Option<u8>) -> Seq {
    let marks = marks.map_or(0, |bits| 0x80 | bits);
    let said = u64::from(irs.0) << 32 | u64::from(flags) << 8 | u64::from(marks);
    let mac = key.mac(flow.with(said).as_slice()) as u32 & !0xff;
    Seq(mac | u32::from(flags ^ (mac >> 24) as u8))
}

/// The options that a cookie encodes, if it is valid under this key. The comparison is of one
/// whole word, so that its time does not depend on how many bits are right.
#[inline]
pub(crate) fn open(
    key: &CookieKey,
    flow: &FlowWords,
    irs: Seq,
    cookie: Seq,
    marks: Option<u8>,
) -> Option<CookieOptions> {
    let flags = flags_of(cookie);
    let difference = seal(key, flow, irs, flags, marks).0 ^ cookie.0;
    (difference == 0).then(|| CookieOptions::of_flags(flags))
}

#[cfg(test)]
mod tests {
    use core::net::IpAddr;
    use std::collections::BTreeSet;

    use floodwall_base::{Endpoint, IfIndex, Instant};
    use proptest::prelude::*;

    use super::*;
    use crate::moment::CookieMoment;
    use crate::secret::{Keyring, Secret};

    fn key(n: u8) -> CookieKey {
        let bytes: Vec<u8> = (0..32).map(|b| b ^ n).collect();
        let at = CookieMoment::simulated(Instant::ORIGIN);
        Keyring::new(Secret::from_bytes(&bytes).unwrap(), at).current(at).0
    }

    fn flow(v6: bool) -> FlowKey {
        let end = |addr: &str, port| Endpoint::new(addr.parse::<IpAddr>().unwrap(), port);
        let (local, remote) = if v6 { ("fd00::1", "fd00::2") } else { ("10.0.0.1", "10.0.0.2") };
        FlowKey { local: end(local, 80), remote: end(remote, 4711), zone: IfIndex(0), protocol: 6 }
    }

    #[test]
    fn segment_sizes_are_rounded_down_and_never_up() {
        for v6 in [false, true] {
            let flow = flow(v6);
            for mss in 88..=u16::MAX {
                let said = CookieOptions::of(&flow, mss, None, false).mss(&flow);
                assert!(said <= mss, "{mss} became {said}");
            }
            let table = if v6 { MSS_V6 } else { MSS_V4 };
            for mss in table {
                assert_eq!(CookieOptions::of(&flow, mss, None, false).mss(&flow), mss);
                let below = CookieOptions::of(&flow, (mss - 1).max(88), None, false).mss(&flow);
                assert!(below < mss || mss == 88);
            }
            // Values below the floor cannot occur: `SynSegment::mss` has raised them.
            assert_eq!(CookieOptions::of(&flow, 0, None, false).mss(&flow), 88);
        }
    }

    #[test]
    fn the_table_of_scales_counts_those_that_are_within_each() {
        for (shift, within) in (0..).zip(SCALES_WITHIN) {
            let count = COOKIE_SCALES.iter().filter(|scale| **scale <= shift).count();
            assert_eq!(usize::from(within), count, "{shift}");
        }
    }

    #[test]
    fn window_scales_are_rounded_down_and_none_stays_none() {
        let flow = flow(false);
        assert_eq!(CookieOptions::of(&flow, 1460, None, false).scale(), None);
        for shift in 0..=14 {
            let said = CookieOptions::of(&flow, 1460, Some(shift), false).scale().unwrap();
            assert!(said <= shift && (shift > 10 || shift - said <= 1), "{shift} became {said}");
        }
        for exact in COOKIE_SCALES {
            assert_eq!(CookieOptions::of(&flow, 1460, Some(exact), false).scale(), Some(exact));
        }
    }

    proptest! {
        #[test]
        fn what_is_kept_comes_back_and_every_changed_bit_is_refused(
            v6: bool, irs: u32, mss in 88_u16.., scale in proptest::option::of(0_u8..15),
            sack: bool, odd: bool, marks in proptest::option::of(0_u8..64), bit in 0_u32..32,
        ) {
            let (flow, irs, key) = (flow(v6), Seq(irs), key(1));
            let words = FlowWords::of(&flow);
            let kept = CookieOptions::of(&flow, mss, scale, sack);
            let cookie = make(&key, odd, &words, irs, kept, marks);
            prop_assert_eq!(open(&key, &words, irs, cookie, marks), Some(kept));
            prop_assert_eq!(is_odd(cookie), odd);
            // With these fixed keys and inputs, no collision of probability 2^-24 occurs.
            prop_assert_eq!(open(&key, &words, irs, Seq(cookie.0 ^ 1 << bit), marks), None);
            prop_assert_eq!(open(&key, &words, irs + 1, cookie, marks), None);
            let other = marks.map_or(Some(0), |m| Some(m ^ 1));
            prop_assert_eq!(open(&key, &words, irs, cookie, other), None);
        }
    }

    /// The attack surface of a forger: of the 2^32 numbers, 256 are valid for a flow and a
    /// client's number, one for each flags byte. There cannot be more: the decoded flags are the
    /// ones that the hash covers.
    #[test]
    fn one_number_for_each_flags_byte_is_a_cookie() {
        for (n, v6) in (0..32).flat_map(|n| [(n, false), (n, true)]) {
            let (key, words) = (key(n), FlowWords::of(&flow(v6)));
            for marks in [None, Some(17)] {
                let sealed = |flags| seal(&key, &words, Seq(9), flags, marks);
                let all: BTreeSet<_> = (0..=u8::MAX).map(|flags| sealed(flags).0).collect();
                assert_eq!(all.len(), 256);
                for (flags, cookie) in (0..=u8::MAX).map(|flags| (flags, sealed(flags))) {
                    assert_eq!((flags_of(cookie), is_odd(cookie)), (flags, flags & 1 == 1));
                    let kept = open(&key, &words, Seq(9), cookie, marks);
                    assert_eq!(kept, Some(CookieOptions::of_flags(flags)));
                }
            }
        }
    }

    #[test]
    fn of_a_million_numbers_hardly_one_is_a_cookie() {
        let (flow, key) = (FlowWords::of(&flow(false)), key(2));
        let tries = 1_u32 << 20;
        let step = 0x9e37_79b1_u32;
        let good = (0..tries)
            .filter(|n| open(&key, &flow, Seq(7), Seq(n.wrapping_mul(step)), None).is_some())
            .count();
        // A sixteenth is expected; more than three occur once in two million keys. The whole
        // cache is tried with up to 2^32 values in `tests/cookies.rs`.
        assert!(good <= 3, "{good} of 2^20");
    }

    #[test]
    fn sequence_numbers_of_cookies_are_spread_over_the_whole_circle() {
        let (flow, key) = (FlowWords::of(&flow(false)), key(3));
        let kept = CookieOptions { mss: 6, scale: 5, sack: true };
        let mut buckets = [0_u32; 256];
        let mut low = [0_u32; 256];
        for n in 0..65_536 {
            let iss = make(&key, false, &flow, Seq(n), kept, None).0;
            buckets[(iss >> 24) as usize] += 1;
            low[(iss & 0xff) as usize] += 1;
        }
        // 256 each, within five sigma of 16.
        for counted in buckets.iter().chain(&low) {
            assert!((176..=336).contains(counted), "{counted}");
        }
    }
}
