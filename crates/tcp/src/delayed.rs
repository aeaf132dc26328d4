//! `DelayedAcks`: which connections owe an acknowledgment that may wait, oldest first.
//!
//! Told by `tcp.rs` after whatever may have changed it. All of them wait equally long
//! (`input/text.rs`), so that a list in the order in which they began to is one by deadline. To set
//! and to clear one is a few stores that lie beside each other; the wheel, which forgets nothing
//! that is cleared, would give out each connection once in each delay, to find that its
//! acknowledgment left long ago with what it waited for. Invariant: a connection is in the list
//! exactly while its timer is set.
//!
//! # Under flood
//! Reachable by a proven peer, with a segment for each. Bound: the places, for which all memory is
//! taken at construction, 16 bytes each. Work: one list operation for a segment; to ring is paid
//! for in units.

use floodwall_base::{IndexLists, Instant};

/// The only list.
const WAITING: u32 = 0;

/// See the file's head.
#[derive(Debug)]
pub(crate) struct DelayedAcks {
    list: IndexLists,
    /// When each has to leave; [`Instant::FAR`] where none is owed.
    at: Box<[Instant]>,
}

impl DelayedAcks {
    /// For the places below `places`.
    pub(crate) fn new(places: usize) -> Self {
        Self { list: IndexLists::new(places, 1), at: vec![Instant::FAR; places].into() }
    }

    /// The acknowledgment of a place has to leave then; never, where that is [`Instant::FAR`].
    #[inline]
    pub(crate) fn set(&mut self, place: u32, at: Instant) {
        let Some(slot) = self.at.get_mut(place as usize) else { return };
        if *slot == at {
            return;
        }
        *slot = at;
        if at == Instant::FAR {
            self.list.unlink(place);
        } else {
            self.list.push_back(WAITING, place);
        }
    }

    /// When the first has to leave; [`Instant::FAR`] where none is owed.
    #[inline]
    pub(crate) fn first_at(&self) -> Instant {
        let first = self.list.first(WAITING).and_then(|place| self.at.get(place as usize));
        first.copied().unwrap_or(Instant::FAR)
    }

    /// Takes out one that has to leave by now.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<u32> {
        let place = self.list.first(WAITING).filter(|_| self.first_at() <= now)?;
        self.set(place, Instant::FAR);
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn the_first_that_was_set_and_not_cleared_is_due_first() {
        let mut acks = DelayedAcks::new(4);
        assert_eq!((acks.first_at(), acks.pop_due(at(u64::MAX >> 24))), (Instant::FAR, None));
        for place in [2, 0, 3] {
            acks.set(place, at(40 + u64::from(place)));
        }
        acks.set(2, at(42));
        assert_eq!(acks.first_at(), at(42));
        acks.set(2, Instant::FAR);
        assert_eq!((acks.first_at(), acks.pop_due(at(39))), (at(40), None));
        // It left, and another is owed.
        acks.set(0, at(50));
        assert_eq!(acks.pop_due(at(60)), Some(3));
        assert_eq!((acks.pop_due(at(49)), acks.pop_due(at(50))), (None, Some(0)));
        assert_eq!((acks.pop_due(at(99)), acks.first_at()), (None, Instant::FAR));
    }
}
