//! `CoarseTime`: a time in four bytes, for deadlines and ages of seconds to days; a connection has
//! several of them.
//!
//! Invariant: a tick is 2^24 ns, 17 ms; the number wraps after 2.3 years, so that ages are right up
//! to that, and what lies ahead must lie no further ahead than the caller names. Not here: times
//! that must be exact, which are an `Instant`.

use core::time::Duration;

use floodwall_base::Instant;

const TICK_SHIFT: u32 = 24;

/// A time in ticks, which wraps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CoarseTime(u32);

impl CoarseTime {
    pub(crate) const ORIGIN: Self = Self(0);

    /// The tick that contains a time.
    #[inline(always)]
    pub(crate) const fn of(at: Instant) -> Self {
        Self((at.as_nanos() >> TICK_SHIFT) as u32)
    }

    /// A length of time in ticks, rounded up; saturating.
    pub(crate) const fn ticks_of(length: Duration) -> u32 {
        let ticks = length.as_nanos().div_ceil(1 << TICK_SHIFT);
        if ticks > u32::MAX as u128 { u32::MAX } else { ticks as u32 }
    }

    /// So many ticks later.
    pub(crate) const fn after(self, ticks: u32) -> Self {
        Self(self.0.wrapping_add(ticks))
    }

    /// Ticks since an earlier time.
    pub(crate) const fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Whether it lies ahead of `now`, by so many ticks at most.
    #[inline(always)]
    pub(crate) const fn is_within(self, now: Self, ticks: u32) -> bool {
        let ahead = self.since(now);
        ahead != 0 && ahead <= ticks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_deadlines_are_the_same_where_the_number_wraps() {
        let tick = 1_u64 << TICK_SHIFT;
        for base in [0, 1000, u64::from(u32::MAX) - 4, u64::from(u32::MAX) - 12] {
            let at = |ticks: u64| CoarseTime::of(Instant::from_nanos((base + ticks) * tick + 5));
            assert_eq!(at(9).since(at(2)), 7, "{base}");
            let deadline = at(3).after(10);
            for (now, ahead) in [(3, true), (12, true), (13, false), (14, false), (1 << 30, false)]
            {
                assert_eq!(deadline.is_within(at(now), 10), ahead, "{base} {now}");
            }
        }
        assert_eq!(CoarseTime::ticks_of(Duration::from_nanos(tick + 1)), 2);
        assert_eq!(CoarseTime::ticks_of(Duration::MAX), u32::MAX);
    }
}
