//! `WallClock`: the wall clock as the shell has set it, which selects the keys of SYN cookies.
//!
//! Set and read by `syn.rs`; `syn_offers.rs` asks when an epoch ends. A wrong clock costs cookies
//! and nothing else.

use core::time::Duration;

use floodwall_base::Instant;
use floodwall_base::limits::SYN_COOKIE_PERIOD;
use floodwall_tcp::CookieEpoch;

/// The wall clock, by the monotonic one, and versions of other settings of cookies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct WallClock {
    /// The monotonic time at which both clocks were read.
    pub(super) at: Instant,
    /// The wall clock at that time, in nanoseconds since 1970: until the year 2554.
    pub(super) since_1970: u64,
    /// The epoch that was found last, and the times from which and until which it lasts.
    pub(super) known: (Instant, Instant, CookieEpoch),
    /// How often a secret for cookies was set that other shards and instances share, and how often
    /// a listener's policy for cookies.
    pub(crate) secrets: u32,
    pub(crate) policies: u32,
}

impl WallClock {
    /// The epoch, which selects the keys. Until the wall clock is set, it starts with the monotonic
    /// one.
    #[inline]
    pub(crate) fn epoch(&self, now: Instant) -> CookieEpoch {
        CookieEpoch::of(Duration::from_nanos(self.nanos_since_1970(now)))
    }

    /// A round begins, in which [`WallClock::epoch_of_round`] is that of `now`. It is computed once
    /// an epoch, or where time has gone back.
    #[inline(always)]
    pub(crate) fn begin(&mut self, now: Instant) {
        if now < self.known.0 || now >= self.known.1 {
            self.find_epoch(now);
        }
    }

    /// The epoch of the round; between rounds that of an earlier one, with which no cookie is made
    /// or opened.
    #[inline(always)]
    pub(crate) const fn epoch_of_round(&self) -> CookieEpoch {
        self.known.2
    }

    #[cold]
    fn find_epoch(&mut self, now: Instant) {
        let epoch = self.epoch(now);
        self.known = (now, self.end_of(epoch, now), epoch);
    }

    /// The wall clock's time.
    #[inline]
    pub(crate) fn nanos_since_1970(&self, now: Instant) -> u64 {
        let (now, at) = (now.as_nanos(), self.at.as_nanos());
        let (ahead, behind) = (now.saturating_sub(at), at.saturating_sub(now));
        self.since_1970.saturating_add(ahead).saturating_sub(behind)
    }

    /// Another number when it was set, or a secret or a policy.
    pub(crate) fn number(&self) -> u64 {
        let others = u64::from(self.secrets) << 32 | u64::from(self.policies);
        self.since_1970.wrapping_sub(self.at.as_nanos()).wrapping_add(others)
    }

    /// When an epoch ends, by the monotonic clock.
    pub(super) fn end_of(&self, epoch: CookieEpoch, now: Instant) -> Instant {
        let period = SYN_COOKIE_PERIOD.as_nanos() as u64;
        let end = epoch.0.wrapping_add(1).saturating_mul(period);
        let left = end.saturating_sub(self.nanos_since_1970(now));
        now + Duration::from_nanos(left.min(period))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wall_clock_runs_with_the_other_one_until_it_is_set() {
        let second = |n: u64| Instant::from_nanos(n * 1_000_000_000);
        let mut wall = WallClock::default();
        assert_eq!(wall.epoch(second(31)), CookieEpoch(2), "never set");
        wall = WallClock { at: second(100), since_1970: 1_500_000_000_000, ..wall };
        assert_eq!(wall.epoch(second(100)), CookieEpoch(100));
        assert_eq!(
            (wall.epoch(second(114)), wall.epoch(second(115))),
            (CookieEpoch(100), CookieEpoch(101))
        );
        assert_eq!(wall.epoch(second(99)), CookieEpoch(99), "before it was set");
        assert_eq!(wall.epoch(Instant::ORIGIN), CookieEpoch(93));
        wall.since_1970 = 0;
        assert_eq!(wall.epoch(Instant::ORIGIN), CookieEpoch(0), "nothing is before 1970");
    }

    #[test]
    fn the_epoch_of_a_round_is_that_of_its_time() {
        let ms = |n: u64| Instant::from_nanos(n * 1_000_000);
        let mut wall = WallClock {
            at: ms(100_000),
            since_1970: 1_500_000_007_123_456_789,
            ..Default::default()
        };
        let forward = (0..2000).map(|step| 90_000 + step * 37);
        for at in forward.chain([163_000, 90_000, 0, 160_000, 159_999]) {
            wall.begin(ms(at));
            assert_eq!(wall.epoch_of_round(), wall.epoch(ms(at)), "{at} ms");
        }
    }
}
