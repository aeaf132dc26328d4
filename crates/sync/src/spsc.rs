//! A bounded ring between two threads: one pushes, one pops, neither ever waits.
//!
//! # What it is
//!
//! Lamport's ring (*Specifying Concurrent Program Modules*, TOPLAS 1983): the producer alone
//! writes `tail`, the consumer alone writes `head`, and two plain loads and stores replace every
//! lock. To it comes the private copy of the other side's index from MCRingBuffer (Lee, Bu,
//! Chandranmenon, *A Lock-Free, Cache-Efficient Multi-Core Synchronization Mechanism*, 2010):
//! each side looks at the other's word only when its copy shows full (or empty), so a busy ring
//! moves an index line once per many items, not once per item. Batches publish their index once.
//!
//! # Callers
//!
//! `dispatch`: packets handed to their owning core, a ring per ordered pair of workers. `packet`:
//! frames that go home from worker to worker. Both drain by bursts.
//!
//! # Invariant
//!
//! Indices run freely and wrap at `usize`; the slot of index `i` is `i & mask`. At all times
//! `tail - head <= capacity` (wrapping). The slots of `head..tail` hold items and belong to the
//! consumer, all others are uninitialised and belong to the producer. Storing `tail` hands slots
//! to the consumer, storing `head` hands them back. Both handles move their *own* index first
//! and publish it later, so an item that was read is never read again, even if the iterator of
//! a batch is forgotten.
//!
//! # Orderings, and why
//!
//! * `tail` stored **release**, loaded by the consumer **acquire**: the item's bytes, written
//!   before, are there when the consumer reads the slot.
//! * `head` stored **release**, loaded by the producer **acquire**: the consumer's read of the
//!   old item is over before the producer writes the slot anew. A read is as much an access as
//!   a write: without this pair the new bytes may be seen by the old read.
//! * An index's owner never loads its own word: it has it in its handle.
//! * In `drop`, relaxed: the reference count's last decrement has ordered everything before it.
//!
//! No fence, no read-modify-write: on x86 every access is a plain `mov`.
//!
//! # Progress, cost, limits
//!
//! Every operation is wait-free. Nothing allocates after construction. A full ring gives the
//! item back, and what to do then (drop and count, or keep) is the caller's choice. Memory:
//! `capacity` times the size of `T`, and four times 128 bytes.

use core::{fmt, iter::FusedIterator, mem::MaybeUninit};

use crate::{
    CachePadded,
    shim::{
        Arc, UnsafeCell,
        atomic::{
            AtomicUsize,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

/// A ring for at least `capacity_min` items, as its two ends.
///
/// The capacity is the next power of two, at least 1. Allocates here and never again. Never
/// panics; a capacity that memory cannot hold ends as any failed allocation does.
///
/// ```
/// let (mut producer, mut consumer) = floodwall_sync::spsc::ring(2);
/// assert_eq!(producer.push('a'), Ok(()));
/// assert_eq!(producer.push('b'), Ok(()));
/// assert_eq!(producer.push('c'), Err('c'));
/// assert_eq!(consumer.pop(), Some('a'));
/// ```
#[must_use]
pub fn ring<T>(capacity_min: usize) -> (Producer<T>, Consumer<T>) {
    ring_from(capacity_min, 0)
}

/// As [`ring`], with both indices at `start`, so that tests see them wrap.
fn ring_from<T>(capacity_min: usize, start: usize) -> (Producer<T>, Consumer<T>) {
    let capacity = capacity_min.min(1 << (usize::BITS - 1)).next_power_of_two();
    let ring = Arc::new(SpscRing {
        head: CachePadded::new(AtomicUsize::new(start)),
        tail: CachePadded::new(AtomicUsize::new(start)),
        slots: (0..capacity).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect(),
    });
    let producer = Producer { ring: Arc::clone(&ring), tail: start, head_seen: start };
    (producer, Consumer { ring, head: start, tail_seen: start })
}

/// What both ends share.
struct SpscRing<T> {
    /// The oldest item's index; written by the consumer.
    head: CachePadded<AtomicUsize>,
    /// One past the newest item's index; written by the producer.
    tail: CachePadded<AtomicUsize>,
    /// A power of two of them.
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: a ring owns items, which may change threads as `T: Send`.
unsafe impl<T: Send> Send for SpscRing<T> {}
// SAFETY: by the file's invariant each slot is accessed by one end at a time, handed over by a
// release and an acquire; items move between threads, which `T: Send` allows, and are not shared.
unsafe impl<T: Send> Sync for SpscRing<T> {}

impl<T> SpscRing<T> {
    /// The slot of `index`.
    #[inline]
    fn slot(&self, index: usize) -> &UnsafeCell<MaybeUninit<T>> {
        let slot = index & (self.slots.len() - 1);
        // SAFETY: the length is a power of two, so the mask keeps the index below it.
        unsafe { self.slots.get_unchecked(slot) }
    }

    /// Moves `item` into the slot of `index`.
    ///
    /// # Safety
    ///
    /// The slot belongs to the caller and is uninitialised.
    #[inline]
    unsafe fn write(&self, index: usize, item: T) {
        // SAFETY: the slot is the caller's.
        self.slot(index).with_mut(|slot| unsafe { slot.write(MaybeUninit::new(item)) });
    }

    /// Moves the item out of the slot of `index`, which is uninitialised from now on.
    ///
    /// # Safety
    ///
    /// The slot belongs to the caller and holds an item.
    #[inline]
    unsafe fn read(&self, index: usize) -> T {
        // SAFETY: the slot is the caller's and holds an item.
        self.slot(index).with(|slot| unsafe { slot.read().assume_init() })
    }
}

impl<T> Drop for SpscRing<T> {
    fn drop(&mut self) {
        let mut head = self.head.load(Relaxed);
        let tail = self.tail.load(Relaxed);
        while head != tail {
            // SAFETY: both ends are gone, so all slots are ours, and those of `head..tail` hold
            // items. Each is visited once.
            drop(unsafe { self.read(head) });
            head = head.wrapping_add(1);
        }
    }
}

/// The end that pushes.
pub struct Producer<T> {
    ring: Arc<SpscRing<T>>,
    /// The truth about `ring.tail`, which may lag behind within a batch.
    tail: usize,
    /// A copy of `ring.head`, which can only be too old.
    head_seen: usize,
}

impl<T> Producer<T> {
    /// How many items the ring holds at most. Never panics.
    #[must_use]
    #[inline]
    pub fn capacity(&self) -> usize {
        self.ring.slots.len()
    }

    /// How many items can be pushed now; more if the consumer pops meanwhile. Loads the
    /// consumer's index. Never panics.
    #[inline]
    pub fn room(&mut self) -> usize {
        self.head_seen = self.ring.head.load(Acquire);
        self.room_seen()
    }

    /// Hands `item` over, or gives it back if the ring is full.
    ///
    /// A write and a store; a look at the consumer's index only when the ring seems full. Never
    /// panics.
    ///
    /// # Errors
    ///
    /// The item itself, if the ring is full.
    #[inline]
    pub fn push(&mut self, item: T) -> Result<(), T> {
        if self.room_seen() == 0 && self.room() == 0 {
            return Err(item);
        }
        // SAFETY: there is room, so the slot at `tail` is ours and uninitialised.
        unsafe { self.ring.write(self.tail, item) };
        self.tail = self.tail.wrapping_add(1);
        self.publish();
        Ok(())
    }

    /// Hands over items while there is room, and returns how many.
    ///
    /// Takes no item that it cannot place: what does not fit stays in `items` (pass `&mut
    /// iterator` to keep it). All become visible at once, at the end, also if `items` panics.
    /// Looks at the consumer's index once, and only if the ring could be full otherwise. Never
    /// panics unless `items` does.
    pub fn push_batch(&mut self, items: impl IntoIterator<Item = T>) -> usize {
        let mut items = items.into_iter();
        let wanted = items.size_hint().1.unwrap_or(usize::MAX);
        let seen = self.room_seen();
        let room = if seen < wanted { self.room() } else { seen };
        let start = self.tail;
        let batch = PublishIndex(self);
        while batch.0.tail.wrapping_sub(start) < room
            && let Some(item) = items.next()
        {
            // SAFETY: fewer than `room` were written, so the slot at `tail` is ours and
            // uninitialised.
            unsafe { batch.0.ring.write(batch.0.tail, item) };
            batch.0.tail = batch.0.tail.wrapping_add(1);
        }
        batch.0.tail.wrapping_sub(start)
    }

    /// The room by our copy of the consumer's index: never more than there is.
    #[inline]
    fn room_seen(&self) -> usize {
        self.capacity() - self.tail.wrapping_sub(self.head_seen)
    }

    /// Hands all slots before `tail` to the consumer.
    #[inline]
    fn publish(&self) {
        self.ring.tail.store(self.tail, Release);
    }
}

/// Publishes a batch when it ends, however it ends.
struct PublishIndex<'p, T>(&'p mut Producer<T>);

impl<T> Drop for PublishIndex<'_, T> {
    fn drop(&mut self) {
        self.0.publish();
    }
}

/// The end that pops.
pub struct Consumer<T> {
    ring: Arc<SpscRing<T>>,
    /// The truth about `ring.head`, which may lag behind within a batch.
    head: usize,
    /// A copy of `ring.tail`, which can only be too old.
    tail_seen: usize,
}

impl<T> Consumer<T> {
    /// How many items the ring holds at most. Never panics.
    #[must_use]
    #[inline]
    pub fn capacity(&self) -> usize {
        self.ring.slots.len()
    }

    /// How many items can be popped now; more if the producer pushes meanwhile. Loads the
    /// producer's index. Never panics.
    #[inline]
    pub fn ready(&mut self) -> usize {
        self.tail_seen = self.ring.tail.load(Acquire);
        self.ready_seen()
    }

    /// Takes the oldest item, if there is one.
    ///
    /// A read and a store; a look at the producer's index only when the ring seems empty. Never
    /// panics.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.ready_seen() == 0 && self.ready() == 0 {
            return None;
        }
        let item = self.take();
        self.publish();
        Some(item)
    }

    /// Takes up to `max` of the items that are there now, oldest first.
    ///
    /// The slots are given back at once, when the iterator is dropped. What it has not yielded by
    /// then stays in the ring. Looks at the producer's index only if fewer than `max` items are
    /// known. Never panics.
    #[inline]
    pub fn pop_batch(&mut self, max: usize) -> PopBatch<'_, T> {
        let seen = self.ready_seen();
        let ready = if seen < max { self.ready() } else { seen };
        PopBatch { left: ready.min(max), consumer: self }
    }

    /// The items by our copy of the producer's index: never more than there are.
    #[inline]
    fn ready_seen(&self) -> usize {
        self.tail_seen.wrapping_sub(self.head)
    }

    /// Reads the item at `head`, of which the caller has seen that it is there.
    #[inline]
    fn take(&mut self) -> T {
        debug_assert!(self.ready_seen() > 0, "an item that is not there was taken");
        // SAFETY: every caller has checked that `head` is before `tail_seen`, so the slot holds
        // an item and is ours; and `head` moves on, so it is read once.
        let item = unsafe { self.ring.read(self.head) };
        self.head = self.head.wrapping_add(1);
        item
    }

    /// Hands all slots before `head` back to the producer.
    #[inline]
    fn publish(&self) {
        self.ring.head.store(self.head, Release);
    }
}

impl<T> Drop for Consumer<T> {
    /// Publishes what a forgotten [`PopBatch`] has read, lest the ring drops it once more.
    fn drop(&mut self) {
        self.publish();
    }
}

/// Items on their way out of the ring: see [`Consumer::pop_batch`].
#[must_use = "items are only taken as the iterator yields them"]
pub struct PopBatch<'c, T> {
    consumer: &'c mut Consumer<T>,
    left: usize,
}

impl<T> Iterator for PopBatch<'_, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        self.left = self.left.checked_sub(1)?;
        Some(self.consumer.take())
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<T> ExactSizeIterator for PopBatch<'_, T> {}
impl<T> FusedIterator for PopBatch<'_, T> {}

impl<T> Drop for PopBatch<'_, T> {
    fn drop(&mut self) {
        self.consumer.publish();
    }
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("capacity", &self.capacity()).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("capacity", &self.capacity()).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for PopBatch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PopBatch").field("left", &self.left).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
