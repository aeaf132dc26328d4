//! `BitMarks`: a set of records, as one bit each.
//!
//! Called by `change.rs` and `leave.rs`: which records were learnt from a link, and which are on
//! their way out. Invariants: all memory is taken at construction, for these records come and go
//! with packets of peers; a block of 4,096 records of which none is marked costs one look. Cost: a
//! bit and its summary.

/// Records in a word, and words under a word of the summary.
const WORD_RECORDS: usize = 64;

/// A bitmap of records with a summary level.
#[derive(Debug)]
pub(crate) struct BitMarks {
    marks: Box<[u64]>,
    /// One bit for each word above that is not zero.
    summary: Box<[u64]>,
    len: usize,
}

impl BitMarks {
    /// None of `records` is marked.
    pub(crate) fn new(records: usize) -> Self {
        let words = records.div_ceil(WORD_RECORDS);
        Self {
            marks: vec![0; words].into(),
            summary: vec![0; words.div_ceil(WORD_RECORDS)].into(),
            len: 0,
        }
    }

    pub(crate) fn insert(&mut self, record: u32) {
        self.set(record as usize, true);
    }

    pub(crate) fn remove(&mut self, record: u32) {
        self.set(record as usize, false);
    }

    fn set(&mut self, record: usize, is_marked: bool) {
        let (word, bit) = (record / WORD_RECORDS, 1_u64 << (record % WORD_RECORDS));
        let Some(marks) = self.marks.get_mut(word) else { return };
        let before = *marks;
        *marks = if is_marked { before | bit } else { before & !bit };
        self.len = self.len + usize::from(*marks > before) - usize::from(*marks < before);
        let any = *marks != 0;
        let bit = 1_u64 << (word % WORD_RECORDS);
        if let Some(summary) = self.summary.get_mut(word / WORD_RECORDS) {
            *summary = if any { *summary | bit } else { *summary & !bit };
        }
    }

    /// How many are marked.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn contains(&self, record: u32) -> bool {
        let (word, bit) = (record as usize / WORD_RECORDS, record as usize % WORD_RECORDS);
        self.len > 0 && self.marks.get(word).is_some_and(|marks| marks >> bit & 1 != 0)
    }

    /// All that are marked, in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let words =
            self.summary.iter().enumerate().flat_map(|(n, word)| bits(*word, n * WORD_RECORDS));
        words.flat_map(|word| {
            let marks = self.marks.get(word as usize).copied().unwrap_or(0);
            bits(marks, word as usize * WORD_RECORDS)
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
        let mut marks = BitMarks::new(20_000);
        for record in [0, 63, 64, 4095, 4096, 19_999] {
            marks.insert(record);
            marks.insert(record);
        }
        marks.insert(7);
        marks.remove(7);
        marks.remove(64);
        marks.remove(100);
        assert_eq!(marks.iter().collect::<Vec<_>>(), [0, 63, 4095, 4096, 19_999]);
        assert_eq!(marks.len(), 5);
        assert!([0, 63, 4095, 4096, 19_999].into_iter().all(|record| marks.contains(record)));
        assert!([1, 7, 64, 100, 30_000].into_iter().all(|record| !marks.contains(record)));
        // Beyond the end there is no record.
        marks.insert(30_000);
        assert_eq!((marks.iter().count(), marks.len()), (5, 5));
    }
}
