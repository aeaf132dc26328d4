//! The plain kernel: 64-bit words added up in 128 bits (an `add` and an `adc` each), folded once.
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

/// The sum of 64-bit words added up in 128 bits, where no carry is lost.
#[inline(always)]
pub(crate) const fn fold128(total: u128) -> u64 {
    add_carry(total as u64, (total >> 64) as u64)
}

/// Sums any number of bytes with plain integer arithmetic. One loop only: unrolling those for the
/// rest would cost short inputs more than the sum.
#[inline]
#[must_use]
pub fn sum_scalar(bytes: &[u8]) -> u64 {
    let (rows, mut rest) = bytes.as_chunks::<64>();
    let mut total = 0;
    for row in rows {
        total += sum_words(row);
    }
    if let Some((row, after)) = rest.split_first_chunk::<32>() {
        (total, rest) = (total + sum_words(row), after);
    }
    if let Some((row, after)) = rest.split_first_chunk::<16>() {
        (total, rest) = (total + sum_words(row), after);
    }
    if let Some((row, after)) = rest.split_first_chunk::<8>() {
        (total, rest) = (total + sum_words(row), after);
    }
    fold128(total + u128::from(tail_word(rest)))
}

/// The sum of a whole number of 64-bit words.
#[inline(always)]
fn sum_words<const N: usize>(bytes: &[u8; N]) -> u128 {
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().map(|word| u128::from(u64::from_le_bytes(*word))).sum()
}

/// The last zero to seven bytes as one word, padded with zeros.
#[inline(always)]
fn tail_word(tail: &[u8]) -> u64 {
    if tail.is_empty() {
        return 0;
    }
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
