//! Malicious header chains, each of them whole and cut at every place: the same drop reason, the
//! same answer to the byte, and no more looks than a bounded number.
//!
//! Where chunks end is the driver's choice and, with fragments and tunnels, the attacker's.
//! Reading: Hagino, FREENIX 2000; CVE-2019-5608, CVE-2019-5611, CVE-2007-1365 (rows 52 to 58).

use floodwall_base::{DropReason, Family};
use floodwall_packet::PacketBuf;
use floodwall_stack::StackConfig;
use floodwall_testkit::cuts::{self, Cut};
use floodwall_tests::craft::{
    HOST, PEER, addr, echo, from_peer, ip, ipv4_fields, ipv4_with_options, ipv6_chain,
    options_header, udp_to_port,
};
use floodwall_tests::{Owed, Rig, bytes_of, drops_between, ethernet_config};
use floodwall_wire::{ExtensionLimits, IpProtocol};

const HOP: IpProtocol = IpProtocol::HOP_BY_HOP;
const OPTIONS: IpProtocol = IpProtocol::DESTINATION_OPTIONS;
const UDP: IpProtocol = IpProtocol::UDP;
/// Six bytes of padding: the smallest options header.
const PADDING: [u8; 8] = [0, 0, 1, 4, 0, 0, 0, 0];
/// Bytes of a frame that are cut at every place.
const CUT_BYTES: usize = 150;

/// A packet in as many chunks as the cut makes, and more where a chunk would exceed a frame.
fn pieces(rig: &Rig, bytes: &[u8], cut: &Cut) -> PacketBuf {
    let chunks = cut.of(bytes).into_iter().flat_map(|piece| {
        let empty = piece.is_empty().then_some(piece);
        piece.chunks(1700).chain(empty)
    });
    rig.pool.packet_from_chunks(chunks).expect("room in the pool")
}

/// Whole first, with everything that `Rig::packet_is_dropped` checks; then cut in every way, where
/// nothing may be different.
fn is_dropped_however_cut(
    config: &StackConfig,
    what: &str,
    packet: &[u8],
    reason: DropReason,
    owed: Option<Owed>,
) {
    let mut rig = Rig::with_neighbor(config, PEER);
    rig.packet_is_dropped(what, packet, reason, owed);
    let frame = from_peer(packet);
    let mut rig = Rig::with_neighbor(config, PEER);
    let answer: Vec<Vec<u8>> = rig.frame(&frame).iter().map(bytes_of).collect();
    let free = rig.pool.available();
    for cut in cuts::all(frame.len().min(CUT_BYTES), 20, 58) {
        rig.run_for(std::time::Duration::from_secs(1));
        let (before, whole) = (rig.stats(), pieces(&rig, &frame, &cut));
        let departed = rig.arrive(vec![whole]);
        let after = rig.stats();
        assert_eq!(drops_between(&before, &after), (vec![(reason, 1)], vec![]), "{what}, {cut:?}");
        let departed: Vec<Vec<u8>> = departed.iter().map(bytes_of).collect();
        assert_eq!(departed, answer, "{what}, {cut:?}");
        let looks = after.access.checks() - before.access.checks();
        assert!(looks <= 60, "{what}, {cut:?}: {looks} looks");
    }
    assert_eq!(rig.pool.available(), free, "{what}");
}

fn expect_drop(what: &str, packet: &[u8], reason: DropReason, owed: Option<Owed>) {
    is_dropped_however_cut(&ethernet_config(HOST), what, packet, reason, owed);
}

/// A datagram for a closed port: the walk that gets that far ends there.
fn datagram() -> Vec<u8> {
    udp_to_port(Family::V6, 9, b"hello")[40..].to_vec()
}

fn chain(headers: &[(IpProtocol, &[u8])]) -> Vec<u8> {
    ipv6_chain(headers, UDP, &datagram())
}

/// A packet with another payload length in its header.
fn with_length(mut packet: Vec<u8>, len: u16) -> Vec<u8> {
    packet[4..6].copy_from_slice(&len.to_be_bytes());
    packet
}

/// Row 52: a chain over the limit is dropped at the limit, one at the largest configurable limit is
/// walked.
#[test]
fn a_hundred_headers_are_dropped_at_the_limit_and_walked_where_it_allows_them() {
    let hundred = chain(&[(OPTIONS, &PADDING[..]); 100]);
    let owed = Some(Owed::problem_v6(8, 40 + 64));
    expect_drop("a hundred", &hundred, DropReason::ExtensionLimit, owed);
    let extension_limits = ExtensionLimits { headers_max: 187, ..ExtensionLimits::default() };
    let config = StackConfig { extension_limits, ..ethernet_config(HOST) };
    // The longest that the limit of bytes allows, and one more.
    for (count, reason, owed) in [
        (187, DropReason::UdpNoPort, Owed::unreachable(Family::V6, 4)),
        (188, DropReason::ExtensionLimit, Owed::problem_v6(8, 40 + 187 * 8)),
    ] {
        let packet = chain(&vec![(OPTIONS, &PADDING[..]); count]);
        let mut rig = Rig::with_neighbor(&config, PEER);
        rig.packet_is_dropped(&format!("{count}"), &packet, reason, Some(owed));
        assert!(rig.stats().access.checks() <= count as u64 + 60, "a look at each, and a few");
    }
}

/// Each limit of the configuration is the one in force, with its code (RFC 8883).
#[test]
fn the_limits_of_the_configuration_are_those_in_force() {
    let base = ExtensionLimits::default();
    let three = chain(&[(OPTIONS, &PADDING[..]); 3]);
    let options = options_header(&[[0x1e, 0].repeat(3), vec![1, 6, 0, 0, 0, 0, 0, 0]].concat());
    let options = chain(&[(OPTIONS, &options)]);
    let reason = DropReason::ExtensionLimit;
    for (extension_limits, packet, owed) in [
        (ExtensionLimits { headers_max: 2, ..base }, &three, Owed::problem_v6(8, 56)),
        (ExtensionLimits { chain_bytes_max: 16, ..base }, &three, Owed::problem_v6(7, 56)),
        (ExtensionLimits { options_max: 2, ..base }, &options, Owed::problem_v6(9, 46)),
        (ExtensionLimits { padding_max: 5, ..base }, &three, Owed::problem_v6(10, 42)),
    ] {
        let config = StackConfig { extension_limits, ..ethernet_config(HOST) };
        let what = format!("{extension_limits:?}");
        is_dropped_however_cut(&config, &what, packet, reason, Some(owed));
    }
    // And looser ones let through what the defaults do not.
    let loose = ExtensionLimits { padding_max: 8, options_max: 3, ..base };
    let config = StackConfig { extension_limits: loose, ..ethernet_config(HOST) };
    let owed = Some(Owed::unreachable(Family::V6, 4));
    is_dropped_however_cut(&config, "looser", &options, DropReason::UdpNoPort, owed);
}

#[test]
fn hop_by_hop_options_behind_another_header_are_dropped_however_cut() {
    let reason = DropReason::ExtensionOrder;
    let second = chain(&[(OPTIONS, &PADDING), (HOP, &PADDING)]);
    expect_drop("second", &second, reason, Some(Owed::problem_v6(1, 40)));
    let twice = chain(&[(HOP, &PADDING), (HOP, &PADDING)]);
    expect_drop("twice", &twice, reason, Some(Owed::problem_v6(1, 40)));
}

/// RFC 6564 gives future headers one format, but a node cannot tell whether an unknown number is a
/// header's: it sends an error, and does not guess (RFC 8200 section 4).
#[test]
fn an_unknown_header_is_not_stepped_over_by_the_format_of_known_ones() {
    for kind in [135, 139, 140, 142, 200, 253, 254] {
        let unknown = ipv6_chain(
            &[(OPTIONS, &PADDING)],
            IpProtocol(kind),
            &[&[UDP.0, 0, 1, 4, 0, 0, 0, 0][..], &datagram()].concat(),
        );
        let owed = Some(Owed::problem_v6(1, 40));
        expect_drop(&format!("{kind}"), &unknown, DropReason::ProtocolUnknown, owed);
    }
}

/// Options of no bytes: each still costs two of the header, so that the walk ends.
#[test]
fn options_without_bytes_do_not_hold_the_walk() {
    for kind in [HOP, OPTIONS] {
        for count in [11, 63, 743] {
            let options = options_header(&[0x1e, 0].repeat(count));
            let owed = Some(Owed::problem_v6(9, 42 + 16));
            let packet = chain(&[(kind, &options)]);
            expect_drop(&format!("{kind:?} {count}"), &packet, DropReason::ExtensionLimit, owed);
        }
    }
}

#[test]
fn a_flood_of_padding_is_dropped_at_its_limit_however_cut() {
    for kind in [HOP, OPTIONS] {
        // Of PadN, of Pad1, and of both in turn.
        let many = [1, 0].repeat(127);
        let pads = [many, vec![0; 254], [0, 1, 1, 0].repeat(63), vec![1, 252]];
        let pointers = [42 + 6, 42 + 7, 42 + 5, 42];
        for (pad, pointer) in pads.into_iter().zip(pointers) {
            let mut bytes = pad;
            bytes.resize(254, 0);
            let owed = Some(Owed::problem_v6(10, pointer));
            let packet = chain(&[(kind, &options_header(&bytes))]);
            expect_drop(&format!("{kind:?}"), &packet, DropReason::ExtensionLimit, owed);
        }
    }
}

/// Row 54: a jumbo payload of no bytes, of few, and one beside a payload length.
#[test]
fn contradicting_jumbo_lengths_are_dropped_however_cut() {
    let jumbo = |len: u32| [&[0, 0, 0xc2, 4][..], &len.to_be_bytes()].concat();
    let reason = DropReason::ExtensionJumbo;
    for len in [0, 1, 8, 65_535] {
        let packet = with_length(chain(&[(HOP, &jumbo(len))]), 0);
        expect_drop(&format!("{len}"), &packet, reason, Some(Owed::problem_v6(0, 44)));
    }
    for len in [65_536, u32::MAX] {
        let packet = with_length(chain(&[(HOP, &jumbo(len))]), 0);
        expect_drop(&format!("{len}"), &packet, reason, None);
        let both = chain(&[(HOP, &jumbo(len))]);
        expect_drop("two lengths", &both, reason, Some(Owed::problem_v6(0, 42)));
    }
    let none = with_length(chain(&[(HOP, &PADDING)]), 0);
    expect_drop("no length", &none, reason, Some(Owed::problem_v6(0, 4)));
    // Without a hop-by-hop header a length of zero is a packet of no payload.
    let empty = with_length(chain(&[(OPTIONS, &PADDING)]), 0);
    expect_drop("no payload", &empty, DropReason::ExtensionMalformed, None);
}

/// Row 57: more than arrived is refused at once, less cuts the chain at that length.
#[test]
fn a_wrong_payload_length_is_dropped_however_cut() {
    let packet = chain(&[(HOP, &PADDING), (OPTIONS, &PADDING)]);
    let whole = packet.len() as u16 - 40;
    for more in [1, 100, 0xffff - whole] {
        let packet = with_length(packet.clone(), whole + more);
        expect_drop(&format!("{more}"), &packet, DropReason::IpLength, None);
    }
    for less in 1..whole {
        let reason = match less {
            ..16 => DropReason::ExtensionMalformed,
            _ => DropReason::UdpMalformed,
        };
        let mut rig = Rig::with_neighbor(&ethernet_config(HOST), PEER);
        rig.packet_is_dropped(&format!("{less}"), &with_length(packet.clone(), less), reason, None);
    }
    for (less, reason) in [
        (7, DropReason::ExtensionMalformed),
        (8, DropReason::ExtensionMalformed),
        (15, DropReason::ExtensionMalformed),
        (16, DropReason::UdpMalformed),
        (whole - 1, DropReason::UdpMalformed),
    ] {
        expect_drop(&format!("{less}"), &with_length(packet.clone(), less), reason, None);
    }
}

/// The announced header begins exactly behind the last byte.
#[test]
fn a_chain_that_ends_where_the_packet_ends_is_dropped_however_cut() {
    for (last, reason) in [
        (OPTIONS, DropReason::ExtensionMalformed),
        (IpProtocol::ROUTING, DropReason::ExtensionMalformed),
        (IpProtocol::FRAGMENT, DropReason::ExtensionMalformed),
        (UDP, DropReason::UdpMalformed),
        (IpProtocol::ICMPV6, DropReason::IcmpMalformed),
        (IpProtocol::NO_NEXT_HEADER, DropReason::NoNextHeader),
    ] {
        for count in [1, 2, 8] {
            let packet = ipv6_chain(&vec![(OPTIONS, &PADDING[..]); count], last, b"");
            let what = format!("{last:?} behind {count}");
            let limit = count == 8 && last.is_extension();
            if !limit {
                expect_drop(&what, &packet, reason, None);
            }
        }
    }
}

/// Row 58: a header in three chunks and in more is read as one, at the cost of one copy of its own
/// length; a contiguous header is not copied.
#[test]
fn a_header_that_straddles_chunks_is_copied_once_and_nothing_else_is() {
    let long = options_header(&[&[0x1e, 28][..], &[7; 28]].concat());
    let packet = chain(&[(OPTIONS, &PADDING), (OPTIONS, &long), (OPTIONS, &PADDING)]);
    let frame = from_peer(&packet);
    let start = 14 + 40 + PADDING.len();
    let long_len = long.len();
    for (places, copies, bytes) in [
        (vec![start], 0, 0),
        (vec![start + 1], 1, long_len),
        (vec![start + 7], 1, long_len),
        (vec![start + 8], 1, long_len),
        (vec![start + long_len - 1], 1, long_len),
        (vec![start + long_len], 0, 0),
        (vec![start + 3, start + 4], 1, long_len),
        (vec![start + 4, start + 20, start + 30], 1, long_len),
        (vec![start + 1, start + long_len + 2], 2, long_len + PADDING.len()),
        // The IPv6 header, and the Ethernet header.
        (vec![14 + 1], 1, 40),
        (vec![14 + 4], 1, 40),
        (vec![14 + 5], 1, 40),
        (vec![13], 1, 14),
        (vec![14, 14 + 40], 0, 0),
    ] {
        let mut rig = Rig::with_neighbor(&ethernet_config(HOST), PEER);
        let cut = Cut::at(places);
        let whole = pieces(&rig, &frame, &cut);
        drop(rig.arrive(vec![whole]));
        let access = rig.stats().access;
        // No socket is there: the UDP header, which is in one chunk, is looked at in place.
        let got = (access.copies, access.copied_bytes);
        assert_eq!(got, (copies, bytes as u64), "{cut:?}: {access:?}");
        assert_eq!(rig.stats().drops_in.of(DropReason::UdpNoPort), 1);
    }
    // And of IPv4, without options and with them.
    for (options, len) in [(&[][..], 20), (&[1; 40][..], 60)] {
        let upper = &udp_to_port(Family::V4, 9, b"hello")[20..];
        let packet = ipv4_with_options(ipv4_fields(UDP), options, upper);
        let frame = from_peer(&packet);
        for place in 1..20 {
            let mut rig = Rig::with_neighbor(&ethernet_config(HOST), PEER);
            let whole = pieces(&rig, &frame, &Cut::at(vec![14 + place]));
            drop(rig.arrive(vec![whole]));
            let access = rig.stats().access;
            assert_eq!((access.copies, access.copied_bytes), (1, len), "{place} {access:?}");
        }
    }
}

/// Row 55: tunnels within tunnels stay wrapped, however deep and however cut.
#[test]
fn nested_tunnels_stay_wrapped_however_cut() {
    let (peer, host) = (addr(Family::V6, PEER), addr(Family::V6, HOST));
    for (kind, owed) in [(41, Owed::problem_v6(1, 6)), (4, Owed::problem_v6(1, 6))] {
        let mut packet = echo(addr(Family::V4, PEER), addr(Family::V4, HOST), b"inside");
        if kind == 41 {
            packet = echo(peer, host, b"inside");
        }
        for _ in 0..20 {
            packet = ip(peer, host, IpProtocol(if packet[0] >> 4 == 4 { 4 } else { 41 }), &packet);
        }
        let what = format!("{kind}");
        expect_drop(&what, &packet, DropReason::ProtocolUnknown, Some(owed));
    }
    let inner = echo(peer, host, b"inside");
    for (protocol, payload) in
        [(4, inner.clone()), (41, inner.clone()), (47, [&[0, 0, 0x86, 0xdd][..], &inner].concat())]
    {
        let packet =
            ip(addr(Family::V4, PEER), addr(Family::V4, HOST), IpProtocol(protocol), &payload);
        let owed = Some(Owed::unreachable(Family::V4, 2));
        expect_drop(&format!("{protocol} over IPv4"), &packet, DropReason::ProtocolUnknown, owed);
    }
}

/// Row 56: IPv4 source routes and broken options, however cut.
#[test]
fn ipv4_source_routes_and_broken_options_are_dropped_however_cut() {
    let upper = &udp_to_port(Family::V4, 9, b"hello")[20..];
    let with = |options: &[u8]| ipv4_with_options(ipv4_fields(UDP), options, upper);
    for kind in [131, 137] {
        let route = with(&[1, kind, 11, 4, 10, 0, 0, 9, 10, 0, 0, 2]);
        expect_drop(&format!("{kind}"), &route, DropReason::IpSourceRoute, None);
    }
    let reason = DropReason::IpOptionMalformed;
    expect_drop("no bytes", &with(&[130, 0, 0, 0]), reason, Some(Owed::problem_v4(0, 20)));
    expect_drop("beyond", &with(&[1, 1, 130, 200]), reason, Some(Owed::problem_v4(0, 22)));
    // Record route and timestamp are stepped over.
    let owed = Some(Owed::unreachable(Family::V4, 3));
    let record = with(&[7, 7, 4, 0, 0, 0, 0, 0]);
    expect_drop("record route", &record, DropReason::UdpNoPort, owed);
    let stamp = with(&[68, 8, 5, 0, 0, 0, 0, 0]);
    expect_drop("timestamp", &stamp, DropReason::UdpNoPort, owed);
}
