//! Applications in slices of the worker: their share by units, and no input for those that are
//! full.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use floodwall_base::{Family, IfIndex, Instant, Randomness, Units};
use floodwall_packet::{Burst, Engine, PacketList, Pool, PoolConfig, Round};
use floodwall_stack::{Application, Host, Sockets, StartError, accounts_needed};
use floodwall_tests::craft::{self, FAMILIES, HOST, PEER, addr, from_peer};
use floodwall_tests::ethernet_config;
use floodwall_udp::{SocketId, SocketSettings};

/// Computes for ever, and reads nothing until it is triggered.
struct Greedy {
    family: Family,
    socket: Option<SocketId>,
    spent: Arc<AtomicU64>,
    reads: Arc<AtomicU64>,
}

impl Application for Greedy {
    fn name(&self) -> &str {
        "greedy"
    }

    fn start(&mut self, sockets: &mut Sockets<'_>) -> Result<(), StartError> {
        let settings = SocketSettings { receive_bytes: 10_000, ..SocketSettings::new(self.family) };
        let local = SocketAddr::new(addr(self.family, HOST), 53);
        self.socket = Some(sockets.udp_bind(local, settings)?);
        Ok(())
    }

    fn run(&mut self, sockets: &mut Sockets<'_>, budget: Units) -> Units {
        let reads = self.reads.load(Ordering::Relaxed) != 0;
        let mut buffer = [0; 64];
        if reads && let Some(id) = self.socket {
            while sockets.udp_recv(id, &mut buffer).is_ok() {}
            return Units(1);
        }
        self.spent.fetch_add(u64::from(budget.0), Ordering::Relaxed);
        budget
    }
}

struct Scene {
    host: Host,
    pool: Pool,
    random: Randomness,
    now: Instant,
    frame: Vec<u8>,
    spent: Arc<AtomicU64>,
    reads: Arc<AtomicU64>,
}

impl Scene {
    fn new(family: Family) -> Self {
        let config = ethernet_config(HOST);
        let pool = PoolConfig { accounts: accounts_needed(&config), ..PoolConfig::default() };
        let (pool, mut random) = (Pool::new(&pool).expect("memory"), Randomness::from_number(1));
        let now = Instant::from_nanos(1_000_000);
        let (spent, reads) = (Arc::default(), Arc::default());
        let greedy =
            Greedy { family, socket: None, spent: Arc::clone(&spent), reads: Arc::clone(&reads) };
        let host = Host::new(&config, vec![Box::new(greedy)], &pool, &mut random, now);
        let end = |host, port| SocketAddr::new(addr(family, host), port);
        let frame = from_peer(&craft::udp(end(PEER, 9), end(HOST, 53), b"hello"));
        let host = host.expect("a host");
        Self { host, pool, random, now, frame, spent, reads }
    }

    /// One round with `packets`, or a slice of timed work with none. What the packets cost.
    fn turn(&mut self, packets: usize) -> u64 {
        let (mut burst, mut departing) = (Burst::new(), PacketList::new());
        for _ in 0..packets {
            let mut packet = self.pool.packet_from(&self.frame).expect("room");
            packet.set_iface(IfIndex(1));
            burst.push(packet).expect("a burst");
        }
        let before = self.spent.load(Ordering::Relaxed);
        let mut round = Round {
            now: self.now,
            pool: &self.pool,
            random: &mut self.random,
            arrived: &mut burst,
            departing: &mut departing,
            budget: Units(64),
            peers: None,
        };
        let all = match packets {
            0 => self.host.work(&mut round),
            _ => self.host.round(&mut round),
        };
        u64::from(all.0) - (self.spent.load(Ordering::Relaxed) - before)
    }
}

#[test]
fn a_greedy_application_and_a_flood_have_half_each_by_units() {
    for family in FAMILIES {
        let mut scene = Scene::new(family);
        scene.turn(64);
        let begin = scene.spent.load(Ordering::Relaxed);
        let packets: u64 = (0..100).map(|_| scene.turn(64) + scene.turn(0)).sum();
        let application = scene.spent.load(Ordering::Relaxed) - begin;
        assert!(application * 10 >= packets * 9, "{application} beside {packets}");
        assert!(packets * 10 >= application * 9, "{application} beside {packets}");
    }
}

#[test]
fn without_packets_the_application_has_whole_slices() {
    let mut scene = Scene::new(Family::V4);
    scene.turn(64);
    scene.turn(0);
    let begin = scene.spent.load(Ordering::Relaxed);
    for _ in 0..10 {
        scene.turn(0);
    }
    assert_eq!(scene.spent.load(Ordering::Relaxed) - begin, 1280);
    assert!(scene.host.deadline().is_some_and(|at| at <= scene.now), "it wants more, at once");
}

#[test]
fn input_stops_while_its_consumer_is_full_and_resumes_when_it_has_caught_up_or_time_is_up() {
    for family in FAMILIES {
        let mut scene = Scene::new(family);
        assert_eq!(scene.host.rx_capacity(scene.now), 64);
        scene.turn(64);
        assert_eq!(scene.host.rx_capacity(scene.now), 0, "{family:?}: its socket is full");
        // It never reads: after a while input goes on, for others' sake, and stops again.
        scene.now += Duration::from_micros(501);
        assert_eq!(scene.host.rx_capacity(scene.now), 64);
        scene.turn(64);
        assert_eq!(scene.host.rx_capacity(scene.now), 64);
        scene.now += Duration::from_micros(501);
        scene.turn(64);
        assert_eq!(scene.host.rx_capacity(scene.now), 0);
        // It reads, and has caught up.
        scene.reads.store(1, Ordering::Relaxed);
        scene.turn(0);
        scene.turn(0);
        assert_eq!(scene.host.rx_capacity(scene.now), 64);
    }
}
