//! Groups end to end in one stack: what leaves when addresses and sockets come and go, what is
//! answered, and what programs receive of groups.
//!
//! Reading: RFC 9776, RFC 9777, RFC 3590, RFC 1112 section 6.1, RFC 3678.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use floodwall_base::{Counter, Family, IfIndex, MacAddr};
use floodwall_packet::PacketBuf;
use floodwall_stack::{GroupInterface, StackConfig};
use floodwall_tests::craft::{FAMILIES, HOST, PEER, addr, from_peer, udp};
use floodwall_tests::{Rig, bytes_of, ethernet_config};
use floodwall_udp::{GroupError, RecvError, SocketId, SocketSettings};
use floodwall_wire::group::{GroupAddrs, QueryFields, RecordKind};
use floodwall_wire::{GroupMessage, GroupProtocol};

const ETH: IfIndex = IfIndex(1);
const LONG: Duration = Duration::from_secs(60);

fn group(family: Family, n: u8) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(239, 1, 2, n).into(),
        Family::V6 => Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0, n.into()).into(),
    }
}

/// A rig that has sent all reports of its start.
fn rig() -> Rig {
    let mut rig = Rig::with_neighbor(&ethernet_config(HOST), PEER);
    rig.run_for(LONG);
    rig
}

fn open(rig: &mut Rig, family: Family, port: u16) -> SocketId {
    let any = match family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    let settings = SocketSettings { reuse_address: true, ..SocketSettings::new(family) };
    rig.sockets(|s| s.udp_bind(SocketAddr::new(any, port), settings)).0.unwrap()
}

/// One record or old message that left, read from its frame: everything about the frame is checked.
fn told(frames: &[PacketBuf]) -> Vec<(u8, IpAddr, Vec<IpAddr>)> {
    let mut all = Vec::new();
    for frame in frames {
        let bytes = bytes_of(frame);
        match (u16::from_be_bytes([bytes[12], bytes[13]]), bytes.get(23), bytes.get(20)) {
            (0x0800, Some(2), _) => {
                // 24 bytes of header: TOS, TTL, router alert.
                assert_eq!((bytes[14], bytes[15], bytes[22]), (0x46, 0xc0, 1));
                assert_eq!(bytes[34..38], [148, 4, 0, 0]);
                let to = Ipv4Addr::from(*bytes[30..].first_chunk::<4>().unwrap());
                assert_eq!(bytes[..6], MacAddr::of_ipv4_multicast(to).0);
                all.extend(read::<Ipv4Addr>(&bytes[38..]));
            }
            (0x86dd, _, Some(0)) => {
                // Hop limit 1, hop-by-hop options with router alert and padding.
                assert_eq!(bytes[21], 1);
                assert_eq!(bytes[54..62], [58, 0, 5, 2, 0, 0, 1, 0]);
                let to = Ipv6Addr::from(*bytes[38..].first_chunk::<16>().unwrap());
                assert_eq!(bytes[..6], MacAddr::of_ipv6_multicast(to).0);
                let from = Ipv6Addr::from(*bytes[22..].first_chunk::<16>().unwrap());
                assert!(from.is_unicast_link_local() || from.is_unspecified(), "{from}");
                all.extend(read::<Ipv6Addr>(&bytes[62..]));
            }
            _ => {}
        }
    }
    all
}

fn read<A: GroupProtocol>(message: &[u8]) -> Vec<(u8, IpAddr, Vec<IpAddr>)> {
    let GroupMessage::Records(records) = A::parse(message).unwrap() else { panic!("records") };
    records
        .map(|r| r.unwrap())
        .map(|r| (r.kind.0, r.group.to_ip(), r.sources.iter().map(A::to_ip).collect()))
        .collect()
}

fn once(kind: RecordKind, group: IpAddr) -> Vec<(u8, IpAddr, Vec<IpAddr>)> {
    vec![(kind.0, group, vec![])]
}

/// A query in its packet, as a router of the link sends it.
pub(crate) fn query<A: GroupProtocol>(fields: &QueryFields<'_, A>, from: A, to: A) -> Vec<u8> {
    let mut out = [0; 1400];
    let ends = GroupAddrs { src_addr: from, dst_addr: to };
    let len = A::emit_query(fields, ends, &mut out).unwrap();
    floodwall_tests::craft::group_packet(from.to_ip(), to.to_ip(), &out[..len])
}

fn ask(rig: &mut Rig, family: Family) {
    let bytes = match family {
        Family::V4 => {
            query(&QueryFields::general(), Ipv4Addr::new(10, 0, 0, PEER), Ipv4Addr::ALL_SYSTEMS)
        }
        Family::V6 => query(
            &QueryFields::general(),
            "fe80::2".parse::<Ipv6Addr>().unwrap(),
            Ipv6Addr::ALL_SYSTEMS,
        ),
    };
    rig.lives("a query", &from_peer(&bytes));
}

#[test]
fn solicited_node_groups_are_told_at_the_start_and_again_once_there_is_an_address_to_tell_from() {
    let config = StackConfig { duplicate_address_detection: true, ..ethernet_config(HOST) };
    let mut rig = Rig::new(&config);
    let all = told(&rig.run_for(LONG));
    let groups: std::collections::BTreeSet<IpAddr> = all.iter().map(|(_, g, _)| *g).collect();
    // fe80::ff:fe00:1 and fd00::1 share their last 24 bits with no other address.
    let solicited: IpAddr = "ff02::1:ff00:1".parse().unwrap();
    assert_eq!(groups.into_iter().collect::<Vec<_>>(), [solicited]);
    assert!((3..=4).contains(&all.len()), "{all:?}");
    assert!(all.iter().all(|(kind, ..)| *kind == RecordKind::TO_EXCLUDE.0));
    assert_eq!(rig.stats().counters.of(Counter::Icmp6OutMLDv2Reports) as usize, all.len());
    assert!(rig.conservation().holds());
}

#[test]
fn the_first_join_and_the_last_leave_are_reported_by_each_way() {
    for family in FAMILIES {
        let (mut rig, group) = (rig(), group(family, 1));
        let ids = [open(&mut rig, family, 5), open(&mut rig, family, 5)];
        rig.sockets(|s| s.udp_join(ids[0], group, ETH)).0.unwrap();
        let twice = |kind| [once(kind, group), once(kind, group)].concat();
        assert_eq!(told(&rig.run_for(LONG)), twice(RecordKind::TO_EXCLUDE));
        rig.sockets(|s| s.udp_join(ids[1], group, ETH)).0.unwrap();
        rig.sockets(|s| s.udp_leave(ids[0], group, ETH)).0.unwrap();
        assert!(rig.run_for(LONG).is_empty(), "one of them is in it all the time");
        let again = rig.sockets(|s| s.udp_leave(ids[0], group, ETH)).0;
        assert_eq!(again, Err(GroupError::Membership));
        // Closing leaves.
        rig.sockets(|s| s.udp_close(ids[1]));
        assert_eq!(told(&rig.run_for(LONG)), twice(RecordKind::TO_INCLUDE));
        assert!(!rig.stack.interfaces()[1].is_member(group));
        assert!(rig.conservation().holds());
    }
}

#[test]
fn a_query_is_answered_with_all_groups_of_its_family() {
    for family in FAMILIES {
        let mut rig = rig();
        let id = open(&mut rig, family, 5);
        rig.sockets(|s| s.udp_join(id, group(family, 1), ETH)).0.unwrap();
        rig.run_for(LONG);
        ask(&mut rig, family);
        let all = told(&rig.run_for(LONG));
        assert_eq!(all.len(), if family == Family::V4 { 1 } else { 2 }, "{all:?}");
        assert!(all.iter().all(|(kind, ..)| *kind == RecordKind::IS_EXCLUDE.0));
        let counter = match family {
            Family::V4 => Counter::FloodwallIgmpInQueries,
            Family::V6 => Counter::Icmp6InGroupMembQueries,
        };
        assert_eq!(rig.stats().counters.of(counter), 1);
    }
}

/// Switches ask without having an address (RFC 4541 section 2.1.1).
#[test]
fn an_igmp_query_from_no_address_is_answered() {
    let mut rig = rig();
    let id = open(&mut rig, Family::V4, 5);
    rig.sockets(|s| s.udp_join(id, group(Family::V4, 1), ETH)).0.unwrap();
    rig.run_for(LONG);
    let bytes = query(&QueryFields::general(), Ipv4Addr::UNSPECIFIED, Ipv4Addr::ALL_SYSTEMS);
    rig.lives("a switch's query", &from_peer(&bytes));
    assert_eq!(told(&rig.run_for(LONG)).len(), 1);
}

#[test]
fn a_link_that_goes_down_forgets_and_one_that_comes_up_is_told_again() {
    for family in FAMILIES {
        let (mut rig, group) = (rig(), group(family, 1));
        let id = open(&mut rig, family, 5);
        rig.sockets(|s| s.udp_join(id, group, ETH)).0.unwrap();
        rig.run_for(LONG);
        let Rig { stack, now, random, .. } = &mut rig;
        stack.set_up(ETH, false, *now, random);
        assert!(told(&rig.run_for(LONG)).is_empty());
        let Rig { stack, now, random, .. } = &mut rig;
        stack.set_up(ETH, true, *now, random);
        let all = told(&rig.run_for(LONG));
        let of_group = all.iter().filter(|(_, g, _)| *g == group).count();
        assert!(of_group >= 2, "{all:?}");
        assert!(rig.conservation().holds());
    }
}

fn recv(rig: &mut Rig, id: SocketId) -> Result<Vec<u8>, RecvError> {
    let mut out = [0; 100];
    let received = rig.sockets(|s| s.udp_recv(id, &mut out)).0?;
    Ok(out[..received.len].to_vec())
}

fn from(family: Family, host: u8, to: IpAddr, payload: &[u8]) -> Vec<u8> {
    from_peer(&udp((addr(family, host), 9).into(), SocketAddr::new(to, 5), payload))
}

#[test]
fn a_socket_hears_the_senders_that_it_chose_and_routers_are_told_of_them() {
    for family in FAMILIES {
        let (mut rig, group) = (rig(), group(family, 1));
        let id = open(&mut rig, family, 5);
        let (wanted, other) = (addr(family, 7), addr(family, 8));
        rig.sockets(|s| s.udp_join_source(id, wanted, group, ETH)).0.unwrap();
        let all = told(&rig.run_for(LONG));
        let allow = (RecordKind::ALLOW_NEW.0, group, vec![wanted]);
        assert_eq!(all, vec![allow; 2]);
        rig.frame(&from(family, 7, group, b"wanted"));
        rig.frame(&from(family, 8, group, b"other"));
        assert_eq!(recv(&mut rig, id).unwrap(), b"wanted");
        assert_eq!(recv(&mut rig, id), Err(RecvError::WouldBlock));
        // A second socket receives from any source: the interface does too, the first still
        // chooses.
        let all_ears = open(&mut rig, family, 5);
        rig.sockets(|s| s.udp_join(all_ears, group, ETH)).0.unwrap();
        assert_eq!(told(&rig.run_for(LONG))[0], once(RecordKind::TO_EXCLUDE, group)[0]);
        rig.frame(&from(family, 8, group, b"other"));
        assert_eq!(recv(&mut rig, all_ears).unwrap(), b"other");
        assert_eq!(recv(&mut rig, id), Err(RecvError::WouldBlock));
        rig.sockets(|s| s.udp_close(all_ears));
        rig.run_for(LONG);
        // The last source's leaving leaves the group.
        let wrong = rig.sockets(|s| s.udp_leave_source(id, other, group, ETH)).0;
        assert_eq!(wrong, Err(GroupError::Membership));
        rig.sockets(|s| s.udp_leave_source(id, wanted, group, ETH)).0.unwrap();
        rig.run_for(LONG);
        assert!(!rig.stack.interfaces()[1].is_member(group));
        assert!(rig.conservation().holds());
    }
}

#[test]
fn what_is_sent_to_a_group_leaves_with_hop_limit_1_and_is_heard_here_unless_unwanted() {
    for family in FAMILIES {
        let (mut rig, group) = (rig(), group(family, 1));
        let (id, sender) = (open(&mut rig, family, 5), open(&mut rig, family, 6));
        let to = Some(SocketAddr::new(group, 5));
        let send = |rig: &mut Rig| {
            let (result, departed) = rig.sockets(|s| s.udp_send(sender, to, b"hello"));
            result.unwrap();
            departed
        };
        assert_eq!(send(&mut rig).len(), 1);
        assert_eq!(recv(&mut rig, id), Err(RecvError::WouldBlock), "no socket joined");
        rig.sockets(|s| s.udp_join(id, group, ETH)).0.unwrap();
        rig.run_for(LONG);
        let departed = send(&mut rig);
        let bytes = bytes_of(&departed[0]);
        let (hop_limit, link) = match group {
            IpAddr::V4(a) => (bytes[22], MacAddr::of_ipv4_multicast(a)),
            IpAddr::V6(a) => (bytes[21], MacAddr::of_ipv6_multicast(a)),
        };
        assert_eq!((hop_limit, &bytes[..6]), (1, &link.0[..]));
        assert_eq!(recv(&mut rig, id).unwrap(), b"hello");
        rig.sockets(|s| s.udp_set_multicast_loop(sender, false)).0.unwrap();
        assert_eq!(send(&mut rig).len(), 1);
        assert_eq!(recv(&mut rig, id), Err(RecvError::WouldBlock));
        // Hop limit 0: this host only.
        rig.sockets(|s| s.udp_set_multicast_loop(sender, true)).0.unwrap();
        rig.sockets(|s| s.udp_set_multicast_ttl(sender, 0)).0.unwrap();
        assert!(send(&mut rig).is_empty());
        assert_eq!(recv(&mut rig, id).unwrap(), b"hello");
        rig.sockets(|s| s.udp_set_multicast_ttl(sender, 32)).0.unwrap();
        let bytes = bytes_of(&send(&mut rig)[0]);
        assert_eq!(if family == Family::V4 { bytes[22] } else { bytes[21] }, 32);
        assert!(rig.conservation().holds());
    }
}

#[test]
fn programs_name_the_interface_as_the_standard_library_does() {
    let mut rig = rig();
    let (v4, v6) = (open(&mut rig, Family::V4, 5), open(&mut rig, Family::V6, 6));
    let (a, b) = (Ipv4Addr::new(239, 9, 9, 9), "ff15::9".parse::<Ipv6Addr>().unwrap());
    let ours = Ipv4Addr::new(10, 0, 0, HOST);
    rig.sockets(|s| s.udp_join_multicast_v4(v4, a, Ipv4Addr::UNSPECIFIED)).0.unwrap();
    rig.sockets(|s| s.udp_leave_multicast_v4(v4, a, ours)).0.unwrap();
    rig.sockets(|s| s.udp_join_multicast_v6(v6, b, 0)).0.unwrap();
    rig.sockets(|s| s.udp_leave_multicast_v6(v6, b, 1)).0.unwrap();
    let (unknown, foreign) = (Err(GroupError::NoInterface), Ipv4Addr::new(10, 9, 9, 9));
    assert_eq!(rig.sockets(|s| s.udp_join_multicast_v4(v4, a, foreign)).0, unknown);
    for number in [7, 65_536, u32::MAX] {
        assert_eq!(rig.sockets(|s| s.udp_join_multicast_v6(v6, b, number)).0, unknown);
    }
    assert_eq!(rig.sockets(|s| s.group_interface(GroupInterface::Any)).0, Ok(ETH));
    let no_group = rig.sockets(|s| s.udp_join(v4, addr(Family::V4, 5), ETH)).0;
    assert_eq!(no_group, Err(GroupError::NotGroup));
}

/// What a loopback receives goes no further, and no report is sent of it.
#[test]
fn a_group_of_the_loopback_is_heard_there_and_told_nowhere() {
    for family in FAMILIES {
        let (mut rig, group) = (rig(), group(family, 1));
        let (id, sender) = (open(&mut rig, family, 5), open(&mut rig, family, 6));
        rig.sockets(|s| s.udp_join(id, group, IfIndex::LOOPBACK)).0.unwrap();
        let lo = Some(IfIndex::LOOPBACK);
        rig.sockets(|s| s.udp_set_multicast_interface(sender, lo)).0.unwrap();
        let to = Some(SocketAddr::new(group, 5));
        let (sent, departed) = rig.sockets(|s| s.udp_send(sender, to, b"hello"));
        sent.unwrap();
        assert!(departed.is_empty() && rig.run_for(LONG).is_empty());
        assert_eq!(recv(&mut rig, id).unwrap(), b"hello");
        assert!(rig.conservation().holds());
    }
}
