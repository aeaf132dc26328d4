//! Two sources of randomness, separated by type: output that remote peers may see, and secrets.
//!
//! Both are seeded once at start (from the system by `dispatch`, from the seed by `world`, decision
//! C12) and never read outside entropy again.

use core::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::HashKey;

/// For choices that need no secrecy: jitter, spreads, drops of a simulated link.
///
/// SplitMix64 (Steele, Lea and Flood 2014): one multiply chain a number, never zero-stuck.
#[derive(Debug, Clone)]
pub struct PublicRandom(u64);

/// For everything that a remote peer must not guess: ports, identifications, keys, sequence
/// numbers.
///
/// SipHash-2-4 of a counter under a 128-bit key: a pseudo-random function in counter mode, so that
/// no output reveals another. About 15 ns a number.
#[derive(Clone)]
pub struct SecretRandom {
    key: (u64, u64),
    counter: u64,
}

/// The randomness of one shard.
#[derive(Debug, Clone)]
pub struct Randomness {
    /// The generator of values that remote peers may see.
    pub public: PublicRandom,
    /// The generator of secrets.
    pub secret: SecretRandom,
}

impl Randomness {
    /// Both sources from 32 bytes of seed.
    #[must_use]
    pub fn from_seed(seed: [u8; 32]) -> Self {
        let word = |i: usize| {
            let mut bytes = [0; 8];
            bytes.iter_mut().zip(seed.iter().skip(i * 8)).for_each(|(b, s)| *b = *s);
            u64::from_le_bytes(bytes)
        };
        Self {
            public: PublicRandom::new(word(0) ^ word(3).rotate_left(17)),
            secret: SecretRandom { key: (word(1), word(2)), counter: word(3) },
        }
    }

    /// Both sources from one number, for simulation and tests.
    #[must_use]
    pub fn from_number(seed: u64) -> Self {
        let mut stretch = PublicRandom::new(seed);
        let mut bytes = [0; 32];
        for chunk in bytes.chunks_exact_mut(8) {
            chunk.copy_from_slice(&stretch.next_u64().to_le_bytes());
        }
        Self::from_seed(bytes)
    }
}

impl PublicRandom {
    /// A generator that starts at `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    #[inline]
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 where `bound` is 0. Bias below 2^-32 for bounds below 2^32.
    #[inline]
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }

    /// True with probability `p` (0.0 never, 1.0 always).
    pub fn chance(&mut self, p: f64) -> bool {
        p > 0.0 && (self.next_u64() >> 11) as f64 / ((1_u64 << 53) as f64) < p
    }
}

impl SecretRandom {
    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.counter = self.counter.wrapping_add(1);
        let mut hasher = SipHasher24::new_with_keys(self.key.0, self.key.1);
        hasher.write_u64(self.counter);
        hasher.finish()
    }

    /// The next 32 bits.
    pub fn next_u32(&mut self) -> u32 {
        self.next_u64() as u32
    }

    /// The next 16 bits.
    pub fn next_u16(&mut self) -> u16 {
        self.next_u64() as u16
    }

    /// A number below `bound`; 0 where `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A key for one table.
    pub fn hash_key(&mut self) -> HashKey {
        HashKey::new(self.next_u64(), self.next_u64())
    }
}

impl core::fmt::Debug for SecretRandom {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("SecretRandom(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let (mut a, mut b) = (Randomness::from_number(7), Randomness::from_number(7));
        let mut c = Randomness::from_number(8);
        assert_eq!(a.public.next_u64(), b.public.next_u64());
        assert_eq!(a.secret.next_u64(), b.secret.next_u64());
        assert_ne!(a.secret.next_u64(), c.secret.next_u64());
    }

    #[test]
    fn bounded_numbers_stay_below_their_bound() {
        let mut r = Randomness::from_number(1);
        assert!((0..1000).all(|_| r.public.below(7) < 7 && r.secret.below(3) < 3));
        assert_eq!(r.public.below(0), 0);
        assert!((0..100).all(|_| !r.public.chance(0.0) && r.public.chance(1.0)));
    }
}
