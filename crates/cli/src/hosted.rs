//! The layout in which `run` publishes the host's counters. It is defined and read here only,
//! because the stack must not depend on its publisher.

use floodwall_base::{Counter, Counters, DropCounts, DropReason};
use floodwall_dispatch::{Published, Shown, WORDS_MAX};
use floodwall_stack::{Fates, Host, Stats};

/// What of the stack's counts is published.
const COUNT_WORDS: usize = Counter::ALL.len() + 2 * DropReason::ALL.len() + 13;
const _: () = assert!(COUNT_WORDS <= WORDS_MAX, "raise WORDS_MAX in dispatch");

/// The host, as a worker runs it.
pub(crate) fn shown(host: Host) -> Shown<Host> {
    Shown::new(host, |host, out| write(&host.stack().stats(), out))
}

fn write(stats: &Stats, out: &mut [u64]) {
    let outcomes = &stats.outcomes;
    let words = Counter::ALL
        .iter()
        .map(|counter| stats.counters.of(*counter))
        .chain(DropReason::ALL.iter().map(|reason| stats.drops_in.of(*reason)))
        .chain(DropReason::ALL.iter().map(|reason| stats.drops_out.of(*reason)))
        .chain([outcomes.received, outcomes.delivered, outcomes.forwarded, outcomes.answered])
        .chain([outcomes.merged, stats.held])
        .chain([outcomes.originated, outcomes.transmitted, stats.pending])
        .chain([
            outcomes.handed_in,
            outcomes.adopted_in,
            outcomes.handed_out,
            outcomes.adopted_out,
        ]);
    out.iter_mut().zip(words).for_each(|(slot, word)| *slot = word);
}

/// The words of these counts.
#[cfg(test)]
pub(crate) fn words(stats: &Stats) -> Vec<u64> {
    let mut words = vec![0; COUNT_WORDS];
    write(stats, &mut words);
    words
}

/// The words of all workers together: all of them are counts.
pub(crate) fn sum(all: &[Published]) -> Vec<u64> {
    let mut sum = vec![0; COUNT_WORDS];
    for published in all {
        sum.iter_mut().zip(&published.words).for_each(|(sum, word)| *sum += word);
    }
    sum
}

/// The counts of a snapshot.
pub(crate) fn read(words: &[u64]) -> Stats {
    let mut words = words.iter().copied();
    let mut next = || words.next().unwrap_or(0);
    let mut counters = Counters::default();
    for counter in Counter::ALL {
        counters.set(*counter, next());
    }
    let mut drops = || {
        let mut counts = DropCounts::default();
        for reason in DropReason::ALL {
            counts.add(*reason, next());
        }
        counts
    };
    let (drops_in, drops_out) = (drops(), drops());
    let [received, delivered, forwarded, answered, merged, held] = std::array::from_fn(|_| next());
    let (originated, transmitted, pending) = (next(), next(), next());
    let [handed_in, adopted_in, handed_out, adopted_out] = std::array::from_fn(|_| next());
    let outcomes = Fates {
        received,
        delivered,
        forwarded,
        answered,
        merged,
        handed_in,
        adopted_in,
        originated,
        transmitted,
        handed_out,
        adopted_out,
    };
    Stats { counters, drops_in, drops_out, outcomes, held, pending, ..Stats::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_survive_their_words() {
        let mut stats = Stats::default();
        stats.counters.add(Counter::IpInReceives, 1);
        stats.counters.add(Counter::FloodwallDadConflicts, 2);
        stats.drops_in.add(DropReason::NoBuffer, 3);
        stats.drops_out.add(DropReason::LoopbackFull, 4);
        stats.outcomes.received = 5;
        stats.outcomes.transmitted = 6;
        stats.pending = 7;
        (stats.outcomes.merged, stats.held) = (8, 9);
        (stats.outcomes.handed_in, stats.outcomes.adopted_out) = (10, 11);
        let mut words = [0; WORDS_MAX];
        write(&stats, &mut words);
        assert_eq!(read(&words), stats);
        assert_eq!((words[COUNT_WORDS - 5], words[COUNT_WORDS - 1]), (7, 11));
        assert_eq!(read(&[]), Stats::default());
    }
}
