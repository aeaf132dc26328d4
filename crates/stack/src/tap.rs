//! `PacketTap`: copies of packets for an operator, taken on a running stack.
//!
//! Installed and removed at a worker's desk ([`Stack::set_tap`](crate::Stack::set_tap)); read by
//! another thread. Without one a round pays one compare, a dropped packet another, a TCP segment a
//! third. With one, what passes the filter is copied into records allocated beforehand. Invariants:
//! nothing is allocated and nothing waits in a round; a record is a whole one, never torn. Not
//! here: packets that the worker drops before the engine sees them (triage, the device), and
//! segments of a run that is coalesced: its drop is not told apart; both are counted as
//! everywhere.
//!
//! # Under flood
//! Reachable by every packet that the filter lets pass. Bound: the records of [`TapConfig`]. Worst
//! work per packet: one header walk and one copy of `snap_len` bytes. When all records wait to be
//! read the newest packet is not recorded, and counted: the next record tells how many.

mod hooks;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use floodwall_base::{DropReason, Family, IfIndex, Instant, IpCidr};
use floodwall_packet::PacketBuf;
use floodwall_sync::spsc::{self, Consumer, Producer};

/// Records of one tap at most.
const RECORDS_MAX: usize = 4096;
/// Bytes of all records of one tap.
const BYTES_MAX: usize = 8 << 20;
/// IPv6 extension headers that the filter steps over.
const EXTENSIONS_MAX: usize = 8;

/// What became of a recorded packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TapEvent {
    /// It arrived.
    Arrived,
    /// It is about to leave.
    Sent,
    /// It had arrived, and is dropped.
    DroppedIn(DropReason),
    /// This host made it, or passed it on, and drops it.
    DroppedOut(DropReason),
}

/// One copied packet.
#[derive(Debug)]
pub struct TapRecord {
    /// The time of the round.
    pub at: Instant,
    /// Its interface.
    pub iface: IfIndex,
    /// What became of it.
    pub event: TapEvent,
    /// Its whole length in bytes.
    pub wire_len: u32,
    /// Packets before it that found no record.
    pub missed: u64,
    /// Its first bytes: from the link header on, or from the IP header where that is gone.
    pub bytes: Vec<u8>,
}

/// Which protocol a filter wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TapProtocol {
    /// ARP.
    Arp,
    /// A protocol over IP, by its number.
    Ip(u8),
}

/// Which end of a packet a condition is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TapSide {
    /// Either.
    #[default]
    Any,
    /// The source.
    Source,
    /// The destination.
    Destination,
}

/// Which packets are recorded: all conditions hold.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TapFilter {
    /// The address family.
    pub family: Option<Family>,
    /// The protocol.
    pub protocol: Option<TapProtocol>,
    /// Prefixes that an address is in.
    pub prefixes: Vec<(TapSide, IpCidr)>,
    /// Ports of TCP, UDP or SCTP.
    pub ports: Vec<(TapSide, u16)>,
}

/// How a tap is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TapConfig {
    /// Which packets.
    pub filter: TapFilter,
    /// Only dropped ones, with their reason.
    pub dropped_only: bool,
    /// Only the first ones that arrive, until every record has been used once: a look at what
    /// comes. Packets that the interface passes on without the worker go on doing so.
    pub is_sample: bool,
    /// Bytes of each packet at most.
    pub snap_len: usize,
    /// Records at most; there are never more than 4,096.
    pub records_max: usize,
}

/// What a filter looks at.
#[derive(PartialEq, Eq, Debug)]
struct PacketSummary {
    family: Option<Family>,
    protocol: TapProtocol,
    ends: Option<(IpAddr, IpAddr)>,
    ports: Option<(u16, u16)>,
}

/// The IP packet in a frame, or the bytes themselves where they begin with one; with its EtherType.
fn network_header(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let mut at = 12;
    for _ in 0..3 {
        let Some(kind) = bytes.get(at..at + 2).and_then(|two| two.first_chunk()) else { break };
        match u16::from_be_bytes(*kind) {
            kind @ (0x0800 | 0x86dd | 0x0806) => return Some((kind, bytes.get(at + 2..)?)),
            0x8100 | 0x88a8 => at += 4,
            _ => break,
        }
    }
    match bytes.first()? >> 4 {
        4 => Some((0x0800, bytes)),
        6 => Some((0x86dd, bytes)),
        _ => None,
    }
}

fn summary(bytes: &[u8]) -> Option<PacketSummary> {
    let (kind, packet) = network_header(bytes)?;
    let ports = |protocol: u8, behind: Option<&[u8]>| -> Option<(u16, u16)> {
        let four = behind.filter(|_| matches!(protocol, 6 | 17 | 132))?.first_chunk::<4>()?;
        let [a, b, c, d] = *four;
        Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
    };
    match kind {
        0x0806 => Some(PacketSummary {
            family: None,
            protocol: TapProtocol::Arp,
            ends: Some((address_v4(packet, 14)?.into(), address_v4(packet, 24)?.into())),
            ports: None,
        }),
        0x0800 => {
            let protocol = *packet.get(9)?;
            let is_first = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]) & 0x1fff == 0;
            let header = usize::from(packet.first()? & 0x0f) * 4;
            Some(PacketSummary {
                family: Some(Family::V4),
                protocol: TapProtocol::Ip(protocol),
                ends: Some((address_v4(packet, 12)?.into(), address_v4(packet, 16)?.into())),
                ports: ports(protocol, packet.get(header..).filter(|_| is_first)),
            })
        }
        _ => {
            let (protocol, at) = upper_v6(packet)?;
            Some(PacketSummary {
                family: Some(Family::V6),
                protocol: TapProtocol::Ip(protocol),
                ends: Some((address_v6(packet, 8)?.into(), address_v6(packet, 24)?.into())),
                ports: ports(protocol, at.and_then(|at| packet.get(at..))),
            })
        }
    }
}

/// The upper protocol of an IPv6 packet, and where it begins; a fragment but the first has none.
fn upper_v6(packet: &[u8]) -> Option<(u8, Option<usize>)> {
    let (mut protocol, mut at) = (*packet.get(6)?, 40);
    for _ in 0..EXTENSIONS_MAX {
        let Some(&[next, len]) = packet.get(at..at + 2).and_then(|two| two.first_chunk()) else {
            break;
        };
        at += match protocol {
            0 | 43 | 60 => usize::from(len) * 8 + 8,
            51 => usize::from(len) * 4 + 8,
            44 => {
                let offset = packet.get(at + 2..at + 4).and_then(|two| two.first_chunk());
                if offset.is_some_and(|two| u16::from_be_bytes(*two) >> 3 != 0) {
                    return Some((next, None));
                }
                8
            }
            _ => break,
        };
        protocol = next;
    }
    Some((protocol, Some(at)))
}

/// The source address of a packet with or without its link header; `None` where there is none.
#[must_use]
pub fn source_of(bytes: &[u8]) -> Option<IpAddr> {
    summary(bytes)?.ends.map(|(source, _)| source)
}

fn address_v4(bytes: &[u8], at: usize) -> Option<Ipv4Addr> {
    bytes.get(at..at + 4)?.first_chunk::<4>().map(|four| Ipv4Addr::from(*four))
}

fn address_v6(bytes: &[u8], at: usize) -> Option<Ipv6Addr> {
    bytes.get(at..at + 16)?.first_chunk::<16>().map(|all| Ipv6Addr::from(*all))
}

fn of_side<T: Copy>(side: TapSide, (source, destination): (T, T), is: impl Fn(T) -> bool) -> bool {
    match side {
        TapSide::Any => is(source) || is(destination),
        TapSide::Source => is(source),
        TapSide::Destination => is(destination),
    }
}

impl TapFilter {
    /// Whether it lets every packet pass.
    fn is_open(&self) -> bool {
        self.family.is_none()
            && self.protocol.is_none()
            && self.prefixes.is_empty()
            && self.ports.is_empty()
    }

    /// Whether a packet of these first bytes passes. What cannot be read passes an open filter
    /// only.
    #[must_use]
    pub fn passes(&self, bytes: &[u8]) -> bool {
        if self.is_open() {
            return true;
        }
        let Some(packet) = summary(bytes) else { return false };
        self.family.is_none_or(|family| packet.family == Some(family))
            && self.protocol.is_none_or(|protocol| packet.protocol == protocol)
            && self.prefixes.iter().all(|(side, prefix)| {
                packet.ends.is_some_and(|ends| of_side(*side, ends, |addr| prefix.contains(addr)))
            })
            && self.ports.iter().all(|(side, port)| {
                packet.ports.is_some_and(|ports| of_side(*side, ports, |is| is == *port))
            })
    }
}

/// The stack's end of a tap.
pub struct PacketTap {
    config: TapConfig,
    free: Consumer<Box<TapRecord>>,
    full: Producer<Box<TapRecord>>,
    missed: u64,
    now: Instant,
    /// A copy of the segment that is looked at, where it may be consumed before its drop is known.
    held: Box<TapRecord>,
    holds: bool,
    /// It is a sample, and whole.
    is_over: bool,
}

/// The reader's end of a tap.
pub struct TapReader {
    free: Producer<Box<TapRecord>>,
    full: Consumer<Box<TapRecord>>,
}

fn record(snap_len: usize) -> Box<TapRecord> {
    Box::new(TapRecord {
        at: Instant::from_nanos(0),
        iface: IfIndex(0),
        event: TapEvent::Arrived,
        wire_len: 0,
        missed: 0,
        bytes: Vec::with_capacity(snap_len),
    })
}

impl PacketTap {
    /// Both ends; allocates all records here, 8 MiB at most.
    #[must_use]
    pub fn new(config: TapConfig) -> (Self, TapReader) {
        let snap_len = config.snap_len.clamp(1, BYTES_MAX);
        let config = TapConfig { snap_len, ..config };
        let records = (BYTES_MAX / snap_len).min(config.records_max).clamp(1, RECORDS_MAX);
        let (mut give, free) = spsc::ring(records);
        let (full, take) = spsc::ring(records);
        for _ in 0..records {
            // There is room for as many.
            let _ = give.push(record(snap_len));
        }
        let held = record(snap_len);
        let now = Instant::from_nanos(0);
        let tap = Self { config, free, full, missed: 0, now, held, holds: false, is_over: false };
        (tap, TapReader { free: give, full: take })
    }

    /// Whether packets that arrive are recorded.
    pub(crate) const fn takes_arrivals(&self) -> bool {
        !self.config.dropped_only && !self.is_over
    }

    /// Whether packets that leave are.
    pub(crate) const fn takes_departures(&self) -> bool {
        !self.config.dropped_only && !self.config.is_sample
    }

    fn wants(&self, packet: &PacketBuf) -> bool {
        self.config.filter.passes(packet.first())
    }

    fn take(&mut self, packet: &PacketBuf, event: TapEvent) {
        if !self.wants(packet) {
            return;
        }
        let Some(mut record) = self.free.pop() else {
            self.missed += 1;
            self.is_over = self.config.is_sample;
            return;
        };
        fill(&mut record, packet, self.config.snap_len);
        self.give(record, event);
    }

    fn give(&mut self, mut record: Box<TapRecord>, event: TapEvent) {
        (record.at, record.event) = (self.now, event);
        record.missed = core::mem::take(&mut self.missed);
        // There are no more records than places.
        let _ = self.full.push(record);
    }

    /// Keeps a copy of a segment that is about to be consumed.
    pub(crate) fn hold(&mut self, packet: &PacketBuf) {
        self.holds = !self.config.is_sample && self.wants(packet);
        if self.holds {
            fill(&mut self.held, packet, self.config.snap_len);
        }
    }

    /// The segment that was kept is dropped.
    pub(crate) fn dropped_held(&mut self, reason: DropReason) {
        if !core::mem::take(&mut self.holds) {
            return;
        }
        let Some(mut record) = self.free.pop() else {
            self.missed += 1;
            return;
        };
        core::mem::swap(&mut record, &mut self.held);
        self.give(record, TapEvent::DroppedIn(reason));
    }

    /// A packet is dropped.
    #[cold]
    pub(crate) fn dropped(&mut self, packet: &PacketBuf, event: TapEvent) {
        if !self.config.is_sample {
            self.take(packet, event);
        }
    }
}

fn fill(record: &mut TapRecord, packet: &PacketBuf, snap_len: usize) {
    let len = packet.len().min(snap_len);
    record.bytes.clear();
    packet.chunks_in(0, len).for_each(|bytes| record.bytes.extend_from_slice(bytes));
    record.iface = packet.iface();
    record.wire_len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
}

impl core::fmt::Debug for PacketTap {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "PacketTap({:?})", self.config)
    }
}

impl core::fmt::Debug for TapReader {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("TapReader")
    }
}

impl TapReader {
    /// The next record, lent to `read`; `None` where none waits.
    pub fn read<R>(&mut self, read: impl FnOnce(&TapRecord) -> R) -> Option<R> {
        let record = self.full.pop()?;
        let result = read(&record);
        // The record came from there.
        let _ = self.free.push(record);
        Some(result)
    }
}

#[cfg(test)]
mod tests {
    use floodwall_packet::{Pool, PoolConfig};

    use super::*;

    /// An Ethernet frame with a UDP datagram from port 1000 to port 53.
    fn frame(family: Family) -> Vec<u8> {
        let mut bytes = vec![2; 12];
        match family {
            Family::V4 => {
                bytes.extend([0x08, 0x00, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
                bytes.extend([10, 0, 0, 1, 10, 0, 0, 2]);
            }
            Family::V6 => {
                // With a hop-by-hop header in front.
                bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 16, 0, 64]);
                let of = |last| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last).octets();
                bytes.extend([of(1), of(2)].concat());
                bytes.extend([17, 0, 1, 4, 0, 0, 0, 0]);
            }
        }
        bytes.extend([0x03, 0xe8, 0, 53, 0, 8, 0, 0]);
        bytes
    }

    #[test]
    fn filters_know_both_families_protocols_prefixes_and_ports() {
        let (v4, v6) = (frame(Family::V4), frame(Family::V6));
        let filter = TapFilter::default;
        let both = |filter: TapFilter| (filter.passes(&v4), filter.passes(&v6));
        assert_eq!(both(filter()), (true, true));
        assert_eq!(both(TapFilter { family: Some(Family::V6), ..filter() }), (false, true));
        let udp = Some(TapProtocol::Ip(17));
        assert_eq!(both(TapFilter { protocol: udp, ..filter() }), (true, true));
        let tcp = Some(TapProtocol::Ip(6));
        assert_eq!(both(TapFilter { protocol: tcp, ..filter() }), (false, false));
        let port = |side, port| TapFilter { ports: vec![(side, port)], ..filter() };
        assert_eq!(both(port(TapSide::Destination, 53)), (true, true));
        assert_eq!(both(port(TapSide::Source, 53)), (false, false));
        assert_eq!(both(port(TapSide::Any, 1000)), (true, true));
        let net = |side, net: &str| TapFilter {
            prefixes: vec![(side, net.parse().unwrap())],
            ..filter()
        };
        assert_eq!(both(net(TapSide::Source, "10.0.0.1/32")), (true, false));
        assert_eq!(both(net(TapSide::Destination, "fd00::/64")), (false, true));
        assert!(!net(TapSide::Any, "10.0.0.0/8").passes(&[1, 2, 3]), "what cannot be read");
        assert_eq!(source_of(&v4), Some(Ipv4Addr::new(10, 0, 0, 1).into()));
        assert_eq!(source_of(&v6).map(|a| a.to_string()), Some("fd00::1".to_owned()));
        // Without its link header.
        assert!(port(TapSide::Any, 53).passes(&v4[14..]));
        for cut in 0..v6.len() {
            let _ = (port(TapSide::Any, 53).passes(&v6[..cut]), summary(&v4[..cut.min(v4.len())]));
        }
    }

    #[test]
    fn records_are_bounded_and_what_finds_none_is_counted() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let packet = pool.packet_from(&frame(Family::V4)).unwrap();
        let config = TapConfig {
            filter: TapFilter::default(),
            dropped_only: false,
            is_sample: false,
            snap_len: 4 << 20,
            records_max: usize::MAX,
        };
        let (mut tap, mut reader) = PacketTap::new(config);
        for _ in 0..5 {
            tap.take(&packet, TapEvent::Arrived);
        }
        let lens: Vec<_> =
            std::iter::from_fn(|| reader.read(|r| (r.bytes.len(), r.missed))).collect();
        assert_eq!(lens, [(42, 0), (42, 0)], "two of 4 MiB each");
        tap.hold(&packet);
        tap.dropped_held(DropReason::TcpNoConnection);
        tap.dropped_held(DropReason::TcpNoConnection);
        let told = reader.read(|r| (r.event, r.missed, r.wire_len)).unwrap();
        assert_eq!(told, (TapEvent::DroppedIn(DropReason::TcpNoConnection), 3, 42));
        assert!(reader.read(|_| ()).is_none(), "each drop once");
    }

    #[test]
    fn a_sample_is_the_first_arrivals_and_then_costs_nothing_more() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let packet = pool.packet_from(&frame(Family::V6)).unwrap();
        let config = TapConfig {
            filter: TapFilter::default(),
            dropped_only: false,
            is_sample: true,
            snap_len: 128,
            records_max: 3,
        };
        let (mut tap, mut reader) = PacketTap::new(config);
        assert!(!tap.takes_departures());
        for _ in 0..3 {
            assert!(tap.takes_arrivals());
            tap.take(&packet, TapEvent::Arrived);
            tap.dropped(&packet, TapEvent::DroppedIn(DropReason::NoRoute));
            tap.hold(&packet);
            tap.dropped_held(DropReason::TcpNoConnection);
        }
        tap.take(&packet, TapEvent::Arrived);
        assert!(!tap.takes_arrivals(), "it is whole");
        let events: Vec<_> = std::iter::from_fn(|| reader.read(|record| record.event)).collect();
        assert_eq!(events, [TapEvent::Arrived; 3]);
        assert!(!tap.takes_arrivals(), "also once its records were read");
    }
}
