//! Reading headers in any chunk layout: borrow in place, copy to scratch when they straddle chunks.
//!
//! Nothing is rearranged and nothing allocated, so the only way to fail is that the packet is too
//! short; and it works on shared memory. A writer uses `pulldown.rs`. Reading: Hagino, "Mbuf issues
//! in 4.4BSD IPv6/IPsec support" (FREENIX 2000), section 4.

use crate::buf::PacketBuf;

/// How headers were read. Belongs to an engine, which counts with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AccessCounters {
    /// Given where they lay.
    pub borrows: u64,
    /// Copied to scratch.
    pub copies: u64,
    /// Bytes copied, to scratch or by pulling down.
    pub copied_bytes: u64,
    /// Pulled down (rearranged) for a writer.
    pub pulldowns: u64,
    /// Frames taken by pulling down.
    pub allocations: u64,
    /// Beyond the packet's end, beyond the scratch, or no memory to pull down with.
    pub failures: u64,
}

impl AccessCounters {
    /// Counts a header that was given where it lay.
    #[inline]
    pub const fn borrow(&mut self) {
        self.borrows += 1;
    }

    /// Requested headers.
    #[must_use]
    pub const fn checks(&self) -> u64 {
        self.borrows + self.copies + self.pulldowns + self.failures
    }
}

impl PacketBuf {
    /// The `N` bytes from `off` where the first chunk has them all, as it nearly always has;
    /// `None` otherwise, also for longer packets. The way in for hot paths: no scratch need be made
    /// ready. Not counted: see [`AccessCounters::borrow`]. Then there is
    /// [`PacketBuf::array_in_pieces`].
    #[must_use]
    #[inline]
    pub fn first_array<const N: usize>(&self, off: usize) -> Option<&[u8; N]> {
        self.first().get(off..)?.first_chunk()
    }

    /// The `N` bytes from `off`, in any chunks; `None` where the packet ends before.
    #[cold]
    pub fn array_in_pieces<const N: usize>(
        &self,
        off: usize,
        access: &mut AccessCounters,
    ) -> Option<[u8; N]> {
        self.header_array(off, &mut [0; N], access).copied()
    }

    /// The `len` bytes from `off`, in place where one chunk has them all, else copied to
    /// `scratch`. `None` where the packet ends before, or `scratch` is shorter than a straddling
    /// header. Costs a compare where the first chunk has them.
    #[inline]
    pub fn header<'a>(
        &'a self,
        off: usize,
        len: usize,
        scratch: &'a mut [u8],
        access: &mut AccessCounters,
    ) -> Option<&'a [u8]> {
        if let Some(bytes) = self.first().get(off..off.saturating_add(len)) {
            access.borrows += 1;
            return Some(bytes);
        }
        self.header_beyond(off, len, scratch, access)
    }

    /// As [`PacketBuf::header`] for a constant number of bytes.
    #[inline]
    pub fn header_array<'a, const N: usize>(
        &'a self,
        off: usize,
        scratch: &'a mut [u8; N],
        access: &mut AccessCounters,
    ) -> Option<&'a [u8; N]> {
        self.header(off, N, scratch, access)?.first_chunk()
    }

    #[cold]
    fn header_beyond<'a>(
        &'a self,
        off: usize,
        len: usize,
        scratch: &'a mut [u8],
        access: &mut AccessCounters,
    ) -> Option<&'a [u8]> {
        let mut skip = off;
        for bytes in self.chunks() {
            if skip < bytes.len() {
                if let Some(found) = bytes.get(skip..skip.saturating_add(len)) {
                    access.borrows += 1;
                    return Some(found);
                }
                break;
            }
            skip -= bytes.len();
        }
        let Some(room) = scratch.get_mut(..len).filter(|_| off.saturating_add(len) <= self.len())
        else {
            access.failures += 1;
            return None;
        };
        self.copy_out(off, room);
        access.copies += 1;
        access.copied_bytes += len as u64;
        Some(room)
    }

    /// Copies bytes from `off` into `out`; returns how many there were.
    pub fn copy_out(&self, off: usize, out: &mut [u8]) -> usize {
        let mut done = 0;
        for bytes in self.chunks_in(off, out.len()) {
            out[done..done + bytes.len()].copy_from_slice(bytes);
            done += bytes.len();
        }
        done
    }
}
