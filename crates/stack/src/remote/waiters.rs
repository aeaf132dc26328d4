//! Who waits on a handle: one task by polling, any number by futures, or a blocked thread.
//!
//! The worker knows one waker per direction (the slot's cell). A single waiter stands there itself;
//! where there are more, a fan-out stands there, which wakes them all: each looks again, and who
//! finds nothing waits again. Invariant: the cell is registered only under the list's lock, which
//! no worker takes, except by waking a fan-out of group 0 directly.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Wake;

use floodwall_sync::WakerCell;

use super::handle::UdpHandle;

/// What somebody waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// A datagram or an error.
    Read,
    /// Credit to send at least a small datagram, or an error.
    Write,
}

/// Who waits for one direction of one handle.
#[derive(Default)]
pub(super) struct Waiters(Arc<FanOut>);

#[derive(Default)]
struct FanOut(Mutex<List>);

#[derive(Default)]
struct List {
    /// Who polls: the last one counts, as everywhere.
    polling: Option<Waker>,
    futures: Vec<(u64, Waker)>,
    next: u64,
}

impl FanOut {
    fn lock(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for FanOut {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let (polling, futures) = {
            let mut list = self.lock();
            (list.polling.take(), core::mem::take(&mut list.futures))
        };
        polling.into_iter().for_each(Waker::wake);
        futures.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

impl Waiters {
    /// Registers who polls.
    pub(super) fn poll(&self, cell: &WakerCell, waker: &Waker) {
        let mut list = self.0.lock();
        if list.futures.is_empty() {
            // Alone: nothing between the worker and the task.
            list.polling = None;
            return cell.register(waker);
        }
        list.polling = Some(waker.clone());
        drop(list);
        self.fan_out(cell);
    }

    /// Registers one of several; `key` is its own, and given at the first time.
    fn join(&self, cell: &WakerCell, key: &mut Option<u64>, waker: &Waker) {
        let mut list = self.0.lock();
        let own = *key.get_or_insert_with(|| {
            list.next += 1;
            list.next
        });
        match list.futures.iter_mut().find(|(key, _)| *key == own) {
            Some((_, old)) => old.clone_from(waker),
            None => list.futures.push((own, waker.clone())),
        }
        drop(list);
        self.fan_out(cell);
    }

    /// The cell's lock is the list's: `register` has one caller at a time.
    fn fan_out(&self, cell: &WakerCell) {
        let waker = Waker::from(Arc::clone(&self.0));
        let _list = self.0.lock();
        cell.register(&waker);
    }

    fn leave(&self, key: u64) {
        self.0.lock().futures.retain(|(other, _)| *other != key);
    }
}

/// A handle that will be ready: to be read from or written to. Any number may wait on one handle;
/// all are woken, and who finds nothing waits again. May be dropped at any time.
#[derive(Debug)]
pub struct Ready<'a> {
    handle: &'a UdpHandle,
    direction: Direction,
    key: Option<u64>,
}

impl<'a> Ready<'a> {
    pub(super) const fn new(handle: &'a UdpHandle, direction: Direction) -> Self {
        Self { handle, direction, key: None }
    }

    /// Registers the waker without a look.
    pub(super) fn register(&mut self, waker: &Waker) {
        let (waiters, cell) = self.handle.waiting(self.direction);
        waiters.join(cell, &mut self.key, waker);
    }
}

impl Future for Ready<'_> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (handle, direction) = (self.handle, self.direction);
        handle.poll_ready_by(direction, || self.register(cx.waker()))
    }
}

impl Drop for Ready<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.handle.waiting(self.direction).0.leave(key);
        }
    }
}

/// A thread that blocks until its waker is woken.
#[derive(Default)]
pub(super) struct Parker(Arc<Bell>);

#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    told: Condvar,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.told.notify_one();
    }
}

impl Parker {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.0))
    }

    /// Blocks until the waker is woken, or has been since the last time; `false` where that did not
    /// happen within `patience`.
    pub(super) fn park(&self, patience: Duration) -> bool {
        let rung = self.0.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.0.told.wait_timeout_while(rung, patience, |rung| !*rung);
        let (mut rung, _) = waited.unwrap_or_else(PoisonError::into_inner);
        core::mem::take(&mut *rung)
    }
}
