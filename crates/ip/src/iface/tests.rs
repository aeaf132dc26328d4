//! Addresses and groups of an interface, both families.

use super::*;

const LINK_ADDR: MacAddr = MacAddr([0x02, 0, 0, 0x12, 0x34, 0x56]);

fn ethernet() -> Interface {
    Interface::new(IfIndex(1), "eth0", LinkMedium::Ethernet(LINK_ADDR), 1500, true)
}

fn with(cidrs: &[&str]) -> Interface {
    let mut iface = ethernet();
    for cidr in cidrs {
        iface.add_address(cidr.parse().unwrap(), AddressState::Preferred).unwrap();
    }
    iface
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn an_ethernet_interface_has_a_link_local_address_from_the_start() {
    let iface = ethernet();
    let addr: Ipv6Addr = "fe80::12:34ff:fe56".parse().unwrap();
    assert_ne!(link_local(LINK_ADDR), addr);
    assert_eq!(link_local(LINK_ADDR).to_string(), "fe80::ff:fe12:3456");
    assert_eq!(iface.owns_v6(link_local(LINK_ADDR)), Some(AddressState::Tentative));
    assert_eq!(iface.link_local_addr(), None);
    let plain = Interface::new(IfIndex(1), "a", LinkMedium::Ethernet(LINK_ADDR), 1500, false);
    assert_eq!(plain.addresses().count(), 0);
}

#[test]
fn loopback_owns_all_of_its_net_and_no_other_does() {
    let lo = Interface::new(IfIndex::LOOPBACK, "lo", LinkMedium::Loopback, 65_536, true);
    assert_eq!(lo.owns(ip("127.9.9.9")), Some(AddressState::Preferred));
    assert_eq!(lo.owns(ip("::1")), Some(AddressState::Preferred));
    assert_eq!(ethernet().owns(ip("127.0.0.1")), None);
    assert_eq!(lo.owns(ip("10.0.0.1")), None);
}

#[test]
fn broadcast_is_all_ones_behind_our_prefixes() {
    let iface = with(&["10.1.2.3/24", "10.9.0.0/31", "10.8.0.1/32"]);
    let broadcast = |text: &str| iface.is_broadcast_v4(text.parse().unwrap());
    assert!(broadcast("255.255.255.255") && broadcast("10.1.2.255"));
    for other in ["10.1.2.0", "10.1.3.255", "10.9.0.1", "10.8.0.1", "0.0.0.0"] {
        assert!(!broadcast(other), "{other}");
    }
}

#[test]
fn every_host_is_in_its_own_groups() {
    let mut iface = with(&["fd00::aa:bbcc/64"]);
    for group in ["224.0.0.1", "ff02::1", "ff01::1", "ff02::1:ffaa:bbcc", "ff02::1:ff12:3456"] {
        assert!(iface.is_member(ip(group)), "{group}");
    }
    for group in ["224.0.0.251", "ff02::fb", "ff02::1:ffaa:bbcd"] {
        assert!(!iface.is_member(ip(group)), "{group}");
        assert_eq!((iface.join(ip(group)), iface.join(ip(group))), (Ok(true), Ok(false)));
        assert!(iface.is_member(ip(group)) && !iface.leave(ip(group)));
        assert!(iface.is_member(ip(group)) && iface.leave(ip(group)));
        assert!(!iface.is_member(ip(group)) && !iface.leave(ip(group)));
    }
    assert!(matches!(iface.join(ip("10.0.0.1")), Err(InterfaceError::GroupInvalid(_))));
}

#[test]
fn neighbours_on_the_link_are_told_from_those_behind_a_router() {
    let iface = with(&["10.1.2.3/24", "fd00::1/64"]);
    for near in ["10.1.2.200", "fd00::99", "fe80::77"] {
        assert!(iface.is_on_link(ip(near)), "{near}");
    }
    for far in ["10.1.3.1", "fd00:0:0:1::1", "8.8.8.8"] {
        assert!(!iface.is_on_link(ip(far)), "{far}");
    }
}

#[test]
fn neighbours_are_asked_for_from_the_nearest_address() {
    let mut iface = with(&["10.1.2.3/24", "10.2.0.1/16", "fd00::1/64", "fd01::1/64"]);
    let source = |iface: &Interface, text: &str| iface.solicit_source(ip(text));
    assert_eq!(source(&iface, "10.2.9.9"), Some(ip("10.2.0.1")));
    assert_eq!(source(&iface, "10.9.9.9"), Some(ip("10.1.2.3")));
    assert_eq!(source(&iface, "fd01::9"), Some(ip("fd01::1")));
    // A tentative address is not a source for solicitations.
    assert_eq!(source(&iface, "fe80::9"), Some(ip("fd00::1")));
    let own = IpAddr::V6(link_local(LINK_ADDR));
    iface.set_address_state(own, AddressState::Preferred).unwrap();
    assert_eq!((source(&iface, "fe80::9"), source(&iface, "fd09::9")), (Some(own), Some(own)));
}

#[test]
fn addresses_and_groups_are_bounded_in_both_families() {
    let mut iface = Interface::new(IfIndex(2), "ip0", LinkMedium::Ip, 1500, true);
    for family in ["10.0.0", "fd00:"] {
        let nth = |n: usize| -> IpCidr {
            if family.contains('.') {
                format!("{family}.{n}/24").parse().unwrap()
            } else {
                format!("{family}:{n:x}/64").parse().unwrap()
            }
        };
        for n in 1..=ADDRESSES_MAX {
            assert_eq!(iface.add_address(nth(n), AddressState::Preferred), Ok(()));
        }
        let again = iface.add_address(nth(1), AddressState::Preferred);
        assert_eq!(again, Err(InterfaceError::AddressExists(nth(1).addr())));
        let more = nth(ADDRESSES_MAX + 1);
        let refused = iface.add_address(more, AddressState::Preferred);
        assert_eq!(refused, Err(InterfaceError::AddressesFull));
        assert_eq!(iface.remove_address(nth(1).addr()), Ok(()));
        assert_eq!(iface.add_address(more, AddressState::Tentative), Ok(()));
        assert_eq!(iface.set_address_state(more.addr(), AddressState::Duplicate), Ok(()));
        assert_eq!(iface.owns(more.addr()), Some(AddressState::Duplicate));
        assert!(iface.remove_address(nth(1).addr()).is_err());
    }
    for n in 0..INTERFACE_GROUPS_MAX {
        assert_eq!(iface.join(ip(&format!("ff02::{:x}", n + 2))), Ok(true));
    }
    assert_eq!(iface.join(ip("ff02::ff02")), Err(InterfaceError::GroupsFull));
    for bad in ["0.0.0.0/0", "224.0.0.9/32", "255.255.255.255/32", "::/128", "ff02::5/128"] {
        let cidr: IpCidr = bad.parse().unwrap();
        assert!(matches!(
            iface.add_address(cidr, AddressState::Preferred),
            Err(InterfaceError::AddressInvalid(_))
        ));
    }
}

#[test]
fn an_own_or_broadcast_address_is_never_called_foreign() {
    let (tentative, preferred) = (AddressState::Tentative, AddressState::Preferred);
    let mut iface = Interface::new(IfIndex(1), "eth0", LinkMedium::Ip, 1500, true);
    let foreign = |iface: &Interface, addr: &str| match addr.parse().unwrap() {
        IpAddr::V4(addr) => iface.is_surely_foreign_v4(addr),
        IpAddr::V6(addr) => iface.is_surely_foreign_v6(addr),
    };
    assert!(foreign(&iface, "10.0.0.1") && foreign(&iface, "fd00::1"));
    for n in 1..ADDRESSES_MAX {
        iface.add_address(format!("10.0.{n}.1/24").parse().unwrap(), preferred).unwrap();
        iface.add_address(format!("fd00::{n}/64").parse().unwrap(), tentative).unwrap();
        for near in 1..=n {
            for addr in
                [format!("10.0.{near}.1"), format!("10.0.{near}.255"), format!("fd00::{near}")]
            {
                assert!(!foreign(&iface, &addr), "{addr} among {n}");
            }
        }
    }
    for n in 1..ADDRESSES_MAX {
        iface.remove_address(format!("10.0.{n}.1").parse().unwrap()).unwrap();
        iface.remove_address(format!("fd00::{n}").parse().unwrap()).unwrap();
    }
    assert!(
        foreign(&iface, "10.0.1.1") && foreign(&iface, "10.0.1.255") && foreign(&iface, "fd00::1")
    );
}
