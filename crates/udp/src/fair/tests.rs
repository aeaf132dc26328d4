//! Whole floods through a socket that is a number: which sources keep what.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr};

use floodwall_base::PublicRandom;

use super::*;

const LIMIT: u64 = 212_992;
const SIZE: u32 = 1024;
/// What a fast reader takes in a millisecond.
const READ: u32 = 50;
/// How long a flood lasts, in milliseconds.
const LENGTH: u64 = 1500;

/// The flooding sources.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flood {
    /// Ten addresses, far from each other.
    Ten,
    /// The same, which the socket has answered.
    TenAnswered,
    /// Every address of one wide prefix.
    Network,
    /// A million prefixes, forged.
    Million,
    /// Ten hosts on one link, which is the light senders' own.
    Neighbours,
    /// A hundred of them.
    HundredNeighbours,
}

fn addr(network: u32, host: u32, is_v6: bool) -> IpAddr {
    match is_v6 {
        false => IpAddr::V4(Ipv4Addr::from_bits((network << 8) | (host % 256))),
        true => IpAddr::V6(Ipv6Addr::from_bits(
            u128::from(network) << 80 | u128::from(host & 0xffff) << 64 | 1,
        )),
    }
}

/// A host on one link.
fn neighbour(host: u32, is_v6: bool) -> IpAddr {
    match is_v6 {
        false => IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 | host)),
        true => IpAddr::V6(Ipv6Addr::from_bits(0xfd00 << 112 | u128::from(host))),
    }
}

/// What light senders lost of what they sent, and what the reader got, while unverified sources
/// offer ten times what is read: 40 light ones, 25 datagrams a second each.
struct Outcome {
    sent: u32,
    lost: u32,
    read: u32,
}

fn flooded(flood: Flood, honest: SenderStanding, is_v6: bool, is_on: bool) -> Outcome {
    flooded_at(flood, honest, is_v6, is_on, READ)
}

/// The same where the reader takes `pace` datagrams a millisecond.
fn flooded_at(
    flood: Flood,
    honest: SenderStanding,
    is_v6: bool,
    is_on: bool,
    pace: u32,
) -> Outcome {
    let mut fair = FairShare::new(HashKey::new(5, 6));
    fair.set_on(is_on);
    let (mut queue, mut random) = (VecDeque::new(), PublicRandom::new(1));
    let mut demand = ShareDemand::default();
    let (mut sent, mut lost, mut read) = (0, 0, 0);
    for millisecond in 0..LENGTH {
        fair.begin(Instant::from_nanos(millisecond * 1_000_000));
        for n in 0..10 * pace {
            let word = random.next_u64() as u32;
            let is_light = n == word % (10 * pace);
            let source = match flood {
                Flood::Neighbours if is_light => neighbour(millisecond as u32 % 40, is_v6),
                Flood::Neighbours => neighbour(100 + word % 10, is_v6),
                Flood::HundredNeighbours if is_light => neighbour(millisecond as u32 % 40, is_v6),
                Flood::HundredNeighbours => neighbour(100 + word % 100, is_v6),
                _ if is_light => addr(9_000 + 77 * (millisecond as u32 % 40), 1, is_v6),
                Flood::Ten | Flood::TenAnswered => addr(100 * (1 + word % 10), 3, is_v6),
                Flood::Network => addr(5, word >> 8, is_v6),
                Flood::Million => addr(20_000 + word % 1_000_000, 1, is_v6),
            };
            let standing = match flood {
                _ if is_light => honest,
                Flood::TenAnswered => SenderStanding::Answered,
                _ => SenderStanding::Unknown,
            };
            let used = queue.len() as u64 * u64::from(SIZE);
            let ask = FairRequest { source, socket: 1, true_size: SIZE, used, limit: LIMIT };
            let fits = used + u64::from(SIZE) <= LIMIT;
            let is_taken = fair.grants(&ask, &mut demand, || standing) && fits;
            if is_taken {
                queue.push_back(());
            }
            sent += u32::from(is_light);
            lost += u32::from(is_light && !is_taken);
        }
        let before = queue.len();
        queue.drain(..before.min(pace as usize));
        read += (before - queue.len()) as u32;
    }
    Outcome { sent, lost, read }
}

/// Far from the flooding hosts or on their own link, known to the service or not: flooding hosts
/// gain nothing by having been answered.
#[test]
fn light_senders_keep_99_in_a_hundred_while_ten_or_a_network_flood_tenfold() {
    for is_v6 in [false, true] {
        for flood in [Flood::Ten, Flood::TenAnswered, Flood::Network, Flood::Neighbours] {
            for honest in [SenderStanding::Unknown, SenderStanding::Answered] {
                let Outcome { sent, lost, read } = flooded(flood, honest, is_v6, true);
                assert!(sent > 1000 && lost * 100 <= sent, "{flood:?}, {honest:?}: {lost}/{sent}");
                // Fairness costs the reader nothing: there is always something to read.
                assert!(read >= (LENGTH as u32 - 1) * READ, "{flood:?}: {read} read");
            }
            let Outcome { sent, lost, .. } = flooded(flood, SenderStanding::Answered, is_v6, false);
            assert!(lost * 2 > sent, "without it most are lost: {lost} of {sent}");
        }
    }
}

/// A reader with a queue that lasts as long as grants are remembered: each light sender then has a
/// good part of what is read.
#[test]
fn light_senders_keep_nearly_all_at_a_slow_reader() {
    for is_v6 in [false, true] {
        for flood in [Flood::Ten, Flood::TenAnswered, Flood::Network, Flood::Neighbours] {
            let outcome = flooded_at(flood, SenderStanding::Unknown, is_v6, true, 2);
            assert!(outcome.lost * 33 <= outcome.sent, "{flood:?}: {} lost", outcome.lost);
        }
    }
}

/// With as many heavy hosts on one link as there is room for datagrams, a source that holds one is
/// as heavy as they are.
#[test]
fn beside_a_hundred_heavy_neighbours_answered_peers_lose_nothing_and_unverified_packets_a_third() {
    for is_v6 in [false, true] {
        let lost = |honest| {
            let Outcome { sent, lost, .. } = flooded(Flood::HundredNeighbours, honest, is_v6, true);
            100 * lost / sent
        };
        assert!(lost(SenderStanding::Answered) < 1 && lost(SenderStanding::Unknown) <= 33);
    }
}

#[test]
fn forged_sources_cost_unverified_packets_their_part_and_answered_peers_nothing() {
    for is_v6 in [false, true] {
        let Outcome { sent, lost, read } =
            flooded(Flood::Million, SenderStanding::Answered, is_v6, true);
        assert!(sent > 1000 && lost * 100 <= sent, "answered: {lost} of {sent}");
        assert!(read >= (LENGTH as u32 - 1) * READ, "{read} read");
        // An unverified source cannot be distinguished from a forged one: a tenth of all is read.
        let Outcome { sent, lost, .. } =
            flooded(Flood::Million, SenderStanding::Unknown, is_v6, true);
        assert!(sent - lost >= sent / 14, "unverified: {lost} of {sent}");
    }
}

fn ask(used: u64) -> FairRequest {
    let source = IpAddr::V4(Ipv4Addr::LOCALHOST);
    FairRequest { source, socket: 1, true_size: SIZE, used, limit: LIMIT }
}

fn share() -> (FairShare, ShareDemand) {
    (FairShare::new(HashKey::new(5, 6)), ShareDemand::default())
}

#[test]
fn the_reserve_is_for_answered_peers_alone() {
    let (mut fair, mut demand) = share();
    let full = LIMIT - LIMIT / RESERVE_DIVISOR;
    assert!(!fair.grants(&ask(full), &mut demand, || SenderStanding::Unknown));
    let count =
        (0..100).filter(|_| fair.grants(&ask(full), &mut demand, || SenderStanding::Answered));
    assert!((1..27).contains(&count.count()), "some of the last eighth, not all of it");
    for _ in 0..100 {
        assert!(fair.grants(&ask(full), &mut demand, || SenderStanding::Connected));
    }
    let (mut fair, mut demand) = share();
    let beyond = ask(3 * LIMIT / 4 + 1);
    assert!(
        fair.grants(&beyond, &mut demand, || SenderStanding::Unknown),
        "a light unverified source"
    );
}

#[test]
fn one_sender_alone_has_three_quarters_and_leaves_the_next_its_room() {
    let (mut fair, mut demand) = share();
    let mut used = 0;
    while fair.grants(&ask(used), &mut demand, || SenderStanding::Unknown) {
        used += u64::from(SIZE);
    }
    assert!(used >= 3 * LIMIT / 4 - u64::from(SIZE) && used <= 3 * LIMIT / 4, "{used}");
    let other = FairRequest { source: addr(77, 1, false), ..ask(used) };
    for _ in 0..3 {
        assert!(fair.grants(&other, &mut demand, || SenderStanding::Unknown));
    }
}

/// Where the limit is tiny, or is shrunk below what waits, nothing panics and an empty socket takes
/// any datagram.
#[test]
fn odd_limits_are_lived_with() {
    let (mut fair, mut demand) = share();
    for limit in [0, 1, 2, u64::from(SIZE), u64::MAX] {
        let ask = FairRequest { limit, ..ask(0) };
        assert!(fair.grants(&ask, &mut demand, || SenderStanding::Unknown), "{limit}");
    }
    for standing in [SenderStanding::Unknown, SenderStanding::Answered] {
        let ask = FairRequest { limit: 1, ..ask(u64::MAX) };
        assert!(!fair.grants(&ask, &mut demand, || standing));
    }
}

#[test]
fn a_socket_that_is_nearly_empty_counts_nothing() {
    let (mut fair, mut demand) = share();
    for _ in 0..1000 {
        assert!(fair.grants(&ask(LIMIT / 8), &mut demand, || SenderStanding::Unknown));
    }
    let places = fair.sketch.places_v4(Ipv4Addr::LOCALHOST, 1);
    assert_eq!(fair.sketch.look(places, 0).granted, [0.0; 2]);
    assert_eq!((demand.asked, demand.granted), (0.0, 0.0));
}

#[test]
fn the_tick_is_that_of_the_round_also_where_time_goes_back() {
    let (mut fair, _) = share();
    for ms in [0, 1, 49, 50, 51, 149, 150, 20_000, 20_049, 20_050, 100, 99, 0] {
        let now = Instant::from_nanos(ms * 1_000_000);
        fair.begin(now);
        assert_eq!(fair.tick, fair.sketch.tick_of(now), "{ms} ms");
    }
}
