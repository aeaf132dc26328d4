//! How programs and workers exchange bytes: the figures of `docs/design/ownership.md`.
//!
//! `cargo bench -p floodwall-stack --bench ownership`. A fake worker loops back what streams write,
//! through real pool, mailboxes, doorbell, credit and wake groups; a small executor stands for the
//! program's runtime. Bulk (64 KiB a write), ping-pong (64 bytes), and 1,000 streams of 64 bytes;
//! worker and program on two cores, as two threads on one core, and on one thread; wakers woken
//! directly against handed over to the group; one worker and two. Every byte read is compared. The
//! table shows medians of interleaved rounds; on a shared machine trust ratios.
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time, with threads")]
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a benchmark, set up by itself")]

mod fake;
mod runtime;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use fake::{Shared, Worker};
use floodwall_packet::PacketList;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Where worker and program run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    TwoCores,
    OneCore,
    SameThread,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    Bulk,
    PingPong,
    Streams,
}

#[derive(Clone, Copy)]
struct Row {
    load: Load,
    place: Place,
    workers: usize,
    direct: bool,
}

/// Bytes of one bulk write.
const WRITE: usize = 65_536;
/// Bytes of a request.
const REQUEST: usize = 64;
/// Tasks that the driver wakes in one poll.
const DRIVE: usize = 100;

struct Size {
    rounds: usize,
    writes: usize,
    pings: usize,
    streams: usize,
    requests: usize,
}

fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    // A machine with one core has no other.
    let _ = sched_setaffinity(None, &set);
}

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|n| (n.wrapping_mul(31).wrapping_add(seed * 7 + n / 251)) as u8).collect()
}

async fn ask(shared: &Shared, stream: usize, count: usize) {
    let mut unread = PacketList::new();
    for number in 0..count {
        let request = pattern(REQUEST, (stream + number) as u64);
        let mut answer = [0; REQUEST];
        shared.write(stream, &request).await;
        shared.read(stream, &mut unread, &mut answer).await;
        assert!(answer[..] == request[..], "stream {stream}: request {number}");
    }
}

type Tasks<'a> = Vec<Pin<Box<dyn Future<Output = ()> + 'a>>>;

fn tasks<'a>(shared: &'a Shared, row: Row, size: &Size, bytes: &'a [u8]) -> Tasks<'a> {
    let (writes, requests) = (size.writes, size.requests);
    let mut all: Tasks<'a> = match row.load {
        Load::PingPong => vec![Box::pin(ask(shared, 0, size.pings))],
        Load::Streams => (0..size.streams)
            .map(|stream| -> Pin<Box<dyn Future<Output = ()> + 'a>> {
                Box::pin(ask(shared, stream, requests))
            })
            .collect(),
        Load::Bulk => vec![
            Box::pin(async move {
                let (mut unread, mut out) = (PacketList::new(), vec![0; WRITE]);
                for _ in 0..writes {
                    shared.read(0, &mut unread, &mut out).await;
                    assert!(out == bytes, "bulk");
                }
            }),
            Box::pin(async move {
                for _ in 0..writes {
                    shared.write(0, bytes).await;
                }
            }),
        ],
    };
    for group in &shared.groups {
        all.push(Box::pin(poll_fn(move |cx| {
            if group.drive(cx, DRIVE).is_ready() {
                cx.waker().wake_by_ref();
            }
            Poll::Pending
        })));
    }
    all
}

/// One round of one row: how long it took.
fn measure(row: Row, size: &Size) -> Duration {
    let streams = if row.load == Load::Streams { size.streams } else { 1 };
    let shared = Shared::new(streams, row.workers);
    let bytes = pattern(WRITE, 1);
    let all = tasks(&shared, row, size, &bytes);
    let goals = all.len() - shared.groups.len();
    pin(0);
    if row.place == Place::SameThread {
        let mut workers: Vec<_> =
            (0..row.workers).map(|index| Worker::new(index, row.direct, streams)).collect();
        let start = Instant::now();
        runtime::run(all, goals, || {
            workers.iter_mut().map(|worker| worker.round(&shared)).sum::<usize>() > 0
        });
        return start.elapsed();
    }
    thread::scope(|scope| {
        for index in 0..row.workers {
            let shared = &shared;
            let handle = scope.spawn(move || {
                // The second of two workers shares the program's core where there are two.
                pin(if row.place == Place::OneCore { 0 } else { (index + 1) % 2 });
                let spins = row.place == Place::TwoCores && row.workers == 1;
                work(shared, Worker::new(index, row.direct, streams), index, spins);
            });
            shared.alarm(index, handle.thread().clone());
        }
        let start = Instant::now();
        runtime::run(all, goals, || false);
        let took = start.elapsed();
        shared.stop.store(true, Ordering::Release);
        shared.wake_workers();
        took
    })
}

/// A worker's thread: rounds, and a sleep when no doorbell rings (or not, where it has its core
/// alone).
fn work(shared: &Shared, mut worker: Worker, index: usize, spins: bool) {
    while !Worker::is_stopped(shared) {
        if worker.round(shared) > 0 {
            continue;
        }
        if spins {
            std::hint::spin_loop();
        } else if shared.rests(index) {
            thread::park_timeout(Duration::from_millis(50));
        }
    }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// What a row is measured in.
fn figure(row: Row, size: &Size, took: Duration) -> (f64, &'static str) {
    let seconds = took.as_secs_f64();
    match row.load {
        Load::Bulk => ((size.writes * WRITE * 8) as f64 / seconds / 1e9, "Gbit/s"),
        Load::PingPong => (seconds * 1e9 / size.pings as f64, "ns a ping-pong"),
        Load::Streams => ((size.streams * size.requests) as f64 / seconds / 1e6, "M requests/s"),
    }
}

fn machine() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = thread::available_parallelism().map_or(1, usize::from);
    format!("{cores} cores, {}", model.map_or("unknown", |(_, name)| name))
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for load in [Load::Bulk, Load::PingPong, Load::Streams] {
        for place in [Place::TwoCores, Place::OneCore, Place::SameThread] {
            for direct in [true, false] {
                for workers in [1, 2] {
                    let told = load == Load::Streams || !direct;
                    let several = load == Load::Streams || workers == 1;
                    if told && several {
                        rows.push(Row { load, place, workers, direct });
                    }
                }
            }
        }
    }
    rows
}

fn main() {
    let quick = std::env::args().any(|arg| arg == "--test");
    let size = match quick {
        true => Size { rounds: 1, writes: 4, pings: 20, streams: 10, requests: 3 },
        false => Size { rounds: 5, writes: 4000, pings: 50_000, streams: 1000, requests: 200 },
    };
    // Before this thread is pinned, which hides the other cores.
    let machine = machine();
    let rows = rows();
    let mut figures = vec![Vec::new(); rows.len()];
    for _ in 0..size.rounds {
        for (row, figures) in rows.iter().zip(&mut figures) {
            figures.push(figure(*row, &size, measure(*row, &size)).0);
        }
    }
    println!("{machine}; medians of {} interleaved rounds", size.rounds);
    for (row, figures) in rows.iter().zip(figures) {
        let load = match row.load {
            Load::Bulk => "bulk, 64 KiB writes",
            Load::PingPong => "ping-pong, 64 B",
            Load::Streams => "1,000 streams, 64 B",
        };
        let place = match row.place {
            Place::TwoCores => "two cores",
            Place::OneCore => "two threads, one core",
            Place::SameThread => "same thread",
        };
        let wakes = if row.direct { "direct wakes" } else { "wake group" };
        let unit = figure(*row, &size, Duration::from_secs(1)).1;
        let workers = row.workers;
        println!(
            "{load:<20} {place:<22} {workers} worker(s)  {wakes:<13} {:>10.2} {unit}",
            median(figures)
        );
    }
}
