//! Waiting for readiness and paying for it, as all sockets here do: tokio's `ready` and its polls.
//!
//! Invariants: nothing is kept across `Pending` except a waker registration; the runtime is
//! registered before a wait; one unit of tokio's cooperative budget is used for each success, and
//! none for waiting.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use floodwall_stack::remote::WaitDirection;
use tokio::io::{Interest, Ready};
use tokio::task::coop;

/// Waits until one of the directions of interest is ready; returns which. `name` registers the
/// runtime that is about to wait.
pub(crate) async fn ready(
    interest: Interest,
    read: impl Future<Output = io::Result<()>>,
    write: impl Future<Output = io::Result<()>>,
    name: impl Fn(WaitDirection),
) -> io::Result<Ready> {
    let (mut read, mut write) = (pin!(read), pin!(write));
    poll_fn(|cx| {
        let progress = ready!(coop::poll_proceed(cx));
        let mut found = Ready::EMPTY;
        if interest.is_readable() {
            name(WaitDirection::Read);
            if read.as_mut().poll(cx)?.is_ready() {
                found |= Ready::READABLE;
            }
        }
        if interest.is_writable() {
            name(WaitDirection::Write);
            if write.as_mut().poll(cx)?.is_ready() {
                found |= Ready::WRITABLE;
            }
        }
        if found.is_empty() {
            return Poll::Pending;
        }
        progress.made_progress();
        Poll::Ready(Ok(found))
    })
    .await
}

/// One poll, paid for where it achieves something.
pub(crate) fn paid<R>(
    cx: &mut Context<'_>,
    poll: impl FnOnce(&mut Context<'_>) -> Poll<R>,
) -> Poll<R> {
    let progress = ready!(coop::poll_proceed(cx));
    let done = ready!(poll(cx));
    progress.made_progress();
    Poll::Ready(done)
}

/// One attempt for one unit of the task's budget; `None` where it would block, and then the unit is
/// given back.
pub(crate) fn attempt<R>(
    cx: &mut Context<'_>,
    attempt: impl FnOnce() -> io::Result<R>,
) -> Poll<Option<io::Result<R>>> {
    let progress = ready!(coop::poll_proceed(cx));
    match attempt() {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Ready(None),
        done => {
            progress.made_progress();
            Poll::Ready(Some(done))
        }
    }
}
