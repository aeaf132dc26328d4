//! Fragmentation of locally sent packets that exceed the MTU of their link or path: all or nothing.
//!
//! Called by `tx.rs` at the last moment, for a packet that has its IP header and a link address: a
//! datagram that waits for a neighbour takes one place in that queue, however many fragments it
//! will be. A path MTU below the link's is carried with the packet. Invariants: each fragment
//! counts as an originated packet in the ledger; identifications come from the secret random
//! source, one draw a packet; a TCP segment is never cut (RFC 9293 section 3.7.5). Not here: the
//! cutting itself (`floodwall_ip::fragment`).

use floodwall_base::{DropReason, IfIndex, MacAddr};
use floodwall_ip::fragment;
use floodwall_packet::{ChecksumState, PacketBuf, PacketList};
use floodwall_wire::IpProtocol;

use crate::ip::ip_family::IpFamily;
use crate::ip::partial;
use crate::round_context::RoundContext;
use crate::stack::Stack;

/// The MTU that applies to a packet, over a link that carries `link` bytes.
#[inline]
pub(crate) fn mtu(packet: &PacketBuf, link: u32) -> u32 {
    packet.path_mtu().map_or(link, |path| link.min(path.into()))
}

/// Whether an IP packet of ours without options or extension headers is a TCP segment.
fn is_segment<A: IpFamily>(packet: &PacketBuf) -> bool {
    let at = if A::BITS == 32 { 9 } else { 6 };
    packet.first().get(at).is_some_and(|protocol| *protocol == IpProtocol::TCP.0)
}

impl Stack {
    /// Fragments an IP packet to `mtu` bytes and transmits the fragments: in frames between
    /// `stations` (source, destination), or bare where the link has none.
    #[cold]
    pub(crate) fn depart_cut<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        mtu: u32,
        stations: Option<(MacAddr, MacAddr)>,
    ) {
        let Some(mut fragments) = self.cut::<A>(cx, packet, mtu) else { return };
        while let Some(fragment) = fragments.pop_front() {
            match stations {
                Some((from, to)) => self.frame::<A>(cx, fragment, from, to, None),
                None => self.depart(cx, fragment),
            }
        }
    }

    /// Transmits an IP packet along a path that carries `mtu` bytes, independent of the link's own
    /// MTU.
    pub(crate) fn transmit_within<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        mut packet: PacketBuf,
        iface: IfIndex,
        next_hop: A,
        mtu: u32,
    ) {
        let interface = self.interfaces.get(usize::from(iface.0));
        let link = interface.map_or(mtu, |i| i.mtu_of(A::BITS == 32));
        if packet.len() > mtu as usize && mtu < link {
            packet.set_path_mtu(u16::try_from(mtu).unwrap_or(u16::MAX));
        }
        self.transmit(cx, packet, iface, next_hop, None);
    }

    /// The fragments of an IP packet; `None` where it could not be fragmented, and was dropped.
    fn cut<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        mtu: u32,
    ) -> Option<PacketList> {
        let mut packet = packet;
        if is_segment::<A>(&packet) {
            // The path became narrower while it waited for a neighbour: its connection follows, and
            // sends it again in a size that fits.
            self.stats.counters.count(A::FRAG_FAILS);
            self.drop_output::<A>(packet, DropReason::PacketTooBig);
            return None;
        }
        if packet.checksum_state() == ChecksumState::Partial {
            partial::finish(&mut packet);
        }
        let id = cx.random.secret.next_u32();
        let counters = &mut self.stats.counters;
        let fragments = match fragment::cut::<A>(cx.pool, packet, mtu as usize, id) {
            Ok(fragments) => fragments,
            Err((packet, reason)) => {
                counters.count(A::FRAG_FAILS);
                self.drop_output::<A>(packet, reason);
                return None;
            }
        };
        let count = fragments.len() as u64;
        counters.count(A::FRAG_OKS);
        counters.add(A::FRAG_CREATES, count);
        self.stats.outcomes.originated += count.saturating_sub(1);
        Some(fragments)
    }
}
