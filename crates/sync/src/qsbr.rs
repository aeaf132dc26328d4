//! Quiescent-state-based reclamation: unlinked memory is freed once every worker has paused.
//!
//! # What it is
//!
//! Readers look at shared structures without any write and without any atomic instruction. A
//! writer unlinks an object and puts it into its [`Limbo`]; the object is freed when every worker
//! has since announced a *quiescent state*, a moment at which it holds no reference. This is
//! McKenney and Slingwine's read-copy update (PDCS 1998) in the form that Hart, McKenney, Brown
//! and Walpole call QSBR (*Performance of memory reclamation for lockless synchronization*, JPDC
//! 2007) and DPDK `rte_rcu_qsbr`.
//!
//! Its weakness is the subject of Sarma's report of March 2004 on the Linux route cache: a worker
//! that never pauses stops all freeing, and under a flood that is when freeing matters. So here
//! quiescent states belong to the packet work itself: each worker announces one at the end of
//! every round and of every slice of timed work, under any load ([`Moment`]), and goes offline
//! before it sleeps ([`Reader::park`]). A grace period is then a few rounds long at any load. And
//! because a worker may still be stuck, every limbo has a hard cap: at the cap a *change* is
//! refused and counted; no thread ever waits. The decisions, and measurements beside others, are in
//! `docs/design/qsbr.md`.
//!
//! # Callers
//!
//! `dispatch` has one [`Reader`] a worker. Tables (`fib`, neighbours, configuration) are read
//! under a [`DomainView`] and changed by one writer with a [`Limbo`] for each class of object.
//!
//! # Invariant
//!
//! A [`DomainView`] borrows its reader, and announcing needs the reader exclusively: so a program
//! in which a reference is held across a quiescent state does not compile:
//!
//! ```compile_fail,E0502
//! use floodwall_base::Instant;
//! use floodwall_sync::{RcuCell, qsbr::{Domain, Moment}};
//! let domain = Domain::new(1);
//! let cell = RcuCell::new(&domain, Box::new(7));
//! let mut reader = domain.reader().unwrap();
//! let seven = cell.load(reader.view());
//! reader.pass(Moment::RoundEnd, Instant::ORIGIN);
//! assert_eq!(*seven, 7); // held across the end of the round
//! ```
//!
//! # Why it is sound
//!
//! `G` is the domain's epoch, which only grows; each worker's record holds the epoch that it saw
//! at its last quiescent state, or 0 while it is offline. Retiring is: unlink; full fence; read
//! `G`, call it `e`. An object is freed once every record shows 0 or more than `e`.
//!
//! * *The record shows `l > e`.* The worker read `l` from `G`, fenced, and read shared memory
//!   afterwards. It read a later value of `G` than the retirer, so its fence comes after the
//!   retirer's in the single order of full fences (C++20, [atomics.order] 4), and all that it read
//!   afterwards it read after the unlinking. What it had read before that pause, it had let go:
//!   its release store of `l` and the acquire load that saw it order those reads before the free.
//! * *The record shows 0.* Going online stores the record, fences, and only then reads. If the
//!   look at the record missed that store, it came first in the order of fences, and so did the
//!   unlinking before it (Dekker's argument). If the 0 is an older one, the release store of 0
//!   orders what came before it.
//!
//! Which thread raises `G`, and when, does not matter to this argument. A writer that frees what
//! was retired with the present epoch raises it, once a pass and not before: so a grace period is
//! over when every worker has finished the round that it was in. (Raising it only when all workers
//! have seen it, as is often done, makes that two rounds.)
//!
//! # Progress and cost
//!
//! A view is free. A quiescent state is one load of a line that seldom changes, and one plain
//! store to the worker's own line (the time, for [`Domain::stalled`]); one store and one fence more
//! in a round after `G` was raised, which happens only after something was retired, and once a
//! round at most as far as a reader can observe. No reader waits for a writer, no writer for a
//! reader.
//!
//! What waits, how long it waited, what was refused and which worker is slow can be read from any
//! thread at any time: [`Domain::stats`], [`Domain::classes`], [`Domain::ages`].
//!
//! The epoch has 63 bits and more; raised every nanosecond it lasts for centuries. Where it would
//! end it stays (`EPOCH_MAX`): then nothing is freed any more while a worker is online, the caps
//! refuse, and nothing is freed too early.
//!
//! # Under flood
//!
//! Peers retire nothing by themselves; tables that change because of packets bound that themselves.
//! Bound: the [`LimboCaps`] of each limbo, in items and bytes, allocated at construction. Worst
//! work: a pass of [`Policy::batch`] objects and [`Policy::pass_max`] of time, never within a
//! packet's walk. When full: the change is refused with its value given back ([`LimboFull`]), and
//! counted ([`LimboStats::refused`]). Nothing is evicted, because a reader may still look. Honest
//! traffic loses that change, and goes on with the table as it was. A worker that is stuck is
//! requested to pause ([`Reader::is_chased`]) and named ([`Domain::stalled`]).

mod gauge;
mod limbo;
mod policy;

use core::fmt;
use core::time::Duration;

use floodwall_base::Instant;
use thiserror::Error;

use self::gauge::{GaugeSum, LimboGauge};
pub use self::{
    gauge::LimboStats,
    limbo::{Limbo, LimboCaps, LimboFull, LimboSlot},
    policy::{Moment, Paced, Policy},
};
use crate::{
    CachePadded,
    lock::{Mutex, MutexGuard, PoisonError},
    shim::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{AcqRel, Acquire, Relaxed, Release},
        },
    },
    weaken::{WeakenPoint, fence_at, order},
};

/// What a record holds while its worker is offline: no epoch.
const OFFLINE: u64 = 0;
/// The epoch that is never raised: beyond every one of them must be a horizon.
const EPOCH_MAX: u64 = u64::MAX - 1;

/// One worker's line: no other thread writes it.
struct ReaderRecord {
    /// The epoch seen at the last quiescent state, or [`OFFLINE`].
    local: AtomicU64,
    /// When that was, in nanoseconds, for the stall report.
    passed_at: AtomicU64,
    /// Whether a reader has it.
    taken: AtomicBool,
}

/// The domain's line, that all workers read and writers seldom change.
struct GraceEpoch {
    now: AtomicU64,
    /// A limbo is over full: workers that have not gone beyond this epoch are to pause soon.
    chased: std::sync::atomic::AtomicU64,
}

/// What all readers and limbos of a domain share.
pub(crate) struct DomainShared {
    epoch: CachePadded<GraceEpoch>,
    /// Each reader holds its own as well, so that announcing costs no look-up.
    records: Box<[std::sync::Arc<CachePadded<ReaderRecord>>]>,
    /// What limbos left behind when their writer ended before the objects' grace period. Freed with
    /// the domain, when no reader is left.
    orphans: Mutex<Vec<Box<dyn Send>>>,
    /// Of every limbo that ever was: few, made at start. Never locked while packets are handled.
    gauges: Mutex<Vec<std::sync::Arc<LimboGauge>>>,
}

impl DomainShared {
    fn gauges(&self) -> MutexGuard<'_, Vec<std::sync::Arc<LimboGauge>>> {
        self.gauges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests a pause from workers that hold up what was retired with this epoch.
    fn chase(&self, epoch: u64) {
        self.epoch.chased.fetch_max(epoch, std::sync::atomic::Ordering::Relaxed);
    }

    /// Keeps what a limbo left behind until the domain ends. Off the packets' path: a lock.
    fn adopt(&self, orphans: Box<dyn Send>) {
        self.orphans.lock().unwrap_or_else(PoisonError::into_inner).push(orphans);
    }

    /// The epoch with which what has just been unlinked is retired.
    fn retiring_epoch(&self) -> u64 {
        fence_at(WeakenPoint::RetireFence);
        self.epoch.now.load(Relaxed)
    }

    /// Begins a grace period for what was retired with this epoch, if none has begun since.
    fn raise_beyond(&self, epoch: u64) {
        if epoch < EPOCH_MAX && self.epoch.now.load(Relaxed) == epoch {
            // Another limbo may have done it: then it is done.
            let _ = self.epoch.now.compare_exchange(epoch, epoch + 1, Relaxed, Relaxed);
        }
    }

    /// Everything retired with a smaller epoch may be freed. One load a worker.
    fn horizon(&self) -> u64 {
        let mut oldest = u64::MAX;
        for record in &self.records {
            let local = record.local.load(order(WeakenPoint::HorizonAcquire, Acquire));
            if local != OFFLINE {
                oldest = oldest.min(local);
            }
        }
        oldest
    }
}

/// A set of workers, and the structures that they read together.
///
/// Cloning gives another handle to the same domain.
pub struct Domain<P: Policy = Paced> {
    shared: Arc<DomainShared>,
    policy: P,
}

/// All records of the domain are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the domain has readers for {0} workers, and all are taken")]
pub struct NoRecord(pub usize);

/// How long ago a worker paused; where that is long, the worker is stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderStall {
    /// The number of its reader, in the order in which readers were made.
    pub worker: usize,
    /// How long ago it paused last.
    pub age: Duration,
}

impl fmt::Display for ReaderStall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {} has not paused for {:?}", self.worker, self.age)
    }
}

/// A domain at one moment, for reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DomainStats {
    /// Grace periods, what waits, what was refused: all limbos together.
    pub limbo: LimboStats,
    /// Grace periods begun so far.
    pub epoch: u64,
    /// Workers that are online: neither parked nor gone.
    pub online: usize,
    /// The online worker that paused longest ago.
    pub slowest: Option<ReaderStall>,
}

impl Domain {
    /// A domain for up to `workers` workers, with the ordinary policy. Allocates a line for each.
    #[must_use]
    pub fn new(workers: u16) -> Self {
        Self::with_policy(workers, Paced)
    }
}

impl<P: Policy> Domain<P> {
    /// As [`Domain::new`], with a policy of one's own.
    #[must_use]
    pub fn with_policy(workers: u16, policy: P) -> Self {
        Self::with_epoch(workers, policy, 1)
    }

    /// As [`Domain::with_policy`], from a later epoch on: for tests of its end.
    fn with_epoch(workers: u16, policy: P, epoch: u64) -> Self {
        let record = |_| {
            std::sync::Arc::new(CachePadded::new(ReaderRecord {
                local: AtomicU64::new(OFFLINE),
                passed_at: AtomicU64::new(0),
                taken: AtomicBool::new(false),
            }))
        };
        let records = (0..workers).map(record).collect();
        let chased = std::sync::atomic::AtomicU64::new(0);
        let epoch = CachePadded::new(GraceEpoch { now: AtomicU64::new(epoch), chased });
        let (orphans, gauges) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        Self { shared: Arc::new(DomainShared { epoch, records, orphans, gauges }), policy }
    }

    /// A reader for one worker, online. Visits the records; off the packets' path. Its age counts
    /// from the clock's origin: where the clock is older than the worker, use
    /// [`Domain::reader_at`].
    ///
    /// # Errors
    /// Every worker that the domain was made for has one.
    pub fn reader(&self) -> Result<Reader<P>, NoRecord> {
        self.reader_at(Instant::ORIGIN)
    }

    /// As [`Domain::reader`], for a worker that starts at `now`.
    ///
    /// # Errors
    /// As [`Domain::reader`].
    pub fn reader_at(&self, now: Instant) -> Result<Reader<P>, NoRecord> {
        let free = |record: &std::sync::Arc<CachePadded<ReaderRecord>>| {
            record.taken.compare_exchange(false, true, AcqRel, Relaxed).is_ok()
        };
        let records = &self.shared.records;
        let found = records.iter().enumerate().find(|(_, record)| free(record));
        let (worker, record) = found.ok_or(NoRecord(records.len()))?;
        let mut reader = Reader {
            shared: Arc::clone(&self.shared),
            record: std::sync::Arc::clone(record),
            local: OFFLINE,
            worker,
            policy: self.policy,
        };
        reader.go_online(Some(now));
        Ok(reader)
    }

    /// A limbo for one class of objects. Allocates room for `caps.items`.
    #[must_use]
    pub fn limbo<T: Send + 'static>(&self, caps: LimboCaps) -> Limbo<T, P> {
        self.limbo_of("", caps)
    }

    /// As [`Domain::limbo`], with the name under which [`Domain::classes`] shows it.
    #[must_use]
    pub fn limbo_of<T: Send + 'static>(&self, class: &'static str, caps: LimboCaps) -> Limbo<T, P> {
        let gauge = std::sync::Arc::new(LimboGauge::new(class, caps));
        self.shared.gauges().push(std::sync::Arc::clone(&gauge));
        Limbo::new(Arc::clone(&self.shared), self.policy, caps, gauge)
    }

    /// The whole domain now, from any thread. Reads a line a worker and a histogram a limbo, under
    /// a lock that only this and the making of a limbo take: for reports, not for packets.
    #[must_use]
    pub fn stats(&self, now: Instant) -> DomainStats {
        let mut sum = GaugeSum::default();
        self.shared.gauges().iter().for_each(|gauge| sum.add(gauge));
        let mut stats = DomainStats {
            limbo: sum.stats(),
            epoch: self.shared.epoch.now.load(Relaxed),
            ..DomainStats::default()
        };
        for stall in self.ages(now) {
            stats.online += 1;
            if stats.slowest.is_none_or(|slowest| stall.age > slowest.age) {
                stats.slowest = Some(stall);
            }
        }
        stats
    }

    /// Each limbo's class and figures, in the order in which limbos were made. Cost as
    /// [`Domain::stats`].
    #[must_use]
    pub fn classes(&self) -> Vec<(&'static str, LimboStats)> {
        self.shared.gauges().iter().map(|gauge| (gauge.class(), gauge.stats())).collect()
    }

    /// The online workers that had their last quiescent state longer than `limit` ago, as a rule
    /// [`Paced::STALL_AFTER`]. Reads a line a worker.
    pub fn stalled(&self, now: Instant, limit: Duration) -> impl Iterator<Item = ReaderStall> + '_ {
        self.ages(now).filter(move |stall| stall.age > limit)
    }

    /// How long ago each online worker paused.
    pub fn ages(&self, now: Instant) -> impl Iterator<Item = ReaderStall> + '_ {
        // Acquire: a worker that came back is seen with the time at which it did.
        let records = self.shared.records.iter().enumerate();
        records.filter(|(_, record)| record.local.load(Acquire) != OFFLINE).map(
            move |(worker, record)| {
                let then = Instant::from_nanos(record.passed_at.load(Relaxed));
                ReaderStall { worker, age: now.saturating_since(then) }
            },
        )
    }

    pub(crate) const fn shared(&self) -> &Arc<DomainShared> {
        &self.shared
    }
}

impl<P: Policy> Clone for Domain<P> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), policy: self.policy }
    }
}

impl<P: Policy> fmt::Debug for Domain<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let epoch = self.shared.epoch.now.load(Relaxed);
        f.debug_struct("Domain").field("epoch", &epoch).finish_non_exhaustive()
    }
}

/// One worker's right to look at what the domain protects.
///
/// It is online from its making to its end, except while [parked](Reader::park).
pub struct Reader<P: Policy = Paced> {
    shared: Arc<DomainShared>,
    record: std::sync::Arc<CachePadded<ReaderRecord>>,
    /// The epoch in the record.
    local: u64,
    worker: usize,
    policy: P,
}

impl<P: Policy> Reader<P> {
    /// Leave to look, until the next quiescent state. Free.
    #[must_use]
    #[inline]
    pub const fn view(&self) -> DomainView<'_> {
        DomainView { shared: &self.shared }
    }

    /// The number of this reader in the domain.
    #[must_use]
    pub const fn worker(&self) -> usize {
        self.worker
    }

    /// Reports where in its loop the worker is: a quiescent state, if the policy makes it one. The
    /// worker's program calls this at the end of every round and of every slice of timed work.
    #[inline]
    pub fn pass(&mut self, moment: Moment, now: Instant) {
        if self.policy.announces(moment) {
            self.quiescent(now);
        }
    }

    /// Announces a quiescent state: the worker holds no reference, which the compiler has checked.
    #[inline]
    pub fn quiescent(&mut self, now: Instant) {
        self.record.passed_at.store(now.as_nanos(), Relaxed);
        let epoch = self.shared.epoch.now.load(Relaxed);
        if self.local != epoch {
            self.local = epoch;
            self.record.local.store(epoch, order(WeakenPoint::QuiescentRelease, Release));
            fence_at(WeakenPoint::QuiescentFence);
        }
    }

    /// Whether so much waits for this worker to pause that it should do so early: end the slice of
    /// timed work that it is in, and pass. One load of a line that seldom changes; never needed for
    /// safety.
    #[must_use]
    #[inline]
    pub fn is_chased(&self) -> bool {
        let chased = self.shared.epoch.chased.load(std::sync::atomic::Ordering::Relaxed);
        self.local <= chased
    }

    /// Goes offline until the guard is dropped: grace periods do not wait for a worker that
    /// sleeps. A policy cannot prevent this.
    pub fn park(&mut self) -> ParkedReader<'_, P> {
        self.go_offline();
        ParkedReader { reader: self }
    }

    fn go_offline(&mut self) {
        self.local = OFFLINE;
        self.record.local.store(OFFLINE, order(WeakenPoint::OfflineRelease, Release));
    }

    /// The release is for [`Domain::ages`] alone: there was nothing to let go of.
    fn go_online(&mut self, now: Option<Instant>) {
        if let Some(now) = now {
            self.record.passed_at.store(now.as_nanos(), Relaxed);
        }
        self.local = self.shared.epoch.now.load(Relaxed);
        self.record.local.store(self.local, Release);
        fence_at(WeakenPoint::OnlineFence);
    }
}

impl<P: Policy> Drop for Reader<P> {
    fn drop(&mut self) {
        self.go_offline();
        self.record.taken.store(false, Release);
    }
}

impl<P: Policy> fmt::Debug for Reader<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("worker", &self.worker).finish_non_exhaustive()
    }
}

/// A worker that is offline. Dropping it brings the worker online again, fenced.
#[must_use = "the worker is offline only as long as this exists"]
pub struct ParkedReader<'r, P: Policy = Paced> {
    reader: &'r mut Reader<P>,
}

impl<P: Policy> ParkedReader<'_, P> {
    /// Comes back at `now`: the time for the stall report.
    pub fn wake(self, now: Instant) {
        self.reader.record.passed_at.store(now.as_nanos(), Relaxed);
    }
}

impl<P: Policy> Drop for ParkedReader<'_, P> {
    fn drop(&mut self) {
        self.reader.go_online(None);
    }
}

impl<P: Policy> fmt::Debug for ParkedReader<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parked").finish_non_exhaustive()
    }
}

/// Leave to look at what a domain protects, until its reader's next quiescent state.
#[derive(Clone, Copy)]
pub struct DomainView<'r> {
    pub(crate) shared: &'r Arc<DomainShared>,
}

impl fmt::Debug for DomainView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("View")
    }
}

#[cfg(test)]
mod tests;
