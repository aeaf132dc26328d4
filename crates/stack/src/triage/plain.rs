//! The short walk to a datagram's ports, for the packets that floods and established flows consist
//! of.
//!
//! Called by `triage.rs` for each packet of a burst, before the full walk. Plain is a whole UDP
//! datagram for an address of ours, in one chunk, without tag, options, fragments or extension
//! headers, on the same interface as the previous one; and a packet that is surely for others, on
//! an interface from which packets are forwarded, without tag and options. Invariant: the result is
//! that of the full walk, or none; a test compares them for every packet of the captures. Layouts:
//! RFC 894, RFC 791, RFC 8200, RFC 768.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use floodwall_base::{IfIndex, MacAddr};
use floodwall_ip::{Interface, LinkMedium};
use floodwall_packet::{Class, PacketBuf, Triage};
use floodwall_udp::{DatagramKey, PortProbe};
use floodwall_wire::{EtherType, IpProtocol, dhcpv6, ethernet, ipv4, ipv6, udp};

use super::unwanted::UnwantedPacket;
use crate::ip::forward::flows::{DialogueSlot, ForwardedFlows};
use crate::ip::rx::takes_any;
use crate::stack::Stack;

/// Bytes of the headers behind the link's.
const V4_LEN: usize = ipv4::HEADER_LEN + udp::HEADER_LEN;
const V6_LEN: usize = ipv6::HEADER_LEN + udp::HEADER_LEN;
/// Of a frame's first eight bytes: the destination address, and the group bit of the source.
const STATION_MASK: u64 = 0xffff_ffff_ffff_0100;
/// The first byte of an IPv4 header without options.
const NO_OPTIONS_V4: u8 = 0x45;
/// Of an IPv4 header's first eight bytes: version, header length, and whether it is a fragment.
const FIXED_V4: u64 = 0xff00_0000_0000_3fff;
const PLAIN_V4: u64 = (NO_OPTIONS_V4 as u64) << 56;
/// Of an IPv6 header's first eight bytes: version and next header.
const FIXED_V6: u64 = 0xf000_0000_0000_ff00;
const PLAIN_V6: u64 = 6 << 60 | (IpProtocol::UDP.0 as u64) << 8;
/// The first byte of IPv4's groups; addresses above are reserved or broadcast.
const FIRST_GROUP_V4: u8 = 224;

/// Result of the short walk.
#[derive(Clone, Copy)]
pub(super) enum PlainVerdict {
    /// A datagram for us.
    Datagram {
        /// The look-up of the socket that may receive it; `None` where no socket has the port.
        sought: Option<PortProbe>,
        /// Its class if no socket receives it.
        unwanted: Triage,
    },
    /// It is for others; where the dialogue of its ends would be.
    Transit(DialogueSlot),
}

/// What is known of a packet beside its bytes.
#[derive(Clone, Copy)]
struct PlainArrival {
    iface: IfIndex,
    /// Bytes from the network header on.
    room: usize,
    class: Class,
}

/// What the packets of a burst have in common so far.
pub(super) struct PlainPacket<'a> {
    stack: &'a Stack,
    unwanted: UnwantedPacket,
    /// The link of the last packet, if it is up.
    interface: Option<&'a Interface>,
    station: Option<u64>,
    /// Dialogues between hosts, where packets of the family are forwarded from this interface.
    passes_v4: Option<&'a ForwardedFlows>,
    passes_v6: Option<&'a ForwardedFlows>,
    /// Addresses of ours that the last ones went to.
    v4: Option<Ipv4Addr>,
    v6: Option<Ipv6Addr>,
}

impl<'a> PlainPacket<'a> {
    pub(super) const fn new(stack: &'a Stack, unwanted: UnwantedPacket) -> Self {
        Self {
            stack,
            unwanted,
            interface: None,
            station: None,
            passes_v4: None,
            passes_v6: None,
            v4: None,
            v6: None,
        }
    }

    /// The look-up that a plain packet needs.
    #[inline(always)]
    pub(super) fn look(&mut self, packet: &PacketBuf) -> Option<PlainVerdict> {
        let interface = match self.interface {
            Some(interface) if interface.index == packet.iface() => interface,
            _ => self.turn_to(packet.iface())?,
        };
        let bytes = packet.first();
        let (is_v4, ip) = self.network(bytes)?;
        let room = packet.len() - (bytes.len() - ip.len());
        let at = PlainArrival { iface: interface.index, room, class: packet.class() };
        if is_v4 { self.v4(interface, ip, at) } else { self.v6(interface, ip, at) }
    }

    /// Another link than the last packet's.
    #[cold]
    fn turn_to(&mut self, iface: IfIndex) -> Option<&'a Interface> {
        *self = Self::new(self.stack, self.unwanted);
        let interface = self.stack.interfaces.get(usize::from(iface.0))?;
        if !interface.up || interface.index != iface {
            return None;
        }
        self.station = match interface.medium {
            LinkMedium::Ethernet(MacAddr([a, b, c, d, e, f])) => {
                Some(u64::from_be_bytes([a, b, c, d, e, f, 0, 0]))
            }
            LinkMedium::Ip | LinkMedium::Loopback => None,
        };
        let dialogues =
            self.stack.policy.forwarding.as_ref().map(|forwarding| &forwarding.dialogues);
        self.passes_v4 = dialogues.filter(|_| self.stack.forwards::<Ipv4Addr>(iface));
        self.passes_v6 = dialogues.filter(|_| self.stack.forwards::<Ipv6Addr>(iface));
        self.interface = Some(interface);
        self.interface
    }

    /// Whether it is IPv4, and what begins there.
    #[inline(always)]
    fn network<'b>(&self, bytes: &'b [u8]) -> Option<(bool, &'b [u8])> {
        let Some(station) = self.station else {
            return Some((bytes.first()? >> 4 == 4, bytes));
        };
        let (header, ip) = bytes.split_first_chunk::<{ ethernet::HEADER_LEN }>()?;
        let [.., t0, t1] = *header;
        let is_v4 = match EtherType(u16::from_be_bytes([t0, t1])) {
            EtherType::IPV4 => true,
            EtherType::IPV6 => false,
            _ => return None,
        };
        let ends = u64::from_be_bytes(*header.first_chunk()?) & STATION_MASK;
        (ends == station).then_some((is_v4, ip))
    }

    #[inline(always)]
    fn v4(&mut self, interface: &Interface, ip: &[u8], at: PlainArrival) -> Option<PlainVerdict> {
        if let Some(place) = self.transit_v4(interface, ip, at.room) {
            return Some(PlainVerdict::Transit(place));
        }
        let header: &[u8; V4_LEN] = ip.first_chunk()?;
        let (start, behind) = header.split_first_chunk::<8>()?;
        let [_, _, n0, n1, ..] = *start;
        let [_, protocol, _, _, ends @ ..] = behind else { return None };
        let total_len = usize::from(u16::from_be_bytes([n0, n1]));
        let is_plain = u64::from_be_bytes(*start) & FIXED_V4 == PLAIN_V4
            && IpProtocol(*protocol) == IpProtocol::UDP
            && (V4_LEN..=at.room).contains(&total_len);
        let (from, behind) = ends.split_first_chunk::<4>()?;
        let (to, udp) = behind.split_first_chunk::<4>()?;
        let dst_addr = Ipv4Addr::from(*to);
        if !is_plain || !(self.v4 == Some(dst_addr) || self.owns_v4(interface, dst_addr)) {
            return None;
        }
        let ends = || (Ipv4Addr::from(*from).into(), dst_addr.into());
        let sought = self.seek(udp.first_chunk()?, ends, at)?;
        Some(PlainVerdict::Datagram { sought, unwanted: self.unwanted.v4 })
    }

    /// Where the dialogue of an IPv4 packet is that is surely for others.
    #[inline(always)]
    fn transit_v4(&self, interface: &Interface, ip: &[u8], room: usize) -> Option<DialogueSlot> {
        let dialogues = self.passes_v4?;
        let [first, _, n0, n1, .., s0, s1, s2, s3, d0, d1, d2, d3] =
            *ip.first_chunk::<{ ipv4::HEADER_LEN }>()?;
        let (src_addr, dst_addr) = (Ipv4Addr::new(s0, s1, s2, s3), Ipv4Addr::new(d0, d1, d2, d3));
        let total_len = usize::from(u16::from_be_bytes([n0, n1]));
        let is_plain = first == NO_OPTIONS_V4
            && (ipv4::HEADER_LEN..=room).contains(&total_len)
            && d0 < FIRST_GROUP_V4;
        let is_foreign = is_plain && interface.is_surely_foreign_v4(dst_addr);
        is_foreign.then(|| dialogues.place(src_addr, dst_addr))
    }

    #[inline(always)]
    fn v6(&mut self, interface: &Interface, ip: &[u8], at: PlainArrival) -> Option<PlainVerdict> {
        if let Some(place) = self.transit_v6(interface, ip, at.room) {
            return Some(PlainVerdict::Transit(place));
        }
        let header: &[u8; V6_LEN] = ip.first_chunk()?;
        let (start, behind) = header.split_first_chunk::<8>()?;
        let [_, _, _, _, n0, n1, ..] = *start;
        let payload_len = usize::from(u16::from_be_bytes([n0, n1]));
        let is_plain = u64::from_be_bytes(*start) & FIXED_V6 == PLAIN_V6
            && (V6_LEN..=at.room).contains(&(ipv6::HEADER_LEN + payload_len));
        let (from, behind) = behind.split_first_chunk::<16>()?;
        let (to, udp) = behind.split_first_chunk::<16>()?;
        let dst_addr = Ipv6Addr::from(*to);
        if !is_plain || !(self.v6 == Some(dst_addr) || self.owns_v6(interface, dst_addr)) {
            return None;
        }
        let ends = || (Ipv6Addr::from(*from).into(), dst_addr.into());
        let [_, _, d0, d1, ..] = *udp.first_chunk::<{ udp::HEADER_LEN }>()?;
        let sought = self.seek(udp.first_chunk()?, ends, at)?;
        let to_client = sought.is_none() && u16::from_be_bytes([d0, d1]) == dhcpv6::CLIENT_PORT;
        let unwanted = if to_client { self.unwanted.client_v6 } else { self.unwanted.v6 };
        Some(PlainVerdict::Datagram { sought, unwanted })
    }

    /// Where the dialogue of an IPv6 packet is that is surely for others. Neighbours' messages are
    /// looked at by the other walk.
    #[inline(always)]
    fn transit_v6(&self, interface: &Interface, ip: &[u8], room: usize) -> Option<DialogueSlot> {
        let dialogues = self.passes_v6?;
        let fixed: &[u8; ipv6::HEADER_LEN] = ip.first_chunk()?;
        let [version, _, _, _, n0, n1, next, _, ends @ ..] = fixed;
        let payload_len = usize::from(u16::from_be_bytes([*n0, *n1]));
        let (from, to) = ends.split_first_chunk::<16>()?;
        let dst_addr = Ipv6Addr::from(*to.first_chunk::<16>()?);
        let is_foreign = version >> 4 == 6
            && ipv6::HEADER_LEN + payload_len <= room
            && IpProtocol(*next) != IpProtocol::ICMPV6
            && !dst_addr.is_multicast()
            && interface.is_surely_foreign_v6(dst_addr);
        is_foreign.then(|| dialogues.place(Ipv6Addr::from(*from), dst_addr))
    }

    /// The sockets that may receive a datagram, unless its length is impossible. Addresses are read
    /// only where they are needed: not for a port that no socket has, or only one.
    #[inline(always)]
    fn seek(
        &self,
        header: &[u8; udp::HEADER_LEN],
        ends: impl FnOnce() -> (IpAddr, IpAddr),
        at: PlainArrival,
    ) -> Option<Option<PortProbe>> {
        let [s0, s1, d0, d1, n0, n1, ..] = *header;
        if usize::from(u16::from_be_bytes([n0, n1])) < udp::HEADER_LEN {
            return None;
        }
        let (src_port, dst_port) = (u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1]));
        let datagram_key = || {
            let (src_addr, dst_addr) = ends();
            DatagramKey::new((src_addr, src_port), (dst_addr, dst_port), at.iface)
        };
        Some(self.stack.sockets.udp.seek(dst_port, at.class, datagram_key))
    }

    #[cold]
    fn owns_v4(&mut self, interface: &Interface, addr: Ipv4Addr) -> bool {
        let owns = interface.owns_v4(addr).is_some_and(|state| state.is_assigned())
            || takes_any(interface, addr);
        if owns {
            self.v4 = Some(addr);
        }
        owns
    }

    #[cold]
    fn owns_v6(&mut self, interface: &Interface, addr: Ipv6Addr) -> bool {
        let owns = interface.owns_v6(addr).is_some_and(|state| state.is_assigned())
            || takes_any(interface, addr);
        if owns {
            self.v6 = Some(addr);
        }
        owns
    }
}
