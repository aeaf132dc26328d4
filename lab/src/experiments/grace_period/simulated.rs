//! Two workers in virtual time, with the product's own reclamation: how grace periods grow with
//! load, and whether they do.
//!
//! Called by the experiment for each policy and load. Nothing of `sync` is modelled: the domain,
//! its readers and its limbo are the real ones, only the clock and the packets are not. Invariant:
//! events happen in order of virtual time, and the same seed gives the same numbers.
//!
//! Each worker has a ring that packets come to at random (Poisson). A round takes up to a budget of
//! them; at its end the worker reports a quiescent state. Worker 0 unlinks an object every so many
//! packets (as a cache of destinations does for each new one) and frees what may be freed, which
//! costs time, too. A worker with an empty ring is idle: it reports this, and sleeps until the next
//! packet; while objects wait, worker 0 wakes now and then to free them.

use floodwall_base::{Instant, PublicRandom};
use floodwall_sync::qsbr::{Domain, Limbo, LimboCaps, Moment, Policy, Reader};
use serde::Deserialize;

use super::graces::Graces;

/// What a packet, a round and a callback cost, and how much fits.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Nanoseconds of work on a packet.
    pub packet_nanos: u64,
    /// Nanoseconds of a round without its packets.
    pub round_nanos: u64,
    /// Nanoseconds of freeing an object.
    pub callback_nanos: u64,
    /// Packets of a round at most.
    pub budget: u64,
    /// Packets that a ring holds.
    pub ring: u64,
    /// One object is unlinked for so many packets.
    pub flow_packets: u64,
    /// Bytes of an object.
    pub object_bytes: usize,
    /// Objects that may wait.
    pub cap_items: usize,
    /// Nanoseconds after which an idle worker looks again at what waits.
    pub look_nanos: u64,
}

impl Costs {
    /// Nanoseconds of a whole round.
    #[must_use]
    pub const fn round(&self) -> u64 {
        self.round_nanos + self.budget * self.packet_nanos
    }
}

/// How many packets come, as a share of what a worker can do, and when.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// Most of the time.
    pub load: f64,
    /// In the flood.
    pub flood: f64,
    /// When the flood begins and ends, in nanoseconds.
    pub from_to: (u64, u64),
    /// When the run ends.
    pub end: u64,
}

impl Traffic {
    /// The same load all the time.
    #[must_use]
    pub const fn steady(load: f64, end: u64) -> Self {
        Self { load, flood: load, from_to: (end, end), end }
    }

    /// Packets that come in a nanosecond.
    fn rate(&self, now: u64, costs: &Costs) -> f64 {
        let (from, to) = self.from_to;
        let load = if (from..to).contains(&now) { self.flood } else { self.load };
        load / costs.packet_nanos as f64
    }
}

/// What a run has seen.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Seen {
    /// Grace periods.
    pub graces: Graces,
    /// Rounds of both workers.
    pub rounds: u64,
    /// Packets that were handled, and that found their ring full.
    pub handled: u64,
    /// See there.
    pub dropped: u64,
}

/// Where a worker is.
enum At<P: Policy> {
    /// A round begins.
    Ready(Reader<P>),
    /// A round ends, which had so many packets.
    Round(Reader<P>),
    /// It sleeps.
    Idle,
}

struct Worker<P: Policy> {
    at: At<P>,
    /// When the next thing happens to it.
    due: u64,
    /// Packets have been drawn up to then.
    drawn: u64,
    ring: u64,
}

struct Run<'a, P: Policy> {
    costs: &'a Costs,
    traffic: &'a Traffic,
    domain: Domain<P>,
    limbo: Limbo<u64, P>,
    random: PublicRandom,
    /// Packets of worker 0 since the last object.
    flow: u64,
    seen: Seen,
}

/// Runs one policy.
#[must_use]
pub fn simulate<P: Policy>(policy: P, costs: &Costs, traffic: &Traffic, seed: u64) -> Seen {
    let domain = Domain::with_policy(2, policy);
    let bytes = costs.cap_items.saturating_mul(costs.object_bytes);
    let limbo = domain.limbo(LimboCaps { items: costs.cap_items, bytes });
    let random = PublicRandom::new(seed);
    let seen = Seen::default();
    let mut run = Run { costs, traffic, domain, limbo, random, flow: 0, seen };
    let new = |_| Worker { at: At::Idle, due: 0, drawn: 0, ring: 0 };
    let mut workers: [Worker<P>; 2] = [0, 1].map(new);
    loop {
        let number = usize::from(workers[1].due < workers[0].due);
        let worker = &mut workers[number];
        if worker.due >= traffic.end {
            break;
        }
        run.step(worker, number == 0);
    }
    run.finish(workers)
}

impl<P: Policy> Run<'_, P> {
    fn step(&mut self, worker: &mut Worker<P>, writes: bool) {
        let now = worker.due;
        match core::mem::replace(&mut worker.at, At::Idle) {
            At::Round(mut reader) => {
                reader.pass(Moment::RoundEnd, Instant::from_nanos(now));
                self.seen.rounds += 1;
                if let Some(bucket) = self.seen.graces.bucket(now) {
                    bucket.rounds += 1;
                }
                if writes {
                    worker.due += self.reclaim(now) * self.costs.callback_nanos;
                }
                worker.at = At::Ready(reader);
            }
            At::Ready(mut reader) => {
                self.draw(worker, now);
                if worker.ring > 0 {
                    self.begin(worker, writes);
                    worker.at = At::Round(reader);
                } else {
                    reader.pass(Moment::Idle, Instant::from_nanos(now));
                    // To end a reader is to go offline, as to park it is.
                    drop(reader);
                    self.sleep(worker, writes);
                }
            }
            At::Idle => {
                self.draw(worker, now);
                if worker.ring > 0 {
                    let Ok(reader) = self.domain.reader_at(Instant::from_nanos(now)) else {
                        unreachable!("a domain of two has two readers")
                    };
                    worker.at = At::Ready(reader);
                } else {
                    self.sleep(worker, writes);
                }
            }
        }
    }

    /// A round begins: its objects are unlinked, its end is known.
    fn begin(&mut self, worker: &mut Worker<P>, writes: bool) {
        let (now, packets) = (worker.due, worker.ring.min(self.costs.budget));
        worker.ring -= packets;
        self.seen.handled += packets;
        if writes {
            self.flow += packets;
            while self.flow >= self.costs.flow_packets {
                self.flow -= self.costs.flow_packets;
                self.unlink(now);
            }
        }
        worker.due = now + self.costs.round_nanos + packets * self.costs.packet_nanos;
    }

    fn unlink(&mut self, now: u64) {
        match self.limbo.reserve(self.costs.object_bytes) {
            Ok(slot) => {
                slot.retire(now, Instant::from_nanos(now));
                self.seen.graces.retired += 1;
            }
            Err(_) => self.seen.graces.refused += 1,
        }
    }

    fn reclaim(&mut self, now: u64) -> u64 {
        let graces = &mut self.seen.graces;
        let freed =
            self.limbo.reclaim(|| Instant::from_nanos(now), |then| graces.freed(now - then, now));
        let age = self.limbo.oldest(Instant::from_nanos(now)).unwrap_or_default();
        let waiting = graces.retired - graces.each.len() as u64;
        if let Some(bucket) = graces.bucket(now) {
            bucket.waiting = waiting;
            bucket.grace_max = bucket.grace_max.max(age.as_nanos() as u64);
        }
        freed as u64
    }

    /// Until the next packet, or until what waits is looked at again.
    fn sleep(&mut self, worker: &mut Worker<P>, writes: bool) {
        let now = worker.due;
        let uniform = (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let wait = -(1.0 - uniform).ln() / self.traffic.rate(now, self.costs).max(1e-12);
        let mut next = now + (wait as u64).max(1);
        if writes {
            self.reclaim(now);
            if self.limbo.oldest(Instant::from_nanos(now)).is_some() {
                next = next.min(now + self.costs.look_nanos);
            }
        }
        let (from, to) = self.traffic.from_to;
        for edge in [from, to] {
            if now < edge {
                next = next.min(edge);
            }
        }
        // Either that packet has come, or none has: the next are drawn from here on.
        worker.ring += u64::from(wait as u64 <= next - now);
        (worker.drawn, worker.due) = (next, next);
    }

    /// The packets that have come since they were drawn last.
    fn draw(&mut self, worker: &mut Worker<P>, now: u64) {
        let expected = self.traffic.rate(now, self.costs) * (now - worker.drawn) as f64;
        worker.drawn = now;
        worker.ring += poisson(expected, &mut self.random);
        let full = worker.ring.saturating_sub(self.costs.ring);
        worker.ring -= full;
        self.seen.dropped += full;
    }

    /// The traffic is over: workers go, and what waits counts with the age that it has.
    fn finish(mut self, workers: [Worker<P>; 2]) -> Seen {
        let end = self.traffic.end;
        drop(workers);
        while self.reclaim(end) > 0 {}
        let stats = self.limbo.stats();
        let graces = &mut self.seen.graces;
        graces.items_max = stats.items_max as u64;
        graces.bytes_max = stats.bytes_max as u64;
        graces.buckets.truncate((end / super::graces::BUCKET_NANOS) as usize);
        Seen { graces: core::mem::take(graces).sorted(), ..self.seen }
    }
}

/// How many of so many expected come. Knuth's way for few; twelve uniforms for many.
pub(in crate::experiments) fn poisson(expected: f64, random: &mut PublicRandom) -> u64 {
    let mut uniform = || (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    if expected < 30.0 {
        let (least, mut product, mut count) = ((-expected).exp(), uniform(), 0);
        while product > least {
            product *= uniform();
            count += 1;
        }
        return count;
    }
    let normal: f64 = (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
    (expected + normal * expected.sqrt()).round().max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use floodwall_sync::qsbr::Paced;

    use super::*;
    use crate::baselines::lazy_quiescence::LazyQuiescence;

    const COSTS: Costs = Costs {
        packet_nanos: 1000,
        round_nanos: 500,
        callback_nanos: 200,
        budget: 64,
        ring: 1024,
        flow_packets: 10,
        object_bytes: 256,
        cap_items: 1000,
        look_nanos: 64_000,
    };

    #[test]
    fn as_many_packets_come_as_the_load_says() {
        for load in [0.1, 0.5, 0.9] {
            let seen = simulate(Paced, &COSTS, &Traffic::steady(load, 200_000_000), 3);
            let share = seen.handled as f64 / (2.0 * load * 200_000.0);
            assert!((0.97..1.03).contains(&share), "{load}: {share}");
            assert_eq!(seen.dropped, 0, "{load}");
        }
        let seen = simulate(Paced, &COSTS, &Traffic::steady(10.0, 200_000_000), 3);
        assert!(seen.dropped > 8 * seen.handled, "{} of {}", seen.dropped, seen.handled);
    }

    #[test]
    fn every_object_is_freed_once_and_the_same_seed_gives_the_same_numbers() {
        let traffic = Traffic { load: 0.2, flood: 3.0, from_to: (5 << 20, 9 << 20), end: 20 << 20 };
        let run = |seed| simulate(LazyQuiescence::THROTTLED, &COSTS, &traffic, seed);
        let (one, other) = (run(1), run(1));
        assert_eq!(one, other);
        assert_ne!(one, run(2));
        assert_eq!(one.graces.each.len() as u64, one.graces.retired);
    }

    #[test]
    fn idle_alone_waits_for_the_flood_to_end_and_is_refused_at_the_cap() {
        let traffic = Traffic::steady(2.0, 50_000_000);
        let lazy = simulate(LazyQuiescence::UNBOUNDED, &COSTS, &traffic, 1).graces;
        let ours = simulate(Paced, &COSTS, &traffic, 1).graces;
        assert!(lazy.max() > 40_000_000 && lazy.refused > 1000, "{}", lazy.max());
        assert_eq!(lazy.items_max, COSTS.cap_items as u64);
        assert!(ours.max() < 4 * COSTS.round() && ours.refused == 0, "{}", ours.max());
    }
}
