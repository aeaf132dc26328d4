//! `RouteRecords`: the routes themselves, in the writer's memory.
//!
//! Called by [`crate::Fib`] and `table.rs`. Readers never look here: what they need stands in the
//! index, in `lifetimes.rs` and in `hops.rs`. Invariant: a record is in the list of its table and
//! prefix, or free. Its number is its place in every dump, so that a dump that goes on while routes
//! change shows what is there all the time exactly once.

use floodwall_base::{Address, Prefix};

use crate::route::{RoutePreference, RouteProtocol};

/// No record, or no lifetime.
pub(crate) const NONE: u32 = u32::MAX;

/// One route.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouteRecord<A: Address> {
    pub(crate) prefix: Prefix<A>,
    pub(crate) metric: u32,
    pub(crate) hop: u32,
    /// Its entry among the lifetimes.
    pub(crate) lifetime: u32,
    /// The next one of its table and prefix, less preferred.
    pub(crate) next: u32,
    /// Which of the tables has it.
    pub(crate) table: u16,
    pub(crate) preference: RoutePreference,
    pub(crate) protocol: RouteProtocol,
}

impl<A: Address> RouteRecord<A> {
    /// The lower, the better.
    pub(crate) const fn rank(&self) -> (u32, u8) {
        (self.metric, self.preference as u8)
    }
}

/// The writer's records of all routes, by number.
pub(crate) struct RouteRecords<A: Address> {
    all: Vec<Option<RouteRecord<A>>>,
    free: Vec<u32>,
    len: usize,
}

impl<A: Address> RouteRecords<A> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { all: Vec::with_capacity(capacity), free: Vec::new(), len: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Numbers are below this.
    pub(crate) fn end(&self) -> u32 {
        self.all.len() as u32
    }

    pub(crate) fn at(&self, at: u32) -> Option<&RouteRecord<A>> {
        self.all.get(at as usize)?.as_ref()
    }

    pub(crate) fn at_mut(&mut self, at: u32) -> Option<&mut RouteRecord<A>> {
        self.all.get_mut(at as usize)?.as_mut()
    }

    pub(crate) fn insert(&mut self, record: RouteRecord<A>) -> u32 {
        self.len += 1;
        if let Some(at) = self.free.pop()
            && let Some(slot) = self.all.get_mut(at as usize)
        {
            *slot = Some(record);
            return at;
        }
        self.all.push(Some(record));
        self.all.len() as u32 - 1
    }

    pub(crate) fn remove(&mut self, at: u32) -> Option<RouteRecord<A>> {
        let record = self.all.get_mut(at as usize)?.take()?;
        self.free.push(at);
        self.len -= 1;
        Some(record)
    }

    /// What the writer takes for routes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.all.capacity() * size_of::<Option<RouteRecord<A>>>() + self.free.capacity() * 4
    }
}
