//! `PacketBuf`: one owning handle of 8 bytes to a packet's memory.
//!
//! A packet is one chunk or a chain of chunks. Dropping the handle gives everything back: the
//! frames to their homes, the charge to its account. Bytes that a reference also sees are
//! read-only; those before them are the frame's handle's own, so that headers go there while others
//! read what is behind. Chains are freed by a loop. Not here: how a chain is rearranged
//! (`pulldown.rs`).

use core::mem;
use core::ptr::NonNull;
use core::slice;
use core::sync::atomic::Ordering::Relaxed;

use floodwall_base::limits::CHUNKS_MAX;

use crate::account::{self, Account, AccountFull};
use crate::chunks::Chunks;
use crate::descriptor::{Class, Descriptor, LARGE_FRAMES, STANDS_IN};
use crate::home;
use crate::list::PacketList;
use crate::meta::layers_move_down;
use crate::pool::{Pool, SMALL_BYTES, SUPER_BYTES};

/// An owned handle of one packet: a chunk or a chain of chunks out of a [`Pool`](crate::Pool).
#[repr(transparent)]
pub struct PacketBuf(NonNull<Descriptor>);

const _: () = assert!(size_of::<Option<PacketBuf>>() == 8);

// SAFETY: a handle is the only owner of its descriptor's cells; what is shared (`refs`, `front`) is
// atomic, and bytes that a reference sees are never written.
unsafe impl Send for PacketBuf {}
// SAFETY: `&PacketBuf` only reads cells, and there is no writer while it is borrowed.
unsafe impl Sync for PacketBuf {}

/// The packet would exceed the maximum of chunks; it is given back.
#[derive(Debug)]
pub struct ChainFull(pub PacketBuf);

impl PacketBuf {
    /// # Safety
    /// `at` is a live descriptor of a pool, and no other handle owns it.
    #[inline]
    pub(crate) unsafe fn from_descriptor(at: *const Descriptor) -> Self {
        // SAFETY: live descriptors are not null.
        Self(unsafe { NonNull::new_unchecked(at.cast_mut()) })
    }

    /// Gives up ownership without giving anything back.
    #[inline]
    pub(crate) fn into_descriptor(self) -> *const Descriptor {
        let at = self.0.as_ptr();
        mem::forget(self);
        at
    }

    #[inline]
    pub(crate) fn descriptor(&self) -> &Descriptor {
        // SAFETY: descriptors are valid as long as their region, which exists until every handle is
        // home. No code ever makes a `&mut Descriptor`.
        unsafe { self.0.as_ref() }
    }

    /// Bytes of the whole packet.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.descriptor().total.get() as usize
    }

    /// Whether there are no bytes.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first chunk's bytes: all of them where [`PacketBuf::is_contiguous`].
    #[must_use]
    #[inline]
    pub fn first(&self) -> &[u8] {
        chunk_bytes(self.descriptor())
    }

    /// Whether the first chunk holds the whole packet.
    #[must_use]
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        self.descriptor().len.get() == self.descriptor().total.get()
    }

    /// The chunks' bytes in order, empty ones included.
    #[must_use]
    pub fn chunks(&self) -> Chunks<'_> {
        Chunks::new(self)
    }

    /// How many chunks there are. At least one.
    #[must_use]
    pub fn chunk_count(&self) -> usize {
        self.chunks().count()
    }

    /// The first chunk's bytes for writing; `None` where they are shared.
    #[must_use]
    #[inline]
    pub fn first_mut(&mut self) -> Option<&mut [u8]> {
        let d = self.descriptor();
        // SAFETY: the chunk is exclusive, and `&mut self` keeps others of this handle away.
        is_exclusive(d).then(|| unsafe { chunk_bytes_mut(d) })
    }

    /// The first `n` bytes for writing: headers, which may be before bytes that are shared
    /// ([`PacketBuf::share_behind`]). `None` where the first chunk has fewer, or others see them.
    #[must_use]
    #[inline]
    pub fn front_mut(&mut self, n: usize) -> Option<&mut [u8]> {
        let d = self.descriptor();
        if n > d.len.get() as usize || !owns_before(d, d.off.get() as usize + n) {
            return None;
        }
        // SAFETY: they are in the chunk, no reference sees them, and `&mut self` keeps others of
        // this handle away.
        Some(unsafe { front_bytes_mut(d, n) })
    }

    /// Spare bytes before the first byte; 0 where a reference sees them.
    #[must_use]
    #[inline]
    pub fn headroom(&self) -> usize {
        let d = self.descriptor();
        let off = d.off.get() as usize;
        if owns_before(d, off) { off } else { 0 }
    }

    /// Spare bytes behind the first chunk's last; 0 where the memory is shared.
    #[must_use]
    #[inline]
    pub fn tailroom(&self) -> usize {
        tailroom(self.descriptor())
    }

    /// Grows the packet by `n` bytes at its front, and gives them to be written. `None` where the
    /// headroom is too small; the packet is unchanged then.
    #[inline]
    pub fn prepend(&mut self, n: usize) -> Option<&mut [u8]> {
        let d = self.descriptor();
        if n == 0 {
            return Some(&mut []);
        }
        if n > self.headroom() {
            return None;
        }
        d.off.set(d.off.get() - n as u32);
        d.len.set(d.len.get() + n as u32);
        d.total.set(d.total.get() + n as u32);
        // SAFETY: no reference sees them, or the headroom would have been 0.
        Some(unsafe { front_bytes_mut(d, n) })
    }

    /// As [`PacketBuf::prepend`] for a constant number of bytes.
    #[inline]
    pub fn prepend_array<const N: usize>(&mut self) -> Option<&mut [u8; N]> {
        self.prepend(N)?.first_chunk_mut()
    }

    /// This packet with `n` more bytes in front, contiguous and to be written through
    /// [`PacketBuf::front_mut`]: in its own headroom where there is room, else in a small chunk of
    /// its own before it, to which all that is known of the packet passes. The charge stays as it
    /// is.
    ///
    /// # Errors
    /// Gives the packet back, unchanged, where no chunk is free or the chain is full.
    #[inline]
    pub fn push_header(mut self, pool: &Pool, n: usize) -> Result<Self, Self> {
        if self.prepend(n).is_some() {
            return Ok(self);
        }
        self.push_header_chunk(pool, n)
    }

    #[cold]
    fn push_header_chunk(self, pool: &Pool, n: usize) -> Result<Self, Self> {
        let Some(mut head) = pool.alloc_for(n) else { return Err(self) };
        if head.extend(n).is_none() {
            return Err(self);
        }
        head.inherit(&self, n);
        let charged = self.descriptor().charged.replace(0);
        match head.append(self) {
            Ok(()) => {
                head.descriptor().charged.set(charged);
                Ok(head)
            }
            Err(ChainFull(packet)) => {
                packet.descriptor().charged.set(charged);
                Err(packet)
            }
        }
    }

    /// Gives a fresh chunk its bytes: `front` of its headroom and `len` behind, both of which the
    /// guaranteed by the caller to be there.
    #[inline]
    pub(crate) fn lay_out(&self, front: usize, len: usize) {
        let d = self.descriptor();
        debug_assert!(front <= d.off.get() as usize && len <= tailroom(d), "outside of the frame");
        d.off.set(d.off.get() - front as u32);
        let all = (front + len) as u32;
        d.len.set(all);
        d.total.set(all);
    }

    /// Gives a fresh chunk its bytes: `len` behind its headroom, which are there, as
    /// [`PacketBuf::move_back`] has seen to.
    #[inline(always)]
    pub(crate) fn lay_out_behind(&mut self, len: usize) -> &mut [u8] {
        self.lay_out(0, len);
        // SAFETY: it is fresh, so that no reference exists, and `&mut self` keeps others of this
        // handle away; `lay_out` has set the length.
        unsafe { chunk_bytes_mut(self.descriptor()) }
    }

    /// Moves an empty chunk's start back to `front` bytes of headroom, as far as `len` bytes will
    /// still fit behind.
    #[inline]
    pub(crate) fn move_back(&self, front: usize, len: usize) {
        let d = self.descriptor();
        let room = tailroom(d);
        debug_assert!(d.len.get() == 0 && len <= room, "it is no place for {len} bytes");
        let off = d.off.get() as usize;
        d.off.set(front.min(off + room - len).max(off) as u32);
    }

    /// Grows the first and only chunk by `n` bytes at its end, and gives them to be written.
    /// `None` where the packet has more chunks, the tailroom is too small, or the memory is shared.
    #[inline]
    pub fn extend(&mut self, n: usize) -> Option<&mut [u8]> {
        let d = self.descriptor();
        if !d.chain.get().is_null() || n > tailroom(d) {
            return None;
        }
        if n == 0 {
            return Some(&mut []);
        }
        let before = d.len.get() as usize;
        d.len.set(d.len.get() + n as u32);
        d.total.set(d.total.get() + n as u32);
        // SAFETY: exclusive, or the tailroom would have been 0.
        let bytes = unsafe { chunk_bytes_mut(d) };
        Some(&mut bytes[before..])
    }

    /// Appends a copy of `bytes` to the first and only chunk; false where [`PacketBuf::extend`]
    /// would refuse.
    #[inline]
    #[must_use]
    pub fn extend_from_slice(&mut self, bytes: &[u8]) -> bool {
        match self.extend(bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                true
            }
            None => bytes.is_empty(),
        }
    }

    /// Takes `n` bytes off the front (all of them where there are fewer). Chunks that become
    /// empty stay in place. Layers stay where they are in the packet.
    pub fn trim_front(&mut self, n: usize) {
        let mut left = n.min(self.len()) as u32;
        self.descriptor().total.set(self.descriptor().total.get() - left);
        for d in BufLinks::of(self.descriptor()) {
            let here = left.min(d.len.get());
            d.off.set(d.off.get() + here);
            d.len.set(d.len.get() - here);
            left -= here;
            if left == 0 {
                break;
            }
            if core::ptr::eq(d, self.descriptor()) {
                layers_move_down(d, left);
            }
        }
    }

    /// The `len` bytes behind the packet's first `n`, or as many as there are, without chunks in
    /// front that would be empty: for callers that want the bytes alone, and not the packet's
    /// metadata. One that is charged keeps all of its chunks in front.
    #[must_use]
    #[inline]
    pub fn middle(self, n: usize, len: usize) -> Self {
        let d = self.descriptor();
        if d.chain.get().is_null() {
            // Nearly always.
            let n = n.min(self.len()) as u32;
            let len = len.min((d.total.get() - n) as usize) as u32;
            d.off.set(d.off.get() + n);
            d.len.set(len);
            d.total.set(len);
            return self;
        }
        self.middle_of_chunks(n, len)
    }

    /// The same of several chunks.
    #[inline(never)]
    fn middle_of_chunks(self, n: usize, len: usize) -> Self {
        let mut rest = self.without_front_chunks(n);
        rest.truncate(len);
        rest
    }

    /// The packet behind its first `n` bytes, which may be whole chunks.
    fn without_front_chunks(mut self, n: usize) -> Self {
        let mut left = n.min(self.len());
        loop {
            let d = self.descriptor();
            let (here, next) = (d.len.get() as usize, d.chain.get());
            if left < here || next.is_null() || d.charged.get() != 0 {
                self.trim_front(left);
                return self;
            }
            left -= here;
            let behind = d.total.get() - d.len.get();
            d.chain.set(core::ptr::null());
            // SAFETY: the chain owned this descriptor, and has let go of it just above.
            let rest = unsafe { Self::from_descriptor(&*next) };
            rest.descriptor().total.set(behind);
            self = rest;
        }
    }

    /// Cuts the packet to `len` bytes (nothing where it has fewer). Whole chunks behind the cut
    /// go home.
    pub fn truncate(&mut self, len: usize) {
        if len >= self.len() {
            return;
        }
        let mut left = len as u32;
        let head = self.descriptor();
        head.total.set(left);
        for d in BufLinks::of(head) {
            let here = left.min(d.len.get());
            d.len.set(here);
            left -= here;
            if left == 0 {
                let rest = d.chain.replace(core::ptr::null());
                release_chain(rest);
                break;
            }
        }
    }

    /// Appends another packet's chunks to this one. Constant but for the walk to the last chunk.
    ///
    /// # Errors
    /// Gives `more` back where the chain would exceed [`CHUNKS_MAX`].
    pub fn append(&mut self, more: Self) -> Result<(), ChainFull> {
        let head = self.descriptor();
        let (mut last, mut count) = (head, 0);
        for d in BufLinks::of(head) {
            last = d;
            count += 1;
        }
        if count + more.chunk_count() > CHUNKS_MAX {
            return Err(ChainFull(more));
        }
        more.release_charge();
        head.total.set(head.total.get() + more.descriptor().total.get());
        last.chain.set(more.into_descriptor());
        Ok(())
    }

    /// Appends the packets of a list, each chunk once looked at.
    ///
    /// # Errors
    /// Gives back what is left of the list where the chain would exceed [`CHUNKS_MAX`].
    pub fn append_all(&mut self, mut more: PacketList) -> Result<(), PacketList> {
        let head = self.descriptor();
        let (mut last, mut count) = (head, 0);
        for d in BufLinks::of(head) {
            last = d;
            count += 1;
        }
        while let Some(packet) = more.pop_front() {
            let chunks = packet.chunk_count();
            if count + chunks > CHUNKS_MAX {
                more.push_front(packet);
                return Err(more);
            }
            count += chunks;
            packet.release_charge();
            head.total.set(head.total.get() + packet.descriptor().total.get());
            last.chain.set(packet.into_descriptor());
            // The links behind `last` are this packet's own from now on.
            for d in BufLinks::of(last) {
                last = d;
            }
        }
        Ok(())
    }

    /// Another read-only view of `len` bytes from `off`: a chain of references, one for each chunk
    /// touched, that keep the memory allocated. `None` where the range ends beyond the packet or no
    /// reference is free. While both exist, neither writes those bytes.
    #[must_use]
    pub fn share(&self, pool: &Pool, off: usize, len: usize) -> Option<Self> {
        if off.checked_add(len)? > self.len() {
            return None;
        }
        let (mut skip, mut left) = (off as u32, len as u32);
        let mut shared: Option<Self> = None;
        for d in BufLinks::of(self.descriptor()) {
            let from = skip.min(d.len.get());
            skip -= from;
            let here = left.min(d.len.get() - from);
            if here == 0 && !(left == 0 && shared.is_none()) {
                continue;
            }
            let reference = reference_to(pool, d, from, here)?;
            left -= here;
            match &mut shared {
                None => shared = Some(reference),
                Some(head) => head.append(reference).ok()?,
            }
            if left == 0 {
                break;
            }
        }
        shared
    }

    /// Another read-only view of all bytes, as [`PacketBuf::share`]; this handle may still put
    /// headers before them, since no other handle sees its headroom. The view counts as the frame
    /// ([`PacketBuf::true_size`]): it is for a queue that keeps the bytes while the packet travels.
    /// `None` where there is more than one chunk, others share it already, or no reference is free.
    #[must_use]
    pub fn share_behind(&mut self, pool: &Pool) -> Option<Self> {
        let d = self.descriptor();
        if !d.chain.get().is_null() || !is_exclusive(d) {
            return None;
        }
        let view = pool.take(Class::Reference)?;
        d.refs.share_sole();
        d.front.store(d.off.get(), Relaxed);
        borrow(view.descriptor(), d, d, 0, d.len.get());
        view.descriptor().flags.set(STANDS_IN);
        view.descriptor().stands_for.set(true_size(d));
        Some(view)
    }

    /// The class of the first chunk. Its true size is that of this class at least.
    #[must_use]
    #[inline]
    pub fn class(&self) -> Class {
        self.descriptor().class.get()
    }

    /// True bytes of the packet's memory: what an account is charged. A reference counts as its
    /// descriptor alone, but for one that stands for its frame ([`PacketBuf::share_behind`]).
    #[must_use]
    #[inline]
    pub fn true_size(&self) -> u32 {
        let d = self.descriptor();
        if d.chain.get().is_null() {
            return true_size(d);
        }
        self.true_size_of_chain()
    }

    #[cold]
    fn true_size_of_chain(&self) -> u32 {
        BufLinks::of(self.descriptor()).map(true_size).sum()
    }

    /// True bytes that live as long as this packet does: as [`PacketBuf::true_size`], and for each
    /// reference the frame that it borrows from, since that cannot be used again before. What a
    /// queue of shared packets must count, or one that is not read pins the pool.
    #[must_use]
    #[inline]
    pub fn held_size(&self) -> u32 {
        let d = self.descriptor();
        if d.chain.get().is_null() {
            return held_size(d);
        }
        self.held_size_of_chain()
    }

    #[inline(never)]
    fn held_size_of_chain(&self) -> u32 {
        BufLinks::of(self.descriptor()).map(held_size).sum()
    }

    /// Charges the packet's true size to `account`, after releasing what it was charged before.
    /// About 1 ns by the account's worker.
    ///
    /// # Errors
    /// The account is full: nothing is charged then.
    #[inline]
    pub fn charge(&mut self, account: &Account) -> Result<(), AccountFull> {
        let d = self.descriptor();
        if d.charged.get() != 0 {
            self.release_old_charge();
        }
        let size = self.true_size();
        account.charge(size)?;
        d.charged.set(size);
        d.account.set(account.id());
        Ok(())
    }

    /// A packet that is charged anew: apart, for it would cost the others registers.
    #[cold]
    fn release_old_charge(&self) {
        self.release_charge();
    }

    /// Releases exactly what was charged.
    #[inline]
    pub fn uncharge(&mut self) {
        self.release_charge();
    }

    /// Leaves its charge to another packet of the same account, where both together come to `most`
    /// at most.
    #[inline]
    pub(crate) fn bequeath_charge(&self, heir: &Descriptor, most: u32) {
        let d = self.descriptor();
        let (mine, theirs) = (d.charged.get(), heir.charged.get());
        let sum = mine.saturating_add(theirs);
        if mine != 0 && theirs != 0 && sum <= most && d.account.get() == heir.account.get() {
            d.charged.set(0);
            heir.charged.set(sum);
        }
    }

    /// Releases what it was left by others
    /// ([`PacketList::drop_burst`](crate::PacketList::drop_burst)): for a packet that is handed
    /// out, to be kept for any time by its new owner.
    #[inline]
    pub fn keep_own_charge(&mut self) {
        let (d, own) = (self.descriptor(), self.true_size());
        let charged = d.charged.get();
        if charged > own {
            d.charged.set(own);
            account::release(d.account.get(), charged - own);
        }
    }

    #[inline]
    fn release_charge(&self) {
        let d = self.descriptor();
        let charged = d.charged.get();
        if charged != 0 {
            d.charged.set(0);
            account::release(d.account.get(), charged);
        }
    }
}

impl Drop for PacketBuf {
    #[inline]
    fn drop(&mut self) {
        self.release_charge();
        let d = self.descriptor();
        if d.chain.get().is_null() {
            release_one(d);
        } else {
            release_chain(d);
        }
    }
}

impl core::fmt::Debug for PacketBuf {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "PacketBuf({} bytes in {} chunks)", self.len(), self.chunk_count())
    }
}

/// The descriptors of a chain, from one on. The caller owns the chain for as long as it walks.
pub(crate) struct BufLinks<'a>(Option<&'a Descriptor>);

impl<'a> BufLinks<'a> {
    pub(crate) fn of(first: &'a Descriptor) -> Self {
        Self(Some(first))
    }
}

impl<'a> Iterator for BufLinks<'a> {
    type Item = &'a Descriptor;

    #[inline]
    fn next(&mut self) -> Option<&'a Descriptor> {
        let d = self.0?;
        // SAFETY: a chain's descriptors belong to the owner of its head, which is borrowed for
        // `'a`.
        self.0 = unsafe { d.chain.get().as_ref() };
        Some(d)
    }
}

/// The bytes of one chunk.
#[inline]
pub(crate) fn chunk_bytes(d: &Descriptor) -> &[u8] {
    // SAFETY: every setter of `off` and `len` keeps them within the class's frame (references:
    // within the range that they were made of). There is no writer while the borrow lasts: writing
    // needs `&mut` of the only owner.
    unsafe { slice::from_raw_parts(d.frame.get().add(d.off.get() as usize), d.len.get() as usize) }
}

/// The bytes of one chunk for writing.
///
/// # Safety
/// The chunk is exclusive, and its packet mutably borrowed for `'a`.
#[inline]
#[expect(clippy::mut_from_ref, reason = "the caller holds the packet's `&mut`, as documented")]
pub(crate) unsafe fn chunk_bytes_mut(d: &Descriptor) -> &mut [u8] {
    debug_assert!(is_exclusive(d), "a mutable slice of shared bytes");
    // SAFETY: as in `chunk_bytes`; exclusiveness is guaranteed by the caller.
    unsafe {
        slice::from_raw_parts_mut(d.frame.get().add(d.off.get() as usize), d.len.get() as usize)
    }
}

/// The first `n` bytes of a chunk for writing.
///
/// # Safety
/// The chunk has them, its handle owns all before their end ([`owns_before`]), and its packet is
/// mutably borrowed for `'a`.
#[inline]
#[expect(clippy::mut_from_ref, reason = "the caller holds the packet's `&mut`, as documented")]
unsafe fn front_bytes_mut(d: &Descriptor, n: usize) -> &mut [u8] {
    debug_assert!(owns_before(d, d.off.get() as usize + n), "a mutable slice of shared bytes");
    // SAFETY: as in `chunk_bytes`; the caller guarantees that no other handle sees these bytes.
    unsafe { slice::from_raw_parts_mut(d.frame.get().add(d.off.get() as usize), n) }
}

/// Whether the chunk's owner may write all bytes of the frame before `end`: no reference sees them.
#[inline]
pub(crate) fn owns_before(d: &Descriptor, end: usize) -> bool {
    d.class.get() != Class::Reference && (d.refs.is_sole() || end <= d.front.load(Relaxed) as usize)
}

/// Whether the chunk's owner may write: it has a frame, and no reference exists.
#[inline]
pub(crate) fn is_exclusive(d: &Descriptor) -> bool {
    d.class.get() != Class::Reference && d.refs.is_sole()
}

/// Bytes of the frame behind a chunk.
#[inline]
pub(crate) fn frame_bytes(d: &Descriptor) -> usize {
    match d.class.get() {
        Class::Small => SMALL_BYTES,
        Class::Frame => 2048 << (d.home.get() / LARGE_FRAMES),
        Class::Super => SUPER_BYTES,
        Class::Reference => 0,
    }
}

/// Spare bytes behind a chunk's last.
#[inline]
pub(crate) fn tailroom(d: &Descriptor) -> usize {
    if is_exclusive(d) { frame_bytes(d) - (d.off.get() + d.len.get()) as usize } else { 0 }
}

#[inline]
fn true_size(d: &Descriptor) -> u32 {
    if d.flags.get() & STANDS_IN != 0 {
        return d.stands_for.get();
    }
    (frame_bytes(d) + size_of::<Descriptor>()) as u32
}

#[inline]
fn held_size(d: &Descriptor) -> u32 {
    if d.class.get() == Class::Reference { held_size_of_reference(d) } else { true_size(d) }
}

#[inline(never)]
fn held_size_of_reference(d: &Descriptor) -> u32 {
    let owner = owner_of(d).filter(|_| d.flags.get() & STANDS_IN == 0);
    true_size(d) + owner.map_or(0, true_size)
}

/// In a reference: the descriptor of the frame that it borrows.
#[inline]
fn owner_of(d: &Descriptor) -> Option<&Descriptor> {
    // SAFETY: a reference's owner is valid: the reference counts as one of its owners. Of what is
    // not atomic in it only what is constant after the start is read.
    unsafe { d.owner.get().as_ref() }.filter(|_| d.class.get() == Class::Reference)
}

/// A reference to `len` bytes from `from` of the chunk `d`, as a packet.
pub(crate) fn reference_to(pool: &Pool, d: &Descriptor, from: u32, len: u32) -> Option<PacketBuf> {
    let reference = pool.take(Class::Reference)?;
    let owner = owner_of(d).unwrap_or_else(|| {
        // A handle that sees this part of the frame: none of it is its handle's own any more.
        d.front.store(0, Relaxed);
        d
    });
    owner.refs.share();
    borrow(reference.descriptor(), owner, d, from, len);
    Some(reference)
}

/// Names what a fresh reference, counted among its owners, borrows of `owner`: `len` bytes from
/// `from` of the chunk `d`.
#[inline]
fn borrow(reference: &Descriptor, owner: &Descriptor, d: &Descriptor, from: u32, len: u32) {
    reference.owner.set(owner);
    reference.frame.set(d.frame.get());
    reference.off.set(d.off.get() + from);
    reference.len.set(len);
    reference.total.set(len);
}

/// Puts `fresh`, one chunk, and `tail`, one chunk, behind `chunk` into its chain.
///
/// # Safety
/// The caller owns the chain that `chunk` is part of; that chain owns both from now on.
pub(crate) unsafe fn splice_behind(
    chunk: &Descriptor,
    fresh: PacketBuf,
    tail: Option<PacketBuf>,
) -> &Descriptor {
    let following = chunk.chain.get();
    let fresh = fresh.into_descriptor();
    chunk.chain.set(fresh);
    // SAFETY: given up by its handle just above, so it is live and the caller's.
    let fresh = unsafe { &*fresh };
    let last = match tail {
        None => fresh,
        Some(tail) => {
            let tail = tail.into_descriptor();
            fresh.chain.set(tail);
            // SAFETY: as above.
            unsafe { &*tail }
        }
    };
    last.chain.set(following);
    fresh
}

/// Takes the `count` chunks behind `chunk` out of its chain and gives them back. The caller owns
/// the chain, and guarantees that it has so many.
pub(crate) fn release_following(chunk: &Descriptor, count: usize) {
    if count == 0 {
        return;
    }
    let first = chunk.chain.get();
    let Some(last) = BufLinks::of(chunk).nth(count) else { return };
    chunk.chain.set(last.chain.replace(core::ptr::null()));
    release_chain(first);
}

/// Gives back a chain, one descriptor after the other.
#[cold]
fn release_chain(mut at: *const Descriptor) {
    // SAFETY: the caller gives up a chain that it owns; each link is read before its descriptor
    // goes home.
    while let Some(d) = unsafe { at.as_ref() } {
        at = d.chain.replace(core::ptr::null());
        release_one(d);
    }
}

/// Gives up one ownership of a descriptor; the last one sends it home.
#[inline]
fn release_one(d: &Descriptor) {
    if d.class.get() == Class::Reference {
        release_reference(d);
    } else {
        release_frame(d);
    }
}

#[inline(never)]
fn release_reference(d: &Descriptor) {
    // SAFETY: the owner is valid until this reference's count is given up, just below. A descriptor
    // that is home names no owner, so that this can happen once only.
    let owner = unsafe { d.owner.replace(core::ptr::null()).as_ref() };
    go_home(d);
    if let Some(owner) = owner {
        release_frame(owner);
    }
}

#[inline]
fn release_frame(d: &Descriptor) {
    if d.refs.release() {
        go_home(d);
    }
}

#[inline]
fn go_home(d: &Descriptor) {
    match home::of_slot(d.home.get() & !LARGE_FRAMES) {
        Some(home) => home.give(d),
        // A home is unregistered only when all its descriptors are back.
        None => debug_assert!(false, "a descriptor outlived its home"),
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
