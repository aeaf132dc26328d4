//! What triage costs with many flows, beside the parse alone and beside one look-up at a time.
//!
//! `cargo bench -p floodwall-stack --bench triage`. A stack with 1,000,000 connected sockets on
//! ports that many share (keys, buckets, sockets and accounts are some 600 MiB, beyond the last
//! cache) receives bursts of 64 packets, each of another flow: established flows, packets of
//! unknown flows, of peers to connected sockets that are full, of unverified sources to servers
//! that are full, and packets to ports without a listener. The parse alone is the same walk over
//! the same packets, checked at least as far, without any table. Kinds and families are
//! interleaved; the table shows medians, and the median of the ratios to the parse of the same
//! round. Every result is compared with what the set-up expects, and with the straightforward way
//! (the full walk, one look-up at a time, the socket's own account). `-- --test` does that with few
//! sockets and measures nothing; `-- KIND` measures one kind.
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot set itself up has no result")]
#![expect(clippy::indexing_slicing, reason = "a benchmark may panic")]

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Instant;

use floodwall_base::limits::BURST_MAX;
use floodwall_base::{Family, IfIndex, MacAddr, PublicRandom, Randomness, Units};
use floodwall_checksum::{pseudo_header_v6, sum};
use floodwall_packet::{Burst, Engine, PacketList, Pool, PoolConfig, Round, Triage};
use floodwall_stack::{InterfaceConfig, LinkMedium, Stack, StackConfig, accounts_needed};
use floodwall_udp::SocketSettings;
use floodwall_wire::{EtherType, EthernetFields, IpProtocol, Ipv4Fields, Ipv6Fields, validate};

const ROUNDS: usize = 60;
/// Bursts of one kind in one round: 2,048 packets, each of another flow.
const BURSTS: usize = 32;
/// Our ports; a flow in so many is of each.
const PORTS: u32 = 64;
const FIRST_PORT: u16 = 2000;
/// Ports of sockets that accept any peer, one each, and are full.
const SERVERS: u16 = 1000;
const FIRST_SERVER: u16 = 5000;
const HOST: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Established,
    NoFlow,
    FullSocket,
    FullServer,
    NoListener,
}

const KINDS: [Kind; 5] =
    [Kind::NoFlow, Kind::FullSocket, Kind::FullServer, Kind::NoListener, Kind::Established];

fn own(v6: bool) -> IpAddr {
    match v6 {
        true => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).into(),
        false => Ipv4Addr::new(10, 0, 0, 1).into(),
    }
}

/// Both ends of flow `n`: every other one is IPv6.
fn flow(n: u32) -> (SocketAddr, SocketAddr) {
    let v6 = n % 2 == 1;
    let host = n / PORTS / 2;
    let peer: IpAddr = match v6 {
        true => Ipv6Addr::from(0xfd00_u128 << 112 | (u128::from(host) + 2)).into(),
        false => Ipv4Addr::from(0x0b00_0000 + host).into(),
    };
    let port = FIRST_PORT + (n / 2 % PORTS) as u16;
    (SocketAddr::new(peer, 7), SocketAddr::new(own(v6), port))
}

struct Bench {
    stack: Stack,
    pool: Pool,
    random: PublicRandom,
    flows: u32,
}

impl Bench {
    fn new(flows: u32) -> Self {
        let config = StackConfig {
            interfaces: vec![InterfaceConfig {
                name: "eth0".to_owned(),
                medium: LinkMedium::Ethernet(HOST),
                mtu: 1500,
                addresses: vec!["10.0.0.1/8".parse().unwrap(), "fd00::1/64".parse().unwrap()],
                gateways: vec!["10.0.0.2".parse().unwrap()],
                ..InterfaceConfig::default()
            }],
            udp_sockets_max: flows as usize + usize::from(SERVERS) + 64,
            duplicate_address_detection: false,
            ..StackConfig::default()
        };
        let pool = PoolConfig { accounts: accounts_needed(&config), ..PoolConfig::default() };
        let pool = Pool::new(&pool).unwrap();
        let mut random = Randomness::from_number(1);
        let now = floodwall_base::Instant::from_nanos(1);
        let mut stack = Stack::new(&config, &mut random, now).unwrap();
        let (mut burst, mut departing) = (Burst::new(), PacketList::new());
        let mut round = Round {
            now,
            pool: &pool,
            random: &mut random,
            arrived: &mut burst,
            departing: &mut departing,
            budget: Units(64),
            peers: None,
        };
        for n in 0..flows {
            let (peer, local) = flow(n);
            let family = if peer.is_ipv6() { Family::V6 } else { Family::V4 };
            let mut sockets = stack.sockets(&mut round);
            // The eighth of them is full: it takes one datagram, and has it.
            let receive_bytes = if is_full(n) { 1 } else { 212_992 };
            let settings = SocketSettings {
                receive_bytes,
                reuse_address: true,
                ..SocketSettings::new(family)
            };
            let id = sockets.udp_bind(local, settings).unwrap();
            sockets.udp_connect(id, peer).unwrap();
        }
        for n in 0..SERVERS {
            let settings = SocketSettings { receive_bytes: 1, ..SocketSettings::new(Family::V6) };
            let local = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), FIRST_SERVER + n);
            stack.sockets(&mut round).udp_bind(local, settings).unwrap();
        }
        Self { stack, pool, random: PublicRandom::new(9), flows }
    }

    /// Fills a burst with packets of one kind; none of their flows was looked up lately.
    fn fill(&mut self, kind: Kind, v6: bool, burst: &mut Burst) {
        while burst.room() > 0 {
            let n = self.random.below(u64::from(self.flows)) as u32 & !1 | u32::from(v6);
            if (kind == Kind::FullSocket) != is_full(n) {
                continue;
            }
            let (mut peer, mut local) = flow(n);
            match kind {
                Kind::Established | Kind::FullSocket => {}
                Kind::FullServer => {
                    local.set_port(FIRST_SERVER + self.random.below(u64::from(SERVERS)) as u16);
                }
                Kind::NoFlow => peer.set_port(8 + self.random.below(60_000) as u16),
                Kind::NoListener => local.set_port(10_000 + self.random.below(50_000) as u16),
            }
            let mut packet = self.pool.packet_from(&frame(peer, local)).unwrap();
            packet.set_iface(IfIndex(1));
            burst.push(packet).unwrap();
        }
    }

    /// Fills the full sockets: each takes one datagram.
    fn fill_sockets(&mut self) {
        let mut random = Randomness::from_number(2);
        let flows = (0..self.flows).filter(|n| is_full(*n)).map(flow);
        let servers = (0..SERVERS).map(|n| {
            let (peer, local) = flow(0);
            (peer, SocketAddr::new(local.ip(), FIRST_SERVER + n))
        });
        for (peer, local) in flows.chain(servers) {
            let (mut burst, mut departing) = (Burst::new(), PacketList::new());
            let mut packet = self.pool.packet_from(&frame(peer, local)).unwrap();
            packet.set_iface(IfIndex(1));
            burst.push(packet).unwrap();
            let mut round = Round {
                now: floodwall_base::Instant::from_nanos(2),
                pool: &self.pool,
                random: &mut random,
                arrived: &mut burst,
                departing: &mut departing,
                budget: Units(64),
                peers: None,
            };
            self.stack.round(&mut round);
        }
    }
}

/// Few, for each holds a packet.
const fn is_full(n: u32) -> bool {
    n % 1024 < 2
}

fn frame(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let payload = [1; 18];
    let (ether_type, ip) = match (from.ip(), to.ip()) {
        (IpAddr::V4(src_addr), IpAddr::V4(dst_addr)) => {
            let mut header = [0; 20];
            let fields = Ipv4Fields::new(src_addr, dst_addr, IpProtocol::UDP, 64, 46);
            fields.emit(&mut header);
            (EtherType::IPV4, header.to_vec())
        }
        (IpAddr::V6(src_addr), IpAddr::V6(dst_addr)) => {
            let mut header = [0; 40];
            let fields = Ipv6Fields::new(src_addr, dst_addr, IpProtocol::UDP, 64, 26);
            fields.emit(&mut header);
            (EtherType::IPV6, header.to_vec())
        }
        _ => unreachable!("one family"),
    };
    let mut bytes = vec![0; 14];
    let src_addr = MacAddr([2, 0, 0, 0, 0, 2]);
    EthernetFields { dst_addr: HOST, src_addr, ether_type }.emit(bytes.first_chunk_mut().unwrap());
    bytes.extend(ip);
    bytes.extend(from.port().to_be_bytes());
    bytes.extend(to.port().to_be_bytes());
    bytes.extend([0, 26, 0, 0]);
    bytes.extend(payload);
    // A full socket's one datagram must be taken, and over IPv6 the sum is not optional.
    if let (IpAddr::V6(src_addr), IpAddr::V6(dst_addr)) = (from.ip(), to.ip()) {
        let at = bytes.len() - 26;
        let pseudo = pseudo_header_v6(src_addr, dst_addr, IpProtocol::UDP.0, 26);
        let check = pseudo.add(sum(&bytes[at..])).finish();
        bytes[at + 6..at + 8].copy_from_slice(&check.to_be_bytes());
    }
    bytes
}

/// What the parse alone does: every header checked, ports found.
#[inline(never)]
fn parse(burst: &Burst) -> u64 {
    let ports = |packet: &floodwall_packet::PacketBuf| {
        validate(packet.first()).map_or(0, |found| u64::from(found.dst_port))
    };
    burst.iter().map(ports).sum()
}

/// Nanoseconds a packet.
fn nanos(from: Instant, packets: usize) -> f64 {
    from.elapsed().as_nanos() as f64 / packets as f64
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// One kind of one family: what each round showed.
struct Row {
    kind: Kind,
    v6: bool,
    parse: Vec<f64>,
    burst: Vec<f64>,
    single: Vec<f64>,
}

impl Row {
    fn round(&mut self, bench: &mut Bench) {
        let mut bursts: Vec<Burst> = (0..BURSTS).map(|_| Burst::new()).collect();
        bursts.iter_mut().for_each(|burst| bench.fill(self.kind, self.v6, burst));
        let packets = BURSTS * BURST_MAX;
        let expected = match self.kind {
            Kind::Established => Triage::Established,
            _ => Triage::Rejectable,
        };
        // The packets' own memory is warm for each: what differs is the tables.
        black_box(bursts.iter().map(parse).sum::<u64>());
        let from = Instant::now();
        black_box(bursts.iter().map(parse).sum::<u64>());
        self.parse.push(nanos(from, packets));
        let mut classes = vec![[Triage::Unknown; BURST_MAX]; BURSTS];
        let from = Instant::now();
        for (burst, classes) in bursts.iter().zip(&mut classes) {
            bench.stack.classify(burst, classes);
        }
        self.burst.push(nanos(from, packets));
        for (burst, classes) in bursts.iter().zip(&classes) {
            for (packet, class) in burst.iter().zip(classes) {
                // The result that the set-up expects, and the straightforward way.
                let slowly = bench.stack.classify_slowly(packet);
                assert_eq!([*class, slowly], [expected; 2], "{:?} {}", self.kind, self.v6);
            }
        }
        // One at a time, of other flows: the tables must be as cold.
        let mut ones: Vec<Burst> = Vec::new();
        let mut other = Burst::new();
        bench.fill(self.kind, self.v6, &mut other);
        for packet in other.drain() {
            let mut one = Burst::new();
            one.push(packet).unwrap();
            ones.push(one);
        }
        black_box(ones.iter().map(parse).sum::<u64>());
        let from = Instant::now();
        for one in &ones {
            let mut class = [Triage::Unknown];
            bench.stack.classify(one, &mut class);
            assert_eq!(class[0], expected);
        }
        self.single.push(nanos(from, ones.len()));
    }
}

fn main() {
    let quick = std::env::args().any(|arg| arg == "--test");
    let (flows, rounds) = if quick { (1024, 2) } else { (1_000_000, ROUNDS) };
    let mut bench = Bench::new(flows);
    bench.fill_sockets();
    let only = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let wanted = |kind: &Kind| only.as_ref().is_none_or(|only| *only == format!("{kind:?}"));
    let mut rows: Vec<Row> = KINDS
        .into_iter()
        .filter(wanted)
        .flat_map(|kind| [false, true].map(|v6| (kind, v6)))
        .map(|(kind, v6)| Row { kind, v6, parse: vec![], burst: vec![], single: vec![] })
        .collect();
    for _ in 0..rounds {
        rows.iter_mut().for_each(|row| row.round(&mut bench));
    }
    if quick {
        println!("triage: every answer is what it should be");
        return;
    }
    println!("ns a packet, {flows} flows        parse  triage  ratio  one at a time");
    for row in &mut rows {
        let mut ratios: Vec<f64> =
            row.burst.iter().zip(&row.parse).map(|(burst, parse)| burst / parse).collect();
        let ratio = median(&mut ratios);
        let (parse, burst) = (median(&mut row.parse), median(&mut row.burst));
        let (family, single) = (if row.v6 { "IPv6" } else { "IPv4" }, median(&mut row.single));
        let kind = format!("{:?}", row.kind);
        println!("{kind:12} {family:18} {parse:8.1} {burst:7.1} {ratio:6.2} {single:14.1}",);
    }
}
