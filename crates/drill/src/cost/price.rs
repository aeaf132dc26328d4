//! What each unit of work costs on this machine, by the code that does it in the product.
//!
//! Called by `cost.rs`. One [`PriceItem`] a price: it does the work so often and returns how long
//! that took. What must be done around it (a hash beside a probe, a packet beside a copy) is
//! measured the same way and taken off. Invariant: no result is unused, no input is known at
//! compile time, so that no compiler leaves work out.

use core::hint::black_box;
use core::net::{IpAddr, SocketAddr};

use floodwall_base::limits::{BURST_MAX, UDP_SOCKETS_MAX};
use floodwall_base::{Family, HashKey, IfIndex, PublicRandom, Randomness};
use floodwall_device::{Device, MemoryWire, pair};
use floodwall_dispatch::Clock;
use floodwall_packet::{Burst, Class, PacketBuf, PacketList, Pool, PoolConfig};
use floodwall_udp::{SocketSettings, Udp, UdpConfig};
use floodwall_wire::{
    EtherType, EthernetFields, EthernetHeader, IpProtocol, Ipv4Fields, Ipv4Header, UdpFields,
    UdpHeader, ethernet, ipv4, udp,
};

use crate::error::DrillError;
use crate::topology;

/// Times that a piece does its work in one measurement: some 10 to 100 us.
const MEASURED_TIMES: usize = 2048;
/// Bytes of the packets that are copied for comparison.
const COPY_SIZES: [usize; 2] = [64, 1514];
/// Headers of a datagram: link, network, transport.
const DATAGRAM_HEADERS: usize = 3;

/// One measurement's worth of work of each kind.
pub(crate) struct PriceItems {
    clock: Clock,
    random: PublicRandom,
    pool: Pool,
    key: HashKey,
    flows: Vec<(u32, u32)>,
    frames: Vec<Vec<u8>>,
    wire: (MemoryWire, MemoryWire),
    udp: Udp,
    /// Ports of the table's sockets, in no order.
    ports: Vec<u16>,
    copied: Vec<u8>,
}

/// A kind of work that is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PriceItem {
    /// A packet given to a device ring and taken out of it.
    Cross,
    /// A header checked: link, network and transport by turns.
    Header,
    /// A keyed hash of an address and a port.
    Hash,
    /// A socket looked up that was just used, its hashes included.
    Hit,
    /// A socket looked up in a full table, in no order, its hashes included.
    Miss,
    /// A short packet copied into memory of the pool, and given back.
    CopyShort,
    /// A long one.
    CopyLong,
    /// An entry of the pool taken, and given back.
    Entry,
}

impl PriceItem {
    /// All, in the order in which they are measured by turns.
    pub(crate) const ALL: [Self; 8] = [
        Self::Cross,
        Self::Header,
        Self::Hash,
        Self::Hit,
        Self::Miss,
        Self::CopyShort,
        Self::CopyLong,
        Self::Entry,
    ];
}

impl PriceItems {
    /// Everything that is measured, the full table of sockets included.
    pub(crate) fn new(seed: u64, clock: Clock) -> Result<Self, DrillError> {
        let mut random = PublicRandom::new(seed);
        let sockets = UDP_SOCKETS_MAX - 4096;
        let accounts = 2 * sockets + 8;
        let pool = Pool::new(&PoolConfig { accounts, ..PoolConfig::default() })?;
        let (udp, ports) = table(&pool, sockets, seed, &mut random);
        let flows = (0..MEASURED_TIMES)
            .map(|_| random.next_u64())
            .map(|n| (n as u32, (n >> 32) as u32))
            .collect();
        let frames = (0..BURST_MAX as u16).map(datagram).collect();
        let key = HashKey::new(random.next_u64(), random.next_u64());
        let copied = (0..COPY_SIZES[1]).map(|n| n as u8).collect();
        let wire = pair(4 * BURST_MAX);
        Ok(Self { clock, random, pool, key, flows, frames, wire, udp, ports, copied })
    }

    /// Nanoseconds of one piece of work.
    pub(crate) fn measure(&mut self, piece: PriceItem) -> Result<f64, DrillError> {
        match piece {
            PriceItem::Cross => self.cross(),
            PriceItem::Header => Ok(self.headers()),
            PriceItem::Hash => {
                let (key, flows) = (self.key, &self.flows);
                let hash = |n: usize| {
                    let (addr, word) = flows.get(n).copied().unwrap_or_default();
                    key.addr(black_box(IpAddr::from(addr.to_be_bytes())), word)
                };
                Ok(timed(self.clock, hash))
            }
            PriceItem::Hit => Ok(self.probe(1)),
            PriceItem::Miss => Ok(self.probe(self.ports.len())),
            PriceItem::CopyShort => Ok(self.copy(COPY_SIZES[0])),
            PriceItem::CopyLong => Ok(self.copy(COPY_SIZES[1])),
            PriceItem::Entry => Ok(timed(self.clock, |_| self.pool.alloc(Class::Small).is_some())),
        }
    }

    /// Bursts across a wire: each packet is given once and taken once.
    fn cross(&mut self) -> Result<f64, DrillError> {
        let (ours, theirs) = &mut self.wire;
        let (mut burst, mut list, mut packets) = (Burst::new(), PacketList::new(), 0);
        (0..BURST_MAX).filter_map(|_| self.pool.packet_from(&[0; 60])).for_each(|packet| {
            list.push_back(packet);
        });
        let started = self.clock.now();
        for _ in 0..MEASURED_TIMES / BURST_MAX {
            ours.transmit(&mut list)?;
            packets += 2 * theirs.receive(&self.pool, &mut burst)?;
            burst.drain().for_each(|packet| list.push_back(packet));
        }
        let took = self.clock.now() - started;
        Ok(took.as_nanos() as f64 / packets.max(1) as f64)
    }

    fn headers(&self) -> f64 {
        let frames = &self.frames;
        let each = |n: usize| {
            let frame = frames.get(n % BURST_MAX).map_or(&[][..], Vec::as_slice);
            check(black_box(frame))
        };
        timed(self.clock, each) / DATAGRAM_HEADERS as f64
    }

    /// Looks sockets up: some that are used by turns, of all that are open.
    fn probe(&mut self, used: usize) -> f64 {
        let (udp, ports) = (&self.udp, &self.ports);
        let first = self.random.below(ports.len() as u64) as usize;
        let (from, to) = (client(), topology::server_addr(Family::V4));
        timed(self.clock, |n| {
            let port = ports.get((first + n % used) % ports.len()).copied().unwrap_or(0);
            udp.classify(black_box(from), SocketAddr::new(to, port), IfIndex(1))
        })
    }

    fn copy(&self, len: usize) -> f64 {
        let bytes = self.copied.get(..len).unwrap_or_default();
        timed(self.clock, |_| {
            let packet = self.pool.packet_from(black_box(bytes));
            packet.as_ref().map_or(0, PacketBuf::len)
        })
    }
}

/// What separates the two copies, in bytes.
pub(crate) const fn copied_more() -> usize {
    COPY_SIZES[1] - COPY_SIZES[0]
}

/// Nanoseconds of one call, of [`MEASURED_TIMES`].
fn timed<R>(clock: Clock, mut work: impl FnMut(usize) -> R) -> f64 {
    let started = clock.now();
    for n in 0..MEASURED_TIMES {
        black_box(work(n));
    }
    (clock.now() - started).as_nanos() as f64 / MEASURED_TIMES as f64
}

/// All headers of a datagram, as the stack's own parsers check them.
fn check(frame: &[u8]) -> Option<u16> {
    let link = EthernetHeader::parse(frame).ok()?;
    let packet = frame.get(link.header_len()..)?;
    let network = Ipv4Header::parse(packet, packet.len()).ok()?;
    let datagram = packet.get(network.header_len()..)?;
    let transport = UdpHeader::parse(datagram, datagram.len()).ok()?;
    Some(transport.dst_port())
}

const fn client() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(topology::ROUTER_V4), 1000)
}

/// A datagram to the host, as a frame.
fn datagram(port: u16) -> Vec<u8> {
    let mut link = [0; ethernet::HEADER_LEN];
    let (dst_addr, src_addr) = (topology::SERVER_MAC, topology::FLOOD_MAC);
    EthernetFields { dst_addr, src_addr, ether_type: EtherType::IPV4 }.emit(&mut link);
    let (mut transport, payload) = ([0; udp::HEADER_LEN], [0; 18]);
    let len = (transport.len() + payload.len()) as u16;
    UdpFields { src_port: client().port(), dst_port: port, len }
        .emit_without_checksum(&mut transport);
    let (from, to) = (topology::ROUTER_V4, topology::SERVER_V4);
    let mut network = [0; ipv4::HEADER_LEN];
    Ipv4Fields::new(from, to, IpProtocol::UDP, 64, len).emit(&mut network);
    [&link[..], &network, &transport, &payload].concat()
}

/// A full table of bound sockets, and their ports in no order.
fn table(pool: &Pool, sockets: usize, seed: u64, random: &mut PublicRandom) -> (Udp, Vec<u16>) {
    let mut secret = Randomness::from_number(seed);
    let config = UdpConfig { sockets_max: sockets, ..UdpConfig::default() };
    let mut udp = Udp::new(&config, &mut secret.secret);
    let mut ports = Vec::with_capacity(sockets);
    for n in 0..sockets {
        let Ok(port) = u16::try_from(n + 1024) else { break };
        let local = SocketAddr::new(topology::server_addr(Family::V4), port);
        let opened = udp.open(pool, SocketSettings::new(Family::V4));
        let Ok(id) = opened else { break };
        if udp.bind(id, local, None, &mut secret.secret).is_ok() {
            ports.push(port);
        }
    }
    for n in (1..ports.len()).rev() {
        ports.swap(n, random.below(n as u64 + 1) as usize);
    }
    (udp, ports)
}
