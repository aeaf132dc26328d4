//! `PacketList`: an owning first-in-first-out list through the descriptors themselves.
//!
//! Queues, departures and hand-over need no memory of their own; the list is as long as the pool
//! allows, and its owner bounds it.

use core::ptr::{self, NonNull};

use floodwall_sync::take_all::Chain;

use crate::buf::PacketBuf;
use crate::descriptor::Descriptor;

/// Packets in order of arrival.
pub struct PacketList {
    first: *const Descriptor,
    last: *const Descriptor,
    len: usize,
}

// SAFETY: the list owns its packets, and packets may change threads.
unsafe impl Send for PacketList {}

impl Default for PacketList {
    fn default() -> Self {
        Self::new()
    }
}

impl PacketList {
    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self { first: ptr::null(), last: ptr::null(), len: 0 }
    }

    /// How many packets wait.
    #[must_use]
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether none waits.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends one packet.
    #[inline]
    pub fn push_back(&mut self, packet: PacketBuf) {
        let at = packet.into_descriptor();
        // SAFETY: the list owns this descriptor from now on, and `last` since it was pushed.
        unsafe {
            (*at).next.set_next(None);
            match self.last.as_ref() {
                Some(last) => last.next.set_next(NonNull::new(at.cast_mut())),
                None => self.first = at,
            }
        }
        self.last = at;
        self.len += 1;
    }

    /// Puts a packet first: for one that could not leave yet.
    pub fn push_front(&mut self, packet: PacketBuf) {
        let at = packet.into_descriptor();
        // SAFETY: the list owns this descriptor from now on.
        unsafe { (*at).next.set_next(NonNull::new(self.first.cast_mut())) };
        if self.first.is_null() {
            self.last = at;
        }
        self.first = at;
        self.len += 1;
    }

    /// Takes the oldest packet.
    #[inline]
    pub fn pop_front(&mut self) -> Option<PacketBuf> {
        // SAFETY: `first` is null or a descriptor that the list owns.
        let d = unsafe { self.first.as_ref() }?;
        // SAFETY: as above.
        match unsafe { d.next.next() } {
            Some(next) => self.first = next.as_ptr(),
            None => (self.first, self.last) = (ptr::null(), ptr::null()),
        }
        self.len -= 1;
        // SAFETY: the list owned it, and has let go of it just above.
        Some(unsafe { PacketBuf::from_descriptor(d) })
    }

    /// Appends all of `more`, which is empty afterwards. Constant time.
    pub fn append(&mut self, more: &mut Self) {
        if more.is_empty() {
            return;
        }
        // SAFETY: `last` is null or a descriptor that the list owns.
        match unsafe { self.last.as_ref() } {
            // SAFETY: as above.
            Some(last) => unsafe { last.next.set_next(NonNull::new(more.first.cast_mut())) },
            None => self.first = more.first,
        }
        self.last = more.last;
        self.len += more.len;
        // Its packets are ours now: it must not drop them.
        core::mem::forget(more.take());
    }

    /// Grows the newest packet by `n` bytes at its end, as [`PacketBuf::extend`] does.
    pub fn extend_last(&mut self, n: usize) -> Option<&mut [u8]> {
        let last = NonNull::new(self.last.cast_mut())?;
        // SAFETY: the list owns it; the handle is never dropped, and the list is borrowed as long
        // as its bytes are.
        unsafe {
            let mut packet =
                core::mem::ManuallyDrop::new(PacketBuf::from_descriptor(last.as_ref()));
            let room = packet.extend(n)?;
            Some(core::slice::from_raw_parts_mut(room.as_mut_ptr(), room.len()))
        }
    }

    /// Takes the whole list, leaving an empty one.
    #[must_use]
    pub fn take(&mut self) -> Self {
        core::mem::take(self)
    }

    /// Gives the packets up, linked from the newest to the oldest, as a mailbox wants them: the
    /// newest and the oldest. One pass.
    pub(crate) fn into_newest_first(self) -> Option<(NonNull<Descriptor>, NonNull<Descriptor>)> {
        let oldest = NonNull::new(self.first.cast_mut());
        let newest = NonNull::new(self.last.cast_mut());
        core::mem::forget(self);
        // SAFETY: the list owned these descriptors, linked, the last one to nothing.
        let chain = unsafe { Chain::from_first(oldest) }.reverse();
        debug_assert_eq!(chain.into_first(), newest, "the last of a list becomes the first");
        newest.zip(oldest)
    }

    /// The inverse, for what a mailbox holds: in the order of arrival. One pass.
    ///
    /// # Safety
    /// The chain's nodes are heads of packets, and owned by nobody else.
    pub(crate) unsafe fn from_newest_first(chain: Chain<Descriptor>) -> Self {
        let mut list = Self::new();
        let mut at = chain.into_first();
        list.last = at.map_or(ptr::null(), |newest| newest.as_ptr().cast_const());
        let mut behind = None;
        while let Some(node) = at {
            // SAFETY: the chain owned it; it is live.
            unsafe {
                at = node.as_ref().next.next();
                node.as_ref().next.set_next(behind);
            }
            behind = Some(node);
            list.len += 1;
        }
        list.first = behind.map_or(ptr::null(), |oldest| oldest.as_ptr().cast_const());
        list
    }

    /// The packets in order, without taking them.
    #[cfg(not(loom))]
    pub fn iter(&self) -> impl Iterator<Item = &PacketBuf> {
        Iter { at: &raw const self.first, left: self.len, _list: self }
    }
}

/// A walk along the links. Each place that holds a descriptor's address reads as a handle: a link
/// is a transparent pointer, except loom's.
#[cfg(not(loom))]
struct Iter<'a> {
    at: *const *const Descriptor,
    left: usize,
    _list: &'a PacketList,
}

#[cfg(not(loom))]
impl<'a> Iterator for Iter<'a> {
    type Item = &'a PacketBuf;

    fn next(&mut self) -> Option<&'a PacketBuf> {
        self.left = self.left.checked_sub(1)?;
        // SAFETY: `at` points to `first` or to a descriptor's `next`, both one pointer, and `left`
        // says that it is not null. `PacketBuf` is a transparent non-null pointer, so the place
        // reads as one; the list is borrowed, so nobody moves it.
        unsafe {
            let packet = &*self.at.cast::<PacketBuf>();
            self.at = (&raw const packet.descriptor().next).cast();
            Some(packet)
        }
    }
}

impl Drop for PacketList {
    fn drop(&mut self) {
        while self.pop_front().is_some() {}
    }
}

impl core::fmt::Debug for PacketList {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "PacketList({} packets)", self.len)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::PacketList;
    use crate::descriptor::Class;
    use crate::pool::{Pool, PoolConfig};

    #[test]
    fn appended_packets_stay_with_their_new_list() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let before = pool.available();
        let (mut all, mut more) = (PacketList::new(), PacketList::new());
        for _ in 0..3 {
            more.push_back(pool.alloc(Class::Small).unwrap());
            all.append(&mut more);
            assert!(more.is_empty() && more.pop_front().is_none());
        }
        assert_eq!((all.len(), before.small - pool.available().small), (3, 3));
        assert_eq!(all.iter().count(), 3);
        drop(all);
        assert_eq!(pool.available(), before);
    }
}
