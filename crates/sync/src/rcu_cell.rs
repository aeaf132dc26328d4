//! One pointer that many read and one replaces: read-copy update of a whole value.
//!
//! Called by tables for what changes seldom and is read for every packet: a configuration, a
//! root, an array of next hops. Readers hold a [`DomainView`]; the writer swaps in a new value and
//! lets the old one wait in a [`Limbo`](crate::qsbr::Limbo) of the same domain. Invariant: what a
//! reference from [`RcuCell::load`] points to stays allocated at least as long as the view. The
//! proof is in `qsbr.rs`. Reading: McKenney and Slingwine, *Read-Copy Update*, PDCS 1998.
//!
//! # Orderings
//!
//! The swap is **release**: a thread that sees the pointer sees the value behind it. The load is
//! **acquire**, which costs nothing on x86 and a plain dependency elsewhere (C++'s consume, which
//! no compiler implements). What orders the swap against the retirement is the full fence there.

use core::{fmt, mem::ManuallyDrop, ops::Deref, ptr::NonNull};

use floodwall_base::Instant;

use crate::{
    qsbr::{Domain, DomainShared, DomainView, Limbo, LimboFull, Policy},
    shim::{
        Arc,
        atomic::{
            AtomicPtr,
            Ordering::{AcqRel, Acquire},
        },
    },
    weaken::{WeakenPoint, order},
};

/// A value that one writer replaces and all readers of a domain load (read-copy-update).
pub struct RcuCell<T: Send + Sync + 'static> {
    value: AtomicPtr<T>,
    domain: Arc<DomainShared>,
}

impl<T: Send + Sync + 'static> RcuCell<T> {
    /// A cell that shows `value` to the readers of `domain`.
    #[must_use]
    pub fn new<P: Policy>(domain: &Domain<P>, value: Box<T>) -> Self {
        let domain = Arc::clone(domain.shared());
        Self { value: AtomicPtr::new(Box::into_raw(value)), domain }
    }

    /// The value, for as long as the view exists. One load and one comparison.
    ///
    /// # Panics
    /// The view is of another domain: a mistake of the program that no packet can cause.
    #[must_use]
    #[inline]
    pub fn load<'r>(&'r self, view: DomainView<'r>) -> &'r T {
        assert!(Arc::ptr_eq(&self.domain, view.shared), "a view of another domain");
        // SAFETY: the pointer came from a box that is freed only with the cell, which `'r`
        // borrows, or after a grace period of the domain, which cannot end while the view exists:
        // its reader is borrowed for `'r` and so announces nothing.
        unsafe { &*self.value.load(Acquire) }
    }

    /// Shows `value` from now on, and lets the old one wait in `limbo`, where it counts as `bytes`.
    ///
    /// # Errors
    /// The limbo is at its cap: nothing is changed, and the value comes back.
    ///
    /// # Panics
    /// The limbo is of another domain: as in [`RcuCell::load`].
    pub fn replace<P: Policy>(
        &self,
        value: Box<T>,
        bytes: usize,
        limbo: &mut Limbo<Retired<T>, P>,
        now: Instant,
    ) -> Result<(), (Box<T>, LimboFull)> {
        assert!(limbo.belongs_to(&self.domain), "a limbo of another domain");
        let slot = match limbo.reserve(bytes) {
            Ok(slot) => slot,
            Err(refused) => return Err((value, refused)),
        };
        let old = self.value.swap(Box::into_raw(value), order(WeakenPoint::SwapRelease, AcqRel));
        // SAFETY: every pointer in the cell came from a box, so it is not null.
        slot.retire(Retired(unsafe { NonNull::new_unchecked(old) }), now);
        Ok(())
    }
}

impl<T: Send + Sync + 'static> Drop for RcuCell<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer came from a box; the cell is not borrowed, so no reference from
        // `load` is left.
        drop(unsafe { Box::from_raw(self.value.load(Acquire)) });
    }
}

/// A value that was replaced, and that readers may still look at until its limbo gives it back.
/// Dropping it frees it.
pub struct Retired<T: Send + Sync + 'static>(NonNull<T>);

// SAFETY: it owns its value, and `T: Send` lets that change threads; readers that still look
// share it, which `T: Sync` allows.
unsafe impl<T: Send + Sync + 'static> Send for Retired<T> {}

impl<T: Send + Sync + 'static> Retired<T> {
    /// Its memory, to be used again. An owner that got it from a limbo has it after its grace
    /// period.
    #[must_use]
    pub fn into_box(self) -> Box<T> {
        let owned = ManuallyDrop::new(self);
        // SAFETY: as in `drop`, which `ManuallyDrop` keeps from freeing it a second time.
        unsafe { Box::from_raw(owned.0.as_ptr()) }
    }
}

impl<T: Send + Sync + 'static> Deref for Retired<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the value is live until this is dropped, and there is no writer.
        unsafe { self.0.as_ref() }
    }
}

impl<T: Send + Sync + 'static> Drop for Retired<T> {
    fn drop(&mut self) {
        // SAFETY: the swap of `replace` handed the pointer to us alone, and it came from a box. A
        // limbo drops or gives away what it holds only after the grace period, so no reader looks.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for Retired<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Retired").field(&**self).finish()
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for RcuCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RcuCell").finish_non_exhaustive()
    }
}
