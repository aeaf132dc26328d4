//! What a packet carries beside its bytes: layers, interface, hash, checksum state, virtio header.

use floodwall_base::{IfIndex, Instant};

use crate::buf::PacketBuf;
use crate::descriptor::{CHECKSUM_MASK, CHECKSUM_SHIFT, Descriptor, LINE1_WRITTEN, LINK_GROUP};

/// What is known of the transport checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ChecksumState {
    /// Nothing: the reader of the packet verifies.
    #[default]
    Unverified,
    /// The device verified it.
    Verified,
    /// The field holds the pseudo header's sum only: the packet never crossed a wire, and
    /// the device that puts it on one completes the sum.
    Partial,
}

/// How a GSO frame is to be cut: the virtio network header's words (OASIS virtio 1.2, 5.1.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offload {
    /// virtio's `gso_type`: 0 none, 1 TCP over IPv4, 4 TCP over IPv6, 5 UDP.
    pub gso_type: u8,
    /// virtio's flags: 1 needs checksum, 2 data is valid.
    pub flags: u8,
    /// Bytes of all headers together.
    pub header_len: u16,
    /// Payload bytes of each piece.
    pub gso_size: u16,
    /// Where summing starts, from the frame's first byte.
    pub checksum_start: u16,
    /// Where the sum is stored, from `checksum_start`.
    pub checksum_offset: u16,
}

/// The first chunk `d` was used up by a trim that took `n` bytes from later ones: layers count from
/// the first frame's start, and its offset is not enough for that.
#[cold]
pub(crate) fn layers_move_down(d: &Descriptor, n: u32) {
    let n = u16::try_from(n).unwrap_or(u16::MAX);
    for layer in [&d.l3, &d.l4, &d.payload] {
        layer.set(layer.get().saturating_sub(n));
    }
}

impl PacketBuf {
    /// The interface that the packet came from or goes to.
    #[must_use]
    #[inline]
    pub fn iface(&self) -> IfIndex {
        IfIndex(self.descriptor().iface.get())
    }

    /// Names the interface.
    #[inline]
    pub fn set_iface(&mut self, iface: IfIndex) {
        self.descriptor().iface.set(iface.0);
    }

    /// The keyed flow hash, 0 where not known.
    #[must_use]
    #[inline]
    pub fn flow_hash(&self) -> u32 {
        self.descriptor().hash.get()
    }

    /// Stores the keyed flow hash.
    #[inline]
    pub fn set_flow_hash(&mut self, hash: u32) {
        self.descriptor().hash.set(hash);
    }

    /// Where the network header starts, from the packet's first byte now.
    #[must_use]
    #[inline]
    pub fn l3(&self) -> usize {
        let d = self.descriptor();
        (u32::from(d.l3.get())).saturating_sub(d.off.get()) as usize
    }

    /// Where the transport header starts, from the packet's first byte now.
    #[must_use]
    #[inline]
    pub fn l4(&self) -> usize {
        let d = self.descriptor();
        (u32::from(d.l4.get())).saturating_sub(d.off.get()) as usize
    }

    /// Where the payload starts, from the packet's first byte now.
    #[must_use]
    #[inline]
    pub fn payload(&self) -> usize {
        let d = self.descriptor();
        (u32::from(d.payload.get())).saturating_sub(d.off.get()) as usize
    }

    /// Stores where the layers start, from the packet's first byte now. Kept from the frame's
    /// start, so that pulling or pushing a header moves nothing. Headers are in the first 64 KiB of
    /// a frame; an offset beyond is kept as the largest that fits.
    #[inline]
    pub fn set_layers(&mut self, l3: usize, l4: usize, payload: usize) {
        let d = self.descriptor();
        let off = d.off.get() as usize;
        if off | l3 | l4 | payload >= 1 << 15 {
            return self.set_far_layers(l3, l4, payload);
        }
        // Two numbers of 15 bits have a sum of 16.
        d.l3.set((off + l3) as u16);
        d.l4.set((off + l4) as u16);
        d.payload.set((off + payload) as u16);
    }

    /// Layers of a GSO frame, or none: what does not fit is kept as the largest that does.
    #[cold]
    fn set_far_layers(&mut self, l3: usize, l4: usize, payload: usize) {
        let d = self.descriptor();
        let off = d.off.get() as usize;
        let at = |n: usize| u16::try_from(off.saturating_add(n)).unwrap_or(u16::MAX);
        d.l3.set(at(l3));
        d.l4.set(at(l4));
        d.payload.set(at(payload));
    }

    /// What is known of the transport checksum.
    #[must_use]
    #[inline]
    pub fn checksum_state(&self) -> ChecksumState {
        match (self.descriptor().flags.get() & CHECKSUM_MASK) >> CHECKSUM_SHIFT {
            1 => ChecksumState::Verified,
            2 => ChecksumState::Partial,
            _ => ChecksumState::Unverified,
        }
    }

    /// Stores what is known of the transport checksum.
    #[inline]
    pub fn set_checksum_state(&mut self, state: ChecksumState) {
        let bits = match state {
            ChecksumState::Unverified => 0,
            ChecksumState::Verified => 1,
            ChecksumState::Partial => 2,
        };
        let flags = &self.descriptor().flags;
        flags.set(flags.get() & !CHECKSUM_MASK | bits << CHECKSUM_SHIFT);
    }

    /// Whether the frame's link destination was a group or the broadcast address.
    #[must_use]
    #[inline]
    pub fn is_link_group(&self) -> bool {
        self.descriptor().flags.get() & LINK_GROUP != 0
    }

    /// Stores whether the frame's link destination was a group or the broadcast address.
    #[inline]
    pub fn set_link_group(&mut self, group: bool) {
        let flags = &self.descriptor().flags;
        let rest = flags.get() & !LINK_GROUP;
        flags.set(if group { rest | LINK_GROUP } else { rest });
    }

    /// When the device received it, where the device has timestamps.
    #[must_use]
    pub fn timestamp(&self) -> Option<Instant> {
        let d = self.descriptor();
        let at = if d.flags.get() & LINE1_WRITTEN != 0 { d.timestamp.get() } else { 0 };
        (at != 0).then(|| Instant::from_nanos(at))
    }

    /// Stores when the device received it.
    pub fn set_timestamp(&mut self, at: Instant) {
        self.use_line1();
        self.descriptor().timestamp.set(at.as_nanos());
    }

    /// Bytes to which it is cut when it leaves, where its path carries less than its link.
    #[must_use]
    #[inline]
    pub fn path_mtu(&self) -> Option<u16> {
        let d = self.descriptor();
        let said = if d.flags.get() & LINE1_WRITTEN != 0 { d.path_mtu.get() } else { 0 };
        (said != 0).then_some(said)
    }

    /// Stores what its path carries; 0 forgets it.
    pub fn set_path_mtu(&mut self, bytes: u16) {
        self.use_line1();
        self.descriptor().path_mtu.set(bytes);
    }

    /// The virtio header, where one came along or is wanted.
    #[must_use]
    pub fn offload(&self) -> Option<Offload> {
        let d = self.descriptor();
        let used =
            d.flags.get() & LINE1_WRITTEN != 0 && (d.gso_type.get() != 0 || d.gso_flags.get() != 0);
        used.then(|| Offload {
            gso_type: d.gso_type.get(),
            flags: d.gso_flags.get(),
            header_len: d.header_len.get(),
            gso_size: d.gso_size.get(),
            checksum_start: d.checksum_start.get(),
            checksum_offset: d.checksum_offset.get(),
        })
    }

    /// Stores a virtio header. Its offsets count from the frame's first byte.
    pub fn set_offload(&mut self, offload: Offload) {
        self.use_line1();
        let d = self.descriptor();
        d.gso_type.set(offload.gso_type);
        d.gso_flags.set(offload.flags);
        d.header_len.set(offload.header_len);
        d.gso_size.set(offload.gso_size);
        d.checksum_start.set(offload.checksum_start);
        d.checksum_offset.set(offload.checksum_offset);
    }

    /// Copies all metadata of `from`; this packet puts `n` more bytes before its first one. The
    /// charge apart.
    pub(crate) fn inherit(&mut self, from: &Self, n: usize) {
        let old = from.descriptor();
        if old.l3.get() | old.l4.get() | old.payload.get() != 0 {
            self.set_layers(from.l3() + n, from.l4() + n, from.payload() + n);
        }
        let to = self.descriptor();
        to.iface.set(old.iface.get());
        to.hash.set(old.hash.get());
        to.account.set(old.account.get());
        to.flags.set(old.flags.get());
        if old.flags.get() & LINE1_WRITTEN != 0 {
            to.timestamp.set(old.timestamp.get());
            to.gso_type.set(old.gso_type.get());
            to.gso_flags.set(old.gso_flags.get());
            to.header_len.set(old.header_len.get());
            to.gso_size.set(old.gso_size.get());
            to.checksum_start.set(old.checksum_start.get());
            to.checksum_offset.set(old.checksum_offset.get());
            to.path_mtu.set(old.path_mtu.get());
        }
    }

    /// Forgets the virtio header and the checksum state: the packet is being made anew.
    pub fn clear_offload(&mut self) {
        self.set_checksum_state(ChecksumState::Unverified);
        if self.descriptor().flags.get() & LINE1_WRITTEN != 0 {
            self.set_offload(Offload::default());
        }
    }

    /// Line 1 is never cleared at allocation; its first use clears it.
    fn use_line1(&mut self) {
        let d = self.descriptor();
        if d.flags.get() & LINE1_WRITTEN == 0 {
            d.flags.set(d.flags.get() | LINE1_WRITTEN);
            d.timestamp.set(0);
            d.gso_type.set(0);
            d.gso_flags.set(0);
            d.path_mtu.set(0);
        }
    }
}
