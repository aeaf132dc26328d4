//! A segment that its connection predicts, or a datagram of ends that a socket has taken from, and
//! the same on the general path: one outcome.
//!
//! The headers of an expected segment are read in one go (`stack`'s `tcp/predict.rs`). An access
//! list that permits everything keeps all packets of its host on the general path: two hosts, one
//! with such a list, hear the same and must say the same, byte by byte. Most segments are as
//! expected; others differ from that in one field, with right checksums or without.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::indexing_slicing, reason = "twins and frames of known size")]

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use floodwall_base::{Counter, DropReason, Family, IfIndex, PublicRandom};
use floodwall_packet::PacketBuf;
use floodwall_stack::{RawSettings, StackConfig};
use floodwall_tcp::{ConnectionId, TcpSettings};
use floodwall_tests::craft::{self, HOST, PEER, addr, from_peer};
use floodwall_tests::tcp_peer::{Put, TcpPeer, put};
use floodwall_tests::{bytes_of, ethernet_config};
use floodwall_udp::SocketSettings;
use floodwall_wire::IpProtocol;
use floodwall_wire::tcp::TcpFlags;
use floodwall_wire::tcp_options::{TcpOptionSet, Timestamps};

const ACK: TcpFlags = TcpFlags::ACK;

/// What the peer has sent, and of what the host sent it acknowledges.
#[derive(Clone, Copy)]
struct Place {
    seq: u32,
    ack: u32,
    clock: u32,
    /// The host's timestamp that was seen last.
    echo: u32,
    stamps: bool,
}

impl Place {
    fn options(self) -> TcpOptionSet {
        let timestamps = self.stamps.then_some(Timestamps { value: self.clock, echo: self.echo });
        TcpOptionSet { timestamps, ..TcpOptionSet::NONE }
    }

    /// The next segment as the host expects it, with `len` bytes of text.
    fn next(self, len: usize) -> Put {
        let text: Vec<u8> = (0..len).map(|n| (self.seq as usize + n) as u8).collect();
        put(ACK | TcpFlags::PSH, self.seq, self.ack).options(self.options()).data(&text)
    }
}

/// The same with one field wrong, or unusual.
fn nearly(chance: &mut PublicRandom, place: Place, put: Put) -> Put {
    let mut put = put;
    let few = chance.below(5) as u32 + 1;
    match chance.below(12) {
        0 => put.seq = put.seq.wrapping_add(few),
        1 => put.seq = put.seq.wrapping_sub(few),
        2 => put.ack = put.ack.wrapping_add(few),
        3 => put.ack = put.ack.wrapping_sub(few),
        4 => put.flags = put.flags | TcpFlags(1 << chance.below(8)),
        5 => put.flags = TcpFlags(put.flags.0 & !ACK.0),
        6 => put.window = chance.below(70_000) as u16,
        7 => put.options.timestamps = None,
        8 => put.options = Place { clock: place.clock.wrapping_sub(few), ..place }.options(),
        9 => put.options.sack_permitted = true,
        10 => put.seq = put.seq.wrapping_add(1 << 20),
        _ => put.data.extend_from_slice(&[7; 1460][..1460 - put.data.len().min(1460)]),
    }
    put
}

fn frame(peer: &TcpPeer, put: &Put) -> Vec<u8> {
    let (host, other) = (addr(peer.family, HOST), addr(peer.family, PEER));
    let mut frame = from_peer(&craft::ip(other, host, IpProtocol::TCP, &peer.bytes(put)));
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, HOST]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, PEER]);
    frame
}

/// One bit of the headers is wrong; mostly the checksum of IPv4's header is right nevertheless.
fn spoilt(chance: &mut PublicRandom, mut frame: Vec<u8>) -> Vec<u8> {
    let at = chance.below(frame.len().min(90) as u64) as usize;
    frame[at] ^= 1 << chance.below(8);
    if frame[12..15] == [8, 0, 0x45] && chance.chance(0.8) {
        frame[24..26].fill(0);
        let sum = floodwall_checksum::sum(&frame[14..34]).finish();
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    if chance.chance(0.2) {
        frame.extend_from_slice(&[0xee; 5]);
    }
    frame
}

/// Two hosts: the first has all on the general path.
struct Twins {
    peers: [TcpPeer; 2],
    ids: [ConnectionId; 2],
    /// Behind the last segment that the hosts sent.
    sent: Option<u32>,
}

impl Twins {
    fn new(family: Family, settings: &TcpSettings, stamps: bool) -> Self {
        let mut peers = [(); 2].map(|()| TcpPeer::new(family, settings));
        let rule = "permit from any to any".parse().unwrap();
        assert!(peers[0].rig.stack.set_access_list(IfIndex(1), &[rule]));
        let timestamps = stamps.then_some(Timestamps { value: 99, echo: 0 });
        let options = TcpOptionSet {
            timestamps,
            sack_permitted: true,
            mss: Some(1400),
            ..TcpOptionSet::NONE
        };
        let ids = peers.each_mut().map(|peer| peer.open(options));
        Self { peers, ids, sent: None }
    }

    /// Does the same with both, and compares what leaves.
    fn both(&mut self, what: &str, act: impl Fn(&mut TcpPeer, ConnectionId) -> Vec<PacketBuf>) {
        let [first, second] = &mut self.peers;
        let left = [act(first, self.ids[0]), act(second, self.ids[1])];
        let segments = first.read(&left[0]);
        let left = left.map(|left| left.iter().map(bytes_of).collect::<Vec<_>>());
        assert_eq!(left[0], left[1], "{what}");
        for segment in segments {
            let is_syn = segment.flags.contains(TcpFlags::SYN);
            if is_syn {
                self.peers.iter_mut().for_each(|peer| peer.iss = segment.seq);
            }
            let is_fin = segment.flags.contains(TcpFlags::FIN);
            let len = segment.len as u32 + u32::from(is_syn) + u32::from(is_fin);
            self.sent = Some(segment.seq.wrapping_add(len));
        }
    }

    fn arrive(&mut self, what: &str, frame: &[u8], pieces: bool) {
        self.both(what, |peer, _| {
            let packet = match pieces {
                false => peer.rig.pool.packet_from(frame),
                true => peer.rig.pool.packet_from_chunks(frame.chunks(61)),
            };
            peer.rig.arrive(vec![packet.unwrap()])
        });
    }
}

fn runs_alike(seed: u64) -> [u64; 2] {
    let mut chance = PublicRandom::new(seed);
    let family = if seed.is_multiple_of(2) { Family::V4 } else { Family::V6 };
    let stamps = chance.chance(0.8);
    let settings = TcpSettings { nodelay: chance.chance(0.5), ..TcpSettings::default() };
    let mut twins = Twins::new(family, &settings, stamps);
    let mut place = Place { seq: 1, ack: 1, clock: 100, echo: 0, stamps };
    for step in 0..150 {
        let what = format!("seed {seed}, step {step}");
        let len = [0, 1, 64, 64, 500, 1388][chance.below(6) as usize];
        let text = place.next(len);
        let mut bytes = frame(&twins.peers[0], &text);
        let is_plain = chance.chance(0.8);
        if !is_plain && chance.chance(0.6) {
            bytes = frame(&twins.peers[0], &nearly(&mut chance, place, text));
        } else if !is_plain {
            bytes = spoilt(&mut chance, bytes);
        } else {
            place.seq = place.seq.wrapping_add(len as u32);
        }
        twins.arrive(&what, &bytes, chance.chance(0.05));
        if chance.chance(0.5) {
            let message = vec![step as u8; chance.below(2000) as usize + 1];
            twins.both(&what, |peer, id| {
                peer.rig.sockets(|s| s.tcp_send(id, &message).unwrap_or(0)).1
            });
        }
        twins.both(&what, |peer, id| {
            peer.rig.sockets(|s| s.tcp_recv(id, &mut [0; 3000]).unwrap_or(0)).1
        });
        if chance.chance(0.2) {
            let time = Duration::from_millis([1, 5, 60, 700][chance.below(4) as usize]);
            twins.both(&what, |peer, _| peer.rig.run_for(time));
            place.clock += time.as_millis() as u32;
        }
        // The peer acknowledges all that was sent, or what it has.
        let sent = [0, 1].map(|n| {
            let id = twins.ids[n];
            twins.peers[n].set(|tcp| tcp.sequence(id).ok())
        });
        assert_eq!(sent[0], sent[1], "{what}");
        let Some((next, _)) = sent[0] else { break };
        if chance.chance(0.6) {
            place.ack = next.0.wrapping_sub(twins.peers[0].iss);
        }
    }
    let stats = twins.peers.each_ref().map(|peer| peer.rig.stats());
    let dead = stats.each_ref().map(|stats| format!("{:?} {:?}", stats.drops_in, stats.outcomes));
    assert_eq!(dead[0], dead[1], "seed {seed}");
    for counter in [Counter::TcpInSegs, Counter::IpInOctets, Counter::Ip6InOctets] {
        assert_eq!(stats[0].counters.of(counter), stats[1].counters.of(counter), "seed {seed}");
    }
    assert!(twins.peers.iter().all(|peer| peer.rig.conservation().holds()), "seed {seed}");
    stats.map(|stats| stats.counters.of(Counter::FloodwallHeaderBorrows))
}

#[test]
fn a_predicted_segment_has_the_outcome_of_the_general_path() {
    for family in 0..2 {
        let looks = (0..150).map(|n| runs_alike(2 * n + family));
        let looks = looks.fold([0, 0], |sum, n| [sum[0] + n[0], sum[1] + n[1]]);
        assert!(looks[1] * 3 < looks[0] * 2, "headers were read as often: {looks:?}");
    }
}

/// What a peer does with a short connection: a handshake, a message, and its end, from its side or
/// the host's. One segment in five is wrong or unusual in one field.
fn short_connection_alike(chance: &mut PublicRandom, twins: &mut Twins, seed: u64, round: u64) {
    let stamps = chance.chance(0.8);
    for peer in &mut twins.peers {
        peer.ports.1 = 40_001 + (round % 5) as u16;
        peer.iss = 0;
    }
    let mut place = Place { seq: 0, ack: 0, clock: 100 + round as u32, echo: 0, stamps };
    let host_first = chance.chance(0.5);
    let mut ids = [None; 2];
    for step in 0..8 {
        let what = format!("seed {seed}, connection {round}, step {step}");
        let mss = TcpOptionSet { mss: Some(1400), sack_permitted: true, ..place.options() };
        let segment = match step {
            0 => put(TcpFlags::SYN, 0, 0).options(mss),
            1 | 3 | 6 => place.next(0),
            2 | 4 => place.next(64),
            _ => put(ACK | TcpFlags::FIN, place.seq, place.ack).options(place.options()),
        };
        let bytes = match chance.below(10) {
            0 => frame(&twins.peers[0], &nearly(chance, place, segment)),
            1 => spoilt(chance, frame(&twins.peers[0], &segment)),
            _ => {
                place.seq += segment.data.len() as u32
                    + u32::from(segment.flags.intersects(TcpFlags::SYN | TcpFlags::FIN));
                frame(&twins.peers[0], &segment)
            }
        };
        twins.arrive(&what, &bytes, chance.chance(0.05));
        for (peer, id) in twins.peers.iter_mut().zip(&mut ids) {
            let listener = peer.listener;
            *id = id.or_else(|| peer.rig.sockets(|s| s.tcp_accept(listener)).0.unwrap());
        }
        assert_eq!(ids[0], ids[1], "{what}");
        if let Some(id) = ids[0] {
            twins.both(&what, |peer, _| peer.rig.sockets(|s| s.tcp_recv(id, &mut [0; 3000])).1);
            if step == 2 {
                twins.both(&what, |peer, _| peer.rig.sockets(|s| s.tcp_send(id, &[7; 64])).1);
            }
            if step == if host_first { 4 } else { 5 } {
                twins.both(&what, |peer, _| peer.rig.sockets(|s| s.tcp_close(id)).1);
            }
        }
        if chance.chance(0.2) {
            twins.both(&what, |peer, _| peer.rig.run_for(Duration::from_millis(50)));
            place.clock += 50;
        }
        if let Some(next) = twins.sent {
            place.ack = next.wrapping_sub(twins.peers[0].iss);
        }
    }
    if let Some(id) = ids[0] {
        twins.both("the end", |peer, _| peer.rig.sockets(|s| s.tcp_abort(id)).1);
    }
}

#[test]
fn a_short_connection_between_admitted_ends_has_the_outcome_of_the_general_path() {
    for seed in 0..24 {
        let family = if seed % 2 == 0 { Family::V4 } else { Family::V6 };
        let mut chance = PublicRandom::new(1000 + seed);
        let mut twins = Twins::new(family, &TcpSettings::default(), true);
        (0..20).for_each(|round| short_connection_alike(&mut chance, &mut twins, seed, round));
        let stats = twins.peers.each_ref().map(|peer| peer.rig.stats());
        let dropped =
            stats.each_ref().map(|stats| format!("{:?} {:?}", stats.drops_in, stats.outcomes));
        assert_eq!(dropped[0], dropped[1], "seed {seed}");
        for counter in [Counter::TcpInSegs, Counter::TcpInErrs, Counter::TcpPassiveOpens] {
            let counts = stats.each_ref().map(|stats| stats.counters.of(counter));
            assert_eq!(counts[0], counts[1], "seed {seed}");
        }
        let octets = [Counter::IpInOctets, Counter::Ip6InOctets, Counter::IpInDelivers];
        for counter in octets {
            let counts = stats.each_ref().map(|stats| stats.counters.of(counter));
            assert_eq!(counts[0], counts[1], "seed {seed}");
        }
        assert!(stats[1].counters.of(Counter::TcpPassiveOpens) > 5, "seed {seed}: most opened");
        let looks = stats.each_ref().map(|s| s.counters.of(Counter::FloodwallHeaderBorrows));
        assert!(looks[1] * 3 < looks[0] * 2, "seed {seed}: headers read as often: {looks:?}");
        assert!(twins.peers.iter().all(|peer| peer.rig.conservation().holds()), "seed {seed}");
    }
}

#[test]
fn a_port_of_zero_is_as_malformed_between_admitted_ends_as_between_others() {
    for family in [Family::V4, Family::V6] {
        let mut twins = Twins::new(family, &TcpSettings::default(), true);
        let (ours, theirs) = twins.peers[0].ports;
        for ports in [(ours, 0), (0, theirs), (ours, theirs + 1)] {
            for peer in &mut twins.peers {
                (peer.ports, peer.iss) = (ports, 0);
            }
            twins.sent = None;
            let bytes = frame(&twins.peers[0], &put(TcpFlags::SYN, 0, 0));
            twins.arrive(&format!("{family:?} {ports:?}"), &bytes, false);
            let is_answered = ports.0 != 0 && ports.1 != 0;
            assert_eq!(twins.sent.is_some(), is_answered, "{family:?} {ports:?}");
        }
        for peer in &twins.peers {
            let stats = peer.rig.stats();
            assert_eq!(stats.drops_in.of(DropReason::TcpMalformed), 2, "{family:?}");
        }
    }
}

/// The answer to a SYN shows nothing of its sender: only a segment that a connection took admits
/// the ends.
#[test]
fn a_syn_that_was_answered_admits_no_ends_and_a_connection_that_took_a_segment_does() {
    for family in [Family::V4, Family::V6] {
        let mut peer = TcpPeer::new(family, &TcpSettings::default());
        let looks_of_syn = |peer: &mut TcpPeer, port| {
            (peer.ports.1, peer.iss) = (port, 0);
            let looks =
                |peer: &TcpPeer| peer.rig.stats().counters.of(Counter::FloodwallHeaderBorrows);
            let before = looks(peer);
            let bytes = frame(peer, &put(TcpFlags::SYN, 0, 0));
            assert_eq!(peer.rig.frame(&bytes).len(), 1, "{family:?}: it is answered");
            looks(peer) - before
        };
        let first = looks_of_syn(&mut peer, 40_001);
        assert_eq!(looks_of_syn(&mut peer, 40_002), first, "{family:?}: as if there was none");
        (peer.ports.1, peer.iss) = (40_000, 0);
        peer.open(TcpOptionSet::NONE);
        assert!(looks_of_syn(&mut peer, 40_003) < first, "{family:?}: read in one go");
    }
}

#[test]
fn what_is_let_in_is_asked_again_after_a_change() {
    for family in [Family::V4, Family::V6] {
        let mut twins = Twins::new(family, &TcpSettings::default(), true);
        let mut place = Place { seq: 1, ack: 1, clock: 100, echo: 0, stamps: true };
        let peer = &mut twins.peers[1];
        let mut taken = |peer: &mut TcpPeer| {
            let bytes = frame(peer, &place.next(10));
            place.seq += 10;
            peer.rig.frame(&bytes);
            let read = peer.rig.sockets(|s| s.tcp_recv(twins.ids[1], &mut [0; 100])).0;
            read == Ok(10)
        };
        assert!(taken(peer) && taken(peer), "{family:?}");
        let rule = "deny from any to any".parse().unwrap();
        assert!(peer.rig.stack.set_access_list(IfIndex(1), &[rule]));
        assert!(!taken(peer), "{family:?}: an access list is newer than the prediction");
    }
}

#[test]
fn ipv4_addresses_in_an_ipv6_header_are_not_those_of_an_ipv4_connection() {
    let mut twins = Twins::new(Family::V4, &TcpSettings::default(), true);
    let mut place = Place { seq: 1, ack: 1, clock: 100, echo: 0, stamps: true };
    for _ in 0..2 {
        let bytes = frame(&twins.peers[0], &place.next(10));
        twins.arrive("in an IPv4 header", &bytes, false);
        place.seq += 10;
    }
    let mapped = |host| match addr(Family::V4, host) {
        IpAddr::V4(addr) => IpAddr::V6(addr.to_ipv6_mapped()),
        addr => addr,
    };
    // The checksum is right: the addresses sum up to the same.
    let segment = twins.peers[0].bytes(&place.next(10));
    let ip = craft::ip(mapped(PEER), mapped(HOST), IpProtocol::TCP, &segment);
    let mut frame = from_peer(&ip);
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, HOST]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, PEER]);
    let ids = twins.ids;
    let state = |twins: &mut Twins| {
        [0, 1].map(|n| {
            let next = twins.peers[n].set(|tcp| tcp.sequence(ids[n]).unwrap().1);
            (next, twins.peers[n].rig.stats().drops_in.total())
        })
    };
    let before = state(&mut twins);
    twins.arrive("in an IPv6 header", &frame, false);
    let after = before.map(|(next, drops)| (next, drops + 1));
    assert_eq!(state(&mut twins), after, "its text is none of the connection");
}

/// A datagram of one of three peers to one of two sockets, or to a port without one.
fn datagram(chance: &mut PublicRandom, family: Family) -> Vec<u8> {
    let from = SocketAddr::new(addr(family, PEER), 4000 + chance.below(3) as u16);
    let port = [53, 53, 53, 54, 55][chance.below(5) as usize];
    let len = [0, 1, 18, 64, 64, 500, 1400][chance.below(7) as usize];
    let text = vec![chance.below(256) as u8; len];
    let mut frame = from_peer(&craft::udp(from, SocketAddr::new(addr(family, HOST), port), &text));
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, HOST]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, PEER]);
    frame
}

fn datagrams_alike(seed: u64) -> [u64; 2] {
    let mut chance = PublicRandom::new(seed);
    let family = if seed.is_multiple_of(2) { Family::V4 } else { Family::V6 };
    let mut twins = Twins::new(family, &TcpSettings::default(), true);
    let bind = |peer: &mut TcpPeer, port| {
        let any = SocketAddr::new(IpAddr::from([0_u16; 8]), port);
        peer.rig.sockets(|s| s.udp_bind(any, SocketSettings::new(Family::V6))).0.unwrap()
    };
    let mut sockets = twins.peers.each_mut().map(|peer| [53, 54].map(|port| bind(peer, port)));
    for step in 0..150 {
        let what = format!("seed {seed}, step {step}");
        let mut bytes = datagram(&mut chance, family);
        if chance.chance(0.2) {
            bytes = spoilt(&mut chance, bytes);
        }
        twins.arrive(&what, &bytes, chance.chance(0.05));
        if chance.chance(0.05) {
            // Another socket has the port, at its old place or a new one.
            for (peer, sockets) in twins.peers.iter_mut().zip(&mut sockets) {
                sockets.iter().for_each(|id| _ = peer.rig.sockets(|s| s.udp_close(*id)));
                let ports = if step % 2 == 0 { [54, 53] } else { [53, 54] };
                *sockets = ports.map(|port| bind(peer, port));
            }
        }
        let reads = chance.chance(0.8);
        let read = [0, 1].map(|n| {
            let peer = &mut twins.peers[n];
            let mut read = |id| {
                let mut out = [0; 1500];
                let received = peer.rig.sockets(|s| s.udp_recv(id, &mut out)).0;
                received.map(|received| (received.len, received.from, out[0]))
            };
            reads.then(|| sockets[n].map(|id| [read(id), read(id)]))
        });
        assert_eq!(read[0], read[1], "{what}");
        if chance.chance(0.1) {
            let time = Duration::from_millis(1 + chance.below(300));
            twins.both(&what, |peer, _| peer.rig.run_for(time));
        }
    }
    let stats = twins.peers.each_ref().map(|peer| peer.rig.stats());
    let dead = stats.each_ref().map(|stats| format!("{:?} {:?}", stats.drops_in, stats.outcomes));
    assert_eq!(dead[0], dead[1], "seed {seed}");
    for counter in [
        Counter::IpInOctets,
        Counter::Ip6InOctets,
        Counter::IpInDelivers,
        Counter::Ip6InDelivers,
        Counter::UdpInDatagrams,
        Counter::Udp6InDatagrams,
    ] {
        assert_eq!(stats[0].counters.of(counter), stats[1].counters.of(counter), "seed {seed}");
    }
    assert!(twins.peers.iter().all(|peer| peer.rig.conservation().holds()), "seed {seed}");
    stats.map(|stats| stats.counters.of(Counter::FloodwallHeaderBorrows))
}

#[test]
fn a_predicted_datagram_has_the_outcome_of_the_general_path() {
    for family in 0..2 {
        let looks = (0..40).map(|n| datagrams_alike(2 * n + family));
        let looks = looks.fold([0, 0], |sum, n| [sum[0] + n[0], sum[1] + n[1]]);
        assert!(looks[1] * 10 < looks[0] * 9, "headers were read as often: {looks:?}");
    }
}

/// A raw socket hears a whole protocol, also of flows that were predicted before it was opened.
#[test]
fn a_raw_socket_hears_all_of_a_flow_that_would_be_predicted() {
    for family in [Family::V4, Family::V6] {
        let config = StackConfig { raw_sockets_max: 2, ..ethernet_config(HOST) };
        let mut peer =
            TcpPeer::on(&config, family, &TcpSettings::default(), ((HOST, PEER), (80, 40_000)));
        let timestamps = Some(Timestamps { value: 99, echo: 0 });
        peer.open(TcpOptionSet { timestamps, mss: Some(1400), ..TcpOptionSet::NONE });
        let any = SocketAddr::new(addr(family, HOST), 53);
        peer.rig.sockets(|s| s.udp_bind(any, SocketSettings::new(family))).0.unwrap();
        let mut place = Place { seq: 1, ack: 1, clock: 100, echo: 0, stamps: true };
        let mut arrive = |peer: &mut TcpPeer| {
            // A train of segments, and a datagram of one peer.
            for len in [10, 700, 700, 700] {
                let bytes = frame(peer, &place.next(len));
                place.seq += len as u32;
                peer.rig.frame(&bytes);
            }
            let train: Vec<_> = (0..4)
                .map(|_| {
                    let bytes = frame(peer, &place.next(1000));
                    place.seq += 1000;
                    peer.rig.pool.packet_from(&bytes).unwrap()
                })
                .collect();
            peer.rig.arrive(train);
            let from = SocketAddr::new(addr(family, PEER), 4000);
            let mut bytes = from_peer(&craft::udp(from, any, &[7; 20]));
            bytes[..6].copy_from_slice(&[2, 0, 0, 0, 0, HOST]);
            bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 0, PEER]);
            (0..4).for_each(|_| _ = peer.rig.frame(&bytes));
        };
        arrive(&mut peer);
        let [tcp, udp] = [IpProtocol::TCP, IpProtocol::UDP].map(|protocol| {
            peer.rig.sockets(|s| s.raw_open(RawSettings::new(family, protocol))).0.unwrap()
        });
        for round in 0..2 {
            arrive(&mut peer);
            let mut heard = |id| {
                let mut one = || peer.rig.sockets(|s| s.raw_recv(id, &mut [0; 2000])).0.is_ok();
                (0..).take_while(|_| one()).count()
            };
            assert_eq!((heard(tcp), heard(udp)), (8, 4), "{family:?}, round {round}");
        }
    }
}
