//! Hundreds of unread sockets, or with programs that keep what they read: what they hold is bounded
//! together, and echo, another socket and TCP go on.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use floodwall_base::limits::UDP_MEMORY_FLOOR;
use floodwall_base::{Counter, DropReason, Family};
use floodwall_packet::Triage;
use floodwall_stack::{Sockets, StackConfig};
use floodwall_tcp::TcpSettings;
use floodwall_tests::craft::{FAMILIES, HOST, PEER, addr, echo, from_peer, udp_to_port};
use floodwall_tests::ethernet_config;
use floodwall_tests::tcp_peer::{TcpPeer, put};
use floodwall_udp::{ReceivedPacket, RecvError, SocketId, SocketSettings};
use floodwall_wire::tcp::TcpFlags;
use floodwall_wire::tcp_options::TcpOptionSet;

const HOGS: u16 = 300;
const FIRST: u16 = 10_000;
const DNS: u16 = 53;

/// How a socket holds the host's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hog {
    /// It is not read.
    Unread,
    /// Its program takes every packet, and drops none.
    Keeps,
    /// It sends to neighbours that do not answer.
    Sends,
}

/// A socket of both families that may hold more than all together may, and in which no light sender
/// is preferred.
pub(crate) fn bind_large(peer: &mut TcpPeer, port: u16) -> SocketId {
    let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
    let (receive_bytes, fair_drop) = (1 << 20, false);
    let settings = SocketSettings { receive_bytes, fair_drop, ..SocketSettings::new(Family::V6) };
    peer.sockets(|s| s.udp_bind(any, settings)).0.expect("a socket")
}

struct Scene {
    peer: TcpPeer,
    family: Family,
    hogs: Vec<SocketId>,
    kept: Vec<ReceivedPacket>,
    dns: SocketId,
    frames: usize,
    asked: u16,
}

impl Scene {
    fn new(family: Family, hogs: u16) -> Self {
        let config =
            StackConfig { udp_sockets_max: usize::from(hogs) + 8, ..ethernet_config(HOST) };
        let ends = ((HOST, PEER), (80, 40_000));
        let mut peer = TcpPeer::on(&config, family, &TcpSettings::default(), ends);
        let hogs = (FIRST..FIRST + hogs).map(|port| bind_large(&mut peer, port)).collect();
        let dns = bind_large(&mut peer, DNS);
        let frames = peer.rig.pool.available().frames;
        Self { peer, family, hogs, kept: Vec::new(), dns, frames, asked: 0 }
    }

    fn to_hog(&self, n: usize) -> Vec<u8> {
        from_peer(&udp_to_port(self.family, FIRST + n as u16, &[7; 1000]))
    }

    fn hog(&mut self, n: usize, hog: Hog) {
        let id = self.hogs[n];
        if hog == Hog::Sends {
            let silent = match self.family {
                Family::V4 => IpAddr::from([10, 0, 0, 10 + (n % 240) as u8]),
                Family::V6 => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 1, 10 + n as u16]),
            };
            let to = SocketAddr::new(silent, 7);
            let send =
                |s: &mut Sockets<'_>| (0..4).for_each(|_| _ = s.udp_send(id, Some(to), &[7; 1000]));
            self.peer.sockets(send);
            return;
        }
        let frame = self.to_hog(n);
        self.peer.rig.frame(&frame);
        if hog == Hog::Keeps {
            let taken = self.peer.sockets(|s| s.udp_recv_packet(id)).0;
            self.kept.extend(taken);
        }
    }

    /// Three questions at once to a socket that is read, an echo, a connection with a few bytes.
    fn others_are_served(&mut self, what: &str) {
        for _ in 0..3 {
            let frame = from_peer(&udp_to_port(self.family, DNS, b"question"));
            self.peer.rig.frame(&frame);
        }
        for n in 0..3 {
            let dns = self.dns;
            let (got, sent) = self.peer.rig.sockets(|s| {
                let got = s.udp_recv(dns, &mut [0; 100])?;
                Ok::<_, RecvError>((got.len, s.udp_reply(dns, &got, b"answer").is_ok()))
            });
            assert_eq!((got, sent.len()), (Ok((8, true)), 1), "question {n}, {what}");
        }
        let ping = echo(addr(self.family, PEER), addr(self.family, HOST), &[1; 56]);
        assert_eq!(self.peer.rig.frame(&from_peer(&ping)).len(), 1, "ping, {what}");
        self.asked += 1;
        self.peer.ports.1 = 40_000 + self.asked;
        let id = self.peer.open(TcpOptionSet::NONE);
        self.peer.give(&put(TcpFlags::ACK, 1, 1).data(b"question"));
        assert_eq!(self.peer.received(id), b"question", "TCP, {what}");
        self.peer.sockets(|s| s.tcp_abort(id)).0.expect("it is open");
    }

    /// Closes everything: all memory returns, and the counters agree with each other.
    fn end(mut self) {
        let stats = self.peer.rig.stats();
        let full = stats.drops_in.of(DropReason::UdpMemoryFull);
        let of = |v4, v6| stats.counters.of(if self.family == Family::V4 { v4 } else { v6 });
        assert_eq!(of(Counter::UdpMemErrors, Counter::Udp6MemErrors), full);
        let rcvbuf = of(Counter::UdpRcvbufErrors, Counter::Udp6RcvbufErrors);
        assert_eq!(of(Counter::UdpInErrors, Counter::Udp6InErrors), full + rcvbuf);
        let told: u64 = (self.hogs.iter())
            .map(|id| self.peer.sockets(|s| s.udp_refused(*id)).0.expect("it is open").memory)
            .sum();
        assert_eq!(told, full, "each socket reports its own");
        assert!(stats.conservation().holds());
        self.kept.clear();
        for id in self.hogs.drain(..).chain([self.dns]) {
            self.peer.sockets(|s| s.udp_close(id));
        }
        self.peer.wait(std::time::Duration::from_secs(1000));
        assert_eq!(self.peer.rig.pool.available().frames, self.frames);
    }
}

fn flood(family: Family, hog: Hog) {
    let mut scene = Scene::new(family, HOGS);
    scene.others_are_served("before");
    for round in 0..12 {
        for n in 0..usize::from(HOGS) {
            scene.hog(n, hog);
            if n % 50 == 49 {
                let what = format!("{family:?} {hog:?} {round} {n}");
                scene.others_are_served(&what);
                let free = scene.peer.rig.pool.available().frames;
                assert!(free > scene.frames / 2, "{free} of {} are free, {what}", scene.frames);
            }
        }
    }
    if hog != Hog::Sends {
        let refused = scene.peer.rig.stats().drops_in.of(DropReason::UdpMemoryFull);
        // A fifth of the frames and a bit is held.
        let taken = 12 * u64::from(HOGS) - refused;
        assert!((u64::from(HOGS)..scene.frames as u64 / 4).contains(&taken), "{taken} were taken");
    }
    scene.end();
}

#[test]
fn sockets_that_nothing_reads_leave_memory_to_others() {
    FAMILIES.into_iter().for_each(|family| flood(family, Hog::Unread));
}

#[test]
fn sockets_that_keep_their_packets_leave_memory_to_others() {
    FAMILIES.into_iter().for_each(|family| flood(family, Hog::Keeps));
}

#[test]
fn sockets_that_send_to_silent_neighbours_leave_memory_to_others() {
    FAMILIES.into_iter().for_each(|family| flood(family, Hog::Sends));
}

/// More sockets than have two frames each: later ones get nothing, those that are read go on.
#[test]
fn beyond_all_floors_sockets_that_are_read_go_on() {
    for family in FAMILIES {
        let mut scene = Scene::new(family, 700);
        scene.others_are_served("before");
        for round in 0..3 {
            (0..700).for_each(|n| scene.hog(n, Hog::Unread));
            let what = format!("{family:?} {round}");
            let dns = scene.dns;
            for _ in 0..20 {
                let frame = from_peer(&udp_to_port(family, DNS, b"question"));
                scene.peer.rig.frame(&frame);
                let got = scene.peer.sockets(|s| s.udp_recv(dns, &mut [0; 100])).0;
                assert_eq!(got.map(|got| got.len), Ok(8), "{what}");
            }
            let free = scene.peer.rig.pool.available().frames;
            assert!(free > scene.frames * 2 / 3, "{free} of {} are free, {what}", scene.frames);
        }
        scene.end();
    }
}

/// One socket that holds much is cut before many that hold little.
#[test]
fn the_greedy_are_cut_first() {
    for family in FAMILIES {
        let mut scene = Scene::new(family, 40);
        (0..200).for_each(|_| scene.hog(0, Hog::Unread));
        let held = |scene: &mut Scene, n: usize| {
            let id = scene.hogs[n];
            scene.peer.sockets(|s| s.udp_queue(id)).0.expect("it is open").1
        };
        let greedy = held(&mut scene, 0);
        let limit = scene.peer.rig.pool.frames_true_bytes() / 6;
        // The last datagram was taken while as much was left as was held then, and it.
        let half = limit / 2 - 2176..=limit / 2 + 1088;
        assert!(half.contains(&greedy), "alone it has half of {limit}: {greedy}");
        for round in 0..8 {
            (1..40).for_each(|n| scene.hog(n, Hog::Unread));
            (0..20).for_each(|_| scene.hog(0, Hog::Unread));
            assert_eq!(held(&mut scene, 0), greedy, "{round}");
        }
        for n in 1..40 {
            let little = held(&mut scene, n);
            assert!((UDP_MEMORY_FLOOR as u64..greedy / 4).contains(&little), "{n} {little}");
        }
        scene.end();
    }
}

/// A packet refused because all sockets hold too much is refused by triage next, until memory is
/// returned, to any socket.
#[test]
fn triage_refuses_what_memory_refuses() {
    for family in FAMILIES {
        let mut scene = Scene::new(family, HOGS);
        for _ in 0..4 {
            (0..usize::from(HOGS)).for_each(|n| scene.hog(n, Hog::Unread));
        }
        let full = scene.to_hog(0);
        let dns = from_peer(&udp_to_port(family, DNS, b"question"));
        let classes = scene.peer.rig.classify(&[full.clone(), dns.clone()]);
        assert_eq!(classes, [Triage::Rejectable, Triage::Unknown], "{family:?}");
        let id = scene.hogs[0];
        // The others give back, and rounds go by.
        for id in scene.hogs.split_off(1) {
            scene.peer.sockets(|s| s.udp_close(id));
        }
        for _ in 0..2 {
            scene.peer.rig.frame(&dns);
        }
        assert_eq!(scene.peer.rig.classify(std::slice::from_ref(&full)), [Triage::Unknown]);
        let before = scene.peer.sockets(|s| s.udp_queue(id)).0.expect("it is open").0;
        (0..20).for_each(|_| _ = scene.peer.rig.frame(&full));
        let after = scene.peer.sockets(|s| s.udp_queue(id)).0.expect("it is open").0;
        assert_eq!(after, before + 20, "it may hold what it likes again");
    }
}
