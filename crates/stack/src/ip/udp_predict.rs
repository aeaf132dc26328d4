//! A plain datagram of ends from which a socket has taken others: its headers are read in one go.
//!
//! Called by `rx.rs` for what TCP does not predict, before any layer parses it. Taken are whole
//! packets of UDP over Ethernet without tag or over bare IP, without IP options, extension headers,
//! fragments or congestion marks, without padding, of [`FRAME_MAX`] bytes at most, with right
//! lengths and checksums, between ends of which a socket took two datagrams on that interface
//! before, while it has much room. Invariant: a packet that is not taken goes the general way,
//! unchanged; that is the only place where packets are refused. Guarded by
//! [`PathCache::generation`](crate::ip::path_cache::PathCache::generation), as segments of TCP are
//! (`tcp/predict.rs`), and by the number of the sockets' changes.
//!
//! # Under flood
//! [`ExpectedDatagrams`](crate::ip::expected_datagrams::ExpectedDatagrams): `FLOWS` entries, each
//! overwritten by what comes second from other ends of its place: a flood displaces them, and those
//! flows take the general way. After [`MISSES_MAX`] datagrams in a row that are not expected none
//! is looked up until ends come twice: a flood from ever new ends costs a comparison and a store a
//! datagram.

use floodwall_base::{Endpoint, Family, IfIndex, MacAddr};
use floodwall_packet::PacketBuf;
use floodwall_udp::{DatagramInput, SocketId};
use floodwall_wire::IpProtocol;

use crate::ip::expected_datagrams::{ExpectedDatagram, place_of, tag_of};
use crate::stack::Stack;
use crate::tcp::gro::{COUNTERS_V4, COUNTERS_V6};
use crate::tcp::predict::{be16, ip_of_frame, plain_ip};

/// Bytes of the largest frame that is taken: of larger ones the payload's loads decide, and 1,472
/// bytes took 5 % longer this way.
const FRAME_MAX: usize = 512;
/// Datagrams in a row of other flows after which none is looked up.
const MISSES_MAX: u8 = 32;

impl Stack {
    /// Takes a packet with a datagram of ends that a socket takes from; gives back any other. `mac`
    /// is the station's address on Ethernet.
    #[inline]
    pub(crate) fn udp_predicted(
        &mut self,
        packet: PacketBuf,
        mac: Option<MacAddr>,
    ) -> Result<(), PacketBuf> {
        let expected = &mut self.sockets.expected;
        if expected.misses >= MISSES_MAX || packet.len() > FRAME_MAX {
            return Err(packet);
        }
        let bytes = packet.first();
        let l3 = mac.map_or(Some(0), |mac| ip_of_frame(bytes, mac)).unwrap_or(usize::MAX);
        let plain = bytes.get(l3..).and_then(|ip| {
            let plain = plain_ip(ip, IpProtocol::UDP)?;
            let udp = ip.get(..plain.total_len)?.get(plain.header_len..)?;
            let ports: [u8; 4] = *udp.first_chunk()?;
            (l3 + plain.total_len == packet.len()).then_some((plain, ports))
        });
        let Some((plain, ports)) = plain else { return Err(packet) };
        let l4 = l3 + plain.header_len;
        let remote = Endpoint { addr: plain.src_addr, port: be16(&ports, 0) };
        let local = Endpoint { addr: plain.dst_addr, port: be16(&ports, 2) };
        let flow = expected.flows.get(place_of(tag_of(&local, &remote)));
        let flow = flow.filter(|flow| flow.local == local && flow.remote == remote);
        let Some(&ExpectedDatagram { iface, generation, demux_changes, index, .. }) = flow else {
            expected.misses += 1;
            return Err(packet);
        };
        expected.misses = 0;
        if iface != packet.iface()
            || generation != self.sockets.path_cache.generation()
            || demux_changes != self.sockets.udp.demux_changes()
            || packet.is_link_group()
            || self.dhcp_asks()
        {
            return Err(packet);
        }
        let (len, octets) = (packet.len() - l4, packet.len() - l3);
        let (src_addr, dst_addr) = (remote.ip(), local.ip());
        let input = DatagramInput { src_addr, dst_addr, iface, l3, l4, len, group: false };
        self.sockets.udp.input_expected(index, &input, packet)?;
        let counters = &mut self.stats.counters;
        let [receives, in_octets, delivers] = if plain.is_v4 { COUNTERS_V4 } else { COUNTERS_V6 };
        counters.count(receives);
        counters.add(in_octets, octets as u64);
        counters.count(delivers);
        self.stats.access.borrow();
        self.burst.in_one_go += 1;
        self.stats.outcomes.delivered += 1;
        self.memory.has_moved = true;
        Ok(())
    }

    /// Notes that a socket has taken a datagram: once its ends came twice, more are expected. No
    /// effect for a datagram that is larger than what is taken here.
    #[inline]
    pub(crate) fn udp_delivered(&mut self, input: &DatagramInput, ports: [u8; 4], to: SocketId) {
        if input.l4 + input.len > FRAME_MAX {
            return;
        }
        let remote = Endpoint::new(input.src_addr, be16(&ports, 0));
        let local = Endpoint::new(input.dst_addr, be16(&ports, 2));
        let tag = tag_of(&local, &remote);
        let Some(flow) = self.sockets.expected.flows.get_mut(place_of(tag)) else { return };
        if core::mem::replace(&mut flow.tag, tag) == tag {
            self.expect_datagrams(input.iface, (local, remote), to);
        }
    }

    #[inline(never)]
    fn expect_datagrams(
        &mut self,
        iface: IfIndex,
        (local, remote): (Endpoint, Endpoint),
        to: SocketId,
    ) {
        let at = usize::from(iface.0);
        let listed = self.policy.access_lists.get(at).is_some_and(Option::is_some);
        let heard = self.sockets.raw.hears(Family::of(remote.ip()), IpProtocol::UDP);
        if listed || heard {
            return;
        }
        let tag = tag_of(&local, &remote);
        let generation = self.sockets.path_cache.generation();
        let (demux_changes, index) = (self.sockets.udp.demux_changes(), to.index() as u32);
        let expected = &mut self.sockets.expected;
        expected.misses = 0;
        if let Some(flow) = expected.flows.get_mut(place_of(tag)) {
            *flow =
                ExpectedDatagram { local, remote, iface, generation, demux_changes, index, tag };
        }
    }
}
