//! `Told`: which records somebody on a link has told, as one bit each.
//!
//! Called by `change.rs` when a record comes and goes, and when a link goes down. Invariants: all
//! memory is taken at construction, for these records come and go with strangers' packets; a block
//! of 4,096 records of which none is marked costs one look. Cost: a bit and its summary.

/// Records in a word, and words under a word of the summary.
const WORD: usize = 64;

/// See the file's head.
#[derive(Debug)]
pub(crate) struct Told {
    marks: Box<[u64]>,
    /// One bit for each word above that is not zero.
    summary: Box<[u64]>,
}

impl Told {
    /// None of `records` is marked.
    pub(crate) fn new(records: usize) -> Self {
        let words = records.div_ceil(WORD);
        Self { marks: vec![0; words].into(), summary: vec![0; words.div_ceil(WORD)].into() }
    }

    pub(crate) fn insert(&mut self, record: u32) {
        self.set(record as usize, true);
    }

    pub(crate) fn remove(&mut self, record: u32) {
        self.set(record as usize, false);
    }

    fn set(&mut self, record: usize, is_told: bool) {
        let (word, bit) = (record / WORD, 1_u64 << (record % WORD));
        let Some(marks) = self.marks.get_mut(word) else { return };
        *marks = if is_told { *marks | bit } else { *marks & !bit };
        let any = *marks != 0;
        let bit = 1_u64 << (word % WORD);
        if let Some(summary) = self.summary.get_mut(word / WORD) {
            *summary = if any { *summary | bit } else { *summary & !bit };
        }
    }

    /// All that are marked, in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let words = self.summary.iter().enumerate().flat_map(|(n, word)| bits(*word, n * WORD));
        words.flat_map(|word| {
            let marks = self.marks.get(word as usize).copied().unwrap_or(0);
            bits(marks, word as usize * WORD)
        })
    }
}

/// The numbers of a word's bits, counted from `first`.
fn bits(word: u64, first: usize) -> impl Iterator<Item = u32> {
    let rest = |word: &u64| Some(word & (word - 1)).filter(|rest| *rest != 0);
    core::iter::successors(Some(word).filter(|word| *word != 0), rest)
        .map(move |word| first as u32 + word.trailing_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_marked_is_found_in_order_and_nothing_else() {
        let mut told = Told::new(20_000);
        for record in [0, 63, 64, 4095, 4096, 19_999] {
            told.insert(record);
            told.insert(record);
        }
        told.insert(7);
        told.remove(7);
        told.remove(64);
        told.remove(100);
        assert_eq!(told.iter().collect::<Vec<_>>(), [0, 63, 4095, 4096, 19_999]);
        // Beyond the end there is no record.
        told.insert(30_000);
        assert_eq!(told.iter().count(), 5);
    }
}
