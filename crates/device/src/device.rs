//! `Device`: what every source and sink of packets looks like to a worker.
//!
//! Called by `dispatch` once a round, and by programs that need no stack (the reflector, the
//! packet generator). The contract is the same for a memory wire, a TUN, a packet socket and the
//! wrappers that record or disturb them: never block, never lose without counting.

use std::os::fd::BorrowedFd;

use floodwall_base::{Instant, MacAddr};
use floodwall_packet::{Burst, PacketBuf, PacketList, Pool, RedirectOffer, RxFilter, SynOffers};

use crate::error::DeviceError;
use crate::first_line_place::FirstLinePlace;
use crate::first_line_report::FirstLineReport;
use crate::napi_rank::NapiRank;
use crate::service_sample::ServiceSample;
use crate::stats::DeviceStats;
use crate::thread_time::ThreadTime;

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
    /// Whether GSO frames and partial checksums may be transmitted, and arrive: packets with
    /// [`offload`](floodwall_packet::PacketBuf::offload) up to 64 KiB. Where false, transmitting
    /// a GSO frame drops it (counted); partial checksums are completed by the device.
    pub offload: bool,
}

/// A network device: receives packets into a pool and transmits packets, in bursts.
///
/// A packet in the state `Partial` is transmitted by its `offload()`, with the offsets of the sum;
/// one without is refused and counted. Transmitting releases what the packet was charged to an
/// account.
pub trait Device: Send {
    /// What the device is.
    fn info(&self) -> &DeviceInfo;

    /// Appends up to `burst.room()` packets that have arrived, and returns how many; 0 where
    /// nothing waits. Never blocks. Their memory comes from `pool`, except on memory devices.
    ///
    /// # Errors
    /// The device is gone or broken. An empty pool is not an error: packets are dropped and
    /// counted.
    fn receive(&mut self, pool: &Pool, burst: &mut Burst) -> Result<usize, DeviceError>;

    /// As [`Device::receive`], and stops where `goes_on` says no, which is asked after each packet:
    /// for devices that read each packet by a system call, in which the kernel may run its sender.
    /// What is not taken waits in the device. Others take all that waits.
    ///
    /// # Errors
    /// As [`Device::receive`].
    fn receive_while(
        &mut self,
        pool: &Pool,
        burst: &mut Burst,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<usize, DeviceError> {
        let _ = goes_on;
        self.receive(pool, burst)
    }

    /// Sends from the front of `packets`, and returns how many left the list. Packets that the
    /// device has no room for stay in it (backpressure). Never blocks. Packets that can never be
    /// sent leave the list, are dropped and counted.
    ///
    /// # Errors
    /// The device is gone or broken; what was not sent stays in the list.
    fn transmit(&mut self, packets: &mut PacketList) -> Result<usize, DeviceError>;

    /// As [`Device::transmit`], and stops where `goes_on` says no, after one send at least: for
    /// devices that run the receivers of a packet within the send, which takes as long as these
    /// need. Others send all they have room for.
    ///
    /// # Errors
    /// As [`Device::transmit`].
    fn transmit_while(
        &mut self,
        packets: &mut PacketList,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<usize, DeviceError> {
        let _ = goes_on;
        self.transmit(packets)
    }

    /// What poll(2) finds readable when [`Device::receive`] would find something; `None` for
    /// devices without a descriptor.
    fn readiness(&self) -> Option<BorrowedFd<'_>>;

    /// Whether something waits, for devices without a descriptor. With one: whether packets were
    /// taken from the system and wait here, so that poll(2) must not be called.
    fn pending(&self) -> bool;

    /// The worker is about to sleep on [`Device::readiness`]. A device that polls the kernel's half
    /// (NAPI) within our calls re-enables the card's interrupts here.
    fn rest(&mut self) {}

    /// How the thread of the kernel's half stands beside the worker from now on, where that shares
    /// its core with other programs. Costs a system call where it changes.
    fn rank_half(&mut self, rank: NapiRank) {
        let _ = rank;
    }

    /// The time of the thread that runs the kernel's half on the worker's core, since its start.
    /// Costs a system call; nothing where there is no such thread.
    fn half_time(&self) -> ThreadTime {
        ThreadTime::default()
    }

    /// Starts a turn of the worker. Under overload `credit` is how many packets of unverified flows
    /// it can handle until the next turn. A device that can distinguish established flows at no
    /// cost to the worker drops the excess, and packets that the stack would refuse, and counts
    /// them. With `None` there is no limit.
    fn admit(&mut self, now: Instant, credit: Option<usize>) {
        let _ = (now, credit);
    }

    /// Whether the device can drop packets before they cost anything, by the flows of
    /// [`Device::mark_established`] and the destinations of [`Device::want`].
    fn knows_established_flows(&self) -> bool {
        false
    }

    /// Whether a program drops or answers packets at the interface at this moment.
    fn first_line(&self) -> FirstLinePlace {
        FirstLinePlace::None
    }

    /// What of the first line is in force at this moment, and why the rest is not: for an operator.
    /// Takes memory.
    fn first_line_report(&self) -> FirstLineReport {
        FirstLineReport::default()
    }

    /// For which services the last frames were that a program at the interface dropped or answered:
    /// a sample, of this device's queues. Allocates; for reports.
    fn sampled_services(&self) -> Vec<ServiceSample> {
        Vec::new()
    }

    /// Sets the destinations that the stack accepts from now on; called before a packet is sent
    /// that could be answered. Until the first call everything is accepted.
    fn want(&mut self, wanted: &RxFilter) {
        let _ = wanted;
    }

    /// What the program at the interface may answer SYNs with, from now on; told again when the
    /// keys turn.
    fn answer_syns(&mut self, offers: &SynOffers) {
        let _ = offers;
    }

    /// Whether SYNs were answered at the interface so lately that ACKs may come of it. Asked once a
    /// turn; costs a load for each queue.
    fn has_answered_syns(&self, now: Instant) -> bool {
        let _ = now;
        false
    }

    /// Whether packets were lost since the last call for lack of room, where a device that knows
    /// the established flows can tell at low cost.
    fn has_overflowed(&mut self) -> bool {
        false
    }

    /// Records the flow of a received packet as established: the device's limits exempt it.
    fn mark_established(&mut self, now: Instant, established: &PacketBuf) {
        let _ = (now, established);
    }

    /// The system's number of the interface, where packets that are redirected to it leave by it: a
    /// device of the same worker may redirect to it, and it takes offers itself.
    fn redirect_target(&self) -> Option<u32> {
        None
    }

    /// Passes on by itself what is offered, to the interface `target`, from now on and until the
    /// offer ends.
    fn redirect(&mut self, now: Instant, offer: &RedirectOffer, target: u32) {
        let _ = (now, offer, target);
    }

    /// Nothing is redirected any more that was offered before.
    fn forget_redirects(&mut self, now: Instant) {
        let _ = now;
    }

    /// Whether packets are delivered by a system thread that waits for the worker's core: a worker
    /// that polls again at once delays it, and finds nothing.
    fn waits_for_core(&self) -> bool {
        false
    }

    /// Whether each packet is received by a system call, in which the kernel may do others' work:
    /// then the time that it takes is noted for any number of packets.
    fn reads_by_calls(&self) -> bool {
        false
    }

    /// The approximate number of packets that can wait to be received before some are lost; 0 where
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

    fn receive_while(
        &mut self,
        pool: &Pool,
        burst: &mut Burst,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<usize, DeviceError> {
        (**self).receive_while(pool, burst, goes_on)
    }

    fn transmit(&mut self, packets: &mut PacketList) -> Result<usize, DeviceError> {
        (**self).transmit(packets)
    }

    fn transmit_while(
        &mut self,
        packets: &mut PacketList,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<usize, DeviceError> {
        (**self).transmit_while(packets, goes_on)
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

    fn rank_half(&mut self, rank: NapiRank) {
        (**self).rank_half(rank);
    }

    fn half_time(&self) -> ThreadTime {
        (**self).half_time()
    }

    fn admit(&mut self, now: Instant, credit: Option<usize>) {
        (**self).admit(now, credit);
    }

    fn knows_established_flows(&self) -> bool {
        (**self).knows_established_flows()
    }

    fn first_line(&self) -> FirstLinePlace {
        (**self).first_line()
    }

    fn first_line_report(&self) -> FirstLineReport {
        (**self).first_line_report()
    }

    fn sampled_services(&self) -> Vec<ServiceSample> {
        (**self).sampled_services()
    }

    fn want(&mut self, wanted: &RxFilter) {
        (**self).want(wanted);
    }

    fn answer_syns(&mut self, offers: &SynOffers) {
        (**self).answer_syns(offers);
    }

    fn has_answered_syns(&self, now: Instant) -> bool {
        (**self).has_answered_syns(now)
    }

    fn has_overflowed(&mut self) -> bool {
        (**self).has_overflowed()
    }

    fn mark_established(&mut self, now: Instant, established: &PacketBuf) {
        (**self).mark_established(now, established);
    }

    fn redirect_target(&self) -> Option<u32> {
        (**self).redirect_target()
    }

    fn redirect(&mut self, now: Instant, offer: &RedirectOffer, target: u32) {
        (**self).redirect(now, offer, target);
    }

    fn forget_redirects(&mut self, now: Instant) {
        (**self).forget_redirects(now);
    }

    fn waits_for_core(&self) -> bool {
        (**self).waits_for_core()
    }

    fn reads_by_calls(&self) -> bool {
        (**self).reads_by_calls()
    }

    fn ring(&self) -> usize {
        (**self).ring()
    }

    fn stats(&self) -> DeviceStats {
        (**self).stats()
    }
}
