//! `TurnWatch`: what the longest turn was spent on.
//!
//! Called by the worker around each of its turns. The longest turn is that with the most processor
//! time: a turn that the system preempted may be longer by the clock, and is counted apart.
//! It costs a few loads a turn. The processor's time is read after every 100 us of turns, and after
//! a turn that is longer by the clock than any other was by processor time: only such a turn can be
//! the longest. So the record is too much by no more than 100 us, or two sleeps. It tells
//! afterwards which kind of work a long turn was. Interrupts that the kernel handles on this thread
//! are in it: only a trace tells them apart (`docs/benchmarks/floods.md`).

use std::time::Duration;

use floodwall_base::Instant;

use crate::worker_counters::{WorkerCounter, WorkerCounters};

/// A turn that takes longer is counted.
const LONG_TURN: Duration = Duration::from_millis(1);

/// Upper bounds of a turn's length in nanoseconds, and where turns up to there are counted: a
/// histogram. Longer ones are [`WorkerCounter::TurnsOver20Millis`].
pub const TURN_BUCKETS: [(u64, WorkerCounter); 6] = [
    (10_000, WorkerCounter::TurnsTo10Micros),
    (50_000, WorkerCounter::TurnsTo50Micros),
    (200_000, WorkerCounter::TurnsTo200Micros),
    (1_000_000, WorkerCounter::TurnsTo1Milli),
    (5_000_000, WorkerCounter::TurnsTo5Millis),
    (20_000_000, WorkerCounter::TurnsTo20Millis),
];
/// The processor's time is read after turns that took so long together.
const MARK_EVERY: Duration = Duration::from_micros(100);
/// A sleep counts for so much of that: the processor's time goes on around it, and interrupts that
/// the kernel handles on this thread meanwhile take 1 ms and more where clients share the core.
const SLEEP_COST: Duration = Duration::from_micros(51);

/// The kinds of work, and where the longest turn's amount of each is stored.
const WORK_KINDS: [(WorkerCounter, WorkerCounter); 9] = [
    (WorkerCounter::RxPackets, WorkerCounter::LongestTurnPackets),
    (WorkerCounter::Adopted, WorkerCounter::LongestTurnAdopted),
    (WorkerCounter::SentPackets, WorkerCounter::LongestTurnSent),
    (WorkerCounter::Units, WorkerCounter::LongestTurnUnits),
    (WorkerCounter::SliceUnits, WorkerCounter::LongestTurnSliceUnits),
    (WorkerCounter::Commands, WorkerCounter::LongestTurnCommands),
    (WorkerCounter::ReceiveNanos, WorkerCounter::LongestTurnReceiveNanos),
    (WorkerCounter::SliceNanos, WorkerCounter::LongestTurnSliceNanos),
    (WorkerCounter::TransmitNanos, WorkerCounter::LongestTurnTransmitNanos),
];

/// What is stored of the longest turn.
pub(crate) const OF_LONGEST: [WorkerCounter; 12] = [
    WorkerCounter::LongestTurnProcessorNanos,
    WorkerCounter::LongestTurnNanos,
    WorkerCounter::LongestTurnEndNanos,
    WORK_KINDS[0].1,
    WORK_KINDS[1].1,
    WORK_KINDS[2].1,
    WORK_KINDS[3].1,
    WORK_KINDS[4].1,
    WORK_KINDS[5].1,
    WORK_KINDS[6].1,
    WORK_KINDS[7].1,
    WORK_KINDS[8].1,
];

/// The state of the work before the turn that runs.
#[derive(Debug, Default)]
pub(crate) struct TurnWatch {
    before: [u64; WORK_KINDS.len()],
    /// The processor's time when it was last asked for.
    processor: Duration,
    /// What the turns since then have taken.
    unmarked: Duration,
}

impl TurnWatch {
    /// The processor's time by now.
    pub(crate) fn mark(&mut self, processor: Duration) {
        self.processor = processor;
        self.unmarked = Duration::ZERO;
    }

    /// A turn begins.
    #[inline]
    pub(crate) fn begin(&mut self, facts: &WorkerCounters) {
        self.before = WORK_KINDS.map(|(kind, _)| facts.of(kind));
    }

    /// The worker slept.
    #[inline]
    pub(crate) fn slept(&mut self) {
        self.unmarked += SLEEP_COST;
    }

    /// A turn is over at `now`, after this time. Returns for how long of it, at least, the system
    /// had preempted the worker; nothing for a turn that is not long. To read the processor's time
    /// is a system call.
    #[inline]
    pub(crate) fn end(
        &mut self,
        (now, took): (Instant, Duration),
        processor: impl FnOnce() -> Duration,
        facts: &mut WorkerCounters,
    ) -> Duration {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = TURN_BUCKETS.iter().find(|(most, _)| nanos <= *most);
        facts.add(bucket.map_or(WorkerCounter::TurnsOver20Millis, |(_, turns)| *turns), 1);
        facts.add(WorkerCounter::TurnNanos, nanos);
        facts.raise(WorkerCounter::LongestRoundNanos, nanos);
        self.unmarked += took;
        // No turn has more processor time than it is long.
        if took > LONG_TURN || nanos > facts.of(WorkerCounter::LongestTurnProcessorNanos) {
            let spent = self.note((now, nanos), processor(), facts);
            if took > LONG_TURN {
                return took.saturating_sub(spent);
            }
        } else if self.unmarked > MARK_EVERY {
            self.mark(processor());
        }
        Duration::ZERO
    }

    /// Notes a turn that is long, or may be the longest. Returns the processor's time that it had,
    /// and the turns since the last mark.
    #[cold]
    fn note(
        &mut self,
        (now, nanos): (Instant, u64),
        processor: Duration,
        facts: &mut WorkerCounters,
    ) -> Duration {
        let spent = processor.saturating_sub(self.processor);
        self.processor = processor;
        self.unmarked = Duration::ZERO;
        if u128::from(nanos) > LONG_TURN.as_nanos() {
            facts.add(WorkerCounter::LongTurns, 1);
        }
        let had = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX).min(nanos);
        if had <= facts.of(WorkerCounter::LongestTurnProcessorNanos) {
            return spent;
        }
        facts.set(WorkerCounter::LongestTurnProcessorNanos, had);
        facts.set(WorkerCounter::LongestTurnNanos, nanos);
        facts.set(WorkerCounter::LongestTurnEndNanos, now.as_nanos());
        for ((kind, of_longest), before) in WORK_KINDS.into_iter().zip(self.before) {
            facts.set(of_longest, facts.of(kind) - before);
        }
        spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    #[test]
    fn every_turn_is_in_one_bucket_of_the_histogram() {
        let (mut watch, mut facts) = (TurnWatch::default(), WorkerCounters::default());
        for micros in [1, 10, 11, 900, 19_000, 30_000] {
            watch.begin(&facts);
            let took = Duration::from_micros(micros);
            watch.end((Instant::ORIGIN, took), || Duration::ZERO, &mut facts);
        }
        let counts = TURN_BUCKETS.map(|(_, turns)| facts.of(turns));
        assert_eq!(counts, [2, 1, 0, 1, 0, 1]);
        assert_eq!(facts.of(WorkerCounter::TurnsOver20Millis), 1);
        assert_eq!(facts.of(WorkerCounter::TurnNanos), 49_922_000);
    }

    /// Sleep is time that the thread does not have the processor, as when it is preempted.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a thread that waits is what is tested")]
    fn the_time_without_the_processor_is_known_for_a_long_turn() {
        let (mut watch, mut facts) = (TurnWatch::default(), WorkerCounters::default());
        let clock = Clock::new();
        watch.mark(clock.thread_time());
        watch.begin(&facts);
        let before = clock.now();
        std::thread::sleep(Duration::from_millis(30));
        let now = clock.now();
        let took = now - before;
        let preempted = watch.end((now, took), || clock.thread_time(), &mut facts);
        assert!(preempted <= took && preempted > took / 2, "{preempted:?} of {took:?}");
        let preempted = watch.end((now, LONG_TURN), || clock.thread_time(), &mut facts);
        assert_eq!(preempted, Duration::ZERO, "it is not long");
    }

    #[test]
    fn the_longest_turn_is_that_with_the_most_processor_time() {
        let (mut watch, mut facts) = (TurnWatch::default(), WorkerCounters::default());
        let mut turn = |packets, units, millis: u64, processor: u64| {
            watch.begin(&facts);
            facts.add(WorkerCounter::RxPackets, packets);
            facts.add(WorkerCounter::Units, units);
            facts.add(WorkerCounter::ReceiveNanos, packets * 2000);
            facts.add(WorkerCounter::TransmitNanos, packets * 1000);
            let processor = watch.processor + Duration::from_millis(processor);
            let now = Instant::ORIGIN + Duration::from_millis(millis);
            watch.note((now, millis * 1_000_000), processor, &mut facts);
            let of = |fact| facts.of(fact);
            [
                of(WorkerCounter::LongestTurnProcessorNanos) / 1_000_000,
                of(WorkerCounter::LongestTurnNanos) / 1_000_000,
                of(WorkerCounter::LongestTurnEndNanos) / 1_000_000,
                of(WorkerCounter::LongestTurnPackets),
                of(WorkerCounter::LongestTurnUnits),
                of(WorkerCounter::LongestTurnReceiveNanos) / 2000,
                of(WorkerCounter::LongestTurnTransmitNanos) / 1000,
                of(WorkerCounter::LongTurns),
            ]
        };
        assert_eq!(turn(3, 30, 1, 1), [1, 1, 1, 3, 30, 3, 3, 0]);
        assert_eq!(turn(64, 700, 30, 2), [2, 30, 30, 64, 700, 64, 64, 1], "preempted for 28 ms");
        assert_eq!(turn(5, 50, 8, 7), [7, 8, 8, 5, 50, 5, 5, 2]);
        assert_eq!(turn(6, 60, 40, 6), [7, 8, 8, 5, 50, 5, 5, 3]);
        let mut other = WorkerCounters::default();
        other.set(WorkerCounter::LongestRoundNanos, 90_000_000);
        other.set(WorkerCounter::LongestTurnProcessorNanos, 6_000_000);
        other.set(WorkerCounter::LongestTurnPackets, 60);
        let all = WorkerCounters::of_all([&other, &facts, &other]);
        assert_eq!(all.of(WorkerCounter::LongestTurnPackets), 5, "of the longest of all");
        assert_eq!(all.of(WorkerCounter::LongestRoundNanos), 90_000_000);
    }

    #[test]
    fn the_time_around_two_sleeps_at_most_is_taken_for_a_turn_s() {
        let (mut watch, mut facts) = (TurnWatch::default(), WorkerCounters::default());
        let mut reads = 0;
        for sleeps in [1, 2, 1, 1] {
            watch.begin(&facts);
            (0..sleeps).for_each(|_| watch.slept());
            let processor = || {
                reads += 1;
                Duration::ZERO
            };
            facts.set(WorkerCounter::LongestTurnProcessorNanos, 1_000_000);
            watch.end((Instant::ORIGIN, Duration::from_nanos(10)), processor, &mut facts);
        }
        assert_eq!(reads, 2, "after one and two, and after one and one");
    }

    #[test]
    fn a_turn_that_was_preempted_hides_no_later_one_with_more_processor_time() {
        let (mut watch, mut facts) = (TurnWatch::default(), WorkerCounters::default());
        let mut reads = 0;
        let mut turn = |micros: u64, processor: u64, packets| {
            watch.mark(Duration::ZERO);
            watch.begin(&facts);
            facts.add(WorkerCounter::RxPackets, packets);
            let processor = || {
                reads += 1;
                Duration::from_micros(processor)
            };
            let took = Duration::from_micros(micros);
            watch.end((Instant::ORIGIN, took), processor, &mut facts);
            facts.of(WorkerCounter::LongestTurnPackets)
        };
        assert_eq!(turn(30_000, 80, 7), 7);
        assert_eq!(turn(900, 850, 9), 9, "shorter by the clock, and longer by processor time");
        assert_eq!(turn(5000, 849, 5), 9);
        assert_eq!(turn(70, 70, 4), 9);
        assert_eq!(facts.of(WorkerCounter::LongestTurnProcessorNanos), 850_000);
        assert_eq!(facts.of(WorkerCounter::LongestRoundNanos), 30_000_000);
        assert_eq!(reads, 3, "a turn that cannot be the longest costs no system call");
    }
}
