//! What the standards ask of a router, rule by rule: a small test for each, named by its section.
//!
//! RFC 1812 chapters 4 and 5, RFC 4443 sections 2 and 3, RFC 8200, RFC 4291, RFC 6890, and what
//! has updated them (RFC 2644, 3879, 3927, 4861, 6437, 7126). A rule is shown for both families
//! where both have it. What needs a longer story stands elsewhere: hop limits, routes that lead
//! nowhere, cutting, uRPF, access lists, neighbours and redirects in `forwarding.rs`, limits of
//! answers (RFC 1812 section 4.3.2.8, RFC 4443 section 2.4 (f)) in `security/transit.rs`.
//!
//! Where later documents let us differ from RFC 1812: source routes are dropped (section 5.3.13.4;
//! RFC 7126 sections 4.3 and 4.4), routes and times are not recorded in options that pass (sections
//! 5.3.13.5 and 5.3.13.6; RFC 7126 sections 4.5 and 4.7 let a router ignore them).

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

mod addresses;
mod anycast;
mod errors;
mod fragments;
mod headers;
mod links;

use std::net::{IpAddr, SocketAddr};

use floodwall_base::{DropReason, Family, IpCidr};
use floodwall_ip::forward::Martians;
use floodwall_stack::{StackConfig, StaticRoute};
use floodwall_tests::craft::{FAMILIES, PEER, addr, udp};
use floodwall_tests::transit::{
    LEFT, RIGHT, Transit, far, from_left, one_hop_later, right, router_config, with_hop_limit,
};
use floodwall_tests::{Icmp, Sent, bytes_of};

/// A router with a default route to the right.
fn router_with(martians: Martians) -> Transit {
    let all = ["0.0.0.0/0", "::/0"].map(|text| text.parse::<IpCidr>().unwrap());
    let mut config = StackConfig { martians, ..router_config() };
    config.routes.extend(FAMILIES.into_iter().zip(all).map(|(family, prefix)| StaticRoute {
        prefix,
        via: Some(right(family, PEER)),
        iface: 1,
    }));
    Transit::new(&config)
}

fn router() -> Transit {
    router_with(Martians::Impossible)
}

fn datagram(from: IpAddr, to: IpAddr) -> Vec<u8> {
    udp(SocketAddr::new(from, 4000), SocketAddr::new(to, 9), b"hello")
}

/// A datagram from the left that may go on.
fn honest(family: Family) -> Vec<u8> {
    datagram(addr(family, PEER), far(family, 7))
}

/// It goes on to the right, one hop later and otherwise as it was.
fn passes(router: &mut Transit, packet: &[u8]) {
    let departed = router.arrive(LEFT, &[from_left(packet)]);
    assert_eq!(departed.len(), 1, "{packet:02x?}");
    assert_eq!(departed[0].iface(), RIGHT);
    assert_eq!(bytes_of(&departed[0])[14..], one_hop_later(packet));
}

/// It is dropped here for this reason without an error; also when it has no hop left.
fn stays(router: &mut Transit, packet: &[u8], reason: DropReason) {
    for packet in [packet.to_vec(), with_hop_limit(packet, 1)] {
        let departed = router.expect_drop("it stays", &packet, reason);
        assert!(departed.is_empty(), "{departed:?} for {packet:02x?}");
    }
}

/// It is dropped here for this reason; returns the error for its sender.
fn told(router: &mut Transit, packet: &[u8], reason: DropReason) -> Icmp {
    let departed = router.expect_drop("it is answered", packet, reason);
    assert_eq!(departed.len(), 1, "{packet:02x?}");
    Sent::of(&departed[0]).icmp()
}

/// The type and code of a family: IPv4's first.
fn kind(family: Family, v4: (u8, u8), v6: (u8, u8)) -> (u8, u8) {
    if family == Family::V4 { v4 } else { v6 }
}
