//! One host on several real threads: a crew of workers with a shard each, over memory wires.
//!
//! Echoes over UDP and pings of both families come back from the worker that owns them, whichever
//! worker's device they arrive at; at rest the ledgers of all shards balance.
#![expect(clippy::disallowed_methods, reason = "the far ends of the wires are the test's thread")]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use floodwall_base::{Family, IfIndex, Instant, MacAddr, Units};
use floodwall_device::{Device, Medium, MemoryWire, WireConfig, pair_of};
use floodwall_dispatch::{Berth, Clock, Crew, CrewConfig, Fact, Port, Publish, Setting, Stop};
use floodwall_packet::{Burst, Engine, HandoffList, PacketList, Pool, PoolConfig, Round, Triage};
use floodwall_stack::services::{ServiceKind, UdpService};
use floodwall_stack::{Host, Seat, Stack, StackConfig, Stats, accounts_needed, seats};
use floodwall_tests::craft::{self, FAMILIES, HOST, PEER, addr, from_peer, mac};
use floodwall_tests::{bytes_of, ethernet_config};

const ECHO: u16 = 7000;
const PATIENCE: Duration = Duration::from_secs(30);

/// A shard and its programs, under a worker.
struct Hosted(Host);

impl Engine for Hosted {
    fn round(&mut self, round: &mut Round<'_>) -> Units {
        self.0.round(round)
    }
    fn work(&mut self, round: &mut Round<'_>) -> Units {
        self.0.work(round)
    }
    fn adopt(&mut self, round: &mut Round<'_>, handed: &mut HandoffList) -> Units {
        self.0.adopt(round, handed)
    }
    fn departed(&mut self) {
        self.0.departed();
    }
    fn rests(&mut self) -> bool {
        self.0.rests()
    }
    fn deadline(&self) -> Option<Instant> {
        self.0.deadline()
    }
    fn classify(&self, burst: &Burst, classes: &mut [Triage]) {
        self.0.classify(burst, classes);
    }
}

impl Publish for Hosted {
    fn words(&self, _: &mut [u64]) {}
}

/// Makes the engine of each worker, from seats that were made together.
fn maker(
    config: StackConfig,
    seated: Vec<Seat>,
) -> impl Fn(&mut Setting<'_>) -> Result<Hosted, String> + Send + Sync {
    let seated = Mutex::new(seated.into_iter().map(Some).collect::<Vec<_>>());
    move |setting| {
        let at = usize::from(setting.worker.0);
        let seat = seated.lock().ok().and_then(|mut all| all.get_mut(at)?.take());
        let seat = seat.ok_or("a shard is made once")?;
        let Setting { pool, random, now, .. } = setting;
        let stack = Stack::seated(&config, seat, random, *now).map_err(|e| e.to_string())?;
        let service = Box::new(UdpService::new(ServiceKind::Echo, ECHO));
        let host = Host::with_stack(stack, vec![service], pool, random, *now);
        host.map(Hosted).map_err(|e| e.to_string())
    }
}

/// A crew of that many workers, each with a wire; the far ends are the peer's.
struct Bench {
    crew: Crew<Hosted>,
    stop: Stop,
    far: Vec<MemoryWire>,
    pool: Pool,
    burst: Burst,
}

impl Bench {
    fn new(workers: usize) -> Self {
        let wire = WireConfig { capacity: 1024, medium: Medium::Ethernet, ..WireConfig::default() };
        let (near, far): (Vec<_>, Vec<_>) = (0..workers).map(|_| pair_of(wire.clone())).unzip();
        let berth = |near| Berth { core: None, ports: vec![Port::new(IfIndex(1), Box::new(near))] };
        let crew = CrewConfig::new(near.into_iter().map(berth).collect()).expect("randomness");
        let config = ethernet_config(HOST);
        let accounts = accounts_needed(&config);
        let crew = CrewConfig { memory: PoolConfig { accounts, ..crew.memory }, ..crew };
        let mut random = floodwall_base::Randomness::from_number(1);
        let seated = seats(&config, &crew.domain, crew.steering, &mut random.secret);
        let stop = Stop::new().expect("a descriptor");
        let crew = Crew::start(crew, &stop, maker(config, seated)).expect("a crew");
        let pool = Pool::new(&PoolConfig::default()).expect("memory");
        Self { crew, stop, far, pool, burst: Burst::new() }
    }

    /// Sends a frame to the device of one worker.
    fn send(&mut self, worker: usize, frame: &[u8]) {
        let mut list = PacketList::new();
        list.push_back(self.pool.packet_from(frame).expect("memory"));
        while self.far[worker].transmit(&mut list).expect("a wire") == 0 && !list.is_empty() {
            thread::yield_now();
        }
        self.crew.seats()[worker].bell.ring();
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

    fn stats(&self) -> Vec<Stats> {
        let seats = self.crew.seats().iter();
        let ask = |control: &floodwall_dispatch::Control<Hosted>| {
            control.ask(PATIENCE, |desk| desk.engine.0.stack().stats()).expect("it answers")
        };
        seats.map(|seat| ask(&seat.control)).collect()
    }

    fn end(self) {
        let stats = self.stats();
        for (worker, stats) in stats.iter().enumerate() {
            assert!(stats.conservation().holds(), "worker {worker}: {:?}", stats.conservation());
        }
        let sum = |what: fn(&Stats) -> u64| stats.iter().map(what).sum::<u64>();
        let handed = sum(|s| s.fates.handed_in + s.fates.handed_out);
        let adopted = sum(|s| s.fates.adopted_in + s.fates.adopted_out);
        assert_eq!(sum(|s| s.fates.handed_out), sum(|s| s.fates.adopted_out));
        self.stop.trigger();
        let ended = self.crew.join().expect("they end as asked");
        assert!(ended.is_conserved() && ended.in_rings == 0, "{ended:?}");
        // Workers hand over frames that came by another's device before any shard sees them.
        assert_eq!(adopted, ended.sum(Fact::Adopted));
        assert_eq!(handed + ended.sum(Fact::RxForeign), ended.sum(Fact::HandedOver));
        assert!(handed > 0 && ended.sum(Fact::RxForeign) > 100);
    }
}

/// Whether a frame asks for the peer's link address.
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
    let clock = Clock::new();
    for family in FAMILIES {
        let mut missing: BTreeSet<u16> = (3000..3400).chain([0]).collect();
        let end = clock.now() + PATIENCE;
        // What waits for a link address may be pushed out: who got no answer asks again, as a
        // client would, by another device.
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
        assert!(stats.fates.delivered > 20, "worker {worker}: {:?}", stats.fates);
    }
    bench.end();
}

#[test]
fn two_workers_answer_both_families_whichever_device_a_question_comes_by() {
    echoes(2);
}

#[test]
fn four_workers_answer_both_families_whichever_device_a_question_comes_by() {
    echoes(4);
}
