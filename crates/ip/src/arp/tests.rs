//! What ARP packets do, and what our own look like.

use core::time::Duration;

use floodwall_base::{HashKey, IfIndex, PublicRandom};
use floodwall_packet::PoolConfig;
use floodwall_wire::EthernetHeader;
use proptest::prelude::*;

use super::*;
use crate::iface::LinkMedium;
use crate::neighbor::{NeighborConfig, NeighborState, Resolution};

const OURS: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 7]);
const US: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const THEM: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 7);
const UNSPECIFIED: Ipv4Addr = Ipv4Addr::UNSPECIFIED;

struct World {
    iface: Interface,
    cache: NeighborCache<Ipv4Addr>,
    pool: Pool,
    released: PacketList,
    counters: Counters,
    now: Instant,
}

impl World {
    fn new() -> Self {
        let mut iface = Interface::new(IfIndex(1), "e", LinkMedium::Ethernet(OURS), 1500, false);
        iface.add_address("10.0.0.1/24".parse().unwrap(), AddressState::Preferred).unwrap();
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

    fn hears(&mut self, packet: ArpPacket) -> ArpVerdict {
        let mut bytes = [0; 46];
        packet.emit(bytes.first_chunk_mut().unwrap());
        self.hears_bytes(&bytes)
    }

    fn hears_bytes(&mut self, bytes: &[u8]) -> ArpVerdict {
        let (released, counters) = (&mut self.released, &mut self.counters);
        input(bytes, &self.iface, &mut self.cache, self.now, released, counters)
    }

    /// A packet of ours waits for a neighbour.
    fn asks_for(&mut self, addr: Ipv4Addr) {
        let packet = self.pool.packet_from(b"waits").unwrap();
        let waits = self.cache.resolve(IfIndex(1), (addr, Ipv4Addr::UNSPECIFIED), self.now, packet);
        assert!(matches!(waits, Resolution::Waiting { solicit: true, .. }));
    }

    fn known(&self, addr: Ipv4Addr) -> Option<(NeighborState, Option<MacAddr>)> {
        self.cache.neighbor(IfIndex(1), addr).map(|n| (n.state, n.link_addr))
    }

    fn left(&mut self) -> usize {
        self.released.take().len()
    }
}

fn packet(
    operation: ArpOperation,
    sender: (MacAddr, Ipv4Addr),
    target: (MacAddr, Ipv4Addr),
) -> ArpPacket {
    ArpPacket {
        operation,
        sender_link_addr: sender.0,
        sender_addr: sender.1,
        target_link_addr: target.0,
        target_addr: target.1,
    }
}

fn asks(sender: (MacAddr, Ipv4Addr), target: Ipv4Addr) -> ArpPacket {
    packet(ArpOperation::REQUEST, sender, (MacAddr::ZERO, target))
}

fn says(sender: (MacAddr, Ipv4Addr), target: (MacAddr, Ipv4Addr)) -> ArpPacket {
    packet(ArpOperation::REPLY, sender, target)
}

const NOT_FOR_US: ArpVerdict = ArpVerdict::Drop(DropReason::ArpNotForUs);
const BAD_SENDER: ArpVerdict = ArpVerdict::Drop(DropReason::ArpSenderInvalid);

#[test]
fn a_request_for_us_is_answered_and_its_sender_remembered() {
    let mut world = World::new();
    let answer = says((OURS, US), (PEER, THEM));
    let reply = ArpVerdict::Reply { link_addr: PEER, packet: answer };
    assert_eq!(world.hears(asks((PEER, THEM), US)), reply);
    assert_eq!(world.known(THEM), Some((NeighborState::Stale, Some(PEER))));
    assert_eq!(world.counters.of(Counter::FloodwallArpInRequests), 1);
    // One from elsewhere is answered, and not remembered.
    let far = Ipv4Addr::new(192, 0, 2, 9);
    assert!(matches!(world.hears(asks((PEER, far), US)), ArpVerdict::Reply { .. }));
    assert_eq!(world.known(far), None);
    // A request releases what waited for its sender.
    let other = Ipv4Addr::new(10, 0, 0, 8);
    world.asks_for(other);
    assert!(matches!(world.hears(asks((PEER, other), US)), ArpVerdict::Reply { .. }));
    assert_eq!(world.left(), 1);
}

#[test]
fn a_probe_for_us_is_answered_and_makes_no_entry() {
    let mut world = World::new();
    let answer = says((OURS, US), (PEER, UNSPECIFIED));
    let reply = ArpVerdict::Reply { link_addr: PEER, packet: answer };
    assert_eq!(world.hears(asks((PEER, UNSPECIFIED), US)), reply);
    assert_eq!(world.cache.iter().count(), 0);
}

#[test]
fn a_reply_that_we_asked_for_makes_the_neighbour_reachable() {
    let mut world = World::new();
    world.asks_for(THEM);
    let learnt = ArpVerdict::Learnt { link_addr: PEER };
    assert_eq!(world.hears(says((PEER, THEM), (OURS, US))), learnt);
    assert_eq!((world.left(), world.known(THEM).unwrap().0), (1, NeighborState::Reachable));
    assert_eq!(world.counters.of(Counter::FloodwallArpInReplies), 1);
}

#[test]
fn a_reply_that_nothing_asked_for_makes_nothing_and_proves_nothing() {
    let mut world = World::new();
    for n in 0..200 {
        let addr = Ipv4Addr::from_bits(THEM.to_bits() + n);
        assert_eq!(world.hears(says((PEER, addr), (OURS, US))), NOT_FOR_US);
        assert_eq!(world.hears(says((PEER, addr), (PEER, addr))), NOT_FOR_US);
        assert_eq!(world.hears(asks((PEER, addr), addr)), NOT_FOR_US);
    }
    assert_eq!(world.cache.iter().count(), 0);
    // A known one is updated from then on, but not confirmed as reachable.
    world.asks_for(THEM);
    let _ = world.hears(says((PEER, THEM), (OURS, US)));
    let moved = MacAddr([2, 0, 0, 0, 0, 9]);
    let learnt = ArpVerdict::Learnt { link_addr: moved };
    let other = Ipv4Addr::new(10, 0, 0, 99);
    for packet in [
        asks((moved, THEM), other),
        says((moved, THEM), (OURS, US)),
        asks((moved, THEM), THEM),
        says((moved, THEM), (MacAddr::BROADCAST, THEM)),
    ] {
        assert_eq!(world.hears(packet), learnt);
        assert_eq!(world.known(THEM), Some((NeighborState::Stale, Some(moved))));
    }
}

#[test]
fn what_is_between_others_is_not_our_business() {
    let mut world = World::new();
    let other = Ipv4Addr::new(10, 0, 0, 99);
    world.asks_for(THEM);
    assert_eq!(world.hears(asks((PEER, THEM), other)), NOT_FOR_US);
    assert_eq!(world.hears(says((PEER, THEM), (PEER, other))), NOT_FOR_US);
    assert_eq!(world.counters, Counters::default());
    assert_eq!(world.hears(says((PEER, UNSPECIFIED), (OURS, US))), NOT_FOR_US);
    assert_eq!(world.known(THEM), Some((NeighborState::Incomplete, None)));
}

#[test]
fn an_address_that_moves_to_another_station_is_followed_at_once() {
    let other = Ipv4Addr::new(10, 0, 0, 99);
    let new = MacAddr([2, 0, 0, 0, 0, 8]);
    // Announcements as questions and as answers, a question for us and one for another host.
    for message in [
        asks((new, THEM), THEM),
        says((new, THEM), (MacAddr::BROADCAST, THEM)),
        says((new, THEM), (OURS, US)),
        asks((new, THEM), US),
        asks((new, THEM), other),
    ] {
        let mut world = World::new();
        world.asks_for(THEM);
        let _ = world.hears(says((PEER, THEM), (OURS, US)));
        assert_eq!(world.known(THEM), Some((NeighborState::Reachable, Some(PEER))));
        let _ = world.hears(message);
        assert_eq!(world.known(THEM), Some((NeighborState::Stale, Some(new))), "{message:?}");
    }
}

#[test]
fn another_station_with_our_address_is_a_conflict_and_changes_nothing() {
    let mut world = World::new();
    let conflict = ArpVerdict::Conflict(US);
    assert_eq!(world.hears(asks((PEER, US), US)), conflict);
    assert_eq!(world.hears(asks((PEER, US), THEM)), conflict);
    assert_eq!(world.hears(says((PEER, US), (OURS, US))), conflict);
    // While an address is tentative, another host's probe for it is a conflict too, and no request
    // is answered.
    world.iface.set_address_state(IpAddr::V4(US), AddressState::Tentative).unwrap();
    assert_eq!(world.hears(asks((PEER, UNSPECIFIED), US)), conflict);
    assert_eq!(world.hears(asks((PEER, THEM), US)), NOT_FOR_US);
    assert_eq!(world.cache.iter().count(), 0);
}

#[test]
fn impossible_senders_are_refused() {
    let mut world = World::new();
    for link_addr in [MacAddr::ZERO, MacAddr::BROADCAST, MacAddr([1, 0, 0x5e, 0, 0, 1]), OURS] {
        assert_eq!(world.hears(asks((link_addr, THEM), US)), BAD_SENDER);
    }
    for addr in ["10.0.0.255", "255.255.255.255", "224.0.0.1", "127.0.0.1", "0.1.2.3"] {
        assert_eq!(world.hears(asks((PEER, addr.parse().unwrap()), US)), BAD_SENDER, "{addr}");
    }
    assert_eq!(world.cache.iter().count(), 0);
}

#[test]
fn malformed_packets_are_refused_at_every_length() {
    let mut world = World::new();
    let mut bytes = [0; 28];
    asks((PEER, THEM), US).emit(&mut bytes);
    let malformed = ArpVerdict::Drop(DropReason::ArpMalformed);
    for len in 0..28 {
        assert_eq!(world.hears_bytes(&bytes[..len]), malformed);
    }
    for at in [0, 2, 4, 5, 7] {
        let mut wrong = bytes;
        wrong[at] ^= 0x40;
        assert_eq!(world.hears_bytes(&wrong), malformed, "{at}");
    }
    world.iface.medium = LinkMedium::Ip;
    assert_eq!(world.hears_bytes(&bytes), malformed);
}

#[test]
fn a_flood_of_requests_for_us_keeps_to_the_share_of_unverified_packets() {
    let mut world = World::new();
    for n in 2..=254 {
        let addr = Ipv4Addr::new(10, 0, 0, n);
        assert!(matches!(world.hears(asks((PEER, addr), US)), ArpVerdict::Reply { .. }));
    }
    assert_eq!(world.cache.iter().count(), 64);
}

#[test]
fn our_frames_are_whole_and_name_their_interface() {
    let world = World::new();
    let check = |frame: Option<PacketBuf>, to: MacAddr, expected: ArpPacket| {
        let frame = frame.unwrap();
        let header = EthernetHeader::parse(frame.first()).unwrap();
        assert_eq!((header.dst_addr(), header.src_addr()), (to, OURS));
        assert_eq!((header.ether_type(), frame.len()), (EtherType::ARP, 42));
        assert_eq!(ArpPacket::parse(&frame.first()[14..]), Ok(expected));
        assert_eq!((frame.iface(), frame.l3()), (IfIndex(1), 14));
    };
    let (pool, iface, all) = (&world.pool, &world.iface, MacAddr::BROADCAST);
    check(request(pool, iface, US, THEM, None), all, asks((OURS, US), THEM));
    check(request(pool, iface, US, THEM, Some(PEER)), PEER, asks((OURS, US), THEM));
    check(probe(pool, iface, US), all, asks((OURS, UNSPECIFIED), US));
    check(announce(pool, iface, US), all, asks((OURS, US), US));
    let answer = says((OURS, US), (PEER, THEM));
    check(frame(pool, iface, PEER, &answer), PEER, answer);
    let bare = Interface::new(IfIndex(2), "t", LinkMedium::Ip, 1500, false);
    assert!(probe(pool, &bare, US).is_none());
}

#[test]
fn two_of_us_find_each_other() {
    let (mut a, mut b) = (World::new(), World::new());
    b.iface = Interface::new(IfIndex(1), "e", LinkMedium::Ethernet(PEER), 1500, false);
    b.iface.add_address("10.0.0.7/24".parse().unwrap(), AddressState::Preferred).unwrap();
    a.asks_for(THEM);
    let question = request(&a.pool, &a.iface, US, THEM, None).unwrap();
    let ArpVerdict::Reply { link_addr, packet } = b.hears_bytes(&question.first()[14..]) else {
        panic!("no answer");
    };
    let answer = frame(&b.pool, &b.iface, link_addr, &packet).unwrap();
    assert_eq!(a.hears_bytes(&answer.first()[14..]), ArpVerdict::Learnt { link_addr: PEER });
    let later = a.now + Duration::from_secs(1);
    assert_eq!((a.left(), a.cache.lookup(IfIndex(1), THEM, later)), (1, Some(PEER)));
    assert_eq!(b.known(US), Some((NeighborState::Stale, Some(OURS))));
}

proptest! {
    #[test]
    fn no_bytes_make_an_entry_but_a_request_for_us(
        bytes in prop::collection::vec(any::<u8>(), 0..64),
        like_arp in any::<bool>(),
    ) {
        let (mut world, mut bytes) = (World::new(), bytes);
        if like_arp {
            for (byte, fixed) in bytes.iter_mut().zip([0, 1, 8, 0, 6, 4, 0]) {
                *byte = fixed;
            }
        }
        let verdict = world.hears_bytes(&bytes);
        let entries = world.cache.iter().count();
        let replies = matches!(verdict, ArpVerdict::Reply { .. });
        prop_assert!(entries == 0 || replies);
    }
}
