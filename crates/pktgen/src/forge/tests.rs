//! Forged messages checked by the views of `wire`.

use std::collections::HashSet;

use floodwall_wire::{
    Icmpv4Header, Icmpv6Header, Ipv4Header, Ipv6Header, NeighborAdvertisement,
    NeighborSolicitation, Redirect, RouterAdvertisement,
};

use super::*;

const ALL: [Forgery; 5] = [
    Forgery::NeighborRequests,
    Forgery::NeighborClaims,
    Forgery::RouterAdvertisements,
    Forgery::Redirects,
    Forgery::GroupQueries,
];

fn ends(v4: bool, medium: StationMedium) -> ForgedAddrs {
    let addrs = if v4 { ["10.0.0.1", "10.0.0.2"] } else { ["fe80::1", "fe80::2"] };
    let [from, to] = addrs.map(|text| text.parse().unwrap());
    ForgedAddrs { medium, link: (MacAddr([2; 6]), MacAddr([4; 6])), addrs: (from, to) }
}

/// Checks what a receiver would check before it looks at the message.
fn check_v4(forgery: Forgery, packet: &[u8]) {
    let ip = Ipv4Header::parse(packet, packet.len()).unwrap();
    assert_eq!(ip.total_len(), packet.len());
    let body = &packet[ip.header_len()..];
    assert!(sum(body).verifies(), "{forgery:?}");
    match forgery {
        Forgery::GroupQueries => {
            assert_eq!((ip.protocol(), ip.ttl(), body[0]), (IpProtocol::IGMP, 1, 0x11));
            let sources = if body.len() > 8 { usize::from(body[11]) } else { 0 };
            assert!(body.len() == 8 || body.len() == 12 + 4 * sources);
        }
        Forgery::Redirects => {
            let message = Icmpv4Header::parse(body).unwrap().message();
            assert!(matches!(message, Icmpv4Message::Redirect { .. }));
        }
        _ => assert_eq!(Icmpv4Header::parse(body).unwrap().kind(), Icmpv4Type(9)),
    }
}

fn check_v6(forgery: Forgery, packet: &[u8]) {
    let ip = Ipv6Header::parse(packet, packet.len()).unwrap();
    assert_eq!(ip.total_len(), packet.len());
    let query = forgery == Forgery::GroupQueries;
    let at = if query { 48 } else { 40 };
    assert_eq!(ip.hop_limit(), if query { 1 } else { 255 });
    let message = &packet[at..];
    let pseudo = ip.pseudo_header(IpProtocol::ICMPV6, message.len() as u32);
    assert!(pseudo.add(sum(message)).verifies(), "{forgery:?}");
    match forgery {
        Forgery::NeighborRequests => drop(NeighborSolicitation::parse(message).unwrap()),
        Forgery::NeighborClaims => drop(NeighborAdvertisement::parse(message).unwrap()),
        Forgery::RouterAdvertisements => drop(RouterAdvertisement::parse(message).unwrap()),
        Forgery::Redirects => drop(Redirect::parse(message).unwrap()),
        Forgery::GroupQueries => {
            assert_eq!(Icmpv6Header::parse(message).unwrap().kind(), Icmpv6Type::LISTENER_QUERY);
            assert_eq!(packet[40..48], [58, 0, 5, 2, 0, 0, 1, 0], "router alert, padding");
        }
    }
}

#[test]
fn every_forgery_is_well_formed_in_both_families() {
    let (mut random, mut out) = (PublicRandom::new(1), Vec::new());
    for (forgery, v4) in ALL.into_iter().flat_map(|f| [(f, true), (f, false)]) {
        let mut seen = HashSet::new();
        for _ in 0..500 {
            write(forgery, ends(v4, StationMedium::Ethernet), &mut random, &mut out);
            assert!(out.len() <= FRAME_MAX, "{forgery:?} has {}", out.len());
            assert_eq!(out[6..12], [2; 6], "our own station address, so that losses are ours");
            match u16::from_be_bytes([out[12], out[13]]) {
                0x0806 => drop(ArpPacket::parse(&out[14..]).unwrap()),
                0x0800 => check_v4(forgery, &out[14..]),
                0x86dd => check_v6(forgery, &out[14..]),
                other => panic!("{other:#x}"),
            }
            seen.insert(out.clone());
        }
        let least = if v4 && forgery == Forgery::RouterAdvertisements { 400 } else { 450 };
        let least = if v4 && forgery == Forgery::GroupQueries { 200 } else { least };
        assert!(seen.len() > least, "{forgery:?}: {} of 500 are different", seen.len());
    }
}

#[test]
fn the_same_randomness_forges_the_same_bytes_and_a_bare_medium_has_no_link_header() {
    for (forgery, v4) in ALL.into_iter().flat_map(|f| [(f, true), (f, false)]) {
        let forged = |medium| {
            let (mut random, mut out) = (PublicRandom::new(9), Vec::new());
            write(forgery, ends(v4, medium), &mut random, &mut out);
            out
        };
        assert_eq!(forged(StationMedium::Ethernet), forged(StationMedium::Ethernet));
        assert_eq!(forged(StationMedium::Ethernet)[14..], forged(StationMedium::Ip));
    }
}
