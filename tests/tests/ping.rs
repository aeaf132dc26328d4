//! Ping sockets between two hosts, in both families: requests out, replies and errors back to the
//! socket of the request.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

use std::net::IpAddr;

use floodwall_base::{Counter, DropReason, Family, IfIndex};
use floodwall_ip::iface::link_local;
use floodwall_packet::PacketBuf;
use floodwall_stack::{PingId, PingRecvError, PingSendError, PingSettings, StackConfig};
use floodwall_tests::craft::{
    self, FAMILIES, HOST, PEER, addr, from_peer, icmpv4, icmpv6, mac, port_unreachable, v4, v6,
};
use floodwall_tests::{Rig, Sent, bytes_of, ethernet_config};
use floodwall_wire::{
    Icmpv4Message, Icmpv6Message, IpProtocol, icmpv4 as wire_v4, icmpv6 as wire_v6,
};

/// Carries frames to and fro until both are silent.
fn exchange(a: &mut Rig, b: &mut Rig, mut to_b: Vec<PacketBuf>) {
    let mut to_a = Vec::new();
    for _ in 0..20 {
        to_a.extend(b.arrive(std::mem::take(&mut to_b)));
        to_b.extend(a.arrive(std::mem::take(&mut to_a)));
    }
}

fn open(rig: &mut Rig, family: Family) -> PingId {
    rig.sockets(|s| s.ping_open(PingSettings::new(family))).0.unwrap()
}

fn send(rig: &mut Rig, id: PingId, to: IpAddr, seq: u16, payload: &[u8]) -> Vec<PacketBuf> {
    let (sent, frames) = rig.sockets(|s| s.ping_send(id, to, Some(IfIndex(1)), seq, payload));
    sent.unwrap();
    frames
}

/// "Time exceeded" about `quoted`, from the peer to the host.
fn time_exceeded(family: Family, quoted: &[u8]) -> Vec<u8> {
    match family {
        Family::V4 => {
            let code = wire_v4::TimeExceededCode::TTL;
            icmpv4(v4(PEER), v4(HOST), Icmpv4Message::TimeExceeded { code }, quoted)
        }
        Family::V6 => {
            let code = wire_v6::TimeExceededCode::HOP_LIMIT;
            icmpv6(v6(PEER), v6(HOST), Icmpv6Message::TimeExceeded { code }, quoted)
        }
    }
}

#[test]
fn one_host_pings_the_other() {
    for family in FAMILIES {
        let (mut a, mut b) = (Rig::new(&ethernet_config(1)), Rig::new(&ethernet_config(2)));
        let id = open(&mut a, family);
        for (seq, len) in [(1, 0), (2, 1), (3, 56), (4, 1000)] {
            let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
            // The first finds the neighbour.
            let frames = send(&mut a, id, addr(family, 2), seq, &payload);
            exchange(&mut a, &mut b, frames);
            let mut out = [0; 1500];
            let reply = a.sockets(|s| s.ping_recv(id, &mut out)).0.unwrap();
            assert_eq!((&out[..reply.len], reply.sequence), (&payload[..], seq));
            assert_eq!((reply.from, reply.to), (addr(family, 2), addr(family, 1)));
            assert_eq!((reply.iface, reply.hop_limit, reply.truncated), (IfIndex(1), 64, false));
        }
        assert_eq!(a.sockets(|s| s.ping_recv(id, &mut [])).0, Err(PingRecvError::WouldBlock));
        let sent = match family {
            Family::V4 => Counter::IcmpOutEchos,
            Family::V6 => Counter::Icmp6OutEchos,
        };
        assert_eq!(a.stats().counters.of(sent), 4);
        assert!(a.conservation().holds() && b.conservation().holds());
    }
}

#[test]
fn a_host_pings_itself_and_the_group_of_all() {
    for (family, own, all) in
        [(Family::V4, "127.0.0.1", "224.0.0.1"), (Family::V6, "::1", "ff02::1")]
    {
        let config =
            |host| StackConfig { icmp_echo_ignore_broadcasts: false, ..ethernet_config(host) };
        let (mut a, mut b) = (Rig::new(&config(1)), Rig::new(&config(2)));
        let id = open(&mut a, family);
        for to in [own.parse().unwrap(), addr(family, 1)] {
            send(&mut a, id, to, 1, b"me?");
            a.run_for(std::time::Duration::from_millis(1));
            let reply = a.sockets(|s| s.ping_recv(id, &mut [0; 9])).0.unwrap();
            assert_eq!((reply.from, reply.iface), (to, IfIndex::LOOPBACK));
        }
        let frames = send(&mut a, id, all.parse().unwrap(), 2, b"all?");
        exchange(&mut a, &mut b, frames);
        let reply = a.sockets(|s| s.ping_recv(id, &mut [0; 9])).0.unwrap();
        // A group of the link is pinged, and answers, from addresses of the link.
        let from = if family == Family::V4 { addr(family, 2) } else { link_local(mac(2)).into() };
        assert_eq!((reply.from, reply.sequence), (from, 2));
        assert!(a.conservation().holds() && b.conservation().holds());
    }
}

/// What a route tracer does: hop limits, and errors that say from where and about what.
#[test]
fn an_error_about_a_request_is_told_to_the_socket_that_sent_it() {
    for family in FAMILIES {
        let mut rig = Rig::with_neighbor(&ethernet_config(HOST), PEER);
        let settings = PingSettings { hop_limit: Some(3), ..PingSettings::new(family) };
        let (id, other) =
            rig.sockets(|s| (s.ping_open(settings).unwrap(), s.ping_open(settings).unwrap())).0;
        let frames = send(&mut rig, id, addr(family, PEER), 7, b"are you there");
        let sent = bytes_of(&frames[0])[14..].to_vec();
        assert_eq!(sent[if family == Family::V4 { 8 } else { 7 }], 3, "the hop limit");
        for error in [time_exceeded(family, &sent), port_unreachable(family, &sent)] {
            rig.lives("an error", &from_peer(&error));
        }
        let mut told = || rig.sockets(|s| s.ping_recv(id, &mut [])).0.unwrap_err();
        let (PingRecvError::Icmp(first), PingRecvError::Icmp(second)) = (told(), told()) else {
            panic!("two errors")
        };
        assert_eq!((first.offender, first.dst_addr), (addr(family, PEER), addr(family, PEER)));
        let kinds = if family == Family::V4 { [(11, 0), (3, 3)] } else { [(3, 0), (1, 4)] };
        assert_eq!([(first.kind, first.code), (second.kind, second.code)], kinds);
        assert_eq!(told(), PingRecvError::WouldBlock, "each once");
        let silent = rig.sockets(|s| s.ping_recv(other, &mut [])).0;
        assert_eq!(silent, Err(PingRecvError::WouldBlock));
    }
}

/// Forged errors and replies: another identifier, another destination, a request of theirs.
#[test]
fn what_belongs_to_no_request_of_ours_reaches_nothing() {
    for family in FAMILIES {
        let mut rig = Rig::with_neighbor(&ethernet_config(HOST), PEER);
        let id = open(&mut rig, family);
        let frames = send(&mut rig, id, addr(family, PEER), 7, b"?");
        let sent = bytes_of(&frames[0])[14..].to_vec();
        let (header, to) = if family == Family::V4 { (20, 19) } else { (40, 39) };
        for (what, at) in [("a type", header), ("an identifier", header + 4), ("an end", to)] {
            let mut quoted = sent.clone();
            quoted[at] ^= 1;
            let error = time_exceeded(family, &quoted);
            rig.packet_is_dropped(what, &error, DropReason::IcmpNoFlow, None);
        }
        for len in 0..header + 6 {
            let error = time_exceeded(family, &sent[..len]);
            rig.packet_is_dropped("a cut quote", &error, DropReason::IcmpNoFlow, None);
        }
        let identifier = rig.sockets(|s| s.ping_identifier(id)).0.unwrap();
        let reply = |host, id| match family {
            Family::V4 => icmpv4(v4(host), v4(HOST), Icmpv4Message::EchoReply { id, seq: 7 }, b"?"),
            Family::V6 => icmpv6(v6(host), v6(HOST), Icmpv6Message::EchoReply { id, seq: 7 }, b"?"),
        };
        let reason = DropReason::IcmpNoFlow;
        rig.packet_is_dropped("another peer", &reply(9, identifier), reason, None);
        rig.packet_is_dropped("another socket", &reply(PEER, identifier ^ 1), reason, None);
        rig.lives("the peer that was sent a request", &from_peer(&reply(PEER, identifier)));
    }
}

#[test]
fn replies_beyond_the_sockets_buffer_are_dropped_by_reason() {
    for family in FAMILIES {
        let mut rig = Rig::with_neighbor(&ethernet_config(HOST), PEER);
        let settings = PingSettings { receive_bytes: 1, ..PingSettings::new(family) };
        let id = rig.sockets(|s| s.ping_open(settings)).0.unwrap();
        let frames = send(&mut rig, id, addr(family, PEER), 7, b"?");
        drop(frames);
        let identifier = rig.sockets(|s| s.ping_identifier(id)).0.unwrap();
        let reply = match family {
            Family::V4 => {
                let message = Icmpv4Message::EchoReply { id: identifier, seq: 7 };
                icmpv4(v4(PEER), v4(HOST), message, b"?")
            }
            Family::V6 => {
                let message = Icmpv6Message::EchoReply { id: identifier, seq: 7 };
                icmpv6(v6(PEER), v6(HOST), message, b"?")
            }
        };
        rig.lives("the first", &from_peer(&reply));
        for _ in 0..100 {
            rig.packet_is_dropped("more", &reply, DropReason::IcmpSocketFull, None);
        }
        assert!(rig.sockets(|s| s.ping_recv(id, &mut [])).0.is_ok());
        rig.lives("room again", &from_peer(&reply));
    }
}

#[test]
fn what_cannot_be_sent_says_why() {
    let mut rig = Rig::with_neighbor(&ethernet_config(HOST), PEER);
    let id = open(&mut rig, Family::V4);
    let far = "192.0.2.1".parse().unwrap();
    let no_route = rig.sockets(|s| s.ping_send(id, far, None, 1, b"")).0;
    assert_eq!(no_route, Err(PingSendError::NoRoute(far)));
    let other = rig.sockets(|s| s.ping_send(id, addr(Family::V6, PEER), None, 1, b"")).0;
    assert!(matches!(other, Err(PingSendError::Socket(_))));
    rig.sockets(|s| s.ping_close(id));
    let closed = rig.sockets(|s| s.ping_send(id, addr(Family::V4, PEER), None, 1, b"")).0;
    assert!(matches!(closed, Err(PingSendError::Socket(_))));
    // A neighbour that does not answer is reported like a router's error.
    for family in FAMILIES {
        let mut rig = Rig::new(&ethernet_config(HOST));
        let id = open(&mut rig, family);
        drop(send(&mut rig, id, addr(family, 99), 1, b"?"));
        drop(rig.run_for(std::time::Duration::from_secs(10)));
        let told = rig.sockets(|s| s.ping_recv(id, &mut [])).0;
        assert!(matches!(told, Err(PingRecvError::Icmp(r)) if r.dst_addr == addr(family, 99)));
    }
}

/// A reply leaves nothing behind, and a request is what others expect it to be.
#[test]
fn a_request_on_the_wire_is_well_formed_and_its_memory_comes_back() {
    for family in FAMILIES {
        let mut rig = Rig::with_neighbor(&ethernet_config(HOST), PEER);
        let (id, free) = (open(&mut rig, family), rig.pool.available());
        for len in [0, 1, 7, 1400] {
            let payload = vec![0x5a; len];
            let frames = send(&mut rig, id, addr(family, PEER), 0xabcd, &payload);
            let icmp = Sent::of(&frames[0]).icmp();
            let identifier = rig.sockets(|s| s.ping_identifier(id)).0.unwrap();
            assert_eq!(icmp.word, u32::from(identifier) << 16 | 0xabcd);
            assert_eq!((icmp.code, icmp.body), (0, payload));
        }
        assert_eq!(rig.pool.available(), free);
    }
}

/// RFC 1122 section 3.2.2.6: a record route and a timestamp come back with our entries, beside
/// any other options; a reply that becomes too long for its link is cut.
#[test]
fn a_record_route_and_a_timestamp_come_back_in_the_reply_with_our_entries() {
    let (own, mut rig) =
        (craft::v4(HOST).octets(), Rig::with_neighbor(&ethernet_config(HOST), PEER));
    let route = |pointer, first: [u8; 4], second: [u8; 4]| {
        [&[7, 11, pointer][..], &first, &second, &[0]].concat()
    };
    let asked = route(4, [0; 4], [0; 4]);
    for (options, wanted, len) in [
        (asked.clone(), route(12, own, own), 12),
        ([&[148, 4, 0, 0][..], &asked].concat(), route(12, own, own), 12),
        ([&asked[..11], &[148, 4, 0, 0, 0]].concat(), route(12, own, own), 12),
        (vec![148, 4, 0, 0], Vec::new(), 0),
        (vec![1; 40], Vec::new(), 0),
    ] {
        for body in [8, 1400, 1440, 1452] {
            let request =
                craft::echo(addr(Family::V4, PEER), addr(Family::V4, HOST), &vec![7; body]);
            let fields = craft::ipv4_fields(IpProtocol::ICMPV4);
            let request = craft::ipv4_with_options(fields, &options, &request[20..]);
            if request.len() > 1500 {
                continue;
            }
            let departed = rig.lives("echo", &craft::from_peer(&request));
            assert_eq!(departed.len(), 1);
            let reply = &bytes_of(&departed[0])[14..];
            let header_len = usize::from(reply[0] & 0x0f) * 4;
            assert_eq!((header_len, &reply[20..header_len]), (20 + len, &wanted[..]));
            assert_eq!(floodwall_checksum::sum(&reply[..header_len]).finish(), 0);
            assert_eq!(reply.len(), header_len + 8 + body);
            assert_eq!((reply[header_len], &reply[12..16]), (0, &own[..]));
        }
    }
    // A time that is not of midnight has its highest bit set.
    let fields = craft::ipv4_fields(IpProtocol::ICMPV4);
    let request = craft::echo(addr(Family::V4, PEER), addr(Family::V4, HOST), b"?");
    let options = [68, 12, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    let request = craft::ipv4_with_options(fields, &options, &request[20..]);
    let reply = bytes_of(&rig.lives("echo", &craft::from_peer(&request))[0])[14..].to_vec();
    assert_eq!((&reply[20..24], &reply[24..28]), (&[68, 12, 13, 1][..], &own[..]));
    assert_eq!(reply[28] & 0x80, 0x80);
    assert!(rig.conservation().holds());
}
