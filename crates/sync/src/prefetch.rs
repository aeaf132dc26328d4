//! A word to the processor that a value will be read soon.
//!
//! Called for a burst: a loop that will read one cache line for each of 64 packets prefetches all
//! of them while it still parses, so that they are on their way together and nothing waits. A plain
//! load would wait in the reorder buffer, which holds some five packets' instructions; a prefetch
//! is done as soon as it is asked for. Invariant: no effect but time. Not here: prefetching for
//! writing, and addresses that are not those of live values.

/// Prefetches the cache line in which `place` begins. About 1 ns; nothing where the processor has
/// no such instruction.
#[inline(always)]
#[cfg_attr(not(all(target_arch = "x86_64", not(miri))), expect(unused_variables, reason = "no-op"))]
pub fn prefetch<T>(place: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads nothing that a program could see, and never faults; every x86-64
    // has it.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(
            core::ptr::from_ref(place).cast(),
        );
    }
}
