//! Plain packets between ends that were admitted before: they skip the network layer.
//!
//! Called by `predict.rs` for plain packets that no connection expects: SYNs, FINs, and what comes
//! out of order. They go to TCP as the general path would hand them over, which decides all the
//! rest. Invariant: a packet that is not taken goes the general way, unchanged.

use floodwall_base::{Family, FlowKey};
use floodwall_packet::PacketBuf;
use floodwall_tcp::{AdmittedHosts, ArrivedSegment, FlowAdmission};
use floodwall_wire::{IpProtocol, ipv4, ipv6, tcp};

use super::arrival::SegmentOrigin;
use super::gro::{COUNTERS_V4, COUNTERS_V6};
use super::predict::addrs_of_plain_ip;
use super::shard::TcpShard;
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
        let (hosts, l4) = (*hosts, l3 + ip_len);
        let [receives, in_octets, delivers] = if is_v4 { COUNTERS_V4 } else { COUNTERS_V6 };
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
        let read = arrived.read_admitted(&mut lend, &hosts, (&packet, bytes, l4), access);
        let mtu = if read.is_ok() { self.mtu_back(cx, &arrived, admission.iface) } else { 0 };
        let link = (admission.iface, mtu);
        let origin = SegmentOrigin { places: [l3, l4], link, is_admitted: true };
        self.tcp_segment(cx, packet, read.map(|()| &arrived), &origin);
        Ok(())
    }

    /// Notes that the network layer has admitted a segment that its connection took: later ones
    /// may be predicted, and others between the same ends need not be asked about.
    #[inline]
    pub(super) fn tcp_admitted(&mut self, flow: &FlowKey, origin: &SegmentOrigin) {
        let &SegmentOrigin { link: (iface, _), is_admitted, .. } = origin;
        let generation = self.sockets.path_cache.generation();
        let admission = FlowAdmission { iface, generation };
        let Self { tcp, policy, sockets, .. } = self;
        let Some(TcpShard { set, admitted, .. }) = tcp.as_deref_mut() else { return };
        set.admit(flow, admission, || {
            is_admitted
                || admitted.notes(&AdmittedHosts::of(flow), admission, || {
                    let at = usize::from(iface.0);
                    let listed = policy.access_lists.get(at).is_some_and(Option::is_some);
                    let is_v4 = flow.local.ipv4_bits().is_some();
                    let family = if is_v4 { Family::V4 } else { Family::V6 };
                    !listed && !sockets.raw.hears(family, IpProtocol::TCP)
                })
        });
    }
}
