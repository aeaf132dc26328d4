//! Errors: when a router sends one, from which address, and when it never does (RFC 1812 sections
//! 4.3.2, 4.3.3 and 5.2.7, RFC 4443 sections 2 and 3).

use floodwall_base::DropReason::*;
use floodwall_base::{DropReason, Family, MacAddr};
use floodwall_tests::Sent;
use floodwall_tests::craft::{
    FAMILIES, HOST, PEER, addr, echo, fragments, frame, icmp_of, ip, mac, udp_to_port, with_class,
};
use floodwall_tests::transit::right_mac;
use floodwall_wire::{EtherType, Ipv4Header};

use super::*;

/// A packet without a hop left that carries this.
fn spent(family: Family, protocol: floodwall_wire::IpProtocol, payload: &[u8]) -> Vec<u8> {
    with_hop_limit(&ip(addr(family, PEER), far(family, 7), protocol, payload), 1)
}

#[test]
fn rfc1812_4_3_2_3_as_much_is_quoted_as_may_be_and_as_it_was() {
    for (family, most) in [(Family::V4, 576), (Family::V6, 1280)] {
        for len in [0, 500, 1200, 1400] {
            let packet = spent(family, floodwall_wire::IpProtocol::UDP, &vec![7; len]);
            let icmp = told(&mut router(), &packet, HopLimitExceeded);
            let headers = if family == Family::V4 { 28 } else { 48 };
            assert_eq!(icmp.body, packet[..packet.len().min(most - headers)], "{len}");
        }
    }
}

/// The packet came by the left; its sender is on the right, and the error leaves from there. RFC
/// 4443 section 2.2 requires a unicast address of the node, chosen for this destination.
#[test]
fn rfc1812_4_3_2_4_the_source_is_of_the_interface_that_leads_back() {
    for family in FAMILIES {
        let mut router = router();
        let packet = with_hop_limit(&datagram(right(family, PEER), far(family, 7)), 1);
        let departed = router.expect_drop("from elsewhere", &packet, HopLimitExceeded);
        let (bytes, v4) = (bytes_of(&departed[0]), family == Family::V4);
        assert_eq!((departed[0].iface(), &bytes[..6]), (RIGHT, &right_mac(PEER).0[..]));
        let kind = if v4 { EtherType::IPV4 } else { EtherType::IPV6 };
        let sent = Sent::of_ip(&bytes[14..], kind);
        assert_eq!((sent.from, sent.to), (right(family, HOST), right(family, PEER)));
    }
}

/// Only RFC 1812 has this rule; ICMPv6 errors have no class of their own.
#[test]
fn rfc1812_4_3_2_5_errors_have_precedence_six_and_replies_that_of_their_request() {
    for family in FAMILIES {
        let class = |packet: &floodwall_packet::PacketBuf| {
            let v4 = family == Family::V4;
            let kind = if v4 { EtherType::IPV4 } else { EtherType::IPV6 };
            Sent::of_ip(&bytes_of(packet)[14..], kind).class
        };
        let expected = if family == Family::V4 { 6 << 5 } else { 0 };
        let spent = with_hop_limit(&with_class(&honest(family), 0x48), 1);
        let departed = router().expect_drop("spent", &spent, HopLimitExceeded);
        assert_eq!(class(&departed[0]), expected);
        // Its next hop is its sender's neighbour: a redirect, and the packet.
        let around = with_class(&datagram(addr(family, PEER), addr(family, 77)), 0x48);
        let mut router = router();
        router.knows(LEFT, addr(family, 77), mac(77));
        let departed = router.arrive(LEFT, &[from_left(&around)]);
        assert_eq!(departed.iter().map(class).collect::<Vec<_>>(), [expected, 0x48]);
        let request = with_class(&echo(addr(family, PEER), addr(family, HOST), b"?"), 0x48);
        let departed = router.arrive(LEFT, &[from_left(&request)]);
        assert_eq!(class(&departed[0]), 0x48);
    }
}

/// Redirects count as errors of both families, and so does what RFC 4443 reserves for errors of the
/// future.
#[test]
fn rfc1812_4_3_2_7_no_error_about_an_error() {
    let kinds = [(Family::V4, [3, 4, 5, 11, 12]), (Family::V6, [1, 2, 127, 3, 137])];
    for (family, kinds) in kinds {
        for kind in kinds {
            let packet = spent(family, icmp_of(family), &[kind, 0, 0, 0, 0, 0, 0, 0]);
            assert!(
                router().expect_drop("an error", &packet, HopLimitExceeded).is_empty(),
                "{kind}"
            );
        }
    }
}

/// Nor does one that is cut off before its type.
#[test]
fn rfc4443_2_4_e_questions_and_unknown_news_are_no_errors() {
    for (family, kinds) in [(Family::V4, [0, 8, 13, 42]), (Family::V6, [128, 129, 200, 255])] {
        for kind in kinds {
            let packet = spent(family, icmp_of(family), &[kind, 0, 0, 0, 0, 0, 0, 0]);
            told(&mut router(), &packet, HopLimitExceeded);
        }
        let nothing = spent(family, icmp_of(family), &[]);
        assert!(router().expect_drop("nothing", &nothing, HopLimitExceeded).is_empty());
    }
}

/// Of IPv6 all fragments count (RFC 4443 section 2.4 (e) has no such exception).
#[test]
fn rfc1812_4_3_2_7_no_error_about_a_later_fragment() {
    for family in FAMILIES {
        let pieces = fragments(&honest(family), 9, 8);
        let first = with_hop_limit(&pieces[0], 1);
        told(&mut router(), &first, HopLimitExceeded);
        let later = with_hop_limit(&pieces[1], 1);
        let departed = router().expect_drop("later", &later, HopLimitExceeded);
        assert_eq!(departed.len(), usize::from(family == Family::V6));
    }
}

#[test]
fn rfc1812_4_3_2_7_no_error_about_what_came_to_many_on_its_link() {
    let many = [
        (Family::V4, MacAddr::BROADCAST, EtherType::IPV4),
        (Family::V4, MacAddr([1, 0, 0x5e, 0, 0, 1]), EtherType::IPV4),
        (Family::V6, MacAddr::BROADCAST, EtherType::IPV6),
        (Family::V6, MacAddr([0x33, 0x33, 0, 0, 0, 1]), EtherType::IPV6),
    ];
    for (family, to, kind) in many {
        // For another host, and for a closed port of ours.
        let ours = udp_to_port(family, 9, b"?");
        for (packet, reason) in
            [(with_hop_limit(&honest(family), 1), ForwardBroadcast), (ours, UdpNoPort)]
        {
            let mut router = router();
            let frame = frame(to, mac(PEER), kind, &packet);
            let dropped = router.dropped(|r| assert!(r.arrive(LEFT, &[frame]).is_empty()));
            assert_eq!(dropped.0, [(reason, 1)]);
        }
    }
}

#[test]
fn rfc1812_5_2_7_1_codes_of_what_cannot_be_reached() {
    let mut nowhere = Transit::new(&router_config());
    for family in FAMILIES {
        let to = if family == Family::V4 { "192.168.9.9" } else { "fd99::9" };
        let packet = datagram(addr(family, PEER), to.parse().unwrap());
        let icmp = told(&mut nowhere, &packet, NoRoute);
        assert_eq!((icmp.kind, icmp.code), kind(family, (3, 0), (1, 0)));
    }
}

/// RFC 1812 section 4.3.2.2: they live as long as anything else of ours, and may not be cut.
#[test]
fn rfc1812_4_3_2_2_errors_have_the_usual_hop_limit() {
    for family in FAMILIES {
        let packet = with_hop_limit(&honest(family), 1);
        let departed = router().expect_drop("spent", &packet, HopLimitExceeded);
        let bytes = bytes_of(&departed[0])[14..].to_vec();
        let hops = if family == Family::V4 { bytes[8] } else { bytes[7] };
        assert_eq!(hops, 64);
        if family == Family::V4 {
            let header = Ipv4Header::parse(&bytes, bytes.len()).unwrap();
            assert!(header.options_bytes().is_empty(), "no options of ours");
        }
    }
}

/// Errors are never sent about packets to groups.
#[test]
fn rfc1812_5_3_1_no_time_is_exceeded_for_a_group() {
    for to in ["239.1.2.3", "ff0e::9"] {
        let to: IpAddr = to.parse().unwrap();
        let family = FAMILIES[usize::from(to.is_ipv6())];
        let reason: DropReason = IpGroupNotJoined;
        stays(&mut router(), &datagram(addr(family, PEER), to), reason);
    }
}

/// "If the reason for the failure to deliver is congestion", no error is sent (RFC 4443 section
/// 3.1).
#[test]
fn rfc4443_3_1_nothing_is_told_of_congestion() {
    for family in FAMILIES {
        let mut router = Transit::new(&router_config());
        let packet = datagram(addr(family, PEER), right(family, 66));
        let many: Vec<_> = (0..60).map(|_| from_left(&packet)).collect();
        let departed = router.arrive(LEFT, &many);
        assert!(departed.iter().all(|packet| packet.iface() == RIGHT), "the question alone");
    }
}
