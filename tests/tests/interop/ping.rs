//! `ping`: every size, many, our link-local address, groups.

use std::net::{IpAddr, Ipv6Addr};

use floodwall_base::{Counter, DropReason};

use crate::bench::Bench;
use crate::command::run;
use crate::echo::PATIENCE;
use crate::link::{Kind, NAME, ends};
use crate::namespace::{inside, until};

/// Sizes of what a ping carries; IPv6's header is longer by 20.
const SIZES: [usize; 13] = [0, 1, 7, 8, 56, 511, 512, 1023, 1400, 1451, 1452, 1471, 1472];
/// The most that a ping carries in one packet.
const fn most(addr: IpAddr) -> usize {
    if addr.is_ipv4() { 1472 } else { 1452 }
}

/// Has the kernel ping `to` by these words; the numbers of the answers in their order, and how many
/// it sent. `None` where there is no `ping`.
///
/// A time limit makes `ping` wait for its last answers, and send more than requested if one is
/// missing.
fn ping(to: &str, count: usize, words: &str) -> Option<Vec<usize>> {
    let said = run("ping", &format!("-n -M do -w 50 -c {count} {words} {to}"), b"")?;
    assert!(!said.text.contains("wrong data"), "{}", said.text);
    assert!(!said.text.contains("DUP!"), "{}", said.text);
    assert!(said.complaint.is_empty(), "{}", said.complaint);
    let number = |line: &str| {
        let (_, rest) = line.split_once("icmp_seq=")?;
        rest.split(' ').next()?.parse().ok()
    };
    Some(
        said.text.lines().filter(|line| line.contains(" bytes from ")).filter_map(number).collect(),
    )
}

/// None of the first `count` pings is lost, however late an answer is.
pub(crate) fn ping_all(to: &str, count: usize, words: &str) -> Option<()> {
    let answers = ping(to, count, words)?;
    // While the last one is on its way, another one may be sent and answered.
    let all: Vec<_> = (1..=answers.len()).collect();
    assert_eq!(answers, all, "{to} {words}");
    // A machine with much else to do may not send all of many within the time.
    assert!(answers.len() >= count.min(50), "{} of {count} for {to} {words}", answers.len());
    Some(())
}

fn sizes(to: IpAddr, count: usize) -> Option<usize> {
    let fitting = SIZES.iter().filter(|size| **size <= most(to));
    for size in fitting.clone() {
        ping_all(&to.to_string(), count, &format!("-i 0.001 -s {size}"))?;
    }
    Some(fitting.count() * count)
}

pub(crate) fn every_size(bench: Bench) {
    let mut sent = [0; 2];
    for (ends, sent) in ends().into_iter().zip(&mut sent) {
        let Some(count) = sizes(ends.ours, 20) else { return };
        *sent = count as u64;
    }
    let end = bench.end_without_loss();
    let counters = &end.stats.counters;
    assert_eq!(counters.of(Counter::IcmpOutEchoReps), counters.of(Counter::IcmpInEchos));
    assert_eq!(counters.of(Counter::Icmp6OutEchoReplies), counters.of(Counter::Icmp6InEchos));
    // A ping that waited for its last answer may have sent one more.
    assert!(counters.of(Counter::IcmpInEchos) >= sent[0]);
    assert!(counters.of(Counter::Icmp6InEchos) >= sent[1]);
}

pub(crate) fn a_thousand(bench: Bench) {
    for ends in ends() {
        if ping_all(&ends.ours.to_string(), 1000, "-i 0.001").is_none() {
            return;
        }
    }
    bench.end_without_loss();
}

/// The other choice of offload than the usual one: full checksums.
#[test]
fn with_the_other_choice_of_offload_pings_and_datagrams_are_answered() {
    inside(|| {
        for kind in [Kind::Tap, Kind::Tun, Kind::Packet] {
            let Some(bench) = Bench::set_up(kind, !kind.usual_offload(), None) else { return };
            for ends in ends() {
                let _ = sizes(ends.ours, 2);
                crate::echo::sizes(ends, 61);
            }
            bench.end_without_loss();
            if kind == Kind::Packet {
                crate::link::delete();
            }
            crate::link::wait_until_gone();
        }
    });
}

/// A group's request is answered over IPv6 (RFC 4443 section 4.2), an IPv4 group's is not: as on
/// Linux.
pub(crate) fn link_local_and_groups(bench: Bench) {
    let ours: Vec<Ipv6Addr> = bench.running.stack(|stack| {
        let all = stack.interfaces().iter().flat_map(|i| i.addresses());
        let v6 = all.filter_map(|a| match a.addr {
            IpAddr::V6(a) => Some(a),
            IpAddr::V4(_) => None,
        });
        v6.filter(Ipv6Addr::is_unicast_link_local).collect()
    });
    // Without stations there is nothing to make such an address of.
    assert_eq!(ours.len(), usize::from(bench.kind.is_ethernet()));
    for addr in &ours {
        let to = format!("{addr}%{NAME}");
        if ping_all(&to, 20, "-i 0.001").is_none() || ping_all(&to, 2, "-s 1452 -i 0.01").is_none()
        {
            return;
        }
    }
    let words = format!("-n -c 3 -i 0.01 -W 1 ff02::1%{NAME}");
    let Some(said) = run("ping", &words, b"") else { return };
    let others = ends()[1].ours;
    let answers = |from: &dyn std::fmt::Display| said.text.contains(&format!("from {from}"));
    // From the link's own address where there is one (RFC 4443 section 4.2).
    assert!(ours.first().map_or_else(|| answers(&others), |addr| answers(addr)), "{}", said.text);
    let refused = || bench.running.stats().drops_in.of(DropReason::IcmpEchoRefused);
    let before = refused();
    let words = format!("-n -I {NAME} -c 3 -i 0.01 -W 1 224.0.0.1");
    let Some(_) = run("ping", &words, b"") else { return };
    // `ping` does not wait for missing answers.
    assert!(until(PATIENCE, || refused() - before == 3), "each is counted under its name");
    bench.end_without_loss();
}
