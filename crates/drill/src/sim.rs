//! The bench in virtual time: the same host and the same crowd in a simulated world.
//!
//! Deterministic: the same seed gives the same report, byte for byte, on any machine. Work is
//! charged by the world's cost table, so criteria mean something (decision C13).

use core::time::Duration;

use floodwall_base::{IfIndex, Instant, Randomness};
use floodwall_packet::{Pool, PoolConfig};
use floodwall_schedule::GateConfig;
use floodwall_sync::qsbr::Domain;
use floodwall_world::{
    CostTable, LaneConfig, LinkConfig, LinkId, NodeConfig, NodeId, SimulatedApplication, World,
};

use crate::bench::{BenchLook, BenchLoop, BenchOutcome, BenchWatch, DrillBench};
use crate::error::DrillError;
use crate::report::GraceReport;
use crate::server::{FreeFrames, ServedCounts, ServerConfig};
use crate::shards::{self, ShardReport, ShardsMade};
use crate::traffic::{TrafficSource, TrafficStretch};
use crate::transit::{self, CrossedPackets};

/// How often a snapshot is looked at.
const SNAPSHOT_STEP: Duration = Duration::from_millis(1);
/// One way between the crowd and the host.
const LINK_DELAY: Duration = Duration::from_micros(20);
/// How long memory has to come back: longer than fragments may wait (60 s, RFC 8200 section 4.5),
/// and the errors that then go to their senders for neighbours that do not exist (three questions,
/// up to 10 s apart where a router requires that).
const MEMORY_PATIENCE: Duration = Duration::from_secs(110);
/// Packets of the host's receive ring.
const RX_RING: usize = 4096;

/// The drill in a simulated world.
pub(crate) struct SimBench {
    world: World,
    crowd: NodeId,
    /// The host's workers.
    hosts: Vec<NodeId>,
    /// What several workers read together.
    domain: Option<Domain>,
    link: LinkId,
    /// What the host's work costs, and what floods are planned for.
    costs: [CostTable; 2],
    server: ServerConfig,
}

impl SimBench {
    /// Makes the world. Floods are measured on a host with work that costs as `planned`.
    pub(crate) fn start(
        config: &ServerConfig,
        seed: u64,
        [costs, planned]: [CostTable; 2],
    ) -> Result<Self, DrillError> {
        let mut world = World::new(seed);
        let mut random = Randomness::from_number(seed);
        let node = NodeConfig {
            costs,
            ring: RX_RING,
            balance: config.balance(),
            gate: Some(GateConfig::default()),
            application: Some(SimulatedApplication::HUNGRY),
            ..NodeConfig::default()
        };
        let mut shared = None;
        let hosts = if config.workers > 1 {
            let ShardsMade { engines, domain, steering } = shards::make(config, &mut random)?;
            let hosts = world.add_workers("host", engines, &domain, steering, node)?;
            shared = Some(domain);
            hosts
        } else {
            let pool = Pool::new(&config.pool())?;
            let host = ServedCounts::new(config, &pool, &mut random, Instant::ORIGIN, None)?;
            vec![world.add_node_with("host", host, pool, node)]
        };
        let pool = Pool::new(&PoolConfig {
            small: 8 * RX_RING,
            frames: 4 * RX_RING,
            ..PoolConfig::default()
        })?;
        let node = NodeConfig { ring: 4 * RX_RING, ..NodeConfig::free() };
        let crowd = world.add_node_with("crowd", TrafficSource::default(), pool, node);
        world.permit_tcp_fragments(crowd);
        let way = LinkConfig::both(LaneConfig::with_delay(LINK_DELAY));
        // A host has its links by its first worker.
        let first = hosts.first().copied().unwrap_or(crowd);
        let link = world.connect((crowd, IfIndex(1)), (first, IfIndex(1)), way)?;
        let (costs, server) = ([costs, planned], config.clone());
        Ok(Self { world, crowd, hosts, domain: shared, link, costs, server })
    }

    fn look(&self) -> BenchLook {
        let link = self.world.stats(self.link);
        let mut worker = BenchLoop::default();
        for node in self.hosts.iter().map(|id| self.world.node_stats(*id)) {
            // What the world's card still holds has not reached the host; what a gate holds of
            // other workers' has reached it once.
            let held = node.refused + node.crowded_out + node.waiting as u64;
            worker.received += node.packets_in + held - node.handed_held;
            worker.triaged[0] += node.refused;
            worker.triaged[1] += node.crowded_out;
            worker.waiting += node.waiting as u64;
            let ran = worker.application_ran.unwrap_or(Duration::MAX);
            worker.application_ran = Some(ran.min(node.application_ran));
            worker.application_gap = worker.application_gap.max(node.application_gap_max);
            worker.sent += node.packets_out;
            worker.transmitted += node.packets_out;
            worker.lost += node.unlinked;
            worker.longest = worker.longest.max(node.turn_max).max(node.run_max);
        }
        let views = self.hosts.iter().filter_map(|id| self.world.node_ref::<ServedCounts>(*id));
        BenchLook {
            at: self.world.now(),
            worker,
            view: shards::together(views.map(ServedCounts::view)),
            crowd_free: self.world.pool(self.crowd).map(FreeFrames::of).unwrap_or_default(),
            given: link.from_a.delivered,
        }
    }

    fn set_costs(&mut self, costs: CostTable) {
        self.hosts.iter().for_each(|id| self.world.set_costs(*id, costs));
    }

    fn begin(&mut self, stretch: &TrafficStretch) -> Result<(), DrillError> {
        self.world
            .node::<TrafficSource>(self.crowd)
            .map_or(Ok(()), |crowd| crowd.begin(stretch, true))
    }
}

impl DrillBench for SimBench {
    fn run(
        &mut self,
        stretch: &TrafficStretch,
        watch: &mut dyn BenchWatch,
    ) -> Result<BenchOutcome, DrillError> {
        // A measurement is of the machine that floods are planned for.
        let [costs, planned] = self.costs;
        self.set_costs(if stretch.probes { planned } else { costs });
        let first = self.look();
        let lost = self.world.stats(self.link).from_a.dropped();
        self.begin(stretch)?;
        let end = first.at + stretch.length();
        let mut outcome = BenchOutcome::default();
        loop {
            self.world.run_for(SNAPSHOT_STEP);
            let look = self.look();
            if look.at <= end {
                outcome.note(&first, &look);
            }
            watch.look(&look);
            let Some(crowd) = self.world.node_ref::<TrafficSource>(self.crowd) else { break };
            watch.tick(look.at - first.at, crowd.tally());
            if look.at >= end && crowd.is_finished() {
                outcome.seen = crowd.seen();
                break;
            }
        }
        // A world's ring does not report which packets found it full.
        outcome.ring_full.1 = self.world.stats(self.link).from_a.dropped() - lost;
        // What the stretch sent is no burden of the next one's.
        self.settle(crate::honest::ANSWER_TIMEOUT, watch, &|look| {
            look.worker.received >= look.given
        })?;
        self.set_costs(costs);
        Ok(outcome)
    }

    fn settle(
        &mut self,
        at_most: Duration,
        watch: &mut dyn BenchWatch,
        done: &dyn Fn(&BenchLook) -> bool,
    ) -> Result<BenchLook, DrillError> {
        self.begin(&TrafficStretch::default())?;
        let (start, end) = (self.world.now(), self.world.now() + at_most);
        loop {
            // What has not come back at once comes back by timers of seconds.
            let patient = self.world.now() - start > 100 * SNAPSHOT_STEP;
            self.world.run_for(if patient { 50 * SNAPSHOT_STEP } else { SNAPSHOT_STEP });
            let look = self.look();
            watch.look(&look);
            if done(&look) || look.at >= end {
                return Ok(look);
            }
        }
    }

    fn transit(
        &mut self,
        length: Duration,
        load: f64,
        seed: u64,
    ) -> Result<Vec<CrossedPackets>, DrillError> {
        let [costs, _] = self.costs;
        transit::phases(&self.server, costs, (length, load), seed)
    }

    fn shards(&self) -> Vec<ShardReport> {
        if self.hosts.len() < 2 {
            return Vec::new();
        }
        let nanos = self.world.now().as_nanos();
        let report = |(worker, id): (usize, &NodeId)| {
            let node = self.world.node_stats(*id);
            let ran = node.application_ran.as_nanos() * 1000;
            ShardReport {
                worker,
                received: node.packets_in,
                adopted: node.adopted,
                sent: node.packets_out,
                triaged: node.refused + node.crowded_out,
                longest_nanos: node.turn_max.max(node.run_max).as_nanos() as u64,
                application_share: ran.checked_div(u128::from(nanos)).map(|share| share as u64),
            }
        };
        self.hosts.iter().enumerate().map(report).collect()
    }

    fn grace(&self) -> Option<GraceReport> {
        self.domain.as_ref().map(|domain| GraceReport::of(domain, self.world.now()))
    }

    fn now(&self) -> Instant {
        self.world.now()
    }

    fn patience(&self) -> Duration {
        MEMORY_PATIENCE
    }

    fn describe(&self) -> &'static str {
        "simulated world, virtual time"
    }
}
