//! The shards of one host: what followers do by themselves, what they hand over, what they see of
//! what the control shard learns. One thread, every interleaving of rounds chosen by the test.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use floodwall_base::{DropReason, Family, IfIndex, WorkerId};
use floodwall_packet::{Engine, Handoff, HandoffKind, HandoffList};
use floodwall_stack::Application;
use floodwall_stack::services::{ServiceKind, UdpService};
use floodwall_tests::craft::{self, FAMILIES, HOST, PEER, addr, from_peer, mac};
use floodwall_tests::{Sent, Shards, ethernet_config};
use floodwall_wire::EtherType;

const ECHO: u16 = 7000;

fn services() -> Vec<Box<dyn Application>> {
    vec![Box::new(UdpService::new(ServiceKind::Echo, ECHO))]
}

/// A host of so many workers with an echo service; its peer is known for good.
fn host(workers: u16) -> Shards {
    let mut shards = stranger(workers);
    for family in FAMILIES {
        shards.add_neighbor(addr(family, PEER), mac(PEER));
    }
    shards.settle();
    shards.departed();
    shards
}

/// The same, and nobody is known.
fn stranger(workers: u16) -> Shards {
    let mut shards = Shards::new(&ethernet_config(HOST), workers, services);
    // What the start has to say.
    shards.run_for(Duration::from_secs(2), Duration::from_millis(50));
    shards.departed();
    shards
}

/// A question to the echo service, from a port of the peer.
fn question(family: Family, port: u16) -> Vec<u8> {
    let to = SocketAddr::new(addr(family, HOST), ECHO);
    from_peer(&craft::udp((addr(family, PEER), port).into(), to, &port.to_be_bytes()))
}

/// A port of the peer whose flow to the echo service a worker owns.
fn port_of(shards: &Shards, family: Family, worker: u16) -> u16 {
    let mut ports = 2000..u16::MAX;
    let port = ports.find(|port| shards.owner(&question(family, *port)) == WorkerId(worker));
    port.expect("some flow comes to each worker")
}

/// The answers among what departed, by the asker's port.
fn answers(frames: &[Vec<u8>]) -> Vec<(IpAddr, u16)> {
    let sent = frames.iter().filter_map(|frame| {
        let version = frame[14] >> 4;
        let ether_type = if version == 4 { EtherType::IPV4 } else { EtherType::IPV6 };
        let known = [[8, 0], [0x86, 0xdd]].contains(&[frame[12], frame[13]]);
        let udp = known && frame[if version == 4 { 14 + 9 } else { 14 + 6 }] == 17;
        udp.then(|| Sent::of_ip(&frame[14..], ether_type))
    });
    let port = |sent: &Sent| u16::from_be_bytes([sent.payload[2], sent.payload[3]]);
    sent.map(|sent| (sent.to, port(&sent))).collect()
}

#[test]
fn each_worker_answers_the_flows_that_are_steered_to_it() {
    for (family, workers) in [(Family::V4, 2), (Family::V6, 2), (Family::V4, 4), (Family::V6, 4)] {
        let mut shards = host(workers);
        let ports: Vec<u16> = (2000..2100).collect();
        let frames: Vec<_> = ports.iter().map(|port| question(family, *port)).collect();
        shards.arrive(&frames);
        let mut answered: Vec<u16> =
            answers(&shards.departed()).into_iter().map(|(_, port)| port).collect();
        answered.sort_unstable();
        assert_eq!(answered, ports);
        for worker in 0..workers {
            let stats = shards.stats(worker);
            assert!(stats.fates.delivered > 100 / u64::from(workers) / 2, "{:?}", stats.fates);
            assert_eq!((stats.fates.handed_in, stats.fates.handed_out), (0, 0), "worker {worker}");
        }
        shards.assert_conserved();
    }
}

#[test]
fn an_unknown_neighbour_is_resolved_by_the_control_shard_which_sends_for_the_follower() {
    for family in FAMILIES {
        let mut shards = stranger(2);
        let port = port_of(&shards, family, 1);
        shards.arrive(&[question(family, port)]);
        let follower = shards.stats(1).fates;
        assert_eq!((follower.handed_out, follower.delivered), (1, 1));
        assert_eq!(shards.stats(0).fates.adopted_out, 1);
        assert_eq!(shards.stats(0).pending, 1, "it waits for the link address");
        let asked = shards.departed();
        assert_eq!((asked.len(), answers(&asked).len()), (1, 0), "the link is asked");
        shards.assert_conserved();
        // The answer comes, and the follower knows from then on.
        shards.arrive(&[craft::neighbor_answer(family, PEER)]);
        assert_eq!(answers(&shards.departed()), [(addr(family, PEER), port)]);
        shards.arrive(&[question(family, port), question(family, port)]);
        assert_eq!(answers(&shards.departed()).len(), 2);
        assert_eq!(shards.stats(1).fates.handed_out, 1, "it sends by itself");
        shards.assert_conserved();
    }
}

#[test]
fn what_finds_no_room_to_be_handed_over_dies_by_name() {
    for family in FAMILIES {
        let mut shards = stranger(2);
        let port = port_of(&shards, family, 1);
        let frames = vec![question(family, port); 60];
        // More rounds than the list has room, and nobody takes what it holds.
        shards.workers[1].handoff = HandoffList::new(100);
        for _ in 0..2 {
            shards.act(1, |host, round, _| {
                for frame in &frames {
                    let mut packet = round.pool.packet_from(frame).expect("room");
                    packet.set_iface(IfIndex(1));
                    round.arrived.push(packet).expect("at most a burst");
                }
                let fill = round.peers.as_mut().expect("peers");
                while fill.handoff.room() > 50 {
                    let packet = round.pool.packet_from(&[0]).expect("room");
                    let (to, kind) = (WorkerId::CONTROL, HandoffKind::Frame);
                    fill.handoff.push(Handoff { to, kind, packet }).expect("room");
                }
                host.round(round);
                // Not delivered: this is about the list.
                round.peers.as_mut().expect("peers").handoff.drain().for_each(drop);
            });
        }
        let stats = shards.stats(1);
        assert_eq!(stats.drops_out.of(DropReason::HandoffFull), 20, "{:?}", stats.drops_out);
        assert_eq!(stats.fates.handed_out, 100);
        assert!(stats.conservation().holds());
    }
}
