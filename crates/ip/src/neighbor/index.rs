//! From a keyed hash to an entry's index: open addressing with bounded probes.
//!
//! Called by `neighbor.rs` and `dad.rs`, which hold the entries and the key. Invariants: at most a
//! quarter of the cells is taken, all allocated at construction; between an entry's home cell and
//! its own there is no free cell, so that a walk ends at the first one. Without the key a sender
//! cannot aim at a cell, so runs stay as short as random ones: the probability of a run of
//! [`PROBES_MAX`] cells is below 2^-50. Should it happen, the new entry is refused.

/// Cells that one walk looks at.
const PROBES_MAX: usize = 64;
/// What a free cell holds.
const FREE_CELL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Cell {
    hash: u32,
    entry: u32,
}

/// An open-addressing hash index into an array of entries.
#[derive(Clone, Debug)]
pub(crate) struct NeighborIndex {
    cells: Box<[Cell]>,
}

impl NeighborIndex {
    /// An index for up to `entries` entries. Takes 32 to 64 bytes an entry.
    pub(crate) fn new(entries: usize) -> Self {
        let cells = entries.saturating_mul(4).next_power_of_two().max(PROBES_MAX * 2);
        Self { cells: vec![Cell { hash: 0, entry: FREE_CELL }; cells].into() }
    }

    /// The entry of this hash for which `is_it` returns true.
    #[inline]
    pub(crate) fn find(&self, hash: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        for step in 0..PROBES_MAX {
            let cell = self.cells.get(self.at(hash, step))?;
            if cell.entry == FREE_CELL {
                return None;
            }
            if cell.hash == hash && is_it(cell.entry) {
                return Some(cell.entry);
            }
        }
        None
    }

    /// Stores an entry that is not there yet; false where there is no room near its home.
    #[must_use]
    pub(crate) fn insert(&mut self, hash: u32, entry: u32) -> bool {
        for step in 0..PROBES_MAX {
            let at = self.at(hash, step);
            match self.cells.get_mut(at) {
                Some(cell) if cell.entry == FREE_CELL => {
                    *cell = Cell { hash, entry };
                    return true;
                }
                _ => {}
            }
        }
        false
    }

    /// Removes an entry. The run behind it is closed up, one cell at a time; the run's end is
    /// within reach because every walk's is.
    pub(crate) fn remove(&mut self, hash: u32, entry: u32) {
        let found = (0..PROBES_MAX).map(|step| self.at(hash, step));
        let Some(mut hole) = found
            .into_iter()
            .find(|&at| self.cells.get(at).is_some_and(|cell| cell.entry == entry))
        else {
            return;
        };
        let mask = self.cells.len() - 1;
        let mut at = hole;
        for _ in 0..self.cells.len() {
            at = (at + 1) & mask;
            let Some(&cell) = self.cells.get(at).filter(|cell| cell.entry != FREE_CELL) else {
                break;
            };
            // It may move into the hole if the hole is not before its home.
            let from_home = at.wrapping_sub(cell.hash as usize) & mask;
            let from_hole = at.wrapping_sub(hole) & mask;
            if from_home >= from_hole {
                self.put(hole, cell);
                hole = at;
            }
        }
        self.put(hole, Cell { hash: 0, entry: FREE_CELL });
    }

    #[inline]
    fn put(&mut self, at: usize, cell: Cell) {
        if let Some(place) = self.cells.get_mut(at) {
            *place = cell;
        }
    }

    #[inline]
    fn at(&self, hash: u32, step: usize) -> usize {
        (hash as usize).wrapping_add(step) & (self.cells.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::collections::btree_map::Entry;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_index_agrees_with_a_map(
            // Few hashes, so that runs and wrap-around are common.
            steps in prop::collection::vec((any::<bool>(), 0_u32..24, 0_u32..16), 1..300),
        ) {
            let mut index = NeighborIndex::new(24);
            let mut oracle: BTreeMap<u32, u32> = BTreeMap::new();
            for (insert, entry, hash) in steps {
                let hash = hash.wrapping_sub(4);
                if !insert {
                    if let Some(hash) = oracle.remove(&entry) {
                        index.remove(hash, entry);
                    }
                } else if let Entry::Vacant(free) = oracle.entry(entry) {
                    free.insert(hash);
                    prop_assert!(index.insert(hash, entry));
                }
                for entry in 0..24 {
                    let hash = oracle.get(&entry).copied();
                    let found = index.find(hash.unwrap_or(0), |e| e == entry);
                    prop_assert_eq!(found, hash.map(|_| entry));
                }
            }
        }
    }

    #[test]
    fn a_run_that_is_too_long_refuses_and_stays_sound() {
        let mut index = NeighborIndex::new(1000);
        for entry in 0..PROBES_MAX as u32 {
            assert!(index.insert(7, entry));
        }
        assert!(!index.insert(7, 900));
        index.remove(7, 0);
        assert!(index.insert(7, 900));
        assert_eq!(index.find(7, |e| e == 63), Some(63));
    }
}
