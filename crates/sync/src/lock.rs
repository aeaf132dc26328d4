//! `lock`: the standard library's `Mutex` and `Condvar`, or a pair that sanitizers see through.
//!
//! Called where something is kept under a lock, always off the packets' path: the remote sockets'
//! handles, the lanes of the packet memory, the adapters of async runtimes. Without
//! `cfg(sanitized)`, which `cargo xtask sanitize` sets and nothing else, each name is `std`'s own.
//!
//! Why: ThreadSanitizer sees only the orders that compiled-in code makes, and the library's
//! contended path, in the library as shipped, is none. Two threads that meet at a lock would be
//! reported as racing. What is here is made of atomics, so that the tool judges what is *under* the
//! locks. It proves nothing about `std`'s own, which it replaces.
//!
//! Invariant (sanitized builds): the lock is held from the swap that found it free (acquire) until
//! the guard's drop stores it free (release); a panic with the lock held poisons it, as `std`'s.
//! Waiting gives the core away and takes no part in fairness: for tests only. Not here: `Once` and
//! its kin, channels, `thread::park`.

pub use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

#[cfg(not(sanitized))]
pub use std::sync::{Condvar, Mutex, MutexGuard};

#[cfg(sanitized)]
pub use self::visible::{Condvar, Mutex, MutexGuard, WaitTimeoutResult};

/// Compiled into tests, too, so that it is tested in every build.
#[cfg(any(sanitized, test))]
pub mod visible;

#[cfg(all(test, not(loom)))]
mod tests {
    use core::time::Duration;
    use std::thread;

    use super::visible::{Condvar, Mutex};
    use super::{PoisonError, TryLockError};

    #[test]
    fn one_at_a_time_is_inside_and_a_panic_there_is_reported() {
        let sum = Mutex::new(0_u64);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..1000).for_each(|_| *sum.lock().unwrap() += 1));
            }
        });
        assert_eq!(*sum.lock().unwrap(), 3000);
        let held = sum.lock().unwrap();
        assert!(matches!(sum.try_lock(), Err(TryLockError::WouldBlock)));
        drop(held);
        thread::scope(|scope| {
            let panics = || {
                let _held = sum.lock();
                panic!("with the lock");
            };
            scope.spawn(panics).join().unwrap_err();
        });
        assert!(matches!(sum.try_lock(), Err(TryLockError::Poisoned(_))));
        assert_eq!(*sum.lock().unwrap_or_else(PoisonError::into_inner), 3000);
    }

    #[test]
    fn one_that_waits_is_told_or_gives_up() {
        let (rung, told) = (Mutex::new(false), Condvar::new());
        let wait = |patience| {
            let guard = rung.lock().unwrap();
            let (guard, gave_up) = told.wait_timeout_while(guard, patience, |r| !*r).unwrap();
            (*guard, gave_up.timed_out())
        };
        assert_eq!(wait(Duration::from_millis(1)), (false, true));
        thread::scope(|scope| {
            let waits = scope.spawn(|| wait(Duration::from_secs(600)));
            *rung.lock().unwrap() = true;
            told.notify_one();
            assert_eq!(waits.join().unwrap(), (true, false));
        });
    }
}
