//! IGMP and MLD: what is written is read back, malformed messages are refused, any bytes end.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use floodwall_checksum::sum;
use floodwall_wire::group::{GroupAddrs, GroupRecords, RecordKind, ReportWriter};
use floodwall_wire::*;
use proptest::prelude::*;

/// An address of either family out of a number.
fn addr<A: GroupProtocol>(n: u128) -> A {
    A::from_bits_aligned(n.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

fn no_addrs<A: GroupProtocol>() -> GroupAddrs<A> {
    GroupAddrs { src_addr: A::UNSPECIFIED, dst_addr: A::UNSPECIFIED }
}

/// Whether the checksum of a message is right.
fn verifies<A: GroupProtocol>(message: &[u8]) -> bool {
    sum(message).add(A::pseudo(no_addrs(), message.len())).verifies()
}

fn addrs<A: GroupProtocol>(count: usize) -> Vec<A> {
    (1..=count as u128).map(addr).collect()
}

fn query_comes_back<A: GroupProtocol>(generation: Generation, sources: usize) {
    let sources = if generation == Generation::Third { addrs::<A>(sources) } else { Vec::new() };
    let fields = QueryFields {
        generation,
        group: addr::<A>(77),
        suppress: generation == Generation::Third,
        sources: &sources,
        ..QueryFields::general()
    };
    let mut out = [0; 2000];
    let len = A::emit_query(&fields, no_addrs(), &mut out).unwrap();
    assert!(verifies::<A>(&out[..len]));
    let GroupMessage::Query(query) = A::parse(&out[..len]).unwrap() else { panic!("a query") };
    assert_eq!((query.generation, query.group), (generation, fields.group));
    assert_eq!(query.max_response, Duration::from_secs(10));
    assert_eq!(query.suppress, fields.suppress);
    if generation == Generation::Third {
        // 125 is below the floating form; 2 is the default.
        assert_eq!((query.robustness, query.interval.as_secs()), (2, 125));
    }
    assert_eq!(query.sources.iter().collect::<Vec<_>>(), sources);
    // Cut anywhere it is another query or none, and never more sources than there are bytes for.
    for cut in 0..len {
        match A::parse(&out[..cut]) {
            Ok(GroupMessage::Query(query)) => {
                assert!(query.sources.is_empty() && query.generation < generation, "{cut}");
            }
            Ok(other) => panic!("{cut}: {other:?}"),
            Err(_) => {}
        }
    }
}

#[test]
fn queries_of_every_version_come_back_as_they_were() {
    for sources in [0, 1, 2, 60] {
        query_comes_back::<Ipv4Addr>(Generation::Third, sources);
        query_comes_back::<Ipv6Addr>(Generation::Third, sources);
    }
    query_comes_back::<Ipv4Addr>(Generation::First, 0);
    query_comes_back::<Ipv4Addr>(Generation::Second, 0);
    query_comes_back::<Ipv6Addr>(Generation::Second, 0);
}

fn report_comes_back<A: GroupProtocol>() {
    let mut out = [0; 2000];
    let mut writer = ReportWriter::<A>::new(&mut out).unwrap();
    let kinds = [1, 2, 3, 4, 5, 6, 200].map(RecordKind);
    for (n, kind) in kinds.into_iter().enumerate() {
        assert!(writer.record(kind, addr(n as u128), addrs(n).into_iter()));
    }
    let len = writer.finish(no_addrs());
    assert!(verifies::<A>(&out[..len]));
    let GroupMessage::Records(records) = A::parse(&out[..len]).unwrap() else { panic!() };
    assert_eq!(records.announced(), 7);
    for (n, record) in records.enumerate() {
        let record = record.unwrap();
        assert_eq!((record.kind, record.group), (kinds[n], addr(n as u128)));
        assert_eq!(record.sources.iter().collect::<Vec<_>>(), addrs::<A>(n));
    }
    // Cut anywhere: the records that are whole, then one refusal, then nothing.
    for cut in 8..len {
        let GroupMessage::Records(records) = A::parse(&out[..cut]).unwrap() else { panic!() };
        let found: Vec<_> = records.collect();
        let (last, whole) = found.split_last().unwrap();
        assert_eq!(last.unwrap_err(), GroupMessageError::Records, "{cut}");
        assert!(whole.iter().all(Result::is_ok) && whole.len() < 7);
    }
    (0..8).for_each(|cut| assert!(A::parse(&out[..cut]).is_err(), "{cut}"));
}

#[test]
fn reports_come_back_as_they_were_and_are_refused_where_they_are_cut() {
    report_comes_back::<Ipv4Addr>();
    report_comes_back::<Ipv6Addr>();
}

fn old_messages_come_back<A: GroupProtocol>(generations: &[Generation]) {
    let mut out = [0; 64];
    for &generation in generations {
        let len = A::emit_report(generation, addr(3), no_addrs(), &mut out).unwrap();
        assert!(verifies::<A>(&out[..len]));
        let message = A::parse(&out[..len]).unwrap();
        let GroupMessage::Report { generation: found, group } = message else { panic!() };
        assert_eq!((found, group), (generation, addr(3)));
        (0..len).for_each(|cut| assert!(A::parse(&out[..cut]).is_err(), "{cut}"));
    }
    let len = A::emit_leave(addr(4), no_addrs(), &mut out).unwrap();
    let GroupMessage::Leave { group } = A::parse(&out[..len]).unwrap() else { panic!() };
    assert_eq!(group, addr(4));
    assert!(A::emit_leave(addr(4), no_addrs(), &mut out[..len - 1]).is_err());
}

#[test]
fn messages_of_older_versions_come_back_as_they_were() {
    old_messages_come_back::<Ipv4Addr>(&[Generation::First, Generation::Second]);
    old_messages_come_back::<Ipv6Addr>(&[Generation::Second]);
}

/// A record's auxiliary data is skipped (RFC 9776 section 4.2.11), and its length may be wrong too.
#[test]
fn auxiliary_data_is_skipped_and_may_not_reach_past_the_end() {
    let mut bytes = vec![0x22, 0, 0, 0, 0, 0, 0, 2];
    bytes.extend([1, 1, 0, 0, 239, 1, 1, 1, 9, 9, 9, 9]);
    bytes.extend([2, 255, 0, 0, 239, 1, 1, 2]);
    let GroupMessage::Records(records) = Ipv4Addr::parse(&bytes).unwrap() else { panic!() };
    let found: Vec<_> = records.collect();
    assert_eq!(found.len(), 2);
    assert!(found[0].is_ok() && found[1].is_err());
}

/// CVE-2019-5608 read records beyond the message; counts here are not trusted.
#[test]
fn a_report_that_announces_65535_records_costs_what_its_bytes_hold() {
    let mut bytes = vec![143, 0, 0, 0, 0, 0, 0xff, 0xff];
    bytes.extend([4, 0, 0, 0]);
    bytes.extend(Ipv6Addr::LOCALHOST.octets());
    let GroupMessage::Records(records) = Ipv6Addr::parse(&bytes).unwrap() else { panic!() };
    assert_eq!(records.count(), 2);
    // The same of sources.
    let mut query = vec![130; 28];
    query[26..28].fill(0xff);
    assert_eq!(Ipv6Addr::parse(&query).unwrap_err(), GroupMessageError::Sources);
}

#[test]
fn queries_of_impossible_lengths_are_refused() {
    for len in (9..12).chain(0..8) {
        let mut bytes = vec![0; len];
        bytes.iter_mut().take(1).for_each(|b| *b = 0x11);
        assert!(Ipv4Addr::parse(&bytes).is_err(), "{len}");
    }
    for len in (25..28).chain(0..24) {
        let mut bytes = vec![0; len];
        bytes.iter_mut().take(1).for_each(|b| *b = 130);
        assert!(Ipv6Addr::parse(&bytes).is_err(), "{len}");
    }
}

fn ip(payload: &[u8], protocol: IpProtocol) -> Vec<u8> {
    if protocol == IpProtocol::IGMP {
        let mut out = [0; 20];
        let total = 20 + payload.len() as u16;
        let to = Ipv4Addr::ALL_REPORT_ROUTERS;
        Ipv4Fields::new([192, 0, 2, 1].into(), to, protocol, 1, total).emit(&mut out);
        return [&out, payload].concat();
    }
    let mut out = [0; 40];
    let to = Ipv6Addr::ALL_REPORT_ROUTERS;
    let from = "fe80::1".parse().unwrap();
    Ipv6Fields::new(from, to, protocol, 1, payload.len() as u16).emit(&mut out);
    [&out, payload].concat()
}

#[test]
fn membership_reads_like_a_sentence() {
    let mut out = [0; 100];
    let group: Ipv4Addr = [239, 1, 2, 3].into();
    let mut writer = ReportWriter::new(&mut out).unwrap();
    writer.record(RecordKind::TO_EXCLUDE, group, [].into_iter());
    writer.record(RecordKind::ALLOW_NEW, group, [Ipv4Addr::new(10, 0, 0, 1)].into_iter());
    let len = writer.finish(no_addrs());
    assert_eq!(
        show::Packet(&ip(&out[..len], IpProtocol::IGMP)).to_string(),
        "IPv4 192.0.2.1 > 224.0.0.22 ttl 1 IGMP report v3 to_ex 239.1.2.3 \
         allow 239.1.2.3 from 10.0.0.1"
    );
    let len = Ipv4Addr::emit_leave(group, no_addrs(), &mut out).unwrap();
    let line = show::Packet(&ip(&out[..len], IpProtocol::IGMP)).to_string();
    assert!(line.ends_with("IGMP leave 239.1.2.3"), "{line}");
    let fields = QueryFields { group, generation: Generation::Second, ..QueryFields::general() };
    let len = Ipv4Addr::emit_query(&fields, no_addrs(), &mut out).unwrap();
    let line = show::Packet(&ip(&out[..len], IpProtocol::IGMP)).to_string();
    assert!(line.ends_with("IGMP query v2 239.1.2.3 within 10s"), "{line}");
    let len = Ipv6Addr::emit_query(&QueryFields::general(), no_addrs(), &mut out).unwrap();
    let line = show::Packet(&ip(&out[..len], IpProtocol::ICMPV6)).to_string();
    assert!(line.ends_with("ICMPv6 query v2 within 10s"), "{line}");
    let (second, group) = (Generation::Second, "ff05::7".parse().unwrap());
    let len = Ipv6Addr::emit_report(second, group, no_addrs(), &mut out).unwrap();
    let line = show::Packet(&ip(&out[..len], IpProtocol::ICMPV6)).to_string();
    assert!(line.ends_with("ICMPv6 report v1 ff05::7"), "{line}");
    let line = show::Packet(&ip(&out[..len - 1], IpProtocol::ICMPV6)).to_string();
    assert!(line.ends_with("[the membership message is cut short]"), "{line}");
}

/// Walks over the whole message, and writes the records again.
fn walk<A: GroupProtocol>(bytes: &[u8]) -> Result<(), TestCaseError> {
    match A::parse(bytes) {
        Ok(GroupMessage::Query(query)) => {
            prop_assert!(query.sources.iter().count() * A::WIDTH <= bytes.len());
        }
        Ok(GroupMessage::Records(records)) => rewrite(records, bytes.len())?,
        Ok(_) | Err(_) => {}
    }
    Ok(())
}

fn rewrite<A: GroupProtocol>(
    records: GroupRecords<'_, A>,
    len: usize,
) -> Result<(), TestCaseError> {
    prop_assert!(records.count() <= 1 + len / (4 + A::WIDTH));
    let mut out = vec![0; len];
    let mut writer = ReportWriter::<A>::new(&mut out).unwrap();
    for record in records.flatten() {
        // Without auxiliary data it is never longer.
        prop_assert!(writer.record(record.kind, record.group, record.sources.iter()));
    }
    let written = writer.records();
    let len = writer.finish(no_addrs());
    let Ok(GroupMessage::Records(again)) = A::parse(&out[..len]) else {
        return Err(TestCaseError::fail("records become records"));
    };
    prop_assert_eq!(again.flatten().count(), usize::from(written));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn any_bytes_end(
        kind in prop::sample::select(vec![0x11_u8, 0x12, 0x16, 0x17, 0x22, 130, 131, 132, 143]),
        mut bytes in prop::collection::vec(prop_oneof![0..3_u8, any::<u8>()], 0..120),
    ) {
        if let Some(first) = bytes.first_mut() {
            *first = kind;
        }
        walk::<Ipv4Addr>(&bytes)?;
        walk::<Ipv6Addr>(&bytes)?;
        for protocol in [IpProtocol::IGMP, IpProtocol::ICMPV6] {
            let line = show::Packet(&ip(&bytes, protocol)).to_string();
            prop_assert!(!line.contains('\n'));
        }
    }
}
