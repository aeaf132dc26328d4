//! Challenges to sources of datagrams: frames in, frames out.

use core::net::IpAddr;

use super::host::{HostRig, NUMBER};
use super::rig::{LINK_LOCAL, OURS, PORT};
use crate::cookie::host::{DatagramProtocol, PROTOCOL_SHIFT, PROVES_SHIFT, Tally};
use crate::interpreter::{SocketModel, verdict};

/// How many datagrams of unproven sources pass, by the rig's settings.
const BUDGET: usize = 20;
const CLIENT: u16 = 5300;
/// Where the payload begins.
fn data(v6: bool) -> usize {
    if v6 { 62 } else { 42 }
}

fn sum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)])))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The sum over a datagram with its pseudo header, which is 0xffff where it is right.
fn datagram_sum(frame: &[u8]) -> u16 {
    let (l4, addresses) = if frame[12] == 0x86 { (54, 22..54) } else { (34, 26..34) };
    let len = u16::from_be_bytes([frame[l4 + 4], frame[l4 + 5]]);
    let pseudo = [&frame[addresses], &[0, 17], &len.to_be_bytes()].concat();
    sum(&[&pseudo[..], &frame[l4..l4 + usize::from(len)]].concat())
}

fn frame(from: IpAddr, port: u16, payload: &[u8]) -> Vec<u8> {
    let len = 8 + payload.len() as u16;
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9];
    let l4 = match from {
        IpAddr::V4(from) => {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((20 + len).to_be_bytes());
            frame.extend([0, 7, 0, 0, 3, 17, 0, 0]);
            frame.extend(from.octets());
            frame.extend(OURS.0.octets());
            let header = !sum(&frame[14..34]);
            frame[24..26].copy_from_slice(&header.to_be_bytes());
            34
        }
        IpAddr::V6(from) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(len.to_be_bytes());
            frame.extend([17, 3]);
            frame.extend(from.octets());
            frame.extend(OURS.1.octets());
            54
        }
    };
    frame.extend(port.to_be_bytes());
    frame.extend(PORT.to_be_bytes());
    frame.extend(len.to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    let udp = !datagram_sum(&frame);
    frame[l4 + 6..l4 + 8].copy_from_slice(&udp.to_be_bytes());
    frame
}

/// A host `n` of a prefix of its own.
fn source(v6: bool, n: u16) -> IpAddr {
    let [a, b] = n.to_be_bytes();
    match v6 {
        false => [198, a, b, 9].into(),
        true => core::net::Ipv6Addr::new(0x2001, 0xdb8, 0, n, 0, 0, 0, 9).into(),
    }
}

/// A rig with a protocol at its port, and nothing left for sources that are not proven.
fn rig(protocol: DatagramProtocol, v6: bool, payload: &[u8]) -> HostRig {
    let mut rig = HostRig::new(true);
    let word = u64::from(NUMBER)
        | u64::from(NUMBER) << 8
        | (protocol as u64) << PROTOCOL_SHIFT
        | 1 << PROVES_SHIFT;
    assert!(rig.machine.set(rig.maps.ports, &u32::from(PORT).to_ne_bytes(), &word.to_ne_bytes()));
    assert_eq!(fill(&mut rig, v6, payload), BUDGET);
    rig
}

/// Datagrams of unproven sources until no more pass; how many did.
fn fill(rig: &mut HostRig, v6: bool, payload: &[u8]) -> usize {
    let frames = (0..BUDGET as u16 * 2).map(|n| frame(source(v6, 1000 + n), CLIENT, payload));
    frames.filter(|frame| rig.run(&mut frame.clone()).verdict == verdict::PASS).count()
}

/// A question for `example.`, recursion desired, with a record of options that has a cookie.
const QUESTION: &[u8] =
    b"\x12\x34\x01\x20\0\x01\0\0\0\0\0\x01\x07example\0\0\x01\0\x01\0\0\x29\x04\xd0\0\0\0\0\0\x0c\
      \0\x0a\0\x08abcdefgh";

/// The frame that comes back to a frame: the same with its ends changed.
fn turned(v6: bool, frame: &[u8]) -> Vec<u8> {
    let mut turned = frame.to_vec();
    let (addresses, l4) = if v6 { (22..54, 54) } else { (26..34, 34) };
    turned[..12].rotate_left(6);
    let half = addresses.len() / 2;
    turned[addresses].rotate_left(half);
    turned[l4..l4 + 4].rotate_left(2);
    turned
}

#[test]
fn a_dns_question_of_an_unproven_source_is_answered_with_itself_truncated() {
    for v6 in [false, true] {
        let mut rig = rig(DatagramProtocol::Dns, v6, QUESTION);
        let asked = frame(source(v6, 1), CLIENT, QUESTION);
        let mut answer = asked.clone();
        assert_eq!(rig.run(&mut answer).verdict, verdict::TRANSMIT);
        assert_eq!((answer.len(), datagram_sum(&answer)), (asked.len(), 0xffff));
        if !v6 {
            assert_eq!(sum(&answer[14..34]), 0xffff);
        }
        assert_eq!(answer[if v6 { 21 } else { 22 }], 64, "hops");
        let at = data(v6);
        // Response, truncated, recursion desired and available; all else as it came.
        assert_eq!(answer[at + 2..at + 4], [0x83, 0x80]);
        assert_eq!(answer[at + 4..], asked[at + 4..]);
        let wanted = turned(v6, &asked);
        assert_eq!(answer[..14], wanted[..14]);
        assert_eq!(answer[26..34], wanted[26..34]);
        assert_eq!(answer[at - 8..at - 2], wanted[at - 8..at - 2]);
        // Of any length, and with a checksum that the question's own link left unfinished.
        for more in 0..8 {
            let longer = [QUESTION, &[7; 8][..more]].concat();
            let mut answer = frame(source(v6, 2), CLIENT, &longer);
            answer[at - 2..at].copy_from_slice(&[1, 2]);
            assert_eq!(rig.run(&mut answer).verdict, verdict::TRANSMIT);
            assert_eq!((answer.len(), datagram_sum(&answer)), (asked.len() + more, 0xffff));
        }
        let mut long = frame(source(v6, 2), CLIENT, &[QUESTION, &[0; 500]].concat());
        assert_eq!(rig.run(&mut long).verdict, verdict::DROP, "too long to be summed");
        // What asks a server of a zone is answered as by one; checking stays disabled.
        let mut direct = QUESTION.to_vec();
        direct[2..4].copy_from_slice(&[0, 0x10]);
        let mut answer = frame(source(v6, 1), CLIENT, &direct);
        assert_eq!(rig.run(&mut answer).verdict, verdict::TRANSMIT);
        assert_eq!(answer[at + 2..at + 4], [0x86, 0x10]);
        assert_eq!(datagram_sum(&answer), 0xffff);
        assert_eq!(rig.counted(Tally::Challenged), BUDGET as u64 + 10);
        assert_eq!(rig.counted(Tally::Datagrams), BUDGET as u64);
        // In the next window some pass again.
        rig.after(140);
        assert_eq!(rig.run(&mut asked.clone()).verdict, verdict::PASS);
    }
}

#[test]
fn what_is_no_question_is_dropped_and_never_answered() {
    let bad = |at: usize, byte: u8| {
        let mut payload = QUESTION.to_vec();
        payload[at] = byte;
        payload
    };
    let messages = [
        bad(2, 0x81),
        bad(2, 0x29),
        bad(5, 0),
        bad(5, 2),
        bad(7, 1),
        bad(9, 1),
        bad(11, 2),
        QUESTION[..16].to_vec(),
        Vec::new(),
    ];
    for v6 in [false, true] {
        let mut rig = rig(DatagramProtocol::Dns, v6, QUESTION);
        for (n, message) in (1..).zip(&messages) {
            let mut frame = frame(source(v6, n), CLIENT, message);
            assert_eq!(rig.run(&mut frame).verdict, verdict::DROP, "{message:?}");
        }
        let dropped = messages.len() as u64;
        assert_eq!(rig.counted(Tally::Unproven), dropped);
        // From or to what is no host, or with lengths that lie.
        let own: IpAddr = if v6 { LINK_LOCAL.into() } else { OURS.0.into() };
        let group: IpAddr =
            if v6 { "ff02::1".parse().unwrap() } else { "224.0.0.1".parse().unwrap() };
        let asked = frame(source(v6, 1), CLIENT, QUESTION);
        let changed = |at: usize, byte: u8| {
            let mut frame = asked.clone();
            frame[at] = byte;
            frame
        };
        assert!(rig.machine.set(rig.maps.addresses, &LINK_LOCAL.octets(), &[0; 8]));
        let l4 = data(v6) - 8;
        for mut frame in [
            frame(own, CLIENT, QUESTION),
            frame(group, CLIENT, QUESTION),
            frame(source(v6, 1), 0, QUESTION),
            changed(0, 3),
            changed(if v6 { 38 } else { 30 }, 0xff),
            changed(l4 + 5, 12),
            asked[..asked.len() - 3].to_vec(),
        ] {
            assert_eq!(rig.run(&mut frame).verdict, verdict::DROP);
        }
        assert_eq!(rig.counted(Tally::Unproven), dropped + 7);
    }
}

#[test]
fn a_source_that_a_connection_proves_is_not_challenged_for_a_while() {
    for v6 in [false, true] {
        let mut rig = rig(DatagramProtocol::Dns, v6, QUESTION);
        let mut asked = frame(source(v6, 1), CLIENT, QUESTION);
        assert_eq!(rig.run(&mut asked.clone()).verdict, verdict::TRANSMIT);
        // A segment of a connection at the port: only the kernel's socket says that it is one.
        let mut segment = frame(source(v6, 1), 99, &[0; 12]);
        let (protocol, tuple) = if v6 { (20, 22..58) } else { (23, 26..38) };
        segment[protocol] = 6;
        let socket = SocketModel { state: 1, fields: None };
        rig.machine.host.connections.insert(segment[tuple].to_vec(), socket);
        assert_eq!(rig.run(&mut segment).verdict, verdict::PASS);
        for n in 0..8 {
            assert_eq!(rig.run(&mut asked).verdict, verdict::PASS, "{v6} {n}");
        }
        let mut other = frame(source(v6, 2), CLIENT, QUESTION);
        assert_eq!(rig.run(&mut other).verdict, verdict::TRANSMIT, "another source");
        rig.after(1_200_000);
        assert_eq!(fill(&mut rig, v6, QUESTION), BUDGET);
        assert_eq!(rig.run(&mut asked).verdict, verdict::TRANSMIT, "too long ago");
    }
}

const INFORMATION: &[u8] = b"\xff\xff\xff\xffTSource Engine Query\0";

#[test]
fn a_game_query_is_answered_with_a_token_which_proves_its_source() {
    let players = b"\xff\xff\xff\xffU\xff\xff\xff\xff";
    for v6 in [false, true] {
        for query in [INFORMATION, players] {
            let mut rig = rig(DatagramProtocol::A2s, v6, INFORMATION);
            let from = source(v6, 1);
            let mut answer = frame(from, CLIENT, query);
            let asked = answer.clone();
            assert_eq!(rig.run(&mut answer).verdict, verdict::TRANSMIT);
            assert!(answer.len() <= asked.len());
            assert_eq!((answer.len(), datagram_sum(&answer)), (data(v6) + 9, 0xffff));
            if !v6 {
                assert_eq!(sum(&answer[14..34]), 0xffff);
            }
            let at = data(v6);
            assert_eq!(answer[at - 8..at - 4], turned(v6, &asked)[at - 8..at - 4], "ports");
            assert_eq!(answer[at..at + 5], *b"\xff\xff\xff\xffA");
            let token = &answer[at + 5..];
            let returned = match query.len() {
                9 => [&query[..5], token].concat(),
                _ => [query, token].concat(),
            };
            // Of another source or port, or changed, it proves nothing.
            let mut wrong = returned.clone();
            *wrong.last_mut().unwrap() ^= 2;
            for mut frame in [
                frame(source(v6, 2), CLIENT, &returned),
                frame(from, CLIENT + 1, &returned),
                frame(from, CLIENT, &wrong),
            ] {
                assert_eq!(rig.run(&mut frame).verdict, verdict::TRANSMIT);
            }
            rig.after(60_000);
            assert_eq!(fill(&mut rig, v6, INFORMATION), BUDGET);
            let again = rig.run(&mut frame(from, CLIENT, &returned)).verdict;
            assert_eq!((again, rig.counted(Tally::SourceProven)), (verdict::PASS, 1));
            // All that follows of the source passes.
            for _ in 0..5 {
                let mut any = frame(from, 9, b"the game itself");
                assert_eq!(rig.run(&mut any).verdict, verdict::PASS);
            }
        }
    }
}

#[test]
fn what_is_no_query_has_the_credit_of_unproven_sources_alone() {
    for v6 in [false, true] {
        let mut rig = rig(DatagramProtocol::A2s, v6, INFORMATION);
        let mut cut = INFORMATION.to_vec();
        cut[7] = b'x';
        for payload in [&b"\xff\xff\xff\xffW"[..], &INFORMATION[..24], b"data of the game", &cut] {
            let mut frame = frame(source(v6, 1), CLIENT, payload);
            assert_eq!(rig.run(&mut frame).verdict, verdict::DROP, "{payload:?}");
        }
        assert_eq!(rig.counted(Tally::Unproven), 4);
        // An old token proves nothing: after two units of 69 s it is challenged again.
        let mut answer = frame(source(v6, 1), CLIENT, INFORMATION);
        assert_eq!(rig.run(&mut answer).verdict, verdict::TRANSMIT);
        let returned = [INFORMATION, &answer[data(v6) + 5..]].concat();
        rig.after(140_000);
        assert_eq!(fill(&mut rig, v6, INFORMATION), BUDGET);
        let mut late = frame(source(v6, 1), CLIENT, &returned);
        assert_eq!(rig.run(&mut late).verdict, verdict::TRANSMIT);
        assert_eq!(rig.counted(Tally::SourceProven), 0);
    }
}
