//! Which of our addresses to send from (RFC 6724 section 5, both families).
//!
//! Called by `stack` for what has no source address yet: new sockets, errors about packets that we
//! have no address for, solicitations. Invariant: only assigned addresses are chosen, and never one
//! that could not be answered from where the packet goes: a link-local or group destination gets an
//! address of the outgoing interface alone. The host model is strong by preference: of equally good
//! addresses the outgoing interface's wins (rule 5). Cost: one pass over the addresses, for new
//! flows only. Not here: rule 4 (no mobile addresses), rule 5.5 and rule 7 (no prefixes by router,
//! no temporary addresses yet), the order of destinations (section 6).

use core::cmp::Ordering;
use core::net::{IpAddr, Ipv6Addr};

use floodwall_base::IfIndex;

use crate::iface::{AddressState, Interface};

/// An address that might be chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourceCandidate {
    /// The address.
    pub addr: IpAddr,
    /// Its prefix length.
    pub prefix_len: u8,
    /// The interface that has it.
    pub iface: IfIndex,
    /// How far it may be used.
    pub state: AddressState,
}

/// The best source address for a packet to `dst_addr` that leaves through `outgoing`; `None` where
/// no address of ours may be used.
#[must_use]
pub fn source_address<'a>(
    dst_addr: IpAddr,
    outgoing: IfIndex,
    interfaces: impl IntoIterator<Item = &'a Interface>,
) -> Option<IpAddr> {
    let candidates = interfaces.into_iter().flat_map(|iface| {
        iface.addresses().map(|a| SourceCandidate {
            addr: a.addr,
            prefix_len: a.prefix_len,
            iface: iface.index,
            state: a.state,
        })
    });
    choose_source(dst_addr, outgoing, candidates)
}

/// The best of `candidates`; of equals, the first.
#[must_use]
pub fn choose_source(
    dst_addr: IpAddr,
    outgoing: IfIndex,
    candidates: impl IntoIterator<Item = SourceCandidate>,
) -> Option<IpAddr> {
    let possible = candidates.into_iter().filter(|c| may_serve(c, dst_addr, outgoing));
    possible
        .reduce(|best, next| match compare(&next, &best, dst_addr, outgoing) {
            Ordering::Greater => next,
            _ => best,
        })
        .map(|best| best.addr)
}

/// Whether the address may stand as the packet's source at all (RFC 6724 section 4, RFC 4007).
fn may_serve(candidate: &SourceCandidate, dst_addr: IpAddr, outgoing: IfIndex) -> bool {
    let here = candidate.iface == outgoing;
    let bound_to_its_link = is_link_local(candidate.addr) && candidate.addr != dst_addr;
    let asks_for_this_link = dst_addr.is_multicast() || is_link_local(dst_addr);
    let stays_inside = candidate.addr.is_loopback() && outgoing != IfIndex::LOOPBACK;
    candidate.addr.is_ipv4() == dst_addr.is_ipv4()
        && candidate.state.is_assigned()
        && (here || !(bound_to_its_link || asks_for_this_link))
        && !stays_inside
}

/// Which of two candidates is better: `Greater` for `a` (RFC 6724 section 5).
fn compare(
    a: &SourceCandidate,
    b: &SourceCandidate,
    dst_addr: IpAddr,
    outgoing: IfIndex,
) -> Ordering {
    // A truth is better than none, rule by rule.
    let same = |c: &SourceCandidate| c.addr == dst_addr;
    let preferred = |c: &SourceCandidate| c.state != AddressState::Deprecated;
    let here = |c: &SourceCandidate| c.iface == outgoing;
    let labelled = |c: &SourceCandidate| label(c.addr) == label(dst_addr);
    same(a)
        .cmp(&same(b))
        .then_with(|| by_scope(scope(a.addr), scope(b.addr), scope(dst_addr)))
        .then_with(|| preferred(a).cmp(&preferred(b)))
        .then_with(|| here(a).cmp(&here(b)))
        .then_with(|| labelled(a).cmp(&labelled(b)))
        .then_with(|| matching(a, dst_addr).cmp(&matching(b, dst_addr)))
}

/// Rule 2: the smaller scope wins if it still reaches as far as the destination; else the larger.
fn by_scope(a: u8, b: u8, dst_scope: u8) -> Ordering {
    match a.cmp(&b) {
        Ordering::Less if a < dst_scope => Ordering::Less,
        Ordering::Less => Ordering::Greater,
        Ordering::Greater if b < dst_scope => Ordering::Greater,
        Ordering::Greater => Ordering::Less,
        Ordering::Equal => Ordering::Equal,
    }
}

/// Rule 8: how many leading bits agree, the prefix's at most (RFC 6724 section 2.2).
fn matching(candidate: &SourceCandidate, dst_addr: IpAddr) -> u32 {
    let agree = match (candidate.addr, dst_addr) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => 0,
    };
    agree.min(u32::from(candidate.prefix_len))
}

fn is_link_local(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(addr) => addr.is_link_local(),
        IpAddr::V6(addr) => addr.is_unicast_link_local(),
    }
}

/// How far an address reaches, in RFC 4291's numbers (RFC 6724 sections 3.1 and 3.2).
const fn scope(addr: IpAddr) -> u8 {
    const LINK: u8 = 0x2;
    const SITE: u8 = 0x5;
    const GLOBAL: u8 = 0xe;
    match addr {
        IpAddr::V4(addr) if addr.is_link_local() || addr.is_loopback() => LINK,
        // Groups of the local network (RFC 5771 section 4), and administrative ones (RFC 2365).
        IpAddr::V4(addr) => match addr.octets() {
            [224, 0, 0, _] => LINK,
            [239, 255, ..] => 0x3,
            [239, 192..=195, ..] => 0x8,
            _ => GLOBAL,
        },
        IpAddr::V6(addr) => match addr.segments() {
            [first @ 0xff00..=0xffff, ..] => (first & 0xf) as u8,
            [0xfe80..=0xfebf, ..] | [0, 0, 0, 0, 0, 0, 0, 1] => LINK,
            [0xfec0..=0xfeff, ..] => SITE,
            _ => GLOBAL,
        },
    }
}

/// Prefix, its length, and label: the default policy table (RFC 6724 section 2.1), longest first.
const POLICY_TABLE: [(Ipv6Addr, u32, u8); 9] = [
    (Ipv6Addr::LOCALHOST, 128, 0),
    (Ipv6Addr::UNSPECIFIED, 96, 3),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, 4),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, 5),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, 2),
    (Ipv6Addr::new(0x3ffe, 0, 0, 0, 0, 0, 0, 0), 16, 12),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, 11),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, 13),
    (Ipv6Addr::UNSPECIFIED, 0, 1),
];

fn label(addr: IpAddr) -> u8 {
    let addr = match addr {
        IpAddr::V4(addr) => addr.to_ipv6_mapped(),
        IpAddr::V6(addr) => addr,
    };
    let covers = |(prefix, len, _): &&(Ipv6Addr, u32, u8)| {
        (prefix.to_bits() ^ addr.to_bits()).leading_zeros() >= *len
    };
    POLICY_TABLE.iter().find(covers).map_or(1, |(_, _, label)| *label)
}

#[cfg(test)]
#[path = "source_address/tests.rs"]
mod tests;
