//! A bit for each port that some socket has.
//!
//! 8 KiB, which stay in the first cache where the ports themselves (256 KiB) do not: a flood at all
//! ports is refused out of these. Kept by `demux.rs` with its ports, asked by triage first.

/// Bits of a word.
const BITS: usize = u64::BITS as usize;

/// See the file's head.
#[derive(Debug)]
pub(super) struct Heard(Box<[u64; (1 << 16) / BITS]>);

impl Default for Heard {
    fn default() -> Self {
        Self(Box::new([0; (1 << 16) / BITS]))
    }
}

impl Heard {
    #[inline(always)]
    pub(super) fn has(&self, port: u16) -> bool {
        let word = self.0.get(usize::from(port) / BITS).copied().unwrap_or(0);
        word >> (usize::from(port) % BITS) & 1 != 0
    }

    pub(super) fn set(&mut self, port: u16, heard: bool) {
        if let Some(word) = self.0.get_mut(usize::from(port) / BITS) {
            let bit = 1 << (usize::from(port) % BITS);
            *word = if heard { *word | bit } else { *word & !bit };
        }
    }
}
