//! One task in each runtime that wakes that runtime's tasks from inside.
//!
//! A worker leaves a round's wakers in the runtime's wake group and wakes one task, the driver. The
//! driver wakes the others from inside of the runtime, which costs a hundredth and puts them into
//! the same queue as all other tasks (`docs/design/ownership.md`). On a runtime of several threads
//! it wakes [`POLL_WAKES`] a poll: a thread's own queue holds 256, and the overflow goes to the
//! back of the global queue.
//!
//! A second duty, where workers and tasks share a core: a worker that sleeps is not woken at once,
//! which would take the core from every task that is ready, but by the driver, once all of them
//! have run.
//!
//! Called by the sockets whenever one has to wait: found by the runtime's id, spawned at the first
//! time. Invariants: a driver ends with its runtime, and then its group is closed (workers wake
//! tasks directly) and no wake-up of a worker is lost; it ends with its network, too; a worker
//! never takes a lock of this file.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Wake, Waker};

use floodwall_base::WorkerId;
use floodwall_stack::remote::{GroupId, Remote, RuntimeGroup};
use floodwall_sync::lock::{Mutex, MutexGuard, PoisonError};
use tokio::runtime::{Handle, Id, RuntimeFlavor};
use tokio::task::AbortHandle;

/// Tasks that a driver wakes a poll, on a runtime of several threads.
const POLL_WAKES: usize = 100;
/// The same on a runtime of one thread, which has an unbounded queue.
const MOST_OF_ONE: usize = 4096;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The drivers of one network.
pub(crate) struct Drivers {
    remote: Remote,
    /// Distinguishes networks in [`LAST`].
    number: u64,
    /// Changes when a driver ends: a thread's cached entry is stale then.
    epoch: AtomicU64,
    of: Mutex<HashMap<Id, DriverEntry>>,
    /// How each worker is woken.
    bells: Box<[OnceLock<Waker>]>,
    /// Whether drivers wake the workers.
    shares_core: bool,
}

struct DriverEntry {
    seat: Arc<DriverSeat>,
    task: Option<AbortHandle>,
}

/// What a driver shares with its runtime's tasks.
struct DriverSeat {
    group: GroupId,
    /// Workers to wake, as bits.
    workers: AtomicU64,
    /// The driver has ended.
    dead: AtomicBool,
    /// The driver itself.
    waker: Mutex<Option<Waker>>,
}

/// What a thread found last: most threads belong to one runtime and one network.
struct FoundDriver {
    number: u64,
    epoch: u64,
    runtime: Id,
    seat: Arc<DriverSeat>,
}

thread_local! {
    static LAST: RefCell<Option<FoundDriver>> = const { RefCell::new(None) };
}

impl Drivers {
    /// For a network of so many workers. With `shares_core`, workers are woken by drivers.
    pub(crate) fn new(remote: Remote, workers: usize, shares_core: bool) -> Arc<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        Arc::new(Self {
            remote,
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            epoch: AtomicU64::new(0),
            of: Mutex::new(HashMap::new()),
            bells: (0..workers).map(|_| OnceLock::new()).collect(),
            shares_core,
        })
    }

    /// Sets how a worker is woken, before it sleeps for the first time; a restarted one is woken
    /// the same way.
    pub(crate) fn set_bell(self: &Arc<Self>, worker: WorkerId, bell: Waker) {
        let index = usize::from(worker.0);
        let Some(slot) = self.bells.get(index) else { return };
        let _ = slot.set(bell.clone());
        let alarm = match self.shares_core && index < u64::BITS as usize {
            true => {
                Waker::from(Arc::new(DeferredWake { drivers: Arc::downgrade(self), index, bell }))
            }
            false => bell,
        };
        self.remote.set_alarm(worker, alarm);
    }

    /// The wake group of the runtime that the caller runs in: a look into the thread's own memory,
    /// but for the first time. No runtime, or too many of them: woken one by one.
    pub(crate) fn group(self: &Arc<Self>) -> GroupId {
        self.seat().map_or(GroupId::DIRECT, |seat| seat.group)
    }

    fn seat(self: &Arc<Self>) -> Option<Arc<DriverSeat>> {
        let runtime = Handle::try_current().ok()?;
        let key = (self.number, self.epoch.load(Ordering::Acquire), runtime.id());
        let known = LAST.with_borrow(|last| {
            let found = last.as_ref().filter(|f| (f.number, f.epoch, f.runtime) == key)?;
            Some(Arc::clone(&found.seat))
        });
        known.or_else(|| {
            let seat = self.find(&runtime)?;
            let (number, epoch, runtime) = key;
            LAST.set(Some(FoundDriver { number, epoch, runtime, seat: Arc::clone(&seat) }));
            Some(seat)
        })
    }

    /// Finds the runtime's driver, or spawns it.
    #[cold]
    fn find(self: &Arc<Self>, runtime: &Handle) -> Option<Arc<DriverSeat>> {
        let id = runtime.id();
        let (group, seat) = {
            let mut of = lock(&self.of);
            if let Some(entry) = of.get(&id) {
                return Some(Arc::clone(&entry.seat));
            }
            let group = self.remote.runtime_group();
            if group.id() == GroupId::DIRECT && !self.shares_core {
                return None;
            }
            let seat = Arc::new(DriverSeat {
                group: group.id(),
                workers: AtomicU64::new(0),
                dead: AtomicBool::new(false),
                waker: Mutex::new(None),
            });
            of.insert(id, DriverEntry { seat: Arc::clone(&seat), task: None });
            (group, seat)
        };
        let one = runtime.runtime_flavor() == RuntimeFlavor::CurrentThread;
        // Not under the lock: a runtime that ends drops the task at once.
        let task = runtime.spawn(Driver {
            group,
            seat: Arc::clone(&seat),
            drivers: Arc::downgrade(self),
            runtime: id,
            most: if one { MOST_OF_ONE } else { POLL_WAKES },
            yielded: false,
        });
        if let Some(entry) = lock(&self.of).get_mut(&id) {
            entry.task = Some(task.abort_handle());
        }
        Some(seat)
    }

    /// Wakes the workers that were requested.
    fn wake_workers(&self, seat: &DriverSeat) {
        let mut left = seat.workers.swap(0, Ordering::SeqCst);
        while left != 0 {
            let index = left.trailing_zeros() as usize;
            left &= left - 1;
            if let Some(bell) = self.bells.get(index).and_then(OnceLock::get) {
                bell.wake_by_ref();
            }
        }
    }
}

impl Drop for Drivers {
    fn drop(&mut self) {
        let of = std::mem::take(self.of.get_mut().unwrap_or_else(PoisonError::into_inner));
        for DriverEntry { task, .. } in of.into_values() {
            if let Some(task) = task {
                task.abort();
            }
        }
    }
}

/// A worker's alarm where the worker shares its core with tasks.
struct DeferredWake {
    drivers: Weak<Drivers>,
    index: usize,
    bell: Waker,
}

impl Wake for DeferredWake {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let drivers = self.drivers.upgrade();
        let seat = drivers.as_ref().and_then(Drivers::seat);
        let (Some(drivers), Some(seat)) = (drivers, seat) else {
            // No task: a thread that will not yield.
            return self.bell.wake_by_ref();
        };
        let driver = match seat.workers.fetch_or(1 << self.index, Ordering::SeqCst) {
            0 => lock(&seat.waker).take(),
            // The driver has been woken.
            _ => None,
        };
        if let Some(driver) = driver {
            driver.wake();
        }
        if seat.dead.load(Ordering::SeqCst) {
            drivers.wake_workers(&seat);
        }
    }
}

/// The task.
struct Driver {
    group: RuntimeGroup,
    seat: Arc<DriverSeat>,
    drivers: Weak<Drivers>,
    runtime: Id,
    most: usize,
    /// Every task that was ready has run since workers were to be woken.
    yielded: bool,
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(drivers) = self.drivers.upgrade() else { return Poll::Ready(()) };
        let mut again = false;
        if drivers.shares_core {
            *lock(&self.seat.waker) = Some(cx.waker().clone());
            let asked = self.seat.workers.load(Ordering::SeqCst) != 0;
            if asked && self.yielded {
                drivers.wake_workers(&self.seat);
            }
            // The first poll may come before other tasks that are ready.
            self.yielded = asked && !self.yielded;
            again = self.yielded;
        }
        again |= self.group.poll_drive(cx, self.most).is_ready();
        if again {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.seat.dead.store(true, Ordering::SeqCst);
        let Some(drivers) = self.drivers.upgrade() else { return };
        lock(&drivers.of).remove(&self.runtime);
        drivers.epoch.fetch_add(1, Ordering::AcqRel);
        drivers.wake_workers(&self.seat);
    }
}
