//! Which source prefixes send most of what arrives: a sample of packets, by prefix.
//!
//! Shown by `top` and `explain`, and written to the log when a flood begins. The sample is taken by
//! a tap (`capture.rs`) for a fifth of a second; its first 1,024 packets a worker count.
//!
//! # Under flood
//! Reachable by every packet that arrives while an operator looks. Bound: the records of one tap a
//! worker, and as many prefixes.

use std::collections::BTreeMap;
use std::net::IpAddr;

use floodwall_base::IpCidr;
use floodwall_stack::source_of;
use serde::{Deserialize, Serialize};

/// Prefixes that are shown.
const SHOWN_MAX: usize = 5;
/// The least share that is shown.
const SHARE_MIN: f64 = 0.02;
/// Fewer packets than this are no sample.
const PACKETS_MIN: u64 = 50;

/// One prefix and its share of what arrived.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SourceShare {
    /// A /24 of IPv4, a /48 of IPv6.
    pub(crate) prefix: String,
    /// From 0 to 1.
    pub(crate) share: f64,
}

/// Packets by source prefix.
#[derive(Debug, Default)]
pub(crate) struct SourceSample {
    packets: u64,
    prefixes: BTreeMap<IpAddr, u64>,
}

impl SourceSample {
    /// A packet with these first bytes.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let Some(source) = source_of(bytes) else { return };
        let prefix = match source {
            IpAddr::V4(addr) => IpAddr::V4((u32::from(addr) & !0xff).into()),
            IpAddr::V6(addr) => IpAddr::V6((u128::from(addr) & !(u128::MAX >> 48)).into()),
        };
        self.packets += 1;
        *self.prefixes.entry(prefix).or_default() += 1;
    }

    /// The prefixes with the largest shares; none where the sample is too small.
    pub(crate) fn heaviest(self) -> Vec<SourceShare> {
        if self.packets < PACKETS_MIN {
            return Vec::new();
        }
        let mut all: Vec<_> = self.prefixes.into_iter().collect();
        all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let share = |(addr, count): (IpAddr, u64)| {
            let cidr = IpCidr::new(addr, if addr.is_ipv4() { 24 } else { 48 })?;
            let share = count as f64 / self.packets as f64;
            (share >= SHARE_MIN).then(|| SourceShare { prefix: cidr.to_string(), share })
        };
        all.into_iter().filter_map(share).take(SHOWN_MAX).collect()
    }
}

/// In a line: `192.0.2.0/24 43 %, fd00::/48 12 %`.
pub(crate) fn line(sources: &[SourceShare]) -> String {
    if sources.is_empty() {
        return "scattered: no prefix sends 2 % of what arrives".to_owned();
    }
    let one =
        |s: &SourceShare| format!("{} {:.0} %", crate::output::shown(&s.prefix), s.share * 100.0);
    sources.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(source: IpAddr) -> Vec<u8> {
        let mut bytes = match source {
            IpAddr::V4(_) => vec![0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0],
            IpAddr::V6(_) => vec![0x60, 0, 0, 0, 0, 0, 59, 64],
        };
        match source {
            IpAddr::V4(addr) => bytes.extend([addr.octets(), [10, 0, 0, 2]].concat()),
            IpAddr::V6(addr) => bytes.extend([addr.octets(), [9; 16]].concat()),
        }
        bytes
    }

    #[test]
    fn the_heaviest_prefixes_of_both_families_are_shown_with_their_shares() {
        let mut sample = SourceSample::default();
        for n in 0..60_u8 {
            sample.add(&packet(IpAddr::from([192, 0, 2, n])));
        }
        for n in 0..40_u16 {
            sample.add(&packet(IpAddr::from([0x2001, 0xdb8, 7, n, 0, 0, 0, 1])));
        }
        sample.add(b"nothing");
        let shares = sample.heaviest();
        assert_eq!(line(&shares), "192.0.2.0/24 60 %, 2001:db8:7::/48 40 %");
    }

    #[test]
    fn forged_sources_are_scattered_and_few_packets_are_no_sample() {
        let mut sample = SourceSample::default();
        for n in 0..200_u32 {
            sample.add(&packet(IpAddr::from((n * 0x0102_0301).to_be_bytes())));
        }
        assert_eq!(sample.heaviest(), []);
        let mut few = SourceSample::default();
        few.add(&packet(IpAddr::from([192, 0, 2, 1])));
        assert!(few.heaviest().is_empty() && line(&[]).starts_with("scattered"));
    }
}
