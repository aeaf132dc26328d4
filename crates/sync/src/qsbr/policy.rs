//! When a worker announces, and how much of a limbo is freed at a time: the seam for the
//! historic ways (decision A4).
//!
//! The default carries the figures that Linux arrived at (`kernel/rcu/tree.c`: `blimit` 10,
//! `qhimark` 10,000, `qlowmark` 100, `rcu_divisor` 7, three milliseconds a pass), because they are
//! what two decades of floods left over.

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
