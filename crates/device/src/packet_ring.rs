//! `PacketRing`: memory that the kernel fills with frames (TPACKET_V3), walked block by block.
//!
//! Called by `af_packet.rs`. Invariant: a block is read only while user space owns it (its status
//! word, loaded with acquire), and returned with release once its last frame was read. Every offset
//! in a block is checked against the block's length before use. Reading: the kernel's
//! `Documentation/networking/packet_mmap.rst`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::vnet::VNET_BYTES;

/// Offset of the status word in a block.
const STATUS_AT: usize = core::mem::offset_of!(libc::tpacket_block_desc, hdr)
    + core::mem::offset_of!(libc::tpacket_hdr_v1, block_status);

/// Offset of the number of frames in a block.
const COUNT_AT: usize = core::mem::offset_of!(libc::tpacket_block_desc, hdr)
    + core::mem::offset_of!(libc::tpacket_hdr_v1, num_pkts);

/// The mapped receive ring of a packet socket (TPACKET_V3).
#[derive(Debug)]
pub(crate) struct PacketRing {
    memory: NonNull<u8>,
    block_bytes: usize,
    blocks: usize,
    /// The block that is read next.
    block: usize,
    /// Where in it: the next frame's offset, and how many frames are left.
    cursor: Option<(usize, u32)>,
}

// SAFETY: the mapping has one owner, which may move between threads; the status words synchronize
// with the kernel.
unsafe impl Send for PacketRing {}

/// One frame in the ring.
pub(crate) struct RingFrame<'a> {
    /// Its bytes, as many as fitted.
    pub(crate) bytes: &'a [u8],
    /// Its bytes on the wire.
    pub(crate) wire_len: usize,
    /// The virtio header in front of it.
    pub(crate) vnet: [u8; VNET_BYTES],
    /// The frame's status as set by the kernel: `TP_STATUS_*`.
    pub(crate) status: u32,
    /// The VLAN tag that was taken out: protocol and tag.
    pub(crate) vlan: Option<(u16, u16)>,
}

impl PacketRing {
    /// Bytes of all blocks.
    pub(crate) const fn bytes(&self) -> usize {
        self.block_bytes * self.blocks
    }

    /// Requests a ring of `blocks` blocks that are handed over after at most `timeout_millis`, and
    /// maps it. The socket's version and virtio header are set before.
    pub(crate) fn map(
        socket: BorrowedFd<'_>,
        block_bytes: usize,
        blocks: usize,
        timeout_millis: u32,
    ) -> io::Result<Self> {
        // Frames of a version 3 ring have no fixed size; the kernel checks only that they fit.
        let frame_bytes = 2048;
        let request = libc::tpacket_req3 {
            tp_block_size: block_bytes as libc::c_uint,
            tp_block_nr: blocks as libc::c_uint,
            tp_frame_size: frame_bytes as libc::c_uint,
            tp_frame_nr: (block_bytes / frame_bytes * blocks) as libc::c_uint,
            tp_retire_blk_tov: timeout_millis,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        crate::socket::set_option(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new shared mapping of the ring that was made just above, at any address.
        let memory = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                block_bytes * blocks,
                protection,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { memory, block_bytes, blocks, block: 0, cursor: None })
    }

    /// Whether a frame waits.
    pub(crate) fn is_ready(&self) -> bool {
        self.cursor.is_some() || self.is_ours()
    }

    /// Frames in the current block, which the kernel may still be filling.
    pub(crate) fn filled(&self) -> u32 {
        self.word(COUNT_AT).load(Ordering::Relaxed)
    }

    /// Passes the oldest frame to `read`, which returns whether it is done with it; then advances.
    /// `None` where no frame waits.
    pub(crate) fn with_next<R>(
        &mut self,
        read: impl FnOnce(RingFrame<'_>) -> (R, bool),
    ) -> Option<R> {
        let (offset, left) = self.cursor.or_else(|| self.enter_block())?;
        let Some((frame, next)) = self.frame_at(offset) else {
            // The kernel never writes such a block: skip the rest of it.
            self.leave_block();
            return None;
        };
        let (result, is_done) = read(frame);
        if !is_done {
            return Some(result);
        }
        if left > 1 && next > 0 {
            self.cursor = Some((offset + next, left - 1));
        } else {
            self.leave_block();
        }
        Some(result)
    }

    fn is_ours(&self) -> bool {
        self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// The first frame of the current block, where it is ours.
    fn enter_block(&mut self) -> Option<(usize, u32)> {
        if !self.is_ours() {
            return None;
        }
        let at = core::mem::offset_of!(libc::tpacket_block_desc, hdr);
        // SAFETY: every block begins with its description, and this block is ours.
        let head = unsafe { self.block_start().add(at).cast::<libc::tpacket_hdr_v1>().read() };
        if head.num_pkts == 0 {
            self.leave_block();
            return None;
        }
        self.cursor = Some((head.offset_to_first_pkt as usize, head.num_pkts));
        self.cursor
    }

    /// Gives the current block back.
    fn leave_block(&mut self) {
        self.cursor = None;
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.block = (self.block + 1) % self.blocks;
    }

    /// The frame with its header at `offset` of the current block, and the offset to the next.
    fn frame_at(&self, offset: usize) -> Option<(RingFrame<'_>, usize)> {
        let end = offset.checked_add(size_of::<libc::tpacket3_hdr>())?;
        if end > self.block_bytes || !offset.is_multiple_of(align_of::<libc::tpacket3_hdr>()) {
            return None;
        }
        // SAFETY: within the block, which is ours, and aligned: both were checked above.
        let head = unsafe { self.block_start().add(offset).cast::<libc::tpacket3_hdr>().read() };
        let start = offset + usize::from(head.tp_mac);
        let len = head.tp_snaplen as usize;
        if start.checked_add(len)? > self.block_bytes || start < end + VNET_BYTES {
            return None;
        }
        // SAFETY: within the block, as checked above; it is ours for as long as `self` is
        // borrowed, since only `leave_block` gives it back.
        let (bytes, vnet) = unsafe {
            let bytes = core::slice::from_raw_parts(self.block_start().add(start), len);
            (bytes, self.block_start().add(start - VNET_BYTES).cast::<[u8; VNET_BYTES]>().read())
        };
        let tagged = head.tp_status & libc::TP_STATUS_VLAN_VALID != 0;
        let protocol = match head.tp_status & libc::TP_STATUS_VLAN_TPID_VALID {
            0 => 0x8100,
            _ => head.hv1.tp_vlan_tpid,
        };
        let vlan = tagged.then_some((protocol, head.hv1.tp_vlan_tci as u16));
        let wire_len = head.tp_len as usize;
        let frame = RingFrame { bytes, wire_len, vnet, status: head.tp_status, vlan };
        Some((frame, head.tp_next_offset as usize))
    }

    fn block_start(&self) -> *mut u8 {
        // SAFETY: `block < blocks`, so this stays within the mapping.
        unsafe { self.memory.as_ptr().add(self.block * self.block_bytes) }
    }

    fn status(&self) -> &AtomicU32 {
        self.word(STATUS_AT)
    }

    /// A word of the current block's description.
    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: `at` is one of the two offsets above: within the block and aligned to four bytes
        // (blocks are pages). While the kernel may write, both are accessed atomically only.
        unsafe { &*self.block_start().add(at).cast::<AtomicU32>() }
    }
}

impl Drop for PacketRing {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length, and no borrow of it remains.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.block_bytes * self.blocks) };
    }
}
