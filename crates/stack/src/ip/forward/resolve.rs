//! The stack's side of `ForwardPath`: the way to a next hop is resolved, or its packet waits.
//!
//! Called by `forward.rs` once for each next hop of a burst.

use floodwall_base::{DropReason, IfIndex, MacAddr};
use floodwall_ip::{LinkMedium, Resolution};
use floodwall_packet::PacketBuf;

use super::crossing::CrossingPacket;
use super::forward_path::{ForwardPath, LinkPeers, STATION_BYTES, change_link_header};
use crate::round_context::RoundContext;
use crate::stack::Stack;

impl Stack {
    /// Resolves the way of packets by an interface to a neighbour, as far as that is known.
    pub(super) fn way<A: CrossingPacket>(
        &mut self,
        cx: &RoundContext<'_>,
        iface: IfIndex,
        next_hop: A,
    ) -> ForwardPath<A> {
        let next_hop_is = Some(next_hop);
        let Some(interface) = self.interfaces.get(usize::from(iface.0)).filter(|i| i.up) else {
            return ForwardPath { iface, next_hop: next_hop_is, ..ForwardPath::NONE };
        };
        if !self.forwards::<A>(iface) && iface != IfIndex::LOOPBACK {
            return ForwardPath {
                iface,
                next_hop: next_hop_is,
                stations: LinkPeers::Closed,
                ..ForwardPath::NONE
            };
        }
        let v4 = A::BITS == 32;
        let mtu = interface.mtu_of(v4);
        let stations = match interface.medium {
            LinkMedium::Ip => LinkPeers::Bare,
            // There is no link behind it.
            LinkMedium::Loopback => LinkPeers::Down,
            LinkMedium::Ethernet(MacAddr([s0, s1, s2, s3, s4, s5])) => {
                let neighbor = match self.is_follower() {
                    true => self.published_neighbor(cx, iface, next_hop),
                    false => A::neighbors(self).lookup(iface, next_hop, cx.now),
                };
                neighbor.map_or(LinkPeers::Unknown, |MacAddr([d0, d1, d2, d3, d4, d5])| {
                    LinkPeers::Known([d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5])
                })
            }
        };
        ForwardPath { iface, next_hop: next_hop_is, mtu, stations }
    }

    /// Handles a packet to an unresolved neighbour: it waits, within the neighbour's bounds, or is
    /// handed to the control shard, which resolves neighbours.
    #[cold]
    pub(super) fn forward_unresolved<A: CrossingPacket>(
        &mut self,
        cx: &mut RoundContext<'_>,
        mut packet: PacketBuf,
        l3: usize,
        way: &ForwardPath<A>,
    ) {
        let Some(next_hop) = way.next_hop() else {
            return self.drop_ip::<A>(packet, DropReason::NoRoute);
        };
        if self.is_follower() {
            return self.hand_transit::<A>(cx, packet);
        }
        let source = A::source(self, &packet, l3).unwrap_or(A::UNSPECIFIED);
        if !self.lower::<A>(cx, &mut packet, l3) {
            return self.drop_ip::<A>(packet, DropReason::NoBuffer);
        }
        change_link_header(&mut packet, l3, LinkPeers::Known([0; STATION_BYTES]));
        packet.set_iface(way.iface);
        self.count_forwarded::<A>();
        // Fragmentation is deferred to departure: until then one packet waits.
        match A::neighbors(self).resolve(way.iface, (next_hop, source), cx.now, packet) {
            Resolution::Known(packet, _) => {
                self.drop_output::<A>(packet, DropReason::NeighborUnreachable);
            }
            Resolution::Waiting { solicit, dropped, evicted } => {
                self.stats.pending += 1;
                self.drop_evicted::<A>(evicted);
                if let Some(dropped) = dropped {
                    self.stats.pending -= 1;
                    self.drop_output::<A>(dropped, DropReason::NeighborPendingFull);
                }
                if solicit {
                    self.solicit(cx, way.iface, next_hop.to_ip(), None);
                }
            }
            Resolution::Refused(packet, reason) => {
                if reason == DropReason::NeighborUnreachable {
                    self.tell_sender_unreachable::<A>(cx, &packet);
                }
                self.drop_output::<A>(packet, reason);
            }
        }
    }
}
