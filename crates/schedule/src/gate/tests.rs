//! The promises of `Gate`, with an engine that reads the class out of the packet.

use floodwall_base::{Instant, Units};
use floodwall_packet::{Pool, PoolConfig, Round};

use super::*;

/// Takes the last byte of a packet for its class.
#[derive(Default)]
struct Oracle {
    asked: core::cell::Cell<u64>,
}

impl Engine for Oracle {
    fn round(&mut self, _: &mut Round<'_>) -> Units {
        Units(0)
    }

    fn work(&mut self, _: &mut Round<'_>) -> Units {
        Units(0)
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn classify(&self, burst: &Burst, classes: &mut [Triage]) {
        self.asked.set(self.asked.get() + 1);
        for (packet, class) in burst.iter().zip(classes) {
            *class = match packet.first().last() {
                Some(b'f') => Triage::Friend,
                Some(b's') => Triage::Stranger,
                _ => Triage::Refusable,
            };
        }
    }
}

struct Bench {
    pool: Pool,
    engine: Oracle,
    gate: Gate,
    burst: Burst,
}

impl Bench {
    fn new(config: GateConfig) -> Self {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let (engine, burst) = (Oracle::default(), Burst::new());
        Self { pool, engine, gate: Gate::new(config), burst }
    }

    /// A frame: its family by the type field, its class by the last byte.
    fn packet(&self, v6: bool, class: u8) -> PacketBuf {
        let mut bytes = [0; 60];
        bytes[12..14].copy_from_slice(if v6 { &[0x86, 0xdd] } else { &[8, 0] });
        bytes[59] = class;
        self.pool.packet_from(&bytes).unwrap()
    }

    /// One round: as much of `ring` as is asked for. Returns what the engine gets.
    fn round(&mut self, ring: &mut Vec<PacketBuf>, appetite: usize) -> Vec<u8> {
        self.poll(ring, appetite);
        assert!(self.gate.stats().conserves(self.gate.waiting()));
        self.burst.drain().map(|p| *p.first().last().unwrap()).collect()
    }

    fn poll(&mut self, ring: &mut Vec<PacketBuf>, appetite: usize) {
        let asked = self.gate.ask(appetite);
        self.burst.set_limit(asked);
        while self.burst.room() > 0 && !ring.is_empty() {
            self.burst.push(ring.remove(0)).unwrap();
        }
        let taken = self.burst.len();
        self.gate.admit(&self.engine, &mut self.burst, asked, taken);
    }

    fn ring(&self, packets: impl IntoIterator<Item = (bool, u8)>) -> Vec<PacketBuf> {
        packets.into_iter().map(|(v6, class)| self.packet(v6, class)).collect()
    }
}

fn always() -> GateConfig {
    GateConfig { patience: 0, ..GateConfig::default() }
}

fn count(got: &[u8], class: u8) -> usize {
    got.iter().filter(|c| **c == class).count()
}

#[test]
fn without_pressure_nobody_is_looked_at_and_refusable_packets_get_their_answer() {
    let mut bench = Bench::new(GateConfig::default());
    for _ in 0..100 {
        let mut ring = bench.ring([(false, b'r'), (true, b's'), (false, b'f')]);
        assert_eq!(bench.round(&mut ring, BURST_MAX), b"rsf");
    }
    assert_eq!((bench.engine.asked.get(), bench.gate.stats().looked_at()), (0, 0));
}

#[test]
fn one_full_poll_is_not_pressure_and_as_many_with_room_end_it() {
    let mut bench = Bench::new(GateConfig::default());
    let mut ring = bench.ring((0..8 * BURST_MAX).map(|_| (false, b'r')));
    assert_eq!(bench.round(&mut ring, BURST_MAX).len(), BURST_MAX);
    for n in 1..=6 {
        assert_eq!(bench.round(&mut ring, BURST_MAX).len(), 0, "the {n}th: dropped by name");
    }
    assert_eq!(bench.gate.stats().refused, 6 * BURST_MAX as u64);
    for _ in 0..3 {
        assert!(bench.gate.is_under_pressure(), "a flood that pauses is one flood");
        bench.round(&mut Vec::new(), BURST_MAX);
    }
    ring.truncate(5);
    assert_eq!(bench.round(&mut ring, BURST_MAX).len(), 5);
    assert!(!bench.gate.is_under_pressure());
}

#[test]
fn strangers_cannot_crowd_out_friends() {
    let mut bench = Bench::new(always());
    // Nine strangers for each friend, for ever.
    let mut friends = 0;
    for round in 0..50 {
        let mut ring =
            bench.ring((0..BURST_MAX).map(|i| (i % 2 == 0, if i % 10 == 9 { b'f' } else { b's' })));
        let sent = ring.iter().filter(|p| p.first().last() == Some(&b'f')).count();
        let took = BURST_MAX - bench.gate.waiting().min(3);
        ring.truncate(took);
        let due = ring.iter().filter(|p| p.first().last() == Some(&b'f')).count();
        let got = bench.round(&mut ring, BURST_MAX);
        assert_eq!(count(&got, b'f'), due, "round {round}: {sent}");
        assert!(got.starts_with(&vec![b'f'; due]), "friends first");
        assert_eq!(count(&got, b's'), 3, "and what is not reserved for strangers");
        friends += due;
    }
    assert_eq!(bench.gate.stats().friends, friends as u64);
    assert!(bench.gate.stats().crowded_out > 0);
}

#[test]
fn with_nothing_reserved_strangers_take_the_whole_round() {
    let config = GateConfig { reserve: Share::NONE, ..always() };
    let mut bench = Bench::new(config);
    let mut ring = bench.ring((0..BURST_MAX).map(|_| (false, b's')));
    assert_eq!(count(&bench.round(&mut ring, BURST_MAX), b's'), BURST_MAX);
}

#[test]
fn where_there_are_no_friends_nothing_is_reserved_for_them() {
    let mut bench = Bench::new(always());
    for _ in 0..10 {
        let mut ring = bench.ring([(false, b's'); 64]);
        assert_eq!(count(&bench.round(&mut ring, BURST_MAX), b's'), BURST_MAX);
    }
    let mut ring = bench.ring((0..64).map(|i| (false, if i == 9 { b'f' } else { b's' })));
    bench.round(&mut ring, BURST_MAX);
    for round in 0..FRIENDS_FOR + 5 {
        let mut ring = bench.ring([(false, b's'); 64]);
        let got = bench.round(&mut ring, BURST_MAX).len();
        assert_eq!(got == 3, round < FRIENDS_FOR - 1, "{round}: {got}");
    }
    assert!(bench.gate.stats().crowded_out > 0);
}

#[test]
fn friends_alone_do_not_shut_strangers_out() {
    let mut bench = Bench::new(always());
    let mut ring = bench.ring((0..64).map(|i| (false, if i == 0 { b'f' } else { b's' })));
    bench.round(&mut ring, BURST_MAX);
    let mut strangers = 0;
    for _ in 0..20 {
        let mut ring = bench.ring([(false, b'f'); 64]);
        let got = bench.round(&mut ring, BURST_MAX);
        assert_eq!(got.len(), BURST_MAX, "no room is wasted");
        strangers += count(&got, b's');
    }
    assert_eq!(strangers, 60, "three a round, though friends come in full bursts");
}

#[test]
fn one_familys_strangers_do_not_shut_out_the_others() {
    for flood in [false, true] {
        let mut bench = Bench::new(always());
        let mut served = 0;
        for _ in 0..100 {
            // 60 of one family to one of the other.
            let honest = (!flood, b's');
            let mut ring =
                bench.ring((0..BURST_MAX).map(|i| if i == 7 { honest } else { (flood, b's') }));
            ring.truncate(BURST_MAX - bench.gate.waiting().min(3));
            bench.poll(&mut ring, BURST_MAX);
            served += bench.burst.drain().filter(|p| is_ipv6(p) != flood).count();
        }
        assert!(served >= 99, "{served} of 100, flood v6: {flood}");
    }
}

#[test]
fn strangers_that_wait_are_served_when_there_is_room_and_keep_their_order() {
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
fn an_engine_without_appetite_is_given_nothing_new_and_pressure_stays_as_it_is() {
    let mut bench = Bench::new(GateConfig { patience: 1, ..GateConfig::default() });
    let mut ring = bench.ring([(false, b'f'); 128]);
    assert_eq!(bench.round(&mut ring, BURST_MAX).len(), BURST_MAX);
    assert!(bench.gate.is_under_pressure());
    assert_eq!(bench.round(&mut ring, 0).len(), 0);
    assert_eq!(ring.len(), BURST_MAX, "what is not asked for stays in the ring");
    assert!(bench.gate.is_under_pressure());
    assert_eq!(bench.round(&mut ring, 16).len(), 16);
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
    // A station whose address begins as IPv6 does.
    let mut frame = [0x66; 60];
    frame[12..14].copy_from_slice(&[8, 0]);
    assert!(!is(&frame));
    assert!(!is(&[]) && !is(&[0x60; 3]));
}
