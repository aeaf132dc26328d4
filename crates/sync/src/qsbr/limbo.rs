//! Where unlinked objects wait for their grace period: bounded, in order, freed in small steps.
//!
//! Called by the one writer of a table. Invariants: at most [`LimboCaps`] objects and bytes wait,
//! and room is reserved *before* anything is unlinked, so that a refusal changes nothing; objects
//! leave in the order in which they came, none before every worker has paused. See `qsbr.rs`.
//!
//! # Pace
//!
//! [`Policy`] decides how much one pass frees, from the table of Linux' figures in `policy.rs`. Two
//! of them are decided here: with more than [`Paced::CHASE`] objects waiting, workers that have not
//! paused since the oldest was retired are requested to ([`Reader::is_chased`]); and objects that
//! were retired [lazily](Slot::retire_lazily) start no grace period of their own until there are
//! many of them, or they are old, or they fill half of what may wait.
//!
//! [`Reader::is_chased`]: super::Reader::is_chased

use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;

use floodwall_base::Instant;
use thiserror::Error;

use super::gauge::{LimboGauge, LimboStats};
use super::{DomainShared, Paced, Policy};
use crate::shim::Arc;
use crate::weaken::{WeakenPoint, is_weak};

/// Objects after which a pass looks at the clock again.
const CLOCK_EVERY: usize = 32;

/// How much may wait at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimboCaps {
    /// Objects.
    pub items: usize,
    /// Their bytes together, as the retirer states them.
    pub bytes: usize,
}

/// The limbo is at its cap; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{items} objects of {bytes} bytes wait for their grace period: as many as may")]
pub struct LimboFull {
    /// Objects that wait.
    pub items: usize,
    /// Their bytes.
    pub bytes: usize,
}

/// Whether every worker has paused since an object was retired with this epoch.
#[inline]
fn is_free(epoch: u64, horizon: u64) -> bool {
    epoch < horizon || (epoch == horizon && is_weak(WeakenPoint::Strictly))
}

struct WaitingObject<T> {
    value: T,
    epoch: u64,
    bytes: usize,
    since: Instant,
}

/// Retired objects in wait for their grace period. Dropped while workers are online, it leaves its
/// objects to the domain, which frees them when it ends itself.
pub struct Limbo<T: Send + 'static, P: Policy = Paced> {
    shared: Arc<DomainShared>,
    policy: P,
    caps: LimboCaps,
    waiting: VecDeque<WaitingObject<T>>,
    hurried: bool,
    /// How many of the objects that came last were retired lazily, without an eager one behind.
    lazy: usize,
    gauge: std::sync::Arc<LimboGauge>,
}

impl<T: Send + 'static, P: Policy> Limbo<T, P> {
    pub(super) fn new(
        shared: Arc<DomainShared>,
        policy: P,
        caps: LimboCaps,
        gauge: std::sync::Arc<LimboGauge>,
    ) -> Self {
        let waiting = VecDeque::with_capacity(caps.items);
        Self { shared, policy, caps, waiting, hurried: false, lazy: 0, gauge }
    }

    /// Room for one object of so many bytes. Constant cost.
    ///
    /// # Errors
    /// The limbo is at its cap: the change that would fill it must not be made.
    pub fn reserve(&mut self, bytes: usize) -> Result<LimboSlot<'_, T, P>, LimboFull> {
        let held = self.gauge.bytes();
        let fits = held.checked_add(bytes).is_some_and(|sum| sum <= self.caps.bytes);
        if self.waiting.len() >= self.caps.items || !fits {
            self.gauge.refused();
            return Err(LimboFull { items: self.waiting.len(), bytes: held });
        }
        Ok(LimboSlot { limbo: self, bytes })
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
        let Some(newest) = self.waiting.back().map(|last| last.epoch) else { return 0 };
        let mut now = clock();
        if !self.is_due(now) {
            return 0;
        }
        self.shared.raise_beyond(newest);
        let horizon = self.shared.horizon();
        self.chase(horizon);
        let batch = self.policy.batch(self.waiting.len(), &mut self.hurried);
        let until = now + self.policy.pass_max();
        let mut freed = 0;
        while freed < batch && now <= until {
            match self.waiting.front() {
                Some(first) if is_free(first.epoch, horizon) => {}
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

    /// Whether anything that waits wants a grace period by now.
    fn is_due(&mut self, now: Instant) -> bool {
        if self.lazy == self.waiting.len() {
            let age = self.oldest(now).unwrap_or_default();
            let half_full = self.lazy * 2 >= self.caps.items
                || self.gauge.bytes().saturating_mul(2) >= self.caps.bytes;
            if !half_full && !self.policy.flushes(self.lazy, age) {
                return false;
            }
            // From now on they are waited for, over as many passes as that takes.
            self.lazy = 0;
        }
        true
    }

    /// Requests a pause from the workers that hold up the oldest object, where too much waits
    /// behind it.
    fn chase(&self, horizon: u64) {
        let oldest = self.waiting.front().map_or(u64::MAX, |first| first.epoch);
        if oldest >= horizon && self.policy.chases(self.waiting.len()) {
            self.shared.chase(oldest);
            self.gauge.chased();
        }
    }

    fn note(&self, gone: &WaitingObject<T>, now: Instant) {
        self.gauge.freed(gone.bytes, now.saturating_since(gone.since), now);
    }

    /// What has been seen so far. Adds up a histogram: for reports, not for every packet.
    #[must_use]
    pub fn stats(&self) -> LimboStats {
        self.gauge.stats()
    }

    /// How long the oldest object has waited, if one waits.
    #[must_use]
    pub fn oldest(&self, now: Instant) -> Option<Duration> {
        self.waiting.front().map(|first| now.saturating_since(first.since))
    }

    /// Frees everything, if no worker is online; returns whether it did. For an orderly end.
    pub fn drain(&mut self, now: Instant, mut free: impl FnMut(T)) -> bool {
        // With no worker online the horizon is beyond every epoch.
        if self.shared.horizon() != u64::MAX {
            return false;
        }
        while let Some(first) = self.waiting.pop_front() {
            self.note(&first, now);
            free(first.value);
        }
        true
    }

    fn push(&mut self, value: T, bytes: usize, now: Instant) {
        let epoch = self.shared.retiring_epoch();
        self.waiting.push_back(WaitingObject { value, epoch, bytes, since: now });
        self.gauge.retired(bytes);
    }

    pub(crate) fn belongs_to(&self, shared: &Arc<DomainShared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }
}

impl<T: Send + 'static, P: Policy> Drop for Limbo<T, P> {
    fn drop(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        if self.shared.horizon() == u64::MAX {
            self.gauge.emptied();
        } else {
            // A reader may still look. The domain holds them now, and counts them in its figures.
            self.shared.adopt(Box::new(core::mem::take(&mut self.waiting)));
        }
    }
}

impl<T: Send + 'static, P: Policy> fmt::Debug for Limbo<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limbo").field("items", &self.gauge.items()).finish_non_exhaustive()
    }
}

/// Room in a limbo, for one object that is about to be unlinked.
#[must_use = "room that is not used is given back"]
pub struct LimboSlot<'l, T: Send + 'static, P: Policy = Paced> {
    limbo: &'l mut Limbo<T, P>,
    bytes: usize,
}

impl<T: Send + 'static, P: Policy> LimboSlot<'_, T, P> {
    /// Lets `value`, which the caller has unlinked from everything that readers can reach, wait
    /// for its grace period. One full fence.
    pub fn retire(self, value: T, now: Instant) {
        let Self { limbo, bytes } = self;
        limbo.lazy = 0;
        limbo.push(value, bytes, now);
    }

    /// As [`LimboSlot::retire`], for objects that are not urgent to free: alone it starts no grace
    /// period, so that workers do not pay two fences for it. It is freed with the next object that
    /// is retired eagerly, or with [`Paced::LAZY_FLUSH`] of its kind, or after
    /// [`Paced::LAZY_AGE_MAX`], or as soon as half of what may wait does.
    pub fn retire_lazily(self, value: T, now: Instant) {
        let Self { limbo, bytes } = self;
        limbo.lazy += 1;
        limbo.push(value, bytes, now);
    }
}

impl<T: Send + 'static, P: Policy> fmt::Debug for LimboSlot<'_, T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
