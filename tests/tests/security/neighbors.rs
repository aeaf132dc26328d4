//! Neighbours: tables that remote peers fill, unsolicited answers, addresses denied.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use floodwall_base::{
    Counter, DropReason, Family, IfIndex, MacAddr, Units, limits, solicited_node,
};
use floodwall_ip::{AddressState, NeighborState};
use floodwall_packet::{Engine, Round, Triage};
use floodwall_stack::{InterfaceConfig, Stack, StackConfig};
use floodwall_tests::craft::{
    FAMILIES, HOST, PEER, addr, echo, fragment, frame, from_peer, ip, mac, neighbor_answer, v4, v6,
};
use floodwall_tests::{Rig, Sent, ethernet_config};
use floodwall_udp::SocketSettings;
use floodwall_wire::ndp::{NeighborAdvertisementFields, NeighborSolicitationFields};
use floodwall_wire::{ArpOperation, ArpPacket, EtherType, IpProtocol, NdpOption, arp};

/// A host on a wide network: 10.0.0.1/8 and fd00::1/64.
fn wide() -> StackConfig {
    let base = ethernet_config(HOST);
    StackConfig {
        interfaces: vec![InterfaceConfig {
            addresses: ["10.0.0.1/8", "fd00::1/64"].map(|a| a.parse().expect("an address")).into(),
            ..base.interfaces[0].clone()
        }],
        echo_rate: 0,
        ..base
    }
}

/// The `n`th neighbour that does not exist.
fn ghost(family: Family, n: u32) -> IpAddr {
    let [_, a, b, c] = (n + 0x10000).to_be_bytes();
    match family {
        Family::V4 => [10, a, b, c].into(),
        Family::V6 => [0xfd00, 0, 0, 0, 0, 9, (n >> 16) as u16, n as u16].into(),
    }
}

fn station(n: u32) -> MacAddr {
    let [a, b, c, d] = n.to_be_bytes();
    MacAddr([2, 9, a, b, c, d])
}

fn arp_from(operation: ArpOperation, sender: (IpAddr, MacAddr)) -> Vec<u8> {
    let IpAddr::V4(sender_addr) = sender.0 else { panic!("ARP is about IPv4") };
    let packet = ArpPacket {
        operation,
        sender_link_addr: sender.1,
        sender_addr,
        target_link_addr: MacAddr::ZERO,
        target_addr: v4(HOST),
    };
    let mut bytes = [0; arp::PACKET_LEN];
    packet.emit(&mut bytes);
    frame(mac(HOST), sender.1, EtherType::ARP, &bytes)
}

fn v6_of(addr: IpAddr) -> Ipv6Addr {
    let IpAddr::V6(addr) = addr else { panic!("neighbour discovery is about IPv6") };
    addr
}

fn solicitation_from(sender: (IpAddr, MacAddr)) -> Vec<u8> {
    let (from, group) = (v6_of(sender.0), solicited_node(v6(HOST)));
    let mut bytes = [0; 64];
    let fields = NeighborSolicitationFields { target_addr: v6(HOST) };
    let options = [NdpOption::SourceLinkAddr(sender.1)];
    let len = fields.emit_into(&options, from, group, &mut bytes).expect("room");
    from_peer(&ip(from.into(), group.into(), IpProtocol::ICMPV6, &bytes[..len]))
}

fn advertisement(of: Ipv6Addr, to: Ipv6Addr, link: MacAddr, flags: (bool, bool)) -> Vec<u8> {
    let mut bytes = [0; 64];
    let fields = NeighborAdvertisementFields {
        router: false,
        solicited: flags.0,
        override_entry: flags.1,
        target_addr: of,
    };
    let options = [NdpOption::TargetLinkAddr(link)];
    let len = fields.emit_into(&options, of, to, &mut bytes).expect("room");
    from_peer(&ip(of.into(), to.into(), IpProtocol::ICMPV6, &bytes[..len]))
}

/// A solicitation of our link address.
fn asks(family: Family, sender: (IpAddr, MacAddr)) -> Vec<u8> {
    match family {
        Family::V4 => arp_from(ArpOperation::REQUEST, sender),
        Family::V6 => solicitation_from(sender),
    }
}

fn states(rig: &Rig, family: Family) -> Vec<NeighborState> {
    match family {
        Family::V4 => rig.stack.neighbors_v4().iter().map(|n| n.state).collect(),
        Family::V6 => rig.stack.neighbors_v6().iter().map(|n| n.state).collect(),
    }
}

/// RFC 6583: answers to senders that do not exist fill the table of neighbours. Unresolved ones
/// stay below their bound and never displace one that is known; three packets wait for each.
#[test]
fn neighbours_that_do_not_exist_displace_none_that_does() {
    for family in FAMILIES {
        let mut rig = Rig::new(&wide());
        rig.run_for(Duration::from_secs(10));
        let free = rig.pool.available();
        // Known because it solicited us, and then answered our own solicitation.
        let peer = addr(family, PEER);
        rig.frame(&asks(family, (peer, mac(PEER))));
        let honest = from_peer(&echo(peer, addr(family, HOST), b"honest"));
        let mut answered = 0;
        for n in 0..100_000_u32 {
            rig.frame(&from_peer(&echo(ghost(family, n), addr(family, HOST), b"?")));
            if n % 1000 == 0 {
                let found = rig.frame(&honest);
                assert_eq!(found.len(), 1);
                answered += usize::from(Sent::of(&found[0]).to == peer);
                rig.run_for(Duration::from_micros(10));
            }
        }
        assert_eq!(answered, 100, "{family:?}: the one that exists is always answered");
        let unresolved =
            |s: &&NeighborState| matches!(s, NeighborState::Incomplete | NeighborState::Failed);
        let states = states(&rig, family);
        assert!(states.iter().filter(unresolved).count() <= limits::NEIGHBORS_INCOMPLETE_MAX);
        let most = limits::NEIGHBORS_INCOMPLETE_MAX * limits::NEIGHBOR_PENDING_MAX;
        assert!(rig.stats().pending as usize <= most);
        assert!(rig.stats().drops_out.of(DropReason::NeighborTableFull) > 90_000);
        assert!(rig.conservation().holds());
        // And after a while nothing is left of it.
        rig.run_for(Duration::from_secs(120));
        assert_eq!((rig.stats().pending, rig.pool.available()), (0, free));
        assert!(states_after(&rig, family) <= 1, "the one that exists");
    }
}

fn states_after(rig: &Rig, family: Family) -> usize {
    states(rig, family).len()
}

/// At most three packets wait for a neighbour, however fast they come (RFC 4861 section 7.2.2).
#[test]
fn a_flood_in_one_absent_neighbours_name_holds_three_packets() {
    for family in FAMILIES {
        let mut rig = Rig::new(&wide());
        rig.run_for(Duration::from_secs(10));
        let question = from_peer(&echo(ghost(family, 1), addr(family, HOST), b"?"));
        for _ in 0..10_000 {
            rig.frame(&question);
        }
        assert_eq!(rig.stats().pending as usize, limits::NEIGHBOR_PENDING_MAX);
        assert_eq!(states(&rig, family), [NeighborState::Incomplete]);
    }
}

/// CVE-2015-1465 in its flood form: a solicitor is remembered, but of those that we have sent
/// nothing to only so many.
#[test]
fn unverified_packets_that_ask_are_remembered_up_to_a_bound() {
    for family in FAMILIES {
        let mut rig = Rig::new(&wide());
        rig.run_for(Duration::from_secs(10));
        for n in 0..20_000 {
            let answers = rig.frame(&asks(family, (ghost(family, n), station(n))));
            assert_eq!(answers.len(), 1, "each gets an answer");
        }
        let kept = states(&rig, family).len();
        assert!(kept <= limits::NEIGHBOR_UNVERIFIED_MAX && kept <= 64, "{family:?}: {kept}");
    }
}

/// Unsolicited answers make no entry (RFC 4861 section 7.2.5, RFC 826). Neighbours that solicit and
/// are answered are solicited at once, as many as a slice of timed work has units. What else is due
/// has its turn all the same: here a datagram that is never completed.
#[test]
fn timed_work_that_unverified_packets_cause_keeps_no_other_waiting() {
    for family in FAMILIES {
        let mut rig = Rig::new(&wide());
        let request = echo(addr(family, PEER), addr(family, HOST), &[7; 100]);
        rig.frame(&from_peer(&fragment(&request, 9, 0, 64, true)));
        for slice in 0..700 {
            for n in 0..limits::NEIGHBOR_UNVERIFIED_MAX as u32 {
                let n = slice * 64 + n;
                let sender = (ghost(family, n), station(n));
                rig.frame(&asks(family, sender));
                let ping = echo(sender.0, addr(family, HOST), b"?");
                let ether_type = match family {
                    Family::V4 => EtherType::IPV4,
                    Family::V6 => EtherType::IPV6,
                };
                rig.frame(&frame(mac(HOST), sender.1, ether_type, &ping));
            }
            rig.now += Duration::from_millis(100);
            let slice = |stack: &mut Stack, round: &mut Round<'_>| {
                round.budget = Units(limits::WORK_UNITS);
                stack.work(round)
            };
            rig.round(Vec::new(), slice);
        }
        let given_up = rig.stats().drops_in.of(DropReason::FragmentTimeout);
        assert_eq!(given_up, 1, "{family:?}: its time was over long ago");
    }
}

#[test]
fn a_flood_of_unasked_answers_makes_no_entry() {
    for family in FAMILIES {
        let mut rig = Rig::new(&wide());
        rig.run_for(Duration::from_secs(10));
        for n in 0..5000 {
            let addr = ghost(family, n);
            let told = match family {
                Family::V4 => arp_from(ArpOperation::REPLY, (addr, station(n))),
                Family::V6 => advertisement(v6_of(addr), v6(HOST), station(n), (true, true)),
            };
            assert!(rig.frame(&told).is_empty());
        }
        assert_eq!(states(&rig, family), []);
    }
}

/// RFC 4861 section 7.2.5: an advertisement that does not override leaves the link address of a
/// reachable neighbour, and makes it doubtful; one that overrides replaces it, unproven.
#[test]
fn a_forged_advertisement_proves_nothing() {
    let mut rig = Rig::new(&wide());
    rig.run_for(Duration::from_secs(10));
    let any = SocketAddr::new("::".parse().expect("an address"), 4000);
    let settings = SocketSettings::new(Family::V6);
    let id = rig.sockets(|s| s.udp_bind(any, settings)).0.expect("a socket");
    let to = SocketAddr::new(v6(PEER).into(), 9);
    rig.sockets(|s| s.udp_send(id, Some(to), b"?")).0.expect("it waits");
    rig.frame(&advertisement(v6(PEER), v6(HOST), mac(PEER), (true, true)));
    let entry = |rig: &Rig| {
        let entry = rig.stack.neighbors_v6().neighbor(IfIndex(1), v6(PEER)).expect("known");
        (entry.state, entry.link_addr)
    };
    assert_eq!(entry(&rig), (NeighborState::Reachable, Some(mac(PEER))));
    rig.frame(&advertisement(v6(PEER), v6(HOST), mac(66), (false, false)));
    assert_eq!(entry(&rig), (NeighborState::Stale, Some(mac(PEER))));
    rig.frame(&advertisement(v6(PEER), v6(HOST), mac(66), (false, true)));
    assert_eq!(entry(&rig), (NeighborState::Stale, Some(mac(66))));
}

/// Redirects of unverified senders, without a quote, change nothing; `redirects.rs` has the rules.
#[test]
fn a_redirect_changes_nothing() {
    for from in ["fe80::2", "fd00::2"] {
        let mut rig = Rig::new(&wide());
        let from: Ipv6Addr = from.parse().expect("an address");
        let (target, about) = (v6(66), v6(77));
        let mut body = vec![137, 0, 0, 0, 0, 0, 0, 0];
        body.extend(target.octets());
        body.extend(about.octets());
        let pseudo = floodwall_tests::craft::pseudo(
            from.into(),
            v6(HOST).into(),
            IpProtocol::ICMPV6,
            body.len(),
        );
        let check = floodwall_checksum::sum(&body).add(pseudo).finish();
        body[2..4].copy_from_slice(&check.to_be_bytes());
        let packet = ip(from.into(), v6(HOST).into(), IpProtocol::ICMPV6, &body);
        let routes = rig.stack.routes_v6().len();
        assert!(rig.frame(&from_peer(&packet)).is_empty());
        assert_eq!(rig.stats().drops_in.total(), 1);
        assert_eq!((rig.stack.routes_v6().len(), states(&rig, Family::V6).len()), (routes, 0));
    }
}

/// RFC 3756 section 4.1.3 (dos-new-ip6): an attacker that claims every address that we probe for.
/// We try a few times, then report it and are silent; nothing loops.
#[test]
fn an_address_that_is_always_denied_is_given_up_after_a_few_tries() {
    let config = StackConfig { duplicate_address_detection: true, ..ethernet_config(HOST) };
    let mut rig = Rig::new(&config);
    let all: Ipv6Addr = "ff02::1".parse().expect("an address");
    let mut probes = 0;
    for _ in 0..600 {
        let sent = rig.run_for(Duration::from_millis(100));
        for packet in &sent {
            let bytes = floodwall_tests::bytes_of(packet);
            // A neighbour solicitation from the unspecified address.
            if bytes[12..14] != [0x86, 0xdd] || bytes[54] != 135 || bytes[22..38] != [0; 16] {
                continue;
            }
            probes += 1;
            let target = bytes[62..78].first_chunk::<16>().map(|a| Ipv6Addr::from(*a));
            let target = target.expect("a target");
            rig.frame(&advertisement(target, all, mac(66), (false, true)));
        }
    }
    // Two addresses, four tries each.
    assert!((2..=8).contains(&probes), "{probes} probes");
    assert!(rig.stats().counters.of(Counter::FloodwallDadConflicts) >= 2);
    let state = rig.stack.interfaces()[1].owns_v6(v6(HOST));
    assert_eq!(state, Some(AddressState::Duplicate));
    assert!(rig.conservation().holds());
    // An unassigned address is not answered for.
    let question = from_peer(&echo(v6(PEER).into(), v6(HOST).into(), b"?"));
    rig.expect_drop("denied", &question, DropReason::IpNotForUs, None);
}

/// An address in use is not given up, however often another station claims it: it is defended, at
/// most once in ten seconds (RFC 5227 section 2.4).
#[test]
fn an_address_in_use_is_defended_and_the_defence_cannot_be_made_a_flood() {
    for family in FAMILIES {
        let mut rig = Rig::new(&ethernet_config(HOST));
        rig.run_for(Duration::from_secs(20));
        let mut defences = 0;
        for _ in 0..1000 {
            rig.run_for(Duration::from_millis(10));
            let claim = match family {
                Family::V4 => arp_from(ArpOperation::REPLY, (v4(HOST).into(), mac(66))),
                Family::V6 => {
                    let all = "ff02::1".parse().expect("an address");
                    advertisement(v6(HOST), all, mac(66), (false, true))
                }
            };
            defences += rig.frame(&claim).len();
        }
        assert!((1..=2).contains(&defences), "{family:?}: {defences} in ten seconds");
        let state = match family {
            Family::V4 => rig.stack.interfaces()[1].owns_v4(v4(HOST)),
            Family::V6 => rig.stack.interfaces()[1].owns_v6(v6(HOST)),
        };
        assert_eq!(state, Some(AddressState::Preferred));
    }
}

/// A neighbour that has answered us once probes whether we are still there: under pressure its
/// probe goes before unverified packets, or we would lose the neighbour to a flood. One that has
/// only solicited has no such place, and one that copies a neighbour's question gets two in a
/// burst.
#[test]
fn questions_of_proven_neighbours_go_first_and_a_flood_of_them_gains_nothing() {
    for family in FAMILIES {
        let mut rig = Rig::new(&wide());
        rig.run_for(Duration::from_secs(10));
        let class = |rig: &Rig, frame: &[u8]| rig.classify(&[frame.to_vec()])[0];
        let question = asks(family, (addr(family, PEER), mac(PEER)));
        rig.frame(&question);
        assert_eq!(class(&rig, &question), Triage::Unknown, "{family:?}: it is known, no more");
        rig.frame(&from_peer(&echo(addr(family, PEER), addr(family, HOST), b"?")));
        rig.run_for(Duration::from_millis(1));
        rig.frame(&neighbor_answer(family, PEER));
        assert_eq!(class(&rig, &question), Triage::Established, "{family:?}: it has answered");
        rig.run_for(Duration::from_secs(60));
        assert_eq!(class(&rig, &question), Triage::Established, "{family:?}: in silence, too");
        // From another station, or for an address that is not ours.
        let target = if family == Family::V4 { 14 + 27 } else { 14 + 40 + 23 };
        for at in [11, target] {
            let mut forged = question.clone();
            forged[at] ^= 0x40;
            assert_eq!(class(&rig, &forged), Triage::Unknown, "{family:?} {at}");
        }
        // As it is, as often as anybody likes.
        let established = |classes: Vec<Triage>| {
            classes.into_iter().filter(|class| *class == Triage::Established).count()
        };
        assert_eq!(established(rig.classify(&vec![question.clone(); 64])), 2, "{family:?}");
        // And of many that have solicited, and did not answer our solicitation.
        let forged: Vec<_> =
            (0..64).map(|n| asks(family, (ghost(family, n), station(n)))).collect();
        for frame in &forged {
            rig.frame(frame);
        }
        rig.run_for(Duration::from_secs(1));
        assert_eq!(established(rig.classify(&forged)), 0, "{family:?}");
    }
}
