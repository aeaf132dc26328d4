//! RFC 4861's states: each transition, each timer.

use super::*;

fn a_packet_waits_until_the_neighbour_answers<A: Nth>() {
    let mut world = World::<A>::new();
    assert_eq!((world.send(7), world.send(7)), (Outcome::Asks, Outcome::Waits));
    assert_eq!(world.cache.lookup(ONE, A::nth(7), world.now), None);
    assert!(world.cache.is_asked(ONE, A::nth(7)));
    assert_eq!(world.answers(7), 2);
    assert_eq!(world.send(7), Outcome::To(mac(7)));
    assert_eq!(world.cache.lookup(ONE, A::nth(7), world.now), Some(mac(7)));
    assert!(!world.cache.is_asked(ONE, A::nth(7)));
    // Another interface's neighbour of the same address is another neighbour.
    assert_eq!(world.cache.lookup(IfIndex(2), A::nth(7), world.now), None);
}

#[test]
fn packets_wait_until_the_neighbour_answers() {
    a_packet_waits_until_the_neighbour_answers::<Ipv4Addr>();
    a_packet_waits_until_the_neighbour_answers::<Ipv6Addr>();
}

#[test]
fn the_newest_packets_wait_and_the_oldest_is_dropped() {
    let mut world = World::<Ipv6Addr>::new();
    for n in 0..5_u8 {
        let packet = world.pool.packet_from(&[n]).unwrap();
        match world.cache.resolve(ONE, (Ipv6Addr::nth(7), Ipv6Addr::UNSPECIFIED), world.now, packet)
        {
            // It is for the caller to count it as `DropReason::NeighborPendingFull`.
            Resolution::Waiting { dropped: Some(oldest), .. } => {
                assert_eq!(oldest.first(), [n - NEIGHBOR_PENDING_MAX as u8]);
            }
            Resolution::Waiting { dropped: None, .. } => assert!(n < 3),
            other => panic!("{other:?}"),
        }
    }
    let flags = AdvertisementFlags { solicited: true, ..AdvertisementFlags::default() };
    assert_eq!(world.advertises(7, Some(mac(7)), flags), Some(mac(7)));
    let left: Vec<_> = world.released.iter().map(|packet| packet.first()[0]).collect();
    assert_eq!(left, [2, 3, 4]);
}

fn silent_neighbour<A: Nth>() {
    let mut world = World::<A>::new();
    let addr = A::nth(7);
    let outcomes: Vec<_> = (0..4).map(|_| world.send(7)).collect();
    assert_eq!(outcomes, [Outcome::Asks, Outcome::Waits, Outcome::Waits, Outcome::Replaces]);
    let group = Asked::Group(addr);
    assert_eq!(world.pass(SECOND * 99 / 100), []);
    assert_eq!(world.pass(SECOND / 50), [group]);
    assert_eq!(world.pass(SECOND), [group]);
    assert_eq!(world.pass(SECOND), [Asked::Unreachable(addr, 3)]);
    // For a second it is not solicited again; then it may be.
    assert_eq!(world.state(7), Some(Failed));
    assert_eq!(world.send(7), Outcome::Dies(DropReason::NeighborUnreachable));
    assert_eq!(world.answers(7), 0);
    world.pass(SECOND);
    assert_eq!(world.send(7), Outcome::Asks);
    assert_eq!(world.pass(4 * SECOND), [group, group, Asked::Unreachable(addr, 1)]);
    world.pass(FAILED_KEEP + SECOND);
    assert_eq!((world.state(7), world.cache.deadline()), (None, None));
}

#[test]
fn a_neighbour_that_never_answers_is_asked_for_three_times() {
    silent_neighbour::<Ipv4Addr>();
    silent_neighbour::<Ipv6Addr>();
}

fn reachability_ends<A: Nth>() {
    let mut world = World::<A>::new();
    let addr = A::nth(7);
    world.resolves(7);
    assert_eq!(world.pass(SECOND * 149 / 10), []);
    assert_eq!(world.state(7), Some(Reachable));
    assert_eq!(world.pass(31 * SECOND), []);
    assert_eq!((world.state(7), world.cache.deadline()), (Some(Stale), None));
    // Used again: five seconds for upper protocols to confirm, then three unicast probes.
    assert_eq!((world.send(7), world.state(7)), (Outcome::To(mac(7)), Some(Delay)));
    assert_eq!(world.pass(SECOND * 49 / 10), []);
    let neighbor = Asked::Neighbor(addr, mac(7));
    assert_eq!(world.pass(SECOND / 5), [neighbor]);
    assert_eq!((world.send(7), world.state(7)), (Outcome::To(mac(7)), Some(Probe)));
    assert_eq!(world.pass(2 * SECOND), [neighbor, neighbor]);
    assert_eq!(world.pass(SECOND), [Asked::Unreachable(addr, 0)]);
    assert_eq!(world.state(7), Some(Unreachable));
}

#[test]
fn reachability_ends_and_is_probed_for_when_the_neighbour_is_used() {
    reachability_ends::<Ipv4Addr>();
    reachability_ends::<Ipv6Addr>();
}

/// RFC 7048: a neighbour that was reachable once is solicited for longer, at growing intervals, by
/// multicast; what is sent goes to its last link address.
fn patience<A: Nth>() {
    let mut world = World::<A>::new();
    let addr = A::nth(7);
    world.bring(7, Unreachable);
    assert!(world.cache.is_asked(ONE, addr));
    let group = Asked::Group(addr);
    for (wait, expected) in [(1, group), (3, group), (9, group)] {
        assert_eq!(world.pass(SECOND * wait - SECOND / 2), []);
        assert_eq!((world.send(7), world.state(7)), (Outcome::To(mac(7)), Some(Unreachable)));
        assert_eq!(world.pass(SECOND / 2), [expected]);
    }
    assert_eq!(world.pass(26 * SECOND), []);
    assert_eq!(world.pass(SECOND), [Asked::Unreachable(addr, 0)]);
    assert_eq!(world.send(7), Outcome::Dies(DropReason::NeighborUnreachable));
    assert_eq!(world.cache.neighbor(ONE, addr).unwrap().link_addr, None);
    // An answer in between makes it reachable again, wherever it is now.
    let mut world = World::<A>::new();
    world.bring(7, Unreachable);
    world.pass(5 * SECOND);
    let flags = AdvertisementFlags { solicited: true, overriding: true, router: false };
    assert_eq!(world.advertises(7, Some(mac(99)), flags), Some(mac(99)));
    assert_eq!((world.send(7), world.state(7)), (Outcome::To(mac(99)), Some(Reachable)));
}

#[test]
fn a_neighbour_that_was_reachable_is_given_up_later_and_asked_for_ever_more_rarely() {
    patience::<Ipv4Addr>();
    patience::<Ipv6Addr>();
}

/// A neighbour that has never answered us is given up at once.
#[test]
fn an_unverified_packet_that_does_not_answer_is_given_up_at_once() {
    let mut world = World::<Ipv6Addr>::new();
    world.asks_for_us(7);
    assert_eq!((world.send(7), world.state(7)), (Outcome::To(mac(7)), Some(Delay)));
    world.pass(9 * SECOND);
    assert_eq!(world.state(7), Some(Failed));
}

/// RFC 4861 section 6.3.4: the link's own times, of that link alone.
#[test]
fn a_links_own_times_are_used_on_that_link() {
    let mut world = World::<Ipv6Addr>::new();
    world.cache.set_timers(ONE, Some(1000 * SECOND), Some(SECOND / 4));
    assert_eq!(world.send(7), Outcome::Asks);
    let group = Asked::Group(Ipv6Addr::nth(7));
    assert_eq!(world.pass(SECOND * 3 / 5), [group, group]);
    world.answers(7);
    assert_eq!((world.pass(499 * SECOND), world.state(7)), (vec![], Some(Reachable)));
    world.cache.set_timers(ONE, None, Some(SECOND));
    assert_eq!(world.send(8), Outcome::Asks);
    assert_eq!(world.pass(SECOND * 3 / 5), []);
}

/// A probe without a packet, for the default router list (RFC 4191 section 3.5).
#[test]
fn a_router_is_probed_once_and_at_most_once_at_a_time() {
    let mut world = World::<Ipv6Addr>::new();
    let addr = Ipv6Addr::nth(7);
    let asks = |world: &mut World<Ipv6Addr>| match world.cache.probe(ONE, addr, world.now) {
        Some(NeighborEvent::Solicit { unicast, .. }) => Some(unicast),
        None => None,
        Some(NeighborEvent::Unreachable { .. }) => panic!("it was not probed yet"),
    };
    assert_eq!((asks(&mut world), asks(&mut world)), (Some(None), None));
    assert_eq!(world.pass(2 * SECOND), [Asked::Unreachable(addr, 0)]);
    assert_eq!(asks(&mut world), Some(None));
    assert_eq!((world.answers(7), world.state(7)), (0, Some(Reachable)));
    assert_eq!((asks(&mut world), asks(&mut world)), (Some(Some(mac(7))), None));
    assert_eq!(world.pass(SECOND * 7 / 2).len(), 3);
    assert_eq!((world.state(7), asks(&mut world)), (Some(Unreachable), None));
    // A flood of them makes no more entries than any other solicitation.
    for n in 100..10_000 {
        world.cache.probe(ONE, Ipv6Addr::nth(n), world.now);
    }
    world.cache.table.assert_sound();
}

/// RFC 4861 section 6.3.4: the sender of an advertisement is a router, and proves only that we
/// receive from it.
#[test]
fn a_routers_word_makes_a_stale_entry_that_is_a_router() {
    let mut world = World::<Ipv6Addr>::new();
    let addr = Ipv6Addr::nth(7);
    let said = |world: &mut World<Ipv6Addr>, link_addr| {
        world.cache.router_said(ONE, addr, link_addr, world.now, &mut world.released)
    };
    assert_eq!((said(&mut world, None), world.state(7)), (None, None));
    assert_eq!((said(&mut world, Some(mac(7))), world.state(7)), (Some(mac(7)), Some(Stale)));
    assert!(world.cache.neighbor(ONE, addr).unwrap().is_router);
    let mut world = World::<Ipv6Addr>::new();
    world.resolves(7);
    said(&mut world, None);
    let found = world.cache.neighbor(ONE, addr).unwrap();
    assert!(found.is_router && found.state == Reachable);
}

fn confirmation<A: Nth>() {
    let mut world = World::<A>::new();
    world.resolves(7);
    // Reachability confirmation by an upper protocol avoids all probes.
    for _ in 0..100 {
        assert_eq!(world.pass(10 * SECOND), []);
        world.cache.confirm(ONE, A::nth(7), world.now);
        assert_eq!((world.send(7), world.state(7)), (Outcome::To(mac(7)), Some(Reachable)));
    }
    for state in [Stale, Delay, Probe, Unreachable] {
        let mut world = World::<A>::new();
        world.bring(7, state);
        world.cache.confirm(ONE, A::nth(7), world.now);
        assert_eq!(world.state(7), Some(Reachable));
    }
    // What is not resolved cannot be confirmed, and nothing is made of it.
    for state in [Incomplete, Failed] {
        let mut world = World::<A>::new();
        world.bring(7, state);
        world.cache.confirm(ONE, A::nth(7), world.now);
        world.cache.confirm(ONE, A::nth(8), world.now);
        assert_eq!((world.state(7), world.state(8)), (Some(state), None));
    }
}

#[test]
fn an_upper_protocols_word_keeps_a_neighbour_reachable() {
    confirmation::<Ipv4Addr>();
    confirmation::<Ipv6Addr>();
}

fn late_work<A: Nth>() {
    let mut world = World::<A>::new();
    world.resolves(7);
    // No timed work ran for a minute: the state is true all the same.
    world.now += 60 * SECOND;
    assert_eq!(world.send(7), Outcome::To(mac(7)));
    assert_eq!(world.state(7), Some(Delay));
}

#[test]
fn a_neighbour_does_not_stay_reachable_because_work_is_late() {
    late_work::<Ipv4Addr>();
    late_work::<Ipv6Addr>();
}

/// What an advertisement supplies.
const SUPPLIES: [Supplied; 3] = [Supplied::Nothing, Supplied::Same, Supplied::Different];
use super::super::state::Supplied;

/// RFC 4861 appendix C, row by row, for advertisements: state before; S, O (`None`: any), what is
/// supplied; state after, whether the link address is recorded. Where appendix C and section 7.2.5
/// differ (an incomplete entry and no address), the section rules.
type Row = (NeighborState, Option<bool>, Option<bool>, Supplied, NeighborState, bool);

fn appendix_c() -> Vec<Row> {
    use Supplied::{Different, Nothing, Same};
    let mut rows = vec![
        (Incomplete, Some(false), None, Different, Stale, true),
        (Incomplete, Some(true), None, Different, Reachable, true),
        (Incomplete, None, None, Nothing, Incomplete, false),
        (Reachable, Some(true), Some(false), Different, Stale, false),
        (Reachable, Some(false), Some(false), Different, Stale, false),
    ];
    // RFC 7048's state is, for advertisements, one more that is being probed.
    for state in [Stale, Probe, Delay, Unreachable] {
        rows.push((state, Some(true), Some(false), Different, state, false));
        rows.push((state, Some(false), Some(false), Different, state, false));
    }
    for state in [Reachable, Stale, Probe, Delay, Unreachable] {
        rows.extend([
            (state, Some(true), Some(false), Same, Reachable, false),
            (state, Some(true), Some(false), Nothing, Reachable, false),
            (state, Some(true), Some(true), Same, Reachable, false),
            (state, Some(true), Some(true), Different, Reachable, true),
            (state, Some(true), Some(true), Nothing, Reachable, false),
            (state, Some(false), None, Same, state, false),
            (state, Some(false), None, Nothing, state, false),
            (state, Some(false), Some(true), Different, Stale, true),
        ]);
    }
    // In addition to the RFC's: what was given up, and static entries.
    for state in [Failed, Permanent] {
        rows.extend(SUPPLIES.map(|supplied| (state, None, None, supplied, state, false)));
    }
    rows
}

fn advertisements<A: Nth>() {
    let mut cases = 0;
    for (state, s, o, supplied, after, recorded) in appendix_c() {
        for bits in 0..8 {
            let flags = AdvertisementFlags {
                solicited: bits & 1 != 0,
                overriding: bits & 2 != 0,
                router: bits & 4 != 0,
            };
            if s.is_some_and(|s| s != flags.solicited) || o.is_some_and(|o| o != flags.overriding) {
                continue;
            }
            let mut world = World::<A>::new();
            world.bring(7, state);
            let link_addr = match supplied {
                Supplied::Nothing => None,
                Supplied::Same => Some(mac(7)),
                Supplied::Different => Some(mac(99)),
            };
            world.advertises(7, link_addr, flags);
            let found = world.cache.neighbor(ONE, A::nth(7)).unwrap();
            let case = format!("{state:?} {flags:?} {supplied:?}");
            assert_eq!(found.state, after, "{case}");
            let known = if recorded { mac(99) } else { mac(7) };
            assert_eq!(found.link_addr, after.is_resolved().then_some(known), "{case}");
            assert_eq!(world.left(), usize::from(state == Incomplete && after != state), "{case}");
            // IsRouter is taken from all that is not ignored.
            let ignored =
                (supplied == Supplied::Different && !flags.overriding && state != Incomplete)
                    || (state == Incomplete && supplied == Supplied::Nothing)
                    || matches!(state, Failed | Permanent);
            assert_eq!(found.is_router, flags.router && !ignored, "{case}");
            world.cache.table.assert_sound();
            cases += 1;
        }
    }
    // Seven states by three supplies by eight flags, and two supplies for an incomplete entry.
    assert_eq!(cases, 7 * 3 * 8 + 2 * 8);
}

#[test]
fn advertisements_do_what_the_rfcs_table_says() {
    advertisements::<Ipv4Addr>();
    advertisements::<Ipv6Addr>();
}

fn solicitations<A: Nth>() {
    for state in [Incomplete, Reachable, Stale, Delay, Probe, Unreachable, Failed, Permanent] {
        for new in [mac(7), mac(99)] {
            let mut world = World::<A>::new();
            world.bring(7, state);
            let released = &mut world.released;
            world.cache.solicited_by(ONE, A::nth(7), new, world.now, released);
            let found = world.cache.neighbor(ONE, A::nth(7)).unwrap();
            let (after, known) = match state {
                Permanent => (Permanent, mac(7)),
                Incomplete | Failed => (Stale, new),
                _ if new == mac(7) => (state, new),
                _ => (Stale, new),
            };
            assert_eq!((found.state, found.link_addr), (after, Some(known)), "{state:?}");
            assert_eq!(world.left(), usize::from(state == Incomplete));
            world.cache.table.assert_sound();
        }
    }
    let mut world = World::<A>::new();
    assert_eq!(world.asks_for_us(7), Some(mac(7)));
    assert_eq!(world.state(7), Some(Stale));
}

#[test]
fn solicitations_make_or_change_an_entry_as_the_rfc_says() {
    solicitations::<Ipv4Addr>();
    solicitations::<Ipv6Addr>();
}

#[test]
fn an_advertisement_for_an_unknown_neighbour_makes_nothing() {
    let mut world = World::<Ipv6Addr>::new();
    for n in 0..10_000 {
        let flags = AdvertisementFlags { solicited: true, overriding: true, router: true };
        assert_eq!(world.advertises(n, Some(mac(n)), flags), None);
    }
    assert_eq!(world.cache.iter().count(), 0);
}

#[test]
fn an_advertisement_that_changes_nothing_leaves_a_running_question_alone() {
    let mut world = World::<Ipv6Addr>::new();
    world.bring(7, Probe);
    let asked = (0..30).flat_map(|_| {
        world.advertises(7, Some(mac(7)), AdvertisementFlags::default());
        world.pass(SECOND / 10)
    });
    let addr = Ipv6Addr::nth(7);
    let neighbor = Asked::Neighbor(addr, mac(7));
    assert_eq!(asked.collect::<Vec<_>>(), [neighbor, neighbor, Asked::Unreachable(addr, 0)]);
}

#[test]
fn states_are_named_as_operators_know_them() {
    let states = [Incomplete, Reachable, Stale, Delay, Probe, Failed, Permanent];
    let names = ["INCOMPLETE", "REACHABLE", "STALE", "DELAY", "PROBE", "FAILED", "PERMANENT"];
    assert_eq!(states.map(NeighborState::name), names);
    assert_eq!(Unreachable.name(), "UNREACHABLE");
}
