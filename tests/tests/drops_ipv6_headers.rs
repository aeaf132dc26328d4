//! Drops on the walk over IPv6 extension headers: each is provoked by a packet, counted once by its
//! reason, and reported to the sender exactly where an RFC requires it, with the pointer that it
//! requires.
//!
//! Reading: RFC 8200 section 4, RFC 8504 section 5.3, RFC 8883, RFC 7112, RFC 6946, RFC 5095.

use std::net::Ipv6Addr;

use floodwall_base::{DropReason, Family};
use floodwall_tests::craft::{
    HOST, PEER, addr, echo, fragment_header, icmpv6_message, ip, ipv6_chain, ipv6_chain_to,
    options_header, udp_to_port, v6,
};
use floodwall_tests::{Owed, Rig, Sent, ethernet_config};
use floodwall_wire::{Icmpv6Message, IpProtocol, icmpv6};

const HOP: IpProtocol = IpProtocol::HOP_BY_HOP;
const OPTIONS: IpProtocol = IpProtocol::DESTINATION_OPTIONS;
const ROUTING: IpProtocol = IpProtocol::ROUTING;
const FRAGMENT: IpProtocol = IpProtocol::FRAGMENT;
const AUTHENTICATION: IpProtocol = IpProtocol::AUTHENTICATION;
const UDP: IpProtocol = IpProtocol::UDP;
/// Six bytes of padding: the smallest options header.
const PADDING: [u8; 8] = [0, 0, 1, 4, 0, 0, 0, 0];

fn rig() -> Rig {
    Rig::with_neighbor(&ethernet_config(HOST), PEER)
}

/// A datagram for a closed port: the walk that gets that far ends there.
fn datagram() -> Vec<u8> {
    udp_to_port(Family::V6, 9, b"hello")[40..].to_vec()
}

fn chain(headers: &[(IpProtocol, &[u8])]) -> Vec<u8> {
    ipv6_chain(headers, UDP, &datagram())
}

fn routing(segments_left: u8) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[1..4].copy_from_slice(&[2, 0, segments_left]);
    bytes[8..].copy_from_slice(&v6(9).octets());
    bytes
}

#[test]
fn headers_within_the_limits_lead_to_the_upper_layer() {
    let chains: [&[(IpProtocol, &[u8])]; 5] = [
        &[(HOP, &PADDING), (OPTIONS, &PADDING), (ROUTING, &routing(0)), (OPTIONS, &PADDING)],
        &[(FRAGMENT, &fragment_header(0, false))],
        &[(ROUTING, &routing(0))],
        &[(OPTIONS, &PADDING[..]); 8],
        &[(HOP, &[0, 0, 5, 2, 0, 0, 1, 0])],
    ];
    for headers in chains {
        let packet = chain(headers);
        let owed = Owed::unreachable(Family::V6, 4);
        let what = format!("{headers:?}");
        rig().packet_is_dropped(&what, &packet, DropReason::UdpNoPort, Some(owed));
    }
}

/// RFC 8200 section 4: what is behind a header that cannot be verified is not for us, be it an
/// echo, a datagram or a segment, alone or in fragments.
#[test]
fn an_authentication_header_is_an_unrecognized_next_header() {
    let authentication = [0, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let reason = DropReason::ProtocolUnknown;
    let echo = echo(addr(Family::V6, PEER), addr(Family::V6, HOST), b"authentic")[40..].to_vec();
    for (upper, payload) in [(UDP, datagram()), (IpProtocol::ICMPV6, echo)] {
        for (before, pointer) in [(&[][..], 6), (&[(OPTIONS, &PADDING[..])], 40)] {
            let headers = [before, &[(AUTHENTICATION, &authentication[..])]].concat();
            let packet = ipv6_chain(&headers, upper, &payload);
            let owed = Some(Owed::problem_v6(1, pointer));
            rig().packet_is_dropped(&format!("{headers:?}"), &packet, reason, owed);
        }
    }
    for headers in [
        &[(AUTHENTICATION, &authentication[..]), (OPTIONS, &PADDING)][..],
        &[(AUTHENTICATION, &authentication[..]), (AUTHENTICATION, &authentication)],
        &[(AUTHENTICATION, &[0, 0, 0, 0, 0, 0, 0, 1])],
    ] {
        let owed = Some(Owed::problem_v6(1, 6));
        rig().packet_is_dropped(&format!("{headers:?}"), &chain(headers), reason, owed);
    }
    let atomic =
        chain(&[(FRAGMENT, &fragment_header(0, false)), (AUTHENTICATION, &authentication)]);
    let owed = Some(Owed::problem_v6(1, 40));
    rig().packet_is_dropped("an atomic fragment", &atomic, reason, owed);
}

#[test]
fn a_truncated_extension_header_is_dropped() {
    let reason = DropReason::ExtensionMalformed;
    for kind in [HOP, OPTIONS, ROUTING, FRAGMENT] {
        for len in 0..8 {
            let packet = ip(v6(PEER).into(), v6(HOST).into(), kind, &PADDING[..len]);
            // Without a payload, a hop-by-hop header must announce a jumbogram (RFC 2675).
            if len == 0 && kind == HOP {
                continue;
            }
            rig().packet_is_dropped(&format!("{kind:?} {len}"), &packet, reason, None);
        }
    }
    for kind in [HOP, OPTIONS, ROUTING] {
        for units in [4, 40, 255] {
            let packet = chain(&[(kind, &[0, units, 0, 0, 0, 0, 0, 0])]);
            rig().packet_is_dropped(&format!("{kind:?} {units}"), &packet, reason, None);
        }
    }
    // RFC 7112 section 5: the first fragment must hold all headers, and its sender gets an error.
    let packet = ip(
        v6(PEER).into(),
        v6(HOST).into(),
        FRAGMENT,
        &[&[OPTIONS.0][..], &fragment_header(0, true)[1..], &[0, 9, 0, 0, 0, 0, 0, 0]].concat(),
    );
    let owed = Owed::problem_v6(3, 0);
    rig().packet_is_dropped("a first fragment without all headers", &packet, reason, Some(owed));
}

#[test]
fn a_lying_option_is_dropped_and_is_told() {
    let bad: [(&[u8], u32); 4] = [
        (&[0x3e, 9, 0, 0, 0, 0], 43),   // past the header
        (&[0, 0, 0, 0, 0, 0x3e], 48),   // no length
        (&[1, 1, 0, 5, 1, 0], 46),      // a router alert of one byte
        (&[0x3e, 2, 0, 0, 1, 200], 47), // padding past the header
    ];
    for kind in [HOP, OPTIONS] {
        for (options, pointer) in bad {
            let packet = chain(&[(kind, &options_header(options))]);
            let owed = Owed::problem_v6(0, pointer);
            let reason = DropReason::ExtensionMalformed;
            rig().packet_is_dropped(&format!("{kind:?} {options:?}"), &packet, reason, Some(owed));
        }
    }
}

#[test]
fn more_than_the_limits_allow_is_dropped_and_is_told() {
    let reason = DropReason::ExtensionLimit;
    let many = chain(&[(OPTIONS, &PADDING[..]); 9]);
    rig().packet_is_dropped("nine headers", &many, reason, Some(Owed::problem_v6(8, 40 + 8 * 8)));
    let options = options_header(&[[0x1e, 0].repeat(9), vec![1, 2, 0, 0]].concat());
    let owed = Owed::problem_v6(9, 42 + 16);
    rig().packet_is_dropped("nine options", &chain(&[(OPTIONS, &options)]), reason, Some(owed));
    let padded = options_header(&[&[1, 12][..], &[0; 12]].concat());
    let owed = Owed::problem_v6(10, 42);
    rig().packet_is_dropped("14 bytes of padding", &chain(&[(HOP, &padded)]), reason, Some(owed));
    let singles = options_header(&[0; 14]);
    let owed = Owed::problem_v6(10, 42 + 7);
    rig().packet_is_dropped("14 single bytes", &chain(&[(OPTIONS, &singles)]), reason, Some(owed));
    // 1,400 bytes of packet hold no 1,500 of headers: those need a larger link.
    let data = [&[0x1e, 255][..], &[7; 255]].concat();
    let big = options_header(&[data.repeat(4), vec![0x1e, 128], vec![7; 128]].concat());
    let packet = chain(&[(OPTIONS, &big), (OPTIONS, &big)]);
    let owed = Owed::problem_v6(7, 40 + big.len() as u32);
    rig().packet_is_dropped("2,320 bytes of headers", &packet, reason, Some(owed));
}

#[test]
fn hop_by_hop_options_elsewhere_than_first_are_dropped_and_reported() {
    let reason = DropReason::ExtensionOrder;
    let second = chain(&[(OPTIONS, &PADDING), (HOP, &PADDING)]);
    rig().packet_is_dropped("second", &second, reason, Some(Owed::problem_v6(1, 40)));
    let twice = chain(&[(HOP, &PADDING), (HOP, &PADDING)]);
    rig().packet_is_dropped("twice", &twice, reason, Some(Owed::problem_v6(1, 40)));
    let third = chain(&[(HOP, &PADDING), (OPTIONS, &PADDING), (HOP, &PADDING)]);
    rig().packet_is_dropped("third", &third, reason, Some(Owed::problem_v6(1, 48)));
}

/// RFC 8200 section 4.2: the two highest bits of an unknown option's type say what to do.
#[test]
fn an_unknown_option_is_dropped_as_its_type_asks() {
    let group: Ipv6Addr = "ff02::1".parse().expect("an address");
    let reason = DropReason::ExtensionOptionUnknown;
    for kind in [HOP, OPTIONS] {
        for (action, to_one, to_group) in
            [(0x40, false, false), (0x80, true, true), (0xc0, true, false)]
        {
            let header = options_header(&[1, 0, action | 0x1e, 2, 0, 0]);
            let owed = |told: bool| told.then_some(Owed::problem_v6(2, 44));
            let packet = chain(&[(kind, &header)]);
            let what = format!("{kind:?} {action:#x}");
            rig().packet_is_dropped(&what, &packet, reason, owed(to_one));
            let packet = ipv6_chain_to(group, &[(kind, &header)], UDP, &datagram());
            rig().packet_is_dropped(&format!("{what} to a group"), &packet, reason, owed(to_group));
        }
        let header = options_header(&[1, 0, 0x1e, 2, 0, 0]);
        let owed = Some(Owed::unreachable(Family::V6, 4));
        let packet = chain(&[(kind, &header)]);
        rig().packet_is_dropped("one to be skipped", &packet, DropReason::UdpNoPort, owed);
    }
}

/// RFC 4443 section 2.4 (e.1): an error behind the header at fault is an error all the same.
#[test]
fn nothing_is_said_about_an_error_behind_a_bad_header() {
    let code = icmpv6::UnreachableCode::PORT;
    let message = Icmpv6Message::DestinationUnreachable { code };
    let error = icmpv6_message(v6(PEER), v6(HOST), message, &udp_to_port(Family::V6, 9, b""));
    let unknown = options_header(&[1, 0, 0x9e, 2, 0, 0]);
    let reason = DropReason::ExtensionOptionUnknown;
    let packet = ipv6_chain(&[(OPTIONS, &unknown)], IpProtocol::ICMPV6, &error);
    rig().packet_is_dropped("an option", &packet, reason, None);
    let packet = ipv6_chain(&[(HOP, &unknown), (OPTIONS, &PADDING)], IpProtocol::ICMPV6, &error);
    rig().packet_is_dropped("two headers", &packet, reason, None);
    let packet = ipv6_chain(&[(ROUTING, &routing(1))], IpProtocol::ICMPV6, &error);
    rig().packet_is_dropped("a route", &packet, DropReason::ExtensionRouting, None);
    let packet = ipv6_chain(&[(OPTIONS, &PADDING[..]); 9], IpProtocol::ICMPV6, &error);
    rig().packet_is_dropped("a chain", &packet, DropReason::ExtensionLimit, None);
    // About an echo request something may be said.
    let ask = Icmpv6Message::EchoRequest { id: 1, seq: 1 };
    let ask = icmpv6_message(v6(PEER), v6(HOST), ask, b"");
    let packet = ipv6_chain(&[(OPTIONS, &unknown)], IpProtocol::ICMPV6, &ask);
    rig().packet_is_dropped("an echo", &packet, reason, Some(Owed::problem_v6(2, 44)));
}

#[test]
fn a_routing_header_that_wants_to_be_followed_is_dropped_and_is_told() {
    for kind in [0, 2, 3, 4, 253, 255] {
        for left in [1, 2, 255] {
            let mut header = routing(left);
            header[2] = kind;
            let packet = chain(&[(ROUTING, &header)]);
            let owed = Owed::problem_v6(0, 42);
            let reason = DropReason::ExtensionRouting;
            rig().packet_is_dropped(&format!("type {kind}, {left}"), &packet, reason, Some(owed));
        }
    }
}

#[test]
fn a_jumbogram_is_dropped_and_a_contradictory_one_is_told() {
    let reason = DropReason::ExtensionJumbo;
    let jumbo = |len: u32| {
        let mut header = vec![0, 0, 0xc2, 4];
        header.extend(len.to_be_bytes());
        header
    };
    // An honest one: the payload length is zero. No answer.
    let mut honest = chain(&[(HOP, &jumbo(70_000))]);
    honest[4..6].copy_from_slice(&[0, 0]);
    rig().packet_is_dropped("honest", &honest, reason, None);
    let mut small = chain(&[(HOP, &jumbo(65_535))]);
    small[4..6].copy_from_slice(&[0, 0]);
    rig().packet_is_dropped("too small for one", &small, reason, Some(Owed::problem_v6(0, 44)));
    let both = chain(&[(HOP, &jumbo(70_000))]);
    rig().packet_is_dropped("two lengths", &both, reason, Some(Owed::problem_v6(0, 42)));
    let mut none = chain(&[(HOP, &PADDING)]);
    none[4..6].copy_from_slice(&[0, 0]);
    rig().packet_is_dropped("no length at all", &none, reason, Some(Owed::problem_v6(0, 4)));
    // RFC 2675 section 3 forbids a fragment header beside it, and it is refused before.
    let headers: [(IpProtocol, &[u8]); 2] =
        [(HOP, &jumbo(70_000)), (FRAGMENT, &fragment_header(0, true))];
    let mut fragment = chain(&headers);
    fragment[4..6].copy_from_slice(&[0, 0]);
    rig().packet_is_dropped("a fragment", &fragment, reason, None);
    // In the destination options the option is unknown, and requires an error report.
    let packet = chain(&[(OPTIONS, &jumbo(70_000))]);
    let owed = Some(Owed::problem_v6(2, 42));
    rig().packet_is_dropped("elsewhere", &packet, DropReason::ExtensionOptionUnknown, owed);
}

#[test]
fn a_packet_with_nothing_behind_its_headers_is_dropped() {
    let nothing = IpProtocol::NO_NEXT_HEADER;
    let reason = DropReason::NoNextHeader;
    for payload in [&b""[..], b"ignored"] {
        let packet = ip(v6(PEER).into(), v6(HOST).into(), nothing, payload);
        rig().packet_is_dropped("at once", &packet, reason, None);
        let packet = ipv6_chain(&[(HOP, &PADDING), (OPTIONS, &PADDING)], nothing, payload);
        rig().packet_is_dropped("at last", &packet, reason, None);
    }
}

#[test]
fn an_atomic_fragment_is_processed_by_itself() {
    // RFC 6946: processed by itself. The answer has no fragment header (RFC 8021).
    let ask = echo(addr(Family::V6, PEER), addr(Family::V6, HOST), b"atomic")[40..].to_vec();
    let whole: [(IpProtocol, &[u8]); 1] = [(FRAGMENT, &fragment_header(0, false))];
    let packet = ipv6_chain(&whole, IpProtocol::ICMPV6, &ask);
    let answers = rig().lives("atomic", &floodwall_tests::craft::from_peer(&packet));
    assert_eq!(Sent::of(&answers[0]).icmp().kind, 129);
}

#[test]
fn a_second_fragment_header_is_dropped() {
    for more in [false, true] {
        let fragment = fragment_header(0, more);
        for count in [2, 3, 100, 160] {
            let headers: Vec<(IpProtocol, &[u8])> = vec![(FRAGMENT, &fragment); count];
            let packet = chain(&headers);
            let what = format!("{count} {more}");
            rig().packet_is_dropped(&what, &packet, DropReason::FragmentMalformed, None);
        }
    }
}

#[test]
fn an_unknown_protocol_behind_headers_is_told_where_it_was_announced() {
    let headers: [(IpProtocol, &[u8]); 2] = [(HOP, &PADDING), (OPTIONS, &PADDING)];
    let packet = ipv6_chain(&headers, IpProtocol(200), b"?");
    let owed = Some(Owed::problem_v6(1, 48));
    rig().packet_is_dropped("48", &packet, DropReason::ProtocolUnknown, owed);
    // ESP is an upper layer to a host without keys.
    let packet = ipv6_chain(&[(ROUTING, &routing(0))], IpProtocol(50), &[0; 32]);
    let owed = Some(Owed::problem_v6(1, 40));
    rig().packet_is_dropped("ESP", &packet, DropReason::ProtocolUnknown, owed);
}
