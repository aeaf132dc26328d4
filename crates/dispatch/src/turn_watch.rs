//! `TurnWatch`: what the longest turn was spent on.
//!
//! Called by the worker around each of its turns. It costs a few loads a turn; the processor's time
//! is asked for after every 200 us of turns, so that what is told of the longest is too much by no
//! more than that. So it can be told afterwards whether a
//! long turn was our work, and of which kind, or time that the system took away.

use std::time::Duration;

use crate::clock::Clock;
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
/// The processor's time is asked for after turns that took so long together.
const MARK_EVERY: Duration = Duration::from_micros(200);

/// The kinds of work, and where the longest turn's amount of each is stored.
const WORK_KINDS: [(WorkerCounter, WorkerCounter); 7] = [
    (WorkerCounter::RxPackets, WorkerCounter::LongestTurnPackets),
    (WorkerCounter::Adopted, WorkerCounter::LongestTurnAdopted),
    (WorkerCounter::SentPackets, WorkerCounter::LongestTurnSent),
    (WorkerCounter::Units, WorkerCounter::LongestTurnUnits),
    (WorkerCounter::SliceUnits, WorkerCounter::LongestTurnSliceUnits),
    (WorkerCounter::Commands, WorkerCounter::LongestTurnCommands),
    (WorkerCounter::TransmitNanos, WorkerCounter::LongestTurnTransmitNanos),
];

/// What is stored of the longest turn beside its length.
pub(crate) const OF_LONGEST: [WorkerCounter; 8] = [
    WorkerCounter::LongestTurnProcessorNanos,
    WORK_KINDS[0].1,
    WORK_KINDS[1].1,
    WORK_KINDS[2].1,
    WORK_KINDS[3].1,
    WORK_KINDS[4].1,
    WORK_KINDS[5].1,
    WORK_KINDS[6].1,
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
    /// Asks for the processor's time: a system call.
    pub(crate) fn mark(&mut self, clock: &Clock) {
        self.processor = clock.thread_time();
        self.unmarked = Duration::ZERO;
    }

    /// A turn begins.
    #[inline]
    pub(crate) fn begin(&mut self, facts: &WorkerCounters) {
        self.before = WORK_KINDS.map(|(kind, _)| facts.of(kind));
    }

    /// A turn is over, after this time. Returns for how long of it, at least, the system had
    /// preempted the worker; nothing for a turn that is not long.
    #[inline]
    pub(crate) fn end(
        &mut self,
        took: Duration,
        clock: &Clock,
        facts: &mut WorkerCounters,
    ) -> Duration {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = TURN_BUCKETS.iter().find(|(most, _)| nanos <= *most);
        facts.add(bucket.map_or(WorkerCounter::TurnsOver20Millis, |(_, turns)| *turns), 1);
        facts.add(WorkerCounter::TurnNanos, nanos);
        self.unmarked += took;
        if took > LONG_TURN || nanos > facts.of(WorkerCounter::LongestRoundNanos) {
            let spent = self.note(nanos, clock.thread_time(), facts);
            if took > LONG_TURN {
                return took.saturating_sub(spent);
            }
        } else if self.unmarked > MARK_EVERY {
            self.mark(clock);
        }
        Duration::ZERO
    }

    /// Notes a turn that is long, or the longest. Returns the processor's time that it had, and the
    /// turns since the last mark.
    #[cold]
    fn note(&mut self, nanos: u64, processor: Duration, facts: &mut WorkerCounters) -> Duration {
        let spent = processor.saturating_sub(self.processor);
        self.processor = processor;
        self.unmarked = Duration::ZERO;
        if u128::from(nanos) > LONG_TURN.as_nanos() {
            facts.add(WorkerCounter::LongTurns, 1);
        }
        if nanos <= facts.of(WorkerCounter::LongestRoundNanos) {
            return spent;
        }
        facts.set(WorkerCounter::LongestRoundNanos, nanos);
        let had = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX).min(nanos);
        facts.set(WorkerCounter::LongestTurnProcessorNanos, had);
        for ((kind, of_longest), before) in WORK_KINDS.into_iter().zip(self.before) {
            facts.set(of_longest, facts.of(kind) - before);
        }
        spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_turn_is_in_one_bucket_of_the_histogram() {
        let (mut watch, mut facts) = (TurnWatch::default(), WorkerCounters::default());
        for micros in [1, 10, 11, 900, 19_000, 30_000] {
            watch.begin(&facts);
            watch.end(Duration::from_micros(micros), &Clock::new(), &mut facts);
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
        watch.mark(&clock);
        watch.begin(&facts);
        let before = clock.now();
        std::thread::sleep(Duration::from_millis(30));
        let took = clock.now() - before;
        let preempted = watch.end(took, &clock, &mut facts);
        assert!(preempted <= took && preempted > took / 2, "{preempted:?} of {took:?}");
        assert_eq!(watch.end(LONG_TURN, &clock, &mut facts), Duration::ZERO);
    }

    #[test]
    fn the_longest_turn_is_told_by_its_kinds_of_work_and_others_are_counted() {
        let (mut watch, mut facts) = (TurnWatch::default(), WorkerCounters::default());
        let mut turn = |packets, units, millis: u64, processor: u64| {
            watch.begin(&facts);
            facts.add(WorkerCounter::RxPackets, packets);
            facts.add(WorkerCounter::Units, units);
            facts.add(WorkerCounter::TransmitNanos, packets * 1000);
            let processor = watch.processor + Duration::from_millis(processor);
            watch.note(millis * 1_000_000, processor, &mut facts);
            let of = |fact| facts.of(fact);
            [
                of(WorkerCounter::LongestRoundNanos) / 1_000_000,
                of(WorkerCounter::LongestTurnProcessorNanos) / 1_000_000,
                of(WorkerCounter::LongestTurnPackets),
                of(WorkerCounter::LongestTurnUnits),
                of(WorkerCounter::LongestTurnTransmitNanos) / 1000,
                of(WorkerCounter::LongTurns),
            ]
        };
        assert_eq!(turn(3, 30, 1, 1), [1, 1, 3, 30, 3, 0]);
        assert_eq!(turn(64, 700, 9, 2), [9, 2, 64, 700, 64, 1]);
        assert_eq!(turn(5, 50, 8, 8), [9, 2, 64, 700, 64, 2]);
        let mut other = WorkerCounters::default();
        other.set(WorkerCounter::LongestRoundNanos, 7_000_000);
        other.set(WorkerCounter::LongestTurnPackets, 60);
        let all = WorkerCounters::of_all([&other, &facts, &other]);
        assert_eq!(all.of(WorkerCounter::LongestTurnPackets), 64, "of the longest of all");
    }
}
