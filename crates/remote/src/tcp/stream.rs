//! `TcpHandle`: a connection as a program on any thread has it: reading, options, the end.
//!
//! Made by [`Remote::connect_tcp`](crate::Remote::connect_tcp) and by listeners. Shared by
//! reference; each direction has a lock of its own that only the program's threads take, and never
//! while waking a task or ringing a doorbell. Writing: `write.rs`. Errors are the kernel's numbers;
//! received data is read before a reset is reported, and an error is reported once.
//!
//! Invariants: no call keeps a borrow or half a result across `Pending`; the true bytes read are
//! reported to the worker in steps of the size that it sets; the drop is the last access.

use core::net::SocketAddr;
use core::task::{Context, Poll};
use core::time::Duration;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use floodwall_packet::{PacketBuf, PacketList};
use floodwall_sync::WakerCell;
use floodwall_sync::lock::Mutex;
use floodwall_sync::mailbox::Bits;

use super::options::StreamOptions;
use super::slot::{STREAM_OPENED, STREAM_STOPPED, TcpSlot, TcpSlotFacts};
use crate::errno::Errno;
use crate::handle::{lock, would_block};
use crate::shared::RemoteShared;
use crate::waiters::{Parker, Readiness, WaitDirection, Waited, Waiters};
use crate::wake::GroupId;

/// A TCP connection of a program. Dropping it closes the connection.
pub struct TcpHandle {
    pub(super) shared: Arc<RemoteShared>,
    pub(super) index: u32,
    facts: TcpSlotFacts,
    /// What the program has set last.
    options: AtomicU32,
    read: Mutex<ReadHalf>,
    /// Whether our side is closed. One writer at a time.
    pub(super) write: Mutex<bool>,
    /// The drop resets.
    zero_linger: std::sync::atomic::AtomicBool,
    reading: Waiters,
    pub(super) writing: Waiters,
}

/// What was taken and not yet read.
#[derive(Default)]
struct ReadHalf {
    list: PacketList,
    /// True bytes that this call has read.
    consumed: u32,
    /// True bytes read since the worker was called for them.
    uncalled: u32,
}

/// What the read half finds.
enum StreamNews {
    Data,
    End,
    Failed(Errno),
}

impl ReadHalf {
    /// Copies what there is into `out`; how many bytes.
    fn copy(&mut self, out: &mut [u8]) -> usize {
        let mut done = 0;
        while let Some(room) = out.get_mut(done..).filter(|room| !room.is_empty())
            && let Some(mut chunk) = self.list.pop_front()
        {
            let held = chunk.held_size();
            let n = chunk.copy_out(0, room);
            done += n;
            if n < chunk.len() {
                chunk.trim_front(n);
                self.consumed += held.saturating_sub(chunk.held_size());
                self.list.push_front(chunk);
                break;
            }
            self.consumed += held;
        }
        done
    }

    /// Copies what there is, and leaves it.
    fn peek(&self, out: &mut [u8]) -> usize {
        let mut done = 0;
        for chunk in self.list.iter() {
            let Some(room) = out.get_mut(done..).filter(|room| !room.is_empty()) else { break };
            done += chunk.copy_out(0, room);
        }
        done
    }
}

impl TcpHandle {
    /// The handle of a slot that has no other handle.
    pub(crate) fn new(shared: Arc<RemoteShared>, index: u32) -> Self {
        let facts = shared.tcp.facts.get(index as usize).map(|facts| *lock(facts));
        let facts = facts.unwrap_or_default();
        Self {
            shared,
            index,
            facts,
            options: AtomicU32::new(facts.options),
            read: Mutex::new(ReadHalf::default()),
            write: Mutex::new(false),
            zero_linger: false.into(),
            reading: Waiters::default(),
            writing: Waiters::default(),
        }
    }

    #[inline]
    pub(super) fn slot(&self) -> Option<&TcpSlot> {
        self.shared.tcp.slot(self.index)
    }

    /// Our end.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.facts.local
    }

    /// The peer.
    #[must_use]
    pub const fn peer_addr(&self) -> SocketAddr {
        self.facts.peer
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

    /// Takes a pending error.
    #[cold]
    pub(super) fn pending_error(&self) -> Option<Errno> {
        Errno::from_word(self.slot()?.error.swap(0, Ordering::AcqRel))
    }

    /// What there is for a reader. Does not take a pending error.
    #[inline]
    fn news(slot: &TcpSlot, list: &mut PacketList) -> Option<StreamNews> {
        if !list.is_empty() {
            return Some(StreamNews::Data);
        }
        let (taken, bits) = slot.rx.take(Bits::NONE);
        *list = taken;
        if !list.is_empty() {
            return Some(StreamNews::Data);
        }
        if bits.has(Bits::FIN) {
            return Some(StreamNews::End);
        }
        if bits.has(Bits::RESET) {
            let error = Errno::from_word(slot.error.load(Ordering::Acquire));
            // The error was reported already: end of data.
            return Some(error.map_or(StreamNews::End, StreamNews::Failed));
        }
        bits.has(STREAM_STOPPED).then_some(StreamNews::Failed(Errno::STOPPED))
    }

    /// Reads once; `None`: nothing is there.
    #[inline]
    fn read_by<R>(&self, end: R, read: impl FnOnce(&mut ReadHalf) -> R) -> Option<io::Result<R>> {
        let slot = self.slot()?;
        let (done, consumed, calls) = {
            let mut half = lock(&self.read);
            match Self::news(slot, &mut half.list)? {
                StreamNews::Data => {
                    let done = read(&mut half);
                    let consumed = core::mem::take(&mut half.consumed);
                    half.uncalled = half.uncalled.saturating_add(consumed);
                    // The worker is notified in steps, for window updates; whenever it runs, it
                    // finds the sum.
                    let step = slot.read_step.load(Ordering::Relaxed).max(1);
                    let calls = half.uncalled >= step;
                    if calls {
                        half.uncalled = 0;
                    }
                    (Ok(done), consumed, calls)
                }
                StreamNews::End => (Ok(end), 0, false),
                StreamNews::Failed(errno) => {
                    // Another thread, writing, may have taken it meanwhile.
                    let taken = (errno != Errno::STOPPED).then(|| self.pending_error());
                    match taken {
                        Some(None) => (Ok(end), 0, false),
                        Some(Some(errno)) => (Err(errno.into_io()), 0, false),
                        None => (Err(errno.into_io()), 0, false),
                    }
                }
            }
        };
        if consumed > 0 {
            slot.consumed.fetch_add(consumed, Ordering::AcqRel);
        }
        if calls {
            self.call();
        }
        Some(done)
    }

    /// Appends all that has arrived to what was taken before, for callers that peek.
    fn gather(&self) {
        if let Some(slot) = self.slot() {
            let mut half = lock(&self.read);
            half.list.append(&mut slot.rx.take(Bits::NONE).0);
        }
    }

    /// Has the worker look at the slot.
    pub(super) fn call(&self) {
        if let Some(slot) = self.slot()
            && !slot.tx.set(Bits::QUEUED).has(Bits::QUEUED)
        {
            let _ = self.shared.ring_tcp(self.index);
        }
    }

    /// Sets `WAIT` where there is nothing; `false`: look again, also where another reader has taken
    /// a batch out meanwhile and not read all of it.
    fn park_reader(&self) -> bool {
        let news = Bits::FIN.and(Bits::RESET).and(STREAM_STOPPED);
        self.slot().is_some_and(|slot| slot.rx.park(news)) && lock(&self.read).list.is_empty()
    }

    /// Copies what was received into `out`; 0 where the peer has no more, or `out` is empty.
    ///
    /// # Errors
    /// `WouldBlock`; what the connection ended with, once (`ConnectionReset`, `TimedOut`,
    /// `ConnectionAborted`, ...); `BrokenPipe` where the stack has stopped.
    #[inline]
    pub fn try_read(&self, out: &mut [u8]) -> io::Result<usize> {
        self.read_by(0, |half| half.copy(out)).unwrap_or_else(would_block)
    }

    /// As [`TcpHandle::try_read`], into several buffers in turn.
    ///
    /// # Errors
    /// As there.
    pub fn try_read_vectored(&self, outs: &mut [io::IoSliceMut<'_>]) -> io::Result<usize> {
        let copy = |half: &mut ReadHalf| outs.iter_mut().map(|out| half.copy(out)).sum();
        self.read_by(0, copy).unwrap_or_else(would_block)
    }

    /// As [`TcpHandle::try_read`], and leaves it where it is.
    ///
    /// # Errors
    /// As there.
    pub fn try_peek(&self, out: &mut [u8]) -> io::Result<usize> {
        self.gather();
        self.read_by(0, |half| half.peek(out)).unwrap_or_else(would_block)
    }

    /// Hands out the oldest chunk that was received, without a copy; `None` is the peer's end. The
    /// window may open for it at once: how many of them are kept is for the program to bound.
    ///
    /// # Errors
    /// As [`TcpHandle::try_read`].
    pub fn try_read_chunk(&self) -> io::Result<Option<PacketBuf>> {
        let take = |half: &mut ReadHalf| {
            let chunk = half.list.pop_front();
            half.consumed += chunk.as_ref().map_or(0, PacketBuf::held_size);
            chunk
        };
        self.read_by(None, take).unwrap_or_else(would_block)
    }

    /// As [`TcpHandle::try_read`], and registers the task where nothing is there. Of several tasks
    /// that poll, the last one is woken; see [`TcpHandle::ready`].
    #[inline]
    pub fn poll_read(&self, cx: &mut Context<'_>, out: &mut [u8]) -> Poll<io::Result<usize>> {
        self.poll_read_by(cx, || self.read_by(0, |half| half.copy(out)))
    }

    /// As [`TcpHandle::try_peek`], and registers the task where nothing is there.
    pub fn poll_peek(&self, cx: &mut Context<'_>, out: &mut [u8]) -> Poll<io::Result<usize>> {
        self.gather();
        self.poll_read_by(cx, || self.read_by(0, |half| half.peek(out)))
    }

    #[inline]
    fn poll_read_by<R>(
        &self,
        cx: &mut Context<'_>,
        mut read: impl FnMut() -> Option<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        loop {
            if let Some(done) = read() {
                return Poll::Ready(done);
            }
            let (waiters, cell) = self.waiting(WaitDirection::Read);
            waiters.poll(cell, cx.waker());
            if self.park_reader() {
                return Poll::Pending;
            }
        }
    }

    /// Waits for the handshake of a connection that was opened.
    ///
    /// # Errors
    /// `ConnectionRefused`, `TimedOut`, `HostUnreachable`; `BrokenPipe` where the stack has
    /// stopped.
    pub fn poll_opened(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(slot) = self.slot() else { return Poll::Ready(Ok(())) };
        loop {
            if slot.has(STREAM_OPENED) {
                return Poll::Ready(Ok(()));
            }
            if let Some(errno) = self.pending_error() {
                return Poll::Ready(Err(errno.into_io()));
            }
            if self.is_over(slot) {
                return Poll::Ready(Err(Errno::STOPPED.into_io()));
            }
            let (waiters, cell) = self.waiting(WaitDirection::Write);
            waiters.poll(cell, cx.waker());
            if self.park_writer(slot) {
                return Poll::Pending;
            }
        }
    }

    /// As [`TcpHandle::poll_opened`], blocking the thread for `patience` at most.
    ///
    /// # Errors
    /// As there.
    pub fn opened_blocking(&self, patience: Duration) -> io::Result<()> {
        Parker::new().block(patience, |cx| self.poll_opened(cx))
    }

    /// Blocks the thread until something is read, `patience` at most.
    ///
    /// # Errors
    /// As [`TcpHandle::try_read`], and `TimedOut` instead of `WouldBlock`.
    pub fn read_blocking(&self, out: &mut [u8], patience: Duration) -> io::Result<usize> {
        Parker::new().block(patience, |cx| self.poll_read(cx, out))
    }

    /// Takes the pending error, as `SO_ERROR` does.
    #[must_use]
    pub fn take_error(&self) -> Option<io::Error> {
        self.pending_error().map(Errno::into_io)
    }

    /// Whether no more comes from the peer, and whether nothing more can be sent: as epoll reports
    /// the ends of a connection. The peer's end closes reading at once, with data that was not read
    /// yet; writing closes with both ends, or with an error.
    #[must_use]
    pub fn closed(&self) -> (bool, bool) {
        let Some(slot) = self.slot() else { return (true, true) };
        let bits = slot.rx.bits();
        let failed = bits.has(Bits::RESET) || bits.has(STREAM_STOPPED);
        let ended = slot.tx.bits().has(Bits::FIN) || *lock(&self.write);
        let peer_ended = bits.has(Bits::FIN);
        (peer_ended || failed, failed || peer_ended && ended)
    }

    fn options(&self) -> StreamOptions {
        StreamOptions::from_word(self.options.load(Ordering::Relaxed))
    }

    fn set_options(&self, options: StreamOptions) {
        self.options.store(options.word(), Ordering::Relaxed);
        if let Some(slot) = self.slot() {
            slot.options.store(options.word(), Ordering::Release);
            self.call();
        }
    }

    /// Whether small segments leave at once (Nagle's algorithm off).
    #[must_use]
    pub fn nodelay(&self) -> bool {
        self.options().nodelay
    }

    /// Sets it; in force when the worker comes by.
    pub fn set_nodelay(&self, nodelay: bool) {
        self.set_options(StreamOptions { nodelay, ..self.options() });
    }

    /// Whether keepalive is on: an idle peer is probed.
    #[must_use]
    pub fn keepalive(&self) -> bool {
        self.options().keepalive
    }

    /// Sets it; in force when the worker comes by.
    pub fn set_keepalive(&self, keepalive: bool) {
        self.set_options(StreamOptions { keepalive, ..self.options() });
    }

    /// Whether less than a full segment waits for more.
    #[must_use]
    pub fn cork(&self) -> bool {
        self.options().cork
    }

    /// Sets it; in force when the worker comes by.
    pub fn set_cork(&self, cork: bool) {
        self.set_options(StreamOptions { cork, ..self.options() });
    }

    /// The hop limit (time to live) of what is sent; `None` is the interface's.
    #[must_use]
    pub fn hop_limit(&self) -> Option<u8> {
        self.options().hop_limit
    }

    /// Sets it; in force when the worker comes by.
    pub fn set_hop_limit(&self, hop_limit: Option<u8>) {
        self.set_options(StreamOptions { hop_limit, ..self.options() });
    }

    /// The TOS byte or traffic class of what is sent.
    #[must_use]
    pub fn traffic_class(&self) -> u8 {
        self.options().traffic_class
    }

    /// Sets it, but for its two lowest bits; in force when the worker comes by.
    pub fn set_traffic_class(&self, traffic_class: u8) {
        self.set_options(StreamOptions { traffic_class, ..self.options() });
    }

    /// Whether the drop resets the connection instead of closing it in order (linger time zero).
    #[must_use]
    pub fn zero_linger(&self) -> bool {
        self.zero_linger.load(Ordering::Relaxed)
    }

    /// Sets it.
    pub fn set_zero_linger(&self, reset: bool) {
        self.zero_linger.store(reset, Ordering::Relaxed);
    }

    /// Lets go of it by a reset.
    pub fn reset(self) {
        self.set_zero_linger(true);
    }

    /// Waits until the handle may be read from or written to. Any number may wait.
    #[must_use]
    pub const fn ready(&self, direction: WaitDirection) -> Readiness<'_> {
        Readiness::new(self, direction)
    }

    /// As [`TcpHandle::ready`] for one task that polls.
    pub fn poll_ready(
        &self,
        cx: &mut Context<'_>,
        direction: WaitDirection,
    ) -> Poll<io::Result<()>> {
        let (waiters, cell) = self.waiting(direction);
        self.poll_ready_by(direction, &mut || waiters.poll(cell, cx.waker()))
    }
}

impl Waited for TcpHandle {
    fn waiting(&self, direction: WaitDirection) -> (&Waiters, &WakerCell) {
        static NO_WAITER: std::sync::LazyLock<WakerCell> = std::sync::LazyLock::new(WakerCell::new);
        let slot = self.slot();
        match direction {
            WaitDirection::Read => (&self.reading, slot.map_or(&*NO_WAITER, |slot| &slot.reader)),
            WaitDirection::Write => (&self.writing, slot.map_or(&*NO_WAITER, |slot| &slot.writer)),
        }
    }

    fn poll_ready_by(
        &self,
        direction: WaitDirection,
        register: &mut dyn FnMut(),
    ) -> Poll<io::Result<()>> {
        let Some(slot) = self.slot() else { return Poll::Ready(Ok(())) };
        loop {
            let ready = match direction {
                WaitDirection::Read => Self::news(slot, &mut lock(&self.read).list).is_some(),
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
}

impl Drop for TcpHandle {
    fn drop(&mut self) {
        let Some(slot) = self.slot() else { return };
        let unread =
            !lock(&self.read).list.take().is_empty() | !slot.rx.take(Bits::NONE).0.is_empty();
        let reset = unread || self.zero_linger();
        let how = if reset { Bits::RESET } else { Bits::FIN };
        let before = slot.tx.set(Bits::DROPPED.and(Bits::QUEUED).and(how));
        if !before.has(Bits::QUEUED) {
            // Where the stack has stopped, the slot goes with it.
            let _ = self.shared.ring_tcp(self.index);
        }
    }
}

impl core::fmt::Debug for TcpHandle {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let TcpSlotFacts { local, peer, .. } = self.facts;
        let mut debug = f.debug_struct("TcpHandle");
        debug.field("local", &local).field("peer", &peer).finish_non_exhaustive()
    }
}
