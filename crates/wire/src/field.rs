//! Big-endian fields at fixed places of fixed-size headers.
//!
//! Called by every header file of this crate. Invariant: place and size are constants checked
//! at compile time, so reading and writing compile to one load or store without a branch.

use thiserror::Error;

/// The output buffer cannot hold what was to be written; nothing useful was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the buffer is too short: {needed} bytes are needed")]
pub struct BufferTooShort {
    /// How many bytes the buffer must have.
    pub needed: usize,
}

/// The `N` bytes at offset `AT`.
#[inline(always)]
pub(crate) fn bytes<const AT: usize, const N: usize, const LEN: usize>(
    header: &[u8; LEN],
) -> [u8; N] {
    const { assert!(AT + N <= LEN) }
    // The `None` cannot be: the assertion above holds at compile time.
    header.get(AT..).and_then(|tail| tail.first_chunk::<N>()).map_or([0; N], |field| *field)
}

/// The 128-bit field at offset `AT`: a number travels in registers through any type that holds it,
/// while an array of bytes is copied from place to place in memory.
#[inline(always)]
pub(crate) fn huge<const AT: usize, const LEN: usize>(header: &[u8; LEN]) -> u128 {
    u128::from_be_bytes(bytes::<AT, 16, LEN>(header))
}

/// The 16-bit field at offset `AT`.
#[inline(always)]
pub(crate) fn word<const AT: usize, const LEN: usize>(header: &[u8; LEN]) -> u16 {
    u16::from_be_bytes(bytes::<AT, 2, LEN>(header))
}

/// The 32-bit field at offset `AT`.
#[inline(always)]
pub(crate) fn long<const AT: usize, const LEN: usize>(header: &[u8; LEN]) -> u32 {
    u32::from_be_bytes(bytes::<AT, 4, LEN>(header))
}

/// Writes `value` at offset `AT`.
#[inline(always)]
pub(crate) fn put<const AT: usize, const N: usize, const LEN: usize>(
    header: &mut [u8; LEN],
    value: [u8; N],
) {
    const { assert!(AT + N <= LEN) }
    if let Some(field) = header.get_mut(AT..).and_then(|tail| tail.first_chunk_mut::<N>()) {
        *field = value;
    }
}

/// Writes a 16-bit field at offset `AT`.
#[inline(always)]
pub(crate) fn put_word<const AT: usize, const LEN: usize>(header: &mut [u8; LEN], value: u16) {
    put::<AT, 2, LEN>(header, value.to_be_bytes());
}

/// Writes a 32-bit field at offset `AT`.
#[inline(always)]
pub(crate) fn put_long<const AT: usize, const LEN: usize>(header: &mut [u8; LEN], value: u32) {
    put::<AT, 4, LEN>(header, value.to_be_bytes());
}

/// Bytes written one after another into a buffer that may be too short.
///
/// Counts on even when the buffer is full, so that the error can report the size that was needed.
pub(crate) struct FieldWriter<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl<'a> FieldWriter<'a> {
    pub(crate) const fn new(out: &'a mut [u8]) -> Self {
        Self { out, len: 0 }
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) {
        let end = self.len.saturating_add(bytes.len());
        if let Some(place) = self.out.get_mut(self.len..end) {
            place.copy_from_slice(bytes);
        }
        self.len = end;
    }

    /// Writes `value` until the length is a multiple of `unit` bytes.
    pub(crate) fn pad(&mut self, unit: usize, value: u8) {
        while !self.len.is_multiple_of(unit) {
            self.put(&[value]);
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// How many bytes were written, if all of them found room.
    pub(crate) const fn finish(self) -> Result<usize, BufferTooShort> {
        if self.len <= self.out.len() {
            Ok(self.len)
        } else {
            Err(BufferTooShort { needed: self.len })
        }
    }
}
