//! The flooded core in real threads: our worker, and the kernel's own stack, in one run.
//!
//! Called by `starvation.rs`. On one core a program takes timestamps as fast as it can; on the same
//! core a receiver takes what another core floods it with: a program at a socket of the kernel, or
//! our worker with the same program behind its stack, with and without balance. What the timestamps
//! show is the program's share of the core and its longest gap. Everything is bounded: each trial
//! lasts as long as planned, and its threads are joined.
//!
//! Other work on the machine is told apart by the system's account (`account.rs`): for as long as
//! the program was ready and neither it nor the receiver ran, a third had the core. Shares are of
//! what is left of the time. Gaps cannot be told apart so: of them, and of everything else, claims
//! compare medians of one run with alternating trials.

#![expect(clippy::disallowed_methods, reason = "this part measures real time in real threads")]

use core::time::Duration;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::thread;

use floodwall_base::{IfIndex, MacAddr, Randomness, Units};
use floodwall_device::{AfPacket, AfPacketConfig, Device, Tun, TunConfig, TunKind};
use floodwall_dispatch::{Clock, Port, Shown, Stop, Worker, WorkerConfig, pin_to_core};
use floodwall_packet::{Burst, Engine, PacketList, Pool, PoolConfig, Round};
use floodwall_schedule::{BalanceConfig, Share};
use floodwall_stack::{Host, accounts_needed};

use super::simulated::{self, PORTS};
use crate::error::LabError;
use crate::experiments::namespace;
use crate::experiments::service::Toil;
use crate::experiments::stamps::Stamps;
use crate::progress::Progress;

/// What the program has of an otherwise idle core, at least.
const QUIET: f64 = 0.85;
/// What a flood has before timestamps count.
const WARM_UP: Duration = Duration::from_millis(50);
/// The system's unit of time in `/proc/stat`: its user interface is fixed at this.
const TICK: Duration = Duration::from_millis(10);

/// The receiver on the core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum System {
    /// A socket of the kernel.
    Kernel,
    /// Our worker, taking what it can use.
    Greedy,
    /// Our worker with balance.
    Balanced,
}

impl System {
    pub(super) const ALL: [Self; 3] = [Self::Kernel, Self::Greedy, Self::Balanced];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Greedy => "floodwall-without-balance",
            Self::Balanced => "floodwall",
        }
    }
}

/// One system under one flood.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    pub(super) system: System,
    /// Packets a second that were to be offered, and that were.
    pub(super) planned: u64,
    pub(super) offered: f64,
    /// Packets a second that reached the program behind the stack.
    pub(super) taken: f64,
    /// The stamping program's part of the time that thirds left.
    pub(super) share: f64,
    /// The part of the time for which thirds had the core while the program was ready.
    pub(super) thirds: f64,
    /// Its longest gap.
    pub(super) gap: Duration,
    /// What the machine's own host took of the core meanwhile, where it reports it.
    pub(super) stolen: Option<f64>,
}

/// All that was found, or why there is nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Threads {
    /// For each rate and system the medians of its trials.
    pub(super) results: Vec<Trial>,
    /// How often each was tried.
    pub(super) rounds: u64,
    pub(super) why_not: Option<String>,
}

/// The middle one; the lower of two.
fn median<T: Copy + PartialOrd>(mut values: Vec<T>) -> Option<T> {
    values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(core::cmp::Ordering::Equal));
    values.get(values.len().saturating_sub(1) / 2).copied()
}

impl Trial {
    /// The medians of trials of one system at one rate.
    fn middle(trials: &[Self]) -> Option<Self> {
        let first = *trials.first()?;
        let of = |what: fn(&Self) -> f64| median(trials.iter().map(what).collect());
        Some(Self {
            offered: of(|trial| trial.offered)?,
            taken: of(|trial| trial.taken)?,
            share: of(|trial| trial.share)?,
            thirds: of(|trial| trial.thirds)?,
            gap: median(trials.iter().map(|trial| trial.gap).collect())?,
            stolen: median(trials.iter().filter_map(|trial| trial.stolen).collect()),
            ..first
        })
    }
}

impl Threads {
    fn of(&self, system: System, planned: u64) -> Option<&Trial> {
        self.results.iter().find(|trial| (trial.system, trial.planned) == (system, planned))
    }

    /// The kernel's stack and our worker at the greatest rate.
    fn rivals(&self) -> Option<[&Trial; 2]> {
        let most = self.results.iter().map(|trial| trial.planned).max()?;
        Some([self.of(System::Kernel, most)?, self.of(System::Balanced, most)?])
    }

    /// By how much more of the core our worker leaves to the program than the kernel's stack does.
    pub(super) fn lead(&self) -> Option<f64> {
        self.rivals().map(|[kernel, ours]| ours.share - kernel.share)
    }

    /// What our worker leaves to the program, in parts of what it has without a flood.
    pub(super) fn kept(&self) -> Option<f64> {
        let unloaded = self.of(System::Balanced, 0)?.share;
        self.rivals().map(|[_, ours]| ours.share / unloaded.max(f64::EPSILON))
    }

    /// Our longest gap, in parts of the kernel's.
    pub(super) fn gaps(&self) -> Option<f64> {
        let seconds = |trial: &Trial| trial.gap.as_secs_f64().max(f64::EPSILON);
        self.rivals().map(|[kernel, ours]| seconds(ours) / seconds(kernel))
    }

    /// Whether the machine left the core to the program without a flood.
    pub(super) fn is_undisturbed(&self) -> bool {
        let unloaded = self.results.iter().filter(|trial| trial.planned == 0);
        !self.results.is_empty() && unloaded.map(|trial| trial.share).fold(1.0, f64::min) >= QUIET
    }
}

/// What is the same in every trial.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// Promised to the program.
    pub(super) share: Share,
    /// How long a trial lasts.
    pub(super) length: Duration,
    /// How often each is tried; 0 measures nothing.
    pub(super) rounds: u64,
    pub(super) seed: u64,
}

/// Which core runs which thread.
#[derive(Clone, Copy, Debug)]
struct Cores {
    flood: usize,
    flooded: usize,
}

/// Runs every trial, in a namespace of its own. What this machine lacks is no error.
///
/// # Errors
/// Something failed that is not missing.
pub(super) fn measure(
    work: Work,
    rates: &[u64],
    progress: &mut dyn Progress,
) -> Result<Threads, LabError> {
    let why_not = |why: String| Ok(Threads { why_not: Some(why), ..Threads::default() });
    if work.length.is_zero() || work.rounds == 0 {
        return why_not("this size of the plan measures nothing with threads".to_owned());
    }
    let allowed = rustix::thread::sched_getaffinity(None).map_err(wrong)?;
    let mut cores = (0..rustix::thread::CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    let (Some(flood), Some(flooded)) = (cores.next(), cores.next()) else {
        return why_not("it takes two cores".to_owned());
    };
    let cores = Cores { flood, flooded };
    let steps = work.rounds * rates.len() as u64;
    let (told, step) = std::sync::mpsc::channel();
    // A thread of its own: what it enters, it never leaves.
    let outcome = thread::scope(|scope| {
        let inside = scope.spawn(move || match namespace::enter() {
            Ok(()) => trials(work, rates, cores, &told).map_err(Some),
            Err(why) => {
                eprintln!("SKIPPED threads: {why}");
                Ok(Threads { why_not: Some(why), ..Threads::default() })
            }
        });
        // Until the other thread has ended, and its end of the channel with it.
        while let Ok(done) = step.recv() {
            progress.step("threads", done, steps);
        }
        inside.join().unwrap_or(Err(None))
    });
    outcome.map_err(|error| error.unwrap_or(LabError::Scene("a thread panicked".to_owned())))
}

fn wrong(error: impl core::fmt::Display) -> LabError {
    LabError::Scene(error.to_string())
}

/// Every system at every rate, in turns, so that each moment of the machine is shared by all.
fn trials(
    work: Work,
    rates: &[u64],
    cores: Cores,
    told: &std::sync::mpsc::Sender<u64>,
) -> Result<Threads, LabError> {
    let addrs = simulated::unverified_side();
    let kernel = MacAddr(namespace::lay_veth(&addrs, cores.flooded).map_err(wrong)?);
    let mut trials = Vec::new();
    let mut done = 0;
    for _ in 0..work.rounds {
        for rate in rates {
            let _ = told.send(done);
            done += 1;
            for system in System::ALL {
                trials.push(trial(work, system, *rate, cores, kernel)?);
            }
        }
    }
    let mut results = Vec::new();
    for rate in rates {
        for system in System::ALL {
            let of = |trial: &&Trial| (trial.system, trial.planned) == (system, *rate);
            let these: Vec<Trial> = trials.iter().filter(of).copied().collect();
            results.extend(Trial::middle(&these));
        }
    }
    Ok(Threads { results, rounds: work.rounds, why_not: None })
}

/// One system at one rate, once.
fn trial(
    work: Work,
    system: System,
    rate: u64,
    cores: Cores,
    kernel: MacAddr,
) -> Result<Trial, LabError> {
    let config = TunConfig { kind: TunKind::Tap, vnet_header: false, ..TunConfig::default() };
    let (mut device, mut name, mut mac) = (None, namespace::VETH_NEAR, kernel);
    if system != System::Kernel {
        device = Tun::open(namespace::TAP, &config).map_err(wrong)?.pop();
        namespace::raise_tap().map_err(wrong)?;
        (name, mac) = (namespace::TAP, simulated::host_mac(1));
    }
    let Work { share, length, seed, .. } = work;
    Table { system, rate, length, seed, cores, share }.run(device, name, mac)
}

/// One trial, laid out.
#[derive(Clone, Copy)]
struct Table {
    system: System,
    rate: u64,
    length: Duration,
    seed: u64,
    cores: Cores,
    share: Share,
}

/// State shared by the threads of a trial.
struct Shared {
    stop: Stop,
    /// Datagrams that reached the program.
    taken: Arc<AtomicU64>,
    offered: AtomicU64,
    /// The receiver's thread; 0 before it runs.
    receiver: AtomicI32,
}

impl Table {
    fn run(self, tap: Option<Tun>, name: &str, mac: MacAddr) -> Result<Trial, LabError> {
        let stop = Stop::new().map_err(wrong)?;
        let shared = Shared {
            stop,
            taken: Arc::default(),
            offered: AtomicU64::new(0),
            receiver: AtomicI32::new(0),
        };
        let device = AfPacket::open(name, &AfPacketConfig::default()).map_err(wrong)?;
        thread::scope(|scope| {
            let receiver = scope.spawn(|| {
                let own = rustix::thread::gettid().as_raw_nonzero().get();
                shared.receiver.store(own, Ordering::Release);
                match tap {
                    Some(tap) => self.receive_ours(tap, &shared),
                    None => self.receive_kernels(&shared),
                }
            });
            let flood = scope.spawn(|| self.flood(device, mac, &shared));
            let stamps = scope.spawn(|| {
                pin_to_core(self.cores.flooded).map_err(wrong)?;
                thread::sleep(WARM_UP);
                let counts =
                    || [&*shared.taken, &shared.offered].map(|n| n.load(Ordering::Relaxed));
                let (before, stolen) = (counts(), stolen(self.cores.flooded));
                let receiver = shared.receiver.load(Ordering::Acquire);
                let stamps = Stamps::take(self.length, receiver, self.cores.flooded);
                Ok((stamps, before, counts(), stolen))
            });
            let outcome = stamps.join().unwrap_or_else(|_| Err(wrong("the program panicked")));
            shared.stop.trigger();
            for thread in [receiver, flood] {
                thread.join().unwrap_or_else(|_| Err(wrong("a thread panicked")))?;
            }
            let (stamps, before, after, stolen_before) = outcome?;
            let stolen = stolen(self.cores.flooded).zip(stolen_before);
            let rate = |n: usize| {
                let count = |all: [u64; 2]| all.get(n).copied().unwrap_or(0);
                (count(after) - count(before)) as f64 / stamps.whole.as_secs_f64()
            };
            Ok(Trial {
                system: self.system,
                planned: self.rate,
                offered: rate(1),
                taken: rate(0),
                share: stamps.share(),
                thirds: stamps.thirds_part(),
                gap: stamps.longest,
                stolen: stolen.map(|(after, before)| {
                    (TICK * (after - before) as u32).as_secs_f64() / stamps.whole.as_secs_f64()
                }),
            })
        })
    }

    /// The program at the kernel's socket: it takes datagrams and forgets them.
    fn receive_kernels(self, shared: &Shared) -> Result<(), LabError> {
        pin_to_core(self.cores.flooded).map_err(wrong)?;
        let any: SocketAddr = (core::net::Ipv6Addr::UNSPECIFIED, PORTS[1]).into();
        let socket = UdpSocket::bind(any).map_err(wrong)?;
        socket.set_read_timeout(Some(Duration::from_millis(20))).map_err(wrong)?;
        let mut buffer = [0; 2048];
        while !shared.stop.is_triggered() {
            if socket.recv(&mut buffer).is_ok() {
                shared.taken.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Our worker, and the same program behind its stack.
    fn receive_ours(self, tap: Tun, shared: &Shared) -> Result<(), LabError> {
        pin_to_core(self.cores.flooded).map_err(wrong)?;
        let clock = Clock::new();
        let config = simulated::stack();
        let sizes = PoolConfig { accounts: accounts_needed(&config), ..PoolConfig::default() };
        let pool = Pool::new(&sizes)?;
        let mut random = Randomness::from_number(self.seed);
        let toil = Toil::new(PORTS[1], 0, Arc::clone(&shared.taken));
        let host = Host::new(&config, vec![Box::new(toil)], &pool, &mut random, clock.now())
            .map_err(wrong)?;
        let ports = vec![Port::new(IfIndex(2), Box::new(tap))];
        let balance = BalanceConfig { share: self.share, ..BalanceConfig::default() };
        let config = WorkerConfig {
            balance: (self.system == System::Balanced).then_some(balance),
            ..WorkerConfig::default()
        };
        let mut worker =
            Worker::new(Shown::silent(host), pool, random, ports, config).map_err(wrong)?;
        worker.run(&shared.stop).map_err(wrong)?;
        Ok(())
    }

    /// Sends unverified datagrams to `mac` from another core, as fast as planned or as it can.
    fn flood(self, mut device: AfPacket, mac: MacAddr, shared: &Shared) -> Result<(), LabError> {
        pin_to_core(self.cores.flood).map_err(wrong)?;
        let (clock, pool) = (Clock::new(), Pool::new(&PoolConfig::default())?);
        let mut unverified = simulated::unverified(self.rate, mac)?;
        let mut random = Randomness::from_number(self.seed);
        let (mut arrived, mut departing) = (Burst::new(), PacketList::new());
        while !shared.stop.is_triggered() {
            let now = clock.now();
            if unverified.deadline().is_some_and(|due| due > now) {
                core::hint::spin_loop();
                continue;
            }
            unverified.work(&mut Round {
                now,
                pool: &pool,
                random: &mut random,
                arrived: &mut arrived,
                departing: &mut departing,
                budget: Units(64),
                peers: None,
            });
            shared.offered.fetch_add(departing.len() as u64, Ordering::Relaxed);
            match device.transmit(&mut departing) {
                Ok(_) => {}
                // The receiver has ended first, and has removed the veth pair.
                Err(_) if shared.stop.is_triggered() => break,
                Err(error) => return Err(wrong(error)),
            }
            // What the cable refuses, because its ring is full, is not offered again.
            drop(departing.take());
        }
        Ok(())
    }
}

/// Ticks of a core that the machine's own host has taken, as far as it reports it.
fn stolen(core: usize) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("cpu{core} ")))?;
    line.split_whitespace().nth(7)?.parse().ok()
}
