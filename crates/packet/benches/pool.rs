//! What a packet's memory costs: taking and giving back, here and on another thread.
//!
//! The rival is the global allocator with a boxed frame of the same size. Rounds are interleaved,
//! so that a slow minute of the machine hits all; medians are printed. Trust ratios, not figures.
//! Run it with `cargo bench -p floodwall-packet --bench pool`.
#![cfg(not(loom))]

use std::{hint::black_box, sync::mpsc, thread, time::Duration};

use floodwall_packet::{Class, PacketBuf, PacketList, Pool, PoolConfig};

const PACKETS: usize = 1_000_000;
const BATCH: usize = 64;
const ROUNDS: usize = 9;

fn main() {
    let pool = Pool::new(&PoolConfig::default()).expect("the machine has 20 MiB");
    let rivals = [
        ("boxed frames, 64 out", boxed as fn(&Pool)),
        ("frames, 64 out", frames),
        ("small, one out", one_out),
        ("references, 64 out", references),
        ("through a list, 64 out", listed),
        ("dropped on another thread", dropped_elsewhere),
    ];
    let mut rounds = rivals.map(|_| Vec::with_capacity(ROUNDS));
    for _ in 0..ROUNDS {
        for ((_, run), times) in rivals.iter().zip(&mut rounds) {
            times.push(timed(*run, &pool));
        }
    }
    println!("{PACKETS} packets, medians of {ROUNDS} rounds");
    for ((name, _), mut times) in rivals.iter().zip(rounds) {
        times.sort();
        println!("{name:26} {:7.2} ns", times[ROUNDS / 2].as_nanos() as f64 / PACKETS as f64);
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn timed(run: fn(&Pool), pool: &Pool) -> Duration {
    let start = std::time::Instant::now();
    run(pool);
    start.elapsed()
}

fn boxed(_: &Pool) {
    for _ in 0..PACKETS / BATCH {
        black_box([(); BATCH].map(|()| Box::<[u8; 2048]>::new_uninit()));
    }
}

fn frames(pool: &Pool) {
    for _ in 0..PACKETS / BATCH {
        black_box([(); BATCH].map(|()| pool.alloc(Class::Frame)));
    }
}

fn one_out(pool: &Pool) {
    for _ in 0..PACKETS {
        black_box(pool.alloc(Class::Small));
    }
}

fn references(pool: &Pool) {
    let packet = pool.packet_from(&[1; 1000]).expect("a frame is free");
    for _ in 0..PACKETS / BATCH {
        black_box([(); BATCH].map(|()| packet.share(pool, 10, 900)));
    }
}

fn listed(pool: &Pool) {
    let mut list = PacketList::new();
    for _ in 0..PACKETS / BATCH {
        for packet in (0..BATCH).filter_map(|_| pool.alloc(Class::Frame)) {
            list.push_back(packet);
        }
        while let Some(packet) = list.pop_front() {
            black_box(packet);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark has threads")]
fn dropped_elsewhere(pool: &Pool) {
    let (to, from) = mpsc::sync_channel::<Vec<PacketBuf>>(16);
    let other = thread::spawn(move || from.into_iter().for_each(drop));
    let mut sent = 0;
    while sent < PACKETS {
        let batch: Vec<_> = (0..BATCH).filter_map(|_| pool.alloc(Class::Frame)).collect();
        sent += batch.len();
        to.send(batch).expect("the other thread runs");
    }
    drop(to);
    other.join().expect("the other thread does not panic");
}
