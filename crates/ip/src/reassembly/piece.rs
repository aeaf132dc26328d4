//! One fragment as its headers describe it, checked by itself.
//!
//! Made by `stack` for each fragment before the store sees it. Invariant: a piece has at least one
//! byte, ends within what a packet can have, is a multiple of eight bytes unless it is the last,
//! and, where it is the first, holds its whole upper header. Reading: RFC 791, RFC 8200 section
//! 4.5, RFC 7112 (whole chain), RFC 1858 and RFC 3128 (tiny fragments). Not here: how pieces relate
//! to one another.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use floodwall_base::{Address, DropReason, IfIndex};
use floodwall_packet::{AccessCounters, PacketBuf};
use floodwall_wire::ipv6_walk::FragmentPlace;
use floodwall_wire::{IpProtocol, Ipv4Header, icmpv4, icmpv6, ipv4, ipv6_ext, tcp, udp};

use crate::action::{IcmpError, RefusedAction};
use crate::input::{self, ArrivedHeading, ArrivedUpper};

/// The maximum of either family's length field in bytes.
pub(super) const LENGTH_MAX: usize = 65_535;
/// ICMPv6's code for a first fragment without its whole chain (RFC 7112 section 5).
const INCOMPLETE_CHAIN: u8 = 3;
/// Where IPv6's payload length stands.
const PAYLOAD_LENGTH_AT: u32 = 4;

/// One fragment: its datagram's key, its place in it, and its headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FragmentPiece<A> {
    /// This fragment's fixed header.
    pub heading: ArrivedHeading<A>,
    /// Where it arrived.
    pub iface: IfIndex,
    /// Whether it went to a group or broadcast address.
    pub to_group: bool,
    /// Where its IP header starts, from the packet's first byte.
    pub l3: usize,
    /// Bytes that every fragment repeats, from the first of the IP header: the IPv4 header, or
    /// what comes before IPv6's fragment header.
    pub repeated: usize,
    /// Where the protocol behind the repeated bytes was announced, from the first byte of the IP
    /// header.
    pub announced_at: usize,
    /// That protocol.
    pub protocol: IpProtocol,
    /// Which datagram it is of.
    pub id: u32,
    /// Where its bytes belong.
    pub offset: usize,
    /// How many bytes it has.
    pub len: usize,
    /// Whether more follow.
    pub more: bool,
    /// The two bits of congestion notification.
    pub ecn: u8,
}

impl<A: Address> FragmentPiece<A> {
    /// Where its bytes end in the datagram.
    #[must_use]
    pub const fn end(&self) -> usize {
        self.offset + self.len
    }

    /// Where its bytes start in its packet.
    #[must_use]
    pub fn payload(&self) -> usize {
        let own = match self.heading.src_addr.to_ip() {
            IpAddr::V4(_) => 0,
            IpAddr::V6(_) => ipv6_ext::HEADER_LEN_MIN,
        };
        self.l3 + self.repeated + own
    }
}

impl FragmentPiece<Ipv4Addr> {
    /// An IPv4 fragment, after its fixed header was checked.
    ///
    /// # Errors
    /// Broken options and source routes as for any packet; `FragmentMalformed`, `FragmentTiny`.
    #[inline]
    pub fn of_ipv4(
        packet: &PacketBuf,
        place: (IfIndex, usize, bool),
        heading: ArrivedHeading<Ipv4Addr>,
        access: &mut AccessCounters,
    ) -> Result<Self, RefusedAction> {
        let (iface, l3, to_group) = place;
        let mut scratch = [0; ipv4::HEADER_LEN_MAX];
        let bytes = packet
            .header(l3, heading.header_len, &mut scratch, access)
            .ok_or(DropReason::IpHeaderLength)?;
        let header = Ipv4Header::parse_offloaded(bytes, heading.total_len)
            .map_err(|_| DropReason::IpHeaderLength)?;
        let piece = Self {
            heading,
            iface,
            to_group,
            l3,
            repeated: heading.header_len,
            announced_at: 9,
            protocol: heading.protocol,
            id: u32::from(header.id()),
            offset: header.fragment_offset(),
            len: header.payload_len(),
            more: header.more_fragments(),
            ecn: header.ecn() as u8,
        };
        if heading.header_len > ipv4::HEADER_LEN {
            input::ipv4_options(packet, l3, heading.header_len - ipv4::HEADER_LEN, access)?;
        }
        let uneven = piece.more && !piece.len.is_multiple_of(8);
        if piece.len == 0 || uneven || piece.repeated + piece.end() > LENGTH_MAX {
            return Err(DropReason::FragmentMalformed.into());
        }
        let tiny = piece.offset == 0 && piece.len < upper_len(piece.protocol);
        // Its flags could overwrite those that a filter has seen (RFC 3128).
        let flags = piece.offset == 8 && piece.protocol == IpProtocol::TCP;
        if tiny || flags {
            return Err(DropReason::FragmentTiny.into());
        }
        Ok(piece)
    }
}

impl FragmentPiece<Ipv6Addr> {
    /// An IPv6 fragment after its header chain was walked up to `found`, and, in the first one, to
    /// the upper layer.
    ///
    /// # Errors
    /// `FragmentMalformed` and `FragmentTiny`, with a parameter problem.
    #[inline]
    pub fn of_ipv6(
        packet: &PacketBuf,
        place: (IfIndex, usize, bool),
        heading: ArrivedHeading<Ipv6Addr>,
        (found, upper): (FragmentPlace, Option<ArrivedUpper>),
        access: &mut AccessCounters,
    ) -> Result<Self, RefusedAction> {
        let (iface, l3, to_group) = place;
        let mut scratch = [0; 2];
        let first: &[u8; 2] =
            packet.header_array(l3, &mut scratch, access).ok_or(DropReason::IpTruncated)?;
        let fields = found.fields;
        let piece = Self {
            heading,
            iface,
            to_group,
            l3,
            repeated: found.offset,
            announced_at: found.announced_at,
            protocol: fields.next_header,
            id: fields.id,
            offset: usize::from(fields.offset),
            len: heading.total_len.saturating_sub(found.offset + ipv6_ext::HEADER_LEN_MIN),
            more: fields.more,
            ecn: first[1] >> 4 & 3,
        };
        if piece.len == 0 {
            return Err(DropReason::FragmentMalformed.into());
        }
        if piece.more && !piece.len.is_multiple_of(8) {
            return Err(piece.problem(DropReason::FragmentMalformed, 0, PAYLOAD_LENGTH_AT));
        }
        if piece.repeated - heading.header_len + piece.end() > LENGTH_MAX {
            let at = u32::try_from(found.offset + 2).unwrap_or(u32::MAX);
            return Err(piece.problem(DropReason::FragmentMalformed, 0, at));
        }
        if let Some(upper) = upper
            && heading.total_len.saturating_sub(upper.offset) < upper_len(upper.protocol)
        {
            return Err(piece.problem(DropReason::FragmentTiny, INCOMPLETE_CHAIN, 0));
        }
        Ok(piece)
    }

    /// A refusal with a parameter problem, unless the fragment may be of an ICMPv6 error for all
    /// that can be seen (RFC 4443 section 2.4(e)).
    fn problem(&self, reason: DropReason, code: u8, pointer: u32) -> RefusedAction {
        let unseen = self.protocol == IpProtocol::ICMPV6 || self.protocol.is_extension();
        if self.offset > 0 && unseen {
            return reason.into();
        }
        RefusedAction::owing(reason, IcmpError::ParameterProblem { code, pointer, to_group: false })
    }
}

/// Minimum bytes of an upper header that a first fragment must hold.
const fn upper_len(protocol: IpProtocol) -> usize {
    match protocol {
        IpProtocol::TCP => tcp::HEADER_LEN,
        IpProtocol::UDP => udp::HEADER_LEN,
        IpProtocol::ICMPV4 => icmpv4::HEADER_LEN,
        IpProtocol::ICMPV6 => icmpv6::HEADER_LEN,
        _ => 0,
    }
}
