//! A 64-byte datagram out of one socket and into another, without the layers in between: send,
//! input, read, in nanoseconds, without and with triage of each burst before its input, with 1,
//! 1,000 and 60,000 sockets open and used at random.
//!
//! Run: `cargo bench -p floodwall-udp`. Stages are timed over bursts of 64; medians of rounds.
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use core::net::{IpAddr, SocketAddr};
use std::hint::black_box;
use std::time::Instant;

use floodwall_base::limits::BURST_MAX;
use floodwall_base::{Counters, Family, IfIndex, PublicRandom, Randomness};
use floodwall_packet::{AccessCounters, PacketBuf, Pool, PoolConfig, Triage};
use floodwall_udp::{DatagramInput, DatagramVerdict, SocketId, SocketSettings, Udp, UdpConfig};

const ROUNDS: usize = 9;
const BURSTS: usize = 2000;
const PAYLOAD: [u8; 64] = [0x5a; 64];

struct Plan {
    family: Family,
    sockets: usize,
    used: usize,
    connected: bool,
}

struct Path {
    udp: Udp,
    pool: Pool,
    counters: Counters,
    access: AccessCounters,
    sender: SocketId,
    ids: Vec<SocketId>,
    /// Per socket: its peer, and its local address.
    ends: Vec<(SocketAddr, SocketAddr)>,
    header: Vec<u8>,
}

fn addrs(family: Family) -> (IpAddr, IpAddr) {
    let text = match family {
        Family::V4 => ("10.0.0.1", "10.0.0.2"),
        Family::V6 => ("fd00::1", "fd00::2"),
    };
    (text.0.parse().expect("an address"), text.1.parse().expect("an address"))
}

fn header(src_addr: IpAddr, dst_addr: IpAddr) -> Vec<u8> {
    match (src_addr, dst_addr) {
        (IpAddr::V4(src_addr), IpAddr::V4(dst_addr)) => {
            [&[0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0], &src_addr.octets()[..], &dst_addr.octets()]
                .concat()
        }
        (IpAddr::V6(src_addr), IpAddr::V6(dst_addr)) => {
            [&[0x60, 0, 0, 0, 0, 0, 17, 64], &src_addr.octets()[..], &dst_addr.octets()].concat()
        }
        _ => Vec::new(),
    }
}

impl Path {
    fn new(plan: &Plan) -> Self {
        let accounts = plan.sockets * 2 + 8;
        let pool = Pool::new(&PoolConfig { accounts, ..PoolConfig::default() }).expect("memory");
        let mut random = Randomness::from_number(1);
        let config = UdpConfig { sockets_max: plan.sockets + 1, ..UdpConfig::default() };
        let mut udp = Udp::new(&config, &mut random.secret);
        let (ours, peer) = addrs(plan.family);
        let open = |udp: &mut Udp| {
            let settings = SocketSettings {
                reuse_address: plan.connected,
                ..SocketSettings::new(plan.family)
            };
            udp.open(&pool, settings).expect("a socket")
        };
        let sender = open(&mut udp);
        udp.bind(sender, (peer, 1000).into(), None, &mut random.secret).expect("a port");
        let (mut ids, mut ends) = (Vec::new(), Vec::new());
        for n in 0..plan.sockets as u16 {
            let id = open(&mut udp);
            let local = SocketAddr::new(ours, if plan.connected { 53 } else { 2000 + n });
            let remote = SocketAddr::new(peer, if plan.connected { 2000 + n } else { 1000 });
            udp.bind(id, local, None, &mut random.secret).expect("a port");
            if plan.connected {
                udp.connect(id, remote, ours, None, &mut random.secret).expect("a peer");
            }
            ids.push(id);
            ends.push((remote, local));
        }
        let header = header(peer, ours);
        let (counters, access) = (Counters::default(), AccessCounters::default());
        Self { udp, pool, counters, access, sender, ids, ends, header }
    }

    #[inline]
    fn send(&mut self, at: usize) -> PacketBuf {
        let (from, to) = self.ends[at];
        let (pool, counters) = (&self.pool, &mut self.counters);
        let sent = self.udp.output(pool, self.sender, to, from, black_box(&PAYLOAD), counters);
        let mut packet = sent.expect("room to send");
        // A connected receiver is connected to another port than the sender's; the sum stays right.
        if from.port() != 1000 {
            let bytes = packet.first_mut().expect("its only owner");
            let check = u16::from_be_bytes([bytes[6], bytes[7]]);
            let check = match floodwall_checksum::update16(check, 1000, from.port()) {
                0 => 0xffff,
                check => check,
            };
            bytes[..2].copy_from_slice(&from.port().to_be_bytes());
            bytes[6..8].copy_from_slice(&check.to_be_bytes());
        }
        packet.prepend(self.header.len()).expect("headroom").copy_from_slice(&self.header);
        packet
    }

    #[inline]
    fn input(&mut self, at: usize, mut packet: PacketBuf) {
        packet.uncharge();
        let (from, to) = self.ends[at];
        let input = DatagramInput {
            src_addr: from.ip(),
            dst_addr: to.ip(),
            iface: IfIndex(1),
            l3: 0,
            l4: self.header.len(),
            len: packet.len() - self.header.len(),
            group: false,
        };
        let (counters, access) = (&mut self.counters, &mut self.access);
        match self.udp.input(black_box(&input), packet, &self.pool, counters, access) {
            DatagramVerdict::Delivered { .. } => (),
            other => panic!("{other:?}"),
        }
    }

    #[inline]
    fn recv(&mut self, at: usize, out: &mut [u8]) {
        let _ = black_box(self.udp.next_ready());
        let read = self.udp.recv(self.ids[at], out, &mut self.counters).expect("a datagram");
        assert_eq!(read.len, PAYLOAD.len());
        black_box(&out);
    }
}

fn per_datagram(start: Instant, datagrams: usize) -> f64 {
    start.elapsed().as_nanos() as f64 / datagrams as f64
}

/// One round: nanoseconds of send, triage, input, read (staged), and of all but triage together.
fn round(path: &mut Path, order: &[usize], triage: bool) -> [f64; 5] {
    let mut out = [0; 2048];
    let (mut send, mut classify, mut input, mut read) = (0.0, 0.0, 0.0, 0.0);
    let mut packets: Vec<PacketBuf> = Vec::with_capacity(BURST_MAX);
    for burst in order.chunks(BURST_MAX) {
        let start = Instant::now();
        packets.extend(burst.iter().map(|at| path.send(*at)));
        send += per_datagram(start, order.len());
        let start = Instant::now();
        for at in burst.iter().filter(|_| triage) {
            let (from, to) = path.ends[*at];
            assert_ne!(path.udp.classify(from, to, IfIndex(1)), Triage::Rejectable);
        }
        classify += per_datagram(start, order.len());
        let start = Instant::now();
        for (at, packet) in burst.iter().zip(packets.drain(..)) {
            path.input(*at, packet);
        }
        input += per_datagram(start, order.len());
        let start = Instant::now();
        for at in burst {
            path.recv(*at, &mut out);
        }
        read += per_datagram(start, order.len());
    }
    let start = Instant::now();
    for at in order {
        let packet = path.send(*at);
        path.input(*at, packet);
        path.recv(*at, &mut out);
    }
    [send, classify, input, read, per_datagram(start, order.len())]
}

fn main() {
    println!(
        "{:34} {:>6} {:>6} {:>6} {:>6} {:>11}",
        "64 bytes, ns", "send", "triage", "input", "read", "completion"
    );
    for family in [Family::V4, Family::V6] {
        for (name, sockets, used, connected) in [
            ("one socket", 1, 1, false),
            ("1,000 open, one used", 1000, 1, false),
            ("1,000 used, a port each", 1000, 1000, false),
            ("1,000 used, connected, one port", 1000, 1000, true),
            ("60,000 open, one used", 60_000, 1, false),
            ("60,000 used, a port each", 60_000, 60_000, false),
            ("60,000 used, connected, one port", 60_000, 60_000, true),
        ] {
            // An argument chooses plans by a part of their name; cargo's own begin with dashes.
            let mut words = std::env::args().skip(1).filter(|word| !word.starts_with('-'));
            let line = format!("{family:?} {name}");
            if words.next().is_some_and(|word| !line.contains(&word)) {
                continue;
            }
            let plan = Plan { family, sockets, used, connected };
            let mut path = Path::new(&plan);
            let mut random = PublicRandom::new(9);
            let order: Vec<usize> =
                (0..BURSTS * BURST_MAX).map(|_| random.below(plan.used as u64) as usize).collect();
            for triage in [false, true] {
                let mut rounds: Vec<[f64; 5]> =
                    (0..ROUNDS).map(|_| round(&mut path, &order, triage)).collect();
                let [send, classify, input, read, all] = [0, 1, 2, 3, 4].map(|stage| {
                    rounds.sort_by(|a, b| a[stage].total_cmp(&b[stage]));
                    rounds[ROUNDS / 2][stage]
                });
                println!("{line:34} {send:6.1} {classify:6.1} {input:6.1} {read:6.1} {all:11.1}");
            }
        }
    }
}
