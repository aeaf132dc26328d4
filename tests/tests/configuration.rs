//! What a configuration may ask for, and what an operator may do to a running stack.

use std::net::SocketAddr;
use std::time::Duration;

use floodwall_base::{DropReason, Family, IfIndex, IpCidr, limits};
use floodwall_stack::{ConfigError, StackConfig, StaticRoute, check};
use floodwall_tests::craft::{FAMILIES, HOST, PEER, addr};
use floodwall_tests::{Rig, drops_between, ethernet_config};
use floodwall_udp::SocketSettings;

#[test]
fn an_interface_may_be_given_its_own_link_local_address() {
    let mut config = ethernet_config(HOST);
    config.interfaces[0].addresses.push("fe80::ff:fe00:1/64".parse().unwrap());
    check(&config).unwrap();
    let rig = Rig::new(&config);
    let own =
        rig.stack.interfaces()[1].addresses().filter(|a| a.addr.to_string() == "fe80::ff:fe00:1");
    assert_eq!(own.count(), 1);
}

/// The prefix of an address leads there already; what leads elsewhere twice is told.
#[test]
fn a_configured_route_that_equals_a_connected_one_is_no_error() {
    for family in FAMILIES {
        let mut config = ethernet_config(HOST);
        let count = |config: &StackConfig| {
            let stack = Rig::new(config).stack;
            stack.routes_v4().dump().count() + stack.routes_v6().dump().count()
        };
        let before = count(&config);
        let of_family = |address: &&IpCidr| address.addr().is_ipv4() == (family == Family::V4);
        let prefix = *config.interfaces[0].addresses.iter().find(of_family).unwrap();
        config.routes.push(StaticRoute { prefix, via: None, iface: 0 });
        check(&config).unwrap();
        assert_eq!(count(&config), before, "{family:?}");
        let any = IpCidr::new(addr(family, PEER), 0).unwrap();
        let led = StaticRoute { prefix: any, via: Some(addr(family, PEER)), iface: 0 };
        config.routes.push(led);
        assert_eq!(count(&config), before + 1, "{family:?}");
    }
}

/// The walk's scratch holds that much: with more, a packet's verdict would hang on where its chunks
/// end.
#[test]
fn more_bytes_of_extension_headers_than_are_looked_at_cannot_be_configured() {
    let mut config = ethernet_config(HOST);
    config.extension_limits.chain_bytes_max = limits::EXTENSION_BYTES_MAX;
    check(&config).unwrap();
    config.extension_limits.chain_bytes_max += 1;
    let bytes = limits::EXTENSION_BYTES_MAX + 1;
    assert_eq!(check(&config), Err(ConfigError::ExtensionBytes { bytes }));
}

#[test]
fn what_waits_for_neighbours_that_are_flushed_is_dropped() {
    for family in FAMILIES {
        let mut rig = Rig::with_neighbor(&StackConfig { ..ethernet_config(HOST) }, PEER);
        rig.run_for(Duration::from_secs(10));
        let any = SocketAddr::new("::".parse().unwrap(), 4000);
        let id = rig.sockets(|s| s.udp_bind(any, SocketSettings::new(Family::V6))).0.unwrap();
        let (free, to) = (rig.pool.available(), SocketAddr::new(addr(family, 9), 9));
        rig.sockets(|s| (0..3).for_each(|_| s.udp_send(id, Some(to), b"?").unwrap()));
        assert_eq!(rig.stats().pending, 3);
        let before = rig.stats();
        rig.stack.flush_neighbors(IfIndex(1));
        let dropped = drops_between(&before, &rig.stats());
        assert_eq!(dropped, (vec![], vec![(DropReason::NeighborUnreachable, 3)]));
        assert_eq!((rig.stats().pending, rig.pool.available()), (0, free));
        assert!(rig.conservation().holds());
        // Not even those that were known for good are left.
        let to = SocketAddr::new(addr(family, PEER), 9);
        rig.sockets(|s| s.udp_send(id, Some(to), b"?")).0.unwrap();
        assert_eq!(rig.stats().pending, 1);
    }
}
