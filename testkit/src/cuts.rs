//! The ways to cut a packet into chunks.
//!
//! Header access must not care where chunks end: a test takes every cut from here, and expects what
//! the flat bytes give. Reading: Hagino, FREENIX 2000 (drivers cut packets at arbitrary places).

use crate::Seeded;

/// The most chunks that a cut makes, of the 64 that a packet may have: some are left for what the
/// code under test adds.
pub const CHUNKS_MAX: usize = 48;

/// One way to cut: the places, in order, from the packet's first byte. A place named twice makes an
/// empty chunk, and so does place 0.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cut(Vec<usize>);

impl Cut {
    /// Cuts at `places`, which are sorted here; at most [`CHUNKS_MAX`] chunks come of it.
    #[must_use]
    pub fn at(mut places: Vec<usize>) -> Self {
        places.truncate(CHUNKS_MAX - 1);
        places.sort_unstable();
        Self(places)
    }

    /// The chunks of `bytes`, empty ones included; places beyond the end count as the end.
    #[must_use]
    pub fn of<'a>(&self, bytes: &'a [u8]) -> Vec<&'a [u8]> {
        let mut chunks = Vec::with_capacity(self.0.len() + 1);
        let mut from = 0;
        for &place in &self.0 {
            let to = place.min(bytes.len());
            chunks.push(&bytes[from..to]);
            from = to;
        }
        chunks.push(&bytes[from..]);
        chunks
    }
}

/// In two, at every place of the first `bytes`, both ends included.
pub fn two_way(bytes: usize) -> impl Iterator<Item = Cut> {
    (0..=bytes).map(|place| Cut(vec![place]))
}

/// As [`two_way`], with empty chunks before, between and behind.
pub fn with_empty_chunks(bytes: usize) -> impl Iterator<Item = Cut> {
    (0..=bytes).map(|place| Cut(vec![0, 0, place, place, place, usize::MAX]))
}

/// Chunks of one byte, as many as a packet has room for, beginning at each of the first `bytes` in
/// steps: together they cover all of them.
pub fn single_bytes(bytes: usize) -> impl Iterator<Item = Cut> {
    let run = CHUNKS_MAX - 2;
    (0..bytes.max(1)).step_by(run).map(move |from| Cut((from..=from + run).collect()))
}

/// `count` random cuts of the first `bytes`, at up to 12 places each.
pub fn random(bytes: usize, count: usize, seed: u64) -> impl Iterator<Item = Cut> {
    let mut random = Seeded::new(seed);
    (0..count).map(move |_| {
        let places = random.below(12) + 1;
        Cut::at((0..places).map(|_| random.below(bytes + 1)).collect())
    })
}

/// All of the above for the first `bytes` of a packet, `count` random ones included.
pub fn all(bytes: usize, count: usize, seed: u64) -> impl Iterator<Item = Cut> {
    two_way(bytes)
        .chain(with_empty_chunks(bytes))
        .chain(single_bytes(bytes))
        .chain(random(bytes, count, seed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cut_keeps_the_bytes_and_the_bound() {
        let flat: Vec<u8> = (0..200).collect();
        let mut empty = 0;
        for len in [0, 1, 2, 47, 48, 100, 200] {
            let bytes = &flat[..len];
            for cut in all(100, 50, 7) {
                let chunks = cut.of(bytes);
                assert_eq!(chunks.concat(), bytes, "{cut:?}");
                assert!(chunks.len() <= CHUNKS_MAX);
                empty += usize::from(chunks.iter().any(|chunk| chunk.is_empty()));
            }
        }
        assert!(empty > 500);
        assert_eq!(two_way(100).count(), 101);
    }

    #[test]
    fn single_bytes_cover_every_place() {
        for bytes in [1, 40, 46, 47, 100, 256] {
            let flat = vec![1; bytes];
            let cut: usize = single_bytes(bytes)
                .map(|cut| cut.of(&flat).iter().filter(|chunk| chunk.len() == 1).count())
                .sum();
            assert!(cut >= bytes, "{cut} of {bytes}");
        }
    }
}
