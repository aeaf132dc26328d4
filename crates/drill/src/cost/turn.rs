//! What a worker's turn really takes under each flood, beside the table's price of it.
//!
//! Called by `cost.rs`. The whole real path on one thread: the crowd of a drill sends a burst over
//! a memory wire, a worker with the drill's host takes it in one turn, which alone is timed, and
//! the crowd takes what came back. Time for the host is made up, so that each flood has the rate
//! that it shall have on a machine of any speed; the clock only measures a turn. Invariant: what is
//! priced is what was timed: the same turns, their packets, bytes and units.

use core::hint::black_box;
use core::time::Duration;

use floodwall_base::limits::BURST_MAX;
use floodwall_base::{IfIndex, Instant, Randomness, Units};
use floodwall_device::{Device, MemoryWire, pair};
use floodwall_dispatch::{Clock, Port, Worker, WorkerConfig, WorkerCounter};
use floodwall_packet::{Burst, Engine, PacketList, Pool, PoolConfig, Round, Triage};
use floodwall_world::{CostTable, Spent};

use crate::error::DrillError;
use crate::flood::{Flood, FloodKind};
use crate::server::{ServedCounts, ServerConfig};
use crate::traffic::{TrafficSource, TrafficStretch};

/// Packets of the wire, each way.
const WIRE_RING: usize = 1024;
/// Packets a second of each flood, in the host's virtual time.
const FLOOD_RATE: u64 = 400_000;
/// In which a burst is due at that rate.
const BURST_STEP: Duration = Duration::from_nanos(64 * 1_000_000_000 / FLOOD_RATE);
/// For how long, in that time: longer than any measurement.
const FLOOD_LENGTH: Duration = Duration::from_secs(3600);
/// Turns before the first that counts: the router is known, tables are as full as they get.
const WARM_UP: usize = 64;
/// Units of work that the crowd does in a turn.
const CROWD_UNITS: Units = Units(256);

/// What some turns did, and how long they took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TurnCost {
    pub(crate) spent: Spent,
    pub(crate) arrived: u64,
    pub(crate) nanos: u64,
}

impl TurnCost {
    /// Nanoseconds for each packet that arrived.
    pub(crate) fn each(&self) -> f64 {
        self.nanos as f64 / self.arrived.max(1) as f64
    }

    /// The table's price of it.
    pub(crate) fn priced(&self, table: &CostTable) -> f64 {
        table.price(&self.spent).0 as f64 / 1000.0 / self.arrived.max(1) as f64
    }
}

/// A host under one flood, turn by turn.
pub(crate) struct TurnCosts {
    crowd: TrafficSource,
    device: MemoryWire,
    worker: Worker<ServedCounts>,
    clock: Clock,
    now: Instant,
    random: Randomness,
    burst: Burst,
    departing: PacketList,
    /// Last, so that every packet above is home before its memory goes.
    pool: Pool,
}

impl TurnCosts {
    /// A host of its own, and its crowd, some turns into the flood; without one, only a router
    /// that is there.
    pub(crate) fn new(
        kind: Option<FloodKind>,
        seed: u64,
        clock: Clock,
    ) -> Result<Self, DrillError> {
        let (ours, theirs) = pair(WIRE_RING);
        let now = Instant::ORIGIN + Duration::from_secs(1);
        let config = ServerConfig::default();
        let mut random = Randomness::from_number(seed);
        let host_pool = Pool::new(&config.pool())?;
        let host = ServedCounts::new(&config, &host_pool, &mut random, now, None)?;
        let ports = vec![Port::new(IfIndex(1), Box::new(theirs))];
        // Each turn finds as much as it can take: a gate would take that for more than can be done.
        let how = WorkerConfig { gate: None, ..WorkerConfig::default() };
        let worker = Worker::new(host, host_pool, random, ports, how)?;
        let mut crowd = TrafficSource::default();
        let flood = kind.map(|kind| Flood { kind, rate: FLOOD_RATE, length: FLOOD_LENGTH, seed });
        crowd.begin(&TrafficStretch { flood, ..TrafficStretch::default() }, true)?;
        let mut turns = Self {
            crowd,
            device: ours,
            worker,
            clock,
            now,
            random: Randomness::from_number(!seed),
            burst: Burst::new(),
            departing: PacketList::new(),
            pool: Pool::new(&PoolConfig {
                small: 4 * WIRE_RING,
                frames: 4 * WIRE_RING,
                ..PoolConfig::default()
            })?,
        };
        turns.some(WARM_UP)?;
        Ok(turns)
    }

    /// So many turns.
    pub(crate) fn some(&mut self, count: usize) -> Result<TurnCost, DrillError> {
        let mut all = TurnCost::default();
        let before = [WorkerCounter::Units, WorkerCounter::RxPackets]
            .map(|fact| self.worker.facts().of(fact));
        for _ in 0..count {
            self.now += BURST_STEP;
            all.spent.bytes += self.send()?;
            let started = self.clock.now();
            self.worker.turn(self.now);
            let ended = self.clock.now();
            all.nanos += (ended - started).as_nanos() as u64;
            let (packets, bytes) = self.receive()?;
            all.spent.packets += packets;
            all.spent.bytes += bytes;
        }
        let [units, arrived] = [WorkerCounter::Units, WorkerCounter::RxPackets]
            .map(|fact| self.worker.facts().of(fact));
        let [units_before, arrived_before] = before;
        all.spent.wake_ups = count as u64;
        all.arrived = arrived - arrived_before;
        all.spent.packets += all.arrived;
        all.spent.units = Units(u32::try_from(units - units_before).unwrap_or(u32::MAX));
        Ok(all)
    }

    /// Nanoseconds of one look of the triage at the flood's next packets, which are lost by that.
    pub(crate) fn look(&mut self) -> f64 {
        self.now += BURST_STEP;
        if self.crowd.deadline().is_some_and(|deadline| deadline <= self.now) {
            self.call(TrafficSource::work);
        }
        let mut burst = Burst::new();
        while let Some(mut packet) = self.departing.pop_front() {
            packet.set_iface(IfIndex(1));
            if burst.push(packet).is_err() {
                break;
            }
        }
        let mut classes = [Triage::Unknown; BURST_MAX];
        let started = self.clock.now();
        if let Some(host) = self.worker.engine() {
            host.classify(black_box(&burst), &mut classes);
        }
        let took = self.clock.now() - started;
        black_box(classes);
        took.as_nanos() as f64 / burst.len().max(1) as f64
    }

    /// Puts a burst into the wire; returns its bytes.
    fn send(&mut self) -> Result<u64, DrillError> {
        if self.crowd.deadline().is_some_and(|deadline| deadline <= self.now) {
            self.call(TrafficSource::work);
        }
        let bytes = self.departing.iter().map(|packet| packet.len() as u64).sum();
        self.device.transmit(&mut self.departing)?;
        drop(self.departing.take());
        Ok(bytes)
    }

    /// Takes what came back: packets and bytes.
    fn receive(&mut self) -> Result<(u64, u64), DrillError> {
        let (mut packets, mut bytes) = (0, 0);
        while self.device.receive(&self.pool, &mut self.burst)? > 0 {
            packets += self.burst.len() as u64;
            bytes += self.burst.iter().map(|packet| packet.len() as u64).sum::<u64>();
            self.call(TrafficSource::round);
        }
        Ok((packets, bytes))
    }

    fn call(&mut self, call: impl FnOnce(&mut TrafficSource, &mut Round<'_>) -> Units) {
        call(
            &mut self.crowd,
            &mut Round {
                now: self.now,
                pool: &self.pool,
                random: &mut self.random,
                arrived: &mut self.burst,
                departing: &mut self.departing,
                budget: CROWD_UNITS,
                peers: None,
            },
        );
    }
}
