//! The objects of a run with real threads: a row of slots, each used once, and what became of it.
//!
//! Shared by the writer, the reader and the thread that frees. Which object is shown is a scheme's
//! decision (`schemes.rs`), and so is when it is freed: then its words are overwritten, and a
//! reader that still looks at them counts a wrong read. All of it is atomics, so that a scheme that
//! is wrong is seen to be wrong and nothing else happens. Invariant: a slot is unlinked at most
//! once and freed at most once.
//!
//! A machine that is busy with other things takes a core away from the writer or the reader for
//! milliseconds, and then that is what is measured. So both threads note when they were away
//! ([`Presence`]), and besides all grace periods those are kept apart that began while both had
//! been there for a while and would be for a while ([`SETTLED_NANOS`]).

use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, Release},
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant as Clock;

use floodwall_base::Instant;
use floodwall_sync::CachePadded;

use super::graces::Graces;

const WORDS: usize = 4;
/// The value of a freed object's words.
const FREED: u64 = u64::MAX;
/// How long both threads have been there when an undisturbed grace period begins, and how long
/// they stay at least: longer than what was left over from before takes, and than any rival does.
const SETTLED_NANOS: u64 = 4_000_000;
/// The value of a time that has not come.
const NEVER: u64 = u64::MAX;

struct Slot {
    words: [AtomicU64; WORDS],
    /// When it was unlinked, and when it was freed.
    since: AtomicU64,
    until: AtomicU64,
}

/// The row of slots of one run, and what became of each object.
pub(super) struct ObjectPool {
    origin: Clock,
    slots: Box<[Slot]>,
    /// The object that readers look at, where a scheme needs no more than its number.
    pub(super) shown: CachePadded<AtomicUsize>,
    retired: CachePadded<AtomicU64>,
    freed: CachePadded<AtomicU64>,
    twice: AtomicU64,
    wrong: AtomicU64,
    rounds: CachePadded<AtomicU64>,
    stop: CachePadded<AtomicBool>,
    /// From when to when a thread was away.
    gaps: Mutex<Vec<(u64, u64)>>,
}

/// When a thread was running: it records the time after each short piece of work.
pub(super) struct Presence {
    last: u64,
    gap: u64,
    gaps: Vec<(u64, u64)>,
}

impl Presence {
    /// A thread that is there now and never silent for `gap` nanoseconds of its own will.
    pub(super) const fn new(now: u64, gap: u64) -> Self {
        Self { last: now, gap, gaps: Vec::new() }
    }

    /// It is here, and was at work before.
    pub(super) fn works(&mut self, now: u64) {
        if now > self.last + self.gap {
            self.gaps.push((self.last, now));
        }
        self.last = now;
    }

    /// It is running, and was idle before by its own choice.
    pub(super) const fn waited(&mut self, now: u64) {
        self.last = now;
    }
}

/// The stretches in which both threads were there, as what may begin in them and when they end.
struct Stretches(Vec<(u64, u64, u64)>);

impl Stretches {
    /// Of a run that lasted until `end`.
    fn between(mut gaps: Vec<(u64, u64)>, end: u64) -> Self {
        gaps.push((end, end));
        gaps.sort_unstable();
        let (mut stretches, mut from) = (Vec::new(), 0);
        for (away, back) in gaps {
            let (first, last) = (from + SETTLED_NANOS, away.saturating_sub(SETTLED_NANOS));
            if first < last {
                stretches.push((first, last, away));
            }
            from = from.max(back);
        }
        Self(stretches)
    }

    /// An object's grace period, where it began in a stretch; at most to the stretch's end.
    fn undisturbed(&self, since: u64, until: u64) -> Option<u64> {
        let behind = self.0.partition_point(|(first, ..)| *first <= since);
        let (_, last, away) = self.0.get(behind.checked_sub(1)?)?;
        (since < *last).then(|| until.min(*away).saturating_sub(since))
    }
}

/// An object that was unlinked: to drop it is to free it.
pub(super) struct Ticket {
    objects: Arc<ObjectPool>,
    pub(super) slot: usize,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.objects.free(self.slot);
    }
}

impl ObjectPool {
    #[expect(clippy::disallowed_methods, reason = "grace periods of real threads take real time")]
    pub(super) fn new(slots: usize) -> Arc<Self> {
        let slot = |number| Slot {
            words: core::array::from_fn(|_| AtomicU64::new(number)),
            since: AtomicU64::new(NEVER),
            until: AtomicU64::new(NEVER),
        };
        Arc::new(Self {
            origin: Clock::now(),
            slots: (0..slots as u64).map(slot).collect(),
            shown: CachePadded::default(),
            retired: CachePadded::default(),
            freed: CachePadded::default(),
            twice: AtomicU64::new(0),
            wrong: AtomicU64::new(0),
            rounds: CachePadded::default(),
            stop: CachePadded::default(),
            gaps: Mutex::default(),
        })
    }

    /// Nanoseconds since the run began.
    pub(super) fn nanos(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    pub(super) fn now(&self) -> Instant {
        Instant::from_nanos(self.nanos())
    }

    pub(super) const fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Slot `slot` has been unlinked: its grace period begins.
    pub(super) fn ticket(self: &Arc<Self>, slot: usize) -> Ticket {
        if let Some(slot) = self.slots.get(slot) {
            slot.since.store(self.nanos(), Relaxed);
        }
        self.retired.fetch_add(1, Relaxed);
        self.held(slot)
    }

    /// A handle on an object that is still shown.
    pub(super) fn held(self: &Arc<Self>, slot: usize) -> Ticket {
        Ticket { objects: Arc::clone(self), slot }
    }

    /// The grace period of an object that was [held](ObjectPool::held) begins.
    pub(super) fn unlinked(&self, slot: usize) {
        if let Some(slot) = self.slots.get(slot) {
            slot.since.store(self.nanos(), Relaxed);
        }
        self.retired.fetch_add(1, Relaxed);
    }

    fn free(&self, slot: usize) {
        let Some(slot) = self.slots.get(slot) else { return };
        slot.words.iter().for_each(|word| word.store(FREED, Release));
        let since = slot.since.load(Relaxed);
        if since == NEVER {
            // The one that was shown last: it was never unlinked.
            return;
        }
        if slot.until.swap(self.nanos().max(since), Relaxed) != NEVER {
            self.twice.fetch_add(1, Relaxed);
        }
        self.freed.fetch_add(1, Relaxed);
    }

    /// Looks at an object as a packet does; false if it is not what it was.
    pub(super) fn look(&self, slot: usize) -> bool {
        let number = slot as u64;
        let slot = self.slots.get(slot);
        let whole = slot.is_some_and(|s| s.words.iter().all(|word| word.load(Relaxed) == number));
        if !whole {
            self.wrong.fetch_add(1, Relaxed);
        }
        whole
    }

    /// Objects that wait.
    pub(super) fn waiting(&self) -> u64 {
        // Freed first: what is freed in between is not counted as less than nothing.
        let freed = self.freed.load(Relaxed);
        self.retired.load(Relaxed).saturating_sub(freed)
    }

    pub(super) fn round_ended(&self) {
        self.rounds.store(self.rounds.load(Relaxed) + 1, Relaxed);
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Release);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    pub(super) fn rounds(&self) -> u64 {
        self.rounds.load(Relaxed)
    }

    /// A thread's absences are over.
    pub(super) fn leave(&self, presence: Presence) {
        let mut gaps = self.gaps.lock().unwrap_or_else(PoisonError::into_inner);
        gaps.extend(presence.gaps);
    }

    /// What became of all objects of a run that lasted until `end`. To be called when all threads
    /// have ended.
    pub(super) fn graces(&self, end: u64) -> Graces {
        let mut graces = Graces {
            retired: self.retired.load(Relaxed),
            wrong_reads: self.wrong.load(Relaxed) + self.twice.load(Relaxed),
            ..Graces::default()
        };
        let gaps = core::mem::take(&mut *self.gaps.lock().unwrap_or_else(PoisonError::into_inner));
        let stretches = Stretches::between(gaps, end);
        for slot in &self.slots {
            let (since, until) = (slot.since.load(Relaxed), slot.until.load(Relaxed));
            if since != NEVER && until != NEVER {
                graces.freed(until - since, until);
                graces.undisturbed.extend(stretches.undisturbed(since, until));
            }
        }
        graces.sorted()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grace_period_is_undisturbed_in_the_middle_of_a_stretch() {
        const MS: u64 = 1_000_000;
        let away = vec![(30 * MS, 35 * MS), (10 * MS, 12 * MS), (13 * MS, 14 * MS)];
        let stretches = Stretches::between(away, 50 * MS);
        let of = |since: u64| stretches.undisturbed(since * MS, since * MS + 7);
        let found: Vec<_> = (0..50).filter(|since| of(*since).is_some()).collect();
        let want = [4..6, 18..26, 39..46].into_iter().flatten();
        assert_eq!(found, want.collect::<Vec<_>>());
        assert_eq!(of(5), Some(7));
        let beyond = stretches.undisturbed(5 * MS, 99 * MS);
        assert_eq!(beyond, Some(5 * MS), "to the end of the stretch, for want of better");
    }

    #[test]
    fn a_thread_that_waits_on_purpose_was_not_away() {
        let mut presence = Presence::new(0, 10);
        presence.works(10);
        presence.waited(50);
        presence.works(61);
        assert_eq!(presence.gaps, [(50, 61)]);
    }
}
