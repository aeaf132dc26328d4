//! `Witness`: a device that counts what came through it: unfinished checksums, GSO frames.
//!
//! Put around each queue by `bench.rs`. It changes nothing.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use floodwall_base::Instant;
use floodwall_device::{Device, DeviceError, DeviceInfo, DeviceStats};
use floodwall_packet::{Burst, ChecksumState, PacketBuf, PacketList, Pool};

/// What came so far, through all queues.
#[derive(Debug, Default)]
pub(super) struct WitnessSeen {
    /// Packets with a checksum that the sender had left to the receiver's side.
    pub(super) unfinished: AtomicU64,
    /// Packets that a link would have carried as several.
    pub(super) supers: AtomicU64,
}

/// A device that forwards to another and counts.
pub(super) struct Witness {
    device: Box<dyn Device>,
    seen: Arc<WitnessSeen>,
}

impl Witness {
    pub(super) fn of(device: Box<dyn Device>, seen: &Arc<WitnessSeen>) -> Box<dyn Device> {
        Box::new(Self { device, seen: Arc::clone(seen) })
    }
}

impl Device for Witness {
    fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    fn receive(&mut self, pool: &Pool, burst: &mut Burst) -> Result<usize, DeviceError> {
        let before = burst.len();
        let result = self.device.receive(pool, burst);
        for packet in burst.iter().skip(before) {
            let unfinished = packet.checksum_state() == ChecksumState::Partial;
            let is_super = packet.offload().is_some_and(|offload| offload.gso_type != 0);
            self.seen.unfinished.fetch_add(u64::from(unfinished), Ordering::Relaxed);
            self.seen.supers.fetch_add(u64::from(is_super), Ordering::Relaxed);
        }
        result
    }

    fn transmit(&mut self, packets: &mut PacketList) -> Result<usize, DeviceError> {
        self.device.transmit(packets)
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.device.readiness()
    }

    fn pending(&self) -> bool {
        self.device.pending()
    }

    fn rest(&mut self) {
        self.device.rest();
    }

    fn admit(&mut self, now: Instant, credit: Option<usize>) {
        self.device.admit(now, credit);
    }

    fn has_overflowed(&mut self) -> bool {
        self.device.has_overflowed()
    }

    fn mark_established(&mut self, now: Instant, established: &PacketBuf) {
        self.device.mark_established(now, established);
    }

    fn ring(&self) -> usize {
        self.device.ring()
    }

    fn stats(&self) -> DeviceStats {
        self.device.stats()
    }
}
