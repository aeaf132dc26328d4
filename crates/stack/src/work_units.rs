//! How much work a call was, in units, computed from the counters that it moved.
//!
//! Called by `stack.rs` and `host.rs` before and after they handle packets. A unit is the cost of
//! the cheapest packet, one that is dropped at its headers; a packet that goes further costs more
//! of them. `floodwall cost` compares a turn's units with the time that it took, for every flood of
//! the drill, so that no flood is cheap in virtual time only (decision C13). Invariant: a handful
//! of counters is read once a burst, and on a packet's path only those that are read in one go are
//! counted for this: they move the others by known amounts, so that a burst of such packets alone
//! is not measured by them.

use floodwall_base::{Counter, Units};

use crate::stack::Stack;
use crate::work_snapshot::WorkSnapshot;

/// Units beside the packet itself, for: being delivered to its protocol; being originated and
/// routed; being a fragment, which is inserted among others (reassembly); being a neighbour
/// discovery message, which may update the cache.
const DELIVERED_UNITS: u64 = 1;
const ORIGINATED_UNITS: u64 = 2;
const FRAGMENT_UNITS: u64 = 5;
const TOLD_UNITS: u64 = 1;
/// Headers that any packet has: link, network, transport. Further headers cost a unit per
/// [`HEADERS_A_UNIT`].
const PLAIN_HEADERS: u64 = 3;
const HEADERS_A_UNIT: u64 = 5;
/// Neighbour discovery messages of both families.
const NDP_COUNTERS: [Counter; 4] = [
    Counter::FloodwallArpInRequests,
    Counter::FloodwallArpInReplies,
    Counter::Icmp6InNeighborSolicits,
    Counter::Icmp6InNeighborAdvertisements,
];

/// The counters before a burst that are read for each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BurstStart {
    received: u64,
    originated: u64,
    #[cfg(debug_assertions)]
    all: WorkSnapshot,
}

impl Stack {
    /// Reads the counters.
    pub(crate) fn marks(&self) -> WorkSnapshot {
        let (outcomes, counters) = (&self.stats.outcomes, &self.stats.counters);
        let of = |v4: Counter, v6: Counter| counters.of(v4) + counters.of(v6);
        WorkSnapshot {
            received: outcomes.received,
            delivered: of(Counter::IpInDelivers, Counter::Ip6InDelivers),
            originated: outcomes.originated,
            fragments: of(Counter::IpReasmReqds, Counter::Ip6ReasmReqds),
            told: NDP_COUNTERS.iter().map(|word| counters.of(*word)).sum(),
            headers: self.stats.access.checks(),
            in_one_go: self.burst.in_one_go.into(),
        }
    }

    /// Begins to measure a burst.
    #[inline]
    pub(crate) fn begin_burst(&mut self) -> BurstStart {
        (self.burst.in_one_go, self.burst.general) = (0, None);
        let outcomes = &self.stats.outcomes;
        BurstStart {
            received: outcomes.received,
            originated: outcomes.originated,
            #[cfg(debug_assertions)]
            all: self.marks(),
        }
    }

    /// A packet that is not read in one go is about to be handled.
    #[inline]
    pub(crate) fn goes_general(&mut self) {
        if self.burst.general.is_none() {
            self.note_general();
        }
    }

    #[inline(never)]
    fn note_general(&mut self) {
        self.burst.general = Some(self.marks());
    }

    /// The units of work of a burst that began with `start`.
    #[inline]
    pub(crate) fn effort_of_burst(&self, start: &BurstStart) -> Units {
        let (outcomes, quick) = (&self.stats.outcomes, u64::from(self.burst.in_one_go));
        let effort = match &self.burst.general {
            None => {
                let originated = outcomes.originated - start.originated;
                let units = outcomes.received - start.received
                    + DELIVERED_UNITS * quick
                    + ORIGINATED_UNITS * originated;
                Units(u32::try_from(units).unwrap_or(u32::MAX))
            }
            Some(general) => self.effort_of_mixed(start, general),
        };
        #[cfg(debug_assertions)]
        assert_eq!(effort, self.effort_since(&start.all), "as all counters give it");
        effort
    }

    /// The same of a burst with packets that were not read in one go.
    #[inline(never)]
    fn effort_of_mixed(&self, start: &BurstStart, general: &WorkSnapshot) -> Units {
        // Those that were before the first of them have each been delivered and had one header
        // counted; those behind are in the counters.
        let BurstStart { received, originated, .. } = *start;
        let quick = general.in_one_go;
        let before = WorkSnapshot {
            received,
            originated,
            delivered: general.delivered - quick,
            headers: general.headers - quick,
            ..*general
        };
        self.effort_since(&before)
    }

    /// The units of work since `before`.
    pub(crate) fn effort_since(&self, before: &WorkSnapshot) -> Units {
        Units(u32::try_from(self.marks().beyond(before)).unwrap_or(u32::MAX))
    }
}

impl WorkSnapshot {
    /// The units of work from `before` to `self`.
    fn beyond(&self, before: &Self) -> u64 {
        let received = self.received - before.received;
        let headers = self.headers - before.headers;
        received
            + DELIVERED_UNITS * (self.delivered - before.delivered)
            + ORIGINATED_UNITS * (self.originated - before.originated)
            + FRAGMENT_UNITS * (self.fragments - before.fragments)
            + TOLD_UNITS * (self.told - before.told)
            + headers.saturating_sub(PLAIN_HEADERS * received) / HEADERS_A_UNIT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: WorkSnapshot = WorkSnapshot {
        received: 0,
        delivered: 0,
        originated: 0,
        fragments: 0,
        told: 0,
        headers: 0,
        in_one_go: 0,
    };

    #[test]
    fn what_goes_further_costs_more() {
        let dead = WorkSnapshot { received: 64, headers: 128, ..NONE };
        let delivered = WorkSnapshot { delivered: 64, headers: 192, ..dead };
        let answered = WorkSnapshot { originated: 64, ..delivered };
        let fragments = WorkSnapshot { fragments: 64, ..dead };
        let chains = WorkSnapshot { headers: 64 * 30, ..dead };
        let told = WorkSnapshot { told: 64, ..dead };
        let of = |marks: WorkSnapshot| marks.beyond(&NONE);
        assert_eq!(of(NONE), 0);
        assert_eq!([dead, delivered, answered].map(of), [64, 128, 256]);
        assert_eq!([fragments, told].map(of), [384, 128]);
        assert_eq!(of(chains), 64 + 64 * 27 / 5);
        assert_eq!(chains.beyond(&dead), 64 * 28 / 5, "no unit twice");
    }
}
