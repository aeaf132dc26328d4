//! Answers that come in fragments, checked without reassembly.
//!
//! Used by `honest.rs`. A fragment's bytes go into a sum and a count, and the first one's head is
//! kept: that is all that a checksum, a length and a stamp need. Invariants: [`OPEN_ANSWERS`]
//! answers are under way at most, the oldest goes first; an answer with a hole or an overlap is
//! never taken as complete, since its byte count differs. Reading: RFC 791 section 3.2, RFC 8200
//! section 4.5. Not here: a host's reassembly, which must withstand attackers (`ip`).
//!
//! # Under flood
//! Reachable by any host that can send to the client. Bound: [`OPEN_ANSWERS`] entries of a fixed
//! size. Worst work per packet: a look at each entry, a sum over the packet.

use core::net::IpAddr;

use floodwall_checksum::InternetSum;
use floodwall_packet::PacketBuf;
use floodwall_wire::{IpProtocol, UdpHeader, udp};

use crate::seen::SeenIp;
use crate::stamp::STAMP_BYTES;
use crate::template::pseudo_header;

/// Answers under way at a time.
const OPEN_ANSWERS: usize = 64;
/// Bytes that are kept of an answer.
const KEPT_HEAD: usize = udp::HEADER_LEN + STAMP_BYTES;

/// An answer under way.
#[derive(Clone, Copy)]
struct OpenSpread {
    from: IpAddr,
    to: IpAddr,
    id: u32,
    /// Bytes that have come.
    bytes: usize,
    /// Bytes that there are; zero while that is not known.
    total: usize,
    sum: InternetSum,
    head: Option<[u8; KEPT_HEAD]>,
}

/// A whole answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct JoinedGroups {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    pub(crate) src_port: u16,
    pub(crate) dst_port: u16,
    /// What the datagram begins with.
    pub(crate) payload: [u8; STAMP_BYTES],
    /// Whether length and checksum are right.
    pub(crate) verified: bool,
}

/// Fragmented answers that are being checked.
pub(crate) struct JoiningSpreads {
    open: [Option<OpenSpread>; OPEN_ANSWERS],
    /// The place that is taken next.
    next: usize,
}

impl JoiningSpreads {
    pub(crate) const fn new() -> Self {
        Self { open: [None; OPEN_ANSWERS], next: 0 }
    }

    /// Takes a fragment; gives the answer that it completes.
    pub(crate) fn input(&mut self, packet: &PacketBuf, ip: &SeenIp<'_>) -> Option<JoinedGroups> {
        let place = ip.place.filter(|place| place.protocol == IpProtocol::UDP)?;
        let len = ip.body_len().checked_sub(place.skip)?;
        let at = self.find(ip, place.id);
        let open = self.open.get_mut(at)?;
        let entry = open.get_or_insert(OpenSpread {
            from: ip.src_addr,
            to: ip.dst_addr,
            id: place.id,
            bytes: 0,
            total: 0,
            sum: InternetSum::ZERO,
            head: None,
        });
        entry.bytes += len;
        entry.sum = entry.sum.add(ip.sum_behind(packet, place.skip));
        if place.offset == 0 {
            entry.head = ip.head.get(place.skip..).and_then(|b| b.first_chunk().copied());
        }
        if !place.more {
            entry.total = place.offset + len;
        }
        if entry.total == 0 || entry.bytes < entry.total {
            return None;
        }
        open.take()?.judge()
    }

    /// Where this answer is, or may begin.
    fn find(&mut self, ip: &SeenIp<'_>, id: u32) -> usize {
        let is = |open: &Option<OpenSpread>| {
            open.is_some_and(|o| (o.id, o.from, o.to) == (id, ip.src_addr, ip.dst_addr))
        };
        if let Some(at) = self.open.iter().position(is) {
            return at;
        }
        let at = self.next;
        self.next = (at + 1) % OPEN_ANSWERS;
        if let Some(oldest) = self.open.get_mut(at) {
            *oldest = None;
        }
        at
    }
}

impl OpenSpread {
    fn judge(self) -> Option<JoinedGroups> {
        let head = self.head?;
        let udp = UdpHeader::parse(&head, self.total).ok()?;
        let pseudo = pseudo_header(self.from, self.to, IpProtocol::UDP, self.total);
        let right = pseudo.add(self.sum).verifies() || udp.checksum().is_none();
        Some(JoinedGroups {
            from: self.from,
            to: self.to,
            src_port: udp.src_port(),
            dst_port: udp.dst_port(),
            payload: *head.last_chunk()?,
            verified: right && self.bytes == self.total && udp.len() == self.total,
        })
    }
}
