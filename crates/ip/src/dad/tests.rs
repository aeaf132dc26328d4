//! Duplicate address detection in virtual time, both families.

use super::*;

const ONE: IfIndex = IfIndex(1);
const SECOND: Duration = Duration::from_secs(1);
const BOTH: [&str; 2] = ["10.0.0.1", "fd00::1"];

struct World {
    dad: Dad,
    random: Randomness,
    now: Instant,
}

/// An event without its nonce.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Did {
    Announce,
    Confirmed,
    Probe,
}

impl World {
    fn new() -> Self {
        Self {
            dad: Dad::new(4, Duration::ZERO, HashKey::new(1, 2), Instant::ORIGIN),
            random: Randomness::from_number(5),
            now: Instant::ORIGIN,
        }
    }

    fn start(&mut self, addr: IpAddr, detection: Detection) {
        self.dad.start(ONE, addr, detection, self.now, &mut self.random).unwrap();
    }

    fn conflict(&mut self, addr: IpAddr, nonce: Option<Nonce>) -> DadResponse {
        self.dad.conflict(ONE, addr, nonce, self.now, &mut self.random)
    }

    /// Lets time pass; what happened, in tenths of a second from now, and the last probe's nonce.
    fn pass(&mut self, time: Duration) -> (Vec<(u128, Did)>, Option<Nonce>) {
        let (begin, end, mut nonce) = (self.now, self.now + time, None);
        let mut did = Vec::new();
        loop {
            let wake = self.dad.deadline().unwrap_or(Instant::FAR).max(self.now).min(end);
            self.now = wake;
            let tenths = (wake - begin).as_millis() / 100;
            self.dad.work(wake, Units(100), &mut self.random, |event| {
                did.push((
                    tenths,
                    match event {
                        DadEvent::Announce(..) => Did::Announce,
                        DadEvent::Confirmed(..) => Did::Confirmed,
                        DadEvent::Probe(_, _, probe) => {
                            nonce = Some(probe);
                            Did::Probe
                        }
                    },
                ));
            });
            if wake >= end {
                return (did, nonce);
            }
        }
    }

    fn probes(&mut self, time: Duration) -> usize {
        self.pass(time).0.iter().filter(|(_, did)| *did == Did::Probe).count()
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn an_ipv6_address_is_probed_once_and_confirmed_a_second_later() {
    let mut world = World::new();
    world.start(ip("fd00::1"), Detection::Probe);
    assert_eq!(world.pass(60 * SECOND).0, [(0, Did::Probe), (10, Did::Confirmed)]);
    assert_eq!(world.dad.deadline(), None);
}

#[test]
fn an_ipv4_address_is_probed_three_times_where_that_is_wanted() {
    let mut world = World::new();
    world.start(ip("10.0.0.1"), Detection::Probe);
    let (did, _) = world.pass(60 * SECOND);
    let what: Vec<_> = did.iter().map(|(_, did)| *did).collect();
    use Did::{Announce, Confirmed, Probe};
    assert_eq!(what, [Probe, Probe, Probe, Confirmed, Announce, Announce]);
    let times: Vec<_> = did.iter().map(|(tenths, _)| *tenths).collect();
    let waits: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!((10..=20).contains(&waits[0]) && (10..=20).contains(&waits[1]), "{waits:?}");
    assert_eq!(waits[2..], [20, 0, 20]);
}

#[test]
fn addresses_used_at_once_are_announced() {
    let announced = [vec![(0, Did::Announce), (20, Did::Announce)], vec![(0, Did::Announce)]];
    for (addr, announced) in BOTH.into_iter().zip(announced) {
        let mut world = World::new();
        world.start(ip(addr), Detection::Announce);
        assert_eq!(world.pass(60 * SECOND).0, announced, "{addr}");
    }
}

#[test]
fn hosts_that_start_together_do_not_probe_together() {
    let mut firsts: Vec<_> = (0..50)
        .map(|seed| {
            let mut random = Randomness::from_number(seed);
            let mut dad = Dad::new(1, SECOND, HashKey::new(1, 2), Instant::ORIGIN);
            dad.start(ONE, ip("fd00::1"), Detection::Probe, Instant::ORIGIN, &mut random).unwrap();
            (0..).map(|n| Instant::ORIGIN + SECOND / 100 * n).find(|&now| {
                let mut probed = false;
                dad.work(now, Units(100), &mut random, |_| probed = true);
                probed
            })
        })
        .collect();
    assert!(firsts.iter().all(|first| first.is_some_and(|f| f <= Instant::ORIGIN + SECOND * 2)));
    firsts.sort();
    firsts.dedup();
    assert!(firsts.len() > 25);
}

#[test]
fn an_attacker_that_answers_every_probe_ends_it_after_four_rounds() {
    for (addr, most) in BOTH.into_iter().zip([12, 4]) {
        let mut world = World::new();
        world.start(ip(addr), Detection::Probe);
        let (mut probes, mut answers) = (0, Vec::new());
        for _ in 0..10_000 {
            let now = world.probes(SECOND / 10);
            if now > 0 {
                probes += now;
                // More answers than one change nothing.
                let first = world.conflict(ip(addr), None);
                answers.push(first);
                if first == DadResponse::Retry {
                    assert_eq!(world.conflict(ip(addr), None), DadResponse::Ignore);
                }
            }
        }
        let retry = DadResponse::Retry;
        assert_eq!(answers, [retry, retry, retry, DadResponse::GiveUp], "{addr}");
        assert!(probes <= most, "{addr}: {probes}");
        assert_eq!(
            (world.dad.deadline(), world.conflict(ip(addr), None)),
            (None, DadResponse::Ignore)
        );
    }
}

#[test]
fn an_address_that_was_taken_for_a_moment_is_had_in_the_end() {
    for addr in BOTH {
        let mut world = World::new();
        world.start(ip(addr), Detection::Probe);
        assert_eq!(world.probes(SECOND / 10), 1);
        assert_eq!(world.conflict(ip(addr), None), DadResponse::Retry);
        let (did, _) = world.pass(60 * SECOND);
        assert!(did.iter().any(|(_, did)| *did == Did::Confirmed), "{addr}");
    }
}

#[test]
fn our_own_probe_that_comes_back_is_no_conflict() {
    let addr = ip("fd00::1");
    let mut world = World::new();
    world.start(addr, Detection::Probe);
    let (_, nonce) = world.pass(SECOND / 10);
    assert_eq!(world.conflict(addr, nonce), DadResponse::Ignore);
    assert_eq!(world.conflict(addr, nonce), DadResponse::Ignore);
    // It is probed for three times more (RFC 7527 section 4.2), and then ours.
    let (did, last) = world.pass(60 * SECOND);
    let what: Vec<_> = did.iter().map(|(_, did)| *did).collect();
    assert_eq!(what, [Did::Probe, Did::Probe, Did::Probe, Did::Confirmed]);
    assert_ne!(last, nonce);
    // Another nonce means another host's probe.
    world.start(addr, Detection::Probe);
    world.pass(SECOND / 10);
    assert_eq!(world.conflict(addr, Some(Nonce([9; 6]))), DadResponse::Retry);
}

#[test]
fn an_address_in_use_is_defended_once_in_ten_seconds_and_kept() {
    for addr in BOTH {
        for detection in [Detection::Announce, Detection::Probe] {
            let mut world = World::new();
            world.start(ip(addr), detection);
            world.pass(60 * SECOND);
            let mut defended = 0;
            for _ in 0..1000 {
                match world.conflict(ip(addr), None) {
                    DadResponse::Defend => defended += 1,
                    DadResponse::Ignore => {}
                    other => panic!("{other:?}"),
                }
                world.pass(SECOND / 10);
            }
            assert_eq!(defended, 10, "{addr}");
        }
    }
}

#[test]
fn as_many_addresses_are_watched_as_there_is_room_for() {
    let mut world = World::new();
    let nth = |n: u32| ip(&format!("fd00::{n:x}"));
    (0..4).for_each(|n| world.start(nth(n), Detection::Probe));
    let (random, now) = (&mut world.random, world.now);
    assert_eq!(world.dad.start(ONE, nth(9), Detection::Probe, now, random), Err(DadFull));
    // The same address again takes no more room; on another interface it is another one.
    world.start(nth(3), Detection::Probe);
    world.dad.stop(ONE, nth(0));
    world.dad.stop(IfIndex(2), nth(1));
    world.start(nth(9), Detection::Probe);
    let (did, _) = world.pass(10 * SECOND);
    assert_eq!(did.iter().filter(|(_, did)| *did == Did::Confirmed).count(), 4);
    assert_eq!(world.conflict(nth(0), None), DadResponse::Ignore);
}
