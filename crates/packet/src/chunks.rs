//! Iterating over a packet's chunks.

use crate::buf::{BufLinks, PacketBuf, chunk_bytes};

/// The chunks' bytes in order, empty ones included.
pub struct Chunks<'a>(BufLinks<'a>);

impl<'a> Chunks<'a> {
    pub(crate) fn new(packet: &'a PacketBuf) -> Self {
        Self(BufLinks::of(packet.descriptor()))
    }
}

impl<'a> Iterator for Chunks<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.0.next().map(chunk_bytes)
    }
}

impl PacketBuf {
    /// The chunks' bytes from `off` on, `len` bytes total at most.
    pub fn chunks_in(&self, off: usize, len: usize) -> impl Iterator<Item = &[u8]> {
        let (mut skip, mut left) = (off, len);
        self.chunks().filter_map(move |bytes| {
            let from = skip.min(bytes.len());
            skip -= from;
            let here = (bytes.len() - from).min(left);
            left -= here;
            (here > 0).then(|| &bytes[from..from + here])
        })
    }
}
