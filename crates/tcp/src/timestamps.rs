//! Segment timestamps (RFC 7323): our clock as seen by a peer, and protection against wrapped
//! sequence numbers (PAWS).
//!
//! Used by input and output of a connection and by `time_wait`. Invariants: the clock's offset is a
//! keyed hash of the two endpoints, so that it does not reveal the host's uptime, while one pair of
//! endpoints sees it rise over all its connections, which RFC 6191 requires; a segment that fails
//! its sequence or ACK test never changes `TS.Recent`. Read first: RFC 7323 sections 4.3, 5 and 7.

use core::time::Duration;

use floodwall_base::{FlowKey, HashKey, Instant, Seq};

use crate::coarse_time::CoarseTime;

/// Bytes of the option in a segment, with the padding before it (RFC 7323 appendix A).
pub(crate) const OPTION_LEN: u32 = 12;

/// One tick of our clock (RFC 7323 section 5.4: 1 ms to 1 s).
pub const TICK: Duration = Duration::from_millis(1);
const TICK_NANOS: u64 = 1_000_000;
/// The age at which `TS.Recent` is invalid (section 5.5): 24 days, half the number space at 1 ms;
/// rounded down, as it is compared by ticks.
const RECENT_STALE: u32 = CoarseTime::ticks_of(Duration::from_secs(24 * 24 * 3600)) - 1;

/// Our clock, as seen by one peer: 4 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TimestampClock {
    offset: u32,
}

impl TimestampClock {
    /// The clock of a flow. One hash.
    #[must_use]
    pub fn of(key: &HashKey, flow: &FlowKey) -> Self {
        Self::of_hash(key.flow(flow))
    }

    /// The clock of a flow with this keyed hash, of which it shows the upper half.
    #[must_use]
    pub const fn of_hash(hash: u64) -> Self {
        Self { offset: (hash >> 32) as u32 }
    }

    /// The clock that had the value `value` at `now`: for a connection with a handshake by cookie.
    #[must_use]
    pub const fn that_showed(value: u32, now: Instant) -> Self {
        Self { offset: value.wrapping_sub(ticks(now)) }
    }

    /// The current value: TSval.
    #[must_use]
    pub const fn value(self, now: Instant) -> u32 {
        self.offset.wrapping_add(ticks(now))
    }

    /// The time of an echoed value (TSecr): the beginning of that tick. `None` where it is in the
    /// future, or more than half the number space in the past: not a value of ours.
    #[must_use]
    pub fn moment(self, echo: u32, now: Instant) -> Option<Instant> {
        let ago = self.value(now).wrapping_sub(echo);
        if ago >= 1 << 31 {
            return None;
        }
        let tick = (now.as_nanos() / TICK_NANOS).checked_sub(u64::from(ago))?;
        Some(Instant::from_nanos(tick * TICK_NANOS))
    }
}

/// The beginning of the tick that contains a time: what [`TimestampClock::moment`] returns for a
/// segment sent then.
#[must_use]
pub const fn tick_of(moment: Instant) -> Instant {
    Instant::from_nanos(moment.as_nanos() / TICK_NANOS * TICK_NANOS)
}

const fn ticks(now: Instant) -> u32 {
    (now.as_nanos() / TICK_NANOS) as u32
}

/// `TS.Recent` and when it was taken: 8 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecentTimestamp {
    value: u32,
    at: CoarseTime,
}

impl RecentTimestamp {
    /// Initialized from the peer's SYN.
    #[must_use]
    pub const fn new(value: u32, now: Instant) -> Self {
        Self { value, at: CoarseTime::of(now) }
    }

    /// The value to echo: TSecr.
    #[must_use]
    pub const fn echo(&self) -> u32 {
        self.value
    }

    /// Whether it was updated so long ago, to a tick of 17 ms.
    #[must_use]
    pub const fn is_as_old_as(&self, age: Duration, now: Instant) -> bool {
        CoarseTime::of(now).since(self.at) >= CoarseTime::ticks_of(age)
    }

    /// PAWS (section 5.3, R1): whether a segment with this timestamp is an old duplicate. Not for
    /// segments with RST (section 5.2).
    #[must_use]
    pub fn is_old(&self, value: u32, now: Instant) -> bool {
        is_before(value, self.value) && CoarseTime::of(now).since(self.at) < RECENT_STALE
    }

    /// Updates TS.Recent from a segment that passed PAWS, the sequence test and the ACK test
    /// (section 4.3): where it covers the last acknowledgment sent, and is not older than the
    /// stored value, unless that is stale.
    pub fn update(&mut self, value: u32, seq: Seq, last_ack_sent: Seq, now: Instant) {
        if seq.is_at_most(last_ack_sent) && !self.is_old(value, now) {
            *self = Self::new(value, now);
        }
    }
}

/// Whether one timestamp is older than another.
#[must_use]
pub const fn is_before(value: u32, other: u32) -> bool {
    Seq(value).is_before(Seq(other))
}

#[cfg(test)]
mod tests {
    use floodwall_base::{Endpoint, IfIndex};
    use proptest::prelude::*;

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    #[test]
    fn the_clock_of_a_pair_of_ends_is_its_own_and_outlives_its_connections() {
        let key = HashKey::new(1, 2);
        let flow = |port| FlowKey {
            local: Endpoint::new("2001:db8::1".parse().unwrap(), 80),
            remote: Endpoint::new("2001:db8::2".parse().unwrap(), port),
            zone: IfIndex::default(),
            protocol: 6,
        };
        let now = Instant::from_nanos(5_999_999);
        let (a, again, b) = (
            TimestampClock::of(&key, &flow(1)),
            TimestampClock::of(&key, &flow(1)),
            TimestampClock::of(&key, &flow(2)),
        );
        assert_eq!(a, again);
        assert_ne!(a.value(now), b.value(now));
        assert_eq!(a.value(now + TICK).wrapping_sub(a.value(now)), 1);
        let kept = TimestampClock::that_showed(77, now);
        assert_eq!((kept.value(now), kept.value(now + 3 * TICK)), (77, 80));
    }

    #[test]
    fn an_old_duplicate_is_known_for_24_days() {
        let start = Instant::ORIGIN;
        let recent = RecentTimestamp::new(100, start);
        assert!(
            recent.is_old(99, start) && !recent.is_old(100, start) && !recent.is_old(101, start)
        );
        assert!(recent.is_old(99, start + 23 * DAY));
        assert!(!recent.is_old(99, start + 24 * DAY), "too old to compare");
        let wrapped = RecentTimestamp::new(u32::MAX, start);
        assert!(!wrapped.is_old(0, start) && wrapped.is_old(u32::MAX - 1, start));
    }

    #[test]
    fn only_a_segment_that_covers_the_last_ack_moves_the_timestamp() {
        let now = Instant::ORIGIN;
        let mut recent = RecentTimestamp::new(100, now);
        recent.update(110, Seq(1001), Seq(1000), now);
        assert_eq!(recent.echo(), 100, "it lies beyond a hole: no update");
        recent.update(110, Seq(1000), Seq(1000), now);
        assert_eq!(recent.echo(), 110);
        recent.update(105, Seq(900), Seq(1000), now);
        assert_eq!(recent.echo(), 110, "older than the stored one");
        recent.update(5, Seq(1000), Seq(1000), now + 25 * DAY);
        assert_eq!(recent.echo(), 5, "the stored one is stale");
    }

    proptest! {
        #[test]
        fn an_echo_names_the_tick_in_which_it_left(
            offset: u32, sent in 0_u64..1 << 60, later in 0_u64..2_000_000_000_000_000
        ) {
            let clock = TimestampClock::that_showed(offset, Instant::ORIGIN);
            let sent = Instant::from_nanos(sent);
            let now = sent + Duration::from_nanos(later);
            prop_assert_eq!(clock.moment(clock.value(sent), now), Some(tick_of(sent)));
            prop_assert_eq!(clock.moment(clock.value(now).wrapping_add(1), now), None);
        }
    }
}
