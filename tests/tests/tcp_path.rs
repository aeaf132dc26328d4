//! The path of a connection: its segments are as large as the way to its peer carries, at every
//! moment, and none of them is ever an IP fragment of ours (RFC 9293 section 3.7, RFC 1191, RFC
//! 8201), both families. The rig refuses every fragment of a TCP segment that leaves.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failing test may panic")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use floodwall_base::{Counter, DropReason, Family, IfIndex};
use floodwall_packet::PacketBuf;
use floodwall_stack::{InterfaceConfig, LinkMedium, StackConfig};
use floodwall_tcp::{ConnectionId, ListenerId, TcpSettings};
use floodwall_tests::craft::{
    FAMILIES, HOST, PEER, addr, frame, icmpv4, icmpv6, mac, neighbor_answer, v4, v6,
};
use floodwall_tests::router::{advertisement, header};
use floodwall_tests::tcp::{Heard, SYN_ACK, TcpClient};
use floodwall_tests::{Rig, bytes_of, ethernet_config};
use floodwall_wire::icmpv4::UnreachableCode;
use floodwall_wire::tcp::TcpFlags;
use floodwall_wire::tcp_options::TcpOptionSet;
use floodwall_wire::{EtherType, Icmpv4Message, Icmpv6Message, NdpOption};

const LINK: usize = 14;
const ETH0: IfIndex = IfIndex(1);

const fn headers(family: Family) -> u32 {
    match family {
        Family::V4 => 40,
        Family::V6 => 60,
    }
}

/// A host with the peer as its router.
fn config() -> StackConfig {
    let base = ethernet_config(HOST);
    let gateways = FAMILIES.map(|family| addr(family, PEER)).into();
    let interface = InterfaceConfig { gateways, ..base.interfaces[0].clone() };
    StackConfig { interfaces: vec![interface], tcp_connections_max: 64, ..base }
}

/// A host that listens, and clients behind its router.
struct Bench {
    rig: Rig,
    listener: ListenerId,
}

/// A client with an open connection: where its stream ends, and the host's.
struct Open {
    client: TcpClient,
    id: ConnectionId,
    told: Option<u16>,
    next: u32,
}

impl Bench {
    fn new(config: &StackConfig) -> Self {
        let mut rig = Rig::with_neighbor(config, PEER);
        let any = SocketAddr::new(IpAddr::from([0_u16; 8]), 80);
        let settings = TcpSettings::default();
        let listener = rig.sockets(|s| s.tcp_listen(any, &settings, 16, 1)).0.expect("a listener");
        Self { rig, listener }
    }

    /// A client opens a connection; it accepts segments of any size.
    fn open(&mut self, n: u32, family: Family) -> Open {
        let client = TcpClient::nth(n, family, 80).timeless();
        let options = TcpOptionSet { mss: Some(8960), ..client.options };
        let client = TcpClient { options, ..client };
        let answer = self.rig.frame(&client.syn());
        let [answer] = &client.hears(&answer)[..] else { panic!("no answer") };
        assert_eq!(answer.flags, SYN_ACK);
        assert!(self.rig.frame(&client.ack(answer, &[])).is_empty());
        let listener = self.listener;
        let id = self.rig.sockets(|s| s.tcp_accept(listener)).0.expect("it lives").expect("open");
        Open { client, id, told: answer.options.mss, next: answer.seq.wrapping_add(1) }
    }

    /// The host writes so much; the segments that leave at once.
    fn write(&mut self, open: &Open, len: usize) -> (Vec<Heard>, Vec<PacketBuf>) {
        let (sent, departed) = self.rig.sockets(|s| s.tcp_send(open.id, &vec![7; len]));
        assert_eq!(sent, Ok(len));
        (open.client.hears(&departed), departed)
    }

    /// The client acknowledges all of it, until nothing more leaves.
    fn drain(&mut self, open: &mut Open, first: Vec<Heard>) -> Vec<usize> {
        let (mut now, mut sizes) = (first, vec![]);
        while let Some(last) = now.iter().rfind(|heard| !heard.text.is_empty()) {
            sizes.extend(now.iter().map(|heard| heard.len));
            open.next = last.seq.wrapping_add(last.text.len() as u32);
            self.rig.now += Duration::from_millis(5);
            let seqs = (open.client.isn.wrapping_add(1), open.next);
            let ack = open.client.frame(seqs, TcpFlags::ACK, &TcpOptionSet::NONE, &[]);
            let departed = self.rig.frame(&ack);
            now = open.client.hears(&departed);
        }
        sizes
    }

    fn count(&self, counter: Counter) -> u64 {
        self.rig.stats().counters.of(counter)
    }
}

/// "Your packet `quote` is larger than `mtu`", from a router on the way.
fn too_big(family: Family, mtu: u32, quote: &[u8]) -> Vec<u8> {
    let (ether_type, packet) = match family {
        Family::V4 => {
            let (code, next_hop_mtu) = (UnreachableCode::FRAGMENTATION_NEEDED, mtu as u16);
            let message = Icmpv4Message::DestinationUnreachable { code, next_hop_mtu };
            let from = Ipv4Addr::new(203, 0, 113, 9);
            (EtherType::IPV4, icmpv4(from, v4(HOST), message, &quote[..quote.len().min(548)]))
        }
        Family::V6 => {
            let message = Icmpv6Message::PacketTooBig { mtu };
            let from = Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, 9);
            (EtherType::IPV6, icmpv6(from, v6(HOST), message, &quote[..quote.len().min(1232)]))
        }
    };
    frame(mac(HOST), mac(PEER), ether_type, &packet)
}

#[test]
fn an_open_connection_and_the_next_answer_follow_the_links_mtu_down_and_up() {
    for family in FAMILIES {
        let mut bench = Bench::new(&config());
        let mut open = bench.open(1, family);
        assert_eq!(open.told, Some(1500 - headers(family) as u16));
        for (n, mtu) in [(2, 1300), (3, 1500), (4, 9000), (5, 1492)] {
            bench.rig.stack.set_link_mtu(ETH0, mtu);
            let first = bench.write(&open, 40_000).0;
            let sizes = bench.drain(&mut open, first);
            assert_eq!(sizes.iter().max(), Some(&(mtu as usize)), "{family:?}");
            let next = bench.open(n, family);
            assert_eq!(next.told, Some(mtu as u16 - headers(family) as u16), "{family:?}");
        }
    }
}

/// RFC 4861 section 6.3.4: it changes nothing until then; what was advertised before still counts.
#[test]
fn an_advertised_mtu_beyond_the_link_counts_once_the_link_carries_it() {
    let mut config = config();
    config.interfaces[0].accept_ra = true;
    config.interfaces[0].gateways.pop();
    let mut bench = Bench::new(&config);
    let mut n = 0;
    let mut told = |bench: &mut Bench| {
        n += 1;
        bench.rig.stack.add_neighbor(ETH0, v6_router().into(), mac(PEER), bench.rig.now).unwrap();
        bench.open(n, Family::V6).told.unwrap() + 60
    };
    for (link, advertised, counts) in [
        (1500, Some(1400), 1400),
        (1500, Some(8000), 1400),
        (2000, None, 1400),
        (9000, None, 8000),
        (1500, None, 1500),
        (9000, None, 8000),
        (9000, Some(4000), 4000),
    ] {
        bench.rig.stack.set_link_mtu(ETH0, link);
        if let Some(mtu) = advertised {
            bench.rig.frame(&advertisement(9, &header(1800), &[NdpOption::Mtu(mtu)]));
        }
        assert_eq!(told(&mut bench), counts, "{link} {advertised:?}");
    }
}

#[test]
fn what_a_router_advertises_counts_for_connections_and_their_handshakes() {
    for told in [1492, 1280] {
        let mut config = config();
        config.interfaces[0].accept_ra = true;
        config.interfaces[0].gateways.pop();
        let mut bench = Bench::new(&config);
        let mut before = bench.open(1, Family::V4);
        let says = advertisement(9, &header(1800), &[NdpOption::Mtu(told)]);
        bench.rig.frame(&says);
        bench.rig.stack.add_neighbor(ETH0, v6_router().into(), mac(PEER), bench.rig.now).unwrap();
        let mut open = bench.open(2, Family::V6);
        assert_eq!(open.told, Some(told as u16 - 60));
        let first = bench.write(&open, 40_000).0;
        let sizes = bench.drain(&mut open, first);
        assert_eq!(sizes.iter().max(), Some(&(told as usize)));
        // It says nothing of IPv4.
        let first = bench.write(&before, 10_000).0;
        assert_eq!(bench.drain(&mut before, first).iter().max(), Some(&1500));
    }
}

fn v6_router() -> Ipv6Addr {
    floodwall_tests::router::router_addr(9)
}

#[test]
fn an_answer_may_leave_by_another_and_narrower_link_than_its_question_came_by() {
    for family in FAMILIES {
        let mut config = config();
        let second = InterfaceConfig {
            name: "eth1".to_owned(),
            medium: LinkMedium::Ethernet(mac(77)),
            mtu: 1400,
            addresses: ["10.0.9.1/24", "fd00:9::1/64"].map(|a| a.parse().unwrap()).into(),
            gateways: ["10.0.9.254", "fd00:9::fe"].map(|a| a.parse().unwrap()).into(),
            ..config.interfaces[0].clone()
        };
        config.interfaces[0].gateways.clear();
        config.interfaces.push(second);
        let mut bench = Bench::new(&config);
        for gateway in ["10.0.9.254", "fd00:9::fe"] {
            let gateway = gateway.parse().unwrap();
            bench.rig.stack.add_neighbor(IfIndex(2), gateway, mac(PEER), bench.rig.now).unwrap();
        }
        let mut open = bench.open(1, family);
        assert_eq!(open.told, Some(1400 - headers(family) as u16));
        let first = bench.write(&open, 40_000).0;
        assert_eq!(bench.drain(&mut open, first).iter().max(), Some(&1400), "{family:?}");
    }
}

#[test]
fn a_path_that_one_connection_has_learnt_is_known_to_the_next_one() {
    for family in FAMILIES {
        let mut bench = Bench::new(&config());
        let mut open = bench.open(1, family);
        let (heard, departed) = bench.write(&open, 60_000);
        assert!(heard.len() >= 8 && heard.iter().all(|heard| heard.len == 1500));
        let quote = bytes_of(&departed[0])[LINK..].to_vec();
        let again = bench.rig.frame(&too_big(family, 1300, &quote));
        let again = open.client.hears(&again);
        assert_eq!(again[0].seq, heard[0].seq, "sent again at once");
        assert!(again.len() >= 8 && again.iter().all(|heard| heard.len == 1300));
        // The reports of the rest of the flight are no news, but ours.
        for packet in &departed[1..4] {
            bench.rig.frame(&too_big(family, 1300, &bytes_of(packet)[LINK..]));
        }
        assert_eq!(bench.count(Counter::FloodwallExceptionsLearnt), 1);
        assert_eq!(bench.count(Counter::FloodwallExceptionsNotLower), 3);
        assert_eq!(bench.count(Counter::FloodwallExceptionsNoFlow), 0);
        assert!(bench.drain(&mut open, again).iter().all(|len| *len <= 1300));
        // So is one that comes when the data have been acknowledged; it teaches nothing.
        bench.rig.frame(&too_big(family, 1290, &bytes_of(&departed[4])[LINK..]));
        assert_eq!(bench.count(Counter::FloodwallExceptionsLearnt), 1);
        assert_eq!(bench.count(Counter::FloodwallExceptionsNotLower), 4);
        assert_eq!(bench.rig.stats().drops_in.of(DropReason::IcmpNoFlow), 0);
        // Another connection of the same peer, which can receive as much as before.
        let client = TcpClient { from: SocketAddr::new(open.client.from.ip(), 999), ..open.client };
        let answer = bench.rig.frame(&client.syn());
        let answer = client.hears(&answer).remove(0);
        assert_eq!(answer.options.mss, Some(1500 - headers(family) as u16));
        bench.rig.frame(&client.ack(&answer, &[]));
        let listener = bench.listener;
        let id = bench.rig.sockets(|s| s.tcp_accept(listener)).0.unwrap().unwrap();
        let departed = bench.rig.sockets(|s| s.tcp_send(id, &[7; 20_000])).1;
        let first = client.hears(&departed);
        assert!(first.len() >= 8 && first.iter().all(|heard| heard.len == 1300));
        // One to another peer is not concerned.
        let other = bench.open(2, family);
        assert_eq!(bench.write(&other, 20_000).0[0].len, 1500);
        // After ten minutes the path is tried anew.
        for id in [open.id, id, other.id] {
            bench.rig.sockets(|s| s.tcp_abort(id)).0.unwrap();
        }
        bench.rig.run_for(Duration::from_secs(601));
        let open = bench.open(1, family);
        assert_eq!(bench.write(&open, 20_000).0[0].len, 1500);
    }
}

/// RFC 5927 section 4.1: an error about bytes that are not in flight is forged, or late.
#[test]
fn a_packet_too_big_about_bytes_that_are_not_in_flight_changes_nothing() {
    for family in FAMILIES {
        let mut bench = Bench::new(&config());
        let mut open = bench.open(1, family);
        let (heard, departed) = bench.write(&open, 60_000);
        let quote = bytes_of(&departed[0])[LINK..].to_vec();
        let flight: usize = heard.iter().map(|heard| heard.text.len()).sum();
        // Before the first byte, behind the last, and half of the circle away.
        for wrong in [u32::MAX, u32::MAX - 70_000, flight as u32, 1 << 20, 1 << 31] {
            let mut quote = quote.clone();
            let at = headers(family) as usize - 20 + 4;
            let seq = heard[0].seq.wrapping_add(wrong);
            quote[at..at + 4].copy_from_slice(&seq.to_be_bytes());
            let answer = bench.rig.frame(&too_big(family, 1300, &quote));
            assert!(answer.is_empty(), "{family:?} {wrong:#x}: sent again");
        }
        assert_eq!(bench.count(Counter::FloodwallExceptionsLearnt), 0);
        // All but what is left for the last one is in full segments, as before.
        let sizes = bench.drain(&mut open, heard);
        assert!(sizes[..sizes.len() - 1].iter().all(|len| *len == 1500), "{sizes:?}");
        assert_eq!(bench.write(&open, 20_000).0[0].len, 1500);
    }
}

#[test]
fn a_path_below_ipv4s_floor_gets_segments_that_routers_may_fragment() {
    let mut bench = Bench::new(&config());
    let open = bench.open(1, Family::V4);
    let (_, departed) = bench.write(&open, 20_000);
    let quote = bytes_of(&departed[0])[LINK..].to_vec();
    assert_eq!(quote[6] & 0x40, 0x40, "DF");
    let again = bench.rig.frame(&too_big(Family::V4, 400, &quote));
    assert!(again.len() >= 8);
    let mut ids = vec![];
    for packet in &again {
        let bytes = bytes_of(packet)[LINK..].to_vec();
        assert!(bytes.len() <= 552 && bytes[6] == 0 && bytes[7] == 0, "DF is clear");
        let sum = floodwall_checksum::sum(&bytes[..20]);
        assert!(sum.verifies());
        ids.push([bytes[4], bytes[5]]);
    }
    ids.sort_unstable();
    ids.dedup();
    assert!(ids.len() + 1 >= again.len(), "each has an identification of its own");
}

#[test]
fn segments_that_wait_for_a_neighbour_while_the_link_shrinks_are_dropped_and_sent_again() {
    for family in FAMILIES {
        let mut bench = Bench::new(&config());
        let open = bench.open_on_link(family, 3);
        bench.rig.stack.remove_neighbor(ETH0, open.client.from.ip());
        assert!(bench.write(&open, 10_000).0.is_empty());
        bench.rig.stack.set_link_mtu(ETH0, 1400);
        let departed = bench.rig.frame(&neighbor_answer(family, PEER));
        // The short end of the data still fits.
        assert!(open.client.hears(&departed).iter().all(|heard| heard.len <= 1400));
        assert!(bench.rig.stats().drops_out.of(DropReason::PacketTooBig) > 0);
        let departed = bench.rig.run_for(Duration::from_secs(3));
        let heard = open.client.hears(&departed);
        assert!(heard.iter().all(|heard| heard.len <= 1400));
        assert!(heard.iter().any(|heard| heard.seq == open.next && heard.text.len() > 1300));
    }
}

impl Bench {
    /// A client on the link itself.
    fn open_on_link(&mut self, family: Family, n: u8) -> Open {
        let from = SocketAddr::new(addr(family, PEER), 1000 + u16::from(n));
        let client = TcpClient { from, ..TcpClient::nth(1, family, 80).timeless() };
        let options = TcpOptionSet { mss: Some(8960), ..client.options };
        let client = TcpClient { options, ..client };
        let answer = self.rig.frame(&client.syn());
        let answer = client.hears(&answer).remove(0);
        self.rig.frame(&client.ack(&answer, &[]));
        let listener = self.listener;
        let id = self.rig.sockets(|s| s.tcp_accept(listener)).0.unwrap().unwrap();
        Open { client, id, told: answer.options.mss, next: answer.seq.wrapping_add(1) }
    }
}
