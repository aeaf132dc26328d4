//! Drops of what we made ourselves, and for want of memory, in both families: each is provoked and
//! counted once by its reason in the accounting of what we made.
//!
//! Reading: RFC 1122 sections 2.3.2.2 and 3.3.1, RFC 4861 section 7.2.2, RFC 6583.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use floodwall_base::{Counter, DropReason, Family, IfIndex, limits, solicited_node};
use floodwall_packet::{Class, PacketBuf, PoolConfig};
use floodwall_stack::{InterfaceConfig, LinkMedium, StackConfig};
use floodwall_tests::craft::{
    FAMILIES, HOST, PEER, addr, echo, from_peer, ip, mac, udp_to_port, v4, v6,
};
use floodwall_tests::{Drops, Rig, drops_between, ethernet_config};
use floodwall_udp::{SocketId, SocketSettings};
use floodwall_wire::ndp::NeighborSolicitationFields;
use floodwall_wire::{ArpOperation, ArpPacket, EtherType, IpProtocol, arp};

fn rig() -> Rig {
    settled(Rig::with_neighbor(&ethernet_config(HOST), PEER))
}

/// Past the announcements of its addresses, so that no timer disturbs.
fn settled(mut rig: Rig) -> Rig {
    rig.run_for(Duration::from_secs(10));
    rig
}

fn open(rig: &mut Rig) -> SocketId {
    let any = SocketAddr::new("::".parse().unwrap(), 4000);
    rig.sockets(|s| s.udp_bind(any, SocketSettings::new(Family::V6))).0.unwrap()
}

/// What was dropped while `act` ran; the accounting balances and no memory is gone.
fn lost(rig: &mut Rig, act: impl FnOnce(&mut Rig)) -> Drops {
    let (before, free) = (rig.stats(), rig.pool.available());
    act(rig);
    assert!(rig.conservation().holds(), "{:?}", rig.conservation());
    assert_eq!(rig.pool.available(), free, "memory is gone");
    drops_between(&before, &rig.stats())
}

/// Everything of a class that the pool has.
fn drain(rig: &Rig, class: Class) -> Vec<PacketBuf> {
    std::iter::from_fn(|| rig.pool.alloc(class)).collect()
}

#[test]
fn an_answer_to_where_no_route_leads_is_dropped() {
    let sources: [(Family, IpAddr); 2] =
        [(Family::V4, "192.0.2.1".parse().unwrap()), (Family::V6, "2001:db8::1".parse().unwrap())];
    for (family, from) in sources {
        let to = addr(family, HOST);
        for (packet, reason) in [
            (echo(from, to, b"?"), None),
            (ip(from, to, IpProtocol(200), b"?"), Some(DropReason::ProtocolUnknown)),
        ] {
            let mut rig = rig();
            let lost = lost(&mut rig, |rig| assert!(rig.frame(&from_peer(&packet)).is_empty()));
            let arrived = reason.map(|r| (r, 1)).into_iter().collect();
            assert_eq!(lost, (arrived, vec![(DropReason::NoRoute, 1)]), "{from}");
        }
    }
}

#[test]
fn what_waits_too_long_in_line_for_a_neighbour_is_dropped_oldest_first() {
    for family in FAMILIES {
        let mut rig = rig();
        let id = open(&mut rig);
        let (to, max) = (SocketAddr::new(addr(family, 9), 9), limits::NEIGHBOR_PENDING_MAX);
        let before = rig.stats();
        for n in 0..=max {
            rig.sockets(|s| s.udp_send(id, Some(to), &[n as u8; 9])).0.unwrap();
        }
        let stats = rig.stats();
        let one = vec![(DropReason::NeighborPendingFull, 1)];
        assert_eq!((drops_between(&before, &stats), stats.pending as usize), ((vec![], one), max));
        // The neighbour is added: what waited leaves, without the oldest.
        let mac = floodwall_base::MacAddr([2, 0, 0, 0, 0, 9]);
        let answer = match family {
            Family::V4 => arp_reply(9),
            Family::V6 => advertisement(9),
        };
        let sent: Vec<u8> = rig
            .frame(&answer)
            .iter()
            .map(|p| {
                assert_eq!(p.first()[..6], mac.0);
                *p.first().last().unwrap()
            })
            .collect();
        assert_eq!(sent, (1..=max as u8).collect::<Vec<_>>());
        assert!(rig.conservation().holds());
    }
}

fn arp_reply(host: u8) -> Vec<u8> {
    let packet = ArpPacket {
        operation: ArpOperation::REPLY,
        sender_link_addr: mac(host),
        sender_addr: v4(host),
        target_link_addr: mac(HOST),
        target_addr: v4(HOST),
    };
    let mut bytes = [0; arp::PACKET_LEN];
    packet.emit(&mut bytes);
    floodwall_tests::craft::frame(mac(HOST), mac(host), EtherType::ARP, &bytes)
}

fn arp_request(host: u8) -> Vec<u8> {
    let mut bytes = arp_reply(host);
    bytes[21] = 1;
    bytes
}

fn advertisement(host: u8) -> Vec<u8> {
    let mut bytes = [0; 64];
    let fields = floodwall_wire::ndp::NeighborAdvertisementFields {
        router: false,
        solicited: true,
        override_entry: true,
        target_addr: v6(host),
    };
    let options = [floodwall_wire::NdpOption::TargetLinkAddr(mac(host))];
    let len = fields.emit_into(&options, v6(host), v6(HOST), &mut bytes).unwrap();
    from_peer(&ip(v6(host).into(), v6(HOST).into(), IpProtocol::ICMPV6, &bytes[..len]))
}

#[test]
fn what_finds_no_room_among_unresolved_neighbours_is_dropped() {
    let wide = InterfaceConfig {
        addresses: vec!["10.0.0.1/16".parse().unwrap(), "fd00::1/64".parse().unwrap()],
        ..ethernet_config(HOST).interfaces[0].clone()
    };
    let config = StackConfig { interfaces: vec![wide], ..ethernet_config(HOST) };
    for family in FAMILIES {
        let mut rig = settled(Rig::new(&config));
        let id = open(&mut rig);
        let room = limits::NEIGHBORS_INCOMPLETE_MAX;
        let before = rig.stats();
        for n in 0..room + 50 {
            let to: IpAddr = match family {
                Family::V4 => [10, 0, 1 + (n / 200) as u8, (n % 200) as u8].into(),
                Family::V6 => [0xfd00, 0, 0, 0, 0, 0, 1, n as u16].into(),
            };
            rig.sockets(|s| s.udp_send(id, Some(SocketAddr::new(to, 9)), b"?")).0.unwrap();
        }
        let lost = drops_between(&before, &rig.stats());
        assert_eq!(lost, (vec![], vec![(DropReason::NeighborTableFull, 50)]));
        assert_eq!(rig.stats().pending as usize, room);
        assert!(rig.conservation().holds());
    }
}

#[test]
fn what_waits_for_a_neighbour_that_never_answers_is_dropped() {
    for family in FAMILIES {
        let mut rig = rig();
        let id = open(&mut rig);
        let to = SocketAddr::new(addr(family, 9), 9);
        let lost = lost(&mut rig, |rig| {
            rig.sockets(|s| s.udp_send(id, Some(to), b"?")).0.unwrap();
            rig.run_for(Duration::from_secs(4));
        });
        assert_eq!(lost, (vec![], vec![(DropReason::NeighborUnreachable, 1)]));
    }
}

#[test]
fn what_is_for_an_interface_that_is_down_is_dropped_on_both_ways() {
    for family in FAMILIES {
        let mut rig = rig();
        let question = from_peer(&echo(addr(family, PEER), addr(family, HOST), b"?"));
        rig.stack.set_up(IfIndex(1), false, rig.now, &mut rig.random);
        rig.expect_drop("arrived", &question, DropReason::InterfaceDown, None);
        let id = open(&mut rig);
        let to = SocketAddr::new(addr(family, PEER), 9);
        rig.sockets(|s| s.udp_send(id, Some(to), b"?")).0.unwrap_err();
        rig.stack.set_up(IfIndex(1), true, rig.now, &mut rig.random);
        rig.sockets(|s| s.udp_send(id, Some(to), b"?")).0.unwrap();
        assert_eq!(rig.lives("up again", &question).len(), 1);
    }
}

/// A question that came in by one interface, with an answer that leaves by another.
#[test]
fn an_answer_over_an_interface_that_is_down_is_dropped() {
    let second = InterfaceConfig {
        name: "eth1".to_owned(),
        medium: LinkMedium::Ip,
        mtu: 1500,
        addresses: vec!["10.1.0.1/24".parse().unwrap(), "fd01::1/64".parse().unwrap()],
        gateways: Vec::new(),
        ..InterfaceConfig::default()
    };
    let mut config = ethernet_config(HOST);
    config.interfaces.push(second);
    for (family, from) in [(Family::V4, "10.1.0.9"), (Family::V6, "fd01::9")] {
        let mut rig = settled(Rig::with_neighbor(&config, PEER));
        rig.stack.set_up(IfIndex(2), false, rig.now, &mut rig.random);
        let question = from_peer(&echo(from.parse().unwrap(), addr(family, HOST), b"?"));
        let lost = lost(&mut rig, |rig| assert!(rig.frame(&question).is_empty()));
        assert_eq!(lost, (vec![], vec![(DropReason::InterfaceDown, 1)]));
    }
}

#[test]
fn what_overflows_the_loopback_is_dropped() {
    for host in ["127.0.0.1", "::1"] {
        let mut rig = rig();
        let id = open(&mut rig);
        let to = SocketAddr::new(host.parse().unwrap(), 9);
        let (max, before) = (limits::LOOPBACK_QUEUE_MAX, rig.stats());
        rig.sockets(|s| (0..max + 7).for_each(|_| s.udp_send(id, Some(to), b"?").unwrap()));
        let lost = drops_between(&before, &rig.stats());
        assert_eq!(lost, (vec![], vec![(DropReason::LoopbackFull, 7)]), "{host}");
        assert!(rig.conservation().holds());
    }
}

fn solicitation() -> Vec<u8> {
    let (mut bytes, group) = ([0; 64], solicited_node(v6(HOST)));
    let fields = NeighborSolicitationFields { target_addr: v6(HOST) };
    let options = [floodwall_wire::NdpOption::SourceLinkAddr(mac(PEER))];
    let len = fields.emit_into(&options, v6(PEER), group, &mut bytes).unwrap();
    from_peer(&ip(v6(PEER).into(), group.into(), IpProtocol::ICMPV6, &bytes[..len]))
}

/// The answer of neighbour protocols needs a small frame of its own.
#[test]
fn an_answer_for_which_there_is_no_memory_is_dropped() {
    for question in [arp_request(PEER), solicitation()] {
        let mut rig = rig();
        let mut packet = rig.pool.alloc(Class::Frame).unwrap();
        assert!(packet.extend_from_slice(&question));
        let held = (drain(&rig, Class::Small), drain(&rig, Class::Frame));
        let before = rig.stats();
        assert!(rig.arrive(vec![packet]).is_empty());
        let lost = drops_between(&before, &rig.stats());
        assert_eq!(lost, (vec![], vec![(DropReason::NoBuffer, 1)]));
        assert!(rig.conservation().holds());
        drop(held);
        assert_eq!(rig.frame(&question).len(), 1);
    }
}

/// An echo request with shared bytes cannot be rewritten in place.
#[test]
fn a_question_that_cannot_be_rewritten_for_want_of_memory_is_dropped() {
    for family in FAMILIES {
        let mut rig = rig();
        let question = from_peer(&echo(addr(family, PEER), addr(family, HOST), b"?"));
        let packet = rig.pool.packet_from(&question).unwrap();
        let view = packet.share(&rig.pool, 0, question.len()).unwrap();
        let held = (drain(&rig, Class::Small), drain(&rig, Class::Frame));
        let before = rig.stats();
        assert!(rig.arrive(vec![view]).is_empty());
        let lost = drops_between(&before, &rig.stats());
        assert_eq!(lost, (vec![(DropReason::NoBuffer, 1)], vec![]));
        assert!(rig.conservation().holds());
        drop((held, packet));
        assert_eq!(rig.frame(&question).len(), 1);
    }
}

/// An error that cannot be made for want of memory costs nothing but the error.
#[test]
fn without_memory_no_error_is_made() {
    for family in FAMILIES {
        let mut rig = rig();
        let packet = rig.pool.packet_from(&from_peer(&udp_to_port(family, 9, b"?"))).unwrap();
        let held = (drain(&rig, Class::Small), drain(&rig, Class::Frame));
        let before = rig.stats();
        assert!(rig.arrive(vec![packet]).is_empty());
        let lost = drops_between(&before, &rig.stats());
        assert_eq!(lost, (vec![(DropReason::UdpNoPort, 1)], vec![]));
        let counter = match family {
            Family::V4 => Counter::IpOutDiscards,
            Family::V6 => Counter::Ip6OutDiscards,
        };
        assert_eq!(rig.stats().counters.of(counter), 1);
        assert!(rig.conservation().holds());
        drop(held);
    }
}

/// To be rewritten, shared bytes need a chunk of their own before the rest of theirs.
#[test]
fn a_question_in_as_many_pieces_as_it_may_have_is_dropped_where_one_more_is_needed() {
    for family in FAMILIES {
        let mut rig = rig();
        let question = from_peer(&echo(addr(family, PEER), addr(family, HOST), &[7; 80]));
        let (front, back) = question.split_at(question.len() + 1 - limits::CHUNKS_MAX);
        let chunks = [front].into_iter().chain(back.chunks(1));
        let packet = rig.pool.packet_from_chunks(chunks).unwrap();
        assert_eq!(packet.chunk_count(), limits::CHUNKS_MAX);
        let view = packet.share(&rig.pool, 0, question.len()).unwrap();
        let before = rig.stats();
        assert!(rig.arrive(vec![view]).is_empty());
        let lost = drops_between(&before, &rig.stats());
        assert!(rig.conservation().holds());
        assert_eq!(lost.0, vec![(DropReason::TooManyChunks, 1)]);
        assert_eq!(rig.arrive(vec![packet]).len(), 1, "it is not shared: written in place");
    }
}

/// The smallest pool that there is: everything is dropped or served, nothing stalls or leaks.
#[test]
fn a_pool_of_one_frame_serves_one_packet_at_a_time() {
    let pool = PoolConfig { small: 0, frames: 1, references: 0, ..PoolConfig::default() };
    for family in FAMILIES {
        let mut rig = Rig::with_pool(&ethernet_config(HOST), &pool);
        let mac = mac(PEER);
        rig.stack.add_neighbor(IfIndex(1), addr(family, PEER), mac, rig.now).unwrap();
        let question = from_peer(&echo(addr(family, PEER), addr(family, HOST), b"?"));
        for _ in 0..10 {
            assert_eq!(rig.lives("an echo in its own frame", &question).len(), 1);
        }
        let closed = from_peer(&udp_to_port(family, 9, b"?"));
        rig.expect_drop("no frame for the error", &closed, DropReason::UdpNoPort, None);
        assert_eq!(rig.pool.available().frames, 1);
    }
}
