//! `ServedCounts`: the host under test, as an engine that shows what the criteria judge.
//!
//! Run by a worker on the memory wire or on a TAP, and in virtual time by a world. A wrapper: the
//! stack and its echo service are what `floodwall run` runs. It looks at the free packet memory
//! [`LOOK_EVERY`], and at what each call spent; both are published with both ledgers, so that one
//! snapshot has everything.

use core::time::Duration;

use floodwall_base::{Counter, DropCounts, DropReason, Family, Instant, IpCidr, Randomness, Units};
use floodwall_dispatch::{Clock, Publish, WORDS_MAX};
use floodwall_packet::{Burst, Engine, HandoffList, Pool, PoolConfig, Round, Triage};
use floodwall_schedule::{BalanceConfig, Share};
use floodwall_services::{ServiceKind, StreamKind, StreamService, TcpService, UdpService};
use floodwall_stack::tcp_set::Keepalive;
use floodwall_stack::{
    Application, Fates, Host, HostError, InterfaceConfig, LinkMedium, Sockets, Stack, StackConfig,
    StartError, Stats, accounts_needed,
};
use serde::Serialize;

use crate::slow_acceptor::SlowAcceptor;
use crate::topology;

/// TCP connections of the host: few, so that attackers can take all of them in a short phase.
pub(crate) const TCP_CONNECTIONS: usize = 1024;
/// How often the free memory is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// An attacker goes with one reset, and what its reset does not end is silent: among others a
/// connection with text behind a gap, where the reset's number is not the expected one and our
/// question about it was lost (RFC 5961 section 3.2).
const KEEPALIVE: Keepalive =
    Keepalive { idle: Duration::from_secs(30), interval: Duration::from_secs(5), count: 3 };

/// What of the host's ordinary settings a drill may change: to see criteria fail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerConfig {
    /// Whether the echo service runs.
    pub service: bool,
    /// Frames of 2 KiB in its packet memory.
    pub frames: usize,
    /// Frames of 256 bytes in its packet memory.
    pub small: usize,
    /// True bytes that may wait in a socket.
    pub udp_receive_bytes: usize,
    /// Whether router advertisements are accepted.
    pub accept_ra: bool,
    /// Whether redirects are followed.
    pub accept_redirects: bool,
    /// True bytes that incomplete datagrams of each family may hold.
    pub reassembly_bytes: u64,
    /// Incomplete datagrams of each family.
    pub reassembly_datagrams: usize,
    /// Thousandths of the worker's core that applications are given; at 0 the worker takes all that
    /// it can use. The guarantees do not depend on it.
    pub application_share: u16,
    /// Whether idle connections, and those without an owner, are evicted where places run out.
    pub evicts: bool,
    /// Whether a service's turn ends when its budget is spent.
    pub turns_end: bool,
    /// Whether memory is shared fairly between source prefixes.
    pub fair_memory: bool,
    /// Whether established flows pay for what makes no progress.
    pub flow_credit: bool,
    /// Workers of the host; on a TAP there is one.
    pub workers: u16,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            service: true,
            frames: 4096,
            small: 8192,
            udp_receive_bytes: StackConfig::default().udp_receive_bytes,
            accept_ra: true,
            accept_redirects: StackConfig::default().accept_redirects,
            reassembly_bytes: StackConfig::default().reassembly.bytes,
            reassembly_datagrams: StackConfig::default().reassembly.datagrams,
            application_share: Share::HALF.thousandths(),
            evicts: true,
            turns_end: true,
            fair_memory: true,
            flow_credit: true,
            workers: 1,
        }
    }
}

impl ServerConfig {
    /// The stack that it makes.
    pub(crate) fn stack(&self) -> StackConfig {
        let on_link = |addr, len| IpCidr::new(addr, len);
        let [v4, v6] = topology::FAMILIES.map(topology::server_addr);
        let beside = topology::attacked_addr(Family::V6);
        let mut reassembly = StackConfig::default().reassembly;
        (reassembly.bytes, reassembly.datagrams) =
            (self.reassembly_bytes, self.reassembly_datagrams);
        StackConfig {
            interfaces: vec![InterfaceConfig {
                name: "drill0".to_owned(),
                medium: LinkMedium::Ethernet(topology::SERVER_MAC),
                mtu: 1500,
                addresses: [on_link(v4, 16), on_link(v6, 64), on_link(beside, 64)]
                    .into_iter()
                    .flatten()
                    .collect(),
                // The other family's advertises itself.
                gateways: vec![topology::ROUTER_V4.into()],
                accept_ra: self.accept_ra,
                autoconf: self.accept_ra,
                ..InterfaceConfig::default()
            }],
            udp_sockets_max: 64,
            udp_receive_bytes: self.udp_receive_bytes,
            duplicate_address_detection: false,
            tcp_connections_max: TCP_CONNECTIONS,
            tcp_fair_memory: self.fair_memory,
            tcp_flow_credit: self.flow_credit,
            accept_redirects: self.accept_redirects,
            reassembly,
            ..StackConfig::default()
        }
    }

    /// How its worker shares the core.
    pub(crate) fn balance(&self) -> Option<BalanceConfig> {
        self.balance_with(0)
    }

    /// The same with so many thousandths more of the core unassigned.
    pub(crate) fn balance_with(&self, lost: u16) -> Option<BalanceConfig> {
        let share = Share::per_mille(self.application_share.saturating_add(lost));
        let shares = self.application_share > 0;
        shares.then(|| BalanceConfig { share, ..BalanceConfig::default() })
    }

    /// The memory that it needs.
    pub(crate) fn pool(&self) -> PoolConfig {
        PoolConfig {
            small: self.small,
            frames: self.frames,
            accounts: accounts_needed(&self.stack()),
            ..PoolConfig::default()
        }
    }
}

/// Free packets of each class, in one pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct FreeFrames {
    /// Of 256 bytes.
    pub small: u64,
    /// Of 2 KiB.
    pub frames: u64,
    /// Without memory of their own.
    pub references: u64,
}

impl FreeFrames {
    /// What is free in `pool` now.
    pub(crate) fn of(pool: &Pool) -> Self {
        let free = pool.available();
        let [small, frames, references] =
            [free.small, free.frames, free.references].map(|n| n as u64);
        Self { small, frames, references }
    }

    /// How many packets are in use, when all was free at `start`.
    #[must_use]
    pub const fn in_use_since(&self, start: &Self) -> u64 {
        start.small.saturating_sub(self.small)
            + start.frames.saturating_sub(self.frames)
            + start.references.saturating_sub(self.references)
    }
}

/// What the engine's calls were like.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ServerEffort {
    /// Calls that found packets.
    pub bursts: u64,
    /// Packets in the largest of them.
    pub packets_max: u64,
    /// Units of work of the dearest call.
    pub units_max: u64,
    /// Units of work of all calls.
    pub units: u64,
    /// Nanoseconds of all calls, by the clock; zero in virtual time.
    pub busy_nanos: u64,
    /// Nanoseconds of the longest call, by the clock, other work on the core included.
    pub longest_nanos: u64,
}

impl ServerEffort {
    fn note(&mut self, packets: usize, units: Units, nanos: u64) {
        self.bursts += u64::from(packets > 0);
        self.packets_max = self.packets_max.max(packets as u64);
        self.units_max = self.units_max.max(u64::from(units.0));
        self.units += u64::from(units.0);
        self.busy_nanos += nanos;
        self.longest_nanos = self.longest_nanos.max(nanos);
    }
}

/// The host's memory of single destinations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ServerPaths {
    /// Path MTUs and redirects that it has learnt so far.
    pub(crate) learnt: u64,
    /// Destinations in it, both families.
    pub(crate) known: u64,
}

impl ServerPaths {
    fn of(stack: &Stack) -> Self {
        let learnt = stack.stats().counters.of(Counter::FloodwallExceptionsLearnt);
        let known = stack.exceptions_v4().len() + stack.exceptions_v6().len();
        Self { learnt, known: known as u64 }
    }
}

/// A service the turn of which ends only when it has nothing left to do.
struct Endless(Box<dyn Application>);

impl Application for Endless {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn start(&mut self, sockets: &mut Sockets<'_>) -> Result<(), StartError> {
        self.0.start(sockets)
    }

    fn run(&mut self, sockets: &mut Sockets<'_>, _: Units) -> Units {
        self.0.run(sockets, Units(u32::MAX))
    }

    fn deadline(&self) -> Option<Instant> {
        self.0.deadline()
    }
}

/// A host with an echo service and a web server, and its application.
pub(crate) struct ServedCounts {
    host: Host,
    clock: Option<Clock>,
    free: FreeFrames,
    look_at: Instant,
    looks: u64,
    effort: ServerEffort,
}

impl ServedCounts {
    /// A host as configured. With a clock its calls are timed; without, the caller's time is
    /// virtual.
    pub(crate) fn new(
        config: &ServerConfig,
        pool: &Pool,
        random: &mut Randomness,
        now: Instant,
        clock: Option<Clock>,
    ) -> Result<Self, HostError> {
        let stack = Stack::new(&config.stack(), random, now)?;
        Self::on(stack, config, pool, random, now, clock)
    }

    /// The same on a stack that is made already: a shard of a host with several workers.
    pub(crate) fn on(
        stack: Stack,
        config: &ServerConfig,
        pool: &Pool,
        random: &mut Randomness,
        now: Instant,
        clock: Option<Clock>,
    ) -> Result<Self, HostError> {
        let mut applications: Vec<Box<dyn Application>> = Vec::new();
        if config.service {
            applications.push(Box::new(UdpService::new(ServiceKind::Echo, topology::SERVICE_PORT)));
            let idle = config.evicts.then_some(Duration::ZERO);
            let echo = TcpService::new(ServiceKind::Echo, topology::SERVICE_PORT);
            let web = StreamService::new(StreamKind::Http, topology::WEB_PORT);
            let echo = echo.evict_idle_after(idle).keepalive(Some(KEEPALIVE));
            let web = web.evict_idle_after(idle).keepalive(Some(KEEPALIVE));
            let services: [Box<dyn Application>; 2] = [Box::new(echo), Box::new(web)];
            applications.extend(services.into_iter().map(|service| {
                if config.turns_end { service } else { Box::new(Endless(service)) }
            }));
            applications.push(Box::new(SlowAcceptor::default()));
        }
        let host = Host::with_stack(stack, applications, pool, random, now)?;
        let (free, effort) = (FreeFrames::of(pool), ServerEffort::default());
        Ok(Self { host, clock, free, look_at: now, looks: 0, effort })
    }

    /// What a worker would publish, made directly.
    pub(crate) fn view(&self) -> ServerView {
        let (free, looks, effort) = (self.free, self.looks, self.effort);
        let stack = self.host.stack();
        ServerView { stats: stack.stats(), free, looks, effort, paths: ServerPaths::of(stack) }
    }

    fn look(&mut self, round: &Round<'_>) {
        if round.now >= self.look_at {
            self.free = FreeFrames::of(round.pool);
            self.looks += 1;
            self.look_at = round.now + LOOK_EVERY;
        }
    }

    fn call(
        &mut self,
        round: &mut Round<'_>,
        call: impl FnOnce(&mut Host, &mut Round<'_>) -> Units,
    ) -> Units {
        let packets = round.arrived.len();
        let before = self.clock.map(Clock::now);
        let units = call(&mut self.host, round);
        let took = self
            .clock
            .zip(before)
            .map_or(0, |(clock, before)| clock.now().as_nanos().saturating_sub(before.as_nanos()));
        self.effort.note(packets, units, took);
        self.look(round);
        units
    }
}

impl Engine for ServedCounts {
    fn round(&mut self, round: &mut Round<'_>) -> Units {
        self.call(round, Host::round)
    }

    fn work(&mut self, round: &mut Round<'_>) -> Units {
        self.call(round, Host::work)
    }

    fn rx_capacity(&self, now: Instant) -> usize {
        self.host.rx_capacity(now)
    }

    fn adopt(&mut self, round: &mut Round<'_>, handed: &mut HandoffList) -> Units {
        self.call(round, |host, round| host.adopt(round, handed))
    }

    fn touch_memory(&mut self) -> usize {
        self.host.touch_memory()
    }

    fn set_tx_room(&mut self, packets: usize) {
        self.host.set_tx_room(packets);
    }

    fn departed(&mut self) {
        self.host.departed();
    }

    fn rests(&mut self) -> bool {
        self.host.rests()
    }

    fn deadline(&self) -> Option<Instant> {
        self.host.deadline().into_iter().chain([self.look_at]).min()
    }

    fn classify(&self, burst: &Burst, classes: &mut [Triage]) {
        self.host.classify(burst, classes);
    }
}

/// The host in a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ServerView {
    /// Both ledgers; counters by name are not published.
    pub(crate) stats: Stats,
    /// Free memory at the last look.
    pub(crate) free: FreeFrames,
    /// How often the memory was looked at.
    pub(crate) looks: u64,
    /// What calls were like.
    pub(crate) effort: ServerEffort,
    /// Its state of paths.
    pub(crate) paths: ServerPaths,
}

const COUNT_WORDS: usize = 2 * DropReason::ALL.len() + 13 + 4 + 6 + 2;
const _: () = assert!(COUNT_WORDS <= WORDS_MAX, "a snapshot has no room for the drill's words");

impl Publish for ServedCounts {
    fn words(&self, out: &mut [u64]) {
        self.view().write(out);
    }
}

impl ServerView {
    fn write(&self, out: &mut [u64]) {
        let Self { stats, free, looks, effort: e, paths } = self;
        let f = &stats.outcomes;
        let words = DropReason::ALL
            .iter()
            .map(|reason| stats.drops_in.of(*reason))
            .chain(DropReason::ALL.iter().map(|reason| stats.drops_out.of(*reason)))
            .chain([f.received, f.delivered, f.forwarded, f.answered])
            .chain([f.merged, stats.held])
            .chain([f.handed_in, f.adopted_in, f.handed_out, f.adopted_out])
            .chain([f.originated, f.transmitted, stats.pending])
            .chain([free.small, free.frames, free.references, *looks])
            .chain([e.bursts, e.packets_max, e.units_max])
            .chain([e.units, e.busy_nanos, e.longest_nanos])
            .chain([paths.learnt, paths.known]);
        out.iter_mut().zip(words).for_each(|(slot, word)| *slot = word);
    }

    /// The view that was written to `words`.
    pub(crate) fn read(words: &[u64]) -> Self {
        let mut words = words.iter().copied();
        let mut next = || words.next().unwrap_or(0);
        let mut drops = || {
            let mut counts = DropCounts::default();
            DropReason::ALL.iter().for_each(|reason| counts.add(*reason, next()));
            counts
        };
        let (drops_in, drops_out) = (drops(), drops());
        let [received, delivered, forwarded, answered, merged, held] =
            std::array::from_fn(|_| next());
        let [handed_in, adopted_in, handed_out, adopted_out] = std::array::from_fn(|_| next());
        let (originated, transmitted) = (next(), next());
        let outcomes = Fates {
            received,
            delivered,
            forwarded,
            answered,
            merged,
            originated,
            transmitted,
            handed_in,
            adopted_in,
            handed_out,
            adopted_out,
        };
        let stats =
            Stats { drops_in, drops_out, outcomes, held, pending: next(), ..Stats::default() };
        let free = FreeFrames { small: next(), frames: next(), references: next() };
        let looks = next();
        let effort = ServerEffort {
            bursts: next(),
            packets_max: next(),
            units_max: next(),
            units: next(),
            busy_nanos: next(),
            longest_nanos: next(),
        };
        let paths = ServerPaths { learnt: next(), known: next() };
        Self { stats, free, looks, effort, paths }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_survives_its_words() {
        let mut view = ServerView::default();
        view.stats.drops_in.add(DropReason::UdpNoPort, 3);
        view.stats.drops_out.add(DropReason::LoopbackFull, 4);
        view.stats.outcomes.received = 5;
        view.stats.pending = 6;
        (view.stats.outcomes.merged, view.stats.held) = (9, 10);
        let f = &mut view.stats.outcomes;
        (f.handed_in, f.adopted_in, f.handed_out, f.adopted_out) = (13, 14, 15, 16);
        view.free.references = 7;
        view.effort.longest_nanos = 11;
        view.paths = ServerPaths { learnt: 12, known: 8 };
        let mut words = [0; WORDS_MAX];
        view.write(&mut words);
        assert_eq!(ServerView::read(&words), view);
        assert_eq!(words[COUNT_WORDS - 1], 8);
    }
}
