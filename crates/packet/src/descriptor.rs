//! The descriptor: the pool's metadata of one piece of memory, out of band.
//!
//! Devices, the kernel and XDP programs write into frames, headroom included, so nothing that we
//! rely on is stored there. A descriptor is 128 bytes: line 0 has all that the fast path needs,
//! line 1 is touched only where it is used and is valid only under [`LINE1_WRITTEN`].
//!
//! Rule: no code ever makes a `&mut Descriptor`. Every field is a `Cell` that only the owner of the
//! handle touches, or an atomic. That is what allows a shared reference (`refs`) of another thread
//! beside the owner's writes.

use core::cell::Cell;
use core::ptr::{self, NonNull};
use core::sync::atomic::AtomicU32;

use floodwall_sync::take_all::{Node, TakeAllLink};

use crate::refcount::RefCount;

/// Line 1 has been written by this packet's owner.
pub(crate) const LINE1_WRITTEN: u8 = 1 << 0;
/// The frame arrived for a group or for all on the link.
pub(crate) const LINK_GROUP: u8 = 1 << 1;
/// Two bits of [`crate::ChecksumState`].
pub(crate) const CHECKSUM_SHIFT: u32 = 2;
/// The bits of the checksum state.
pub(crate) const CHECKSUM_MASK: u8 = 0b11 << CHECKSUM_SHIFT;
/// A reference that counts as the frame that it borrows: the frame's handle has gone ahead.
pub(crate) const STANDS_IN: u8 = 1 << 4;

/// In `home`: frames have 4 KiB here, not 2.
pub(crate) const LARGE_FRAMES: u16 = 1 << 15;

/// Shape of the memory behind a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Class {
    /// 256 bytes: small packets that we make ourselves.
    Small = 0,
    /// 2 KiB (4 KiB by configuration): what devices fill; the UMEM's chunk.
    Frame = 1,
    /// 64 KiB and headroom: GSO frames.
    Super = 2,
    /// No memory of its own: a read-only reference to another descriptor's frame.
    Reference = 3,
}

impl Class {
    /// All classes, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Small, Self::Frame, Self::Super, Self::Reference];
}

/// The metadata of one frame or reference. The field order is the cache-line plan of the design
/// note.
#[repr(C, align(128))]
pub(crate) struct Descriptor {
    // Line 0.
    /// Next in the list that owns this packet, or on the way home.
    pub(crate) next: TakeAllLink<Self>,
    /// Next chunk of this packet.
    pub(crate) chain: Cell<*const Self>,
    /// First byte of the frame; in a reference, of the borrowed frame.
    pub(crate) frame: Cell<*mut u8>,
    /// Where this chunk's bytes start, from the frame's start.
    pub(crate) off: Cell<u32>,
    /// How many bytes this chunk has.
    pub(crate) len: Cell<u32>,
    /// Bytes of the whole packet (head only).
    pub(crate) total: Cell<u32>,
    /// True bytes charged to `account` (head only); 0 where nothing is charged.
    pub(crate) charged: Cell<u32>,
    /// The account that they are charged to.
    pub(crate) account: Cell<u32>,
    /// Owners of the frame: 1 and one per reference; or that a device has it.
    pub(crate) refs: RefCount,
    /// Offsets of the layers from the frame's start, so that pulling a header moves nothing.
    pub(crate) l3: Cell<u16>,
    pub(crate) l4: Cell<u16>,
    pub(crate) payload: Cell<u16>,
    pub(crate) flags: Cell<u8>,
    /// Constant after the start.
    pub(crate) class: Cell<Class>,
    /// Keyed flow hash, 0 where not known.
    pub(crate) hash: Cell<u32>,
    /// The interface it came from or goes to.
    pub(crate) iface: Cell<u16>,
    /// Which home it belongs to, and [`LARGE_FRAMES`]; constant after the start.
    pub(crate) home: Cell<u16>,
    // Line 1.
    pub(crate) timestamp: Cell<u64>,
    /// In a reference: the descriptor of the frame that it borrows.
    pub(crate) owner: Cell<*const Self>,
    /// In a reference that stands for its frame: that one's true bytes.
    pub(crate) stands_for: Cell<u32>,
    /// In a frame that is shared: no reference sees bytes before this place.
    pub(crate) front: AtomicU32,
    pub(crate) gso_type: Cell<u8>,
    pub(crate) gso_flags: Cell<u8>,
    pub(crate) header_len: Cell<u16>,
    pub(crate) gso_size: Cell<u16>,
    pub(crate) checksum_start: Cell<u16>,
    pub(crate) checksum_offset: Cell<u16>,
    /// Bytes that its path carries, where that is less than its link does; 0 where not known.
    pub(crate) path_mtu: Cell<u16>,
}

// loom's cells and atomics are larger.
#[cfg(not(loom))]
const _: () = assert!(size_of::<Descriptor>() == 128);
#[cfg(not(loom))]
const _: () = assert!(core::mem::offset_of!(Descriptor, timestamp) == 64);

// SAFETY: `next` is a field, reached by pointer arithmetic alone.
unsafe impl Node for Descriptor {
    #[inline]
    unsafe fn link(node: NonNull<Self>) -> NonNull<TakeAllLink<Self>> {
        // SAFETY: the caller's node is live, so its field is in bounds and not null.
        unsafe { NonNull::new_unchecked(&raw mut (*node.as_ptr()).next) }
    }
}

impl Descriptor {
    /// A descriptor at the pool's start.
    pub(crate) fn new(class: Class, home: u16, frame: *mut u8) -> Self {
        Self {
            next: TakeAllLink::new(),
            chain: Cell::new(ptr::null()),
            frame: Cell::new(frame),
            off: Cell::new(0),
            len: Cell::new(0),
            total: Cell::new(0),
            charged: Cell::new(0),
            account: Cell::new(0),
            refs: RefCount::new(),
            l3: Cell::new(0),
            l4: Cell::new(0),
            payload: Cell::new(0),
            flags: Cell::new(0),
            class: Cell::new(class),
            hash: Cell::new(0),
            iface: Cell::new(0),
            home: Cell::new(home),
            timestamp: Cell::new(0),
            owner: Cell::new(ptr::null()),
            stands_for: Cell::new(0),
            front: AtomicU32::new(0),
            gso_type: Cell::new(0),
            gso_flags: Cell::new(0),
            header_len: Cell::new(0),
            gso_size: Cell::new(0),
            checksum_start: Cell::new(0),
            checksum_offset: Cell::new(0),
            path_mtu: Cell::new(0),
        }
    }

    /// Makes line 0 that of an empty packet with bytes that will start at `off`. The link apart:
    /// each list writes it before it reads it.
    #[inline]
    pub(crate) fn reset(&self, off: u32) {
        self.chain.set(ptr::null());
        self.off.set(off);
        self.len.set(0);
        self.total.set(0);
        self.charged.set(0);
        self.l3.set(0);
        self.l4.set(0);
        self.payload.set(0);
        self.flags.set(0);
        self.hash.set(0);
        self.iface.set(0);
    }
}
