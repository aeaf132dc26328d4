//! Accounts: who pays for the memory that a packet holds, in true bytes.
//!
//! A socket, a queue, a reassembly buffer opens an account with a limit; each packet that it keeps
//! is charged with the true size of its memory, descriptors included (a one-byte datagram in a
//! 2 KiB frame costs 2,176), and exactly what was charged is released when the packet dies or
//! moves on, wherever that happens.
//!
//! An account belongs to a home. Its worker adds with plain loads and stores; other threads
//! subtract in a word of their own (the biased count of Choi, Shull and Torrellas 2018). The sum
//! of both words is exact for the worker; to others it may look as if what is being released just
//! now still were charged, never the other way round.
//!
//! # Under flood
//! Reachable by anyone who can make a socket keep packets. Bound: the account's limit. Worst work
//! per packet: two additions. When full the newcomer is refused; what waits stays.

use core::cell::{Cell, UnsafeCell};
use core::ptr::NonNull;
use core::sync::atomic::AtomicPtr;
use std::sync::Arc;

use floodwall_sync::shim::atomic::{AtomicU64, Ordering};

use crate::home::{self, Home};
use crate::pool::Region;

/// Bits of an account's number that tell its place in its home.
const PLACE_BITS: u32 = 20;
const PLACE_MASK: u32 = (1 << PLACE_BITS) - 1;

/// An open account. Dropping it closes it; packets still charged go on being released exactly.
pub struct Account {
    slot: NonNull<Slot>,
    /// Keeps what `slot` points to.
    _region: Arc<Region>,
}

// SAFETY: what it points to lives as long as the region that it keeps, and is atomic or constant.
unsafe impl Send for Account {}
// SAFETY: as above.
unsafe impl Sync for Account {}

/// The account has no room for the packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccountFull;

impl core::fmt::Display for AccountFull {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the account has no room for the packet's true size")
    }
}

impl core::error::Error for AccountFull {}

/// On the free list.
const FREE: u64 = 0;
/// Held by an [`Account`].
const OPEN: u64 = 1;
/// Closed while something was charged, or from another thread: found again by the search.
const DRAINING: u64 = 2;

/// One account's words.
#[derive(Default)]
pub(crate) struct Slot {
    /// Charged by the home's worker minus released by it; wraps.
    local: AtomicU64,
    /// Charged elsewhere minus released elsewhere; wraps.
    elsewhere: AtomicU64,
    limit: AtomicU64,
    state: AtomicU64,
    /// Whose worker adds in `local`. Constant after the start, as is the number.
    home: AtomicPtr<Home>,
    id: u32,
}

/// All accounts of one home, allocated at the start.
pub(crate) struct Accounts {
    slots: Box<[Slot]>,
    /// Closed accounts; touched by the attached worker only.
    free: UnsafeCell<Vec<u32>>,
    /// Where the search for drained accounts goes on.
    cursor: Cell<usize>,
}

impl Accounts {
    pub(crate) fn new(count: usize) -> Self {
        let count = count.min(PLACE_MASK as usize);
        let mut free: Vec<u32> = Vec::with_capacity(count);
        free.extend((1..=count as u32).rev());
        Self {
            slots: (0..=count).map(|_| Slot::default()).collect(),
            free: UnsafeCell::new(free),
            cursor: Cell::new(0),
        }
    }

    /// Tells the accounts which home they belong to, and its place in the table: at the start.
    pub(crate) fn settle(&mut self, home: *mut Home, slot: u16) {
        for (place, account) in (0..).zip(&mut self.slots) {
            account.home = AtomicPtr::new(home);
            account.id = (u32::from(slot) << PLACE_BITS) | place;
        }
    }

    /// Opens an account. Called by the attached worker.
    pub(crate) fn open(&self, limit: u64) -> Option<&Slot> {
        // SAFETY: only `Pool` calls this, on the attached thread; the borrow ends here.
        let place = match unsafe { &mut *self.free.get() }.pop() {
            Some(place) => place,
            None => self.find_drained()?,
        };
        let account = &self.slots[place as usize];
        account.limit.store(limit, Ordering::Relaxed);
        account.state.store(OPEN, Ordering::Relaxed);
        Some(account)
    }

    /// Closes an account; it is used again only when nothing is charged to it any more.
    fn close(&self, place: u32, mine: bool) {
        let Some(account) = self.slots.get(place as usize) else { return };
        if mine && account.used() == 0 {
            account.state.store(FREE, Ordering::Relaxed);
            // SAFETY: `mine` says that this is the attached thread. The list has room for all.
            unsafe { &mut *self.free.get() }.push(place);
        } else {
            account.state.store(DRAINING, Ordering::Release);
        }
    }

    /// Whether nothing at all is charged.
    pub(crate) fn all_released(&self) -> bool {
        self.slots.iter().all(|slot| slot.used() == 0)
    }

    /// A closed account whose packets have all gone; looks at 64 slots at most.
    #[cold]
    fn find_drained(&self) -> Option<u32> {
        for _ in 0..self.slots.len().min(64) {
            let at = self.cursor.get() % self.slots.len();
            self.cursor.set(at + 1);
            let slot = &self.slots[at];
            if at != 0 && slot.state.load(Ordering::Acquire) == DRAINING && slot.used() == 0 {
                return Some(at as u32);
            }
        }
        None
    }
}

impl Slot {
    /// What was released elsewhere is read first: who sees a release (acquire) then also sees the
    /// charge before it, so that the sum never wraps below nought. The same edge orders the last
    /// release before the region's end.
    fn used(&self) -> u64 {
        let elsewhere = self.elsewhere.load(Ordering::Acquire);
        elsewhere.wrapping_add(self.local.load(Ordering::Relaxed))
    }

    /// Adds `amount` (two's complement for less) from the home's worker or from elsewhere.
    #[inline]
    fn shift(&self, mine: bool, amount: u64) {
        if mine {
            let now = self.local.load(Ordering::Relaxed).wrapping_add(amount);
            self.local.store(now, Ordering::Relaxed);
        } else {
            self.elsewhere.fetch_add(amount, Ordering::Release);
        }
    }
}

/// The words behind a number, and whether the calling thread is their worker.
#[inline]
fn find<'a>(id: u32) -> Option<(&'a Slot, bool)> {
    let home = home::of_slot((id >> PLACE_BITS) as u16)?;
    Some((home.accounts.slots.get((id & PLACE_MASK) as usize)?, home.is_mine()))
}

/// Releases `bytes` that were charged to `id`. What is charged keeps the account's region alive
/// (`Region::drop`), so a packet may outlive the [`Account`].
#[inline]
pub(crate) fn release(id: u32, bytes: u32) {
    if let Some((slot, mine)) = find(id) {
        slot.shift(mine, u64::from(bytes).wrapping_neg());
    }
}

impl Account {
    /// `slot` is an open one of the region.
    pub(crate) fn new(slot: &Slot, region: Arc<Region>) -> Self {
        Self { slot: NonNull::from(slot), _region: region }
    }

    #[inline]
    fn slot(&self) -> &Slot {
        // SAFETY: part of a home of the region, which `self` keeps.
        unsafe { self.slot.as_ref() }
    }

    #[inline]
    fn home(&self) -> &Home {
        // SAFETY: settled before any account was opened; a home of the region, which `self` keeps.
        unsafe { &*self.slot().home.load(Ordering::Relaxed) }
    }

    #[inline]
    pub(crate) fn id(&self) -> u32 {
        self.slot().id
    }

    /// Charges `bytes`; refuses where the limit would be passed.
    #[inline]
    pub(crate) fn charge(&self, bytes: u32) -> Result<(), AccountFull> {
        let (slot, mine) = (self.slot(), self.home().is_mine());
        slot.shift(mine, u64::from(bytes));
        if slot.used() > slot.limit.load(Ordering::Relaxed) {
            slot.shift(mine, u64::from(bytes).wrapping_neg());
            return Err(AccountFull);
        }
        Ok(())
    }

    /// True bytes charged now.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.slot().used()
    }

    /// Whether `bytes` more would fit. A hint: the charge decides.
    #[must_use]
    #[inline]
    pub fn has_room(&self, bytes: u32) -> bool {
        let slot = self.slot();
        slot.used().saturating_add(u64::from(bytes)) <= slot.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit. What is charged beyond a lower one stays until it is released.
    pub fn set_limit(&self, limit: u64) {
        self.slot().limit.store(limit, Ordering::Relaxed);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let home = self.home();
        home.accounts.close(self.id() & PLACE_MASK, home.is_mine());
    }
}

impl core::fmt::Debug for Account {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Account({} bytes)", self.used())
    }
}

#[cfg(test)]
#[cfg(loom)]
mod model {
    //! Weakened by hand, each found: the order of the two loads in `used`, its acquire, and the
    //! release in `shift`.

    use floodwall_sync::shim::{Arc, UnsafeCell};
    use loom::thread;

    use super::*;

    #[test]
    fn the_sum_never_wraps_for_a_third_thread() {
        loom::model(|| {
            let slot = Arc::new(Slot::default());
            let worker = Arc::clone(&slot);
            let packet = thread::spawn(move || {
                worker.shift(true, 10);
                // The packet changes threads, and dies there.
                let there = thread::spawn(move || worker.shift(false, 10_u64.wrapping_neg()));
                there.join().unwrap();
            });
            assert!(slot.used() <= 10, "it wrapped");
            packet.join().unwrap();
            assert_eq!(slot.used(), 0);
        });
    }

    #[test]
    fn who_sees_the_last_release_may_free_the_words() {
        loom::model(|| {
            let slot = Arc::new((Slot::default(), UnsafeCell::new(())));
            slot.0.shift(true, 10);
            let other = Arc::clone(&slot);
            let there = thread::spawn(move || {
                other.1.with(|_| ());
                other.0.shift(false, 10_u64.wrapping_neg());
            });
            if slot.0.used() == 0 {
                slot.1.with_mut(|_| ());
            }
            there.join().unwrap();
        });
    }
}
