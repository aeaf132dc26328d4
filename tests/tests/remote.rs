//! Sockets of programs on other threads than the worker's: real threads, both families, by the
//! loopback of one host.
#![expect(clippy::disallowed_methods, reason = "a worker's thread, its clock, and the programs'")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use floodwall_base::{Family, Instant, Randomness, Units, WorkerId};
use floodwall_packet::{Available, Burst, Engine, PacketList, Pool, PoolConfig, Round};
use floodwall_stack::remote::{Remote, RemoteConfig, UdpHandle};
use floodwall_stack::{Stack, StackConfig, Stats};
use floodwall_udp::SocketSettings;

/// Long enough for any machine, short enough for a test that hangs.
const PATIENCE: Duration = Duration::from_secs(20);

const LOCALS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// What is left when a worker has ended.
struct End {
    stats: Stats,
    lost: i64,
}

/// A worker's thread that runs one stack, and really sleeps.
struct Worker {
    remote: Remote,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<End>>,
}

fn now(since: std::time::Instant) -> Instant {
    Instant::from_nanos(u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX) + 1)
}

fn total(pool: &Pool) -> i64 {
    let Available { small, frames, supers, references } = pool.available();
    (small + frames + supers + references) as i64
}

impl Worker {
    fn start(config: &RemoteConfig) -> Self {
        let (remote, mut shards) = Remote::new(config).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, shard) = (Arc::clone(&stop), shards.remove(0));
        let thread = std::thread::spawn(move || {
            let since = std::time::Instant::now();
            let pool = Pool::new(&PoolConfig::default()).unwrap();
            let before = total(&pool);
            let mut random = Randomness::from_number(7);
            let mut stack = Stack::new(&StackConfig::default(), &mut random, now(since)).unwrap();
            stack.serve(shard);
            let (mut arrived, mut departing) = (Burst::new(), PacketList::new());
            while !stopped.load(Ordering::Acquire) {
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
            End { stats, lost: before - total(&pool) }
        });
        let alarm = Waker::from(Arc::new(Unpark(thread.thread().clone())));
        remote.set_alarm(WorkerId(0), alarm);
        Self { remote, stop, thread: Some(thread) }
    }

    fn bind(&self, ip: IpAddr, port: u16) -> UdpHandle {
        let family = if ip.is_ipv4() { Family::V4 } else { Family::V6 };
        let local = SocketAddr::new(ip, port);
        self.remote.bind_udp(local, SocketSettings::new(family)).wait(PATIENCE).unwrap()
    }

    fn end(mut self) -> End {
        self.stop.store(true, Ordering::Release);
        let thread = self.thread.take().unwrap();
        thread.thread().unpark();
        thread.join().unwrap()
    }
}

#[test]
fn a_datagram_goes_from_one_thread_to_another() {
    for ip in LOCALS {
        let worker = Worker::start(&RemoteConfig::default());
        let (server, client) = (worker.bind(ip, 5300), worker.bind(ip, 0));
        assert_eq!(server.local_addr(), SocketAddr::new(ip, 5300));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut buffer = [0; 100];
                let received = server.recv_from_blocking(&mut buffer, PATIENCE).unwrap();
                assert_eq!(&buffer[..received.len], b"ping");
                assert_eq!(received.from.port(), client.local_addr().port());
                server.send_to_blocking(b"pong", Some(received.from), PATIENCE).unwrap();
            });
            client.send_to_blocking(b"ping", Some(server.local_addr()), PATIENCE).unwrap();
            let mut buffer = [0; 100];
            let received = client.recv_from_blocking(&mut buffer, PATIENCE).unwrap();
            assert_eq!(&buffer[..received.len], b"pong");
            assert_eq!(received.from, server.local_addr());
        });
        drop((server, client));
        let End { stats, lost } = worker.end();
        assert_eq!(lost, 0);
        assert!(stats.conservation().holds(), "{:?}", stats.conservation());
    }
}
