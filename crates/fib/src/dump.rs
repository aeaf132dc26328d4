//! `Dump`: all routes in an order that stands while they change.
//!
//! The order is that of the records' numbers. A route that exists from the first call to the last
//! is shown exactly once; what comes or goes meanwhile is shown once or not at all.

use floodwall_base::{Instant, Prefix};

use crate::fib::Fib;
use crate::lpm::LpmFamily;
use crate::route::{Route, TableId};

/// Where a dump has got to; it may be kept across changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dump(pub(crate) u32);

impl Dump {
    /// The next route, including expired ones that are not collected yet. Free records are passed
    /// over: a call may look at as many as there ever were routes.
    pub fn next<A: LpmFamily>(&mut self, fib: &Fib<A>) -> Option<Route<A>> {
        while self.0 < fib.records.end() {
            let at = self.0;
            self.0 += 1;
            if let Some(route) = fib.present_at(at) {
                return Some(route);
            }
        }
        None
    }
}

impl<A: LpmFamily> Fib<A> {
    /// All routes of all tables, including expired ones that are not collected yet. To go on while
    /// routes change, keep a [`Dump`] instead.
    pub fn dump(&self) -> impl Iterator<Item = Route<A>> + '_ {
        let mut dump = Dump::default();
        core::iter::from_fn(move || dump.next(self))
    }

    /// The routes that live at `now`.
    pub fn dump_at(&self, now: Instant) -> impl Iterator<Item = Route<A>> + '_ {
        self.dump().filter(move |route| route.expires.is_none_or(|end| end > now))
    }

    /// The routes of exactly one prefix, best first, expired ones included.
    pub fn routes_to(
        &self,
        table: TableId,
        prefix: Prefix<A>,
    ) -> impl Iterator<Item = Route<A>> + '_ {
        self.of_prefix(table, prefix).into_iter().filter_map(|at| self.route_at(at))
    }
}
