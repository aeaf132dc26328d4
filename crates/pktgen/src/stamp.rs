//! A stamp at the front of a payload: a request's sequence number and intended send time.
//!
//! Written by `blast.rs` and `honest.rs`, read by `honest.rs` and `count.rs` from what comes back.
//! Invariant: 24 bytes, big-endian, the same in both families.

use floodwall_base::Instant;

/// Bytes of a stamp.
pub const STAMP_BYTES: usize = 24;

const MAGIC: u32 = 0x666c_6f64;

/// The sequence number and intended send time of a request, as carried in its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// Which stream of its plan.
    pub stream: u32,
    /// Which packet of the stream, from 0.
    pub seq: u64,
    /// When it was meant to leave.
    pub intended: Instant,
}

impl Stamp {
    /// The bytes of the stamp.
    #[must_use]
    pub fn to_bytes(self) -> [u8; STAMP_BYTES] {
        let mut bytes = [0; STAMP_BYTES];
        let words =
            [u64::from(MAGIC) << 32 | u64::from(self.stream), self.seq, self.intended.as_nanos()];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    /// The stamp at the front of `payload`, if there is one.
    #[must_use]
    pub fn read(payload: &[u8]) -> Option<Self> {
        let (words, _) = payload.first_chunk::<STAMP_BYTES>()?.as_chunks::<8>();
        let [head, seq, intended] = words else { return None };
        let head = u64::from_be_bytes(*head);
        (head >> 32 == u64::from(MAGIC)).then(|| Self {
            stream: head as u32,
            seq: u64::from_be_bytes(*seq),
            intended: Instant::from_nanos(u64::from_be_bytes(*intended)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_back_and_other_bytes_are_not_one() {
        let stamp = Stamp { stream: 3, seq: 1 << 40, intended: Instant::from_nanos(77) };
        assert_eq!(Stamp::read(&stamp.to_bytes()), Some(stamp));
        assert_eq!(Stamp::read(&stamp.to_bytes()[..23]), None);
        assert_eq!(Stamp::read(&[0; 64]), None);
    }
}
