//! Round-trip time estimation and the retransmission timeout (RFC 6298).
//!
//! Used by `recovery` and the connection's timers. Invariant: the timeout lies within the bounds of
//! [`RttConfig`], for any samples and any number of back-offs. Karn's rule is applied by the
//! caller: a sample is from a segment that was sent once, or from an echoed timestamp (RFC 7323
//! section 4.1). Read first: RFC 6298 sections 2 and 5; RFC 7323 appendix G (many samples in one
//! round trip); RFC 8985 section 6.2 (use of the minimum).

use core::hint::cold_path;
use core::time::Duration;

use floodwall_base::Instant;

use crate::coarse_time::CoarseTime;

/// Bounds of the retransmission timeout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RttConfig {
    /// The timeout before the first sample (RFC 6298 section 2.1: one second).
    pub initial: Duration,
    /// Minimum of the variance term of the timeout: allows for a peer's delayed ACK. The RFC bounds
    /// the whole timeout by a second; 200 ms on top of the smoothed RTT is what hosts use.
    pub min: Duration,
    /// The upper bound of the timeout, with back-off or without.
    pub max: Duration,
}

impl RttConfig {
    /// No timeout is shorter: nanoseconds.
    #[inline(always)]
    pub(crate) const fn least_nanos(&self) -> u64 {
        nanos(self.min)
    }
}

impl Default for RttConfig {
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(1),
            min: Duration::from_millis(200),
            max: Duration::from_secs(120),
        }
    }
}

/// The timeout of data after a SYN with a late ACK (RFC 6298 section 5.7).
const AFTER_LATE_SYN: Duration = Duration::from_secs(3);
/// Times are kept in units of 2^6 nanoseconds: they fit 32 bits.
const UNIT_SHIFT: u32 = 6;
/// Upper bound of a sample, 274 s: a peer that withholds an ACK must not stall the timer.
const SAMPLE_MAX: u64 = ((NONE - 1) as u64) << UNIT_SHIFT;
/// The minimum RTT expires after one to two times this.
const MIN_WINDOW: u32 = CoarseTime::ticks_of(Duration::from_secs(150));
/// Further back-offs have no effect, since the upper bound is reached.
const BACKOFF_MAX: u8 = 16;
/// No sample yet.
const NONE: u32 = u32::MAX;

/// The RTT estimator of one connection: 28 bytes.
#[derive(Clone, Debug)]
pub struct RttEstimator {
    /// SRTT in units; [`NONE`] before the first sample.
    srtt: u32,
    /// RTTVAR in units.
    var: u32,
    latest: u32,
    /// The minimum of the current window and of the previous one, in units.
    min: [u32; 2],
    window_ends: CoarseTime,
    backoff: u8,
    syn_was_late: bool,
}

impl Default for RttEstimator {
    fn default() -> Self {
        Self::new()
    }
}

impl RttEstimator {
    /// An estimator without samples.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            srtt: NONE,
            var: 0,
            latest: NONE,
            min: [NONE; 2],
            window_ends: CoarseTime::ORIGIN,
            backoff: 0,
            syn_was_late: false,
        }
    }

    /// Adds one sample. `per_round` is how many samples a round trip is expected to give: half of
    /// the segments in flight with delayed ACKs; 0 and 1 mean one (RFC 7323 appendix G). Ends any
    /// back-off (RFC 6298 section 5.7, Karn).
    pub fn sample(&mut self, time: Duration, per_round: u32, now: Instant) {
        self.sample_nanos(u64::try_from(time.as_nanos()).unwrap_or(SAMPLE_MAX), per_round, now);
    }

    /// The same of a time in nanoseconds.
    #[inline(always)]
    pub(crate) fn sample_nanos(&mut self, nanos: u64, per_round: u32, now: Instant) {
        let r = Self::units_of(nanos);
        self.latest = r;
        self.note_min(r, now);
        self.backoff = 0;
        if self.srtt == NONE {
            (self.srtt, self.var) = (r, r / 2);
            return;
        }
        let off = self.srtt.abs_diff(r);
        if per_round <= 1 {
            // As below, without a division.
            (self.var, self.srtt) = (step(self.var, off, 4), step(self.srtt, r, 8));
            return;
        }
        self.var = step(self.var, off, per_round.saturating_mul(4));
        self.srtt = step(self.srtt, r, per_round.saturating_mul(8));
    }

    fn note_min(&mut self, r: u32, now: Instant) {
        let [current, before] = self.min;
        let now = CoarseTime::of(now);
        self.min = if self.window_ends.is_within(now, MIN_WINDOW) {
            [current.min(r), before]
        } else {
            cold_path();
            let stale = now.since(self.window_ends) >= MIN_WINDOW;
            self.window_ends = now.after(MIN_WINDOW);
            [r, if stale { NONE } else { current }]
        };
    }

    /// The timer expired: the next timeout is twice as long (exponential back-off, RFC 6298 section
    /// 5.5).
    pub const fn back_off(&mut self) {
        if self.backoff < BACKOFF_MAX {
            self.backoff += 1;
        }
    }

    /// Resets the back-off: the timeout was spurious, or the peer's window opened.
    pub const fn end_back_off(&mut self) {
        self.backoff = 0;
    }

    /// The SYN or the SYN-ACK was retransmitted: without a sample, the timeout of data is three
    /// seconds (RFC 6298 section 5.7).
    pub const fn syn_was_retransmitted(&mut self) {
        self.syn_was_late = true;
        self.backoff = 0;
    }

    /// The number of back-offs.
    #[must_use]
    pub const fn backoff(&self) -> u8 {
        self.backoff
    }

    /// Nanoseconds as the estimator keeps them.
    #[inline(always)]
    pub(crate) fn units_of(nanos: u64) -> u32 {
        (nanos.min(SAMPLE_MAX) >> UNIT_SHIFT) as u32
    }

    /// So many units.
    pub(crate) const fn length(units: u32) -> Duration {
        Duration::from_nanos(in_nanos(units))
    }

    /// The current retransmission timeout (RTO).
    #[inline]
    #[must_use]
    pub fn rto(&self, config: &RttConfig) -> Duration {
        Duration::from_nanos(self.rto_nanos(config))
    }

    /// The same in nanoseconds; read for each segment.
    #[inline]
    pub(crate) fn rto_nanos(&self, config: &RttConfig) -> u64 {
        let backed_off = self.base_nanos(config).saturating_mul(1 << self.backoff.min(BACKOFF_MAX));
        backed_off.min(nanos(config.max))
    }

    /// The timeout without back-off.
    #[inline]
    #[must_use]
    pub fn base_rto(&self, config: &RttConfig) -> Duration {
        Duration::from_nanos(self.base_nanos(config))
    }

    /// The same in nanoseconds.
    #[inline]
    pub(crate) fn base_nanos(&self, config: &RttConfig) -> u64 {
        let (least, most) = (nanos(config.min), nanos(config.max));
        let base = match self.srtt {
            NONE if self.syn_was_late => nanos(AFTER_LATE_SYN.max(config.initial)),
            NONE => nanos(config.initial),
            srtt => in_nanos(srtt) + (4 * in_nanos(self.var)).max(least),
        };
        base.clamp(least, most.max(least))
    }

    /// The smoothed round-trip time (SRTT).
    #[must_use]
    pub const fn smoothed(&self) -> Option<Duration> {
        known(self.srtt)
    }

    /// Twice the smoothed round-trip time, in nanoseconds.
    #[inline]
    pub(crate) const fn twice_smoothed_nanos(&self) -> Option<u64> {
        // No sample exceeds SAMPLE_MAX.
        if self.srtt == NONE { None } else { Some(2 * in_nanos(self.srtt)) }
    }

    /// The mean deviation (RTTVAR).
    #[must_use]
    pub const fn variation(&self) -> Duration {
        Duration::from_nanos(in_nanos(self.var))
    }

    /// The latest sample.
    #[must_use]
    pub const fn latest(&self) -> Option<Duration> {
        known(self.latest)
    }

    /// The minimum RTT of the last minutes.
    #[must_use]
    pub fn min(&self) -> Option<Duration> {
        let [current, before] = self.min;
        known(current.min(before))
    }

    /// The same in nanoseconds; [`u64::MAX`] before the first sample.
    #[inline]
    pub(crate) fn min_nanos(&self) -> u64 {
        match self.min {
            [NONE, NONE] => u64::MAX,
            [current, before] => in_nanos(current.min(before)),
        }
    }
}

#[inline(always)]
const fn in_nanos(units: u32) -> u64 {
    (units as u64) << UNIT_SHIFT
}

/// A duration of the configuration in nanoseconds, saturating at 584 years.
#[inline]
const fn nanos(length: Duration) -> u64 {
    let all = length.as_nanos();
    if all > u64::MAX as u128 { u64::MAX } else { all as u64 }
}

/// `from` moved by one part in `parts` towards `to` (exponential average).
#[inline(always)]
const fn step(from: u32, to: u32, parts: u32) -> u32 {
    if to >= from { from + (to - from) / parts } else { from - (from - to) / parts }
}

const fn known(units: u32) -> Option<Duration> {
    if units == NONE { None } else { Some(Duration::from_nanos(in_nanos(units))) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const C: RttConfig = RttConfig {
        initial: Duration::from_secs(1),
        min: Duration::from_millis(200),
        max: Duration::from_secs(120),
    };

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// Nanoseconds as the estimator keeps them.
    fn units(nanos: u64) -> Duration {
        Duration::from_nanos(nanos >> UNIT_SHIFT << UNIT_SHIFT)
    }

    fn at(n: u64) -> Instant {
        Instant::ORIGIN + ms(n)
    }

    #[test]
    fn the_first_sample_sets_the_mean_and_half_of_it_the_deviation() {
        let mut rtt = RttEstimator::new();
        assert_eq!((rtt.rto(&C), rtt.smoothed(), rtt.min()), (ms(1000), None, None));
        rtt.sample(ms(100), 1, at(0));
        assert_eq!((rtt.smoothed(), rtt.variation()), (Some(ms(100)), ms(50)));
        assert_eq!(rtt.rto(&C), ms(300));
        rtt.sample(ms(200), 1, at(100));
        // RTTVAR = 3/4 * 50 + 1/4 * 100; SRTT = 7/8 * 100 + 1/8 * 200.
        assert_eq!(
            (rtt.variation(), rtt.smoothed()),
            (units(62_500_000), Some(units(112_500_000)))
        );
        assert_eq!(rtt.rto(&C), units(112_500_000) + 4 * units(62_500_000));
    }

    #[test]
    fn each_timeout_doubles_up_to_the_bound_and_a_sample_ends_it() {
        let mut rtt = RttEstimator::new();
        rtt.sample(ms(100), 1, at(0));
        for expected in
            [300_u64, 600, 1200, 2400, 4800, 9600, 19_200, 38_400, 76_800, 120_000, 120_000]
        {
            assert_eq!(rtt.rto(&C), ms(expected));
            rtt.back_off();
        }
        (0..100).for_each(|_| rtt.back_off());
        assert_eq!(rtt.rto(&C), C.max);
        rtt.sample(ms(100), 1, at(9));
        assert!(rtt.rto(&C) <= ms(300));
    }

    #[test]
    fn a_late_syn_makes_the_first_data_wait_three_seconds() {
        let mut rtt = RttEstimator::new();
        rtt.back_off();
        rtt.syn_was_retransmitted();
        assert_eq!(rtt.rto(&C), Duration::from_secs(3));
        rtt.sample(ms(10), 1, at(0));
        assert_eq!(rtt.rto(&C), ms(210));
    }

    #[test]
    fn many_samples_in_a_round_trip_move_the_mean_as_one_would() {
        let (mut one, mut many) = (RttEstimator::new(), RttEstimator::new());
        one.sample(ms(100), 1, at(0));
        many.sample(ms(100), 1, at(0));
        one.sample(ms(200), 1, at(1));
        (0..20).for_each(|_| many.sample(ms(200), 20, at(1)));
        let (a, b) = (one.smoothed().unwrap(), many.smoothed().unwrap());
        assert!(a.abs_diff(b) < ms(1), "{a:?} {b:?}");
    }

    #[test]
    fn the_smallest_time_is_forgotten_once_its_window_is_over() {
        let mut rtt = RttEstimator::new();
        rtt.sample(ms(10), 1, at(0));
        rtt.sample(ms(50), 1, at(1000));
        assert_eq!(rtt.min(), Some(ms(10)));
        rtt.sample(ms(50), 1, at(160_000));
        assert_eq!(rtt.min(), Some(ms(10)), "the window before still counts");
        rtt.sample(ms(60), 1, at(320_000));
        assert_eq!(rtt.min(), Some(ms(50)));
    }

    proptest! {
        #[test]
        fn the_timeout_stays_within_its_bounds_and_above_the_mean(
            samples in prop::collection::vec((0_u64..u64::MAX, 0_u32..100, any::<bool>()), 1..200)
        ) {
            let mut rtt = RttEstimator::new();
            let (mut low, mut high, mut now) = (u64::MAX, 0, 0_u64);
            for (sample, per_round, timeout) in samples {
                let sample = if sample % 3 == 0 { sample } else { sample % 2_000_000_000 };
                now = now.saturating_add(sample % 1_000_000_000);
                rtt.sample(Duration::from_nanos(sample), per_round, Instant::from_nanos(now));
                let kept = units(sample.min(SAMPLE_MAX)).as_nanos() as u64;
                (low, high) = (low.min(kept), high.max(kept));
                if timeout { rtt.back_off(); }
                let srtt = rtt.smoothed().unwrap().as_nanos() as u64;
                prop_assert!((low..=high).contains(&srtt));
                prop_assert!(rtt.rto(&C) >= C.min && rtt.rto(&C) <= C.max);
                prop_assert!(rtt.rto(&C) >= rtt.smoothed().unwrap().min(C.max));
                prop_assert!(rtt.min().unwrap() <= rtt.latest().unwrap());
            }
        }
    }
}
