//! Many routes at once: how a table is filled.
//!
//! Called for imports and lists of prefixes. All that is counted is checked before anything is
//! taken; what fails later is undone: a load is done as a whole or not at all. Into an empty table
//! each word of the trie is painted once, at the end, and a prefix costs one look into the writer's
//! map. Sorted input is the fastest. Invariant: afterwards the table is as if each route had been
//! added by [`Fib::add`]. Not here: reading lists and their errors' line numbers (`cli`).

use floodwall_base::{Address, Instant, limits};
use thiserror::Error;

use crate::error::RouteError;
use crate::fib::Fib;
use crate::index::SmallIndex;
use crate::lpm::LpmFamily;
use crate::next_hop::NextHop;
use crate::records::NONE;
use crate::route::Route;

/// Why nothing was loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{left} routes were loaded, because of route number {}: {error}", at + 1)]
pub struct LoadError {
    /// Which route, from 0.
    pub at: usize,
    /// What is wrong with it.
    #[source]
    pub error: RouteError,
    /// Routes before it that are there nevertheless: too much waited for readers to take them out.
    pub left: usize,
}

/// Ways of routes before, with their objects: the next route often has one of them. Each way has
/// one place, where the last of those that share it stands.
struct RecentLoad<A: LpmFamily>(Vec<Option<(NextHop<A>, u32)>>);

impl<A: LpmFamily> RecentLoad<A> {
    const PLACES: usize = 1024;

    fn new() -> Self {
        Self(vec![None; Self::PLACES])
    }

    fn place(&mut self, way: &NextHop<A>) -> Option<&mut Option<(NextHop<A>, u32)>> {
        let gateway = way.gateway.map_or(0, Address::to_bits_aligned);
        let both = (gateway >> 64) as u64 ^ gateway as u64 ^ u64::from(way.iface.0);
        let place = both.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
        self.0.get_mut(place as usize)
    }
}

impl<A: LpmFamily> Fib<A> {
    /// Adds all of `routes` as [`Fib::add`] does, or none of them. About 0.3 us a route of a full
    /// Internet table, in one call: for the start, and for callers without a time limit.
    ///
    /// # Errors
    /// The first route that cannot be added; the tables are then as they were, unless
    /// [`LoadError::left`] is set.
    pub fn load(&mut self, routes: &[Route<A>], now: Instant) -> Result<(), LoadError> {
        let Some(first) = routes.first() else { return Ok(()) };
        self.complete(now);
        self.check_all(routes, now)?;
        let refused = |at| move |error| LoadError { at, error, left: 0 };
        let table = self.table_at(first.table).map_err(refused(0))?;
        let list = self.begin_load(table, routes, now).map_err(refused(0))?;
        let (mut done, mut recent) = (Vec::with_capacity(routes.len()), RecentLoad::new());
        let mut loaded = routes.iter().enumerate().try_for_each(|(at, route)| {
            done.push(self.load_any(route, &mut recent, now).map_err(refused(at))?);
            Ok(())
        });
        if loaded.is_ok() {
            loaded = self.end_load(now).map_err(refused(routes.len() - 1));
        }
        if let Err(error) = &mut loaded {
            error.left = self.undo_load(table, list, done, now);
        }
        self.changed();
        loaded
    }

    /// Takes what was loaded out again; returns how many routes that was not possible for, as too
    /// much waits for readers.
    fn undo_load(
        &mut self,
        table: u16,
        list: Option<SmallIndex<A>>,
        done: Vec<u32>,
        now: Instant,
    ) -> usize {
        if let Some(list) = list {
            // Of a list all can be taken out; and the trie has no reader yet.
            let _ = self.with_table(table, now, |table, parts| table.shrink(list, parts));
        } else {
            let _ = self.end_load(now);
        }
        let mut left = 0;
        for record in done.into_iter().rev() {
            self.complete(now);
            let gone = self.remove_at(record, now).or_else(|_| {
                self.publish(now);
                self.remove_at(record, now)
            });
            left += usize::from(gone.is_err());
        }
        left
    }

    /// All checks that take nothing.
    fn check_all(&self, routes: &[Route<A>], now: Instant) -> Result<(), LoadError> {
        let (max, has) = (self.config.routes_max, self.records.len() - self.learnt);
        let room = max.saturating_sub(has);
        let ends = self.config.expiring_max;
        let room_of_ends = ends.saturating_sub(self.expiry.len());
        let (mut own, mut ending) = (0, 0);
        for (at, route) in routes.iter().enumerate() {
            own += usize::from(!route.protocol.is_learnt());
            ending += usize::from(route.expires.is_some_and(|end| end != Instant::FAR));
            let error = match self.check(route, now) {
                Err(error) => error,
                Ok(()) if own > room => RouteError::Full(max),
                Ok(()) if ending > room_of_ends => RouteError::ExpiringFull(ends),
                Ok(()) => continue,
            };
            return Err(LoadError { at, error, left: 0 });
        }
        Ok(())
    }

    /// Makes a table that will be large so at once, and lets an empty one be filled unseen.
    fn begin_load(
        &mut self,
        at: u16,
        routes: &[Route<A>],
        now: Instant,
    ) -> Result<Option<SmallIndex<A>>, RouteError> {
        let table = routes.first().map(|route| route.table);
        let alike = routes.iter().filter(|route| Some(route.table) == table).count();
        let mut list = None;
        if alike > limits::ROUTES_LISTED_MAX {
            list = self.outgrow(at, now)?;
        }
        if let Some(table) = self.tables.get_mut(usize::from(at))
            && let SmallIndex::Large(lpm) = &mut table.index
        {
            lpm.begin_load(list.is_some());
        }
        Ok(list)
    }

    fn end_load(&mut self, now: Instant) -> Result<(), RouteError> {
        let mut ended = Ok(());
        for table in &mut self.tables {
            if let SmallIndex::Large(lpm) = &mut table.index {
                ended = ended.and(lpm.end_load(now).map_err(RouteError::from));
            }
        }
        ended
    }

    /// Adds a route; returns its record.
    fn load_any(
        &mut self,
        route: &Route<A>,
        recent: &mut RecentLoad<A>,
        now: Instant,
    ) -> Result<u32, RouteError> {
        match self.load_one(route, recent, now)? {
            Some(record) => Ok(record),
            None => {
                self.complete(now);
                self.add(*route, now).map(|()| self.newest)
            }
        }
    }

    /// The usual case: the only route of its prefix in a large table, there for ever. `None` where
    /// it is another, and nothing was done.
    fn load_one(
        &mut self,
        route: &Route<A>,
        recent: &mut RecentLoad<A>,
        now: Instant,
    ) -> Result<Option<u32>, RouteError> {
        let Some(at) = self.table_of(route.table) else { return Ok(None) };
        let is_large = self.tables.get(usize::from(at)).is_some_and(|t| t.index.is_large());
        if !is_large || route.expires.is_some() || route.protocol.is_learnt() {
            return Ok(None);
        }
        let hop = self.hop_again(route, recent)?;
        if !self.hops.is_usable(hop, self.down) {
            self.release_hop(hop);
            return Ok(None);
        }
        let record = self.record(route, at, hop, now)?;
        debug_assert!(self.records.at(record).is_some_and(|record| record.lifetime == NONE));
        let shown = self
            .with_table(at, now, |table, parts| table.link_only(record, route.prefix, hop, parts));
        if !matches!(shown, Ok(true)) {
            self.forget(record);
            self.release_hop(hop);
        }
        Ok(shown?.then_some(record))
    }

    /// The object that a route goes through, counted on.
    fn hop_again(
        &mut self,
        route: &Route<A>,
        recent: &mut RecentLoad<A>,
    ) -> Result<u32, RouteError> {
        if route.next_hop.is_some() {
            return self.hop_of(route);
        }
        let Route { kind, iface, gateway, src_addr, .. } = *route;
        let way = NextHop { kind, iface, gateway, src_addr };
        let Some(place) = recent.place(&way) else { return self.hop_of(route) };
        match *place {
            Some((known, hop)) if known == way => {
                self.hops.hold(hop);
                Ok(hop)
            }
            _ => {
                let hop = self.hop_of(route)?;
                *place = Some((way, hop));
                Ok(hop)
            }
        }
    }
}
