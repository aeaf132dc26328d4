//! The program run by `BPF_PROG_TEST_RUN`, for verdicts that depend on what the stack accepts.

use core::net::{Ipv4Addr, Ipv6Addr};

use floodwall_packet::RxFilter;

use super::tests::{NOW, STATION, TCP, UDP, UNVERIFIED, flow, frame, or_skipped, with};
use crate::af_xdp::first_line::{FirstLine, FirstLineState};

const FOREIGN: FirstLineState = FirstLineState::Refused("rx_address_foreign");
const CLOSED: FirstLineState = FirstLineState::Refused("rx_port_closed");
const OURS_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 99);
/// To where and to which port `flow` goes.
const OURS_V6: Ipv6Addr = Ipv6Addr::from_octets([0xfd; 16]);
const PORT: u16 = 7;

fn nothing() -> RxFilter {
    let mut wanted = RxFilter::default();
    wanted.nothing();
    wanted
}

/// Both addresses, with ports.
fn ours() -> RxFilter {
    let mut wanted = nothing();
    wanted.add_v4(OURS_V4, true);
    wanted.add_v6(OURS_V6, true);
    wanted
}

/// Under pressure, with credit for every kind.
fn pressed() -> Option<FirstLine> {
    let mut line = or_skipped(FirstLine::load(STATION))?;
    line.admit(NOW, Some(usize::MAX));
    Some(line)
}

fn shared() -> Option<FirstLine> {
    or_skipped(FirstLine::load_shared(STATION))
}

fn say(line: &FirstLine, frame: &[u8]) -> FirstLineState {
    line.say(frame).unwrap()
}

/// The same with a priority tag, or one of a VLAN.
fn tagged(frame: &[u8], vlan: u16) -> Vec<u8> {
    let mut bytes = frame[..12].to_vec();
    bytes.extend([0x81, 0]);
    bytes.extend((0xe000 | vlan).to_be_bytes());
    bytes.extend(&frame[12..]);
    bytes
}

/// The same to another address.
fn elsewhere(v6: bool, frame: Vec<u8>) -> Vec<u8> {
    let last = if v6 { 39 } else { 19 };
    with(frame, last, 0x55)
}

fn to_group(v6: bool, frame: Vec<u8>) -> Vec<u8> {
    let (first, byte) = if v6 { (24, 0xff) } else { (16, 224) };
    with(frame, first, byte)
}

const KINDS: [(bool, u8); 4] = [(false, UDP), (false, TCP), (true, UDP), (true, TCP)];

#[test]
fn until_it_is_told_and_without_pressure_everything_is_wanted() {
    let Some(mut line) = pressed() else { return };
    for (v6, protocol) in KINDS {
        let packet = elsewhere(v6, flow(v6, protocol, 1, 1));
        assert_eq!(say(&line, &packet), FirstLineState::Taken);
    }
    line.want(&nothing());
    assert_eq!(say(&line, &flow(true, UDP, 1, 1)), FOREIGN);
    line.admit(NOW, None);
    assert_eq!(say(&line, &flow(true, UDP, 1, 1)), FirstLineState::Taken, "no pressure");
}

#[test]
fn under_pressure_what_is_for_others_is_dropped_and_groups_and_neighbours_are_not() {
    let Some(mut line) = pressed() else { return };
    let mut all_ports = ours();
    (all_ports.any_udp, all_ports.any_tcp) = (true, true);
    line.want(&all_ports);
    for (v6, protocol) in KINDS {
        let mine = flow(v6, protocol, 1, 1);
        assert_eq!(say(&line, &mine), FirstLineState::Taken, "{v6} {protocol}");
        assert_eq!(say(&line, &elsewhere(v6, mine.clone())), FOREIGN, "{v6} {protocol}");
        assert_eq!(
            say(&line, &to_group(v6, mine.clone())),
            FirstLineState::Taken,
            "{v6} {protocol}"
        );
        // What is tagged is read no further.
        assert_eq!(say(&line, &tagged(&elsewhere(v6, mine), 0)), FirstLineState::Taken);
    }
    let (v4, v6) = (flow(false, UDP, 1, 1), flow(true, UDP, 1, 1));
    let foreign = [elsewhere(false, v4), elsewhere(true, v6)];
    let [v4, v6] = &foreign;
    // Pieces and options; extension headers: options, routing, fragment, destination; IGMP.
    for (at, byte) in [(6, 0x20), (7, 1), (0, 0x46), (9, 2)] {
        assert_eq!(say(&line, &with(v4.clone(), at, byte)), FOREIGN, "{at} {byte}");
    }
    for next in [0, 43, 44, 60, 132] {
        assert_eq!(say(&line, &with(v6.clone(), 6, next)), FOREIGN, "{next}");
    }
    // A neighbour discovery message passes regardless of its destination.
    assert_eq!(say(&line, &with(v6.clone(), 6, 58)), FirstLineState::Taken);
    // Cut within the headers: the destination is not readable.
    for cut in [&v4[..33], &v6[..53], &v4[..14]] {
        assert_eq!(say(&line, cut), FirstLineState::Taken);
    }
    let count = line.stats().rx_address_foreign;
    assert_eq!((count, line.stats().rx_lost()), (13, 13));
    // A router, and a client that requests an address, accept packets for other addresses.
    type Change = fn(&mut RxFilter);
    let cases: [(Change, [FirstLineState; 2]); 3] = [
        (|wanted| wanted.any_v4 = true, [FirstLineState::Taken, FOREIGN]),
        (|wanted| wanted.any_v6 = true, [FOREIGN, FirstLineState::Taken]),
        (|wanted| wanted.asks_v4 = true, [FirstLineState::Taken, FOREIGN]),
    ];
    for (change, expected) in cases {
        let mut wanted = all_ports.clone();
        change(&mut wanted);
        line.want(&wanted);
        assert_eq!([v4, v6].map(|frame| say(&line, frame)), expected);
    }
}

#[test]
fn without_credit_an_unverified_packet_is_dropped_first_and_an_established_flow_is_not() {
    let Some(mut line) = pressed() else { return };
    let mut all_ports = ours();
    (all_ports.any_udp, all_ports.any_tcp) = (true, true);
    line.want(&all_ports);
    let unknown = FirstLineState::Refused("rx_unverified");
    for (v6, protocol) in KINDS {
        let mine = flow(v6, protocol, 1, 1);
        let pieces = with(mine.clone(), if v6 { 6 } else { 7 }, if v6 { 44 } else { 1 });
        line.admit(NOW, Some(0));
        for frame in [&mine, &elsewhere(v6, mine.clone()), &pieces, &elsewhere(v6, pieces.clone())]
        {
            assert_eq!(say(&line, frame), unknown, "{v6} {protocol}");
        }
        line.mark_established(NOW, &mine);
        assert_eq!(say(&line, &mine), FirstLineState::Taken, "{v6} {protocol}");
        // Packets that no shard accepts take nothing from the credit.
        line.admit(NOW, Some(1));
        assert_eq!(say(&line, &elsewhere(v6, mine.clone())), FOREIGN, "{v6} {protocol}");
        let other = flow(v6, protocol, 2, 1);
        assert_eq!(
            [&other, &other].map(|frame| say(&line, frame)),
            [FirstLineState::Taken, unknown]
        );
    }
}

#[test]
fn addresses_come_and_go_and_so_many_that_there_is_no_room_are_all_wanted() {
    let Some(mut line) = pressed() else { return };
    for round in 0..3 {
        line.want(&nothing());
        assert_eq!(say(&line, &flow(false, UDP, 1, 1)), FOREIGN, "{round}");
        line.want(&ours());
        assert_eq!(say(&line, &flow(false, UDP, 1, 1)), CLOSED, "{round}");
        // In use no longer, or not yet: its ports are not checked.
        let mut probed = nothing();
        probed.add_v4(OURS_V4, false);
        probed.add_v6(OURS_V6, false);
        line.want(&probed);
        assert_eq!(say(&line, &flow(false, UDP, 1, 1)), FirstLineState::Taken, "{round}");
        assert_eq!(say(&line, &flow(true, TCP, 1, 1)), FirstLineState::Taken, "{round}");
    }
    let mut many = nothing();
    (0..200).for_each(|n| many.add_v4(Ipv4Addr::from_bits(n), true));
    line.want(&many);
    assert_eq!(say(&line, &flow(false, UDP, 1, 1)), FirstLineState::Taken, "no room");
    assert_eq!(say(&line, &flow(true, UDP, 1, 1)), FOREIGN);
}

#[test]
fn under_pressure_what_is_for_a_closed_port_is_dropped_and_no_other_one() {
    let Some(mut line) = pressed() else { return };
    let is = |line: &FirstLine, wanted: [FirstLineState; 2]| {
        for (v6, protocol) in KINDS {
            let said = say(line, &flow(v6, protocol, 1, 1));
            assert_eq!(said, wanted[usize::from(protocol == TCP)], "{v6} {protocol}");
        }
    };
    line.want(&ours());
    is(&line, [CLOSED, CLOSED]);
    let mut wanted = ours();
    // Neighbours of a port in its word, and the same of the other protocol, are others.
    [PORT - 1, PORT + 1, PORT + 64, 0].into_iter().for_each(|port| wanted.udp.set(port, true));
    line.want(&wanted);
    is(&line, [CLOSED, CLOSED]);
    wanted.udp.set(PORT, true);
    line.want(&wanted);
    is(&line, [FirstLineState::Taken, CLOSED]);
    wanted.udp.set(PORT, false);
    wanted.tcp.set(PORT, true);
    line.want(&wanted);
    is(&line, [CLOSED, FirstLineState::Taken]);
    wanted.any_udp = true;
    line.want(&wanted);
    is(&line, [FirstLineState::Taken, FirstLineState::Taken]);
    wanted.any_udp = false;
    wanted.tcp.set(PORT, false);
    wanted.any_tcp = true;
    line.want(&wanted);
    is(&line, [CLOSED, FirstLineState::Taken]);
    line.want(&ours());
    // Fragments, options, other protocols and extension headers: ports are not readable.
    let (v4, v6) = (flow(false, UDP, 1, 1), flow(true, UDP, 1, 1));
    for (at, byte) in [(6, 0x20), (7, 1), (0, 0x46), (9, 1), (9, 132)] {
        assert_eq!(say(&line, &with(v4.clone(), at, byte)), FirstLineState::Taken, "{at} {byte}");
    }
    for next in [0, 43, 44, 60, 58, 132] {
        assert_eq!(say(&line, &with(v6.clone(), 6, next)), FirstLineState::Taken, "{next}");
    }
    for cut in [&v4[..37], &v6[..57]] {
        let malformed = FirstLineState::Refused("rx_header_malformed");
        assert_eq!(say(&line, cut), malformed, "shorter than its length field");
    }
    assert_eq!(say(&line, &tagged(&v4, 0)), FirstLineState::Taken);
    assert_eq!(say(&line, &to_group(false, v4.clone())), FirstLineState::Taken);
    // Packets for closed ports take nothing from the credit of unverified flows.
    wanted = ours();
    wanted.udp.set(PORT, true);
    line.want(&wanted);
    line.admit(NOW, Some(2));
    for _ in 0..10 {
        assert_eq!(say(&line, &flow(false, TCP, 1, 1)), CLOSED);
    }
    assert_eq!(
        [0; 3].map(|_| say(&line, &v4)),
        [FirstLineState::Taken, FirstLineState::Taken, UNVERIFIED]
    );
}

#[test]
fn every_port_is_told_from_every_other_one() {
    let Some(mut line) = pressed() else { return };
    let mut wanted = ours();
    let is_open = |port: u16| port.wrapping_mul(40_503) >> 14 == 1;
    (0..=u16::MAX).filter(|port| is_open(*port)).for_each(|port| wanted.tcp.set(port, true));
    line.want(&wanted);
    for port in (0..=u16::MAX).step_by(251).chain([1, 7, 8, 63, 64, u16::MAX]) {
        for (v6, at) in [(false, 22), (true, 42)] {
            let [high, low] = port.to_be_bytes();
            let frame = with(with(flow(v6, TCP, 1, 1), at, high), at + 1, low);
            let expected = if is_open(port) { FirstLineState::Taken } else { CLOSED };
            assert_eq!(say(&line, &frame), expected, "{port}");
        }
    }
}

#[test]
fn at_a_shared_link_address_only_what_is_for_our_addresses_is_taken() {
    let Some(mut line) = shared() else { return };
    for (v6, protocol) in KINDS {
        assert_eq!(
            say(&line, &flow(v6, protocol, 1, 1)),
            FirstLineState::Passed,
            "nothing is reported yet"
        );
    }
    line.want(&ours());
    for (v6, protocol) in KINDS {
        let mine = flow(v6, protocol, 1, 1);
        let theirs = elsewhere(v6, mine.clone());
        for frame in [&mine, &tagged(&mine, 0)] {
            assert_eq!(say(&line, frame), FirstLineState::Taken, "{v6} {protocol}");
        }
        let passed = [
            theirs.clone(),
            tagged(&theirs, 0),
            tagged(&mine, 7),
            to_group(v6, mine.clone()),
            mine[..if v6 { 53 } else { 33 }].to_vec(),
            mine[..14].to_vec(),
        ];
        for frame in passed {
            assert_eq!(say(&line, &frame), FirstLineState::Passed, "{frame:x?}");
        }
    }
    let (v4, v6) = (flow(false, UDP, 1, 1), flow(true, UDP, 1, 1));
    // Any content: fragments, options, ICMP, extension headers, a neighbour discovery message.
    for (at, byte) in [(6, 0x20), (7, 1), (0, 0x46), (9, 1), (9, 47)] {
        let mine = with(v4.clone(), at, byte);
        assert_eq!(say(&line, &mine), FirstLineState::Taken, "{at} {byte}");
        assert_eq!(say(&line, &elsewhere(false, mine)), FirstLineState::Passed, "{at} {byte}");
    }
    for next in [0, 43, 44, 60, 58] {
        let mine = with(v6.clone(), 6, next);
        assert_eq!(say(&line, &mine), FirstLineState::Taken, "{next}");
        assert_eq!(say(&line, &elsewhere(true, mine)), FirstLineState::Passed, "{next}");
    }
    for frame in [frame(0x0806, &[0, 1, 8, 0, 6, 4, 0, 2]), frame(0x88cc, &[2, 7])] {
        assert_eq!(say(&line, &frame), FirstLineState::Passed, "the host's too");
    }
    // A client that requests an address gets replies by the packet socket; a router takes all.
    let mut wanted = ours();
    wanted.asks_v4 = true;
    line.want(&wanted);
    assert_eq!(say(&line, &elsewhere(false, v4.clone())), FirstLineState::Passed);
    (wanted.any_v4, wanted.any_v6) = (true, true);
    line.want(&wanted);
    for frame in [elsewhere(false, v4.clone()), elsewhere(true, v6)] {
        assert_eq!(say(&line, &frame), FirstLineState::Taken);
    }
    line.want(&nothing());
    assert_eq!(say(&line, &v4), FirstLineState::Passed);
    // The filter works on what is ours.
    line.want(&ours());
    line.admit(NOW, Some(usize::MAX));
    assert_eq!(say(&line, &v4), CLOSED);
    assert_eq!(say(&line, &elsewhere(false, v4)), FirstLineState::Passed);
}

#[test]
fn what_is_denied_is_dropped_always_by_the_longest_word_on_it_and_nothing_else_does() {
    const DENIED: FirstLineState = FirstLineState::Refused("rx_denied");
    for line in [FirstLine::load(STATION), FirstLine::load_shared(STATION)] {
        let Some(mut line) = or_skipped(line) else { return };
        let mut wanted = ours();
        wanted.udp.set(PORT, true);
        line.want(&wanted);
        // From 10.0.0.host and from fdfd:…:fd and the host.
        let (v4, v6) = (|host| flow(false, UDP, host, 1), |host| flow(true, UDP, host, 1));
        assert_eq!([v4(3), v6(3)].map(|frame| say(&line, &frame)), [FirstLineState::Taken; 2]);
        wanted.deny("10.0.0.0/30".parse().unwrap());
        wanted.deny("fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fd00/126".parse().unwrap());
        line.want(&wanted);
        for pressure in [None, Some(usize::MAX)] {
            line.admit(NOW, pressure);
            for frame in [v4(0), v4(3), v6(0), v6(3)] {
                assert_eq!(say(&line, &frame), DENIED, "{pressure:?}");
                // Any content; a tag hides it from this filter.
                assert_eq!(say(&line, &tagged(&frame, 0)), FirstLineState::Taken);
            }
            assert_eq!(say(&line, &with(with(v4(1), 6, 0x20), 9, 1)), DENIED, "in pieces");
            assert_eq!(say(&line, &with(v6(1), 6, 44)), DENIED);
            for frame in [v4(4), v6(4)] {
                assert_eq!(say(&line, &frame), FirstLineState::Taken, "{pressure:?}");
            }
            assert_ne!(say(&line, &frame(0x0806, &[0, 1, 8, 0, 6, 4, 0, 1, 10, 0])), DENIED);
            for cut in [&v4(1)[..33], &v6(1)[..53], &v4(1)[..14]] {
                assert_ne!(say(&line, cut), DENIED, "it cannot be read");
            }
        }
        assert_eq!((line.stats().rx_denied, line.stats().rx_lost()), (12, 12));
        let mut all = ours();
        all.udp.set(PORT, true);
        ["0.0.0.0/0", "::/0"].iter().for_each(|prefix| all.deny(prefix.parse().unwrap()));
        line.want(&all);
        assert_eq!([v4(9), v6(9)].map(|frame| say(&line, &frame)), [DENIED; 2]);
        wanted = ours();
        wanted.udp.set(PORT, true);
        line.want(&wanted);
        assert_eq!([v4(3), v6(3)].map(|frame| say(&line, &frame)), [FirstLineState::Taken; 2]);
    }
}

/// A router: it has an address of each family, and takes what is for others.
fn router() -> Option<FirstLine> {
    let mut line = or_skipped(FirstLine::load(STATION))?;
    let mut wanted = ours();
    (wanted.any_v4, wanted.any_v6) = (true, true);
    line.want(&wanted);
    line.admit(NOW, Some(0));
    Some(line)
}

#[test]
fn hosts_that_talk_through_a_router_are_known_by_any_port_and_to_nothing_else() {
    let Some(mut line) = router() else { return };
    for v6 in [false, true] {
        for (host, protocol) in [(1, UDP), (3, TCP)] {
            let there = elsewhere(v6, flow(v6, protocol, host, 1000));
            assert_eq!(say(&line, &there), UNVERIFIED);
            line.mark_established(NOW, &there);
            let last = 14 + if v6 { 40 } else { 20 };
            for other in [UDP, TCP] {
                let mut frame = elsewhere(v6, flow(v6, other, host, 2222));
                frame[last + 3] = 99;
                assert_eq!(say(&line, &frame), FirstLineState::Taken, "v6 {v6}: another port");
            }
            assert_eq!(say(&line, &elsewhere(v6, flow(v6, protocol, host + 1, 1000))), UNVERIFIED);
            assert_eq!(say(&line, &flow(v6, protocol, host, 1000)), UNVERIFIED, "it is for us");
        }
        // Of the host's own traffic the ports count.
        line.mark_established(NOW, &flow(v6, UDP, 9, 1000));
        assert_eq!(say(&line, &flow(v6, UDP, 9, 1000)), FirstLineState::Taken);
        assert_eq!(say(&line, &flow(v6, UDP, 9, 1001)), UNVERIFIED);
    }
}

#[test]
fn what_may_go_no_further_takes_nothing_of_what_may() {
    let Some(mut line) = router() else { return };
    for v6 in [false, true] {
        let hops = if v6 { 7 } else { 8 };
        let ends = |host| with(elsewhere(v6, flow(v6, UDP, host, 1000)), hops, 1);
        line.admit(NOW, Some(4));
        for host in 1..=4 {
            assert_eq!(say(&line, &ends(host)), FirstLineState::Taken);
        }
        assert_eq!(say(&line, &ends(5)), UNVERIFIED, "v6 {v6}");
        let on = elsewhere(v6, flow(v6, UDP, 6, 1000));
        assert_eq!(say(&line, &on), FirstLineState::Taken, "v6 {v6}: that has its own credit");
        line.mark_established(NOW, &ends(5));
        assert_eq!(say(&line, &ends(5)), FirstLineState::Taken, "a pair that talks may ask");
    }
}

#[test]
fn a_flow_known_by_its_ports_before_the_addresses_changed_earns_tokens_as_a_pair() {
    for v6 in [false, true] {
        let Some(mut line) = or_skipped(FirstLine::load(STATION)) else { return };
        line.admit(NOW, Some(0));
        let through = elsewhere(v6, flow(v6, UDP, 1, 1000));
        // No address is known yet: nothing tells transit from the host's own flows.
        line.mark_established(NOW, &through);
        let mut wanted = ours();
        (wanted.any_v4, wanted.any_v6) = (true, true);
        line.want(&wanted);
        for round in 0..200 {
            line.mark_established(NOW, &through);
            assert_eq!(say(&line, &through), FirstLineState::Taken, "v6 {v6}: {round}");
        }
        // The same addresses again: nothing is forgotten.
        line.want(&wanted);
        assert_eq!(say(&line, &through), FirstLineState::Taken, "v6 {v6}");
    }
}
