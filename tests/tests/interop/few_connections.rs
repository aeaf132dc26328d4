//! Few real connections, of stock Linux clients of one network, against `floodwall run` with its
//! default settings, or a program with tokio listeners, while clients of another network connect
//! and talk.
//!
//! By default each attack has the price that once worked, against one worker of `run`, and against
//! two workers of the program; `FLOODWALL_DEEP=1` adds four times the price, and all against one
//! worker and two.
//!
//! Claims of every test here: of the others' new connections 99 % are answered, their established
//! ones get at least 90 % of their bytes back, no turn is known to be longer than the tests tell,
//! and when the attackers are gone everything is accounted for. Attackers: connections that take
//! their answer and never close (FIN-WAIT-2), never acknowledge our FIN (FIN-WAIT-1, LAST-ACK), say
//! nothing, take little of much, send requests back to back, or byte by byte.

#![expect(clippy::disallowed_methods, reason = "clients run in real time")]

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;

use self::parked::Parked;
use self::program::Program;
use crate::command::ip;
use crate::instance::Instance;
use crate::link::{Kind, give_v6};
use crate::namespace::{inside_then_alone, is_deep, pause, set, skip, tell};
use crate::site::{ETH, Host, Site};

mod parked;
mod program;
mod programs;

/// Ours, of both families.
const OURS: [&str; 2] = ["10.77.0.1", "fd77::1"];
const FLAGS: &str = "--address 10.77.0.1/16 --address fd77::1/48 --service http:8080 \
                     --service http:8081 --service tcp-echo:7";
/// The attacker's addresses where it has two networks, of both families.
const OTHERS: [[&str; 2]; 2] = [["10.77.9.1", "fd77:0:0:9::1"], ["10.77.10.1", "fd77:0:0:a::1"]];
/// Places of connections by default, and connections that are more than that.
const PLACES: usize = 16_384;
const MANY: usize = 17_000;
/// Threads of an attacker that opens many connections.
const THREADS: usize = 4;
/// Longest time that a client waits for anything.
const PATIENCE: Duration = Duration::from_secs(8);
/// An attack goes on until honest clients have asked so often, for no longer than this.
const ASKED_LEAST: usize = 20;
const ATTACK_MAX: Duration = Duration::from_secs(60);
/// An honest client asks so often.
const EVERY: Duration = Duration::from_millis(10);
const ASKS: &[u8] = b"GET /bytes/1000 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

fn ours(number: usize, port: u16) -> SocketAddr {
    SocketAddr::new(OURS[number % 2].parse().unwrap(), port)
}

fn connect(to: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// An answer to a new connection.
fn is_answered(number: usize) -> bool {
    let answer = || {
        let mut stream = connect(ours(number, if number % 4 < 2 { 8080 } else { 8081 }))?;
        stream.write_all(ASKS)?;
        let mut all = Vec::new();
        stream.read_to_end(&mut all)?;
        Ok::<_, std::io::Error>(all.len() > 1000)
    };
    answer().unwrap_or(false)
}

/// What became of honest clients.
struct Honest {
    asked: usize,
    answered: usize,
    /// Bytes of established connections: sent, and echoed.
    sent: usize,
    echoed: usize,
}

/// Honest clients while `is_over` is not set: new connections one after the other, and four
/// established ones that are echoed. Counts those that have asked as it goes.
fn honest(is_over: &AtomicBool, asked: &AtomicUsize) -> Honest {
    let mut talks: Vec<TcpStream> = (0..4).map(|n| connect(ours(n, 7)).unwrap()).collect();
    let mut honest = Honest { asked: 0, answered: 0, sent: 0, echoed: 0 };
    while !is_over.load(Ordering::Relaxed) {
        let began = Instant::now();
        honest.answered += usize::from(is_answered(honest.asked));
        honest.asked += 1;
        for talk in &mut talks {
            let mut back = [0; 500];
            honest.sent += back.len();
            if talk.write_all(&[b'q'; 500]).is_ok() && talk.read_exact(&mut back).is_ok() {
                honest.echoed += back.len();
            }
        }
        asked.store(honest.asked, Ordering::Relaxed);
        pause(EVERY.saturating_sub(began.elapsed()));
    }
    honest
}

/// Whether an attack goes on: for so long, and until honest clients have asked, however slow the
/// machine is.
fn goes_on(began: Instant, time: Duration, asked: &AtomicUsize) -> bool {
    let took = began.elapsed();
    took < time || asked.load(Ordering::Relaxed) < ASKED_LEAST && took < ATTACK_MAX
}

/// How long an attack lasts at least: so many seconds, or the third part of it by default, in which
/// an honest client asks often enough.
fn lasts(seconds: u64) -> Duration {
    Duration::from_secs(seconds) / if is_deep() { 1 } else { 3 }
}

/// Holds what was opened, in silence, for half a second at least.
fn hold_on(asked: &AtomicUsize) {
    let began = Instant::now();
    while goes_on(began, Duration::from_millis(500), asked) {
        pause(EVERY);
    }
}

/// What is attacked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ServerKind {
    /// `floodwall run`.
    Run,
    /// A program with tokio listeners.
    Tokio,
}

/// The attacked host.
enum Server {
    Run(Instance),
    Tokio(Program),
}

impl Server {
    fn start(site: &Site, kind: ServerKind, workers: usize) -> Option<Self> {
        if kind == ServerKind::Tokio {
            return Program::start(site, workers).map(Self::Tokio);
        }
        let flags = match workers {
            1 => FLAGS.to_owned(),
            workers => format!("{FLAGS} --workers {workers}"),
        };
        Instance::start(site, Kind::Tap, &flags).map(Self::Run)
    }

    fn stat(&self) -> Value {
        match self {
            Self::Run(instance) => instance.stat(),
            Self::Tokio(program) => program.stat(),
        }
    }

    fn end(self) {
        match self {
            Self::Run(instance) => _ = instance.end(),
            Self::Tokio(program) => program.end(),
        }
    }
}

/// One link with us, attackers, and honest clients of another network.
struct Scene {
    server: Server,
    attacker: Host,
    honest: Host,
}

impl Scene {
    fn set_up() -> Option<Self> {
        Self::with(ServerKind::Run, 1, MANY)
    }

    /// For an attack that holds so many connections.
    fn with(kind: ServerKind, workers: usize, held: usize) -> Option<Self> {
        let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        // Of more than these most are parked.
        let most = Some(most.max(held.min(MANY) as u64 + 500));
        if setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).is_err() {
            skip("too few open files are allowed");
            return None;
        }
        let site = Site::new(1500);
        let [attacker, honest] = [9, 3].map(|number| site.host_of_own_network(number));
        // Four times as many as there are places need more ports than a client usually has.
        attacker.inside(|| set("net/ipv4/ip_local_port_range", "1024 65535"));
        let server = Server::start(&site, kind, workers)?;
        let scene = Self { server, attacker, honest };
        // Our addresses are tentative for a second.
        for ours in OURS {
            let ping = || scene.honest.is_answered(ours);
            assert!(crate::namespace::until(PATIENCE, ping), "{ours}");
        }
        Some(scene)
    }

    /// Honest clients during an attack, and after it; judged. What `stat` shows then.
    fn beside(&self, attack: impl FnOnce(&AtomicUsize) + Send) -> Value {
        let (is_over, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
        let seen = thread::scope(|scope| {
            let honest = scope.spawn(|| self.honest.inside(|| honest(&is_over, &asked)));
            pause(Duration::from_millis(100));
            self.attacker.inside(|| attack(&asked));
            is_over.store(true, Ordering::Relaxed);
            honest.join().unwrap()
        });
        let stat = self.server.stat();
        let slow = |worker: &&Value| worker["facts"]["longest_turn_processor_ns"].as_u64();
        let worker = stat["workers"].as_array().and_then(|all| all.iter().max_by_key(slow));
        let turn = |name: &str| worker.and_then(|it| it["facts"][name].as_u64()).unwrap_or(0);
        let micros = |name: &str| turn(name) / 1000;
        let Honest { asked, answered, sent, echoed } = seen;
        tell(&format!(
            "{answered} of {asked} answered, {echoed} of {sent} bytes echoed; longest turn {} us \
             of processor time, {} by the clock: {} in reads, {} in slices, {} in sends ({} \
             packets taken, {} sent, {} units, {} of them timed, {} requests; until {} us)",
            micros("longest_turn_processor_ns"),
            micros("longest_turn_ns"),
            micros("longest_turn_receive_ns"),
            micros("longest_turn_slice_ns"),
            micros("longest_turn_transmit_ns"),
            turn("longest_turn_packets"),
            turn("longest_turn_sent"),
            turn("longest_turn_units"),
            turn("longest_turn_slice_units"),
            turn("longest_turn_commands"),
            micros("longest_turn_end_ns"),
        ));
        assert!(
            asked >= ASKED_LEAST && answered * 100 >= asked * 99,
            "{answered} of {asked} answered"
        );
        assert!(echoed * 100 >= sent * 90, "{echoed} of {sent} bytes echoed");
        stat
    }
}

/// Opens `count` connections from several threads, and lets each do something; those that are open.
fn open(count: usize, each: impl Fn(usize, &mut TcpStream) + Sync) -> Vec<TcpStream> {
    thread::scope(|scope| {
        let each = &each;
        let threads = (0..THREADS).map(|first| {
            scope.spawn(move || {
                let numbers = (first..count).step_by(THREADS);
                let opened = numbers.filter_map(|number| {
                    let mut stream = connect(ours(number, 8080)).ok()?;
                    each(number, &mut stream);
                    Some(stream)
                });
                opened.collect::<Vec<_>>()
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

/// Opens connections that then only are there, however many: how many, and what holds them.
fn hold_by(
    connect: fn(SocketAddr) -> std::io::Result<TcpStream>,
    count: usize,
    each: impl Fn(usize, &mut TcpStream) + Sync,
) -> (usize, Vec<Parked>) {
    let all = thread::scope(|scope| {
        let each = &each;
        let threads = (0..THREADS).map(|first| {
            scope.spawn(move || {
                let mut parked = Parked::new();
                for number in (first..count).step_by(THREADS) {
                    if let Ok(mut stream) = connect(ours(number, 8080)) {
                        each(number, &mut stream);
                        parked.push(stream);
                    }
                }
                parked
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    (all.iter().map(Parked::len).sum(), all)
}

fn counted(stat: &Value, name: &str) -> u64 {
    stat["counters"][name].as_u64().unwrap_or_else(|| panic!("{name}"))
}

/// Whether a packet was dropped because memory was used up.
fn lacked_memory(stat: &Value) -> bool {
    let drops = stat["drops"].as_array().unwrap();
    drops
        .iter()
        .any(|drop| ["NoBuffer", "TcpReceiveFull"].contains(&drop["reason"].as_str().unwrap()))
}

/// What an attack is given: how many connections it holds, and how many honest clients have asked.
struct Attack<'a> {
    held: usize,
    asked: &'a AtomicUsize,
}

/// One attack: how many connections it holds at the price that once worked, what it does, and what
/// must be counted for it, given how many each worker has of them.
struct AttackPlan {
    held: usize,
    attack: fn(&Attack<'_>),
    judge: fn(&Value, usize),
}

fn withstand(plan: &'static AttackPlan) {
    let scenes = [(1, 1), (4, 1), (1, 2), (4, 2)];
    for (price, workers) in scenes.into_iter().take(if is_deep() { 4 } else { 1 }) {
        withstand_at(plan, ServerKind::Run, (price, workers));
    }
}

fn withstand_at(plan: &'static AttackPlan, kind: ServerKind, (price, workers): (usize, usize)) {
    tell(&format!("{kind:?}, {price} times its price, {workers} workers:"));
    let held = plan.held * price;
    let set_up = move || Scene::with(kind, workers, held);
    inside_then_alone(set_up, move |scene| {
        let stat = scene.beside(|asked| (plan.attack)(&Attack { held, asked }));
        (plan.judge)(&stat, held / workers);
        // Without attackers all is as before.
        scene.honest.inside(|| (0..20).for_each(|number| assert!(is_answered(number))));
        scene.server.end();
    });
}

/// Where there were more than the places, those that no program owns were evicted.
fn unowned_gave_way(stat: &Value, each: usize) {
    assert!(each <= PLACES || counted(stat, "FloodwallTcpEvictedUnowned") > 0);
}

static TAKES: AttackPlan = AttackPlan {
    held: MANY,
    attack: |attack| {
        let asks = |_: usize, stream: &mut TcpStream| stream.write_all(ASKS).unwrap_or(());
        let (count, _held) = hold_by(connect, attack.held, asks);
        assert!(count >= PLACES);
        hold_on(attack.asked);
    },
    judge: unowned_gave_way,
};

#[test]
fn connections_that_take_their_answer_and_never_close_leave_others_their_places() {
    withstand(&TAKES);
}

static IDLES: AttackPlan = AttackPlan {
    held: MANY,
    attack: |attack| {
        let (count, _held) = hold_by(connect, attack.held, |_, _| ());
        assert!(count >= PLACES);
        hold_on(attack.asked);
    },
    judge: |stat, each| assert!(each <= PLACES || counted(stat, "FloodwallTcpEvictedIdle") > 0),
};

#[test]
fn connections_that_say_nothing_leave_others_their_places() {
    withstand(&IDLES);
}

static LEAVES: AttackPlan = AttackPlan {
    held: 2000,
    attack: |attack| {
        // They read nothing: the rest of the answer waits, and our FIN behind it.
        let asks = b"GET /bytes/1000000 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let all = open(attack.held, |number, stream| {
            let _ = stream.write_all(asks);
            if number % 2 == 0 {
                let _ = stream.shutdown(Shutdown::Write);
            }
        });
        assert!(all.len() > attack.held * 19 / 20);
        let began = Instant::now();
        while goes_on(began, lasts(2), attack.asked) {
            pause(EVERY);
        }
    },
    // Their buffers take no more than is free; beyond that room is made.
    judge: |stat, _| {
        assert!(!lacked_memory(stat) || counted(stat, "TcpExtTCPAbortOnMemory") > 0);
    },
};

#[test]
fn connections_that_never_acknowledge_the_end_leave_others_their_places() {
    withstand(&LEAVES);
}

/// A connection with the smallest receive buffer there is.
fn connect_narrow(to: SocketAddr) -> std::io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 1)?;
    rustix::net::connect(&socket, &to)?;
    let stream = TcpStream::from(socket);
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

static ENDS: AttackPlan = AttackPlan {
    held: MANY,
    attack: |attack| {
        // They read nothing, and their windows are smaller than the answer: its rest waits, and our
        // FIN behind it. Half of them have closed before (LAST-ACK), the others not (FIN-WAIT-1).
        let asks = b"GET /bytes/1500 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let (count, _held) = hold_by(connect_narrow, attack.held, |number, stream| {
            let _ = stream.write_all(asks);
            if number % 4 < 2 {
                let _ = stream.shutdown(Shutdown::Write);
            }
        });
        assert!(count >= PLACES);
        hold_on(attack.asked);
    },
    // No program owns them any more.
    judge: unowned_gave_way,
};

static DRIPS: AttackPlan = AttackPlan {
    held: 100,
    attack: |attack| {
        let mut readers = open(attack.held, |_, stream| {
            let asks = b"GET /bytes/1000000000 HTTP/1.1\r\nHost: a\r\n\r\n";
            stream.write_all(asks).unwrap();
            stream.set_nonblocking(true).unwrap();
        });
        let began = Instant::now();
        while goes_on(began, lasts(4), attack.asked) {
            let mut little = [0; 2900];
            readers.iter_mut().for_each(|reader| _ = reader.read(&mut little));
            pause(Duration::from_millis(80));
        }
    },
    // There is room for all at the first price, though they are slow, and for nearly all at
    // four times that.
    judge: |stat, each| {
        let most = if each > 100 { each as u64 / 100 } else { 0 };
        let reset = counted(stat, "TcpExtTCPAbortOnMemory");
        assert!(reset <= most, "{reset} of {each} a worker were reset");
    },
};

#[test]
fn readers_that_take_little_of_much_leave_memory_to_others() {
    withstand(&DRIPS);
}

static PIPELINES: AttackPlan = AttackPlan {
    held: 20,
    attack: |attack| {
        let mut clients = open(attack.held, |_, stream| stream.set_nonblocking(true).unwrap());
        let requests = b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(4000);
        let mut taken = vec![0; clients.len()];
        let mut room = vec![0; 65_536];
        let began = Instant::now();
        while goes_on(began, lasts(3), attack.asked) {
            for (client, taken) in clients.iter_mut().zip(&mut taken) {
                let _ = client.read(&mut room);
                if let Ok(count) = client.write(&requests[*taken..]) {
                    *taken = (*taken + count) % requests.len();
                }
            }
        }
    },
    judge: |_, _| (),
};

#[test]
fn requests_back_to_back_take_their_share_of_a_turn() {
    withstand(&PIPELINES);
}

static TRICKLES: AttackPlan = AttackPlan {
    held: 50,
    attack: |attack| {
        let begin = |_: usize, stream: &mut TcpStream| {
            stream.set_nodelay(true).unwrap();
            stream.set_nonblocking(true).unwrap();
            let _ = stream.write(b"GET / HTTP/1.1\r\nX: ");
        };
        let mut clients = open(attack.held, begin);
        let began = Instant::now();
        while goes_on(began, lasts(3), attack.asked) {
            for (number, client) in clients.iter_mut().enumerate() {
                // The head was too long: the next connection begins another.
                let is_refused = match client.write(b"a") {
                    Ok(_) => false,
                    Err(error) => error.kind() != ErrorKind::WouldBlock,
                };
                if is_refused && let Ok(mut next) = connect(ours(number, 8080)) {
                    begin(number, &mut next);
                    *client = next;
                }
            }
        }
    },
    judge: |_, _| (),
};

#[test]
fn heads_that_come_byte_by_byte_take_their_share_of_a_turn() {
    withstand(&TRICKLES);
}

/// A connection from the attacker's one network or the other.
fn connect_from(number: usize, port: u16) -> std::io::Result<TcpStream> {
    let from: IpAddr = OTHERS[number / 2 % 2][number % 2].parse().unwrap();
    let family = if from.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddr::new(from, 0))?;
    rustix::net::connect(&socket, &ours(number, port))?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// What one client of the mixture does, again and again.
#[derive(Clone, Copy)]
enum Habit {
    /// Exchanges something small, then sends one byte a second.
    KeepsAlive,
    /// Has closed its direction, and reads a little of much.
    HalfClosed,
    /// Sends a body byte by byte that it has announced.
    SlowPost,
    /// Resets, and connects again.
    Churns,
    /// Reads nothing of much, with the smallest buffer there is.
    NoWindow,
}

const HABITS: [Habit; 5] =
    [Habit::KeepsAlive, Habit::HalfClosed, Habit::SlowPost, Habit::Churns, Habit::NoWindow];

impl Habit {
    fn begin(self, number: usize) -> std::io::Result<TcpStream> {
        let port = if matches!(self, Self::KeepsAlive) { 7 } else { 8080 };
        let mut stream = connect_from(number, port)?;
        let much = b"GET /bytes/1000000000 HTTP/1.1\r\nHost: a\r\n\r\n";
        match self {
            Self::KeepsAlive => {
                stream.write_all(&[b'k'; 300])?;
                stream.read_exact(&mut [0; 300])?;
            }
            Self::HalfClosed => {
                stream.write_all(much)?;
                stream.shutdown(Shutdown::Write)?;
            }
            Self::SlowPost => stream
                .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n")?,
            Self::Churns => rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?,
            Self::NoWindow => {
                rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 1)?;
                stream.write_all(much)?;
            }
        }
        stream.set_nonblocking(true)?;
        Ok(stream)
    }

    /// Goes on; whether another connection is to take its place.
    fn go_on(self, stream: &mut TcpStream, turn: usize) -> bool {
        let said = match self {
            Self::KeepsAlive if turn.is_multiple_of(10) => stream.write(b"k"),
            Self::SlowPost => stream.write(b"p"),
            Self::HalfClosed => stream.read(&mut [0; 1000]),
            Self::Churns => return true,
            Self::KeepsAlive | Self::NoWindow => Ok(0),
        };
        said.is_err_and(|error| error.kind() != ErrorKind::WouldBlock)
    }
}

/// As many of each habit as there are places for, of two networks, and each comes again that was
/// reset.
#[test]
fn a_mixture_of_all_habits_of_two_networks_leaves_others_their_share() {
    let (each, seconds) = if is_deep() { (3500, 30) } else { (400, 3) };
    inside_then_alone(Scene::set_up, move |scene| {
        scene.beside(|asked| {
            assert!(ip(&format!("addr add 10.77.10.1/16 dev {ETH}")));
            assert!(give_v6("fd77:0:0:a::1/48", ETH));
            let began = Instant::now();
            thread::scope(|scope| {
                for habit in HABITS {
                    scope.spawn(move || {
                        let begin = |number| habit.begin(number);
                        let mut all: Vec<_> = (0..each).filter_map(|n| begin(n).ok()).collect();
                        let mut turn = 0;
                        while goes_on(began, Duration::from_secs(seconds), asked) {
                            turn += 1;
                            for (number, stream) in all.iter_mut().enumerate() {
                                if habit.go_on(stream, turn + number)
                                    && let Ok(next) = begin(number)
                                {
                                    *stream = next;
                                }
                            }
                            let every = Duration::from_millis(100);
                            pause(if matches!(habit, Habit::Churns) {
                                Duration::ZERO
                            } else {
                                every
                            });
                        }
                    });
                }
            });
        });
        scene.server.end();
    });
}
