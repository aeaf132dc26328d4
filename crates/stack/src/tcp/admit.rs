//! Plain packets between ends that were admitted before: they skip the network layer.
//!
//! Called by `predict.rs` for plain packets that no connection expects: SYNs, FINs, and what comes
//! out of order. They go to TCP as the general path would hand them over, which decides all the
//! rest. Invariant: a packet that is not taken goes the general way, unchanged.

use core::net::{Ipv4Addr, Ipv6Addr};

use floodwall_base::{Counter, FlowKey, IfIndex};
use floodwall_packet::PacketBuf;
use floodwall_tcp::{AdmittedHosts, ArrivedSegment, FlowAdmission};
use floodwall_wire::{IpProtocol, ipv4, ipv6, tcp};

use super::SegmentOrigin;
use super::gro::{COUNTERS_V4, COUNTERS_V6};
use super::predict::addrs_of_plain_ip;
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
        let Some((is_v4, src_addr, dst_addr)) = addrs_of_plain_ip(ip) else { return Err(packet) };
        let admission = FlowAdmission {
            iface: packet.iface(),
            generation: self.sockets.path_cache.generation(),
        };
        let ip_len = if is_v4 { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
        let found = tcp.admitted.between(&src_addr, &dst_addr, admission);
        let is_whole = ip.len() >= ip_len + tcp::HEADER_LEN && !packet.is_link_group();
        let Some(hosts) = found.filter(|_| is_whole) else { return Err(packet) };
        let (hosts, places) = (*hosts, [l3, l3 + ip_len, end]);
        if is_v4 {
            let v4 = |addr: Ipv6Addr| Ipv4Addr::from_bits(addr.to_bits() as u32);
            let ends = (v4(src_addr), v4(dst_addr));
            self.tcp_plain(cx, packet, &hosts, (ends, places), COUNTERS_V4);
        } else {
            self.tcp_plain(cx, packet, &hosts, ((src_addr, dst_addr), places), COUNTERS_V6);
        }
        Ok(())
    }

    #[inline(always)]
    fn tcp_plain<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        hosts: &AdmittedHosts,
        (ends, [l3, l4, end]): ((A, A), [usize; 3]),
        [receives, in_octets, delivers]: [Counter; 3],
    ) {
        let counters = &mut self.stats.counters;
        counters.count(receives);
        counters.add(in_octets, (packet.len() - l3) as u64);
        counters.count(delivers);
        // Its headers are read in one go as well.
        self.burst.in_one_go += 1;
        let mut packet = packet;
        packet.truncate(end);
        let mut arrived = ArrivedSegment::NONE;
        let bytes = packet.first().get(l4..end).unwrap_or_default();
        let (mut lend, access) = (lend!(self, cx), &mut self.stats.access);
        let read = arrived.read_admitted(&mut lend, hosts, (&packet, bytes, l4), access);
        let iface = packet.iface();
        let mtu = self.mtu_back(cx, &packet, (ends.0, iface), l4);
        let origin =
            SegmentOrigin { ends, places: [l3, l4], link: (iface, mtu), is_admitted: true };
        self.tcp_segment(cx, packet, read.map(|()| &arrived), &origin);
    }

    /// Notes that the network layer has admitted a segment that its connection took: later ones
    /// may be predicted, and others between the same ends need not be asked about.
    #[inline]
    pub(super) fn tcp_admitted<A: IpFamily>(
        &mut self,
        flow: &FlowKey,
        iface: IfIndex,
        is_admitted: bool,
    ) {
        let generation = self.sockets.path_cache.generation();
        let (hosts, admission) = (AdmittedHosts::of(flow), FlowAdmission { iface, generation });
        let Some(tcp) = &self.tcp else { return };
        if tcp.set.has_admitted(&hosts, admission) {
            return;
        }
        let AdmittedHosts { src_addr, dst_addr, .. } = &hosts;
        if !is_admitted && tcp.admitted.between(src_addr, dst_addr, admission).is_none() {
            let at = usize::from(iface.0);
            let listed = self.policy.access_lists.get(at).is_some_and(Option::is_some);
            let heard = self.sockets.raw.hears(A::FAMILY, IpProtocol::TCP);
            if listed || heard {
                return;
            }
            if let Some(tcp) = &mut self.tcp {
                tcp.admitted.note(&hosts, admission);
            }
        }
        if let Some(tcp) = &mut self.tcp {
            tcp.set.admit(&hosts, admission);
        }
    }
}
