//! A value on cache lines of its own.
//!
//! Two cores that write two words of one line take the line from each other at every write,
//! although they share nothing (*false sharing*; Torrellas, Lam, Hennessy, 1994). [`Per`]
//! and the indices of the [`spsc`] ring keep such words apart with this type.
//!
//! 128 bytes, not 64: Intel's spatial prefetcher moves lines in pairs, and several 64-bit ARM
//! cores have lines of 128.
//!
//! [`Per`]: crate::Per
//! [`spsc`]: crate::spsc

use core::ops::{Deref, DerefMut};

/// A `T` that starts at a multiple of 128 bytes and has its last line for itself.
///
/// Costs up to 127 bytes of memory, and nothing at run time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(128))]
pub struct CachePadded<T>(T);

impl<T> CachePadded<T> {
    /// Pads `value`. Never panics.
    #[must_use]
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// The value without its padding. Never panics.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> Deref for CachePadded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for CachePadded<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn neighbours_in_an_array_are_128_bytes_apart() {
        let pair = [CachePadded::new(1_u8), CachePadded::new(2)];
        let addrs = pair.each_ref().map(|padded| core::ptr::from_ref(&**padded).addr());
        assert_eq!(addrs[1] - addrs[0], 128);
        assert_eq!(addrs[0] % 128, 0);
    }
}
