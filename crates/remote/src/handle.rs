//! `UdpHandle`: a UDP socket as a program on any thread has it.
//!
//! Made by [`Remote::bind_udp`](super::Remote::bind_udp). Shared by reference (put it into an
//! `Arc`); each direction has a lock of its own, which only the program's threads take and never
//! while waking a task. `try_` calls never wait; `poll_` calls register the task; the futures of
//! [`UdpHandle::ready`] let any number wait. Sending: `sender.rs`. Errors are the kernel's numbers
//! (`errno.rs`); an ICMP error is given once, to the next call of either direction.
//!
//! Invariant: no call keeps a borrow or half a result across `Pending`. The drop is the last
//! access: what was sent before still leaves, datagrams not read are dropped, and the control shard
//! frees the slot.

use core::net::{IpAddr, SocketAddr};
use core::task::{Context, Poll};
use core::time::Duration;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use floodwall_packet::{PacketBuf, PacketList};
use floodwall_sync::WakerCell;
use floodwall_sync::lock::{Mutex, MutexGuard, PoisonError};
use floodwall_sync::mailbox::Bits;
use floodwall_udp::{
    GroupFilter, GroupInterface, Received, ReceivedPacket, RefusedDatagram, SocketSettings,
};

use super::errno::Errno;
use super::request::{PendingRequest, RequestAddrs, RequestKind, SocketRequest, question};
use super::shared::RemoteShared;
use super::slot::{RemoteSlot, SLOT_ERROR, SLOT_STOPPED, SlotId};
use super::waiters::{Parker, Readiness, WaitDirection, Waited, Waiters};
use super::wake::GroupId;

/// A UDP socket of a program. Dropping it closes the socket.
pub struct UdpHandle {
    pub(super) shared: Arc<RemoteShared>,
    pub(super) id: SlotId,
    /// The worker that sends for it.
    pub(super) home: usize,
    /// What was taken and not yet read.
    read: Mutex<PacketList>,
    /// Held by the one writer that takes credit and pushes.
    pub(super) write: Mutex<()>,
    /// True bytes that were read and are not yet released (`PacketList::drop_burst`).
    pub(super) deferred: AtomicU32,
    pub(super) facts: Mutex<HandleFacts>,
    /// Received datagrams carry the number of refused ones.
    drop_count: AtomicBool,
    reading: Waiters,
    writing: Waiters,
}

/// What the program's side stores about its socket.
#[derive(Clone, Debug)]
pub(super) struct HandleFacts {
    pub(super) ends: RequestAddrs,
    pub(super) settings: SocketSettings,
}

/// What the read half finds.
enum HandleNews {
    Datagram,
    Error,
    Stopped,
}

/// What a lock keeps is valid after every step: a panic of the program does no harm.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl UdpHandle {
    pub(super) fn new(
        shared: Arc<RemoteShared>,
        id: SlotId,
        ends: RequestAddrs,
        settings: SocketSettings,
    ) -> Self {
        let deferred = AtomicU32::new(deferred_of(&shared, &settings));
        Self {
            home: shared.home(id.index),
            shared,
            id,
            read: Mutex::new(PacketList::new()),
            write: Mutex::new(()),
            deferred,
            drop_count: AtomicBool::new(settings.drop_count),
            facts: Mutex::new(HandleFacts { ends, settings }),
            reading: Waiters::default(),
            writing: Waiters::default(),
        }
    }

    #[inline]
    pub(super) fn slot(&self) -> Option<&RemoteSlot> {
        self.shared.slots.get(self.id.index as usize)
    }

    /// What the socket is bound to: the unspecified address where it is bound to all.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        lock(&self.facts).ends.local
    }

    /// The peer of a connected socket.
    #[must_use]
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        lock(&self.facts).ends.peer
    }

    /// The socket's settings, as last requested.
    #[must_use]
    pub fn settings(&self) -> SocketSettings {
        lock(&self.facts).settings.clone()
    }

    /// Sets the runtime that the reading tasks run on. To be called before a poll that may have to
    /// wait.
    #[inline]
    pub fn set_read_group(&self, group: GroupId) {
        if let Some(slot) = self.slot() {
            slot.read_group.store(group.0, Ordering::Relaxed);
        }
    }

    /// Sets the runtime that the writing tasks run on. To be called before a poll that may have to
    /// wait.
    #[inline]
    pub fn set_write_group(&self, group: GroupId) {
        if let Some(slot) = self.slot() {
            slot.write_group.store(group.0, Ordering::Relaxed);
        }
    }

    /// What there is for a reader. Does not take a pending error.
    #[inline]
    fn news(&self, slot: &RemoteSlot, list: &mut PacketList) -> Option<HandleNews> {
        loop {
            if slot.error.load(Ordering::Acquire) != 0 {
                return Some(HandleNews::Error);
            }
            if !list.is_empty() {
                return Some(HandleNews::Datagram);
            }
            let (taken, bits) = slot.rx.take(SLOT_ERROR);
            *list = taken;
            if bits.has(SLOT_ERROR) {
                // The number was stored before the flag: look again.
                continue;
            }
            return match (list.is_empty(), bits.has(SLOT_STOPPED)) {
                (false, _) => Some(HandleNews::Datagram),
                (true, true) => Some(HandleNews::Stopped),
                (true, false) => None,
            };
        }
    }

    /// Takes a pending error.
    #[cold]
    pub(super) fn pending_error(&self) -> Option<Errno> {
        Errno::from_word(self.slot()?.error.swap(0, Ordering::AcqRel))
    }

    /// Reads once; `None`: nothing is there.
    #[inline]
    pub(super) fn read<R>(
        &self,
        read: impl FnOnce(&mut PacketList) -> Option<R>,
    ) -> Option<io::Result<R>> {
        let slot = self.slot()?;
        let mut list = lock(&self.read);
        loop {
            match self.news(slot, &mut list)? {
                HandleNews::Datagram => return read(&mut list).map(Ok),
                HandleNews::Stopped => return Some(Err(Errno::STOPPED.into_io())),
                HandleNews::Error => {
                    // Another thread, sending, may have taken it meanwhile.
                    if let Some(errno) = self.pending_error() {
                        return Some(Err(errno.into_io()));
                    }
                }
            }
        }
    }

    /// Sets `WAIT` where there is nothing; `false`: look again.
    ///
    /// Between the check and the sleep another reader may have taken the whole batch and read one
    /// datagram of it: the rest of the batch causes no further wake-up, so it is checked here. A
    /// reader that takes a batch later takes one that came after `WAIT`, and that wakes.
    fn park_reader(&self) -> bool {
        let Some(slot) = self.slot() else { return false };
        slot.rx.park(SLOT_ERROR.and(SLOT_STOPPED))
            && lock(&self.read).is_empty()
            && slot.error.load(Ordering::Acquire) == 0
    }

    #[inline]
    pub(super) fn poll_read<R>(
        &self,
        cx: &mut Context<'_>,
        mut read: impl FnMut(&mut PacketList) -> Option<R>,
    ) -> Poll<io::Result<R>> {
        loop {
            if let Some(done) = self.read(&mut read) {
                return Poll::Ready(done);
            }
            let (waiters, cell) = self.waiting(WaitDirection::Read);
            waiters.poll(cell, cx.waker());
            if self.park_reader() {
                return Poll::Pending;
            }
        }
    }

    /// Copies the oldest datagram into `buffer`; bytes beyond are lost, and the result reports
    /// that.
    ///
    /// # Errors
    /// `WouldBlock`; an ICMP error, once; `BrokenPipe` where the stack has stopped.
    #[inline]
    pub fn try_recv_from(&self, buffer: &mut [u8]) -> io::Result<Received> {
        let mut received =
            self.read(|list| self.copy_first(list, buffer)).unwrap_or_else(would_block)?;
        self.tell_drops(&mut received);
        Ok(received)
    }

    /// Copies the oldest datagram that has headers out; what has none was never delivered.
    pub(super) fn copy_first(&self, list: &mut PacketList, buffer: &mut [u8]) -> Option<Received> {
        let packet = list.pop_front()?;
        let received = floodwall_udp::copy_datagram(&packet, buffer);
        self.drop_burst(list, packet);
        received
    }

    /// What was taken from this list has been read.
    #[inline]
    pub(super) fn drop_burst(&self, list: &mut PacketList, packet: PacketBuf) {
        list.drop_burst(packet, self.deferred.load(Ordering::Relaxed));
    }

    /// Adds the number of refused datagrams, if the socket has that option.
    #[inline]
    pub(super) fn tell_drops(&self, received: &mut Received) {
        if self.drop_count.load(Ordering::Relaxed) {
            received.dropped = self.refused().total() as u32;
        }
    }

    /// As [`UdpHandle::try_recv_from`], and registers the task where nothing is there. Of several
    /// tasks that poll, the last one is woken; see [`UdpHandle::ready`].
    #[inline]
    pub fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<Received>> {
        self.poll_read(cx, |list| self.copy_first(list, buffer)).map_ok(|mut received| {
            self.tell_drops(&mut received);
            received
        })
    }

    /// As [`UdpHandle::try_recv_from`], and leaves the datagram where it is.
    ///
    /// # Errors
    /// As there.
    pub fn try_peek_from(&self, buffer: &mut [u8]) -> io::Result<Received> {
        self.read(|list| peek_first(list, buffer)).unwrap_or_else(would_block)
    }

    /// As [`UdpHandle::try_peek_from`], and registers the task where nothing is there.
    pub fn poll_peek_from(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<Received>> {
        self.poll_read(cx, |list| peek_first(list, buffer))
    }

    /// Hands out the oldest datagram's packet, without a copy. It stays charged to the socket until
    /// it is dropped.
    ///
    /// # Errors
    /// As [`UdpHandle::try_recv_from`].
    pub fn try_recv_packet(&self) -> io::Result<ReceivedPacket> {
        self.read(take_first).unwrap_or_else(would_block)
    }

    /// As [`UdpHandle::try_recv_packet`], and registers the task where nothing is there.
    pub fn poll_recv_packet(&self, cx: &mut Context<'_>) -> Poll<io::Result<ReceivedPacket>> {
        self.poll_read(cx, take_first)
    }

    /// Hands as many datagrams as are there, `most` at most, to `each`; how many.
    ///
    /// # Errors
    /// As [`UdpHandle::try_recv_from`]; none where at least one was there.
    pub fn try_recv_batch(
        &self,
        most: usize,
        mut each: impl FnMut(ReceivedPacket),
    ) -> io::Result<usize> {
        let mut count = 0;
        while count < most {
            match self.read(take_first) {
                Some(Ok(datagram)) => each(datagram),
                Some(Err(error)) if count == 0 => return Err(error),
                Some(Err(error)) => {
                    self.put_back(&error);
                    break;
                }
                None => break,
            }
            count += 1;
        }
        if count == 0 && most > 0 { would_block() } else { Ok(count) }
    }

    /// An error that came behind datagrams is for the next call.
    fn put_back(&self, error: &io::Error) {
        let number = error.raw_os_error().unwrap_or(0).cast_unsigned();
        if let Some(slot) = self.slot() {
            // A newer one stays.
            let _ = slot.error.compare_exchange(0, number, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// What the workers refused for this socket since it was bound, and why: their counters, each
    /// worker's own, summed. A round behind at most.
    #[must_use]
    pub fn refused(&self) -> RefusedDatagram {
        let mut all = RefusedDatagram::default();
        self.shared.refused.iter().for_each(|drops| all += drops.of(self.id.index as usize));
        all
    }

    /// Takes the pending error, as `SO_ERROR` does.
    #[must_use]
    pub fn take_error(&self) -> Option<io::Error> {
        self.pending_error().map(Errno::into_io)
    }

    /// Blocks the thread until a datagram is there, `patience` at most.
    ///
    /// # Errors
    /// As [`UdpHandle::try_recv_from`], and `TimedOut` instead of `WouldBlock`.
    pub fn recv_from_blocking(
        &self,
        buffer: &mut [u8],
        patience: Duration,
    ) -> io::Result<Received> {
        self.read_blocking(patience, |handle| handle.try_recv_from(buffer))
    }

    /// Polls until it is ready, sleeping in between.
    pub(super) fn block<R>(
        &self,
        patience: Duration,
        mut poll: impl FnMut(&Self, &mut Context<'_>) -> Poll<io::Result<R>>,
    ) -> io::Result<R> {
        Parker::new().block(patience, |cx| poll(self, cx))
    }

    /// Waits until the handle may be read from or written to. Any number may wait.
    #[must_use]
    pub const fn ready(&self, direction: WaitDirection) -> Readiness<'_> {
        Readiness::new(self, direction)
    }

    /// As [`UdpHandle::ready`] for one task that polls.
    pub fn poll_ready(
        &self,
        cx: &mut Context<'_>,
        direction: WaitDirection,
    ) -> Poll<io::Result<()>> {
        let (waiters, cell) = self.waiting(direction);
        self.poll_ready_by(direction, &mut || waiters.poll(cell, cx.waker()))
    }

    /// Sends a request to the control shard; stores the resulting ends.
    fn ask(&self, what: RequestKind) -> PendingRequest<RequestAddrs> {
        let (reply, asked) = question();
        self.shared.request(SocketRequest::Ask { slot: self.id, what, reply });
        asked
    }

    fn note(&self, ends: RequestAddrs) {
        lock(&self.facts).ends = ends;
    }

    /// Receives from `peer` only, and sends to it by default. May be called again. If the future is
    /// dropped, the socket may or may not be connected.
    ///
    /// # Errors
    /// No route or address leads there, or it is of another family; `WouldBlock` where too many
    /// requests wait.
    pub async fn connect(&self, peer: SocketAddr) -> io::Result<()> {
        let ends = self.ask(RequestKind::Connect(peer)).await?;
        self.note(ends);
        Ok(())
    }

    /// As [`UdpHandle::connect`], blocking the thread for `patience` at most.
    ///
    /// # Errors
    /// As there, and `TimedOut`.
    pub fn connect_blocking(&self, peer: SocketAddr, patience: Duration) -> io::Result<()> {
        let ends = self.ask(RequestKind::Connect(peer)).wait(patience)?;
        self.note(ends);
        Ok(())
    }

    /// Receives from any peer again.
    ///
    /// # Errors
    /// As [`UdpHandle::connect`].
    pub async fn disconnect(&self) -> io::Result<()> {
        let ends = self.ask(RequestKind::Disconnect).await?;
        self.note(ends);
        Ok(())
    }

    /// Gives the socket other settings. `family` never changes, and `v6_only` and `reuse_address`
    /// do not after the bind. If the future is dropped, they may or may not be in force; waiting
    /// readers and writers are served by those that are.
    ///
    /// # Errors
    /// `WouldBlock` where too many requests wait; `BrokenPipe` where the stack has stopped.
    pub async fn set_settings(&self, settings: SocketSettings) -> io::Result<()> {
        let ends = self.ask(RequestKind::Configure(Box::new(settings.clone()))).await?;
        self.noted(settings, ends);
        Ok(())
    }

    fn noted(&self, settings: SocketSettings, ends: RequestAddrs) {
        self.drop_count.store(settings.drop_count, Ordering::Relaxed);
        self.deferred.store(deferred_of(&self.shared, &settings), Ordering::Relaxed);
        let mut facts = lock(&self.facts);
        let old = &facts.settings;
        let fixed = (old.family, old.v6_only, old.reuse_address);
        let (spread_flows, every_port) = (old.spread_flows, old.every_port);
        facts.settings = settings;
        facts.settings.spread_flows = spread_flows;
        facts.settings.every_port = every_port;
        (facts.settings.family, facts.settings.v6_only, facts.settings.reuse_address) = fixed;
        facts.ends = ends;
    }

    /// Joins a group, for all senders or for those that `filter` names.
    ///
    /// # Errors
    /// Not a group, a member already (`AddrInUse`), no such interface (`ENODEV`), too many.
    pub async fn join(
        &self,
        group: IpAddr,
        iface: GroupInterface,
        filter: GroupFilter,
    ) -> io::Result<()> {
        self.ask(RequestKind::Join(group, iface, Box::new(filter))).await.map(|_| ())
    }

    /// Leaves a group.
    ///
    /// # Errors
    /// No member there.
    pub async fn leave(&self, group: IpAddr, iface: GroupInterface) -> io::Result<()> {
        self.ask(RequestKind::Leave(group, iface)).await.map(|_| ())
    }
}

/// Nothing is there.
pub(super) fn would_block<R>() -> io::Result<R> {
    Err(io::ErrorKind::WouldBlock.into())
}

/// An eighth of what a worker allows: a reader writes the worker's account once for so much.
fn deferred_of(shared: &RemoteShared, settings: &SocketSettings) -> u32 {
    let part = settings.receive_bytes / shared.refused.len().max(1) as u64;
    u32::try_from(part / 8).unwrap_or(u32::MAX)
}

fn peek_first(list: &mut PacketList, buffer: &mut [u8]) -> Option<Received> {
    floodwall_udp::copy_datagram(list.iter().next()?, buffer)
}

fn take_first(list: &mut PacketList) -> Option<ReceivedPacket> {
    let mut packet = list.pop_front()?;
    packet.keep_own_charge();
    ReceivedPacket::of(packet)
}

impl Waited for UdpHandle {
    fn poll_ready_by(
        &self,
        direction: WaitDirection,
        register: &mut dyn FnMut(),
    ) -> Poll<io::Result<()>> {
        let Some(slot) = self.slot() else { return Poll::Ready(Ok(())) };
        loop {
            let ready = match direction {
                WaitDirection::Read => self.news(slot, &mut lock(&self.read)).is_some(),
                WaitDirection::Write => self.is_writable(slot),
            };
            if ready {
                return Poll::Ready(Ok(()));
            }
            register();
            let parked = match direction {
                WaitDirection::Read => self.park_reader(),
                WaitDirection::Write => self.park_writer(slot),
            };
            if parked {
                return Poll::Pending;
            }
        }
    }

    fn waiting(&self, direction: WaitDirection) -> (&Waiters, &WakerCell) {
        static NO_WAITER: std::sync::LazyLock<WakerCell> = std::sync::LazyLock::new(WakerCell::new);
        let slot = self.slot();
        match direction {
            WaitDirection::Read => (&self.reading, slot.map_or(&*NO_WAITER, |slot| &slot.reader)),
            WaitDirection::Write => (&self.writing, slot.map_or(&*NO_WAITER, |slot| &slot.writer)),
        }
    }
}

impl Drop for UdpHandle {
    fn drop(&mut self) {
        let Some(slot) = self.slot() else { return };
        slot.rx.set(Bits::GONE);
        drop(lock(&self.read).take());
        let before = slot.tx.set(Bits::DROPPED.and(Bits::QUEUED));
        if !before.has(Bits::QUEUED) {
            // Where the stack has stopped, the slot goes with it.
            let _ = self.shared.ring(self.home, self.id.index);
        }
    }
}

impl core::fmt::Debug for UdpHandle {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("UdpHandle").field("local", &self.local_addr()).finish_non_exhaustive()
    }
}
