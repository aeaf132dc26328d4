//! Four ways in which producers gave datagrams to one UDP socket before a queue for each worker's
//! round: what `udp-flood` puts beside the product on real threads.
//!
//! Models: [`Locked`], one lock for the queue and its bytes, as in every textbook; [`Busylock`],
//! Linux 4.10 to 6.17 (`net/ipv4/udp.c`, `__udp_enqueue_schedule_skb`): above half of the receive
//! buffer a producer first takes a second lock, so that only one at a time contends with the
//! reader; [`Lists`] with one list and with one for each node, Linux 6.18 (commit b650bf0977d3):
//! push onto a lock-free list; the producer that found it empty drains it under the reader's lock.
//! Drop counters: one, two by the node's number being odd or even, as in that commit.
//! Simplified: sleeping locks of the standard library stand for spin locks (on two cores a spinner
//! would measure the scheduler while the lock's holder sleeps), no socket memory pressure, no
//! compaction of buffers.
//! Serves: the plan `udp-flood`, claims `refusal-locks`, `refusal-writes` and those of the tail.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use floodwall_packet::{PacketBuf, PacketList, PacketMailbox};
use floodwall_sync::CachePadded;
use floodwall_sync::mailbox::Bits;

/// What a refusal cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Refusal {
    /// Locks that were taken.
    pub locks: u64,
    /// Writes of lines that other producers write too.
    pub shared_writes: u64,
}

/// Refusals, counted in words that producers share.
#[derive(Debug)]
pub struct DropCounters(Box<[CachePadded<AtomicU64>]>);

impl DropCounters {
    /// So many words.
    #[must_use]
    pub fn new(words: usize) -> Self {
        Self((0..words.max(1)).map(|_| CachePadded::new(AtomicU64::new(0))).collect())
    }

    /// One more, by a producer.
    pub fn count(&self, producer: usize) {
        self.0[producer % self.0.len()].fetch_add(1, Ordering::Relaxed);
    }

    /// All.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.0.iter().map(|word| word.load(Ordering::Relaxed)).sum()
    }
}

/// A queue under a lock with the bytes in it.
#[derive(Debug)]
pub struct Locked {
    inside: Mutex<(PacketList, u64)>,
    limit: u64,
    drops: DropCounters,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Locked {
    /// An empty one.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        let inside = Mutex::new((PacketList::new(), 0));
        Self { inside, limit, drops: DropCounters::new(1) }
    }

    /// Takes a packet, or gives it back with the cost of the refusal.
    ///
    /// # Errors
    /// It is full.
    pub fn offer(&self, producer: usize, packet: PacketBuf) -> Result<(), (PacketBuf, Refusal)> {
        let mut inside = lock(&self.inside);
        let size = u64::from(packet.true_size());
        if inside.1 + size > self.limit {
            drop(inside);
            self.drops.count(producer);
            return Err((packet, Refusal { locks: 1, shared_writes: 2 }));
        }
        inside.1 += size;
        inside.0.push_back(packet);
        Ok(())
    }

    /// Takes all that waits: their bytes are given back at once.
    pub fn take(&self) -> PacketList {
        let mut inside = lock(&self.inside);
        inside.1 = 0;
        inside.0.take()
    }
}

/// A queue with the busylock of Linux 4.10 to 6.17: a second lock above half of the receive buffer.
#[derive(Debug)]
pub struct Busylock {
    busy: CachePadded<Mutex<()>>,
    queue: CachePadded<Mutex<PacketList>>,
    used: CachePadded<AtomicU64>,
    limit: u64,
    drops: DropCounters,
}

impl Busylock {
    /// An empty one.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self {
            busy: CachePadded::new(Mutex::new(())),
            queue: CachePadded::new(Mutex::new(PacketList::new())),
            used: CachePadded::new(AtomicU64::new(0)),
            limit,
            drops: DropCounters::new(1),
        }
    }

    /// As [`Locked::offer`].
    ///
    /// # Errors
    /// It is full.
    pub fn offer(&self, producer: usize, packet: PacketBuf) -> Result<(), (PacketBuf, Refusal)> {
        let size = u64::from(packet.true_size());
        let mut cost = Refusal { locks: 0, shared_writes: 1 };
        let used = self.used.load(Ordering::Relaxed);
        if used + size > self.limit {
            self.drops.count(producer);
            return Err((packet, cost));
        }
        let busy = (used > self.limit / 2).then(|| lock(&self.busy));
        if self.used.fetch_add(size, Ordering::Relaxed) + size > self.limit {
            self.used.fetch_sub(size, Ordering::Relaxed);
            cost.locks = u64::from(busy.is_some());
            cost.shared_writes += 2 + cost.locks;
            drop(busy);
            self.drops.count(producer);
            return Err((packet, cost));
        }
        lock(&self.queue).push_back(packet);
        Ok(())
    }

    /// Takes all that waits.
    pub fn take(&self) -> PacketList {
        let all = lock(&self.queue).take();
        let bytes: u64 = all.iter().map(|packet| u64::from(packet.true_size())).sum();
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        all
    }
}

#[derive(Debug, Default)]
struct List {
    packets: PacketMailbox,
    bytes: AtomicU64,
}

/// Lock-free lists in front of the receive queue, one or one for each node, as in Linux 6.18.
#[derive(Debug)]
pub struct Lists {
    lists: Box<[CachePadded<List>]>,
    queue: CachePadded<Mutex<PacketList>>,
    used: CachePadded<AtomicU64>,
    limit: u64,
    drops: DropCounters,
}

impl Lists {
    /// Empty ones.
    #[must_use]
    pub fn new(nodes: usize, limit: u64) -> Self {
        Self {
            lists: (0..nodes.max(1)).map(|_| CachePadded::new(List::default())).collect(),
            queue: CachePadded::new(Mutex::new(PacketList::new())),
            used: CachePadded::new(AtomicU64::new(0)),
            limit,
            drops: DropCounters::new(nodes.min(2)),
        }
    }

    /// As [`Locked::offer`].
    ///
    /// # Errors
    /// It is full.
    pub fn offer(&self, producer: usize, packet: PacketBuf) -> Result<(), (PacketBuf, Refusal)> {
        let list = &self.lists[producer % self.lists.len()];
        let size = u64::from(packet.true_size());
        let used = self.used.load(Ordering::Relaxed) + list.bytes.load(Ordering::Relaxed);
        if used + size > self.limit {
            self.drops.count(producer);
            return Err((packet, Refusal { locks: 0, shared_writes: 1 }));
        }
        list.bytes.fetch_add(size, Ordering::Relaxed);
        let mut one = PacketList::new();
        one.push_back(packet);
        // The flag stands while something is in the list.
        if list.packets.push(one, Bits::QUEUED).has(Bits::QUEUED) {
            return Ok(());
        }
        let mut queue = lock(&self.queue);
        let mut batch = list.packets.take(Bits::QUEUED).0;
        let bytes: u64 = batch.iter().map(|packet| u64::from(packet.true_size())).sum();
        self.used.fetch_add(bytes, Ordering::Relaxed);
        queue.append(&mut batch);
        drop(queue);
        list.bytes.fetch_sub(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Takes all that was drained.
    pub fn take(&self) -> PacketList {
        let all = lock(&self.queue).take();
        let bytes: u64 = all.iter().map(|packet| u64::from(packet.true_size())).sum();
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        all
    }
}

#[cfg(test)]
mod tests {
    use floodwall_packet::{Pool, PoolConfig};

    use super::*;

    #[test]
    fn each_takes_what_fits_in_order_and_gives_the_rest_back() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let packet = |tag: u8| pool.packet_from(&[tag]).unwrap();
        let limit = 4 * u64::from(packet(0).true_size());
        let (locked, busy) = (Locked::new(limit), Busylock::new(limit));
        let (one, lists) = (Lists::new(1, limit), Lists::new(3, limit));
        let tags = |mut list: PacketList| -> Vec<u8> {
            core::iter::from_fn(|| list.pop_front().map(|p| p.first()[0])).collect()
        };
        for _ in 0..3 {
            for tag in 0..6 {
                let taken = [
                    locked.offer(1, packet(tag)).is_ok(),
                    busy.offer(1, packet(tag)).is_ok(),
                    one.offer(1, packet(tag)).is_ok(),
                    lists.offer(1, packet(tag)).is_ok(),
                ];
                assert_eq!(taken, [tag < 4; 4]);
            }
            let all = [locked.take(), busy.take(), one.take(), lists.take()];
            assert!(all.map(tags).iter().all(|tags| *tags == [0, 1, 2, 3]));
        }
        for drops in [&locked.drops, &busy.drops, &one.drops, &lists.drops] {
            assert_eq!(drops.sum(), 6);
        }
    }
}
