//! `FibReader`: routes as any worker looks them up, without a lock, under a view.
//!
//! Called by the followers of a host's control shard, and by any other holder of a [`DomainView`]
//! of the host's domain. Invariants: the result of a look-up was the answer at some moment of it,
//! or, where several changes happen while one look-up is held up, a route that fits and was there;
//! it is the reader's clock that decides whether a route has expired. Nothing that is found is a
//! reference: it may be kept.

use std::sync::Arc;

use floodwall_base::{HashKey, IfIndex, Instant};
use floodwall_sync::RcuCell;
use floodwall_sync::qsbr::DomainView;
use floodwall_sync::shim::atomic::{AtomicU64, Ordering::Acquire};

use crate::burst::{BurstLookup, burst};
use crate::hops::{BoundHops, Hops};
use crate::index::{ShownIndex, find_listed, leads_into_dead};
use crate::lifetimes::{ENTRY, Lifetimes};
use crate::lpm::{BoundLpm, LpmFamily};
use crate::next_hop::{Found, NextHopId};
use crate::query::Query;
use crate::route::RouteKind;
use crate::rule::{Rule, RuleAction};

/// What readers see in place.
pub(crate) struct SharedTables<A: LpmFamily> {
    pub(crate) shown: RcuCell<ShownTables<A>>,
    pub(crate) lifetimes: Arc<Lifetimes>,
    pub(crate) hops: Arc<Hops>,
    /// One bit for each interface that carries nothing now.
    pub(crate) down: AtomicU64,
    pub(crate) key: HashKey,
}

/// What is shown as a whole.
pub(crate) struct ShownTables<A: LpmFamily> {
    pub(crate) plan: LookupPlan<A>,
    pub(crate) tables: Vec<ShownIndex<A>>,
}

/// The rules, compiled: those with an empty table are left out.
#[derive(Clone, Debug)]
pub(crate) struct LookupPlan<A: LpmFamily> {
    pub(crate) steps: Vec<LookupStep<A>>,
    /// The table of the only step, where that one is for everything.
    pub(crate) only: Option<u16>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct LookupStep<A: LpmFamily> {
    pub(crate) rule: Rule<A>,
    /// The place of its table.
    pub(crate) table: u16,
}

impl<A: LpmFamily> LookupPlan<A> {
    pub(crate) fn new(steps: Vec<LookupStep<A>>) -> Self {
        let only = match steps.as_slice() {
            [one] if one.rule.is_for_all() => match one.rule.action {
                RuleAction::Table(_) => Some(one.table),
                RuleAction::Decide(_) => None,
            },
            _ => None,
        };
        Self { steps, only }
    }

    /// Looks up the tables in turn until one has an answer.
    #[inline]
    pub(crate) fn decide(
        &self,
        query: &Query<A>,
        mut ask: impl FnMut(u16) -> Option<Found<A>>,
    ) -> Option<Found<A>> {
        if let Some(only) = self.only {
            return ask(only);
        }
        let meant = self.steps.iter().filter(|step| step.rule.means(query));
        for step in meant {
            match step.rule.action {
                RuleAction::Decide(kind) => return Some(verdict(kind)),
                RuleAction::Table(_) => {
                    if let Some(found) = ask(step.table) {
                        return Some(found);
                    }
                }
            }
        }
        None
    }
}

pub(crate) const fn verdict<A: LpmFamily>(kind: RouteKind) -> Found<A> {
    let (iface, next_hop) = (IfIndex::LOOPBACK, NextHopId(0));
    Found { kind, iface, gateway: None, src_addr: None, next_hop, is_choice: false }
}

/// What a prefix's value leads to.
pub(crate) struct HopResolver<'a, A: LpmFamily> {
    shared: &'a SharedTables<A>,
    hops: BoundHops<'a>,
}

impl<A: LpmFamily> HopResolver<'_, A> {
    /// What a prefix's value leads to at `now`.
    #[inline(always)]
    pub(crate) fn resolve(&self, value: u32, query: &Query<A>, now: Instant) -> Option<Found<A>> {
        let down = self.shared.down.load(Acquire);
        if value & ENTRY == 0 && value != 0 {
            return self.hops.found(value, down, || self.shared.flow(query));
        }
        self.shared.resolve_ending(value, query, down, now)
    }

    /// Prefetches a lifetime that will be read soon.
    #[inline]
    pub(crate) fn ask_for_lifetime(&self, entry: u32) {
        self.shared.lifetimes.ask_for(entry);
    }
}

impl<A: LpmFamily> SharedTables<A> {
    /// What values lead to, for as many look-ups as there are.
    #[inline(always)]
    pub(crate) fn resolver(&self) -> HopResolver<'_, A> {
        HopResolver { shared: self, hops: self.hops.bind() }
    }

    /// Each lifetime once at most: so a chain that is changed meanwhile ends too.
    #[inline(never)]
    fn resolve_ending(
        &self,
        mut value: u32,
        query: &Query<A>,
        down: u64,
        now: Instant,
    ) -> Option<Found<A>> {
        for _ in 0..=self.lifetimes.len() {
            if value == 0 {
                return None;
            }
            let hop = if value & ENTRY == 0 {
                core::mem::take(&mut value)
            } else {
                let (hop, behind) = self.lifetimes.look(value & !ENTRY, now);
                value = behind;
                hop.unwrap_or(0)
            };
            if hop != 0
                && let Some(found) = self.hops.bind().found(hop, down, || self.flow(query))
            {
                return Some(found);
            }
        }
        None
    }

    fn flow(&self, query: &Query<A>) -> u64 {
        query.flow.unwrap_or_else(|| self.key.addr(query.dst_addr.to_ip(), 0))
    }
}

/// The tables bound to a view by [`FibReader::bind`].
pub struct BoundFib<'a, A: LpmFamily> {
    shown: &'a ShownTables<A>,
    view: DomainView<'a>,
    resolver: HopResolver<'a, A>,
    /// The trie of the only table, where that one is for everything.
    only: Option<BoundLpm<'a, A>>,
}

impl<A: LpmFamily> BoundFib<'_, A> {
    /// What [`FibReader::lookup`] finds.
    #[must_use]
    #[inline(always)]
    pub fn lookup(&self, addr: A, now: Instant) -> Option<Found<A>> {
        match &self.only {
            Some(lpm) => self.resolver.resolve(lpm.lookup(addr, now), &Query::to(addr), now),
            None => self.by_rules(&Query::to(addr), now),
        }
    }

    /// What [`FibReader::lookup_query`] finds.
    #[must_use]
    #[inline(always)]
    pub fn lookup_query(&self, query: &Query<A>, now: Instant) -> Option<Found<A>> {
        match &self.only {
            Some(lpm) => self.resolver.resolve(lpm.lookup(query.dst_addr, now), query, now),
            None => self.by_rules(query, now),
        }
    }

    /// The same where several tables may have an answer, or the only one is a list.
    #[inline(never)]
    fn by_rules(&self, query: &Query<A>, now: Instant) -> Option<Found<A>> {
        let Self { shown, view, resolver, .. } = self;
        shown.plan.decide(query, |table| match shown.tables.get(usize::from(table))? {
            ShownIndex::Listed(list) => {
                find_listed(list, query.dst_addr, |value| resolver.resolve(value, query, now))
            }
            ShownIndex::Large(lpm) => {
                resolver.resolve(lpm.lookup(*view, query.dst_addr, now), query, now)
            }
        })
    }
}

impl<A: LpmFamily> core::fmt::Debug for BoundFib<'_, A> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("BoundFib").finish_non_exhaustive()
    }
}

impl<A: LpmFamily> BurstLookup<A> for BoundFib<'_, A> {
    fn trie(&self, table: u16, addrs: &[A], now: Instant, values: &mut [u32]) -> bool {
        let Some(ShownIndex::Large(lpm)) = self.shown.tables.get(usize::from(table)) else {
            return false;
        };
        lpm.lookup_burst(self.view, addrs, now, values);
        true
    }

    fn list(&self, table: u16, addr: A, now: Instant) -> Option<Found<A>> {
        let Some(ShownIndex::Listed(list)) = self.shown.tables.get(usize::from(table)) else {
            return None;
        };
        find_listed(list, addr, |value| self.resolver.resolve(value, &Query::to(addr), now))
    }
}

/// The reader's side of a [`Fib`](crate::Fib). Clones read the same tables.
pub struct FibReader<A: LpmFamily> {
    pub(crate) shared: Arc<SharedTables<A>>,
}

impl<A: LpmFamily> FibReader<A> {
    /// The same tables for look-ups one after the other in a loop, which keeps the addresses of
    /// their arrays in registers. Rules and lists of few prefixes are as of now; what changes in
    /// place, a trie, lifetimes and next hops, is found as it is at the look-up.
    #[must_use]
    #[inline(always)]
    pub fn bind<'a>(&'a self, view: DomainView<'a>) -> BoundFib<'a, A> {
        let shown = self.shared.shown.load(view);
        let only = shown.plan.only.and_then(|only| match shown.tables.get(usize::from(only))? {
            ShownIndex::Large(lpm) => Some(lpm.bind(view)),
            ShownIndex::Listed(_) => None,
        });
        BoundFib { shown, view, resolver: self.shared.resolver(), only }
    }

    /// Where a packet of this host to `addr` goes at `now`; `None` where no route leads there.
    #[must_use]
    #[inline]
    pub fn lookup(&self, view: DomainView<'_>, addr: A, now: Instant) -> Option<Found<A>> {
        self.bind(view).lookup(addr, now)
    }

    /// As [`FibReader::lookup`], with all inputs of rules and ECMP groups.
    #[must_use]
    #[inline]
    pub fn lookup_query(
        &self,
        view: DomainView<'_>,
        query: &Query<A>,
        now: Instant,
    ) -> Option<Found<A>> {
        self.bind(view).lookup_query(query, now)
    }

    /// Where packets of this host to each of `addrs` go: `found` is filled up to the shorter of
    /// both. In a large table several times faster than one after the other.
    pub fn lookup_burst(
        &self,
        view: DomainView<'_>,
        addrs: &[A],
        now: Instant,
        found: &mut [Option<Found<A>>],
    ) {
        let bound = self.bind(view);
        burst(&bound.resolver, &bound.shown.plan, &bound, addrs, now, found);
    }

    /// Whether some route that does not count now, because its interface is down, leads there: to
    /// report why a look-up found none. Of a large table: whether any does, to anywhere.
    #[must_use]
    pub fn leads_into_a_dead_link(&self, view: DomainView<'_>, addr: A) -> bool {
        if self.shared.down.load(Acquire) == 0 {
            return false;
        }
        self.shared.shown.load(view).tables.iter().any(|table| match table {
            ShownIndex::Listed(list) => leads_into_dead(list, addr),
            ShownIndex::Large(_) => true,
        })
    }
}

impl<A: LpmFamily> Clone for FibReader<A> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<A: LpmFamily> core::fmt::Debug for FibReader<A> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("FibReader").finish_non_exhaustive()
    }
}
