//! `MappedWords`: a BPF array map that is also mapped into this process, as atomic 64-bit words.
//!
//! Made by `filter.rs`. The XDP program and this process read and write the same memory, so that an
//! update needs no system call. Invariants: every access of ours is atomic and within the mapping;
//! values that the program writes there are never used in a way that could cause harm.

use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use super::bpf::{Map, MapKind};

/// A shared mapping of an array map's values, accessed as atomic words.
#[derive(Debug)]
pub(crate) struct MappedWords {
    map: Map,
    memory: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the mapping belongs to this object alone, wherever it goes, and is accessed atomically.
unsafe impl Send for MappedWords {}
// SAFETY: as above: shared references give access to atomic words only.
unsafe impl Sync for MappedWords {}

impl MappedWords {
    /// Creates a map of `entries` values of `each` words, all zero.
    pub(crate) fn create(each: usize, entries: u32) -> io::Result<Self> {
        let map = Map::create(MapKind::Mapped, each * size_of::<u64>(), entries)?;
        let count = each * entries as usize;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new shared mapping of the map's values, which are contiguous, at any address.
        let memory = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                count * size_of::<u64>(),
                protection,
                flags | libc::MAP_POPULATE,
                map.fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { map, memory, count })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.map.fd()
    }

    /// All of them, value by value.
    #[inline]
    pub(crate) fn all(&self) -> &[AtomicU64] {
        // SAFETY: mapped in `create` with room for so many aligned words, until this is dropped;
        // the kernel's side of it changes them by whole words only.
        unsafe { core::slice::from_raw_parts(self.memory.as_ptr(), self.count) }
    }
}

impl Drop for MappedWords {
    fn drop(&mut self) {
        let bytes = self.count * size_of::<u64>();
        // SAFETY: mapped in `create` with this length, and no borrow of it remains.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), bytes) };
    }
}
