//! A checksum over chunks of any length, in packet order.
//!
//! Called to sum a packet that consists of several chunks. Invariant: the result does not depend on
//! where the packet was cut. Read first: RFC 1071 section 2(B).

use crate::{InternetSum, sum};

/// Sums bytes chunk by chunk; remembers whether the next chunk begins at an odd offset.
///
/// ```
/// use floodwall_checksum::{Accumulator, sum};
/// let whole = sum(b"floodwall").finish();
/// assert_eq!(Accumulator::new().add(b"flo").add(b"od").add(b"wall").finish(), whole);
/// ```
#[derive(Clone, Copy, Default, Debug)]
#[must_use]
pub struct Accumulator {
    sum: InternetSum,
    at_odd: bool,
}

impl Accumulator {
    /// Nothing summed yet.
    #[inline]
    pub const fn new() -> Self {
        Self { sum: InternetSum::ZERO, at_odd: false }
    }

    /// Begins with a sum of an even number of bytes, such as a pseudo-header.
    #[inline]
    pub const fn with(sum: InternetSum) -> Self {
        Self { sum, at_odd: false }
    }

    /// Sums the next chunk.
    #[inline]
    pub fn add(&mut self, bytes: &[u8]) -> &mut Self {
        self.append(sum(bytes), bytes.len())
    }

    /// Adds the next chunk's sum, computed elsewhere; `len` is the chunk's bytes.
    #[inline]
    pub const fn append(&mut self, other: InternetSum, len: usize) -> &mut Self {
        self.sum = self.sum.append(self.at_odd, other);
        self.at_odd ^= len & 1 == 1;
        self
    }

    /// The sum so far.
    #[inline]
    pub const fn sum(&self) -> InternetSum {
        self.sum
    }

    /// The checksum to put into a header: the complement of the folded sum.
    #[inline]
    #[must_use]
    pub const fn finish(&self) -> u16 {
        self.sum.finish()
    }

    /// Whether bytes that include their own checksum sum up as they must.
    #[inline]
    #[must_use]
    pub const fn verifies(&self) -> bool {
        self.sum.verifies()
    }
}
