//! Pulldown: make `[off, off + len)` contiguous and writable, leave what is before untouched.
//!
//! The last resort of header access: only a writer needs it. Safe on shared memory (shared bytes
//! are copied, never changed), and a failure changes nothing. Reading: Hagino, FREENIX 2000,
//! section 4; unlike the original it never frees the packet, tests the chunk that it writes to for
//! sharing, and accepts an exact fit.

use core::ptr;

use floodwall_base::limits::CHUNKS_MAX;
use thiserror::Error;

use crate::access::AccessCounters;
use crate::buf::{
    BufLinks, PacketBuf, chunk_bytes, chunk_bytes_mut, is_exclusive, reference_to,
    release_following, splice_behind, tailroom,
};
use crate::descriptor::Descriptor;
use crate::pool::{HEADROOM, Pool, SUPER_BYTES};

/// Why bytes could not be pulled down. The packet is unchanged.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum PulldownError {
    /// The packet ends before the range does.
    #[error("the packet has fewer bytes")]
    TooShort,
    /// The range exceeds the largest frame, or the packet would have too many chunks.
    #[error("the range fits no frame")]
    TooLong,
    /// No frame is free.
    #[error("the packet pool is empty")]
    NoMemory,
}

impl PacketBuf {
    /// Makes the `len` bytes from `off` contiguous and exclusive, and gives them to be written.
    /// Bytes before `off` stay where they are. Copies `len` bytes at most, and only where the
    /// range straddles chunks or is shared; takes one frame and one reference at most. The charge
    /// stays as it is: charge the packet again to pay for what was added.
    ///
    /// # Errors
    /// See [`PulldownError`]; the packet is unchanged then.
    pub fn pulldown(
        &mut self,
        pool: &Pool,
        off: usize,
        len: usize,
        access: &mut AccessCounters,
    ) -> Result<&mut [u8], PulldownError> {
        let end = off.checked_add(len).filter(|end| *end <= self.len());
        if end.is_none() {
            access.failures += 1;
            return Err(PulldownError::TooShort);
        }
        if len == 0 {
            access.borrows += 1;
            return Ok(&mut []);
        }
        let (chunk, within) = self.chunk_at(off);
        let whole = within + len <= chunk.len.get() as usize;
        if whole && is_exclusive(chunk) {
            access.borrows += 1;
            // SAFETY: exclusive, and `self` is mutably borrowed for the result's life.
            let bytes = unsafe { chunk_bytes_mut(chunk) };
            return Ok(&mut bytes[within..][..len]);
        }
        let place = match self.gather(pool, chunk, within, len, access) {
            Ok(place) => place,
            Err(error) => {
                access.failures += 1;
                return Err(error);
            }
        };
        access.pulldowns += 1;
        access.copied_bytes += len as u64;
        // SAFETY: `gather` returns a chunk of this packet that it has made exclusive.
        let bytes = unsafe { chunk_bytes_mut(place.chunk) };
        Ok(&mut bytes[place.within..][..len])
    }

    /// The chunk that holds byte `off`, which exists, and where in it.
    fn chunk_at<'a>(&self, off: usize) -> (&'a Descriptor, usize) {
        let (mut found, mut left) = (ptr::from_ref(self.descriptor()), off);
        for d in BufLinks::of(self.descriptor()) {
            found = d;
            if left < d.len.get() as usize || d.chain.get().is_null() {
                break;
            }
            left -= d.len.get() as usize;
        }
        // SAFETY: a live descriptor of this packet, which outlives the caller's use of it. The
        // lifetime is loosened because descriptors are never borrowed mutably.
        (unsafe { &*found }, left)
    }

    /// Brings `len` bytes from `within` of `chunk` on into one exclusive chunk.
    fn gather<'a>(
        &self,
        pool: &Pool,
        chunk: &'a Descriptor,
        within: usize,
        len: usize,
        access: &mut AccessCounters,
    ) -> Result<PulldownSpot<'a>, PulldownError> {
        let here = (chunk.len.get() as usize - within).min(len);
        let missing = len - here;
        if missing > 0 && tailroom(chunk) >= missing {
            return Ok(pull_forward(chunk, within, missing));
        }
        access.allocations += 1;
        split_off(self, pool, chunk, within, len)
    }
}

/// The destination of gathered bytes.
struct PulldownSpot<'a> {
    chunk: &'a Descriptor,
    within: usize,
}

/// Copies `missing` bytes of the following chunks into the tailroom of `chunk`.
fn pull_forward(chunk: &Descriptor, within: usize, missing: usize) -> PulldownSpot<'_> {
    let before = chunk.len.get();
    chunk.len.set(before + missing as u32);
    // SAFETY: the tailroom was not 0, so the chunk is exclusive; the caller holds `&mut PacketBuf`.
    let room = unsafe { &mut chunk_bytes_mut(chunk)[before as usize..] };
    take_from_following(chunk, room);
    PulldownSpot { chunk, within }
}

/// How many chunks behind `chunk` `bytes` of theirs use up.
fn used_up_following(chunk: &Descriptor, mut bytes: usize) -> usize {
    let uses_up = |d: &&Descriptor| match bytes.checked_sub(d.len.get() as usize) {
        Some(rest) if bytes > 0 => {
            bytes = rest;
            true
        }
        _ => false,
    };
    BufLinks::of(chunk).skip(1).take_while(uses_up).count()
}

/// Fills `room` with the first bytes behind `chunk`, and takes them off there. The caller has
/// checked that there are enough. Chunks that are used up go home.
fn take_from_following(chunk: &Descriptor, room: &mut [u8]) {
    let used_up = used_up_following(chunk, room.len());
    let mut done = 0;
    for d in BufLinks::of(chunk).skip(1) {
        let here = (room.len() - done).min(d.len.get() as usize);
        room[done..done + here].copy_from_slice(&chunk_bytes(d)[..here]);
        d.off.set(d.off.get() + here as u32);
        d.len.set(d.len.get() - here as u32);
        done += here;
        if done == room.len() {
            break;
        }
    }
    release_following(chunk, used_up);
}

/// Copies the range into a fresh frame and splices it in behind what is left of `chunk`. What
/// `chunk` has behind the range becomes a reference to its frame.
fn split_off<'a>(
    packet: &PacketBuf,
    pool: &Pool,
    chunk: &'a Descriptor,
    within: usize,
    len: usize,
) -> Result<PulldownSpot<'a>, PulldownError> {
    let here = (chunk.len.get() as usize - within).min(len);
    let rest = chunk.len.get() as usize - within - here;
    let more = 1 + usize::from(rest > 0);
    let fewer = used_up_following(chunk, len - here);
    if packet.chunk_count() + more > CHUNKS_MAX + fewer || len > SUPER_BYTES - HEADROOM {
        return Err(PulldownError::TooLong);
    }
    // Everything that can fail comes first.
    let mut fresh = pool.alloc_for(len).ok_or(PulldownError::NoMemory)?;
    let room = fresh.extend(len).ok_or(PulldownError::TooLong)?;
    let tail = match rest {
        0 => None,
        _ => Some(
            reference_to(pool, chunk, (within + here) as u32, rest as u32)
                .ok_or(PulldownError::NoMemory)?,
        ),
    };
    room[..here].copy_from_slice(&chunk_bytes(chunk)[within..within + here]);
    take_from_following(chunk, &mut room[here..]);
    chunk.len.set(within as u32);
    // SAFETY: `chunk` is one of `packet`'s, which its caller has mutably borrowed; from here on
    // the packet's handle frees both.
    Ok(PulldownSpot { chunk: unsafe { splice_behind(chunk, fresh, tail) }, within: 0 })
}

#[cfg(test)]
#[cfg(not(loom))]
#[path = "pulldown/tests.rs"]
mod tests;
