//! The one place where real time is read.
//!
//! Called by the worker once a turn, and by programs that need the same time. The clock is
//! `CLOCK_BOOTTIME`: monotonic, and it counts suspension, so that a lifetime of a minute is over
//! after a minute asleep (decision C11).

use core::time::Duration;

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

    /// What the calling thread has had of the processor. A system call: 0.1 to 0.3 us.
    pub(crate) fn thread_time(self) -> Duration {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
    }

    /// Wall-clock time since 1970-01-01 00:00 UTC, for captures and humans. Engines never see it.
    #[must_use]
    pub fn unix_time(self) -> Duration {
        let time = clock_gettime(ClockId::Realtime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
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

    #[test]
    fn wall_clock_time_is_of_this_century() {
        assert!(Clock::new().unix_time() > Duration::from_secs(1_700_000_000));
    }
}
