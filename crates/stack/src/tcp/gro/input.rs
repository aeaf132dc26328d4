//! The stack's side of coalescing by headers: when a flow is followed, and what is taken from it.
//!
//! Called by `rx.rs` for each packet while a run of segments waits, and by `tcp.rs` for the
//! segment that begins one.

use core::net::IpAddr;

use floodwall_base::{Counter, Seq};
use floodwall_checksum::{pseudo_header_v4, pseudo_header_v6};
use floodwall_packet::PacketBuf;
use floodwall_wire::IpProtocol;

use super::{COUNTERS_V4, COUNTERS_V6};
use crate::ip::addr_pair::AddrPair;
use crate::ip::ip_family::IpFamily;
use crate::stack::Stack;

impl Stack {
    /// Begins to follow the segment that is taken in, as soon as it waits in a run. Of its flow
    /// these are the ends, ours as the source.
    pub(in crate::tcp) fn tcp_follow<A: IpFamily>(
        &mut self,
        packet: &PacketBuf,
        ends: AddrPair<A>,
        at: [usize; 2],
    ) {
        let [l3, l4] = at;
        let listed = self
            .policy
            .access_lists
            .get(usize::from(packet.iface().0))
            .is_some_and(Option::is_some);
        if listed || self.sockets.raw.hears(A::FAMILY, IpProtocol::TCP) {
            return self.burst.follow.stop();
        }
        self.burst.follow.learn::<A>(packet, l3, l4);
        self.burst.follow.pseudo = match (ends.dst_addr.to_ip(), ends.src_addr.to_ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => pseudo_header_v4(from, to, IpProtocol::TCP.0, 0),
            (IpAddr::V6(from), IpAddr::V6(to)) => pseudo_header_v6(from, to, IpProtocol::TCP.0, 0),
            _ => return self.burst.follow.stop(),
        };
    }

    /// Takes a packet that goes on where the run ends; gives back any other.
    #[inline]
    pub(crate) fn tcp_followed(&mut self, packet: PacketBuf) -> Result<(), PacketBuf> {
        let follow = &self.burst.follow;
        let Some(tcp) = &mut self.tcp else { return Err(packet) };
        if !follow.matches(&packet) {
            return Err(packet);
        }
        let Some(end) = follow.end_of(&packet) else { return Err(packet) };
        let (l3, l4, text, is_v4) = (follow.l3, follow.l4, follow.len, follow.is_v4);
        let seq = packet.first().get(l4 + 4..).and_then(|bytes| bytes.first_chunk());
        let seq = seq.map_or(Seq(0), |seq| Seq(u32::from_be_bytes(*seq)));
        if !tcp.set.follows(seq, (end - text) as u32) {
            return Err(packet);
        }
        let octets = (packet.len() - l3) as u64;
        tcp.set.follow(packet.middle(text, end - text));
        let [receives, in_octets, delivers] = if is_v4 { COUNTERS_V4 } else { COUNTERS_V6 };
        let counters = &mut self.stats.counters;
        counters.count(receives);
        counters.add(in_octets, octets);
        counters.count(delivers);
        counters.count(Counter::TcpInSegs);
        self.stats.access.borrow();
        Ok(())
    }
}
