//! `UnknownPeer`: floods a bench's cable, from the kernel's end, as fast as one thread can.
//!
//! Called by `capacity.rs`. Its packets are the smallest datagrams of both families for a port
//! without a listener, from addresses to which no answer finds a way; where nothing but the
//! kernel's own sockets sends (into a TUN), from the kernel's address.

use core::time::Duration;
use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use floodwall_base::{Family, MacAddr, Prefix, Randomness, Units};
use floodwall_device::{
    Device, DeviceError, DeviceKind, DeviceSpec, NapiPolicy, OpenConfig, XdpMode,
};
use floodwall_dispatch::Clock;
use floodwall_packet::{Burst, Engine, PacketList, Pool, PoolConfig, Round};
use floodwall_pktgen::{
    AddrRange, Blast, Content, Pace, Peer, Plan, PortRange, StationConfig, Stream,
};

use super::bench::{self, OUR_STATION};
use crate::error::DrillError;
use crate::topology::FAMILIES;

/// Its link address.
const UNKNOWN_STATION: MacAddr = MacAddr([2, 0, 0, 0, 0x5e, 3]);
/// A port without a listener.
const CLOSED_PORT: u16 = 9;
/// Packets of one turn.
const TURN_PACKETS: u32 = 64;
/// Bytes of a socket's datagram: those that fill the smallest frame.
const SMALLEST_PAYLOAD: [u8; 18] = [0; 18];

/// The sender of a capacity measurement, by kind of device.
pub(super) enum UnknownPeer {
    /// By a device of our own at the kernel's end.
    Device(Box<dyn Device>),
    /// By the kernel's sockets.
    Sockets,
}

impl UnknownPeer {
    /// By AF_XDP at the end of a veth, which is the fastest, else by a packet socket; a TUN has
    /// room for neither.
    pub(super) fn open(word: &DeviceSpec, kernels: &str) -> Result<Self, DrillError> {
        let open = |kind, mode| {
            let queues = (kind == DeviceKind::Xdp).then_some(1);
            let word = DeviceSpec { kind, name: kernels.to_owned(), queues, mode };
            let kernel_half = NapiPolicy::Leave;
            word.open(&OpenConfig {
                station: Some(UNKNOWN_STATION),
                kernel_half,
                ..OpenConfig::default()
            })
        };
        let opened = match word.kind {
            DeviceKind::Tun => return Ok(Self::Sockets),
            DeviceKind::Tap => open(DeviceKind::Packet, XdpMode::Auto)?,
            _ => match open(DeviceKind::Xdp, XdpMode::Generic) {
                Ok(opened) => opened,
                Err(_) => open(DeviceKind::Packet, XdpMode::Auto)?,
            },
        };
        let device = opened.queues.into_iter().next();
        let device = device.ok_or(DrillError::Device(DeviceError::Unsupported {
            device: kernels.to_owned(),
            missing: "a queue to send by",
            remedy: "report it",
        }))?;
        Ok(Self::Device(device))
    }

    /// Sends until it is `over`, and counts what it has `sent`.
    pub(super) fn run(self, sent: &AtomicU64, over: &AtomicBool) -> Result<(), DrillError> {
        match self {
            Self::Device(device) => by_device(device, sent, over),
            Self::Sockets => by_sockets(sent, over),
        }
    }
}

fn by_device(
    mut device: Box<dyn Device>,
    sent: &AtomicU64,
    over: &AtomicBool,
) -> Result<(), DrillError> {
    let mut blast = Blast::new(flood())?;
    // Memory is its thread's.
    let (pool, mut random) = (Pool::new(&PoolConfig::default())?, Randomness::from_number(1));
    let (clock, mut departing) = (Clock::new(), PacketList::new());
    while !over.load(Ordering::Relaxed) {
        // What comes back is discarded; to poll for it also brings back the memory of what has
        // left.
        let mut arrived = Burst::new();
        device.receive(&pool, &mut arrived)?;
        drop(arrived);
        // What the device had no room for goes first.
        if departing.is_empty() {
            blast.work(&mut Round {
                now: clock.now(),
                pool: &pool,
                random: &mut random,
                arrived: &mut Burst::new(),
                departing: &mut departing,
                budget: Units(TURN_PACKETS),
                peers: None,
            });
        }
        device.transmit(&mut departing)?;
        sent.store(device.stats().tx_packets, Ordering::Relaxed);
    }
    drop(departing.take());
    Ok(())
}

fn by_sockets(sent: &AtomicU64, over: &AtomicBool) -> Result<(), DrillError> {
    let system = |source| DrillError::System { action: "open a socket to send by", source };
    let mut sockets = Vec::new();
    for family in FAMILIES {
        let [kernel, ours] = bench::ends(family);
        sockets.push((UdpSocket::bind((kernel, 0)).map_err(system)?, (ours, CLOSED_PORT)));
    }
    while !over.load(Ordering::Relaxed) {
        for _ in 0..TURN_PACKETS {
            for (socket, to) in &sockets {
                // What the link has no room for is lost, as it should be.
                if socket.send_to(&SMALLEST_PAYLOAD, to).is_ok() {
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
    Ok(())
}

fn flood() -> Plan {
    let peer = Peer::Link(OUR_STATION);
    let station = StationConfig { mac: UNKNOWN_STATION, peer, ..StationConfig::default() };
    let stream = |family| {
        let [_, ours] = bench::ends(family);
        let from = match family {
            Family::V4 => Prefix::new([203, 0, 113, 0].into(), 24).map(AddrRange::V4),
            Family::V6 => {
                Prefix::new([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0].into(), 48).map(AddrRange::V6)
            }
        };
        let from = from.unwrap_or(AddrRange::from(IpAddr::from([203, 0, 113, 1])));
        // A packet a nanosecond: as fast as it goes.
        let pace = Pace::every(Duration::from_nanos(1));
        let stream = Stream::new(Content::Udp, from, AddrRange::from(ours), pace);
        Stream { dst_ports: PortRange::one(CLOSED_PORT), ..stream }
    };
    Plan { station, streams: FAMILIES.into_iter().map(stream).collect() }
}
