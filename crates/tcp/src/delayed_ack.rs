//! `DelayedAcks`: the connections with a pending delayed ACK, oldest first.
//!
//! Updated by `connection_table.rs` after every operation that may have changed it. All delayed
//! ACKs have the same delay ([`DELAYED_ACK_TIME`]), so that a list in order of arrival is a list by
//! deadline; quick ones, which wait for the end of the round alone, have a list of their own.
//! Setting and clearing one is a few stores to adjacent memory. The timer wheel has no
//! removal and would return each connection once per delay, mostly after its acknowledgment has
//! left with a later segment. Invariant: a connection is in the list exactly while its timer is
//! set.
//!
//! # Under flood
//! Reachable by a proven peer, with one segment per operation. Bound: the places, allocated at
//! construction, 16 bytes each. Work: one list operation per segment; expiry is accounted in units.

use core::time::Duration;

use floodwall_base::{IndexLists, Instant};

use crate::timer::AckDelay;

/// The delay of a delayed ACK: the wait for another segment or for data to send (RFC 9293 section
/// 3.8.6.3: less than half a second).
pub(crate) const DELAYED_ACK_TIME: Duration = Duration::from_millis(40);
/// The list of those with a delay.
const DELAYED_LIST: u32 = 0;
/// The list of those that leave at the end of the round, unless the program answers in it.
const QUICK_LIST: u32 = 1;
/// The deadline of a quick one: it is due.
pub(crate) const AT_ONCE: Instant = Instant::ORIGIN;

/// The list of pending delayed ACKs, ordered by deadline.
#[derive(Debug)]
pub(crate) struct DelayedAcks {
    list: IndexLists,
    /// The deadline of each; [`Instant::FAR`] where none is pending.
    at: Box<[Instant]>,
    /// The earliest deadline in the lists; [`Instant::FAR`] where they are empty.
    listed_at: Instant,
    /// The one that was set last, unless it was cleared, or is a quick one that was set beside
    /// another: it is in no list, so that one which an answer cancels at once costs no list
    /// operation. And its deadline; [`Instant::FAR`] where there is none.
    newest: u32,
    newest_at: Instant,
}

/// No place.
const NO_PLACE: u32 = u32::MAX;

impl DelayedAcks {
    /// A list for the places below `places`.
    pub(crate) fn new(places: usize) -> Self {
        let at = vec![Instant::FAR; places].into();
        let (newest, newest_at) = (NO_PLACE, Instant::FAR);
        Self { list: IndexLists::new(places, 2), at, listed_at: Instant::FAR, newest, newest_at }
    }

    /// Sets the deadline of a place by the state of its connection. One that begins to wait does so
    /// from this time on.
    #[inline(always)]
    pub(crate) fn follow(&mut self, place: u32, ack: &mut AckDelay, now: Instant) {
        match *ack {
            AckDelay::Absent => self.set(place, Instant::FAR),
            AckDelay::Quick => self.set(place, AT_ONCE),
            AckDelay::Begins => {
                *ack = AckDelay::Waits;
                self.set(place, now + DELAYED_ACK_TIME);
            }
            AckDelay::Waits => debug_assert!(self.has(place), "its time is here"),
        }
    }

    /// Whether a place has a deadline that has not passed already.
    fn has(&self, place: u32) -> bool {
        self.at.get(place as usize).is_some_and(|at| *at != Instant::FAR && *at != AT_ONCE)
    }

    /// Sets the deadline of a place; [`Instant::FAR`] clears it, [`AT_ONCE`] has passed already.
    #[inline(always)]
    pub(crate) fn set(&mut self, place: u32, at: Instant) {
        let Some(slot) = self.at.get_mut(place as usize) else { return };
        if *slot == at {
            return;
        }
        if self.newest == place {
            (*slot, self.newest_at) = (at, at);
            if at == Instant::FAR {
                self.newest = NO_PLACE;
            }
        } else if *slot == Instant::FAR && self.newest == NO_PLACE {
            (*slot, self.newest, self.newest_at) = (at, place, at);
        } else {
            self.change(place, at);
        }
    }

    /// The same of one that is not the newest: it is in a list, gets into one, or has the newest
    /// enter it.
    #[inline(never)]
    fn change(&mut self, place: u32, at: Instant) {
        let Some(slot) = self.at.get_mut(place as usize) else { return };
        if core::mem::replace(slot, at) != Instant::FAR {
            self.list.unlink(place);
        }
        if self.newest_at == AT_ONCE && at != Instant::FAR {
            self.list.push_back(QUICK_LIST, self.newest);
            (self.newest, self.newest_at) = (NO_PLACE, Instant::FAR);
        }
        if at == AT_ONCE {
            self.list.push_back(QUICK_LIST, place);
        } else if at != Instant::FAR {
            if self.newest != NO_PLACE {
                self.list.push_back(DELAYED_LIST, self.newest);
            }
            (self.newest, self.newest_at) = (place, at);
        }
        let first = self.first_listed().and_then(|place| self.at.get(place as usize));
        self.listed_at = first.copied().unwrap_or(Instant::FAR);
    }

    /// The first of those in the lists.
    #[inline]
    fn first_listed(&self) -> Option<u32> {
        self.list.first(QUICK_LIST).or_else(|| self.list.first(DELAYED_LIST))
    }

    /// The first of all: those in the lists are older than the newest, unless that is a quick one.
    #[inline]
    fn first(&self) -> Option<u32> {
        if self.newest_at < self.listed_at { Some(self.newest) } else { self.first_listed() }
    }

    /// The earliest deadline; [`Instant::FAR`] where none is pending.
    #[inline]
    pub(crate) fn first_at(&self) -> Instant {
        self.listed_at.min(self.newest_at)
    }

    /// Removes one that is due.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<u32> {
        let place = self.first().filter(|_| self.first_at() <= now)?;
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
    fn one_that_an_answer_cancels_touches_no_list() {
        let mut acks = DelayedAcks::new(4);
        acks.set(1, at(40));
        assert_eq!((acks.listed_at, acks.first_at()), (Instant::FAR, at(40)));
        acks.set(1, Instant::FAR);
        assert_eq!(acks.listed_at, Instant::FAR);
        assert_eq!((acks.first_at(), acks.first()), (Instant::FAR, None));
        // The next one puts it into the list, and neither is forgotten.
        acks.set(1, at(50));
        acks.set(2, at(51));
        assert_eq!((acks.listed_at, acks.first_at()), (at(50), at(50)));
        acks.set(1, Instant::FAR);
        assert_eq!(acks.listed_at, Instant::FAR);
        assert_eq!((acks.first_at(), acks.first()), (at(51), Some(2)));
        // It becomes a quick one, and waits again.
        acks.set(2, AT_ONCE);
        assert_eq!((acks.listed_at, acks.first_at()), (Instant::FAR, AT_ONCE));
        acks.set(2, at(60));
        assert_eq!(acks.listed_at, Instant::FAR);
        assert_eq!((acks.first_at(), acks.pop_due(at(59))), (at(60), None));
        assert_eq!((acks.pop_due(at(60)), acks.first_at()), (Some(2), Instant::FAR));
    }

    #[test]
    fn a_quick_one_that_an_answer_cancels_touches_no_list_and_comes_before_those_that_wait() {
        let mut acks = DelayedAcks::new(4);
        acks.set(1, AT_ONCE);
        assert_eq!((acks.listed_at, acks.first_at()), (Instant::FAR, AT_ONCE));
        acks.set(1, Instant::FAR);
        assert_eq!((acks.first_at(), acks.first()), (Instant::FAR, None));
        // Another one waits in the list.
        acks.set(0, at(40));
        acks.set(2, at(41));
        acks.set(2, Instant::FAR);
        acks.set(3, AT_ONCE);
        assert_eq!((acks.listed_at, acks.first_at()), (at(40), AT_ONCE));
        assert_eq!([0; 2].map(|_| acks.pop_due(at(39))), [Some(3), None]);
        // One that is set next puts it among the quick ones.
        acks.set(3, AT_ONCE);
        acks.set(2, at(50));
        assert_eq!((acks.listed_at, acks.first_at()), (AT_ONCE, AT_ONCE));
        assert_eq!([0; 2].map(|_| acks.pop_due(at(40))), [Some(3), Some(0)]);
        acks.set(1, AT_ONCE);
        assert_eq!([0; 3].map(|_| acks.pop_due(at(50))), [Some(1), Some(2), None]);
        // Quick ones leave in order.
        [2, 0, 1].into_iter().for_each(|place| acks.set(place, AT_ONCE));
        assert_eq!([0; 4].map(|_| acks.pop_due(at(0))), [Some(2), Some(0), Some(1), None]);
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
        // It was sent, and another is pending.
        acks.set(0, at(50));
        assert_eq!(acks.pop_due(at(60)), Some(3));
        assert_eq!((acks.pop_due(at(49)), acks.pop_due(at(50))), (None, Some(0)));
        assert_eq!((acks.pop_due(at(99)), acks.first_at()), (None, Instant::FAR));
        // A quick one comes before all that wait, and one that waits may become one.
        for (place, at) in [(0, at(90)), (1, at(91)), (3, AT_ONCE), (1, AT_ONCE)] {
            acks.set(place, at);
        }
        assert_eq!(acks.first_at(), AT_ONCE);
        assert_eq!([0; 3].map(|_| acks.pop_due(at(50))), [Some(3), Some(1), None]);
        assert_eq!(acks.first_at(), at(90));
    }
}
