//! A home: the frames of one worker, and the way back for frames that are dropped elsewhere.
//!
//! The worker that is attached takes and gives back through array stacks, last in first out, so
//! that the warmest frame is used next. A drop on any other thread pushes the packet onto the
//! home's take-all list (`floodwall_sync::take_all`), which the worker empties when a stack of its
//! runs dry.
//!
//! A handle has its home as a 16-bit slot in one static table, so that dropping it needs no
//! argument. Slots are freed only when every descriptor has come home; else the memory stays.

use core::cell::{Cell, UnsafeCell};
use core::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use floodwall_sync::CachePadded;
use floodwall_sync::take_all::TakeAllList;

use crate::account::Accounts;
use crate::claim::{FrameClaim, LANE, UNCLAIMED};
use crate::descriptor::{Class, Descriptor};

/// Homes that one process may have.
pub(crate) const HOMES_MAX: usize = 1024;

static FRAME_HOMES: [AtomicPtr<FrameHome>; HOMES_MAX] =
    [const { AtomicPtr::new(ptr::null_mut()) }; HOMES_MAX];
/// A 64-bit counter never repeats the number of a running thread.
static NEXT_THREAD: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// This thread's number, given at its first attachment; zero before.
    static THREAD: Cell<u64> = const { Cell::new(UNCLAIMED) };
}

/// The free frames of one worker, and the list of those that were dropped elsewhere.
pub(crate) struct FrameHome {
    /// Which thread is attached.
    claim: FrameClaim,
    /// Touched by the attached thread only.
    stacks: UnsafeCell<[Vec<*const Descriptor>; 4]>,
    /// Dropped elsewhere. On lines of its own, which other threads take from the worker.
    returned: CachePadded<TakeAllList<Descriptor>>,
    /// How many allocations found nothing.
    pub(crate) failures: AtomicU32,
    pub(crate) accounts: Accounts,
    /// The region's first byte, from which addresses at devices count.
    pub(crate) memory: *const u8,
}

// SAFETY: `stacks` is touched by the thread that has the claim only (checked in each access), or by
// `Region` when no thread can be attached; the rest is atomic.
unsafe impl Sync for FrameHome {}
// SAFETY: the descriptors that the stacks point to belong to the home, not to a thread.
unsafe impl Send for FrameHome {}

/// Takes a free slot of the table for `home`.
pub(crate) fn register(home: *mut FrameHome) -> Option<u16> {
    FRAME_HOMES.iter().enumerate().find_map(|(slot, entry)| {
        let free = entry
            .compare_exchange(ptr::null_mut(), home, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        (free).then_some(slot as u16)
    })
}

/// Gives a slot back. Only when all its descriptors are home: there is no look-up of it any more.
pub(crate) fn unregister(slot: u16) {
    FRAME_HOMES[slot as usize].store(ptr::null_mut(), Ordering::Release);
}

/// The calling thread's number.
fn this_thread() -> u64 {
    THREAD.with(|number| {
        if number.get() == UNCLAIMED {
            number.set(NEXT_THREAD.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

/// The home in a slot.
#[inline]
pub(crate) fn of_slot<'a>(slot: u16) -> Option<&'a FrameHome> {
    let home = FRAME_HOMES.get(slot as usize)?.load(Ordering::Acquire);
    // SAFETY: a home is unregistered and freed only once no descriptor and no account names its
    // slot (`Region::drop`), and the caller holds one of these.
    unsafe { home.as_ref() }
}

impl FrameHome {
    pub(crate) fn new(counts: [usize; 4], accounts: usize, memory: *const u8) -> Self {
        Self {
            claim: FrameClaim::new(),
            stacks: UnsafeCell::new(counts.map(Vec::with_capacity)),
            returned: CachePadded::new(TakeAllList::new()),
            failures: AtomicU32::new(0),
            accounts: Accounts::new(accounts),
            memory,
        }
    }

    /// Claims the home for this thread; false where another thread has it.
    pub(crate) fn attach(&self) -> bool {
        self.claim.pass(UNCLAIMED, this_thread())
    }

    /// Claims the home for a lane, that is for no thread yet; false where a thread has it.
    pub(crate) fn reserve(&self) -> bool {
        self.claim.pass(UNCLAIMED, LANE)
    }

    /// Claims a reserved home for this thread; false where another thread uses the lane.
    pub(crate) fn enter(&self) -> bool {
        self.claim.pass(LANE, this_thread())
    }

    /// Gives back a home that was entered.
    pub(crate) fn leave(&self) {
        self.claim.leave_to(LANE);
    }

    /// Gives the claim up.
    pub(crate) fn detach(&self) {
        self.claim.leave_to(UNCLAIMED);
    }

    /// Whether the calling thread holds the claim.
    #[inline]
    pub(crate) fn is_mine(&self) -> bool {
        self.claim.is(THREAD.with(Cell::get))
    }

    /// The stacks, for the attached thread.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "exclusive by the attachment, as commented")]
    unsafe fn stacks(&self) -> &mut [Vec<*const Descriptor>; 4] {
        // SAFETY: the caller is the attached thread (or the region when there is none), and no
        // caller keeps the borrow beyond its own statement.
        unsafe { &mut *self.stacks.get() }
    }

    /// Takes a descriptor of `class`. Called by the attached thread (`Pool` is not `Send`).
    #[inline]
    pub(crate) fn take(&self, class: Class) -> Option<*const Descriptor> {
        debug_assert!(self.is_mine());
        // SAFETY: only `Pool` calls this, which exists on the attached thread only.
        if let Some(found) = unsafe { self.stacks() }[class as usize].pop() {
            return Some(found);
        }
        self.collect();
        // SAFETY: as above.
        let found = unsafe { self.stacks() }[class as usize].pop();
        if found.is_none() {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    /// Brings home what was dropped elsewhere. Bounded by the number of descriptors of this home,
    /// and paid for by as many drops. Called by the attached thread, or by the region when there is
    /// none.
    #[cold]
    pub(crate) fn collect(&self) {
        for at in self.returned.take_all() {
            // SAFETY: what is in the list was given up by its last owner; descriptors live as long
            // as the region. The stacks are the caller's.
            let (descriptor, stacks) = unsafe { (at.as_ref(), self.stacks()) };
            stacks[descriptor.class.get() as usize].push(at.as_ptr());
        }
    }

    /// Whether more than a quarter of a class is free. Called by the attached thread.
    #[inline]
    pub(crate) fn has_spare(&self, class: Class) -> bool {
        let is_spare = || {
            // SAFETY: only `Pool` calls this, which exists on the attached thread only. A stack has
            // room for every descriptor of its class.
            let stack = unsafe { &self.stacks()[class as usize] };
            stack.len() > stack.capacity() / 4
        };
        is_spare() || {
            self.collect();
            is_spare()
        }
    }

    /// Gives a descriptor back, from any thread. The caller was its last owner.
    #[inline]
    pub(crate) fn give(&self, descriptor: &Descriptor) {
        if self.is_mine() {
            // SAFETY: this is the attached thread. The stack has room for every descriptor of the
            // home, so the push never allocates.
            let stacks = unsafe { self.stacks() };
            stacks[descriptor.class.get() as usize].push(descriptor);
            return;
        }
        // SAFETY: live as long as the region, and given up by its last owner. All of a descriptor
        // is cells, so that the shared reference lets the list write the link.
        unsafe { self.returned.push(NonNull::from(descriptor)) };
    }

    /// Puts a new descriptor into its stack, at the start.
    pub(crate) fn stock(&mut self, descriptor: *const Descriptor, class: Class) {
        self.stacks.get_mut()[class as usize].push(descriptor);
    }

    /// How many descriptors of each class are home. Called by the attached thread.
    pub(crate) fn available(&self) -> [usize; 4] {
        self.collect();
        // SAFETY: called by the attached thread or by the region when there is none.
        unsafe { self.stacks() }.each_ref().map(Vec::len)
    }
}
