//! A worker's thread that runs one stack, and really sleeps: a wake-up that is lost hangs the test.
#![expect(clippy::disallowed_methods, reason = "a worker's thread and its clock")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Wake, Waker};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use floodwall_base::{Family, Instant, Randomness, Units, WorkerId};
use floodwall_packet::{Available, Burst, Engine, PacketList, Pool, PoolConfig, Round};
use floodwall_stack::remote::{Remote, RemoteConfig, UdpHandle};
use floodwall_stack::{Stack, StackConfig, Stats};
use floodwall_udp::SocketSettings;

/// Long enough for any machine, short enough for a test that hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// What is left when a worker has ended.
pub(crate) struct End {
    pub(crate) stats: Stats,
    /// Pieces of the worker's memory that are not home.
    pub(crate) lost: i64,
    /// UDP sockets that are still open.
    pub(crate) memory_lost: i64,
}

/// A worker's thread that runs one stack, and its handle.
pub(crate) struct Worker {
    pub(crate) remote: Remote,
    pub(crate) rounds: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    panic: Arc<AtomicBool>,
    pub(crate) hold: Arc<AtomicBool>,
    thread: Option<JoinHandle<(Stats, i64)>>,
    memory: i64,
}

fn now(since: std::time::Instant) -> Instant {
    Instant::from_nanos(u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX) + 1)
}

pub(crate) fn pieces(available: Available) -> i64 {
    let Available { small, frames, supers, references } = available;
    (small + frames + supers + references) as i64
}

impl Worker {
    pub(crate) fn start(config: &RemoteConfig) -> Self {
        let (remote, mut shards) = Remote::new(config).unwrap();
        let flag = || Arc::new(AtomicBool::new(false));
        let (stop, panic, hold) = (flag(), flag(), flag());
        let rounds = Arc::new(AtomicU64::new(0));
        let (stopped, panics, held) = (Arc::clone(&stop), Arc::clone(&panic), Arc::clone(&hold));
        let (counted, shard) = (Arc::clone(&rounds), shards.remove(0));
        let tcp_connections_max = config.connections_max;
        let thread = std::thread::spawn(move || {
            let since = std::time::Instant::now();
            let pool = Pool::new(&PoolConfig::default()).unwrap();
            let before = pieces(pool.available());
            let mut random = Randomness::from_number(7);
            let config = StackConfig { tcp_connections_max, ..StackConfig::default() };
            let mut stack = Stack::new(&config, &mut random, now(since)).unwrap();
            stack.serve(shard);
            let (mut arrived, mut departing) = (Burst::new(), PacketList::new());
            while !stopped.load(Ordering::Acquire) {
                counted.fetch_add(1, Ordering::AcqRel);
                assert!(!panics.load(Ordering::Acquire), "the worker panics on request");
                if held.load(Ordering::Acquire) {
                    std::thread::yield_now();
                    continue;
                }
                let at = now(since);
                if stack.deadline().is_some_and(|due| due <= at) {
                    stack.work(&mut Round {
                        now: at,
                        pool: &pool,
                        random: &mut random,
                        arrived: &mut arrived,
                        departing: &mut departing,
                        budget: Units(64),
                        peers: None,
                    });
                }
                drop(departing.take());
                stack.departed();
                let due = stack.deadline();
                if due.is_none_or(|due| due > at) && stack.rests() {
                    match due {
                        Some(due) => std::thread::park_timeout(due - at),
                        None => std::thread::park(),
                    }
                }
            }
            let stats = stack.stats();
            drop(stack);
            (stats, before - pieces(pool.available()))
        });
        let alarm = Waker::from(Arc::new(Unpark(thread.thread().clone())));
        remote.set_alarm(WorkerId(0), alarm);
        let memory = pieces(remote.memory());
        Self { remote, rounds, stop, panic, hold, thread: Some(thread), memory }
    }

    pub(crate) fn bind(&self, ip: IpAddr, port: u16) -> UdpHandle {
        self.bind_with(ip, port, |_| ())
    }

    pub(crate) fn bind_with(
        &self,
        ip: IpAddr,
        port: u16,
        set: impl FnOnce(&mut SocketSettings),
    ) -> UdpHandle {
        let family = if ip.is_ipv4() { Family::V4 } else { Family::V6 };
        let mut settings = SocketSettings::new(family);
        set(&mut settings);
        let local = SocketAddr::new(ip, port);
        self.remote.bind_udp(local, settings).wait(PATIENCE).unwrap()
    }

    /// Makes the worker panic.
    pub(crate) fn panic(&self) {
        self.panic.store(true, Ordering::Release);
        self.wake();
    }

    pub(crate) fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    /// Whether the worker has panicked, when it has ended.
    pub(crate) fn has_panicked(mut self) -> bool {
        self.thread.take().unwrap().join().is_err()
    }

    /// Lets the worker end: every handle is dropped, and it has had time to see that.
    pub(crate) fn end(mut self) -> End {
        let before = self.rounds.load(Ordering::Acquire);
        let since = std::time::Instant::now();
        // Dropping a handle rings the doorbell; a few rounds later all of it is done.
        while self.rounds.load(Ordering::Acquire) < before + 20 && since.elapsed() < PATIENCE {
            self.wake();
            std::thread::yield_now();
        }
        self.stop.store(true, Ordering::Release);
        self.wake();
        let (stats, lost) = self.thread.take().unwrap().join().unwrap();
        End { stats, lost, memory_lost: self.memory - pieces(self.remote.memory()) }
    }
}

impl End {
    /// All memory is back in the pool, and every packet is accounted for exactly once.
    pub(crate) fn is_clean(&self) {
        assert_eq!((self.lost, self.memory_lost), (0, 0), "pieces of memory");
        assert!(self.stats.conservation().holds(), "{:?}", self.stats.conservation());
    }
}
