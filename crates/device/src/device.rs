//! `Device`: what every source and sink of packets looks like to a worker.
//!
//! Called by `dispatch` once a round, and by programs that need no stack (the reflector, the
//! packet generator). The contract is the same for a memory wire, a TUN, a packet socket and the
//! wrappers that record or disturb them: never block, never lose without counting.

use std::os::fd::BorrowedFd;

use floodwall_base::{Instant, MacAddr};
use floodwall_packet::{Burst, PacketBuf, PacketList, Pool, SynOffers, Wanted};

use crate::error::DeviceError;
use crate::stats::DeviceStats;

/// What one unit of a device is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Medium {
    /// Ethernet frames, without frame check sequence.
    Ethernet,
    /// IP packets without any link header, as a TUN carries them.
    Ip,
}

impl Medium {
    /// Bytes of the link header, tags apart.
    #[must_use]
    pub const fn header_bytes(self) -> usize {
        match self {
            Self::Ethernet => 14,
            Self::Ip => 0,
        }
    }
}

/// What a device is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceInfo {
    /// The name by which messages and counters call it.
    pub name: String,
    /// Frames or packets.
    pub medium: Medium,
    /// Bytes of the largest IP packet that the link carries.
    pub mtu: u32,
    /// The link address of the host's own interface, where there is one. A stack behind the
    /// device chooses its own.
    pub mac: Option<MacAddr>,
    /// Whether super-frames and partial checksums may be transmitted, and arrive: packets with
    /// [`offload`](floodwall_packet::PacketBuf::offload) up to 64 KiB. Where false, transmitting
    /// a super-frame drops it (counted); partial checksums are completed by the device.
    pub offload: bool,
}

/// See the file's head.
///
/// A packet in the state `Partial` is transmitted by its `offload()`, which says where the sum
/// starts and where it is stored; one without is refused and counted. Transmitting releases what
/// the packet was charged to an account.
pub trait Device: Send {
    /// What the device is.
    fn info(&self) -> &DeviceInfo;

    /// Appends up to `burst.room()` packets that have arrived, and says how many; 0 where nothing
    /// waits. Never blocks. Their memory comes from `pool`, except on memory devices.
    ///
    /// # Errors
    /// The device is gone or broken. An empty pool is not an error: packets are dropped and
    /// counted.
    fn receive(&mut self, pool: &Pool, burst: &mut Burst) -> Result<usize, DeviceError>;

    /// Sends from the front of `packets`, and says how many left the list; what the device has no
    /// room for stays in it. Never blocks. What the device refuses for good leaves the list, is
    /// dropped and counted.
    ///
    /// # Errors
    /// The device is gone or broken; what was not sent stays in the list.
    fn transmit(&mut self, packets: &mut PacketList) -> Result<usize, DeviceError>;

    /// What poll(2) finds readable when [`Device::receive`] would find something; `None` for
    /// devices without a descriptor.
    fn readiness(&self) -> Option<BorrowedFd<'_>>;

    /// Whether something waits, for devices without a descriptor. Where there is one: whether
    /// something has been taken from the system and waits here, so that poll(2) must not be asked.
    fn pending(&self) -> bool;

    /// The worker is about to sleep on [`Device::readiness`]. A device whose kernel half runs
    /// within our calls only gives that half back to its card, which calls when something comes.
    fn rest(&mut self) {}

    /// The worker's turn begins. Where more comes than it handles, `credit` says how many packets
    /// of strangers it is ready for until the next one: a device that can tell friends before a
    /// packet costs anything loses what is beyond, and what anybody would refuse, and counts it.
    /// With `None` it takes whatever comes.
    fn admit(&mut self, now: Instant, credit: Option<usize>) {
        let _ = (now, credit);
    }

    /// Whether it can lose packets before they cost anything, by what [`Device::befriend`] and
    /// [`Device::want`] have told it.
    fn knows_friends(&self) -> bool {
        false
    }

    /// What the stack wants of what arrives here, from now on; told before anything is sent that
    /// could be answered. Until it is told for the first time, that is everything.
    fn want(&mut self, wanted: &Wanted) {
        let _ = wanted;
    }

    /// What the program at the interface may answer SYNs with, from now on; told again when the keys
    /// turn. Whether SYNs are answered there, when many come, as far as the device knows.
    fn answer_syns(&mut self, offers: &SynOffers) -> bool {
        let _ = offers;
        false
    }

    /// Whether there was no room for all that came since the last call, where a device that knows
    /// friends can tell at a glance.
    fn has_overflowed(&mut self) -> bool {
        false
    }

    /// A packet that arrived here was a friend's: later ones of its flow are more than strangers'.
    fn befriend(&mut self, now: Instant, friend: &PacketBuf) {
        let _ = (now, friend);
    }

    /// Whether what arrives is brought by a thread of the system that waits for the worker's core:
    /// who looks again at once keeps it from its work, and finds nothing.
    fn waits_for_core(&self) -> bool {
        false
    }

    /// How many packets wait to be received, about, before some are lost for want of room; 0 where
    /// that is not known.
    fn ring(&self) -> usize {
        0
    }

    /// What was carried and what was lost since the start. May cost a system call.
    fn stats(&self) -> DeviceStats;
}

impl<D: Device + ?Sized> Device for Box<D> {
    fn info(&self) -> &DeviceInfo {
        (**self).info()
    }

    fn receive(&mut self, pool: &Pool, burst: &mut Burst) -> Result<usize, DeviceError> {
        (**self).receive(pool, burst)
    }

    fn transmit(&mut self, packets: &mut PacketList) -> Result<usize, DeviceError> {
        (**self).transmit(packets)
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        (**self).readiness()
    }

    fn pending(&self) -> bool {
        (**self).pending()
    }

    fn rest(&mut self) {
        (**self).rest();
    }

    fn admit(&mut self, now: Instant, credit: Option<usize>) {
        (**self).admit(now, credit);
    }

    fn knows_friends(&self) -> bool {
        (**self).knows_friends()
    }

    fn want(&mut self, wanted: &Wanted) {
        (**self).want(wanted);
    }

    fn answer_syns(&mut self, offers: &SynOffers) -> bool {
        (**self).answer_syns(offers)
    }

    fn has_overflowed(&mut self) -> bool {
        (**self).has_overflowed()
    }

    fn befriend(&mut self, now: Instant, friend: &PacketBuf) {
        (**self).befriend(now, friend);
    }

    fn waits_for_core(&self) -> bool {
        (**self).waits_for_core()
    }

    fn ring(&self) -> usize {
        (**self).ring()
    }

    fn stats(&self) -> DeviceStats {
        (**self).stats()
    }
}
