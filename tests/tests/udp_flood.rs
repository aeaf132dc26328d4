//! One UDP socket under floods, through a whole stack: which senders are served, which are not, and
//! that other sockets lose nothing. Virtual time: a reader takes so much a millisecond, and ten
//! times that comes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use floodwall_base::{Counter, DropReason, Family, PublicRandom};
use floodwall_stack::{Sockets, StackConfig};
use floodwall_tests::{Rig, craft, drops_between, ethernet_config};
use floodwall_udp::{
    Challenge, ChallengeHook, Challenged, SocketId, SocketSettings, UnverifiedSource,
};
use std::sync::Arc;

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];
const HOST: u8 = 1;
const ROUTER: u8 = 2;
/// What the reader takes in a millisecond.
const READ: usize = 5;
/// Datagrams that come in a millisecond beside the honest ones.
const FLOOD: u32 = 50;
/// Honest senders; each sends every so many milliseconds.
const HONEST: u32 = 10;

/// The sources of the flood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flood {
    None,
    /// Ten addresses, far from each other.
    Ten,
    /// Forged addresses of a million prefixes.
    Million,
}

fn far(family: Family, n: u32) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::from_bits(0x2d00_0001 + n * 256)),
        Family::V6 => IpAddr::V6(Ipv6Addr::from_bits(0x2a00_u128 << 112 | u128::from(n) << 80 | 1)),
    }
}

fn config() -> StackConfig {
    let mut config = ethernet_config(HOST);
    let gateways = [format!("10.0.0.{ROUTER}"), format!("fd00::{ROUTER}")];
    config.interfaces[0].gateways = gateways.iter().filter_map(|a| a.parse().ok()).collect();
    config
}

fn open(rig: &mut Rig, port: u16, settings: SocketSettings) -> SocketId {
    let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
    rig.sockets(|s| s.udp_bind(any, settings)).0.expect("a socket")
}

/// What became of everybody.
#[derive(Default, Debug)]
struct Outcome {
    /// Honest datagrams, and those of them that were read; of senders that were answered before.
    honest: (u32, u32),
    /// Honest datagrams to the other socket.
    innocent: (u32, u32),
    read: u32,
    over_share: u64,
    full: u64,
}

/// A socket that reads and answers, another one beside it, and a flood at the first.
struct Scene {
    rig: Rig,
    family: Family,
    victim: SocketId,
    innocent: SocketId,
    random: PublicRandom,
    outcome: Outcome,
}

impl Scene {
    fn new(family: Family, fair_drop: bool) -> Self {
        let mut rig = Rig::with_neighbor(&config(), ROUTER);
        let settings =
            SocketSettings { fair_drop, receive_bytes: 60_000, ..SocketSettings::new(Family::V6) };
        let victim = open(&mut rig, 53, settings);
        let innocent = open(&mut rig, 54, SocketSettings::new(Family::V6));
        let (random, outcome) = (PublicRandom::new(7), Outcome::default());
        Self { rig, family, victim, innocent, random, outcome }
    }

    fn datagram(&self, from: u32, port: u16, tag: u8) -> Vec<u8> {
        let to = SocketAddr::new(craft::addr(self.family, HOST), port);
        let from = SocketAddr::new(far(self.family, from), 4000);
        craft::from_peer(&craft::udp(from, to, &[tag; 32]))
    }

    /// One millisecond: what comes, in a random order, then what is read.
    fn millisecond(&mut self, n: u32, flood: Flood, counts: bool) {
        let mut frames = Vec::new();
        let honest = 3_000_000 + n % HONEST;
        frames.push(self.datagram(honest, 53, 1));
        frames.push(self.datagram(honest, 54, 2));
        for _ in 0..FLOOD {
            let word = self.random.next_u64() as u32;
            let from = match flood {
                Flood::None => continue,
                Flood::Ten => 1000 * (1 + word % 10),
                Flood::Million => word % 1_000_000,
            };
            frames.push(self.datagram(from, 53, 0));
        }
        let at = self.random.below(frames.len() as u64) as usize;
        frames.swap(0, at);
        let pool = &self.rig.pool;
        let packets = frames.iter().map(|f| pool.packet_from(f).expect("room")).collect();
        drop(self.rig.arrive(packets));
        let (victim, innocent) = (self.victim, self.innocent);
        let (read, _) = self
            .rig
            .sockets(|sockets| (read(sockets, victim, READ), read(sockets, innocent, usize::MAX)));
        self.rig.now += Duration::from_millis(1);
        if counts {
            self.outcome.honest.0 += 1;
            self.outcome.innocent.0 += 1;
            self.outcome.honest.1 += read.0.1;
            self.outcome.read += read.0.0;
            self.outcome.innocent.1 += read.1.0;
        }
    }

    /// First peace, so that honest senders have been answered; then the flood.
    fn run(mut self, flood: Flood, milliseconds: u32) -> Outcome {
        (0..4 * HONEST).for_each(|n| self.millisecond(n, Flood::None, false));
        let before = self.rig.stats();
        // The queue fills first: what is read then came before.
        (0..20).for_each(|n| self.millisecond(n, flood, false));
        (0..milliseconds).for_each(|n| self.millisecond(n, flood, true));
        let (dropped, ours) = drops_between(&before, &self.rig.stats());
        let of = |reason| dropped.iter().find(|(r, _)| *r == reason).map_or(0, |(_, n)| *n);
        self.outcome.over_share = of(DropReason::UdpOverShare);
        self.outcome.full = of(DropReason::UdpSocketFull);
        let all: u64 = dropped.iter().map(|(_, n)| n).sum();
        assert_eq!(all, self.outcome.over_share + self.outcome.full, "{dropped:?}");
        assert_eq!(ours, vec![]);
        // The counters that Linux has say the same, and so does the socket.
        let (errors, rcvbuf) = match self.family {
            Family::V4 => (Counter::UdpInErrors, Counter::UdpRcvbufErrors),
            Family::V6 => (Counter::Udp6InErrors, Counter::Udp6RcvbufErrors),
        };
        let counters = self.rig.stats().counters;
        assert_eq!((counters.of(errors), counters.of(rcvbuf)), (all, all));
        assert!(self.rig.conservation().holds(), "{:?}", self.rig.conservation());
        let (victim, innocent) = (self.victim, self.innocent);
        self.rig.sockets(|sockets| {
            while read(sockets, victim, 100).0 > 0 {}
            sockets.udp_close(victim);
            sockets.udp_close(innocent);
        });
        self.outcome
    }
}

/// Reads and answers; how many, and how many of them were honest.
fn read(sockets: &mut Sockets<'_>, id: SocketId, most: usize) -> (u32, u32) {
    let (mut count, mut honest, mut buffer) = (0, 0, [0; 64]);
    while (count as usize) < most
        && let Ok(received) = sockets.udp_recv(id, &mut buffer)
    {
        count += 1;
        honest += u32::from(buffer[0] == 1);
        let _ = sockets.udp_reply(id, &received, &buffer[..received.len]);
    }
    (count, honest)
}

#[test]
fn honest_senders_keep_95_in_a_hundred_beside_ten_heavy_ones_at_ten_times_the_capacity() {
    for family in FAMILIES {
        let Outcome { honest, innocent, read, over_share, .. } =
            Scene::new(family, true).run(Flood::Ten, 250);
        assert!(honest.1 * 100 >= honest.0 * 95, "{family:?}: {honest:?}");
        assert_eq!(innocent.0, innocent.1, "the other socket is not touched");
        assert!(read as usize >= 249 * READ, "the reader always finds something: {read}");
        assert!(over_share > 10_000, "{over_share}");
        let Outcome { honest, innocent, .. } = Scene::new(family, false).run(Flood::Ten, 100);
        assert!(honest.1 * 2 < honest.0, "without fair drop most are lost: {honest:?}");
        assert_eq!(innocent.0, innocent.1);
    }
}

#[test]
fn one_that_was_answered_is_served_beside_sources_forged_out_of_a_million_prefixes() {
    for family in FAMILIES {
        let Outcome { honest, innocent, read, .. } =
            Scene::new(family, true).run(Flood::Million, 250);
        assert!(honest.1 * 100 >= honest.0 * 95, "{family:?}: {honest:?}");
        assert_eq!(innocent.0, innocent.1, "the other socket is not touched");
        assert!(read as usize >= 249 * READ, "{read}");
    }
}

/// A token is the sender's address, turned round: enough for a test.
struct Turned;

impl Challenge for Turned {
    fn judge(&self, unknown: &UnverifiedSource<'_>, answer: &mut [u8]) -> Challenged {
        let mut token: Vec<u8> = match unknown.from.ip() {
            IpAddr::V4(addr) => addr.octets().to_vec(),
            IpAddr::V6(addr) => addr.octets().to_vec(),
        };
        token.reverse();
        if unknown.payload.starts_with(&token) {
            return Challenged::Proven;
        }
        answer[..token.len()].copy_from_slice(&token);
        Challenged::Answer(token.len())
    }
}

#[test]
fn an_unverified_packet_is_challenged_and_taken_once_it_is_proven() {
    for family in FAMILIES {
        let mut scene = Scene::new(family, true);
        let settings = SocketSettings {
            receive_bytes: 60_000,
            challenge: Some(ChallengeHook(Arc::new(Turned))),
            ..SocketSettings::new(Family::V6)
        };
        let id = open(&mut scene.rig, 55, settings);
        // A socket with room challenges no sender: it fills up to its half.
        let (mut taken, before) = (0, scene.rig.stats());
        let token = loop {
            let frame = scene.datagram(100 + taken, 55, 9);
            let departed = scene.rig.frame(&frame);
            if let [answer] = &departed[..] {
                let bytes: Vec<u8> = answer.chunks().flatten().copied().collect();
                assert!(bytes.len() < frame.len(), "no longer than the question");
                break bytes[bytes.len() - if family == Family::V4 { 4 } else { 16 }..].to_vec();
            }
            taken += 1;
        };
        let (dropped, _) = drops_between(&before, &scene.rig.stats());
        assert_eq!(dropped, vec![(DropReason::UdpChallenged, 1)]);
        // What fails its checksum is not answered, however strange.
        let mut broken = scene.datagram(100 + taken, 55, 9);
        *broken.last_mut().expect("bytes") ^= 1;
        scene.rig.expect_drop("broken", &broken, DropReason::UdpChecksum, None);
        let waiting = |rig: &mut Rig| rig.sockets(|s| s.udp_queue(id)).0.expect("open").0;
        let to = SocketAddr::new(craft::addr(family, HOST), 55);
        let from = SocketAddr::new(far(family, 100 + taken), 4000);
        let mut payload = token;
        payload.resize(32, 0);
        let frame = craft::from_peer(&craft::udp(from, to, &payload));
        let before = waiting(&mut scene.rig);
        assert!(scene.rig.lives("proven", &frame).is_empty());
        assert_eq!(waiting(&mut scene.rig), before + 1);
    }
}
