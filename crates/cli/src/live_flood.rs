//! A script's flood as a program in the kernel makes it: which words of its frame differ.
//!
//! Used by `pktgen --live`. A flood that is more than one frame with random addresses, ports and
//! numbers (payloads of several sizes, fragments, extension headers, flows, stamps) is refused in
//! words, and sent as usual.

use std::net::IpAddr;
use std::time::Duration;

use floodwall_device::{LiveConfig, LiveWord};
use floodwall_pktgen::{AddrRange, Content, PortRange, Spread, Spreads, Stream};
use floodwall_wire::TcpFlags;

/// Bytes of an Ethernet header.
const LINK: u16 = 14;
/// More than any interface takes: without bound.
const RATE_MAX: u64 = 100_000_000;

/// What the kernel's program is to do for `stream`, of which `frame` is one packet.
///
/// # Errors
/// What of it such a program does not make.
pub(crate) fn config_of(stream: &Stream, frame: Vec<u8>) -> Result<LiveConfig, &'static str> {
    let plain = stream.headers.is_none()
        && stream.fragments.is_none()
        && stream.flow_packets == 1
        && stream.flows.is_none()
        && stream.repeats <= 1
        && !stream.stamp
        && stream.payload.min == stream.payload.max;
    if !plain {
        return Err("its packets are more than one frame with random words");
    }
    let v4 = stream.src_addrs.first().is_ipv4();
    let (from, to, upper) = if v4 { (26, 30, LINK + 20) } else { (22, 38, LINK + 40) };
    let (flags, sum) = match stream.content {
        Content::Udp => (None, upper + 6),
        Content::Tcp(flags) => (Some(flags), upper + 16),
        _ => return Err("it is neither of UDP nor of TCP"),
    };
    let how = stream.spreads.unwrap_or_else(|| Spreads::all(stream.spread));
    let mut words = Vec::new();
    addresses(&mut words, (stream.src_addrs, how.src_addr), (from, v4))?;
    addresses(&mut words, (stream.dst_addrs, how.dst_addr), (to, v4))?;
    ports(&mut words, (stream.src_ports, how.src_port), upper)?;
    ports(&mut words, (stream.dst_ports, how.dst_port), upper + 2)?;
    // Sequence numbers, and what is acknowledged where something is.
    let numbers = match flags {
        None => 0,
        Some(flags) if flags == TcpFlags::SYN => 2,
        Some(_) => 4,
    };
    words.extend((0..numbers).map(|n| word(upper + 4 + 2 * n, (0, u16::MAX), false)));
    let rate = stream.pace.most_within(Duration::from_secs(1)).saturating_sub(1);
    Ok(LiveConfig {
        frame,
        words,
        header_sum: v4.then_some(LINK + 10),
        upper_sum: (sum, flags.is_none()),
        rate: if rate >= RATE_MAX { 0 } else { rate },
        count: stream.count.unwrap_or(0),
    })
}

const fn word(at: u16, (min, max): (u16, u16), in_header: bool) -> LiveWord {
    LiveWord { at, min, max, in_header, in_upper: true }
}

const IN_TURN: &str = "addresses or ports are taken in turn";

/// The words of an address that differ.
fn addresses(
    words: &mut Vec<LiveWord>,
    (range, how): (AddrRange, Spread),
    (at, in_header): (u16, bool),
) -> Result<(), &'static str> {
    let [first, last] = [range.first(), range.last()].map(halves);
    let Some(differs) = first.iter().zip(&last).position(|(first, last)| first != last) else {
        return Ok(());
    };
    if how == Spread::InTurn {
        return Err(IN_TURN);
    }
    let (Some((&min, least)), Some((&max, most))) = (
        first.get(differs..).and_then(<[u16]>::split_first),
        last.get(differs..).and_then(<[u16]>::split_first),
    ) else {
        return Ok(());
    };
    // Behind the first word that differs everything is within the range, but for that word's ends.
    let from_start = is_end(least, 0, 1);
    let to_end = is_end(most, u16::MAX, u16::MAX - 1);
    let (min, max) = (min + u16::from(!from_start), max - u16::from(!to_end));
    if min > max {
        return Err("a range of addresses has its ends within prefixes that are neighbours");
    }
    let place = |n: usize| at + 2 * n as u16;
    words.push(word(place(differs), (min, max), in_header));
    let rest = (differs + 1)..first.len();
    words.extend(rest.map(|n| word(place(n), (0, u16::MAX), in_header)));
    Ok(())
}

/// Whether these words are all the same, but for the last, which may be its neighbour.
fn is_end(words: &[u16], all: u16, neighbour: u16) -> bool {
    words.split_last().is_none_or(|(last, others)| {
        others.iter().all(|word| *word == all) && [all, neighbour].contains(last)
    })
}

fn ports(
    words: &mut Vec<LiveWord>,
    (range, how): (PortRange, Spread),
    at: u16,
) -> Result<(), &'static str> {
    match (range.first == range.last, how) {
        (true, _) => Ok(()),
        (false, Spread::InTurn) => Err(IN_TURN),
        (false, Spread::Random) => {
            words.push(word(at, (range.first, range.last), false));
            Ok(())
        }
    }
}

/// An address in words.
fn halves(addr: IpAddr) -> Vec<u16> {
    let bytes = match addr {
        IpAddr::V4(addr) => addr.octets().to_vec(),
        IpAddr::V6(addr) => addr.octets().to_vec(),
    };
    bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect()
}

#[cfg(test)]
mod tests {
    use floodwall_pktgen::ClassicScript;

    use super::*;

    fn stream(sets: &[&str]) -> Stream {
        let mut script = ClassicScript::default();
        sets.iter().for_each(|words| script.parameter(words).unwrap());
        let six = script.wants_ipv6();
        let own = if six { "fd77::9" } else { "10.77.0.9" };
        script.stream(own.parse().unwrap()).unwrap()
    }

    fn spans(sets: &[&str]) -> Result<Vec<(u16, u16, u16)>, &'static str> {
        let config = config_of(&stream(sets), vec![0; 78])?;
        Ok(config.words.iter().map(|word| (word.at, word.min, word.max)).collect())
    }

    const ALL: u16 = u16::MAX;

    #[test]
    fn the_floods_of_the_lab_are_frames_with_random_words() {
        let syn = [
            "dst_min 10.77.0.2",
            "dst_max 10.77.0.2",
            "src_min 11.0.0.0",
            "src_max 95.255.255.255",
            "flag IPSRC_RND",
            "flag UDPSRC_RND",
            "udp_src_min 1024",
            "udp_src_max 65000",
            "udp_dst_min 80",
            "udp_dst_max 80",
            "proto tcp-syn",
            "count 0",
            "ratep 200000",
        ];
        let expected = vec![
            (26, 0x0b00, 0x5fff),
            (28, 0, ALL),
            (34, 1024, 65_000),
            (38, 0, ALL),
            (40, 0, ALL),
        ];
        assert_eq!(spans(&syn), Ok(expected));
        let config = config_of(&stream(&syn), vec![0; 58]).unwrap();
        assert_eq!((config.rate, config.count), (200_000, 0));
        assert_eq!((config.header_sum, config.upper_sum), (Some(24), (50, false)));
        let transit = [
            "dst_min fd80::1",
            "dst_max fd80::ffff:ffff:ffff",
            "src_min 2001:db8::1",
            "src_max 2001:db8:ffff::ffff:ffff",
            "flag IPSRC_RND",
            "flag IPDST_RND",
            "proto udp",
        ];
        let mut expected = vec![(26, 0, ALL - 1)];
        expected.extend([28, 30, 32, 34, 36, 48, 50, 52].map(|at| (at, 0, ALL)));
        let words: Vec<_> = spans(&transit).unwrap();
        assert_eq!(words, expected);
        let on_link = ["dst_min fd78::1:0", "dst_max fd78::ffff:ffff:ffff:ffff", "flag IPDST_RND"];
        let words = spans(&on_link).unwrap();
        assert_eq!(words, [(46, 1, ALL), (48, 0, ALL), (50, 0, ALL), (52, 0, ALL)]);
        let none = ["dst_min 10.0.255.9", "dst_max 10.1.0.9", "flag IPDST_RND"];
        assert!(spans(&none).is_err_and(|why| why.contains("neighbours")));
    }

    #[test]
    fn what_is_more_than_that_is_refused_in_words() {
        let to = ["dst 10.77.0.2", "proto udp"];
        assert!(spans(&to).is_ok());
        for (more, part) in [
            ("flag UDPDST_RND", ""),
            ("udp_dst_max 99", "in turn"),
            ("proto icmp", "neither"),
            ("clone_skb 4", "more than one frame"),
            ("max_pkt_size 200", "more than one frame"),
            ("headers chain", "more than one frame"),
        ] {
            let said = spans(&[&to[..], &[more]].concat());
            match part {
                "" => assert!(said.is_ok(), "{more}"),
                part => assert!(said.is_err_and(|why| why.contains(part)), "{more}"),
            }
        }
    }
}
