//! `CookieMoment`: the two clock values that this crate uses, read by the caller.
//!
//! Used everywhere in this crate. The monotonic clock times entries; the wall clock only selects
//! the keys in force, so that instances which share a secret agree (decision C11). Invariant: a
//! jump of the wall clock changes which cookies are valid, and nothing else.

use core::time::Duration;

use floodwall_base::{Instant, limits};

/// A period of the wall clock in which one key makes cookies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct CookieEpoch(pub u64);

impl CookieEpoch {
    /// The period that `since_1970` lies in.
    #[must_use]
    pub const fn of(since_1970: Duration) -> Self {
        Self(since_1970.as_secs() / limits::SYN_COOKIE_PERIOD.as_secs())
    }

    /// The previous period.
    #[must_use]
    pub const fn before(self) -> Self {
        Self(self.0.wrapping_sub(1))
    }
}

/// The current time, by both clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CookieMoment {
    /// The monotonic clock, read once a round.
    pub now: Instant,
    /// The wall clock's period.
    pub epoch: CookieEpoch,
}

impl CookieMoment {
    /// A pair of clock values.
    #[must_use]
    pub const fn new(now: Instant, epoch: CookieEpoch) -> Self {
        Self { now, epoch }
    }

    /// For simulation: a wall clock that starts together with the monotonic one.
    #[must_use]
    pub const fn simulated(now: Instant) -> Self {
        Self { now, epoch: CookieEpoch::of(Duration::from_nanos(now.as_nanos())) }
    }
}
