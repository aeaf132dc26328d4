//! Reverse path filtering: a router judges where a packet comes from by the way back to its source.
//! Reading: RFC 3704.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use floodwall_base::{Counter, DropReason, Family};
use floodwall_ip::forward::ReversePath;
use floodwall_tests::craft::{
    FAMILIES, PEER, addr, fragment_header, ip, ipv6_chain_to, options_header, udp,
};
use floodwall_tests::transit::{
    LEFT, Transit, far, from_left, right, router_config, with_hop_limit,
};
use floodwall_wire::IpProtocol;

fn hello(family: Family, to: IpAddr) -> Vec<u8> {
    udp(SocketAddr::new(addr(family, PEER), 4000), SocketAddr::new(to, 9), b"hello")
}

#[test]
fn the_way_back_decides_where_that_is_configured() {
    let config = |mode| {
        let mut config = router_config();
        config.interfaces[0].reverse_path = mode;
        config
    };
    for family in FAMILIES {
        let from = |from: IpAddr| ip(from, far(family, 7), IpProtocol::UDP, &[0; 16]);
        // From the right side's network, and from nowhere.
        let other_side = from(right(family, 9));
        let nowhere: IpAddr = match family {
            Family::V4 => "192.168.77.7".parse().unwrap(),
            Family::V6 => "fd77::7".parse().unwrap(),
        };
        let nowhere = from(nowhere);
        let reason = DropReason::ForwardReversePath;
        let mut strict = Transit::new(&config(ReversePath::Strict));
        assert!(strict.expect_drop("strict, other side", &other_side, reason).is_empty());
        assert!(strict.expect_drop("strict, nowhere", &nowhere, reason).is_empty());
        assert_eq!(strict.rig.stats().counters.of(Counter::TcpExtIPReversePathFilter), 2);
        let honest = from_left(&hello(family, far(family, 7)));
        assert_eq!(strict.arrive(LEFT, &[honest]).len(), 1);
        let mut loose = Transit::new(&config(ReversePath::Loose));
        assert!(loose.expect_drop("loose, nowhere", &nowhere, reason).is_empty());
        assert_eq!(loose.arrive(LEFT, &[from_left(&other_side)]).len(), 1);
        let mut off = Transit::new(&config(ReversePath::Off));
        assert_eq!(off.arrive(LEFT, &[from_left(&nowhere), from_left(&other_side)]).len(), 2);
    }
}

/// What hides its upper header from every filter of protocols is judged by its source as any other.
#[test]
fn a_wrong_way_is_seen_however_a_packet_hides_its_upper_header() {
    let to: Ipv6Addr = "fd16::7".parse().unwrap();
    let options = options_header(&[1, 4, 0, 0, 0, 0]);
    let first = fragment_header(0, true);
    let authentication = [0, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0];
    let destination = (IpProtocol::DESTINATION_OPTIONS, &options[..]);
    let fragment = (IpProtocol::FRAGMENT, &first[..]);
    let hidden = [
        vec![destination; 17],
        vec![fragment],
        vec![fragment, destination, destination],
        vec![(IpProtocol::AUTHENTICATION, &authentication[..])],
    ];
    for mode in [ReversePath::Strict, ReversePath::Loose] {
        let mut config = router_config();
        config.interfaces[0].reverse_path = mode;
        let mut router = Transit::new(&config);
        for headers in &hidden {
            // A first fragment ends before the upper header.
            let len = if headers[0] == fragment { 0 } else { 16 };
            let packet = ipv6_chain_to(to, headers, IpProtocol::UDP, &vec![0; len]);
            assert_eq!(router.arrive(LEFT, &[from_left(&packet)]).len(), 1, "{headers:?}");
            let mut nowhere = packet;
            nowhere[8..24].copy_from_slice(&"fd77::7".parse::<Ipv6Addr>().unwrap().octets());
            let reason = DropReason::ForwardReversePath;
            assert!(router.expect_drop("from nowhere", &nowhere, reason).is_empty());
        }
        assert_eq!(router.rig.stats().counters.of(Counter::TcpExtIPReversePathFilter), 4);
    }
    // A later fragment, over IPv4.
    let mut config = router_config();
    config.interfaces[0].reverse_path = ReversePath::Strict;
    let nowhere: IpAddr = "192.168.77.7".parse().unwrap();
    let mut later = ip(nowhere, far(Family::V4, 7), IpProtocol::UDP, &[0; 16]);
    later[7] = 100;
    let later = with_hop_limit(&later, 64);
    let mut router = Transit::new(&config);
    let reason = DropReason::ForwardReversePath;
    assert!(router.expect_drop("a later fragment", &later, reason).is_empty());
}
