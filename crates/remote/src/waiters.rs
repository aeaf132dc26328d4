//! Tasks that wait on a handle: one by polling, any number by futures, or a blocked thread.
//!
//! The worker sees one waker per direction (the slot's cell). A single waiter is registered there
//! itself; where there are more, a fan-out is registered, which wakes them all: each checks again,
//! and waits again if it finds nothing.
//!
//! Invariants: one registrar at a time is at the cell, by a lock that no worker takes; the list's
//! own lock is never held while a waker is registered or woken, for a cell that is taken at that
//! moment wakes the waker being registered: the fan-out itself, which takes the list's lock.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::io;
use std::sync::Arc;
use std::task::Wake;

use floodwall_sync::WakerCell;
use floodwall_sync::lock::{Condvar, Mutex, MutexGuard, PoisonError};

/// The event that a task waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitDirection {
    /// A datagram or an error.
    Read,
    /// Credit to send at least a small datagram, or an error.
    Write,
}

/// The tasks that wait for one direction of one handle.
#[derive(Default)]
pub(super) struct Waiters {
    all: Arc<FanOut>,
    /// Held while a waker is registered at the cell.
    registrar: Mutex<()>,
}

#[derive(Default)]
struct FanOut(Mutex<WaiterList>);

#[derive(Default)]
struct WaiterList {
    /// The task that polls: the last one counts, as is usual for `poll` functions.
    polling: Option<Waker>,
    futures: Vec<(u64, Waker)>,
    next: u64,
}

impl FanOut {
    fn lock(&self) -> MutexGuard<'_, WaiterList> {
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
    /// Registers the polling task.
    pub(super) fn poll(&self, cell: &WakerCell, waker: &Waker) {
        let _registrar = self.registrar();
        let is_alone = {
            let mut list = self.all.lock();
            // Also for a task that joins later, and takes the cell over.
            match &mut list.polling {
                Some(old) => old.clone_from(waker),
                none => *none = Some(waker.clone()),
            }
            list.futures.is_empty()
        };
        match is_alone {
            // Nothing between the worker and the task.
            true => cell.register(waker),
            false => cell.register(&self.fan_out()),
        }
    }

    /// Registers one of several; `key` is its own, and given at the first time.
    fn join(&self, cell: &WakerCell, key: &mut Option<u64>, waker: &Waker) {
        let _registrar = self.registrar();
        {
            let mut list = self.all.lock();
            let own = *key.get_or_insert_with(|| {
                list.next += 1;
                list.next
            });
            match list.futures.iter_mut().find(|(key, _)| *key == own) {
                Some((_, old)) => old.clone_from(waker),
                None => list.futures.push((own, waker.clone())),
            }
        }
        cell.register(&self.fan_out());
    }

    fn registrar(&self) -> MutexGuard<'_, ()> {
        self.registrar.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fan_out(&self) -> Waker {
        Waker::from(Arc::clone(&self.all))
    }

    fn leave(&self, key: u64) {
        self.all.lock().futures.retain(|(other, _)| *other != key);
    }
}

/// What can be waited for: a handle of any kind.
pub(super) trait Waited: Send + Sync {
    /// The waiters of a direction, and the cell that the worker wakes.
    fn waiting(&self, direction: WaitDirection) -> (&Waiters, &WakerCell);

    /// Whether it is ready, or `register` and sleep. An error is news of either direction, and is
    /// left for the call that follows.
    fn poll_ready_by(
        &self,
        direction: WaitDirection,
        register: &mut dyn FnMut(),
    ) -> Poll<io::Result<()>>;
}

/// A handle that will be ready: to be read from or written to. Any number of tasks may wait on one
/// handle; all are woken, and wait again if they find nothing. May be dropped at any time.
pub struct Readiness<'a> {
    handle: &'a dyn Waited,
    direction: WaitDirection,
    key: Option<u64>,
}

impl<'a> Readiness<'a> {
    pub(super) const fn new(handle: &'a dyn Waited, direction: WaitDirection) -> Self {
        Self { handle, direction, key: None }
    }

    /// Registers the waker without a look.
    pub(super) fn register(&mut self, waker: &Waker) {
        let (waiters, cell) = self.handle.waiting(self.direction);
        waiters.join(cell, &mut self.key, waker);
    }
}

impl Future for Readiness<'_> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (handle, direction) = (self.handle, self.direction);
        handle.poll_ready_by(direction, &mut || self.register(cx.waker()))
    }
}

impl core::fmt::Debug for Readiness<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Ready").field("direction", &self.direction).finish_non_exhaustive()
    }
}

impl Drop for Readiness<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.handle.waiting(self.direction).0.leave(key);
        }
    }
}

/// A thread that blocks until its waker is woken.
#[derive(Default)]
pub(super) struct Parker(Arc<WaiterBell>);

#[derive(Default)]
struct WaiterBell {
    rung: Mutex<bool>,
    told: Condvar,
}

impl Wake for WaiterBell {
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

    /// Polls until it is ready, sleeping in between, `patience` at most each time.
    pub(super) fn block<R>(
        &self,
        patience: Duration,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<io::Result<R>>,
    ) -> io::Result<R> {
        let waker = self.waker();
        let mut cx = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(done) = poll(&mut cx) {
                return done;
            }
            if !self.park(patience) {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
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

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "what is tested is how threads meet")]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// Counts how often it was woken.
    #[derive(Default)]
    struct WaiterCount(AtomicU64);

    impl Wake for WaiterCount {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn one_that_registers_while_the_worker_wakes_is_woken_and_nothing_waits_for_ever() {
        const TURNS: usize = 20_000;
        let (done, is_done) = mpsc::channel();
        thread::spawn(move || {
            let (waiters, cell) = (Waiters::default(), WakerCell::new());
            let over = AtomicBool::new(false);
            thread::scope(|scope| {
                let waking = scope.spawn(|| {
                    while !over.load(Ordering::Acquire) {
                        if let Some(waker) = cell.take() {
                            waker.wake();
                        }
                    }
                });
                let joining: Vec<_> = (0..2)
                    .map(|_| {
                        scope.spawn(|| {
                            let waker = Waker::from(Arc::new(WaiterCount::default()));
                            let mut key = None;
                            (0..TURNS).for_each(|_| waiters.join(&cell, &mut key, &waker));
                            waiters.leave(key.unwrap());
                        })
                    })
                    .collect();
                joining.into_iter().for_each(|thread| thread.join().unwrap());
                over.store(true, Ordering::Release);
                waking.join().unwrap();
            });
            done.send(()).unwrap();
        });
        // No measure of speed: it takes a fraction of a second, or never ends.
        is_done.recv_timeout(Duration::from_secs(300)).expect("they wait for each other");
    }

    /// A handle that is never ready.
    #[derive(Default)]
    struct Silent(Waiters, WakerCell);

    impl Waited for Silent {
        fn waiting(&self, _: WaitDirection) -> (&Waiters, &WakerCell) {
            (&self.0, &self.1)
        }

        fn poll_ready_by(
            &self,
            _: WaitDirection,
            register: &mut dyn FnMut(),
        ) -> Poll<io::Result<()>> {
            register();
            Poll::Pending
        }
    }

    #[test]
    fn waits_that_are_dropped_leave_no_waker_behind() {
        let (handle, count) = (Silent::default(), Arc::new(WaiterCount::default()));
        let waker = Waker::from(Arc::clone(&count));
        let mut cx = Context::from_waker(&waker);
        for _ in 0..1000 {
            let mut wait = Readiness::new(&handle, WaitDirection::Read);
            assert!(Pin::new(&mut wait).poll(&mut cx).is_pending());
        }
        assert!(handle.0.all.lock().futures.is_empty());
        let mut stays = Readiness::new(&handle, WaitDirection::Read);
        assert!(Pin::new(&mut stays).poll(&mut cx).is_pending());
        handle.1.take().expect("a waker is registered").wake();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn one_that_polls_is_woken_too_where_another_takes_the_cell_over() {
        let (waiters, cell) = (Waiters::default(), WakerCell::new());
        let counts = [Arc::new(WaiterCount::default()), Arc::new(WaiterCount::default())];
        let wakers = counts.clone().map(Waker::from);
        let mut key = None;
        for round in 1..=2 {
            waiters.poll(&cell, &wakers[0]);
            waiters.join(&cell, &mut key, &wakers[1]);
            cell.take().expect("a waker is registered").wake();
            let woken = counts.clone().map(|count| count.0.load(Ordering::Relaxed));
            assert_eq!(woken, [round, round]);
        }
        waiters.leave(key.unwrap());
    }
}
