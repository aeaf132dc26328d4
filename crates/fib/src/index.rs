//! `Index`: from an address to the value of the longest prefix, in one of two sizes.
//!
//! Called by `table.rs`. A host has a handful of prefixes: they are a list, longest first, which
//! costs a few comparisons and no memory worth naming, and is shown to readers as a whole. A table
//! of more than [`limits::ROUTES_LISTED_MAX`] prefixes is the trie of [`crate::lpm`], which takes
//! its memory when it is first needed, and is changed in place.

use std::sync::Arc;

use floodwall_base::{Instant, Prefix, limits};
use floodwall_sync::qsbr::Domain;

use crate::lpm::{Capacity, Family, Lpm, LpmWriter, UpdateError};

/// One prefix of the list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed<A: Family> {
    pub(crate) prefix: Prefix<A>,
    /// 0 where all that it has leads into dead links.
    pub(crate) value: u32,
    /// Whether some route of it leads into a dead link.
    pub(crate) dead: bool,
}

/// See the file's head.
pub(crate) enum Index<A: Family> {
    Listed(Vec<Listed<A>>),
    Large(Box<LpmWriter<A>>),
}

/// What readers have of it.
pub(crate) enum ShownIndex<A: Family> {
    Listed(Arc<[Listed<A>]>),
    Large(Lpm<A>),
}

impl<A: Family> Index<A> {
    pub(crate) const fn is_large(&self) -> bool {
        matches!(self, Self::Large(_))
    }

    pub(crate) fn shown(&self) -> ShownIndex<A> {
        match self {
            Self::Listed(list) => ShownIndex::Listed(list.as_slice().into()),
            Self::Large(lpm) => ShownIndex::Large(lpm.reader()),
        }
    }

    /// Whether one prefix more needs the trie.
    pub(crate) fn is_outgrown(&self) -> bool {
        matches!(self, Self::Listed(list) if list.len() >= limits::ROUTES_LISTED_MAX)
    }

    /// The trie with what the list has.
    pub(crate) fn grown(
        &self,
        domain: &Domain,
        capacity: Capacity,
        now: Instant,
    ) -> Result<Self, UpdateError> {
        let mut lpm = LpmWriter::new(domain, capacity);
        if let Self::Listed(list) = self {
            for listed in list.iter().filter(|listed| listed.value != 0) {
                lpm.insert(listed.prefix, listed.value, now)?;
            }
        }
        Ok(Self::Large(Box::new(lpm)))
    }

    /// Lets a prefix have a value; 0 for none.
    pub(crate) fn set(
        &mut self,
        prefix: Prefix<A>,
        value: u32,
        dead: bool,
        now: Instant,
    ) -> Result<(), UpdateError> {
        match self {
            Self::Large(lpm) if value == 0 => lpm.remove(prefix, now).map(drop),
            Self::Large(lpm) => lpm.insert(prefix, value, now).map(drop),
            Self::Listed(list) => {
                let order = |p: Prefix<A>| (core::cmp::Reverse(p.len()), p.addr());
                let at = list.binary_search_by_key(&order(prefix), |listed| order(listed.prefix));
                let new = Listed { prefix, value, dead };
                match at {
                    Ok(at) if value == 0 && !dead => _ = list.remove(at),
                    Ok(at) => list.get_mut(at).into_iter().for_each(|listed| *listed = new),
                    Err(_) if value == 0 && !dead => {}
                    Err(at) => list.insert(at, new),
                }
                Ok(())
            }
        }
    }

    /// Tries the values of the prefixes that hold `addr`, longest first, until one has an answer.
    /// The trie tries one: what is behind that one stands in its lifetimes.
    #[inline]
    pub(crate) fn find<T>(&self, addr: A, answer: impl FnMut(u32) -> Option<T>) -> Option<T> {
        match self {
            Self::Listed(list) => find_listed(list, addr, answer),
            Self::Large(lpm) => Some(lpm.lookup(addr)).filter(|value| *value != 0).and_then(answer),
        }
    }
}

/// Whether an address is of a prefix with a route into a dead link; of a trie it is not known.
pub(crate) fn leads_into_dead<A: Family>(list: &[Listed<A>], addr: A) -> bool {
    list.iter().any(|listed| listed.dead && listed.prefix.contains(addr))
}

#[inline]
pub(crate) fn find_listed<A: Family, T>(
    list: &[Listed<A>],
    addr: A,
    mut answer: impl FnMut(u32) -> Option<T>,
) -> Option<T> {
    let holds = |listed: &&Listed<A>| listed.value != 0 && listed.prefix.contains(addr);
    list.iter().filter(holds).find_map(|listed| answer(listed.value))
}
