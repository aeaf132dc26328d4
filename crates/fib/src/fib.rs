//! `Fib`: the routing tables of one family, as their one writer has them.
//!
//! Kept by the control shard of `stack`, by tests and by the laboratory. Changes are in
//! `change.rs`, the end of lifetimes in `collect.rs`, next-hop objects and rules in `objects.rs`;
//! here is what all of them share.
//!
//! ```text
//!            rules ──► table ──► index: prefix ──► value ──► next hop ──► found
//!                                                    └─► lifetime ─► next lifetime ─► … ─► cover
//! ```
//!
//! # Invariants
//!
//! I1. A route is in the collector's wheel exactly while it is in a table and has an end. I2. Only
//! the writer changes ends and membership, both in one call. I3, I4. A route that leaves a table
//! leaves the wheel in the same call, and its memory is used again only after a grace period. I5.
//! Replacing a permanent route by one that ends, or the other way, takes an explicit replace. I6.
//! Readers treat an expired route as absent by their own clock. I7. An endless lifetime is none,
//! one that is over adds nothing. A change that is refused changes nothing.
//!
//! # Under flood
//! Filled by: the operator up to [`FibConfig::routes_max`]; routers of a link up to
//! `ROUTES_LEARNT_INTERFACE_MAX` for each interface and `ROUTES_LEARNT_ROUTER_MAX` for each of
//! them, which are counted apart, so neither takes the other's room. Worst work per packet: no
//! change happens for a packet other than an advertisement; a look-up walks at most the expired
//! routes that are not collected yet and that cover its destination. When full the newcomer is
//! refused with a [`RouteError`]: nothing is evicted.

use std::collections::HashMap;
use std::sync::Arc;

use floodwall_base::{HashKey, IfIndex, Instant, Prefix, limits};
use floodwall_sync::qsbr::{Domain, Limbo, LimboCaps};
use floodwall_sync::shim::atomic::AtomicU64;
use floodwall_sync::{RcuCell, Retired};

use crate::burst::{BurstLookup, burst};
use crate::config::FibConfig;
use crate::error::RouteError;
use crate::expiry::Expiry;
use crate::hop_writer::{HopWriter, OldHop};
use crate::hops::Hops;
use crate::index::{SmallIndex, leads_into_dead};
use crate::keyed::Keyed;
use crate::lifetimes::Lifetimes;
use crate::lpm::LpmFamily;
use crate::marks::BitMarks;
use crate::next_hop::Found;
use crate::query::Query;
use crate::reader::{FibReader, LookupPlan, LookupStep, SharedTables, ShownTables};
use crate::records::RouteRecords;
use crate::route::TableId;
use crate::rule::{PRIORITIES, Rule, RuleAction};
use crate::table::{RouteTable, TableParts};

/// Memory that readers may still look at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Old {
    Hop(OldHop),
    Lifetime(u32),
}

/// Versions of what is shown as a whole that may wait for readers.
const SHOWN_WAITING: usize = 64;

/// The forwarding information base of one host and family: tables, rules, next hops and lifetimes,
/// on the writer's side.
pub struct Fib<A: LpmFamily> {
    pub(crate) domain: Domain,
    /// There are no other readers: nothing is to be published.
    is_alone: bool,
    pub(crate) shared: Arc<SharedTables<A>>,
    pub(crate) config: FibConfig,
    pub(crate) keyed: Keyed,
    pub(crate) records: RouteRecords<A>,
    pub(crate) tables: Vec<RouteTable<A>>,
    pub(crate) rules: Vec<Rule<A>>,
    pub(crate) plan: LookupPlan<A>,
    pub(crate) hops: HopWriter<A>,
    pub(crate) expiry: Expiry,
    /// The record of each lifetime.
    pub(crate) lifetime_of: Box<[u32]>,
    pub(crate) free_lifetimes: Vec<u32>,
    /// Learnt routes by interface, by router, and all.
    pub(crate) by_iface: HashMap<IfIndex, usize, Keyed>,
    pub(crate) by_router: HashMap<(IfIndex, A), usize, Keyed>,
    pub(crate) learnt: usize,
    /// Records of routes that were learnt from a link.
    pub(crate) told: BitMarks,
    /// Records of routes on their way out: see `leave.rs`.
    pub(crate) leaving: BitMarks,
    /// The record that was taken last.
    pub(crate) newest: u32,
    /// From when on it is known what ends when: see [`Fib::collect`].
    pub(crate) ends_known_from: Instant,
    /// What readers no longer reach once all is shown.
    pub(crate) unlinked: Vec<Old>,
    /// Of the object that is being released.
    pub(crate) old_hops: Vec<OldHop>,
    limbo: Limbo<Old>,
    shown: Limbo<Retired<ShownTables<A>>>,
    /// Whether something is to be shown.
    pub(crate) dirty: bool,
    /// Whether [`Fib::publish`] may have something to do: always where [`Fib::waits`].
    pub(crate) may_wait: bool,
    pub(crate) down: u64,
    /// Records that are still to be looked at since a link went or came.
    pub(crate) sweep: Option<u32>,
    /// The table with pending work of its last change; until it is done no other may begin.
    pub(crate) owing: Option<u16>,
    /// How much of that one call does.
    pub(crate) step: usize,
    /// What was done of it since the beginning, and what routes took that went.
    pub(crate) units: u64,
    pub(crate) generation: u32,
    pub(crate) revision: u32,
}

impl<A: LpmFamily> Fib<A> {
    /// Empty tables for the readers of `domain`. Takes about 120 bytes a next hop and 26 a lifetime
    /// now; what the routes themselves take grows with them.
    #[must_use]
    pub fn new(domain: &Domain, config: FibConfig, key: HashKey, now: Instant) -> Self {
        let keyed = Keyed(HashKey::new(key.bytes(b"routes"), key.bytes(b"maps of routes")));
        let hops = Arc::new(Hops::new(config.next_hops_max, config.groups_max));
        let lifetimes = Arc::new(Lifetimes::new(config.expiring_max));
        let shown = ShownTables { plan: LookupPlan::new(Vec::new()), tables: Vec::new() };
        let shared = Arc::new(SharedTables {
            shown: RcuCell::new(domain, Box::new(shown)),
            lifetimes,
            hops: Arc::clone(&hops),
            down: AtomicU64::new(0),
            key,
        });
        let old = 2 * config.expiring_max + 4 * config.next_hops_max;
        Self {
            domain: domain.clone(),
            is_alone: false,
            shared,
            keyed,
            records: RouteRecords::new(config.routes_max + config.learnt_max),
            tables: Vec::new(),
            rules: PRIORITIES.map(|(priority, table)| Rule::all(priority, table)).to_vec(),
            plan: LookupPlan::new(Vec::new()),
            hops: HopWriter::new(hops, config.next_hops_max, config.groups_max, keyed),
            expiry: Expiry::new(config.expiring_max, now),
            lifetime_of: vec![0; config.expiring_max].into(),
            free_lifetimes: (0..config.expiring_max as u32).rev().collect(),
            by_iface: HashMap::with_hasher(keyed),
            by_router: HashMap::with_hasher(keyed),
            learnt: 0,
            told: BitMarks::new(config.routes_max + config.learnt_max),
            leaving: BitMarks::new(config.routes_max + config.learnt_max),
            newest: 0,
            ends_known_from: Instant::ORIGIN,
            unlinked: Vec::with_capacity(limits::ROUTES_LISTED_MAX),
            old_hops: Vec::with_capacity(4),
            limbo: domain.limbo_of("routes", LimboCaps { items: old, bytes: old }),
            shown: domain
                .limbo_of("route tables", LimboCaps { items: SHOWN_WAITING, bytes: 1 << 22 }),
            dirty: false,
            may_wait: false,
            down: 0,
            sweep: None,
            owing: None,
            step: limits::ROUTE_STEP_UNITS,
            units: 0,
            generation: 0,
            revision: 0,
            config,
        }
    }

    /// Tables that only their owner reads.
    #[must_use]
    pub fn alone(config: FibConfig, key: HashKey, now: Instant) -> Self {
        Self { is_alone: true, ..Self::new(&Domain::new(0), config, key, now) }
    }

    /// The readers' end.
    #[must_use]
    pub fn reader(&self) -> FibReader<A> {
        FibReader { shared: Arc::clone(&self.shared) }
    }

    /// The domain of the readers that may look up here.
    #[must_use]
    pub const fn domain(&self) -> &Domain {
        &self.domain
    }

    /// Changes whenever an answer may have changed, but for lifetimes that end by themselves.
    #[must_use]
    pub const fn generation(&self) -> u32 {
        self.generation
    }

    /// Changes whenever anything here was changed, a lifetime too.
    #[must_use]
    pub const fn revision(&self) -> u32 {
        self.revision
    }

    /// The number of routes, including expired ones that are not collected yet.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.records.len() - self.leaving.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many of them have an end.
    #[must_use]
    pub const fn expiring(&self) -> usize {
        self.expiry.len()
    }

    /// What it may hold.
    #[must_use]
    pub const fn config(&self) -> &FibConfig {
        &self.config
    }

    /// Where a packet of this host to `addr` goes at `now`.
    #[must_use]
    #[inline]
    pub fn lookup(&self, addr: A, now: Instant) -> Option<Found<A>> {
        self.lookup_query(&Query::to(addr), now)
    }

    /// As [`Fib::lookup`], with all inputs of rules and ECMP groups.
    #[must_use]
    #[inline]
    pub fn lookup_query(&self, query: &Query<A>, now: Instant) -> Option<Found<A>> {
        self.plan.decide(query, |table| {
            let index = &self.tables.get(usize::from(table))?.index;
            let resolver = self.shared.resolver();
            index.find(query.dst_addr, now, |value| resolver.resolve(value, query, now))
        })
    }

    /// Where packets of this host to each of `addrs` go: `found` is filled up to the shorter of
    /// both. In a large table several times faster than one after the other.
    pub fn lookup_burst(&self, addrs: &[A], now: Instant, found: &mut [Option<Found<A>>]) {
        burst(&self.shared.resolver(), &self.plan, self, addrs, now, found);
    }

    /// As [`FibReader::leads_into_a_dead_link`].
    #[must_use]
    pub fn leads_into_a_dead_link(&self, addr: A) -> bool {
        self.down != 0
            && self.tables.iter().any(|table| match &table.index {
                SmallIndex::Listed(list) => leads_into_dead(list, addr),
                SmallIndex::Large(_) => true,
            })
    }

    /// Shows readers all that has changed, and takes back the memory that they no longer look at.
    /// To be called after changes, at the end of a round; costs one load where nothing is to be
    /// done. False where it must be called again, because too much waits for readers.
    #[inline]
    pub fn publish(&mut self, now: Instant) -> bool {
        debug_assert!(self.may_wait || !self.waits(), "a change was not marked");
        !self.may_wait || self.publish_waiting(now)
    }

    #[inline(never)]
    fn publish_waiting(&mut self, now: Instant) -> bool {
        let is_all_shown = !self.waits() || self.publish_changes(now);
        self.may_wait = self.waits();
        is_all_shown
    }

    fn publish_changes(&mut self, now: Instant) -> bool {
        self.reclaim(now);
        if self.dirty && !self.is_alone {
            let tables = self.tables.iter().map(|table| table.index.shown()).collect();
            let next = Box::new(ShownTables { plan: self.plan.clone(), tables });
            let listed = limits::ROUTES_LISTED_MAX * 48 * self.tables.len() + 512;
            if self.shared.shown.replace(next, listed, &mut self.shown, now).is_err() {
                return false;
            }
        }
        self.dirty = false;
        // Some addresses still find what was there before.
        if self.owing.is_some() {
            return true;
        }
        while let Some(old) = self.unlinked.pop() {
            let Ok(slot) = self.limbo.reserve(1) else {
                self.unlinked.push(old);
                return false;
            };
            slot.retire(old, now);
        }
        self.reclaim(now);
        true
    }

    /// Whether something waits for readers or is to be shown: [`Fib::publish`] is to be called now
    /// and then.
    #[must_use]
    pub fn waits(&self) -> bool {
        let limbo = self.limbo.oldest(Instant::ORIGIN).is_some();
        let shown = self.shown.oldest(Instant::ORIGIN).is_some();
        self.dirty || self.owing.is_some() || !self.unlinked.is_empty() || limbo || shown
    }

    fn reclaim(&mut self, now: Instant) {
        while self.shown.reclaim(|| now, drop) > 0 {}
        let Self { limbo, hops, free_lifetimes, .. } = self;
        let free = |old| match old {
            Old::Hop(old) => hops.free(old),
            Old::Lifetime(at) => free_lifetimes.push(at),
        };
        let mut free = free;
        while limbo.reclaim(|| now, &mut free) > 0 {}
    }

    /// The table of a number, made where it is not there yet.
    pub(crate) fn table_at(&mut self, id: TableId) -> Result<u16, RouteError> {
        if let Some(at) = self.table_of(id) {
            return Ok(at);
        }
        if self.tables.len() >= limits::ROUTE_TABLES_MAX {
            return Err(RouteError::TablesFull(limits::ROUTE_TABLES_MAX));
        }
        self.tables.push(RouteTable::new(id, self.keyed));
        self.compile();
        Ok(self.tables.len() as u16 - 1)
    }

    pub(crate) fn table_of(&self, id: TableId) -> Option<u16> {
        self.tables.iter().position(|table| table.id == id).map(|at| at as u16)
    }

    /// Makes the plan anew, after a change of rules or tables.
    pub(crate) fn compile(&mut self) {
        let steps = self.rules.iter().filter_map(|rule| {
            let table = match rule.action {
                RuleAction::Table(id) => self.table_of(id)?,
                RuleAction::Decide(_) => 0,
            };
            Some(LookupStep { rule: *rule, table })
        });
        self.plan = LookupPlan::new(steps.collect());
        self.changed();
        (self.dirty, self.may_wait) = (true, true);
    }

    pub(crate) const fn changed(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        self.revision = self.revision.wrapping_add(1);
    }

    /// Shows a prefix's list as it is now.
    pub(crate) fn refresh(
        &mut self,
        table: u16,
        prefix: Prefix<A>,
        now: Instant,
    ) -> Result<(), RouteError> {
        self.with_table(table, now, |table, parts| table.refresh(prefix, parts))
    }

    /// Makes room for one prefix more in a table.
    pub(crate) fn make_room(&mut self, table: u16, now: Instant) -> Result<(), RouteError> {
        let prefixes = self.config.routes_max + self.config.learnt_max;
        let domain = self.domain.clone();
        if self.with_table(table, now, |table, parts| table.make_room(&domain, prefixes, parts))? {
            (self.dirty, self.may_wait) = (true, true);
        }
        Ok(())
    }

    /// Makes a table large before it must be; returns the list that it was, unless it was large.
    pub(crate) fn outgrow(
        &mut self,
        table: u16,
        now: Instant,
    ) -> Result<Option<SmallIndex<A>>, RouteError> {
        let prefixes = self.config.routes_max + self.config.learnt_max;
        let domain = self.domain.clone();
        let list = self.with_table(table, now, |table, parts| match table.index.is_large() {
            true => Ok(None),
            false => table.grow(&domain, prefixes, parts).map(Some),
        })?;
        (self.dirty, self.may_wait) = (self.dirty || list.is_some(), true);
        Ok(list)
    }

    /// Takes what the last change left a step further, where it left something.
    ///
    /// # Errors
    /// It is not done yet: [`RouteError::Pending`], nothing is changed.
    pub(crate) fn ready(&mut self, now: Instant) -> Result<(), RouteError> {
        self.go_on(self.step, now);
        if self.owing.is_some() { Err(RouteError::Pending) } else { Ok(()) }
    }

    /// Completes what the last changes left below their prefixes, without a limit: for callers that
    /// have the time, as the operator's batches. Else [`Fib::sweep`] does it in steps.
    pub fn complete(&mut self, now: Instant) {
        self.go_on(usize::MAX, now);
        self.leave(usize::MAX, now);
        self.go_on(usize::MAX, now);
    }

    /// Goes on with that, at most so many units; returns how many it took.
    pub(crate) fn go_on(&mut self, units: usize, now: Instant) -> usize {
        let Some(at) = self.owing else { return 0 };
        let took = self.with_table(at, now, |table, parts| Ok(table.go_on(units, parts)));
        if self.owing.is_none() {
            self.changed();
        }
        let took = took.unwrap_or(0);
        self.units += took as u64;
        took
    }

    /// Does something with a table; what that leaves to be done is taken one step further.
    pub(crate) fn with_table<T: Default>(
        &mut self,
        at: u16,
        now: Instant,
        act: impl FnOnce(&mut RouteTable<A>, &mut TableParts<'_, A>) -> Result<T, RouteError>,
    ) -> Result<T, RouteError> {
        self.may_wait = true;
        let Self { tables, records, shared, hops, down, dirty, owing, step, units, .. } = self;
        let Some(table) = tables.get_mut(usize::from(at)) else { return Ok(T::default()) };
        let mut parts =
            TableParts { records, lifetimes: &shared.lifetimes, hops, down: *down, now };
        let done = act(table, &mut parts);
        *dirty |= !table.index.is_large();
        if owing.is_none() && table.owes() {
            *units += table.go_on(*step, &parts) as u64;
        }
        if owing.is_none_or(|owing| owing == at) {
            *owing = table.owes().then_some(at);
        }
        done
    }

    /// About what it takes, in bytes: look-up structure, and what the writer keeps for itself.
    #[must_use]
    pub fn memory(&self) -> (usize, usize) {
        let (mut lookup, mut writer) = (0, self.records.bytes());
        for table in &self.tables {
            writer += table.bytes();
            if let SmallIndex::Large(lpm) = &table.index {
                let memory = lpm.memory();
                lookup += memory.lookup;
                writer += memory.writer;
            }
        }
        (lookup, writer)
    }
}

impl<A: LpmFamily> BurstLookup<A> for Fib<A> {
    fn trie(&self, table: u16, addrs: &[A], now: Instant, values: &mut [u32]) -> bool {
        let index = self.tables.get(usize::from(table)).map(|table| &table.index);
        let Some(SmallIndex::Large(lpm)) = index else { return false };
        lpm.lookup_burst(addrs, now, values);
        true
    }

    fn list(&self, table: u16, addr: A, now: Instant) -> Option<Found<A>> {
        let index = &self.tables.get(usize::from(table))?.index;
        let resolver = self.shared.resolver();
        index.find(addr, now, |value| resolver.resolve(value, &Query::to(addr), now))
    }
}

impl<A: LpmFamily> core::fmt::Debug for Fib<A> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Fib").field("routes", &self.records.len()).finish_non_exhaustive()
    }
}
