//! The sending half of a handle: memory from a lane, credit in true bytes, one push a batch.
//!
//! Called by users of [`UdpHandle`]. The payload is copied once, into the frame that will leave,
//! and summed while it is; routes, neighbours and headers are the worker's. So a missing route is
//! reported by the *next* call, as an ICMP error would be. Invariants: the true bytes on their way
//! out never exceed the socket's `send_bytes` by more than one datagram; a writer without memory
//! waits in line, and never gets an error for it (backpressure).

use core::net::{IpAddr, SocketAddr};
use core::task::{Context, Poll};
use core::time::Duration;
use std::io;
use std::sync::atomic::Ordering;

use floodwall_base::{Family, IfIndex};
use floodwall_packet::{HEADROOM, HEADROOM_SMALL, PacketList, SMALL_BYTES};
use floodwall_sync::mailbox::Bits;
use floodwall_udp::SocketSettings;

use super::envelope::{self, Envelope};
use super::errno::Errno;
use super::handle::{HandleFacts, UdpHandle, lock, would_block};
use super::slot::RemoteSlot;
use super::waiters::{WaitDirection, Waited};

/// True bytes of the memory behind the smallest datagram.
const SMALL_TRUE_BYTES: u32 = SMALL_BYTES as u32 + 128;
/// The same of a frame.
const FRAME_TRUE_BYTES: u32 = 2048 + 128;
/// Payload that one frame holds.
const FRAME_PAYLOAD: usize = 2048 - HEADROOM;
/// Payload of the largest datagram of each family.
const PAYLOAD_MAX_V4: usize = 65_535 - 28;
const PAYLOAD_MAX_V6: usize = 65_535 - 8;

/// Why a datagram was not taken.
pub(super) enum SendBlocked {
    /// For want of credit.
    Credit,
    /// For want of memory.
    Memory,
    Failed(Errno),
}

/// Where a datagram goes, where that differs from the socket's connection and routes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SenderPath {
    pub(super) to: Option<SocketAddr>,
    pub(super) from: Option<SocketAddr>,
    /// It leaves from there or not at all.
    pub(super) insists: bool,
    pub(super) iface: Option<IfIndex>,
}

/// True bytes that a payload will take.
fn true_bytes(len: usize) -> u32 {
    if len <= SMALL_BYTES - HEADROOM_SMALL {
        SMALL_TRUE_BYTES
    } else if len <= FRAME_PAYLOAD {
        FRAME_TRUE_BYTES
    } else {
        // One for the headers.
        (1 + len.div_ceil(FRAME_PAYLOAD) as u32) * FRAME_TRUE_BYTES
    }
}

/// Credit that a payload needs: all there is is enough for any.
fn needed(slot: &RemoteSlot, len: usize) -> u32 {
    true_bytes(len).min(slot.send_bytes.load(Ordering::Acquire))
}

impl UdpHandle {
    /// Sends one datagram: takes it all, or none.
    ///
    /// # Errors
    /// `WouldBlock` where there is no credit or no memory just now; an earlier datagram's error,
    /// once (this one was not sent then); `InvalidInput` and others for a destination that cannot
    /// be; too large (`EMSGSIZE`); `BrokenPipe` where the stack has stopped.
    #[inline]
    pub fn try_send_to(&self, payload: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.try_send_way(&[payload], SenderPath { to: Some(to), ..SenderPath::default() })
    }

    /// Sends one datagram to the connected peer.
    ///
    /// # Errors
    /// As [`UdpHandle::try_send_to`], and that the socket is not connected (`EDESTADDRREQ`).
    #[inline]
    pub fn try_send(&self, payload: &[u8]) -> io::Result<usize> {
        self.try_send_way(&[payload], SenderPath::default())
    }

    /// Sends one datagram in several pieces.
    ///
    /// # Errors
    /// As [`UdpHandle::try_send_to`].
    pub fn try_send_gather(&self, payload: &[&[u8]], to: Option<SocketAddr>) -> io::Result<usize> {
        self.try_send_way(payload, SenderPath { to, ..SenderPath::default() })
    }

    /// Answers from the address and port, and by the interface, that a datagram came to.
    ///
    /// # Errors
    /// As [`UdpHandle::try_send_to`].
    pub fn try_reply(
        &self,
        payload: &[u8],
        received: &floodwall_udp::Received,
    ) -> io::Result<usize> {
        let from = (!received.to.ip().is_multicast()).then_some(received.to);
        let iface = Some(received.iface);
        let way = SenderPath { to: Some(received.from), from, insists: false, iface };
        self.try_send_way(&[payload], way)
    }

    /// Sends one datagram from an end of the program's choice: an address of the host's, or one of
    /// which all that is routed to it comes here; the socket's own port, or any where it was bound
    /// at every port.
    ///
    /// As [`UdpHandle::try_send_to`]; `InvalidInput` for another port. A source address that is not
    /// ours (`AddrNotAvailable`) is reported by the next call.
    pub fn try_send_from(
        &self,
        payload: &[u8],
        from: SocketAddr,
        to: SocketAddr,
    ) -> io::Result<usize> {
        self.try_send_way(
            &[payload],
            SenderPath { to: Some(to), from: Some(from), insists: true, iface: None },
        )
    }

    /// As [`UdpHandle::try_send_to`] (or, without `to`, to the connected peer), and registers the
    /// task where there is no credit or memory.
    pub fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        payload: &[u8],
        to: Option<SocketAddr>,
    ) -> Poll<io::Result<usize>> {
        let (waiters, cell) = self.waiting(WaitDirection::Write);
        self.poll_send_by(payload, to, || waiters.poll(cell, cx.waker()))
    }

    fn poll_send_by(
        &self,
        payload: &[u8],
        to: Option<SocketAddr>,
        mut register: impl FnMut(),
    ) -> Poll<io::Result<usize>> {
        let way = SenderPath { to, ..SenderPath::default() };
        let len = payload.len();
        self.poll_write(len, &mut register, || self.send(&[payload], way).map(|()| len))
    }

    /// Tries, and registers where there is no credit for `len` bytes, or no memory.
    pub(super) fn poll_write<R>(
        &self,
        len: usize,
        mut register: impl FnMut(),
        mut attempt: impl FnMut() -> Result<R, SendBlocked>,
    ) -> Poll<io::Result<R>> {
        loop {
            match attempt() {
                Ok(done) => return Poll::Ready(Ok(done)),
                Err(SendBlocked::Failed(errno)) => return Poll::Ready(Err(errno.into_io())),
                Err(blocked) => {
                    register();
                    if self.park_for(&blocked, len) {
                        return Poll::Pending;
                    }
                }
            }
        }
    }

    /// Sends as many datagrams as there is credit and memory for, by one exchange with the worker;
    /// how many.
    ///
    /// # Errors
    /// As [`UdpHandle::try_send_to`], of the first datagram; none where one was taken.
    pub fn try_send_batch(&self, datagrams: &[(&[u8], Option<SocketAddr>)]) -> io::Result<usize> {
        match self.send_many(datagrams.iter().copied()) {
            Ok(count) => Ok(count),
            Err(SendBlocked::Failed(errno)) => Err(errno.into_io()),
            Err(_) => would_block(),
        }
    }

    /// Sends as many as there is credit and memory for; if none, returns the reason.
    pub(super) fn send_many<'a>(
        &self,
        datagrams: impl Iterator<Item = (&'a [u8], Option<SocketAddr>)>,
    ) -> Result<usize, SendBlocked> {
        let mut list = PacketList::new();
        let guard = lock(&self.write);
        let mut blocked = None;
        for (payload, to) in datagrams {
            let way = SenderPath { to, ..SenderPath::default() };
            if let Err(why) = self.make(&mut list, &[payload], way) {
                blocked = Some(why);
                break;
            }
        }
        let count = list.len();
        let pushed = self.push(list);
        drop(guard);
        match blocked.filter(|_| count == 0) {
            Some(why) => Err(why),
            None => self.ring(pushed).map(|()| count).map_err(SendBlocked::Failed),
        }
    }

    /// Blocks the thread until the datagram is taken, `patience` at most.
    ///
    /// # Errors
    /// As [`UdpHandle::try_send_to`], and `TimedOut` instead of `WouldBlock`.
    pub fn send_to_blocking(
        &self,
        payload: &[u8],
        to: Option<SocketAddr>,
        patience: Duration,
    ) -> io::Result<usize> {
        let mut ready = self.ready(WaitDirection::Write);
        self.block(patience, |handle, cx| {
            handle.poll_send_by(payload, to, || ready.register(cx.waker()))
        })
    }

    #[inline]
    fn try_send_way(&self, payload: &[&[u8]], way: SenderPath) -> io::Result<usize> {
        match self.send(payload, way) {
            Ok(()) => Ok(payload.iter().map(|piece| piece.len()).sum()),
            Err(SendBlocked::Failed(errno)) => Err(errno.into_io()),
            Err(_) => would_block(),
        }
    }

    #[inline]
    fn send(&self, payload: &[&[u8]], way: SenderPath) -> Result<(), SendBlocked> {
        let mut list = PacketList::new();
        let pushed = {
            let _guard = lock(&self.write);
            self.make(&mut list, payload, way)?;
            self.push(list)
        };
        self.ring(pushed).map_err(SendBlocked::Failed)
    }

    /// Makes one datagram, paid for. The caller holds the write half.
    fn make(
        &self,
        list: &mut PacketList,
        payload: &[&[u8]],
        way: SenderPath,
    ) -> Result<(), SendBlocked> {
        let slot = self.slot().ok_or(SendBlocked::Failed(Errno::STOPPED))?;
        if slot.error.load(Ordering::Relaxed) != 0
            && let Some(errno) = self.pending_error()
        {
            return Err(SendBlocked::Failed(errno));
        }
        let len = payload.iter().map(|piece| piece.len()).sum();
        check(&lock(&self.facts), way, len).map_err(SendBlocked::Failed)?;
        if self.shared.is_stopped(self.home) {
            return Err(SendBlocked::Failed(Errno::STOPPED));
        }
        if slot.credit.left() < u64::from(needed(slot, len)) {
            return Err(SendBlocked::Credit);
        }
        let lane = self.id.index as usize;
        let made = self
            .shared
            .with_lane(lane, |pool| floodwall_udp::gather(pool, envelope::ENVELOPE_LEN, payload));
        let (mut packet, sum) = made.flatten().ok_or(SendBlocked::Memory)?;
        let paid = slot.credit.take(packet.true_size());
        let SenderPath { to, from, insists, iface } = way;
        let envelope = Envelope { to, from, insists, iface, paid, sum: sum.fold() };
        if let Some(out) = packet.first_mut().and_then(|bytes| bytes.first_chunk_mut()) {
            envelope.write(out);
        }
        list.push_back(packet);
        Ok(())
    }

    /// Gives the worker a batch; whether to ring.
    fn push(&self, list: PacketList) -> bool {
        if list.is_empty() {
            return false;
        }
        self.slot().is_some_and(|slot| !slot.tx.push(list, Bits::QUEUED).has(Bits::QUEUED))
    }

    fn ring(&self, rings: bool) -> Result<(), Errno> {
        if rings { self.shared.ring(self.home, self.id.index) } else { Ok(()) }
    }

    /// Whether a small datagram would be accepted, or an error is pending.
    pub(super) fn is_writable(&self, slot: &RemoteSlot) -> bool {
        slot.error.load(Ordering::Acquire) != 0
            || self.shared.is_stopped(self.home)
            || slot.credit.left() >= u64::from(needed(slot, 1))
    }

    /// Sleeps for credit, of which a small datagram has enough; `false`: look again.
    pub(super) fn park_writer(&self, slot: &RemoteSlot) -> bool {
        self.park_for_credit(slot, 1)
    }

    /// Sleeps for the credit that a payload needs; `false`: look again. The limit may have changed
    /// between the look and the sleep: the worker changes it before the credit, so it is read again
    /// behind.
    fn park_for_credit(&self, slot: &RemoteSlot, len: usize) -> bool {
        slot.credit.park(needed(slot, len))
            && !self.has_news(slot)
            && slot.credit.left() < u64::from(needed(slot, len))
    }

    /// An error or the end may have come between the look and the sleep: neither is in the word.
    fn has_news(&self, slot: &RemoteSlot) -> bool {
        slot.error.load(Ordering::Acquire) != 0 || self.shared.is_stopped(self.home)
    }

    fn park_for(&self, blocked: &SendBlocked, len: usize) -> bool {
        let Some(slot) = self.slot() else { return false };
        match blocked {
            SendBlocked::Failed(_) => false,
            SendBlocked::Credit => self.park_for_credit(slot, len),
            SendBlocked::Memory => {
                self.shared.wait_for_memory(self.id.index);
                // Its worker comes by, awake or not.
                let before = slot.tx.set(Bits::QUEUED);
                let _ = self.ring(!before.has(Bits::QUEUED));
                !self.has_news(slot)
            }
        }
    }
}

/// The checks of a destination that need no routes.
fn check(facts: &HandleFacts, way: SenderPath, len: usize) -> Result<(), Errno> {
    let HandleFacts { ends, settings } = facts;
    let to = way.to.or(ends.peer).ok_or(Errno::NO_DESTINATION)?;
    let ip = to.ip().to_canonical();
    if to.port() == 0 || ip.is_unspecified() {
        return Err(Errno::INVALID);
    }
    if !speaks(settings, ip) {
        return Err(Errno::FAMILY);
    }
    if matches!(ip, IpAddr::V4(ip) if ip.is_broadcast()) && !settings.broadcast {
        return Err(Errno::ACCESS);
    }
    if way.from.is_some_and(|from| from.ip().to_canonical().is_ipv4() != ip.is_ipv4()) {
        return Err(Errno::FAMILY);
    }
    // A socket at every port has none of its own.
    let (own, asked) = (ends.local.port(), way.from.map_or(0, |from| from.port()));
    if own != asked && own.min(asked) != 0 || own.max(asked) == 0 {
        return Err(Errno::INVALID);
    }
    let max = if ip.is_ipv4() { PAYLOAD_MAX_V4 } else { PAYLOAD_MAX_V6 };
    if len > max { Err(Errno::TOO_LONG) } else { Ok(()) }
}

fn speaks(settings: &SocketSettings, ip: IpAddr) -> bool {
    match settings.family {
        Family::V4 => ip.is_ipv4(),
        Family::V6 => ip.is_ipv6() || !settings.v6_only,
    }
}
