//! Captured packets against a whole stack, one at a time, and everything that came of each.
//!
//! Called by `tests/captures.rs`. Invariant: what a packet does depends on its bytes alone. Before
//! each one time has passed, so that every limit is full again, no neighbour is known, and no
//! socket holds anything; so the same bytes, however they are cut, must give the same [`Verdict`].

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use floodwall_base::{Counter, Family, IfIndex, IpCidr, MacAddr};
use floodwall_packet::{Available, Engine as _, PacketBuf, PoolConfig, RxFilter, Triage};
use floodwall_stack::{InterfaceConfig, LinkMedium, StackConfig, StaticRoute, Stats};
use floodwall_testkit::captures::Captured;
use floodwall_testkit::cuts::Cut;
use floodwall_udp::{SocketId, SocketSettings};

use crate::answer::bytes_of;
use crate::rig::{Drops, Rig, drops_between};

/// Longer than any interval after which the stack does something again.
const PAUSE: Duration = Duration::from_secs(11);
/// Longer than fragments wait for one another.
const FRAGMENTS_OVER: Duration = Duration::from_secs(61);
/// What the largest chunk holds.
const CHUNK: usize = 1792;
/// Ports of a capture that get sockets.
const PORTS_MAX: usize = 8;

/// All that came of one packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// The drops, by reason.
    pub dropped: Drops,
    /// Delivered, answered, originated, transmitted, waiting.
    pub outcomes: [u64; 5],
    /// What was counted beside them, how headers were read apart.
    pub counted: Vec<(&'static str, u64)>,
    /// The frames that left.
    pub departed: Vec<Vec<u8>>,
    /// What sockets read.
    pub received: Vec<(SocketAddr, IpAddr, Vec<u8>)>,
}

/// Where a packet is meant to go, so that it can be made ours.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Aim {
    /// The station; `None` where the packet has no link header that we know.
    pub station: Option<MacAddr>,
    /// The solicited address, or the destination.
    pub addr: Option<IpAddr>,
}

/// One packet of a capture, as it will arrive.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Whether they begin with an Ethernet header.
    pub framed: bool,
}

/// The packets of a capture in a form that a stack can take: frames as they are, and IP packets
/// without their link headers. Others are left out.
#[must_use]
pub fn arrivals(packets: &[Captured], framed: bool) -> Vec<Arrival> {
    let of = |packet: &Captured| {
        let bytes = if framed { packet.frame() } else { packet.ip_packet() }?;
        Some(Arrival { bytes: bytes.to_vec(), framed })
    };
    packets.iter().filter_map(of).collect()
}

impl Arrival {
    fn ip(&self) -> &[u8] {
        self.bytes.get(if self.framed { 14 } else { 0 }..).unwrap_or_default()
    }

    /// Where it is meant to go, as far as its first bytes show it.
    #[must_use]
    pub fn aim(&self) -> Aim {
        let station = self.framed.then(|| self.bytes.first_chunk().copied().map(MacAddr));
        Aim { station: station.flatten().filter(|mac| mac.is_unicast()), addr: self.aimed_addr() }
    }

    fn aimed_addr(&self) -> Option<IpAddr> {
        let v4 = |at: usize| self.ip().get(at..)?.first_chunk::<4>().map(|a| IpAddr::from(*a));
        let v6 = |at: usize| self.ip().get(at..)?.first_chunk::<16>().map(|a| IpAddr::from(*a));
        if self.framed && self.bytes.get(12..14) == Some(&[8, 6]) {
            return v4(24);
        }
        match self.ip().first()? >> 4 {
            4 => v4(16),
            // The target of a neighbour solicitation.
            6 if self.ip().get(6) == Some(&58) && self.ip().get(40) == Some(&135) => v6(48),
            6 => v6(24),
            _ => None,
        }
    }

    /// The UDP port that it is for, where nothing stands between the headers.
    fn port(&self) -> Option<u16> {
        let (protocol, at) = match self.ip().first()? >> 4 {
            4 => (self.ip().get(9)?, usize::from(self.ip().first()? & 15) * 4),
            6 => (self.ip().get(6)?, 40),
            _ => return None,
        };
        let port = self.ip().get(at + 2..at + 4)?.first_chunk()?;
        (*protocol == 17).then_some(u16::from_be_bytes(*port))
    }

    /// The group that it is for.
    fn group(&self) -> Option<IpAddr> {
        self.aimed_addr().filter(IpAddr::is_multicast)
    }
}

/// The most frequent of some things, at most `max`.
fn frequent<T: Ord>(things: impl Iterator<Item = T>, max: usize) -> Vec<T> {
    let mut counts = BTreeMap::new();
    things.for_each(|thing| *counts.entry(thing).or_insert(0_usize) += 1);
    let mut all: Vec<_> = counts.into_iter().collect();
    all.sort_by_key(|entry| std::cmp::Reverse(entry.1));
    all.into_iter().take(max).map(|(thing, _)| thing).collect()
}

/// A stack for some packets of one aim.
pub struct Replay {
    rig: Rig,
    sockets: Vec<SocketId>,
    free: Available,
    buffer: Vec<u8>,
}

impl Replay {
    /// A stack that has the aim's addresses where it can, with sockets on the ports and in the
    /// groups that the packets are for.
    ///
    /// # Panics
    /// The stack cannot be made.
    #[must_use]
    pub fn new(aim: Aim, packets: &[Arrival]) -> Self {
        let framed = packets.first().is_some_and(|p| p.framed);
        let mut rig = Rig::with_pool(&config(aim, framed), &small_pool());
        rig.run_for(Duration::from_secs(60));
        let ports = frequent(packets.iter().filter_map(Arrival::port), PORTS_MAX);
        let settings = SocketSettings { receive_bytes: 1 << 20, ..SocketSettings::new(Family::V6) };
        let any = |port| SocketAddr::new(std::net::Ipv6Addr::UNSPECIFIED.into(), port);
        let sockets: Vec<_> = ports
            .into_iter()
            .filter(|port| *port != 0)
            .filter_map(|port| rig.sockets(|s| s.udp_bind(any(port), settings.clone())).0.ok())
            .collect();
        if let Some(&id) = sockets.first() {
            for group in frequent(packets.iter().filter_map(Arrival::group), 16) {
                // Some are of a scope that no interface has.
                let _ = rig.sockets(|s| s.udp_join(id, group, IfIndex(1))).0;
            }
        }
        let free = rig.pool.available();
        Self { rig, sockets, free, buffer: vec![0; 65_536] }
    }

    /// The triage class of these bytes, which are not processed; `None` where they are more than a
    /// packet can have.
    #[must_use]
    pub fn class(&self, bytes: &[u8]) -> Option<Triage> {
        let packet = self.rig.pool.packet_from(bytes)?;
        Some(self.rig.classify_one(&packet))
    }

    /// What the stack wants at its interface.
    #[must_use]
    pub fn wants(&self) -> RxFilter {
        let mut wanted = RxFilter::default();
        self.rig.stack.rx_filter(IfIndex(1), &mut wanted);
        wanted
    }

    /// Lets one packet arrive, whole; `None` where it has more bytes than a packet can have.
    pub fn whole(&mut self, packet: &Arrival) -> Option<Verdict> {
        let packet = self.rig.pool.packet_from(&packet.bytes)?;
        Some(self.arrive(packet))
    }

    /// Lets one packet arrive, cut; `None` where it has more bytes than a packet can have.
    pub fn cut(&mut self, packet: &Arrival, cut: &Cut) -> Option<Verdict> {
        let pieces = cut.of(&packet.bytes).into_iter().flat_map(|piece| {
            let empty = piece.is_empty().then_some(piece);
            piece.chunks(CHUNK).chain(empty)
        });
        let packet = self.rig.pool.packet_from_chunks(pieces)?;
        Some(self.arrive(packet))
    }

    fn arrive(&mut self, packet: PacketBuf) -> Verdict {
        self.rig.now += PAUSE;
        let before = self.rig.stats();
        let class = self.rig.classify_one(&packet);
        let departed = self.rig.arrive(vec![packet]);
        let departed = departed.iter().map(bytes_of).collect();
        let received = self.receive();
        let after = self.rig.stats();
        assert!(after.conservation().holds(), "{:?}", after.conservation());
        let verdict = verdict(&before, &after, departed, received);
        // What triage calls refusable must not be missed by anybody.
        assert!(class != Triage::Rejectable || !verdict.dropped.0.is_empty(), "{verdict:?}");
        if after.held > 0 {
            // A fragment waits for others: the next packet must not meet it.
            self.rig.run_for(FRAGMENTS_OVER);
        }
        self.rig.stack.flush_neighbors(IfIndex(1));
        verdict
    }

    fn receive(&mut self) -> Vec<(SocketAddr, IpAddr, Vec<u8>)> {
        let Self { rig, sockets, buffer, .. } = self;
        let mut all = Vec::new();
        for &id in sockets.iter() {
            rig.sockets(|s| {
                while let Ok(received) = s.udp_recv(id, buffer) {
                    all.push((received.from, received.to.ip(), buffer[..received.len].to_vec()));
                }
            });
        }
        all
    }

    /// Does what is due, and checks that nothing is kept.
    ///
    /// # Panics
    /// Memory is gone.
    pub fn settle(&mut self) {
        self.rig.run_for(FRAGMENTS_OVER);
        self.rig.stack.flush_neighbors(IfIndex(1));
        assert_eq!(self.rig.pool.available(), self.free, "memory is gone");
        assert!(self.rig.conservation().holds());
    }
}

fn verdict(
    before: &Stats,
    after: &Stats,
    departed: Vec<Vec<u8>>,
    received: Vec<(SocketAddr, IpAddr, Vec<u8>)>,
) -> Verdict {
    let outcomes = |s: &Stats| {
        let f = s.outcomes;
        [f.delivered, f.answered, f.originated, f.transmitted, s.pending]
    };
    let (was, is) = (outcomes(before), outcomes(after));
    let counted = Counter::ALL
        .iter()
        .filter(|counter| !counter.name().starts_with("FloodwallHeader"))
        .map(|&counter| (counter.name(), after.counters.of(counter) - before.counters.of(counter)))
        .filter(|(_, n)| *n > 0)
        .collect();
    let outcomes = std::array::from_fn(|n| is[n] - was[n]);
    Verdict { dropped: drops_between(before, after), outcomes, counted, departed, received }
}

fn small_pool() -> PoolConfig {
    PoolConfig { small: 512, frames: 256, references: 64, ..PoolConfig::default() }
}

/// One interface with the aim's address beside two of its own, and routes to everywhere.
fn config(aim: Aim, framed: bool) -> StackConfig {
    let station = aim.station.unwrap_or(MacAddr([2, 0, 0, 0, 0, 1]));
    let everywhere = |prefix: &str| {
        let prefix = prefix.parse().expect("a prefix");
        StaticRoute { prefix, via: None, iface: 0 }
    };
    let mut addresses: Vec<IpCidr> = ["10.254.253.1/24", "fdfe:fdfc::1/64"]
        .iter()
        .map(|a| a.parse().expect("an address"))
        .collect();
    let whole = |addr: IpAddr| if addr.is_ipv4() { 32 } else { 128 };
    addresses.extend(aim.addr.and_then(|addr| IpCidr::new(addr, whole(addr))));
    let with = |addresses: Vec<IpCidr>| StackConfig {
        interfaces: vec![InterfaceConfig {
            name: "replay0".to_owned(),
            medium: if framed { LinkMedium::Ethernet(station) } else { LinkMedium::Ip },
            mtu: 65_535,
            addresses,
            gateways: Vec::new(),
            ..InterfaceConfig::default()
        }],
        routes: vec![everywhere("0.0.0.0/0"), everywhere("::/0")],
        udp_sockets_max: PORTS_MAX,
        neighbors_max: 32,
        duplicate_address_detection: false,
        echo_rate: 0,
        ..StackConfig::default()
    };
    let all = with(addresses.clone());
    if floodwall_stack::check(&all).is_ok() {
        return all;
    }
    // No host can have that address.
    addresses.truncate(2);
    with(addresses)
}
