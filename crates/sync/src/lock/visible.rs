//! A `Mutex` and a `Condvar` of atomics: what `cargo xtask sanitize` builds instead of `std`'s.
//!
//! Called through `lock` in sanitized builds, and by its tests. Only what is called here of `std`'s
//! interface exists; invariants stand in `lock.rs`. Not here: fairness, parking.

#![expect(clippy::disallowed_methods, reason = "only programs wait here, as behind std's")]

use core::cell::UnsafeCell;
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};
use core::time::Duration;
use std::thread;

use super::{LockResult, PoisonError, TryLockError, TryLockResult};

/// As `std`'s.
#[derive(Default)]
pub struct Mutex<T> {
    taken: AtomicBool,
    poisoned: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by the holder of the lock, one thread at a time.
unsafe impl<T: Send> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Mutex<T> {}

/// As `std`'s.
#[must_use]
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    /// Whether a panic was on its way already.
    panicking: bool,
    /// Stays on its thread.
    _stays: core::marker::PhantomData<*const ()>,
}

// SAFETY: through a shared guard only `&T` is reached.
unsafe impl<T: Sync> Sync for MutexGuard<'_, T> {}

impl<T> Mutex<T> {
    /// As `std`'s.
    pub const fn new(value: T) -> Self {
        Self {
            taken: AtomicBool::new(false),
            poisoned: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// As `std`'s.
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        while self.taken.swap(true, Acquire) {
            thread::yield_now();
        }
        self.guard()
    }

    /// As `std`'s.
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        match self.taken.swap(true, Acquire) {
            true => Err(TryLockError::WouldBlock),
            false => self.guard().map_err(TryLockError::Poisoned),
        }
    }

    /// As `std`'s.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        let poisoned = *self.poisoned.get_mut();
        let value = self.value.get_mut();
        if poisoned { Err(PoisonError::new(value)) } else { Ok(value) }
    }

    /// As `std`'s.
    pub fn into_inner(self) -> LockResult<T> {
        let poisoned = self.poisoned.into_inner();
        let value = self.value.into_inner();
        if poisoned { Err(PoisonError::new(value)) } else { Ok(value) }
    }

    /// A guard for the thread that has just locked it.
    fn guard(&self) -> LockResult<MutexGuard<'_, T>> {
        let (panicking, _stays) = (thread::panicking(), core::marker::PhantomData);
        let guard = MutexGuard { mutex: self, panicking, _stays };
        match self.poisoned.load(Relaxed) {
            true => Err(PoisonError::new(guard)),
            false => Ok(guard),
        }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: a guard holds the lock, so no other thread reaches the value.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed uniquely.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        if !self.panicking && thread::panicking() {
            self.mutex.poisoned.store(true, Relaxed);
        }
        self.mutex.taken.store(false, Release);
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex")
    }
}

impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// As `std`'s, but every call notifies all waiters.
#[derive(Debug, Default)]
pub struct Condvar {
    calls: AtomicU32,
}

/// As `std`'s.
#[derive(Clone, Copy, Debug)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// As `std`'s.
    #[must_use]
    pub const fn timed_out(&self) -> bool {
        self.0
    }
}

/// Between two looks.
const LOOK_NAP: Duration = Duration::from_micros(50);

impl Condvar {
    /// As `std`'s.
    #[must_use]
    pub const fn new() -> Self {
        Self { calls: AtomicU32::new(0) }
    }

    /// As `std`'s.
    pub fn notify_one(&self) {
        self.notify_all();
    }

    /// As `std`'s.
    pub fn notify_all(&self) {
        self.calls.fetch_add(1, Release);
    }

    /// As `std`'s.
    pub fn wait_timeout_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        patience: Duration,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let mut left = patience;
        while condition(&mut guard) {
            if left.is_zero() {
                return Ok((guard, WaitTimeoutResult(true)));
            }
            // Read with the lock: a call that comes after it is seen below.
            let calls = self.calls.load(Acquire);
            let mutex = guard.mutex;
            drop(guard);
            while self.calls.load(Acquire) == calls && !left.is_zero() {
                thread::sleep(LOOK_NAP);
                left = left.saturating_sub(LOOK_NAP);
            }
            guard = mutex.lock().unwrap_or_else(PoisonError::into_inner);
        }
        Ok((guard, WaitTimeoutResult(false)))
    }
}
