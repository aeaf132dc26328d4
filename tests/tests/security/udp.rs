//! UDP: lengths, empty payloads, services that talk to each other for ever.

use std::net::{IpAddr, SocketAddr};

use floodwall_base::{DropReason, Family, IfIndex, Units};
use floodwall_packet::{Burst, Engine, PacketList, Round};
use floodwall_services::{ServiceKind, UdpService};
use floodwall_stack::Host;
use floodwall_tests::craft::{
    FAMILIES, HOST, PEER, addr, from_peer, ip, mac, udp, udp_datagram, udp_to_port,
};
use floodwall_tests::{Rig, Sent, ethernet_config};
use floodwall_udp::SocketSettings;
use floodwall_wire::IpProtocol;

use crate::rig;

/// CVE-2019-11683, CVE-2021-31344: datagrams without payload, with a length below the header's or
/// beyond the packet. Every payload arrives as long as it was, an empty one too, many at once.
#[test]
fn a_payload_of_any_length_arrives_as_it_was() {
    for family in FAMILIES {
        let mut rig = rig();
        let any = SocketAddr::new("::".parse().expect("an address"), 7);
        let settings = SocketSettings { receive_bytes: 1 << 20, ..SocketSettings::new(Family::V6) };
        let id = rig.sockets(|s| s.udp_bind(any, settings)).0.expect("a socket");
        let lengths: Vec<usize> = (0..=1472).step_by(if cfg!(miri) { 97 } else { 1 }).collect();
        for batch in lengths.chunks(64) {
            let frame = |len: &usize| from_peer(&udp_to_port(family, 7, &vec![*len as u8; *len]));
            let packets =
                batch.iter().map(|len| rig.pool.packet_from(&frame(len)).expect("room")).collect();
            assert!(rig.arrive(packets).is_empty());
            for &len in batch {
                let mut out = [0; 1500];
                let received = rig.sockets(|s| s.udp_recv(id, &mut out)).0.expect("a datagram");
                assert_eq!((received.len, received.truncated), (len, false));
                assert!(out[..len].iter().all(|byte| *byte == len as u8));
            }
        }
        assert!(rig.sockets(|s| s.udp_recv(id, &mut [0; 9])).0.is_err(), "no more than were sent");
    }
}

/// Every length that a header can claim, of a packet of 40 bytes of payload: what is behind the
/// claimed end is not delivered (RFC 768, RFC 9868), what is not there is not read.
#[test]
fn a_claimed_length_is_never_exceeded() {
    for family in FAMILIES {
        let mut rig = rig();
        let any = SocketAddr::new("::".parse().expect("an address"), 7);
        let settings = SocketSettings { zero_checksum_rx: true, ..SocketSettings::new(Family::V6) };
        let id = rig.sockets(|s| s.udp_bind(any, settings)).0.expect("a socket");
        let (from, to) = (addr(family, PEER), addr(family, HOST));
        let mut datagram = udp_datagram((from, 4000).into(), (to, 7).into(), &[7; 40]);
        datagram[6..8].copy_from_slice(&[0, 0]);
        for claimed in (0..200).chain([0x7fff, 0x8000, 0xfff8, 0xffff]) {
            datagram[4..6].copy_from_slice(&u16::to_be_bytes(claimed));
            rig.frame(&from_peer(&ip(from, to, IpProtocol::UDP, &datagram)));
            let received = rig.sockets(|s| s.udp_recv(id, &mut [0; 100])).0;
            let expected = (8..=48).contains(&claimed).then(|| usize::from(claimed) - 8);
            assert_eq!(received.ok().map(|r| r.len), expected, "{family:?} {claimed}");
        }
        assert!(rig.conservation().holds());
    }
}

struct Served {
    rig: Rig,
    host: Host,
}

impl Served {
    fn new(kind: ServiceKind) -> Self {
        let mut rig = Rig::new(&ethernet_config(HOST));
        let services = vec![Box::new(UdpService::new(kind, 7000)) as _];
        let (config, now) = (ethernet_config(HOST), rig.now);
        let mut host =
            Host::new(&config, services, &rig.pool, &mut rig.random, now).expect("a host");
        for family in FAMILIES {
            let peer = addr(family, PEER);
            host.stack_mut().add_neighbor(IfIndex(1), peer, mac(PEER), now).expect("room");
        }
        Self { rig, host }
    }

    fn frame(&mut self, bytes: &[u8]) -> Vec<Sent> {
        let mut packet = self.rig.pool.packet_from(bytes).expect("room");
        packet.set_iface(IfIndex(1));
        let (mut arrived, mut departing) = (Burst::new(), PacketList::new());
        arrived.push(packet).expect("room");
        let mut round = Round {
            now: self.rig.now,
            pool: &self.rig.pool,
            random: &mut self.rig.random,
            arrived: &mut arrived,
            departing: &mut departing,
            budget: Units(256),
            peers: None,
        };
        self.host.round(&mut round);
        self.host.work(&mut round);
        departing.iter().map(Sent::of).collect()
    }
}

/// Row 44, CVE-1999-0103, CVE-2024-2169: two services answer each other for ever, started by one
/// forged packet. Ours never answer a port below 1024, themselves, or more than they were sent.
#[test]
fn a_service_answers_clients_alone_and_never_with_more_than_it_got() {
    for kind in [ServiceKind::Echo, ServiceKind::Discard, ServiceKind::Chargen] {
        for family in FAMILIES {
            let mut served = Served::new(kind);
            let (peer, host) = (addr(family, PEER), addr(family, HOST));
            for port in [1, 7, 9, 13, 17, 19, 37, 53, 69, 123, 161, 389, 1023] {
                let packet = udp((peer, port).into(), (host, 7000).into(), b"hello");
                let answers = served.frame(&from_peer(&packet));
                assert!(answers.is_empty(), "{kind:?} answered port {port}");
            }
            for len in [0, 1, 100, 1000] {
                let packet = udp((peer, 1024).into(), (host, 7000).into(), &vec![b'x'; len]);
                let answers = served.frame(&from_peer(&packet));
                let expected = usize::from(kind != ServiceKind::Discard);
                assert_eq!(answers.len(), expected, "{kind:?} {len}");
                assert!(answers.iter().all(|answer| answer.len <= packet.len()));
            }
        }
    }
}

/// Row 44, LAND (CVE-1999-0016): a packet from our own address and port would have us answer
/// ourselves.
#[test]
fn a_service_cannot_be_made_to_talk_to_itself() {
    let groups: [IpAddr; 3] = [
        "ff02::1".parse().expect("an address"),
        "224.0.0.1".parse().expect("an address"),
        "10.0.0.255".parse().expect("an address"),
    ];
    for family in FAMILIES {
        let host = addr(family, HOST);
        let to = groups.iter().copied().filter(|to| Family::of(*to) == family);
        for to in to.chain([host]) {
            let mut served = Served::new(ServiceKind::Echo);
            let packet = udp((host, 7000).into(), (to, 7000).into(), b"round and round");
            assert!(served.frame(&from_peer(&packet)).is_empty());
            let stats = served.host.stack().stats();
            assert_eq!(stats.drops_in.of(DropReason::IpSourceInvalid), 1, "{to}");
            assert_eq!(stats.counters.of(floodwall_base::Counter::UdpOutDatagrams), 0);
            assert_eq!(stats.counters.of(floodwall_base::Counter::Udp6OutDatagrams), 0);
        }
    }
}
