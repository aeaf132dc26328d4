//! Free blocks of an array, by exact size: where the writer gets slots from.
//!
//! Called by `writer.rs`. Blocks are taken from a list of their size, else from what was never
//! used, else cut from a larger free one, so that sizes that drift strand nothing. Invariant: every
//! slot is free, or in exactly one block that was handed out.

/// The largest block.
pub(super) const SIZE_MAX: usize = 160;

/// An allocator of blocks of slots, by size.
#[derive(Debug)]
pub(super) struct Blocks {
    free: Vec<Vec<u32>>,
    /// Where the part begins that was never used.
    fresh: usize,
    capacity: usize,
    free_slots: usize,
}

impl Blocks {
    /// All of `capacity` slots free, but the first `reserved`.
    pub(super) fn new(capacity: usize, reserved: usize) -> Self {
        let free = (0..=SIZE_MAX).map(|_| Vec::new()).collect();
        Self { free, fresh: reserved.min(capacity), capacity, free_slots: 0 }
    }

    /// Whether `slots` more can be had for certain, in any sizes: what was never used counts, what
    /// is free in pieces does not.
    pub(super) fn has_room(&self, slots: usize) -> bool {
        self.capacity - self.fresh >= slots
    }

    pub(super) fn take(&mut self, size: usize) -> Option<u32> {
        let start = self.free.get_mut(size)?.pop();
        if let Some(start) = start {
            self.free_slots -= size;
            return Some(start);
        }
        if self.capacity - self.fresh >= size {
            let start = self.fresh as u32;
            self.fresh += size;
            return Some(start);
        }
        let larger =
            (size + 1..=SIZE_MAX).find(|s| self.free.get(*s).is_some_and(|f| !f.is_empty()));
        let larger = larger?;
        let start = self.free.get_mut(larger)?.pop()?;
        self.free_slots -= larger;
        self.give(start + size as u32, larger - size);
        Some(start)
    }

    pub(super) fn give(&mut self, start: u32, size: usize) {
        if let Some(list) = self.free.get_mut(size) {
            list.push(start);
            self.free_slots += size;
        }
    }

    /// Slots up to the last that was ever used.
    pub(super) const fn high_water(&self) -> usize {
        self.fresh
    }

    /// Slots that are handed out, the reserved ones too.
    pub(super) const fn used(&self) -> usize {
        self.fresh - self.free_slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_handed_out_twice_and_larger_blocks_are_cut() {
        let mut blocks = Blocks::new(20, 1);
        let a = blocks.take(10).unwrap();
        let b = blocks.take(9).unwrap();
        assert_eq!((a, b, blocks.take(1)), (1, 11, None));
        blocks.give(a, 10);
        assert_eq!(blocks.take(4), Some(1));
        assert_eq!(blocks.take(6), Some(5));
        assert_eq!((blocks.take(1), blocks.used(), blocks.high_water()), (None, 20, 20));
    }
}
