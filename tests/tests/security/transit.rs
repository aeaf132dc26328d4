//! Row 67, state for a destination: packets to random ones leave nothing behind. Row 69, a router
//! as a reflector: what ends at it is answered within limits. And what a router may meet besides:
//! loops, broken packets, a link that goes away under its packets. (Rows 60 and 63, martians and
//! neighbours that do not exist, are `forwarding.rs`'s
//! `addresses_that_belong_to_a_link_or_to_nothing_are_not_passed_on` and
//! `random_destinations_on_a_network_take_no_known_neighbours_place`; the whole list of martians is
//! `router_rules`'.)

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use floodwall_base::{DropReason, Family, Prefix, PublicRandom, limits};
use floodwall_fib::Route;
use floodwall_packet::Triage;
use floodwall_tests::bytes_of;
use floodwall_tests::craft::{FAMILIES, PEER, addr, fragments, udp};
use floodwall_tests::transit::{
    LEFT, RIGHT, Transit, far, from_left, from_right, right, right_mac, router_config,
    with_hop_limit,
};

fn router() -> Transit {
    Transit::new(&router_config())
}

fn hello(from: IpAddr, to: IpAddr) -> Vec<u8> {
    udp(SocketAddr::new(from, 4000), SocketAddr::new(to, 9), b"hello")
}

/// A random address behind the peer on the right, or of an unverified source on the left.
fn anywhere(family: Family, left: bool, random: &mut PublicRandom) -> IpAddr {
    let bits = random.next_u64();
    let [a, b, c, d, ..] = bits.to_be_bytes();
    match (family, left) {
        (Family::V4, false) => Ipv4Addr::new(172, 16 + a % 16, b, c.clamp(1, 254)).into(),
        (Family::V4, true) => Ipv4Addr::new(10, 0, 0, 2 + a % 250).into(),
        (Family::V6, false) => {
            let tail = u128::from(random.next_u64()) << 48 | u128::from(bits) >> 16;
            Ipv6Addr::from(0xfd16 << 112 | tail & ((1 << 112) - 1)).into()
        }
        (Family::V6, true) => {
            Ipv6Addr::new(0xfd00, 0, 0, 0, 7, 0, u16::from(c), u16::from(d)).into()
        }
    }
}

/// Everything that a router keeps of others.
fn kept(router: &Transit) -> (usize, usize, usize) {
    let stack = &router.rig.stack;
    (
        stack.neighbors_v4().iter().count() + stack.neighbors_v6().iter().count(),
        stack.routes_v4().len() + stack.routes_v6().len(),
        stack.exceptions_v4().len() + stack.exceptions_v6().len(),
    )
}

#[test]
fn row_67_random_destinations_leave_nothing_behind() {
    for family in FAMILIES {
        for flowlen in [1, 10] {
            let (mut router, mut random) = (router(), PublicRandom::new(67));
            let (free, before) = (router.rig.pool.available(), kept(&router));
            let mut tenths = Vec::new();
            for _ in 0..10 {
                let mut spent = 0;
                for _ in 0..20 {
                    let mut frames = Vec::new();
                    while frames.len() < 60 {
                        let to = anywhere(family, false, &mut random);
                        let frame = from_left(&hello(addr(family, PEER), to));
                        frames.extend((0..flowlen).map(|_| frame.clone()));
                    }
                    let (units, departed) = router.arrive_for(LEFT, &frames);
                    assert_eq!(departed.len(), frames.len(), "{family:?}");
                    assert!(departed.iter().all(|packet| packet.iface() == RIGHT));
                    spent += units.0;
                }
                tenths.push(spent);
            }
            let (first, last) = (tenths[0], tenths[9]);
            assert!(first > 0 && last * 10 <= first * 11, "{family:?}: {tenths:?} units of work");
            assert_eq!(kept(&router), before, "{family:?}: no state for a destination");
            assert_eq!(router.rig.pool.available(), free, "{family:?}");
            assert!(router.rig.conservation().holds());
        }
    }
}

/// The same packet the other way round.
fn answer(from: IpAddr, to: IpAddr) -> Vec<u8> {
    udp(SocketAddr::new(to, 9), SocketAddr::new(from, 4000), b"world")
}

#[test]
fn one_that_is_answered_through_a_router_goes_before_random_destinations() {
    for family in FAMILIES {
        let (mut router, mut random) = (router(), PublicRandom::new(70));
        let (client, server) = (addr(family, PEER), far(family, 7));
        let question = from_left(&hello(client, server));
        let class = |router: &Transit| router.rig.classify(std::slice::from_ref(&question))[0];
        assert_eq!(class(&router), Triage::Unknown);
        assert_eq!(router.arrive(LEFT, std::slice::from_ref(&question)).len(), 1);
        assert_eq!(class(&router), Triage::Unknown, "anyone can send");
        assert_eq!(router.arrive(RIGHT, &[from_right(&answer(client, server))]).len(), 1);
        assert_eq!(class(&router), Triage::Established, "{family:?}: it was answered");
        let long = udp(SocketAddr::new(client, 4000), SocketAddr::new(server, 9), &[7; 64]);
        let fragment = from_left(&fragments(&long, 7, 40)[1]);
        assert_eq!(router.rig.classify(&[fragment]), [Triage::Established], "as a fragment, too");
        // The same sender to others, and others to the same receiver.
        let mut frames = vec![from_left(&hello(addr(family, 9), server))];
        frames.extend(
            (0..60).map(|_| from_left(&hello(client, anywhere(family, false, &mut random)))),
        );
        let unknown = router.rig.classify(&frames);
        assert!(unknown.iter().all(|class| *class == Triage::Unknown), "{unknown:?}");
        // A long flood of them changes nothing.
        for _ in 0..200 {
            let flood = |_| from_left(&hello(client, anywhere(family, false, &mut random)));
            let frames: Vec<_> = (0..64).map(flood).collect();
            assert_eq!(router.arrive(LEFT, &frames).len(), 64);
        }
        assert_eq!(class(&router), Triage::Established, "{family:?}");
        // A destination that does not answer makes no flow established: no packet of it came.
        let unanswered = from_left(&hello(client, right(family, 66)));
        router.arrive(LEFT, std::slice::from_ref(&unanswered));
        assert_eq!(router.rig.classify(&[unanswered]), [Triage::Unknown]);
        // After a silence it is as it was in the beginning.
        router.rig.run_for(Duration::from_secs(31));
        router.arrive(LEFT, std::slice::from_ref(&question));
        assert_eq!(class(&router), Triage::Unknown, "{family:?}");
    }
}

/// Floods of a kind, from one and from many, for so many seconds; how many answers departed.
fn answers(family: Family, many: bool, packet: impl Fn(IpAddr) -> Vec<u8>) -> usize {
    let (mut router, mut random) = (router(), PublicRandom::new(69));
    // Neighbours that are solicited back are no part of this.
    for host in 2..=251 {
        let v4 = Ipv4Addr::new(10, 0, 0, host).into();
        router.knows(LEFT, v4, floodwall_tests::craft::mac(PEER));
    }
    let mut answered = 0;
    for _ in 0..100 {
        let frame = |_| {
            let from = match many && family == Family::V4 {
                true => anywhere(family, true, &mut random),
                false => addr(family, PEER),
            };
            from_left(&packet(from))
        };
        let frames: Vec<_> = (0..64).map(frame).collect();
        let departed = router.arrive(LEFT, &frames);
        answered += departed.iter().filter(|packet| packet.iface() == LEFT).count();
        assert!(departed.iter().all(|packet| packet.iface() == LEFT), "none passes");
        router.rig.run_for(Duration::from_millis(10));
    }
    assert!(router.rig.conservation().holds());
    answered
}

#[test]
fn row_69_what_ends_at_a_router_is_answered_within_limits() {
    // A second of 6,400 packets.
    let per_peer = (limits::ICMP_PEER_RATE + limits::ICMP_PEER_BURST) as usize;
    let of_all = (limits::ICMP_ERROR_RATE + limits::ICMP_ERROR_BURST) as usize;
    for family in FAMILIES {
        let last_hop = |from| with_hop_limit(&hello(from, far(family, 7)), 1);
        let nowhere: IpAddr = match family {
            Family::V4 => "192.0.2.9".parse().unwrap(),
            Family::V6 => "2001:db8::9".parse().unwrap(),
        };
        let unreachable = |from| hello(from, nowhere);
        for answered in [answers(family, false, last_hop), answers(family, false, unreachable)] {
            assert!(answered > 0, "{family:?}: a traceroute is answered");
            assert!(answered <= per_peer * 5 / 4, "{family:?}: {answered} to one");
        }
        for answered in [answers(family, true, last_hop), answers(family, true, unreachable)] {
            assert!(answered <= of_all * 5 / 4, "{family:?}: {answered} to all");
        }
    }
}

#[test]
fn a_loop_ends_with_the_hop_limit_and_one_word_to_the_sender() {
    for family in FAMILIES {
        let (mut router, now) = (router(), router().rig.now);
        // What is for there goes back to where it comes from.
        let to: IpAddr = match addr(family, PEER) {
            IpAddr::V4(peer) => {
                let prefix = Prefix::new(Ipv4Addr::new(192, 168, 0, 0), 16).unwrap();
                let route = Route::via(prefix, LEFT, peer);
                router.rig.stack.routes_v4_mut().append(route, now).unwrap();
                "192.168.1.1".parse().unwrap()
            }
            IpAddr::V6(peer) => {
                let prefix = Prefix::new("fd55::".parse().unwrap(), 16).unwrap();
                let route = Route::via(prefix, LEFT, peer);
                router.rig.stack.routes_v6_mut().append(route, now).unwrap();
                "fd55::1".parse().unwrap()
            }
        };
        let mut packet = with_hop_limit(&hello(right(family, PEER), to), 64);
        let mut turns = 0;
        loop {
            let departed = router.arrive(LEFT, &[from_left(&packet)]);
            let again = departed.iter().map(bytes_of).find(|bytes| bytes[14..].ends_with(b"hello"));
            let Some(bytes) = again.filter(|bytes| bytes[14..].len() == packet.len()) else {
                break;
            };
            packet = bytes[14..].to_vec();
            turns += 1;
            assert!(turns < 64, "{family:?}: it does not end");
        }
        assert_eq!(turns, 63, "{family:?}");
        assert_eq!(router.rig.stats().drops_in.of(DropReason::HopLimitExceeded), 1);
        assert!(router.rig.conservation().holds());
    }
}

#[test]
fn broken_packets_end_under_a_name_and_pass_no_further_than_they_may() {
    let mut router = router();
    let mut random = PublicRandom::new(3);
    let free = router.rig.pool.available();
    for turn in 0..300 {
        let family = FAMILIES[turn % 2];
        let frame = |_| {
            let mut bytes = from_left(&hello(addr(family, PEER), far(family, 7)));
            for _ in 0..1 + random.below(4) {
                let at = 12 + random.below(bytes.len() as u64 - 12) as usize;
                bytes[at] ^= random.next_u64() as u8;
            }
            if random.below(4) == 0 {
                bytes.truncate(14 + random.below(bytes.len() as u64 - 14) as usize);
            }
            bytes
        };
        let frames: Vec<_> = (0..32).map(frame).collect();
        for packet in router.arrive(LEFT, &frames) {
            // A forwarded packet had a valid header, and has a hop less.
            if packet.iface() == RIGHT && bytes_of(&packet)[..6] == right_mac(PEER).0 {
                assert!(packet.len() >= 14 + 20);
            }
        }
        assert!(router.rig.conservation().holds(), "{turn}");
    }
    router.rig.run_for(Duration::from_secs(120));
    assert_eq!(router.rig.pool.available(), free);
}

#[test]
fn a_link_that_goes_away_takes_what_waits_for_it_and_comes_back_clean() {
    for family in FAMILIES {
        let mut router = router();
        let free = router.rig.pool.available();
        // One passes, three wait for a neighbour, and the link goes.
        let passes = from_left(&hello(addr(family, PEER), far(family, 7)));
        let waits = from_left(&hello(addr(family, PEER), right(family, 66)));
        let frames: Vec<_> =
            core::iter::once(passes.clone()).chain((0..3).map(|_| waits.clone())).collect();
        router.arrive(LEFT, &frames);
        let now = router.rig.now;
        let rig = &mut router.rig;
        rig.stack.set_up(RIGHT, false, now, &mut rig.random);
        let departed = router.arrive(LEFT, &[passes.clone(), waits]);
        assert!(departed.iter().all(|packet| packet.iface() == LEFT), "{family:?}");
        drop(departed);
        assert!(router.rig.conservation().holds(), "{family:?}");
        let (now, rig) = (router.rig.now, &mut router.rig);
        rig.stack.set_up(RIGHT, true, now, &mut rig.random);
        router.rig.run_for(Duration::from_secs(10));
        router.knows(RIGHT, right(family, PEER), right_mac(PEER));
        let departed = router.arrive(LEFT, &[passes]);
        assert!(departed.iter().any(|packet| packet.iface() == RIGHT), "{family:?}: it goes on");
        drop(departed);
        router.rig.run_for(Duration::from_secs(60));
        assert_eq!(router.rig.pool.available(), free, "{family:?}");
        assert!(router.rig.conservation().holds(), "{family:?}");
    }
}
