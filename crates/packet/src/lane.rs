//! `Lane`: memory that any thread of a program may take packets from, one thread at a time.
//!
//! Workers have a home each and stay attached to it. Programs have many threads, which come and go:
//! caches per thread would hold memory back from others, and lose it with the thread. So a program
//! has a few lanes (two a core), each with a home of its own and a lock that only the program's
//! threads ever take; a thread that finds a lane busy tries the next. Called by `stack`'s remote
//! sockets. Invariant: a home is attached to the thread that is inside the lane, and to none in
//! between.
//!
//! What is taken from a lane goes home as all packets do: from wherever it is dropped, by the
//! home's list.
//!
//! # Under flood
//! Reachable by the program's own sends. Bound: the home's share of the region. When it is empty
//! the sender waits; nothing else suffers.

use floodwall_sync::lock::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::pool::Pool;

/// A home for the threads of a program, used by one of them at a time.
pub struct Lane {
    /// Its holder is inside.
    lock: Mutex<()>,
    /// Attached while a thread is inside.
    pool: Pool,
}

// SAFETY: the pool's home is touched only inside of `enter`, by the thread that holds the lock and
// is attached to the home meanwhile; the rest of it is a shared region. When the lane is dropped
// no thread is inside.
unsafe impl Send for Lane {}
// SAFETY: as above.
unsafe impl Sync for Lane {}

/// Leaves the lane, after a panic too.
struct LaneInner<'a> {
    pool: &'a Pool,
    _guard: MutexGuard<'a, ()>,
}

impl Drop for LaneInner<'_> {
    fn drop(&mut self) {
        self.pool.home().leave();
    }
}

impl Lane {
    /// `pool`'s home is reserved.
    pub(crate) fn new(pool: Pool) -> Self {
        Self { lock: Mutex::new(()), pool }
    }

    /// Lets `act` take packets. Waits while another thread is inside; must not be called from
    /// inside of the same lane.
    pub fn enter<R>(&self, act: impl FnOnce(&Pool) -> R) -> R {
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.inside(guard, act)
    }

    /// As [`Lane::enter`] where no thread is inside; else gives `act` back.
    ///
    /// # Errors
    /// Another thread is inside.
    pub fn try_enter<R, F: FnOnce(&Pool) -> R>(&self, act: F) -> Result<R, F> {
        match self.lock.try_lock() {
            Ok(guard) => Ok(self.inside(guard, act)),
            Err(TryLockError::Poisoned(guard)) => Ok(self.inside(guard.into_inner(), act)),
            Err(TryLockError::WouldBlock) => Err(act),
        }
    }

    fn inside<R>(&self, guard: MutexGuard<'_, ()>, act: impl FnOnce(&Pool) -> R) -> R {
        let entered = self.pool.home().enter();
        assert!(entered, "the holder of a lane's lock is alone in it");
        let inside = LaneInner { pool: &self.pool, _guard: guard };
        act(inside.pool)
    }
}

impl core::fmt::Debug for Lane {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Lane")
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::descriptor::Class;
    use crate::pool::{PoolConfig, PoolError, Region};

    fn region(workers: usize) -> std::sync::Arc<Region> {
        let config = PoolConfig { workers, small: 64, frames: 64, ..PoolConfig::default() };
        Region::new(&config).unwrap()
    }

    #[test]
    fn a_lane_keeps_its_home_from_workers_and_gives_it_back() {
        let region = region(2);
        let lane = region.lane().unwrap();
        let worker = region.attach().unwrap();
        assert_eq!(region.attach().unwrap_err(), PoolError::NoHome);
        assert!(region.lane().is_err());
        drop(lane);
        let again = region.attach().unwrap();
        assert_eq!(again.available().frames, worker.available().frames);
    }

    #[test]
    fn packets_taken_by_one_thread_are_freed_on_another_and_come_home() {
        let region = region(1);
        let lane = region.lane().unwrap();
        let all = lane.enter(Pool::available);
        for _ in 0..10 {
            let taken: Vec<_> = std::thread::scope(|scope| {
                let take = || lane.enter(|pool| pool.alloc(Class::Frame).unwrap());
                [scope.spawn(take), scope.spawn(take)].map(|t| t.join().unwrap()).into()
            });
            assert_eq!(lane.enter(Pool::available).frames, all.frames - 2);
            std::thread::scope(|scope| scope.spawn(|| drop(taken)).join().unwrap());
        }
        assert_eq!(lane.enter(Pool::available), all);
    }

    #[test]
    fn one_that_finds_a_lane_busy_is_told_and_a_panic_inside_leaves_it_usable() {
        let region = region(1);
        let lane = region.lane().unwrap();
        let other = lane.enter(|_| {
            std::thread::scope(|s| s.spawn(|| lane.try_enter(|_| ()).is_err()).join().unwrap())
        });
        assert!(other);
        let panicked = std::thread::scope(|scope| {
            scope.spawn(|| lane.enter(|_| panic!("inside"))).join().is_err()
        });
        assert!(panicked);
        assert!(lane.try_enter(|pool| pool.alloc(Class::Small).is_some()).is_ok_and(|had| had));
    }
}
