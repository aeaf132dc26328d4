//! `Keyed`: how the writer's maps hash keys that a peer may have chosen.
//!
//! Used by every map of this crate. Keys are addresses, lengths and numbers: each goes as a whole
//! word into SipHash, which is a third of what hashing their bytes one by one takes.

use std::hash::{BuildHasher, Hasher};

use floodwall_base::HashKey;

/// The secret of the maps.
#[derive(Clone, Copy)]
pub(crate) struct Keyed(pub(crate) HashKey);

/// Words that wait to be hashed; more than these are hashed in between.
const WAITING_WORDS: usize = 8;

/// The hash state of a key so far.
pub(crate) struct KeyedWords {
    key: HashKey,
    words: [u64; WAITING_WORDS],
    len: usize,
}

impl BuildHasher for Keyed {
    type Hasher = KeyedWords;
    #[inline]
    fn build_hasher(&self) -> KeyedWords {
        KeyedWords { key: self.0, words: [0; WAITING_WORDS], len: 0 }
    }
}

impl KeyedWords {
    #[inline]
    fn push(&mut self, word: u64) {
        if self.len >= WAITING_WORDS {
            let so_far = self.finish();
            (self.words, self.len) = ([0; WAITING_WORDS], 1);
            self.words.iter_mut().take(1).for_each(|word| *word = so_far);
        }
        if let Some(place) = self.words.get_mut(self.len) {
            *place = word;
            self.len += 1;
        }
    }
}

impl Hasher for KeyedWords {
    #[inline]
    fn finish(&self) -> u64 {
        self.key.words(self.words.get(..self.len).unwrap_or_default())
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let word = chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            self.push(word);
        }
        self.push(bytes.len() as u64);
    }

    #[inline]
    fn write_u8(&mut self, word: u8) {
        self.push(u64::from(word));
    }

    #[inline]
    fn write_u16(&mut self, word: u16) {
        self.push(u64::from(word));
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.push(u64::from(word));
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.push(word);
    }

    #[inline]
    fn write_usize(&mut self, word: usize) {
        self.push(word as u64);
    }

    #[inline]
    fn write_u128(&mut self, word: u128) {
        self.push((word >> 64) as u64);
        self.push(word as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_that_differ_anywhere_differ_and_each_secret_has_its_own_order() {
        let keyed = Keyed(HashKey::new(1, 2));
        let mut seen = HashSet::new();
        for n in 0..3000_u64 {
            // More words than wait at a time, of which one differs.
            let mut key = [7_u64; 30];
            key[n as usize % 30] += n;
            assert!(seen.insert(keyed.hash_one(key)) || n < 30 && n % 30 == 0, "{n}");
        }
        assert_ne!(keyed.hash_one(7_u32), Keyed(HashKey::new(1, 3)).hash_one(7_u32));
        assert_ne!(keyed.hash_one([1_u8, 0]), keyed.hash_one([1_u8]));
        assert_ne!(keyed.hash_one((1_u128, 2_u16)), keyed.hash_one((2_u128, 1_u16)));
    }
}
