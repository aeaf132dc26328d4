//! `SmallIndex`: from an address to the value of the longest prefix, in one of two sizes.
//!
//! Called by `table.rs`. A host has a handful of prefixes: they are a list, longest first, which
//! costs a few comparisons and no memory worth naming, and is shown to readers as a whole. A table
//! of more than [`limits::ROUTES_LISTED_MAX`] prefixes is the trie of [`crate::lpm`], which takes
//! its memory when it is first needed, and is changed in place. Of a prefix with a best route that
//! can end it has the next hop, until that end: while none has ended, look-ups do not read
//! lifetimes at all (see [`RouteTarget`]). Invariant: no end of what is in the trie is earlier than
//! the earliest end that the trie was given.

use std::sync::Arc;

use floodwall_base::{Instant, Prefix, limits};
use floodwall_sync::qsbr::Domain;

use crate::lifetimes::{ENTRY, Lifetimes};
use crate::lpm::{Lpm, LpmCapacity, LpmFamily, LpmWriter, RouteTarget, UpdateError};

/// One prefix of the list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed<A: LpmFamily> {
    pub(crate) prefix: Prefix<A>,
    /// 0 where all its routes lead into links that are down.
    pub(crate) value: u32,
    /// Whether some route of it leads into a link that is down.
    pub(crate) dead: bool,
}

/// The index of one table: a list of few prefixes, or a trie.
pub(crate) enum SmallIndex<A: LpmFamily> {
    Listed(Vec<Listed<A>>),
    Large(Box<LpmWriter<A>>),
}

/// What readers have of it.
pub(crate) enum ShownIndex<A: LpmFamily> {
    Listed(Arc<[Listed<A>]>),
    Large(Lpm<A>),
}

impl<A: LpmFamily> SmallIndex<A> {
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
        capacity: LpmCapacity,
        lifetimes: &Lifetimes,
        now: Instant,
    ) -> Result<Self, UpdateError> {
        let mut lpm = LpmWriter::new(domain, capacity);
        if let Self::Listed(list) = self {
            for listed in list.iter().filter(|listed| listed.value != 0) {
                lpm.replace(listed.prefix, target(listed.value, lifetimes), now)?;
            }
        }
        Ok(Self::Large(Box::new(lpm)))
    }

    /// Lets a prefix have a value; 0 for none. In a trie, positions below may have the former one
    /// until [`SmallIndex::go_on`] has nothing left to do.
    pub(crate) fn set(
        &mut self,
        prefix: Prefix<A>,
        value: u32,
        dead: bool,
        lifetimes: &Lifetimes,
        now: Instant,
    ) -> Result<(), UpdateError> {
        match self {
            Self::Large(lpm) => lpm.begin(prefix, target(value, lifetimes), now).map(drop),
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

    /// Goes on with what the last change left: at most so many units. Returns how many it took.
    pub(crate) fn go_on(&mut self, units: usize, now: Instant) -> usize {
        match self {
            Self::Large(lpm) => lpm.step_counted(units, now),
            Self::Listed(_) => 0,
        }
    }

    /// Whether some addresses still find what was there before the last change.
    pub(crate) fn owes(&self) -> bool {
        matches!(self, Self::Large(lpm) if lpm.owes())
    }

    /// Something that is there ends at `at`: to be called before a lifetime is moved.
    pub(crate) fn ends_at(&mut self, at: Instant) {
        if let Self::Large(lpm) = self {
            lpm.ends_at(at);
        }
    }

    /// Nothing that is there ends before `at`.
    pub(crate) fn none_ends_before(&mut self, at: Instant) {
        if let Self::Large(lpm) = self {
            lpm.none_ends_before(at);
        }
    }

    /// Tries the values of the prefixes that hold `addr`, longest first, until one has an answer.
    /// The trie tries one: what is behind that one stands in its lifetimes.
    #[inline]
    pub(crate) fn find<T>(
        &self,
        addr: A,
        now: Instant,
        answer: impl FnMut(u32) -> Option<T>,
    ) -> Option<T> {
        match self {
            Self::Listed(list) => find_listed(list, addr, answer),
            Self::Large(lpm) => {
                Some(lpm.lookup_at(addr, now)).filter(|value| *value != 0).and_then(answer)
            }
        }
    }
}

/// What the trie stores of a prefix's value; `None` for 0.
fn target(value: u32, lifetimes: &Lifetimes) -> Option<RouteTarget> {
    if value & ENTRY == 0 {
        return (value != 0).then(|| RouteTarget::forever(value));
    }
    let entry = value & !ENTRY;
    Some(RouteTarget::until(lifetimes.hop(entry), entry, lifetimes.until(entry)))
}

/// Whether an address is of a prefix with a route into a link that is down; of a trie it is not
/// known.
pub(crate) fn leads_into_dead<A: LpmFamily>(list: &[Listed<A>], addr: A) -> bool {
    list.iter().any(|listed| listed.dead && listed.prefix.contains(addr))
}

#[inline]
pub(crate) fn find_listed<A: LpmFamily, T>(
    list: &[Listed<A>],
    addr: A,
    mut answer: impl FnMut(u32) -> Option<T>,
) -> Option<T> {
    let holds = |listed: &&Listed<A>| listed.value != 0 && listed.prefix.contains(addr);
    list.iter().filter(holds).find_map(|listed| answer(listed.value))
}
