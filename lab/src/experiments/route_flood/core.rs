//! One core of a router under flood: handlers of packets, what they leave to free, and a program
//! that takes timestamps whenever the handlers leave it the core.
//!
//! Called by `route_flood.rs` for each variant, in virtual time or in the thread's own
//! (`clock.rs`). Reclamation is the product's (`sync::qsbr`), with its own policy or a historic
//! one; so is the balance (`schedule`). What the packets need is either the historic cache or the
//! product's table (`fib`). Invariant: every packet offered found the ring full, or was handled;
//! every packet handled was forwarded, or was lost to the cache's overflow.

use core::time::Duration;

use floodwall_base::{Instant, PublicRandom};
use floodwall_fib::{Fib, lpm};
use floodwall_schedule::{Balance, BalanceConfig, NextTurn};
use floodwall_sync::qsbr::{Moment, Policy, Reader};
use serde::Deserialize;

use super::clock::Clock;
use super::flows::Flows;
use crate::baselines::route_cache::{Found, RouteCache};
use crate::experiments::grace_period::{BUCKET_NANOS, poisson};

/// What work costs, in nanoseconds, and how much is done at a time.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Costs {
    /// A packet, all but its destination.
    pub(super) packet_nanos: u64,
    /// A look into the routing table.
    pub(super) route_nanos: u64,
    /// A new entry of the cache, besides.
    pub(super) entry_nanos: u64,
    /// An entry or a chain that is looked at.
    pub(super) visit_nanos: u64,
    /// Freeing an entry.
    pub(super) callback_nanos: u64,
    /// A handler, all but its packets.
    pub(super) handler_nanos: u64,
    /// Packets of a handler at most.
    pub(super) handler_packets: u64,
    /// Packets that wait in the device at most.
    pub(super) ring: u64,
}

/// When how much is offered.
#[derive(Clone, Debug)]
pub(super) struct Traffic {
    /// Packets a second between floods, and in them.
    pub(super) rest: u64,
    pub(super) flood: u64,
    /// The floods: from when to when.
    pub(super) floods: Vec<(u64, u64)>,
    /// The end.
    pub(super) end: u64,
}

impl Traffic {
    fn flooded(&self, now: u64) -> bool {
        let next = self.floods.partition_point(|(_, to)| *to <= now);
        self.floods.get(next).is_some_and(|(from, _)| *from <= now)
    }

    /// Packets a nanosecond, and until when it stays so.
    fn rate(&self, now: u64) -> (f64, u64) {
        let next = self.floods.partition_point(|(_, to)| *to <= now);
        match self.floods.get(next) {
            Some((from, to)) if *from <= now => (self.flood as f64 / 1e9, *to),
            Some((from, _)) => (self.rest as f64 / 1e9, *from),
            None => (self.rest as f64 / 1e9, self.end),
        }
    }
}

/// One 4 ms.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Bucket {
    /// Handlers that ended in it.
    pub(super) rounds: u64,
    /// The longest grace period that ended in it, or the age of what still waits.
    pub(super) grace_max: u64,
    /// Entries unlinked and not freed, at its end.
    pub(super) waiting: u64,
    /// Entries unlinked since the run began, at its end.
    pub(super) retired: u64,
    /// Packets lost to the overflow, and forwarded.
    pub(super) overflow: u64,
    pub(super) forwarded: u64,
    /// The longest that the program has been without the core, in it.
    pub(super) gap_max: u64,
}

/// What a run has seen.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Seen {
    pub(super) buckets: Vec<Bucket>,
    /// Packets.
    pub(super) offered: u64,
    pub(super) ring_full: u64,
    pub(super) handled: u64,
    pub(super) forwarded: u64,
    pub(super) overflow: u64,
    /// Entries made, unlinked, and the most that waited.
    pub(super) made: u64,
    pub(super) retired: u64,
    pub(super) waiting_max: u64,
    /// Entries at the most, linked or waiting.
    pub(super) entries_max: u64,
    /// The longest grace period, and the most passes that an entry waited for, of those freed.
    pub(super) grace_max: u64,
    pub(super) passes_max: u64,
    /// How long floods lasted, and what the program had of that.
    pub(super) flood_nanos: u64,
    pub(super) app_in_flood: u64,
    /// The longest that the program was without the core.
    pub(super) gap_max: u64,
}

impl Seen {
    fn bucket(&mut self, now: u64) -> &mut Bucket {
        let number = (now / BUCKET_NANOS) as usize;
        if self.buckets.len() <= number {
            self.buckets.resize(number + 1, Bucket::default());
        }
        let last = self.buckets.len() - 1;
        &mut self.buckets[number.min(last)]
    }

    /// The program's part of the time of the floods.
    pub(super) fn app_share(&self) -> f64 {
        self.app_in_flood as f64 / (self.flood_nanos as f64).max(1.0)
    }
}

/// How a packet's next hop is found.
pub(super) enum Ways<A: lpm::LpmFamily, P: Policy> {
    /// A cache in front of the table.
    Cached(Box<RouteCache<P>>),
    /// The table, each time.
    Table(Box<Fib<A>>),
}

/// One core: its handlers, its cache or table, the reclamation's reader, and the program.
pub(super) struct Core<'a, A: lpm::LpmFamily, P: Policy, C: Clock> {
    pub(super) clock: C,
    pub(super) costs: &'a Costs,
    pub(super) traffic: &'a Traffic,
    pub(super) ways: Ways<A, P>,
    pub(super) flows: Flows<A>,
    pub(super) reader: Reader<P>,
    pub(super) balance: Option<Balance>,
    pub(super) random: PublicRandom,
    /// Packets in the device, and until when arrivals have been drawn.
    pub(super) ring: u64,
    pub(super) drawn: u64,
    /// When the program last had the core.
    pub(super) app_seen: u64,
    pub(super) seen: Seen,
}

/// The product's balance with this share.
pub(super) fn balance(share: f64) -> Balance {
    let share = floodwall_schedule::Share::per_mille((share.clamp(0.0, 1.0) * 1000.0) as u16);
    Balance::new(BalanceConfig { share, ..BalanceConfig::default() }, Instant::ORIGIN)
}

impl<A: lpm::LpmFamily, P: Policy, C: Clock> Core<'_, A, P, C> {
    /// Runs to the end.
    pub(super) fn run(mut self) -> Seen {
        loop {
            let now = self.clock.now();
            if now >= self.traffic.end {
                return self.finish(now);
            }
            self.arrive(now);
            if self.ring == 0 {
                self.idle(now);
                continue;
            }
            let handled = self.handler(now);
            let then = self.clock.now();
            self.note_gap(then);
            let more = self.ring > 0;
            let Some(balance) = &mut self.balance else { continue };
            let next = balance.ran(at(now), at(then), handled as usize, more);
            if let NextTurn::Rest { until } = next {
                self.program(then, until.as_nanos());
            }
        }
    }

    /// The packets that have come since they were drawn last.
    fn arrive(&mut self, now: u64) {
        while self.drawn < now {
            let (rate, until) = self.traffic.rate(self.drawn);
            let to = until.min(now).max(self.drawn + 1);
            let came = poisson(rate * (to - self.drawn) as f64, &mut self.random);
            self.seen.offered += came;
            self.ring += came;
            self.drawn = to;
        }
        let full = self.ring.saturating_sub(self.costs.ring);
        self.ring -= full;
        self.seen.ring_full += full;
    }

    /// One handler: as many packets as it may, its end, and what can be freed then.
    fn handler(&mut self, start: u64) -> u64 {
        let count = self.ring.min(self.costs.handler_packets);
        self.ring -= count;
        self.seen.handled += count;
        for _ in 0..count {
            self.packet(start);
        }
        self.clock.spend(self.costs.handler_nanos);
        let now = self.clock.now();
        self.reader.pass(Moment::RoundEnd, at(now));
        self.seen.bucket(now).rounds += 1;
        self.reclaim();
        count
    }

    fn packet(&mut self, start: u64) {
        let (addr, costs) = (self.flows.next(), self.costs);
        let (found, price) = match &mut self.ways {
            Ways::Table(fib) => {
                let found = fib.lookup(addr, at(start));
                let found = if found.is_some() { Found::Known } else { Found::Overflow };
                (found, costs.route_nanos)
            }
            Ways::Cached(cache) => {
                let (found, visited) = cache.packet(addr.to_bits_aligned(), at(start));
                let new = if found == Found::Known { 0 } else { costs.route_nanos };
                let made = if found == Found::New { costs.entry_nanos } else { 0 };
                (found, new + made + visited * costs.visit_nanos)
            }
        };
        self.clock.spend(costs.packet_nanos + price);
        let now = self.clock.now();
        let (made, lost) = (u64::from(found == Found::New), u64::from(found == Found::Overflow));
        let seen = &mut self.seen;
        (seen.made, seen.overflow) = (seen.made + made, seen.overflow + lost);
        seen.forwarded += 1 - lost;
        let bucket = seen.bucket(now);
        bucket.overflow += lost;
        bucket.forwarded += 1 - lost;
    }

    /// Frees what may be freed in one pass, and notes how long what waits has waited.
    fn reclaim(&mut self) {
        let Ways::Cached(cache) = &mut self.ways else { return };
        let (now, mut longest, mut most) = (self.clock.now(), 0, 0);
        let waited = cache.waiting() as u64;
        let freed = cache.reclaim(at(now), |then, passes| {
            (longest, most) = (longest.max(now - then), most.max(passes));
        });
        let age = cache.oldest(at(now)).map_or(0, |age| age.as_nanos() as u64);
        let seen = &mut self.seen;
        seen.waiting_max = seen.waiting_max.max(waited);
        seen.entries_max = seen.entries_max.max(cache.entries() as u64 + freed as u64);
        seen.grace_max = seen.grace_max.max(longest).max(age);
        seen.passes_max = seen.passes_max.max(most);
        let (waiting, retired) = (cache.waiting() as u64, cache.retired());
        let bucket = seen.bucket(now);
        bucket.retired = retired;
        bucket.grace_max = bucket.grace_max.max(longest).max(age);
        bucket.waiting = waiting;
        self.clock.spend(freed as u64 * self.costs.callback_nanos);
    }

    /// Nothing waits: the program has the core until the next packet comes.
    fn idle(&mut self, now: u64) {
        let (rate, edge) = self.traffic.rate(now);
        let uniform = (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let wait = ((-(1.0 - uniform).ln() / rate.max(1e-12)) as u64).max(1);
        let next = (now + wait).min(edge.max(now + 1)).min(self.traffic.end);
        if next == now + wait {
            self.ring += 1;
            self.seen.offered += 1;
        }
        self.drawn = self.drawn.max(next);
        self.program(now, next);
    }

    /// The program has the core: the processor is in user mode, or idle, and nothing of the
    /// handlers' is held.
    fn program(&mut self, from: u64, until: u64) {
        self.note_gap(from);
        self.reader.pass(Moment::Idle, at(from));
        self.reclaim();
        let started = self.clock.now();
        self.clock.leave(until.min(self.traffic.end));
        let now = self.clock.now();
        if self.traffic.flooded(started) {
            self.seen.app_in_flood += now.saturating_sub(started);
        }
        if let Some(balance) = &mut self.balance {
            balance.rested(at(from), at(now), Duration::ZERO);
        }
        self.app_seen = now;
    }

    fn note_gap(&mut self, now: u64) {
        let gap = now.saturating_sub(self.app_seen);
        self.seen.gap_max = self.seen.gap_max.max(gap);
        let bucket = self.seen.bucket(now);
        bucket.gap_max = bucket.gap_max.max(gap);
    }

    fn finish(mut self, now: u64) -> Seen {
        self.note_gap(now);
        self.reclaim();
        if let Ways::Cached(cache) = &self.ways {
            self.seen.retired = cache.retired();
        }
        let floods = self.traffic.floods.iter();
        let end = self.traffic.end;
        self.seen.flood_nanos = floods.map(|(from, to)| to.min(&end).saturating_sub(*from)).sum();
        self.seen.buckets.truncate((end / BUCKET_NANOS) as usize);
        self.seen
    }
}

const fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

/// Floods of these lengths, one after the other, a rest before each; the seed shifts them.
pub(super) fn traffic(
    rates: (u64, u64),
    lengths: &[Duration],
    rest: Duration,
    end: u64,
    random: &mut PublicRandom,
) -> Traffic {
    let (mut floods, mut now) = (Vec::new(), 0);
    'all: loop {
        for length in lengths {
            let jitter = random.below((rest.as_nanos() as u64 / 4).max(1));
            let from = now + rest.as_nanos() as u64 + jitter;
            let to = from + length.as_nanos() as u64;
            if from >= end || length.is_zero() {
                break 'all;
            }
            floods.push((from, to));
            now = to;
        }
        if lengths.is_empty() {
            break;
        }
    }
    Traffic { rest: rates.0, flood: rates.1, floods, end }
}
