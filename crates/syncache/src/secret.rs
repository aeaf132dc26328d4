//! The master secret, and the two keys that are valid at a time.
//!
//! Used by `syn_cache.rs`. A key is a keyed function of the master secret and the epoch (decision
//! C11): instances with the same secret and approximately the same wall clock make and accept the
//! same cookies, so a restart or a sister instance needs no communication. Invariant: at most the
//! keys of two epochs are accepted, of the current secret and, for one cookie lifetime after it was
//! replaced, of the previous one. Not here: files; the watcher of a file passes its bytes.

use core::hash::Hasher;

use floodwall_base::{Instant, SecretRandom, limits};
use siphasher::sip::SipHasher24;
use thiserror::Error;

use crate::moment::{CookieEpoch, CookieMoment};

/// The maximum lifetime of a cookie, and how long the gate stays open after an event that opens
/// it.
pub(crate) const COOKIE_LIFETIME: core::time::Duration =
    core::time::Duration::from_secs(2 * limits::SYN_COOKIE_PERIOD.as_secs());

/// The master secret of cookies, which instances may share.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(u64, u64);

/// The reason why bytes are not accepted as a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SecretError {
    /// There are too few bytes.
    #[error(
        "the cookie secret has {0} bytes and needs 32 or more: write 32 random bytes, as they are"
    )]
    Short(usize),
    /// All bytes are equal.
    #[error("all bytes of the cookie secret are equal: write 32 random bytes")]
    Uniform,
}

/// One epoch's key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct CookieKey(u64, u64);

impl Secret {
    /// Minimum number of bytes of a secret.
    pub const BYTES_MIN: usize = 32;

    /// The secret derived from these bytes; all of them count. A text file is used byte for byte,
    /// end of line included, so sister instances must have exactly the same file.
    ///
    /// # Errors
    /// They are fewer than [`Secret::BYTES_MIN`], or are all equal and thus not random.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SecretError> {
        if bytes.len() < Self::BYTES_MIN {
            return Err(SecretError::Short(bytes.len()));
        }
        if bytes.iter().all(|byte| Some(byte) == bytes.first()) {
            return Err(SecretError::Uniform);
        }
        let word = |n: usize| {
            let mut word = [0; 8];
            word.iter_mut().zip(bytes.iter().skip(n * 8)).for_each(|(to, from)| *to = *from);
            u64::from_le_bytes(word)
        };
        // Two passes with different keys, each over all bytes.
        let pass = |keys: (u64, u64), pass: u8| {
            let mut hasher = SipHasher24::new_with_keys(keys.0, keys.1);
            hasher.write(bytes);
            hasher.write_u8(pass);
            hasher.finish()
        };
        Ok(Self(pass((word(0), word(1)), 1), pass((word(2), word(3)), 2)))
    }

    /// The key of which the keys of epochs are derived, for a program that derives them itself:
    /// SipHash-2-4 of the epoch's number and of which half of the key it is.
    #[must_use]
    pub const fn words(&self) -> (u64, u64) {
        (self.0, self.1)
    }

    /// The secret with these words, as [`Secret::words`] gave them.
    #[must_use]
    pub const fn from_words(words: (u64, u64)) -> Self {
        Self(words.0, words.1)
    }

    /// A random secret of this process.
    #[must_use]
    pub fn random(random: &mut SecretRandom) -> Self {
        Self(random.next_u64(), random.next_u64())
    }

    fn key(&self, epoch: CookieEpoch) -> CookieKey {
        let half = |which: u64| {
            let mut hasher = SipHasher24::new_with_keys(self.0, self.1);
            hasher.write_u64(epoch.0);
            hasher.write_u64(which);
            hasher.finish()
        };
        CookieKey(half(0), half(1))
    }
}

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret(secret)")
    }
}

impl CookieKey {
    /// The keyed hash that cookies are made of: SipHash-2-4.
    #[inline]
    pub(crate) fn mac(&self, words: &[u64]) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.0, self.1);
        words.iter().for_each(|word| hasher.write_u64(*word));
        hasher.finish()
    }
}

/// The keys of one secret for one epoch.
#[derive(Clone, Copy)]
struct SecretPair {
    secret: Secret,
    epoch: CookieEpoch,
    current: CookieKey,
    before: CookieKey,
}

impl SecretPair {
    fn new(secret: Secret, epoch: CookieEpoch) -> Self {
        Self { secret, epoch, current: secret.key(epoch), before: secret.key(epoch.before()) }
    }

    #[inline]
    fn turn(&mut self, epoch: CookieEpoch) {
        if self.epoch != epoch {
            *self = Self::new(self.secret, epoch);
        }
    }

    #[inline]
    const fn of_parity(&self, odd: bool) -> CookieKey {
        if (self.epoch.0 & 1 == 1) == odd { self.current } else { self.before }
    }
}

/// The keys in force.
pub(crate) struct Keyring {
    present: SecretPair,
    last: Option<(SecretPair, Instant)>,
}

impl Keyring {
    pub(crate) fn new(secret: Secret, at: CookieMoment) -> Self {
        Self { present: SecretPair::new(secret, at.epoch), last: None }
    }

    /// Replaces the secret; cookies of the previous one stay valid for their lifetime. Returns
    /// false, without a change, if it is the same secret.
    pub(crate) fn reload(&mut self, secret: Secret, at: CookieMoment) -> bool {
        if secret == self.present.secret {
            return false;
        }
        self.last = Some((self.present, at.now + COOKIE_LIFETIME));
        self.present = SecretPair::new(secret, at.epoch);
        true
    }

    /// The key that makes cookies now, and whether its epoch is odd.
    #[inline]
    pub(crate) fn current(&mut self, at: CookieMoment) -> (CookieKey, bool) {
        self.present.turn(at.epoch);
        (self.present.current, at.epoch.0 & 1 == 1)
    }

    /// The key of any epoch under the current secret.
    pub(crate) fn key_of(&self, epoch: CookieEpoch) -> (u64, u64) {
        let CookieKey(a, b) = self.present.secret.key(epoch);
        (a, b)
    }

    /// The keys of that parity as they were last derived, for callers that must not advance the
    /// epoch.
    #[inline]
    pub(crate) fn standing(&self, odd: bool) -> (CookieKey, Option<CookieKey>) {
        let last = self.last.as_ref().map(|(pair, _)| pair.of_parity(odd));
        (self.present.of_parity(odd), last)
    }

    /// The keys that a cookie of that parity may have been made with: of the current secret,
    /// then of the previous one.
    #[inline]
    pub(crate) fn candidates(
        &mut self,
        odd: bool,
        at: CookieMoment,
    ) -> (CookieKey, Option<CookieKey>) {
        self.present.turn(at.epoch);
        if self.last.is_some_and(|(_, until)| until <= at.now) {
            self.last = None;
        }
        let last = self.last.as_mut().map(|(pair, _)| {
            pair.turn(at.epoch);
            pair.of_parity(odd)
        });
        (self.present.of_parity(odd), last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> CookieMoment {
        CookieMoment::simulated(Instant::from_nanos(seconds * 1_000_000_000))
    }

    #[test]
    fn bytes_that_nothing_drew_are_refused_in_clear_words() {
        let short = Secret::from_bytes(&[7; 31]).unwrap_err();
        assert_eq!(short, SecretError::Short(31));
        assert!(short.to_string().contains("31 bytes") && short.to_string().contains("32"));
        assert_eq!(Secret::from_bytes(&[]).unwrap_err(), SecretError::Short(0));
        assert_eq!(Secret::from_bytes(&[0; 64]).unwrap_err(), SecretError::Uniform);
    }

    #[test]
    fn every_byte_of_a_secret_counts() {
        let bytes: Vec<u8> = (0..48).collect();
        let whole = Secret::from_bytes(&bytes).unwrap();
        assert_eq!(whole, Secret::from_bytes(&bytes).unwrap());
        for n in 0..bytes.len() {
            let mut other = bytes.clone();
            other[n] ^= 1;
            assert_ne!(whole, Secret::from_bytes(&other).unwrap(), "byte {n}");
        }
        assert_ne!(whole, Secret::from_bytes(&bytes[..47]).unwrap());
        assert_eq!(format!("{whole:?}"), "Secret(secret)");
    }

    #[test]
    fn two_epochs_have_keys_and_the_third_has_not() {
        let secret = Secret(1, 2);
        let mut ring = Keyring::new(secret, at(0));
        let (first, odd) = ring.current(at(14));
        assert!(!odd && ring.candidates(odd, at(29)).0 == first);
        assert!(ring.current(at(15)).0 != first, "the key turns");
        assert!(ring.candidates(odd, at(30)).0 != first, "of the same parity, but a new one");
        assert!(ring.candidates(odd, at(0)).0 == first, "a clock set back has its keys again");
    }

    #[test]
    fn the_last_secret_is_believed_for_a_lifetime() {
        let mut ring = Keyring::new(Secret(1, 2), at(0));
        let (old, odd) = ring.current(at(0));
        assert!(ring.reload(Secret(3, 4), at(1)) && !ring.reload(Secret(3, 4), at(2)));
        let (new, last) = ring.candidates(odd, at(29));
        assert!(new != old && last == Some(old));
        assert!(ring.candidates(odd, at(31)).1.is_none());
    }
}
