//! What a router may do with a packet for another host, decided by its header alone.
//!
//! Called by `stack/forward.rs`, which looks up routes and acts. Invariants: nothing here looks at
//! a table or changes anything but the hop limit; the ICMP error for a refused packet's source is
//! returned as data. A router looks at the fixed header, at IPv4 options and at the hop-by-hop
//! header, and at nothing behind. Reading: RFC 1812 sections 4.2.2.9, 5.2.4, 5.3, RFC 6890 (which
//! addresses no router passes on), RFC 1624 (the checksum patched), RFC 8200 sections 4 and 4.3,
//! RFC 4443 sections 3.1 to 3.3, RFC 4007 section 9, RFC 3704 (reverse path filtering). Not here:
//! routes, neighbours, cutting (`fragment.rs`).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use floodwall_base::{Address, DropReason, Family, ipv4_is_reserved};
use floodwall_checksum::update16;
use floodwall_fib::RouteKind;
use floodwall_packet::{AccessCounters, PacketBuf};
use floodwall_wire::{ExtensionLimits, IpProtocol, ipv4};

use crate::action::{IcmpError, RefusedAction};
use crate::chain;
use crate::input::{self, ArrivedHeading};

/// Whether the way back to a source is looked at before its packets are passed on (RFC 3704), in
/// the numbers of Linux's `rp_filter`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReversePath {
    /// It is not.
    #[default]
    Off,
    /// It must lead back through the interface that the packet came by. Where the way back is one
    /// of several it counts as [`ReversePath::Loose`]: any of them may be the neighbour's choice.
    Strict,
    /// There must be one.
    Loose,
}

/// Source and destination addresses that are not forwarded, besides those that are invalid on any
/// link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Martians {
    /// None: a laboratory uses the addresses of documentation.
    #[default]
    Impossible,
    /// All that the registries of RFC 6890 call not forwardable: documentation, benchmarks'
    /// translations, reserved blocks.
    Registry,
}

/// Blocks of IPv4 that are not forwardable by the registry (RFC 6890 section 2.2.2), besides those
/// that are invalid in any packet.
const REGISTRY_V4: [(Ipv4Addr, u8); 4] = [
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
];
/// Of the first of them, what is forwardable nevertheless: DS-Lite (RFC 6333 section 5.7) and the
/// two anycast addresses of RFC 7723 and RFC 8155.
const FORWARDABLE_V4: [(Ipv4Addr, u8); 3] = [
    (Ipv4Addr::new(192, 0, 0, 0), 29),
    (Ipv4Addr::new(192, 0, 0, 9), 32),
    (Ipv4Addr::new(192, 0, 0, 10), 32),
];
/// Blocks of IPv6 that are not forwardable by the registry (RFC 6890 section 2.2.3): documentation,
/// twice (RFC 9637), and ORCHID.
const REGISTRY_V6: [(Ipv6Addr, u8); 3] = [
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
    (Ipv6Addr::new(0x2001, 0x10, 0, 0, 0, 0, 0, 0), 28),
];

/// Whether the special-purpose registry forbids routers to forward packets with this address.
#[must_use]
pub fn is_registered_martian(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(addr) => {
            let within = |(block, len): &(Ipv4Addr, u8)| {
                let mask = u32::MAX.checked_shl(32 - u32::from(*len)).unwrap_or(0);
                (addr.to_bits() ^ block.to_bits()) & mask == 0
            };
            REGISTRY_V4.iter().any(within) && !FORWARDABLE_V4.iter().any(within)
        }
        IpAddr::V6(addr) => REGISTRY_V6.iter().any(|(block, len)| {
            let mask = u128::MAX.checked_shl(128 - u32::from(*len)).unwrap_or(0);
            (addr.to_bits() ^ block.to_bits()) & mask == 0
        }),
    }
}

/// Whether a packet's addresses let it cross a router with a link in 240/4 if
/// `reserved`. The caller has checked with
/// [`input::ipv4_addresses`] or its IPv6 counterpart that the destination is no group and not ours.
///
/// # Errors
/// Why it is not forwarded. A source of link-local IPv6 scope gets an error (RFC 4443 section 3.1,
/// code 2).
#[inline]
pub fn may_cross<A: Address>(
    src_addr: A,
    dst_addr: A,
    martians: Martians,
    reserved: bool,
) -> Result<(), RefusedAction> {
    if src_addr.is_link_scope() || dst_addr.is_link_scope() {
        return Err(out_of_scope(dst_addr));
    }
    let impossible = match (src_addr.to_ip(), dst_addr.to_ip()) {
        // A source in 240/4 was refused on arrival, unless one of our links is there.
        (_, IpAddr::V4(to)) => to.is_broadcast() || !reserved && ipv4_is_reserved(to),
        (from, _) => from.is_unspecified(),
    };
    if impossible || martians == Martians::Registry && is_either_registered(src_addr, dst_addr) {
        return Err(DropReason::ForwardMartian.into());
    }
    Ok(())
}

#[cold]
fn out_of_scope<A: Address>(dst_addr: A) -> RefusedAction {
    let reason = DropReason::ForwardLinkScope;
    // No error about a link-local destination that cannot be reached from here: the address is
    // ambiguous between links.
    match A::FAMILY == Family::V6 && !dst_addr.is_link_scope() {
        true => RefusedAction::owing(reason, IcmpError::BeyondScope),
        false => reason.into(),
    }
}

#[cold]
fn is_either_registered<A: Address>(src_addr: A, dst_addr: A) -> bool {
    is_registered_martian(src_addr.to_ip()) || is_registered_martian(dst_addr.to_ip())
}

/// Whether a packet has a hop left, and the headers that a router must look at let it pass: IPv4
/// options (source routes are dropped, broken ones answered, the others passed on as they are), and
/// of IPv6 the hop-by-hop header.
///
/// # Errors
/// Why it is dropped, and its ICMP error.
#[inline]
pub fn may_go_on<A: Address>(
    packet: &PacketBuf,
    l3: usize,
    heading: &ArrivedHeading<A>,
    limits: &ExtensionLimits,
    access: &mut AccessCounters,
) -> Result<(), RefusedAction> {
    if heading.hop_limit <= 1 {
        let reason = DropReason::HopLimitExceeded;
        return Err(RefusedAction::owing(reason, IcmpError::HopLimitExceeded));
    }
    if A::FAMILY == Family::V4 {
        if heading.header_len > ipv4::HEADER_LEN {
            let len = heading.header_len - ipv4::HEADER_LEN;
            return input::ipv4_options(packet, l3, len, access);
        }
        return Ok(());
    }
    if heading.protocol == IpProtocol::HOP_BY_HOP {
        return chain::hop_by_hop(packet, l3, heading.total_len, limits, access);
    }
    Ok(())
}

/// What an unreachable, prohibit or blackhole route does with a packet, in both families' codes.
#[must_use]
#[cold]
pub const fn nowhere<A: Address>(kind: RouteKind) -> RefusedAction {
    let v4 = matches!(A::FAMILY, Family::V4);
    let unreachable = if v4 { IcmpError::HostUnreachable } else { IcmpError::NoRoute };
    match kind {
        RouteKind::Blackhole => RefusedAction { reason: DropReason::RouteBlackhole, owed: None },
        RouteKind::Prohibit => {
            RefusedAction::owing(DropReason::RouteProhibited, IcmpError::Prohibited)
        }
        RouteKind::Unreachable => RefusedAction::owing(DropReason::RouteUnreachable, unreachable),
        RouteKind::Unicast | RouteKind::Local => {
            RefusedAction::owing(DropReason::NoRoute, IcmpError::NoRoute)
        }
    }
}

/// How a packet gets through its next link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fit {
    /// As it is.
    Whole,
    /// In pieces: its sender allows that.
    Cut,
    /// Not at all.
    TooBig,
}

/// How a packet larger than `mtu` is forwarded. `dont_fragment` is read for an IPv4 packet only.
#[inline]
#[must_use]
pub fn fit<A: Address>(len: usize, mtu: u32, dont_fragment: impl FnOnce() -> bool) -> Fit {
    match len <= mtu as usize {
        true => Fit::Whole,
        false if A::FAMILY == Family::V4 && !dont_fragment() => Fit::Cut,
        false => Fit::TooBig,
    }
}

/// Decrements the hop limit in the first twelve bytes of an IP header, and patches IPv4's checksum
/// (RFC 1624 equation 3). The caller has checked that it is above one.
#[inline]
pub const fn lower_hop_limit<A: Address>(header: &mut [u8; 12]) {
    if matches!(A::FAMILY, Family::V6) {
        header[7] = header[7].wrapping_sub(1);
        return;
    }
    let before = u16::from_be_bytes([header[8], header[9]]);
    header[8] = header[8].wrapping_sub(1);
    let after = u16::from_be_bytes([header[8], header[9]]);
    let check = u16::from_be_bytes([header[10], header[11]]);
    [header[10], header[11]] = update16(check, before, after).to_be_bytes();
}

/// Whether the way back to a packet's source lets it pass: `back` has the kind of the route there,
/// its interface, and whether it is one of several.
#[must_use]
pub fn comes_by_its_way(
    mode: ReversePath,
    back: Option<(RouteKind, bool)>,
    is_same_interface: bool,
) -> bool {
    match (mode, back) {
        (ReversePath::Off, _) => true,
        (_, None) => false,
        (ReversePath::Loose, Some((kind, _))) => kind.is_unicast(),
        (ReversePath::Strict, Some((kind, is_choice))) => {
            kind.is_unicast() && (is_same_interface || is_choice)
        }
    }
}

#[cfg(test)]
mod tests {
    use floodwall_wire::{Ipv4Fields, Ipv4Header};

    use super::*;

    fn v4(text: &str) -> Ipv4Addr {
        text.parse().unwrap()
    }

    fn v6(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    #[test]
    fn the_checksum_is_right_after_every_hop() {
        for id in [0, 1, 0x00ff, 0x7fff, 0xfffe, u16::MAX] {
            let mut fields =
                Ipv4Fields::new(v4("10.0.0.1"), v4("10.9.0.1"), IpProtocol::UDP, 255, 64);
            fields.id = id;
            let mut bytes = [0; ipv4::HEADER_LEN];
            fields.emit(&mut bytes);
            for ttl in (1..255).rev() {
                lower_hop_limit::<Ipv4Addr>(bytes.first_chunk_mut().unwrap());
                // Parsing verifies the sum.
                assert_eq!(Ipv4Header::parse(&bytes, 64).unwrap().ttl(), ttl, "{id:#x}");
            }
        }
        let mut header = [0x60, 0, 0, 0, 0, 0, 17, 64, 0, 0, 0, 0];
        lower_hop_limit::<Ipv6Addr>(&mut header);
        assert_eq!(header, [0x60, 0, 0, 0, 0, 0, 17, 63, 0, 0, 0, 0]);
    }

    #[test]
    fn what_is_valid_on_its_link_only_stays_there() {
        let far = v4("10.9.0.1");
        for (from, to) in [("169.254.1.1", "10.9.0.1"), ("10.0.0.1", "169.254.1.1")] {
            let refused = may_cross(v4(from), v4(to), Martians::Impossible, false).unwrap_err();
            assert_eq!((refused.reason, refused.owed), (DropReason::ForwardLinkScope, None));
        }
        assert!(may_cross(v4("10.0.0.1"), far, Martians::Registry, false).is_ok());
        let refused =
            may_cross(v6("fe80::1"), v6("fd00:9::1"), Martians::Impossible, false).unwrap_err();
        assert_eq!(refused.owed, Some(IcmpError::BeyondScope));
        let refused =
            may_cross(v6("fd00::1"), v6("fe80::1"), Martians::Impossible, false).unwrap_err();
        assert_eq!((refused.reason, refused.owed), (DropReason::ForwardLinkScope, None));
    }

    #[test]
    fn the_registry_is_asked_where_that_is_wanted() {
        for (addr, martian) in [
            ("192.0.2.1", true),
            ("198.51.100.255", true),
            ("203.0.113.0", true),
            ("192.0.0.8", true),
            ("192.0.0.7", false),
            ("192.0.0.9", false),
            ("192.0.1.0", false),
            ("100.64.0.1", false),
            ("198.18.0.1", false),
            ("2001:db8::1", true),
            ("3fff:fff::1", true),
            ("2001:1f::1", true),
            ("2001:20::1", false),
            ("64:ff9b::1", false),
            ("fd00::1", false),
        ] {
            assert_eq!(is_registered_martian(addr.parse().unwrap()), martian, "{addr}");
        }
        let (near, doc) = (v4("10.0.0.1"), v4("192.0.2.1"));
        assert!(may_cross(near, doc, Martians::Impossible, false).is_ok());
        for (from, to) in [(near, doc), (doc, near)] {
            let refused = may_cross(from, to, Martians::Registry, false).unwrap_err();
            assert_eq!(refused.reason, DropReason::ForwardMartian);
        }
        for to in ["240.0.0.1", "255.255.255.255"] {
            assert!(may_cross(near, v4(to), Martians::Impossible, false).is_err(), "{to}");
        }
        assert!(
            may_cross(Ipv6Addr::UNSPECIFIED, v6("fd00::1"), Martians::Impossible, false).is_err()
        );
    }

    #[test]
    fn the_way_back_is_judged_as_configured() {
        use ReversePath::{Loose, Off, Strict};
        let (there, hole) =
            (Some((RouteKind::Unicast, false)), Some((RouteKind::Blackhole, false)));
        let several = Some((RouteKind::Unicast, true));
        for (mode, back, same, passes) in [
            (Off, None, false, true),
            (Off, hole, false, true),
            (Loose, None, false, false),
            (Loose, hole, true, false),
            (Loose, there, false, true),
            (Strict, None, true, false),
            (Strict, hole, true, false),
            (Strict, there, false, false),
            (Strict, there, true, true),
            (Strict, several, false, true),
        ] {
            assert_eq!(comes_by_its_way(mode, back, same), passes, "{mode:?} {back:?} {same}");
        }
    }

    #[test]
    fn only_ipv4_without_the_dont_fragment_bit_is_cut() {
        assert_eq!(fit::<Ipv4Addr>(1500, 1500, || unreachable!()), Fit::Whole);
        assert_eq!(fit::<Ipv4Addr>(1501, 1500, || false), Fit::Cut);
        assert_eq!(fit::<Ipv4Addr>(1501, 1500, || true), Fit::TooBig);
        assert_eq!(fit::<Ipv6Addr>(1501, 1500, || false), Fit::TooBig);
    }
}
