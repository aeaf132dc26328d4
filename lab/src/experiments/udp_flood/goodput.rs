//! Which senders are served at a flooded socket: the product's own sockets in virtual time, fair
//! drop on and off, a light sender's datagrams beside ten times what the reader takes.
//!
//! The whole of `floodwall-udp` runs: look-up, share, room, checksum, queue. The same seed gives
//! the same numbers. An innocent second socket gets a datagram for each honest one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use floodwall_base::{Counters, Family, IfIndex, Instant, PublicRandom, Randomness};
use floodwall_checksum::{InternetSum, pseudo_header_v4, pseudo_header_v6};
use floodwall_packet::{AccessCounters, Pool, PoolConfig};
use floodwall_udp::{DatagramInput, SocketId, SocketSettings, Udp, UdpConfig};
use floodwall_wire::UdpFields;

use crate::error::LabError;

/// The sources of the flood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flood {
    /// Ten addresses.
    Ten,
    /// Forged ones out of a million prefixes.
    Million,
}

impl Flood {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ten => "ten-heavy",
            Self::Million => "million-forged",
        }
    }
}

/// What was seen, in hundredths of what honest senders sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Goodput {
    pub(super) honest: f64,
    /// Of senders that were answered before.
    pub(super) answered: f64,
    pub(super) innocent: f64,
    /// Datagrams read, of what the reader could.
    pub(super) read: f64,
}

/// What the reader takes in a millisecond.
const READ: u32 = 10;
const PAYLOAD: usize = 32;

struct Scene {
    udp: Udp,
    pool: Pool,
    counters: Counters,
    access: AccessCounters,
    family: Family,
}

/// Honest datagrams: sent and read, of unverified and of answered senders.
#[derive(Default)]
struct Count {
    sent: [u64; 2],
    read: [u64; 2],
}

fn addr(family: Family, n: u32) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::from_bits(0x2d00_0001 + n * 256).into(),
        Family::V6 => Ipv6Addr::from_bits(0x2a00_u128 << 112 | u128::from(n) << 80 | 1).into(),
    }
}

fn ours(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(10, 0, 0, 1).into(),
        Family::V6 => Ipv6Addr::from_bits(0xfd00 << 112 | 1).into(),
    }
}

/// Honest senders' numbers begin here; answered ones are the second half.
const HONEST: u32 = 4_000_000;

impl Scene {
    fn new(family: Family, fair_drop: bool) -> Result<(Self, SocketId, SocketId), LabError> {
        let wrong = |what: &dyn core::fmt::Display| LabError::Scene(what.to_string());
        let config = PoolConfig { small: 2048, ..PoolConfig::default() };
        let pool = Pool::new(&config).map_err(|error| wrong(&error))?;
        let mut random = Randomness::from_number(1);
        let mut udp = Udp::new(&UdpConfig::default(), &mut random.secret);
        let mut open = |port| {
            let settings = SocketSettings { fair_drop, ..SocketSettings::new(Family::V6) };
            let id = udp.open(&pool, settings).map_err(|error| wrong(&error))?;
            let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
            udp.bind(id, any, None, &mut random.secret).map_err(|error| wrong(&error))?;
            Ok::<_, LabError>(id)
        };
        let (victim, innocent) = (open(53)?, open(54)?);
        let (counters, access) = (Counters::default(), AccessCounters::default());
        Ok((Self { udp, pool, counters, access, family }, victim, innocent))
    }

    fn arrive(&mut self, from: u32, port: u16, tag: u8) {
        let (src_addr, dst_addr) = (addr(self.family, from), ours(self.family));
        let len = (8 + PAYLOAD) as u16;
        let mut bytes = Vec::with_capacity(80);
        let pseudo = match (src_addr, dst_addr) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                bytes.extend([0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0]);
                bytes.extend(from.octets().into_iter().chain(to.octets()));
                pseudo_header_v4(from, to, 17, len)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                bytes.extend([0x60, 0, 0, 0, 0, 0, 17, 64]);
                bytes.extend(from.octets().into_iter().chain(to.octets()));
                pseudo_header_v6(from, to, 17, len.into())
            }
            _ => InternetSum::default(),
        };
        let l4 = bytes.len();
        let payload = [tag; PAYLOAD];
        let mut header = [0; 8];
        let fields = UdpFields { src_port: 4000, dst_port: port, len };
        fields.emit(pseudo, floodwall_checksum::sum(&payload), &mut header);
        bytes.extend(header);
        bytes.extend(payload);
        let Some(packet) = self.pool.packet_from(&bytes) else { return };
        let len = bytes.len() - l4;
        let input =
            DatagramInput { src_addr, dst_addr, iface: IfIndex(1), l3: 0, l4, len, group: false };
        let is_answered = from >= HONEST && !from.is_multiple_of(2);
        let (counters, access) = (&mut self.counters, &mut self.access);
        drop(self.udp.input_from(&input, packet, &self.pool, counters, access, |_| is_answered));
    }

    fn read(&mut self, id: SocketId, most: u32, count: &mut Count) -> u32 {
        let (mut read, mut out) = (0, [0; PAYLOAD]);
        while read < most && self.udp.recv(id, &mut out, &mut self.counters).is_ok() {
            read += 1;
            if let [tag @ 1..=2, ..] = out {
                count.read[usize::from(tag - 1)] += 1;
            }
        }
        read
    }
}

/// Runs one flood for so many milliseconds.
pub(super) fn run(
    flood: Flood,
    family: Family,
    fair_drop: bool,
    milliseconds: u64,
    seed: u64,
) -> Result<Goodput, LabError> {
    let (mut scene, victim, innocent) = Scene::new(family, fair_drop)?;
    let mut random = PublicRandom::new(seed);
    let (mut count, mut other, mut ignored) =
        (Count::default(), Count::default(), Count::default());
    let mut read = 0;
    for millisecond in 0..milliseconds + 100 {
        scene.udp.begin(Instant::from_nanos(1_000_000_000 + millisecond * 1_000_000));
        let counted = millisecond >= 100;
        let places = u64::from(10 * READ);
        let at = [random.below(places), random.below(places)];
        for n in 0..places {
            let word = random.next_u64() as u32;
            let from = match flood {
                Flood::Ten => 1000 * (1 + word % 10),
                Flood::Million => word % 1_000_000,
            };
            scene.arrive(from, 53, 0);
            for kind in (0..2_u32).filter(|kind| at[*kind as usize] == n) {
                let honest = HONEST + (millisecond as u32 % 20) * 2 + kind;
                scene.arrive(honest, 53, 1 + kind as u8);
                scene.arrive(honest, 54, 1);
                count.sent[kind as usize] += u64::from(counted);
                other.sent[0] += u64::from(counted);
            }
        }
        let (mine, beside) = match counted {
            true => (&mut count, &mut other),
            false => (&mut ignored, &mut Count::default()),
        };
        read += u64::from(counted) * u64::from(scene.read(victim, READ, mine));
        scene.read(innocent, u32::MAX, beside);
    }
    let hundredths = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
    Ok(Goodput {
        honest: hundredths(count.read[0], count.sent[0]),
        answered: hundredths(count.read[1], count.sent[1]),
        innocent: hundredths(other.read[0], other.sent[0]),
        read: hundredths(read, milliseconds * u64::from(READ)),
    })
}
