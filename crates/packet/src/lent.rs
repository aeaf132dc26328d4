//! Frames at a device or at the kernel: handles that are addresses for a while.
//!
//! A driver hands out a packet and passes its address on (a fill or a transmit ring of AF_XDP); an
//! address that comes back becomes a handle again only if it is in the region and its frame is
//! lent. So a device that returns an address twice, or one that it never had, cannot make two
//! owners: it is refused and counted. Reading: the kernel's `Documentation/networking/af_xdp.rst`
//! on the ownership of frames.
//!
//! Addresses count from the region's first byte. Frames of [`Class::Frame`] come first there, so
//! theirs are addresses of the UMEM that [`Region::umem`] describes.
//!
//! # Under flood
//! Reachable by a confused device, not by packets. Bound: one flag a frame. Worst work per address:
//! a division and one exchange. Moves [`Region::refused_returns`].

use std::sync::atomic::Ordering;

use crate::buf::{PacketBuf, frame_bytes, is_exclusive};
use crate::descriptor::{Descriptor, LARGE_FRAMES};
use crate::home;
use crate::pool::Region;

impl PacketBuf {
    /// Gives the packet to a device: the address of its first byte, from the first byte of its
    /// region. What it is charged stays charged until it has been taken back and dropped. Memory
    /// that is never taken back stays with the device, and its region is then never freed.
    ///
    /// # Errors
    /// Gives the packet back where it is more than one chunk, or shared (a device might write), or
    /// was trimmed away to the last byte of its frame: the address would be the next frame's.
    pub fn lend(self) -> Result<u64, Self> {
        let d = self.descriptor();
        let one = d.chain.get().is_null() && is_exclusive(d);
        let inside = (d.off.get() as usize) < frame_bytes(d);
        let Some(home) = home::of_slot(d.home.get() & !LARGE_FRAMES).filter(|_| one && inside)
        else {
            return Err(self);
        };
        let address = d.frame.get().addr() - home.memory.addr() + d.off.get() as usize;
        // SAFETY: the handle's descriptor is live, and `self` is its only owner until the count
        // is the mark of a lent frame: from then on the thread that takes it back is.
        let d = unsafe { &*self.into_descriptor() };
        d.refs.lend();
        Ok(address as u64)
    }
}

impl Region {
    /// The packet that was lent at `address`, unchanged. From any thread. `None`, and counted,
    /// where that is not the very address of a packet that is lent now.
    pub fn take_back(&self, address: u64) -> Option<PacketBuf> {
        self.take_back_if(address, |d, off| d.off.get() == off)
    }

    /// The packet that the device wrote into a lent frame: `len` bytes at `address`, anywhere in
    /// the frame. All else is as in a fresh packet. `None`, and counted, where no lent frame has
    /// all of these bytes.
    pub fn take_back_filled(&self, address: u64, len: usize) -> Option<PacketBuf> {
        let mut packet = self.take_back_if(address, |d, off| {
            (off as usize).checked_add(len).is_some_and(|end| end <= frame_bytes(d))
        })?;
        packet.uncharge();
        let (d, (_, off)) = (packet.descriptor(), self.locate(address)?);
        d.reset(off);
        d.len.set(len as u32);
        d.total.set(len as u32);
        Some(packet)
    }

    /// How many addresses came back that were not lent.
    #[must_use]
    pub fn refused_returns(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Takes back the frame around `address` if it is lent, and `is_right` accepts its descriptor
    /// and the address's place in it.
    fn take_back_if(
        &self,
        address: u64,
        is_right: impl FnOnce(&Descriptor, u32) -> bool,
    ) -> Option<PacketBuf> {
        let taken = self.locate(address).filter(|(d, _)| d.refs.take_back());
        if let Some((d, off)) = taken {
            // Only now are the descriptor's cells ours to read.
            if is_right(d, off) {
                // SAFETY: valid as long as the region, and ours alone by the exchange.
                return Some(unsafe { PacketBuf::from_descriptor(d) });
            }
            d.refs.lend();
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
