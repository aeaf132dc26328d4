//! Arrays that are looked at anywhere: each address takes a translation, and these cover more.
//!
//! A processor keeps the translations of some 1,500 pages of 4 KiB, 6 MiB total; a read of one
//! random line of a larger table also waits for a walk over the page tables, in a virtual machine a
//! walk in two dimensions. Here what is large begins where a page of 2 MiB may, and the kernel is
//! asked for such pages before the first byte is written. Used by `udp` for the keys of sockets,
//! by `tcp` for its connections, and by `packet` for its regions. Linux, transparent huge pages on
//! `madvise` or `always`; elsewhere and on `never` this is ordinary memory. Invariant: no effect
//! but time, and less than one such page more for each piece. Not here: memory that the system
//! sets aside for huge pages, which an operator would have to plan.

use core::mem::MaybeUninit;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use std::alloc::{self, Layout};

/// Bytes of a huge page.
const HUGE_PAGE: usize = 2 << 20;
/// Bytes of the smallest page.
const PAGE: usize = 4096;

/// Memory of so many bytes, uninitialised, and how it is to be given back ([`alloc::dealloc`]).
/// From 2 MiB on it is placed on huge pages where the kernel has them. `None`: there is not that
/// much.
#[must_use]
pub fn allocate(bytes: usize, align: usize) -> Option<(NonNull<u8>, Layout)> {
    let large = bytes >= HUGE_PAGE;
    let align = if large { align.max(HUGE_PAGE) } else { align };
    let size = if large { bytes.checked_next_multiple_of(HUGE_PAGE)? } else { bytes.max(1) };
    let layout = Layout::from_size_align(size, align).ok()?;
    // SAFETY: the size is not zero.
    let memory = NonNull::new(unsafe { alloc::alloc(layout) })?;
    if large {
        prefer_huge(memory, layout.size());
    }
    Some((memory, layout))
}

#[cfg(all(target_os = "linux", not(miri)))]
fn prefer_huge(memory: NonNull<u8>, bytes: usize) {
    // A kernel without such pages returns an error, which is ignored.
    // SAFETY: the memory is ours, and this advice changes nothing that a program could see.
    let _ = unsafe {
        rustix::mm::madvise(memory.as_ptr().cast(), bytes, rustix::mm::Advice::LinuxHugepage)
    };
}

#[cfg(not(all(target_os = "linux", not(miri))))]
const fn prefer_huge(_memory: NonNull<u8>, _bytes: usize) {}

/// An array in such memory, which grows at its end.
pub struct HugeArray<T> {
    memory: NonNull<MaybeUninit<T>>,
    /// The first so many are written.
    len: usize,
    capacity: usize,
    layout: Layout,
}

// SAFETY: it owns its values, as a `Vec` does.
unsafe impl<T: Send> Send for HugeArray<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for HugeArray<T> {}

impl<T: Copy> HugeArray<T> {
    /// So many of the same.
    ///
    /// # Panics
    /// As [`HugeArray::with_capacity`].
    #[must_use]
    pub fn filled(value: T, len: usize) -> Self {
        let mut all = Self::with_capacity(len);
        (0..len).for_each(|_| all.push(value));
        all
    }
}

impl<T> HugeArray<T> {
    /// With room for so many; the memory is not touched yet.
    ///
    /// # Panics
    /// The system has not that much memory.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        let bytes = capacity.checked_mul(size_of::<T>());
        let found = bytes.and_then(|bytes| allocate(bytes, align_of::<T>()));
        let (memory, layout) =
            found.unwrap_or_else(|| panic!("no memory for {capacity} entries of a table"));
        Self { memory: memory.cast(), len: 0, capacity, layout }
    }

    /// Touches what is not written yet, so that no page fault waits behind the first value there: a
    /// huge page is cleared within it, which took 5 ms where a virtual machine had to be given the
    /// memory first. Returns how many bytes that were.
    pub fn touch(&mut self) -> usize {
        let from = self.len * size_of::<T>();
        let rest = from..self.layout.size();
        for at in rest.clone().step_by(PAGE) {
            // SAFETY: within the allocation, and behind all values.
            unsafe { self.memory.as_ptr().cast::<u8>().add(at).write_volatile(0) };
        }
        rest.len()
    }

    /// Adds a value. Where there is no room, everything moves to where there is twice as much.
    ///
    /// # Panics
    /// As [`HugeArray::with_capacity`], where it moves.
    pub fn push(&mut self, value: T) {
        if self.len == self.capacity {
            let mut larger = Self::with_capacity((self.capacity * 2).max(4));
            // SAFETY: the first `len` are written here, and there is room for more of them there.
            unsafe { larger.memory.copy_from_nonoverlapping(self.memory, self.len) };
            // They have moved: what is dropped here is memory alone.
            larger.len = core::mem::take(&mut self.len);
            *self = larger;
        }
        // SAFETY: `len` is below the capacity, so the place is within the allocation and ours.
        unsafe { self.memory.add(self.len).write(MaybeUninit::new(value)) };
        self.len += 1;
    }
}

impl<T> Deref for HugeArray<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the first `len` are written, and there is no writer while they are borrowed.
        unsafe { core::slice::from_raw_parts(self.memory.as_ptr().cast(), self.len) }
    }
}

impl<T> DerefMut for HugeArray<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and they are borrowed once.
        unsafe { core::slice::from_raw_parts_mut(self.memory.as_ptr().cast(), self.len) }
    }
}

impl<T> Drop for HugeArray<T> {
    fn drop(&mut self) {
        // SAFETY: the first `len` are written, and nothing uses them any more.
        unsafe { core::ptr::drop_in_place(&raw mut **self) };
        // SAFETY: allocated with this layout.
        unsafe { alloc::dealloc(self.memory.as_ptr().cast(), self.layout) };
    }
}

impl<T> core::fmt::Debug for HugeArray<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "HugeArray({} of {})", self.len, self.capacity)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn values_stay_while_it_grows_and_moves() {
        let mut all = HugeArray::with_capacity(0);
        let mut wanted = Vec::new();
        for n in 0..100_000_u64 {
            all.push(n * n);
            wanted.push(n * n);
            assert_eq!(all.len(), wanted.len());
        }
        assert_eq!(*all, *wanted);
        all[99_999] = 7;
        assert_eq!((all.first(), all.last(), all.get(100_000)), (Some(&0), Some(&7), None));
        assert_eq!(*HugeArray::filled(3_u16, 5), [3; 5]);
    }

    #[test]
    fn each_value_is_dropped_once_however_often_it_moved() {
        let counted = std::sync::Arc::new(());
        let mut all = HugeArray::with_capacity(1);
        (0..1000).for_each(|_| all.push(Some(std::sync::Arc::clone(&counted))));
        assert_eq!(std::sync::Arc::strong_count(&counted), 1001);
        all[3] = None;
        assert_eq!(std::sync::Arc::strong_count(&counted), 1000);
        drop(all);
        assert_eq!(std::sync::Arc::strong_count(&counted), 1);
    }

    #[test]
    fn what_is_large_begins_with_a_huge_page_and_wastes_less_than_one() {
        for (bytes, is_large) in
            [(HUGE_PAGE - 1, false), (HUGE_PAGE, true), (5 * HUGE_PAGE + 1, true)]
        {
            let (memory, layout) = allocate(bytes, 64).unwrap();
            assert_eq!(memory.addr().get() % layout.align(), 0);
            assert_eq!(layout.align(), if is_large { HUGE_PAGE } else { 64 });
            assert!(layout.size() >= bytes && layout.size() - bytes < HUGE_PAGE);
            // SAFETY: allocated above with this layout; all of it is ours.
            unsafe {
                memory.as_ptr().add(bytes - 1).write(1);
                alloc::dealloc(memory.as_ptr(), layout);
            }
        }
    }

    /// Pages of a range of addresses that the system has given a place, in memory or out of it.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn pages_there(range: core::ops::Range<usize>) -> usize {
        use std::os::unix::fs::FileExt;
        let map = std::fs::File::open("/proc/self/pagemap").expect("Linux");
        let is_there = |at: &usize| {
            let mut entry = [0; 8];
            map.read_exact_at(&mut entry, (at / PAGE * 8) as u64).expect("an entry");
            u64::from_ne_bytes(entry) >> 62 != 0
        };
        range.step_by(PAGE).filter(is_there).count()
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn touched_memory_has_all_its_pages_before_a_value_is_written() {
        let mut all = HugeArray::with_capacity(1 << 20);
        (0..1000_u64).for_each(|n| all.push(n));
        let bytes = all.layout.size();
        assert_eq!((bytes, all.touch()), (8 << 20, bytes - 8000));
        let from = all.memory.addr().get();
        assert_eq!(pages_there(from..from + bytes), bytes / PAGE);
        assert!(all.iter().copied().eq(0..1000));
    }

    #[test]
    fn more_than_there_is_is_refused() {
        assert!(allocate(usize::MAX, 64).is_none());
        assert!(allocate(isize::MAX as usize, 64).is_none());
    }
}
