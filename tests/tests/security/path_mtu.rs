//! Path MTUs: which senders may lower a path's MTU, and what a flood of such messages does (rows 34
//! and 37 of the list of attacks), both families.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use floodwall_base::{Counter, DropReason, Family, IfIndex, limits};
use floodwall_packet::{Engine, PacketBuf};
use floodwall_stack::{InterfaceConfig, SendError, StackConfig};
use floodwall_tests::craft::{
    FAMILIES, HOST, addr, echo, fragments, frame, icmpv4, icmpv6, ip, mac, neighbor_answer,
    udp_datagram, v4, v6,
};
use floodwall_tests::router::router_mac;
use floodwall_tests::{Rig, bytes_of, ethernet_config};
use floodwall_udp::{SendError as UdpSendError, SocketId, SocketSettings};
use floodwall_wire::icmpv4::UnreachableCode;
use floodwall_wire::{EtherType, Icmpv4Message, Icmpv6Message, IpProtocol};

/// Bytes of payload that fill the link, and a path MTU that both families accept.
const LARGE: usize = 1450;
const NARROW: u32 = 1300;
const LINK: usize = 14;

fn gateway(family: Family) -> IpAddr {
    addr(family, 254)
}

/// The `n`th host behind the gateway.
fn far(family: Family, n: u16) -> IpAddr {
    let [a, b] = n.to_be_bytes();
    match family {
        Family::V4 => Ipv4Addr::new(198, 18, a, b).into(),
        Family::V6 => Ipv6Addr::new(0x2001, 0xdb8, 1, n, 0, 0, 0, 9).into(),
    }
}

fn config() -> StackConfig {
    let base = ethernet_config(HOST);
    let interface =
        InterfaceConfig { gateways: FAMILIES.map(gateway).into(), ..base.interfaces[0].clone() };
    StackConfig { interfaces: vec![interface], udp_sockets_max: 2048, raw_sockets_max: 1, ..base }
}

fn rig() -> Rig {
    let mut rig = Rig::new(&config());
    for family in FAMILIES {
        let now = rig.now;
        rig.stack.add_neighbor(IfIndex(1), gateway(family), router_mac(1), now).expect("room");
    }
    rig
}

/// A socket that is connected to a host, or sends to it without.
fn socket(rig: &mut Rig, to: SocketAddr, connected: bool, dont_fragment: bool) -> SocketId {
    let any: SocketAddr = "[::]:0".parse().expect("an address");
    let settings = SocketSettings { dont_fragment, ..SocketSettings::new(Family::V6) };
    let (id, _) = rig.sockets(|s| {
        let id = s.udp_bind(any, settings).expect("a socket");
        if connected {
            s.udp_connect(id, to).expect("a route");
        }
        id
    });
    id
}

fn send(rig: &mut Rig, id: SocketId, to: SocketAddr, len: usize) -> Vec<PacketBuf> {
    let (sent, departed) = rig.sockets(|s| s.udp_send(id, Some(to), &vec![7; len]));
    sent.expect("it leaves");
    departed
}

/// The sizes of the IP packets in which a large datagram leaves.
fn sizes(rig: &mut Rig, id: SocketId, to: SocketAddr) -> Vec<usize> {
    send(rig, id, to, LARGE).iter().map(|packet| packet.len() - LINK).collect()
}

/// A live flow: its socket, its peer, and the packet of it that a router would quote.
fn flow(rig: &mut Rig, family: Family, n: u16, connected: bool) -> (SocketId, SocketAddr, Vec<u8>) {
    let to = SocketAddr::new(far(family, n), 9);
    let id = socket(rig, to, connected, false);
    let quote = bytes_of(&send(rig, id, to, LARGE)[0])[LINK..].to_vec();
    (id, to, quote)
}

/// "Your packet `quote` is larger than `mtu`", from `from`.
fn too_big_from(from: IpAddr, mtu: u32, quote: &[u8]) -> Vec<u8> {
    let (ether_type, packet) = match from {
        IpAddr::V4(from) => {
            let (code, next_hop_mtu) = (UnreachableCode::FRAGMENTATION_NEEDED, mtu as u16);
            let message = Icmpv4Message::DestinationUnreachable { code, next_hop_mtu };
            (EtherType::IPV4, icmpv4(from, v4(HOST), message, &quote[..quote.len().min(548)]))
        }
        IpAddr::V6(from) => {
            let message = Icmpv6Message::PacketTooBig { mtu };
            (EtherType::IPV6, icmpv6(from, v6(HOST), message, &quote[..quote.len().min(1232)]))
        }
    };
    frame(mac(HOST), router_mac(1), ether_type, &packet)
}

fn too_big(family: Family, mtu: u32, quote: &[u8]) -> Vec<u8> {
    too_big_from(far(family, 0xff01), mtu, quote)
}

const fn header_len(family: Family) -> usize {
    match family {
        Family::V4 => 20,
        Family::V6 => 40,
    }
}

const fn floor(family: Family) -> u32 {
    match family {
        Family::V4 => 552,
        Family::V6 => 1280,
    }
}

const fn protocol(family: Family) -> IpProtocol {
    match family {
        Family::V4 => IpProtocol::ICMPV4,
        Family::V6 => IpProtocol::ICMPV6,
    }
}

fn known(rig: &Rig, family: Family) -> usize {
    match family {
        Family::V4 => rig.stack.exceptions_v4().iter(rig.now).count(),
        Family::V6 => rig.stack.exceptions_v6().iter(rig.now).count(),
    }
}

fn count(rig: &Rig, counter: Counter) -> u64 {
    rig.stats().counters.of(counter)
}

/// A message is dropped for this reason, counted by this counter, and changes nothing.
fn refused(rig: &mut Rig, what: &str, frame: &[u8], reason: DropReason, counter: Counter) {
    let before = (count(rig, counter), known(rig, Family::V4), known(rig, Family::V6));
    let learnt = count(rig, Counter::FloodwallExceptionsLearnt);
    rig.expect_drop(what, frame, reason, None);
    let after = (count(rig, counter) - 1, known(rig, Family::V4), known(rig, Family::V6));
    assert_eq!((before, learnt), (after, count(rig, Counter::FloodwallExceptionsLearnt)), "{what}");
}

#[test]
fn what_its_path_cuts_in_many_waits_whole_for_its_neighbour() {
    for family in FAMILIES {
        let mut rig = rig();
        let (id, to, quote) = flow(&mut rig, family, 1, true);
        rig.lives("too big", &too_big(family, floor(family), &quote));
        assert!(rig.stack.remove_neighbor(IfIndex(1), gateway(family)));
        let asked = send(&mut rig, id, to, 8000);
        assert!(asked.len() <= 1, "a question for the router at most");
        assert_eq!(rig.stats().pending, 1, "{family:?}");
        let pieces = rig.frame(&neighbor_answer(family, 254));
        let sizes: Vec<_> = pieces.iter().map(|packet| packet.len() - LINK).collect();
        assert!(sizes.iter().all(|len| *len <= floor(family) as usize), "{sizes:?}");
        let bytes: usize = sizes.iter().map(|len| len - header_len(family)).sum();
        assert!(bytes >= 8008 && sizes.len() >= 7, "{family:?} {sizes:?}");
        assert_eq!((rig.stats().pending, rig.stats().drops_out.total()), (0, 0));
        assert!(rig.conservation().holds());
    }
}

#[test]
fn a_packet_too_big_about_a_live_flow_lowers_its_path_for_ten_minutes() {
    for family in FAMILIES {
        for connected in [true, false] {
            let mut rig = rig();
            let (id, to, quote) = flow(&mut rig, family, 1, connected);
            let whole = LARGE + 8 + header_len(family);
            assert_eq!(sizes(&mut rig, id, to), [whole]);
            assert!(rig.lives("too big", &too_big(family, NARROW, &quote)).is_empty());
            assert_eq!(
                (known(&rig, family), count(&rig, Counter::FloodwallExceptionsLearnt)),
                (1, 1)
            );
            let cut = sizes(&mut rig, id, to);
            assert_eq!(cut.len(), 2, "{family:?} {cut:?}");
            assert!(cut.iter().all(|len| *len <= NARROW as usize));
            // Others are on paths of their own.
            let (other, there, _) = flow(&mut rig, family, 2, connected);
            assert_eq!(sizes(&mut rig, other, there), [whole]);
            rig.run_for(Duration::from_secs(599));
            assert_eq!(sizes(&mut rig, id, to).len(), 2);
            rig.run_for(Duration::from_secs(1));
            assert_eq!((sizes(&mut rig, id, to), known(&rig, family)), (vec![whole], 0));
            assert!(rig.conservation().holds());
        }
    }
}

#[test]
fn a_socket_that_does_not_fragment_is_told_the_path_s_limit() {
    for family in FAMILIES {
        let mut rig = rig();
        let to = SocketAddr::new(far(family, 1), 9);
        let id = socket(&mut rig, to, true, true);
        let quote = bytes_of(&send(&mut rig, id, to, LARGE)[0])[LINK..].to_vec();
        rig.lives("too big", &too_big(family, NARROW, &quote));
        let max = NARROW as usize - 8 - header_len(family);
        let (sent, departed) = rig.sockets(|s| s.udp_send(id, None, &[7; LARGE]));
        let refusal = SendError::Socket(UdpSendError::MessageTooLong { max });
        assert_eq!((sent, departed.len()), (Err(refusal), 0));
        assert_eq!(send(&mut rig, id, to, max)[0].len() - LINK, NARROW as usize);
        rig.run_for(Duration::from_secs(600));
        assert_eq!(send(&mut rig, id, to, LARGE).len(), 1);
    }
}

/// RFC 8201 section 4: a path may prove narrower again, and never wider by such a message.
#[test]
fn a_path_is_lowered_further_but_never_raised() {
    for family in FAMILIES {
        let mut rig = rig();
        let (id, to, quote) = flow(&mut rig, family, 1, true);
        rig.lives("1400", &too_big(family, 1400, &quote));
        rig.lives("1300", &too_big(family, NARROW, &quote));
        let (reason, counter) = (DropReason::PathMtuNotLower, Counter::FloodwallExceptionsNotLower);
        for mtu in [NARROW, NARROW + 1, 1400, 1500] {
            refused(&mut rig, "no lower", &too_big(family, mtu, &quote), reason, counter);
        }
        let largest = sizes(&mut rig, id, to).into_iter().max().expect("some");
        assert!(largest <= NARROW as usize && largest > NARROW as usize - 8, "{largest}");
        assert_eq!(known(&rig, family), 1);
    }
}

#[test]
fn a_packet_too_big_to_random_sources_changes_nothing() {
    for family in FAMILIES {
        let mut rig = rig();
        let (id, to, quote) = flow(&mut rig, family, 1, true);
        let (reason, counter) = (DropReason::IcmpNoFlow, Counter::FloodwallExceptionsNoFlow);
        let me = addr(family, HOST);
        for n in 0..200 {
            let datagram =
                udp_datagram((me, 1000 + n).into(), (far(family, n), 9).into(), &[7; LARGE]);
            let made_up = ip(me, far(family, n), IpProtocol::UDP, &datagram);
            refused(&mut rig, "made up", &too_big(family, NARROW, &made_up), reason, counter);
            let foreign =
                ip(addr(family, 9), to.ip(), IpProtocol::UDP, &quote[header_len(family)..]);
            refused(&mut rig, "another's", &too_big(family, NARROW, &foreign), reason, counter);
        }
        assert_eq!(sizes(&mut rig, id, to).len(), 1);
    }
}

#[test]
fn a_packet_too_big_to_a_live_flow_with_an_mtu_that_lowers_nothing_changes_nothing() {
    for family in FAMILIES {
        let mut rig = rig();
        let (id, to, quote) = flow(&mut rig, family, 1, true);
        let (reason, counter) = (DropReason::PathMtuNotLower, Counter::FloodwallExceptionsNotLower);
        for mtu in [1500, 1501, 9000, 65_535] {
            refused(&mut rig, "no lower", &too_big(family, mtu, &quote), reason, counter);
        }
        // The incident of 2021: "1460 is too much" about packets that were smaller.
        let short = bytes_of(&send(&mut rig, id, to, 600)[0])[LINK..].to_vec();
        let silly = too_big(family, 1460, &short);
        refused(&mut rig, "it would have passed", &silly, reason, counter);
        assert_eq!(sizes(&mut rig, id, to).len(), 1);
    }
}

/// Row 34, CVE-2016-10142, CVE-2008-3530: never atomic fragments, never a path without bytes.
#[test]
fn a_packet_too_big_below_the_least_mtu_changes_nothing() {
    for family in FAMILIES {
        let mut rig = rig();
        let (id, to, quote) = flow(&mut rig, family, 1, true);
        let (reason, counter) =
            (DropReason::PathMtuBelowFloor, Counter::FloodwallExceptionsBelowFloor);
        for mtu in [0, 1, 68, 296, floor(family) - 1] {
            refused(&mut rig, "below", &too_big(family, mtu, &quote), reason, counter);
        }
        assert_eq!(sizes(&mut rig, id, to).len(), 1);
        rig.lives("the floor", &too_big(family, floor(family), &quote));
        assert!(sizes(&mut rig, id, to).iter().all(|len| *len <= floor(family) as usize));
    }
}

#[test]
fn a_packet_too_big_that_quotes_less_than_eight_bytes_of_the_upper_header_changes_nothing() {
    for family in FAMILIES {
        let mut rig = rig();
        let (id, to, quote) = flow(&mut rig, family, 1, true);
        let (reason, counter) = (DropReason::IcmpNoFlow, Counter::FloodwallExceptionsNoFlow);
        for len in 0..header_len(family) + 8 {
            refused(&mut rig, "cut", &too_big(family, NARROW, &quote[..len]), reason, counter);
        }
        assert_eq!(sizes(&mut rig, id, to).len(), 1);
        rig.lives("eight", &too_big(family, NARROW, &quote[..header_len(family) + 8]));
        assert_eq!(sizes(&mut rig, id, to).len(), 2);
    }
}

#[test]
fn a_packet_too_big_with_the_wrong_ports_changes_nothing() {
    for family in FAMILIES {
        for connected in [true, false] {
            let mut rig = rig();
            let (id, to, quote) = flow(&mut rig, family, 1, connected);
            let (reason, counter) = (DropReason::IcmpNoFlow, Counter::FloodwallExceptionsNoFlow);
            for at in 0..4 {
                for bit in 0..8 {
                    let mut wrong = quote.clone();
                    wrong[header_len(family) + at] ^= 1 << bit;
                    refused(&mut rig, "a port", &too_big(family, NARROW, &wrong), reason, counter);
                }
            }
            assert_eq!(sizes(&mut rig, id, to).len(), 1);
        }
    }
}

/// The IP packets of the reply to a large ping from the `n`th host behind the gateway.
fn ping(rig: &mut Rig, family: Family, n: u16, len: usize) -> Vec<Vec<u8>> {
    let packet = echo(far(family, n), addr(family, HOST), &vec![7; len]);
    let ether_type = if family == Family::V4 { EtherType::IPV4 } else { EtherType::IPV6 };
    let pieces = if packet.len() > 1500 { fragments(&packet, 9, 1280) } else { vec![packet] };
    let frames = pieces.iter().map(|piece| frame(mac(HOST), router_mac(1), ether_type, piece));
    let reply: Vec<_> = frames.flat_map(|bytes| rig.frame(&bytes)).collect();
    assert!(!reply.is_empty(), "{family:?}: no reply to {n}");
    reply.iter().map(|packet| bytes_of(packet)[LINK..].to_vec()).collect()
}

/// RFC 8201 section 4, of a packet that no socket sent. An attacker that forges the request's
/// source can quote the reply: so it changes nothing for other flows.
#[test]
fn a_packet_too_big_about_an_echo_reply_counts_for_echo_replies_alone() {
    for (family, len) in FAMILIES.into_iter().flat_map(|f| [(f, LARGE), (f, 3000)]) {
        let mut rig = rig();
        let (id, to, _) = flow(&mut rig, family, 1, true);
        let whole = ping(&mut rig, family, 1, len);
        let before = whole.iter().map(Vec::len).max();
        assert!(before > Some(NARROW as usize), "{family:?} {before:?}");
        assert!(rig.lives("too big", &too_big(family, NARROW, &whole[0])).is_empty());
        assert_eq!(count(&rig, Counter::FloodwallExceptionsLearnt), 1);
        let cut = ping(&mut rig, family, 1, len);
        assert!(cut.len() > 1 && cut.iter().all(|piece| piece.len() <= NARROW as usize));
        let bytes = |pieces: &[Vec<u8>]| -> usize {
            let headers = match (pieces.len(), family) {
                (2.., Family::V6) => 48,
                _ => header_len(family),
            };
            pieces.iter().map(|piece| piece.len() - headers).sum()
        };
        assert_eq!((bytes(&cut), bytes(&whole)), (len + 8, len + 8));
        // Others' replies, and all that is no reply.
        let other = ping(&mut rig, family, 2, len);
        assert_eq!(other.iter().map(Vec::len).max(), before);
        assert_eq!((sizes(&mut rig, id, to).len(), known(&rig, family)), (1, 0));
        rig.run_for(Duration::from_secs(600));
        assert_eq!(ping(&mut rig, family, 1, len).iter().map(Vec::len).max(), before);
        assert!(rig.conservation().holds());
    }
}

#[test]
fn a_forged_error_about_an_echo_reply_is_refused_under_its_reason() {
    for family in FAMILIES {
        let mut rig = rig();
        let reply = ping(&mut rig, family, 1, LARGE).remove(0);
        let upper = header_len(family);
        let (none, flow) = (DropReason::IcmpNoFlow, Counter::FloodwallExceptionsNoFlow);
        let foreign = ip(addr(family, 9), far(family, 1), protocol(family), &reply[upper..]);
        refused(&mut rig, "another's", &too_big(family, NARROW, &foreign), none, flow);
        let mut request = reply.clone();
        request[upper] = if family == Family::V4 { 8 } else { 128 };
        refused(&mut rig, "no request", &too_big(family, NARROW, &request), none, flow);
        let (low, below) = (DropReason::PathMtuBelowFloor, Counter::FloodwallExceptionsBelowFloor);
        for mtu in [0, floor(family) - 1] {
            refused(&mut rig, "below", &too_big(family, mtu, &reply), low, below);
        }
        let (no, lower) = (DropReason::PathMtuNotLower, Counter::FloodwallExceptionsNotLower);
        for mtu in [reply.len() as u32, 1500, 65_535] {
            refused(&mut rig, "no lower", &too_big(family, mtu, &reply), no, lower);
        }
        rig.lives("lower", &too_big(family, NARROW, &reply));
        for mtu in [NARROW, 1400] {
            refused(&mut rig, "raised", &too_big(family, mtu, &reply), no, lower);
        }
        let small = ping(&mut rig, family, 1, 100);
        assert_eq!(small.len(), 1, "what fits is not cut");
    }
}

/// Places are few, and a flood of them costs others one large reply each.
#[test]
fn a_flood_about_echo_replies_keeps_to_its_places() {
    for family in FAMILIES {
        let mut rig = rig();
        let (id, to, _) = flow(&mut rig, family, 1, true);
        let reply = ping(&mut rig, family, 1, LARGE).remove(0);
        rig.lives("honest", &too_big(family, NARROW, &reply));
        let me = addr(family, HOST);
        for n in 2..8 * limits::ECHO_PATHS_MAX as u16 {
            let made_up = ip(me, far(family, n), protocol(family), &reply[header_len(family)..]);
            rig.lives("made up", &too_big(family, floor(family), &made_up));
        }
        assert_eq!((sizes(&mut rig, id, to).len(), known(&rig, family)), (1, 0));
        let again = ping(&mut rig, family, 1, LARGE);
        assert_eq!(again.len(), 1, "displaced");
        rig.lives("honest", &too_big(family, NARROW, &again[0]));
        assert_eq!(ping(&mut rig, family, 1, LARGE).len(), 2);
        assert!(rig.conservation().holds());
    }
}

/// A host cannot tell which routers are on a path: an unrelated one must know the flow to the port,
/// and then does no more harm than one that is.
#[test]
fn a_packet_too_big_from_an_unrelated_router_is_believed_no_further_than_its_quote() {
    for family in FAMILIES {
        let mut rig = rig();
        let (_, _, quote) = flow(&mut rig, family, 1, true);
        let anyone = far(family, 0x7777);
        let (reason, counter) = (DropReason::IcmpNoFlow, Counter::FloodwallExceptionsNoFlow);
        let mut guess = quote.clone();
        guess[header_len(family) + 1] ^= 1;
        refused(&mut rig, "a guess", &too_big_from(anyone, NARROW, &guess), reason, counter);
        let (reason, counter) =
            (DropReason::PathMtuBelowFloor, Counter::FloodwallExceptionsBelowFloor);
        let low = too_big_from(anyone, floor(family) - 1, &quote);
        refused(&mut rig, "too low", &low, reason, counter);
        rig.lives("it knows the flow", &too_big_from(anyone, NARROW, &quote));
        assert_eq!(known(&rig, family), 1);
    }
}

/// Row 37, CVE-2021-20322: a socket that was never connected is live for the peers it sent to, and
/// for no other, however the ports are guessed; and not for ever.
#[test]
fn a_socket_that_is_not_connected_is_live_for_peers_that_it_lately_sent_to() {
    for family in FAMILIES {
        let mut rig = rig();
        let (_, _, quote) = flow(&mut rig, family, 1, false);
        let to_another = |n: u16| {
            let mut quote = quote.clone();
            let (IpAddr::V4(_) | IpAddr::V6(_)) = far(family, n);
            let bytes = match far(family, n) {
                IpAddr::V4(a) => a.octets().to_vec(),
                IpAddr::V6(a) => a.octets().to_vec(),
            };
            let at = header_len(family) - bytes.len();
            quote[at..at + bytes.len()].copy_from_slice(&bytes);
            quote
        };
        let (reason, counter) = (DropReason::IcmpNoFlow, Counter::FloodwallExceptionsNoFlow);
        let other = too_big(family, NARROW, &to_another(2));
        refused(&mut rig, "never a request", &other, reason, counter);
        rig.run_for(Duration::from_secs(31));
        refused(&mut rig, "long ago", &too_big(family, NARROW, &quote), reason, counter);
    }
}

#[test]
fn pings_and_raw_packets_have_paths_too() {
    for family in FAMILIES {
        let mut rig = rig();
        let to = far(family, 1);
        let (ping, _) = rig
            .sockets(|s| s.ping_open(floodwall_ip::PingSettings::new(family)).expect("a socket"));
        let ask = |rig: &mut Rig| {
            let (sent, left) = rig.sockets(|s| s.ping_send(ping, to, None, 1, &[7; LARGE]));
            sent.expect("it leaves");
            left
        };
        let quote = bytes_of(&ask(&mut rig)[0])[LINK..].to_vec();
        let mut wrong = quote.clone();
        wrong[header_len(family) + 5] ^= 1;
        let (reason, counter) = (DropReason::IcmpNoFlow, Counter::FloodwallExceptionsNoFlow);
        refused(&mut rig, "an identifier", &too_big(family, NARROW, &wrong), reason, counter);
        rig.lives("too big", &too_big(family, NARROW, &quote));
        assert_eq!(ask(&mut rig).len(), 2, "{family:?}");

        let to = far(family, 2);
        let settings = floodwall_ip::RawSettings::new(family, IpProtocol(200));
        let other = ip(addr(family, HOST), to, IpProtocol(200), &[7; LARGE]);
        refused(&mut rig, "not sent", &too_big(family, NARROW, &other), reason, counter);
        let (raw, _) = rig.sockets(|s| s.raw_open(settings).expect("a socket"));
        let (sent, left) = rig.sockets(|s| s.raw_send(raw, to, None, &[7; LARGE]));
        sent.expect("it leaves");
        let quote = bytes_of(&left[0])[LINK..].to_vec();
        rig.lives("too big", &too_big(family, NARROW, &quote));
        let (_, left) = rig.sockets(|s| s.raw_send(raw, to, None, &[7; LARGE]));
        assert_eq!(left.len(), 2, "{family:?}");
    }
}

/// The list that Linux kept of routes with exceptions grew with one message for each route.
#[test]
fn one_packet_too_big_for_each_route_costs_no_more_than_one() {
    for family in FAMILIES {
        let mut config = config();
        for n in 0..900 {
            let (len, prefix) = match far(family, n) {
                IpAddr::V4(a) => (32, IpAddr::V4(a)),
                IpAddr::V6(a) => (64, IpAddr::V6(Ipv6Addr::from_bits(a.to_bits() >> 64 << 64))),
            };
            config.routes.push(floodwall_stack::StaticRoute {
                prefix: format!("{prefix}/{len}").parse().expect("a prefix"),
                via: Some(gateway(family)),
                iface: 0,
            });
        }
        let mut rig = Rig::new(&config);
        let now = rig.now;
        rig.stack.add_neighbor(IfIndex(1), gateway(family), router_mac(1), now).expect("room");
        rig.run_for(Duration::from_secs(60));
        let deadline = rig.stack.deadline();
        for n in 0..900 {
            // Two seconds: within the rate.
            rig.run_for(Duration::from_millis(8));
            let (id, _, quote) = flow(&mut rig, family, n, true);
            rig.frame(&too_big(family, NARROW, &quote));
            rig.sockets(|s| s.udp_close(id));
        }
        let learnt = count(&rig, Counter::FloodwallExceptionsLearnt);
        assert!(learnt > 800, "{learnt}");
        assert!(known(&rig, family) <= limits::EXCEPTIONS_HOP_MAX);
        // Nothing waits for a collection: no deadline has come of it.
        rig.run_for(Duration::from_secs(60));
        assert_eq!((rig.stack.deadline(), deadline), (None, None));
    }
}

/// As in 2021, ten a second, and as fast as they can come: neither memory nor work grows.
#[test]
fn storms_leave_memory_and_work_as_they_were() {
    for family in FAMILIES {
        for (gap, packets) in
            [(Duration::from_millis(100), 600), (Duration::from_nanos(70), 30_000)]
        {
            let mut rig = rig();
            let (id, to, quote) = flow(&mut rig, family, 1, true);
            let storm = [
                too_big(family, 1460, &quote[..header_len(family) + 8]),
                too_big(family, 1500, &quote),
                too_big(family, 300, &quote),
                {
                    let mut guess = quote.clone();
                    guess[header_len(family)] ^= 0x40;
                    too_big(family, NARROW, &guess)
                },
            ];
            // The first is accepted once: 1460 lowers 1500.
            rig.frame(&storm[0]);
            let (free, due) = (rig.pool.available(), rig.stack.deadline());
            let revision = |rig: &Rig| {
                (rig.stack.exceptions_v4().revision(), rig.stack.exceptions_v6().revision())
            };
            let before = revision(&rig);
            for n in 0..packets {
                rig.now += gap;
                let departed = rig.frame(&storm[n % storm.len()]);
                assert!(departed.is_empty(), "nothing is answered");
            }
            assert_eq!((rig.pool.available(), rig.stack.deadline()), (free, due));
            assert_eq!(revision(&rig), before, "nothing was written");
            assert_eq!(count(&rig, Counter::FloodwallExceptionsLearnt), 1);
            assert_eq!(known(&rig, family), 1);
            assert!(sizes(&mut rig, id, to).iter().all(|len| *len <= 1460));
            assert!(rig.conservation().holds());
        }
    }
}

/// Messages about many flows, as a server has, are accepted at a rate; then refused with a reason.
#[test]
fn belief_has_a_rate_however_many_flows_are_live() {
    for family in FAMILIES {
        let mut rig = rig();
        let frames: Vec<Vec<u8>> = (0..1000)
            .map(|n| too_big(family, NARROW, &flow(&mut rig, family, n, true).2))
            .collect();
        for frame in &frames {
            rig.frame(frame);
        }
        let learnt = count(&rig, Counter::FloodwallExceptionsLearnt);
        let limited = count(&rig, Counter::FloodwallExceptionsLimited);
        assert_eq!(learnt + limited, 1000);
        let burst = u64::from(limits::EXCEPTION_BURST);
        assert!((burst / 2..burst * 2).contains(&learnt), "{learnt}");
        let last = frames.last().expect("some");
        let (reason, counter) = (DropReason::ExceptionLimited, Counter::FloodwallExceptionsLimited);
        refused(&mut rig, "too many", last, reason, counter);
        rig.run_for(Duration::from_secs(2));
        rig.lives("later", last);
    }
}

/// The effect of a message is not visible to its sender: nothing leaves in any case.
#[test]
fn nothing_tells_from_outside_whether_a_guess_was_right() {
    for family in FAMILIES {
        let mut rig = rig();
        rig.run_for(Duration::from_secs(60));
        let (id, to, quote) = flow(&mut rig, family, 1, true);
        let mut guess = quote.clone();
        guess[header_len(family) + 1] ^= 1;
        for quote in [&guess, &quote] {
            assert!(rig.frame(&too_big(family, NARROW, quote)).is_empty());
            assert!(rig.run_for(Duration::from_secs(1)).is_empty());
        }
        assert_eq!(sizes(&mut rig, id, to).len(), 2);
    }
}

/// A destination that has no router of its own on the way cannot be cut off by one.
#[test]
fn link_local_paths_learn_nothing() {
    let mut rig = rig();
    let here: IpAddr = "fe80::77".parse().expect("an address");
    let now = rig.now;
    rig.stack.add_neighbor(IfIndex(1), here, router_mac(7), now).expect("room");
    let IpAddr::V6(host) = here else { return };
    let to = SocketAddr::V6(std::net::SocketAddrV6::new(host, 9, 0, 1));
    let id = socket(&mut rig, to, true, false);
    let quote = bytes_of(&send(&mut rig, id, to, LARGE)[0])[LINK..].to_vec();
    let message = Icmpv6Message::PacketTooBig { mtu: NARROW };
    let from = "fe80::77".parse().expect("an address");
    let own =
        Ipv6Addr::from_bits(u128::from_be_bytes(quote[8..24].try_into().expect("sixteen bytes")));
    let packet = icmpv6(from, own, message, &quote[..100]);
    let frame = frame(mac(HOST), router_mac(7), EtherType::IPV6, &packet);
    let (reason, counter) = (DropReason::NoRoute, Counter::FloodwallExceptionsNoRoute);
    refused(&mut rig, "on the link", &frame, reason, counter);
    assert_eq!(sizes(&mut rig, id, to).len(), 1);
}
