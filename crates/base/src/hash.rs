//! The keyed hash, for anything that an attacker can choose.
//!
//! SipHash-1-3 with a secret key per start: without the key, a sender cannot aim at a bucket
//! (Aumasson and Bernstein 2012). One key per table; keys come from [`crate::SecretRandom`].

use core::hash::Hasher;
use core::net::IpAddr;

use siphasher::sip::SipHasher13;

use crate::{FlowKey, FlowWords};

/// The secret of one table.
#[derive(Clone, Copy)]
pub struct HashKey(u64, u64);

impl HashKey {
    /// A key from two random 64-bit words.
    #[must_use]
    pub const fn new(a: u64, b: u64) -> Self {
        Self(a, b)
    }

    /// The two words of the key, for a program outside of this process that computes the same hash.
    #[must_use]
    pub const fn to_words(self) -> (u64, u64) {
        (self.0, self.1)
    }

    /// The hash of raw bytes. About 10 ns for 20 bytes.
    #[must_use]
    #[inline]
    pub fn bytes(&self, bytes: &[u8]) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.0, self.1);
        hasher.write(bytes);
        hasher.finish()
    }

    /// The hash of 64-bit words. About 2 ns a word plus 10 ns.
    #[must_use]
    #[inline]
    pub fn words(&self, words: &[u64]) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.0, self.1);
        words.iter().for_each(|word| hasher.write_u64(*word));
        hasher.finish()
    }

    /// The hash of a flow's ends and link. About 15 ns for IPv4, 20 for IPv6. One body for all that
    /// look a flow up: it is 1.5 KB, and several look in a row.
    #[must_use]
    #[inline(never)]
    pub fn flow(&self, flow: &FlowKey) -> u64 {
        // Lengths that are known at compile time: no loop.
        match FlowWords::of(flow).as_slice() {
            &[a, b] => self.words(&[a, b]),
            &[a, b, c, d, e] => self.words(&[a, b, c, d, e]),
            words => self.words(words),
        }
    }

    /// The hash of an address with one more word (an interface, a port).
    #[must_use]
    #[inline]
    pub fn addr(&self, addr: IpAddr, word: u32) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.0, self.1);
        match addr {
            IpAddr::V4(a) => hasher.write_u64(u64::from(a.to_bits()) << 32 | u64::from(word)),
            IpAddr::V6(a) => {
                hasher.write_u128(a.to_bits());
                hasher.write_u32(word);
            }
        }
        hasher.finish()
    }
}

impl core::fmt::Debug for HashKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("HashKey(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_key_gives_another_order() {
        let (a, b) = (HashKey::new(1, 2), HashKey::new(1, 3));
        let addr = "fd00::1".parse().unwrap();
        assert_ne!(a.addr(addr, 7), b.addr(addr, 7));
        assert_ne!(a.addr(addr, 7), a.addr(addr, 8));
        assert_eq!(a.bytes(b"x"), a.bytes(b"x"));
        assert_ne!(a.words(&[7]), a.words(&[7, 0]));
        assert_ne!(a.words(&[7]), b.words(&[7]));
        assert_eq!(format!("{a:?}"), "HashKey(secret)");
    }
}
