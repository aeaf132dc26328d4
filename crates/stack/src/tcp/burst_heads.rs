//! `BurstHeads`: the headers that the network layer put before the first segment of a run
//! (segmentation in software, as GSO does it), for those behind it that are as long.
//!
//! Called by `tcp.rs` for a run (`floodwall-tcp`'s `run.rs`), once its first segment has departed.
//! Invariant: each packet is identical to the one that the ordinary way would have made. An IPv4
//! header is the same for all of them: they are as long, and what must not be fragmented has no
//! identification (RFC 6864 section 4.1). A packet without such headers, or with another length,
//! goes the ordinary way.

use floodwall_base::IfIndex;
use floodwall_packet::{PacketBuf, PacketList};
use floodwall_wire::ethernet;

use crate::ip::ip_family::IpFamily;
use crate::round_context::RoundContext;
use crate::stack::Stack;

/// A link header and an IPv6 header.
const HEADS_MAX: usize = ethernet::HEADER_LEN + 40;

/// Link and IP header of a departed segment, copied to the others of its run.
pub(super) struct BurstHeads {
    bytes: [u8; HEADS_MAX],
    len: usize,
    iface: IfIndex,
}

impl BurstHeads {
    /// Those before a segment of `len` bytes, if that is what departed last: no packet of the
    /// neighbour protocols is as long as a full segment in these headers.
    pub(super) fn of<A: IpFamily>(packet: &PacketBuf, len: usize) -> Option<Self> {
        let heads = packet.len().checked_sub(len)?;
        if heads != A::HEADER_LEN && heads != A::HEADER_LEN + ethernet::HEADER_LEN {
            return None;
        }
        let mut bytes = [0; HEADS_MAX];
        bytes.get_mut(..heads)?.copy_from_slice(packet.first().get(..heads)?);
        Some(Self { bytes, len: heads, iface: packet.iface() })
    }

    #[inline]
    fn put_before(&self, packet: &mut PacketBuf) -> Option<()> {
        let heads = self.bytes.get(..self.len)?;
        packet.prepend(self.len)?.copy_from_slice(heads);
        packet.set_iface(self.iface);
        Some(())
    }
}

impl Stack {
    /// Lets depart what is at the front of `rest` and as long as the first was: `len` bytes.
    pub(super) fn depart_alike<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        heads: &BurstHeads,
        len: usize,
        rest: &mut PacketList,
    ) {
        let mut departed = 0;
        while let Some(mut packet) = rest.pop_front() {
            if packet.len() != len || heads.put_before(&mut packet).is_none() {
                rest.push_front(packet);
                break;
            }
            departed += 1;
            self.depart(cx, packet);
        }
        self.stats.outcomes.originated += departed;
        self.stats.counters.add(A::OUT_REQUESTS, departed);
        self.stats.counters.add(A::OUT_OCTETS, departed * (len + A::HEADER_LEN) as u64);
    }
}
