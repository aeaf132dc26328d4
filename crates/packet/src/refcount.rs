//! The reference count of a frame: which owner may write or free it, and whether a device has it.
//!
//! Called by `buf.rs` for every chunk that is dropped or written, by `lent.rs` for frames that
//! leave to a device. One word in each descriptor. Its value is the number of owners, the frame's
//! own handle and each reference, or [`LENT_TO_DEVICE`]: then a device has the frame, and no handle
//! exists.
//!
//! # Invariants
//!
//! 1. Exactly one call of [`release`](RefCount::release) returns that it was the last.
//! 2. An owner with [`is_sole`](RefCount::is_sole) may write: all reads of the bytes by others
//!    happened before.
//! 3. If a lent frame is taken back more than once, from any threads, one taker gets it, and sees
//!    all that the lender wrote into the descriptor.
//!
//! # Orderings, and why
//!
//! * `share` is **relaxed**: the caller is an owner, so the count is not on its way to zero, and
//!   the new reference travels to other threads by means that order it. A sole owner stores 2, for
//!   the same reason.
//! * `release` subtracts with **release**, so that its reads of the bytes come before what the last
//!   owner does, and with **acquire**, for when it is the last itself. Before that it loads, with
//!   **acquire** for the same reason: 1 means that there is no other owner, and only an owner could
//!   raise the count, so the read-modify-write (some 3 ns in the packet path) is not needed.
//! * `is_sole` loads with **acquire**: the other end of the releases above.
//! * `lend` stores with **release** and `take_back` exchanges with **acquire**: that edge carries
//!   the descriptor's plain cells, since the device carries only an address. Where the address is
//!   not what it should be, the taker lends the frame once more.
//!
//! The count cannot overflow: each owner is a descriptor, and 4 billion of them are 512 GiB.

use floodwall_sync::shim::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// In the place of a count: a device has the frame.
const LENT_TO_DEVICE: u32 = u32::MAX;

/// The number of owners of a frame, or that a device has it.
#[repr(transparent)]
pub(crate) struct RefCount(AtomicU32);

impl RefCount {
    /// The count of a frame with one owner, or at home.
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(1))
    }

    /// Whether the caller, an owner, is the only one: then it may write the bytes.
    #[inline]
    pub(crate) fn is_sole(&self) -> bool {
        self.0.load(Acquire) == 1
    }

    /// Counts one owner more. The caller is an owner.
    #[inline]
    pub(crate) fn share(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// As [`RefCount::share`] by an owner with [`is_sole`](RefCount::is_sole), and stays so for the
    /// length of this call: without a read-modify-write.
    #[inline]
    pub(crate) fn share_sole(&self) {
        debug_assert!(self.is_sole());
        self.0.store(2, Relaxed);
    }

    /// Gives one ownership up; true if it was the last. Then the count is as new, and the caller
    /// sends the frame home.
    #[inline]
    pub(crate) fn release(&self) -> bool {
        if self.0.load(Acquire) == 1 {
            return true;
        }
        if self.0.fetch_sub(1, AcqRel) != 1 {
            return false;
        }
        self.0.store(1, Relaxed);
        true
    }

    /// Marks the frame as a device's. The caller is the only owner, and gives that up.
    #[inline]
    pub(crate) fn lend(&self) {
        self.0.store(LENT_TO_DEVICE, Release);
    }

    /// Takes a lent frame; true makes the caller its only owner. False if it is not lent.
    #[inline]
    pub(crate) fn take_back(&self) -> bool {
        self.0.compare_exchange(LENT_TO_DEVICE, 1, Acquire, Relaxed).is_ok()
    }
}

#[cfg(test)]
#[cfg(loom)]
mod model {
    //! Every interleaving of two threads. The bytes of the frame and the cells of the descriptor
    //! are loom's cells: an access that nothing orders fails the model.
    //!
    //! Weakened by hand, each found by the model named: the load in `release` to relaxed, its
    //! `AcqRel` to `Release` or to `Acquire`, the store of 1 left out (`last_owner_frees_once`);
    //! `share` by load and store (`last_of_three_owners_frees_once_when_one_shares_late`); the
    //! load in `is_sole` to relaxed (`writer_waits_for_the_readers_last_look`); `lend` to relaxed,
    //! `take_back`'s acquire to relaxed, its exchange split into load and store
    //! (`lent_frame_is_taken_back_once`).

    use std::sync::atomic::AtomicBool;

    use floodwall_sync::shim::{Arc, UnsafeCell};
    use loom::thread;

    use super::*;

    /// A count and what it guards.
    struct SharedFrame {
        count: RefCount,
        bytes: UnsafeCell<u32>,
        freed: UnsafeCell<u32>,
    }

    fn frame() -> Arc<SharedFrame> {
        let (bytes, freed) = (UnsafeCell::new(7), UnsafeCell::new(0));
        Arc::new(SharedFrame { count: RefCount::new(), bytes, freed })
    }

    impl SharedFrame {
        fn read(&self) -> u32 {
            // SAFETY: the caller is an owner; loom fails the model if there is a writer meanwhile.
            self.bytes.with(|bytes| unsafe { *bytes })
        }

        /// An owner reads, goes, and frees if it was the last; counts how often that happened.
        fn drop_owner(&self) {
            assert_eq!(self.read(), 7);
            if self.count.release() {
                // SAFETY: the last owner has the frame for itself, else loom fails the model.
                self.bytes.with_mut(|bytes| unsafe { *bytes = 0 });
                // SAFETY: as above.
                self.freed.with_mut(|freed| unsafe { *freed += 1 });
            }
        }
    }

    #[test]
    fn last_owner_frees_once() {
        loom::model(|| {
            let frame = frame();
            frame.count.share();
            let other = Arc::clone(&frame);
            let thread = thread::spawn(move || other.drop_owner());
            frame.drop_owner();
            thread.join().unwrap();
            // SAFETY: the other thread has ended.
            assert_eq!(frame.freed.with(|freed| unsafe { *freed }), 1);
            assert!(frame.count.is_sole(), "home again with a count that is not as new");
        });
    }

    #[test]
    fn last_of_three_owners_frees_once_when_one_shares_late() {
        loom::model(|| {
            let frame = frame();
            frame.count.share();
            let other = Arc::clone(&frame);
            let thread = thread::spawn(move || {
                other.count.share();
                other.drop_owner();
                other.drop_owner();
            });
            frame.drop_owner();
            thread.join().unwrap();
            // SAFETY: the other thread has ended.
            assert_eq!(frame.freed.with(|freed| unsafe { *freed }), 1);
        });
    }

    #[test]
    fn writer_waits_for_the_readers_last_look() {
        // A model in which the writer never found itself alone would prove nothing. (Loom looks
        // back at the last access to a word only: were the reader the spawned thread, its load
        // before its subtraction would hide the writer's.)
        static WROTE: AtomicBool = AtomicBool::new(false);
        static REFUSED: AtomicBool = AtomicBool::new(false);
        loom::model(|| {
            let frame = frame();
            frame.count.share();
            let writer = Arc::clone(&frame);
            let thread = thread::spawn(move || {
                if writer.count.is_sole() {
                    WROTE.store(true, Relaxed);
                    // SAFETY: the only owner, else loom fails the model.
                    writer.bytes.with_mut(|bytes| unsafe { *bytes = 8 });
                } else {
                    REFUSED.store(true, Relaxed);
                }
            });
            assert_eq!(frame.read(), 7);
            assert!(!frame.count.release(), "the writer is still an owner");
            thread.join().unwrap();
            assert!(frame.count.is_sole());
        });
        assert!(WROTE.load(Relaxed) && REFUSED.load(Relaxed));
    }

    #[test]
    fn one_that_was_alone_and_shared_is_alone_again_when_the_reader_has_gone() {
        static WROTE: AtomicBool = AtomicBool::new(false);
        loom::model(|| {
            let frame = frame();
            frame.count.share_sole();
            let writer = Arc::clone(&frame);
            let thread = thread::spawn(move || {
                if writer.count.is_sole() {
                    WROTE.store(true, Relaxed);
                    // SAFETY: the only owner, else loom fails the model.
                    writer.bytes.with_mut(|bytes| unsafe { *bytes = 8 });
                }
            });
            assert_eq!(frame.read(), 7);
            assert!(!frame.count.release(), "the writer is still an owner");
            thread.join().unwrap();
            assert!(frame.count.is_sole());
        });
        assert!(WROTE.load(Relaxed));
    }

    #[test]
    fn lent_frame_is_taken_back_once() {
        loom::model(|| {
            let frame = frame();
            let other = Arc::clone(&frame);
            // A confused device gives the address to two threads, one of them perhaps too early.
            let taker = move |frame: &SharedFrame| {
                let got = frame.count.take_back();
                if got {
                    // SAFETY: the taker is the only owner, else loom fails the model.
                    frame.bytes.with_mut(|bytes| unsafe {
                        assert_eq!(*bytes, 9, "the lender's last words are missing");
                        *bytes += 1;
                    });
                }
                got
            };
            let thread = thread::spawn(move || taker(&other));
            // SAFETY: not lent yet, so this is the only owner, else loom fails the model.
            frame.bytes.with_mut(|bytes| unsafe { *bytes = 9 });
            frame.count.lend();
            let here = taker(&frame);
            let there = thread.join().unwrap();
            assert!(here != there, "taken by {} of two", u32::from(here) + u32::from(there));
        });
    }
}
