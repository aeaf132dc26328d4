//! Lost answers: what is solicited again before the RFC's second, and what bounds it.

use floodwall_base::limits::{NEIGHBOR_EARLY_BURST, NEIGHBOR_EARLY_RATE};

use super::*;

/// A world in which no router advertises a RetransTimer.
fn early_world<A: Nth>() -> World<A> {
    let mut world = World::new();
    world.cache.set_timers(ONE, None, None);
    world
}

/// What is solicited within a time, and after how many milliseconds.
fn times<A: Nth>(world: &mut World<A>, time: Duration) -> Vec<(u64, Asked<A>)> {
    let start = world.now;
    let after = |at: Instant| at.saturating_since(start).as_millis() as u64;
    world.pass_timed(time).into_iter().map(|(at, it)| (after(at), it)).collect()
}

/// The timer wheel's ticks, in milliseconds.
const TICK: u64 = 5;

fn assert_times<A: Nth>(asked: &[(u64, Asked<A>)], expected: &[(u64, Asked<A>)]) {
    let near = asked.iter().zip(expected).all(|(asked, expected)| {
        let (from, what) = *expected;
        asked.1 == what && (from..=from + TICK).contains(&asked.0)
    });
    let all = asked.len() == expected.len() && near;
    assert!(all, "{asked:?} is not {expected:?}");
}

fn lost_answers<A: Nth>() {
    let mut world = early_world::<A>();
    assert_eq!(world.send(7), Outcome::Asks);
    let group = Asked::Group(A::nth(7));
    // One packet, and no more: early solicitations for a second, then the RFC's pace and end.
    let asked = times(&mut world, 4 * SECOND);
    let expected = [25, 75, 175, 375, 775, 1000, 2000].map(|ms| (ms, group));
    let gone = (3000, Asked::Unreachable(A::nth(7), 1));
    assert_times(&asked, &[&expected[..], &[gone]].concat());
    // The fourth answer arrives.
    let mut world = early_world::<A>();
    assert_eq!(world.send(7), Outcome::Asks);
    assert_eq!(world.pass(SECOND / 5), [group, group, group]);
    assert_eq!((world.answers(7), world.state(7)), (1, Some(Reachable)));
    assert_eq!(world.pass(3 * SECOND), []);
}

#[test]
fn a_lost_answer_is_solicited_again_within_a_second() {
    lost_answers::<Ipv4Addr>();
    lost_answers::<Ipv6Addr>();
}

fn traffic_goes_on<A: Nth>() {
    let mut world = early_world::<A>();
    let mut asked = usize::from(world.send(7) == Outcome::Asks);
    for _ in 0..290 {
        world.send(7);
        asked += world.pass_timed(SECOND / 100).len();
    }
    // Six solicitations in each of three seconds; the last of these is not over.
    assert_eq!((asked, world.state(7)), (18, Some(Incomplete)));
    assert_eq!(world.pass(SECOND / 5), [Asked::Unreachable(A::nth(7), 3)]);
}

#[test]
fn while_packets_go_on_to_arrive_every_second_has_early_solicitations() {
    traffic_goes_on::<Ipv4Addr>();
    traffic_goes_on::<Ipv6Addr>();
}

/// A neighbour that is in use is probed before it is stale, by unicast, and sent to until every
/// probe, and every solicitation to the group, has been lost.
fn in_use<A: Nth>() {
    let mut world = early_world::<A>();
    world.resolves(7);
    let neighbor = Asked::Neighbor(A::nth(7), mac(7));
    let found = world.cache.table.find(ONE, A::nth(7)).unwrap();
    let until = world.cache.table.entry(found).unwrap().until;
    let mut asked = Vec::new();
    while asked.is_empty() {
        assert_eq!(world.send(7), Outcome::To(mac(7)));
        assert_ne!(world.state(7), Some(Stale));
        asked = world.pass(SECOND / 50);
    }
    assert_eq!((asked, world.state(7)), (vec![neighbor], Some(Probe)));
    assert!(world.now < until, "while it still counted");
    assert_eq!((world.answers(7), world.state(7)), (0, Some(Reachable)));
    // The same, and no probe is answered.
    let (mut probes, mut groups, mut silent) = (0, 0, 0);
    for _ in 0..10_000 {
        let sent = world.send(7);
        if sent == Outcome::Dies(DropReason::NeighborUnreachable) {
            break;
        }
        assert_eq!(sent, Outcome::To(mac(7)));
        for (_, it) in world.pass_timed(SECOND / 100) {
            match it {
                Asked::Neighbor(..) => probes += 1,
                Asked::Group(_) => groups += 1,
                Asked::Unreachable(..) => silent += 1,
            }
        }
    }
    assert_eq!((probes, groups, silent), (18, 18, 2));
}

#[test]
fn a_neighbour_in_use_is_probed_before_it_is_stale_and_used_until_all_probes_are_lost() {
    in_use::<Ipv4Addr>();
    in_use::<Ipv6Addr>();
}

fn idle<A: Nth>() {
    let mut world = early_world::<A>();
    world.resolves(7);
    assert_eq!((world.pass(60 * SECOND), world.state(7)), (vec![], Some(Stale)));
}

#[test]
fn a_neighbour_that_is_not_in_use_becomes_stale_without_a_probe() {
    idle::<Ipv4Addr>();
    idle::<Ipv6Addr>();
}

fn sweep<A: Nth>() {
    let mut world = early_world::<A>();
    let (mut swept, mut gateway) = (0, 0);
    for n in 0..2000 {
        world.send_for(A::requester(1), 10_000 + n);
        if n > 500 {
            world.send(7);
        }
        for (_, it) in world.pass_timed(Duration::from_millis(5)) {
            match it {
                Asked::Group(addr) if addr == A::nth(7) => gateway += 1,
                Asked::Group(_) => swept += 1,
                _ => {}
            }
        }
    }
    // Of 2,000 neighbours in ten seconds; at the RFC's pace each is solicited twice more.
    let early = (NEIGHBOR_EARLY_RATE * 10 + NEIGHBOR_EARLY_BURST) as usize;
    let paced = 2 * NEIGHBORS_INCOMPLETE_MAX * 10 / 3 + 2 * NEIGHBORS_INCOMPLETE_MAX;
    assert!((early..early + paced).contains(&swept), "{swept}");
    // The gateway has all of its own: eighteen in three seconds, then one without.
    assert!(gateway >= 2 * 17, "{gateway} {swept}");
}

#[test]
fn an_early_solicitation_of_a_sweep_takes_nothing_from_a_gateways() {
    sweep::<Ipv4Addr>();
    sweep::<Ipv6Addr>();
}
