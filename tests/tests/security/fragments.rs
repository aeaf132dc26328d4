//! Fragments: memory and time, collisions, overlaps, impossible ends, nesting, expiry.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use floodwall_base::{DropReason, Family, IfIndex, limits};
use floodwall_ip::ReassemblyConfig;
use floodwall_ip::reassembly::ReassemblyWork;
use floodwall_packet::PoolConfig;
use floodwall_stack::StackConfig;
use floodwall_testkit::Seeded;
use floodwall_testkit::cuts::{Cut, random, two_way};
use floodwall_tests::craft::{
    self, FAMILIES, HOST, PEER, addr, echo, fragment, fragment_header, fragments, from_peer,
    ipv6_chain,
};
use floodwall_tests::{Rig, Sent, bytes_of, drops_between, ethernet_config};
use floodwall_wire::IpProtocol;

use crate::rig;

fn full_rig() -> Rig {
    let config = StackConfig { echo_rate: 0, ..ethernet_config(HOST) };
    let mut rig = Rig::with_pool(&config, &PoolConfig::default());
    for family in FAMILIES {
        rig.stack
            .add_neighbor(IfIndex(1), addr(family, PEER), craft::mac(PEER), rig.now)
            .expect("room");
    }
    rig
}

fn work(rig: &Rig) -> ReassemblyWork {
    let (a, b) = (rig.stack.reassembly_v4().work_done(), rig.stack.reassembly_v6().work_done());
    ReassemblyWork {
        runs: a.runs + b.runs,
        copied: a.copied + b.copied,
        evicted: a.evicted + b.evicted,
    }
}

fn waiting(rig: &Rig) -> (u64, usize) {
    let (a, b) = (rig.stack.reassembly_v4(), rig.stack.reassembly_v6());
    (a.bytes() + b.bytes(), a.datagrams() + b.datagrams())
}

fn ask(family: Family, len: usize) -> Vec<u8> {
    echo(addr(family, PEER), addr(family, HOST), &vec![b'x'; len])
}

/// A forged source: of one prefix, or of any.
fn unknown(family: Family, random: &mut Seeded, anywhere: bool) -> IpAddr {
    let n = random.next();
    match (family, anywhere) {
        (Family::V4, true) => Ipv4Addr::from_bits(0x0b00_0000 | n as u32 >> 8).into(),
        (Family::V4, false) => Ipv4Addr::new(11, 1, 1, 1).into(),
        (Family::V6, true) => Ipv6Addr::from_bits(0x2001_u128 << 112 | u128::from(n) << 16).into(),
        (Family::V6, false) => Ipv6Addr::from_bits(0x2001_0db8_u128 << 96 | u128::from(n)).into(),
    }
}

/// Row 46: CVE-2018-5391 (FragmentSmack), CVE-2018-6923. First and last fragments of datagrams that
/// never come together, while a peer elsewhere sends large pings.
#[test]
fn a_flood_of_fragments_is_bounded_and_honest_ones_come_together() {
    for family in FAMILIES {
        for anywhere in [false, true] {
            let (mut rig, mut random) = (full_rig(), Seeded::new(46));
            let free = rig.pool.available();
            let (mut answered, honest, mut most) = (0, 40, 0);
            for ping in 0..honest {
                for part in fragments(&ask(family, 20_000), ping, 1480 & !7) {
                    // Twenty hostile fragments for each honest one.
                    for _ in 0..10 {
                        let from = unknown(family, &mut random, anywhere);
                        let bad = echo(from, addr(family, HOST), &[0; 1000]);
                        let id = random.next() as u32;
                        rig.frame(&from_peer(&fragment(&bad, id, 0, 64, true)));
                        rig.frame(&from_peer(&fragment(&bad, id, 944, 1008, false)));
                    }
                    answered += usize::from(!rig.frame(&from_peer(&part)).is_empty());
                    most = most.max(waiting(&rig).0);
                }
                rig.run_for(Duration::from_millis(5));
            }
            let what = format!("{family:?} {anywhere}");
            assert!(answered * 10 >= honest as usize * 9, "{what}: {answered} of {honest}");
            assert!(most <= limits::REASSEMBLY_BYTES as u64, "{what}: {most} bytes");
            assert!(rig.conservation().holds(), "{what}");
            let reason = match anywhere {
                false => DropReason::FragmentSourceFull,
                true => DropReason::FragmentStoreFull,
            };
            assert!(rig.stats().drops_in.of(reason) > 1000, "{what}");
            rig.run_for(Duration::from_secs(61));
            assert_eq!(waiting(&rig), (0, 0), "{what}: not all is given back");
            assert_eq!(rig.pool.available(), free, "{what}");
        }
    }
}

/// A store that was made larger than all memory is given its part of it.
#[test]
fn a_store_without_bounds_leaves_memory_to_others() {
    let reassembly = ReassemblyConfig { bytes: u64::MAX, datagrams: 1 << 14 };
    let mut rig = Rig::with_neighbor(&StackConfig { reassembly, ..ethernet_config(HOST) }, PEER);
    let mut random = Seeded::new(48);
    let part = rig.pool.frames_true_bytes() / limits::REASSEMBLY_DIVISOR;
    for _ in 0..4000 {
        for family in FAMILIES {
            let from = unknown(family, &mut random, true);
            let bad = echo(from, addr(family, HOST), &[0; 1000]);
            rig.frame(&from_peer(&fragment(&bad, random.next() as u32, 0, 64, true)));
        }
        let (a, b) = (rig.stack.reassembly_v4(), rig.stack.reassembly_v6());
        assert!(a.bytes() <= part && b.bytes() <= part, "{} {} of {part}", a.bytes(), b.bytes());
    }
    assert!(waiting(&rig).0 > 2 * part - 2 * 2176);
    assert!(rig.conservation().holds());
}

/// Row 46: the cost of a fragment does not grow with what is stored, in any order.
#[test]
fn a_fragment_costs_no_more_when_the_store_is_full() {
    for family in FAMILIES {
        let (mut rig, mut random) = (full_rig(), Seeded::new(47));
        let mut worst = [ReassemblyWork::default(); 2];
        for round in 0..4000 {
            let from = unknown(family, &mut random, true);
            let bad = echo(from, addr(family, HOST), &[0; 4000]);
            let id = random.next() as u32;
            let at = random.below(400) * 8;
            let before = work(&rig);
            rig.frame(&from_peer(&fragment(&bad, id, at, at + 64, true)));
            let after = work(&rig);
            let half = &mut worst[usize::from(round >= 2000)];
            half.runs = half.runs.max(after.runs - before.runs);
            half.copied = half.copied.max(after.copied - before.copied);
            half.evicted = half.evicted.max(after.evicted - before.evicted);
        }
        assert_eq!((worst[0].runs, worst[0].copied), (worst[1].runs, worst[1].copied));
        assert_eq!(worst[1].evicted, 1, "one comes, one goes");
        // One datagram in as many pieces as it may have: a look at each run at most.
        let parts = fragments(&ask(family, 8 * 140), 1, 8);
        let mut most = 0;
        for part in parts[1..].iter().step_by(2).take(limits::REASSEMBLY_RUNS_MAX).rev() {
            let before = work(&rig).runs;
            rig.frame(&from_peer(part));
            most = most.max(work(&rig).runs - before);
        }
        for part in parts[2..].iter().step_by(2) {
            let before = work(&rig).runs;
            rig.frame(&from_peer(part));
            most = most.max(work(&rig).runs - before);
        }
        assert!(most <= limits::REASSEMBLY_RUNS_MAX as u64 + 1, "{most} looks");
        // In order it is one.
        let before = work(&rig).runs;
        let parts = fragments(&ask(family, 8 * 100), 2, 8);
        parts.iter().for_each(|part| drop(rig.frame(&from_peer(part))));
        assert!(work(&rig).runs - before <= parts.len() as u64);
    }
}

/// Row 47: CVE-2003-0364. Names that would meet in one bucket of a table without a secret.
#[test]
fn fragments_with_chosen_names_find_each_their_datagram() {
    for family in FAMILIES {
        let mut rig = full_rig();
        let names: Vec<u32> = (0..400).map(|n| n * 256).collect();
        for id in &names {
            rig.frame(&from_peer(&fragment(&ask(family, 100), *id & 0xffff, 0, 64, true)));
        }
        let distinct =
            names.iter().map(|id| id & 0xffff).collect::<std::collections::BTreeSet<_>>();
        let answered = distinct
            .iter()
            .filter(|id| {
                let last = fragment(&ask(family, 100), **id, 64, 108, false);
                rig.frame(&from_peer(&last)).len() == 1
            })
            .count();
        assert_eq!(answered, distinct.len());
        assert!(rig.conservation().holds());
    }
}

/// Row 48: CVE-1999-0015 (teardrop), CVE-1999-0104, CVE-2012-4444, RFC 5722. Every way in which a
/// fragment can overlap or adjoin another: before, behind, within, around, at either edge, equal.
#[test]
fn no_overlap_of_any_shape_changes_bytes_that_came_first() {
    for family in FAMILIES {
        let (first, rest) = ((32, 64), [(0, 32), (64, 108)]);
        for from in (0..=96).step_by(8) {
            for to in (from + 8..=104).step_by(8) {
                let mut rig = rig();
                let whole = ask(family, 100);
                let mut forged = whole.clone();
                let body = forged.len() - 108;
                forged[body + from..body + to].iter_mut().for_each(|b| *b ^= 0xff);
                let part = |of: &[u8], (from, to)| from_peer(&fragment(of, 9, from, to, to < 108));
                rig.frame(&part(&whole, first));
                rig.frame(&part(&forged, (from, to)));
                let answers: usize =
                    rest.iter().map(|span| rig.frame(&part(&whole, *span)).len()).sum();
                let what = format!("{family:?} {from}..{to}");
                let overlaps = from < 64 && to > 32;
                let same = (from, to) == first;
                // A forged part that came before the true one is the sender's, for all we know.
                let spoilt = family == Family::V4 && !(from >= 32 && to <= 64);
                let expected = match (family, overlaps) {
                    (Family::V6, true) => usize::from(same),
                    (Family::V6, false) => 0,
                    (Family::V4, _) => usize::from(!spoilt),
                };
                assert_eq!(answers, expected, "{what}");
                assert!(rig.conservation().holds(), "{what}");
            }
        }
    }
}

/// Row 49: CVE-1999-0128 ("ping of death"), CVE-2009-1298, CVE-2023-3107.
#[test]
fn fragments_that_end_beyond_the_largest_packet_do_no_harm() {
    for family in FAMILIES {
        let mut rig = full_rig();
        let free = rig.pool.available();
        for offset in [8191_usize, 8190, 8189, 8000] {
            for (more, len) in [7, 8, 9, 1414].into_iter().flat_map(|l| [(false, l), (true, l)]) {
                let payload = vec![0; len];
                let packet = match family {
                    Family::V4 => {
                        let fields = floodwall_wire::Ipv4Fields {
                            fragment_offset: (offset * 8) as u16,
                            more_fragments: more,
                            ..craft::ipv4_fields(IpProtocol::UDP)
                        };
                        craft::ipv4_with_options(fields, b"", &payload)
                    }
                    Family::V6 => {
                        let header = fragment_header(offset as u16, more);
                        ipv6_chain(&[(IpProtocol::FRAGMENT, &header)], IpProtocol::UDP, &payload)
                    }
                };
                let before = rig.stats();
                rig.frame(&from_peer(&packet));
                let counted = if family == Family::V4 { 20 } else { 0 };
                let bad = counted + offset * 8 + len > 65_535 || (more && len % 8 != 0);
                let dropped = drops_between(&before, &rig.stats()).0;
                let malformed = dropped.contains(&(DropReason::FragmentMalformed, 1));
                assert_eq!(malformed, bad, "{family:?} {offset} {len} {more}: {dropped:?}");
                assert!(rig.conservation().holds());
            }
        }
        rig.run_for(Duration::from_secs(61));
        assert_eq!(rig.pool.available(), free);
    }
    // The first fragment's headers count too, though only the whole shows it: CVE-2023-3107.
    let mut rig = full_rig();
    let padding = [0, 0, 1, 4, 0, 0, 0, 0];
    let last = fragment_header(8190, false);
    let packet = ipv6_chain(&[(IpProtocol::FRAGMENT, &last)], IpProtocol::UDP, &[0; 15]);
    rig.lives("it fits by itself", &from_peer(&packet));
    for at in (0..65_520).step_by(1040) {
        let header = fragment_header((at / 8) as u16, true);
        let headers: [(IpProtocol, &[u8]); 2] =
            [(IpProtocol::DESTINATION_OPTIONS, &padding), (IpProtocol::FRAGMENT, &header)];
        rig.frame(&from_peer(&ipv6_chain(&headers, IpProtocol::UDP, &[0; 1040])));
    }
    assert_eq!(rig.stats().drops_in.of(DropReason::FragmentMalformed), 64);
    assert!(rig.conservation().holds());
}

/// Row 50: CVE-2023-4809, CVE-2021-24086: fragment headers within fragment headers, up to as many
/// as a packet holds, do not recurse.
#[test]
fn nested_fragment_headers_end_at_the_second() {
    let mut rig = rig();
    for (offset, more) in [(0, true), (0, false)] {
        let fragment = fragment_header(offset, more);
        for count in 2..=260 {
            let headers: Vec<(IpProtocol, &[u8])> = vec![(IpProtocol::FRAGMENT, &fragment); count];
            let packet = ipv6_chain(&headers, IpProtocol::UDP, b"");
            if packet.len() <= 1500 {
                rig.packet_is_dropped("nested", &packet, DropReason::FragmentMalformed, None);
            }
        }
    }
    // Hidden in a later fragment they are payload, and found when all is together.
    let inner = fragment_header(0, true);
    let payload = [&[0; 8][..], &inner, &[0; 8]].concat();
    let part = |at: u16, more, bytes: &[u8]| {
        let header = fragment_header(at, more);
        let next = IpProtocol::DESTINATION_OPTIONS;
        from_peer(&ipv6_chain(&[(IpProtocol::FRAGMENT, &header)], next, bytes))
    };
    let mut chain = payload;
    chain[..8].copy_from_slice(&[44, 0, 1, 4, 0, 0, 0, 0]);
    let before = rig.stats();
    rig.frame(&part(0, true, &chain));
    assert_eq!(drops_between(&before, &rig.stats()).0, [(DropReason::FragmentMalformed, 1)]);
}

/// Row 50: RFC 6946. A forged atomic fragment of the same name takes nothing away.
#[test]
fn an_atomic_fragment_has_nothing_to_do_with_others_of_its_name() {
    let mut rig = rig();
    let whole = ask(Family::V6, 100);
    rig.lives("first", &from_peer(&fragment(&whole, 9, 0, 64, true)));
    let atomic = rig.lives("atomic", &from_peer(&fragment(&whole, 9, 0, 108, false)));
    assert_eq!((atomic.len(), rig.stats().held), (1, 1));
    drop(atomic);
    let answers = rig.lives("last", &from_peer(&fragment(&whole, 9, 64, 108, false)));
    assert_eq!(Sent::of(&answers[0]).icmp().kind, 129);
}

/// Row 51: CVE-2011-1927, CVE-2014-0100, CVE-2024-26921.
#[test]
fn what_expires_without_a_route_or_an_interface_goes_quietly() {
    for family in FAMILIES {
        for down in [false, true] {
            let mut rig = rig();
            let free = rig.pool.available();
            // From elsewhere no route leads back.
            let from: IpAddr = match (family, down) {
                (_, true) => addr(family, PEER),
                (Family::V4, _) => Ipv4Addr::new(192, 0, 2, 7).into(),
                (Family::V6, _) => "2001:db8::7".parse().expect("an address"),
            };
            let bad = echo(from, addr(family, HOST), &[0; 200]);
            rig.frame(&from_peer(&fragment(&bad, 1, 0, 64, true)));
            assert_eq!(rig.stats().held, 1);
            if down {
                rig.stack.set_up(IfIndex(1), false, rig.now, &mut rig.random);
            }
            let answers: Vec<_> = rig
                .run_for(Duration::from_secs(61))
                .into_iter()
                .filter(|p| bytes_of(p).len() > 100)
                .collect();
            assert!(answers.is_empty(), "{family:?} {down}");
            assert_eq!(rig.stats().drops_in.of(DropReason::FragmentTimeout), 1);
            let reason = if down { DropReason::InterfaceDown } else { DropReason::NoRoute };
            assert_eq!(rig.stats().drops_out.of(reason), 1);
            assert!(rig.conservation().holds());
            assert_eq!(rig.pool.available(), free);
        }
    }
}

/// Row 51: the last fragment comes when the time is over, and the timer has not run.
#[test]
fn a_late_last_fragment_completes_nothing() {
    // Small ones share a frame; large ones follow one another by the short way.
    for (family, len) in FAMILIES.into_iter().flat_map(|family| [(family, 64), (family, 1400)]) {
        let mut rig = rig();
        let whole = ask(family, 2 * len - 8);
        rig.lives("first", &from_peer(&fragment(&whole, 9, 0, len, true)));
        rig.now += match family {
            Family::V4 => limits::REASSEMBLY_TIMEOUT_V4,
            Family::V6 => limits::REASSEMBLY_TIMEOUT_V6,
        };
        let answers = rig.frame(&from_peer(&fragment(&whole, 9, len, 2 * len, false)));
        let kind = Sent::of(&answers[0]).icmp().kind;
        assert_eq!((answers.len(), kind), (1, if family == Family::V4 { 11 } else { 3 }));
        assert_eq!(rig.stats().drops_in.of(DropReason::FragmentTimeout), 1);
        assert_eq!(rig.stats().held, 1, "it begins a datagram of its own");
        assert!(rig.conservation().holds());
    }
}

/// Row 58: the same verdict and the same answer however the fragments are cut into chunks.
#[test]
fn cuts_of_fragments_into_chunks_change_nothing() {
    for family in FAMILIES {
        let parts = fragments(&ask(family, 300), 9, 104);
        let expected: Vec<Vec<u8>> = {
            let mut rig = rig();
            parts
                .iter()
                .flat_map(|part| rig.frame(&from_peer(part)))
                .map(|p| bytes_of(&p))
                .collect()
        };
        let cuts = two_way(100).chain(random(160, 60, 58)).chain([Cut::default()]);
        for cut in cuts {
            let mut rig = rig();
            let free = rig.pool.available();
            let mut answers: Vec<Vec<u8>> = Vec::new();
            for part in &parts {
                let frame = from_peer(part);
                let packet = rig.pool.packet_from_chunks(cut.of(&frame)).expect("room");
                answers.extend(rig.arrive(vec![packet]).iter().map(bytes_of));
            }
            assert_eq!(answers, expected, "{family:?} {cut:?}");
            assert!(rig.conservation().holds());
            assert_eq!(rig.pool.available(), free);
        }
    }
}
