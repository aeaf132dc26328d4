//! What neighbour discovery messages do, and what our own look like.

use core::time::Duration;

use floodwall_base::{HashKey, IfIndex, PublicRandom};
use floodwall_packet::{PacketBuf, Pool, PoolConfig};
use floodwall_wire::ndp::{
    Lifetime, NeighborSolicitationFields, Preference, RedirectFields, RouterSolicitationFields,
};
use floodwall_wire::{
    EtherType, EthernetHeader, Icmpv6Header, IpProtocol, Ipv6Header, ndp as wire,
};
use proptest::prelude::*;

use super::*;
use crate::iface::{LinkMedium, link_local};
use crate::neighbor::{NeighborConfig, NeighborState, Resolution};

const OURS: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 7]);
const US: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const THEM: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 7);
const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
const UNSPECIFIED: Ipv6Addr = Ipv6Addr::UNSPECIFIED;
const NONCE: Nonce = Nonce([1, 2, 3, 4, 5, 6]);

struct World {
    iface: Interface,
    cache: NeighborCache<Ipv6Addr>,
    pool: Pool,
    released: PacketList,
    counters: Counters,
    now: Instant,
}

impl World {
    fn new() -> Self {
        Self::of(OURS, "fd00::1/64")
    }

    fn of(link_addr: MacAddr, cidr: &str) -> Self {
        let medium = LinkMedium::Ethernet(link_addr);
        let mut iface = Interface::new(IfIndex(1), "e", medium, 1500, true);
        iface.add_address(cidr.parse().unwrap(), AddressState::Preferred).unwrap();
        let (now, key) = (Instant::ORIGIN, HashKey::new(1, 2));
        let config = NeighborConfig::for_interfaces(2);
        let few = PoolConfig { small: 16, frames: 1, references: 0, ..PoolConfig::default() };
        Self {
            iface,
            cache: NeighborCache::new(config, key, PublicRandom::new(3), now),
            pool: Pool::new(&few).unwrap(),
            released: PacketList::new(),
            counters: Counters::default(),
            now,
        }
    }

    fn hears<'a>(&mut self, message: &'a [u8], heading: &NdpHeading) -> NdpVerdict<'a> {
        let (released, counters) = (&mut self.released, &mut self.counters);
        input(message, heading, &self.iface, &mut self.cache, self.now, released, counters)
    }

    /// Takes a frame as it left a neighbour.
    fn hears_frame(&mut self, frame: &PacketBuf) -> NdpVerdict<'static> {
        let (heading, message) = parts(frame);
        match self.hears(&message, &heading) {
            NdpVerdict::Advertise(answer) => NdpVerdict::Advertise(answer),
            NdpVerdict::Learnt { addr, link_addr, router, reachable } => {
                NdpVerdict::Learnt { addr, link_addr, router, reachable }
            }
            NdpVerdict::DadConflict { addr, nonce } => NdpVerdict::DadConflict { addr, nonce },
            NdpVerdict::Drop(reason) => NdpVerdict::Drop(reason),
            NdpVerdict::Router(_) | NdpVerdict::Asked | NdpVerdict::Redirect(_) => {
                panic!("no router here")
            }
        }
    }

    fn asks_for(&mut self, addr: Ipv6Addr) {
        let packet = self.pool.packet_from(b"waits").unwrap();
        let waits = self.cache.resolve(IfIndex(1), addr, self.now, packet);
        assert!(matches!(waits, Resolution::Waiting { solicit: true, .. }));
    }

    fn known(&self, addr: Ipv6Addr) -> Option<(NeighborState, Option<MacAddr>)> {
        self.cache.neighbor(IfIndex(1), addr).map(|n| (n.state, n.link_addr))
    }

    fn left(&mut self) -> usize {
        self.released.take().len()
    }
}

/// A frame's heading and message, its checksum verified.
fn parts(frame: &PacketBuf) -> (NdpHeading, Vec<u8>) {
    let link = EthernetHeader::parse(frame.first()).unwrap();
    assert_eq!((link.ether_type(), frame.iface()), (EtherType::IPV6, IfIndex(1)));
    let header = Ipv6Header::parse(&frame.first()[14..], frame.len() - 14).unwrap();
    assert_eq!((header.next_header(), header.hop_limit()), (IpProtocol::ICMPV6, 255));
    assert_eq!((frame.l3(), frame.l4()), (14, 54));
    let message = &frame.first()[54..];
    assert_eq!(header.total_len(), 40 + message.len());
    let pseudo = header.pseudo_header(IpProtocol::ICMPV6, message.len() as u32);
    let body = floodwall_checksum::sum(&message[8..]);
    assert!(Icmpv6Header::parse(message).unwrap().verifies(pseudo, body));
    if header.dst_addr().is_multicast() {
        assert_eq!(link.dst_addr(), MacAddr::of_ipv6_multicast(header.dst_addr()));
    }
    let heading = NdpHeading {
        src_addr: header.src_addr(),
        dst_addr: header.dst_addr(),
        hop_limit: header.hop_limit(),
        fragmented: false,
        link_src_addr: Some(link.src_addr()),
        on_link: false,
    };
    (heading, message.to_vec())
}

fn heading(src_addr: Ipv6Addr, dst_addr: Ipv6Addr) -> NdpHeading {
    let link_src_addr = Some(PEER);
    let (hop_limit, fragmented, on_link) = (255, false, false);
    NdpHeading { src_addr, dst_addr, hop_limit, fragmented, link_src_addr, on_link }
}

/// A solicitation; its checksum is not read here.
fn asks(target_addr: Ipv6Addr, options: &[NdpOption<'_>]) -> Vec<u8> {
    let mut out = [0; 200];
    let fields = NeighborSolicitationFields { target_addr };
    let len = fields.emit_into(options, THEM, US, &mut out).unwrap();
    out[..len].to_vec()
}

fn says(target_addr: Ipv6Addr, flags: [bool; 3], options: &[NdpOption<'_>]) -> Vec<u8> {
    let [router, solicited, override_entry] = flags;
    let fields = NeighborAdvertisementFields { router, solicited, override_entry, target_addr };
    let mut out = [0; 200];
    let len = fields.emit_into(options, THEM, US, &mut out).unwrap();
    out[..len].to_vec()
}

const FROM_PEER: NdpOption<'static> = NdpOption::SourceLinkAddr(PEER);
const AT_PEER: NdpOption<'static> = NdpOption::TargetLinkAddr(PEER);

/// Why a message was dropped; `None` where it was not.
fn why(verdict: NdpVerdict<'_>) -> Option<DropReason> {
    match verdict {
        NdpVerdict::Drop(reason) => Some(reason),
        _ => None,
    }
}

fn answer(verdict: NdpVerdict<'_>) -> Advertisement {
    match verdict {
        NdpVerdict::Advertise(answer) => answer,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_solicitation_for_us_is_answered_and_its_sender_remembered() {
    let mut world = World::new();
    let message = asks(US, &[FROM_PEER]);
    let owed = answer(world.hears(&message, &heading(THEM, solicited_node(US))));
    let expected =
        Advertisement { target_addr: US, dst_addr: THEM, link_dst_addr: PEER, solicited: true };
    assert_eq!(owed, expected);
    assert_eq!(world.known(THEM), Some((NeighborState::Stale, Some(PEER))));
    assert_eq!(world.counters.of(Counter::Icmp6InNeighborSolicits), 1);
}

#[test]
fn a_solicitation_without_a_link_address_is_answered_and_makes_no_entry() {
    let mut world = World::new();
    let message = asks(US, &[]);
    let owed = answer(world.hears(&message, &heading(THEM, US)));
    assert_eq!((owed.link_dst_addr, owed.solicited), (PEER, true));
    assert_eq!(world.known(THEM), None);
}

#[test]
fn another_nodes_probe_for_us_is_answered_to_all() {
    let mut world = World::new();
    let message = asks(US, &[NdpOption::Nonce(&NONCE.0)]);
    let owed = answer(world.hears(&message, &heading(UNSPECIFIED, solicited_node(US))));
    assert_eq!((owed.dst_addr.to_string(), owed.solicited), ("ff02::1".to_owned(), false));
    assert_eq!(world.cache.iter().count(), 0);
}

#[test]
fn probes_that_break_a_rule_are_refused() {
    let mut world = World::new();
    let malformed = Some(DropReason::NdpMalformed);
    // An unspecified source with a link address, or sent elsewhere than to the group.
    let message = asks(US, &[FROM_PEER]);
    assert_eq!(why(world.hears(&message, &heading(UNSPECIFIED, solicited_node(US)))), malformed);
    let message = asks(US, &[]);
    for dst_addr in [US, output::ALL_NODES, solicited_node(THEM)] {
        assert_eq!(why(world.hears(&message, &heading(UNSPECIFIED, dst_addr))), malformed);
    }
}

#[test]
fn solicitations_from_off_the_link_or_from_ourselves_make_no_entry() {
    let mut world = World::new();
    let message = asks(US, &[FROM_PEER]);
    for src_addr in ["2001:db8::1", "fd00:0:0:1::1", "ff02::1", "fd00::1"] {
        let heading = heading(src_addr.parse().unwrap(), US);
        assert_eq!(why(world.hears(&message, &heading)), Some(DropReason::NdpNotForUs));
    }
    let message = asks(US, &[NdpOption::SourceLinkAddr(OURS)]);
    assert_eq!(why(world.hears(&message, &heading(THEM, US))), Some(DropReason::NdpNotForUs));
    let message = asks(THEM, &[FROM_PEER]);
    let elsewhere = heading("fd00::8".parse().unwrap(), solicited_node(THEM));
    assert_eq!(why(world.hears(&message, &elsewhere)), Some(DropReason::NdpNotForUs));
    assert_eq!(world.cache.iter().count(), 0);
    // A route puts it on the link: a router says that its prefix is there (RFC 5942).
    let far = heading("2001:db8::1".parse().unwrap(), US);
    let near = NdpHeading { on_link: true, ..far };
    let message = asks(US, &[FROM_PEER]);
    assert!(matches!(world.hears(&message, &near), NdpVerdict::Advertise(_)));
    assert_eq!(world.cache.iter().count(), 1);
}

#[test]
fn what_crossed_a_router_or_was_a_fragment_is_refused() {
    let mut world = World::new();
    world.asks_for(THEM);
    let messages = [asks(US, &[FROM_PEER]), says(THEM, [false, true, true], &[AT_PEER])];
    for message in &messages {
        for hop_limit in [0, 1, 64, 254] {
            let heading = NdpHeading { hop_limit, ..heading(THEM, US) };
            assert_eq!(why(world.hears(message, &heading)), Some(DropReason::NdpHopLimit));
        }
        let heading = NdpHeading { fragmented: true, ..heading(THEM, US) };
        assert_eq!(why(world.hears(message, &heading)), Some(DropReason::NdpMalformed));
    }
    assert_eq!(world.known(THEM), Some((NeighborState::Incomplete, None)));
}

#[test]
fn malformed_messages_are_refused_and_change_nothing() {
    let mut world = World::new();
    world.asks_for(THEM);
    let malformed = Some(DropReason::NdpMalformed);
    let (question, says_so) = (asks(US, &[FROM_PEER]), says(THEM, [false, true, true], &[AT_PEER]));
    for whole in [&question, &says_so] {
        for len in (1..24).chain(25..32) {
            assert_eq!(why(world.hears(&whole[..len], &heading(THEM, US))), malformed, "{len}");
        }
        let mut wrong = whole.clone();
        wrong[1] = 1;
        assert_eq!(why(world.hears(&wrong, &heading(THEM, US))), malformed);
        let mut wrong = whole.clone();
        wrong[25] = 0;
        assert_eq!(why(world.hears(&wrong, &heading(THEM, US))), malformed);
        let mut wrong = whole.clone();
        wrong[8] = 0xff;
        assert_eq!(why(world.hears(&wrong, &heading(THEM, US))), malformed);
    }
    // Link addresses that no station has.
    for link_addr in [MacAddr::ZERO, MacAddr::BROADCAST] {
        let message = asks(US, &[NdpOption::SourceLinkAddr(link_addr)]);
        assert_eq!(why(world.hears(&message, &heading(THEM, US))), malformed);
        let message = says(THEM, [false, true, true], &[NdpOption::TargetLinkAddr(link_addr)]);
        assert_eq!(why(world.hears(&message, &heading(THEM, US))), malformed);
    }
    // An answer cannot go to a group.
    assert_eq!(why(world.hears(&says_so, &heading(THEM, output::ALL_NODES))), malformed);
    assert_eq!(why(world.hears(&[], &heading(THEM, US))), Some(DropReason::IcmpTypeUnknown));
    assert_eq!(world.known(THEM), Some((NeighborState::Incomplete, None)));
    assert_eq!(world.cache.iter().count(), 1);
}

#[test]
fn an_answer_makes_the_neighbour_reachable_and_others_make_nothing() {
    let mut world = World::new();
    let message = says(THEM, [true, true, true], &[AT_PEER]);
    let unsolicited = Some(DropReason::NdpUnsolicited);
    assert_eq!(why(world.hears(&message, &heading(THEM, US))), unsolicited);
    assert_eq!(world.cache.iter().count(), 0);
    world.asks_for(THEM);
    assert!(matches!(
        world.hears(&message, &heading(THEM, US)),
        NdpVerdict::Learnt { addr: THEM, link_addr: PEER, router: Some(true), reachable: true }
    ));
    assert_eq!((world.left(), world.known(THEM).unwrap().0), (1, NeighborState::Reachable));
    assert!(world.cache.neighbor(IfIndex(1), THEM).unwrap().is_router);
    assert_eq!(world.counters.of(Counter::Icmp6InNeighborAdvertisements), 2);
}

#[test]
fn one_that_claims_our_address_is_reported_and_our_own_echo_is_not() {
    let mut world = World::new();
    let tentative = link_local(OURS);
    for addr in [US, tentative] {
        let message = says(addr, [false, false, true], &[AT_PEER]);
        let verdict = world.hears(&message, &heading(addr, output::ALL_NODES));
        assert!(matches!(verdict, NdpVerdict::DadConflict { addr: a, nonce: None } if a == addr));
        let message = says(addr, [false, false, true], &[NdpOption::TargetLinkAddr(OURS)]);
        let verdict = world.hears(&message, &heading(addr, output::ALL_NODES));
        assert_eq!(why(verdict), Some(DropReason::NdpNotForUs));
    }
    // Another host's probe for the address that we probe for; a solicitation for it is not answered
    // yet.
    let group = solicited_node(tentative);
    let message = asks(tentative, &[NdpOption::Nonce(&NONCE.0)]);
    let verdict = world.hears(&message, &heading(UNSPECIFIED, group));
    let NdpVerdict::DadConflict { addr, nonce } = verdict else { panic!("{verdict:?}") };
    assert_eq!((addr, nonce), (tentative, Some(NONCE)));
    let message = asks(tentative, &[FROM_PEER]);
    assert_eq!(why(world.hears(&message, &heading(THEM, group))), Some(DropReason::NdpNotForUs));
}

#[test]
fn routers_are_heard_if_they_are_on_the_link() {
    let mut world = World::new();
    let fields = RouterAdvertisementFields {
        hop_limit: Some(64),
        managed: false,
        other: false,
        preference: Preference::Medium,
        router_lifetime: Duration::from_secs(1800),
        reachable_time: Duration::ZERO,
        retrans_timer: Duration::ZERO,
    };
    let prefix = |prefix_len| {
        NdpOption::PrefixInfo(PrefixInfo {
            prefix: US,
            prefix_len,
            on_link: true,
            autonomous: true,
            valid_lifetime: Lifetime::from_secs(7200),
            preferred_lifetime: Lifetime::from_secs(3600),
        })
    };
    let options = [FROM_PEER, prefix(64), prefix(129), prefix(48)];
    let mut out = [0; 300];
    let len = fields.emit_into(&options, ROUTER, output::ALL_NODES, &mut out).unwrap();
    let verdict = world.hears(&out[..len], &heading(ROUTER, output::ALL_NODES));
    let NdpVerdict::Router(router) = verdict else { panic!("{verdict:?}") };
    assert_eq!((router.router_addr, router.link_addr), (ROUTER, Some(PEER)));
    assert_eq!(router.fields, fields);
    assert_eq!(router.prefixes().map(|p| p.prefix_len).collect::<Vec<_>>(), [64, 48]);
    let elsewhere = heading(THEM, output::ALL_NODES);
    assert_eq!(why(world.hears(&out[..len], &elsewhere)), Some(DropReason::NdpMalformed));
    assert_eq!(world.counters.of(Counter::Icmp6InRouterAdvertisements), 2);
    assert_eq!(world.cache.iter().count(), 0);
}

#[test]
fn redirects_and_router_solicitations_are_checked() {
    let mut world = World::new();
    let (unknown, malformed) = (DropReason::IcmpTypeUnknown, DropReason::NdpMalformed);
    let mut out = [0; 200];
    let fields = RedirectFields { target_addr: ROUTER, dst_addr: THEM };
    let options = [AT_PEER, NdpOption::RedirectedHeader(&[6; 8])];
    let len = fields.emit_into(&options, ROUTER, US, &mut out).unwrap();
    let verdict = world.hears(&out[..len], &heading(ROUTER, US));
    let NdpVerdict::Redirect(said) = verdict else { panic!("{verdict:?}") };
    assert_eq!((said.from, said.target_addr, said.dst_addr), (ROUTER, ROUTER, THEM));
    assert_eq!((said.link_addr, said.quote), (Some(PEER), Some([6; 8].as_slice())));
    assert_eq!(why(world.hears(&out[..len], &heading(THEM, US))), Some(malformed));
    let fields = RedirectFields { target_addr: THEM, dst_addr: US };
    let len = fields.emit_into(&[], ROUTER, US, &mut out).unwrap();
    assert_eq!(why(world.hears(&out[..len], &heading(ROUTER, US))), Some(malformed));
    let len = RouterSolicitationFields.emit_into(&[FROM_PEER], ROUTER, US, &mut out).unwrap();
    assert_eq!(why(world.hears(&out[..len], &heading(ROUTER, US))), Some(unknown));
    assert_eq!(why(world.hears(&out[..len], &heading(UNSPECIFIED, US))), Some(malformed));
    assert_eq!(world.cache.iter().count(), 0);
}

#[test]
fn a_router_records_the_sender_of_a_solicitation_and_that_it_is_a_host() {
    // RFC 4861 section 6.2.6.
    let mut world = World::new();
    world.iface.is_router = true;
    let mut out = [0; 200];
    let len = RouterSolicitationFields.emit_into(&[FROM_PEER], THEM, US, &mut out).unwrap();
    assert!(matches!(world.hears(&out[..len], &heading(THEM, US)), NdpVerdict::Asked));
    assert_eq!(world.known(THEM), Some((NeighborState::Stale, Some(PEER))));
    // From another link address: the entry changes, and a router it is no more.
    let (now, waited) = (world.now, &mut PacketList::new());
    world.cache.router_said(IfIndex(1), THEM, Some(PEER), now, waited);
    assert!(world.cache.neighbor(IfIndex(1), THEM).unwrap().is_router);
    let other = MacAddr([2, 0, 0, 0, 0, 0x55]);
    let elsewhere = [NdpOption::SourceLinkAddr(other)];
    let len = RouterSolicitationFields.emit_into(&elsewhere, THEM, US, &mut out).unwrap();
    assert!(matches!(world.hears(&out[..len], &heading(THEM, US)), NdpVerdict::Asked));
    assert_eq!(world.known(THEM), Some((NeighborState::Stale, Some(other))));
    assert!(!world.cache.neighbor(IfIndex(1), THEM).unwrap().is_router);
    // A sender that is not on the link, or claims our address, is not remembered; without the
    // option none is.
    let afar: Ipv6Addr = "2001:db8::7".parse().unwrap();
    let len = RouterSolicitationFields.emit_into(&[FROM_PEER], afar, US, &mut out).unwrap();
    let why_not = Some(DropReason::NdpNotForUs);
    assert_eq!(why(world.hears(&out[..len], &heading(afar, US))), why_not);
    let len = RouterSolicitationFields.emit_into(&[], ROUTER, US, &mut out).unwrap();
    assert!(matches!(world.hears(&out[..len], &heading(ROUTER, US)), NdpVerdict::Asked));
    assert_eq!(world.cache.iter().count(), 1);
}

#[test]
fn our_frames_say_what_they_must() {
    let mut world = World::new();
    let (pool, iface) = (&world.pool, &world.iface);
    let (at, message) = parts(&solicitation(pool, iface, US, THEM, None).unwrap());
    assert_eq!((at.src_addr, at.dst_addr), (US, solicited_node(THEM)));
    let question = wire::NeighborSolicitation::parse(&message).unwrap();
    assert_eq!(question.options().source_link_addr(), Some(OURS));
    let frame = solicitation(pool, iface, US, THEM, Some(PEER)).unwrap();
    assert_eq!(EthernetHeader::parse(frame.first()).unwrap().dst_addr(), PEER);
    assert_eq!(parts(&frame).0.dst_addr, THEM);
    let (at, message) = parts(&probe(pool, iface, US, NONCE).unwrap());
    assert_eq!((at.src_addr, at.dst_addr), (UNSPECIFIED, solicited_node(US)));
    let question = wire::NeighborSolicitation::parse(&message).unwrap();
    assert_eq!(question.options().source_link_addr(), None);
    assert_eq!(question.options().nonce(), Some(NONCE.0.as_slice()));
    let (at, message) = parts(&announce(pool, iface, US).unwrap());
    assert_eq!((at.src_addr, at.dst_addr), (US, output::ALL_NODES));
    let said = wire::NeighborAdvertisement::parse(&message).unwrap();
    assert_eq!((said.fields().solicited, said.fields().override_entry), (false, true));
    // Before our link-local address is ours, routers are solicited without it, and without a link
    // address.
    let (at, message) = parts(&router_solicitation(pool, iface).unwrap());
    let asked = wire::RouterSolicitation::parse(&message).unwrap();
    assert_eq!((at.src_addr, asked.options().source_link_addr()), (UNSPECIFIED, None));
    let own = link_local(OURS);
    world.iface.set_address_state(IpAddr::V6(own), AddressState::Preferred).unwrap();
    let (at, message) = parts(&router_solicitation(&world.pool, &world.iface).unwrap());
    let asked = wire::RouterSolicitation::parse(&message).unwrap();
    assert_eq!((at.src_addr, asked.options().source_link_addr()), (own, Some(OURS)));
    let bare = Interface::new(IfIndex(2), "t", LinkMedium::Ip, 1500, true);
    assert!(solicitation(&world.pool, &bare, US, THEM, None).is_none());
    assert!(probe(&world.pool, &bare, US, NONCE).is_none());
}

#[test]
fn two_of_us_find_each_other() {
    let (mut a, mut b) = (World::new(), World::of(PEER, "fd00::7/64"));
    a.asks_for(THEM);
    let question = solicitation(&a.pool, &a.iface, US, THEM, None).unwrap();
    let owed = answer(b.hears_frame(&question));
    let said = advertisement(&b.pool, &b.iface, &owed).unwrap();
    assert!(matches!(a.hears_frame(&said), NdpVerdict::Learnt { link_addr: PEER, .. }));
    assert_eq!((a.left(), a.known(THEM)), (1, Some((NeighborState::Reachable, Some(PEER)))));
    assert_eq!(b.known(US), Some((NeighborState::Stale, Some(OURS))));
    // And a probe for what the other has is a conflict once it answers.
    let probes = probe(&a.pool, &a.iface, THEM, NONCE).unwrap();
    let owed = answer(b.hears_frame(&probes));
    let said = advertisement(&b.pool, &b.iface, &owed).unwrap();
    a.iface.add_address("fd00::7/64".parse().unwrap(), AddressState::Tentative).unwrap();
    assert!(matches!(a.hears_frame(&said), NdpVerdict::DadConflict { addr: THEM, nonce: None }));
    // Our own probe, come back, carries our nonce.
    let verdict = a.hears_frame(&probes);
    assert!(matches!(verdict, NdpVerdict::DadConflict { nonce: Some(NONCE), .. }), "{verdict:?}");
}

proptest! {
    #[test]
    fn no_bytes_make_an_entry_but_a_solicitation_for_us(
        kind in 130_u8..140,
        bytes in prop::collection::vec(any::<u8>(), 0..120),
        for_us in any::<bool>(),
    ) {
        let (mut world, mut message) = (World::new(), vec![kind, 0, 0, 0, 0, 0, 0, 0]);
        if for_us {
            message.extend(US.octets());
        }
        message.extend(bytes);
        let verdict = world.hears(&message, &heading(THEM, US));
        let answers = matches!(verdict, NdpVerdict::Advertise(_));
        prop_assert!(world.cache.iter().count() == 0 || answers);
    }
}
