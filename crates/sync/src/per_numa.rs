//! One value per memory node, each on cache lines of its own.
//!
//! Pools have a region per node, and a UDP socket has a receive queue per node, so that packets
//! are handed over within a node as far as possible: a line fetched from another node costs
//! some two to three times a local one. This is [`PerCore`](crate::PerCore) with another index,
//! and another type so that the two indices cannot be mistaken for each other.
//!
//! The entries themselves lie in one allocation, on whatever node its maker ran. Where the
//! *place* of the memory matters, as for a region of packets, `T` is the owner of memory that
//! was asked for on that node.
//!
//! Nothing here is atomic or unsafe; the number of nodes is fixed at construction.

use core::fmt;

use floodwall_base::NumaNode;

use crate::CachePadded;

/// One `T` per memory node, numbered from 0 without gaps.
pub struct PerNuma<T> {
    values: Box<[CachePadded<T>]>,
}

impl<T> PerNuma<T> {
    /// Makes the values for `nodes` nodes, in order of their number.
    ///
    /// Allocates once, `nodes` times the padded size. Never panics unless `make` does.
    #[must_use]
    pub fn new(nodes: u8, mut make: impl FnMut(NumaNode) -> T) -> Self {
        Self { values: (0..nodes).map(|node| CachePadded::new(make(NumaNode(node)))).collect() }
    }

    /// The value of `node`, or `None` if there is no such node. Never panics.
    #[must_use]
    pub fn get(&self, node: NumaNode) -> Option<&T> {
        self.values.get(usize::from(node.0)).map(|padded| &**padded)
    }

    /// The value of `node`, to be changed, or `None` if there is no such node. Never panics.
    #[must_use]
    pub fn get_mut(&mut self, node: NumaNode) -> Option<&mut T> {
        self.values.get_mut(usize::from(node.0)).map(|padded| &mut **padded)
    }

    /// How many nodes there are. Never panics.
    #[must_use]
    pub const fn nodes(&self) -> usize {
        self.values.len()
    }

    /// All values in order of node, as for a sum. Never panics.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &T> {
        self.values.iter().map(|padded| &**padded)
    }

    /// All values in order of node, to be changed. Never panics.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = &mut T> {
        self.values.iter_mut().map(|padded| &mut **padded)
    }

    /// Gives the values away, one per node in order. Never panics.
    pub fn into_values(self) -> impl ExactSizeIterator<Item = T> {
        self.values.into_iter().map(CachePadded::into_inner)
    }
}

impl<T: fmt::Debug> fmt::Debug for PerNuma<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_node_has_its_own_value_and_there_is_none_beyond() {
        let mut values = PerNuma::new(2, |node| u32::from(node.0) * 10);
        assert_eq!(values.get(NumaNode(1)), Some(&10));
        assert_eq!(values.get(NumaNode(2)), None);
        *values.get_mut(NumaNode(0)).expect("node 0") += 1;
        values.iter_mut().for_each(|value| *value += 1);
        assert_eq!(format!("{values:?}"), "[2, 11]");
        assert_eq!(values.nodes(), 2);
        assert_eq!(values.iter().sum::<u32>(), 13);
        assert_eq!(values.into_values().collect::<Vec<_>>(), [2, 11]);
    }
}
