//! Datagrams of 64 KiB in the fragments of an MTU of 1,500, put together and read, beside smoltcp
//! in the same run.
//!
//! `cargo bench -p floodwall-stack --bench reassembly`. The fragments are copied into the memory of
//! each contestant as a device would, go through its whole way in (headers, reassembly, UDP with
//! its checksum, socket) and are read by the application into its one buffer. The first and the
//! last datagram of each round are compared byte by byte, outside the time that is measured. Rounds
//! are interleaved; the table shows medians and ratios; a word picks rows (`-- IPv6`). smoltcp 0.14
//! puts IPv4 datagrams together, not IPv6 ones.
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot set itself up has no result")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Instant;

use floodwall_base::{Family, IfIndex, Randomness, Units};
use floodwall_packet::{Burst, Engine, PacketBuf, PacketList, Pool, PoolConfig, Round};
use floodwall_stack::{InterfaceConfig, LinkMedium, Stack, StackConfig, accounts_needed};
use floodwall_udp::{SocketId, SocketSettings};
use smoltcp::iface::{Config, Interface, PollResult, SocketHandle, SocketSet};
use smoltcp::phy::{DeviceCapabilities, Medium};
use smoltcp::socket::udp;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

const ROUNDS: usize = 300;
/// Datagrams of one contestant in one round.
const DATAGRAMS: usize = 20;
const MTU: usize = 1500;
const PORT: u16 = 7000;

/// One contestant.
trait Receiver {
    /// Takes one datagram's fragments and reads it; whether one of its length came.
    fn exchange(&mut self) -> bool;
    /// Whether what was read last is what was sent.
    fn is_intact(&self) -> bool;
}

/// A datagram and its fragments as bytes.
struct Sent {
    payload: Vec<u8>,
    fragments: Vec<Vec<u8>>,
}

fn own_addr(v6: bool, host: u8) -> IpAddr {
    match v6 {
        true => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, u16::from(host)).into(),
        false => Ipv4Addr::new(10, 0, 0, host).into(),
    }
}

/// A stack of its own, on a link without other stations.
fn stack(host: u8) -> (Stack, Pool, Randomness) {
    let interface = InterfaceConfig {
        name: "tun0".to_owned(),
        medium: LinkMedium::Ip,
        mtu: MTU as u32,
        addresses: vec![
            format!("10.0.0.{host}/24").parse().unwrap(),
            format!("fd00::{host}/64").parse().unwrap(),
        ],
        gateways: Vec::new(),
        ..InterfaceConfig::default()
    };
    let config = StackConfig { interfaces: vec![interface], ..StackConfig::default() };
    let accounts = accounts_needed(&config);
    let pool = Pool::new(&PoolConfig { accounts, ..PoolConfig::default() }).unwrap();
    let mut random = Randomness::from_number(u64::from(host));
    let stack = Stack::new(&config, &mut random, floodwall_base::Instant::ORIGIN).unwrap();
    (stack, pool, random)
}

fn open(stack: &mut Stack, round: &mut Round<'_>, port: u16) -> SocketId {
    let any = SocketAddr::new("::".parse().unwrap(), port);
    let settings = SocketSettings { receive_bytes: 1 << 20, ..SocketSettings::new(Family::V6) };
    stack.sockets(round).udp_bind(any, settings).unwrap()
}

impl Sent {
    fn new(v6: bool) -> Self {
        let len = if v6 { 65_527 } else { 65_507 };
        let payload: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
        let (mut stack, pool, mut random) = stack(1);
        let (mut arrived, mut departing) = (Burst::new(), PacketList::new());
        let mut round = Round {
            now: floodwall_base::Instant::ORIGIN,
            pool: &pool,
            random: &mut random,
            arrived: &mut arrived,
            departing: &mut departing,
            budget: Units(256),
            peers: None,
        };
        let id = open(&mut stack, &mut round, 4000);
        let to = SocketAddr::new(own_addr(v6, 2), PORT);
        stack.sockets(&mut round).udp_send(id, Some(to), &payload).unwrap();
        let bytes = |p: &PacketBuf| p.chunks().flatten().copied().collect();
        let fragments: Vec<Vec<u8>> = departing.iter().map(bytes).collect();
        assert!(fragments.len() >= 45);
        Self { payload, fragments }
    }
}

struct Floodwall {
    stack: Stack,
    pool: Pool,
    random: Randomness,
    arrived: Burst,
    departing: PacketList,
    at: SocketId,
    sent: Sent,
    buffer: Vec<u8>,
    now: u64,
}

impl Floodwall {
    fn new(v6: bool) -> Self {
        let (mut stack, pool, mut random) = stack(2);
        let (mut arrived, mut departing) = (Burst::new(), PacketList::new());
        let mut round = Round {
            now: floodwall_base::Instant::ORIGIN,
            pool: &pool,
            random: &mut random,
            arrived: &mut arrived,
            departing: &mut departing,
            budget: Units(256),
            peers: None,
        };
        let at = open(&mut stack, &mut round, PORT);
        let (sent, buffer) = (Sent::new(v6), vec![0; 65_536]);
        Self { stack, pool, random, arrived, departing, at, sent, buffer, now: 1 }
    }
}

impl Receiver for Floodwall {
    fn exchange(&mut self) -> bool {
        self.now += 10_000;
        for bytes in &self.sent.fragments {
            let mut packet = self.pool.packet_from(bytes).unwrap();
            packet.set_iface(IfIndex(1));
            self.arrived.push(packet).unwrap();
        }
        let mut round = Round {
            now: floodwall_base::Instant::from_nanos(self.now),
            pool: &self.pool,
            random: &mut self.random,
            arrived: &mut self.arrived,
            departing: &mut self.departing,
            budget: Units(256),
            peers: None,
        };
        self.stack.round(&mut round);
        let received = self.stack.sockets(&mut round).udp_recv(self.at, &mut self.buffer);
        received.is_ok_and(|received| received.len == self.sent.payload.len())
    }

    fn is_intact(&self) -> bool {
        self.buffer[..self.sent.payload.len()] == self.sent.payload
    }
}

/// A device that receives what is queued, copied into its one buffer, and sends nothing.
struct Queue {
    fragments: Vec<Vec<u8>>,
    next: usize,
    buffer: Vec<u8>,
}

struct Rx<'a>(&'a [u8]);
struct Tx;

impl smoltcp::phy::RxToken for Rx<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

impl smoltcp::phy::TxToken for Tx {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        f(&mut vec![0; len])
    }
}

impl smoltcp::phy::Device for Queue {
    type RxToken<'a> = Rx<'a>;
    type TxToken<'a> = Tx;

    fn receive(&mut self, _: smoltcp::time::Instant) -> Option<(Rx<'_>, Tx)> {
        let bytes = self.fragments.get(self.next)?;
        self.next += 1;
        let room = &mut self.buffer[..bytes.len()];
        room.copy_from_slice(bytes);
        Some((Rx(room), Tx))
    }

    fn transmit(&mut self, _: smoltcp::time::Instant) -> Option<Tx> {
        Some(Tx)
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = MTU;
        capabilities
    }
}

struct Smoltcp {
    device: Queue,
    interface: Interface,
    sockets: SocketSet<'static>,
    at: SocketHandle,
    payload: Vec<u8>,
    buffer: Vec<u8>,
    now: i64,
}

impl Smoltcp {
    fn new() -> Self {
        let Sent { payload, fragments } = Sent::new(false);
        let mut device = Queue { fragments, next: 0, buffer: vec![0; MTU] };
        let hardware = Config::new(HardwareAddress::Ip);
        let mut interface = Interface::new(hardware, &mut device, smoltcp::time::Instant::ZERO);
        device.next = device.fragments.len();
        let addr: IpAddress = "10.0.0.2".parse().unwrap();
        interface.update_ip_addrs(|all| all.push(IpCidr::new(addr, 24)).unwrap());
        let mut sockets = SocketSet::new(Vec::new());
        let buffer =
            || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; 2], vec![0; 2 << 16]);
        let mut socket = udp::Socket::new(buffer(), buffer());
        socket.bind(PORT).unwrap();
        let at = sockets.add(socket);
        Self { device, interface, sockets, at, payload, buffer: vec![0; 65_536], now: 0 }
    }
}

impl Receiver for Smoltcp {
    fn exchange(&mut self) -> bool {
        self.now += 10;
        self.device.next = 0;
        let now = smoltcp::time::Instant::from_micros(self.now);
        let Self { device, interface, sockets, .. } = self;
        while interface.poll(now, device, sockets) != PollResult::None {}
        let socket = self.sockets.get_mut::<udp::Socket<'_>>(self.at);
        socket.recv_slice(&mut self.buffer).is_ok_and(|(len, _)| len == self.payload.len())
    }

    fn is_intact(&self) -> bool {
        self.buffer[..self.payload.len()] == self.payload
    }
}

struct Row {
    name: &'static str,
    receiver: Box<dyn Receiver>,
    nanos: Vec<f64>,
}

fn main() {
    let quick = std::env::args().any(|arg| arg == "--test");
    let row = |name, receiver: Box<dyn Receiver>| Row { name, receiver, nanos: Vec::new() };
    let asked: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let mut rows = vec![
        row("smoltcp IPv4", Box::new(Smoltcp::new())),
        row("Floodwall IPv4", Box::new(Floodwall::new(false))),
        row("Floodwall IPv6", Box::new(Floodwall::new(true))),
    ];
    rows.retain(|row| asked.iter().all(|word| row.name.contains(word)));
    for _ in 0..if quick { 3 } else { ROUNDS } {
        for row in &mut rows {
            assert!(row.receiver.exchange() && row.receiver.is_intact(), "{}: changed", row.name);
            let start = Instant::now();
            for _ in 0..DATAGRAMS {
                assert!(row.receiver.exchange(), "{}: lost", row.name);
            }
            row.nanos.push(start.elapsed().as_nanos() as f64 / DATAGRAMS as f64);
            assert!(row.receiver.is_intact(), "{}: changed", row.name);
        }
    }
    println!("64 KiB datagrams in fragments of 1,500 bytes; medians of interleaved rounds");
    println!("{:20} {:>10} {:>10} {:>12}", "", "us", "Gbit/s", "to the first");
    let rival = rows.first().map_or(f64::NAN, |row| median(&row.nanos));
    for row in &rows {
        let nanos = median(&row.nanos);
        let rate = 65_535.0 * 8.0 / nanos;
        let (micros, ratio) = (nanos / 1e3, rival / nanos);
        println!("{:20} {micros:10.2} {rate:10.2} {ratio:11.2}x", row.name);
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
