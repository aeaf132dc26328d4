//! A router of two workers under floods to ever new destinations, while its routes change: what
//! took the route cache down (linux-kernel, 29 March 2004; again in 2015) leaves nothing behind.
//!
//! Both families; flows of one packet and of ten; 32,768 destinations, and no end of them. Every
//! packet is passed on by the worker that it reached, by the route that is right, at a cost in
//! memory of nothing at all: nothing is kept for a destination, so nothing waits to be freed but
//! what the changes of routes unlink, and that no longer than a round.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use floodwall_base::limits::BURST_MAX;
use floodwall_base::{Family, Instant, Prefix};
use floodwall_fib::{Fib, Put, Route, TableId};
use floodwall_testkit::Seeded;
use floodwall_tests::Shards;
use floodwall_tests::craft::{FAMILIES, PEER, addr, mac, udp};
use floodwall_tests::transit::{LEFT, RIGHT, from_left, right, right_mac, router_config};

/// Packets of each flood: a tenth of all the destinations of the source's, in a few hundred rounds
/// of two workers.
const PACKETS: usize = 8192;
/// The destinations that the source's generator had.
const FLOWS: u64 = 32_768;

/// Between two rounds.
const ROUND: Duration = Duration::from_micros(64);

/// The n-th destination behind the right peer.
fn destination(family: Family, n: u64) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::from_bits(0xac10_0000 | (n as u32 & 0xf_ffff)).into(),
        Family::V6 => Ipv6Addr::from_bits(0xfd16 << 112 | u128::from(n)).into(),
    }
}

/// A more specific route through the same neighbour comes and goes.
fn change(shards: &mut Shards, family: Family, n: usize) {
    fn either<A: floodwall_fib::lpm::LpmFamily>(
        fib: &mut Fib<A>,
        to: Prefix<A>,
        via: A,
        n: usize,
        now: Instant,
    ) {
        if n.is_multiple_of(2) {
            fib.put(Route::via(to, RIGHT, via), Put::Append, now).unwrap();
        } else {
            assert_eq!(fib.remove_to(TableId::MAIN, to, now, |_| true), 1);
        }
    }
    let (now, via) = (shards.now, right(family, PEER));
    let stack = shards.workers[0].host.stack_mut();
    match via {
        IpAddr::V4(via) => {
            let to = Prefix::new(Ipv4Addr::new(172, 16, 0, 0), 14).unwrap();
            either(stack.routes_v4_mut(), to, via, n, now);
        }
        IpAddr::V6(via) => {
            let to = Prefix::new(Ipv6Addr::new(0xfd16, 0, 0, 0, 0, 0, 0, 0), 32).unwrap();
            either(stack.routes_v6_mut(), to, via, n, now);
        }
    }
    stack.routes_changed();
}

/// The control shard's entries for single destinations: path exceptions, and neighbours.
fn known(shards: &Shards) -> [usize; 2] {
    let stack = shards.stack(0);
    let paths = stack.exceptions_v4().len() + stack.exceptions_v6().len();
    [paths, stack.neighbors_v4().iter().count() + stack.neighbors_v6().iter().count()]
}

fn flood(family: Family, flow_packets: usize, flows: Option<u64>) {
    let mut shards = Shards::new(&router_config(), 2, Vec::new);
    let now = shards.now;
    let control = shards.workers[0].host.stack_mut();
    control.add_neighbor(LEFT, addr(family, PEER), mac(PEER), now).unwrap();
    control.add_neighbor(RIGHT, right(family, PEER), right_mac(PEER), now).unwrap();
    shards.run_for(Duration::from_secs(2), Duration::from_millis(50));
    shards.departed();
    let free = [0, 1].map(|worker: usize| shards.workers[worker].pool.available());
    let known = known(&shards);
    let before = shards.domain.stats(shards.now).limbo;
    let (mut random, mut to, mut left) = (Seeded::new(7), 0, 0);
    let from = SocketAddr::new(addr(family, PEER), 4000);
    for round in 0..PACKETS / BURST_MAX {
        let frames: Vec<_> = (0..BURST_MAX)
            .map(|_| {
                if left == 0 {
                    (to, left) = (random.next() % flows.unwrap_or(u64::MAX), flow_packets);
                }
                left -= 1;
                let to = SocketAddr::new(destination(family, to), 9);
                from_left(&udp(from, to, b"stamp"))
            })
            .collect();
        shards.now += ROUND;
        change(&mut shards, family, round);
        shards.turn((round % 2) as u16, &frames);
        // The control shard's round shows the change; a round later no shard reads the old one.
        shards.turn(0, &[]);
        shards.turn(1, &[]);
        assert_eq!(shards.departed().len(), BURST_MAX, "{family:?}, round {round}");
    }
    shards.settle();
    let forwarded: u64 = (0..2).map(|worker| shards.stats(worker).outcomes.forwarded).sum();
    assert_eq!(forwarded, PACKETS as u64);
    assert_eq!(self::known(&shards), known, "nothing is known of a destination");
    assert_eq!([0, 1].map(|worker: usize| shards.workers[worker].pool.available()), free);
    let limbo = shards.domain.stats(shards.now).limbo;
    assert_eq!(limbo.refused, before.refused, "no change is refused");
    assert!(limbo.freed - before.freed > (PACKETS / BURST_MAX / 4) as u64, "{limbo:?}");
    assert!(limbo.grace_last <= 2 * ROUND, "{limbo:?}");
    assert!(limbo.items_max < 64, "what changes unlink, and nothing else: {limbo:?}");
    shards.assert_conserved();
}

#[test]
fn flows_of_one_packet_to_random_destinations_leave_nothing_to_be_freed() {
    for family in FAMILIES {
        flood(family, 1, Some(FLOWS));
        flood(family, 1, None);
    }
}

#[test]
fn flows_of_ten_packets_to_random_destinations_leave_nothing_to_be_freed() {
    for family in FAMILIES {
        flood(family, 10, Some(FLOWS));
        flood(family, 10, None);
    }
}
