//! `PacketQueue`: an owning first-in-first-out list of packets in 16 bytes, which does not count
//! them.
//!
//! As [`PacketList`](crate::PacketList), for owners that have many of them and count bytes.

use core::ptr::{self, NonNull};

use crate::buf::PacketBuf;
use crate::descriptor::Descriptor;

/// Packets in order of arrival, not counted.
pub struct PacketQueue {
    /// Null where it is empty.
    first: *const Descriptor,
    last: *const Descriptor,
}

// SAFETY: the queue owns its packets, and packets may change threads.
unsafe impl Send for PacketQueue {}

impl Default for PacketQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl PacketQueue {
    /// An empty queue.
    #[must_use]
    pub const fn new() -> Self {
        Self { first: ptr::null(), last: ptr::null() }
    }

    /// Whether it has none.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// Appends one packet.
    #[inline]
    pub fn push_back(&mut self, packet: PacketBuf) {
        let at = packet.into_descriptor();
        // SAFETY: the queue owns this descriptor from now on, and `last` since it was pushed;
        // `last` is valid where `first` is not null.
        unsafe {
            (*at).next.set_next(None);
            if self.first.is_null() {
                self.first = at;
            } else {
                (*self.last).next.set_next(NonNull::new(at.cast_mut()));
            }
        }
        self.last = at;
    }

    /// Puts a packet first.
    pub fn push_front(&mut self, packet: PacketBuf) {
        let at = packet.into_descriptor();
        // SAFETY: the queue owns this descriptor from now on.
        unsafe { (*at).next.set_next(NonNull::new(self.first.cast_mut())) };
        if self.first.is_null() {
            self.last = at;
        }
        self.first = at;
    }

    /// Appends all packets of another queue, in their order, at the same cost for any number.
    pub fn append(&mut self, mut other: Self) {
        if self.is_empty() {
            return core::mem::swap(self, &mut other);
        }
        if !other.is_empty() {
            // SAFETY: `last` is a descriptor that this queue owns, since it is not empty; what
            // follows it is owned by this queue from now on, and by the other one no more.
            unsafe { (*self.last).next.set_next(NonNull::new(other.first.cast_mut())) };
            self.last = other.last;
            other.first = ptr::null();
        }
    }

    /// Takes the oldest packet.
    #[inline]
    pub fn pop_front(&mut self) -> Option<PacketBuf> {
        // SAFETY: `first` is null or a descriptor that the queue owns.
        let d = unsafe { self.first.as_ref() }?;
        // SAFETY: as above.
        self.first =
            unsafe { d.next.next() }.map_or(ptr::null(), |next| next.as_ptr().cast_const());
        // SAFETY: the queue owned it, and has let go of it just above.
        Some(unsafe { PacketBuf::from_descriptor(d) })
    }

    /// The packets in order, without taking them.
    #[cfg(not(loom))]
    pub fn iter(&self) -> impl Iterator<Item = &PacketBuf> {
        QueuedPackets { at: &raw const self.first, _queue: self }
    }
}

/// A walk along the links; each place that holds a descriptor's address reads as a handle.
#[cfg(not(loom))]
struct QueuedPackets<'a> {
    at: *const *const Descriptor,
    _queue: &'a PacketQueue,
}

#[cfg(not(loom))]
impl<'a> Iterator for QueuedPackets<'a> {
    type Item = &'a PacketBuf;

    fn next(&mut self) -> Option<&'a PacketBuf> {
        // SAFETY: `at` points to `first` or to a descriptor's `next`, one pointer each, that of the
        // last one null; `PacketBuf` is a transparent non-null pointer, and so is `None` of it
        // null. The queue is borrowed, so it is not moved.
        unsafe {
            let packet = (*self.at.cast::<Option<PacketBuf>>()).as_ref()?;
            self.at = (&raw const packet.descriptor().next).cast();
            Some(packet)
        }
    }
}

impl Drop for PacketQueue {
    fn drop(&mut self) {
        while self.pop_front().is_some() {}
    }
}

impl core::fmt::Debug for PacketQueue {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "PacketQueue({})", if self.is_empty() { "empty" } else { "packets" })
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::PacketQueue;
    use crate::pool::{Pool, PoolConfig};

    #[test]
    fn packets_leave_in_order_and_all_come_home() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let before = pool.available();
        let packet = |n: u8| pool.packet_from(&[n; 9]).unwrap();
        let mut queue = PacketQueue::new();
        for round in 0..3 {
            assert!(
                queue.is_empty() && queue.pop_front().is_none() && queue.iter().next().is_none()
            );
            for n in 1..=4 {
                queue.push_back(packet(n));
            }
            queue.push_front(packet(0));
            let seen = |queue: &PacketQueue| queue.iter().map(|p| p.first()[0]).collect::<Vec<_>>();
            assert_eq!(seen(&queue), [0, 1, 2, 3, 4]);
            let taken = queue.pop_front().unwrap();
            assert_eq!((taken.first()[0], seen(&queue)), (0, vec![1, 2, 3, 4]));
            queue.push_front(taken);
            for n in 0..=4 {
                assert_eq!(queue.pop_front().unwrap().first()[0], n, "{round}");
            }
            // One is appended to another, either of which may be empty.
            for (first, second) in
                [(vec![1, 2], vec![3]), (vec![], vec![1, 2, 3]), (vec![], vec![])]
            {
                let filled = |numbers: &[u8]| {
                    let mut queue = PacketQueue::new();
                    numbers.iter().for_each(|n| queue.push_back(packet(*n)));
                    queue
                };
                let mut all = filled(&first);
                all.append(filled(&second));
                all.append(PacketQueue::new());
                all.push_back(packet(4));
                assert_eq!(seen(&all), [first, second, vec![4]].concat());
            }
            // In the memory of the last one is another packet by now.
            let other = packet(9);
            queue.push_front(packet(7));
            queue.push_back(packet(8));
            assert_eq!(seen(&queue), [7, 8]);
            queue = PacketQueue::new();
            drop(other);
            assert_eq!(pool.available(), before);
        }
    }
}
