//! The shares of an interface under flood: what is evicted, what stays, what honest traffic loses.

use super::*;

fn unresolved_flood<A: Nth>() {
    let mut world = World::<A>::new();
    let honest = 200;
    (0..honest).for_each(|n| world.resolves(n));
    let (mut asks, mut full) = (0, 0);
    for n in 0..1_000_000 {
        match world.send(10_000 + n) {
            Outcome::Asks => asks += 1,
            Outcome::Dies(DropReason::NeighborTableFull) => full += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((asks, full), (NEIGHBORS_INCOMPLETE_MAX, 1_000_000 - NEIGHBORS_INCOMPLETE_MAX));
    assert!((0..honest).all(|n| world.send(n) == Outcome::To(mac(n))));
    // Three seconds later the flood's neighbours have failed, and give way to any new one.
    world.pass(4 * SECOND);
    world.resolves(500);
    // The flood goes on: it evicts failed ones, its own, and never what is resolved.
    for n in 0..10_000 {
        world.send(2_000_000 + n);
    }
    world.cache.table.assert_sound();
    assert!((0..honest).all(|n| world.send(n) == Outcome::To(mac(n))));
    assert_eq!(world.send(500), Outcome::To(mac(500)));
}

#[test]
fn a_million_unknown_destinations_evict_no_resolved_neighbour() {
    unresolved_flood::<Ipv4Addr>();
    unresolved_flood::<Ipv6Addr>();
}

/// Prefixes that sweep: half of the slots less than one each.
const SWEEPING: u32 = NEIGHBORS_INCOMPLETE_MAX as u32 / 2 - 1;

fn sweeping_prefixes<A: Nth>(prefixes: u32, sweeps_first: Duration) -> [Outcome; 2] {
    let mut world = World::<A>::new();
    let sweep = |world: &mut World<A>, from: u32| {
        for n in from..from + 20_000 {
            let source = A::requester(n % prefixes);
            world.send_for(source, 10_000 + n);
        }
        world.cache.table.assert_sound();
    };
    sweep(&mut world, 0);
    world.pass(sweeps_first);
    let quiet = A::requester(5000);
    let asks = world.send_for(quiet, 7);
    sweep(&mut world, 20_000);
    let waits = world.send_for(quiet, 7);
    if waits == Outcome::Waits {
        assert_eq!(world.answers(7), 2, "both packets leave");
        sweep(&mut world, 40_000);
        assert_eq!(world.send_for(quiet, 7), Outcome::To(mac(7)));
    }
    [asks, waits]
}

fn quiet_prefix<A: Nth>() {
    for prefixes in [1, 10, SWEEPING * 9 / 10] {
        let moment = Duration::from_millis(5);
        let outcome = sweeping_prefixes::<A>(prefixes, moment);
        assert_eq!(outcome, [Outcome::Asks, Outcome::Waits], "{prefixes}");
    }
    // Of as many prefixes as there are slots each has its share: it is refused, but not where the
    // others have not answered for a second.
    let full = Outcome::Dies(DropReason::NeighborTableFull);
    let many = 100 * NEIGHBORS_INCOMPLETE_MAX as u32;
    assert_eq!(sweeping_prefixes::<A>(many, Duration::from_millis(5))[0], full);
    assert_eq!(sweeping_prefixes::<A>(many, Duration::from_millis(1100))[0], Outcome::Asks);
}

#[test]
fn a_prefix_with_few_unresolved_neighbours_resolves_another_beside_prefixes_that_sweep() {
    quiet_prefix::<Ipv4Addr>();
    quiet_prefix::<Ipv6Addr>();
}

#[test]
fn ipv6_sources_spread_over_one_site_are_one_requester() {
    let mut world = World::<Ipv6Addr>::new();
    for n in 0..20_000 {
        let site = Ipv6Addr::requester(1).to_bits();
        world.send_for(Ipv6Addr::from_bits(site | u128::from(n) << 64), 10_000 + n);
    }
    assert_eq!(world.send_for(Ipv6Addr::requester(2), 7), Outcome::Asks);
    world.cache.table.assert_sound();
}

fn unverified_packet_flood<A: Nth>() {
    let mut world = World::<A>::new();
    let honest = 700;
    (0..honest).for_each(|n| world.resolves(n));
    world.pass(46 * SECOND);
    assert!((0..honest).all(|n| world.state(n) == Some(Stale)));
    for n in 0..100_000 {
        assert_eq!(world.asks_for_us(10_000 + n), Some(mac(10_000 + n)));
        // Answering them makes them no better known.
        if n % 3 == 0 {
            assert_eq!(world.send(10_000 + n), Outcome::To(mac(10_000 + n)));
        }
        if n % 10_000 == 0 {
            world.pass(6 * SECOND);
        }
    }
    world.cache.table.assert_sound();
    let (silent, others): (Vec<_>, Vec<_>) = world.cache.iter().partition(|n| n.state == Failed);
    assert_eq!(others.len(), honest as usize + NEIGHBOR_UNVERIFIED_MAX);
    // Those that were answered and solicited, and did not answer.
    assert!(silent.len() <= NEIGHBORS_INCOMPLETE_MAX, "{}", silent.len());
    assert!((0..honest).all(|n| world.state(n) == Some(Stale)));
    // A new neighbour is found as ever.
    world.resolves(900);
}

#[test]
fn a_flood_of_unverified_packets_makes_64_entries_and_evicts_no_other() {
    unverified_packet_flood::<Ipv4Addr>();
    unverified_packet_flood::<Ipv6Addr>();
}

fn unverified_packet_in_use<A: Nth>() {
    let mut world = World::<A>::new();
    world.asks_for_us(7);
    assert_eq!(world.send(7), Outcome::To(mac(7)));
    assert_eq!(world.pass(SECOND / 1000), [Asked::Neighbor(A::nth(7), mac(7))]);
    world.answers(7);
    (0..1000).for_each(|n| _ = world.asks_for_us(10_000 + n));
    assert_eq!(world.state(7), Some(Reachable));
    assert_eq!(world.send(7), Outcome::To(mac(7)));
}

#[test]
fn an_unverified_packet_that_is_sent_to_is_asked_at_once_and_then_outlives_a_sweep() {
    unverified_packet_in_use::<Ipv4Addr>();
    unverified_packet_in_use::<Ipv6Addr>();
}

fn oldest_stale<A: Nth>() {
    let config = NeighborConfig { entries: 8, unresolved: 4, ..NeighborConfig::for_interfaces(2) };
    let mut world = World::<A>::with(config);
    for n in 0..4 {
        world.resolves(n);
        world.pass(46 * SECOND);
    }
    // 0 is used again, and so becomes the youngest of the four.
    assert_eq!(world.send(0), Outcome::To(mac(0)));
    world.cache.confirm(ONE, A::nth(0), world.now);
    world.pass(46 * SECOND);
    for (new, gone) in [(10, 1), (11, 2), (12, 3), (13, 0)] {
        assert_eq!(world.state(gone), Some(Stale));
        world.resolves(new);
        assert_eq!(world.state(gone), None);
        world.cache.table.assert_sound();
    }
    // None is stale: the new neighbour's packets leave, and it is not kept.
    assert_eq!(
        (world.send(20), world.send(20), world.answers(20)),
        (Outcome::Asks, Outcome::Waits, 2)
    );
    assert_eq!(world.state(20), None);
    assert!((10..14).all(|n| world.state(n) == Some(Reachable)));
    assert_eq!(world.asks_for_us(21), None);
    // The operator's are never evicted, and the call fails when there is no room.
    let (addr, released) = (A::nth(30), &mut world.released);
    let refused = world.cache.set_permanent(ONE, addr, mac(30), world.now, released);
    assert_eq!(refused, Err(NeighborTableFull));
}

#[test]
fn a_full_table_gives_up_the_neighbour_that_is_unused_for_longest() {
    oldest_stale::<Ipv4Addr>();
    oldest_stale::<Ipv6Addr>();
}

#[test]
fn unproven_neighbours_go_before_proven_ones() {
    let config = NeighborConfig { entries: 8, unresolved: 4, ..NeighborConfig::for_interfaces(2) };
    let mut world = World::<Ipv6Addr>::with(config);
    (0..2).for_each(|n| world.resolves(n));
    world.pass(46 * SECOND);
    assert!(world.asks_for_us(5).is_some() && world.asks_for_us(6).is_some());
    // An unverified neighbour that is being probed is evicted all the same; it holds no packet.
    assert_eq!(world.send(5), Outcome::To(mac(5)));
    world.resolves(10);
    assert_eq!((world.state(5), world.state(6)), (None, Some(Stale)));
    world.resolves(11);
    assert_eq!((world.state(6), world.state(0), world.state(1)), (None, Some(Stale), Some(Stale)));
    // One that answers is verified.
    world.pass(46 * SECOND);
    world.resolves(12);
    assert_eq!(world.state(0), None);
}

#[test]
fn interfaces_do_not_share_their_bounds() {
    let config = NeighborConfig { entries: 4, unresolved: 2, ..NeighborConfig::for_interfaces(2) };
    let mut world = World::<Ipv4Addr>::with(config);
    assert_eq!((world.send(1), world.send(2)), (Outcome::Asks, Outcome::Asks));
    assert_eq!(world.send(3), Outcome::Dies(DropReason::NeighborTableFull));
    let mut send = |iface: u16| {
        let packet = world.pool.packet_from(b"x").unwrap();
        match world.cache.resolve(
            IfIndex(iface),
            (Ipv4Addr::nth(3), Ipv4Addr::UNSPECIFIED),
            world.now,
            packet,
        ) {
            Resolution::Waiting { solicit, .. } => Ok(solicit),
            Resolution::Refused(_, reason) => Err(reason),
            Resolution::Known(..) => panic!("no answer was sent"),
        }
    };
    assert_eq!(send(0), Ok(true));
    assert_eq!(send(2), Err(DropReason::InterfaceUnknown));
    assert_eq!(send(u16::MAX), Err(DropReason::InterfaceUnknown));
}

#[test]
fn a_small_table_keeps_half_for_resolved_neighbours() {
    let config = NeighborConfig { entries: 4, ..NeighborConfig::for_interfaces(2) };
    let mut world = World::<Ipv4Addr>::with(config);
    (0..2).for_each(|n| world.resolves(n));
    assert_eq!((world.send(5), world.send(6)), (Outcome::Asks, Outcome::Asks));
    assert_eq!(world.send(7), Outcome::Dies(DropReason::NeighborTableFull));
}

fn operator<A: Nth>() {
    let mut world = World::<A>::new();
    world.bring(7, Permanent);
    let flags = AdvertisementFlags { solicited: true, overriding: true, router: false };
    assert_eq!(world.advertises(7, Some(mac(99)), flags), None);
    assert_eq!(world.send(7), Outcome::To(mac(7)));
    assert_eq!(world.cache.deadline(), None);
    // Made permanent while packets wait: they leave.
    assert_eq!((world.send(8), world.send(8)), (Outcome::Asks, Outcome::Waits));
    world.bring(8, Permanent);
    assert_eq!((world.left(), world.send(8)), (2, Outcome::To(mac(8))));
    assert_eq!(world.send(9), Outcome::Asks);
    let mut waited = PacketList::new();
    assert!(world.cache.remove(ONE, A::nth(9), &mut waited));
    assert!(!world.cache.remove(ONE, A::nth(9), &mut waited));
    assert_eq!((waited.take().len(), world.send(9)), (1, Outcome::Asks));
    world.cache.flush(IfIndex(2), &mut waited);
    assert_eq!((waited.len(), world.cache.iter().count()), (0, 3));
    world.cache.flush(ONE, &mut waited);
    assert_eq!((waited.len(), world.cache.iter().count()), (1, 0));
    assert_eq!(world.cache.deadline(), None);
    world.cache.table.assert_sound();
}

#[test]
fn the_operator_adds_removes_and_flushes() {
    operator::<Ipv4Addr>();
    operator::<Ipv6Addr>();
}

#[test]
fn timed_work_stops_at_its_budget() {
    let mut world = World::<Ipv4Addr>::new();
    (0..100).for_each(|n| assert_eq!(world.send(n), Outcome::Asks));
    let later = world.now + 10 * SECOND;
    let (mut events, mut calls) = (0, 0);
    while world.cache.deadline().is_some_and(|d| d <= later) {
        let spent = world.cache.work(later, Units(8), |_| events += 1);
        assert!(spent > Units(0) && spent <= Units(8));
        calls += 1;
    }
    // Late solicitations are sent once, not once for each second that was missed.
    assert_eq!(events, 100);
    assert!(calls <= 100);
}

/// What waits for all neighbours together is bounded by the pool; a neighbour beyond that is
/// solicited all the same.
fn crowded_queue<A: Nth>() {
    let mut world = World::<A>::new();
    let frames = PoolConfig { frames: 64, small: 1024, ..PoolConfig::default() };
    world.pool = Pool::new(&frames).unwrap();
    let each = u64::from(world.pool.packet_from(&[1]).unwrap().true_size());
    world.cache.fit(&world.pool);
    let most = world.pool.frames_true_bytes() / NEIGHBOR_PENDING_DIVISOR;
    let room = (most / each) as u32;
    assert!((4..NEIGHBORS_INCOMPLETE_MAX as u32 / 2).contains(&room));
    for n in 0..2 * room {
        assert_eq!(world.send(n), Outcome::Asks);
        assert!(world.cache.waiting_bytes() <= most);
    }
    assert_eq!(world.cache.waiting_bytes(), each * u64::from(room));
    // Of those for which a packet waits the newest is dropped; of the others none.
    assert_eq!((world.send(0), world.send(room)), (Outcome::Replaces, Outcome::Replaces));
    assert_eq!((world.answers(0), world.answers(room)), (1, 0));
    assert_eq!(world.send(room), Outcome::To(mac(room)), "it was resolved");
    assert_eq!((world.send(room + 1), world.send(room + 1)), (Outcome::Waits, Outcome::Replaces));
    world.cache.flush(ONE, &mut world.released);
    assert_eq!((world.left() as u32, world.cache.waiting_bytes()), (room, 0));
}

#[test]
fn what_waits_for_all_neighbours_together_is_bounded() {
    crowded_queue::<Ipv4Addr>();
    crowded_queue::<Ipv6Addr>();
}
