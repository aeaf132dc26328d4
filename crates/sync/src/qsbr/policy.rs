//! When a worker announces, and how much of a limbo is freed at a time: the seam for the
//! historic ways (decision A4).
//!
//! Called by readers at each [`Moment`] and by limbos at each pass. Invariant: no policy can make
//! memory unsafe, only late or slow. The default carries the figures that Linux arrived at
//! (`kernel/rcu/tree.c`, `tree_nocb.h`), because they are what two decades of floods left over:
//!
//! | Linux | here | what it does |
//! |---|---|---|
//! | `blimit` 10 | [`Paced::BATCH`] | objects that an ordinary pass frees |
//! | `qhimark` 10,000 | [`Paced::HIGH_WATER`] | more waiting: passes of up to 10,000 |
//! | `qlowmark` 100 | [`Paced::LOW_WATER`] | fewer waiting: ordinary passes again |
//! | `rcu_divisor` 7 | [`Paced::DIVISOR_BITS`] | a pass frees a 128th of what waits at least |
//! | `rcu_resched_ns` 3 ms | [`Paced::PASS_MAX`] | the longest pass |
//! | `qovld` 20,000 | [`Paced::CHASE`] | more waiting: slow workers are requested to pause |
//! | lazy flush at 100, 10 s | [`Paced::LAZY_FLUSH`] | when lazy objects are waited for after all |

use core::time::Duration;

/// Where in its loop a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A burst of packets has been handled.
    RoundEnd,
    /// A slice of timed work or of an application is over.
    SliceEnd,
    /// Nothing is left to do.
    Idle,
}

/// How a domain reclaims. Plain data, copied to every reader and limbo.
pub trait Policy: Copy + Send + Sync + 'static {
    /// Whether the worker announces a quiescent state at this moment.
    fn announces(&self, moment: Moment) -> bool;

    /// How many of `pending` objects one pass frees at most. `hurried` is the limbo's memory
    /// between passes: whether the last one was in a hurry.
    fn batch(&self, pending: usize, hurried: &mut bool) -> usize;

    /// How long one pass lasts at most.
    fn pass_max(&self) -> Duration;

    /// Whether workers that hold up so many waiting objects are requested to pause early.
    fn chases(&self, pending: usize) -> bool {
        pending > Paced::CHASE
    }

    /// Whether `lazy` objects that are not urgent, the oldest of this age, are to be waited for.
    fn flushes(&self, lazy: usize, age: Duration) -> bool {
        lazy >= Paced::LAZY_FLUSH || age >= Paced::LAZY_AGE_MAX
    }
}

/// Announces at every moment, frees in small batches, and in large ones when much is waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paced;

impl Paced {
    /// Objects freed in an ordinary pass.
    pub const BATCH: usize = 10;
    /// Waiting objects above which passes hurry.
    pub const HIGH_WATER: usize = 10_000;
    /// Waiting objects below which they no longer do.
    pub const LOW_WATER: usize = 100;
    /// Objects freed in a hurried pass.
    pub const BATCH_HURRIED: usize = 10_000;
    /// At least one waiting object in 2^7 is freed in a pass.
    pub const DIVISOR_BITS: u32 = 7;
    /// The longest pass.
    pub const PASS_MAX: Duration = Duration::from_millis(3);
    /// Waiting objects above which workers that have not paused are requested to.
    pub const CHASE: usize = 2 * Self::HIGH_WATER;
    /// Lazily retired objects that are worth a grace period of their own.
    pub const LAZY_FLUSH: usize = 100;
    /// The age at which fewer of them are worth it, too.
    pub const LAZY_AGE_MAX: Duration = Duration::from_secs(10);
    /// A worker that has not paused for so long is stuck: twenty times the longest run that the
    /// balance between packets and application allows (1 ms).
    pub const STALL_AFTER: Duration = Duration::from_millis(20);
}

impl Policy for Paced {
    #[inline]
    fn announces(&self, _: Moment) -> bool {
        true
    }

    fn batch(&self, pending: usize, hurried: &mut bool) -> usize {
        if pending > Self::HIGH_WATER {
            *hurried = true;
        } else if pending < Self::LOW_WATER {
            *hurried = false;
        }
        if *hurried {
            return Self::BATCH_HURRIED;
        }
        Self::BATCH.max(pending >> Self::DIVISOR_BITS)
    }

    fn pass_max(&self) -> Duration {
        Self::PASS_MAX
    }
}
