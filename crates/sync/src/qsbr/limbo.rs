//! Where unlinked objects wait for their grace period: bounded, in order, freed in small steps.
//!
//! Called by the one writer of a table. Invariants: at most [`Caps`] objects and bytes wait, and
//! room is asked for *before* anything is unlinked, so that a refusal changes nothing; objects
//! leave in the order in which they came, none before every worker has paused. See `qsbr.rs`.

use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;

use floodwall_base::Instant;
use thiserror::Error;

use super::{Paced, Policy, Shared};
use crate::shim::Arc;

/// Objects after which a pass looks at the clock again.
const CLOCK_EVERY: usize = 32;

/// How much may wait at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Objects.
    pub items: usize,
    /// Their bytes together, as the retirer states them.
    pub bytes: usize,
}

/// The limbo is at its cap; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{items} objects of {bytes} bytes wait for their grace period: as many as may")]
pub struct Refused {
    /// Objects that wait.
    pub items: usize,
    /// Their bytes.
    pub bytes: usize,
}

/// What a limbo has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimboStats {
    /// Objects that wait.
    pub items: usize,
    /// Their bytes.
    pub bytes: usize,
    /// The most objects that ever waited.
    pub items_max: usize,
    /// The most bytes that ever waited.
    pub bytes_max: usize,
    /// Objects that were freed.
    pub freed: u64,
    /// Changes that were refused at the cap.
    pub refused: u64,
    /// From retiring to freeing, of the object freed last.
    pub grace_last: Duration,
    /// The longest of these.
    pub grace_max: Duration,
}

struct Waiting<T> {
    value: T,
    epoch: u64,
    bytes: usize,
    since: Instant,
}

/// See the file's head. Dropped while workers are online, it leaves its objects to the domain,
/// which frees them when it ends itself.
pub struct Limbo<T: Send + 'static, P: Policy = Paced> {
    shared: Arc<Shared>,
    policy: P,
    caps: Caps,
    waiting: VecDeque<Waiting<T>>,
    hurried: bool,
    stats: LimboStats,
}

impl<T: Send + 'static, P: Policy> Limbo<T, P> {
    pub(super) fn new(shared: Arc<Shared>, policy: P, caps: Caps) -> Self {
        let waiting = VecDeque::with_capacity(caps.items);
        Self { shared, policy, caps, waiting, hurried: false, stats: LimboStats::default() }
    }

    /// Room for one object of so many bytes. Constant cost.
    ///
    /// # Errors
    /// The limbo is at its cap: the change that would fill it must not be made.
    pub fn reserve(&mut self, bytes: usize) -> Result<Slot<'_, T, P>, Refused> {
        let fits = self.stats.bytes.checked_add(bytes).is_some_and(|sum| sum <= self.caps.bytes);
        if self.waiting.len() >= self.caps.items || !fits {
            self.stats.refused += 1;
            return Err(Refused { items: self.stats.items, bytes: self.stats.bytes });
        }
        Ok(Slot { limbo: self, bytes })
    }

    /// How many more objects may wait.
    #[must_use]
    pub fn room(&self) -> usize {
        self.caps.items - self.waiting.len()
    }

    /// Frees what may be freed, as much as the policy grants in one pass: each object goes to
    /// `free`. `clock` is read now and then; a constant one leaves only the count to end the pass.
    /// Returns how many were freed. Cost: a load a worker, and what `free` does.
    pub fn reclaim(
        &mut self,
        mut clock: impl FnMut() -> Instant,
        mut free: impl FnMut(T),
    ) -> usize {
        if self.waiting.is_empty() {
            return 0;
        }
        let horizon = self.shared.horizon();
        let batch = self.policy.batch(self.waiting.len(), &mut self.hurried);
        let mut now = clock();
        let until = now + self.policy.pass_max();
        let mut freed = 0;
        while freed < batch && now <= until {
            match self.waiting.front() {
                Some(first) if first.epoch < horizon => {}
                _ => break,
            }
            let Some(first) = self.waiting.pop_front() else { break };
            self.note(&first, now);
            free(first.value);
            freed += 1;
            if freed % CLOCK_EVERY == 0 {
                now = clock();
            }
        }
        freed
    }

    fn note(&mut self, gone: &Waiting<T>, now: Instant) {
        let grace = now.saturating_since(gone.since);
        let stats = &mut self.stats;
        stats.items -= 1;
        stats.bytes -= gone.bytes;
        stats.freed += 1;
        stats.grace_last = grace;
        stats.grace_max = stats.grace_max.max(grace);
    }

    /// What has been seen so far.
    #[must_use]
    pub const fn stats(&self) -> LimboStats {
        self.stats
    }

    /// How long the oldest object has waited, if one waits.
    #[must_use]
    pub fn oldest(&self, now: Instant) -> Option<Duration> {
        self.waiting.front().map(|first| now.saturating_since(first.since))
    }

    /// Frees everything, if no worker is online; returns whether it did. For an orderly end.
    pub fn drain(&mut self, now: Instant, mut free: impl FnMut(T)) -> bool {
        // With nobody online the horizon is beyond every epoch.
        if self.shared.horizon() != u64::MAX {
            return false;
        }
        while let Some(first) = self.waiting.pop_front() {
            self.note(&first, now);
            free(first.value);
        }
        true
    }

    pub(crate) fn belongs_to(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }
}

impl<T: Send + 'static, P: Policy> Drop for Limbo<T, P> {
    fn drop(&mut self) {
        if self.shared.horizon() != u64::MAX {
            // A reader may still look.
            self.shared.adopt(Box::new(core::mem::take(&mut self.waiting)));
        }
    }
}

impl<T: Send + 'static, P: Policy> fmt::Debug for Limbo<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limbo").field("stats", &self.stats).finish_non_exhaustive()
    }
}

/// Room in a limbo, for one object that is about to be unlinked.
#[must_use = "room that is not used is given back"]
pub struct Slot<'l, T: Send + 'static, P: Policy = Paced> {
    limbo: &'l mut Limbo<T, P>,
    bytes: usize,
}

impl<T: Send + 'static, P: Policy> Slot<'_, T, P> {
    /// Lets `value`, which the caller has unlinked from everything that readers can reach, wait
    /// for its grace period. One full fence.
    pub fn retire(self, value: T, now: Instant) {
        let Self { limbo, bytes } = self;
        let epoch = limbo.shared.retiring_epoch();
        limbo.waiting.push_back(Waiting { value, epoch, bytes, since: now });
        let stats = &mut limbo.stats;
        stats.items += 1;
        stats.bytes += bytes;
        stats.items_max = stats.items_max.max(stats.items);
        stats.bytes_max = stats.bytes_max.max(stats.bytes);
    }
}

impl<T: Send + 'static, P: Policy> fmt::Debug for Slot<'_, T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
