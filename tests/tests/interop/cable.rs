//! A long cable in user space between two TUN devices: a rate, a queue before it, a delay, losses.
//!
//! One thread moves packets from each end to the other at their time. Both families, any traffic:
//! every sender through it, the kernel or a host of ours behind a kernel that forwards, finds the
//! same cable. Invariant: a packet is dropped by chance, or because it would have waited longer
//! than the queue is long, and each such drop is counted.

#![expect(clippy::disallowed_methods, reason = "the cable runs in real time")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use floodwall_base::PublicRandom;
use floodwall_device::{Device, Tun};
use floodwall_packet::{Burst, PacketBuf, PacketList, Pool, PoolConfig};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// What a cable is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CableConfig {
    /// Bits a second in each direction.
    pub(crate) rate: u64,
    /// From one end to the other.
    pub(crate) delay: Duration,
    /// How long a packet may wait for its turn.
    pub(crate) queue: Duration,
}

/// State shared with its users while it runs.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Losses by chance, in a million.
    losses: AtomicU32,
    lost: AtomicU64,
    refused: AtomicU64,
}

/// A cable between two TUN devices, with a rate, a queue, a delay and losses.
pub(crate) struct Cable {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Cable {
    pub(crate) fn lay(ends: [Tun; 2], config: CableConfig) -> Self {
        let shared = Arc::new(Shared::default());
        let its = Arc::clone(&shared);
        let thread = thread::spawn(move || run(ends, &config, &its));
        Self { shared, thread: Some(thread) }
    }

    /// From now on so many of a million packets are lost, in each direction.
    pub(crate) fn lose(&self, of_a_million: u32) {
        self.shared.losses.store(of_a_million, Ordering::Relaxed);
    }

    /// Packets lost by chance, and in front of a full queue, until now.
    pub(crate) fn drops(&self) -> (u64, u64) {
        let Shared { lost, refused, .. } = &*self.shared;
        (lost.load(Ordering::Relaxed), refused.load(Ordering::Relaxed))
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One direction.
struct Lane {
    flying: VecDeque<(Instant, PacketBuf)>,
    /// When all that was taken has left.
    busy: Instant,
    random: PublicRandom,
}

impl Lane {
    fn take(&mut self, packet: PacketBuf, config: &CableConfig, shared: &Shared) {
        let now = Instant::now();
        if self.random.below(1_000_000) < u64::from(shared.losses.load(Ordering::Relaxed)) {
            shared.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let begins = self.busy.max(now);
        if begins - now > config.queue {
            shared.refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let nanos = packet.len() as u64 * 8 * 1_000_000_000 / config.rate;
        self.busy = begins + Duration::from_nanos(nanos);
        self.flying.push_back((self.busy + config.delay, packet));
    }

    fn arrived(&mut self, now: Instant) -> PacketList {
        let mut list = PacketList::new();
        while self.flying.front().is_some_and(|(due, _)| *due <= now) {
            self.flying.pop_front().into_iter().for_each(|(_, packet)| list.push_back(packet));
        }
        list
    }
}

fn run(mut ends: [Tun; 2], config: &CableConfig, shared: &Shared) {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let lane = |seed| Lane {
        flying: VecDeque::new(),
        busy: Instant::now(),
        random: PublicRandom::new(seed),
    };
    let mut lanes = [lane(1), lane(2)];
    let mut burst = Burst::new();
    while !shared.stop.load(Ordering::Relaxed) {
        for (end, lane) in ends.iter_mut().zip(&mut lanes) {
            while end.receive(&pool, &mut burst).unwrap() > 0 {
                burst.drain().for_each(|packet| lane.take(packet, config, shared));
            }
        }
        let now = Instant::now();
        for (end, lane) in ends.iter_mut().rev().zip(&mut lanes) {
            let mut list = lane.arrived(now);
            end.transmit(&mut list).unwrap();
            assert!(list.is_empty(), "a TUN takes what it is given");
        }
        let next = lanes.iter().filter_map(|lane| lane.flying.front()).map(|(due, _)| *due).min();
        let most = Duration::from_millis(10);
        let wait = next.map_or(most, |due| due.saturating_duration_since(Instant::now()).min(most));
        let mut readable = ends
            .each_ref()
            .map(|end| PollFd::from_borrowed_fd(end.readiness().unwrap(), PollFlags::IN));
        let wait = Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
        let _ = poll(&mut readable, Some(&wait));
    }
}
