//! A global allocator that counts what each thread allocates.
//!
//! A test binary that wants to show that a path allocates nothing makes it its own:
//!
//! ```
//! use floodwall_testkit::alloc::{CountingAllocator, counted};
//!
//! #[global_allocator]
//! static ALLOCATOR: CountingAllocator = CountingAllocator;
//!
//! let (count, boxed) = counted(|| Box::new(1));
//! assert_eq!((count.allocations, *boxed), (1, 1));
//! assert_eq!(counted(|| 1 + 1).0.allocations, 0);
//! ```
//!
//! Invariant: counting neither allocates nor locks, and other threads do not show up.
#![expect(unsafe_code, reason = "an allocator is an unsafe trait by definition")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// What a thread requested of the allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AllocationCount {
    /// How often it allocated memory, grew it, or shrank it.
    pub allocations: u64,
    /// How many bytes it requested.
    pub bytes: u64,
    /// How often it gave memory back.
    pub frees: u64,
}

thread_local! {
    static COUNT: Cell<AllocationCount> =
        const { Cell::new(AllocationCount { allocations: 0, bytes: 0, frees: 0 }) };
}

/// The system's allocator, with a count of each thread's allocations.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountingAllocator;

fn count(change: impl FnOnce(&mut AllocationCount)) {
    // A thread that is ending has no count any more: it is not read then.
    let _ = COUNT.try_with(|cell| {
        let mut count = cell.get();
        change(&mut count);
        cell.set(count);
    });
}

// SAFETY: every call goes to the system's allocator unchanged; the counts are plain cells.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(|count| {
            count.allocations += 1;
            count.bytes += layout.size() as u64;
        });
        // SAFETY: the caller keeps the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(|count| {
            count.allocations += 1;
            count.bytes += layout.size() as u64;
        });
        // SAFETY: the caller keeps the same contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(|count| count.frees += 1);
        // SAFETY: the caller keeps the same contract.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(|count| {
            count.allocations += 1;
            count.bytes += size as u64;
        });
        // SAFETY: the caller keeps the same contract.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// What this thread requested while `run` ran, and what `run` returned. Zeros where the binary has
/// another allocator: check once that something is counted.
pub fn counted<R>(run: impl FnOnce() -> R) -> (AllocationCount, R) {
    let before = COUNT.get();
    let result = run();
    let after = COUNT.get();
    let count = AllocationCount {
        allocations: after.allocations - before.allocations,
        bytes: after.bytes - before.bytes,
        frees: after.frees - before.frees,
    };
    (count, result)
}
