//! The state of the querier on a link: its protocol version, query interval and robustness.
//!
//! Called by `membership.rs`. Invariants: values taken from queries are clamped; an old version is
//! used only while a querier used it recently; no timer decides, timestamps are compared. Read
//! first: RFC 9776 sections 7.2.1 and 8, RFC 9777 sections 8.2.1 and 9.

use core::time::Duration;

use floodwall_base::{Family, Instant};
use floodwall_wire::Generation;
use floodwall_wire::group::{GroupProtocol, GroupQuery};

/// The robustness variable until a query states another.
const ROBUSTNESS_DEFAULT: u8 = 2;
/// "SHOULD NOT be one" (RFC 9776 section 8.1).
const ROBUSTNESS_MIN: u8 = 2;
/// The query interval until a query states another.
const QUERY_INTERVAL_DEFAULT: Duration = Duration::from_secs(125);
/// The longest query interval accepted: it holds us at an old version for so long.
const INTERVAL_MAX: Duration = Duration::from_secs(3600);
/// The longest response time accepted, in the same sum.
const RESPONSE_MAX: Duration = Duration::from_secs(3600);

/// What was learned from queries on one interface.
#[derive(Clone, Copy, Debug)]
pub(super) struct Querier {
    first_until: Instant,
    second_until: Instant,
    robustness: u8,
    interval: Duration,
}

impl Querier {
    pub(super) const fn new() -> Self {
        Self {
            first_until: Instant::ORIGIN,
            second_until: Instant::ORIGIN,
            robustness: ROBUSTNESS_DEFAULT,
            interval: QUERY_INTERVAL_DEFAULT,
        }
    }

    /// The oldest version that a querier used recently, or the newest.
    pub(super) fn generation(&self, now: Instant) -> Generation {
        if now < self.first_until {
            Generation::First
        } else if now < self.second_until {
            Generation::Second
        } else {
            Generation::Third
        }
    }

    /// How often a change is reported.
    pub(super) const fn robustness(&self) -> u8 {
        self.robustness
    }

    /// Updates the state from a valid query.
    pub(super) fn hear<A: GroupProtocol>(&mut self, query: &GroupQuery<'_, A>, now: Instant) {
        // The older version querier present timeout.
        let response = query.max_response.min(RESPONSE_MAX);
        let until = now + self.interval * u32::from(self.robustness) + response;
        match query.generation {
            // There is no MLD of the first generation.
            Generation::First if A::FAMILY == Family::V4 => self.first_until = until,
            Generation::First | Generation::Second => self.second_until = until,
            Generation::Third => {
                let said = Some(query.robustness).filter(|r| *r > 0).unwrap_or(ROBUSTNESS_DEFAULT);
                self.robustness = said.max(ROBUSTNESS_MIN);
                let said =
                    Some(query.interval).filter(|i| !i.is_zero()).unwrap_or(QUERY_INTERVAL_DEFAULT);
                self.interval = said.min(INTERVAL_MAX);
            }
        }
    }
}
