//! How fast: a number of packets in a time, as a schedule that does not drift.
//!
//! Called by `blast.rs` and `honest.rs`. Invariant: packet `i` is meant to leave `i` paces after
//! the start, rounded down to the nanosecond once, and never depends on when other packets left.

use core::time::Duration;

use crate::error::PlanError;

/// So many packets in so much time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    packets: u64,
    nanos: u64,
}

impl Pace {
    /// `packets` a second.
    #[must_use]
    pub const fn per_second(packets: u64) -> Self {
        Self { packets, nanos: 1_000_000_000 }
    }

    /// One packet every `time`.
    #[must_use]
    pub const fn every(time: Duration) -> Self {
        let nanos = time.as_nanos();
        Self { packets: 1, nanos: if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 } }
    }

    pub(crate) const fn check(self) -> Result<(), PlanError> {
        if self.packets == 0 || self.nanos == 0 { Err(PlanError::PaceZero) } else { Ok(()) }
    }

    /// When packet `i` is meant to leave, from the start.
    #[must_use]
    pub fn intended(self, i: u64) -> Duration {
        // A division by 128 bits costs as much as a packet's headers.
        if let Some(nanos) = i.checked_mul(self.nanos) {
            return Duration::from_nanos(nanos / self.packets.max(1));
        }
        let nanos = u128::from(i) * u128::from(self.nanos) / u128::from(self.packets.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Whether it stands for "as fast as it goes": a packet a nanosecond or more.
    pub(crate) const fn is_boundless(self) -> bool {
        self.packets >= self.nanos
    }

    /// How many packets are meant to leave before `time` from the start.
    pub(crate) fn before(self, time: Duration) -> u64 {
        let packets = time.as_nanos().saturating_mul(u128::from(self.packets));
        u64::try_from(packets.div_ceil(u128::from(self.nanos.max(1)))).unwrap_or(u64::MAX)
    }

    /// How many packets are meant to leave within any `time`, at most.
    #[must_use]
    pub fn most_within(self, time: Duration) -> u64 {
        let packets = time.as_nanos().saturating_mul(u128::from(self.packets));
        u64::try_from(packets / u128::from(self.nanos.max(1))).unwrap_or(u64::MAX).saturating_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_does_not_drift() {
        let pace = Pace::per_second(3_000_000);
        assert_eq!(pace.intended(1), Duration::from_nanos(333));
        assert_eq!(pace.intended(3_000_000 * 3600), Duration::from_secs(3600));
        assert_eq!(Pace::every(Duration::from_millis(20)).intended(50), Duration::from_secs(1));
        assert_eq!(pace.most_within(Duration::from_secs(2)), 6_000_001);
        for (nanos, packets) in [(0, 0), (1, 1), (333, 1), (334, 2), (666, 2), (667, 3)] {
            assert_eq!(pace.before(Duration::from_nanos(nanos)), packets, "{nanos}");
        }
    }

    #[test]
    fn a_pace_of_nothing_is_refused() {
        assert_eq!(Pace::per_second(0).check(), Err(PlanError::PaceZero));
        assert_eq!(Pace::every(Duration::ZERO).check(), Err(PlanError::PaceZero));
        assert_eq!(Pace::per_second(0).intended(7), Duration::from_secs(7));
    }
}
