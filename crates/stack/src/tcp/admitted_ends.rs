//! Ends between which the network layer has admitted segments: others between them need not be
//! asked about again.
//!
//! Part of a shard's TCP; used by `admit.rs`. The network layer's decision depends on addresses and
//! interface alone, and is guarded by the same generation as predictions are.
//!
//! # Under flood
//! [`ENDS_ADMITTED`] entries, noted only when a connection has taken a segment, each overwritten by
//! the next peer of its place: invented sources add none.

use core::net::IpAddr;

use floodwall_base::{IfIndex, limits};
use floodwall_tcp::FlowAdmission;

/// Pairs of ends that are remembered.
const ENDS_ADMITTED: usize = limits::TCP_ADMITTED_ENDS;

/// The addresses of a packet as its header has them, source first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HeaderAddrs {
    V4([u8; 8]),
    V6([u8; 32]),
}

impl HeaderAddrs {
    fn of(ends: (IpAddr, IpAddr)) -> Option<Self> {
        let mut v6 = [0; 32];
        let mut v4 = [0; 8];
        match ends {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                v4[..4].copy_from_slice(&from.octets());
                v4[4..].copy_from_slice(&to.octets());
                Some(Self::V4(v4))
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                v6[..16].copy_from_slice(&from.octets());
                v6[16..].copy_from_slice(&to.octets());
                Some(Self::V6(v6))
            }
            _ => None,
        }
    }

    /// Whether the plain IP header at the front of `ip` has these.
    #[inline]
    fn are_of(&self, ip: &[u8]) -> bool {
        match self {
            Self::V4(ours) => {
                ip.first() == Some(&0x45)
                    && ip.get(12..).and_then(<[u8]>::first_chunk) == Some(ours)
            }
            Self::V6(ours) => {
                ip.first().is_some_and(|first| first >> 4 == 6)
                    && ip.get(8..).and_then(<[u8]>::first_chunk) == Some(ours)
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct AdmittedPair {
    addrs: HeaderAddrs,
    admission: FlowAdmission,
}

/// Between which ends segments were admitted, where, and under which generation of rules.
#[derive(Debug)]
pub(super) struct AdmittedEnds([AdmittedPair; ENDS_ADMITTED]);

impl AdmittedEnds {
    /// None yet.
    pub(super) const NONE: Self = Self(
        [AdmittedPair {
            addrs: HeaderAddrs::V4([0; 8]),
            admission: FlowAdmission { iface: IfIndex(u16::MAX), generation: 0 },
        }; ENDS_ADMITTED],
    );

    /// Where the pair of this source would be, by the last byte of its address.
    #[inline]
    fn place_of(last: u8) -> usize {
        usize::from(last) % ENDS_ADMITTED
    }

    /// Whether they were noted under `admission`.
    #[inline]
    pub(super) fn has(&self, ends: (IpAddr, IpAddr), admission: FlowAdmission) -> bool {
        let pair = self.0.get(Self::place_of(last_byte(ends.0)));
        let addrs = HeaderAddrs::of(ends);
        pair.is_some_and(|pair| pair.admission == admission && Some(pair.addrs) == addrs)
    }

    /// The addresses of the plain packet at the front of `ip`, if they were noted under
    /// `admission`. `last` is the last byte of its source.
    #[inline]
    pub(super) fn of_packet(
        &self,
        ip: &[u8],
        last: u8,
        admission: FlowAdmission,
    ) -> Option<&HeaderAddrs> {
        let pair = self.0.get(Self::place_of(last))?;
        (pair.admission == admission && pair.addrs.are_of(ip)).then_some(&pair.addrs)
    }

    /// Notes that a segment between these ends was admitted.
    pub(super) fn note(&mut self, ends: (IpAddr, IpAddr), admission: FlowAdmission) {
        if let Some(addrs) = HeaderAddrs::of(ends)
            && let Some(pair) = self.0.get_mut(Self::place_of(last_byte(ends.0)))
        {
            *pair = AdmittedPair { addrs, admission };
        }
    }
}

fn last_byte(addr: IpAddr) -> u8 {
    match addr {
        IpAddr::V4(addr) => addr.octets()[3],
        IpAddr::V6(addr) => addr.octets()[15],
    }
}
