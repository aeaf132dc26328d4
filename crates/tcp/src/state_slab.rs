//! `StateSlab`: states that a connection has only for a time: one that is taken, and given back
//! before the connection is freed.
//!
//! Used for [`crate::loss_state`] and [`crate::rare_state`]. Invariant: each state in use belongs
//! to one connection, which has its index.
//!
//! # Under flood
//! Reachable by what makes a connection take one, see there. Bound: one for each place, so that no
//! connection waits for one of another; the memory is reserved at construction, and touched as it
//! is used. Work: one visit to a list of free ones.

/// No state.
pub(crate) const NO_STATE: u32 = u32::MAX;

/// The slab of a shard's states of one kind: one for each place of a connection at most.
#[derive(Debug)]
pub(crate) struct StateSlab<T> {
    slab: Vec<T>,
    free: Vec<u32>,
    max: usize,
}

impl<T> StateSlab<T> {
    /// Room for `max`; the memory is touched as they are used.
    pub(crate) fn new(max: usize) -> Self {
        Self { slab: Vec::with_capacity(max), free: Vec::with_capacity(max), max }
    }

    #[inline(always)]
    pub(crate) fn at(&self, index: u32) -> Option<&T> {
        self.slab.get(index as usize)
    }

    #[inline(always)]
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slab.get_mut(index as usize)
    }

    /// Takes one for `state`; [`NO_STATE`] where none is left.
    pub(crate) fn take(&mut self, state: T) -> u32 {
        if let Some(index) = self.free.pop() {
            if let Some(place) = self.at_mut(index) {
                *place = state;
            }
            return index;
        }
        if self.slab.len() >= self.max {
            return NO_STATE;
        }
        self.slab.push(state);
        self.slab.len() as u32 - 1
    }

    pub(crate) fn give_back(&mut self, index: u32) {
        if (index as usize) < self.slab.len() {
            self.free.push(index);
        }
    }

    /// How many are in use.
    #[cfg(test)]
    pub(crate) fn in_use(&self) -> usize {
        self.slab.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_places_are_given_and_each_is_given_again() {
        let mut states = StateSlab::new(2);
        let (a, b) = (states.take('a'), states.take('b'));
        assert_eq!((states.take('c'), states.in_use()), (NO_STATE, 2));
        states.give_back(NO_STATE);
        states.give_back(a);
        assert_eq!((states.in_use(), states.take('d'), states.at(a)), (1, a, Some(&'d')));
        assert_eq!((states.at(b), states.at(NO_STATE)), (Some(&'b'), None));
    }
}
