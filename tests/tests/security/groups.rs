//! Row 45: IGMP and MLD, malformed, split, forged, and in floods.
//!
//! CVE-2007-0069 (lists longer than their message), CVE-2019-12259 and 12265 (IGMPv3 in pieces),
//! CVE-2019-5608 (MLDv2 beyond its message), smoltcp's panic on a maximum response of zero.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use floodwall_base::{DropReason, Family, IfIndex};
use floodwall_tests::craft::{HOST, PEER, from_peer, group_packet};
use floodwall_tests::{Rig, drops_between, ethernet_config};
use floodwall_udp::SocketSettings;
use floodwall_wire::group::{GroupAddrs, QueryFields, RecordKind, ReportWriter};
use floodwall_wire::{Generation, GroupProtocol};

/// What the families differ in here.
trait Side: GroupProtocol {
    const FAMILY_OF: Family;
    fn router() -> Self;
    fn group() -> Self;
}

impl Side for Ipv4Addr {
    const FAMILY_OF: Family = Family::V4;
    fn router() -> Self {
        Self::new(10, 0, 0, PEER)
    }
    fn group() -> Self {
        Self::new(239, 1, 2, 3)
    }
}

impl Side for Ipv6Addr {
    const FAMILY_OF: Family = Family::V6;
    fn router() -> Self {
        Self::new(0xfe80, 0, 0, 0, 0, 0, 0, 2)
    }
    fn group() -> Self {
        Self::new(0xff05, 0, 0, 0, 0, 0, 0, 3)
    }
}

/// A host that has joined a group and reported it.
fn rig<A: Side>() -> Rig {
    let mut rig = Rig::with_neighbor(&ethernet_config(HOST), PEER);
    let any: IpAddr = match A::FAMILY_OF {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    let settings = SocketSettings::new(A::FAMILY_OF);
    let id = rig.sockets(|s| s.udp_bind((any, 5).into(), settings)).0.unwrap();
    rig.sockets(|s| s.udp_join(id, A::group().to_ip(), IfIndex(1))).0.unwrap();
    rig.run_for(Duration::from_secs(60));
    rig
}

fn query<A: Side>(fields: &QueryFields<'_, A>) -> Vec<u8> {
    let mut out = [0; 1400];
    let ends = GroupAddrs { src_addr: A::router(), dst_addr: A::ALL_SYSTEMS };
    let len = A::emit_query(fields, ends, &mut out).unwrap();
    out[..len].to_vec()
}

fn packet<A: Side>(message: &[u8]) -> Vec<u8> {
    group_packet(A::router().to_ip(), A::ALL_SYSTEMS.to_ip(), message)
}

/// The checksum made right again.
fn sealed<A: Side>(mut message: Vec<u8>) -> Vec<u8> {
    if message.len() >= 4 {
        message[2..4].fill(0);
        let ends = GroupAddrs { src_addr: A::router(), dst_addr: A::ALL_SYSTEMS };
        let sum = floodwall_checksum::sum(&message).add(A::pseudo(ends, message.len()));
        let check = sum.finish().to_be_bytes();
        message[2..4].copy_from_slice(&check);
    }
    message
}

fn messages<A: Side>() -> Vec<Vec<u8>> {
    let sources = [A::router(), A::group()];
    let about = QueryFields { group: A::group(), sources: &sources, ..QueryFields::general() };
    let old = QueryFields::<A> { generation: Generation::Second, ..QueryFields::general() };
    let mut out = [0; 400];
    let ends = GroupAddrs { src_addr: A::router(), dst_addr: A::ALL_SYSTEMS };
    let mut writer = ReportWriter::new(&mut out).unwrap();
    for kind in [RecordKind::IS_EXCLUDE, RecordKind::ALLOW_NEW, RecordKind(77)] {
        writer.record(kind, A::group(), sources.into_iter());
    }
    let len = writer.finish(ends);
    let report = out[..len].to_vec();
    let len = A::emit_report(Generation::Second, A::group(), ends, &mut out).unwrap();
    let old_report = out[..len].to_vec();
    let len = A::emit_leave(A::group(), ends, &mut out).unwrap();
    vec![
        query::<A>(&QueryFields::general()),
        query(&about),
        query(&old),
        report,
        old_report,
        out[..len].to_vec(),
    ]
}

/// The outcome of a packet: drops by reason, and what was sent within a minute.
fn outcome<A: Side>(frame: &[u8], at: Option<usize>) -> (Vec<(DropReason, u64)>, usize) {
    let mut rig = rig::<A>();
    let before = rig.stats();
    let pieces: Vec<&[u8]> = match at {
        Some(at) => vec![&frame[..at], &frame[at..]],
        None => vec![frame],
    };
    let packet = rig.pool.packet_from_chunks(pieces).unwrap();
    let mut sent = rig.arrive(vec![packet]).len();
    sent += rig.run_for(Duration::from_secs(60)).len();
    assert!(rig.conservation().holds());
    (drops_between(&before, &rig.stats()).0, sent)
}

fn every_cut<A: Side>() {
    for message in messages::<A>() {
        for cut in 0..message.len() {
            let short = sealed::<A>(message[..cut].to_vec());
            let (lost, sent) = outcome::<A>(&from_peer(&packet::<A>(&short)), None);
            // A query cut to an older one's length is that one; any other short one is dropped.
            let old = lost.is_empty() && sent > 0 && (cut == 8 || cut == 24);
            assert!(old || lost.len() == 1 && sent == 0, "{cut}: {lost:?}, {sent} sent");
        }
    }
}

#[test]
fn a_membership_message_cut_anywhere_is_dropped_or_is_an_older_one() {
    every_cut::<Ipv4Addr>();
    every_cut::<Ipv6Addr>();
}

fn every_split<A: Side>() {
    for message in messages::<A>() {
        let frame = from_peer(&packet::<A>(&message));
        let whole = outcome::<A>(&frame, None);
        for at in 1..frame.len() {
            assert_eq!(outcome::<A>(&frame, Some(at)), whole, "split at {at}");
        }
    }
}

#[test]
fn a_membership_message_split_anywhere_has_the_same_fate() {
    every_split::<Ipv4Addr>();
    every_split::<Ipv6Addr>();
}

fn lies<A: Side>() {
    let die = |what: &str, message: Vec<u8>, reason| {
        rig::<A>().packet_is_dropped(what, &packet::<A>(&message), reason, None);
    };
    // More sources than there are, and records.
    let malformed = DropReason::GroupMessageMalformed;
    let mut message = query::<A>(&QueryFields::general());
    let count = message.len() - 2;
    message[count..].fill(0xff);
    die("sources", sealed::<A>(message), malformed);
    // A bit of the checksum, or of anything else.
    let checksum = match A::FAMILY_OF {
        Family::V4 => DropReason::IgmpChecksum,
        Family::V6 => DropReason::IcmpChecksum,
    };
    for at in 1..count {
        let mut message = query::<A>(&QueryFields::general());
        message[at] ^= 0x10;
        die("a bit", message, checksum);
    }
    // From afar, or without router alert.
    let good = packet::<A>(&query::<A>(&QueryFields::general()));
    let invalid = DropReason::GroupMessageInvalid;
    for hop_limit in [0, 2, 64, 255] {
        let mut far = good.clone();
        match A::FAMILY_OF {
            Family::V4 => {
                far[8] = hop_limit;
                far[10..12].fill(0);
                let check = floodwall_checksum::sum(&far[..24]).finish();
                far[10..12].copy_from_slice(&check.to_be_bytes());
            }
            Family::V6 => far[7] = hop_limit,
        }
        rig::<A>().packet_is_dropped("from afar", &far, invalid, None);
    }
    let (from, to) = (A::router().to_ip(), A::ALL_SYSTEMS.to_ip());
    let protocol = floodwall_tests::craft::icmp_of(A::FAMILY_OF);
    let protocol = match A::FAMILY_OF {
        Family::V4 => floodwall_wire::IpProtocol::IGMP,
        Family::V6 => protocol,
    };
    let mut bare =
        floodwall_tests::craft::ip(from, to, protocol, &query::<A>(&QueryFields::general()));
    match A::FAMILY_OF {
        Family::V4 => {
            bare[8] = 1;
            bare[10..12].fill(0);
            let check = floodwall_checksum::sum(&bare[..20]).finish();
            bare[10..12].copy_from_slice(&check.to_be_bytes());
        }
        Family::V6 => bare[7] = 1,
    }
    rig::<A>().packet_is_dropped("no router alert", &bare, invalid, None);
    // Reports are for routers.
    let others = DropReason::GroupMessageNotForUs;
    die("a report", messages::<A>()[3].clone(), others);
    die("a leave", messages::<A>()[5].clone(), others);
}

#[test]
fn malformed_membership_messages_are_dropped_by_reason() {
    lies::<Ipv4Addr>();
    lies::<Ipv6Addr>();
}

fn flood<A: Side>() {
    for generation in [Generation::Second, Generation::Third] {
        let mut rig = rig::<A>();
        let free = rig.pool.available();
        let fields =
            QueryFields { generation, max_response: Duration::ZERO, ..QueryFields::general() };
        let frame = from_peer(&packet::<A>(&query::<A>(&fields)));
        let mut sent = 0;
        for _ in 0..20_000 {
            sent += rig.frame(&frame).len();
            sent += rig.run_for(Duration::from_micros(50)).len();
        }
        // One second of flood: a hundred messages of this family, and few of the other's timers.
        assert!((1..=105).contains(&sent), "{generation:?}: {sent}");
        assert!(rig.conservation().holds());
        assert_eq!(rig.pool.available(), free, "memory");
        let more = rig.run_for(Duration::from_secs(60)).len();
        assert!(more <= 3, "nothing is piled up: {more}");
    }
}

#[test]
fn a_flood_of_queries_that_want_an_answer_at_once_is_answered_at_a_walk() {
    flood::<Ipv4Addr>();
    flood::<Ipv6Addr>();
}
