//! The short walk to a datagram's ports: what floods and friends are made of.
//!
//! Called by `triage.rs` for each packet of a burst, before the walk that knows everything. Plain
//! is a whole UDP datagram for an address of ours, in one chunk, without tag, options, fragments or
//! extension headers, on the link that the last one came by; and what is surely for others on a
//! link from which it is passed on, without tag and options. Invariant: says of a packet what the
//! other walk says, or nothing; a test compares them for every packet of the captures. Layouts: RFC
//! 894, RFC 791, RFC 8200, RFC 768.

use core::net::{Ipv4Addr, Ipv6Addr};

use floodwall_base::{IfIndex, MacAddr};
use floodwall_ip::{Interface, LinkMedium};
use floodwall_packet::{Class, PacketBuf, Triage};
use floodwall_udp::{Sought, Whose};
use floodwall_wire::{EtherType, IpProtocol, ethernet, ipv4, ipv6, udp};

use super::Unwanted;
use crate::forward::dialogues::{Dialogues, Place};
use crate::shard::Stack;

/// Bytes of the headers behind the link's.
const V4_LEN: usize = ipv4::HEADER_LEN + udp::HEADER_LEN;
const V6_LEN: usize = ipv6::HEADER_LEN + udp::HEADER_LEN;
/// The first byte of an IPv4 header without options.
const PLAIN_V4: u8 = 0x45;
/// The first byte of IPv4's groups; what is above is nobody's, or everybody's.
const FIRST_GROUP_V4: u8 = 224;

/// What the short walk says of a packet.
#[derive(Clone, Copy)]
pub(super) enum Plainly {
    /// A datagram for us.
    Datagram {
        /// Who may take it; `None` for nobody.
        sought: Option<Sought>,
        /// What it is if nobody does.
        unwanted: Triage,
    },
    /// It is for others; where the dialogue of its ends would be.
    Transit(Place),
}

/// What is known of a packet beside its bytes.
#[derive(Clone, Copy)]
struct Arrived {
    iface: IfIndex,
    /// Bytes from the network header on.
    room: usize,
    class: Class,
}

/// What the packets of a burst have in common so far.
pub(super) struct Plain<'a> {
    stack: &'a Stack,
    unwanted: Unwanted,
    /// The link of the last packet, if it is up.
    interface: Option<&'a Interface>,
    link_addr: Option<MacAddr>,
    /// Who talks with whom, where the families' packets for others are passed on from there.
    passes_v4: Option<&'a Dialogues>,
    passes_v6: Option<&'a Dialogues>,
    /// Addresses of ours that the last ones went to.
    v4: Option<Ipv4Addr>,
    v6: Option<Ipv6Addr>,
}

impl<'a> Plain<'a> {
    pub(super) const fn new(stack: &'a Stack, unwanted: Unwanted) -> Self {
        Self {
            stack,
            unwanted,
            interface: None,
            link_addr: None,
            passes_v4: None,
            passes_v6: None,
            v4: None,
            v6: None,
        }
    }

    /// What a plain packet asks for.
    #[inline(always)]
    pub(super) fn look(&mut self, packet: &PacketBuf) -> Option<Plainly> {
        let interface = match self.interface {
            Some(interface) if interface.index == packet.iface() => interface,
            _ => self.turn_to(packet.iface())?,
        };
        let (is_v4, l3) = self.network(packet.first())?;
        let ip = packet.first().get(l3..)?;
        let at = Arrived { iface: interface.index, room: packet.len() - l3, class: packet.class() };
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
        self.link_addr = match interface.medium {
            LinkMedium::Ethernet(link_addr) => Some(link_addr),
            LinkMedium::Ip | LinkMedium::Loopback => None,
        };
        let dialogues = self.stack.forwarding.as_ref().map(|forwarding| &forwarding.dialogues);
        self.passes_v4 = dialogues.filter(|_| self.stack.forwards::<Ipv4Addr>(iface));
        self.passes_v6 = dialogues.filter(|_| self.stack.forwards::<Ipv6Addr>(iface));
        self.interface = Some(interface);
        self.interface
    }

    /// Whether it is IPv4, and where that starts.
    #[inline(always)]
    fn network(&self, bytes: &[u8]) -> Option<(bool, usize)> {
        let Some(link_addr) = self.link_addr else {
            return Some((bytes.first()? >> 4 == 4, 0));
        };
        let header: &[u8; ethernet::HEADER_LEN] = bytes.first_chunk()?;
        let [d0, d1, d2, d3, d4, d5, s0, .., t0, t1] = *header;
        let ours = [d0, d1, d2, d3, d4, d5] == link_addr.0 && s0 & 1 == 0;
        let is_v4 = match EtherType(u16::from_be_bytes([t0, t1])) {
            EtherType::IPV4 => true,
            EtherType::IPV6 => false,
            _ => return None,
        };
        ours.then_some((is_v4, ethernet::HEADER_LEN))
    }

    #[inline(always)]
    fn v4(&mut self, interface: &Interface, ip: &[u8], at: Arrived) -> Option<Plainly> {
        let fixed: &[u8; ipv4::HEADER_LEN] = ip.first_chunk()?;
        let [first, _, n0, n1, _, _, f0, f1, _, protocol, _, _, s0, s1, s2, s3, d0, d1, d2, d3] =
            *fixed;
        let total_len = usize::from(u16::from_be_bytes([n0, n1]));
        if let Some(dialogues) = self.passes_v4 {
            let (src_addr, dst_addr) =
                (Ipv4Addr::new(s0, s1, s2, s3), Ipv4Addr::new(d0, d1, d2, d3));
            let is_plain = first == PLAIN_V4 && (ipv4::HEADER_LEN..=at.room).contains(&total_len);
            if is_plain && d0 < FIRST_GROUP_V4 && interface.is_surely_foreign_v4(dst_addr) {
                return Some(Plainly::Transit(dialogues.place(src_addr, dst_addr)));
            }
        }
        let udp = ip.get(ipv4::HEADER_LEN..V4_LEN)?;
        let is_plain = first == PLAIN_V4
            && u16::from_be_bytes([f0, f1]) & 0x3fff == 0
            && IpProtocol(protocol) == IpProtocol::UDP
            && (V4_LEN..=at.room).contains(&total_len);
        let (src_addr, dst_addr) = (Ipv4Addr::new(s0, s1, s2, s3), Ipv4Addr::new(d0, d1, d2, d3));
        if !is_plain || !(self.v4 == Some(dst_addr) || self.owns_v4(interface, dst_addr)) {
            return None;
        }
        let (src_port, dst_port) = self.ports(udp)?;
        let (from, to) = ((src_addr.into(), src_port), (dst_addr.into(), dst_port));
        let sought = self.stack.udp.seek(&Whose::new(from, to, at.iface), at.class);
        Some(Plainly::Datagram { sought, unwanted: self.unwanted.v4 })
    }

    #[inline(always)]
    fn v6(&mut self, interface: &Interface, ip: &[u8], at: Arrived) -> Option<Plainly> {
        let fixed: &[u8; ipv6::HEADER_LEN] = ip.first_chunk()?;
        let [version, _, _, _, n0, n1, next, _, ends @ ..] = fixed;
        let payload_len = usize::from(u16::from_be_bytes([*n0, *n1]));
        let fits = version >> 4 == 6 && ipv6::HEADER_LEN + payload_len <= at.room;
        let (from, to) = ends.split_first_chunk::<16>()?;
        let src_addr = Ipv6Addr::from(*from);
        let dst_addr = Ipv6Addr::from(*to.first_chunk::<16>()?);
        // Neighbours' messages are looked at by the other walk.
        if let Some(dialogues) = self.passes_v6
            && fits
            && IpProtocol(*next) != IpProtocol::ICMPV6
            && !dst_addr.is_multicast()
            && interface.is_surely_foreign_v6(dst_addr)
        {
            return Some(Plainly::Transit(dialogues.place(src_addr, dst_addr)));
        }
        let udp = ip.get(ipv6::HEADER_LEN..V6_LEN)?;
        let is_plain =
            fits && IpProtocol(*next) == IpProtocol::UDP && payload_len >= udp::HEADER_LEN;
        if !is_plain || !(self.v6 == Some(dst_addr) || self.owns_v6(interface, dst_addr)) {
            return None;
        }
        let (src_port, dst_port) = self.ports(udp)?;
        let (from, to) = ((src_addr.into(), src_port), (dst_addr.into(), dst_port));
        let sought = self.stack.udp.seek(&Whose::new(from, to, at.iface), at.class);
        Some(Plainly::Datagram { sought, unwanted: self.unwanted.v6 })
    }

    /// The ports of a header whose length is possible.
    #[inline(always)]
    fn ports(&self, header: &[u8]) -> Option<(u16, u16)> {
        let [s0, s1, d0, d1, n0, n1, ..] = *header.first_chunk::<{ udp::HEADER_LEN }>()?;
        let len = usize::from(u16::from_be_bytes([n0, n1]));
        let ports = (u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1]));
        (len >= udp::HEADER_LEN).then_some(ports)
    }

    #[cold]
    fn owns_v4(&mut self, interface: &Interface, addr: Ipv4Addr) -> bool {
        let owns = interface.owns_v4(addr).is_some_and(|state| state.is_assigned());
        if owns {
            self.v4 = Some(addr);
        }
        owns
    }

    #[cold]
    fn owns_v6(&mut self, interface: &Interface, addr: Ipv6Addr) -> bool {
        let owns = interface.owns_v6(addr).is_some_and(|state| state.is_assigned());
        if owns {
            self.v6 = Some(addr);
        }
        owns
    }
}
