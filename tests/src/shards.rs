//! `Shards`: the stacks of one host with several workers, driven by hand on one thread.
//!
//! Each call is a worker's round: the frames that are his, what was handed over to him, timed work,
//! and a quiescent state at its end. Nothing happens between calls, so tests choose every
//! interleaving of rounds.

use std::net::IpAddr;
use std::sync::Arc;

use floodwall_base::{HashKey, IfIndex, Instant, MacAddr, Randomness, Steering, Units, WorkerId};
use floodwall_packet::{
    Burst, Engine, Handoff, HandoffList, PacketBuf, PacketList, Peers, Pool, PoolConfig, Region,
    Round,
};
use floodwall_stack::{Application, Host, Stack, StackConfig, Stats, accounts_needed, seats};
use floodwall_sync::qsbr::{Domain, Moment, Reader};
use floodwall_wire::steer;

/// Packets that one worker may hand over in a round, and that may wait for one.
const HANDOFFS: usize = 256;

/// One worker.
pub struct Worker {
    /// Its stack and programs.
    pub host: Host,
    /// Its memory.
    pub pool: Pool,
    random: Randomness,
    reader: Reader,
    /// What the next round may hand over.
    pub handoff: HandoffList,
    /// What was handed over to it.
    pub inbox: HandoffList,
}

/// The shards of one host with several workers, driven by hand on one thread.
pub struct Shards {
    /// The workers, the control shard first.
    pub workers: Vec<Worker>,
    /// What ties them together.
    pub domain: Domain,
    /// The owner of a flow.
    pub steering: Steering,
    /// Their clock.
    pub now: Instant,
    /// Frames that departed.
    pub departed: Vec<Vec<u8>>,
    /// Handed over and not delivered, for want of room in the inbox.
    pub lost: u64,
}

impl Shards {
    /// A host of so many workers, each with its own `applications`.
    ///
    /// # Panics
    /// Where the configuration makes no stack: the test is wrong then.
    #[must_use]
    pub fn new(
        config: &StackConfig,
        workers: u16,
        applications: impl Fn() -> Vec<Box<dyn Application>>,
    ) -> Self {
        let count = usize::from(workers);
        let pool = PoolConfig {
            workers: count,
            small: 2048 * count,
            frames: 2048 * count,
            references: 1024 * count,
            accounts: accounts_needed(config),
            ..PoolConfig::default()
        };
        let region = Region::new(&pool).expect("a test's pool");
        Self::on(&region, config, workers, applications)
    }

    /// The same on memory that is there already, with room for as many workers.
    ///
    /// # Panics
    /// As [`Shards::new`].
    #[must_use]
    pub fn on(
        region: &Arc<Region>,
        config: &StackConfig,
        workers: u16,
        applications: impl Fn() -> Vec<Box<dyn Application>>,
    ) -> Self {
        let (domain, mut random) = (Domain::new(workers), Randomness::from_number(1));
        let steering = Steering::new(HashKey::new(3, 4), workers);
        let now = Instant::from_nanos(1_000_000_000);
        let seated = seats(config, &domain, steering, &mut random.secret);
        let make = |(at, seat)| {
            let pool = region.attach().expect("a home for each worker");
            let mut random = Randomness::from_number(100 + at as u64);
            let stack = Stack::seated(config, seat, &mut random, now).expect("a configuration");
            let host = Host::with_stack(stack, applications(), &pool, &mut random, now);
            Worker {
                host: host.expect("programs that start"),
                pool,
                random,
                reader: domain.reader().expect("a record for each worker"),
                handoff: HandoffList::new(HANDOFFS),
                inbox: HandoffList::new(HANDOFFS),
            }
        };
        let workers = seated.into_iter().enumerate().map(make).collect();
        Self { workers, domain, steering, now, departed: Vec::new(), lost: 0 }
    }

    /// The stack of one worker.
    #[must_use]
    pub fn stack(&self, worker: u16) -> &Stack {
        self.workers[usize::from(worker)].host.stack()
    }

    /// Adds a permanent neighbour to the control shard.
    ///
    /// # Panics
    /// There is no room for it.
    pub fn add_neighbor(&mut self, addr: IpAddr, mac: MacAddr) {
        let now = self.now;
        let stack = self.workers[0].host.stack_mut();
        stack.add_neighbor(IfIndex(1), addr, mac, now).expect("room");
    }

    /// Lets one worker act with a round around it, and then pause: it passes a quiescent state.
    pub fn act<R>(
        &mut self,
        worker: u16,
        act: impl FnOnce(&mut Host, &mut Round<'_>, &mut HandoffList) -> R,
    ) -> R {
        self.act_without_pause(worker, act, true)
    }

    /// As [`Shards::act`]; where `pauses` is false the worker is stuck in its round.
    pub fn act_without_pause<R>(
        &mut self,
        worker: u16,
        act: impl FnOnce(&mut Host, &mut Round<'_>, &mut HandoffList) -> R,
        pauses: bool,
    ) -> R {
        let (mut burst, mut departing) = (Burst::new(), PacketList::new());
        let now = self.now;
        let me = &mut self.workers[usize::from(worker)];
        let peers = Peers { view: me.reader.view(), handoff: &mut me.handoff };
        let mut round = Round {
            now,
            pool: &me.pool,
            random: &mut me.random,
            arrived: &mut burst,
            departing: &mut departing,
            budget: Units(256),
            peers: Some(peers),
        };
        let result = act(&mut me.host, &mut round, &mut me.inbox);
        if pauses {
            me.reader.pass(Moment::RoundEnd, now);
        }
        let handed: Vec<Handoff> = me.handoff.drain().collect();
        for handoff in handed {
            let to = usize::from(handoff.to.0);
            assert_ne!(to, usize::from(worker), "no shard hands over to itself");
            let arrived = handoff.kind != floodwall_packet::HandoffKind::Outgoing;
            if self.workers[to].inbox.push(handoff).is_err() {
                self.lost += 1;
                let _ = arrived;
            }
        }
        while let Some(packet) = departing.pop_front() {
            self.departed.push(crate::bytes_of(&packet));
        }
        result
    }

    /// One turn of a worker: `frames` arrive, what was handed over is adopted, timed work is done.
    pub fn turn(&mut self, worker: u16, frames: &[Vec<u8>]) {
        self.act(worker, |host, round, inbox| Self::a_turn(host, round, inbox, frames));
    }

    /// The same without a quiescent state at its end.
    pub fn turn_without_pause(&mut self, worker: u16, frames: &[Vec<u8>]) {
        let turn = |host: &mut Host, round: &mut Round<'_>, inbox: &mut HandoffList| {
            Self::a_turn(host, round, inbox, frames);
        };
        self.act_without_pause(worker, turn, false);
    }

    fn a_turn(host: &mut Host, round: &mut Round<'_>, inbox: &mut HandoffList, frames: &[Vec<u8>]) {
        for frame in frames {
            let mut packet: PacketBuf = round.pool.packet_from(frame).expect("room in the pool");
            packet.set_iface(IfIndex(1));
            round.arrived.push(packet).expect("at most a burst");
        }
        if !frames.is_empty() {
            host.round(round);
        }
        if !inbox.is_empty() {
            host.adopt(round, inbox);
        }
        if host.deadline().is_some_and(|due| due <= round.now) {
            host.work(round);
        }
    }

    /// The owner of a frame.
    #[must_use]
    pub fn owner(&self, frame: &[u8]) -> WorkerId {
        steer::frame(&self.steering, frame)
    }

    /// Lets frames arrive, each at its owner, and everybody do what follows from it.
    pub fn arrive(&mut self, frames: &[Vec<u8>]) {
        for frame in frames {
            let owner = self.owner(frame).0;
            self.turn(owner, std::slice::from_ref(frame));
        }
        self.settle();
    }

    /// Turns for everybody, until nothing is handed over any more.
    pub fn settle(&mut self) {
        for _ in 0..16 {
            (0..self.workers.len() as u16).for_each(|worker| self.turn(worker, &[]));
            if self.in_rings() == 0 {
                return;
            }
        }
        panic!("packets are handed over for ever");
    }

    /// Lets time pass in steps, with a turn of everybody in each.
    pub fn run_for(&mut self, length: std::time::Duration, step: std::time::Duration) {
        let end = self.now + length;
        while self.now < end {
            self.now += step;
            (0..self.workers.len() as u16).for_each(|worker| self.turn(worker, &[]));
        }
    }

    /// Packets that were handed over and not yet adopted.
    #[must_use]
    pub fn in_rings(&self) -> u64 {
        self.workers.iter().map(|w| w.inbox.len() as u64).sum()
    }

    /// What has been counted by one worker.
    #[must_use]
    pub fn stats(&self, worker: u16) -> Stats {
        self.stack(worker).stats()
    }

    /// What departed since the last call.
    pub fn departed(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.departed)
    }

    /// Asserts that every ledger balances, each worker's and the host's.
    ///
    /// # Panics
    /// One does not.
    pub fn assert_conserved(&self) {
        let mut handed = 0_u64;
        for worker in 0..self.workers.len() as u16 {
            let stats = self.stats(worker);
            let law = stats.conservation();
            assert!(law.holds(), "worker {worker}: {law:?}");
            let outcomes = &stats.outcomes;
            handed = handed.wrapping_add(outcomes.handed_in + outcomes.handed_out);
            handed = handed.wrapping_sub(outcomes.adopted_in + outcomes.adopted_out);
        }
        assert_eq!(handed, self.in_rings() + self.lost, "what is on its way between workers");
    }
}
