//! Staged incidents: counters as they move in each, and what is to be said.

use std::net::SocketAddr;

use floodwall_dispatch::{FloodKind, WorkerCounter};

use super::*;
use crate::listeners::{ListenerSettings, UdpReport};
use crate::report::{DeviceReport, DropReport, FloodReport, RunReport, SampleReport};

const SECOND: u64 = 1_000_000_000;

fn at(port: u16) -> SocketAddr {
    SocketAddr::new("::".parse().unwrap(), port)
}

/// An instance with an HTTP listener and a UDP service that does a little honest work.
fn base() -> RunReport {
    let listener = ListenerSettings {
        local: at(80),
        backlog: 100,
        half_open: 0,
        waiting: 1,
        cache_hits: 10,
        cookies_sent: 0,
        cookies_valid: 0,
        refused: 0,
        cookie_only: 0,
    };
    let device = DeviceReport { ifname: "fw0".to_owned(), ..DeviceReport::default() };
    RunReport {
        uptime_ns: SECOND,
        listeners: vec![listener],
        udp_sockets: vec![UdpReport::quiet(at(7001))],
        devices: vec![device],
        ..RunReport::default()
    }
}

/// Two seconds later, with some honest traffic.
fn later() -> RunReport {
    let mut after = RunReport { uptime_ns: 3 * SECOND, ..base() };
    add(&mut after, &[("IpInReceives", 4000), ("TcpPassiveOpens", 100), ("TcpOutSegs", 4000)]);
    after
}

fn add(report: &mut RunReport, counters: &[(&str, u64)]) {
    for (name, n) in counters {
        report.counters.insert((*name).to_owned(), *n);
    }
}

fn drops(report: &mut RunReport, reason: &str, count: u64) {
    let known = floodwall_base::DropReason::ALL.iter().any(|known| known.name() == reason);
    assert!(known, "{reason} is no drop reason");
    let (direction, reason) = ("in".to_owned(), reason.to_owned());
    report.drops.push(DropReport { direction, reason, count, sentence: String::new() });
}

fn explained(after: &RunReport) -> Vec<Explanation> {
    findings(&ReportDifference::new(&base(), after).unwrap())
}

/// What the first finding is, and that it has evidence.
fn first(after: &RunReport) -> (TroubleKind, String, String) {
    let all = explained(after);
    assert!(all.iter().all(|f| !f.evidence.is_empty() && !f.sentence.is_empty()), "{all:?}");
    let first = all.into_iter().next().expect("a finding");
    (first.kind, first.name, first.place)
}

fn is(after: &RunReport, kind: TroubleKind, name: &str, place: &str) {
    assert_eq!(first(after), (kind, name.to_owned(), place.to_owned()));
}

#[test]
fn at_rest_and_under_honest_load_nothing_is_claimed() {
    let still = RunReport { uptime_ns: 3 * SECOND, ..base() };
    assert_eq!(explained(&still), []);
    assert_eq!(explained(&later()), []);
    assert_eq!(verdict(&[]), "fine: nothing is wrong");
    // A few mistakes of honest peers are no attack.
    let mut after = later();
    drops(&mut after, "UdpNoPort", 20);
    drops(&mut after, "TcpNoConnection", 20);
    drops(&mut after, "IpHeaderChecksum", 3);
    add(&mut after, &[("TcpRetransSegs", 4), ("TcpExtSyncookiesSent", 10)]);
    assert_eq!(explained(&after), []);
    // As many connections opened as cookies sent: a busy service behind a full cache.
    let mut after = later();
    add(&mut after, &[("TcpExtSyncookiesSent", 4000), ("TcpPassiveOpens", 4000)]);
    assert_eq!(explained(&after), []);
}

#[test]
fn the_rules_name_device_counts_that_exist() {
    let counts = floodwall_device::DeviceStats::default().named();
    let by_kind = FloodKind::ALL.into_iter().flat_map(FloodKind::device_counts).copied();
    for name in ["rx_ring_full", "rx_no_buffer"].into_iter().chain(by_kind) {
        assert!(counts.iter().any(|(known, _)| *known == name), "{name}");
    }
}

#[test]
fn what_was_counted_before_proves_nothing() {
    let (mut before, mut after) = (base(), later());
    drops(&mut before, "UdpNoPort", 1_000_000);
    drops(&mut after, "UdpNoPort", 1_000_000);
    assert_eq!(findings(&ReportDifference::new(&before, &after).unwrap()), []);
}

#[test]
fn a_syn_flood_is_told_with_its_service() {
    let mut after = later();
    add(&mut after, &[("TcpExtSyncookiesSent", 400_000)]);
    after.listeners[0].cookies_sent = 400_000;
    is(&after, TroubleKind::Attack, "SYN flood", "[::]:80");
    let said = verdict(&explained(&after));
    assert!(said.starts_with("attack: SYN flood at [::]:80: 200k SYNs a second"), "{said}");
}

#[test]
fn floods_that_end_at_the_interface_are_told() {
    for (stat, name) in [
        ("rx_syns_answered", "SYN flood"),
        ("rx_segments", "flood of TCP segments without a connection"),
        ("rx_header_malformed", "flood of malformed packets"),
        ("rx_service_full", FloodKind::Overload.name()),
        ("rx_prefix_full", FloodKind::Overload.name()),
    ] {
        let mut after = later();
        after.devices[0].stats.insert(stat.to_owned(), 50_000);
        is(&after, TroubleKind::Attack, name, "");
        assert_eq!(explained(&after)[0].evidence[0], format!("{stat} 25.0k/s"));
    }
    // SYNs of clients that open connections are none.
    let mut after = later();
    after.devices[0].stats.insert("rx_syns_answered".to_owned(), 4000);
    add(&mut after, &[("TcpPassiveOpens", 4000)]);
    assert_eq!(explained(&after), []);
}

/// What a device of this number sampled, for one reason.
fn sampled(report: &mut RunReport, device: usize, count: &str, services: &[(&str, u16, u64)]) {
    let sample = |(protocol, port, frames): &(&str, u16, u64)| SampleReport {
        count: count.to_owned(),
        protocol: (*protocol).to_owned(),
        port: *port,
        frames: *frames,
    };
    report.devices[device].sampled.extend(services.iter().map(sample));
}

#[test]
fn a_flood_that_ends_at_the_interface_is_told_with_its_services() {
    for (stat, name) in [
        ("rx_syns_answered", "SYN flood"),
        ("rx_segments", "flood of TCP segments without a connection"),
        ("rx_service_full", FloodKind::Overload.name()),
    ] {
        let mut after = later();
        after.devices[0].stats.insert(stat.to_owned(), 50_000);
        sampled(&mut after, 0, stat, &[("tcp", 80, 15), ("tcp", 81, 1)]);
        sampled(&mut after, 0, "rx_port_closed", &[("udp", 9, 16)]);
        is(&after, TroubleKind::Attack, name, "[::]:80");
        let evidence = explained(&after)[0].evidence.clone();
        let said = "for [::]:80 23.4k/s (15 of 16 sampled at the interface)";
        assert!(evidence.iter().any(|it| it == said), "{evidence:?}");
    }
    // Two services, of which one is not ours; and what has no ports.
    let mut after = later();
    after.devices[0].stats.insert("rx_unverified".to_owned(), 40_000);
    let services = [("udp", 7001, 8), ("udp", 53, 6), ("", 0, 2)];
    sampled(&mut after, 0, "rx_unverified", &services);
    is(&after, TroubleKind::Attack, FloodKind::Overload.name(), "[::]:7001, udp port 53");
    // A queue on which nothing more arrives has an old sample.
    let mut after = later();
    after.devices[0].stats.insert("rx_syns_answered".to_owned(), 50_000);
    let idle = DeviceReport { ifname: "fw1".to_owned(), ..DeviceReport::default() };
    after.devices.push(idle);
    sampled(&mut after, 0, "rx_syns_answered", &[("tcp", 80, 16)]);
    sampled(&mut after, 1, "rx_syns_answered", &[("tcp", 443, 16)]);
    is(&after, TroubleKind::Attack, "SYN flood", "[::]:80");
    // Where the workers answer more than the interface, they know the service.
    after.listeners.push(ListenerSettings { local: at(443), ..after.listeners[0].clone() });
    after.listeners[1].cookies_sent = 90_000;
    add(&mut after, &[("TcpExtSyncookiesSent", 90_000)]);
    is(&after, TroubleKind::Attack, "SYN flood", "[::]:443");
}

#[test]
fn a_udp_flood_is_told_with_its_service() {
    let mut after = later();
    after.udp_sockets[0].taken = 20_000;
    after.udp_sockets[0].over_share = 90_000;
    after.udp_sockets[0].full = 500;
    is(&after, TroubleKind::Attack, "UDP flood", "[::]:7001");
    assert_eq!(explained(&after).len(), 1, "its reader is not blamed");
}

#[test]
fn a_flood_of_closed_ports_is_told_also_where_the_interface_drops_it() {
    let mut after = later();
    drops(&mut after, "UdpNoPort", 50_000);
    is(&after, TroubleKind::Attack, "flood of closed ports", "");
    let mut after = later();
    after.devices[0].stats.insert("rx_port_closed".to_owned(), 50_000);
    is(&after, TroubleKind::Attack, "flood of closed ports", "");
}

#[test]
fn a_fragment_flood_an_icmp_flood_and_malformed_packets_are_told() {
    for (reason, name) in [
        ("FragmentStoreFull", "fragment flood"),
        ("IcmpRateLimited", "ICMP flood"),
        ("IpHeaderChecksum", "flood of malformed packets"),
        ("TcpNoConnection", "flood of TCP segments without a connection"),
    ] {
        let mut after = later();
        drops(&mut after, reason, 50_000);
        is(&after, TroubleKind::Attack, name, "");
    }
}

#[test]
fn a_slow_reader_is_told_with_its_queue() {
    let mut after = later();
    after.udp_sockets[0].full = 900;
    after.udp_sockets[0].waiting = 64;
    is(&after, TroubleKind::SlowApplication, "UDP receive queue", "[::]:7001");
}

#[test]
fn an_application_that_accepts_slowly_is_told() {
    let mut after = later();
    after.listeners[0].waiting = 100;
    add(&mut after, &[("TcpExtListenOverflows", 800), ("TcpExtListenDrops", 800)]);
    is(&after, TroubleKind::SlowApplication, "accept queue", "[::]:80");
}

#[test]
fn a_bound_that_is_reached_is_told_with_its_key() {
    let mut after = later();
    after.devices[0].stats.insert("rx_ring_full".to_owned(), 4000);
    is(&after, TroubleKind::TooSmall, "device ring", "the device's receive ring");
    assert!(explained(&after)[0].remedy.contains("key `workers`"));
    let mut after = later();
    after.connections.max = 16;
    after.connections.open = 16;
    is(&after, TroubleKind::TooSmall, "TCP connections", "TCP_CONNECTIONS");
}

#[test]
fn losses_and_silent_neighbours_are_the_paths() {
    let mut after = later();
    add(&mut after, &[("TcpRetransSegs", 400)]);
    is(&after, TroubleKind::Path, "losses", "");
    let mut after = later();
    drops(&mut after, "NeighborUnreachable", 40);
    is(&after, TroubleKind::Path, "neighbours", "");
}

/// Since when it lasts is known from the watch of the instance; each other answer from counters.
#[test]
fn an_attack_is_told_with_since_when_its_cost_and_what_clients_notice() {
    let mut after = later();
    add(&mut after, &[("TcpExtSyncookiesSent", 400_000), ("TcpExtSyncookiesRecv", 60)]);
    add(&mut after, &[("TcpRetransSegs", 400), ("UdpInDatagrams", 50)]);
    for (fact, n) in [(WorkerCounter::TurnNanos, 280_000_000), (WorkerCounter::RxPackets, 400_000)]
    {
        after.worker.insert(fact.name().to_owned(), n);
    }
    after.devices[0].stats.insert("rx_bytes".to_owned(), 24_000_000);
    let facts = |after: &RunReport| explained(after)[0].attack.clone().unwrap();
    let said = facts(&after);
    assert_eq!((said.since_seconds, said.peak_rate, said.refused), (None, None, None));
    assert!(said.since(1e9).starts_with("less than two seconds ago"), "{}", said.since(1e9));
    assert_eq!(
        said.costs,
        "14.0 % of a core at the workers, for 200k packets and 12.0M bytes a second (0.70 us a \
         packet, services included)"
    );
    assert_eq!(
        said.clients,
        "50.0 connections open and 25.0 datagrams are read a second; 30.0 of the connections open \
         by a cookie; 10 % of TCP's segments are sent again; no packet of an established flow is \
         shed"
    );
    after.uptime_ns = 203 * SECOND;
    let flood = |kind: &str| FloodReport {
        kind: kind.to_owned(),
        began_ns: 3 * SECOND,
        peak_rate: 212_000.0,
        refused: 40_000_000,
        honest_share: Some(0.98),
    };
    after.floods = vec![flood("fragment flood")];
    assert_eq!(facts(&after).since_seconds, None, "another kind's");
    after.floods.push(flood("SYN flood"));
    let said = facts(&after);
    assert_eq!((said.since_seconds, said.refused), (Some(200.0), Some(40_000_000)));
    // 2001-09-09 01:46:40 UTC.
    assert_eq!(
        said.since(1e9),
        "01:43:20 UTC, for 200 s; 212k packets a second at most, 40.0M refused in all"
    );
    assert!(said.clients.starts_with("98 % of the service before the flood goes on; "), "{said:?}");
    for (stat, says) in [
        ("rx_ring_full", "packets a second are lost unseen, any client's"),
        ("rx_flow_full", "packets a second of established flows over their credit are lost"),
    ] {
        let mut after = after.clone();
        after.devices[0].stats.insert(stat.to_owned(), 40_000);
        let said = facts(&after);
        assert!(said.clients.ends_with(says), "{said:?}");
        assert_eq!(said.costs.contains("end at the interface"), stat == "rx_flow_full");
    }
    // What is no attack has none of it.
    let mut slow = later();
    slow.udp_sockets[0].full = 900;
    slow.udp_sockets[0].waiting = 64;
    assert!(explained(&slow)[0].attack.is_none());
}
