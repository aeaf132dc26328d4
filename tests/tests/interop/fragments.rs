//! Packets larger than the link carries, both ways: `ping` and UDP echo up to the largest there
//! are, in the kernel's fragments and in ours.

use std::net::{IpAddr, SocketAddr};

use floodwall_base::Counter;

use crate::bench::{Bench, ECHO_PORT};
use crate::command::run;
use crate::echo::{bind, there_and_back};
use crate::link::{Ends, Kind, MTU, ends_at};
use crate::namespace::inside;
use crate::running::End;

/// What IP and a header of eight bytes (ICMP echo, UDP) take.
const fn headers(addr: IpAddr) -> usize {
    if addr.is_ipv4() { 28 } else { 48 }
}

/// What a fragment carries at most: whole units of eight bytes, behind IPv6's header of its own.
const fn carried(addr: IpAddr, mtu: usize) -> usize {
    let ip = if addr.is_ipv4() { 20 } else { 48 };
    (mtu - ip) / 8 * 8
}

/// Payloads around each place where another fragment begins, and large ones.
fn sizes(addr: IpAddr, mtu: u32) -> Vec<usize> {
    let mtu = mtu as usize;
    let mut sizes =
        vec![0, 1, mtu - headers(addr) - 1, mtu - headers(addr), mtu - headers(addr) + 1];
    for fragments in [2, 3, 7] {
        let full = fragments * carried(addr, mtu) - 8;
        sizes.extend([full - 8, full - 1, full, full + 1, full + 8]);
    }
    sizes.extend([4096, 9000, 16_384, 32_767, 60_000, 65_000]);
    sizes
}

/// Pings that need fragments for their way; `None` where there is no `ping`.
fn ping(ends: Ends, mtu: u32) -> Option<u64> {
    let mut in_fragments = 0;
    for size in sizes(ends.ours, mtu) {
        // One large answer fills the buffer of the kernel's socket.
        let interval = if size > 9000 { 0.05 } else { 0.002 };
        let words = format!("-n -i {interval} -w 20 -c 3 -s {size} {}", ends.ours);
        let said = run("ping", &words, b"")?;
        // An answer that is late makes it ask on, and leave when three are there: all up to the
        // last one, in order.
        let answers = said.text.lines().filter(|line| line.contains(" bytes from "));
        let expected =
            |(number, line): (usize, &str)| line.contains(&format!("icmp_seq={} ", number + 1));
        let numbers: Vec<_> = answers.enumerate().map(expected).collect();
        let whole = said.status.success() && numbers.len() >= 3 && !numbers.contains(&false);
        let distorted = said.text.contains("wrong data") || said.text.contains("DUP!");
        assert!(whole && !distorted, "{size}: {} {}", said.text, said.complaint);
        if size + headers(ends.ours) > mtu as usize {
            in_fragments += 3;
        }
    }
    Some(in_fragments)
}

fn count(end: &End, family: IpAddr, v4: Counter, v6: Counter) -> u64 {
    end.stats.counters.of(if family.is_ipv4() { v4 } else { v6 })
}

/// At least so many packets came and left in fragments, each that came was answered, and none was
/// given up.
fn assert_in_fragments(end: &End, family: IpAddr, packets: u64) {
    let of = |v4, v6| count(end, family, v4, v6);
    let whole = of(Counter::IpReasmOKs, Counter::Ip6ReasmOKs);
    assert!(whole >= packets, "{whole} of {packets}");
    assert_eq!(of(Counter::IpReasmFails, Counter::Ip6ReasmFails), 0);
    assert_eq!(of(Counter::IpFragOKs, Counter::Ip6FragOKs), whole);
    assert_eq!(of(Counter::IpFragFails, Counter::Ip6FragFails), 0);
    assert!(of(Counter::IpReasmReqds, Counter::Ip6ReasmReqds) >= 2 * packets);
    assert!(of(Counter::IpFragCreates, Counter::Ip6FragCreates) >= 2 * packets);
}

fn pings_at(bench: Bench, mtu: u32) {
    let mut judged = Vec::new();
    for ends in ends_at(mtu) {
        let Some(packets) = ping(ends, mtu) else { return };
        judged.push((ends.ours, packets));
    }
    let end = bench.end_without_loss();
    for (ours, packets) in judged {
        assert_in_fragments(&end, ours, packets);
    }
}

pub(crate) fn pings(bench: Bench) {
    pings_at(bench, MTU);
}

/// Datagrams around the same places, and up to the largest one that IP has a length for.
fn datagrams_at(bench: Bench, mtu: u32) {
    let mut judged = Vec::new();
    for Ends { kernel, ours } in ends_at(mtu) {
        let largest = 65_535 - if ours.is_ipv4() { 28 } else { 8 };
        let socket = bind(kernel);
        let mut packets = 0;
        for size in sizes(ours, mtu).into_iter().chain([largest - 1, largest]) {
            there_and_back(&socket, SocketAddr::new(ours, ECHO_PORT), size);
            packets += u64::from(size + headers(ours) > mtu as usize);
        }
        judged.push((ours, packets));
    }
    let end = bench.end_without_loss();
    for (ours, packets) in judged {
        assert_in_fragments(&end, ours, packets);
    }
}

pub(crate) fn datagrams(bench: Bench) {
    datagrams_at(bench, MTU);
}

fn at(kind: Kind, mtu: u32, scenario: fn(Bench, u32)) {
    inside(move || {
        if let Some(bench) = Bench::with_mtu(kind, mtu) {
            scenario(bench, mtu);
        }
    });
}

#[test]
fn links_of_1280_bytes_carry_pings_of_every_size() {
    at(Kind::Tap, 1280, pings_at);
    at(Kind::Packet, 1280, pings_at);
}

#[test]
fn links_of_576_bytes_carry_pings_of_every_size() {
    at(Kind::Tap, 576, pings_at);
    at(Kind::Packet, 576, pings_at);
}

#[test]
fn links_of_1280_bytes_carry_datagrams_of_every_size() {
    at(Kind::Tap, 1280, datagrams_at);
    at(Kind::Packet, 1280, datagrams_at);
}

#[test]
fn links_of_576_bytes_carry_datagrams_of_every_size() {
    at(Kind::Tap, 576, datagrams_at);
    at(Kind::Packet, 576, datagrams_at);
}
