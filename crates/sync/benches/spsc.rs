//! The ring against `std::sync::mpsc::sync_channel`: items per second from thread to thread.
//!
//! Rounds of all rivals are interleaved, so that a slow minute of the machine hits all of them;
//! medians are printed, and the ratio to the channel. Trust ratios, not figures. Run it with
//! `cargo bench -p floodwall-sync --bench spsc`.
#![cfg(not(loom))]

use std::{hint::black_box, sync::mpsc, thread, time::Duration};

use floodwall_sync::spsc;

const ITEMS: u64 = 4_000_000;
const CAPACITY: usize = 1_024;
const BATCH: usize = 64;
const ROUNDS: usize = 7;

fn main() {
    let rivals: [(&str, fn()); 3] = [
        ("std sync_channel", channel),
        ("ring, one by one", ring_single),
        ("ring, batches of 64", ring_batch),
    ];
    let mut rounds = rivals.map(|_| Vec::with_capacity(ROUNDS));
    for _ in 0..ROUNDS {
        for ((_, run), times) in rivals.iter().zip(&mut rounds) {
            times.push(timed(*run));
        }
    }
    let medians = rounds.map(median);
    println!("{ITEMS} items of 8 bytes, capacity {CAPACITY}, medians of {ROUNDS} rounds");
    for ((name, _), time) in rivals.iter().zip(medians) {
        let nanos = time.as_nanos() as f64 / ITEMS as f64;
        let ratio = medians[0].as_secs_f64() / time.as_secs_f64();
        println!("{name:20} {nanos:7.2} ns/item {:7.1} M/s {ratio:6.1} x", 1_000.0 / nanos);
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn timed(run: fn()) -> Duration {
    let start = std::time::Instant::now();
    run();
    start.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn channel() {
    let (sender, receiver) = mpsc::sync_channel(CAPACITY);
    thread::scope(|scope| {
        scope.spawn(move || (0..ITEMS).for_each(|item| sender.send(item).expect("receiver")));
        assert_eq!(receiver.iter().take(ITEMS as usize).map(black_box).count() as u64, ITEMS);
    });
}

fn ring_single() {
    let (mut producer, mut consumer) = spsc::ring(CAPACITY);
    thread::scope(|scope| {
        scope.spawn(move || {
            for item in 0..ITEMS {
                while producer.push(item).is_err() {
                    wait();
                }
            }
        });
        for item in 0..ITEMS {
            let popped = loop {
                match consumer.pop() {
                    Some(popped) => break popped,
                    None => wait(),
                }
            };
            assert_eq!(black_box(popped), item);
        }
    });
}

fn ring_batch() {
    let (mut producer, mut consumer) = spsc::ring(CAPACITY);
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut items = 0..ITEMS;
            while !items.is_empty() {
                if producer.push_batch(items.by_ref().take(BATCH)) == 0 {
                    wait();
                }
            }
        });
        let mut next = 0;
        while next < ITEMS {
            let before = next;
            for item in consumer.pop_batch(BATCH) {
                assert_eq!(black_box(item), next);
                next += 1;
            }
            if next == before {
                wait();
            }
        }
    });
}

/// Lets the other end run: both may share one core.
fn wait() {
    thread::yield_now();
}
