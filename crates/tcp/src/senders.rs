//! `Senders`: the connections with pending output, longest waiting first.
//!
//! Updated by `connection_table.rs` after every call that may change a connection. It is asked
//! whether there is any several times for each segment, mostly while there is none: so they are
//! counted.

use core::hint::cold_path;

use floodwall_base::IndexLists;

/// The only list.
const LIST: u32 = 0;

/// A list of places with output.
pub(crate) struct Senders {
    list: IndexLists,
    waiting: u32,
}

impl Senders {
    /// An empty list of the places below `places`.
    pub(crate) fn new(places: usize) -> Self {
        Self { list: IndexLists::new(places, 1), waiting: 0 }
    }

    /// Whether there is none.
    #[inline(always)]
    pub(crate) const fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Whether this one is among them.
    #[inline(always)]
    pub(crate) fn has(&self, index: u32) -> bool {
        self.waiting != 0 && self.list.is_linked(index)
    }

    /// The one that waits longest.
    #[inline]
    pub(crate) fn first(&self) -> Option<u32> {
        if self.is_empty() { None } else { self.list.first(LIST) }
    }

    /// Adds this one, unless it waits already.
    #[inline]
    pub(crate) fn add(&mut self, index: u32) {
        if !self.has(index) {
            self.list.push_back(LIST, index);
            self.waiting += 1;
        }
    }

    /// Removes this one, if it waits.
    #[inline(always)]
    pub(crate) fn remove(&mut self, index: u32) {
        if self.has(index) {
            cold_path();
            self.list.unlink(index);
            self.waiting -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_counted_once() {
        let mut senders = Senders::new(4);
        [2, 0, 2].into_iter().for_each(|index| senders.add(index));
        assert_eq!((senders.first(), senders.has(1), senders.is_empty()), (Some(2), false, false));
        senders.remove(1);
        senders.remove(2);
        assert_eq!((senders.first(), senders.is_empty()), (Some(0), false));
        senders.remove(0);
        senders.remove(0);
        assert_eq!((senders.first(), senders.is_empty()), (None, true));
        senders.add(3);
        assert_eq!(senders.first(), Some(3));
    }
}
