//! The one place where real time is read.
//!
//! Called by the worker once a turn, and by programs that need the same time. The clock is
//! `CLOCK_BOOTTIME`: monotonic, and it counts suspension, so that a lifetime of a minute is over
//! after a minute asleep (decision C11).

use floodwall_base::Instant;
use rustix::time::{ClockId, clock_gettime};

/// The system's monotonic clock that counts suspension. Costs about 20 ns a look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock(());

impl Clock {
    /// The clock.
    #[must_use]
    pub const fn new() -> Self {
        Self(())
    }

    /// Nanoseconds since the machine was started.
    #[must_use]
    #[inline]
    pub fn now(self) -> Instant {
        let time = clock_gettime(ClockId::Boottime);
        let (seconds, nanos) = (time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned());
        Instant::from_nanos(seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_never_runs_backwards() {
        let mut last = Clock::new().now();
        for _ in 0..1000 {
            let now = Clock::new().now();
            assert!(now >= last && now > Instant::ORIGIN);
            last = now;
        }
    }
}
