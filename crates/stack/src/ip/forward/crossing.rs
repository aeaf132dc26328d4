//! `CrossingPacket`: what forwarding does differently for each address family.
//!
//! Called by `forward.rs` and its children, and by triage for packets that are for others.

use core::net::{Ipv4Addr, Ipv6Addr};

use floodwall_base::Counter;
use floodwall_ip::input;
use floodwall_packet::PacketBuf;

use super::forwarding::{ForwardBatch, ForwardPort, Forwarding};
use crate::ip::ip_family::IpFamily;
use crate::ip::rx_meta::RxMeta;
use crate::round_context::RoundContext;
use crate::stack::Stack;

/// The family-specific parts of forwarding.
pub(crate) trait CrossingPacket: IpFamily {
    const FORWARDED: Counter;

    fn batch(forwarding: &mut Forwarding) -> &mut ForwardBatch<Self>;
    fn is_open(port: ForwardPort) -> bool;
    /// Delivers a packet that turned out to be for this host.
    fn arrive(
        stack: &mut Stack,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        ascent: RxMeta<Self>,
    );
    /// The source address of a packet with its header at `l3`.
    fn source(stack: &mut Stack, packet: &PacketBuf, l3: usize) -> Option<Self>;
    /// Parses the header of a packet that begins with it.
    fn reread(stack: &mut Stack, packet: &PacketBuf) -> Option<RxMeta<Self>>;
}

impl CrossingPacket for Ipv4Addr {
    const FORWARDED: Counter = Counter::IpForwDatagrams;

    fn batch(forwarding: &mut Forwarding) -> &mut ForwardBatch<Self> {
        &mut forwarding.v4
    }
    fn is_open(port: ForwardPort) -> bool {
        port.v4
    }
    fn arrive(
        stack: &mut Stack,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        ascent: RxMeta<Self>,
    ) {
        stack.local_input_v4(cx, packet, ascent);
    }
    fn source(stack: &mut Stack, packet: &PacketBuf, l3: usize) -> Option<Self> {
        let access = &mut stack.stats.access;
        packet.header_array(l3 + 12, &mut [0; 4], access).map(|bytes| Self::from(*bytes))
    }
    fn reread(stack: &mut Stack, packet: &PacketBuf) -> Option<RxMeta<Self>> {
        let heading = input::ipv4(packet, 0, &mut stack.stats.access).ok()?;
        Some(RxMeta { iface: packet.iface(), l3: 0, heading, to_group: false })
    }
}

impl CrossingPacket for Ipv6Addr {
    const FORWARDED: Counter = Counter::Ip6OutForwDatagrams;

    fn batch(forwarding: &mut Forwarding) -> &mut ForwardBatch<Self> {
        &mut forwarding.v6
    }
    fn is_open(port: ForwardPort) -> bool {
        port.v6
    }
    fn arrive(
        stack: &mut Stack,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        ascent: RxMeta<Self>,
    ) {
        stack.local_input_v6(cx, packet, ascent);
    }
    fn source(stack: &mut Stack, packet: &PacketBuf, l3: usize) -> Option<Self> {
        let access = &mut stack.stats.access;
        packet.header_array(l3 + 8, &mut [0; 16], access).map(|bytes| Self::from(*bytes))
    }
    fn reread(stack: &mut Stack, packet: &PacketBuf) -> Option<RxMeta<Self>> {
        let heading = input::ipv6(packet, 0, &mut stack.stats.access).ok()?;
        Some(RxMeta { iface: packet.iface(), l3: 0, heading, to_group: false })
    }
}
