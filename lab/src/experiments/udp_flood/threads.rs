//! Real threads: producers that never rest, one reader that takes what it can, and queues between.
//!
//! Every queue has its turn in one run, so that each moment of the machine is shared by all. A
//! producer offers one packet after another; what is refused it offers again, so that nothing but
//! the queue is measured. Times are the machine's, the scheduler's interruptions included: where
//! there are fewer cores than threads the tail is the scheduler's, and what is claimed of it is not
//! judged. Counts (locks, shared writes, overshoot, conservation) are judged everywhere; where
//! there are turns enough, so is what the reader gets for a second of its own processor, which is
//! independent of the scheduler: beside what it gets of the same queue when producers come with
//! half of what it can take.
#![expect(clippy::disallowed_methods, reason = "what is measured is time")]

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam_queue::{ArrayQueue, SegQueue};
use floodwall_base::{HashKey, NumaNode};
use floodwall_packet::{
    Account, Class, NodeQueues, PacketBuf, PacketList, Pool, PoolConfig, Region,
};
use floodwall_sync::mailbox::Bits;
use floodwall_udp::{FairRequest, FairShare, SenderStanding, ShareDemand};
use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;

use super::histogram::Histogram;
use crate::baselines::udp_queues::{Busylock, Lists, Locked, Refusal};

/// What stands between producers and the reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    Mutex,
    Busylock,
    OneList,
    PerNode,
    TakeAll,
    TakeAllFair,
    ArrayQueue,
    SegQueue,
    RtrbEach,
}

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Busylock => "busylock",
            Self::OneList => "one-list",
            Self::PerNode => "per-node",
            Self::TakeAll => "take-all",
            Self::TakeAllFair => "take-all-fair",
            Self::ArrayQueue => "crossbeam-array",
            Self::SegQueue => "crossbeam-seg",
            Self::RtrbEach => "rtrb-each",
        }
    }
}

/// What a turn is made of.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Work {
    /// Datagrams that the socket may hold.
    pub(super) datagrams: u64,
    /// Datagrams of one worker's round.
    pub(super) round: u32,
    /// Nanoseconds that the reader needs for one datagram; 0: as fast as it can.
    pub(super) read_nanos: u64,
}

/// How fast producers come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Offer {
    /// One datagram after the other.
    AllThatCan,
    /// In rounds, half as many as the reader can take.
    HalfOfWhatIsRead,
}

impl Offer {
    /// Time from one round of a producer to its next.
    fn pause(self, producers: usize, work: &Work) -> Duration {
        match self {
            Self::AllThatCan => Duration::ZERO,
            Self::HalfOfWhatIsRead => {
                let each = Duration::from_nanos(2 * work.read_nanos * producers as u64);
                each * work.round
            }
        }
    }
}

/// What one turn saw.
#[derive(Clone, Debug, Default)]
pub(super) struct Turn {
    pub(super) enqueue: Histogram,
    pub(super) delivered: u64,
    pub(super) refused: u64,
    pub(super) seconds: f64,
    /// Processor time of the reader, until the end.
    pub(super) reader_seconds: f64,
    pub(super) refusals: Refusal,
    /// True bytes beyond the limit, at the worst look.
    pub(super) overshoot: u64,
    /// What was taken and never read: 0.
    pub(super) lost: i64,
    /// True bytes still charged at the end: 0.
    pub(super) charged: u64,
}

enum Queue {
    Locked(Locked),
    Busylock(Busylock),
    Lists(Lists),
    Ours { queues: NodeQueues, nodes: usize, accounts: Mutex<Vec<Arc<Account>>> },
    Array { queue: ArrayQueue<PacketBuf> },
    Seg { queue: SegQueue<PacketBuf>, used: AtomicU64, limit: u64 },
    Rings(Mutex<Vec<rtrb::Consumer<PacketBuf>>>),
}

/// What a producer has of its own.
#[derive(Default)]
struct Mine {
    account: Option<Arc<Account>>,
    batch: PacketList,
    in_round: u32,
    fair: Option<Box<(FairShare, ShareDemand)>>,
    limit: u64,
    ring: Option<rtrb::Producer<PacketBuf>>,
}

impl Queue {
    fn new(kind: Kind, nodes: usize, work: &Work, size: u64) -> Self {
        let limit = work.datagrams * size;
        match kind {
            Kind::Mutex => Self::Locked(Locked::new(limit)),
            Kind::Busylock => Self::Busylock(Busylock::new(limit)),
            Kind::OneList => Self::Lists(Lists::new(1, limit)),
            Kind::PerNode => Self::Lists(Lists::new(nodes, limit)),
            Kind::TakeAll | Kind::TakeAllFair => {
                Self::Ours { queues: NodeQueues::new(nodes), nodes, accounts: Mutex::default() }
            }
            Kind::ArrayQueue => Self::Array { queue: ArrayQueue::new(work.datagrams as usize) },
            Kind::SegQueue => Self::Seg { queue: SegQueue::new(), used: AtomicU64::new(0), limit },
            Kind::RtrbEach => Self::Rings(Mutex::default()),
        }
    }

    /// A producer joins, on its own thread.
    fn join(&self, kind: Kind, producers: usize, work: &Work, pool: &Pool, size: u64) -> Mine {
        let mut mine = Mine::default();
        match self {
            Self::Ours { accounts, .. } => {
                mine.limit = work.datagrams * size / producers as u64;
                let account = pool.open_account(mine.limit).map(Arc::new);
                let mut all = accounts.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                all.extend(account.clone());
                mine.account = account;
                mine.fair = (kind == Kind::TakeAllFair).then(|| {
                    Box::new((FairShare::new(HashKey::new(1, 2)), ShareDemand::default()))
                });
            }
            Self::Rings(consumers) => {
                let room = work.datagrams as usize / producers;
                let (producer, consumer) = rtrb::RingBuffer::new(room);
                consumers.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(consumer);
                mine.ring = Some(producer);
            }
            _ => {}
        }
        mine
    }

    /// One enqueue.
    #[inline]
    fn offer(
        &self,
        producer: usize,
        mine: &mut Mine,
        packet: PacketBuf,
        round: u32,
        source: u32,
    ) -> Result<(), (PacketBuf, Refusal)> {
        let free = Refusal::default();
        match self {
            Self::Locked(queue) => queue.offer(producer, packet),
            Self::Busylock(queue) => queue.offer(producer, packet),
            Self::Lists(queue) => queue.offer(producer, packet),
            Self::Ours { queues, nodes, .. } => {
                let offered = mine.offer(packet, source);
                mine.in_round += 1;
                if mine.in_round >= round {
                    mine.in_round = 0;
                    if !mine.batch.is_empty() {
                        let node = NumaNode((producer % nodes) as u8);
                        queues.push(node, mine.batch.take(), Bits::NONE);
                    }
                }
                offered.map_err(|packet| (packet, free))
            }
            Self::Array { queue } => queue.push(packet).map_err(|packet| (packet, free)),
            Self::Seg { queue, used, limit } => {
                let size = u64::from(packet.true_size());
                if used.load(Ordering::Relaxed) + size > *limit {
                    return Err((packet, free));
                }
                if used.fetch_add(size, Ordering::Relaxed) + size > *limit {
                    used.fetch_sub(size, Ordering::Relaxed);
                    return Err((packet, Refusal { locks: 0, shared_writes: 2 }));
                }
                queue.push(packet);
                Ok(())
            }
            Self::Rings(_) => match &mut mine.ring {
                Some(ring) => {
                    ring.push(packet).map_err(|rtrb::PushError::Full(packet)| (packet, free))
                }
                None => Err((packet, free)),
            },
        }
    }

    /// What a producer still has goes to the reader.
    fn leave(&self, producer: usize, mine: &mut Mine) {
        if let Self::Ours { queues, nodes, .. } = self {
            queues.push(NumaNode((producer % nodes) as u8), mine.batch.take(), Bits::NONE);
        }
    }

    fn take(&self) -> PacketList {
        let mut all = PacketList::new();
        match self {
            Self::Locked(queue) => all = queue.take(),
            Self::Busylock(queue) => all = queue.take(),
            Self::Lists(queue) => all = queue.take(),
            Self::Ours { queues, .. } => all = queues.take(Bits::NONE).0,
            Self::Array { queue } => {
                while all.len() < 64
                    && let Some(packet) = queue.pop()
                {
                    all.push_back(packet);
                }
            }
            Self::Seg { queue, used, .. } => {
                while all.len() < 64
                    && let Some(packet) = queue.pop()
                {
                    used.fetch_sub(u64::from(packet.true_size()), Ordering::Relaxed);
                    all.push_back(packet);
                }
            }
            Self::Rings(rings) => {
                let mut rings = rings.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                for ring in rings.iter_mut() {
                    for _ in 0..ring.slots().min(64) {
                        all.extend_one(ring.pop().ok());
                    }
                }
            }
        }
        all
    }

    /// True bytes that ours holds.
    fn charged(&self) -> u64 {
        match self {
            Self::Ours { accounts, .. } => {
                let all = accounts.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                all.iter().map(|account| account.used()).sum()
            }
            _ => 0,
        }
    }
}

/// A list that takes one more, if there is one.
trait ExtendOne {
    fn extend_one(&mut self, packet: Option<PacketBuf>);
}

impl ExtendOne for PacketList {
    fn extend_one(&mut self, packet: Option<PacketBuf>) {
        if let Some(packet) = packet {
            self.push_back(packet);
        }
    }
}

impl Mine {
    /// The product's way: the source's share, the account, the round's list.
    #[inline]
    fn offer(&mut self, mut packet: PacketBuf, source: u32) -> Result<(), PacketBuf> {
        let Some(account) = &self.account else { return Err(packet) };
        if let Some(fair) = &mut self.fair {
            let (fair, demand) = &mut **fair;
            let ask = FairRequest {
                source: std::net::Ipv4Addr::from_bits(source << 8).into(),
                socket: 1,
                true_size: packet.true_size(),
                used: account.used(),
                limit: self.limit,
            };
            if !fair.grants(&ask, demand, || SenderStanding::Unknown) {
                return Err(packet);
            }
        }
        if packet.charge(account).is_err() {
            return Err(packet);
        }
        self.batch.push_back(packet);
        Ok(())
    }
}

/// One turn of one queue.
pub(super) fn turn(
    kind: Kind,
    (producers, offer): (usize, Offer),
    nodes: usize,
    work: &Work,
    length: Duration,
) -> Option<Turn> {
    let small = producers * (2 * work.datagrams as usize + 1024);
    let config = PoolConfig { workers: producers, small, accounts: 64, ..PoolConfig::default() };
    let region = Region::new(&config).ok()?;
    let size = 384;
    let queue = Queue::new(kind, nodes, work, size);
    let pause = offer.pause(producers, work);
    let (go, stop, left) =
        (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(producers as u64));
    let mut result = Turn::default();
    std::thread::scope(|scope| {
        let producing: Vec<_> = (0..producers)
            .map(|producer| {
                let (queue, region, go, stop, left) = (&queue, &region, &go, &stop, &left);
                scope.spawn(move || {
                    let seen = region.attach().ok().map(|pool| {
                        let mine = queue.join(kind, producers, work, &pool, size);
                        produce(queue, (producer, mine), &pool, (work, pause), (go, stop))
                    });
                    left.fetch_sub(1, Ordering::AcqRel);
                    seen.unwrap_or_default()
                })
            })
            .collect();
        let reader = {
            let (queue, left, stop) = (&queue, &left, &stop);
            let limit = work.datagrams * size;
            // As the product's socket: an eighth of each account.
            let deferred = (limit / producers as u64 / 8) as u32;
            scope.spawn(move || read(queue, work, (limit, deferred), (left, stop)))
        };
        go.store(true, Ordering::Release);
        let start = Instant::now();
        std::thread::sleep(length);
        stop.store(true, Ordering::Release);
        result.seconds = start.elapsed().as_secs_f64();
        let mut taken = 0;
        for producing in producing {
            let seen = producing.join().unwrap_or_default();
            result.enqueue.merge(&seen.enqueue);
            result.refused += seen.refused;
            result.refusals.locks += seen.refusals.locks;
            result.refusals.shared_writes += seen.refusals.shared_writes;
            taken += seen.enqueue.count() - seen.refused;
        }
        let read = reader.join().unwrap_or_default();
        (result.delivered, result.overshoot) = (read.delivered, read.overshoot);
        result.reader_seconds = read.busy.as_secs_f64();
        result.lost = taken as i64 - (read.delivered + read.late) as i64;
        result.charged = queue.charged();
    });
    Some(result)
}

fn produce(
    queue: &Queue,
    (producer, mut mine): (usize, Mine),
    pool: &Pool,
    (work, pause): (&Work, Duration),
    (go, stop): (&AtomicBool, &AtomicBool),
) -> Turn {
    let mut seen = Turn::default();
    let mut next: Option<PacketBuf> = None;
    while !go.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    let mut source = producer as u32;
    let (mut in_round, mut due) = (0, Instant::now() + pause);
    while !stop.load(Ordering::Relaxed) {
        let Some(packet) = next.take().or_else(|| pool.alloc(Class::Small)) else {
            std::thread::yield_now();
            continue;
        };
        if !pause.is_zero() && in_round == work.round {
            if Instant::now() < due {
                next = Some(packet);
                std::thread::yield_now();
                continue;
            }
            (in_round, due) = (0, due + pause);
        }
        in_round += 1;
        source = source.wrapping_add(producer as u32 + 1) & 0xf;
        let start = Instant::now();
        let offered = queue.offer(producer, &mut mine, packet, work.round, source);
        seen.enqueue.note(start.elapsed().as_nanos() as u64);
        if let Err((packet, cost)) = offered {
            next = Some(packet);
            seen.refused += 1;
            seen.refusals.locks += cost.locks;
            seen.refusals.shared_writes += cost.shared_writes;
        }
    }
    queue.leave(producer, &mut mine);
    drop(next);
    // Its account lives on with the queue; its memory comes home before the worker leaves.
    seen
}

/// What the reader saw.
#[derive(Default)]
struct Reading {
    /// Datagrams, before the end and after.
    delivered: u64,
    late: u64,
    overshoot: u64,
    /// Its processor time until the end, looks that found nothing left out.
    busy: Duration,
}

fn read(
    queue: &Queue,
    work: &Work,
    (limit, deferred): (u64, u32),
    (left, stop): (&AtomicU64, &AtomicBool),
) -> Reading {
    let mut seen = Reading::default();
    loop {
        let last = left.load(Ordering::Acquire) == 0;
        seen.overshoot = seen.overshoot.max(queue.charged().saturating_sub(limit));
        let before = processor_time();
        let mut all = queue.take();
        if all.is_empty() {
            if last {
                return seen;
            }
            std::thread::yield_now();
            continue;
        }
        while let Some(packet) = all.pop_front() {
            if stop.load(Ordering::Relaxed) {
                seen.late += 1;
                continue;
            }
            seen.delivered += 1;
            let start = Instant::now();
            while start.elapsed() < Duration::from_nanos(work.read_nanos) {
                spin_loop();
            }
            all.drop_burst(packet, deferred);
        }
        if !stop.load(Ordering::Relaxed) {
            seen.busy += processor_time().saturating_sub(before);
        }
    }
}

/// What the calling thread has had of a processor so far.
fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
