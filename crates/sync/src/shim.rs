//! The standard library's atomics and cells, or loom's, chosen by `cfg(loom)`.
//!
//! A lock-free primitive imports these instead of `std`'s, and so runs the very code of the product
//! under loom, a model checker for the C11 memory model (Norris and Demsky, *CDSChecker*, 2013).
//! Without `cfg(loom)` nothing here costs anything: each name is `std`'s own, and [`UnsafeCell`] is
//! a wrapper that is gone after inlining.
//!
//! The cell is reached by closures, as loom's is, because loom must see where an access begins
//! and ends: two that overlap, or that no acquire and release order, fail the model.

#[cfg(not(loom))]
pub use crate::lock::{Mutex, MutexGuard};
#[cfg(loom)]
pub use loom::{
    cell::UnsafeCell,
    hint,
    sync::{Arc, Mutex, MutexGuard, atomic},
};
#[cfg(not(loom))]
pub use std::{
    hint,
    sync::{Arc, atomic},
};

/// `std`'s `UnsafeCell` with loom's way of reaching what is inside. Free at run time.
#[cfg(not(loom))]
#[derive(Debug)]
#[repr(transparent)]
pub struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    /// Wraps `value`. Never panics.
    #[must_use]
    pub const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    /// Calls `f` with a pointer that `f` may read through, if there is no writer meanwhile.
    #[inline(always)]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    /// Calls `f` with a pointer that `f` may write through, if there is no other access meanwhile.
    #[inline(always)]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}
