//! Honest connections and what is taken off the wire under SYN floods, by the kernel alone and
//! behind the guard, in one run. Ignored: it prints, and judges nothing.
//!
//! `cargo test -p floodwall-guard --test guarded rates:: -- --ignored --nocapture`, as root. One
//! thread floods and one connects, in the client's namespace; the veth's work is done on the
//! flood's core, so that a dearer SYN slows the flood.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::rig::{self, Flood, IFACE, Rig, config, echo, server, start};
use floodwall_guard::Watch;
use rustix::thread::{CpuSet, sched_setaffinity};

const PORT: u16 = 7000;
const LASTS: Duration = Duration::from_secs(3);
/// An honest client waits no longer.
const PATIENCE: Duration = Duration::from_millis(500);

fn honest(addr: SocketAddr) -> std::io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&addr, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"x")?;
    stream.read_exact(&mut [0])
}

/// Packets that the interface has received, and those that it had no room for.
fn received() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let line = text.lines().find(|line| line.trim_start().starts_with(IFACE)).unwrap();
    let words: Vec<u64> = line.split_whitespace().skip(1).map(|w| w.parse().unwrap()).collect();
    (words[1], words[3])
}

/// Ticks that the cores had nothing to do.
fn idle() -> u64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap();
    text.lines().next().unwrap().split_whitespace().nth(4).unwrap().parse().unwrap()
}

/// Keeps the calling thread, and those that it starts, on one core.
fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).unwrap();
}

/// One measurement at a pace (0 is as fast as it goes).
fn measure(rig: &Rig, what: &str, v6: bool, pace: u64) {
    let before = (received(), idle());
    let (tried, good, sent, worst, seconds) = rig.run(move || {
        let ended = Arc::new(AtomicBool::new(false));
        let sent = Arc::new(AtomicU64::new(0));
        let flood = {
            let (ended, sent) = (Arc::clone(&ended), Arc::clone(&sent));
            thread::spawn(move || {
                let mut source = Flood::new(server(v6, PORT), 2);
                pin(0);
                let made = source.made(1 << 14);
                let mut made = made.iter().cycle();
                let began = Instant::now();
                while !ended.load(Ordering::Relaxed) {
                    let due = began.elapsed().as_micros() as u64 * pace / 1_000_000;
                    let so_far = sent.load(Ordering::Relaxed);
                    let batch = if pace == 0 { 256 } else { due.saturating_sub(so_far).min(512) };
                    source.send_made(made.by_ref().take(batch as usize));
                    sent.fetch_add(batch, Ordering::Relaxed);
                    if batch == 0 {
                        thread::sleep(Duration::from_micros(200));
                    }
                }
            })
        };
        thread::sleep(Duration::from_millis(500));
        pin(1);
        let began = Instant::now();
        let (mut tried, mut good, mut worst) = (0, 0, Duration::ZERO);
        while began.elapsed() < LASTS {
            let from = Instant::now();
            tried += 1;
            good += u32::from(honest(server(v6, PORT)).is_ok());
            worst = worst.max(from.elapsed());
        }
        let seconds = began.elapsed().as_secs_f64() + 0.5;
        ended.store(true, Ordering::Relaxed);
        flood.join().unwrap();
        (tried, good, sent.load(Ordering::Relaxed), worst, seconds)
    });
    let ((packets, lost), idle) = (received(), idle() - before.1);
    let each = |count: u64| count as f64 / seconds / 1000.0;
    println!(
        "{what}, IPv6 {v6}, pace {pace}: honest {good} of {tried} ({:.1} %), worst {worst:.0?}; \
         sent {:.0} k/s, taken {:.0} k/s, lost {:.0} k/s; idle {:.0} % of a core",
        100.0 * f64::from(good) / f64::from(tried),
        each(sent),
        each(packets - before.0.0),
        each(lost - before.0.1),
        idle as f64 / seconds
    );
}

#[test]
#[ignore = "prints figures"]
fn what_each_takes_and_loses() {
    let Some(rig) = Rig::new() else { return };
    assert!(rig::ip(&format!("route add 198.18.0.0/15 via {}", rig::CLIENT.0)));
    assert!(rig::ip(&format!("route add 2001:db8::/32 via {}", rig::CLIENT.1)));
    // Connections of the same ends again, which TIME-WAIT would take to the kernel.
    rig::sysctl("ipv4/tcp_max_tw_buckets", "0");
    pin(1);
    for v6 in [false, true] {
        echo(server(v6, PORT));
    }
    for pace in [200_000, 0] {
        for v6 in [false, true] {
            measure(&rig, "kernel", v6, pace);
            let Some(guard) = start(config(&[PORT], Watch::Backlog { shift: 2 })) else { return };
            measure(&rig, "guard ", v6, pace);
            drop(guard);
        }
    }
}
