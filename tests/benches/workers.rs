//! What a packet costs on two workers compared with one: a UDP echo service, and a router with the
//! whole Internet's table; whole host, memory wires; CPU time of the workers' own threads.
//!
//! Run: `cargo bench -p floodwall-tests --bench workers`. A batch of requests of both families is
//! ready in each worker's wire before its bell is rung, so that no worker waits for this thread;
//! what counts is the thread CPU time that the workers spend until the last answer, the one wake-up
//! of each included. Every answer is counted and looked at. The router passes frames of 64 bytes on
//! to random addresses within random prefixes, from the wire of one interface to that of another.
//! *Keyed*: each request is in the wire of its flow's owner, as a card with our RSS key would do.
//! *Half handed over*: every other one is in the wrong wire; these batches are small, so that the
//! rings between the workers never overflow, and are compared with as small batches on one worker.
//! *Two hosts* of one worker each, which share nothing but the machine, work at the same time: what
//! they cost more than one alone is the machine's (its cores' common memory, caches, power), and
//! the floor for two workers of one host. Rounds are interleaved, medians reported.
#![expect(clippy::unwrap_used, reason = "a bench stops at the first surprise")]
#![expect(clippy::disallowed_methods, reason = "a bench waits for the workers' threads")]

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Mutex;
use std::time::Duration;

use floodwall_base::{IfIndex, PublicRandom, Steering, WorkerId};
use floodwall_device::{Device, Medium, MemoryWire, WireConfig, pair_of};
use floodwall_dispatch::{
    OnPanic, Port, Shown, Stop, WorkerGroup, WorkerGroupConfig, WorkerGroupEnded, WorkerSeat,
    WorkerSlot, entropy, pin,
};
use floodwall_packet::{Burst, PacketBuf, PacketList, Pool, PoolConfig};
use floodwall_services::{ServiceKind, UdpService};
use floodwall_stack::{Host, InterfaceConfig, LinkMedium, Stack, StackConfig, accounts_needed};
use floodwall_tests::craft::{self, FAMILIES};
use floodwall_tests::internet::{FIRST, NEIGHBORS, PROTOCOL, fill, frames, prefixes};
use floodwall_tests::transit::{RIGHT, right, right_mac, router_config};
use floodwall_wire::steer;
use rustix::time::{ClockId, clock_gettime};

/// Requests in a large batch of one worker, and in a small one.
const LARGE: usize = 8192;
const SMALL: usize = 512;
const ROUNDS: usize = 41;

/// What the workers do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Duty {
    /// They answer datagrams.
    Echo,
    /// They pass frames on.
    Route,
}

/// Prefixes of the router's table, of each family: all.
const ROUTES: usize = usize::MAX;

impl Duty {
    const fn medium(self) -> Medium {
        match self {
            Self::Echo => Medium::Ip,
            Self::Route => Medium::Ethernet,
        }
    }

    fn config(self) -> StackConfig {
        match self {
            Self::Echo => echo_config(),
            Self::Route => {
                let config = router_config();
                StackConfig { routes: Vec::new(), routes_max: 1_100_000, ..config }
            }
        }
    }

    /// What its host has from the start.
    fn programs(self) -> Vec<Box<dyn floodwall_stack::Application>> {
        match self {
            Self::Echo => vec![Box::new(UdpService::new(ServiceKind::Echo, 7))],
            Self::Route => Vec::new(),
        }
    }

    /// The configuration of the control shard.
    fn tell(self, stack: &mut Stack, now: floodwall_base::Instant) {
        if self == Self::Echo {
            return;
        }
        for family in FAMILIES {
            for n in FIRST..FIRST + NEIGHBORS {
                stack.add_neighbor(RIGHT, right(family, n), right_mac(n), now).unwrap();
            }
        }
        fill(stack.routes_v4_mut(), &prefixes(ROUTES), now);
        fill(stack.routes_v6_mut(), &prefixes(ROUTES), now);
        stack.routes_changed();
    }

    /// The requests, of both families in turn.
    fn requests(self) -> Vec<Vec<u8>> {
        if self == Self::Echo {
            return (0..1024_u16).map(question).collect();
        }
        let mut random = PublicRandom::new(9);
        let (v4, _) = frames::<Ipv4Addr>(&prefixes(ROUTES), LARGE, &mut random);
        let (v6, _) = frames::<Ipv6Addr>(&prefixes(ROUTES), LARGE, &mut random);
        v4.into_iter().zip(v6).flat_map(<[_; 2]>::from).collect()
    }

    fn owner(self, steering: &Steering, request: &[u8]) -> usize {
        let owner = match self {
            Self::Echo => steer::packet(steering, request),
            Self::Route => steer::frame(steering, request),
        };
        usize::from(owner.0)
    }

    /// Whether it is an answer; other packets of a router are ignored.
    fn is_answer(self, packet: &PacketBuf) -> bool {
        let bytes = packet.first();
        if self == Self::Echo {
            let ports = if bytes[0] >> 4 == 4 { 20 } else { 40 };
            assert!(bytes[ports..].starts_with(&[0, 7]) && bytes.ends_with(&[0x5a; 64]));
            return true;
        }
        let protocol = if bytes[14] >> 4 == 4 { bytes[14 + 9] } else { bytes[14 + 6] };
        let passed = (FIRST..FIRST + NEIGHBORS).any(|n| bytes.starts_with(&right_mac(n).0));
        passed && protocol == PROTOCOL.0
    }
}

/// Workers side by side, each with a wire: of one worker group, or each a host of its own.
struct Bench {
    duty: Duty,
    groups: Vec<(WorkerGroup<Shown<Host>>, Stop)>,
    /// Where requests come from, for each worker.
    far: Vec<MemoryWire>,
    /// Where a router's go to.
    beyond: Vec<MemoryWire>,
    /// The stations' memory, one home for the requests of each worker: else the workers would meet
    /// on the one word by which frames go home, which is this bench's and no device's.
    pools: Vec<Pool>,
    /// Requests by owner.
    owned: Vec<Vec<Vec<u8>>>,
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned() as u32)
}

fn echo_config() -> StackConfig {
    let interface = InterfaceConfig {
        name: "wire".to_owned(),
        medium: LinkMedium::Ip,
        mtu: 1500,
        addresses: ["10.0.0.2/24", "fd00::2/64"].map(|text| text.parse().unwrap()).into(),
        gateways: Vec::new(),
        dhcp: false,
        accept_ra: false,
        autoconf: false,
        ..InterfaceConfig::default()
    };
    StackConfig { interfaces: vec![interface], ..StackConfig::default() }
}

fn question(n: u16) -> Vec<u8> {
    let ends: (SocketAddr, SocketAddr) = match n % 2 {
        0 => (([10, 0, 0, 1], 2000 + n).into(), ([10, 0, 0, 2], 7).into()),
        _ => {
            let from = format!("[fd00::1]:{}", 2000 + n);
            (from.parse().unwrap(), "[fd00::2]:7".parse().unwrap())
        }
    };
    craft::udp(ends.0, ends.1, &[0x5a; 64])
}

/// `groups` hosts of so many workers each, all on cores of their own.
fn bench(duty: Duty, groups: usize, workers: usize) -> Bench {
    let mut bench = Bench {
        duty,
        groups: Vec::new(),
        far: Vec::new(),
        beyond: Vec::new(),
        pools: Vec::new(),
        owned: Vec::new(),
    };
    let cores = pin::cores_for(groups * workers).ok();
    for number in 0..groups {
        let own = |cores: &Vec<usize>| cores[number * workers..][..workers].to_vec();
        bench.add(workers, cores.as_ref().map(own));
    }
    bench
}

impl Bench {
    fn add(&mut self, workers: usize, cores: Option<Vec<usize>>) {
        let (group, stop, far, steering) = group(self.duty, workers, cores);
        self.groups.push((group, stop));
        for mut wires in far {
            self.far.push(wires.remove(0));
            self.beyond.extend(wires);
        }
        let pool = PoolConfig { small: 8 * LARGE, frames: 64, ..PoolConfig::default() };
        self.pools.extend((0..workers).map(|_| Pool::new(&pool).unwrap()));
        let mut owned = vec![Vec::new(); workers];
        for request in self.duty.requests() {
            owned[self.duty.owner(&steering, &request)].push(request);
        }
        self.owned.extend(owned);
    }
}

/// One host, and the far ends of its workers' wires.
fn group(
    duty: Duty,
    workers: usize,
    cores: Option<Vec<usize>>,
) -> (WorkerGroup<Shown<Host>>, Stop, Vec<Vec<MemoryWire>>, Steering) {
    let stack = duty.config();
    let ports = stack.interfaces.len();
    let wire = |_| {
        let (capacity, medium) = (2 * LARGE, duty.medium());
        pair_of(WireConfig { capacity, medium, ..WireConfig::default() })
    };
    let wires = |_| (0..ports).map(wire).unzip();
    let (near, far): (Vec<Vec<_>>, Vec<Vec<_>>) = (0..workers).map(wires).unzip();
    let port = |(at, near): (usize, MemoryWire)| Port::new(IfIndex(at as u16 + 1), Box::new(near));
    let slot = |(number, near): (usize, Vec<MemoryWire>)| WorkerSlot {
        core: cores.as_ref().map(|cores| cores[number]),
        ports: near.into_iter().enumerate().map(port).collect(),
    };
    let group = WorkerGroupConfig::new(near.into_iter().enumerate().map(slot).collect()).unwrap();
    let mut group = WorkerGroupConfig {
        memory: PoolConfig {
            small: 4 * LARGE * workers,
            frames: 4 * LARGE * workers,
            accounts: accounts_needed(&stack),
            ..PoolConfig::default()
        },
        on_panic: OnPanic::EndGroup,
        ..group
    };
    group.worker.look_every = Duration::from_secs(3600);
    // A batch that is ready is pressure: the order of service is not measured here.
    group.worker.gate = None;
    let mut random = entropy::randomness().unwrap();
    let steering = group.steering;
    let seats = floodwall_stack::seats(&stack, &group.domain, steering, &mut random.secret);
    let seats: Vec<_> = seats.into_iter().map(|seat| Mutex::new(Some(seat))).collect();
    let stop = Stop::new().unwrap();
    let group = WorkerGroup::start(group, &stop, move |setting| {
        let seat = seats[usize::from(setting.worker.0)].lock().unwrap().take().unwrap();
        let mut stack = Stack::seated(&stack, seat, setting.random, setting.now).unwrap();
        if setting.worker == WorkerId::CONTROL {
            duty.tell(&mut stack, setting.now);
        }
        let programs = duty.programs();
        let host = Host::with_stack(stack, programs, setting.pool, setting.random, setting.now);
        host.map(Shown::silent).map_err(|error| error.to_string())
    });
    (group.unwrap(), stop, far, steering)
}

impl Bench {
    fn cpu(&self) -> Duration {
        let patience = Duration::from_secs(10);
        self.seats().map(|s| s.control.ask(patience, |_| cpu_time()).unwrap()).sum()
    }

    /// A batch for each worker, of which one in `wrong_every` is in another's wire. Returns the
    /// nanoseconds of a packet.
    fn batch(&mut self, size: usize, wrong_every: Option<usize>) -> f64 {
        let workers = self.far.len();
        let before = self.cpu();
        // They look around for a moment before they sleep again.
        std::thread::sleep(Duration::from_millis(1));
        for (owner, requests) in self.owned.iter().enumerate() {
            let mut lists: Vec<_> = (0..workers).map(|_| PacketList::new()).collect();
            for (n, request) in requests.iter().cycle().take(size).enumerate() {
                let is_wrong = wrong_every.is_some_and(|every| n % every == 0);
                let wire = (owner + usize::from(is_wrong)) % workers;
                lists[wire].push_back(self.pools[owner].packet_from(request).unwrap());
            }
            for (far, list) in self.far.iter_mut().zip(&mut lists) {
                far.transmit(list).unwrap();
                assert!(list.is_empty(), "the wire has room");
            }
        }
        self.seats().for_each(|seat| seat.bell.ring());
        let expected = workers * size;
        let mut burst = Burst::new();
        let mut back = 0;
        let mut patience = 4_000;
        while back < expected {
            std::thread::sleep(Duration::from_micros(500));
            patience -= 1;
            assert!(patience > 0, "{back} of {expected} answers: {}", self.losses());
            for far in self.far.iter_mut().chain(&mut self.beyond) {
                while far.receive(&self.pools[0], &mut burst).unwrap() > 0 {
                    back += burst.drain().filter(|packet| self.duty.is_answer(packet)).count();
                }
            }
        }
        let spent = self.cpu() - before;
        spent.as_nanos() as f64 / expected as f64
    }

    /// What each worker dropped, by its names.
    fn losses(&self) -> String {
        let of = |seat: &WorkerSeat<Shown<Host>>| {
            let facts = seat.reader.read().facts;
            let lost: Vec<_> =
                facts.named().filter(|(name, n)| *n > 0 && name.starts_with("drops_")).collect();
            let stats = seat.control.ask(Duration::from_secs(10), |desk| {
                let stats = desk.engine.engine.stack().stats();
                let drops = stats.drops_in.nonzero().chain(stats.drops_out.nonzero());
                drops.map(|(reason, n)| (reason.name(), n)).collect::<Vec<_>>()
            });
            format!("{lost:?} {stats:?}")
        };
        self.seats().map(of).collect::<Vec<_>>().join("; ")
    }

    fn seats(&self) -> impl Iterator<Item = &WorkerSeat<Shown<Host>>> {
        self.groups.iter().flat_map(|(group, _)| group.seats())
    }

    fn end(self) -> Vec<WorkerGroupEnded> {
        let end = |(group, stop): (WorkerGroup<Shown<Host>>, Stop)| {
            stop.trigger();
            group.join().unwrap()
        };
        self.groups.into_iter().map(end).collect()
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    for duty in [Duty::Echo, Duty::Route] {
        println!("{duty:?}");
        compare(duty);
    }
}

fn compare(duty: Duty) {
    let (mut one, mut two, mut apart) = (bench(duty, 1, 1), bench(duty, 1, 2), bench(duty, 2, 1));
    assert_eq!((two.seats().count(), apart.seats().count()), (2, 2));
    let mut times = [const { Vec::new() }; 7];
    for round in 0..=ROUNDS {
        let now = [
            one.batch(LARGE, None),
            apart.batch(LARGE, None),
            two.batch(LARGE, None),
            one.batch(2 * SMALL, None),
            apart.batch(SMALL, None),
            two.batch(SMALL, None),
            two.batch(SMALL, Some(2)),
        ];
        // The first warms up.
        if round > 0 {
            times.iter_mut().zip(now).for_each(|(times, now)| times.push(now));
        }
    }
    let names = [
        "one worker, batches of 8192",
        "two hosts of one worker, 2 x 8192",
        "two workers, keyed, 2 x 8192",
        "one worker, batches of 1024",
        "two hosts of one worker, 2 x 512",
        "two workers, keyed, 2 x 512",
        "two workers, half handed over, 2 x 512",
    ];
    let medians = times.each_mut().map(|times| median(times));
    for (n, (name, time)) in names.iter().zip(medians).enumerate() {
        let base = if n < 3 { 0 } else { 3 };
        let (alone, apart) = (time / medians[base], time / medians[base + 1]);
        println!(
            "{name:<40} {time:7.1} ns of CPU a packet  {alone:.2} x one worker's  {apart:.2} x two \
             hosts'"
        );
    }
    for ended in [one, two, apart].into_iter().flat_map(Bench::end) {
        assert!(ended.is_conserved(), "{ended:?}");
        let lost = ended.workers.iter().map(|e| e.facts.lost() + e.facts.lost_in_handoff());
        assert_eq!(lost.sum::<u64>(), 0, "every answer came");
    }
}
