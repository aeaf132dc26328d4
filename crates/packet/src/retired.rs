//! Memory of regions that are no longer used, and when it is freed.
//!
//! Called by `pool.rs` when a region ends, and before one is made. A packet may outlive its region,
//! in another thread's hands; then memory and homes wait here until it has come home, and the next
//! region that is made frees them. So a program that makes and ends networks for as long as it runs
//! keeps neither. Invariant: nothing is freed while a descriptor or an account names it.
//!
//! # Under flood
//! Not reachable by a peer. Bound: the homes of a process (`HOMES_MAX`), of which a region has one
//! at least. Worst work: for each region made, a look at each home and account that waits.

use core::ptr;
use std::alloc::{Layout, dealloc};
use std::sync::{Mutex, PoisonError};

use crate::descriptor::Descriptor;
use crate::home::{self, FrameHome};

static RETIRED: Mutex<Vec<RegionMemory>> = Mutex::new(Vec::new());

/// What a region took, once no `Pool` and no account of it exists any more.
pub(crate) struct RegionMemory {
    pub(crate) descriptors: (ptr::NonNull<Descriptor>, Layout),
    pub(crate) frames: (ptr::NonNull<u8>, Layout),
    pub(crate) homes: Vec<(u16, ptr::NonNull<FrameHome>)>,
    /// How many descriptors must be home.
    pub(crate) count: usize,
}

// SAFETY: nothing else reaches what is behind the pointers, except that packets which are still out
// go to the homes' atomic lists.
unsafe impl Send for RegionMemory {}

impl RegionMemory {
    /// Frees all, now or when its last packet has come home.
    pub(crate) fn give_up(self) {
        if let Some(kept) = self.free() {
            RETIRED.lock().unwrap_or_else(PoisonError::into_inner).push(kept);
        }
    }

    /// Frees all if every descriptor is home; else returns it.
    fn free(mut self) -> Option<Self> {
        let mut home_again = 0;
        for (_, home) in &self.homes {
            // SAFETY: homes live until the end of this function; no thread is attached any more.
            let home = unsafe { home.as_ref() };
            home_again += home.available().iter().sum::<usize>();
            if !home.accounts.all_released() {
                return Some(self);
            }
        }
        if home_again != self.count {
            return Some(self);
        }
        for (slot, home) in self.homes.drain(..) {
            home::unregister(slot);
            // SAFETY: leaked from a box by the region; unregistered, and no descriptor is out.
            drop(unsafe { Box::from_raw(home.as_ptr()) });
        }
        // SAFETY: both were allocated by the region with these layouts; no handle is out.
        unsafe {
            dealloc(self.frames.0.as_ptr(), self.frames.1);
            dealloc(self.descriptors.0.as_ptr().cast(), self.descriptors.1);
        }
        None
    }
}

/// Frees the regions to which every packet has been returned.
pub(crate) fn free_what_is_home() {
    let mut retired = RETIRED.lock().unwrap_or_else(PoisonError::into_inner);
    let all = core::mem::take(&mut *retired);
    retired.extend(all.into_iter().filter_map(RegionMemory::free));
}
