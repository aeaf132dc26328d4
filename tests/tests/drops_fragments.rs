//! Drops of fragments: each is provoked, counted once by its reason, and reported to the sender
//! exactly where an RFC requires it.
//!
//! Reading: RFC 791, RFC 8200 section 4.5, RFC 5722, RFC 7112, RFC 1858, RFC 3128, RFC 6980.

use std::time::Duration;

use floodwall_base::{Counter, DropReason, Family, limits};
use floodwall_ip::ReassemblyConfig;
use floodwall_stack::StackConfig;
use floodwall_tests::craft::{
    self, FAMILIES, HOST, PEER, addr, echo, fragment, fragment_header, fragments, from_peer,
    ipv4_fields, ipv4_with_options, ipv6_chain, udp_to_port, v6,
};
use floodwall_tests::{Owed, Rig, Sent, drops_between, ethernet_config};
use floodwall_wire::{Icmpv6Message, IpProtocol, Ipv4Fields};

const FRAGMENT: IpProtocol = IpProtocol::FRAGMENT;

/// A host that has nothing left to say by itself.
fn rig() -> Rig {
    let mut rig = Rig::with_neighbor(&ethernet_config(HOST), PEER);
    rig.run_for(Duration::from_secs(60));
    rig
}

fn small(bytes: u64, datagrams: usize) -> Rig {
    let reassembly = ReassemblyConfig { bytes, datagrams };
    Rig::with_neighbor(&StackConfig { reassembly, ..ethernet_config(HOST) }, PEER)
}

fn ask(family: Family, len: usize) -> Vec<u8> {
    echo(addr(family, PEER), addr(family, HOST), &vec![b'x'; len])
}

fn dropped(rig: &Rig, reason: DropReason) -> u64 {
    rig.stats().drops_in.of(reason)
}

fn timeout(family: Family) -> Duration {
    match family {
        Family::V4 => limits::REASSEMBLY_TIMEOUT_V4,
        Family::V6 => limits::REASSEMBLY_TIMEOUT_V6,
    }
}

#[test]
fn a_fragment_with_an_impossible_place_is_dropped_and_ipv6_tells_which() {
    let reason = DropReason::FragmentMalformed;
    let parts = [(0, true, 9), (8, true, 7), (8, true, 0), (8, false, 0), (65_528, false, 8)];
    for (offset, more, len) in parts {
        let payload = vec![7; len];
        let what = format!("{offset} {more} {len}");
        let fields = Ipv4Fields {
            fragment_offset: offset,
            more_fragments: more,
            ..ipv4_fields(IpProtocol::UDP)
        };
        let packet = ipv4_with_options(fields, b"", &payload);
        rig().packet_is_dropped(&what, &packet, reason, None);
        let owed = match (len, more) {
            (0, _) => None,
            (_, true) => Some(Owed::problem_v6(0, 4)),
            (_, false) => Some(Owed::problem_v6(0, 42)),
        };
        let header = fragment_header(offset / 8, more);
        let packet = ipv6_chain(&[(FRAGMENT, &header)], IpProtocol::UDP, &payload);
        rig().packet_is_dropped(&what, &packet, reason, owed);
        // It may be of an ICMP error, for all that can be seen; the first one shows what it is.
        if offset > 0 {
            let packet = ipv6_chain(&[(FRAGMENT, &header)], IpProtocol::ICMPV6, &payload);
            rig().packet_is_dropped(&what, &packet, reason, None);
        }
    }
    // Headers before the fragment header count, and move the pointer.
    let padding = [0, 0, 1, 4, 0, 0, 0, 0];
    let header = fragment_header(8191, false);
    let headers: [(IpProtocol, &[u8]); 2] =
        [(IpProtocol::DESTINATION_OPTIONS, &padding), (FRAGMENT, &header)];
    let packet = ipv6_chain(&headers, IpProtocol::UDP, &[0; 7]);
    rig().packet_is_dropped("behind options", &packet, reason, Some(Owed::problem_v6(0, 50)));
}

#[test]
fn a_broken_option_in_a_fragment_is_told_of_in_the_first_alone() {
    for (offset, owed) in [(0, Some(Owed::problem_v4(0, 20))), (8, None)] {
        let fields = Ipv4Fields {
            fragment_offset: offset,
            more_fragments: true,
            ..ipv4_fields(IpProtocol::UDP)
        };
        let packet = ipv4_with_options(fields, &[130, 0, 0, 0], &[0; 16]);
        rig().packet_is_dropped("130", &packet, DropReason::IpOptionMalformed, owed);
        let packet = ipv4_with_options(fields, &[131, 7, 4, 10, 0, 0, 9], &[0; 16]);
        rig().packet_is_dropped("131", &packet, DropReason::IpSourceRoute, None);
    }
}

/// RFC 1858, RFC 3128, RFC 7112.
#[test]
fn a_first_fragment_without_its_whole_upper_header_is_dropped() {
    let reason = DropReason::FragmentTiny;
    let whole = udp_to_port(Family::V4, 9, &[0; 64]);
    let tcp =
        craft::ip(addr(Family::V4, PEER), addr(Family::V4, HOST), IpProtocol::TCP, &whole[20..]);
    rig().packet_is_dropped("TCP", &fragment(&tcp, 1, 0, 16, true), reason, None);
    rig().packet_is_dropped("its flags", &fragment(&tcp, 1, 8, 72, false), reason, None);
    let tcp =
        craft::ip(addr(Family::V6, PEER), addr(Family::V6, HOST), IpProtocol::TCP, &whole[20..]);
    let owed = Some(Owed::problem_v6(3, 0));
    rig().packet_is_dropped("TCP", &fragment(&tcp, 1, 0, 16, true), reason, owed);
    // The chain itself goes on in the next fragment.
    let header = fragment_header(0, true);
    let options = [17, 1, 1, 12, 0, 0, 0, 0];
    let packet = ipv6_chain(&[(FRAGMENT, &header)], IpProtocol::DESTINATION_OPTIONS, &options);
    rig().packet_is_dropped("a chain", &packet, DropReason::ExtensionMalformed, owed);
}

#[test]
fn an_exact_duplicate_is_dropped_alone() {
    for family in FAMILIES {
        let mut rig = rig();
        let parts = fragments(&ask(family, 100), 5, 40);
        rig.lives("first", &from_peer(&parts[0]));
        rig.frame(&from_peer(&parts[0]));
        rig.lives("last", &from_peer(&parts[2]));
        rig.frame(&from_peer(&parts[2]));
        assert_eq!(dropped(&rig, DropReason::FragmentDuplicate), 2);
        assert_eq!(rig.stats().held, 2);
        assert_eq!(rig.lives("middle", &from_peer(&parts[1])).len(), 1);
        assert!(rig.conservation().holds());
    }
}

#[test]
fn an_overlap_ends_an_ipv6_datagram_and_leaves_an_ipv4_one_its_first_bytes() {
    for family in FAMILIES {
        let mut rig = rig();
        let whole = ask(family, 100);
        let mut other = whole.clone();
        let at = other.len() - 60;
        other[at..].fill(b'y');
        rig.frame(&from_peer(&fragment(&whole, 5, 0, 64, true)));
        let answers = rig.frame(&from_peer(&fragment(&other, 5, 40, 108, false)));
        let overlap = dropped(&rig, DropReason::FragmentOverlap);
        if family == Family::V4 {
            assert_eq!((overlap, answers.len()), (0, 0), "another checksum: it was put together");
            assert_eq!(dropped(&rig, DropReason::IcmpChecksum), 1);
        } else {
            assert_eq!((overlap, answers.len()), (2, 0));
            // What had not yet arrived of it goes too, though it would fit (RFC 5722 section 4).
            rig.frame(&from_peer(&fragment(&whole, 5, 64, 108, false)));
            assert_eq!(dropped(&rig, DropReason::FragmentOverlap), 3);
        }
        assert_eq!(rig.stats().held, 0);
        assert!(rig.conservation().holds());
    }
}

#[test]
fn fragments_that_disagree_about_the_end_do_not_come_together() {
    for family in FAMILIES {
        for (first, second) in
            [((40, 80, false), (80, 108, false)), ((80, 108, false), (40, 80, false))]
        {
            let mut rig = rig();
            let whole = ask(family, 100);
            let part = |(from, to, more)| from_peer(&fragment(&whole, 5, from, to, more));
            rig.lives("one", &part(first));
            rig.frame(&part(second));
            let all = if family == Family::V6 { 2 } else { 1 };
            assert_eq!(dropped(&rig, DropReason::FragmentOverlap), all);
            assert!(rig.conservation().holds());
        }
    }
}

#[test]
fn a_datagram_in_more_fragments_than_allowed_is_dropped() {
    // The shorter ones share frames, of the others each has its own.
    for (family, len) in FAMILIES.into_iter().flat_map(|family| [(family, 8), (family, 104)]) {
        let mut rig = rig();
        let free = rig.pool.available();
        let parts = fragments(&ask(family, len * 200), 5, len);
        for part in &parts[1..=limits::REASSEMBLY_FRAGMENTS_MAX] {
            rig.lives("one of many", &from_peer(part));
        }
        rig.frame(&from_peer(&parts[limits::REASSEMBLY_FRAGMENTS_MAX + 1]));
        let all = limits::REASSEMBLY_FRAGMENTS_MAX as u64 + 1;
        assert_eq!(dropped(&rig, DropReason::FragmentTooMany), all);
        assert_eq!(rig.pool.available(), free, "it is not held any longer");
        // The same for runs: every other fragment.
        for part in parts[1..].iter().step_by(2).take(limits::REASSEMBLY_RUNS_MAX + 1) {
            let mut part = part.clone();
            let id_at = if family == Family::V4 { 5 } else { 47 };
            part[id_at] = 6;
            if family == Family::V4 {
                part[10..12].fill(0);
                let check = floodwall_checksum::sum(&part[..20]).finish();
                part[10..12].copy_from_slice(&check.to_be_bytes());
            }
            rig.frame(&from_peer(&part));
        }
        let all = all + limits::REASSEMBLY_RUNS_MAX as u64 + 1;
        assert_eq!(dropped(&rig, DropReason::FragmentTooMany), all);
        assert!(rig.conservation().holds());
    }
}

#[test]
fn what_is_not_completed_in_time_is_dropped_and_is_told_where_the_first_is_there() {
    for family in FAMILIES {
        let (kind, timeouts) = match family {
            Family::V4 => (11, Counter::IpReasmTimeout),
            Family::V6 => (3, Counter::Ip6ReasmTimeout),
        };
        for (parts, told) in [(vec![0, 1], 1), (vec![1, 2], 0), (vec![0], 1)] {
            let mut rig = rig();
            let free = rig.pool.available();
            let all = fragments(&ask_udp(family), 5, 400);
            parts.iter().for_each(|n| drop(rig.lives("a part", &from_peer(&all[*n]))));
            let nearly = timeout(family) - Duration::from_millis(5);
            assert!(rig.run_for(nearly).is_empty());
            assert_eq!(rig.stats().held, parts.len() as u64);
            let answers = rig.run_for(Duration::from_millis(10));
            assert_eq!(dropped(&rig, DropReason::FragmentTimeout), parts.len() as u64);
            assert_eq!(rig.stats().counters.of(timeouts), 1);
            assert_eq!(answers.len(), told, "{family:?} {parts:?}");
            if let Some(answer) = answers.first() {
                let icmp = Sent::of(answer).icmp();
                assert_eq!((icmp.kind, icmp.code, icmp.word), (kind, 1, 0));
                let quoted = &all[0][..all[0].len().min(icmp.body.len())];
                assert_eq!(icmp.body, quoted, "the first fragment as it came");
            }
            drop(answers);
            assert_eq!(rig.pool.available(), free);
            assert!(rig.conservation().holds());
        }
    }
}

fn ask_udp(family: Family) -> Vec<u8> {
    udp_to_port(family, 9, &[5; 1000])
}

#[test]
fn no_error_is_sent_about_a_datagram_to_a_group_or_about_an_error() {
    let group = "ff02::1".parse().unwrap();
    let header = fragment_header(0, true);
    let to_group = craft::ipv6_chain_to(group, &[(FRAGMENT, &header)], IpProtocol::UDP, &[0; 64]);
    let error = Icmpv6Message::DestinationUnreachable {
        code: floodwall_wire::icmpv6::UnreachableCode::PORT,
    };
    let about = craft::icmpv6(v6(PEER), v6(HOST), error, &[0; 64]);
    for packet in [to_group, fragment(&about, 1, 0, 64, true)] {
        let mut rig = rig();
        rig.lives("first", &from_peer(&packet));
        assert!(rig.run_for(Duration::from_secs(61)).is_empty());
        assert_eq!(dropped(&rig, DropReason::FragmentTimeout), 1);
    }
}

#[test]
fn a_source_over_its_share_loses_its_own_oldest_datagram() {
    for family in FAMILIES {
        let mut rig = small(1 << 20, 32);
        // A source has eight for certain, and half of all while the rest is free.
        for id in 0..17 {
            rig.frame(&from_peer(&fragment(&ask(family, 100), id, 0, 64, true)));
        }
        assert_eq!(dropped(&rig, DropReason::FragmentSourceFull), 1);
        // The oldest is gone, the others are not.
        let last = |id| from_peer(&fragment(&ask(family, 100), id, 64, 108, false));
        assert_eq!(rig.frame(&last(1)).len(), 1);
        assert_eq!(rig.frame(&last(0)).len(), 0);
        assert!(rig.conservation().holds());
    }
}

#[test]
fn a_full_store_loses_the_datagram_that_waits_longest() {
    for family in FAMILIES {
        let mut rig = small(1 << 20, 4);
        for id in 0..5 {
            rig.frame(&from_peer(&fragment(&ask(family, 100), id, 0, 64, true)));
        }
        assert_eq!(dropped(&rig, DropReason::FragmentStoreFull), 1);
        assert_eq!(rig.stats().held, 4);
        // Where not even an empty store has room, the newcomer goes.
        let mut rig = small(300, 4);
        rig.frame(&from_peer(&fragment(&ask(family, 100), 1, 0, 64, true)));
        assert_eq!((dropped(&rig, DropReason::FragmentStoreFull), rig.stats().held), (1, 0));
        assert!(rig.conservation().holds());
    }
}

/// RFC 6980 section 5.
#[test]
fn neighbour_discovery_in_fragments_is_dropped_once_it_is_put_together() {
    let mut rig = rig();
    let solicit = craft::icmpv6(
        v6(PEER),
        v6(HOST),
        Icmpv6Message::EchoRequest { id: 0, seq: 0 },
        &[&v6(HOST).octets()[..], &[1, 1, 2, 0, 0, 0, 0, PEER]].concat(),
    );
    let mut message = solicit;
    message[40..48].copy_from_slice(&[135, 0, 0, 0, 0, 0, 0, 0]);
    let (from, to) = (addr(Family::V6, PEER), addr(Family::V6, HOST));
    let pseudo = craft::pseudo(from, to, IpProtocol::ICMPV6, message.len() - 40);
    let check = pseudo.add(floodwall_checksum::sum(&message[40..])).finish();
    message[42..44].copy_from_slice(&check.to_be_bytes());
    let before = rig.stats();
    for part in fragments(&message, 3, 16) {
        assert!(rig.frame(&from_peer(&part)).is_empty(), "no advertisement");
    }
    assert_eq!(drops_between(&before, &rig.stats()).0, [(DropReason::NdpMalformed, 1)]);
    let whole = rig.frame(&from_peer(&message));
    assert_eq!(whole.len(), 1, "in one piece it is answered");
}
