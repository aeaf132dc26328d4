//! What another shard handed over: taken in as if it had happened here.
//!
//! Called by `stack.rs` with packets that other workers' engines handed over. A frame takes the
//! path of any frame; a reassembled datagram the path behind reassembly; a packet that a follower
//! wants sent is routed by this shard's own tables, for the follower's may be older. Invariant: an
//! adopted packet has one outcome here, and both sides count what was handed over, so that the sum
//! over all shards and what is in transit balances.

use core::net::{Ipv4Addr, Ipv6Addr};

use floodwall_base::{Address, DropReason, Family, IfIndex, Units};
use floodwall_ip::input;
use floodwall_packet::{Handoff, HandoffKind, HandoffList, PacketBuf};

use super::follower::catch_up::family_of;
use crate::ip::ip_family::IpFamily;
use crate::ip::outgoing_packet::OutputPath;
use crate::ip::reassemble::ReassembleFamily;
use crate::ip::rx_meta::RxMeta;
use crate::round_context::RoundContext;
use crate::stack::Stack;

impl Stack {
    /// Takes all that was handed over: a unit each.
    pub(crate) fn adopt_all(
        &mut self,
        cx: &mut RoundContext<'_>,
        handed: &mut HandoffList,
    ) -> Units {
        // A worker without a receive queue of its own gets the time only here.
        self.begin(cx.now);
        let spent = handed.len();
        let out = handed.iter().filter(|handoff| handoff.kind == HandoffKind::Outgoing).count();
        // Counted before the loop: even if it ends early, all have been taken over.
        self.stats.outcomes.adopted_in += (spent - out) as u64;
        self.stats.outcomes.adopted_out += out as u64;
        let mut behind = spent;
        for Handoff { kind, packet, .. } in handed.drain() {
            behind -= 1;
            self.burst.more_arrives = behind > 0;
            match kind {
                HandoffKind::Frame => self.take_in(cx, packet),
                HandoffKind::Reassembled => self.adopt_whole(cx, packet),
                HandoffKind::Outgoing => self.adopt_outgoing(cx, packet),
                HandoffKind::Quoting => self.adopt_quoting(cx, packet),
                HandoffKind::Believed => self.adopt_believed(cx, packet),
            }
        }
        self.tcp_end_burst(cx);
        self.forward_all(cx);
        Units(u32::try_from(spent).unwrap_or(u32::MAX))
    }

    fn adopt_whole(&mut self, cx: &mut RoundContext<'_>, packet: PacketBuf) {
        let iface = packet.iface();
        match family_of(&packet) {
            Some(Family::V4) => match input::ipv4(&packet, 0, &mut self.stats.access) {
                Ok(heading) => match self.is_ours_v4(iface, &heading) {
                    Ok(to_group) => {
                        let ascent = RxMeta { iface, l3: 0, heading, to_group };
                        Ipv4Addr::deliver_whole(self, cx, packet, ascent);
                    }
                    Err(reason) => self.drop_ip::<Ipv4Addr>(packet, reason),
                },
                Err(reason) => self.drop_ip::<Ipv4Addr>(packet, reason),
            },
            Some(Family::V6) => match input::ipv6(&packet, 0, &mut self.stats.access) {
                Ok(heading) => match self.is_ours_v6(iface, &heading) {
                    Ok(to_group) => {
                        let ascent = RxMeta { iface, l3: 0, heading, to_group };
                        Ipv6Addr::deliver_whole(self, cx, packet, ascent);
                    }
                    Err(reason) => self.drop_ip::<Ipv6Addr>(packet, reason),
                },
                Err(reason) => self.drop_ip::<Ipv6Addr>(packet, reason),
            },
            None => self.drop_packet(packet, DropReason::IpVersion),
        }
    }

    fn adopt_outgoing(&mut self, cx: &mut RoundContext<'_>, packet: PacketBuf) {
        match family_of(&packet) {
            Some(Family::V4) => match input::ipv4(&packet, 0, &mut self.stats.access) {
                Ok(heading) => self.send_for_another(cx, packet, heading.dst_addr),
                Err(reason) => self.drop_output::<Ipv4Addr>(packet, reason),
            },
            Some(Family::V6) => match input::ipv6(&packet, 0, &mut self.stats.access) {
                Ok(heading) => self.send_for_another(cx, packet, heading.dst_addr),
                Err(reason) => self.drop_output::<Ipv6Addr>(packet, reason),
            },
            // A follower writes the header itself.
            None => self.drop_output::<Ipv6Addr>(packet, DropReason::IpVersion),
        }
    }

    fn send_for_another<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        dst_addr: A,
    ) {
        let zone = Some(packet.iface()).filter(|iface| *iface != IfIndex::LOOPBACK);
        match self.path(cx, dst_addr, zone) {
            Ok(OutputPath::Local) => self.loop_back::<A>(packet),
            Ok(OutputPath::Via { iface, next_hop, mtu }) => {
                self.transmit_within(cx, packet, iface, next_hop, mtu);
            }
            Err(reason) => self.drop_output::<A>(packet, reason),
        }
    }
}

const _: fn() = || {
    // Both families have what the above needs.
    fn has<A: Address + ReassembleFamily + IpFamily>() {}
    has::<Ipv4Addr>();
    has::<Ipv6Addr>();
};
