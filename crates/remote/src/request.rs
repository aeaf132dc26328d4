//! Requests of a program to the control shard, and their replies.
//!
//! Requests wait in a bounded queue; each has a reply that is sent when it is dropped: with the
//! decision, or with the error that the stack has stopped. So no program waits for ever, regardless
//! of what happens to the request. A reply that commands carry along is dropped when the last shard
//! has carried the command out.

use core::future::Future;
use core::net::SocketAddr;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

use floodwall_sync::WakerCell;
use floodwall_sync::lock::{Mutex, PoisonError};
use floodwall_udp::{GroupFilter, GroupInterface, SocketSettings};

use super::errno::Errno;
use super::handle::UdpHandle;
use super::slot::SlotId;
use super::waiters::Parker;

/// A request of a program to the control shard about a UDP socket.
pub enum SocketRequest {
    /// To open a socket.
    Bind {
        /// Where.
        local: SocketAddr,
        /// Its settings.
        settings: Box<SocketSettings>,
        /// Answers when every shard has it.
        reply: Reply<UdpHandle>,
    },
    /// To change one.
    Ask {
        /// Which.
        slot: SlotId,
        /// The change.
        what: RequestKind,
        /// Answers with the ends that it has then.
        reply: Reply<RequestAddrs>,
    },
    /// A program has dropped a socket, and all that it sent has left.
    Close {
        /// Which.
        slot: SlotId,
    },
}

impl SocketRequest {
    /// Answers that it will not be carried out.
    pub(super) fn refuse(self, errno: Errno) {
        match self {
            Self::Bind { reply, .. } => reply.set(Err(errno)),
            Self::Ask { reply, .. } => reply.set(Err(errno)),
            Self::Close { .. } => {}
        }
    }
}

/// An operation on an open socket.
pub enum RequestKind {
    /// To receive from this peer only.
    Connect(SocketAddr),
    /// To receive from any peer again.
    Disconnect,
    /// To have other settings.
    Configure(Box<SocketSettings>),
    /// To join a group, and receive from these sources in it.
    Join(core::net::IpAddr, GroupInterface, Box<GroupFilter>),
    /// To leave a group.
    Leave(core::net::IpAddr, GroupInterface),
}

/// A socket's ends after a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestAddrs {
    /// Ours.
    pub local: SocketAddr,
    /// The peer's, if it is connected.
    pub peer: Option<SocketAddr>,
}

/// The sending side of a reply.
pub struct Reply<T> {
    answer: SyncSender<io::Result<T>>,
    waker: Arc<WakerCell>,
    value: Mutex<Option<io::Result<T>>>,
}

impl<T> Reply<T> {
    /// Sets the value that is sent when the last owner drops the reply. No other thread reads it
    /// then.
    pub fn set(&self, value: Result<T, Errno>) {
        let value = Some(value.map_err(Errno::into_io));
        *self.value.lock().unwrap_or_else(PoisonError::into_inner) = value;
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        let value = self.value.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // The requester may have gone: then the reply is discarded.
        let _ = self.answer.try_send(value.unwrap_or_else(|| Err(Errno::STOPPED.into_io())));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// A pending reply: a future, or wait for it ([`PendingRequest::wait`]).
#[must_use = "the answer comes here"]
#[derive(Debug)]
pub struct PendingRequest<T> {
    answer: Receiver<io::Result<T>>,
    waker: Arc<WakerCell>,
}

/// Both ends of one answer.
pub(super) fn question<T>() -> (Reply<T>, PendingRequest<T>) {
    let (sender, answer) = sync_channel(1);
    let waker = Arc::new(WakerCell::new());
    let reply = Reply { answer: sender, waker: Arc::clone(&waker), value: Mutex::new(None) };
    (reply, PendingRequest { answer, waker })
}

impl<T> PendingRequest<T> {
    /// The answer, where it has come.
    fn look(&self) -> Option<io::Result<T>> {
        match self.answer.try_recv() {
            Ok(answer) => Some(answer),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(Errno::STOPPED.into_io())),
        }
    }

    /// Blocks the thread until the answer comes, `patience` at most. Not for a worker's thread.
    ///
    /// # Errors
    /// The request failed; or no reply came in time (`TimedOut`), and then it may still be carried
    /// out: a socket that is bound too late is closed again.
    pub fn wait(self, patience: Duration) -> io::Result<T> {
        let parker = Parker::new();
        self.waker.register(&parker.waker());
        loop {
            if let Some(answer) = self.look() {
                return answer;
            }
            if !parker.park(patience) {
                return self.look().unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()));
            }
            self.waker.register(&parker.waker());
        }
    }

    fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }
}

impl<T> Future for PendingRequest<T> {
    type Output = io::Result<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(answer) = self.look() {
            return Poll::Ready(answer);
        }
        self.register(cx.waker());
        self.look().map_or(Poll::Pending, Poll::Ready)
    }
}
