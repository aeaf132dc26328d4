//! Plain packets between ends that were admitted before: they skip the network layer.
//!
//! Called by `predict.rs` for plain packets that no connection expects: SYNs, FINs, and what comes
//! out of order. They go to TCP as the general path would hand them over, which decides all the
//! rest. Invariant: a packet that is not taken goes the general way, unchanged.

use core::net::{Ipv4Addr, Ipv6Addr};

use floodwall_base::Counter;
use floodwall_packet::PacketBuf;
use floodwall_tcp::{FlowAdmission, SegmentInput};
use floodwall_wire::{IpProtocol, ipv4, ipv6, tcp};

use super::admitted_ends::HeaderAddrs;
use super::gro::{COUNTERS_V4, COUNTERS_V6};
use crate::ip::ip_family::IpFamily;
use crate::round_context::RoundContext;
use crate::stack::Stack;

impl Stack {
    /// Takes a packet with a plain IP header at `l3`, which ends at `end`, between ends that were
    /// admitted before; gives back any other.
    #[inline(never)]
    pub(super) fn tcp_from_admitted(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        (l3, end): (usize, usize),
    ) -> Result<(), PacketBuf> {
        let Some(tcp) = &self.tcp else { return Err(packet) };
        let Some(ip) = packet.first().get(l3..end) else { return Err(packet) };
        let is_v4 = ip.first() == Some(&0x45);
        let (last, ip_len) = if is_v4 { (15, ipv4::HEADER_LEN) } else { (23, ipv6::HEADER_LEN) };
        let last = ip.get(last).copied().unwrap_or(0);
        let iface = packet.iface();
        let generation = self.sockets.path_cache.generation();
        let admission = FlowAdmission { iface, generation };
        let Some(addrs) = tcp.admitted.of_packet(ip, last, admission) else {
            return Err(packet);
        };
        if ip.len() < ip_len + tcp::HEADER_LEN || packet.is_link_group() {
            return Err(packet);
        }
        match *addrs {
            HeaderAddrs::V4([a, b, c, d, e, f, g, h]) => {
                let ends = (Ipv4Addr::new(a, b, c, d), Ipv4Addr::new(e, f, g, h));
                self.tcp_plain(cx, packet, ends, [l3, l3 + ip_len, end], COUNTERS_V4);
            }
            HeaderAddrs::V6(bytes) => {
                let addr = |at: usize| {
                    let bytes = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
                    Ipv6Addr::from_bits(bytes.map_or(0, |b| u128::from_be_bytes(*b)))
                };
                let ends = (addr(0), addr(16));
                self.tcp_plain(cx, packet, ends, [l3, l3 + ip_len, end], COUNTERS_V6);
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn tcp_plain<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        ends: (A, A),
        [l3, l4, end]: [usize; 3],
        [receives, in_octets, delivers]: [Counter; 3],
    ) {
        let counters = &mut self.stats.counters;
        counters.count(receives);
        counters.add(in_octets, (packet.len() - l3) as u64);
        counters.count(delivers);
        let mut packet = packet;
        packet.truncate(end);
        let iface = packet.iface();
        let input = SegmentInput {
            src_addr: ends.0.to_ip(),
            dst_addr: ends.1.to_ip(),
            iface,
            l4,
            len: end - l4,
            mtu: self.mtu_back(cx, &packet, (ends.0, iface), l4),
            group: false,
            congestion: false,
        };
        self.tcp_segment(cx, packet, &input, (ends, l3));
    }

    /// Notes that the network layer has admitted a segment that its connection took: later ones
    /// may be predicted, and others between the same ends need not be asked about.
    #[inline]
    pub(super) fn tcp_admitted<A: IpFamily>(&mut self, input: &SegmentInput) {
        let generation = self.sockets.path_cache.generation();
        let &SegmentInput { src_addr, dst_addr, iface, .. } = input;
        let (ends, admission) = ((src_addr, dst_addr), FlowAdmission { iface, generation });
        let Some(tcp) = &self.tcp else { return };
        if tcp.set.has_admitted(src_addr, dst_addr, admission) {
            return;
        }
        if !tcp.admitted.has(ends, admission) {
            let at = usize::from(iface.0);
            let listed = self.policy.access_lists.get(at).is_some_and(Option::is_some);
            let heard = self.sockets.raw.hears(A::FAMILY, IpProtocol::TCP);
            if listed || heard || input.group {
                return;
            }
            if let Some(tcp) = &mut self.tcp {
                tcp.admitted.note(ends, admission);
            }
        }
        if let Some(tcp) = &mut self.tcp {
            tcp.set.admit(src_addr, dst_addr, admission);
        }
    }
}
