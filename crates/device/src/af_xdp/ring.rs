//! One of the four rings that an AF_XDP socket shares with the kernel: one side writes entries and
//! a producer number, the other reads them and writes a consumer number.
//!
//! Called by `queue.rs`. Invariant: an entry is written only while the kernel does not own it (its
//! consumer number, loaded with acquire) and is published with release. It is read only after the
//! kernel's producer number, loaded with acquire, has published it. Numbers from the kernel's
//! memory are masked before use: a wrong number gives wrong entries, never an access out of bounds.
//! Reading: the kernel's `Documentation/networking/af_xdp.rst`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Entries of rings: plain structures of the kernel, every value of which is valid.
pub(crate) trait RingEntry: Copy {}
impl RingEntry for u64 {}
impl RingEntry for libc::xdp_desc {}

/// One mapped ring of an AF_XDP socket with entries of type `T`, used as producer or consumer.
#[derive(Debug)]
pub(crate) struct XdpRing<T> {
    memory: NonNull<u8>,
    bytes: usize,
    at: libc::xdp_ring_offset,
    size: u32,
    /// Our number: entries written (of a ring that we fill) or read.
    ours: u32,
    /// What we last saw of the other side's.
    theirs: u32,
    _entries: core::marker::PhantomData<T>,
}

// SAFETY: the mapping belongs to this object alone, wherever it goes; the kernel's side is guarded
// by the two numbers.
unsafe impl<T: RingEntry> Send for XdpRing<T> {}

impl<T: RingEntry> XdpRing<T> {
    /// Maps the ring of `size` entries (a power of two) that the socket has at `page_offset`.
    pub(crate) fn map(
        socket: BorrowedFd<'_>,
        at: libc::xdp_ring_offset,
        size: u32,
        page_offset: libc::off_t,
    ) -> io::Result<Self> {
        let bytes = at.desc as usize + size as usize * size_of::<T>();
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new shared mapping of a ring that the socket has, at any address.
        let memory = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                bytes,
                protection,
                flags | libc::MAP_POPULATE,
                socket.as_raw_fd(),
                page_offset,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or_else(io::Error::last_os_error)?;
        let _entries = core::marker::PhantomData;
        Ok(Self { memory, bytes, at, size, ours: 0, theirs: 0, _entries })
    }

    fn word(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the kernel gave this offset of an aligned word inside the mapping; both sides
        // access it atomically only.
        unsafe { &*self.memory.as_ptr().add(offset as usize).cast::<AtomicU32>() }
    }

    fn entry(&self, number: u32) -> *mut T {
        let index = (number & (self.size - 1)) as usize;
        // SAFETY: masked, so it is in the mapping, which has room for `size` entries there.
        unsafe { self.memory.as_ptr().add(self.at.desc as usize).cast::<T>().add(index) }
    }

    /// Whether the kernel requires a system call before it continues with this ring (need_wakeup).
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.word(self.at.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// Of a ring that we fill: how many more entries it takes.
    pub(crate) fn room(&mut self) -> u32 {
        let used = self.ours.wrapping_sub(self.theirs);
        if used < self.size {
            return self.size - used;
        }
        self.theirs = self.word(self.at.consumer).load(Ordering::Acquire);
        self.size.saturating_sub(self.ours.wrapping_sub(self.theirs))
    }

    /// Of a ring that we fill: how many entries the kernel has not taken yet.
    pub(crate) fn untaken(&self) -> u32 {
        let theirs = self.word(self.at.consumer).load(Ordering::Acquire);
        self.ours.wrapping_sub(theirs).min(self.size)
    }

    /// Adds an entry, unseen until [`XdpRing::show`]; false where the ring is full.
    pub(crate) fn push(&mut self, entry: T) -> bool {
        if self.room() == 0 {
            return false;
        }
        // SAFETY: the kernel has read this entry, or it never was one: the ring has room.
        unsafe { self.entry(self.ours).write(entry) };
        self.ours = self.ours.wrapping_add(1);
        true
    }

    /// Shows the kernel what was pushed.
    pub(crate) fn show(&self) {
        self.word(self.at.producer).store(self.ours, Ordering::Release);
    }

    /// Of a ring that the kernel fills: whether an entry waits.
    pub(crate) fn is_ready(&self) -> bool {
        self.word(self.at.producer).load(Ordering::Acquire) != self.ours
    }

    /// Of a ring that the kernel fills: how many entries wait.
    pub(crate) fn waiting(&self) -> u32 {
        let theirs = self.word(self.at.producer).load(Ordering::Acquire);
        theirs.wrapping_sub(self.ours).min(self.size)
    }

    /// Takes the oldest entry. The kernel keeps it until [`XdpRing::give_back`].
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.theirs == self.ours {
            self.theirs = self.word(self.at.producer).load(Ordering::Acquire);
        }
        if self.theirs == self.ours {
            return None;
        }
        // SAFETY: the kernel has written this entry and shown it by its number.
        let entry = unsafe { self.entry(self.ours).read() };
        self.ours = self.ours.wrapping_add(1);
        Some(entry)
    }

    /// Gives the places of all entries that were taken back to the kernel.
    pub(crate) fn give_back(&self) {
        self.word(self.at.consumer).store(self.ours, Ordering::Release);
    }
}

impl<T> Drop for XdpRing<T> {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length, and no borrow of it remains.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.bytes) };
    }
}
