//! The plain kernel: 64-bit words with end-around carry, two sums side by side.
//!
//! Called by `sum.rs` for short inputs everywhere and for all inputs where no wide kernel is.
//! Invariant: total function over any bytes; a word is read little-endian on every machine.
//! Read first: RFC 1071 sections 2(B) (byte order independence) and 2(C) (wider words).

/// `a + b` in one's complement arithmetic of 64 bits.
#[inline(always)]
pub(crate) const fn add_carry(a: u64, b: u64) -> u64 {
    let (value, carry) = a.overflowing_add(b);
    value.wrapping_add(carry as u64)
}

/// Sums any number of bytes with plain integer arithmetic.
#[inline]
#[must_use]
pub fn sum_scalar(bytes: &[u8]) -> u64 {
    let (pairs, rest) = bytes.as_chunks::<16>();
    let (mut even, mut odd) = (0u64, 0u64);
    for pair in pairs {
        let value = u128::from_le_bytes(*pair);
        even = add_carry(even, value as u64);
        odd = add_carry(odd, (value >> 64) as u64);
    }
    let (words, tail) = rest.as_chunks::<8>();
    for word in words {
        even = add_carry(even, u64::from_le_bytes(*word));
    }
    add_carry(add_carry(even, odd), tail_word(tail))
}

/// The last zero to seven bytes as one word, padded with zeros.
#[inline(always)]
fn tail_word(tail: &[u8]) -> u64 {
    let (mut word, mut shift) = (0, 0);
    let mut rest = tail;
    if let Some((four, after)) = rest.split_first_chunk::<4>() {
        word = u64::from(u32::from_le_bytes(*four));
        (shift, rest) = (32, after);
    }
    if let Some((two, after)) = rest.split_first_chunk::<2>() {
        word |= u64::from(u16::from_le_bytes(*two)) << shift;
        (shift, rest) = (shift + 16, after);
    }
    if let [one] = rest {
        word |= u64::from(*one) << shift;
    }
    word
}
