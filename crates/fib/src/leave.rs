//! Many routes that go at once: of a link, of a lease, of a router, or by the operator's word.
//!
//! Called by `stack`. What goes is marked in the call and is from then on no route any more: no
//! verb finds it, no dump shows it. Taken out of the tables it is in steps, for each removal may
//! leave work below its prefix: the call does about `ROUTE_STEP_UNITS` of it, [`Fib::sweep`] the
//! rest, which is due at once. Until then packets may still go that way, as they did a moment
//! before; of a link that went they do not, because look-ups pass its routes over. Invariant: what
//! is on its way out is in a table and counts against its bounds until it is taken out.

use floodwall_base::{Instant, Prefix};

use crate::dump::Dump;
use crate::fib::Fib;
use crate::lpm::LpmFamily;
use crate::marks::BitMarks;
use crate::route::{Route, TableId};

/// The cost of taking out one route, in the trie's units, beside the work below its prefix.
const REMOVAL_UNITS: usize = 64;

impl<A: LpmFamily> Fib<A> {
    /// Looks at the next `most` records from `dump` on and removes the routes that `which` names;
    /// returns how many those are, or `None` where there was nothing left to look at.
    pub fn remove_some(
        &mut self,
        dump: &mut Dump,
        most: usize,
        now: Instant,
        mut which: impl FnMut(&Route<A>) -> bool,
    ) -> Option<usize> {
        let end = self.records.end();
        let upto = end.min(dump.0.saturating_add(u32::try_from(most).unwrap_or(u32::MAX)));
        if dump.0 >= upto {
            return None;
        }
        let mut gone = 0;
        for at in core::mem::replace(&mut dump.0, upto)..upto {
            if self.present_at(at).is_some_and(|route| which(&route)) {
                self.leaving.insert(at);
                gone += 1;
            }
        }
        self.leave(self.step, now);
        Some(gone)
    }

    /// Removes those that `which` selects of the routes that were learnt from a link: advertised
    /// ones and those of leases; returns how many. Looks at these alone, independent of the number
    /// of others: at most `ROUTES_LEARNT_INTERFACE_MAX` and the routes of a lease for each
    /// interface.
    pub fn remove_told(&mut self, now: Instant, mut which: impl FnMut(&Route<A>) -> bool) -> usize {
        // Servers of leases reach this: nothing is collected on the way.
        let mut leaving = core::mem::replace(&mut self.leaving, BitMarks::new(0));
        let mut removed = 0;
        for at in self.told.iter() {
            if !leaving.contains(at) && self.route_at(at).is_some_and(|route| which(&route)) {
                leaving.insert(at);
                removed += 1;
            }
        }
        self.leaving = leaving;
        self.leave(self.step, now);
        removed
    }

    /// Removes those that `which` names of the routes to exactly one prefix; returns how many.
    /// Looks at these, at most `ROUTES_PREFIX_MAX`, once for each that is removed.
    pub fn remove_to(
        &mut self,
        table: TableId,
        prefix: Prefix<A>,
        now: Instant,
        mut which: impl FnMut(&Route<A>) -> bool,
    ) -> usize {
        // Routers reach this: nothing is collected on the way.
        let mut removed = 0;
        while let Some(at) = self.first(table, prefix, &mut which) {
            self.leaving.insert(at);
            removed += 1;
        }
        self.leave(self.step, now);
        removed
    }

    /// Takes out what is on its way out, in the trie's units: stops after the removal with which as
    /// many are spent, or where too much waits for readers. Returns how many it took.
    pub(crate) fn leave(&mut self, units: usize, now: Instant) -> usize {
        let before = self.units;
        let spent = |this: &Self| (this.units - before) as usize;
        while spent(self) < units {
            self.go_on(units - spent(self), now);
            let next = self.leaving.iter().next().filter(|_| self.owing.is_none());
            let Some(at) = next.filter(|_| spent(self) < units) else { break };
            if self.remove_at(at, now).is_err() {
                break;
            }
            self.units += REMOVAL_UNITS as u64;
        }
        spent(self)
    }

    /// As [`Fib::route_at`], unless the route is on its way out.
    pub(crate) fn present_at(&self, at: u32) -> Option<Route<A>> {
        self.route_at(at).filter(|_| !self.leaving.contains(at))
    }
}
