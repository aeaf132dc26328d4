//! Calls of sockets from several threads at once, on one host that talks to itself.
//!
//! The bytes are a program for each of [`THREADS`] threads, which share all that they open:
//! datagram sockets (some at every port), a listener, both ends of streams. The calling thread is
//! the worker, in virtual time that moves with its rounds; so what a program's bytes are made into
//! is the same each time, and the order of threads is not. Invariants: no panic; no call waits for
//! ever; a stream's bytes are each in their place, a datagram comes whole; when all handles are
//! dropped and time has passed, no connection is left and all memory is back, the programs' and the
//! worker's.

use std::io::{self, ErrorKind, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use floodwall_base::{Family, Instant, Randomness, Units};
use floodwall_packet::{Available, Burst, Engine, PacketList, Pool, PoolConfig, Region, Round};
use floodwall_stack::remote::{ListenHandle, Remote, RemoteConfig, TcpHandle, UdpHandle};
use floodwall_stack::{Stack, StackConfig, accounts_needed};
use floodwall_tcp::TcpSettings;
use floodwall_udp::SocketSettings;

const THREADS: usize = 3;
/// Steps of one thread.
const STEPS_MAX: usize = 48;
/// Handles of one kind that are kept; the oldest go.
const KEPT: usize = 6;
/// A worker that does not answer for so long is stuck.
const PATIENCE: Duration = Duration::from_secs(20);
/// Rounds in which all must be over, each at the next deadline.
const ROUNDS_MAX: usize = 20_000;

/// One end of a stream, with how far it was written and read.
struct End {
    handle: TcpHandle,
    written: Mutex<usize>,
    read: Mutex<usize>,
}

/// What the threads share.
struct Board {
    remote: Remote,
    at: IpAddr,
    sockets: Mutex<Vec<Arc<UdpHandle>>>,
    listener: Mutex<Option<Arc<ListenHandle>>>,
    ends: Mutex<Vec<Arc<End>>>,
    /// Rounds of the worker.
    rounds: AtomicUsize,
}

/// Runs `data` as programs of socket calls on several threads at once.
///
/// # Panics
/// Where an invariant is broken.
pub fn calls(data: &[u8]) {
    let Some((choice, program)) = data.split_first() else { return };
    let at: IpAddr = match choice & 1 {
        0 => Ipv4Addr::LOCALHOST.into(),
        _ => Ipv6Addr::LOCALHOST.into(),
    };
    let config = RemoteConfig {
        sockets_max: 16,
        connections_max: 16,
        lanes: 2,
        small: 256,
        frames: 256,
        ..RemoteConfig::default()
    };
    let (remote, mut shards) = Remote::new(&config).expect("memory for a few sockets");
    let mut worker = Worker::new();
    worker.stack.serve(shards.remove(0));
    let memory = pieces(remote.memory());
    let board = Board {
        remote,
        at,
        sockets: Mutex::default(),
        listener: Mutex::default(),
        ends: Mutex::default(),
        rounds: AtomicUsize::new(0),
    };
    let running = AtomicUsize::new(THREADS);
    thread::scope(|scope| {
        let parts = program.chunks(program.len().div_ceil(THREADS).max(1));
        let parts = parts.chain(std::iter::repeat(&[][..])).take(THREADS);
        for part in parts {
            scope.spawn(|| {
                let ended = Ended(&running);
                part.chunks(2).take(STEPS_MAX).for_each(|step| board.step(step));
                drop(ended);
            });
        }
        while running.load(Ordering::Acquire) > 0 {
            worker.round(Duration::from_micros(100));
            board.rounds.fetch_add(1, Ordering::AcqRel);
            thread::yield_now();
        }
    });
    let Board { remote, sockets, listener, ends, .. } = board;
    drop((sockets, listener, ends));
    worker.end();
    assert_eq!(pieces(remote.memory()), memory, "what programs send from is back");
}

/// A thread has ended, well or not: the worker need not wait for it.
struct Ended<'a>(&'a AtomicUsize);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Board {
    /// One call on one of the handles; some wait until the worker has come by.
    fn step(&self, step: &[u8]) {
        let (what, which) = (step[0], step.get(1).copied().unwrap_or(0));
        let seen = self.rounds.load(Ordering::Acquire);
        while what & 64 != 0 && self.rounds.load(Ordering::Acquire) < seen + 2 {
            thread::yield_now();
        }
        let index = usize::from(which & 15);
        match what & 15 {
            0 => self.bind(which),
            1 | 2 => self.with_socket(index, |socket| self.send(socket, which)),
            3 | 4 => self.with_socket(index, receive),
            5 => self.with_socket(index, |socket| self.change(socket, which)),
            6 => forget(&mut lock(&self.sockets), index),
            7 => self.listen(which),
            8 => self.connect(which),
            9 => self.accept(),
            10 | 11 => self.with_end(index, |end| end.write(1 + usize::from(which) * 20)),
            12 | 13 => self.with_end(index, |end| end.read(1 + usize::from(which) * 20)),
            14 => self.with_end(index, |end| end.set(which)),
            _ => forget(&mut lock(&self.ends), index),
        }
    }

    fn with_socket(&self, index: usize, act: impl FnOnce(&UdpHandle)) {
        let sockets = lock(&self.sockets);
        let socket = sockets.get(index % sockets.len().max(1)).cloned();
        // The others go on meanwhile.
        drop(sockets);
        if let Some(socket) = socket {
            act(&socket);
        }
    }

    fn with_end(&self, index: usize, act: impl FnOnce(&End)) {
        let ends = lock(&self.ends);
        let end = ends.get(index % ends.len().max(1)).cloned();
        drop(ends);
        if let Some(end) = end {
            act(&end);
        }
    }

    fn bind(&self, which: u8) {
        let mut settings = SocketSettings::new(Family::of(self.at));
        settings.every_port = which & 64 != 0;
        settings.receive_bytes = if which & 32 != 0 { 1000 } else { 100_000 };
        let port = if settings.every_port { 0 } else { 7000 + u16::from(which & 3) };
        let local = SocketAddr::new(self.at, port);
        match self.remote.bind_udp(local, settings).wait(PATIENCE) {
            Ok(socket) => keep(&mut lock(&self.sockets), Arc::new(socket)),
            Err(error) => is_refusal(&error),
        }
    }

    /// To a port that may be bound, or to one that only the socket at every port receives.
    fn send(&self, socket: &UdpHandle, which: u8) {
        let to = SocketAddr::new(self.at, 7000 + u16::from(which & 7));
        let bytes = vec![which; usize::from(which) * 8];
        let from = SocketAddr::new(self.at, 9000 + u16::from(which >> 6));
        let _ = match socket.local_addr().port() {
            0 => socket.try_send_from(&bytes, from, to),
            _ => socket.try_send_to(&bytes, to),
        };
    }

    fn change(&self, socket: &UdpHandle, which: u8) {
        let peer = SocketAddr::new(self.at, 7000 + u16::from(which & 3));
        let _ = match which >> 6 {
            0 => socket.connect_blocking(peer, PATIENCE).err(),
            1 => socket.take_error(),
            2 => socket.try_peek_from(&mut [0; 3]).err(),
            _ => socket.try_send(&[which; 9]).err(),
        };
    }

    fn listen(&self, which: u8) {
        let every_port = which & 1 != 0;
        let local = SocketAddr::new(self.at, if every_port { 0 } else { 80 });
        let settings = TcpSettings { every_port, cork: which & 2 != 0, ..TcpSettings::default() };
        let asked = self.remote.listen_tcp(local, settings, usize::from(which >> 5));
        match asked.wait(PATIENCE) {
            Ok(handle) => *lock(&self.listener) = Some(Arc::new(handle)),
            Err(error) => is_refusal(&error),
        }
    }

    fn connect(&self, which: u8) {
        let to = SocketAddr::new(self.at, 80 + u16::from(which & 1));
        let settings = TcpSettings { nodelay: which & 2 != 0, ..TcpSettings::default() };
        match self.remote.connect_tcp(None, to, settings).wait(PATIENCE) {
            Ok(handle) => keep(&mut lock(&self.ends), Arc::new(End::new(handle))),
            Err(error) => is_refusal(&error),
        }
    }

    fn accept(&self) {
        let listener = lock(&self.listener).clone();
        if let Some(Ok(handle)) = listener.map(|listener| listener.try_accept()) {
            keep(&mut lock(&self.ends), Arc::new(End::new(handle)));
        }
    }
}

/// What is read is one datagram as one was sent.
fn receive(socket: &UdpHandle) {
    let mut room = [0; 4096];
    if let Ok(received) = socket.try_recv_from(&mut room) {
        let bytes = &room[..received.len];
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "two datagrams in one");
        let _ = socket.try_reply(bytes, &received);
    }
}

impl End {
    fn new(handle: TcpHandle) -> Self {
        Self { handle, written: Mutex::default(), read: Mutex::default() }
    }

    fn write(&self, len: usize) {
        let mut written = lock(&self.written);
        let bytes: Vec<u8> = (*written..*written + len).map(byte).collect();
        if let Ok(taken) = self.handle.try_write(&[IoSlice::new(&bytes)]) {
            *written += taken;
        }
    }

    fn read(&self, len: usize) {
        let mut read = lock(&self.read);
        let mut room = vec![0; len];
        if let Ok(n) = self.handle.try_read(&mut room) {
            let right = |(i, found): (usize, &u8)| *found == byte(*read + i);
            assert!(room[..n].iter().enumerate().all(right), "behind byte {}", *read);
            *read += n;
        }
    }

    fn set(&self, which: u8) {
        match which >> 4 & 7 {
            0 => self.handle.set_nodelay(which & 1 != 0),
            1 => self.handle.set_cork(which & 1 != 0),
            2 => self.handle.set_keepalive(which & 1 != 0),
            3 => self.handle.set_hop_limit((which & 1 != 0).then_some(9)),
            4 => self.handle.set_zero_linger(which & 1 != 0),
            5 => self.handle.shutdown_write(),
            6 => _ = self.handle.try_peek(&mut [0; 7]),
            _ => _ = self.handle.take_error(),
        }
    }
}

/// The worker: a stack with time that its rounds move.
struct Worker {
    stack: Stack,
    pool: Pool,
    random: Randomness,
    now: Instant,
    free: usize,
}

impl Worker {
    fn new() -> Self {
        let config =
            StackConfig { tcp_connections_max: 16, udp_sockets_max: 16, ..StackConfig::default() };
        let pool = PoolConfig {
            small: 512,
            frames: 512,
            references: 512,
            accounts: accounts_needed(&config),
            ..PoolConfig::default()
        };
        let region = Region::new(&pool).expect("memory for a small pool");
        let pool = region.attach().expect("the first to attach");
        let free = pieces(pool.available());
        let (mut random, now) = (Randomness::from_number(1), Instant::from_nanos(1_000_000_000));
        let stack = Stack::new(&config, &mut random, now).expect("the usual configuration");
        Self { stack, pool, random, now, free }
    }

    fn round(&mut self, passes: Duration) {
        self.now += passes;
        let (mut arrived, mut departing) = (Burst::new(), PacketList::new());
        self.stack.work(&mut Round {
            now: self.now,
            pool: &self.pool,
            random: &mut self.random,
            arrived: &mut arrived,
            departing: &mut departing,
            budget: Units(256),
            peers: None,
        });
        drop(departing.take());
        self.stack.departed();
    }

    /// Lets time pass until nothing is due, or what is due is far.
    fn end(mut self) {
        let mut rounds = 0;
        while let Some(due) = self.stack.deadline() {
            assert!(rounds < ROUNDS_MAX, "something is due again and again");
            rounds += 1;
            self.round(due.max(self.now) - self.now);
        }
        let conservation = self.stack.stats().conservation();
        assert!(conservation.holds(), "{conservation:?}");
        let Self { stack, pool, free, .. } = self;
        drop(stack);
        assert_eq!(pieces(pool.available()), free, "all memory is back");
    }
}

/// The `at`th byte of every stream.
const fn byte(at: usize) -> u8 {
    (at ^ at >> 8 ^ at >> 16) as u8
}

const fn pieces(available: Available) -> usize {
    let Available { small, frames, supers, references } = available;
    small + frames + supers + references
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a handle; the oldest goes where there are too many.
fn keep<T>(all: &mut Vec<T>, one: T) {
    all.push(one);
    if all.len() > KEPT {
        all.remove(0);
    }
}

fn forget<T>(all: &mut Vec<T>, index: usize) {
    if !all.is_empty() {
        all.remove(index % all.len());
    }
}

/// A request may be refused, but always gets its answer.
fn is_refusal(error: &io::Error) {
    assert_ne!(error.kind(), ErrorKind::TimedOut, "no answer");
}
