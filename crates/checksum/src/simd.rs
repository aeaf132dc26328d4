//! The wide kernels of x86-64: SSE2, which every such machine has, and AVX2, found at run time.
//!
//! Called by `sum.rs` for 384 bytes and more. A 16-bit word with its top bit flipped is the word
//! minus 32,768 as a signed number; `madd` with ones adds neighbours into 32-bit lanes without
//! overflow, and at the end 32,768 is given back for each word. Compilers do not find this by
//! themselves: the auto-vectorised loops are two to three times slower.
//!
//! Invariant: at most [`BLOCK_BYTES_MAX`] bytes go into one set of 32-bit lanes, so that not even
//! the sum of all lanes overflows.
//!
//! Read first: `_mm256_madd_epi16` in the Intel intrinsics guide; RFC 1071 section 2.

use core::arch::x86_64::{
    __m128i, __m256i, _mm_add_epi32, _mm_cvtsi128_si32, _mm_loadu_si128, _mm_madd_epi16,
    _mm_set1_epi16, _mm_setzero_si128, _mm_shuffle_epi32, _mm_xor_si128, _mm256_add_epi32,
    _mm256_castsi256_si128, _mm256_extracti128_si256, _mm256_loadu_si256, _mm256_madd_epi16,
    _mm256_set1_epi16, _mm256_setzero_si256, _mm256_xor_si256,
};

use crate::scalar::{add_carry, sum_scalar};

/// The most bytes summed into one set of lanes.
///
/// 2^15 words of at most 2^15 in magnitude each: all of them together are 2^30, inside of 2^31.
const BLOCK_BYTES_MAX: usize = 65_536;

/// What flipping the top bit took from each word.
const WORD_BIAS: i64 = 32_768;

/// Sums any number of bytes with AVX2, or returns that this machine has none.
#[inline]
#[must_use]
pub fn sum_avx2(bytes: &[u8]) -> Option<u64> {
    if !is_x86_feature_detected!("avx2") {
        return None;
    }
    let mut total = 0;
    for block in bytes.chunks(BLOCK_BYTES_MAX) {
        // SAFETY: the machine has AVX2: it was checked just above.
        total = add_carry(total, unsafe { block_avx2(block) });
    }
    Some(total)
}

/// Sums any number of bytes with SSE2.
#[inline]
#[must_use]
pub fn sum_sse2(bytes: &[u8]) -> u64 {
    let mut total = 0;
    for block in bytes.chunks(BLOCK_BYTES_MAX) {
        // SAFETY: SSE2 is part of every x86-64 machine (this file is built for no other).
        total = add_carry(total, unsafe { block_sse2(block) });
    }
    total
}

/// Copies `from` to the front of `into` and sums it in the same pass with AVX2: at most
/// [`BLOCK_BYTES_MAX`] bytes, and no more than `into` has. `None`, without an effect, where this
/// machine has none, or there are more.
#[inline]
pub(crate) fn copy_sum_avx2(into: &mut [u8], from: &[u8]) -> Option<u64> {
    let into = into.get_mut(..from.len())?;
    if from.len() > BLOCK_BYTES_MAX || !is_x86_feature_detected!("avx2") {
        return None;
    }
    // SAFETY: the machine has AVX2: it was checked just above.
    Some(unsafe { copy_block_avx2(into, from) })
}

/// As [`block_avx2`] of `from`, which is copied to `into` of the same length: each load serves
/// both.
#[target_feature(enable = "avx2")]
fn copy_block_avx2(into: &mut [u8], from: &[u8]) -> u64 {
    let (rows, rest) = from.as_chunks::<128>();
    let (loads, tail) = rest.as_chunks::<32>();
    let (row_copies, rest) = into.as_chunks_mut::<128>();
    let (load_copies, tail_copy) = rest.as_chunks_mut::<32>();
    let mut lanes = [_mm256_setzero_si256(); 4];
    for (row, copy) in rows.iter().zip(row_copies) {
        let (quarters, _) = row.as_chunks::<32>();
        for (lane, quarter) in lanes.iter_mut().zip(quarters) {
            *lane = _mm256_add_epi32(*lane, pairs_avx2(quarter));
        }
        *copy = *row;
    }
    let [mut a, b, c, d] = lanes;
    for (load, copy) in loads.iter().zip(load_copies) {
        a = _mm256_add_epi32(a, pairs_avx2(load));
        *copy = *load;
    }
    tail_copy.copy_from_slice(tail);
    let total = _mm256_add_epi32(_mm256_add_epi32(a, b), _mm256_add_epi32(c, d));
    let halves = _mm_add_epi32(_mm256_castsi256_si128(total), _mm256_extracti128_si256::<1>(total));
    unbias(lanes_sum(halves), from.len() - tail.len(), tail)
}

#[target_feature(enable = "avx2")]
fn block_avx2(bytes: &[u8]) -> u64 {
    let (rows, rest) = bytes.as_chunks::<128>();
    let (loads, tail) = rest.as_chunks::<32>();
    let mut lanes = [_mm256_setzero_si256(); 4];
    for row in rows {
        let (quarters, _) = row.as_chunks::<32>();
        for (lane, quarter) in lanes.iter_mut().zip(quarters) {
            *lane = _mm256_add_epi32(*lane, pairs_avx2(quarter));
        }
    }
    let [mut a, b, c, d] = lanes;
    for load in loads {
        a = _mm256_add_epi32(a, pairs_avx2(load));
    }
    let total = _mm256_add_epi32(_mm256_add_epi32(a, b), _mm256_add_epi32(c, d));
    let halves = _mm_add_epi32(_mm256_castsi256_si128(total), _mm256_extracti128_si256::<1>(total));
    unbias(lanes_sum(halves), bytes.len() - tail.len(), tail)
}

/// Sixteen words, as eight sums of two biased words.
#[inline]
#[target_feature(enable = "avx2")]
fn pairs_avx2(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: `bytes` is 32 readable bytes, and the load needs no alignment.
    let words = unsafe { _mm256_loadu_si256(bytes.as_ptr().cast::<__m256i>()) };
    _mm256_madd_epi16(_mm256_xor_si256(words, _mm256_set1_epi16(i16::MIN)), _mm256_set1_epi16(1))
}

#[target_feature(enable = "sse2")]
fn block_sse2(bytes: &[u8]) -> u64 {
    let (rows, rest) = bytes.as_chunks::<64>();
    let (loads, tail) = rest.as_chunks::<16>();
    let mut lanes = [_mm_setzero_si128(); 4];
    for row in rows {
        let (quarters, _) = row.as_chunks::<16>();
        for (lane, quarter) in lanes.iter_mut().zip(quarters) {
            *lane = _mm_add_epi32(*lane, pairs_sse2(quarter));
        }
    }
    let [mut a, b, c, d] = lanes;
    for load in loads {
        a = _mm_add_epi32(a, pairs_sse2(load));
    }
    let total = _mm_add_epi32(_mm_add_epi32(a, b), _mm_add_epi32(c, d));
    unbias(lanes_sum(total), bytes.len() - tail.len(), tail)
}

/// Eight words, as four sums of two biased words.
#[inline]
#[target_feature(enable = "sse2")]
fn pairs_sse2(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: `bytes` is 16 readable bytes, and the load needs no alignment.
    let words = unsafe { _mm_loadu_si128(bytes.as_ptr().cast::<__m128i>()) };
    _mm_madd_epi16(_mm_xor_si128(words, _mm_set1_epi16(i16::MIN)), _mm_set1_epi16(1))
}

/// The sum of four lanes.
#[inline]
#[target_feature(enable = "sse2")]
fn lanes_sum(lanes: __m128i) -> i32 {
    let pairs = _mm_add_epi32(lanes, _mm_shuffle_epi32::<0b01_00_11_10>(lanes));
    _mm_cvtsi128_si32(_mm_add_epi32(pairs, _mm_shuffle_epi32::<0b10_11_00_01>(pairs)))
}

/// Gives the bias of `wide_bytes` back and adds the tail.
#[inline]
fn unbias(biased: i32, wide_bytes: usize, tail: &[u8]) -> u64 {
    let value = i64::from(biased) + (wide_bytes as i64 / 2) * WORD_BIAS;
    // The true sum of unsigned words: never negative.
    add_carry(value.cast_unsigned(), sum_scalar(tail))
}
