//! `zeroed`: a large array of atomics, all of them zero, in memory that has not been touched yet.
//!
//! Called by `fib` for what look-ups read. An array that is built element by element is written
//! page by page: for a table that may grow to a million routes that is tens of milliseconds in one
//! call, and memory that is never used. The system has pages that are nought and hands them out
//! when they are first touched. Invariant: what [`Zero`] is implemented for has no other beginning
//! than all bytes zero. Under loom, with atomics that are objects of its own, they are built one by
//! one.

use crate::shim::atomic::{AtomicU16, AtomicU32, AtomicU64};

/// What may begin with all bytes nought.
///
/// # Safety
/// All bytes nought must be a value of the type, and that of [`Zero::zero`]; under loom nothing is
/// asked.
pub unsafe trait Zero: Sized {
    /// Its beginning.
    fn zero() -> Self;
}

// SAFETY: an atomic integer has the bytes of its integer, and nought is one.
unsafe impl Zero for AtomicU16 {
    fn zero() -> Self {
        Self::new(0)
    }
}

// SAFETY: as above.
unsafe impl Zero for AtomicU32 {
    fn zero() -> Self {
        Self::new(0)
    }
}

// SAFETY: as above.
unsafe impl Zero for AtomicU64 {
    fn zero() -> Self {
        Self::new(0)
    }
}

// SAFETY: an array is its elements one behind the other, each of which may be nought.
unsafe impl<T: Zero, const N: usize> Zero for [T; N] {
    fn zero() -> Self {
        core::array::from_fn(|_| T::zero())
    }
}

/// A value on cache lines of its own, of 64 bytes.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct CacheLine<T>(pub T);

// SAFETY: it is its only field, and padding, which may be anything.
unsafe impl<T: Zero> Zero for CacheLine<T> {
    fn zero() -> Self {
        Self(T::zero())
    }
}

/// One of them, all zero, in memory of its own.
#[must_use]
pub fn zeroed_box<T: Zero>() -> Box<T> {
    #[cfg(loom)]
    return Box::new(T::zero());
    #[cfg(not(loom))]
    {
        let place = Box::<T>::new_zeroed();
        // SAFETY: types with `Zero` guarantee that all bytes zero are a value.
        unsafe { place.assume_init() }
    }
}

/// So many of them, all nought.
#[must_use]
pub fn zeroed<T: Zero>(len: usize) -> Box<[T]> {
    #[cfg(loom)]
    return (0..len).map(|_| T::zero()).collect();
    #[cfg(not(loom))]
    {
        let slice = Box::<[T]>::new_zeroed_slice(len);
        // SAFETY: types with `Zero` guarantee that all bytes zero are a value.
        unsafe { slice.assume_init() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::shim::atomic::Ordering::Relaxed;

    #[test]
    fn all_begin_with_nought_and_stand_on_lines_of_their_own() {
        let lines = zeroed::<CacheLine<[AtomicU64; 8]>>(1000);
        assert!(lines.iter().all(|line| line.0.iter().all(|word| word.load(Relaxed) == 0)));
        assert!(lines.iter().all(|line| core::ptr::from_ref(line).addr().is_multiple_of(64)));
        assert_eq!(size_of_val(&*lines), 64 * 1000);
        lines[7].0[3].store(9, Relaxed);
        assert_eq!(
            lines.iter().flat_map(|line| &line.0).map(|word| word.load(Relaxed)).sum::<u64>(),
            9
        );
        assert!(zeroed::<AtomicU16>(0).is_empty());
        assert!(zeroed::<AtomicU32>(77).iter().all(|slot| slot.load(Relaxed) == 0));
        assert_eq!(AtomicU32::zero().load(Relaxed), 0);
        assert!(zeroed_box::<[AtomicU64; 70_000]>().iter().all(|word| word.load(Relaxed) == 0));
    }
}
