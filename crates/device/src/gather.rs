//! Packets as lists of slices for one system call, and memory for one to arrive in.
//!
//! Called by `tun.rs` (both) and `af_packet.rs` ([`Slices`]). Invariant: nothing is allocated per
//! packet, and nothing of a packet is changed by sending it, since its bytes may be shared.

use std::io::IoSlice;

use floodwall_base::limits::CHUNKS_MAX;
use floodwall_packet::{Class, PacketBuf, Pool};

use crate::vnet::Patch;

/// The virtio header, each chunk, and a patch that may cut one chunk in two.
pub(crate) const SLICES_MAX: usize = CHUNKS_MAX + 4;

/// What one packet is to the system: a few slices in order.
pub(crate) struct Slices<'a> {
    list: [IoSlice<'a>; SLICES_MAX],
    len: usize,
}

impl<'a> Slices<'a> {
    /// No slices yet.
    pub(crate) fn new() -> Self {
        Self { list: [IoSlice::new(&[]); SLICES_MAX], len: 0 }
    }

    /// Adds `header` and the packet's bytes; how many slices there are then, or `None` where they
    /// do not fit any more.
    pub(crate) fn add(&mut self, header: &'a [u8], packet: &'a PacketBuf) -> Option<usize> {
        if self.len + 1 + packet.chunk_count() > SLICES_MAX {
            return None;
        }
        self.push(header);
        packet.chunks().for_each(|chunk| self.push(chunk));
        Some(self.len)
    }

    /// `header`, then the packet's bytes with `patch` in place.
    pub(crate) fn of(header: &'a [u8], packet: &'a PacketBuf, patch: Option<&'a Patch>) -> Self {
        let mut slices = Self::new();
        slices.push(header);
        let Some(patch) = patch else {
            packet.chunks().for_each(|chunk| slices.push(chunk));
            return slices;
        };
        let mut start = 0;
        for chunk in packet.chunks() {
            let end = start + chunk.len();
            let (from, to) = (patch.at.clamp(start, end), (patch.at + 2).clamp(start, end));
            slices.push(chunk.get(..from - start).unwrap_or_default());
            if from < to {
                let part = from - patch.at..to - patch.at;
                slices.push(patch.bytes.get(part).unwrap_or_default());
            }
            slices.push(chunk.get(to - start..).unwrap_or_default());
            start = end;
        }
        slices
    }

    /// Those of `parts` that have bytes, as far as there is room.
    pub(crate) fn from_parts(parts: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut slices = Self::new();
        parts.for_each(|part| slices.push(part));
        slices
    }

    fn push(&mut self, bytes: &'a [u8]) {
        if bytes.is_empty() {
            return;
        }
        if let Some(slot) = self.list.get_mut(self.len) {
            *slot = IoSlice::new(bytes);
            self.len += 1;
        }
    }

    pub(crate) fn as_slice(&self) -> &[IoSlice<'a>] {
        self.list.get(..self.len).unwrap_or_default()
    }
}

/// Buffers for one arriving packet of unknown length: a frame, followed by a GSO frame or more
/// frames where the device may deliver more than a frame holds. Unused buffers stay for the next
/// packet, so a small packet costs one frame and no copy.
#[derive(Debug)]
pub(crate) struct GatherBuffer {
    head: Option<PacketBuf>,
    tail: Vec<PacketBuf>,
    /// Bytes that must fit; a packet never has that many.
    wanted: usize,
    /// Whether the pool has GSO frames; read once.
    supers: Option<bool>,
}

/// What became of a packet that arrived.
pub(crate) enum GatheredFrame {
    /// Here it is.
    Whole(PacketBuf),
    /// There was no memory for it, or for the next one: it is lost.
    NoBuffer,
    /// It was longer than what the device announced: it is lost.
    Truncated,
}

impl GatherBuffer {
    /// For packets below `wanted` bytes.
    pub(crate) fn new(wanted: usize) -> Self {
        Self { head: None, tail: Vec::with_capacity(CHUNKS_MAX), wanted, supers: None }
    }

    /// Raises what must fit.
    pub(crate) fn want(&mut self, wanted: usize) {
        self.wanted = self.wanted.max(wanted);
    }

    /// Takes what is missing from the pool. False where there is no memory at all.
    pub(crate) fn refill(&mut self, pool: &Pool) -> bool {
        if self.head.is_none() {
            self.head = whole(pool, Class::Frame);
        }
        let mut missing = self.wanted.saturating_sub(self.capacity());
        while missing > 0 && self.tail.len() + 1 < CHUNKS_MAX {
            let many = missing > 2 * pool.frame_capacity();
            let chunk =
                if many && self.has_supers(pool) { whole(pool, Class::Super) } else { None };
            let Some(chunk) = chunk.or_else(|| whole(pool, Class::Frame)) else { break };
            missing = missing.saturating_sub(chunk.len());
            self.tail.push(chunk);
        }
        self.head.is_some()
    }

    fn has_supers(&mut self, pool: &Pool) -> bool {
        *self.supers.get_or_insert_with(|| pool.available().supers > 0)
    }

    /// Bytes that fit now.
    fn capacity(&self) -> usize {
        self.chunks().map(PacketBuf::len).sum()
    }

    fn chunks(&self) -> impl Iterator<Item = &PacketBuf> {
        self.head.iter().chain(&self.tail)
    }

    /// Chunks of that memory.
    pub(crate) fn count(&self) -> usize {
        usize::from(self.head.is_some()) + self.tail.len()
    }

    /// The memory, in order, to be written by the system.
    pub(crate) fn chunks_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.head.iter_mut().chain(&mut self.tail).filter_map(PacketBuf::first_mut)
    }

    /// Makes a packet of the first `len` bytes. Memory for the next packet is found first: without
    /// it this one is given up, so that the device never runs dry.
    pub(crate) fn take(&mut self, pool: &Pool, len: usize) -> GatheredFrame {
        let capacity = self.capacity();
        if len >= capacity {
            return if capacity < self.wanted {
                GatheredFrame::NoBuffer
            } else {
                GatheredFrame::Truncated
            };
        }
        let Some(next) = whole(pool, Class::Frame) else { return GatheredFrame::NoBuffer };
        let Some(mut packet) = self.head.replace(next) else { return GatheredFrame::NoBuffer };
        let mut left = len.saturating_sub(packet.len());
        packet.truncate(len);
        let mut used = 0;
        for chunk in &mut self.tail {
            if left == 0 {
                break;
            }
            let here = left.min(chunk.len());
            chunk.truncate(here);
            left -= here;
            used += 1;
        }
        for chunk in self.tail.drain(..used) {
            if packet.append(chunk).is_err() {
                return GatheredFrame::Truncated;
            }
        }
        GatheredFrame::Whole(packet)
    }
}

/// A chunk of full length, to be written.
fn whole(pool: &Pool, class: Class) -> Option<PacketBuf> {
    let mut chunk = pool.alloc(class)?;
    chunk.extend(chunk.tailroom())?;
    Some(chunk)
}

#[cfg(test)]
mod tests {
    use floodwall_packet::PoolConfig;

    use super::*;

    fn fill(landing: &mut GatherBuffer, bytes: &[u8]) {
        let mut left = bytes;
        for room in landing.chunks_mut() {
            let here = left.len().min(room.len());
            room[..here].copy_from_slice(&left[..here]);
            left = &left[here..];
        }
    }

    #[test]
    fn a_patch_replaces_two_bytes_wherever_chunks_are_cut() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let bytes: Vec<u8> = (0..20).collect();
        for piece in 1..=20 {
            let packet = pool.packet_from_chunks(bytes.chunks(piece)).unwrap();
            for at in 0..=18 {
                let patch = Patch { at, bytes: [0xaa, 0xbb] };
                let slices = Slices::of(&[0xff], &packet, Some(&patch));
                let flat: Vec<u8> =
                    slices.as_slice().iter().flat_map(|s| s.iter().copied()).collect();
                let mut expected = vec![0xff];
                expected.extend(&bytes);
                expected[1 + at..3 + at].copy_from_slice(&[0xaa, 0xbb]);
                assert_eq!(flat, expected, "pieces of {piece}, patch at {at}");
            }
        }
    }

    #[test]
    fn a_large_packet_lands_in_a_frame_and_a_super_frame_and_a_small_one_in_a_frame() {
        let config = PoolConfig { supers: 2, ..PoolConfig::default() };
        let pool = Pool::new(&config).unwrap();
        let mut landing = GatherBuffer::new(65_536);
        let bytes: Vec<u8> = (0..65_535_u32).map(|i| (i % 251) as u8).collect();
        for (len, chunks) in [(60, 1), (1792, 1), (1793, 2), (65_535, 2), (9000, 2)] {
            assert!(landing.refill(&pool));
            fill(&mut landing, &bytes[..len]);
            let GatheredFrame::Whole(packet) = landing.take(&pool, len) else { panic!("{len}") };
            let mut flat = vec![0; packet.len()];
            packet.copy_out(0, &mut flat);
            assert!(flat == bytes[..len], "{len}");
            assert_eq!(packet.chunk_count(), chunks, "{len}");
        }
    }

    #[test]
    fn without_super_frames_a_large_packet_lands_in_a_chain() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let mut landing = GatherBuffer::new(65_536);
        let bytes = vec![9; 65_535];
        assert!(landing.refill(&pool));
        fill(&mut landing, &bytes);
        let GatheredFrame::Whole(packet) = landing.take(&pool, 65_535) else { panic!() };
        assert_eq!((packet.len(), packet.chunk_count()), (65_535, 37));
        drop((packet, landing));
        assert_eq!(pool.available().frames, 8192);
    }

    #[test]
    fn an_empty_pool_loses_the_packet_and_keeps_the_memory_for_the_next() {
        let pool = Pool::new(&PoolConfig { frames: 2, ..PoolConfig::default() }).unwrap();
        let mut landing = GatherBuffer::new(1519);
        assert!(landing.refill(&pool));
        let GatheredFrame::Whole(packet) = landing.take(&pool, 60) else { panic!() };
        assert!(matches!(landing.take(&pool, 60), GatheredFrame::NoBuffer));
        assert!(landing.refill(&pool));
        drop(packet);
        assert!(matches!(landing.take(&pool, 60), GatheredFrame::Whole(_)));
        assert!(matches!(landing.take(&pool, 1792), GatheredFrame::Truncated));
    }
}
