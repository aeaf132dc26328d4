//! Behaviour of the whole crate through its public API: fixtures for the test modules.

mod adversarial;
mod bind;
mod delivery;
mod every_port;
mod group;
mod output;
mod refusal;
mod triage;

use core::net::{IpAddr, SocketAddr};

use floodwall_base::{Counters, Family, IfIndex, Randomness};
use floodwall_packet::{AccessCounters, PacketBuf, Pool, PoolConfig};
use floodwall_wire::UdpFields;

use crate::*;

/// A table of sockets and all that it is called with.
pub(crate) struct Bench {
    pub(crate) udp: Udp,
    pub(crate) pool: Pool,
    pub(crate) random: Randomness,
    pub(crate) counters: Counters,
    pub(crate) access: AccessCounters,
}

/// The two families' addresses: ours, the peer's, another of ours.
pub(crate) const FAMILIES: [(Family, &str, &str, &str); 2] = [
    (Family::V4, "10.0.0.1", "10.0.0.2", "10.0.0.9"),
    (Family::V6, "fd00::1", "fd00::2", "fd00::9"),
];

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn end(addr: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip(addr), port)
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(UdpConfig { sockets_max: 256, ..UdpConfig::default() })
    }

    pub(crate) fn with(config: UdpConfig) -> Self {
        let config_pool =
            PoolConfig { small: 512, frames: 1024, supers: 4, ..PoolConfig::default() };
        let mut random = Randomness::from_number(42);
        Self {
            udp: Udp::new(&config, &mut random.secret),
            pool: Pool::new(&config_pool).unwrap(),
            random,
            counters: Counters::default(),
            access: AccessCounters::default(),
        }
    }

    pub(crate) fn open(&mut self, family: Family) -> SocketId {
        self.udp.open(&self.pool, SocketSettings::new(family)).unwrap()
    }

    pub(crate) fn open_with(
        &mut self,
        family: Family,
        change: impl FnOnce(&mut SocketSettings),
    ) -> SocketId {
        let mut settings = SocketSettings::new(family);
        change(&mut settings);
        self.udp.open(&self.pool, settings).unwrap()
    }

    pub(crate) fn bind(
        &mut self,
        id: SocketId,
        addr: &str,
        port: u16,
    ) -> Result<SocketAddr, BindError> {
        self.udp.bind(id, end(addr, port), None, &mut self.random.secret)
    }

    pub(crate) fn connect(
        &mut self,
        id: SocketId,
        remote: SocketAddr,
        src_addr: &str,
    ) -> Result<(), ConnectError> {
        self.udp.connect(id, remote, ip(src_addr), None, &mut self.random.secret)
    }

    /// A socket of the family bound to its wildcard.
    pub(crate) fn listen(&mut self, family: Family, port: u16) -> SocketId {
        let id = self.open(family);
        self.bind(id, if family == Family::V4 { "0.0.0.0" } else { "::" }, port).unwrap();
        id
    }

    pub(crate) fn input(&mut self, input: &DatagramInput, packet: PacketBuf) -> DatagramVerdict {
        self.udp.input(input, packet, &self.pool, &mut self.counters, &mut self.access)
    }

    /// A datagram arrives in one chunk.
    pub(crate) fn arrive(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
        payload: &[u8],
    ) -> DatagramVerdict {
        let bytes = ip_packet(from, to, payload);
        let packet = self.pool.packet_from(&bytes).unwrap();
        self.input(&input_of(from, to, bytes.len()), packet)
    }

    pub(crate) fn recv(&mut self, id: SocketId) -> Result<(Vec<u8>, Received), RecvError> {
        let mut out = vec![0; 70_000];
        let received = self.udp.recv(id, &mut out, &mut self.counters)?;
        out.truncate(received.len);
        Ok((out, received))
    }
}

/// Bytes of the IP header.
pub(crate) fn l4_of(addr: IpAddr) -> usize {
    if addr.is_ipv4() { 20 } else { 40 }
}

/// The network layer's description of a packet of `len` bytes.
pub(crate) fn input_of(from: SocketAddr, to: SocketAddr, len: usize) -> DatagramInput {
    let l4 = l4_of(to.ip());
    DatagramInput {
        src_addr: from.ip(),
        dst_addr: to.ip(),
        iface: IfIndex(1),
        l3: 0,
        l4,
        len: len - l4,
        group: to.ip().is_multicast(),
    }
}

/// As much of an IP header as this crate reads, and a datagram with its checksum.
pub(crate) fn ip_packet(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let mut bytes = match (from.ip(), to.ip()) {
        (IpAddr::V4(src_addr), IpAddr::V4(dst_addr)) => {
            let mut bytes = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
            bytes.extend(src_addr.octets());
            bytes.extend(dst_addr.octets());
            bytes
        }
        (IpAddr::V6(src_addr), IpAddr::V6(dst_addr)) => {
            let mut bytes = vec![0x60, 0, 0, 0, 0, 0, 17, 64];
            bytes.extend(src_addr.octets());
            bytes.extend(dst_addr.octets());
            bytes
        }
        _ => panic!("two families"),
    };
    bytes.extend(udp_header(from, to, payload));
    bytes.extend(payload);
    bytes
}

fn udp_header(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> [u8; 8] {
    let len = payload.len() as u16 + 8;
    let pseudo = match (from.ip(), to.ip()) {
        (IpAddr::V4(s), IpAddr::V4(d)) => floodwall_checksum::pseudo_header_v4(s, d, 17, len),
        (IpAddr::V6(s), IpAddr::V6(d)) => {
            floodwall_checksum::pseudo_header_v6(s, d, 17, u32::from(len))
        }
        _ => panic!("two families"),
    };
    let mut header = [0; 8];
    let fields = UdpFields { src_port: from.port(), dst_port: to.port(), len };
    fields.emit(pseudo, floodwall_checksum::sum(payload), &mut header);
    header
}

#[test]
fn the_intake_of_one_worker_keeps_the_contract() {
    let bench = Bench::new();
    crate::contract::check::<LocalIntake>(&bench.pool);
}

#[test]
fn a_stale_id_never_names_anothers_socket() {
    let mut bench = Bench::new();
    for (family, ours, peer, _) in FAMILIES {
        let old = bench.listen(family, 7);
        assert_eq!(bench.udp.close(old), Ok(0));
        let new = bench.listen(family, 7);
        assert_eq!((old.index(), old == new), (new.index(), false));
        assert!(matches!(
            bench.arrive(end(peer, 1), end(ours, 7), b"x"),
            DatagramVerdict::Delivered { socket, was_empty: true } if socket == new
        ));
        assert_eq!(bench.recv(old).unwrap_err(), RecvError::Closed(SocketClosed));
        assert_eq!(bench.udp.close(old), Err(SocketClosed));
        assert_eq!(bench.udp.local_addr(old), Err(SocketClosed));
        assert_eq!(bench.bind(old, ours, 9), Err(BindError::Closed(SocketClosed)));
        assert!(bench.connect(old, end(peer, 1), ours).is_err());
        let (pool, counters) = (&bench.pool, &mut bench.counters);
        let sent = bench.udp.output(pool, old, end(peer, 1), end(ours, 0), b"x", counters);
        assert_eq!(sent.unwrap_err(), SendError::Closed(SocketClosed));
        assert_eq!(bench.recv(new).unwrap().0, b"x");
        assert_eq!(SocketId::from_u64(new.to_u64()), new);
        bench.udp.close(new).unwrap();
    }
    assert_eq!(
        bench.recv(SocketId::from_u64(u64::MAX)).unwrap_err(),
        RecvError::Closed(SocketClosed)
    );
}

#[test]
fn no_more_sockets_open_than_configured() {
    let mut bench = Bench::with(UdpConfig { sockets_max: 2, ..UdpConfig::default() });
    let (a, _) = (bench.open(Family::V4), bench.open(Family::V6));
    let refused = bench.udp.open(&bench.pool, SocketSettings::new(Family::V4));
    assert_eq!(refused, Err(OpenError::TooMany(2)));
    bench.udp.close(a).unwrap();
    bench.open(Family::V6);
    assert_eq!(bench.udp.open_sockets(), 2);
}
