//! The pool: all packet memory of one NUMA node, taken at the start, handed out per worker.
//!
//! A [`Region`] is the memory: an array of descriptors, and per class an array of frames, the 2 KiB
//! class page-aligned and contiguous so that it can be registered as an AF_XDP UMEM (decision B6).
//! A [`Pool`] is one worker's attachment to one home of the region; it stays on its thread.
//!
//! # Under flood
//! Reachable by any sender. Bound: the configured counts, allocated at the start. Worst work per
//! packet: one pop; when the stack is dry, bringing home what other threads gave back. When empty
//! the newcomer is dropped as `NoBuffer`; nothing else suffers.

use core::marker::PhantomData;
use core::ptr;
use std::alloc::{Layout, dealloc};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use floodwall_sync::allocate;
use thiserror::Error;

use crate::account::Account;
use crate::buf::PacketBuf;
use crate::capacity_hints::CapacityHints;
use crate::descriptor::{Class, Descriptor, LARGE_FRAMES};
use crate::home::{self, FrameHome};
use crate::lane::Lane;
use crate::retired::{self, RegionMemory};

/// Bytes before the first byte of a packet in a fresh [`Class::Frame`] or [`Class::Super`].
pub const HEADROOM: usize = 256;
/// The same in a fresh [`Class::Small`]: Ethernet with a tag, IPv6, UDP, and some.
pub const HEADROOM_SMALL: usize = 80;
/// Bytes of a small frame.
pub const SMALL_BYTES: usize = 256;
/// Bytes of a GSO frame: headroom, and 64 KiB with room for link headers.
pub const SUPER_BYTES: usize = 65_536 + 512;
/// Frames start on pages, as a UMEM must.
const PAGE: usize = 4096;

/// How much memory a region takes, and for how many workers.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// Workers that will attach; each gets an equal part of everything below.
    pub workers: usize,
    /// Small frames of 256 bytes, total.
    pub small: usize,
    /// Frames, total.
    pub frames: usize,
    /// Bytes of a frame, headroom included: 2048 or 4096.
    pub frame_bytes: usize,
    /// GSO frames, total.
    pub supers: usize,
    /// Descriptors without memory, for references, total.
    pub references: usize,
    /// Accounts of each worker.
    pub accounts: usize,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            workers: 1,
            small: 8192,
            frames: 8192,
            frame_bytes: 2048,
            supers: 0,
            references: 8192,
            accounts: 4096,
        }
    }
}

/// Why a region could not be made or attached to.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum PoolError {
    /// `frame_bytes` is neither 2048 nor 4096.
    #[error("frame_bytes is {0}, but a frame has 2048 or 4096 bytes (an AF_XDP UMEM's chunk)")]
    FrameBytes(usize),
    /// `workers` is zero, or a worker would get no frame.
    #[error("{frames} frames cannot be shared by {workers} workers: each needs one at least")]
    TooFew {
        /// As configured.
        frames: usize,
        /// As configured.
        workers: usize,
    },
    /// The system has not that much memory.
    #[error("the system refused {0} bytes of packet memory: configure fewer frames")]
    NoMemory(usize),
    /// The process has too many pools.
    #[error("this process has too many pools: 1024 workers' homes at most")]
    TooManyPools,
    /// Every home of the region has a thread attached.
    #[error("every worker's place in this pool is taken: raise workers")]
    NoHome,
}

/// Memory of one NUMA node. Shared by its workers; outlives every packet in it.
pub struct Region {
    descriptors: ptr::NonNull<Descriptor>,
    descriptor_layout: Layout,
    count: usize,
    memory: ptr::NonNull<u8>,
    memory_layout: Layout,
    frames: usize,
    frame_bytes: usize,
    homes: Vec<(u16, ptr::NonNull<FrameHome>)>,
    /// The classes' parts, in the order of the memory.
    parts: [PoolPart; 4],
    /// Descriptors have been written and stocked.
    carved: bool,
    /// Addresses that came back from a device but were not lent.
    pub(crate) refused: AtomicU64,
}

/// The pieces of one class: descriptors and frames are in the same order.
#[derive(Clone, Copy)]
struct PoolPart {
    class: Class,
    count: usize,
    /// Bytes of one frame.
    bytes: usize,
}

// SAFETY: the region's fields are constant after `new`; the memory behind the pointers is reached
// through handles (one owner each) and homes (see there).
unsafe impl Send for Region {}
// SAFETY: as above; all `&self` methods read constants or attach to a home by an atomic claim.
unsafe impl Sync for Region {}

impl Region {
    /// Takes the memory.
    ///
    /// # Errors
    /// A configuration that makes no sense, too many pools, or no memory.
    pub fn new(config: &PoolConfig) -> Result<Arc<Self>, PoolError> {
        if config.frame_bytes != 2048 && config.frame_bytes != 4096 {
            return Err(PoolError::FrameBytes(config.frame_bytes));
        }
        if config.workers == 0 || config.frames < config.workers {
            let (frames, workers) = (config.frames, config.workers);
            return Err(PoolError::TooFew { frames, workers });
        }
        retired::free_what_is_home();
        let parts = parts_of(config);
        let (count, descriptor_bytes, bytes) =
            sizes(&parts).ok_or(PoolError::NoMemory(usize::MAX))?;
        let (memory, memory_layout) = zeroed::<u8>(bytes, PAGE)?;
        let (descriptors, descriptor_layout) =
            zeroed::<Descriptor>(descriptor_bytes, align_of::<Descriptor>()).inspect_err(|_| {
                // SAFETY: allocated above with this very layout, and not shared yet.
                unsafe { dealloc(memory.as_ptr(), memory_layout) };
            })?;
        let mut region = Self {
            descriptors,
            descriptor_layout,
            count,
            memory,
            memory_layout,
            frames: config.frames,
            frame_bytes: config.frame_bytes,
            homes: Vec::new(),
            parts,
            carved: false,
            refused: AtomicU64::new(0),
        };
        region.make_homes(config)?;
        region.carve();
        Ok(Arc::new(region))
    }

    fn make_homes(&mut self, config: &PoolConfig) -> Result<(), PoolError> {
        let share = |n: usize| n.div_ceil(config.workers);
        let counts = [config.small, config.frames, config.supers, config.references].map(share);
        for _ in 0..config.workers {
            let home = ptr::NonNull::from(Box::leak(Box::new(FrameHome::new(
                counts,
                config.accounts,
                self.memory.as_ptr(),
            ))));
            let Some(slot) = home::register(home.as_ptr()) else {
                // SAFETY: leaked from a box just above, and registered nowhere.
                drop(unsafe { Box::from_raw(home.as_ptr()) });
                return Err(PoolError::TooManyPools);
            };
            // SAFETY: leaked from a box just above, and not shared yet.
            unsafe { &mut *home.as_ptr() }.accounts.settle(slot);
            self.homes.push((slot, home));
        }
        Ok(())
    }

    /// Writes every descriptor and shares them out, in turn, so that homes get equal parts.
    fn carve(&mut self) {
        let (mut at, mut byte) = (0, 0);
        let large = if self.frame_bytes > 2048 { LARGE_FRAMES } else { 0 };
        for PoolPart { class, count, bytes } in self.parts {
            for i in 0..count {
                let (slot, mut home) = self.homes[i % self.homes.len()];
                // SAFETY: `at < count` and `byte` stays within what `new` allocated, by the same
                // sums. The home is not attached yet: this is its only user.
                unsafe {
                    let place = self.descriptors.as_ptr().add(at);
                    let frame = self.memory.as_ptr().add(byte);
                    place.write(Descriptor::new(class, slot | large, frame));
                    home.as_mut().stock(place, class);
                }
                at += 1;
                byte += bytes;
            }
        }
        self.carved = true;
    }

    /// The descriptor of the frame that has the byte at `address`, counted from the region's first,
    /// and that byte's place in the frame.
    pub(crate) fn locate(&self, address: u64) -> Option<(&Descriptor, u32)> {
        let (mut at, mut left) = (0, usize::try_from(address).ok()?);
        for PoolPart { count, bytes, .. } in self.parts.into_iter().filter(|part| part.bytes > 0) {
            if left < count * bytes {
                // SAFETY: `carve` has written that many descriptors in this very order.
                let d = unsafe { &*self.descriptors.as_ptr().add(at + left / bytes) };
                return Some((d, (left % bytes) as u32));
            }
            left -= count * bytes;
            at += count;
        }
        None
    }

    /// Attaches the calling thread to a free home.
    ///
    /// # Errors
    /// [`PoolError::NoHome`] where every home has its thread.
    pub fn attach(self: &Arc<Self>) -> Result<Pool, PoolError> {
        for &(_, home) in &self.homes {
            // SAFETY: homes live as long as the region.
            if unsafe { home.as_ref() }.attach() {
                return Ok(Pool { home, region: Arc::clone(self), _thread: PhantomData });
            }
        }
        Err(PoolError::NoHome)
    }

    /// Keeps a free home for a [`Lane`], which any thread may use.
    ///
    /// # Errors
    /// [`PoolError::NoHome`] where every home is taken.
    pub fn lane(self: &Arc<Self>) -> Result<Lane, PoolError> {
        for &(_, home) in &self.homes {
            // SAFETY: homes live as long as the region.
            if unsafe { home.as_ref() }.reserve() {
                let pool = Pool { home, region: Arc::clone(self), _thread: PhantomData };
                return Ok(Lane::new(pool));
            }
        }
        Err(PoolError::NoHome)
    }

    /// The frames of [`Class::Frame`] as one piece of page-aligned memory, for registration as an
    /// AF_XDP UMEM: its first byte, its bytes, and the bytes of a chunk.
    #[must_use]
    pub fn umem(&self) -> (ptr::NonNull<u8>, usize, usize) {
        (self.memory, self.frames * self.frame_bytes, self.frame_bytes)
    }

    /// True bytes of all its frames of [`Class::Frame`].
    #[must_use]
    pub const fn frames_true_bytes(&self) -> u64 {
        self.frames as u64 * (self.frame_bytes + size_of::<Descriptor>()) as u64
    }

    /// Bytes that a region of this configuration takes; `None` where they are more than there can
    /// be.
    #[must_use]
    pub fn bytes_of(config: &PoolConfig) -> Option<usize> {
        let (_, descriptors, frames) = sizes(&parts_of(config))?;
        descriptors.checked_add(frames)
    }

    /// Bytes taken at the start, descriptors included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.memory_layout.size() + self.descriptor_layout.size()
    }
}

/// The packets of each class.
const fn parts_of(config: &PoolConfig) -> [PoolPart; 4] {
    [
        PoolPart { class: Class::Frame, count: config.frames, bytes: config.frame_bytes },
        PoolPart { class: Class::Super, count: config.supers, bytes: SUPER_BYTES },
        PoolPart { class: Class::Small, count: config.small, bytes: SMALL_BYTES },
        PoolPart { class: Class::Reference, count: config.references, bytes: 0 },
    ]
}

/// How many descriptors there are, and the bytes of all descriptors and of all frames; `None` where
/// a number overflows.
fn sizes(parts: &[PoolPart]) -> Option<(usize, usize, usize)> {
    let (mut count, mut bytes) = (0_usize, 0_usize);
    for part in parts {
        count = count.checked_add(part.count)?;
        bytes = bytes.checked_add(part.count.checked_mul(part.bytes)?)?;
    }
    Some((count, count.checked_mul(size_of::<Descriptor>())?, bytes))
}

/// Zeroed memory: touched once, so that no page fault waits behind the first packet.
fn zeroed<T>(bytes: usize, align: usize) -> Result<(ptr::NonNull<T>, Layout), PoolError> {
    let (memory, layout) = allocate(bytes, align).ok_or(PoolError::NoMemory(bytes))?;
    // SAFETY: it is ours, and as long as its layout.
    unsafe { memory.write_bytes(0, layout.size()) };
    Ok((memory.cast(), layout))
}

impl Drop for Region {
    /// Frees the memory and the homes if every descriptor is home. If a packet is still out
    /// somewhere, they wait: a region that is made later frees them.
    fn drop(&mut self) {
        RegionMemory {
            descriptors: (self.descriptors, self.descriptor_layout),
            frames: (self.memory, self.memory_layout),
            homes: core::mem::take(&mut self.homes),
            count: if self.carved { self.count } else { 0 },
        }
        .give_up();
    }
}

impl core::fmt::Debug for Region {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Region({} bytes, {} workers)", self.bytes(), self.homes.len())
    }
}

/// How many pieces of each class are free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Available {
    /// Of 256 bytes.
    pub small: usize,
    /// Of a UMEM's chunk.
    pub frames: usize,
    /// Of 64 KiB.
    pub supers: usize,
    /// Without memory.
    pub references: usize,
}

/// One worker's attachment to its home. It stays on its thread; handles go where they like.
pub struct Pool {
    home: ptr::NonNull<FrameHome>,
    region: Arc<Region>,
    _thread: PhantomData<*const ()>,
}

impl Pool {
    /// A region for one worker, attached: what tests and small programs want.
    ///
    /// # Errors
    /// As [`Region::new`].
    pub fn new(config: &PoolConfig) -> Result<Self, PoolError> {
        Region::new(config)?.attach()
    }

    #[inline]
    pub(crate) fn home(&self) -> &FrameHome {
        // SAFETY: homes live as long as the region, which `self` keeps.
        unsafe { self.home.as_ref() }
    }

    /// An empty packet with the class's headroom, or `None` when the class is used up (counted).
    /// About 2 ns with its drop. [`Class::Reference`] is always `None` and not counted: a reference
    /// without a frame would be nothing, and [`PacketBuf::share`] makes the others.
    #[inline]
    #[must_use]
    pub fn alloc(&self, class: Class) -> Option<PacketBuf> {
        match class {
            Class::Reference => None,
            class => self.take(class),
        }
    }

    /// A descriptor of any class, as an empty packet. The taker of a reference names its frame and
    /// its owner at once.
    #[inline]
    pub(crate) fn take(&self, class: Class) -> Option<PacketBuf> {
        let found = self.home().take(class)?;
        // SAFETY: what `take` returns is a live descriptor without another owner.
        let buf = unsafe { PacketBuf::from_descriptor(found) };
        let headroom = match class {
            Class::Small => HEADROOM_SMALL,
            Class::Frame | Class::Super => HEADROOM,
            Class::Reference => 0,
        };
        buf.descriptor().reset(headroom as u32);
        Some(buf)
    }

    /// An empty packet in the smallest class that holds `len` bytes behind its headroom; a larger
    /// class where that one is used up; `None` where none has room.
    #[must_use]
    #[inline]
    pub fn alloc_for(&self, len: usize) -> Option<PacketBuf> {
        if len <= SMALL_BYTES - HEADROOM_SMALL
            && let Some(found) = self.alloc(Class::Small)
        {
            return Some(found);
        }
        self.alloc_larger(len)
    }

    #[inline(never)]
    fn alloc_larger(&self, len: usize) -> Option<PacketBuf> {
        if len <= self.region.frame_bytes - HEADROOM
            && let Some(found) = self.alloc(Class::Frame)
        {
            return Some(found);
        }
        if len <= SUPER_BYTES - HEADROOM { self.alloc(Class::Super) } else { None }
    }

    /// As [`Pool::alloc_for`], with `front` bytes of headroom, as far as the class has so many
    /// beside `len`.
    #[must_use]
    #[inline(always)]
    pub fn alloc_behind(&self, front: usize, len: usize) -> Option<PacketBuf> {
        let packet = self.alloc_for(len)?;
        packet.move_back(front, len);
        Some(packet)
    }

    /// As [`Pool::alloc_behind`], with `len` bytes that `write` writes, and what that returns.
    #[inline]
    pub fn alloc_written<R>(
        &self,
        front: usize,
        len: usize,
        write: impl FnOnce(&mut [u8]) -> R,
    ) -> Option<(PacketBuf, R)> {
        let mut packet = self.alloc_behind(front, len)?;
        let written = write(packet.lay_out_behind(len));
        Some((packet, written))
    }

    /// A packet of `front + len` bytes for the caller to write through [`PacketBuf::first_mut`]:
    /// all the headers at once. In the class that [`Pool::alloc_for`] picks for `len`, with the
    /// `front` bytes taken from its headroom; `None` where there is none, or `front` is more.
    #[must_use]
    #[inline]
    pub fn alloc_laid_out(&self, front: usize, len: usize) -> Option<PacketBuf> {
        if front > HEADROOM_SMALL {
            return None;
        }
        let packet = self.alloc_for(len)?;
        packet.lay_out(front, len);
        Some(packet)
    }

    /// A packet with a copy of `bytes`, in one chunk where a class holds them, else in a chain.
    #[must_use]
    pub fn packet_from(&self, bytes: &[u8]) -> Option<PacketBuf> {
        if let Some(mut buf) = self.alloc_for(bytes.len()) {
            return buf.extend_from_slice(bytes).then_some(buf);
        }
        self.packet_from_chunks(bytes.chunks(self.region.frame_bytes - HEADROOM))
    }

    /// A packet with chunks that hold copies of `chunks`, one each, empty ones included.
    #[must_use]
    pub fn packet_from_chunks<'a>(
        &self,
        chunks: impl IntoIterator<Item = &'a [u8]>,
    ) -> Option<PacketBuf> {
        let mut packet: Option<PacketBuf> = None;
        for bytes in chunks {
            let mut chunk = self.alloc_for(bytes.len())?;
            if !chunk.extend_from_slice(bytes) {
                return None;
            }
            match &mut packet {
                None => packet = Some(chunk),
                Some(packet) => packet.append(chunk).ok()?,
            }
        }
        packet
    }

    /// Opens an account that may hold `limit` true bytes; `None` where all are open.
    #[must_use]
    pub fn open_account(&self, limit: u64) -> Option<Account> {
        self.account(limit, None)
    }

    /// As [`Pool::open_account`], and `rooms` has under `index` what still fits into it, as long as
    /// it is open.
    #[must_use]
    pub fn open_watched_account(
        &self,
        limit: u64,
        rooms: &Arc<CapacityHints>,
        index: u32,
    ) -> Option<Account> {
        self.account(limit, Some((rooms, index)))
    }

    fn account(&self, limit: u64, rooms: Option<(&Arc<CapacityHints>, u32)>) -> Option<Account> {
        let slot = self.home().accounts.open(limit, rooms, self.region.frame_bytes)?;
        Some(Account::new(slot, Arc::clone(&self.region)))
    }

    /// What is free, after bringing home what other threads gave back.
    #[must_use]
    pub fn available(&self) -> Available {
        let [small, frames, supers, references] = self.home().available();
        Available { small, frames, supers, references }
    }

    /// Whether more than a quarter of a class is free: a queue that keeps packets for long refuses
    /// them where it is not, so that some are left for short use. Costs a look.
    #[must_use]
    #[inline]
    pub fn has_spare(&self, class: Class) -> bool {
        self.home().has_spare(class)
    }

    /// How many allocations found their class used up.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.home().failures.load(Ordering::Relaxed)
    }

    /// True bytes of all this worker's frames of [`Class::Frame`], free or not.
    #[must_use]
    pub fn frames_true_bytes(&self) -> u64 {
        self.region.frames_true_bytes() / self.region.homes.len().max(1) as u64
    }

    /// The memory behind.
    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Bytes that a fresh [`Class::Super`] holds behind its headroom; 0 where this pool was made
    /// without any.
    #[must_use]
    pub fn super_capacity(&self) -> usize {
        let has = self.region.parts.iter().any(|part| part.class == Class::Super && part.count > 0);
        if has { SUPER_BYTES - HEADROOM } else { 0 }
    }

    /// Bytes that a fresh [`Class::Frame`] holds behind its headroom.
    #[must_use]
    pub fn frame_capacity(&self) -> usize {
        self.region.frame_bytes - HEADROOM
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.home().detach();
    }
}

impl core::fmt::Debug for Pool {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Pool({:?})", self.region)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
#[path = "pool/tests.rs"]
mod tests;
