//! The Internet checksum over a packet's bytes, however they are cut into chunks.

use floodwall_checksum::{Accumulator, InternetSum, sum};

use crate::buf::PacketBuf;

impl PacketBuf {
    /// The sum of the `len` bytes from `off` (as many as there are), starting at an even place.
    #[inline]
    pub fn sum(&self, off: usize, len: usize) -> InternetSum {
        if let Some(bytes) = off.checked_add(len).and_then(|end| self.first().get(off..end)) {
            return sum(bytes);
        }
        let mut all = Accumulator::new();
        for bytes in self.chunks_in(off, len) {
            all.add(bytes);
        }
        all.sum()
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use crate::pool::{Pool, PoolConfig};

    #[test]
    fn cuts_at_odd_places_do_not_change_the_sum() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let flat: Vec<u8> = (0..101_u8).map(|n| n.wrapping_mul(37)).collect();
        let want = floodwall_checksum::sum(&flat[1..100]).fold();
        for cut in 0..=101 {
            let parts = [&flat[..cut], &[], &flat[cut..]];
            let packet = pool.packet_from_chunks(parts).unwrap();
            assert_eq!(packet.sum(1, 99).fold(), want, "cut at {cut}");
        }
    }
}
