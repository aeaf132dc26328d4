//! The program run by `BPF_PROG_TEST_RUN`, for every verdict that the filter adds.

use core::time::Duration;

use floodwall_base::{Instant, MacAddr};

use crate::DeviceError;
use crate::af_xdp::first_line::{FirstLine, FirstLineState, TURN_ROOM};

pub(super) const STATION: MacAddr = MacAddr([2, 0x11, 0x22, 0x33, 0x44, 0x55]);
pub(super) const NOW: Instant = Instant::ORIGIN;
pub(super) const UNVERIFIED: FirstLineState = FirstLineState::Refused("rx_unverified");
const MALFORMED: FirstLineState = FirstLineState::Refused("rx_header_malformed");
pub(super) const UDP: u8 = 17;
pub(super) const TCP: u8 = 6;

fn loaded() -> Option<FirstLine> {
    or_skipped(FirstLine::load(STATION))
}

pub(super) fn or_skipped(loaded: Result<FirstLine, DeviceError>) -> Option<FirstLine> {
    match loaded {
        Ok(line) => Some(line),
        Err(error @ DeviceError::NoPrivilege { .. }) => {
            eprintln!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

pub(super) fn frame(kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = STATION.0.to_vec();
    bytes.extend([2, 0, 0, 0, 0, 9]);
    bytes.extend(kind.to_be_bytes());
    bytes.extend(payload);
    bytes.resize(bytes.len().max(60), 0);
    bytes
}

/// A packet of a flow to 10.0.0.99 or fdfd:…:fdfd, port 7: of so many headers and 8 bytes behind
/// them.
pub(super) fn flow(v6: bool, protocol: u8, host: u8, port: u16) -> Vec<u8> {
    let mut packet = if v6 {
        let mut header = vec![0x60, 0, 0, 0, 0, 20, protocol, 64];
        header.extend([0xfd; 15]);
        header.push(host);
        header.extend([0xfd; 16]);
        header
    } else {
        let header = [0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, host, 10, 0, 0, 99];
        header.to_vec()
    };
    packet.extend(port.to_be_bytes());
    packet.extend([0, 7]);
    packet.extend([0; 16]);
    frame(if v6 { 0x86dd } else { 0x0800 }, &packet)
}

/// The same frame with one byte of its network header changed.
pub(super) fn with(mut frame: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    frame[14 + at] = byte;
    frame
}

#[test]
fn without_pressure_everything_for_the_station_is_taken() {
    let Some(line) = loaded() else { return };
    let mut source_group = flow(false, UDP, 1, 1);
    source_group[6] |= 1;
    let vlan = frame(0x8100, &[0, 7, 8, 0]);
    let all = [flow(true, TCP, 1, 1), source_group, vlan, frame(0x9000, &[]), frame(0x86dd, &[])];
    for frame in all {
        assert_eq!(line.say(&frame).unwrap(), FirstLineState::Taken, "{frame:x?}");
    }
}

#[test]
fn what_triage_would_refuse_is_dropped_under_pressure_by_reason_at_any_credit() {
    let Some(mut line) = loaded() else { return };
    line.admit(NOW, Some(1000));
    let mut source_group = flow(false, UDP, 1, 1);
    source_group[6] |= 1;
    let (v4, v6) = (flow(false, UDP, 1, 1), flow(true, UDP, 1, 1));
    let cases = [
        (source_group, FirstLineState::Refused("rx_source_group")),
        (frame(0x8100, &[0, 7, 8, 0, 0x45]), FirstLineState::Refused("rx_vlan_foreign")),
        (frame(0x8100, &[0x0f, 0, 8, 0, 0x45]), FirstLineState::Refused("rx_vlan_foreign")),
        (frame(0x9000, &[0; 46]), FirstLineState::Refused("rx_kind_unknown")),
        (frame(0x0005, &[0; 46]), FirstLineState::Refused("rx_kind_unknown")),
        (with(v4.clone(), 0, 0x65), MALFORMED),
        (with(v4.clone(), 0, 0x44), MALFORMED),
        (with(v4.clone(), 0, 0x4f), MALFORMED),
        (with(v4.clone(), 3, 19), MALFORMED),
        (with(v4.clone(), 2, 1), MALFORMED),
        (with(v6.clone(), 0, 0x45), MALFORMED),
        (with(v6.clone(), 4, 1), MALFORMED),
        (with(v6, 5, 255), MALFORMED),
    ];
    let count = cases.len() as u64;
    for (frame, expected) in cases {
        assert_eq!(line.say(&frame).unwrap(), expected, "{frame:x?}");
    }
    let stats = line.stats();
    assert_eq!((stats.rx_refused(), stats.rx_unverified, stats.rx_lost()), (count, 0, count));
    line.admit(NOW, None);
    assert_eq!(line.say(&with(v4, 3, 19)).unwrap(), FirstLineState::Taken, "the pressure is over");
}

#[test]
fn what_cannot_be_read_to_its_ports_has_a_credit_of_its_own() {
    let Some(mut line) = loaded() else { return };
    let (v4, v6) = (flow(false, UDP, 1, 1), flow(true, UDP, 1, 1));
    let others = [
        // Pieces: the first, a later one, the last one.
        with(v4.clone(), 6, 0x20),
        with(v4.clone(), 7, 1),
        with(v4.clone(), 6, 0x1f),
        // Options; ICMP; IGMP; a protocol that a raw socket may receive.
        with(v4.clone(), 0, 0x46),
        with(v4.clone(), 9, 1),
        with(v4.clone(), 9, 2),
        with(v4.clone(), 9, 132),
        // Extension headers: options, routing, fragment, destination; ICMPv6.
        with(v6.clone(), 6, 0),
        with(v6.clone(), 6, 43),
        with(v6.clone(), 6, 44),
        with(v6.clone(), 6, 60),
        with(v6.clone(), 6, 58),
        // ARP, a priority tag, a service tag, headers that end before they can be read.
        frame(0x0806, &[0, 1, 8, 0, 6, 4, 0, 1]),
        frame(0x8100, &[0xe0, 0, 8, 0, 0x45]),
        frame(0x88a8, &[0, 7, 8, 0, 0x45]),
        v4[..14].to_vec(),
        v4[..33].to_vec(),
        v6[..53].to_vec(),
    ];
    line.admit(NOW, Some(others.len()));
    for (number, frame) in others.iter().enumerate() {
        assert_eq!(line.say(frame).unwrap(), FirstLineState::Taken, "{number}: {frame:x?}");
    }
    assert_eq!(line.say(&others[0]).unwrap(), UNVERIFIED, "the credit is used up");
    assert_eq!(line.say(&v4).unwrap(), FirstLineState::Taken, "a datagram's is untouched");
    line.admit(NOW, Some(1));
    assert_eq!(line.say(&others[0]).unwrap(), FirstLineState::Taken, "it is renewed");
    assert_eq!(line.say(&others[1]).unwrap(), UNVERIFIED);
}

#[test]
fn established_flows_go_through_without_credit_and_unverified_packets_up_to_it() {
    let Some(mut line) = loaded() else { return };
    let kinds = [(false, UDP), (false, TCP), (true, UDP), (true, TCP)];
    for ((v6, protocol), host) in kinds.into_iter().zip([1, 3, 5, 7]) {
        let established = flow(v6, protocol, host, 1000);
        line.admit(NOW, Some(0));
        assert_eq!(line.say(&established).unwrap(), UNVERIFIED);
        line.mark_established(NOW, &established);
        assert_eq!(line.say(&established).unwrap(), FirstLineState::Taken);
        // Each part of a flow's key distinguishes it from others.
        let other = if protocol == UDP { TCP } else { UDP };
        let mut ours = established.clone();
        let last = 14 + if v6 { 39 } else { 19 };
        ours[last] ^= 1;
        let mut our_port = established.clone();
        our_port[last + 4] ^= 1;
        let unknown = [
            flow(v6, other, host, 1000),
            flow(v6, protocol, host + 1, 1000),
            flow(v6, protocol, host, 1001),
            ours,
            our_port,
        ];
        for unknown in &unknown {
            assert_eq!(line.say(unknown).unwrap(), UNVERIFIED, "{unknown:x?}");
        }
        let before = line.stats().rx_unverified;
        line.admit(NOW, Some(3));
        let taken =
            unknown.iter().filter(|frame| line.say(frame).unwrap() == FirstLineState::Taken);
        assert_eq!(taken.count(), 3);
        assert_eq!(line.stats().rx_unverified - before, 2);
        assert_eq!(line.say(&established).unwrap(), FirstLineState::Taken);
    }
}

#[test]
fn what_is_no_flow_is_no_established_flow() {
    let Some(mut line) = loaded() else { return };
    line.admit(NOW, Some(0));
    for odd in [with(flow(false, UDP, 1, 1), 6, 0x20), flow(true, 58, 1, 1), vec![0; 20], vec![]] {
        line.mark_established(NOW, &odd);
        if odd.len() > 20 {
            assert_eq!(line.say(&odd).unwrap(), UNVERIFIED);
        }
    }
}

#[test]
fn newcomers_are_few_a_turn_and_active_flows_keep_half_of_each_set() {
    let Some(mut line) = loaded() else { return };
    let known = |line: &FirstLine, port| {
        line.say(&flow(true, UDP, 1, port)).unwrap() == FirstLineState::Taken
    };
    line.admit(NOW, Some(0));
    (0..100).for_each(|port| line.mark_established(NOW, &flow(true, UDP, 1, port)));
    assert_eq!((0..100).filter(|port| known(&line, *port)).count(), 16, "a turn's bound");
    // Four times as many as there are places come, while the first ones go on talking.
    let mut now = NOW;
    let mut port = 1000;
    while port < 61_000 {
        now += Duration::from_micros(200);
        line.admit(now, Some(0));
        (0..16).for_each(|first| line.mark_established(now, &flow(true, UDP, 1, first)));
        for _ in 0..16 {
            line.mark_established(now, &flow(true, UDP, 2, port));
            port += 1;
        }
    }
    let kept = (0..16).filter(|port| known(&line, *port)).count();
    assert_eq!(kept, 16, "active flows keep their places");
    // All are silent for half a minute: any newcomer finds room, and no flow is known any more.
    now += Duration::from_secs(31);
    for _ in 0..4096 {
        line.admit(now, Some(0));
    }
    assert_eq!((0..16).filter(|port| known(&line, *port)).count(), 0);
    line.mark_established(now, &flow(true, UDP, 1, 5));
    assert!(known(&line, 5));
}

/// A datagram to `port`, from the prefix of a number.
fn from_prefix(v6: bool, prefix: u16, port: u16) -> Vec<u8> {
    let mut frame = flow(v6, UDP, 1, 1000);
    let (source, ports) = if v6 { (22, 54) } else { (26, 34) };
    frame[source + 1..source + 3].copy_from_slice(&prefix.to_be_bytes());
    frame[ports + 2..ports + 4].copy_from_slice(&port.to_be_bytes());
    frame
}

/// The part of `asked` frames of `honest` that is taken in the later ones of many turns, in which
/// `loud` comes 100 times before each of them.
fn kept(line: &mut FirstLine, loud: &[Vec<u8>], honest: &[Vec<u8>]) -> f64 {
    const TURNS: u32 = 320;
    let (mut taken, mut asked) = (0, 0);
    for turn in 0..TURNS {
        line.admit(NOW, Some(32));
        for number in 0..100 {
            line.say(&loud[number % loud.len()]).unwrap();
        }
        for frame in honest {
            let is_taken = line.say(frame).unwrap() == FirstLineState::Taken;
            if turn >= TURNS / 2 {
                (taken, asked) = (taken + u32::from(is_taken), asked + 1);
            }
        }
    }
    f64::from(taken) / f64::from(asked)
}

#[test]
fn a_flood_of_one_service_takes_nothing_of_another_and_loud_prefixes_nothing_of_a_quiet_one() {
    for v6 in [false, true] {
        let Some(mut line) = loaded() else { return };
        let loud: Vec<_> = (0..300).map(|prefix| from_prefix(v6, prefix, 9)).collect();
        let honest = [from_prefix(v6, 7000, 10), from_prefix(v6, 3, 53)];
        let part = kept(&mut line, &loud, &honest);
        assert!(part >= 0.99, "v6 {v6}: another service keeps {part}");
        assert!(line.stats().rx_service_full > 0);
        // Of the same service, from a prefix of its own beside ten loud ones.
        let Some(mut line) = loaded() else { return };
        let loud: Vec<_> = (0..10).map(|prefix| from_prefix(v6, prefix, 9)).collect();
        let part = kept(&mut line, &loud, &[from_prefix(v6, 7000, 9)]);
        assert!(part >= 0.95, "v6 {v6}: another prefix keeps {part}");
        assert!(line.stats().rx_prefix_full > 0);
    }
}

/// The same flow's segment with other numbers and so much data; the frame as long as it claims.
fn segment(v6: bool, host: u8, (seq, ack): (u32, u32), len: u16) -> Vec<u8> {
    let mut frame = flow(v6, TCP, host, 1000);
    let (length, header) = if v6 { (18, 54) } else { (16, 34) };
    let fixed = if v6 { 20 } else { 40 };
    frame[length..length + 2].copy_from_slice(&(fixed + len).to_be_bytes());
    frame[header + 4..header + 8].copy_from_slice(&seq.to_be_bytes());
    frame[header + 8..header + 12].copy_from_slice(&ack.to_be_bytes());
    frame[header + 12] = 0x50;
    frame.resize(header + 20 + usize::from(len), 0);
    frame
}

/// How many of `count` times a frame is taken, where triage takes each for established.
fn taken(line: &mut FirstLine, now: Instant, frame: &[u8], count: usize) -> usize {
    let is_taken = |_: &usize| {
        let is_taken = line.say(frame).unwrap() == FirstLineState::Taken;
        if is_taken {
            line.mark_established(now, frame);
        }
        is_taken
    };
    (0..count).filter(is_taken).count()
}

#[test]
fn a_flow_without_progress_is_worth_its_tokens_and_new_data_or_acknowledgments_renew_them() {
    for v6 in [false, true] {
        let Some(mut line) = loaded() else { return };
        line.admit(NOW, Some(32));
        let old = segment(v6, 1, (7000, u32::MAX - 5), 100);
        line.mark_established(NOW, &old);
        assert_eq!(taken(&mut line, NOW, &old, 500), 64, "v6 {v6}: what a new flow has");
        assert_eq!(line.say(&old).unwrap(), FirstLineState::Refused("rx_flow_full"));
        assert_eq!(line.stats().rx_flow_full, 437);
        // A quarter of a second later.
        let mut now = NOW;
        for _ in 0..300 {
            now += Duration::from_millis(1);
            line.admit(now, Some(32));
        }
        let rested = taken(&mut line, now, &old, 500);
        assert!((16..=32).contains(&rested), "v6 {v6}: {rested}");
        // New data, and a new acknowledgment beyond the end of the numbers: both are seen, since
        // triage has what arrived before them too.
        for progress in [(7100, u32::MAX - 5), (7000, 10)] {
            let before = taken(&mut line, now, &old, 500);
            assert_eq!(before, 0, "v6 {v6}");
            line.mark_established(now, &segment(v6, 1, progress, 100));
            assert_eq!(taken(&mut line, now, &old, 500), 4, "v6 {v6}: {progress:?}");
        }
        // The same ends have a new connection.
        let new = segment(v6, 1, (7000_u32.wrapping_sub(1 << 30), 0), 100);
        line.mark_established(now, &new);
        assert!(taken(&mut line, now, &new, 500) > 4, "v6 {v6}");
        line.admit(now, None);
        assert_eq!(taken(&mut line, now, &old, 500), 500, "the pressure is over");
    }
}

#[test]
fn a_transfer_that_goes_on_loses_nothing_beside_a_replay() {
    for v6 in [false, true] {
        let Some(mut line) = loaded() else { return };
        let replayed = segment(v6, 1, (7000, 1), 100);
        line.admit(NOW, Some(32));
        line.mark_established(NOW, &replayed);
        line.mark_established(NOW, &segment(v6, 2, (0, 1), 0));
        let (mut replays, mut lost) = (0, 0);
        // Segments wait in the ring: triage sees a burst after the program has.
        let mut seq = 0_u32;
        for turn in 0..100_u64 {
            let now = NOW + Duration::from_micros(100 * turn);
            line.admit(now, Some(32));
            replays += taken(&mut line, now, &replayed, 88);
            let burst: Vec<_> =
                (0..32).map(|n| segment(v6, 2, (seq + n * 1448, 1), 1448)).collect();
            seq = seq.wrapping_add(32 * 1448);
            let came = |frame: &&Vec<u8>| line.say(frame).unwrap() == FirstLineState::Taken;
            let came: Vec<_> = burst.iter().filter(came).collect();
            lost += burst.len() - came.len();
            came.iter().for_each(|frame| line.mark_established(now, frame));
        }
        assert_eq!(lost, 0, "v6 {v6}");
        assert!(replays <= 64 + 16, "v6 {v6}: of 8,800 replays {replays} were taken");
    }
}

#[test]
fn a_loud_prefix_of_established_flows_leaves_room_to_a_quiet_one() {
    for v6 in [false, true] {
        let Some(mut line) = loaded() else { return };
        let (loud, quiet) = (flow(v6, UDP, 1, 1000), from_prefix(v6, 7000, 9));
        let (mut asked, mut got, mut overflowed) = (0, 0, 0);
        for turn in 0..30_u64 {
            let now = NOW + Duration::from_micros(100 * turn);
            line.admit(now, Some(32));
            // What the receiver takes is progress, as far as it goes.
            (0..400).for_each(|_| line.mark_established(now, &loud));
            (0..4).for_each(|_| line.mark_established(now, &quiet));
            let took = taken(&mut line, now, &loud, 700);
            let more = taken(&mut line, now, &quiet, 4);
            if turn >= 10 {
                (asked, got) = (asked + 4, got + more);
                overflowed += usize::from(took > TURN_ROOM);
            }
        }
        assert_eq!(got, asked, "v6 {v6}");
        assert_eq!(overflowed, 0, "v6 {v6}: the loud one keeps to the room");
        assert!(line.stats().rx_flow_prefix_full > 0);
    }
}

/// Each of these marks is progress of the flow but the first, which makes it known.
fn progress(line: &mut FirstLine, flow: &[u8], times: usize) {
    (0..times).for_each(|_| line.mark_established(NOW, flow));
}

/// A SYN to `port`, from the prefix of a number.
fn syn(v6: bool, prefix: u16, port: u16) -> Vec<u8> {
    const SYN: u8 = 2;
    let mut frame = from_prefix(v6, prefix, port);
    let (protocol, ports) = if v6 { (20, 54) } else { (23, 34) };
    (frame[protocol], frame[ports + 12], frame[ports + 13]) = (TCP, 0x50, SYN);
    frame
}

#[test]
fn newcomers_of_a_prefix_whose_flows_make_progress_need_no_credit_and_take_its_tokens() {
    for (v6, answering) in [(false, false), (false, true), (true, false), (true, true)] {
        let line = if answering { FirstLine::load_answering } else { FirstLine::load };
        let Some(mut line) = or_skipped(line(STATION)) else { return };
        line.admit(NOW, Some(0));
        let talks = from_prefix(v6, 7000, 9);
        let newcomers = [from_prefix(v6, 7000, 11), syn(v6, 7000, 80)];
        let stranger = from_prefix(v6, 7001, 9);
        let all = |line: &FirstLine, frame: &Vec<u8>, count: usize| {
            let is_taken = |_: &usize| line.say(frame).unwrap() == FirstLineState::Taken;
            (0..count).filter(is_taken).count()
        };
        progress(&mut line, &talks, 1);
        for newcomer in &newcomers {
            assert_eq!(all(&line, newcomer, 9), 0, "v6 {v6}: no progress yet");
        }
        for newcomer in &newcomers {
            progress(&mut line, &talks, 2);
            assert_eq!(all(&line, newcomer, 100), 8, "v6 {v6}: two frames of progress");
            assert_eq!(line.say(newcomer).unwrap(), UNVERIFIED);
        }
        assert_eq!(all(&line, &stranger, 9), 0, "v6 {v6}: of another prefix");
        assert_eq!(line.say(&talks).unwrap(), FirstLineState::Taken, "it has its own tokens");
        progress(&mut line, &talks, 1000);
        assert!(all(&line, &newcomers[0], 3000) <= 1024, "v6 {v6}: what may be kept");
    }
}

#[test]
fn a_flood_of_one_service_takes_nothing_of_newcomers_there_whose_prefix_talks() {
    for v6 in [false, true] {
        let Some(mut line) = loaded() else { return };
        let loud: Vec<_> = (0..300).map(|prefix| from_prefix(v6, prefix, 9)).collect();
        let newcomer = [from_prefix(v6, 7000, 9)];
        let before = kept(&mut line, &loud, &newcomer);
        progress(&mut line, &from_prefix(v6, 7000, 53), 1000);
        let after = kept(&mut line, &loud, &newcomer);
        assert!(before < 0.9 && after >= 0.99, "v6 {v6}: {before}, {after}");
    }
}

#[test]
fn a_service_that_asks_for_little_has_it_in_a_turn_whose_credit_is_used_up() {
    const CREDIT: usize = 64;
    let all = |line: &FirstLine, frames: &[Vec<u8>]| {
        let is_taken = |frame: &&Vec<u8>| line.say(frame).unwrap() == FirstLineState::Taken;
        frames.iter().filter(is_taken).count()
    };
    for v6 in [false, true] {
        let Some(mut line) = loaded() else { return };
        line.admit(NOW, Some(CREDIT));
        let loud: Vec<_> = (0..200).map(|prefix| from_prefix(v6, prefix, 9)).collect();
        assert_eq!(all(&line, &loud), CREDIT, "v6 {v6}: no limit has followed yet");
        assert_eq!(all(&line, &loud), 0, "v6 {v6}: it is used up");
        let quiet: Vec<_> = (0..20).map(|prefix| from_prefix(v6, 7000 + prefix, 53)).collect();
        assert_eq!(all(&line, &quiet), CREDIT / 8, "v6 {v6}");
        let services: Vec<_> = (100..200).map(|port| from_prefix(v6, 9000, port)).collect();
        assert_eq!(all(&line, &services), CREDIT / 2 - CREDIT / 8, "v6 {v6}: all together");
    }
}

/// What tests above hold is lost without the credit of flows: replays pass, and a loud prefix has
/// more than the room.
#[test]
fn without_flow_credit_replays_and_a_loud_prefix_pass_without_limit() {
    for v6 in [false, true] {
        let Some(mut line) = or_skipped(FirstLine::load_without_flow_credit(STATION)) else {
            return;
        };
        let (replayed, loud) = (segment(v6, 1, (7000, 1), 100), flow(v6, UDP, 2, 1000));
        for turn in 0..30_u64 {
            let now = NOW + Duration::from_micros(100 * turn);
            line.admit(now, Some(32));
            line.mark_established(now, &replayed);
            line.mark_established(now, &loud);
            assert_eq!(taken(&mut line, now, &replayed, 500), 500, "v6 {v6}: turn {turn}");
            let took = taken(&mut line, now, &loud, TURN_ROOM + 100);
            assert_eq!(took, TURN_ROOM + 100, "v6 {v6}: turn {turn}");
        }
        let stats = line.stats();
        assert_eq!((stats.rx_flow_full, stats.rx_flow_prefix_full), (0, 0), "v6 {v6}");
        // Unverified frames have their limit as before.
        let unverified = from_prefix(v6, 7001, 9);
        let is_taken = |_: &i32| line.say(&unverified).unwrap() == FirstLineState::Taken;
        assert!((0..500).filter(is_taken).count() <= 32, "v6 {v6}");
    }
}
