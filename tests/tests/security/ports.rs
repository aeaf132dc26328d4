//! Which of our own choices remote peers could guess, and which of our memory they could read.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use floodwall_base::{Family, Units, solicited_node};
use floodwall_packet::{Class, Engine};
use floodwall_stack::StackConfig;
use floodwall_tests::craft::{
    FAMILIES, HOST, PEER, addr, echo, frame, from_peer, ip, mac, udp_to_port, v4, v6,
};
use floodwall_tests::{Rig, bytes_of, ethernet_config};
use floodwall_udp::SocketSettings;
use floodwall_wire::ndp::NeighborSolicitationFields;
use floodwall_wire::{ArpOperation, ArpPacket, EtherType, IpProtocol, NdpOption, arp};

use crate::rig;

/// CVE-2022-1012, CVE-2022-32296, CVE-2024-10026, RFC 6056: ports that follow from one another.
#[test]
fn ephemeral_ports_follow_from_nothing() {
    let config = StackConfig { udp_sockets_max: 1024, ..ethernet_config(HOST) };
    for family in FAMILIES {
        let mut rig = Rig::new(&config);
        let any = match family {
            Family::V4 => "0.0.0.0",
            Family::V6 => "::",
        };
        let any = SocketAddr::new(any.parse().expect("an address"), 0);
        let ports: Vec<u16> = (0..1000)
            .map(|_| {
                rig.sockets(|s| {
                    let id = s.udp_bind(any, SocketSettings::new(family)).expect("a port");
                    s.udp_local_addr(id).expect("it is bound").port()
                })
                .0
            })
            .collect();
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), 1000, "each its own");
        let steps: Vec<i32> = ports.windows(2).map(|w| i32::from(w[1]) - i32::from(w[0])).collect();
        let small = steps.iter().filter(|step| step.abs() <= 16).count();
        assert!(small < 20, "{small} of 999 steps are small");
        let up = steps.iter().filter(|step| **step > 0).count();
        assert!((420..580).contains(&up), "{up} of 999 steps go up");
        let odd = ports.iter().filter(|port| *port % 2 == 1).count();
        assert!((420..580).contains(&odd), "{odd} of 1,000 are odd");
        // The same program on another machine gets others.
        let mut other = Rig::new(&config);
        other.random = floodwall_base::Randomness::from_number(2);
        let first = other.sockets(|s| {
            let id = s.udp_bind(any, SocketSettings::new(family)).expect("a port");
            s.udp_local_addr(id).expect("it is bound").port()
        });
        assert_ne!(first.0, ports[0]);
    }
}

/// Every frame that the stack can be made to send by itself.
fn provoked(rig: &mut Rig) -> Vec<Vec<u8>> {
    let request = ArpPacket {
        operation: ArpOperation::REQUEST,
        sender_link_addr: mac(PEER),
        sender_addr: v4(PEER),
        target_link_addr: mac(0),
        target_addr: v4(HOST),
    };
    let mut bytes = [0; arp::PACKET_LEN];
    request.emit(&mut bytes);
    let mut questions = vec![frame(mac(HOST), mac(PEER), EtherType::ARP, &bytes)];
    let (mut bytes, group) = ([0; 64], solicited_node(v6(HOST)));
    let fields = NeighborSolicitationFields { target_addr: v6(HOST) };
    let options = [NdpOption::SourceLinkAddr(mac(PEER))];
    let len = fields.emit_into(&options, v6(PEER), group, &mut bytes).expect("room");
    questions.push(from_peer(&ip(
        v6(PEER).into(),
        group.into(),
        IpProtocol::ICMPV6,
        &bytes[..len],
    )));
    for family in FAMILIES {
        let (from, to) = (addr(family, PEER), addr(family, HOST));
        questions.push(from_peer(&echo(from, to, b"")));
        questions.push(from_peer(&echo(from, to, b"odd")));
        questions.push(from_peer(&udp_to_port(family, 9, b"")));
        questions.push(from_peer(&ip(from, to, IpProtocol(200), b"")));
        // A peer that does not answer is resolved.
        let unknown = addr(family, 77);
        questions.push(from_peer(&echo(unknown, to, b"")));
    }
    questions.iter().flat_map(|q| rig.frame(q)).map(|packet| bytes_of(&packet)).collect()
}

/// CVE-2003-0001 (etherleak), CVE-2020-7451: padding and reserved fields that hold what the memory
/// held before.
#[test]
fn what_leaves_holds_nothing_that_the_memory_held_before() {
    let clean = provoked(&mut rig());
    assert_eq!(clean.len(), 2 + 2 * 5, "each question has its answer");
    for garbage in [0xff, 0x5a] {
        let mut rig = rig();
        for class in [Class::Small, Class::Frame] {
            let mut held = Vec::new();
            while let Some(mut packet) = rig.pool.alloc(class) {
                let (front, back) = (packet.headroom(), packet.tailroom());
                packet.extend(back).expect("its tailroom").fill(garbage);
                packet.prepend(front).expect("its headroom").fill(garbage);
                held.push(packet);
            }
        }
        assert_eq!(provoked(&mut rig), clean);
    }
}

/// A worker's turn is bounded: timed work stops at its budget, and a round takes one burst.
#[test]
fn timed_work_keeps_within_its_budget() {
    let config = StackConfig { neighbors_max: 1024, ..ethernet_config(HOST) };
    let mut rig = Rig::new(&config);
    let any = SocketAddr::new("::".parse().expect("an address"), 4000);
    let settings = SocketSettings::new(Family::V6);
    let id = rig.sockets(|s| s.udp_bind(any, settings)).0.expect("a socket");
    for n in 0..250 {
        let to = SocketAddr::new([0xfd00, 0, 0, 0, 0, 0, 1, n].into(), 9);
        rig.sockets(|s| s.udp_send(id, Some(to), b"?")).0.expect("it waits");
    }
    rig.now += std::time::Duration::from_secs(30);
    for budget in [1, 7, 64] {
        let now = rig.now;
        let (spent, _) = rig.round(Vec::new(), |stack, round| {
            round.budget = Units(budget);
            stack.work(round)
        });
        assert!((1..=budget).contains(&spent.0), "{spent:?} of {budget} at {now:?}");
    }
    assert!(rig.conservation().holds());
}
