//! The source's machine in virtual time: six memory nodes, cores that do nothing but receive, one
//! reader. A model, and called so wherever its numbers are shown.
//!
//! What is modelled: a cache line last written on another node costs `far`, one of the same node
//! `near`; requests for a line or a lock are served in order. `far` is the source's own figure
//! turned round: 14.2 million refusals a second on two counters that all cores add to, the
//! bottleneck that it names, are one add in 141 ns on each. What a core does before it enqueues
//! follows from its rate beside that. What is not modelled: caches within a node, batching by the
//! driver, unfair locks (which make the source's histogram of the busylock wider than ours), and
//! what else ran.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use serde::Deserialize;

use super::histogram::Histogram;

/// How datagrams come to the reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Design {
    /// One lock for everything, the check of the room included.
    Mutex,
    /// Linux until 6.17: above half of the room a second lock is taken first.
    Busylock,
    /// One lock-free list; the producer that finds it empty drains it under the reader's lock.
    OneList,
    /// Linux 6.18: the same, a list for each node.
    PerNode,
    /// Ours: a batch for each round and worker onto its node's list, which the reader takes.
    TakeAll,
    /// Ours, and what each source was granted is weighed.
    TakeAllFair,
}

impl Design {
    /// What tables and claims call it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Busylock => "busylock",
            Self::OneList => "one-list",
            Self::PerNode => "per-node",
            Self::TakeAll => "take-all",
            Self::TakeAllFair => "take-all-fair",
        }
    }
}

/// Where refusals are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Counters {
    One,
    /// By the node's number being odd or even, as in the source.
    TwoByParity,
    PerWorker,
}

impl Counters {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::TwoByParity => "two-by-parity",
            Self::PerWorker => "per-worker",
        }
    }
}

/// Nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Prices {
    /// A line that this node wrote last.
    near: u64,
    /// A line that another node wrote last.
    far: u64,
    /// All that a core does with a packet before it enqueues it.
    receive: u64,
    /// What the reader does with one datagram.
    read: u64,
    /// Lines of the queue that are touched while its lock is held.
    queue_lines: u64,
    /// To link one datagram of a batch.
    link: u64,
    /// To weigh a source.
    weigh: u64,
}

/// One run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) design: Design,
    pub(super) counters: Counters,
    pub(super) nodes: usize,
    pub(super) cores_per_node: usize,
    /// Datagrams that the socket may hold.
    pub(super) limit: u64,
    /// Datagrams of one worker's round.
    pub(super) round: u64,
    pub(super) nanos: u64,
    pub(super) prices: Prices,
}

/// What was seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) enqueue: Histogram,
    pub(super) delivered: u64,
    pub(super) refused: u64,
    /// Nanoseconds that refused datagrams spent in the enqueue.
    pub(super) refusing: u64,
    /// Locks that were taken for datagrams that were then refused.
    pub(super) locks: u64,
    /// Writes of lines that several nodes write, for the same.
    pub(super) shared_writes: u64,
    /// The most that the socket held beyond its limit.
    pub(super) overshoot: u64,
}

/// A cache line that producers write one after another.
#[derive(Clone, Copy, Debug)]
struct Line {
    free_at: u64,
    node: usize,
    version: u64,
}

const NEW: Line = Line { free_at: 0, node: 0, version: 0 };

impl Line {
    /// When a write that is requested at this moment is done.
    fn write(&mut self, now: u64, node: usize, prices: &Prices) -> u64 {
        let cost = if self.node == node { prices.near } else { prices.far };
        (self.node, self.version) = (node, self.version + 1);
        self.free_at = self.free_at.max(now) + cost;
        self.free_at
    }
}

/// A lock with a queue of waiters.
#[derive(Clone, Debug, Default)]
struct Lock {
    held: bool,
    node: usize,
    waiting: VecDeque<(usize, Step)>,
}

/// What an actor does next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Step {
    /// A packet has been received.
    Enqueue,
    HasBusylock,
    HasQueue,
    LeaveQueue,
    Push,
    Drained,
    Refuse,
    Done,
    Read,
    Fetch,
}

struct Sim<'a> {
    run: &'a Run,
    events: BinaryHeap<Reverse<(u64, u64, usize, Step)>>,
    order: u64,
    now: u64,
    busylock: Lock,
    queue: Lock,
    /// What the socket holds; written by all in some designs.
    used_line: Line,
    used_seen: Vec<u64>,
    used: u64,
    counters: [Line; 2],
    /// Of each list: its head, how many are in it.
    heads: Vec<Line>,
    listed: Vec<u64>,
    /// Of each worker: what it may yet charge, what waits in its round, packets of the round.
    charged: Vec<u64>,
    batch: Vec<u64>,
    of_round: Vec<u64>,
    account: Vec<Line>,
    account_seen: Vec<u64>,
    started: Vec<u64>,
    has_busylock: Vec<bool>,
    /// In the queue, by worker, and with the reader.
    queued: VecDeque<usize>,
    listed_by: Vec<VecDeque<usize>>,
    reading: VecDeque<usize>,
    outcome: Outcome,
}

/// Runs it.
pub(super) fn simulate(run: &Run) -> Outcome {
    let workers = run.nodes * run.cores_per_node;
    let lists = if run.design == Design::OneList { 1 } else { run.nodes };
    let mut sim = Sim {
        run,
        events: BinaryHeap::new(),
        order: 0,
        now: 0,
        busylock: Lock::default(),
        queue: Lock::default(),
        used_line: NEW,
        used_seen: vec![0; run.nodes],
        used: 0,
        counters: [NEW; 2],
        heads: vec![NEW; lists],
        listed: vec![0; lists],
        charged: vec![0; workers],
        batch: vec![0; workers],
        of_round: vec![0; workers],
        account: vec![NEW; workers],
        account_seen: vec![0; workers],
        started: vec![0; workers],
        has_busylock: vec![false; workers],
        queued: VecDeque::new(),
        listed_by: vec![VecDeque::new(); lists],
        reading: VecDeque::new(),
        outcome: Outcome::default(),
    };
    for worker in 0..workers {
        // Not all at the same moment.
        sim.at(worker as u64 * 37, worker, Step::Enqueue);
    }
    sim.at(1, workers, Step::Read);
    while let Some(Reverse((now, _, actor, step))) = sim.events.pop() {
        if now > run.nanos {
            break;
        }
        sim.now = now;
        sim.step(actor, step);
    }
    sim.outcome
}

impl Sim<'_> {
    fn at(&mut self, time: u64, actor: usize, step: Step) {
        self.order += 1;
        self.events.push(Reverse((time, self.order, actor, step)));
    }

    fn reader(&self) -> usize {
        self.run.nodes * self.run.cores_per_node
    }

    fn node(&self, actor: usize) -> usize {
        if actor == self.reader() { 0 } else { actor / self.run.cores_per_node }
    }

    fn list(&self, actor: usize) -> usize {
        if self.heads.len() == 1 { 0 } else { self.node(actor) }
    }

    const fn ours(&self) -> bool {
        matches!(self.run.design, Design::TakeAll | Design::TakeAllFair)
    }

    fn step(&mut self, actor: usize, step: Step) {
        match step {
            Step::Enqueue => self.enqueue(actor),
            Step::HasBusylock => {
                self.has_busylock[actor] = true;
                self.acquire(actor, false);
            }
            Step::HasQueue => self.in_queue(actor),
            Step::LeaveQueue => self.leave_queue(actor),
            Step::Push => self.push(actor),
            Step::Drained => self.drained(actor),
            Step::Refuse => self.refuse(actor),
            Step::Done => self.done(actor),
            Step::Read => self.read(),
            Step::Fetch => self.fetch(),
        }
    }

    /// What a look at the socket's bytes costs: they may have been written elsewhere since.
    fn look(&mut self, actor: usize) -> u64 {
        let (node, version) = (self.node(actor), self.used_line.version);
        let seen = core::mem::replace(&mut self.used_seen[node], version);
        if seen == version { self.run.prices.near } else { self.run.prices.far }
    }

    fn enqueue(&mut self, actor: usize) {
        self.started[actor] = self.now;
        let (limit, prices) = (self.run.limit, self.run.prices);
        match self.run.design {
            Design::Mutex => self.acquire(actor, false),
            Design::Busylock => {
                let looked = self.now + self.look(actor);
                match self.used {
                    used if used >= limit => self.at(looked, actor, Step::Refuse),
                    used if used > limit / 2 => self.acquire(actor, true),
                    _ => self.acquire(actor, false),
                }
            }
            Design::OneList | Design::PerNode => {
                let looked = self.now + self.look(actor);
                let pending = self.listed[self.list(actor)];
                let next = if self.used + pending >= limit { Step::Refuse } else { Step::Push };
                self.at(looked, actor, next);
            }
            Design::TakeAll | Design::TakeAllFair => {
                // The reader writes where it releases.
                let version = self.account[actor].version;
                let seen = core::mem::replace(&mut self.account_seen[actor], version);
                let mut cost = if seen == version { 2 } else { prices.far };
                if self.run.design == Design::TakeAllFair {
                    cost += prices.weigh;
                }
                let part = limit / self.reader() as u64;
                let next = if self.charged[actor] >= part { Step::Refuse } else { Step::Push };
                self.at(self.now + cost, actor, next);
            }
        }
    }

    fn acquire(&mut self, actor: usize, busy: bool) {
        let (node, now, prices) = (self.node(actor), self.now, self.run.prices);
        let step = match () {
            () if busy => Step::HasBusylock,
            () if actor == self.reader() => Step::Fetch,
            () => Step::HasQueue,
        };
        let lock = if busy { &mut self.busylock } else { &mut self.queue };
        if lock.held {
            lock.waiting.push_back((actor, step));
            return;
        }
        let cost = if lock.node == node { prices.near } else { prices.far };
        (lock.held, lock.node) = (true, node);
        self.at(now + cost, actor, step);
    }

    fn release(&mut self, busy: bool) {
        let (now, prices) = (self.now, self.run.prices);
        let lock = if busy { &mut self.busylock } else { &mut self.queue };
        let Some((actor, step)) = lock.waiting.pop_front() else {
            lock.held = false;
            return;
        };
        let node = self.node(actor);
        let lock = if busy { &mut self.busylock } else { &mut self.queue };
        let cost = if lock.node == node { prices.near } else { prices.far };
        lock.node = node;
        self.at(now + cost, actor, step);
    }

    /// The queue's lock is held: one datagram is linked, or a whole list.
    fn in_queue(&mut self, actor: usize) {
        let (node, prices) = (self.node(actor), self.run.prices);
        let full = self.run.design == Design::Mutex && self.used >= self.run.limit;
        let mut end = self.used_line.write(self.now, node, &prices);
        if !full {
            // The lines under the lock are where its holder before was.
            end += (prices.queue_lines - 1) * (end - self.now).min(prices.far);
        }
        if matches!(self.run.design, Design::OneList | Design::PerNode) {
            end += prices.link * self.listed[self.list(actor)];
        }
        self.at(end, actor, Step::LeaveQueue);
    }

    fn leave_queue(&mut self, actor: usize) {
        let refused = self.run.design == Design::Mutex && self.used >= self.run.limit;
        match self.run.design {
            Design::OneList | Design::PerNode => {
                let list = self.list(actor);
                self.used += core::mem::take(&mut self.listed[list]);
                let drained = core::mem::take(&mut self.listed_by[list]);
                self.queued.extend(drained);
                let node = self.node(actor);
                let end = self.heads[list].write(self.now, node, &self.run.prices);
                self.at(end, actor, Step::Drained);
            }
            _ if refused => {
                self.outcome.locks += 1;
                // The lock's line and the bytes'.
                self.outcome.shared_writes += 2;
                self.at(self.now, actor, Step::Refuse);
            }
            _ => {
                self.used += 1;
                self.queued.push_back(actor);
                self.at(self.now, actor, Step::Done);
            }
        }
        self.note_overshoot();
        self.release(false);
        if core::mem::take(&mut self.has_busylock[actor]) {
            self.release(true);
        }
    }

    fn note_overshoot(&mut self) {
        let held = match self.ours() {
            true => self.charged.iter().sum(),
            false => self.used + self.listed.iter().sum::<u64>(),
        };
        self.outcome.overshoot = self.outcome.overshoot.max(held.saturating_sub(self.run.limit));
    }

    fn push(&mut self, actor: usize) {
        let (node, list, prices) = (self.node(actor), self.list(actor), self.run.prices);
        if self.ours() {
            self.charged[actor] += 1;
            self.batch[actor] += 1;
            self.note_overshoot();
            return self.at(self.now + prices.link, actor, Step::Done);
        }
        // Its bytes and its head: two lines of the list's node.
        let end = self.heads[list].write(self.now, node, &prices) + prices.near;
        let was_empty = self.listed[list] == 0;
        self.listed[list] += 1;
        self.listed_by[list].push_back(actor);
        self.note_overshoot();
        match was_empty {
            true => self.acquire(actor, false),
            false => self.at(end, actor, Step::Done),
        }
    }

    fn drained(&mut self, actor: usize) {
        self.at(self.now, actor, Step::Done);
    }

    fn refuse(&mut self, actor: usize) {
        let (node, now, prices) = (self.node(actor), self.now, self.run.prices);
        let end = match self.run.counters {
            Counters::PerWorker => now + 1,
            Counters::One => self.counters[0].write(now, node, &prices),
            Counters::TwoByParity => self.counters[node % 2].write(now, node, &prices),
        };
        self.outcome.shared_writes += u64::from(self.run.counters != Counters::PerWorker);
        self.outcome.refused += 1;
        self.outcome.refusing += end - self.started[actor];
        self.at(end, actor, Step::Done);
    }

    /// The enqueue returns; at the end of a round ours hands its batch over.
    fn done(&mut self, actor: usize) {
        let (node, list, prices) = (self.node(actor), self.list(actor), self.run.prices);
        let mut end = self.now;
        self.of_round[actor] += 1;
        if self.ours() && self.of_round[actor] >= self.run.round {
            self.of_round[actor] = 0;
            let batch = core::mem::take(&mut self.batch[actor]);
            if batch > 0 {
                end = self.heads[list].write(self.now, node, &prices) + prices.link * batch;
                self.listed[list] += batch;
                self.listed_by[list].extend((0..batch).map(|_| actor));
            }
        }
        self.outcome.enqueue.note(end - self.started[actor]);
        self.at(end + prices.receive, actor, Step::Enqueue);
    }

    /// One datagram is read, or more are fetched.
    fn read(&mut self) {
        let (reader, prices) = (self.reader(), self.run.prices);
        if let Some(from) = self.reading.pop_front() {
            self.outcome.delivered += 1;
            let end = match self.ours() {
                true => {
                    self.charged[from] -= 1;
                    self.account[from].write(self.now, 0, &prices)
                }
                false => {
                    self.used -= 1;
                    self.used_line.write(self.now, 0, &prices)
                }
            };
            return self.at(end.max(self.now + prices.read), reader, Step::Read);
        }
        if self.ours() {
            let mut end = self.now;
            for list in 0..self.heads.len() {
                end = self.heads[list].write(end, 0, &prices);
                self.listed[list] = 0;
                let taken = core::mem::take(&mut self.listed_by[list]);
                self.reading.extend(taken);
            }
            return self.at(end + prices.near, reader, Step::Read);
        }
        match self.queued.is_empty() {
            // It sleeps until it is woken.
            true => self.at(self.now + prices.far, reader, Step::Read),
            false => self.acquire(reader, false),
        }
    }

    /// The reader has the queue's lock: it takes all.
    fn fetch(&mut self) {
        self.reading.append(&mut self.queued);
        self.release(false);
        self.at(self.now + self.run.prices.near, self.reader(), Step::Read);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICES: Prices =
        Prices { near: 20, far: 141, receive: 700, read: 800, queue_lines: 6, link: 10, weigh: 20 };

    fn run(design: Design, counters: Counters) -> Outcome {
        simulate(&Run {
            design,
            counters,
            nodes: 6,
            cores_per_node: 4,
            limit: 96,
            round: 32,
            nanos: 3_000_000,
            prices: PRICES,
        })
    }

    #[test]
    fn the_same_run_gives_the_same_numbers_and_nothing_is_lost() {
        for design in [Design::Mutex, Design::Busylock, Design::PerNode, Design::TakeAll] {
            let (one, other) = (run(design, Counters::One), run(design, Counters::One));
            assert_eq!((one.delivered, one.refused), (other.delivered, other.refused));
            let enqueued = one.enqueue.count() - one.refused;
            // What was taken is read, or still waits: at most the room, and a list for each node.
            assert!(enqueued >= one.delivered && enqueued - one.delivered <= 96 + 24 + 12);
        }
    }

    #[test]
    fn only_ours_keeps_the_cap_and_writes_nothing_shared_for_a_refusal() {
        let ours = run(Design::TakeAll, Counters::PerWorker);
        assert!(ours.refused > 1000);
        assert_eq!((ours.overshoot, ours.locks, ours.shared_writes), (0, 0, 0));
        let linux = run(Design::PerNode, Counters::TwoByParity);
        assert!(linux.shared_writes == linux.refused && linux.locks == 0);
        assert!(run(Design::Mutex, Counters::One).locks > 0);
    }
}
