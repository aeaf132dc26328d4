//! `Rig`: one stack with its pool, its clock and its randomness, driven by hand.

use std::net::IpAddr;
use std::time::Duration;

use floodwall_base::{DropReason, IfIndex, Instant, MacAddr, Randomness, Units};
use floodwall_packet::{Burst, Engine, PacketBuf, PacketList, Pool, PoolConfig, Round, Triage};
use floodwall_stack::{
    Conservation, InterfaceConfig, LinkMedium, Sockets, Stack, StackConfig, Stats, accounts_needed,
};
use floodwall_world::is_tcp_fragment;

use crate::answer::Owed;
use crate::craft;
use crate::wants::WantsWatch;

/// A host with one Ethernet interface: `02::host`, 10.0.0.host/24, fd00::host/64.
#[must_use]
pub fn ethernet_config(host: u8) -> StackConfig {
    StackConfig {
        interfaces: vec![InterfaceConfig {
            name: "eth0".to_owned(),
            medium: LinkMedium::Ethernet(MacAddr([2, 0, 0, 0, 0, host])),
            mtu: 1500,
            addresses: [format!("10.0.0.{host}/24"), format!("fd00::{host}/64")]
                .iter()
                .filter_map(|a| a.parse().ok())
                .collect(),
            gateways: Vec::new(),
            ..InterfaceConfig::default()
        }],
        udp_sockets_max: 64,
        duplicate_address_detection: false,
        ..StackConfig::default()
    }
}

/// No TCP segment is ever an IP fragment (RFC 9293 section 3.7): its size follows the path's.
fn refuse_tcp_fragment(packet: &PacketBuf) {
    assert!(!is_tcp_fragment(packet.first()), "a TCP segment leaves as an IP fragment");
}

/// One stack with its pool, clock and randomness, driven by hand.
pub struct Rig {
    /// The stack.
    pub stack: Stack,
    /// Its memory.
    pub pool: Pool,
    /// Its randomness.
    pub random: Randomness,
    /// Its clock.
    pub now: Instant,
    /// The check that it reports what it wants.
    wants: WantsWatch,
}

impl Rig {
    /// A stack of this configuration with a pool of 2,048 pieces of each class: tests make many.
    ///
    /// # Panics
    /// Where the configuration makes no stack: the test is wrong then.
    #[must_use]
    pub fn new(config: &StackConfig) -> Self {
        let pool = PoolConfig { small: 2048, frames: 2048, references: 1024, ..Default::default() };
        Self::with_pool(config, &pool)
    }

    /// The same with a pool of this shape (accounts are added as needed).
    ///
    /// # Panics
    /// As [`Rig::new`].
    #[must_use]
    pub fn with_pool(config: &StackConfig, pool: &PoolConfig) -> Self {
        let pool = PoolConfig { accounts: accounts_needed(config), ..pool.clone() };
        let (mut random, now) = (Randomness::from_number(1), Instant::from_nanos(1_000_000_000));
        let pool = Pool::new(&pool).expect("a test's pool");
        let stack = Stack::new(config, &mut random, now).expect("a test's configuration");
        Self { stack, pool, random, now, wants: WantsWatch::default() }
    }

    /// A stack with the neighbour `10.0.0.other` and `fd00::other` known permanently.
    ///
    /// # Panics
    /// As [`Rig::new`].
    #[must_use]
    pub fn with_neighbor(config: &StackConfig, other: u8) -> Self {
        let mut rig = Self::new(config);
        for addr in [format!("10.0.0.{other}"), format!("fd00::{other}")] {
            let addr: IpAddr = addr.parse().expect("an address");
            let mac = MacAddr([2, 0, 0, 0, 0, other]);
            rig.stack.add_neighbor(IfIndex(1), addr, mac, rig.now).expect("room");
        }
        rig
    }

    /// Runs `act` with a round around it; returns what departed beside its result.
    pub fn round<R>(
        &mut self,
        arrived: Vec<PacketBuf>,
        act: impl FnOnce(&mut Stack, &mut Round<'_>) -> R,
    ) -> (R, Vec<PacketBuf>) {
        let (mut burst, mut departing) = (Burst::new(), PacketList::new());
        for packet in arrived {
            burst.push(packet).expect("at most a burst");
        }
        let mut round = Round {
            now: self.now,
            pool: &self.pool,
            random: &mut self.random,
            arrived: &mut burst,
            departing: &mut departing,
            budget: Units(256),
            peers: None,
        };
        let result = act(&mut self.stack, &mut round);
        let departed: Vec<_> = std::iter::from_fn(|| departing.pop_front()).collect();
        departed.iter().for_each(refuse_tcp_fragment);
        (result, departed)
    }

    /// Lets packets arrive on the first interface; returns what departs.
    pub fn arrive(&mut self, mut packets: Vec<PacketBuf>) -> Vec<PacketBuf> {
        let mut departed = Vec::new();
        packets.iter_mut().for_each(|p| p.set_iface(IfIndex(1)));
        while !packets.is_empty() {
            let rest = packets.split_off(packets.len().min(64));
            departed.extend(self.round(packets, |stack, round| stack.round(round)).1);
            packets = rest;
        }
        departed
    }

    /// The triage classes of frames on the first interface, before anything is done with them.
    ///
    /// # Panics
    /// Where the pool has no room for them, or they are more than a burst.
    #[must_use]
    pub fn classify(&self, frames: &[Vec<u8>]) -> Vec<Triage> {
        let mut burst = Burst::new();
        for frame in frames {
            let mut packet = self.pool.packet_from(frame).expect("room in the pool");
            packet.set_iface(IfIndex(1));
            let _ = self.classify_one(&packet);
            burst.push(packet).expect("at most a burst");
        }
        let mut classes = vec![Triage::Unknown; frames.len()];
        self.stack.classify(&burst, &mut classes);
        classes
    }

    /// The triage class of a packet as it is, in any number of chunks, on the first interface.
    ///
    /// # Panics
    /// Where the pool has no room for a copy, or the quick classifier and the straightforward one
    /// differ.
    #[must_use]
    pub fn classify_one(&self, packet: &PacketBuf) -> Triage {
        let chunks: Vec<Vec<u8>> = packet.chunks().map(<[u8]>::to_vec).collect();
        let copy = self.pool.packet_from_chunks(chunks.iter().map(Vec::as_slice));
        let mut copy = copy.expect("room in the pool");
        copy.set_iface(IfIndex(1));
        let (slowly, whole) = (self.stack.classify_slowly(&copy), copy.is_contiguous());
        let mut burst = Burst::new();
        burst.push(copy).expect("room for one");
        let mut class = [Triage::Unknown];
        self.stack.classify(&burst, &mut class);
        assert!(class[0] == slowly || !whole, "{class:?} {slowly:?}");
        if whole {
            let has_link = matches!(self.stack.interfaces()[1].medium, LinkMedium::Ethernet(_));
            let l3 = if has_link { 14 } else { 0 };
            self.wants.look(&self.stack, (&chunks.concat(), l3), class[0]);
        }
        class[0]
    }

    /// Lets one frame arrive on the first interface.
    ///
    /// # Panics
    /// Where the pool has no room for it.
    pub fn frame(&mut self, bytes: &[u8]) -> Vec<PacketBuf> {
        let packet = self.pool.packet_from(bytes).expect("room in the pool");
        self.arrive(vec![packet])
    }

    /// Does all timed work that is due, round after round, until `until`; returns what departs.
    pub fn run_until(&mut self, until: Instant) -> Vec<PacketBuf> {
        let mut departed = Vec::new();
        while let Some(due) = self.stack.deadline().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            departed.extend(self.round(Vec::new(), |stack, round| stack.work(round)).1);
        }
        self.now = self.now.max(until);
        departed
    }

    /// As [`Rig::run_until`], for a length of time.
    pub fn run_for(&mut self, length: Duration) -> Vec<PacketBuf> {
        self.run_until(self.now + length)
    }

    /// Works with the sockets; returns what departed beside the result.
    pub fn sockets<R>(&mut self, act: impl FnOnce(&mut Sockets<'_>) -> R) -> (R, Vec<PacketBuf>) {
        self.round(Vec::new(), |stack, round| act(&mut stack.sockets(round)))
    }

    /// Lets one frame arrive that must be dropped: for this reason and no other, counted once, with
    /// both ledgers balanced and all memory back, and with the answer that is owed or with none.
    ///
    /// # Panics
    /// Anything of that is not so.
    pub fn expect_drop(
        &mut self,
        what: &str,
        frame: &[u8],
        reason: DropReason,
        owed: Option<Owed>,
    ) {
        let (before, free) = (self.stats(), self.pool.available());
        let departed = self.frame(frame);
        let lost = drops_between(&before, &self.stats());
        assert_eq!(lost, (vec![(reason, 1)], vec![]), "{what}");
        assert!(self.conservation().holds(), "{what}: {:?}", self.conservation());
        match owed {
            Some(owed) => owed.check(frame.get(14..).unwrap_or_default(), &departed),
            None => assert!(departed.is_empty(), "{what}: no answer, but {departed:?}"),
        }
        drop(departed);
        assert_eq!(self.pool.available(), free, "{what}: memory is gone");
    }

    /// As [`Rig::expect_drop`] for an IP packet from the peer.
    ///
    /// # Panics
    /// As there.
    pub fn packet_is_dropped(
        &mut self,
        what: &str,
        packet: &[u8],
        reason: DropReason,
        owed: Option<Owed>,
    ) {
        self.expect_drop(what, &craft::from_peer(packet), reason, owed);
    }

    /// Lets one frame arrive that must not be dropped; returns what departs.
    ///
    /// # Panics
    /// Something was dropped.
    pub fn lives(&mut self, what: &str, frame: &[u8]) -> Vec<PacketBuf> {
        let before = self.stats();
        let departed = self.frame(frame);
        assert_eq!(drops_between(&before, &self.stats()), (vec![], vec![]), "{what}");
        assert!(self.conservation().holds(), "{what}");
        departed
    }

    /// What was counted.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stack.stats()
    }

    /// Both ledgers.
    #[must_use]
    pub fn conservation(&self) -> Conservation {
        self.stats().conservation()
    }
}

/// How many were dropped, arrived and our own.
pub type Drops = (Vec<(DropReason, u64)>, Vec<(DropReason, u64)>);

/// What was dropped between two snapshots.
#[must_use]
pub fn drops_between(before: &Stats, after: &Stats) -> Drops {
    let of = |before: &floodwall_base::DropCounts, after: &floodwall_base::DropCounts| {
        after.nonzero().map(|(r, n)| (r, n - before.of(r))).filter(|(_, n)| *n > 0).collect()
    };
    (of(&before.drops_in, &after.drops_in), of(&before.drops_out, &after.drops_out))
}
