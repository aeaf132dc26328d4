//! Guarantees of `Gate`, with an engine that reads the class out of the packet.

use core::time::Duration;
use floodwall_base::Instant;
use floodwall_packet::{Pool, PoolConfig};
use floodwall_testkit::by_byte::ByByte;

use super::*;
use crate::pressure::{ALERT_LASTS, CAUGHT_UP_AFTER, PAUSE_MIN, PRESSURE_LASTS};
use crate::waiting_line::is_ipv6;

/// What a look costs here, and handling a packet.
const LOOK: Duration = Duration::from_nanos(30);
const HANDLING: Duration = Duration::from_nanos(600);

struct Bench {
    pool: Pool,
    engine: ByByte,
    gate: Gate,
    burst: Burst,
    now: Instant,
    /// Time that the turns have taken.
    ran: Duration,
}

impl Bench {
    fn new(config: GateConfig) -> Self {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let (engine, burst) = (ByByte::default(), Burst::new());
        let (now, ran) = (Instant::from_nanos(1), Duration::ZERO);
        Self { pool, engine, gate: Gate::new(config), burst, now, ran }
    }

    /// A frame: its family by the type field, its class by the last byte.
    fn packet(&self, v6: bool, class: u8) -> PacketBuf {
        let mut bytes = [0; 60];
        bytes[12..14].copy_from_slice(if v6 { &[0x86, 0xdd] } else { &[8, 0] });
        bytes[59] = class;
        self.pool.packet_from(&bytes).unwrap()
    }

    /// One round: as much of `ring` as is requested. Returns what the engine gets.
    fn round(&mut self, ring: &mut Vec<PacketBuf>, capacity: usize) -> Vec<u8> {
        self.poll(ring, capacity);
        assert!(self.gate.stats().conserves(self.gate.waiting()));
        self.burst.drain().map(|p| *p.first().last().unwrap()).collect()
    }

    fn poll(&mut self, ring: &mut Vec<PacketBuf>, capacity: usize) {
        let asked = self.gate.ask(capacity);
        self.burst.set_limit(asked);
        while self.burst.room() > 0 && !ring.is_empty() {
            self.burst.push(ring.remove(0)).unwrap();
        }
        let taken = self.burst.len();
        let poll = Poll { now: self.now, asked, taken, capacity };
        self.gate.admit(&self.engine, &mut self.burst, &poll);
        let took = LOOK * taken as u32 + HANDLING * self.burst.len() as u32;
        self.gate.ran(took);
        self.now += took;
        self.ran += took;
    }

    /// So many rounds of a ring that is never empty, with the classes that `class` returns. Returns
    /// how many of each class the engine gets.
    fn flood(&mut self, rounds: usize, mut class: impl FnMut() -> u8) -> [usize; 2] {
        let mut got = [0, 0];
        for _ in 0..rounds {
            let mut ring = self.ring((0..BURST_MAX).map(|_| (false, class())));
            ring.truncate(self.gate.ask(BURST_MAX));
            let passed = self.round(&mut ring, BURST_MAX);
            got[0] += count(&passed, b'f');
            got[1] += count(&passed, b's');
        }
        got
    }

    fn ring(&self, packets: impl IntoIterator<Item = (bool, u8)>) -> Vec<PacketBuf> {
        packets.into_iter().map(|(v6, class)| self.packet(v6, class)).collect()
    }
}

fn always() -> GateConfig {
    GateConfig { patience: Duration::ZERO, ..GateConfig::default() }
}

fn count(got: &[u8], class: u8) -> usize {
    got.iter().filter(|c| **c == class).count()
}

#[test]
fn without_pressure_nothing_is_looked_at_and_refusable_packets_get_their_answer() {
    let mut bench = Bench::new(GateConfig::default());
    for _ in 0..100 {
        let mut ring = bench.ring([(false, b'r'), (true, b's'), (false, b'f')]);
        assert_eq!(bench.round(&mut ring, BURST_MAX), b"rsf");
    }
    assert_eq!((bench.engine.asked.get(), bench.gate.stats().looked_at()), (0, 0));
}

#[test]
fn full_polls_that_do_not_end_are_pressure_and_polls_with_room_end_it() {
    let mut bench = Bench::new(GateConfig::default());
    let mut ring = bench.ring((0..20 * BURST_MAX).map(|_| (false, b'r')));
    let mut answered = 0;
    while !bench.gate.is_under_pressure() {
        answered += bench.round(&mut ring, BURST_MAX).len();
    }
    assert!(answered <= 8 * BURST_MAX, "{answered}: established flows must not wait for long");
    let dropped = bench.gate.stats().refused;
    for n in 1..=6 {
        assert_eq!(bench.round(&mut ring, BURST_MAX).len(), 0, "the {n}th: dropped and counted");
    }
    assert_eq!(bench.gate.stats().refused - dropped, 6 * BURST_MAX as u64);
    bench.now += PRESSURE_LASTS - LOOK * 64;
    bench.round(&mut Vec::new(), BURST_MAX);
    assert!(bench.gate.is_under_pressure(), "a flood that pauses is one flood");
    bench.now += LOOK * 64;
    ring.truncate(5);
    assert_eq!(bench.round(&mut ring, BURST_MAX).len(), 5);
    assert!(!bench.gate.is_under_pressure());
}

#[test]
fn full_bursts_of_which_nothing_is_dropped_do_not_last_as_pressure() {
    let mut bench = Bench::new(GateConfig::default());
    bench.flood(2, || b's');
    assert!(bench.gate.is_under_pressure());
    for _ in 0..1000 {
        bench.flood(1, || b's');
        bench.round(&mut Vec::new(), BURST_MAX);
    }
    assert!(!bench.gate.is_under_pressure() && bench.gate.stats().dropped() == 0);
}

#[test]
fn what_a_pause_leaves_in_the_ring_is_no_pressure_and_what_lasts_longer_is() {
    for pause in [0, 100, 250, 4000, 16_000].map(Duration::from_micros) {
        let mut bench = Bench::new(GateConfig::default());
        bench.round(&mut Vec::new(), BURST_MAX);
        // What is meant is no pause.
        bench.now += pause + Duration::from_millis(2);
        bench.gate.rests(Duration::from_millis(2));
        let pause = if pause < PAUSE_MIN { Duration::ZERO } else { pause };
        // A ring that has no end: the backlog of a pause is worked off within four times its
        // length.
        let begin = bench.ran;
        while !bench.gate.is_under_pressure() {
            let mut ring = bench.ring([(false, b's'); BURST_MAX]);
            assert_eq!(bench.round(&mut ring, BURST_MAX).len(), BURST_MAX, "none is held back");
        }
        let took = bench.ran - begin;
        assert!(took >= pause * 4 && took < pause * 4 + LOOK * 640 + HANDLING * 640, "{took:?}");
    }
    // A worker that has slept for a second is not flooded for four.
    let mut bench = Bench::new(GateConfig::default());
    bench.round(&mut Vec::new(), BURST_MAX);
    bench.now += Duration::from_secs(1);
    bench.flood(2000, || b's');
    assert!(bench.gate.is_under_pressure() && bench.ran < Duration::from_millis(100));
}

#[test]
fn a_burst_is_no_pressure_and_what_lasts_longer_or_comes_again_is() {
    let config = GateConfig { burst: usize::MAX, ..GateConfig::default() };
    let mut bench = Bench::new(config);
    // Bursts of just less, one after the other: no packet is classified.
    for _ in 0..5 {
        let begin = bench.ran;
        while bench.ran - begin < config.patience {
            bench.flood(1, || b's');
        }
        bench.round(&mut Vec::new(), BURST_MAX);
    }
    assert_eq!((bench.engine.asked.get(), bench.gate.stats().looked_at()), (0, 0));
    let calm = |bench: &mut Bench| {
        bench.now += PRESSURE_LASTS * 2;
        bench.round(&mut Vec::new(), BURST_MAX);
        assert!(!bench.gate.is_under_pressure());
    };
    let rounds_until_pressure = |bench: &mut Bench| {
        let rounds = (1..).find(|_| {
            bench.flood(1, || b's');
            bench.gate.is_under_pressure()
        });
        rounds.unwrap()
    };
    let a_burst = config.patience.as_nanos() / (HANDLING + LOOK).as_nanos() / BURST_MAX as u128;
    // One more for the rest, one that finds it over, one more of these; and again after calm.
    for _ in 0..2 {
        assert_eq!(rounds_until_pressure(&mut bench), a_burst as usize + 3);
        for _ in 0..3 {
            calm(&mut bench);
            assert_eq!(rounds_until_pressure(&mut bench), 2, "a repeated burst is known");
        }
        bench.now += ALERT_LASTS;
        calm(&mut bench);
    }
}

#[test]
fn no_pressure_once_unverified_packets_are_caught_up_with_and_refusable_ones_keep_it() {
    for (class, stays) in [(b's', false), (b'r', true)] {
        let mut bench = Bench::new(GateConfig::default());
        bench.flood(3, || b's');
        // Established flows among them, so that it looks ahead and unverified packets are dropped.
        let mut n = 0;
        bench.flood(100, || {
            n += 1;
            if n % 8 == 0 { b'f' } else { class }
        });
        assert!(bench.gate.stats().dropped() > 0 && bench.gate.is_under_pressure());
        while bench.gate.waiting() > 0 {
            assert!(bench.gate.is_under_pressure(), "packets wait");
            bench.round(&mut Vec::new(), BURST_MAX);
        }
        bench.round(&mut Vec::new(), BURST_MAX);
        bench.now += CAUGHT_UP_AFTER - LOOK;
        bench.round(&mut Vec::new(), BURST_MAX);
        assert!(bench.gate.is_under_pressure(), "it may be a gap between two polls");
        bench.now += LOOK;
        bench.round(&mut Vec::new(), BURST_MAX);
        assert_eq!(bench.gate.is_under_pressure(), stays);
        bench.now += PRESSURE_LASTS;
        bench.round(&mut Vec::new(), BURST_MAX);
        assert!(!bench.gate.is_under_pressure());
    }
}

#[test]
fn choosing_goes_on_while_unverified_packets_wait() {
    let mut bench = Bench::new(GateConfig::default());
    bench.flood(3, || b'f');
    let mut ring = bench.ring((0..4 * BURST_MAX).map(|n| (false, [b'f', b's'][n % 2])));
    while !ring.is_empty() {
        bench.round(&mut ring, 0);
    }
    let waiting = bench.gate.waiting();
    assert!(waiting > BURST_MAX && bench.gate.is_under_pressure());
    bench.now += PRESSURE_LASTS * 2;
    bench.round(&mut Vec::new(), 0);
    assert_eq!(bench.gate.waiting(), waiting, "the engine has no receive capacity yet");
    assert!(bench.gate.is_under_pressure(), "newcomers would find the line full");
    while bench.gate.waiting() > 0 {
        bench.round(&mut Vec::new(), BURST_MAX);
    }
    bench.round(&mut Vec::new(), BURST_MAX);
    bench.now += CAUGHT_UP_AFTER;
    bench.round(&mut Vec::new(), BURST_MAX);
    assert!(!bench.gate.is_under_pressure());
}

#[test]
fn while_refusable_packets_are_dropped_a_burst_of_unverified_ones_loses_nothing() {
    let config = GateConfig { burst: usize::MAX, ..GateConfig::default() };
    let mut bench = Bench::new(config);
    while !bench.gate.is_under_pressure() {
        bench.flood(1, || b'r');
    }
    // Polls with room, until a burst is accepted again; some refusable packets in each.
    let begin = bench.now;
    while bench.now - begin <= ALERT_LASTS {
        let mut ring = bench.ring([(false, b'r'), (true, b'f'), (false, b's')]);
        assert_eq!(bench.round(&mut ring, BURST_MAX), b"fs");
        bench.now += CAUGHT_UP_AFTER;
    }
    let (refused, mut n) = (bench.gate.stats().refused, 0);
    let passed = bench.flood(100, || {
        n += 1;
        [b'r', b'f', b's', b's'][n % 4]
    });
    assert_eq!(passed, [1600, 3200], "established and unverified, as they came");
    assert_eq!((bench.gate.waiting(), bench.gate.stats().crowded_out), (0, 0));
    assert_eq!(bench.gate.stats().refused - refused, 1600, "they are not answered");
}

#[test]
fn a_pause_in_a_flood_does_not_end_the_pressure() {
    let mut bench = Bench::new(GateConfig::default());
    bench.flood(20, || b's');
    assert!(bench.gate.is_under_pressure());
    bench.now += Duration::from_millis(10);
    bench.flood(1, || b's');
    assert!(bench.gate.is_under_pressure());
}

#[test]
fn unverified_packets_cannot_crowd_out_established_flows() {
    let mut bench = Bench::new(always());
    // Nine unverified packets for each established one, for ever.
    for round in 0..500 {
        let mut ring =
            bench.ring((0..BURST_MAX).map(|i| (i % 2 == 0, if i % 10 == 9 { b'f' } else { b's' })));
        ring.truncate(bench.gate.ask(BURST_MAX));
        let due = ring.iter().filter(|p| p.first().last() == Some(&b'f')).count();
        let got = bench.round(&mut ring, BURST_MAX);
        assert_eq!(count(&got, b'f'), due, "round {round}");
        assert!(got.starts_with(&vec![b'f'; due]), "established flows first");
        assert!(count(&got, b's') > 0, "and some unverified packets with them");
    }
    assert!(bench.gate.stats().crowded_out > 0);
}

/// At any fraction of established flows the burst is full, or the gate looks ahead, which it does
/// for no more than its part of the time; all room that a poll leaves is used.
#[test]
fn nothing_is_left_unused_but_what_looking_ahead_takes() {
    for established in [0, 1, 5, 50, 500, 5000] {
        let (mut bench, mut n, mut ahead) = (Bench::new(always()), 0_usize, Duration::ZERO);
        // One has been seen.
        bench.flood(1, || if established > 0 { b'f' } else { b's' });
        bench.ran = Duration::ZERO;
        for _ in 0..3000 {
            let mut ring = bench.ring((0..BURST_MAX).map(|_| {
                n += 1;
                (n % 2 == 0, if n * established % 10_000 < established { b'f' } else { b's' })
            }));
            ring.truncate(bench.gate.ask(BURST_MAX));
            let before = bench.ran;
            let got = bench.round(&mut ring, BURST_MAX).len();
            if bench.gate.looks_ahead() {
                ahead += bench.ran - before;
            } else {
                assert_eq!(got, BURST_MAX.min(got + bench.gate.waiting()), "{established}");
            }
        }
        let part = ahead.as_secs_f64() / bench.ran.as_secs_f64();
        let most = bench.gate.config().ahead.thousandths() as f64 / 1000.0;
        assert!(part <= most + 0.02, "{established}: {part}");
        assert!(established == 0 || part >= most - 0.05, "it looks ahead: {established} {part}");
        assert!(established > 0 || ahead.is_zero(), "and where there are none, they are not");
    }
}

#[test]
fn polls_with_room_leave_everything_to_unverified_packets() {
    let mut bench = Bench::new(always());
    bench.flood(100, || b'f');
    for established in 0..40 {
        let mut ring =
            bench.ring((0..40).map(|i| (false, if i < established { b'f' } else { b's' })));
        assert!(bench.round(&mut ring, BURST_MAX).len() >= 40, "{established}");
    }
    for _ in 0..20 {
        bench.round(&mut Vec::new(), BURST_MAX);
    }
    assert_eq!(bench.gate.waiting(), 0);
}

/// In a flood beyond what can be classified, one established flow does not starve unverified ones:
/// they are served a quarter of the time, at any cost of serving one.
#[test]
fn an_established_flow_in_a_boundless_flood_costs_unverified_packets_no_more_than_looks_may_take() {
    let [_, blind] = Bench::new(always()).flood(4000, || b's');
    let blind =
        blind as f64 / (4000.0 * (BURST_MAX as f64)) * 1e9 / (LOOK + HANDLING).as_nanos() as f64;
    let mut bench = Bench::new(always());
    let mut n = 0;
    let [established, unknown] = bench.flood(40_000, || {
        n += 1;
        if n % 5000 == 1 { b'f' } else { b's' }
    });
    let rate = unknown as f64 / bench.ran.as_secs_f64();
    assert!(rate > 0.2 * blind, "{rate} of {blind}");
    assert_eq!(established as u64, bench.gate.stats().established);
}

#[test]
fn a_caller_that_tells_no_time_shuts_nothing_out() {
    let mut bench = Bench::new(always());
    let mut unknown = 0;
    for n in 0..200 {
        let ring = (0..BURST_MAX).map(|i| (false, if i == 3 { b'f' } else { b's' }));
        let ring = bench.ring(ring.take(bench.gate.ask(BURST_MAX)));
        let (asked, taken) = (bench.gate.ask(BURST_MAX), ring.len());
        bench.burst.set_limit(BURST_MAX);
        ring.into_iter().for_each(|packet| bench.burst.push(packet).unwrap());
        let now = Instant::from_nanos(n * 5000);
        let poll = Poll { now, asked, taken, capacity: BURST_MAX };
        bench.gate.admit(&bench.engine, &mut bench.burst, &poll);
        unknown += bench.burst.drain().filter(|p| p.first().last() == Some(&b's')).count();
    }
    assert!(unknown > 200 * BURST_MAX / 5, "{unknown}");
}

#[test]
fn one_that_never_looks_ahead_serves_unverified_packets_in_whole_bursts() {
    let config = GateConfig { ahead: Share::NONE, ..always() };
    let mut bench = Bench::new(config);
    for n in 0..20 {
        let mut ring =
            bench.ring((0..BURST_MAX).map(|i| (false, if i == n { b'f' } else { b's' })));
        assert_eq!(bench.round(&mut ring, BURST_MAX).len(), BURST_MAX);
    }
}

#[test]
fn where_there_are_no_established_flows_nothing_looks_ahead() {
    let mut bench = Bench::new(always());
    for _ in 0..10 {
        let mut ring = bench.ring([(false, b's'); 64]);
        assert_eq!(count(&bench.round(&mut ring, BURST_MAX), b's'), BURST_MAX);
    }
    let mut ring = bench.ring((0..64).map(|i| (false, if i == 9 { b'f' } else { b's' })));
    bench.round(&mut ring, BURST_MAX);
    let mut last = 0;
    for round in 0..ESTABLISHED_ROUNDS + 500 {
        let mut ring = bench.ring([(false, b's'); 64]);
        bench.round(&mut ring, BURST_MAX);
        if bench.gate.looks_ahead() {
            last = round;
        }
    }
    assert!((ESTABLISHED_ROUNDS - 100..ESTABLISHED_ROUNDS).contains(&last), "{last}");
    assert!(bench.gate.stats().crowded_out > 0);
}

#[test]
fn established_flows_alone_do_not_shut_unverified_packets_out() {
    let mut bench = Bench::new(always());
    let mut ring = bench.ring((0..64).map(|i| (false, if i == 0 { b'f' } else { b's' })));
    bench.round(&mut ring, BURST_MAX);
    let mut unknown = 0;
    for _ in 0..20 {
        let mut ring = bench.ring([(false, b'f'); 64]);
        let got = bench.round(&mut ring, BURST_MAX);
        assert_eq!(got.len(), BURST_MAX, "no room is wasted");
        unknown += count(&got, b's');
    }
    assert_eq!(unknown, 60, "three a round, though established flows fill bursts");
    assert!(bench.gate.stats().established >= 19 * 61);
}

#[test]
fn one_familys_unverified_packets_do_not_shut_out_the_others() {
    for flood in [false, true] {
        let mut bench = Bench::new(always());
        let mut served = 0;
        for _ in 0..100 {
            // 60 of one family to one of the other.
            let honest = (!flood, b's');
            let mut ring =
                bench.ring((0..BURST_MAX).map(|i| if i == 7 { honest } else { (flood, b's') }));
            ring.truncate(bench.gate.ask(BURST_MAX));
            bench.poll(&mut ring, BURST_MAX);
            served += bench.burst.drain().filter(|p| is_ipv6(p) != flood).count();
        }
        assert!(served >= 99, "{served} of 100, flood v6: {flood}");
    }
}

#[test]
fn unverified_packets_that_wait_are_served_when_there_is_room_and_keep_their_order() {
    let mut bench = Bench::new(always());
    let mut ring: Vec<_> = (0..BURST_MAX as u8)
        .map(|n| {
            let mut packet = bench.packet(false, b's');
            packet.first_mut().unwrap()[20] = n;
            packet
        })
        .collect();
    let mut order = Vec::new();
    for _ in 0..3 {
        bench.poll(&mut ring, BURST_MAX);
        order.extend(bench.burst.drain().map(|p| p.first()[20]));
    }
    assert_eq!(order, (0..BURST_MAX as u8).collect::<Vec<_>>());
    assert_eq!(bench.gate.waiting(), 0);
}

#[test]
fn lines_are_bounded_and_the_newcomer_goes_by_name() {
    let mut bench = Bench::new(GateConfig { waiting: 10, ..always() });
    for _ in 0..5 {
        let mut ring = bench.ring((0..BURST_MAX).map(|i| (i % 2 == 0, b's')));
        bench.round(&mut ring, BURST_MAX);
        assert!(bench.gate.waiting() <= 20);
    }
    let stats = *bench.gate.stats();
    assert_eq!(stats.waiting_peak, 10);
    assert_eq!(stats.dropped(), stats.crowded_out);
    let waiting = bench.gate.waiting();
    assert_eq!(bench.gate.take_waiting().len(), waiting);
    assert_eq!(bench.gate.waiting(), 0);
    assert!(bench.gate.stats().conserves(0));
}

#[test]
fn an_engine_without_rx_capacity_is_given_established_flows_only_with_and_without_pressure() {
    for config in [GateConfig::default(), always()] {
        let mut bench = Bench::new(config);
        let mut ring = bench.ring([(false, b's'); 9]);
        assert_eq!(bench.round(&mut ring, 0).len(), 0);
        assert_eq!(ring.len(), 9, "without established flows, what is not requested stays");
        let mut ring = bench.ring([(false, b'f'), (false, b's')]);
        assert_eq!(bench.round(&mut ring, 1), b"f");
        let packets = |n: u8| (0..n).map(|i| (false, if i % 4 == 0 { b'f' } else { b's' }));
        for n in [8, 64, 12] {
            let mut ring = bench.ring(packets(n));
            ring.truncate(bench.gate.ask(BURST_MAX));
            let due = ring.iter().filter(|p| p.first().last() == Some(&b'f')).count();
            assert_eq!(bench.round(&mut ring, 0), vec![b'f'; due], "{n}");
        }
        assert!(bench.gate.waiting() > 50, "unverified packets wait until it has");
        let mut served = 0;
        for _ in 0..10 {
            served += count(&bench.round(&mut Vec::new(), 16), b's');
        }
        assert!(served > 50 && bench.gate.waiting() == 0, "{served}");
    }
}

#[test]
fn devices_have_credit_for_unverified_packets_only_while_more_comes_than_is_handled() {
    let mut bench = Bench::new(GateConfig::default());
    for _ in 0..100 {
        bench.round(&mut bench.ring([(false, b's'), (true, b'f')]), BURST_MAX);
        assert_eq!(bench.gate.credit(), None, "no packet is held back");
    }
    bench.flood(100, || b's');
    assert_eq!(bench.gate.credit(), Some(CREDIT_FULL), "polls come back full");
    bench.round(&mut bench.ring([(false, b's')]), BURST_MAX);
    assert_eq!(bench.gate.credit(), Some(GATE_CREDIT), "there was room");
    while bench.gate.waiting() > 0 {
        bench.round(&mut Vec::new(), BURST_MAX);
    }
    bench.now += CAUGHT_UP_AFTER;
    bench.round(&mut Vec::new(), BURST_MAX);
    assert_eq!(bench.gate.credit(), Some(GATE_CREDIT), "it may begin again at once");
    bench.now += ALERT_LASTS;
    bench.round(&mut Vec::new(), BURST_MAX);
    assert_eq!(bench.gate.credit(), None);
}

#[test]
fn after_a_ring_has_overflowed_established_flows_are_looked_for_and_nothing_is_dropped_of_it() {
    let mut bench = Bench::new(GateConfig { burst: 512, ..GateConfig::default() });
    bench.gate.overflowed(bench.now);
    let ring = [(false, b's'), (true, b'f'), (false, b's'), (true, b's')];
    assert_eq!(bench.round(&mut bench.ring(ring), BURST_MAX), b"fsss");
    assert_eq!(bench.gate.credit(), Some(BURST_MAX), "packets in the ring go first");
    while bench.now < Instant::from_nanos(1) + ALERT_LASTS {
        assert_eq!(bench.round(&mut bench.ring(ring), BURST_MAX), b"fsss");
        assert_eq!((bench.gate.established(), bench.gate.credit()), (1, Some(512)), "half a ring");
        bench.now += PRESSURE_LASTS;
    }
    bench.now += PRESSURE_LASTS;
    assert_eq!(bench.round(&mut bench.ring(ring), BURST_MAX), b"sfss", "no more looks");
    assert_eq!((bench.gate.credit(), bench.gate.stats().dropped()), (None, 0));
}

#[test]
fn of_unverified_packets_that_a_device_has_just_refused_it_brings_no_more_than_a_burst() {
    let mut bench = Bench::new(GateConfig { burst: 512, ..GateConfig::default() });
    let refuse = |bench: &mut Bench| {
        let now = bench.now;
        bench.round(&mut bench.ring([(false, b's')]), BURST_MAX);
        bench.gate.overflowed(now);
        bench.gate.credit()
    };
    bench.round(&mut bench.ring([(false, b's')]), BURST_MAX);
    assert_eq!(bench.gate.credit(), None);
    assert_eq!(refuse(&mut bench), Some(BURST_MAX));
    bench.round(&mut bench.ring([(false, b's')]), BURST_MAX);
    assert_eq!(bench.gate.credit(), Some(512), "none was refused this time");
    bench.flood(100, || b's');
    assert_eq!(bench.gate.credit(), Some(CREDIT_FULL), "polls come back full");
    assert_eq!(refuse(&mut bench), Some(BURST_MAX), "there was room, but not for all");
    assert_eq!(bench.gate.stats().refused, 0);
}

#[test]
fn a_device_that_tells_established_flows_is_told_of_them_before_there_is_pressure() {
    let mut bench = Bench::new(GateConfig { acquaints: true, ..GateConfig::default() });
    let ring = [(false, b'r'), (false, b's'), (true, b'f'), (false, b's'), (true, b'f')];
    assert_eq!(bench.round(&mut bench.ring(ring), BURST_MAX), b"ffrss", "nothing is dropped");
    assert_eq!((bench.gate.established(), bench.gate.credit()), (2, None));
    // One burst in a while is enough: the others cost nothing.
    assert_eq!(bench.round(&mut bench.ring(ring), BURST_MAX), b"rsfsf");
    assert_eq!((bench.gate.established(), bench.engine.asked.get()), (0, 1));
    bench.now += ACQUAINTS_EVERY;
    assert_eq!(bench.round(&mut bench.ring(ring), BURST_MAX), b"ffrss");
    assert_eq!(bench.gate.stats().dropped() + bench.gate.waiting() as u64, 0);
}

#[test]
fn while_only_refusable_packets_are_dropped_unverified_ones_have_all_the_credit_there_is() {
    let mut bench = Bench::new(GateConfig::default());
    bench.flood(100, || b'r');
    for _ in 0..20 {
        bench.now += PRESSURE_LASTS * 9 / 10;
        bench.round(&mut bench.ring([(false, b'r')]), BURST_MAX);
    }
    assert!(bench.gate.is_under_pressure());
    assert_eq!(bench.gate.credit(), Some(usize::MAX));
}

#[test]
fn established_flows_come_first_and_it_is_known_how_many_they_are() {
    let mut bench = Bench::new(always());
    bench.poll(&mut bench.ring([(false, b's'), (true, b'f'), (false, b'r'), (false, b'f')]), 64);
    assert_eq!(bench.gate.established(), 2);
    let burst: Vec<_> = bench.burst.drain().map(|packet| packet.first()[59]).collect();
    assert_eq!(burst, b"ffs");
    let mut calm = Bench::new(GateConfig::default());
    calm.poll(&mut calm.ring([(false, b'f')]), 64);
    assert_eq!(calm.gate.established(), 0, "no packet was classified");
}

#[test]
fn families_are_told_apart_with_and_without_a_link_header() {
    let bench = Bench::new(always());
    let is = |bytes: &[u8]| is_ipv6(&bench.pool.packet_from(bytes).unwrap());
    let mut bare = [0; 60];
    (bare[0], bare[5]) = (0x60, 20);
    // A source that looks like Ethernet's type field.
    bare[12..14].copy_from_slice(&[8, 0]);
    assert!(is(&bare));
    (bare[0], bare[3]) = (0x45, 60);
    bare[12..14].copy_from_slice(&[0x86, 0xdd]);
    assert!(!is(&bare));
    // A station with an address that begins as IPv6 does.
    let mut frame = [0x66; 60];
    frame[12..14].copy_from_slice(&[8, 0]);
    assert!(!is(&frame));
    assert!(!is(&[]) && !is(&[0x60; 3]));
}

#[test]
fn packets_wait_in_a_part_of_the_free_memory_and_in_all_their_places_where_there_is_enough() {
    for v6 in [false, true] {
        let mut bench = Bench::new(always());
        // Established flows at every poll: unverified packets wait.
        let waits = |bench: &mut Bench, frames: usize| {
            for _ in 0..100 {
                assert!(bench.gate.uses_free_frames());
                bench.gate.set_free_frames(frames);
                let flow = (v6, b'f');
                let mut ring =
                    bench.ring((0..BURST_MAX).map(|n| if n < 8 { flow } else { (v6, b's') }));
                ring.truncate(bench.gate.ask(BURST_MAX));
                bench.round(&mut ring, BURST_MAX);
            }
            bench.gate.waiting()
        };
        // Little is free: half a burst waits all the same.
        assert!(waits(&mut bench, 0) <= WAITING_MIN);
        let some = waits(&mut bench, 1000);
        assert!(some > 100 && some <= 1000 / FREE_DIVISOR, "{some}");
        assert_eq!(bench.gate.stats().waiting_peak, 1000 / FREE_DIVISOR);
        waits(&mut bench, 100_000);
        assert_eq!(bench.gate.stats().waiting_peak, UNVERIFIED_WAITING_MAX);
        waits(&mut bench, 0);
        let left = waits(&mut bench, 0);
        assert!(left <= WAITING_MIN, "{left}: what waits is served, and no more joins it");
    }
}

/// A server takes sixteen packets a turn of sixty: those of a prefix with an established flow do
/// not wait with the flood, and another newcomer does.
#[test]
fn new_flows_of_a_prefix_with_established_ones_are_served_before_a_flood_of_others() {
    const TURNS: u16 = 200;
    for v6 in [false, true] {
        let config = GateConfig { waiting: 64, ..always() };
        let mut bench = Bench::new(config);
        let from = |bench: &Bench, prefix: u16, class: u8| {
            let mut bytes = [0; 74];
            let [high, low] = prefix.to_be_bytes();
            if v6 {
                bytes[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
                bytes[22..30].copy_from_slice(&[0x20, 1, 0xd, 0xb8, high, low, 0, 0]);
            } else {
                bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
                bytes[26..29].copy_from_slice(&[10, high, low]);
            }
            (bytes[72], bytes[73]) = (prefix as u8, class);
            bench.pool.packet_from(&bytes).unwrap()
        };
        let (mut talks, mut strangers) = (0, 0);
        for turn in 0..TURNS {
            let mut ring = vec![from(&bench, 7, b'f'), from(&bench, 7, b's')];
            // The last byte of a prefix marks it: none of the flood's is 7 or 8.
            ring.extend((0..50).map(|n| from(&bench, (turn * 50 + n) << 4, b's')));
            ring.push(from(&bench, 8, b's'));
            bench.poll(&mut ring, 16);
            assert!(bench.gate.stats().conserves(bench.gate.waiting()));
            for packet in bench.burst.drain() {
                match *packet.first().last_chunk::<2>().unwrap() {
                    [7, b's'] => talks += 1,
                    [8, b's'] => strangers += 1,
                    _ => {}
                }
            }
        }
        assert!(talks + 1 >= TURNS, "v6 {v6}: {talks}");
        assert!(strangers < TURNS / 2, "v6 {v6}: {strangers}");
        assert!(bench.gate.stats().crowded_out > 0);
        assert!(bench.gate.take_waiting().len() <= 64 + NEWCOMERS_MAX);
    }
}
