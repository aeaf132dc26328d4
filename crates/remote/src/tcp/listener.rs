//! `ListenHandle`: a listener as a program has it, one for all shards.
//!
//! Each shard has a listener of its own behind it and rings for every connection that completes its
//! handshake; the accepting task takes the whole list. Invariants: a connection in the list has no
//! other owner; a connection that a shard completes after the handle was dropped is reset by that
//! shard.

use core::future::Future;
use core::net::SocketAddr;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use floodwall_sync::WakerCell;
use floodwall_sync::lock::Mutex;

use super::listening::Listening;
use super::stream::TcpHandle;
use crate::errno::Errno;
use crate::handle::{lock, would_block};
use crate::request::{PendingRequest, question};
use crate::shared::RemoteShared;
use crate::waiters::{Parker, Readiness, WaitDirection, Waited, Waiters};
use crate::wake::GroupId;

/// An answer that will come: a future, or wait for it ([`AskedListen::wait`]).
#[must_use = "the answer comes here"]
pub struct AskedListen {
    pub(crate) asked: PendingRequest<SocketAddr>,
    pub(crate) made: Option<(Arc<RemoteShared>, Arc<Listening>)>,
}

impl AskedListen {
    fn made(&mut self, local: io::Result<SocketAddr>) -> io::Result<ListenHandle> {
        let local = local?;
        let (shared, listening) = self.made.take().ok_or_else(|| Errno::STOPPED.into_io())?;
        Ok(ListenHandle::new(shared, listening, local))
    }

    /// Blocks the thread until the answer comes, `patience` at most. Not for a worker's thread.
    ///
    /// # Errors
    /// The port cannot be listened on; or no reply came in time (`TimedOut`).
    pub fn wait(mut self, patience: Duration) -> io::Result<ListenHandle> {
        let (_, unused) = question();
        let answer = core::mem::replace(&mut self.asked, unused).wait(patience);
        self.made(answer)
    }
}

impl Future for AskedListen {
    type Output = io::Result<ListenHandle>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = core::task::ready!(Pin::new(&mut self.asked).poll(cx));
        Poll::Ready(self.made(answer))
    }
}

/// The request was abandoned: what may have been opened is closed again.
impl Drop for AskedListen {
    fn drop(&mut self) {
        if let Some((shared, listening)) = self.made.take() {
            let nowhere = SocketAddr::from(([0; 4], 0));
            drop(ListenHandle::new(shared, listening, nowhere));
        }
    }
}

impl core::fmt::Debug for AskedListen {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("AskedListen").finish_non_exhaustive()
    }
}

/// A TCP listener of a program, one for all shards. Dropping it closes the listener on each of
/// them.
pub struct ListenHandle {
    shared: Arc<RemoteShared>,
    listening: Arc<Listening>,
    local: SocketAddr,
    taken: Mutex<VecDeque<u32>>,
    waiting: Waiters,
}

impl ListenHandle {
    pub(crate) fn new(
        shared: Arc<RemoteShared>,
        listening: Arc<Listening>,
        local: SocketAddr,
    ) -> Self {
        let taken = Mutex::new(VecDeque::new());
        Self { shared, listening, local, taken, waiting: Waiters::default() }
    }

    /// Where it listens.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Sets the runtime that the accepting tasks run on. To be called before a poll that may have
    /// to wait.
    #[inline]
    pub fn set_group(&self, group: GroupId) {
        self.listening.group.store(group.0, Ordering::Relaxed);
    }

    /// The next connection's slot.
    fn take(&self) -> Option<u32> {
        let mut taken = lock(&self.taken);
        // Taking the list consumes its wake-up: an empty one is left for a task that sleeps on it.
        if taken.is_empty() && self.listening.finished.has_rung() {
            let slots = &self.shared.tcp.slots;
            let link = |index: u32| slots.get(index as usize).map(|slot| &slot.accept_link);
            taken.extend(self.listening.finished.take(link));
        }
        taken.pop_front()
    }

    /// The next connection; `None`: none is there.
    fn accept(&self) -> Option<io::Result<TcpHandle>> {
        let Some(index) = self.take() else {
            let stopped = self.listening.finished.is_stopped();
            return stopped.then(|| Err(Errno::STOPPED.into_io()));
        };
        let stalled = self.listening.finished.accepted();
        if !stalled.is_empty() {
            let all = 0..self.shared.tcp.desks.len();
            let those = all.filter(|worker| stalled.has(*worker));
            those.for_each(|worker| self.shared.call_desk(worker));
        }
        Some(Ok(TcpHandle::new(Arc::clone(&self.shared), index)))
    }

    /// Takes a connection that is there.
    ///
    /// # Errors
    /// `WouldBlock`; `BrokenPipe` where the stack has stopped.
    pub fn try_accept(&self) -> io::Result<TcpHandle> {
        self.accept().unwrap_or_else(would_block)
    }

    /// As [`ListenHandle::try_accept`], and registers the task where none is there. Of several
    /// tasks that poll, the last one is woken; see [`ListenHandle::ready`].
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<TcpHandle>> {
        loop {
            if let Some(accepted) = self.accept() {
                return Poll::Ready(accepted);
            }
            self.waiting.poll(&self.listening.waker, cx.waker());
            if self.park() {
                return Poll::Pending;
            }
        }
    }

    /// Sleeps; `false`: look again, also where another task has taken the list out meanwhile and
    /// accepted one of it.
    fn park(&self) -> bool {
        let finished = &self.listening.finished;
        finished.park() && !finished.is_stopped() && lock(&self.taken).is_empty()
    }

    /// Waits until a connection may be accepted. Any number may wait.
    #[must_use]
    pub const fn ready(&self) -> Readiness<'_> {
        Readiness::new(self, WaitDirection::Read)
    }

    /// Blocks the thread until a connection is there, `patience` at most.
    ///
    /// # Errors
    /// As [`ListenHandle::try_accept`], and `TimedOut` instead of `WouldBlock`.
    pub fn accept_blocking(&self, patience: Duration) -> io::Result<TcpHandle> {
        Parker::new().block(patience, |cx| self.poll_accept(cx))
    }
}

impl Waited for ListenHandle {
    fn waiting(&self, _direction: WaitDirection) -> (&Waiters, &WakerCell) {
        (&self.waiting, &self.listening.waker)
    }

    fn poll_ready_by(
        &self,
        _direction: WaitDirection,
        register: &mut dyn FnMut(),
    ) -> Poll<io::Result<()>> {
        loop {
            let here = !lock(&self.taken).is_empty();
            let finished = &self.listening.finished;
            if here || finished.has_rung() || finished.is_stopped() {
                return Poll::Ready(Ok(()));
            }
            register();
            if self.park() {
                return Poll::Pending;
            }
        }
    }
}

impl Drop for ListenHandle {
    fn drop(&mut self) {
        self.listening.finished.close();
        // What is finished later is reset by its worker.
        while let Some(index) = self.take() {
            TcpHandle::new(Arc::clone(&self.shared), index).reset();
        }
        let workers = self.shared.tcp.desks.len();
        (0..workers).for_each(|worker| self.shared.call_desk(worker));
    }
}

impl core::fmt::Debug for ListenHandle {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ListenHandle").field("local", &self.local).finish_non_exhaustive()
    }
}
