//! A host without an address and a DHCP server, packet by packet: honest, hostile, gone; and of
//! DHCPv6, in `v6.rs`.
//!
//! What the client accepts is tested in `floodwall-dhcp`; here, that packets reach it and leave it,
//! and that a lease becomes addresses and routes and ceases to be them. Reading: RFC 2131.
#![expect(clippy::unwrap_used, reason = "what a test cannot do without ends the test")]

use std::net::Ipv4Addr;
use std::time::Duration;

use floodwall_base::{Counter, DropReason, IfIndex, Instant, MacAddr};
use floodwall_ip::AddressState;
use floodwall_packet::PacketBuf;
use floodwall_stack::dhcp_client::DhcpState;
use floodwall_stack::{InterfaceConfig, StackConfig};
use floodwall_tests::craft::{self, HOST, PEER, frame, mac, udp, v4};
use floodwall_tests::{Rig, ethernet_config};
use floodwall_wire::dhcpv4::option;
use floodwall_wire::{
    ArpOperation, ArpPacket, Dhcpv4Fields, Dhcpv4Message, Dhcpv4Type, EtherType, arp,
};

mod v6;

const ETH0: IfIndex = IfIndex(1);
const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 50);
/// Ethernet, IPv4 and UDP.
const HEADERS: usize = 42;

fn config(detects: bool) -> StackConfig {
    let base = ethernet_config(HOST);
    let eth0 = InterfaceConfig { addresses: vec![], dhcp: true, ..base.interfaces[0].clone() };
    StackConfig { interfaces: vec![eth0], duplicate_address_detection: detects, ..base }
}

/// A host and the server's side of the link.
struct Link {
    rig: Rig,
    server: Ipv4Addr,
    /// To the address that is offered, instead of to everybody.
    unicast: bool,
    lease: u32,
}

impl Link {
    fn new(detects: bool) -> Self {
        let rig = Rig::new(&config(detects));
        Self { rig, server: v4(PEER), unicast: false, lease: 3600 }
    }

    /// Runs until the host has sent a server a request; returns the request.
    fn question(&mut self) -> Vec<u8> {
        for _ in 0..40 {
            let at = self.rig.now + Duration::from_millis(500);
            for sent in self.rig.run_until(at) {
                if let Some(question) = dhcp_of(&sent) {
                    return question;
                }
            }
        }
        panic!("it sent no request");
    }

    fn answer(&self, question: &[u8], kind: Dhcpv4Type) -> Vec<u8> {
        let asked = Dhcpv4Message::parse(question).unwrap();
        let fields = Dhcpv4Fields {
            is_reply: true,
            xid: asked.xid(),
            secs: 0,
            wants_broadcast: true,
            ciaddr: asked.ciaddr(),
            yiaddr: OURS,
            chaddr: asked.chaddr(),
        };
        let (server, lease) = (self.server.octets(), self.lease.to_be_bytes());
        let options: [(u8, &[u8]); 6] = [
            (option::MESSAGE_TYPE, &[kind.0]),
            (option::SERVER_ID, &server),
            (option::MASK, &[255, 255, 255, 0]),
            (option::ROUTERS, &server),
            (option::LEASE_TIME, &lease),
            (option::MTU, &[5, 120]),
        ];
        let mut out = vec![0; 600];
        let len = fields.emit_into(&options, &mut out).unwrap();
        out.truncate(len);
        out
    }

    fn frame(&self, message: &[u8]) -> Vec<u8> {
        let to_all = (Ipv4Addr::BROADCAST, MacAddr::BROADCAST);
        let (to, station) = if self.unicast { (OURS, mac(HOST)) } else { to_all };
        let packet = udp((self.server, 67).into(), (to, 68).into(), message);
        frame(station, mac(PEER), EtherType::IPV4, &packet)
    }

    /// Answers a question; returns what the host sends at once.
    fn reply(&mut self, question: &[u8], kind: Dhcpv4Type) -> Vec<PacketBuf> {
        let frame = self.frame(&self.answer(question, kind));
        self.rig.lives("an answer", &frame)
    }

    /// Lets the host get its lease.
    fn lease(&mut self) {
        let discover = self.question();
        let sent = self.reply(&discover, Dhcpv4Type::OFFER);
        let request = dhcp_of(&sent[0]).unwrap();
        self.reply(&request, Dhcpv4Type::ACK);
    }

    fn state(&self) -> DhcpState {
        self.rig.stack.dhcp(ETH0).unwrap().state()
    }

    fn owned(&self) -> Option<AddressState> {
        self.rig.stack.interfaces()[1].owns(OURS.into())
    }

    /// Nothing is left of a lease.
    fn assert_bare(&self) {
        assert_eq!(self.owned(), None);
        assert!(self.rig.stack.routes_v4().is_empty());
        assert_eq!(self.rig.stack.interfaces()[1].mtu, 1500);
        assert!(self.rig.conservation().holds());
    }
}

/// The DHCP message in a frame.
fn dhcp_of(sent: &PacketBuf) -> Option<Vec<u8>> {
    let bytes: Vec<u8> = sent.chunks().flatten().copied().collect();
    let is = bytes.len() > HEADERS && bytes[34..38] == [0, 68, 0, 67] && bytes[12..14] == [8, 0];
    is.then(|| bytes[HEADERS..].to_vec())
}

#[test]
fn a_host_without_an_address_gets_one_and_uses_it_once_nothing_else_has_it() {
    for unicast in [false, true] {
        let mut link = Link { unicast, ..Link::new(true) };
        let discover = link.question();
        assert_eq!(Dhcpv4Message::parse(&discover).unwrap().kind(), Some(Dhcpv4Type::DISCOVER));
        let sent = link.reply(&discover, Dhcpv4Type::OFFER);
        let head = sent[0].first();
        assert_eq!(head[..6], [255; 6], "to every station");
        assert_eq!(head[26..34], [0, 0, 0, 0, 255, 255, 255, 255], "from no address to broadcast");
        let request = dhcp_of(&sent[0]).unwrap();
        link.reply(&request, Dhcpv4Type::ACK);
        assert_eq!(
            (link.state(), link.owned()),
            (DhcpState::Verifying, Some(AddressState::Tentative))
        );
        assert!(link.rig.stack.routes_v4().len() == 1, "no router before the address");
        let probes = link.rig.run_for(Duration::from_secs(8));
        assert!(probes.len() >= 3);
        assert_eq!((link.state(), link.owned()), (DhcpState::Bound, Some(AddressState::Preferred)));
        let routes: Vec<_> = link.rig.stack.routes_v4().dump().collect();
        assert_eq!(routes.len(), 2);
        assert_eq!((routes[1].gateway, routes[1].prefix.len()), (Some(v4(PEER)), 0));
        let link_now = &link.rig.stack.interfaces()[1];
        assert_eq!((link_now.mtu, link_now.mtu_v6), (1400, 1400), "both families");
        let ping = craft::echo(v4(PEER).into(), OURS.into(), b"?");
        let answers = link.rig.lives("in use", &craft::from_peer(&ping));
        assert!(!answers.is_empty());
        assert!(link.rig.conservation().holds());
    }
}

/// Clouds lease addresses of 240/4, from servers that have such addresses (GKE, EKS).
#[test]
fn a_server_of_240_is_heard_while_a_lease_is_asked_for() {
    for unicast in [false, true] {
        let mut link = Link { unicast, server: [240, 8, 0, 1].into(), ..Link::new(false) };
        link.lease();
        assert_eq!(link.state(), DhcpState::Bound);
        let ping = craft::echo(link.server.into(), OURS.into(), b"?");
        link.rig.expect_drop(
            "no link is there",
            &craft::from_peer(&ping),
            DropReason::IpSourceInvalid,
            None,
        );
    }
}

/// Relays behind address translators answer from other ports than 67.
#[test]
fn an_answer_from_another_port_is_one() {
    let mut link = Link::new(false);
    let discover = link.question();
    let mut question = discover;
    for kind in [Dhcpv4Type::OFFER, Dhcpv4Type::ACK] {
        let message = link.answer(&question, kind);
        let packet = udp((link.server, 1067).into(), (Ipv4Addr::BROADCAST, 68).into(), &message);
        let sent = link
            .rig
            .lives("an answer", &frame(MacAddr::BROADCAST, mac(PEER), EtherType::IPV4, &packet));
        question = sent.first().and_then(dhcp_of).unwrap_or_default();
    }
    assert_eq!(link.state(), DhcpState::Bound);
}

/// To the offered address, but in a frame for all: no station has that address yet.
#[test]
fn an_answer_to_the_offered_address_may_come_in_a_frame_for_all() {
    let mut link = Link::new(false);
    let mut question = link.question();
    for kind in [Dhcpv4Type::OFFER, Dhcpv4Type::ACK] {
        let message = link.answer(&question, kind);
        let packet = udp((link.server, 67).into(), (OURS, 68).into(), &message);
        let sent = link
            .rig
            .lives("an answer", &frame(MacAddr::BROADCAST, mac(PEER), EtherType::IPV4, &packet));
        question = sent.first().and_then(dhcp_of).unwrap_or_default();
    }
    assert_eq!(link.state(), DhcpState::Bound);
    // Once there is an address, only the frame decides (RFC 1122 section 3.3.6).
    let ping = craft::echo(v4(PEER).into(), OURS.into(), b"?");
    let ping = frame(MacAddr::BROADCAST, mac(PEER), EtherType::IPV4, &ping);
    link.rig.expect_drop("ping", &ping, DropReason::IcmpEchoRefused, None);
}

/// A renewal prolongs the routes of the lease where they are: none of them is ever missing, and
/// what the new lease does not have goes.
#[test]
fn a_renewal_replaces_no_route_that_stays() {
    let mut link = Link { lease: 120, ..Link::new(false) };
    link.lease();
    link.rig.stack.add_neighbor(ETH0, v4(PEER).into(), mac(PEER), link.rig.now).unwrap();
    let shown = |link: &Link| -> Vec<_> {
        let all = link.rig.stack.routes_v4().dump();
        all.map(|route| (route.prefix, route.gateway, route.metric)).collect()
    };
    let end = |link: &Link| {
        let all = link.rig.stack.routes_v4().dump();
        all.filter(|route| route.prefix.len() == 0).find_map(|route| route.expires)
    };
    let (before, until) = (shown(&link), end(&link));
    let changes = link.rig.stack.routes_v4().generation();
    link.rig.run_for(Duration::from_secs(45));
    let renewal = link.question();
    link.reply(&renewal, Dhcpv4Type::ACK);
    assert!(end(&link) > until, "prolonged");
    assert_eq!(shown(&link), before);
    let now = link.rig.stack.routes_v4().generation();
    assert_eq!(now, changes, "no answer of the table has changed");
    // Another router in the next lease: the old one goes.
    link.rig.run_for(Duration::from_secs(45));
    let renewal = link.question();
    let mut message = link.answer(&renewal, Dhcpv4Type::ACK);
    let routers = [option::ROUTERS, 4, 10, 0, 0, PEER];
    let at = message.windows(6).position(|bytes| bytes == routers).unwrap();
    message[at + 5] = 9;
    let frame = link.frame(&message);
    link.rig.lives("an answer", &frame);
    let routes = shown(&link);
    assert_eq!((routes.len(), routes[1].1), (2, Some(v4(9))));
}

/// The routing table is full: the lease counts without the route that finds no room.
#[test]
fn a_route_of_a_lease_that_finds_no_room_is_counted() {
    for (routes_max, failed) in [(2, 0), (1, 1)] {
        let config = StackConfig { routes_max, ..config(false) };
        let mut link = Link { rig: Rig::new(&config), lease: 120, ..Link::new(false) };
        link.lease();
        assert_eq!(link.state(), DhcpState::Bound);
        assert_eq!(link.rig.stack.routes_v4().dump().count(), routes_max);
        let counted =
            |link: &Link| link.rig.stats().counters.of(Counter::FloodwallDhcpRoutesFailed);
        assert_eq!(counted(&link), failed);
        // So it is at each renewal.
        link.rig.stack.add_neighbor(ETH0, v4(PEER).into(), mac(PEER), link.rig.now).unwrap();
        link.rig.run_for(Duration::from_secs(45));
        let renewal = link.question();
        link.reply(&renewal, Dhcpv4Type::ACK);
        assert_eq!((link.state(), counted(&link)), (DhcpState::Bound, 2 * failed));
    }
}

#[test]
fn a_lease_is_renewed_from_the_address_itself_and_everything_goes_when_nothing_answers() {
    let mut link = Link { lease: 120, ..Link::new(false) };
    link.lease();
    assert_eq!(link.state(), DhcpState::Bound);
    link.rig.stack.add_neighbor(ETH0, v4(PEER).into(), mac(PEER), link.rig.now).unwrap();
    let end =
        |link: &Link| link.rig.stack.interfaces()[1].address(OURS.into()).unwrap().valid_until;
    let (first, start) = (end(&link), link.rig.now);
    let mut renewals = Vec::new();
    while renewals.is_empty() {
        let at = link.rig.now + Duration::from_secs(1);
        renewals = link.rig.run_until(at).iter().filter_map(dhcp_of).collect();
    }
    assert!(link.rig.now < start + Duration::from_secs(65));
    let asked = Dhcpv4Message::parse(&renewals[0]).unwrap();
    assert_eq!((asked.ciaddr(), asked.wants_broadcast()), (OURS, false));
    link.unicast = true;
    let frame = link.frame(&link.answer(&renewals[0], Dhcpv4Type::ACK));
    link.rig.lives("renewed", &frame);
    assert!(end(&link) > first);
    // The server is gone.
    link.rig.run_for(Duration::from_secs(121));
    link.assert_bare();
    assert!(matches!(link.state(), DhcpState::Init | DhcpState::Selecting));
}

#[test]
fn an_address_in_use_is_declined() {
    let mut link = Link::new(true);
    link.lease();
    link.rig.run_for(Duration::from_secs(1));
    let theirs = ArpPacket {
        operation: ArpOperation::REPLY,
        sender_link_addr: mac(9),
        sender_addr: OURS,
        target_link_addr: mac(HOST),
        target_addr: Ipv4Addr::UNSPECIFIED,
    };
    let mut out = [0; arp::PACKET_LEN];
    theirs.emit(&mut out);
    link.rig.frame(&frame(mac(HOST), mac(9), EtherType::ARP, &out));
    let said: Vec<_> =
        link.rig.run_for(Duration::from_secs(1)).iter().filter_map(dhcp_of).collect();
    let declined = Dhcpv4Message::parse(&said[0]).unwrap();
    assert_eq!(
        (declined.kind(), declined.addr(option::REQUESTED_ADDR)),
        (Some(Dhcpv4Type::DECLINE), Some(OURS))
    );
    assert_eq!(link.rig.stats().counters.of(Counter::FloodwallDhcpDeclines), 1);
    link.assert_bare();
    let before = link.rig.now;
    link.question();
    assert!(link.rig.now - before >= Duration::from_secs(8), "no second request soon");
}

#[test]
fn a_link_that_goes_takes_the_lease_and_one_that_comes_back_asks_for_it_again() {
    let mut link = Link::new(false);
    link.lease();
    assert!(link.owned().is_some());
    link.rig.stack.set_carrier(ETH0, false, link.rig.now, &mut link.rig.random);
    link.assert_bare();
    assert!(link.rig.run_for(Duration::from_secs(100)).is_empty());
    link.rig.stack.set_carrier(ETH0, true, link.rig.now, &mut link.rig.random);
    let asked = link.question();
    let asked = Dhcpv4Message::parse(&asked).unwrap();
    assert_eq!(
        (asked.kind(), asked.addr(option::REQUESTED_ADDR)),
        (Some(Dhcpv4Type::REQUEST), Some(OURS))
    );
    assert_eq!(asked.addr(option::SERVER_ID), None);
}

#[test]
fn an_orderly_end_tells_the_server_and_forgets_the_lease() {
    let mut link = Link::new(false);
    link.lease();
    link.rig.stack.add_neighbor(ETH0, v4(PEER).into(), mac(PEER), link.rig.now).unwrap();
    link.rig.stack.release_leases(link.rig.now);
    let said: Vec<_> =
        link.rig.run_for(Duration::from_secs(1)).iter().filter_map(dhcp_of).collect();
    assert_eq!(Dhcpv4Message::parse(&said[0]).unwrap().kind(), Some(Dhcpv4Type::RELEASE));
    link.assert_bare();
    assert_eq!(link.state(), DhcpState::Stopped);
}

#[test]
fn what_is_no_answer_to_our_question_is_dropped_and_is_counted() {
    let mut link = Link::new(false);
    let question = link.question();
    let good = link.answer(&question, Dhcpv4Type::OFFER);
    let with = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    let mut huge = good.clone();
    huge.resize(1473, 0);
    for (what, message) in [
        ("another transaction", with(4)),
        ("another station", with(33)),
        ("no cookie", with(236)),
        ("cut", good[..100].to_vec()),
        ("empty", vec![]),
        ("not an offer", with(242)),
        ("long", huge),
    ] {
        let frame = link.frame(&message);
        if frame.len() <= 1514 {
            link.rig.expect_drop(what, &frame, DropReason::DhcpRefused, None);
        }
    }
    let mut broken = link.frame(&good);
    *broken.last_mut().unwrap() ^= 1;
    link.rig.expect_drop("checksum", &broken, DropReason::DhcpRefused, None);
    let counted = link.rig.stats().counters.of(Counter::FloodwallDhcpRefused);
    assert!(counted >= 7);
    // Datagrams to others stay theirs, though a client waits for answers.
    let stray = udp((v4(PEER), 53).into(), (OURS, 68).into(), &good);
    link.rig.expect_drop("port", &craft::from_peer(&stray), DropReason::IpNotForUs, None);
    let ping = craft::echo(v4(PEER).into(), OURS.into(), b"?");
    link.rig.expect_drop("ping", &craft::from_peer(&ping), DropReason::IpNotForUs, None);
    assert_eq!(link.state(), DhcpState::Selecting);
    let sent = link.reply(&question, Dhcpv4Type::OFFER);
    assert_eq!(sent.len(), 1, "and the honest one still serves");
}

/// As many answers as a link carries: memory and ledgers stay, and the lease with them.
#[test]
fn a_flood_of_forged_offers_changes_nothing() {
    let mut link = Link::new(false);
    let question = link.question();
    let good = link.answer(&question, Dhcpv4Type::OFFER);
    let free = link.rig.pool.available();
    for n in 0..20_000_u32 {
        let mut message = good.clone();
        message[4..8].copy_from_slice(&n.to_be_bytes());
        let frame = link.frame(&message);
        assert!(link.rig.frame(&frame).is_empty());
    }
    assert_eq!(link.rig.pool.available(), free);
    assert!(link.rig.stats().counters.of(Counter::FloodwallDhcpRefused) >= 19_999);
    assert!(link.rig.conservation().holds());
    assert_eq!(link.reply(&question, Dhcpv4Type::OFFER).len(), 1);
}

#[test]
fn a_lease_and_the_operators_addresses_live_side_by_side() {
    let mut config = config(false);
    config.interfaces[0].addresses = vec!["192.0.2.1/24".parse().unwrap()];
    config.interfaces[0].gateways = vec!["192.0.2.254".parse().unwrap()];
    let mut link = Link { rig: Rig::new(&config), ..Link::new(false) };
    link.lease();
    let first = link.rig.stack.routes_v4().lookup(Ipv4Addr::new(8, 8, 8, 8), Instant::ORIGIN);
    assert_eq!(first.unwrap().gateway, Some(Ipv4Addr::new(192, 0, 2, 254)), "his comes first");
    link.rig.stack.release_leases(link.rig.now);
    link.rig.run_for(Duration::from_secs(1));
    assert_eq!((link.owned(), link.rig.stack.routes_v4().len()), (None, 2));
}
