//! A worker's turn allocates nothing, busy or idle: counted by the allocator itself.

use floodwall_base::limits::BURST_MAX;
use floodwall_base::{IfIndex, Instant, Randomness, Units};
use floodwall_device::{Device, pair};
use floodwall_dispatch::{Port, Publish, Worker, WorkerConfig, WorkerCounter};
use floodwall_packet::{Burst, Engine, PacketList, Pool, PoolConfig, Round, Triage};
use floodwall_testkit::alloc::{CountingAllocator, counted};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Sends everything back.
struct Echo;

impl Engine for Echo {
    fn round(&mut self, round: &mut Round<'_>) -> Units {
        round.arrived.drain().for_each(|packet| round.departing.push_back(packet));
        Units(1)
    }

    fn work(&mut self, _: &mut Round<'_>) -> Units {
        Units(1)
    }

    fn deadline(&self) -> Option<Instant> {
        Some(Instant::ORIGIN)
    }

    fn classify(&self, _: &Burst, _: &mut [Triage]) {}
}

impl Publish for Echo {
    fn words(&self, _: &mut [u64]) {}
}

#[test]
fn a_turn_allocates_nothing_whether_packets_come_or_not() {
    let pool = Pool::new(&PoolConfig { frames: 2048, small: 2048, ..PoolConfig::default() });
    let pool = pool.unwrap();
    let (near, mut far) = pair(8 * BURST_MAX);
    let mut burst = Burst::new();
    let mut list = PacketList::new();
    for _ in 0..4 * BURST_MAX {
        list.push_back(pool.packet_from(&[7; 60]).unwrap());
    }
    let ports = vec![Port::new(IfIndex(1), Box::new(near))];
    // A second pool for the worker: the first one's packets only pass through it.
    let own = Pool::new(&PoolConfig::default()).unwrap();
    let random = Randomness::from_number(1);
    let mut worker = Worker::new(Echo, own, random, ports, WorkerConfig::default()).unwrap();
    let mut turns = || {
        far.transmit(&mut list).unwrap();
        for _ in 0..8 {
            worker.turn(Instant::ORIGIN);
        }
        while far.receive(&pool, &mut burst).unwrap() > 0 {
            burst.drain().for_each(|packet| list.push_back(packet));
        }
    };
    turns();
    let (count, ()) = counted(|| (0..100).for_each(|_| turns()));
    assert_eq!(count.allocations, 0);
    let carried = worker.facts().of(WorkerCounter::TxPackets);
    assert_eq!(carried, 101 * 4 * BURST_MAX as u64, "and every packet went round");
}
