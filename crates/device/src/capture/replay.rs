//! `Replay`: a capture as a device: its packets arrive, what is sent to it disappears.
//!
//! Called by tests, fuzzers and programs that feed a stack with recorded traffic, as fast as it
//! receives; [`Replay::next_time`] gives the capture's own pace. Invariant: every packet of the
//! capture is handed over once or counted as skipped; an empty pool delays it.

use core::time::Duration;
use std::os::fd::BorrowedFd;

use floodwall_base::limits::CHUNKS_MAX;
use floodwall_packet::{Burst, PacketList, Pool};

use super::{Capture, CapturedPacket, LinkType};
use crate::copy;
use crate::device::{Device, DeviceInfo, Medium};
use crate::error::DeviceError;
use crate::stats::DeviceStats;

/// Link addresses for packets that were captured without any: receiver, sender.
const REPLAY_ADDRESSES: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
/// Bytes of the largest IP packet without a jumbo option.
const MTU: u32 = 65_535;

/// A device that delivers the packets of a capture, and drops what is transmitted.
#[derive(Debug)]
pub struct Replay {
    info: DeviceInfo,
    packets: Vec<CapturedPacket>,
    next: usize,
    skipped: u64,
    stats: DeviceStats,
}

impl Replay {
    /// A device that delivers the packets of a capture in the format of `medium`: IP packets are
    /// taken out of their link headers, or get an Ethernet header where they had another one.
    /// Ethernet frames stay unchanged on an Ethernet medium.
    #[must_use]
    pub fn new(name: &str, capture: Capture, medium: Medium) -> Self {
        let info =
            DeviceInfo { name: name.to_owned(), medium, mtu: MTU, mac: None, offload: false };
        let (packets, stats) = (capture.packets, DeviceStats::default());
        Self { info, packets, next: 0, skipped: 0, stats }
    }

    /// Packets that are still to come.
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.packets.len() - self.next
    }

    /// Packets that were not handed over, since they carry no IP packet where one was wanted, or
    /// more bytes than a packet may have.
    #[must_use]
    pub const fn skipped(&self) -> u64 {
        self.skipped
    }

    /// When the next packet was captured.
    #[must_use]
    pub fn next_time(&self) -> Option<Duration> {
        self.packets.get(self.next).map(|packet| packet.time)
    }
}

/// The header and the bytes of a packet in the format of `medium`.
fn pieces(packet: &CapturedPacket, medium: Medium) -> Option<([u8; 14], usize, &[u8])> {
    let none = [0; 14];
    if medium == Medium::Ethernet && packet.link == LinkType::Ethernet {
        return Some((none, 0, &packet.bytes));
    }
    let ip = packet.ip()?;
    if medium == Medium::Ip {
        return Some((none, 0, ip));
    }
    let protocol = if ip.first()? >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] };
    let mut header = none;
    let bytes = REPLAY_ADDRESSES.iter().chain(&protocol);
    header.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    Some((header, header.len(), ip))
}

impl Device for Replay {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn receive(&mut self, pool: &Pool, burst: &mut Burst) -> Result<usize, DeviceError> {
        let mut taken = 0;
        while burst.room() > 0
            && let Some(packet) = self.packets.get(self.next)
        {
            let found = pieces(packet, self.info.medium);
            let fits = |len: usize| len <= (CHUNKS_MAX - 1) * pool.frame_capacity();
            let Some((header, used, bytes)) = found.filter(|f| fits(f.1 + f.2.len())) else {
                self.skipped += 1;
                self.next += 1;
                continue;
            };
            let header = header.get(..used).unwrap_or_default();
            let Some(copy) = copy::assemble(pool, used + bytes.len(), [header, bytes]) else {
                break;
            };
            self.stats.count_rx(copy.len());
            let _ = burst.push(copy);
            self.next += 1;
            taken += 1;
        }
        Ok(taken)
    }

    fn transmit(&mut self, packets: &mut PacketList) -> Result<usize, DeviceError> {
        let mut left = 0;
        while let Some(packet) = packets.pop_front() {
            self.stats.count_tx(packet.len());
            left += 1;
        }
        Ok(left)
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn pending(&self) -> bool {
        self.remaining() > 0
    }

    fn stats(&self) -> DeviceStats {
        self.stats
    }
}
