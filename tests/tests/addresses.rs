//! Addresses and links that come, change and go while the stack runs.
//!
//! Each guarantee holds for both families. Here: what becomes of the address, its route, the
//! neighbours behind it, and the sockets bound to it. Reading: RFC 4862 section 5.5, RFC 5227.
#![expect(clippy::unwrap_used, reason = "what a test cannot do without ends the test")]

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use floodwall_base::{DropReason, Family, IfIndex, Instant, IpCidr, limits};
use floodwall_ip::{AddressState, Detection};
use floodwall_packet::{Engine, PacketBuf};
use floodwall_stack::{AddAddress, AddressError, AddressOrigin, SendError, StackConfig};
use floodwall_tests::craft::{FAMILIES, HOST, PEER, addr, echo, from_peer};
use floodwall_tests::{Rig, ethernet_config};
use floodwall_udp::SocketSettings;

const ETH0: IfIndex = IfIndex(1);

fn rig() -> Rig {
    let mut rig = Rig::with_neighbor(&ethernet_config(HOST), PEER);
    rig.run_for(Duration::from_secs(10));
    rig
}

/// A rig that probes its new addresses.
fn careful() -> Rig {
    let config = StackConfig { duplicate_address_detection: true, ..ethernet_config(HOST) };
    let mut rig = Rig::with_neighbor(&config, PEER);
    rig.run_for(Duration::from_secs(10));
    rig
}

/// An address of the test network, or of another one.
fn cidr(family: Family, net: u8, host: u8) -> IpCidr {
    match family {
        Family::V4 => format!("10.0.{net}.{host}/24").parse().unwrap(),
        Family::V6 => format!("fd00:0:0:{net}::{host}/64").parse().unwrap(),
    }
}

fn add(rig: &mut Rig, new: AddAddress) -> Result<(), AddressError> {
    rig.stack.add_address(ETH0, new, rig.now, &mut rig.random)
}

fn remove(rig: &mut Rig, addr: IpAddr) -> Result<(), AddressError> {
    rig.stack.remove_address(ETH0, addr, rig.now, &mut rig.random)
}

fn state(rig: &Rig, addr: IpAddr) -> Option<AddressState> {
    rig.stack.interfaces()[1].owns(addr)
}

/// Routes that lead to exactly this prefix.
fn routes_to(rig: &Rig, cidr: IpCidr) -> usize {
    let v4 = rig.stack.routes_v4().dump();
    let v6 = rig.stack.routes_v6().dump();
    let same = |addr: IpAddr, len: u8| len == cidr.prefix_len() && cidr.contains(addr);
    v4.filter(|r| same(r.prefix.addr().into(), r.prefix.len())).count()
        + v6.filter(|r| same(r.prefix.addr().into(), r.prefix.len())).count()
}

fn ping(family: Family, to: IpAddr) -> Vec<u8> {
    from_peer(&echo(addr(family, PEER), to, b"?"))
}

/// The packet is for another host.
fn foreign(rig: &mut Rig, question: &[u8]) {
    rig.expect_drop("foreign", question, DropReason::IpNotForUs, None);
}

fn open(rig: &mut Rig, at: IpAddr) -> floodwall_udp::SocketId {
    rig.sockets(|s| s.udp_bind(SocketAddr::new(at, 7000), SocketSettings::new(Family::of(at))))
        .0
        .unwrap()
}

fn limited(cidr: IpCidr, preferred: Instant, valid: Instant) -> AddAddress {
    let (preferred_until, valid_until) = (Some(preferred), Some(valid));
    AddAddress { preferred_until, valid_until, ..AddAddress::manual(cidr) }
}

#[test]
fn an_address_that_comes_while_packets_pass_is_answered_for_and_one_that_goes_is_not() {
    for family in FAMILIES {
        let mut rig = rig();
        let new = cidr(family, 0, 77);
        let question = ping(family, new.addr());
        foreign(&mut rig, &question);
        add(&mut rig, AddAddress::manual(new)).unwrap();
        assert_eq!(rig.lives("added", &question).len(), 1);
        remove(&mut rig, new.addr()).unwrap();
        foreign(&mut rig, &question);
        assert_eq!(rig.lives("the old one", &ping(family, addr(family, HOST))).len(), 1);
    }
}

#[test]
fn a_new_address_is_probed_first_and_announced_or_used_then() {
    for family in FAMILIES {
        let mut rig = careful();
        let new = cidr(family, 0, 77);
        let probed = AddAddress { detection: Detection::Probe, ..AddAddress::manual(new) };
        add(&mut rig, probed).unwrap();
        assert_eq!(state(&rig, new.addr()), Some(AddressState::Tentative));
        foreign(&mut rig, &ping(family, new.addr()));
        let sent = rig.run_for(Duration::from_secs(12));
        assert_eq!(state(&rig, new.addr()), Some(AddressState::Preferred));
        // Three probes and two announcements of IPv4; one probe of IPv6, and two reports of the
        // group in which it is solicited.
        assert_eq!(sent.len(), if family == Family::V4 { 5 } else { 3 }, "{family:?}");
        assert_eq!(rig.lives("now", &ping(family, new.addr())).len(), 1);
    }
}

#[test]
fn the_route_to_a_prefix_stays_until_the_last_address_that_brings_it_goes() {
    for family in FAMILIES {
        let mut rig = rig();
        let (one, two) = (cidr(family, 5, 1), cidr(family, 5, 2));
        assert_eq!(routes_to(&rig, one), 0);
        add(&mut rig, AddAddress::manual(one)).unwrap();
        add(&mut rig, AddAddress::manual(two)).unwrap();
        let off_link = AddAddress { prefix_route: false, ..AddAddress::manual(cidr(family, 5, 3)) };
        add(&mut rig, off_link).unwrap();
        assert_eq!(routes_to(&rig, one), 1);
        remove(&mut rig, one.addr()).unwrap();
        assert_eq!(routes_to(&rig, one), 1, "the second address brings it too");
        remove(&mut rig, two.addr()).unwrap();
        assert_eq!(routes_to(&rig, one), 0, "the third never did");
    }
}

#[test]
fn lifetimes_deprecate_and_remove_an_address_unless_they_are_renewed() {
    for family in FAMILIES {
        let mut rig = rig();
        let (start, new) = (rig.now, cidr(family, 6, 1));
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        add(&mut rig, limited(new, at(10), at(20))).unwrap();
        rig.run_until(at(9));
        assert_eq!(state(&rig, new.addr()), Some(AddressState::Preferred));
        rig.run_until(at(11));
        assert_eq!(state(&rig, new.addr()), Some(AddressState::Deprecated));
        rig.stack.refresh_address(ETH0, new.addr(), Some(at(30)), Some(at(40)), rig.now).unwrap();
        assert_eq!(state(&rig, new.addr()), Some(AddressState::Preferred));
        rig.run_until(at(31));
        assert_eq!(state(&rig, new.addr()), Some(AddressState::Deprecated));
        assert_eq!(routes_to(&rig, new), 1);
        rig.run_until(at(41));
        assert_eq!((state(&rig, new.addr()), routes_to(&rig, new)), (None, 0));
        let unknown = Err(AddressError::Unknown(new.addr()));
        assert_eq!(rig.stack.refresh_address(ETH0, new.addr(), None, None, rig.now), unknown);
        assert_eq!(rig.stack.deadline(), None, "nothing is left to be done");
    }
}

#[test]
fn many_addresses_that_end_at_once_all_end() {
    let mut rig = rig();
    let until = rig.now + Duration::from_secs(5);
    for host in 1..25 {
        for family in FAMILIES {
            add(&mut rig, limited(cidr(family, 7, host), until, until)).unwrap();
        }
    }
    rig.run_until(until + Duration::from_millis(10));
    let left = rig.stack.interfaces()[1].addresses().filter(|a| a.valid_until.is_some()).count();
    assert_eq!(left, 0);
}

#[test]
fn a_socket_bound_to_an_address_that_went_says_so_and_serves_again_when_it_is_back() {
    for family in FAMILIES {
        let mut rig = rig();
        let new = cidr(family, 0, 77);
        add(&mut rig, AddAddress::manual(new)).unwrap();
        let id = open(&mut rig, new.addr());
        let to = Some(SocketAddr::new(addr(family, PEER), 9));
        assert_eq!(rig.sockets(|s| s.udp_send(id, to, b"?")).0, Ok(()));
        remove(&mut rig, new.addr()).unwrap();
        let gone = Err(SendError::AddressGone(new.addr()));
        assert_eq!(rig.sockets(|s| s.udp_send(id, to, b"?")).0, gone);
        add(&mut rig, AddAddress::manual(new)).unwrap();
        assert_eq!(rig.sockets(|s| s.udp_send(id, to, b"?")).0, Ok(()));
    }
}

#[test]
fn a_path_that_a_socket_remembers_ends_with_its_source_address() {
    for family in FAMILIES {
        let mut rig = rig();
        let (old, new) = (addr(family, HOST), cidr(family, 0, 78));
        let any = if family == Family::V4 { "0.0.0.0" } else { "::" }.parse().unwrap();
        let id = open(&mut rig, any);
        let to = Some(SocketAddr::new(addr(family, PEER), 9));
        let source = |rig: &mut Rig| {
            let (sent, departed) = rig.sockets(|s| s.udp_send(id, to, b"?"));
            sent.unwrap();
            source_of(family, &departed[0])
        };
        assert_eq!((source(&mut rig), source(&mut rig)), (old, old));
        add(&mut rig, AddAddress::manual(new)).unwrap();
        remove(&mut rig, old).unwrap();
        assert_eq!(source(&mut rig), new.addr());
    }
}

fn source_of(family: Family, frame: &PacketBuf) -> IpAddr {
    let bytes = frame.first();
    match family {
        Family::V4 => IpAddr::from(<[u8; 4]>::try_from(&bytes[26..30]).unwrap()),
        Family::V6 => IpAddr::from(<[u8; 16]>::try_from(&bytes[22..38]).unwrap()),
    }
}

#[test]
fn what_cannot_be_an_address_is_refused_by_name_and_changes_nothing() {
    for family in FAMILIES {
        let mut rig = rig();
        let before: Vec<_> = rig.stack.interfaces()[1].addresses().collect();
        let (own, now) = (addr(family, HOST), rig.now);
        let here = AddressError::Exists { addr: own, iface: ETH0 };
        let again = AddAddress::manual(IpCidr::new(own, 20).unwrap());
        assert_eq!(add(&mut rig, again), Err(here));
        let group = if family == Family::V4 { "224.0.0.5/4" } else { "ff02::5/64" };
        for bad in [group, if family == Family::V4 { "10.0.0.255/24" } else { "::/64" }] {
            let refused = add(&mut rig, AddAddress::manual(bad.parse().unwrap()));
            assert!(matches!(refused, Err(AddressError::Invalid { .. })), "{bad}: {refused:?}");
        }
        let long = AddAddress { addr: own, prefix_len: 129, ..again };
        assert!(matches!(add(&mut rig, long), Err(AddressError::Invalid { .. })));
        let (soon, late) = (now + Duration::from_secs(1), now + Duration::from_secs(2));
        for over in [limited(cidr(family, 9, 9), late, soon), limited(cidr(family, 9, 9), now, now)]
        {
            assert_eq!(add(&mut rig, over), Err(AddressError::Lifetimes));
        }
        let (stack, random) = (&mut rig.stack, &mut rig.random);
        let new = AddAddress::manual(cidr(family, 9, 9));
        let nowhere = stack.add_address(IfIndex(9), new, now, random);
        assert_eq!(nowhere, Err(AddressError::NoInterface(IfIndex(9))));
        let inside = stack.add_address(IfIndex::LOOPBACK, new, now, random);
        assert_eq!(inside, Err(AddressError::Loopback));
        let unknown = cidr(family, 9, 9).addr();
        assert_eq!(remove(&mut rig, unknown), Err(AddressError::Unknown(unknown)));
        assert_eq!(rig.stack.interfaces()[1].addresses().collect::<Vec<_>>(), before);
    }
}

#[test]
fn an_interface_that_is_full_says_so() {
    for family in FAMILIES {
        let mut rig = rig();
        let refused = (1..=limits::ADDRESSES_MAX as u8 + 1)
            .map(|host| add(&mut rig, AddAddress::manual(cidr(family, 8, host))))
            .find_map(Result::err);
        assert_eq!(refused, Some(AddressError::Full));
    }
}

#[test]
fn a_link_that_goes_down_takes_what_it_brought_and_leaves_what_the_operator_gave() {
    for family in FAMILIES {
        let mut rig = rig();
        let (told, until) = (cidr(family, 6, 1), rig.now + Duration::from_secs(100));
        let leased = AddAddress { origin: AddressOrigin::Dhcp, ..limited(told, until, until) };
        add(&mut rig, leased).unwrap();
        let id = open(&mut rig, addr(family, HOST));
        let to = Some(SocketAddr::new(addr(family, 9), 9));
        rig.sockets(|s| s.udp_send(id, to, b"?")).0.unwrap();
        assert_eq!(rig.stats().pending, 1);
        rig.stack.set_carrier(ETH0, false, rig.now, &mut rig.random);
        assert_eq!(rig.stats().pending, 0);
        assert_eq!(rig.stats().drops_out.of(DropReason::InterfaceDown), 1);
        assert!(rig.conservation().holds());
        assert_eq!((state(&rig, told.addr()), routes_to(&rig, told)), (None, 0));
        assert!(state(&rig, addr(family, HOST)).is_some());
        assert_eq!(routes_to(&rig, cidr(family, 0, 1)), 1, "the operator's is kept");
        rig.sockets(|s| s.udp_send(id, to, b"?")).0.unwrap_err();
        // The operator and the device must agree.
        rig.stack.set_up(ETH0, false, rig.now, &mut rig.random);
        rig.stack.set_carrier(ETH0, true, rig.now, &mut rig.random);
        assert!(!rig.stack.interfaces()[1].up);
        rig.stack.set_up(ETH0, true, rig.now, &mut rig.random);
        let told = rig.run_for(Duration::from_secs(5));
        assert!(!told.is_empty(), "its addresses are announced");
        assert_eq!(rig.lives("again", &ping(family, addr(family, HOST))).len(), 1);
    }
}

#[test]
fn addresses_are_verified_again_on_a_link_that_came_back() {
    let mut rig = careful();
    let own = addr(Family::V6, HOST);
    rig.stack.set_up(ETH0, false, rig.now, &mut rig.random);
    assert!(rig.run_for(Duration::from_secs(5)).is_empty());
    rig.stack.set_up(ETH0, true, rig.now, &mut rig.random);
    assert_eq!(state(&rig, own), Some(AddressState::Tentative));
    assert_eq!(state(&rig, addr(Family::V4, HOST)), Some(AddressState::Preferred));
    rig.run_for(Duration::from_secs(3));
    assert_eq!(state(&rig, own), Some(AddressState::Preferred));
}
