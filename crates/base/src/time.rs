//! Time as the engines see it: nanoseconds of a monotonic clock, passed in by the caller.
//!
//! `dispatch` reads a clock that counts suspension, once a round; `world` invents one (decision
//! C11). Nothing here reads a clock.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// A moment: nanoseconds since an unspecified origin. 584 years fit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The origin.
    pub const ORIGIN: Self = Self(0);
    /// Later than every deadline.
    pub const FAR: Self = Self(u64::MAX);

    /// The moment `nanos` nanoseconds behind the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time since `earlier`; zero where that is in the future.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    /// Saturates at [`Instant::FAR`], so that no lifetime can wrap.
    fn add(self, length: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, length: Duration) {
        *self = *self + length;
    }
}

impl Sub for Instant {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.saturating_since(earlier)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_wraps() {
        assert_eq!(Instant::FAR + Duration::from_secs(1), Instant::FAR);
        assert_eq!(Instant::ORIGIN - Instant::from_nanos(5), Duration::ZERO);
        assert_eq!(Instant::ORIGIN + Duration::MAX, Instant::FAR);
        assert_eq!((Instant::ORIGIN + Duration::from_millis(3)).as_nanos(), 3_000_000);
    }
}
