//! A host, a router that points to a DHCPv6 server, and that server, packet by packet.
//!
//! What the client accepts is tested in `floodwall-dhcp`; here, that a router's flags start it,
//! that packets reach it and leave it, and that a lease becomes an address and ceases to be one.
//! Reading: RFC 8415, RFC 4861 section 4.2.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use floodwall_base::{Counter, DropReason, solicited_node};
use floodwall_ip::AddressState;
use floodwall_packet::{PacketBuf, Triage};
use floodwall_stack::dhcp_client::Dhcpv6State;
use floodwall_stack::{InterfaceConfig, StackConfig};
use floodwall_tests::craft::{HOST, frame, mac, udp};
use floodwall_tests::router::{
    advertisement, believing_config, header, message_frame, prefix, router_addr, router_mac,
};
use floodwall_tests::{Rig, bytes_of};
use floodwall_wire::dhcpv6::{ALL_SERVERS, option};
use floodwall_wire::ndp::{
    NdpOption, NeighborAdvertisementFields, NeighborSolicitationFields, RouterAdvertisementFields,
};
use floodwall_wire::{Dhcpv6Message, Dhcpv6Type, Dhcpv6Writer, EtherType};

use crate::ETH0;

const OURS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0x64, 0, 0, 0, 0x50);
const DNS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0x64, 0, 0, 0, 0x53);
/// Ethernet, IPv6 and UDP.
const HEADERS: usize = 62;

fn config() -> StackConfig {
    let base = believing_config();
    let eth0 = InterfaceConfig { dhcpv6: true, ..base.interfaces[0].clone() };
    StackConfig { interfaces: vec![eth0], ..base }
}

/// A host and the router's and server's side of the link.
struct Link {
    rig: Rig,
    /// Preferred and valid seconds of the address.
    life: (u32, u32),
}

/// A message of the host to servers.
fn question_of(sent: &PacketBuf) -> Option<Vec<u8>> {
    let bytes = bytes_of(sent);
    let is = bytes.len() > HEADERS && bytes[12..14] == [0x86, 0xdd] && bytes[20] == 17;
    let is = is && bytes[54..58] == [2, 34, 2, 35];
    if is {
        assert_eq!(bytes[..6], [0x33, 0x33, 0, 1, 0, 2]);
        assert_eq!(bytes[22..24], [0xfe, 0x80], "from the link-local address");
        assert_eq!(bytes[38..54], ALL_SERVERS.octets());
    }
    is.then(|| bytes[HEADERS..].to_vec())
}

fn kind(question: &[u8]) -> Dhcpv6Type {
    Dhcpv6Message::parse(question).unwrap().kind()
}

impl Link {
    fn new(config: &StackConfig) -> Self {
        let mut rig = Rig::new(config);
        rig.run_for(Duration::from_secs(3));
        Self { rig, life: (3000, 4000) }
    }

    /// A router sends an advertisement with these flags, and no prefix to make addresses of.
    fn advertise(&mut self, managed: bool, other: bool) {
        let fields = RouterAdvertisementFields { managed, other, ..header(1800) };
        let mut link = prefix("2001:db8:0:64::", 64, 7200, 3600);
        link.autonomous = false;
        self.rig.frame(&advertisement(1, &fields, &[NdpOption::PrefixInfo(link)]));
    }

    /// All questions of the next `length`.
    fn questions(&mut self, length: Duration) -> Vec<Vec<u8>> {
        self.rig.run_for(length).iter().filter_map(question_of).collect()
    }

    /// Runs until the host has sent a server a message; returns it.
    fn question(&mut self) -> Vec<u8> {
        for _ in 0..100 {
            if let Some(question) = self.questions(Duration::from_millis(100)).pop() {
                return question;
            }
        }
        panic!("it sent no message");
    }

    fn answer(&self, question: &[u8], kind: Dhcpv6Type) -> Vec<u8> {
        let asked = Dhcpv6Message::parse(question).unwrap();
        let mut out = vec![0; 600];
        let mut writer = Dhcpv6Writer::new(kind, asked.xid(), &mut out);
        writer.option(option::CLIENT_ID, &[asked.options().find(option::CLIENT_ID).unwrap()]);
        writer.option(option::SERVER_ID, &[&[0, 3, 0, 1, 2, 0, 0, 0, 0, 1]]);
        writer.option(option::DNS, &[&DNS.octets()]);
        writer.option(option::PREFERENCE, &[&[255]]);
        if let Some(ia) = asked.options().associations().next() {
            let (preferred, valid) = self.life;
            let times = [ia.iaid, 100, 200].map(u32::to_be_bytes);
            let life = [preferred.to_be_bytes(), valid.to_be_bytes()];
            let parts: [&[u8]; 4] =
                [times.as_flattened(), &[0, 5, 0, 24], &OURS.octets(), life.as_flattened()];
            writer.option(option::IA_NA, &parts);
        }
        let len = writer.finish().unwrap();
        out.truncate(len);
        out
    }

    /// A message of the server in its frame.
    fn frame(&self, message: &[u8]) -> Vec<u8> {
        let ours = self.rig.stack.interfaces()[1].link_local_addr().unwrap();
        let packet = udp((router_addr(1), 547).into(), (ours, 546).into(), message);
        frame(mac(HOST), router_mac(1), EtherType::IPV6, &packet)
    }

    /// Answers a question; returns the question that follows at once.
    fn reply(&mut self, question: &[u8], kind: Dhcpv6Type) -> Option<Vec<u8>> {
        let frame = self.frame(&self.answer(question, kind));
        self.rig.lives("an answer", &frame).iter().find_map(question_of)
    }

    /// Lets the host get its lease, up to the check of the address.
    fn lease(&mut self) {
        let solicit = self.question();
        assert_eq!(kind(&solicit), Dhcpv6Type::SOLICIT);
        let request = self.reply(&solicit, Dhcpv6Type::ADVERTISE).expect("at once");
        assert_eq!(kind(&request), Dhcpv6Type::REQUEST);
        assert_eq!(self.reply(&request, Dhcpv6Type::REPLY), None);
    }

    fn state(&self) -> Dhcpv6State {
        self.rig.stack.dhcpv6(ETH0).unwrap().state()
    }

    fn owned(&self) -> Option<AddressState> {
        self.rig.stack.interfaces()[1].owns(OURS.into())
    }

    fn dns(&self) -> Vec<IpAddr> {
        self.rig.stack.dns_servers(self.rig.now)
    }
}

#[test]
fn a_router_with_the_managed_flag_leads_to_an_address_and_its_dns() {
    let mut link = Link::new(&config());
    assert_eq!(link.questions(Duration::from_secs(60)).len(), 0, "no router has said so");
    link.advertise(true, false);
    link.lease();
    assert_eq!(
        (link.state(), link.owned()),
        (Dhcpv6State::Verifying, Some(AddressState::Tentative))
    );
    let departed = link.rig.run_for(Duration::from_secs(3));
    assert!(departed.iter().any(|p| bytes_of(p).get(54) == Some(&135)), "it is looked for");
    assert_eq!((link.state(), link.owned()), (Dhcpv6State::Bound, Some(AddressState::Preferred)));
    let address = link.rig.stack.interfaces()[1].address(OURS.into()).unwrap();
    assert_eq!(address.prefix_len, 128, "what is on the link the router says");
    assert_eq!(link.dns(), [IpAddr::V6(DNS)]);
    assert!(link.rig.stack.dns_changes() > 0);
    let ping = floodwall_tests::craft::echo(DNS.into(), OURS.into(), b"?");
    let ping = frame(mac(HOST), router_mac(1), EtherType::IPV6, &ping);
    link.rig.lives("in use", &ping);
    // Neighbours in the router's prefix, which no address of ours covers, are answered; others not.
    for (from, answered) in [(DNS, true), (Ipv6Addr::new(0x2001, 0xdb8, 7, 0, 0, 0, 0, 1), false)] {
        let mut out = [0; 64];
        let options = [NdpOption::SourceLinkAddr(router_mac(9))];
        let asks = NeighborSolicitationFields { target_addr: OURS };
        let len = asks.emit_into(&options, from, solicited_node(OURS), &mut out).unwrap();
        let frame = message_frame(router_mac(9), from, solicited_node(OURS), &out[..len]);
        let departed = link.rig.frame(&frame);
        let answers = departed.iter().filter(|p| bytes_of(p).get(54) == Some(&136)).count();
        assert_eq!(answers, usize::from(answered), "{from}");
    }
    // A router that repeats itself starts nothing.
    link.advertise(true, true);
    assert_eq!(link.state(), Dhcpv6State::Bound);
    assert!(link.rig.conservation().holds());
}

#[test]
fn a_lease_is_renewed_rebound_and_gone_when_nothing_answers() {
    let mut link = Link::new(&config());
    link.advertise(true, false);
    link.lease();
    link.rig.run_for(Duration::from_secs(3));
    let renew = link.questions(Duration::from_secs(101)).pop().expect("T1 has come");
    assert_eq!(kind(&renew), Dhcpv6Type::RENEW);
    link.life = (300, 400);
    link.reply(&renew, Dhcpv6Type::REPLY);
    assert_eq!((link.state(), link.owned()), (Dhcpv6State::Bound, Some(AddressState::Preferred)));
    let kinds: Vec<_> = link.questions(Duration::from_secs(390)).iter().map(|q| kind(q)).collect();
    assert!(kinds.starts_with(&[Dhcpv6Type::RENEW]) && kinds.ends_with(&[Dhcpv6Type::REBIND]));
    assert_eq!(link.owned(), Some(AddressState::Deprecated), "valid, but no longer preferred");
    let kinds: Vec<_> = link.questions(Duration::from_secs(20)).iter().map(|q| kind(q)).collect();
    assert_eq!(link.owned(), None);
    assert!(kinds.contains(&Dhcpv6Type::SOLICIT) && link.dns().is_empty());
    assert!(link.rig.conservation().holds());
}

#[test]
fn an_address_that_another_station_has_is_declined() {
    let mut link = Link::new(&config());
    link.advertise(true, false);
    link.lease();
    let (all, from) = ("ff02::1".parse().unwrap(), router_addr(9));
    let taken = NeighborAdvertisementFields {
        router: false,
        solicited: false,
        override_entry: true,
        target_addr: OURS,
    };
    let mut out = [0; 100];
    let options = [NdpOption::TargetLinkAddr(router_mac(9))];
    let len = taken.emit_into(&options, from, all, &mut out).unwrap();
    let heard = message_frame(router_mac(9), from, all, &out[..len]);
    let departed = link.rig.frame(&heard);
    let declined = departed.iter().find_map(question_of).unwrap_or_else(|| link.question());
    assert_eq!(kind(&declined), Dhcpv6Type::DECLINE);
    assert_eq!(
        (link.owned(), link.rig.stats().counters.of(Counter::FloodwallDhcpDeclines)),
        (None, 1)
    );
    link.reply(&declined, Dhcpv6Type::REPLY);
    assert_eq!(kind(&link.question()), Dhcpv6Type::SOLICIT);
}

#[test]
fn the_other_flag_alone_leads_to_dns_without_an_address() {
    let mut link = Link::new(&config());
    link.advertise(false, true);
    let question = link.question();
    assert_eq!(kind(&question), Dhcpv6Type::INFORMATION_REQUEST);
    link.reply(&question, Dhcpv6Type::REPLY);
    assert_eq!((link.state(), link.dns()), (Dhcpv6State::Informed, vec![IpAddr::V6(DNS)]));
    assert_eq!(link.owned(), None);
}

#[test]
fn a_link_that_goes_takes_the_lease_and_an_orderly_end_releases_it() {
    let mut link = Link::new(&config());
    link.advertise(true, false);
    link.lease();
    link.rig.run_for(Duration::from_secs(3));
    let (now, mut random) = (link.rig.now, floodwall_base::Randomness::from_number(1));
    link.rig.stack.set_up(ETH0, false, now, &mut random);
    assert_eq!((link.owned(), link.state()), (None, Dhcpv6State::Stopped));
    link.rig.stack.set_up(ETH0, true, now, &mut random);
    assert_eq!(link.questions(Duration::from_secs(10)).len(), 0, "until a router speaks");
    link.advertise(true, false);
    link.lease();
    link.rig.run_for(Duration::from_secs(3));
    link.rig.stack.release_leases(link.rig.now);
    let kinds: Vec<_> = link.questions(Duration::from_secs(1)).iter().map(|q| kind(q)).collect();
    assert_eq!((kinds, link.owned()), (vec![Dhcpv6Type::RELEASE], None));
}

#[test]
fn where_it_is_off_or_nothing_was_asked_messages_reach_nothing() {
    let mut off = config();
    off.interfaces[0].dhcpv6 = false;
    let mut link = Link::new(&off);
    link.advertise(true, true);
    assert_eq!(link.questions(Duration::from_secs(10)).len(), 0);
    assert!(link.rig.stack.dhcpv6(ETH0).is_none());
    let mut link = Link::new(&config());
    let unasked = link.frame(&[7, 0, 0, 1]);
    // A closed port, for which the router is looked for.
    link.rig.frame(&unasked);
    let stats = link.rig.stats();
    assert_eq!(stats.drops_in.of(DropReason::UdpNoPort), 1);
    assert_eq!(stats.counters.of(Counter::FloodwallDhcpIn), 0);
    link.advertise(true, false);
    let solicit = link.question();
    // Forged by another station, which has not seen the question; and one cut short.
    let mut forged = link.answer(&solicit, Dhcpv6Type::ADVERTISE);
    forged[3] ^= 1;
    for message in [&forged[..], &[2], &link.answer(&solicit, Dhcpv6Type(99))] {
        let frame = link.frame(message);
        link.rig.expect_drop("refused", &frame, DropReason::DhcpRefused, None);
    }
    assert_eq!(link.rig.stats().counters.of(Counter::FloodwallDhcpRefused), 3);
    // Under pressure it is not refused before it is read; what goes to closed ports is.
    let answer = link.frame(&link.answer(&solicit, Dhcpv6Type::ADVERTISE));
    let mut other = answer.clone();
    other[57] = 99;
    let classes = link.rig.classify(&[answer, other]);
    assert_eq!(classes, [Triage::Unknown, Triage::Rejectable]);
}
