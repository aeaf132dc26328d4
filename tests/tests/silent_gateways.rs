//! ECMP: a gateway that does not answer loses its flows within seconds, and gets them back, in both
//! families.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use floodwall_base::{Family, Prefix};
use floodwall_fib::{Leg, NextHop, Route, RouteKind};
use floodwall_tests::bytes_of;
use floodwall_tests::craft::{FAMILIES, HOST, PEER, addr, frame, ip, udp};
use floodwall_tests::transit::{
    LEFT, RIGHT, Transit, far, from_left, right, right_mac, router_config, with_hop_limit,
};
use floodwall_wire::ndp::NeighborAdvertisementFields;
use floodwall_wire::{ArpOperation, ArpPacket, EtherType, IpProtocol, NdpOption};

fn router() -> Transit {
    Transit::new(&router_config())
}

fn hop<A: floodwall_base::Address>(via: IpAddr) -> NextHop<A> {
    let gateway = A::from_ip(via);
    NextHop { kind: RouteKind::Unicast, iface: RIGHT, gateway, src_addr: None }
}

fn add_multipath<A: floodwall_fib::lpm::LpmFamily>(
    fib: &mut floodwall_fib::Fib<A>,
    prefix: Prefix<A>,
    hops: [NextHop<A>; 2],
    now: floodwall_base::Instant,
) {
    let legs = hops.map(|hop| Leg { hop, weight: 1 });
    let route = Route::on_link(prefix, RIGHT);
    fib.put_multipath(route, &legs, floodwall_fib::Put::Append, now).unwrap();
}

/// Station 3 of the right link says that it is there.
fn answer_of_three(family: Family) -> Vec<u8> {
    let IpAddr::V6(three) = right(Family::V6, 3) else { unreachable!() };
    let IpAddr::V6(host) = right(Family::V6, HOST) else { unreachable!() };
    match (family, right(Family::V4, 3), right(Family::V4, HOST)) {
        (Family::V4, IpAddr::V4(sender_addr), IpAddr::V4(target_addr)) => {
            let packet = ArpPacket {
                operation: ArpOperation::REPLY,
                sender_link_addr: right_mac(3),
                sender_addr,
                target_link_addr: right_mac(HOST),
                target_addr,
            };
            let mut bytes = [0; 28];
            packet.emit(&mut bytes);
            frame(right_mac(HOST), right_mac(3), EtherType::ARP, &bytes)
        }
        _ => {
            let fields = NeighborAdvertisementFields {
                router: true,
                solicited: true,
                override_entry: true,
                target_addr: three,
            };
            let (mut bytes, options) = ([0; 64], [NdpOption::TargetLinkAddr(right_mac(3))]);
            let len = fields.emit_into(&options, three, host, &mut bytes).unwrap();
            let packet = ip(three.into(), host.into(), IpProtocol::ICMPV6, &bytes[..len]);
            let packet = with_hop_limit(&packet, 255);
            frame(right_mac(HOST), right_mac(3), EtherType::IPV6, &packet)
        }
    }
}

/// Flows are not lost for half a minute, until its reachable time is over.
#[test]
fn a_silent_next_hop_loses_its_flows_within_seconds_and_gets_them_back() {
    for family in FAMILIES {
        let mut router = router();
        let (now, to) = (router.rig.now, far(family, 7));
        match family {
            Family::V4 => {
                let prefix = Prefix::new(Ipv4Addr::new(172, 16, 0, 0), 24).unwrap();
                let hops = [PEER, 3].map(|n| hop(right(family, n)));
                add_multipath(router.rig.stack.routes_v4_mut(), prefix, hops, now);
            }
            Family::V6 => {
                let prefix = Prefix::new("fd16::".parse().unwrap(), 64).unwrap();
                let hops = [PEER, 3].map(|n| hop(right(family, n)));
                add_multipath(router.rig.stack.routes_v6_mut(), prefix, hops, now);
            }
        }
        let stations = |router: &mut Transit| -> Vec<u8> {
            let one = |port: u16| {
                let from = SocketAddr::new(addr(family, PEER), port);
                let packet = udp(from, SocketAddr::new(to, 9), b"hello");
                router.arrive(LEFT, &[from_left(&packet)]).first().map_or(0, |p| bytes_of(p)[5])
            };
            (1000..1200).map(one).collect()
        };
        let three = |stations: &[u8]| stations.iter().filter(|station| **station == 3).count();
        stations(&mut router);
        router.arrive(RIGHT, &[answer_of_three(family)]);
        router.rig.run_for(Duration::from_secs(1));
        let first = stations(&mut router);
        assert!((60..140).contains(&three(&first)), "{family:?}");
        // As long as it answers it is asked again and again, and keeps its flows.
        let mut asked = 0;
        for _ in 0..20 {
            let departed = router.rig.run_for(Duration::from_secs(1));
            if departed.iter().any(|p| p.iface() == RIGHT && bytes_of(p)[5] == 3) {
                asked += 1;
                router.arrive(RIGHT, &[answer_of_three(family)]);
            }
        }
        assert!((3..=8).contains(&asked), "{asked} probes in 20 s");
        assert_eq!(stations(&mut router), first);
        // Then it is silent.
        router.rig.run_for(Duration::from_secs(8));
        let without = stations(&mut router);
        assert!(without.iter().all(|station| *station == PEER), "{family:?}");
        router.rig.run_for(Duration::from_secs(120));
        assert_eq!(three(&stations(&mut router)), 0);
        // Probes go on, and the first answer brings each flow back to where it was.
        let departed = router.rig.run_for(Duration::from_secs(10));
        assert!(departed.iter().any(|p| p.iface() == RIGHT), "it is asked for");
        router.arrive(RIGHT, &[answer_of_three(family)]);
        router.rig.run_for(Duration::from_secs(2));
        assert_eq!(stations(&mut router), first, "{family:?}");
        assert!(router.rig.conservation().holds());
    }
}
