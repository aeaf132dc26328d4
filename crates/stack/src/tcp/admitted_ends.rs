//! Ends between which the network layer has admitted segments: others between them need not be
//! asked about again.
//!
//! Part of a shard's TCP; used by `admit.rs`. The network layer's decision depends on addresses and
//! interface alone, and is guarded by the same generation as predictions are.
//!
//! # Under flood
//! [`ENDS_ADMITTED`] entries, noted only when a connection has taken a segment, each overwritten by
//! the next peer of its place: invented sources add none.

use core::net::Ipv6Addr;

use floodwall_base::{IfIndex, limits};
use floodwall_tcp::{AdmittedHosts, FlowAdmission};

/// Pairs of ends that are remembered.
const ENDS_ADMITTED: usize = limits::TCP_ADMITTED_ENDS;

#[derive(Clone, Copy, Debug)]
struct AdmittedPair {
    hosts: AdmittedHosts,
    admission: FlowAdmission,
}

/// Between which ends segments were admitted, where, and under which generation of rules.
#[derive(Debug)]
pub(super) struct AdmittedEnds([AdmittedPair; ENDS_ADMITTED]);

impl AdmittedEnds {
    /// None yet.
    pub(super) const NONE: Self = Self(
        [AdmittedPair {
            hosts: AdmittedHosts {
                src_addr: Ipv6Addr::UNSPECIFIED,
                dst_addr: Ipv6Addr::UNSPECIFIED,
                zone: IfIndex(0),
            },
            admission: FlowAdmission { iface: IfIndex(u16::MAX), generation: 0 },
        }; ENDS_ADMITTED],
    );

    /// Where the pair of this source would be, by the last byte of its address.
    #[inline]
    const fn place_of(src_addr: &Ipv6Addr) -> usize {
        src_addr.to_bits() as usize % ENDS_ADMITTED
    }

    /// The pair with these addresses, IPv4's mapped, if it was noted under `admission`.
    #[inline]
    pub(super) fn between(
        &self,
        src_addr: &Ipv6Addr,
        dst_addr: &Ipv6Addr,
        admission: FlowAdmission,
    ) -> Option<&AdmittedHosts> {
        let AdmittedPair { hosts, admission: noted } = self.0.get(Self::place_of(src_addr))?;
        let is_theirs = hosts.src_addr == *src_addr && hosts.dst_addr == *dst_addr;
        (is_theirs && *noted == admission).then_some(hosts)
    }

    /// Whether a segment between these ends was admitted before; else it is noted that one was, if
    /// others need not be asked about.
    #[inline(never)]
    pub(super) fn notes(
        &mut self,
        hosts: &AdmittedHosts,
        admission: FlowAdmission,
        need_not_be_asked: impl FnOnce() -> bool,
    ) -> bool {
        let is_noted = self.between(&hosts.src_addr, &hosts.dst_addr, admission).is_some();
        if is_noted {
            return true;
        }
        let may = need_not_be_asked();
        if may {
            self.note(hosts, admission);
        }
        may
    }

    fn note(&mut self, hosts: &AdmittedHosts, admission: FlowAdmission) {
        if let Some(pair) = self.0.get_mut(Self::place_of(&hosts.src_addr)) {
            *pair = AdmittedPair { hosts: *hosts, admission };
        }
    }
}
