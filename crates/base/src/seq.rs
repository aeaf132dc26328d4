//! Sequence numbers of TCP.
//!
//! Called by `tcp` and `syncache`. Invariant: comparisons are those of serial numbers (RFC 9293
//! section 3.4): one number is before another if it takes fewer than 2^31 steps forward to reach
//! it. There is deliberately no `Ord`: the relation is not transitive around the whole circle.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A place in a stream of bytes, modulo 2^32.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Seq(pub u32);

impl Seq {
    /// Whether this place comes before `other`.
    #[inline]
    #[must_use]
    pub const fn is_before(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Whether this place comes before `other` or is the same.
    #[inline]
    #[must_use]
    pub const fn is_at_most(self, other: Self) -> bool {
        !other.is_before(self)
    }

    /// How many bytes it is from `earlier` to here, modulo 2^32.
    #[inline]
    #[must_use]
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// The later of the two.
    #[inline]
    #[must_use]
    pub const fn later(self, other: Self) -> Self {
        if self.is_before(other) { other } else { self }
    }

    /// The earlier of the two.
    #[inline]
    #[must_use]
    pub const fn earlier(self, other: Self) -> Self {
        if other.is_before(self) { other } else { self }
    }

    /// Whether this place is one of the `len` places from `start` on.
    #[inline]
    #[must_use]
    pub const fn is_within(self, start: Self, len: u32) -> bool {
        self.since(start) < len
    }
}

impl Add<u32> for Seq {
    type Output = Self;

    #[inline]
    fn add(self, bytes: u32) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

impl AddAssign<u32> for Seq {
    #[inline]
    fn add_assign(&mut self, bytes: u32) {
        *self = *self + bytes;
    }
}

impl Sub<u32> for Seq {
    type Output = Self;

    #[inline]
    fn sub(self, bytes: u32) -> Self {
        Self(self.0.wrapping_sub(bytes))
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_goes_round_the_circle() {
        let last = Seq(u32::MAX);
        let first = last + 1;
        assert_eq!(first, Seq(0));
        assert!(last.is_before(first) && !first.is_before(last));
        assert!(first.is_at_most(first) && !first.is_before(first));
        assert_eq!(first.since(last), 1);
        assert_eq!(last.later(first), first);
        assert_eq!(last.earlier(first), last);
        assert_eq!(first - 1, last);
    }

    #[test]
    fn half_the_circle_ahead_is_behind() {
        let base = Seq(7);
        assert!(base.is_before(base + 0x7fff_ffff));
        assert!((base + 0x8000_0001).is_before(base));
    }

    #[test]
    fn a_window_across_the_wrap_holds_its_places_only() {
        let start = Seq(u32::MAX - 1);
        assert!(Seq(1).is_within(start, 4));
        assert!(!Seq(2).is_within(start, 4));
        assert!(!(start - 1).is_within(start, 4));
        assert!(!start.is_within(start, 0));
    }
}
