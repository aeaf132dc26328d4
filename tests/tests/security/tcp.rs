//! Rows 13 to 35 of the list of attacks: an open connection; peers that forge, cheat, stall or
//! count.
//!
//! Both families where the family could matter. Rows that concern one part only are tested there
//! too: runs and reassembly, scoreboard, challenge limit, ports, ISNs (crate `tcp`).

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use floodwall_base::{DropReason, Family};
use floodwall_packet::PacketBuf;
use floodwall_tcp::{TcpSettings, TcpState};
use floodwall_tests::bytes_of;
use floodwall_tests::craft::{self, FAMILIES, HOST, PEER, addr};
use floodwall_tests::tcp_peer::{Put, Segment, TcpPeer, put};
use floodwall_wire::icmpv4::UnreachableCode;
use floodwall_wire::tcp::TcpFlags;
use floodwall_wire::tcp_options::{SackBlock, TcpOptionSet, Timestamps};
use floodwall_wire::{Icmpv4Message, Icmpv6Message, IpProtocol};

const S: TcpFlags = TcpFlags::SYN;
const A: TcpFlags = TcpFlags::ACK;
const R: TcpFlags = TcpFlags::RST;
const F: TcpFlags = TcpFlags::FIN;

fn sack() -> TcpOptionSet {
    TcpOptionSet { sack_permitted: true, mss: Some(1000), ..TcpOptionSet::NONE }
}

fn times(value: u32, echo: u32) -> TcpOptionSet {
    TcpOptionSet { timestamps: Some(Timestamps { value, echo }), ..TcpOptionSet::NONE }
}

fn opened(family: Family) -> (TcpPeer, floodwall_tcp::ConnectionId) {
    let mut peer = TcpPeer::new(family, &TcpSettings::default());
    let id = peer.open(sack());
    (peer, id)
}

fn write(peer: &mut TcpPeer, id: floodwall_tcp::ConnectionId, len: usize) -> Vec<Segment> {
    let (taken, sent) = peer.sockets(|s| s.tcp_send(id, &vec![5; len]));
    assert_eq!(taken, Ok(len));
    sent
}

fn count(peer: &mut TcpPeer, reason: DropReason) -> u64 {
    peer.rig.stats().drops_in.of(reason)
}

#[test]
fn row_13_time_wait_is_not_cut_short_and_many_short_connections_take_no_memory() {
    for family in FAMILIES {
        let mut peer = TcpPeer::new(family, &TcpSettings::default());
        let free = peer.rig.pool.available();
        for n in 0..600 {
            peer.ports.1 = 10_000 + n;
            let id = peer.open(sack());
            let fin = peer.sockets(|s| s.tcp_close(id)).1;
            assert!(fin[0].flags.contains(F));
            assert_eq!(peer.give(&put(A | F, 1, 2)).len(), 1, "the peer's FIN is acknowledged");
        }
        assert_eq!(peer.set(|tcp| tcp.len()), 600);
        // Reset, old duplicate: TIME-WAIT stays (RFC 1337).
        assert!(peer.give(&put(R, 2, 0)).is_empty());
        peer.give(&put(A, 1, 2).data(b"old"));
        assert_eq!(peer.set(|tcp| tcp.len()), 600);
        assert_eq!(peer.rig.pool.available(), free, "a record holds no packet");
        peer.wait(Duration::from_secs(130));
        assert_eq!(peer.set(|tcp| tcp.len()), 0);
    }
}

#[test]
fn row_14_a_stalled_peer_is_given_up_in_bounded_time() {
    let (mut peer, id) = opened(Family::V4);
    // A window that stays shut although the peer answers every question.
    write(&mut peer, id, 100);
    peer.give(&put(A, 1, 101).window(0));
    write(&mut peer, id, 100);
    // A FIN that is never acknowledged, and a peer that never closes its half.
    peer.ports.1 = 40_001;
    let orphan = peer.open(sack());
    peer.sockets(|s| s.tcp_close(orphan)).0.expect("open");
    peer.ports.1 = 40_002;
    let half = peer.open(sack());
    peer.sockets(|s| s.tcp_close(half)).0.expect("open");
    peer.give(&put(A, 1, 2));
    peer.ports.1 = 40_000;
    let mut answered = 0;
    for _ in 0..1200 {
        let sent = peer.wait(Duration::from_secs(1));
        if sent.iter().any(|segment| segment.ports.1 == 40_000 && !segment.flags.contains(R)) {
            answered += 1;
            peer.ports.1 = 40_000;
            let iss = peer.iss;
            peer.iss = sent.iter().find(|it| it.ports.1 == 40_000).map_or(iss, |it| it.seq + 1);
            peer.give(&put(A, 1, 0).window(0));
            peer.iss = iss;
        }
    }
    assert!((5..200).contains(&answered), "{answered} questions");
    peer.sockets(|s| s.tcp_close(id)).0.expect("its owner lets go");
    peer.wait(Duration::from_secs(130));
    assert_eq!(peer.set(|tcp| tcp.len()), 0);
}

#[test]
fn row_16_one_byte_out_of_order_segments_hold_bounded_memory_and_the_stream_goes_on() {
    let mut peer = TcpPeer::new(Family::V4, &TcpSettings::default());
    let mut ids = Vec::new();
    for n in 0..16 {
        peer.ports.1 = 20_000 + n;
        ids.push((peer.open(sack()), peer.iss));
        for at in 0..300 {
            peer.give(&put(A, 3 + 2 * at, 1).data(b"x"));
        }
    }
    let held = 2048 - peer.rig.pool.available().frames;
    assert!(held <= 16 * 64 + 64, "{held} frames for 4,800 segments");
    assert!(count(&mut peer, DropReason::TcpReceiveFull) > 3000);
    for (n, (id, iss)) in ids.into_iter().enumerate() {
        (peer.ports.1, peer.iss) = (20_000 + n as u16, iss);
        peer.give(&put(A, 1, 1).data(&[b'y'; 400]));
        assert_eq!(peer.received(id).len(), 400);
    }
}

#[test]
fn row_17_of_overlapping_bytes_the_first_stay_in_any_shape() {
    // A kept segment from 10 to 20, and a later one of every place and length around it.
    for start in (1..24_u32).step_by(2) {
        for end in (start + 1..26).step_by(2) {
            let (mut peer, id) = opened(Family::V6);
            peer.give(&put(A, 10, 1).data(&[b'a'; 10]));
            peer.give(&put(A, start, 1).data(&vec![b'b'; (end - start) as usize]));
            peer.give(&put(A, 1, 1).data(&[b'c'; 30]));
            let model = (1..31_u32).map(|at| match at {
                10..20 => b'a',
                at if (start..end).contains(&at) => b'b',
                _ => b'c',
            });
            assert_eq!(peer.received(id), model.collect::<Vec<_>>(), "{start} to {end}");
        }
    }
}

#[test]
fn row_18_no_peer_and_no_router_makes_segments_tiny() {
    for mss in [0, 1, 20, 48, 87, 88] {
        let mut peer = TcpPeer::new(Family::V4, &TcpSettings::default());
        let id = peer.open(TcpOptionSet { mss: Some(mss), ..sack() });
        let sent = write(&mut peer, id, 880);
        assert!(sent.iter().all(|segment| segment.len == 88), "MSS {mss}: {sent:?}");
        // Blocks that split every segment.
        for at in 0..40_u32 {
            let left = peer.iss.wrapping_add(2 + 20 * at);
            let mut options = TcpOptionSet::NONE;
            options.sack[0] = Some(SackBlock { left, right: left.wrapping_add(1) });
            let answers = peer.give(&put(A, 1, 1).options(options));
            assert!(answers.len() <= 16, "{answers:?}");
        }
    }
}

#[test]
fn row_19_bad_sack_blocks_change_nothing() {
    let (mut peer, id) = opened(Family::V4);
    write(&mut peer, id, 5000);
    let at = |n: u32| peer.iss.wrapping_add(n);
    let bad =
        [(3000, 2000), (2000, 2000), (9000, 10_000), (0x8000_0000, 0x8000_0100), (1, 0x7000_0000)];
    let bad = bad.map(|(left, right)| SackBlock { left: at(left), right: at(right) });
    let before = peer.info(id);
    for block in bad {
        let mut options = times(1, 1);
        options.sack = [Some(block), Some(bad[0]), Some(bad[2]), None];
        peer.give(&put(A, 1, 1).options(options));
        options.timestamps = None;
        options.sack[3] = Some(block);
        peer.give(&put(A, 1, 1).options(options));
    }
    let after = peer.info(id);
    assert_eq!((after.sacked, after.lost), (before.sacked, before.lost));
    assert_eq!(after.outstanding, 5000);
    peer.give(&put(A, 1, 5001));
    assert_eq!(peer.info(id).outstanding, 0);
}

#[test]
fn row_20_every_option_of_every_length_and_truncation_is_survived() {
    let (mut peer, id) = opened(Family::V4);
    let plain = peer.bytes(&put(A, 1, 1));
    for kind in 0..=255_u8 {
        for len in (0..=12_u8).chain([38, 40, 255]) {
            // `room` bytes of options, in which the option begins at the front and at the end.
            for room in [4_usize, 40] {
                for place in [0, room - 2, room - 1] {
                    let mut bytes = plain.clone();
                    bytes.resize(20 + room, 1);
                    bytes[20 + place] = kind;
                    if let Some(at) = bytes.get_mut(21 + place) {
                        *at = len;
                    }
                    bytes[12] = ((20 + room) as u8 / 4) << 4;
                    peer.mend(&mut bytes);
                    assert!(peer.give_bytes(&bytes).len() <= 1, "{kind} {len} {room} {place}");
                }
            }
        }
    }
    // Data offsets from nothing to beyond the end, and every cut.
    for offset in 0..16_u8 {
        for end in 0..plain.len() {
            let mut bytes = plain[..end].to_vec();
            if let Some(at) = bytes.get_mut(12) {
                *at = offset << 4;
            }
            if bytes.len() >= 18 {
                peer.mend(&mut bytes);
            }
            peer.give_bytes(&bytes);
        }
    }
    assert_eq!(peer.state(id), TcpState::Established);
    peer.give(&put(A, 1, 1).data(b"still here"));
    assert_eq!(peer.received(id), b"still here");
}

#[test]
fn row_21_no_urgent_pointer_changes_the_stream() {
    let (mut peer, id) = opened(Family::V6);
    let mut at = 1;
    for urgent in [0, 1, 2, 3, 9, 10, 11, 0x7fff, 0x8000, 0xffff] {
        for flags in [A, A | TcpFlags::URG, A | TcpFlags::URG | TcpFlags::PSH] {
            for data in [&b""[..], b"x", b"0123456789"] {
                let put = Put { urgent, ..put(flags, at, 1).data(data) };
                peer.give(&put);
                assert_eq!(peer.received(id), data, "{urgent}");
                at += data.len() as u32;
            }
        }
    }
}

#[test]
fn row_22_blind_resets_syns_and_data_are_challenged_or_dropped() {
    for family in FAMILIES {
        let (mut peer, id) = opened(family);
        for seq in [2, 100, 5000, 60_000] {
            peer.give(&put(R, seq, 0));
            peer.give(&put(S, seq, 0));
        }
        for seq in [0x4000_0000, 0x8000_0000, 0xc000_0000, 100_000] {
            assert!(peer.give(&put(R, seq, 0)).is_empty(), "outside of the window: silence");
            peer.give(&put(A, seq, 1).data(b"evil"));
        }
        assert_eq!(peer.state(id), TcpState::Established);
        assert!(peer.received(id).is_empty());
        peer.give(&put(R, 1, 0));
        assert_eq!(peer.state(id), TcpState::Closed, "the exact one is accepted");
    }
}

/// Answers to `n` challenges on one flow.
fn challenged(peer: &mut TcpPeer, n: u32) -> usize {
    (0..n).map(|_| peer.give(&put(S, 500, 0)).len()).sum()
}

#[test]
fn row_23_challenges_of_one_flow_say_nothing_of_another() {
    let (mut lowest, mut highest) = ([usize::MAX; 2], [0; 2]);
    for (place, saturates) in [false, true].into_iter().enumerate() {
        for n in 0..20 {
            let (mut peer, _) = opened(Family::V4);
            peer.rig.random = floodwall_base::Randomness::from_number(100 + n);
            let victim = peer.iss;
            if saturates {
                challenged(&mut peer, 200);
            }
            peer.ports.1 = 41_000;
            peer.open(sack());
            let own = challenged(&mut peer, 50);
            (lowest[place], highest[place]) = (lowest[place].min(own), highest[place].max(own));
            assert_ne!(victim, peer.iss);
        }
    }
    assert_eq!(lowest[0], lowest[1], "what the own flow gets is the same");
    assert_eq!(highest[0], highest[1]);
    assert!(lowest[0] >= 1);
}

#[test]
fn row_24_a_challenge_that_is_not_sent_leaks_nothing() {
    let (mut peer, id) = opened(Family::V4);
    let free = peer.rig.pool.available();
    let answers = challenged(&mut peer, 20_000);
    assert!(answers <= 10, "{answers}");
    assert_eq!(peer.rig.pool.available(), free);
    assert_eq!(peer.state(id), TcpState::Established);
    assert!(peer.rig.conservation().holds());
}

#[test]
fn row_25_acknowledgments_of_what_was_never_sent_change_nothing() {
    let (mut peer, id) = opened(Family::V4);
    write(&mut peer, id, 1000);
    let before = peer.info(id);
    let mut answers = 0;
    for ack in [1002, 5000, 0x4000_0000, 0x8000_0000, 0x9000_0000] {
        answers += peer.give(&put(A, 1, ack).data(b"evil")).len();
    }
    let after = peer.info(id);
    assert_eq!((before.outstanding, before.window), (after.outstanding, after.window));
    assert!(answers <= 5 && peer.received(id).is_empty(), "{answers}");
    // Before the handshake is proven.
    peer.ports.1 = 42_000;
    let answer = peer.give(&put(S, 0, 0));
    peer.iss = answer[0].seq;
    let answer = peer.give(&put(A, 1, 5000));
    assert!(answer.iter().all(|segment| segment.flags.contains(R)), "{answer:?}");
}

/// What one host sent, as the other receives it.
fn across(to: &mut TcpPeer, departed: Vec<PacketBuf>) -> Vec<PacketBuf> {
    let mut out = Vec::new();
    for packet in departed {
        let mut frame = bytes_of(&packet);
        frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, to.hosts.0]);
        out.extend(to.rig.frame(&frame));
    }
    out
}

#[test]
fn row_26_an_ack_war_of_two_peers_ends() {
    let mut a = TcpPeer::between(Family::V4, &TcpSettings::default(), (1, 2), (80, 90));
    let mut b = TcpPeer::between(Family::V4, &TcpSettings::default(), (2, 1), (90, 80));
    let (of_a, _) = (a.open(sack()), b.open(sack()));
    let (_, departed) = a.rig.sockets(|s| s.tcp_send(of_a, b"are you there?"));
    let mut flying = departed;
    let mut total = flying.len();
    // Five seconds in which everything arrives at once.
    for _ in 0..500 {
        for turn in 0..40 {
            let (from_a, from_b) = if turn % 2 == 0 {
                (Vec::new(), across(&mut b, core::mem::take(&mut flying)))
            } else {
                (across(&mut a, core::mem::take(&mut flying)), Vec::new())
            };
            flying = if turn % 2 == 0 { from_b } else { from_a };
            total += flying.len();
            if flying.is_empty() {
                break;
            }
        }
        flying = a.rig.run_for(Duration::from_millis(10));
        total += flying.len();
        let from_b = b.rig.run_for(Duration::from_millis(10));
        total += from_b.len();
        flying.extend(across(&mut a, from_b));
    }
    assert!(total <= 60, "{total} packets in five seconds");
}

#[test]
fn row_27_divided_and_optimistic_acknowledgments_gain_nothing() {
    let (mut peer, id) = opened(Family::V4);
    write(&mut peer, id, 10_000);
    let before = peer.info(id).window;
    for byte in 0..1000 {
        peer.give(&put(A, 1, 2 + byte));
    }
    let divided = peer.info(id).window.saturating_sub(before);
    assert!(divided <= 1000, "a thousand acknowledgments of one segment: {divided} bytes");
    let before = peer.info(id).window;
    for ack in 11_000..11_050 {
        peer.give(&put(A, 1, ack));
    }
    assert_eq!(peer.info(id).window, before, "data that was never sent");
}

#[test]
fn row_28_timestamps_of_refused_segments_are_forgotten() {
    let mut peer = TcpPeer::new(Family::V4, &TcpSettings::default());
    let id = peer.open(times(1000, 0));
    let poison = times(0x4000_0000, 0);
    // Outside of the window, and with an acknowledgment that cannot be.
    peer.give(&put(A, 0x4000_0000, 1).data(b"evil").options(poison));
    peer.give(&put(A, 1, 0x4000_0000).data(b"evil").options(poison));
    peer.give(&put(R, 50, 0).options(poison));
    peer.give(&put(A, 1, 1).data(b"good").options(times(1001, 0)));
    assert_eq!(peer.received(id), b"good", "the honest peer is not taken for an old one");
}

#[test]
fn row_29_initial_sequence_numbers_have_no_pattern() {
    for family in FAMILIES {
        let mut peer = TcpPeer::new(family, &TcpSettings::default());
        let mut numbers = Vec::new();
        // The first thousands fill the cache, and the rest are cookies: neither may show.
        for n in 0..3000_u16 {
            peer.ports.1 = 10_000 + n;
            numbers.extend(peer.give(&put(S, 0, 0)).iter().map(|answer| answer.seq));
        }
        assert!(numbers.len() > 2500, "{}", numbers.len());
        let steps: Vec<u32> = numbers.windows(2).map(|w| w[1].wrapping_sub(w[0])).collect();
        assert!(steps.iter().collect::<HashSet<_>>().len() > steps.len() - 100);
        let divides = |all: u32| steps.iter().all(|step| step % all == 0);
        assert!(!(2..64).any(divides), "a common divisor");
        // Each bit is set half of the time, in numbers and in steps: within six deviations.
        for of in [&numbers, &steps] {
            for bit in 0..32 {
                let ones = of.iter().filter(|n| **n >> bit & 1 == 1).count() as f64;
                let (mean, deviation) = (of.len() as f64 / 2.0, (of.len() as f64).sqrt() / 2.0);
                // The lowest bits of a cookie's kinds are not all free (mechanisms of RFC 4987).
                assert!((ones - mean).abs() < 6.0 * deviation + 0.1 * mean, "{bit}: {ones}");
            }
        }
    }
}

#[test]
fn row_30_ports_to_one_peer_say_nothing_of_ports_to_another() {
    let mut peer = TcpPeer::new(Family::V4, &TcpSettings::default());
    let mut ports: [Vec<u16>; 2] = Default::default();
    for n in 0..1200 {
        let remote = SocketAddr::new(addr(Family::V4, PEER), 1000 + n % 2);
        let connect = |s: &mut floodwall_stack::Sockets<'_>| {
            let id = s.tcp_connect(remote, &TcpSettings::default(), 2).expect("a port");
            let port = s.tcp_ends(id).expect("it lives").0.port();
            s.tcp_abort(id).expect("it lives");
            port
        };
        let port = peer.sockets(connect).0;
        ports[usize::from(n % 2)].push(port);
    }
    let steps: Vec<u16> = ports[0].iter().zip(&ports[1]).map(|(x, y)| y.wrapping_sub(*x)).collect();
    assert!(steps.iter().collect::<HashSet<_>>().len() > 560, "the distance varies");
    for of in ports {
        assert!(of.iter().collect::<HashSet<_>>().len() > 560);
        let above = of.windows(2).filter(|w| w[1] > w[0]).count();
        assert!((200..400).contains(&above), "neither rises nor falls: {above} of 599");
    }
}

#[test]
fn row_31_timestamps_tell_no_uptime() {
    let mut values = HashSet::new();
    let mut peer = TcpPeer::new(Family::V4, &TcpSettings::default());
    let shown = |peer: &mut TcpPeer| {
        let answer = peer.give(&put(S, 0, 0).options(times(1, 0)));
        answer[0].options.timestamps.expect("agreed").value
    };
    for n in 0..100 {
        peer.ports.1 = 30_000 + n;
        values.insert(shown(&mut peer) >> 16);
    }
    assert!(values.len() > 90, "each connection has a clock of its own: {}", values.len());
}

#[test]
fn row_32_windows_shrink_scale_and_fill_without_harm() {
    let mut peer = TcpPeer::new(Family::V4, &TcpSettings::default());
    let options = TcpOptionSet { window_scale: Some(15), ..sack() };
    let id = peer.open(options);
    for window in [65_535, 0, 1, 65_535, 7, 0, 30_000] {
        peer.give(&put(A, 1, 1).window(window));
        let (taken, _) = peer.sockets(|s| s.tcp_send(id, &[1; 4000]));
        assert_eq!(taken, Ok(4000));
        peer.wait(Duration::from_millis(300));
    }
    let info = peer.info(id);
    assert!(info.outstanding <= 28_000 && info.state == TcpState::Established);
}

fn icmp_about(peer: &TcpPeer, seq: u32, v4: Icmpv4Message, v6: Icmpv6Message) -> Vec<u8> {
    let mut quoted = Vec::new();
    quoted.extend(peer.ports.0.to_be_bytes());
    quoted.extend(peer.ports.1.to_be_bytes());
    quoted.extend(peer.iss.wrapping_add(seq).to_be_bytes());
    quoted.extend([0; 12]);
    let (host, other) = (addr(peer.family, HOST), addr(peer.family, PEER));
    let quote = craft::ip(host, other, IpProtocol::TCP, &quoted);
    match peer.family {
        Family::V4 => craft::icmpv4(craft::v4(PEER), craft::v4(HOST), v4, &quote),
        Family::V6 => craft::icmpv6(craft::v6(PEER), craft::v6(HOST), v6, &quote),
    }
}

#[test]
fn row_33_no_icmp_error_ends_or_slows_an_open_connection() {
    for family in FAMILIES {
        let (mut peer, id) = opened(family);
        write(&mut peer, id, 3000);
        let before = peer.info(id);
        for code in 0..16_u8 {
            if code == 4 {
                continue;
            }
            let v4 = Icmpv4Message::DestinationUnreachable {
                code: UnreachableCode(code),
                next_hop_mtu: 0,
            };
            let v6 = Icmpv6Message::DestinationUnreachable {
                code: floodwall_wire::icmpv6::UnreachableCode(code),
            };
            let packet = icmp_about(&peer, 1, v4, v6);
            assert!(peer.give_packet(&packet).is_empty(), "code {code}");
        }
        let after = peer.info(id);
        assert_eq!(after.state, TcpState::Established);
        assert_eq!((after.window, after.lost), (before.window, before.lost));
        peer.give(&put(A, 1, 3001));
        assert_eq!(peer.info(id).outstanding, 0);
    }
}

#[test]
fn row_34_path_mtus_fall_for_what_is_in_flight_only_and_not_below_the_floor() {
    for (family, least, headers) in [(Family::V4, 552, 40), (Family::V6, 1280, 60)] {
        let floor = least - headers;
        let mut peer = TcpPeer::new(family, &TcpSettings::default());
        let id = peer.open(TcpOptionSet { mss: Some(1400), ..sack() });
        let too_big = |peer: &TcpPeer, seq, mtu: u32| {
            let next_hop_mtu = mtu as u16;
            let code = UnreachableCode::FRAGMENTATION_NEEDED;
            let v4 = Icmpv4Message::DestinationUnreachable { code, next_hop_mtu };
            icmp_about(peer, seq, v4, Icmpv6Message::PacketTooBig { mtu })
        };
        // Nothing is in flight.
        let packet = too_big(&peer, 1, 1300);
        peer.give_packet(&packet);
        assert_eq!(peer.info(id).snd_mss, 1400);
        write(&mut peer, id, 1400);
        for (seq, mtu) in [(0x4000_0000, 1300), (5000, 1300), (1, 9000), (1, 1500)] {
            let packet = too_big(&peer, seq, mtu);
            peer.give_packet(&packet);
            assert_eq!(peer.info(id).snd_mss, 1400, "{seq} {mtu}");
        }
        let packet = too_big(&peer, 1, least);
        let again = peer.give_packet(&packet);
        assert_eq!(peer.info(id).snd_mss, floor);
        assert!(!again.is_empty(), "what was too big leaves again at once, in pieces");
        assert!(again.iter().all(|segment| segment.len <= floor as usize), "{again:?}");
    }
}

#[test]
fn row_35_sequence_numbers_and_timestamps_wrap_in_the_middle_of_a_stream() {
    let mut peer = TcpPeer::new(Family::V6, &TcpSettings::default());
    let id = peer.open(times(u32::MAX - 20, 0));
    let mut stream = Vec::new();
    for n in 0..200_u32 {
        let data: Vec<u8> = (0..50).map(|at| (n + at) as u8).collect();
        let value = (u32::MAX - 19).wrapping_add(n);
        peer.give(&put(A, 1 + 50 * n, 1).data(&data).options(times(value, 0)));
        stream.extend(data);
        peer.wait(Duration::from_millis(1));
    }
    assert_eq!(peer.received(id), stream);
}
