//! Headers: what a router verifies, changes and leaves alone (RFC 1812 sections 4.2.2 and 5.2.2,
//! RFC 8200 sections 3, 4 and 7).

use std::net::{Ipv4Addr, Ipv6Addr};

use floodwall_base::DropReason::*;
use floodwall_base::Family;
use floodwall_tests::Sent;
use floodwall_tests::craft::{
    FAMILIES, HOST, PEER, addr, echo, ip, ipv4_with_options, ipv6_chain_to, options_header, v4,
};
use floodwall_wire::{IpProtocol, Ipv4Fields};

use super::*;

/// An honest packet with changed bytes; IPv4's checksum is right again where `mended`.
fn changed(family: Family, change: impl FnOnce(&mut Vec<u8>), mended: bool) -> Vec<u8> {
    let mut packet = honest(family);
    change(&mut packet);
    if mended { with_hop_limit(&packet, 64) } else { packet }
}

#[test]
fn rfc1812_5_2_2_a_header_that_fails_is_dropped_silently() {
    let (mut router, v4) = (router(), Family::V4);
    let broken = [
        (changed(v4, |p| p.truncate(19), false), IpTruncated),
        (changed(v4, |p| p[10] ^= 1, false), IpHeaderChecksum),
        (changed(v4, |p| p[0] = 0x55, true), IpVersion),
        (changed(v4, |p| p[0] = 0x44, false), IpHeaderLength),
        (changed(v4, |p| p[3] = 19, true), IpLength),
        (changed(v4, |p| p[3] += 1, true), IpLength),
    ];
    for (packet, reason) in broken {
        assert!(router.expect_drop("a broken header", &packet, reason).is_empty());
    }
}

#[test]
fn rfc8200_3_a_header_that_fails_is_dropped_silently() {
    let (mut router, v6) = (router(), Family::V6);
    let broken = [
        (changed(v6, |p| p.truncate(39), false), IpTruncated),
        (changed(v6, |p| p[5] += 1, false), IpLength),
    ];
    for (packet, reason) in broken {
        assert!(router.expect_drop("a broken header", &packet, reason).is_empty());
    }
}

#[test]
fn rfc1812_5_2_2_what_is_behind_the_total_length_goes_no_further() {
    for family in FAMILIES {
        let (mut router, packet) = (router(), honest(family));
        let padded = from_left(&[&packet[..], &[0; 9]].concat());
        let departed = router.arrive(LEFT, &[padded]);
        assert_eq!(bytes_of(&departed[0])[14..], one_hop_later(&packet));
    }
}

#[test]
fn rfc1812_4_2_2_3_reserved_bits_pass_as_they_are() {
    let packet = changed(Family::V4, |p| p[6] |= 0x80, true);
    passes(&mut router(), &packet);
}

/// And of IPv6 the traffic class with the flow label (RFC 8200 section 7, RFC 6437 section 2).
#[test]
fn rfc1812_5_3_3_3_no_service_is_refused_or_changed() {
    let mut router = router();
    for class in 0..=u8::MAX {
        passes(&mut router, &changed(Family::V4, |p| p[1] = class, true));
        let labelled = |p: &mut Vec<u8>| {
            p[..4].copy_from_slice(&(6 << 28 | u32::from(class) << 20 | 0xbeef5).to_be_bytes());
        };
        passes(&mut router, &changed(Family::V6, labelled, false));
    }
}

#[test]
fn rfc1812_5_2_2_what_is_behind_the_header_is_not_read() {
    for family in FAMILIES {
        let mut router = router();
        passes(&mut router, &changed(family, |p| *p.last_mut().unwrap() ^= 1, false));
        for protocol in (0..=u8::MAX).filter(|n| family == Family::V4 || *n != 0) {
            let (from, to) = (addr(family, PEER), far(family, 7));
            passes(&mut router, &ip(from, to, IpProtocol(protocol), b"?"));
        }
    }
}

/// IPv6: "it should process the packet normally" (RFC 8200 section 3).
#[test]
fn rfc1812_4_2_2_9_what_is_for_the_router_needs_no_hop() {
    for family in FAMILIES {
        for hops in [0, 1] {
            for to in [addr(family, HOST), right(family, HOST)] {
                let ping = with_hop_limit(&echo(addr(family, PEER), to, b"?"), hops);
                let departed = router().arrive(LEFT, &[from_left(&ping)]);
                assert_eq!(Sent::of(&departed[0]).from, to, "{hops}");
            }
        }
    }
}

#[test]
fn rfc1812_5_3_1_a_packet_with_hops_left_is_never_too_old() {
    let mut router = router();
    for family in FAMILIES {
        for hops in 2..u8::MAX {
            passes(&mut router, &with_hop_limit(&honest(family), hops));
        }
    }
}

/// A datagram with these IPv4 options.
fn with_options(options: &[u8]) -> Vec<u8> {
    let (from, to) = (v4(PEER), Ipv4Addr::new(172, 16, 0, 7));
    ipv4_with_options(Ipv4Fields::new(from, to, IpProtocol::UDP, 64, 0), options, &[0; 16])
}

#[test]
fn rfc1812_4_2_2_6_unknown_options_pass_as_they_are() {
    let mut router = router();
    // All but those with contents that are looked at, below.
    for kind in (2..=u8::MAX).filter(|kind| !matches!(kind, 7 | 68 | 131 | 137)) {
        passes(&mut router, &with_options(&[kind, 4, 0xbe, 0xef]));
    }
    passes(&mut router, &with_options(&[1, 1, 1, 0]));
}

#[test]
fn rfc7126_4_5_and_4_7_recorded_routes_and_times_pass_as_they_are() {
    let mut router = router();
    for option in [&[7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0][..], &[68, 12, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0]]
    {
        passes(&mut router, &with_options(option));
    }
}

#[test]
fn rfc7126_4_3_and_4_4_source_routes_are_dropped_silently() {
    let mut router = router();
    for kind in [131, 137] {
        let packet = with_options(&[kind, 7, 4, 10, 1, 0, 2, 0]);
        assert!(router.expect_drop("a source route", &packet, IpSourceRoute).is_empty());
    }
}

#[test]
fn rfc1812_4_3_3_5_the_parameter_problem_points_at_the_option() {
    for (options, at) in [(&[7, 99, 4, 0][..], 20), (&[1, 1, 7, 0], 22), (&[1, 1, 1, 7], 23)] {
        let icmp = told(&mut router(), &with_options(options), IpOptionMalformed);
        assert_eq!((icmp.kind, icmp.code, icmp.word >> 24), (12, 0, at), "{options:?}");
    }
}

/// An IPv6 datagram with these headers.
fn with_headers(headers: &[(IpProtocol, &[u8])]) -> Vec<u8> {
    let to: Ipv6Addr = "fd16::7".parse().unwrap();
    ipv6_chain_to(to, headers, IpProtocol::UDP, &[0; 16])
}

/// The upper two bits of an unknown option say what to do; the third, that it changes on its way.
#[test]
fn rfc8200_4_2_unknown_hop_by_hop_options_do_as_they_say() {
    for changes in [0, 0x20] {
        let option = |action: u8| options_header(&[action << 6 | changes | 0x1e, 2, 0, 0, 1, 0]);
        let packet = |action| with_headers(&[(IpProtocol::HOP_BY_HOP, &option(action))]);
        passes(&mut router(), &packet(0));
        let silent = router().expect_drop("discard", &packet(1), ExtensionOptionUnknown);
        assert!(silent.is_empty());
        for action in [2, 3] {
            let icmp = told(&mut router(), &packet(action), ExtensionOptionUnknown);
            assert_eq!((icmp.kind, icmp.code, icmp.word), (4, 2, 42), "{action}");
        }
    }
}

#[test]
fn rfc8200_4_what_follows_the_hop_by_hop_header_is_not_looked_at() {
    let refused = options_header(&[0xde, 2, 0, 0, 1, 0]);
    let headers: [(u8, &[u8]); 6] = [
        (60, &refused),
        (43, &[0, 0, 0, 1, 0, 0, 0, 0]),
        (43, &[0, 0, 99, 1, 0, 0, 0, 0]),
        (44, &[0, 0, 0xff, 0xf8, 0, 0, 0, 9]),
        (135, &[0, 0, 0, 0, 0, 0, 0, 0]),
        (253, &[0, 0, 0, 0, 0, 0, 0, 0]),
    ];
    for (kind, bytes) in headers {
        passes(&mut router(), &with_headers(&[(IpProtocol(kind), bytes)]));
    }
}
