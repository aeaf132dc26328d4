//! `route-flood`: a router that forwards packets to random destinations, with a cache of
//! destinations and deferred frees, and without any.
//!
//! Source: Dipankar Sarma, "route cache DoS testing and softirqs" (linux-kernel, 29 March 2004),
//! and its closing question: a quiescent point at the end of every softirq handler, or softirq work
//! that is throttled so that programs run? Six variants meet the same packets on one core
//! (`route_flood/core.rs`): in virtual time, on the source's machine and on today's priced by the
//! cost table, and in real threads. Besides, the product's own stack routes the flood in
//! `floodwall-world` (`route_flood/product.rs`). `route_flood/tables.rs` makes numbers, tables and
//! pictures. Virtual time: the same seed gives the same numbers.

mod clock;
mod core;
mod flows;
mod product;
mod tables;

use ::core::net::{Ipv4Addr, Ipv6Addr};
use ::core::time::Duration;

use floodwall_base::{Address, Family, HashKey, IfIndex, Instant, IpCidr, Prefix, PublicRandom};
use floodwall_fib::{Fib, FibConfig, Route, lpm};
use floodwall_sync::qsbr::{Domain, Moment, Paced, Policy};
use floodwall_world::{CostTable, Spent};
use serde::Deserialize;

use self::clock::{Clock, Virtual, Wall};
use self::core::{Core, Costs, Seen, Traffic, Ways};
use self::flows::Flows;
use crate::baselines::lazy_quiescence::LazyQuiescence;
use crate::baselines::route_cache::{RouteCache, Sizes};
use crate::error::LabError;
use crate::experiments::Experiment;
use crate::measure::Measured;
use crate::plan::Plan;
use crate::progress::Progress;

/// The experiment `route-flood`: grace periods and starvation in a flooded router.
#[derive(Clone, Copy, Debug, Default)]
pub struct RouteFlood;

/// How destinations are kept, freed, and when handlers give way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Variant {
    /// The cache; quiescent only when idle, as Linux 2.6.0.
    QuiescentWhenIdle,
    /// The same with four callbacks a pass.
    FourCallbacks,
    /// The same with packet work throttled: quiescent in the program's time.
    Throttled,
    /// The cache; quiescent at each handler's end.
    PerHandler,
    /// The same, and packet work leaves the program its share.
    Balanced,
    /// No state for a destination, quiescent at each handler's end, and the share: the product.
    Stateless,
}

impl Variant {
    const fn name(self) -> &'static str {
        match self {
            Self::QuiescentWhenIdle => "quiescent-when-idle",
            Self::FourCallbacks => "four-callbacks",
            Self::Throttled => "throttled",
            Self::PerHandler => "per-handler",
            Self::Balanced => "balanced",
            Self::Stateless => "stateless",
        }
    }

    const fn balances(self) -> bool {
        matches!(self, Self::Throttled | Self::Balanced | Self::Stateless)
    }
}

/// The plan's `[vary]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Vary {
    variants: Vec<Variant>,
    /// Packets of a flow.
    flowlen: Vec<u32>,
}

/// The plan's `[hold]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hold {
    flows: usize,
    /// Destinations of each family.
    destinations: [String; 2],
    /// The program's share where it is guaranteed one.
    share: f64,
    /// Between floods: packets a second, as a part of the flood's, and how long.
    rest: f64,
    rest_millis: u64,
    floods_millis: Vec<u64>,
    source: Costs,
    /// Packets that a handler of today's takes, and that its device holds.
    today_handler_packets: u64,
    today_ring: u64,
    /// What a packet costs in real threads: steps of about a nanosecond.
    threads: Costs,
}

/// The plan's `[full]` or `[quick]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Amount {
    /// Packets a second that the source's machine is offered.
    source_rates: Vec<u64>,
    /// Packets of a run at the first of these rates; it lasts as long at the others.
    source_packets: u64,
    /// The same of today's machine.
    today_rates: Vec<u64>,
    today_packets: u64,
    /// How long the product's own stack routes the flood, in virtual time.
    product_millis: u64,
    /// How long each variant has in real threads; 0 for none.
    threads_millis: u64,
}

/// One run.
struct Run {
    /// `source`, `today` or `threads`.
    part: &'static str,
    rate: u64,
    family: Family,
    flowlen: u32,
    variant: Variant,
    traffic: Traffic,
    seen: Seen,
}

/// What is the same in the runs of one machine.
struct Machine<'a> {
    part: &'static str,
    costs: Costs,
    hold: &'a Hold,
    seed: u64,
}

impl Hold {
    fn range<A: Address>(&self) -> Result<Prefix<A>, LabError> {
        let [v4, v6] = &self.destinations;
        let text = if A::FAMILY == Family::V4 { v4 } else { v6 };
        let cidr: Option<IpCidr> = text.parse().ok();
        let range = cidr.and_then(|cidr| Prefix::new(A::from_ip(cidr.addr())?, cidr.prefix_len()));
        range.ok_or_else(|| LabError::Scene(format!("destinations: `{text}` is no prefix")))
    }

    /// Today's machine by the cost table.
    fn today(&self) -> Costs {
        let table = CostTable::default();
        let nanos = |spent: Spent| (table.price(&spent).0 / 1000).max(1);
        let packet = nanos(Spent {
            packets: 2,
            bytes: 120,
            units: floodwall_base::Units(1),
            ..Spent::default()
        });
        Costs {
            packet_nanos: packet,
            route_nanos: table.probe_miss.0 / 1000,
            entry_nanos: (table.entry.0 + table.probe_miss.0) / 1000,
            visit_nanos: (table.probe_hit.0 / 1000).max(1),
            callback_nanos: (table.entry.0 / 1000).max(1),
            handler_nanos: table.wake_up.0 / 1000,
            handler_packets: self.today_handler_packets,
            ring: self.today_ring,
        }
    }

    fn traffic(&self, rate: u64, end: u64, seed: u64) -> Traffic {
        let lengths: Vec<_> =
            self.floods_millis.iter().copied().map(Duration::from_millis).collect();
        let rest = (rate as f64 * self.rest) as u64;
        let pause = Duration::from_millis(self.rest_millis);
        core::traffic((rest, rate), &lengths, pause, end, &mut PublicRandom::new(seed))
    }
}

impl Machine<'_> {
    /// One variant with one policy, in one time.
    fn core<A: lpm::LpmFamily, P: Policy, C: Clock>(
        &self,
        (variant, policy, flowlen): (Variant, P, u32),
        traffic: &Traffic,
        clock: C,
    ) -> Result<Seen, LabError> {
        let (range, seed) = (self.hold.range::<A>()?, self.seed);
        let domain = Domain::with_policy(2, policy);
        let reader = domain.reader_at(Instant::ORIGIN);
        let reader = reader.map_err(|_| LabError::Scene("a domain of two has one".to_owned()))?;
        let ways = if variant == Variant::Stateless {
            Ways::Table(Box::new(table(range)?))
        } else {
            let sizes = if A::FAMILY == Family::V4 { Sizes::V4 } else { Sizes::V6 };
            Ways::Cached(Box::new(RouteCache::new(sizes, &domain)))
        };
        let core = Core {
            clock,
            costs: &self.costs,
            traffic,
            ways,
            flows: Flows::new(range, self.hold.flows, flowlen, seed),
            reader,
            balance: variant.balances().then(|| core::balance(self.hold.share)),
            random: PublicRandom::new(seed ^ 0x5eed),
            ring: 0,
            drawn: 0,
            app_seen: 0,
            seen: Seen::default(),
        };
        Ok(std::thread::scope(|scope| {
            let other = (self.part == "threads").then(|| {
                let (domain, end) = (domain.clone(), traffic.end);
                scope.spawn(move || other_processor(&domain, end))
            });
            let seen = core.run();
            if let Some(Err(panic)) = other.map(std::thread::ScopedJoinHandle::join) {
                std::panic::resume_unwind(panic);
            }
            seen
        }))
    }

    fn policy<A: lpm::LpmFamily, C: Clock>(
        &self,
        variant: Variant,
        flowlen: u32,
        traffic: &Traffic,
        clock: C,
    ) -> Result<Seen, LabError> {
        let lazy = LazyQuiescence::UNBOUNDED;
        match variant {
            Variant::QuiescentWhenIdle | Variant::Throttled => {
                self.core::<A, _, _>((variant, lazy, flowlen), traffic, clock)
            }
            Variant::FourCallbacks => {
                let policy = LazyQuiescence::THROTTLED;
                self.core::<A, _, _>((variant, policy, flowlen), traffic, clock)
            }
            Variant::PerHandler | Variant::Balanced | Variant::Stateless => {
                self.core::<A, _, _>((variant, Paced, flowlen), traffic, clock)
            }
        }
    }

    fn run(
        &self,
        (variant, family, flowlen): (Variant, Family, u32),
        (rate, end): (u64, u64),
    ) -> Result<Run, LabError> {
        let traffic = self.hold.traffic(rate, end, self.seed);
        let seen = match (family, self.part) {
            (Family::V4, "threads") => {
                self.policy::<Ipv4Addr, _>(variant, flowlen, &traffic, Wall::start())
            }
            (Family::V6, "threads") => {
                self.policy::<Ipv6Addr, _>(variant, flowlen, &traffic, Wall::start())
            }
            (Family::V4, _) => {
                self.policy::<Ipv4Addr, _>(variant, flowlen, &traffic, Virtual::default())
            }
            (Family::V6, _) => {
                self.policy::<Ipv6Addr, _>(variant, flowlen, &traffic, Virtual::default())
            }
        }?;
        let part = self.part;
        Ok(Run { part, rate, family, flowlen, variant, traffic, seen })
    }
}

/// A table that leads the whole range one way.
fn table<A: lpm::LpmFamily>(range: Prefix<A>) -> Result<Fib<A>, LabError> {
    let config = FibConfig::for_routes(64);
    let mut fib = Fib::alone(config, HashKey::new(1, 2), Instant::ORIGIN);
    let route = Route::on_link(range, IfIndex(1));
    fib.append(route, Instant::ORIGIN).map_err(|error| LabError::Scene(error.to_string()))?;
    Ok(fib)
}

/// The router's second processor: mostly idle, and reporting so.
#[expect(clippy::disallowed_methods, reason = "a thread of the experiment that sleeps")]
fn other_processor<P: Policy>(domain: &Domain<P>, end: u64) {
    let begun = std::time::Instant::now();
    let now = || begun.elapsed().as_nanos() as u64;
    while now() < end {
        if let Ok(mut reader) = domain.reader_at(Instant::from_nanos(now())) {
            reader.pass(Moment::Idle, Instant::from_nanos(now()));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

impl Experiment for RouteFlood {
    fn name(&self) -> &'static str {
        "route-flood"
    }

    fn run(
        &self,
        plan: &Plan,
        amount: &toml::Table,
        seed: u64,
        progress: &mut dyn Progress,
    ) -> Result<Measured, LabError> {
        let vary: Vary = plan.read("vary", &plan.vary)?;
        let hold: Hold = plan.read("hold", &plan.hold)?;
        let amount: Amount = plan.read("amount", amount)?;
        let lasts = |packets: u64, rates: &[u64]| {
            let first = rates.first().copied().unwrap_or(1).max(1);
            (u128::from(packets) * 1_000_000_000 / u128::from(first)) as u64
        };
        // Real threads once: another seed makes them no more certain.
        let threads_end = if seed == 1 { amount.threads_millis * 1_000_000 } else { 0 };
        let offered = 2_000_000_000 / hold.threads.packet_nanos.max(1);
        let parts = [
            ("source", hold.source, lasts(amount.source_packets, &amount.source_rates)),
            ("today", hold.today(), lasts(amount.today_packets, &amount.today_rates)),
            ("threads", hold.threads, threads_end),
        ];
        let rates = [&amount.source_rates[..], &amount.today_rates, &[offered]];
        let mut runs = Vec::new();
        for ((part, costs, end), rates) in parts.into_iter().zip(rates) {
            let machine = Machine { part, costs, hold: &hold, seed };
            for &rate in rates.iter().filter(|_| end > 0) {
                for family in [Family::V4, Family::V6] {
                    for &flowlen in &vary.flowlen {
                        for &variant in &vary.variants {
                            progress.step(part, runs.len() as u64, 64);
                            runs.push(machine.run((variant, family, flowlen), (rate, end))?);
                        }
                    }
                }
            }
        }
        progress.step("the product", 63, 64);
        let length = Duration::from_millis(amount.product_millis);
        let (destinations, share) = (hold.destinations.clone(), hold.share);
        let scene = product::Scene { destinations, share, length, seed };
        let product = scene.measure()?;
        Ok(tables::measured(&runs, &product, (seed == 1).then_some(threads_end > 0)))
    }
}
