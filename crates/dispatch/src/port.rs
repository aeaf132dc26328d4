//! `Port`: one device of a worker, and the packets that wait to be sent through it.
//!
//! Called by the worker's turn. It names the interface of what arrives, keeps in order what the
//! device has no room for, and ends in good order when the device vanishes.
//!
//! # Under flood
//! Peers that make us answer faster than the device sends fill the backlog. Bound: [`BACKLOG_MAX`]
//! packets; work per packet: one move. When full the new packet is dropped, counted as
//! `DeviceFull`, after one more try to transmit a turn. Where it is the time that lacks,
//! connections make no more than there is room for. Legitimate traffic through the same device
//! loses as the flood does; other devices lose nothing.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use floodwall_base::limits::{BURST_MAX, WORK_UNITS};
use floodwall_base::{DropReason, IfIndex, Instant};
use floodwall_device::{
    Device, DeviceError, DeviceInfo, DeviceStats, FirstLinePlace, FirstLineReport, Medium,
    NapiRank, ServiceSample, ThreadTime,
};
use floodwall_packet::{Burst, PacketBuf, PacketList, Pool, RedirectOffer, RxFilter, SynOffers};

use crate::clock::Clock;
use crate::worker_counters::{WorkerCounter, WorkerCounters};

/// Packets that wait for one device.
pub(crate) const BACKLOG_MAX: usize = 256;
/// Behind a backlog that there is no time for, the rest of it is for answers to what is received:
/// what has no place in it must be sent, however long that takes.
const TX_ROOM_CUT: usize = BACKLOG_MAX - BURST_MAX;
/// Packets that connections make for one turn at most: each may borrow a dozen small chunks, so
/// they take longer to make than their number tells.
pub(crate) const TX_ROOM: usize = BACKLOG_MAX / 2;
/// Sends of a full backlog when the time is over.
const FORCED_SENDS: u32 = 32;
/// Packets that are taken even so.
const TAKEN_LEAST: usize = 4;
/// How soon a refused backlog is tried again, at first and at the latest.
const BACKLOG_RETRY: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(50));
/// Consecutive empty wake-ups after which a descriptor is ignored for a while.
const EMPTY_CALLS_MAX: u32 = 8;
/// That while.
const MUTED_TIME: Duration = Duration::from_millis(20);

/// One device with its transmit backlog.
pub struct Port {
    iface: IfIndex,
    device: Option<Box<dyn Device>>,
    info: DeviceInfo,
    backlog: PacketList,
    /// The device was full in this turn (backpressure): it is not tried again before the next.
    refused: bool,
    /// The time to send was over before the backlog was: the next turn follows at once.
    cut: bool,
    /// Some of the backlog must leave, even when the time is over.
    forced: bool,
    /// The time to receive was over before the device had nothing left.
    has_left_some: bool,
    retry: Duration,
    /// Consecutive polls that reported readiness without a packet.
    empty_calls: u32,
    muted_until: Instant,
    /// What the device had carried when it vanished, and why it did.
    ended: Option<(DeviceStats, DeviceError)>,
}

/// What a port has carried and lost.
#[derive(Clone, Debug)]
pub struct PortReport {
    /// The interface that it serves.
    pub iface: IfIndex,
    /// What the device is.
    pub info: DeviceInfo,
    /// What the device carried and lost.
    pub stats: DeviceStats,
    /// Whether a program drops or answers packets at its interface at this moment.
    pub first_line: FirstLinePlace,
    /// What it does there, and why not more.
    pub first_line_parts: FirstLineReport,
    /// For which services the last packets were that ended there.
    pub sampled: Vec<ServiceSample>,
    /// Packets that wait for it.
    pub backlog: usize,
    /// Why it is out of service, where it is.
    pub error: Option<String>,
}

impl Port {
    /// A device that serves the interface `iface`. The queues of one interface are one port each.
    #[must_use]
    pub fn new(iface: IfIndex, device: Box<dyn Device>) -> Self {
        Self {
            iface,
            info: device.info().clone(),
            device: Some(device),
            backlog: PacketList::new(),
            refused: false,
            cut: false,
            forced: false,
            has_left_some: false,
            retry: BACKLOG_RETRY.0,
            empty_calls: 0,
            muted_until: Instant::ORIGIN,
            ended: None,
        }
    }

    /// What the port has carried and lost. May cost a system call.
    #[must_use]
    pub fn report(&self) -> PortReport {
        let gone = self.ended.as_ref();
        PortReport {
            iface: self.iface,
            info: self.info.clone(),
            stats: match &self.device {
                Some(device) => device.stats(),
                None => gone.map(|(stats, _)| *stats).unwrap_or_default(),
            },
            first_line: self.device.as_ref().map(Device::first_line).unwrap_or_default(),
            first_line_parts: match &self.device {
                Some(device) => device.first_line_report(),
                None => FirstLineReport::missing("the device is out of service"),
            },
            sampled: self.device.as_ref().map(Device::sampled_services).unwrap_or_default(),
            backlog: self.backlog.len(),
            error: gone.map(|(_, error)| error.to_string()),
        }
    }

    pub(crate) const fn iface(&self) -> IfIndex {
        self.iface
    }

    pub(crate) const fn medium(&self) -> Medium {
        self.info.medium
    }

    pub(crate) const fn is_live(&self) -> bool {
        self.device.is_some()
    }

    /// Whether packets are delivered there by a thread that waits for this core.
    pub(crate) fn waits_for_core(&self) -> bool {
        self.device.as_ref().is_some_and(|device| device.waits_for_core())
    }

    /// Whether its device takes each packet by a system call.
    pub(crate) fn reads_by_calls(&self) -> bool {
        self.device.as_ref().is_some_and(|device| device.reads_by_calls())
    }

    /// Packets that its device's ring holds, as far as is known.
    pub(crate) fn ring(&self) -> usize {
        self.device.as_ref().map_or(0, |device| device.ring())
    }

    pub(crate) const fn backlog(&self) -> usize {
        self.backlog.len()
    }

    /// Where the time to send was over before the backlog was: how many packets may be taken, so
    /// that what answers them finds room.
    pub(crate) fn cut_room(&self) -> Option<usize> {
        let room = BACKLOG_MAX.saturating_sub(self.backlog.len()) / 4;
        (self.cut && !self.backlog.is_empty()).then(|| room.max(TAKEN_LEAST))
    }

    /// How many packets more may be made for it: where there was no time to send the backlog, no
    /// more than it takes beside answers to what is received.
    pub(crate) const fn tx_room(&self) -> usize {
        let room = TX_ROOM_CUT.saturating_sub(self.backlog.len());
        if self.cut && room < TX_ROOM { room } else { TX_ROOM }
    }

    /// Whether that backlog has less room than a slice of timed work may need.
    pub(crate) const fn is_clogged(&self) -> bool {
        self.cut && self.backlog.len() > BACKLOG_MAX - WORK_UNITS as usize
    }

    pub(crate) const fn begin_turn(&mut self) {
        self.refused = false;
        self.has_left_some = false;
    }

    /// Sets the turn's credit for unverified flows.
    #[inline]
    pub(crate) fn admit(&mut self, now: Instant, credit: Option<usize>) {
        if let Some(device) = &mut self.device {
            device.admit(now, credit);
        }
    }

    /// Whether its device drops unverified flows before established ones.
    #[inline]
    pub(crate) fn knows_established_flows(&self) -> bool {
        self.device.as_ref().is_some_and(|device| device.knows_established_flows())
    }

    /// Tells its device what SYNs are answered with.
    pub(crate) fn answer_syns(&mut self, offers: &SynOffers) {
        if let Some(device) = &mut self.device {
            device.answer_syns(offers);
        }
    }

    /// Whether its device has answered SYNs lately.
    #[inline]
    pub(crate) fn has_answered_syns(&self, now: Instant) -> bool {
        self.device.as_ref().is_some_and(|device| device.has_answered_syns(now))
    }

    /// What is wanted of what arrives there.
    pub(crate) fn want(&mut self, wanted: &RxFilter) {
        if let Some(device) = &mut self.device {
            device.want(wanted);
        }
    }

    /// Whether its device has had no room for all that came.
    #[inline]
    pub(crate) fn has_overflowed(&mut self) -> bool {
        self.device.as_mut().is_some_and(|device| device.has_overflowed())
    }

    /// Reports a packet of an established flow to the device.
    #[inline]
    pub(crate) fn mark_established(&mut self, now: Instant, established: &PacketBuf) {
        if let Some(device) = &mut self.device {
            device.mark_established(now, established);
        }
    }

    /// Where other devices may redirect packets to that are to leave here.
    #[inline]
    pub(crate) fn redirect_target(&self) -> Option<u32> {
        self.device.as_ref()?.redirect_target()
    }

    /// Its device passes on what is offered.
    pub(crate) fn redirect(&mut self, now: Instant, offer: &RedirectOffer, target: u32) {
        if let Some(device) = &mut self.device {
            device.redirect(now, offer, target);
        }
    }

    /// Its device passes nothing on that was offered before.
    pub(crate) fn forget_redirects(&mut self, now: Instant) {
        if let Some(device) = &mut self.device {
            device.forget_redirects(now);
        }
    }

    /// Appends what has arrived, its interface named, until that time of that clock: a read may run
    /// the sender within the call. True where the device vanished over it.
    pub(crate) fn receive(
        &mut self,
        pool: &Pool,
        burst: &mut Burst,
        facts: &mut WorkerCounters,
        until: Option<(Clock, Instant)>,
    ) -> bool {
        let before = burst.len();
        let mut is_late = false;
        let mut goes_on = || {
            is_late = until.is_some_and(|(clock, until)| clock.now() >= until);
            !is_late
        };
        let outcome = match &mut self.device {
            Some(device) if burst.room() > 0 => device.receive_while(pool, burst, &mut goes_on),
            _ => return false,
        };
        self.has_left_some = is_late;
        for packet in burst.iter_mut().skip(before) {
            packet.set_iface(self.iface);
        }
        if burst.len() > before {
            self.empty_calls = 0;
        }
        match outcome {
            Ok(_) => false,
            Err(error) => self.close(error, facts),
        }
    }

    /// Whether the last turn's time to receive was over while there may have been more.
    #[inline]
    pub(crate) const fn has_left_some(&self) -> bool {
        self.has_left_some
    }

    /// Takes one packet that is to leave. True where the device vanished over it.
    pub(crate) fn send(
        &mut self,
        packet: PacketBuf,
        facts: &mut WorkerCounters,
        until: Option<(Clock, Instant)>,
    ) -> bool {
        let mut vanished = false;
        if self.backlog.len() >= BACKLOG_MAX {
            // Nothing is dropped for want of time alone.
            self.forced = self.cut;
            self.refused &= !self.cut;
            vanished = self.flush(facts, until);
            self.forced = false;
        }
        let loss = if self.device.is_none() {
            DropReason::DeviceGone
        } else if self.backlog.len() >= BACKLOG_MAX {
            DropReason::DeviceFull
        } else {
            self.backlog.push_back(packet);
            return vanished;
        };
        facts.add(fact_of(loss), 1);
        vanished
    }

    /// Transmits what waits, once a turn after the device has refused, and until that time of that
    /// clock: a send may run the receiver within the call, so its price is a peer's to choose. True
    /// where the device vanished over it.
    pub(crate) fn flush(
        &mut self,
        facts: &mut WorkerCounters,
        until: Option<(Clock, Instant)>,
    ) -> bool {
        let Some(device) = &mut self.device else { return false };
        if self.backlog.is_empty() || self.refused {
            return false;
        }
        let before = self.backlog.len();
        let (mut is_late, mut sends, forced) = (false, 0, self.forced);
        let mut goes_on = || {
            sends += 1;
            is_late = match forced {
                true => sends >= FORCED_SENDS,
                false => until.is_some_and(|(clock, until)| clock.now() >= until),
            };
            !is_late
        };
        let outcome = device.transmit_while(&mut self.backlog, &mut goes_on);
        let left = before.saturating_sub(self.backlog.len());
        facts.add(WorkerCounter::TxPackets, left as u64);
        if left > 0 {
            self.retry = BACKLOG_RETRY.0;
        }
        self.refused = !self.backlog.is_empty();
        self.cut = is_late && self.refused;
        match outcome {
            Ok(_) => false,
            Err(error) => self.close(error, facts),
        }
    }

    /// The device vanished: waiting packets are dropped and counted, the descriptor is closed.
    #[cold]
    fn close(&mut self, error: DeviceError, facts: &mut WorkerCounters) -> bool {
        let stats = self.device.take().map(|device| device.stats()).unwrap_or_default();
        facts.add(fact_of(DropReason::DeviceGone), self.backlog.take().len() as u64);
        self.ended = Some((stats, error));
        true
    }

    /// Why it is out of service; the reason is kept for reports.
    pub(crate) fn end(&self) -> Option<&DeviceError> {
        self.ended.as_ref().map(|(_, error)| error)
    }

    /// As [`Port::end`], given away.
    pub(crate) fn take_end(&mut self) -> Option<DeviceError> {
        self.ended.take().map(|(_, error)| error)
    }

    /// Whether something waits that poll(2) would not report.
    pub(crate) fn has_pending(&self) -> bool {
        self.device.as_ref().is_some_and(|device| device.pending())
    }

    /// Whether it has a device without a descriptor, which must be looked at from time to time.
    pub(crate) fn is_silent(&self) -> bool {
        self.device.as_ref().is_some_and(|device| device.readiness().is_none())
    }

    /// How the thread of the kernel's half stands from now on.
    pub(crate) fn rank_half(&mut self, rank: NapiRank) {
        if let Some(device) = &mut self.device {
            device.rank_half(rank);
        }
    }

    /// What that thread has had of the core.
    pub(crate) fn half_time(&self) -> ThreadTime {
        self.device.as_ref().map(|device| device.half_time()).unwrap_or_default()
    }

    /// The worker goes to sleep, and what comes is to wake it.
    pub(crate) fn rest(&mut self) {
        if let Some(device) = &mut self.device {
            device.rest();
        }
    }

    /// What to sleep on: nothing while the descriptor calls for nothing all the time.
    pub(crate) fn readiness(&self, now: Instant) -> Option<BorrowedFd<'_>> {
        if self.muted_until > now {
            return None;
        }
        self.device.as_ref()?.readiness()
    }

    /// When the port must be polled without a wake-up, where that is needed.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        let wait = if self.cut { Duration::ZERO } else { self.retry };
        let retry = (!self.backlog.is_empty() && self.is_live()).then(|| now + wait);
        let muted = (self.muted_until > now).then_some(self.muted_until);
        [retry, muted].into_iter().flatten().min()
    }

    /// The worker goes to sleep over a backlog: the next try comes later.
    pub(crate) fn back_off(&mut self) {
        if !self.backlog.is_empty() {
            self.retry = (self.retry * 2).min(BACKLOG_RETRY.1);
        }
    }

    /// Poll reported readiness; the next [`Port::receive`] that finds a packet resets the count.
    /// After too many empty wake-ups, as of a broken descriptor that is always ready, the
    /// descriptor is left out for a while: the core is not spent on it.
    pub(crate) fn called(&mut self, now: Instant) {
        self.empty_calls = self.empty_calls.saturating_add(1);
        if self.empty_calls > EMPTY_CALLS_MAX {
            self.muted_until = now + MUTED_TIME;
        }
    }
}

/// Under which fact a loss is counted.
pub(crate) const fn fact_of(reason: DropReason) -> WorkerCounter {
    match reason {
        DropReason::DeviceFull => WorkerCounter::DropsDeviceFull,
        DropReason::DeviceGone => WorkerCounter::DropsDeviceGone,
        DropReason::TriageRejectable => WorkerCounter::DropsTriageRejectable,
        DropReason::TriageUnknown => WorkerCounter::DropsTriageUnknown,
        _ => WorkerCounter::DropsInterfaceUnknown,
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port")
            .field("iface", &self.iface)
            .field("info", &self.info)
            .field("live", &self.is_live())
            .field("backlog", &self.backlog.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use floodwall_packet::PoolConfig;

    use super::*;

    /// A device with sends of unbounded length.
    struct Slow(DeviceInfo);

    impl Device for Slow {
        fn info(&self) -> &DeviceInfo {
            &self.0
        }

        fn receive(&mut self, _: &Pool, _: &mut Burst) -> Result<usize, DeviceError> {
            Ok(0)
        }

        fn transmit(&mut self, packets: &mut PacketList) -> Result<usize, DeviceError> {
            self.transmit_while(packets, &mut || true)
        }

        fn transmit_while(
            &mut self,
            packets: &mut PacketList,
            goes_on: &mut dyn FnMut() -> bool,
        ) -> Result<usize, DeviceError> {
            let mut sent = 0;
            while packets.pop_front().is_some() {
                sent += 1;
                if !goes_on() {
                    break;
                }
            }
            Ok(sent)
        }

        fn readiness(&self) -> Option<BorrowedFd<'_>> {
            None
        }

        fn pending(&self) -> bool {
            false
        }

        fn stats(&self) -> DeviceStats {
            DeviceStats::default()
        }
    }

    #[test]
    fn what_there_is_no_time_to_send_leaves_in_the_next_turns_which_follow_at_once() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let (wire, _) = floodwall_device::pair(1);
        let mut port = Port::new(IfIndex(1), Box::new(Slow(wire.info().clone())));
        let mut facts = WorkerCounters::default();
        let (clock, now) = (Clock::new(), Clock::new().now());
        let over = Some((clock, Instant::ORIGIN));
        for _ in 0..100 {
            assert!(!port.send(pool.packet_from(&[0; 60]).unwrap(), &mut facts, over));
        }
        for left in (0..100).rev() {
            port.begin_turn();
            assert!(!port.flush(&mut facts, over));
            // Not again in the same turn.
            assert!(!port.flush(&mut facts, over));
            let room = TX_ROOM.min(BACKLOG_MAX - BURST_MAX - left);
            assert_eq!((port.backlog(), port.tx_room()), (left, room));
            assert_eq!(port.deadline(now), (left > 0).then_some(now));
        }
        for _ in 0..5 {
            assert!(!port.send(pool.packet_from(&[0; 60]).unwrap(), &mut facts, None));
        }
        port.begin_turn();
        assert!(!port.flush(&mut facts, Some((clock, Instant::FAR))));
        assert_eq!((port.backlog(), facts.of(WorkerCounter::TxPackets)), (0, 105));
    }
}
