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

    /// Drops a packet that was taken from this list, and leaves its charge to the next one here,
    /// where both are charged to one account and come to `most` true bytes at most; otherwise the
    /// charge is released as ever. So a reader on another thread than the account's worker writes
    /// the account's word once for many packets, not for each; Linux's UDP
    /// does alike, up to a quarter of the buffer. What is charged is never less than what is held,
    /// and nothing stays charged without a packet that waits.
    #[inline]
    pub fn drop_burst(&mut self, packet: PacketBuf, most: u32) {
        // SAFETY: `first` is null or a descriptor that the list owns.
        if let Some(heir) = unsafe { self.first.as_ref() } {
            packet.bequeath_charge(heir, most);
        }
        drop(packet);
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
    /// The chain's nodes are heads of packets, and have no other owner.
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

    /// The newest packet.
    #[cfg(not(loom))]
    #[must_use]
    #[inline]
    pub fn last(&self) -> Option<&PacketBuf> {
        Iter { at: &raw const self.last, left: self.len.min(1), _list: self }.next()
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
        // SAFETY: `at` points to `first`, `last` or a descriptor's `next`, all one pointer, and
        // `left` means that it is not null. `PacketBuf` is a transparent non-null pointer, so the
        // place reads as one; the list is borrowed, so it is not moved.
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
    use crate::account::Account;
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

    /// True bytes of a small packet.
    const SMALL: u64 = 384;

    fn charged(pool: &Pool, account: &Account, count: usize) -> PacketList {
        let mut list = PacketList::new();
        for _ in 0..count {
            let mut packet = pool.alloc(Class::Small).unwrap();
            packet.charge(account).unwrap();
            list.push_back(packet);
        }
        list
    }

    /// What is charged after each packet is buried.
    fn buried(list: &mut PacketList, account: &Account, most: u64) -> Vec<u64> {
        let mut seen = Vec::new();
        while let Some(packet) = list.pop_front() {
            list.drop_burst(packet, most as u32);
            seen.push(account.used() / SMALL);
        }
        seen
    }

    #[test]
    fn one_that_is_buried_leaves_its_charge_to_the_next_and_the_last_gives_all_back() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let account = pool.open_account(SMALL * 6).unwrap();
        let mut list = charged(&pool, &account, 6);
        // Three together is the most: the third gives all three back.
        assert_eq!(buried(&mut list, &account, SMALL * 3), [6, 6, 3, 3, 3, 0]);
        // The memory itself comes home at once.
        let (before, mut list) = (pool.available().small, charged(&pool, &account, 2));
        let first = list.pop_front().unwrap();
        list.drop_burst(first, u32::MAX);
        assert_eq!((before - pool.available().small, account.used()), (1, 2 * SMALL));
    }

    #[test]
    fn a_small_limit_gives_room_back_at_once() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let account = pool.open_account(SMALL * 3).unwrap();
        for most in [0, SMALL, 2 * SMALL - 1] {
            let mut list = charged(&pool, &account, 3);
            assert_eq!(buried(&mut list, &account, most), [2, 1, 0], "{most}");
        }
    }

    #[test]
    fn a_charge_is_left_to_nothing_elses_account() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let [one, other] = [(); 2].map(|()| pool.open_account(SMALL * 4).unwrap());
        let mut list = charged(&pool, &one, 1);
        list.append(&mut charged(&pool, &other, 1));
        list.push_back(pool.alloc(Class::Small).unwrap());
        let used = || (one.used() / SMALL, other.used() / SMALL);
        for left in [(0, 1), (0, 0), (0, 0)] {
            let packet = list.pop_front().unwrap();
            list.drop_burst(packet, u32::MAX);
            assert_eq!(used(), left);
        }
    }

    #[test]
    fn one_that_is_handed_out_keeps_its_own_charge_only() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let account = pool.open_account(SMALL * 4).unwrap();
        let mut list = charged(&pool, &account, 3);
        let first = list.pop_front().unwrap();
        list.drop_burst(first, u32::MAX);
        let mut kept = list.pop_front().unwrap();
        assert_eq!(account.used(), 3 * SMALL);
        kept.keep_own_charge();
        assert_eq!(account.used(), 2 * SMALL);
        kept.keep_own_charge();
        drop(list);
        assert_eq!(account.used(), SMALL);
        // As much as if nothing had been left to it.
        let other = pool.open_account(SMALL).unwrap();
        kept.charge(&other).unwrap();
        assert_eq!((account.used(), other.used()), (0, SMALL));
    }

    /// The reader is on another thread than the account's worker.
    #[test]
    fn what_is_left_to_the_next_comes_back_from_another_thread_too() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let account = pool.open_account(SMALL * 9).unwrap();
        let mut list = charged(&pool, &account, 9);
        let account = &account;
        let read = move || buried(&mut list, account, 4 * SMALL);
        let seen = std::thread::scope(|scope| scope.spawn(read).join().unwrap());
        assert_eq!(seen, [9, 9, 9, 5, 5, 5, 5, 1, 0]);
    }
}
