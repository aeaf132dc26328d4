//! Early solicitations: a lost answer is asked for again before the RFC's second has passed.
//!
//! Called by `neighbor.rs` while a neighbour is solicited. Under a flood an answer is lost as any
//! frame is, in the card's ring, and a second without the gateway's link address is a second in
//! which nothing can be sent. So between two solicitations at RFC 4861's pace there are
//! [`EARLY_SOLICIT_MAX`] more, at growing intervals (`specs/exceptions/rfc4861-7.2.2.md`), while
//! packets wait for the neighbour, or it is a gateway of ours, or it is being probed. Invariants:
//! the RFC's own solicitations, and the time until a neighbour is given up, are what they are
//! without; nothing is solicited early on a link where a router advertises a RetransTimer.
//!
//! # Under flood
//! Reachable by any sender that makes us send to unused addresses. Bound: [`NEIGHBOR_EARLY_RATE`]
//! early solicitations a second of an interface and family, for neighbours to which packets went
//! since they were last solicited, and as many for all others: a sweep, which sends one packet to
//! each address, takes nothing from a gateway. Worst work per packet: none; five timers a second of
//! each unresolved neighbour. When the credit is used up a neighbour waits for its next turn of the
//! RFC's. Shown by `an_early_solicitation_of_a_sweep_takes_nothing_from_a_gateways`.

use core::time::Duration;

use floodwall_base::limits::{NEIGHBOR_EARLY_BURST, NEIGHBOR_EARLY_RATE};
use floodwall_base::{Address, Instant, Price, TokenBucket};

use super::{NeighborCache, NeighborEvent, NeighborState};

/// When a solicitation is first sent again; each further interval is twice as long.
pub const EARLY_SOLICIT_FIRST: Duration = Duration::from_millis(25);
/// How many early solicitations follow one of the RFC's: after 25, 75, 175, 375 and 775 ms.
pub const EARLY_SOLICIT_MAX: u8 = 5;

const PRICE: Price = Price::new(NEIGHBOR_EARLY_RATE, NEIGHBOR_EARLY_BURST);

/// The credit of one interface.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct EarlyCredit {
    /// For neighbours to which packets went since they were last solicited.
    in_use: TokenBucket,
    other: TokenBucket,
}

impl EarlyCredit {
    fn take(&mut self, in_use: bool, now: Instant) -> bool {
        (in_use && self.in_use.take(PRICE, now)) || self.other.take(PRICE, now)
    }
}

/// The time of the early solicitation behind `sent` others, or of the next one of the RFC's.
pub(super) fn next_early(sent: u8, now: Instant, until: Instant) -> Instant {
    match EARLY_SOLICIT_FIRST.checked_mul(1 << sent.min(EARLY_SOLICIT_MAX)) {
        Some(wait) if sent < EARLY_SOLICIT_MAX => until.min(now + wait),
        _ => until,
    }
}

impl<A: Address> NeighborCache<A> {
    /// The timer of a neighbour that is being solicited rang before its next solicitation by the
    /// RFC is due.
    pub(super) fn solicit_early(&mut self, at: u32, now: Instant) -> Option<NeighborEvent<A>> {
        let entry = self.table.entry_mut(at)?;
        let in_use = entry.used || (entry.kept && entry.solicits <= 1);
        let wanted = match entry.state? {
            // A single packet is worth a second's; further ones are for those that go on.
            NeighborState::Incomplete => {
                let is_first = entry.solicits <= 1;
                (entry.kept && is_first) || (!entry.pending.is_empty() && (is_first || in_use))
            }
            _ => true,
        };
        entry.early = entry.early.saturating_add(1);
        let (iface, addr, next) =
            (entry.iface, entry.addr, next_early(entry.early, now, entry.until));
        let unicast = (entry.state == Some(NeighborState::Probe)).then_some(entry.link_addr);
        self.table.wheel.insert(at, next);
        let credit = self.early.get_mut(usize::from(iface.0))?;
        if !wanted || !credit.take(in_use, now) {
            return None;
        }
        self.table.entry_mut(at)?.used = false;
        Some(NeighborEvent::Solicit { iface, addr, unicast })
    }
}
