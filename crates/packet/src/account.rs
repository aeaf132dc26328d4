//! Accounts: which socket or queue pays for the memory that a packet holds, in true bytes.
//!
//! A socket, a queue, a reassembly buffer opens an account with a limit; each packet that it keeps
//! is charged with the true size of its memory, descriptors included (a one-byte datagram in a
//! 2 KiB frame costs 2,176), and exactly what was charged is released when the packet is dropped or
//! moves on, on any thread.
//!
//! An account belongs to a home. Its worker adds with plain loads and stores; other threads
//! subtract in a word of their own (the biased count of Choi, Shull and Torrellas 2018). The sum
//! of both words is exact for the worker; to others it may look as if what is being released just
//! now still were charged, never the other way round.
//!
//! An account may be watched ([`CapacityHints`](crate::Rooms)): then it reports, on changes, what
//! still fits. [`ROOMS_TOLD`] is in the word that other threads release in. The worker writes that
//! the account is full, then sets the bit, and the value that it meets shows whether there was a
//! release meanwhile. A release elsewhere that meets the bit takes both back first, while its own
//! charge still keeps all of this allocated, and releases only in a word without the bit. So no
//! release stays behind a word with "full".
//!
//! # Under flood
//! Reachable by every peer that can make a socket keep packets. Bound: the account's limit. Worst
//! work per packet: two additions. When full the newcomer is refused; what waits stays.

use core::cell::{Cell, UnsafeCell};
use core::ptr::NonNull;
use std::sync::Arc;

use floodwall_sync::shim::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::capacity_hints::{CapacityHint, CapacityHints};
use crate::descriptor::Descriptor;
use crate::home::{self, FrameHome, HOMES_MAX};
use crate::pool::Region;

/// Bits of an account's number for its place in its home: four million, two for each of two million
/// sockets. The others select the home.
const PLACE_BITS: u32 = 22;
const _: () = assert!(HOMES_MAX <= 1 << (u32::BITS - PLACE_BITS));
const PLACE_MASK: u32 = (1 << PLACE_BITS) - 1;

/// An open account. Dropping it closes it; packets still charged go on being released exactly.
pub struct Account {
    slot: NonNull<AccountSlot>,
    /// Keeps what `slot` points to.
    _region: Arc<Region>,
}

// SAFETY: what it points to stays valid as long as the region that it keeps, and is atomic or
// constant.
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
const SLOT_FREE: u32 = 0;
/// Held by an [`Account`].
const SLOT_OPEN: u32 = 1;
/// Closed while something was charged, or from another thread: found again by the search.
const SLOT_DRAINING: u32 = 2;

/// In [`AccountSlot::elsewhere`]: the rooms show that something does not fit.
const ROOMS_TOLD: u64 = 1;

/// Where the account reports what still fits.
#[derive(Default)]
struct AccountWatch {
    rooms: Option<Arc<CapacityHints>>,
    /// Its number there.
    index: u32,
    /// True bytes of a frame; 0 without a listener.
    frame: u32,
}

/// One account's words.
#[derive(Default)]
pub(crate) struct AccountSlot {
    /// Charged by the home's worker minus released by it; wraps.
    local: AtomicU64,
    /// Twice what was charged elsewhere minus released elsewhere, which wraps, and [`ROOMS_TOLD`].
    elsewhere: AtomicU64,
    limit: AtomicU64,
    /// Written while the account is closed, read by its holder or by the holder of a charge.
    watch: UnsafeCell<AccountWatch>,
    state: AtomicU32,
    /// Constant after the start; selects the home; its worker adds in `local`.
    id: u32,
}

// loom's atomics are larger.
#[cfg(not(loom))]
const _: () = assert!(size_of::<AccountSlot>() == 48);

/// All accounts of one home, allocated at the start.
pub(crate) struct Accounts {
    slots: Box<[AccountSlot]>,
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
            slots: (0..=count).map(|_| AccountSlot::default()).collect(),
            free: UnsafeCell::new(free),
            cursor: Cell::new(0),
        }
    }

    /// Gives the accounts their home's place in the table: at the start.
    pub(crate) fn settle(&mut self, slot: u16) {
        for (place, account) in (0..).zip(&mut self.slots) {
            account.id = (u32::from(slot) << PLACE_BITS) | place;
        }
    }

    /// Opens an account, and reports to `rooms` under a number what fits into it. Called by the
    /// attached worker.
    pub(crate) fn open(
        &self,
        limit: u64,
        rooms: Option<(&Arc<CapacityHints>, u32)>,
        frame_bytes: usize,
    ) -> Option<&AccountSlot> {
        // SAFETY: only `Pool` calls this, on the attached thread; the borrow ends here.
        let place = match unsafe { &mut *self.free.get() }.pop() {
            Some(place) => place,
            None => self.find_drained()?,
        };
        let account = &self.slots[place as usize];
        account.limit.store(limit, Ordering::Relaxed);
        let watch = rooms.map_or_else(AccountWatch::default, |(rooms, index)| {
            rooms.set(index, CapacityHint::Frame);
            let frame = (frame_bytes + size_of::<Descriptor>()) as u32;
            AccountWatch { rooms: Some(Arc::clone(rooms)), index, frame }
        });
        // SAFETY: the account has no holder, and nothing is charged to it (both ways here ensure
        // that, by an acquiring load of what was released elsewhere), so it has no reader.
        unsafe { *account.watch.get() = watch };
        account.state.store(SLOT_OPEN, Ordering::Relaxed);
        Some(account)
    }

    /// Closes an account; it is used again only when nothing is charged to it any more.
    fn close(&self, place: u32, mine: bool) {
        let Some(account) = self.slots.get(place as usize) else { return };
        account.take_back();
        if mine && account.used() == 0 {
            account.state.store(SLOT_FREE, Ordering::Relaxed);
            // SAFETY: `mine` means that this is the attached thread. The list has room for all.
            unsafe { &mut *self.free.get() }.push(place);
        } else {
            account.state.store(SLOT_DRAINING, Ordering::Release);
        }
    }

    /// Whether nothing at all is charged.
    pub(crate) fn all_released(&self) -> bool {
        self.slots.iter().all(|slot| slot.used() == 0)
    }

    /// A closed account without charged packets; looks at 64 slots at most.
    #[cold]
    fn find_drained(&self) -> Option<u32> {
        for _ in 0..self.slots.len().min(64) {
            let at = self.cursor.get() % self.slots.len();
            self.cursor.set(at + 1);
            let slot = &self.slots[at];
            if at != 0 && slot.state.load(Ordering::Acquire) == SLOT_DRAINING && slot.used() == 0 {
                return Some(at as u32);
            }
        }
        None
    }
}

impl AccountSlot {
    /// What was released elsewhere is read first: a reader that sees a release (acquire) then also
    /// sees the charge before it, so that the sum never wraps below zero. The same edge orders the
    /// last release before the region's end.
    #[inline]
    fn used(&self) -> u64 {
        self.used_with(self.elsewhere.load(Ordering::Acquire))
    }

    #[inline]
    fn used_with(&self, elsewhere: u64) -> u64 {
        let sum = (elsewhere >> 1).wrapping_add(self.local.load(Ordering::Relaxed));
        sum & (u64::MAX >> 1)
    }

    /// Adds `bytes` where they fit, from the home's worker, and returns what then still fits. It
    /// checks first, so that no reader ever sees more than the limit in its word.
    #[inline]
    fn charge_here(&self, bytes: u32) -> Option<u64> {
        let would = self.used() + u64::from(bytes);
        let left = self.limit.load(Ordering::Relaxed).checked_sub(would)?;
        let now = self.local.load(Ordering::Relaxed).wrapping_add(u64::from(bytes));
        self.local.store(now, Ordering::Relaxed);
        Some(left)
    }

    /// From elsewhere any number of threads may do so at once: each adds, looks at the sum that it
    /// made, and takes its own back where that is too much.
    #[cold]
    fn charge_elsewhere(&self, bytes: u32) -> Result<(), AccountFull> {
        self.elsewhere.fetch_add(2 * u64::from(bytes), Ordering::Release);
        if self.used() <= self.limit.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.release_elsewhere(bytes);
        Err(AccountFull)
    }

    /// Releases `bytes`, from the home's worker or from elsewhere. The caller's charge keeps the
    /// words valid until it is released; on the home's thread, any other release is on that thread
    /// too, or the bit shows an open account.
    #[inline]
    fn release(&self, mine: bool, bytes: u32) {
        if mine {
            let now = self.local.load(Ordering::Relaxed).wrapping_sub(u64::from(bytes));
            let told = self.elsewhere.load(Ordering::Relaxed) & ROOMS_TOLD != 0;
            self.local.store(now, Ordering::Relaxed);
            if told {
                self.tell();
            }
        } else {
            self.release_elsewhere(bytes);
        }
    }

    fn release_elsewhere(&self, bytes: u32) {
        let mut now = self.elsewhere.load(Ordering::Relaxed);
        loop {
            if now & ROOMS_TOLD != 0 {
                self.take_back();
                now = self.elsewhere.load(Ordering::Relaxed);
                continue;
            }
            let less = now.wrapping_sub(2 * u64::from(bytes));
            match self.elsewhere.compare_exchange(now, less, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => now = other,
            }
        }
    }

    /// The watch. For the holder of the account or of a charge.
    #[inline]
    fn watch(&self) -> &AccountWatch {
        // SAFETY: written only while it has no holder and nothing is charged; what gave the caller
        // the account or the charge orders that write before.
        unsafe { &*self.watch.get() }
    }

    /// What fits if so much is charged elsewhere. A packet fits wherever nothing is charged
    /// (`udp/allowance.rs`).
    fn room_with(&self, elsewhere: u64) -> CapacityHint {
        let (used, limit) = (self.used_with(elsewhere), self.limit.load(Ordering::Relaxed));
        if used == 0 {
            return CapacityHint::Frame;
        }
        CapacityHint::of(limit.saturating_sub(used), u64::from(self.watch().frame))
    }

    /// Reports that any frame fits, whether it does or not: then a charge decides. The word first,
    /// so that it is no longer there when the bit has gone; and again, for the worker may have
    /// written it between.
    #[cold]
    fn take_back(&self) {
        let watch = self.watch();
        let Some(rooms) = &watch.rooms else { return };
        rooms.set(watch.index, CapacityHint::Frame);
        self.elsewhere.fetch_and(!ROOMS_TOLD, Ordering::AcqRel);
        rooms.set(watch.index, CapacityHint::Frame);
    }

    /// Reports what fits, where that has changed. Called by the home's worker for an open account.
    #[cold]
    fn tell(&self) {
        let watch = self.watch();
        let Some(rooms) = &watch.rooms else { return };
        let now = self.elsewhere.load(Ordering::Acquire);
        let room = self.room_with(now);
        if rooms.of(watch.index) == room && (now & ROOMS_TOLD != 0) == (room != CapacityHint::Frame)
        {
            return;
        }
        self.elsewhere.fetch_and(!ROOMS_TOLD, Ordering::AcqRel);
        rooms.set(watch.index, room);
        if room != CapacityHint::Frame {
            let met = self.elsewhere.fetch_or(ROOMS_TOLD, Ordering::AcqRel);
            if self.room_with(met) < room {
                self.take_back();
            }
        }
    }
}

/// The words behind a number, and whether the calling thread is their worker.
#[inline]
fn find<'a>(id: u32) -> Option<(&'a AccountSlot, bool)> {
    let home = home::of_slot((id >> PLACE_BITS) as u16)?;
    Some((home.accounts.slots.get((id & PLACE_MASK) as usize)?, home.is_mine()))
}

/// Releases `bytes` that were charged to `id`. A charge keeps the account's region allocated
/// (`Region::drop`), so a packet may outlive the [`Account`].
#[inline]
pub(crate) fn release(id: u32, bytes: u32) {
    if let Some((slot, mine)) = find(id) {
        slot.release(mine, bytes);
    }
}

impl Account {
    /// `slot` is an open one of the region.
    pub(crate) fn new(slot: &AccountSlot, region: Arc<Region>) -> Self {
        Self { slot: NonNull::from(slot), _region: region }
    }

    #[inline]
    fn slot(&self) -> &AccountSlot {
        // SAFETY: part of a home of the region, which `self` keeps.
        unsafe { self.slot.as_ref() }
    }

    #[inline]
    fn home(&self) -> Option<&FrameHome> {
        home::of_slot((self.id() >> PLACE_BITS) as u16)
    }

    #[inline]
    fn is_mine(&self) -> bool {
        self.home().is_some_and(FrameHome::is_mine)
    }

    #[inline]
    pub(crate) fn id(&self) -> u32 {
        self.slot().id
    }

    /// Charges `bytes`; refuses where the limit would be passed.
    #[inline]
    pub(crate) fn charge(&self, bytes: u32) -> Result<(), AccountFull> {
        let slot = self.slot();
        if !self.is_mine() {
            return slot.charge_elsewhere(bytes);
        }
        let left = slot.charge_here(bytes);
        if left.is_some_and(|left| left >= u64::from(slot.watch().frame)) {
            return Ok(());
        }
        self.told_charge(left.is_some())
    }

    /// Where no frame would fit after this charge, or this one does not.
    #[cold]
    fn told_charge(&self, fits: bool) -> Result<(), AccountFull> {
        self.slot().tell();
        if fits { Ok(()) } else { Err(AccountFull) }
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
        if self.is_mine() {
            self.slot().tell();
        } else {
            self.slot().take_back();
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        if let Some(home) = self.home() {
            home.accounts.close(self.id() & PLACE_MASK, home.is_mine());
        }
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
    //! Weakened by hand, each found: the order of the two loads in `used`, its acquire, the release
    //! in `release_elsewhere`. Not weakened yet: what the models of watched accounts rest on.

    use floodwall_sync::shim::{Arc, UnsafeCell};
    use loom::thread;

    use super::*;

    fn limited(limit: u64) -> AccountSlot {
        AccountSlot { limit: AtomicU64::new(limit), ..AccountSlot::default() }
    }

    #[test]
    fn a_refused_charge_is_seen_by_nothing() {
        loom::model(|| {
            let slot = Arc::new(limited(10));
            slot.charge_here(10);
            let other = Arc::clone(&slot);
            let there = thread::spawn(move || assert_eq!(other.used(), 10, "beyond its limit"));
            assert_eq!(slot.charge_here(10), None);
            there.join().unwrap();
        });
    }

    #[test]
    fn the_sum_never_wraps_for_a_third_thread() {
        loom::model(|| {
            let slot = Arc::new(limited(10));
            let worker = Arc::clone(&slot);
            let packet = thread::spawn(move || {
                worker.charge_here(10);
                // The packet changes threads, and is dropped there.
                let there = thread::spawn(move || worker.release(false, 10));
                there.join().unwrap();
            });
            assert!(slot.used() <= 10, "it wrapped");
            packet.join().unwrap();
            assert_eq!(slot.used(), 0);
        });
    }

    #[test]
    fn one_that_sees_the_last_release_may_free_the_words() {
        loom::model(|| {
            let slot = Arc::new((limited(10), UnsafeCell::new(())));
            slot.0.charge_here(10);
            let other = Arc::clone(&slot);
            let there = thread::spawn(move || {
                other.1.with(|_| ());
                other.0.release(false, 10);
            });
            if slot.0.used() == 0 {
                slot.1.with_mut(|_| ());
            }
            there.join().unwrap();
        });
    }

    /// An account with room for two packets of ten bytes that is watched, and one for a third.
    fn watched() -> (Arc<AccountSlot>, std::sync::Arc<CapacityHints>) {
        let rooms = CapacityHints::new(1);
        let slot = limited(20);
        // SAFETY: not shared yet.
        unsafe {
            *slot.watch.get() =
                AccountWatch { rooms: Some(std::sync::Arc::clone(&rooms)), index: 0, frame: 5 };
        }
        (Arc::new(slot), rooms)
    }

    #[test]
    fn no_release_stays_behind_a_word_that_says_full() {
        loom::model(|| {
            let (slot, rooms) = watched();
            slot.charge_here(10);
            let other = Arc::clone(&slot);
            let there = thread::spawn(move || other.release(false, 10));
            slot.charge_here(10);
            slot.tell();
            there.join().unwrap();
            assert_eq!(rooms.of(0), CapacityHint::Frame);
        });
    }

    #[test]
    fn nor_do_two_while_the_worker_says_it_again() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let (slot, rooms) = watched();
            slot.charge_here(20);
            slot.tell();
            assert_eq!(rooms.of(0), CapacityHint::Nothing);
            let others = [(); 2].map(|()| {
                let other = Arc::clone(&slot);
                thread::spawn(move || other.release(false, 10))
            });
            slot.tell();
            for there in others {
                there.join().unwrap();
            }
            assert_eq!((slot.used(), rooms.of(0)), (0, CapacityHint::Frame));
        });
    }
}
