//! The owner of a frame: the flow's owner, both ways, in both families, on both media; and for
//! everything that has no flow, the control shard.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use floodwall_base::{HashKey, MacAddr, Randomness, Steering, WorkerId};
use floodwall_wire::steer::{self, ECHO};
use floodwall_wire::*;

const WORKERS: u16 = 7;

fn steering() -> Steering {
    Steering::new(HashKey::new(11, 22), WORKERS)
}

fn ends(family: u8, ports: (u16, u16)) -> (SocketAddr, SocketAddr) {
    let (one, other): (IpAddr, IpAddr) = match family {
        4 => (Ipv4Addr::new(192, 0, 2, 1).into(), Ipv4Addr::new(198, 51, 100, 2).into()),
        _ => {
            let of = |last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
            (of(1).into(), of(2).into())
        }
    };
    (SocketAddr::new(one, ports.0), SocketAddr::new(other, ports.1))
}

/// An IP packet of `payload`; `fragment` is IPv4's flags and offset.
fn packet(from: IpAddr, to: IpAddr, protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut out = vec![0; 20];
            let len = payload.len();
            let fields = Ipv4Fields::new(from, to, protocol, 64, len as u16);
            fields.emit(out.first_chunk_mut().unwrap());
            out.extend(payload);
            out
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let mut out = vec![0x60, 0, 0, 0];
            out.extend((payload.len() as u16).to_be_bytes());
            out.extend([protocol.0, 64]);
            out.extend(from.octets());
            out.extend(to.octets());
            out.extend(payload);
            out
        }
        _ => unreachable!("one family"),
    }
}

fn upper(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let mut out = vec![0; 24];
    out[..2].copy_from_slice(&from.port().to_be_bytes());
    out[2..4].copy_from_slice(&to.port().to_be_bytes());
    out
}

fn frame(packet: &[u8], tags: &[VlanTag]) -> Vec<u8> {
    let kind = if packet[0] >> 4 == 4 { EtherType::IPV4 } else { EtherType::IPV6 };
    let fields =
        EthernetFields { dst_addr: MacAddr([2; 6]), src_addr: MacAddr([4; 6]), ether_type: kind };
    let mut link = [0; 26];
    let len = fields.emit_tagged(tags, &mut link).unwrap();
    [&link[..len], packet].concat()
}

/// The owner of a packet, the same bare and behind an Ethernet header.
fn owner(packet: &[u8]) -> WorkerId {
    let bare = steer::packet(&steering(), packet);
    assert_eq!(steer::frame(&steering(), &frame(packet, &[])), bare);
    bare
}

/// Ports of a flow that does not belong to the control shard, to distinguish the two.
fn ports(family: u8, protocol: IpProtocol) -> (u16, u16) {
    (1024..)
        .map(|port| (port, 53))
        .find(|ports| {
            let (from, to) = ends(family, *ports);
            steering().flow(from, to, protocol.0) != WorkerId::CONTROL
        })
        .unwrap()
}

#[test]
fn tcp_and_udp_belong_to_the_owner_of_their_flow_both_ways() {
    for family in [4, 6] {
        for protocol in [IpProtocol::UDP, IpProtocol::TCP] {
            for port in 1000..1100 {
                let (from, to) = ends(family, (port, 53));
                let expected = steering().flow(from, to, protocol.0);
                assert_eq!(
                    owner(&packet(from.ip(), to.ip(), protocol, &upper(from, to))),
                    expected
                );
                assert_eq!(
                    owner(&packet(to.ip(), from.ip(), protocol, &upper(to, from))),
                    expected
                );
            }
        }
    }
}

#[test]
fn a_priority_tag_changes_nothing_and_a_vlan_is_not_steered() {
    let tag = |id| VlanTag { kind: EtherType::VLAN, priority: 5, drop_eligible: false, id };
    for family in [4, 6] {
        let (from, to) = ends(family, ports(family, IpProtocol::UDP));
        let plain = packet(from.ip(), to.ip(), IpProtocol::UDP, &upper(from, to));
        let expected = owner(&plain);
        assert_ne!(expected, WorkerId::CONTROL);
        assert_eq!(steer::frame(&steering(), &frame(&plain, &[tag(0)])), expected);
        assert_eq!(steer::frame(&steering(), &frame(&plain, &[tag(0), tag(0)])), expected);
        assert_eq!(steer::frame(&steering(), &frame(&plain, &[tag(7)])), WorkerId::CONTROL);
    }
}

#[test]
fn options_and_extension_headers_are_stepped_over() {
    let (from, to) = ends(4, ports(4, IpProtocol::TCP));
    let expected = steering().flow(from, to, 6);
    let mut with_options = packet(from.ip(), to.ip(), IpProtocol::TCP, &upper(from, to));
    with_options[0] = 0x47;
    with_options.splice(20..20, [1; 8]);
    assert_eq!(owner(&with_options), expected);

    let (from, to) = ends(6, ports(6, IpProtocol::TCP));
    let hop_by_hop = [&[60, 0, 1, 4, 0, 0, 0, 0][..], &[6, 0, 1, 4, 0, 0, 0, 0], &upper(from, to)];
    let chain = packet(from.ip(), to.ip(), IpProtocol::HOP_BY_HOP, &hop_by_hop.concat());
    assert_eq!(owner(&chain), steering().flow(from, to, 6));
}

#[test]
fn all_fragments_of_a_datagram_have_one_owner_and_atomic_ones_go_by_their_flow() {
    let (from, to) = ends(4, ports(4, IpProtocol::UDP));
    let whole = packet(from.ip(), to.ip(), IpProtocol::UDP, &upper(from, to));
    for (id, places) in [(1_u16, [0x2000_u16, 0x2003, 0x0006]), (2, [0x2000, 0x3fff, 0x1fff])] {
        for place in places {
            let mut fragment = whole.clone();
            fragment[4..6].copy_from_slice(&id.to_be_bytes());
            fragment[6..8].copy_from_slice(&place.to_be_bytes());
            assert_eq!(owner(&fragment), steering().pair(from.ip(), to.ip(), id.into()));
        }
    }
    let mut whole_after_all = whole.clone();
    whole_after_all[6] = 0x40;
    assert_eq!(owner(&whole_after_all), owner(&whole), "the flag `do not fragment` is no fragment");

    let (from, to) = ends(6, ports(6, IpProtocol::UDP));
    let with = |place: u16, id: u32| {
        let mut bytes = vec![17, 0];
        bytes.extend(place.to_be_bytes());
        bytes.extend(id.to_be_bytes());
        bytes.extend(upper(from, to));
        packet(from.ip(), to.ip(), IpProtocol::FRAGMENT, &bytes)
    };
    for id in [1, 0xdead_beef] {
        for place in [1, 1480 | 1, 2960] {
            assert_eq!(owner(&with(place, id)), steering().pair(from.ip(), to.ip(), id));
        }
    }
    assert_eq!(owner(&with(0, 5)), steering().flow(from, to, 17), "atomic (RFC 6946)");
}

#[test]
fn echoes_go_by_their_two_addresses_and_errors_by_the_flow_that_they_quote() {
    for (family, echoes, errors) in
        [(4, [8, 0], &[3, 4, 11, 12][..]), (6, [128, 129], &[1, 2, 3, 4][..])]
    {
        let icmp = if family == 4 { IpProtocol::ICMPV4 } else { IpProtocol::ICMPV6 };
        let (us, them) = ends(family, ports(family, IpProtocol::UDP));
        let router = ends(family, (0, 0)).0.ip();
        let message = |kind: u8, body: &[u8]| [&[kind, 0, 0, 0, 0, 0, 0, 0][..], body].concat();
        let pair = steering().pair(us.ip(), them.ip(), ECHO);
        for kind in echoes {
            assert_eq!(owner(&packet(us.ip(), them.ip(), icmp, &message(kind, b"ping"))), pair);
            assert_eq!(owner(&packet(them.ip(), us.ip(), icmp, &message(kind, b"pong"))), pair);
        }
        let quoted = packet(us.ip(), them.ip(), IpProtocol::UDP, &upper(us, them));
        let our_echo = packet(us.ip(), them.ip(), icmp, &message(echoes[0], b"ping"));
        let expected = steering().flow(us, them, 17);
        for kind in errors {
            let about =
                |quoted: &[u8]| owner(&packet(router, us.ip(), icmp, &message(*kind, quoted)));
            assert_eq!(about(&quoted), expected, "{family} {kind}");
            // A header and eight bytes are all that must be quoted.
            let least = quoted.len() - 16;
            assert_eq!(about(&quoted[..least]), expected);
            assert_eq!(about(&quoted[..least - 5]), WorkerId::CONTROL, "no ports, no owner");
            assert_eq!(about(&our_echo), pair);
            assert_eq!(about(&[]), WorkerId::CONTROL);
        }
    }
}

#[test]
fn a_quoted_fragment_has_an_owner_only_where_it_has_ports() {
    let (us, them) = ends(4, ports(4, IpProtocol::UDP));
    let expected = steering().flow(us, them, 17);
    let mut quoted = packet(us.ip(), them.ip(), IpProtocol::UDP, &upper(us, them));
    let about = |quoted: &[u8]| {
        let message = [&[11, 1, 0, 0, 0, 0, 0, 0][..], quoted].concat();
        owner(&packet(them.ip(), us.ip(), IpProtocol::ICMPV4, &message))
    };
    quoted[6] = 0x20;
    assert_eq!(about(&quoted), expected);
    quoted[7] = 1;
    assert_eq!(about(&quoted), WorkerId::CONTROL);

    let (us, them) = ends(6, ports(6, IpProtocol::UDP));
    let about = |offset: u8| {
        let fragment = [&[17, 0, 0, offset | 1, 0, 0, 0, 9][..], &upper(us, them)].concat();
        let quoted = packet(us.ip(), them.ip(), IpProtocol::FRAGMENT, &fragment);
        let message = [&[3, 1, 0, 0, 0, 0, 0, 0][..], &quoted].concat();
        owner(&packet(them.ip(), us.ip(), IpProtocol::ICMPV6, &message))
    };
    assert_eq!(about(0), steering().flow(us, them, 17));
    assert_eq!(about(8), WorkerId::CONTROL);
}

#[test]
fn what_is_no_flow_belongs_to_the_control_shard() {
    let (from, to) = ends(4, (68, 67));
    // DHCP, both ways.
    for (from, to) in [(from, to), (to, from)] {
        let dhcp = packet(from.ip(), to.ip(), IpProtocol::UDP, &upper(from, to));
        assert_eq!(owner(&dhcp), WorkerId::CONTROL);
    }
    let v6 = ends(6, (0, 0));
    for kind in [130, 131, 132, 133, 134, 135, 136, 137, 143, 200] {
        let message = packet(v6.0.ip(), v6.1.ip(), IpProtocol::ICMPV6, &[kind; 32]);
        assert_eq!(owner(&message), WorkerId::CONTROL, "{kind}");
    }
    for protocol in [2, 4, 41, 47, 50, 89, 132, 255] {
        for (from, to) in [(from, to), v6] {
            let other = packet(from.ip(), to.ip(), IpProtocol(protocol), &upper(from, to));
            assert_eq!(owner(&other), WorkerId::CONTROL, "{protocol}");
        }
    }
    let arp = EthernetFields {
        dst_addr: MacAddr::BROADCAST,
        src_addr: MacAddr([2; 6]),
        ether_type: EtherType::ARP,
    };
    let mut bytes = [0; 60];
    arp.emit(bytes.first_chunk_mut().unwrap());
    assert_eq!(steer::frame(&steering(), &bytes), WorkerId::CONTROL);
}

#[test]
fn cut_at_any_byte_it_is_the_owners_or_the_control_shards() {
    for family in [4, 6] {
        let (from, to) = ends(family, ports(family, IpProtocol::UDP));
        let whole = frame(&packet(from.ip(), to.ip(), IpProtocol::UDP, &upper(from, to)), &[]);
        let ports_end = whole.len() - 20;
        for cut in 0..=whole.len() {
            let expected =
                if cut < ports_end { WorkerId::CONTROL } else { steering().flow(from, to, 17) };
            assert_eq!(steer::frame(&steering(), &whole[..cut]), expected, "{family} {cut}");
        }
    }
}

#[test]
fn any_bytes_have_an_owner_that_is_there_and_a_flow_that_parses_its_own() {
    let mut random = Randomness::from_number(2004);
    let (mut flows, mut strange) = (0, 0);
    for n in 0..200_000 {
        let mut bytes = [0_u8; 96];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&random.public.next_u64().to_le_bytes());
        }
        // Half of them nearly plain, so that the walk goes deep.
        if n % 2 == 0 {
            let v4 = n % 4 == 0;
            bytes[12..15].copy_from_slice(if v4 { &[8, 0, 0x45] } else { &[0x86, 0xdd, 0x60] });
            if v4 {
                bytes[16..18].copy_from_slice(&82_u16.to_be_bytes());
                bytes[20..22].fill(0);
                bytes[23] = [17, 6, 1, 2][n / 4 % 4];
            } else {
                bytes[18..20].copy_from_slice(&42_u16.to_be_bytes());
                bytes[20] = [17, 6, 58, 44, 0, 60][n / 4 % 6];
            }
        }
        let owner = steer::frame(&steering(), &bytes);
        assert!(owner.0 < WORKERS);
        let reseal = |bytes: &mut [u8]| {
            bytes[24..26].fill(0);
            let sum = floodwall_checksum::sum(&bytes[14..34]);
            bytes[24..26].copy_from_slice(&sum.finish().to_be_bytes());
        };
        if bytes[12..14] == [8, 0] {
            reseal(&mut bytes);
        }
        let Ok(valid) = validate(&bytes) else {
            strange += 1;
            continue;
        };
        let plain = matches!(valid.protocol, IpProtocol::UDP | IpProtocol::TCP);
        if !plain || valid.is_fragment {
            continue;
        }
        flows += 1;
        let at = usize::from(valid.network);
        let (from, to): (IpAddr, IpAddr) = match bytes[at] >> 4 {
            4 => {
                let header = Ipv4Header::parse(&bytes[at..], 82).unwrap();
                (header.src_addr().into(), header.dst_addr().into())
            }
            _ => {
                let header = Ipv6Header::parse(&bytes[at..], 82).unwrap();
                (header.src_addr().into(), header.dst_addr().into())
            }
        };
        let ends = (SocketAddr::new(from, valid.src_port), SocketAddr::new(to, valid.dst_port));
        assert_eq!(owner, steering().flow(ends.0, ends.1, valid.protocol.0));
    }
    assert!(flows > 1000 && strange > 1000, "{flows} flows, {strange} strange ones");
}
