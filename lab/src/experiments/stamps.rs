//! `Stamps`: what a program that only takes timestamps has of a core that others use as well.
//!
//! Called by experiments in real threads, in the program's own thread. A gap up to [`STEP`] is the
//! program's own step, or an interrupt: progress. Invariant: of the core's time, what third threads
//! had while the program was ready (`account.rs`) does not count as a loss here.

use core::time::Duration;

use floodwall_dispatch::Clock;

use super::account::Account;

/// The timestamps of one program: its progress, and its gaps.
pub(crate) const STEP: Duration = Duration::from_micros(20);
/// Gaps that are remembered: one each 40 us of a second.
const GAPS_MAX: usize = 25_000;

/// What the timestamps have shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stamps {
    /// How long they were taken.
    pub(crate) whole: Duration,
    /// Of that, what lay between two of them that were too far apart.
    pub(crate) lost: Duration,
    /// Of that, what thirds had.
    pub(crate) thirds: Duration,
    /// The longest gap.
    pub(crate) longest: Duration,
    /// The gap that one in a hundred exceeds, by number.
    pub(crate) p99: Duration,
}

impl Stamps {
    /// Takes stamps for `length`, on `core`, where thread `receiver` of this process is at work.
    pub(crate) fn take(length: Duration, receiver: i32, core: usize) -> Self {
        let account = Account::open(receiver, core);
        let mut gaps = Vec::with_capacity(GAPS_MAX);
        let clock = Clock::new();
        let start = clock.now();
        let mut all = Self::default();
        let mut last = start;
        while last - start < length {
            let now = clock.now();
            let gap = now - last;
            if gap > STEP {
                all.lost += gap;
                if gaps.len() < GAPS_MAX {
                    gaps.push(gap);
                }
            }
            all.longest = all.longest.max(gap);
            last = now;
        }
        all.whole = last - start;
        all.thirds = account.thirds().min(all.lost);
        all.p99 = one_in_a_hundred(&mut gaps);
        all
    }

    /// The program's part of the time that thirds left.
    pub(crate) fn share(&self) -> f64 {
        let (whole, thirds) = (self.whole.as_secs_f64(), self.thirds.as_secs_f64());
        (whole - self.lost.as_secs_f64()) / (whole - thirds).max(f64::EPSILON)
    }

    /// The medians of several programs' stamps; `None` of none.
    pub(crate) fn middle<'a>(all: impl Iterator<Item = &'a Self>) -> Option<Self> {
        let all: Vec<_> = all.collect();
        let of = |what: fn(&Self) -> Duration| {
            let mut values: Vec<_> = all.iter().map(|stamps| what(stamps)).collect();
            values.sort_unstable();
            values.get(values.len().saturating_sub(1) / 2).copied()
        };
        Some(Self {
            whole: of(|stamps| stamps.whole)?,
            lost: of(|stamps| stamps.lost)?,
            thirds: of(|stamps| stamps.thirds)?,
            longest: of(|stamps| stamps.longest)?,
            p99: of(|stamps| stamps.p99)?,
        })
    }

    /// The part of the time that thirds had.
    pub(crate) fn thirds_part(&self) -> f64 {
        self.thirds.as_secs_f64() / self.whole.as_secs_f64().max(f64::EPSILON)
    }
}

fn one_in_a_hundred(gaps: &mut [Duration]) -> Duration {
    gaps.sort_unstable();
    let at = (gaps.len() * 99).div_ceil(100).saturating_sub(1);
    gaps.get(at).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_gap_in_a_hundred_is_longer_than_the_ninety_ninth() {
        let mut gaps: Vec<_> = (1..=200).rev().map(Duration::from_micros).collect();
        assert_eq!(one_in_a_hundred(&mut gaps), Duration::from_micros(198));
        assert_eq!(one_in_a_hundred(&mut []), Duration::ZERO);
    }

    #[test]
    fn time_taken_by_others_is_counted_as_no_loss() {
        let millis = Duration::from_millis;
        let stamps = Stamps {
            whole: millis(100),
            lost: millis(60),
            thirds: millis(20),
            ..Stamps::default()
        };
        assert!((stamps.share() - 0.5).abs() < 1e-9 && (stamps.thirds_part() - 0.2).abs() < 1e-9);
    }
}
