//! `ArrivalPieces`: a frame that its sender left to a card to cut, as the packets that the card
//! would have made of it.
//!
//! Called by `packet_arrival.rs`. Invariant: the frame's fields are used only where they agree with
//! its length and its description. Each piece is made from the frame, so that no piece has to be
//! kept. Checksums stay as partial as the frame's: of their sum only the length changes. Reading:
//! RFC 768; RFC 9293 section 3.1; RFC 3168 section 6.1.2; RFC 1624 section 3.

use floodwall_checksum::{Accumulator, sum};
use floodwall_packet::{Offload, PacketBuf, Pool};

use super::{LINK_ADDRESS_BYTES, LINK_BYTES, PacketArrival, moved, tag_of};
use crate::copy;
use crate::packet_ring::RingFrame;
use crate::vnet;

/// Packets of one frame: more than the kernel takes in one call (`UDP_MAX_SEGMENTS`), and than a
/// frame has of the smallest segments that it makes (48 bytes).
pub(crate) const PIECES_MAX: usize = 1400;
/// Bytes of the longest headers of a frame that is cut.
const HEADS_MAX: usize = 256;

pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
/// TCP's flags of which the last piece alone keeps the one, the first alone the other.
const FIN_PSH: u8 = 0x09;
const CWR: u8 = 0x80;

/// A GSO frame that is segmented in software, one piece at a time.
pub(super) struct ArrivalPieces {
    protocol: u8,
    is_v4: bool,
    /// Where the upper header starts, and where the text.
    l4: usize,
    heads: usize,
    /// Bytes of text of all together, and of each.
    text: usize,
    size: usize,
}

impl ArrivalPieces {
    /// Of a frame of this protocol; `None` where it contradicts its description.
    pub(super) fn of(bytes: &[u8], offload: &Offload, protocol: u8) -> Option<Self> {
        let (found_l4, is_v4) = upper(bytes, protocol)?;
        let l4 = usize::from(offload.checksum_start);
        let (field, heads) = match protocol {
            TCP => (16, l4 + usize::from(*bytes.get(l4 + 12)? >> 4) * 4),
            _ => (6, l4 + 8),
        };
        let (said, least) = match is_v4 {
            true => (word(bytes, LINK_BYTES + 2)?, 20),
            false => (40 + word(bytes, LINK_BYTES + 4)?, 40),
        };
        let text = bytes.len().checked_sub(heads)?;
        let size = usize::from(offload.gso_size);
        let found = Self { protocol, is_v4, l4, heads, text, size };
        let is_so = offload.flags & 1 != 0
            && offload.checksum_offset == field
            && found_l4.is_none_or(|found| found == l4)
            && l4 >= LINK_BYTES + least
            && heads <= HEADS_MAX
            && said == bytes.len() - LINK_BYTES
            && match protocol {
                TCP => heads >= l4 + 20,
                _ => word(bytes, l4 + 4)? == 8 + text,
            }
            && text > 0
            && size > 0
            && found.count() <= PIECES_MAX;
        is_so.then_some(found)
    }

    pub(super) const fn count(&self) -> usize {
        self.text.div_ceil(self.size)
    }

    /// The piece of this number as a packet.
    pub(super) fn piece(&self, number: usize, frame: &RingFrame<'_>, pool: &Pool) -> PacketArrival {
        let start = self.heads + number * self.size;
        let end = frame.bytes.len().min(start + self.size);
        let text = frame.bytes.get(start..end).unwrap_or_default();
        let mut heads = [0; HEADS_MAX];
        let heads = heads.get_mut(..self.heads).unwrap_or_default();
        heads.copy_from_slice(frame.bytes.get(..self.heads).unwrap_or_default());
        if self.tell(heads, number, text.len()).is_none() {
            return PacketArrival::Malformed;
        }
        let (tag, tag_len) = tag_of(frame);
        let (addresses, rest) = heads.split_at(LINK_ADDRESS_BYTES);
        let parts = [addresses, tag.get(..tag_len).unwrap_or_default(), rest, text];
        let total = self.heads + tag_len + text.len();
        match copy::assemble(pool, total, parts) {
            Some(packet) => self.describe(packet, tag_len),
            None => PacketArrival::NoBuffer,
        }
    }

    fn describe(&self, mut packet: PacketBuf, tag_len: usize) -> PacketArrival {
        let checksum_offset = if self.protocol == TCP { 16 } else { 6 };
        let checksum_start = self.l4 as u16;
        let alone = Offload { flags: 1, checksum_start, checksum_offset, ..Offload::default() };
        match vnet::describe(&mut packet, moved(alone, tag_len)) {
            true => PacketArrival::Packet(packet),
            false => PacketArrival::Malformed,
        }
    }

    /// Writes into the headers of all what one piece has of its own.
    fn tell(&self, heads: &mut [u8], number: usize, text: usize) -> Option<()> {
        let (ip, upper) =
            heads.get_mut(LINK_BYTES..)?.split_at_mut_checked(self.l4 - LINK_BYTES)?;
        let len = u16::try_from(upper.len() + text).ok()?;
        let whole = u16::try_from(upper.len() + self.text).ok()?;
        if self.protocol == TCP {
            self.tell_segment(upper, number)?;
            add_length(upper.get_mut(16..18)?, whole, len);
        } else {
            upper.get_mut(4..6)?.copy_from_slice(&len.to_be_bytes());
            add_length(upper.get_mut(6..8)?, whole, len);
        }
        let behind = ip.len() + usize::from(len);
        if self.is_v4 {
            tell_v4(ip, number, u16::try_from(behind).ok()?)
        } else {
            ip.get_mut(4..6)?.copy_from_slice(&u16::try_from(behind - 40).ok()?.to_be_bytes());
            Some(())
        }
    }

    fn tell_segment(&self, upper: &mut [u8], number: usize) -> Option<()> {
        let seq = upper.get_mut(4..8)?;
        let first = u32::from_be_bytes(*seq.first_chunk()?);
        seq.copy_from_slice(&first.wrapping_add((number * self.size) as u32).to_be_bytes());
        let flags = upper.get_mut(13)?;
        *flags &= if number + 1 < self.count() { !FIN_PSH } else { !0 };
        *flags &= if number > 0 { !CWR } else { !0 };
        Some(())
    }
}

/// Writes length, identification and checksum of an IPv4 header.
fn tell_v4(ip: &mut [u8], number: usize, len: u16) -> Option<()> {
    ip.get_mut(2..4)?.copy_from_slice(&len.to_be_bytes());
    let id = ip.get_mut(4..6)?;
    let first = u16::from_be_bytes(*id.first_chunk()?);
    id.copy_from_slice(&first.wrapping_add(number as u16).to_be_bytes());
    ip.get_mut(10..12)?.fill(0);
    let check = sum(ip).finish();
    ip.get_mut(10..12)?.copy_from_slice(&check.to_be_bytes());
    Some(())
}

/// Puts another length into the pseudo header's sum.
fn add_length(field: &mut [u8], before: u16, now: u16) {
    let mut sum = Accumulator::new();
    sum.add(field).add(&(!before).to_be_bytes()).add(&now.to_be_bytes());
    field.copy_from_slice(&(!sum.finish()).to_be_bytes());
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes: &[u8; 2] = bytes.get(at..)?.first_chunk()?;
    Some(usize::from(u16::from_be_bytes(*bytes)))
}

/// Where the upper header starts, and whether the frame is IPv4; `None` for a frame of another
/// protocol. After IPv6 extension headers its position is taken from the description.
pub(super) fn upper(bytes: &[u8], protocol: u8) -> Option<(Option<usize>, bool)> {
    let (link, ip) = bytes.split_at_checked(LINK_BYTES)?;
    match (link.get(LINK_ADDRESS_BYTES..)?, ip) {
        ([0x08, 0x00], [first, _, _, _, _, _, fragment, offset, _, found, ..])
            if first >> 4 == 4 && *found == protocol =>
        {
            let is_whole = fragment & 0x3f == 0 && *offset == 0;
            is_whole.then_some((Some(LINK_BYTES + usize::from(first & 15) * 4), true))
        }
        ([0x86, 0xdd], [first, _, _, _, _, _, found, ..]) if first >> 4 == 6 => match *found {
            found if found == protocol => Some((Some(LINK_BYTES + 40), false)),
            // Hop-by-hop options, routing, destination options.
            0 | 43 | 60 => Some((None, false)),
            _ => None,
        },
        _ => None,
    }
}
