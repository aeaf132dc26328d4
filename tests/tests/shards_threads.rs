//! One host on several real threads: a worker group of workers with a shard each, over memory
//! wires.
//!
//! Echoes over UDP and pings of both families come back from the worker that owns them, whichever
//! worker's device they arrive at; at rest the ledgers of all shards balance.
#![expect(clippy::disallowed_methods, reason = "the far ends of the wires are the test's thread")]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use floodwall_base::{DropReason, Family, IfIndex, MacAddr, Steering, WorkerId};
use floodwall_device::{Device, Medium, MemoryWire, WireConfig, pair_of};
use floodwall_dispatch::{
    Clock, OnPanic, Port, Setting, Shown, Stop, WorkerCounter, WorkerError, WorkerGroup,
    WorkerGroupConfig, WorkerGroupError, WorkerSlot,
};
use floodwall_packet::{Burst, PacketList, Pool, PoolConfig};
use floodwall_services::{ServiceKind, UdpService};
use floodwall_stack::{Application, Host, Seats, Stack, StackConfig, Stats, accounts_needed};
use floodwall_tests::craft::{self, FAMILIES, HOST, PEER, addr, from_peer, mac};
use floodwall_tests::{Fault, bytes_of, ethernet_config};
use floodwall_wire::steer;

const ECHO: u16 = 7000;
/// A datagram to this port makes its shard panic.
const FAULT: u16 = 7666;
const PATIENCE: Duration = Duration::from_secs(30);

/// Makes the engine of each worker, at the start and after a panic.
fn maker(
    config: StackConfig,
    seats: Seats,
) -> impl Fn(&mut Setting<'_>) -> Result<Shown<Host>, String> + Send + Sync {
    move |setting| {
        let seat = seats.take(setting.worker).map_err(|e| e.to_string())?;
        let Setting { pool, random, now, .. } = setting;
        let stack = Stack::seated(&config, seat, random, *now).map_err(|e| e.to_string())?;
        let service = Box::new(UdpService::new(ServiceKind::Echo, ECHO));
        let programs: Vec<Box<dyn Application>> = vec![Box::new(Fault::new(FAULT)), service];
        let host = Host::with_stack(stack, programs, pool, random, *now);
        host.map(Shown::silent).map_err(|e| e.to_string())
    }
}

/// A worker group of that many workers, each with a wire; the far ends are the peer's.
struct Bench {
    group: WorkerGroup<Shown<Host>>,
    stop: Stop,
    far: Vec<MemoryWire>,
    pool: Pool,
    burst: Burst,
    steering: Steering,
}

impl Bench {
    fn new(workers: usize) -> Self {
        let wire = WireConfig { capacity: 1024, medium: Medium::Ethernet, ..WireConfig::default() };
        let (near, far): (Vec<_>, Vec<_>) = (0..workers).map(|_| pair_of(wire.clone())).unzip();
        let slot =
            |near| WorkerSlot { core: None, ports: vec![Port::new(IfIndex(1), Box::new(near))] };
        let group =
            WorkerGroupConfig::new(near.into_iter().map(slot).collect()).expect("randomness");
        let config = ethernet_config(HOST);
        let accounts = accounts_needed(&config);
        let memory = PoolConfig { accounts, ..group.memory };
        let group = WorkerGroupConfig { memory, on_panic: OnPanic::Isolate, ..group };
        let mut random = floodwall_base::Randomness::from_number(1);
        let seats = Seats::new(&config, &group.domain, group.steering, &mut random.secret);
        let steering = group.steering;
        let stop = Stop::new().expect("a descriptor");
        let group = WorkerGroup::start(group, &stop, maker(config, seats)).expect("a worker group");
        let pool = Pool::new(&PoolConfig::default()).expect("memory");
        Self { group, stop, far, pool, burst: Burst::new(), steering }
    }

    /// Sends a frame to the device of one worker.
    fn send(&mut self, worker: usize, frame: &[u8]) {
        let mut list = PacketList::new();
        list.push_back(self.pool.packet_from(frame).expect("memory"));
        while self.far[worker].transmit(&mut list).expect("a wire") == 0 && !list.is_empty() {
            thread::yield_now();
        }
        self.group.seats()[worker].bell.ring();
    }

    /// What the host sent since the last call. Questions for the peer's link address are answered.
    fn receive(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        for far in &mut self.far {
            far.receive(&self.pool, &mut self.burst).expect("a wire");
            frames.extend(self.burst.drain().map(|packet| bytes_of(&packet)));
        }
        for family in FAMILIES {
            if frames.iter().any(|frame| asks(frame, family)) {
                // At whichever worker's device: the control shard is to have it.
                let last = self.far.len() - 1;
                self.send(last, &craft::neighbor_answer(family, PEER));
            }
        }
        frames
    }

    /// The frame of the peer's datagram to a port, of a flow that one worker owns.
    fn told(&self, worker: u16, family: Family, port: u16) -> Vec<u8> {
        let to = SocketAddr::new(addr(family, HOST), port);
        let one = |from| craft::udp((addr(family, PEER), from).into(), to, b"told");
        let is_his = |packet: &Vec<u8>| steer::packet(&self.steering, packet).0 == worker;
        from_peer(&(2000..).map(one).find(is_his).expect("a flow of each worker's"))
    }

    fn stats(&self) -> Vec<Stats> {
        let seats = self.group.seats().iter();
        let ask = |control: &floodwall_dispatch::Control<Shown<Host>>| {
            control.ask(PATIENCE, |desk| desk.engine.engine.stack().stats()).expect("it answers")
        };
        seats.map(|seat| ask(&seat.control)).collect()
    }

    fn end(self) {
        let stats = self.stats();
        for (worker, stats) in stats.iter().enumerate() {
            assert!(stats.conservation().holds(), "worker {worker}: {:?}", stats.conservation());
        }
        let sum = |what: fn(&Stats) -> u64| stats.iter().map(what).sum::<u64>();
        let handed = sum(|s| s.outcomes.handed_in + s.outcomes.handed_out);
        let adopted = sum(|s| s.outcomes.adopted_in + s.outcomes.adopted_out);
        assert_eq!(sum(|s| s.outcomes.handed_out), sum(|s| s.outcomes.adopted_out));
        self.stop.trigger();
        let ended = self.group.join().expect("they end as asked");
        assert!(ended.is_conserved() && ended.in_rings == 0, "{ended:?}");
        // Workers hand over frames that came by another's device before any shard sees them.
        assert_eq!(adopted, ended.sum(WorkerCounter::Adopted));
        assert_eq!(
            handed + ended.sum(WorkerCounter::RxForeign),
            ended.sum(WorkerCounter::HandedOver)
        );
        let foreign = ended.sum(WorkerCounter::RxForeign);
        assert!(handed > 0 && foreign > 100, "{handed} handed over by shards, {foreign} before");
    }
}

/// Whether a frame solicits the peer's link address.
fn asks(frame: &[u8], family: Family) -> bool {
    match family {
        Family::V4 => frame[12..14] == [8, 6] && frame[38..42] == [10, 0, 0, PEER],
        Family::V6 => {
            frame[12..14] == [0x86, 0xdd] && frame[20] == 58 && frame.get(54) == Some(&135)
        }
    }
}

/// The port of an answer to the peer, or 0 for an echo reply.
fn answer(frame: &[u8]) -> Option<u16> {
    let (protocol, l4) = match frame[12..14] {
        [8, 0] => (frame[23], 34),
        [0x86, 0xdd] => (frame[20], 54),
        _ => return None,
    };
    let to_peer = MacAddr(*frame.first_chunk()?) == mac(PEER);
    match (protocol, frame[l4]) {
        _ if !to_peer => None,
        (17, _) => Some(u16::from_be_bytes([frame[l4 + 2], frame[l4 + 3]])),
        (1, 0) | (58, 129) => Some(0),
        _ => None,
    }
}

fn echoes(workers: usize) {
    let mut bench = Bench::new(workers);
    first(&mut bench, workers as u16 - 1);
    ask(&mut bench, workers);
    bench.end();
}

/// A follower's first answer: the peer's link address is not known yet, so that the control shard
/// must resolve it. What comes after may find the address published.
fn first(bench: &mut Bench, follower: u16) {
    let clock = Clock::new();
    let end = clock.now() + PATIENCE;
    for family in FAMILIES {
        // Once: no worker takes anything in before it has received the host's addresses.
        let question = bench.told(follower, family, ECHO);
        bench.send(usize::from(follower), &question);
        let is_answer = |frame: &Vec<u8>| answer(frame).is_some_and(|port| port >= 2000);
        while !bench.receive().iter().any(is_answer) {
            assert!(clock.now() < end, "{family:?}: no answer to the first question");
            thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Every question of a few hundred flows is answered.
fn ask(bench: &mut Bench, workers: usize) {
    let clock = Clock::new();
    for family in FAMILIES {
        let mut missing: BTreeSet<u16> = (3000..3400).chain([0]).collect();
        let end = clock.now() + PATIENCE;
        // What waits for a link address may be pushed out: a request without an answer is sent
        // again, as by a client, by another device.
        for device in (0..workers).cycle() {
            for port in missing.clone() {
                let packet = match port {
                    0 => craft::echo(addr(family, PEER), addr(family, HOST), b"alive?"),
                    port => {
                        let to = SocketAddr::new(addr(family, HOST), ECHO);
                        craft::udp((addr(family, PEER), port).into(), to, &port.to_be_bytes())
                    }
                };
                bench.send(device, &from_peer(&packet));
            }
            for _ in 0..200 {
                let frames = bench.receive();
                frames.iter().filter_map(|frame| answer(frame)).for_each(|port| {
                    missing.remove(&port);
                });
                if missing.is_empty() {
                    break;
                }
                thread::sleep(Duration::from_micros(200));
            }
            if missing.is_empty() {
                break;
            }
            assert!(clock.now() < end, "{family:?}: no answer to {missing:?}");
        }
    }
    // Late answers, and what is between workers.
    thread::sleep(Duration::from_millis(100));
    bench.receive();
    for (worker, stats) in bench.stats().iter().enumerate() {
        assert!(stats.outcomes.delivered > 20, "worker {worker}: {:?}", stats.outcomes);
    }
}

#[test]
fn two_workers_answer_both_families_whichever_device_a_question_comes_by() {
    echoes(2);
}

#[test]
fn four_workers_answer_both_families_whichever_device_a_question_comes_by() {
    echoes(4);
}

#[test]
fn a_follower_that_panics_begins_again_in_its_place_and_the_others_go_on() {
    const WORKERS: usize = 3;
    let mut bench = Bench::new(WORKERS);
    first(&mut bench, 2);
    ask(&mut bench, WORKERS);
    let reader = bench.group.reader();
    for (round, family) in FAMILIES.into_iter().cycle().take(4).enumerate() {
        let before = bench.stats();
        // By the devices of others, too.
        let fault = bench.told(2, family, FAULT);
        bench.send(round % WORKERS, &fault);
        let panics = || reader.read()[2].facts.of(WorkerCounter::Panics);
        for _ in 0..10_000 {
            if panics() > round as u64 {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(panics(), round as u64 + 1);
        ask(&mut bench, WORKERS);
        let after = bench.stats();
        for (worker, (before, after)) in before.iter().zip(&after).enumerate() {
            let grown = after.outcomes.received + after.outcomes.adopted_in;
            assert!(
                grown > before.outcomes.received + before.outcomes.adopted_in,
                "worker {worker}"
            );
            assert!(
                after.outcomes.delivered > before.outcomes.delivered,
                "worker {worker} counts on"
            );
            assert!(after.conservation().holds(), "worker {worker}: {:?}", after.conservation());
        }
    }
    let facts: Vec<_> = reader.read().into_iter().map(|published| published.facts).collect();
    let of = |fact| facts.iter().map(|facts| facts.of(fact)).collect::<Vec<_>>();
    assert_eq!(
        (of(WorkerCounter::Panics), of(WorkerCounter::Restarts)),
        (vec![0, 0, 4], vec![0, 0, 4])
    );
    let stats = bench.stats();
    assert!(stats.iter().all(|stats| stats.drops_in.of(DropReason::ShardPanicked) == 0));
    bench.end();
}

#[test]
fn the_control_shards_panic_ends_the_group_in_words() {
    let mut bench = Bench::new(2);
    let fault = bench.told(0, Family::V4, FAULT);
    bench.send(0, &fault);
    let error = bench.group.join().expect_err("the worker group has ended");
    let WorkerGroupError::Worker { worker: WorkerId(0), error: WorkerError::NotMade(words) } =
        &error
    else {
        panic!("{error}");
    };
    assert!(words.contains("the control shard cannot begin again"), "{words}");
}
