//! `MemoryWire`: a cable between two ends in one process.
//!
//! Each end is a [`Device`]; the ends may be used on two threads. Packets are passed without a
//! copy: the receiver gets the sender's frames, which return to the sender's pool when it drops
//! them. Called by tests, by `world` and by programs that join two stacks. Invariant: packets
//! arrive in the order in which they were sent, each once; when the wire is full they stay with the
//! sender.
//!
//! # Under flood
//! The sender at the other end fills it. Bound: the capacity given at the start, in packets, per
//! direction. Work per packet: one move through a ring. When it is full the sender keeps its
//! packets (backpressure); nothing is dropped here.

use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use floodwall_base::MacAddr;
use floodwall_packet::{Burst, PacketBuf, PacketList, Pool};
use floodwall_sync::spsc::{self, Consumer, Producer};

use crate::device::{Device, DeviceInfo, Medium};
use crate::error::DeviceError;
use crate::stats::DeviceStats;

/// Properties that both ends of a wire share.
#[derive(Clone, Debug)]
pub struct WireConfig {
    /// Packets in flight per direction, rounded up to a power of two.
    pub capacity: usize,
    /// Frames or packets.
    pub medium: Medium,
    /// Bytes of the largest IP packet. Reported to the stacks, not enforced.
    pub mtu: u32,
    /// Whether GSO frames and partial checksums may cross, as between two ends of a veth pair.
    pub offload: bool,
    /// The names of the two ends.
    pub names: [String; 2],
    /// The addresses that the two ends report.
    pub macs: [Option<MacAddr>; 2],
}

impl Default for WireConfig {
    fn default() -> Self {
        Self {
            capacity: 1024,
            medium: Medium::Ethernet,
            mtu: 1500,
            offload: false,
            names: ["wire-a".to_owned(), "wire-b".to_owned()],
            macs: [None; 2],
        }
    }
}

/// One end of a memory wire.
pub struct MemoryWire {
    info: DeviceInfo,
    outgoing: Producer<PacketBuf>,
    /// In a cell because [`Device::pending`] looks at the producer's index through `&self`.
    incoming: RefCell<Consumer<PacketBuf>>,
    /// Held by both ends: the other end is gone when this is the only reference.
    cable: Arc<()>,
    /// Packets that wait for one end.
    capacity: usize,
    stats: DeviceStats,
}

/// An Ethernet wire for `capacity` packets per direction, MTU 1500.
#[must_use]
pub fn pair(capacity: usize) -> (MemoryWire, MemoryWire) {
    pair_of(WireConfig { capacity, ..WireConfig::default() })
}

/// A wire as configured. Allocates here and never again.
#[must_use]
pub fn pair_of(config: WireConfig) -> (MemoryWire, MemoryWire) {
    let (to_b, at_b) = spsc::ring(config.capacity);
    let (to_a, at_a) = spsc::ring(config.capacity);
    let cable = Arc::new(());
    let [name_a, name_b] = config.names;
    let [mac_a, mac_b] = config.macs;
    let (medium, mtu, offload) = (config.medium, config.mtu, config.offload);
    let end = |name, mac, outgoing, incoming| MemoryWire {
        info: DeviceInfo { name, medium, mtu, mac, offload },
        outgoing,
        incoming: RefCell::new(incoming),
        cable: Arc::clone(&cable),
        capacity: config.capacity,
        stats: DeviceStats::default(),
    };
    (end(name_a, mac_a, to_b, at_a), end(name_b, mac_b, to_a, at_b))
}

impl MemoryWire {
    fn is_cut(&self) -> bool {
        Arc::strong_count(&self.cable) == 1
    }

    fn gone(&self) -> DeviceError {
        DeviceError::Gone { device: self.info.name.clone() }
    }

    /// Sends one packet, or returns it where the wire is full.
    ///
    /// # Errors
    /// The packet itself.
    pub(crate) fn send(&mut self, mut packet: PacketBuf) -> Result<(), PacketBuf> {
        let bytes = packet.len();
        forget_sender(&mut packet);
        self.outgoing.push(packet)?;
        self.stats.count_tx(bytes);
        Ok(())
    }

    /// Takes one packet that has arrived.
    pub(crate) fn take(&mut self) -> Option<PacketBuf> {
        let packet = self.incoming.get_mut().pop()?;
        self.stats.count_rx(packet.len());
        Some(packet)
    }
}

/// What the sender knew of the packet is not the receiver's: account, hash, layers, group.
/// Checksum state and virtio header cross the wire, as they do between the ends of a veth pair.
fn forget_sender(packet: &mut PacketBuf) {
    packet.uncharge();
    packet.set_flow_hash(0);
    packet.set_layers(0, 0, 0);
    packet.set_link_group(false);
}

impl Device for MemoryWire {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn receive(&mut self, _pool: &Pool, burst: &mut Burst) -> Result<usize, DeviceError> {
        // Read before the ring: what was sent before the cut has then been seen.
        let cut = self.is_cut();
        let mut taken = 0;
        for packet in self.incoming.get_mut().pop_batch(burst.room()) {
            self.stats.count_rx(packet.len());
            // The batch is no larger than the room.
            let _ = burst.push(packet);
            taken += 1;
        }
        if taken == 0 && cut { Err(self.gone()) } else { Ok(taken) }
    }

    fn transmit(&mut self, packets: &mut PacketList) -> Result<usize, DeviceError> {
        if self.is_cut() {
            return Err(self.gone());
        }
        let mut sent = 0;
        let mut bytes = 0;
        let waiting = core::iter::from_fn(|| {
            let mut packet = packets.pop_front()?;
            bytes += packet.len();
            forget_sender(&mut packet);
            Some(packet)
        });
        sent += self.outgoing.push_batch(waiting);
        self.stats.tx_packets += sent as u64;
        self.stats.tx_bytes += bytes as u64;
        Ok(sent)
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn pending(&self) -> bool {
        self.incoming.try_borrow_mut().is_ok_and(|mut incoming| incoming.ready() > 0)
    }

    fn ring(&self) -> usize {
        self.capacity
    }

    fn stats(&self) -> DeviceStats {
        self.stats
    }
}

impl core::fmt::Debug for MemoryWire {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "MemoryWire({})", self.info.name)
    }
}

#[cfg(test)]
#[path = "memory_wire/tests.rs"]
mod tests;
