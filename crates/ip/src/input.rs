//! Validates what arrived: the fixed header, the addresses, the options or extension headers.
//!
//! Called by `stack` once it has read the link header. What comes out is a plain value with
//! offsets; these bytes are not checked again after this. Headers are read where they lie, however
//! the packet is cut into chunks. Reading: RFC 791, RFC 1122 section 3.2.1, RFC 8200 section 4. Not
//! here: whether an address is ours (`stack`), reassembly.

use core::net::{Ipv4Addr, Ipv6Addr};

use floodwall_base::{Address, DropReason, ipv4_source_is_plausible, ipv6_source_is_plausible};
use floodwall_packet::{AccessCounters, PacketBuf};
use floodwall_wire::ipv4_options::{Ipv4Option, Ipv4Options};
use floodwall_wire::ipv6_walk::{ExtensionReason, FragmentPlace};
use floodwall_wire::{
    ExtensionLimits, IpProtocol, Ipv4Error, Ipv4Header, Ipv6Error, Ipv6Header, WalkEnd, icmpv4,
    ipv4, ipv6, ipv6_ext,
};

use crate::action::{IcmpError, RefusedAction};
use crate::chain;

/// The fixed header of a packet that arrived, checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
// In this order because a `Result` puts its error's byte over the first field. Were that an IPv6
// address, compilers would split it into 1 byte and 15, and copy the 15 as two overlapping stores,
// for which a processor waits until its stores are done: twice the cost of the whole header.
#[repr(C)]
pub struct ArrivedHeading<A> {
    /// Bytes from the first of the IP header to the last of the packet.
    pub total_len: usize,
    /// Bytes of the fixed header with its IPv4 options.
    pub header_len: usize,
    /// Time to live, or hop limit.
    pub hop_limit: u8,
    /// What follows the header: an upper protocol, or an extension header.
    pub protocol: IpProtocol,
    /// Whether it is an IPv4 fragment.
    pub is_fragment: bool,
    /// The source address.
    pub src_addr: A,
    /// The destination address.
    pub dst_addr: A,
}

/// The offset of the upper layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArrivedUpper {
    /// Which protocol.
    pub protocol: IpProtocol,
    /// From the first byte of the IP header.
    pub offset: usize,
    /// Where the number of the protocol stands, from the first byte of the IP header.
    pub announced_at: usize,
    /// Whether a fragment header came before it, an atomic one then (RFC 6980).
    pub fragmented: bool,
}

/// What an IPv6 packet's extension headers lead to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layers {
    /// The upper layer.
    Upper(ArrivedUpper),
    /// The packet is a fragment, and no atomic one.
    Fragment {
        /// Its header.
        place: FragmentPlace,
        /// The offset of the upper layer: in a first fragment only.
        upper: Option<ArrivedUpper>,
    },
}

/// Checks the IPv4 header at `l3`. Cost: about 4 ns, one borrow.
///
/// # Errors
/// Why it is dropped; a broken header gets no ICMP error (RFC 1122 section 3.2.1).
#[inline]
pub fn ipv4(
    packet: &PacketBuf,
    l3: usize,
    access: &mut AccessCounters,
) -> Result<ArrivedHeading<Ipv4Addr>, DropReason> {
    let available = packet.len().saturating_sub(l3);
    match packet.first_array::<{ ipv4::HEADER_LEN }>(l3) {
        Some(fixed) if fixed[0] == 0x45 => {
            access.borrow();
            let header = Ipv4Header::parse(fixed, available).map_err(ipv4_reason)?;
            Ok(heading_v4(&header))
        }
        // By way of a copy, or the usual heading would be built in memory, as this one is.
        _ => {
            let heading = ipv4_slow_path(packet, l3, access)?;
            Ok(heading)
        }
    }
}

/// A header with options, in pieces, or broken.
#[cold]
fn ipv4_slow_path(
    packet: &PacketBuf,
    l3: usize,
    access: &mut AccessCounters,
) -> Result<ArrivedHeading<Ipv4Addr>, DropReason> {
    let available = packet.len().saturating_sub(l3);
    if available < ipv4::HEADER_LEN {
        return Err(DropReason::IpTruncated);
    }
    // Its length first, a byte of it, so that what straddles chunks is copied once.
    let mut scratch = [0; 1];
    let first: &[u8; 1] =
        packet.header_array(l3, &mut scratch, access).ok_or(DropReason::IpTruncated)?;
    if first[0] >> 4 != 4 {
        return Err(DropReason::IpVersion);
    }
    let wanted = (usize::from(first[0] & 0x0f) * 4).max(ipv4::HEADER_LEN);
    let mut scratch = [0; ipv4::HEADER_LEN_MAX];
    let bytes =
        packet.header(l3, wanted, &mut scratch, access).ok_or(DropReason::IpHeaderLength)?;
    let header = Ipv4Header::parse(bytes, available).map_err(ipv4_reason)?;
    Ok(heading_v4(&header))
}

const fn ipv4_reason(error: Ipv4Error) -> DropReason {
    match error {
        Ipv4Error::Truncated => DropReason::IpTruncated,
        Ipv4Error::Version => DropReason::IpVersion,
        Ipv4Error::HeaderLength => DropReason::IpHeaderLength,
        Ipv4Error::TotalLengthShort | Ipv4Error::TotalLengthLong => DropReason::IpLength,
        Ipv4Error::Checksum => DropReason::IpHeaderChecksum,
    }
}

#[inline]
fn heading_v4(header: &Ipv4Header<'_>) -> ArrivedHeading<Ipv4Addr> {
    ArrivedHeading {
        src_addr: header.src_addr(),
        dst_addr: header.dst_addr(),
        total_len: header.total_len(),
        header_len: header.header_len(),
        hop_limit: header.ttl(),
        protocol: header.protocol(),
        is_fragment: header.is_fragment(),
    }
}

/// Source routes are dropped (RFC 7126 section 4.3), broken options answered (RFC 1122 section
/// 3.2.1.8), the rest ignored.
#[cold]
pub(crate) fn ipv4_options(
    packet: &PacketBuf,
    l3: usize,
    len: usize,
    access: &mut AccessCounters,
) -> Result<(), RefusedAction> {
    let mut scratch = [0; ipv4::HEADER_LEN_MAX];
    let at = l3 + ipv4::HEADER_LEN;
    let bytes = packet.header(at, len, &mut scratch, access).ok_or(DropReason::IpHeaderLength)?;
    for option in Ipv4Options::new(bytes) {
        match option {
            Ok(Ipv4Option::LooseSourceRoute(_) | Ipv4Option::StrictSourceRoute(_)) => {
                return Err(DropReason::IpSourceRoute.into());
            }
            Ok(_) => {}
            Err(error) => {
                let pointer = u32::try_from(error.pointer()).unwrap_or(0);
                let owed = IcmpError::ParameterProblem { code: 0, pointer, to_group: false };
                return Err(RefusedAction::owing(DropReason::IpOptionMalformed, owed));
            }
        }
    }
    Ok(())
}

/// Checks the IPv6 header at `l3`. Cost: about 4 ns, one borrow.
///
/// # Errors
/// Why it is dropped; there is no ICMP error.
#[inline]
pub fn ipv6(
    packet: &PacketBuf,
    l3: usize,
    access: &mut AccessCounters,
) -> Result<ArrivedHeading<Ipv6Addr>, DropReason> {
    let copied;
    // Both ways lead to one reference, so that what is read behind it is read once, in registers.
    let fixed: &[u8; ipv6::HEADER_LEN] = match packet.first_array(l3) {
        Some(fixed) => {
            access.borrow();
            fixed
        }
        None => {
            copied = packet.array_in_pieces(l3, access).ok_or(DropReason::IpTruncated)?;
            &copied
        }
    };
    let available = packet.len().saturating_sub(l3);
    let header = Ipv6Header::parse(fixed, available).map_err(ipv6_reason)?;
    // Both are zeros (RFC 2675 section 2), seen at once.
    let jumbo = header.payload_len() | usize::from(header.next_header().0) == 0;
    Ok(ArrivedHeading {
        src_addr: header.src_addr(),
        dst_addr: header.dst_addr(),
        total_len: if jumbo { available } else { header.total_len() },
        header_len: ipv6::HEADER_LEN,
        hop_limit: header.hop_limit(),
        protocol: header.next_header(),
        is_fragment: false,
    })
}

const fn ipv6_reason(error: Ipv6Error) -> DropReason {
    match error {
        Ipv6Error::Truncated => DropReason::IpTruncated,
        Ipv6Error::Version => DropReason::IpVersion,
        _ => DropReason::IpLength,
    }
}

/// Whether the addresses may stand in a packet that came over a wire.
///
/// # Errors
/// `IpSourceInvalid` or `IpDestinationInvalid`. The unspecified source passes for IPv6 (address
/// detection uses it, and no other use gets an answer) and is refused for IPv4.
#[inline]
pub fn ipv4_addresses(heading: &ArrivedHeading<Ipv4Addr>) -> Result<(), DropReason> {
    // Switches send group queries without having an address, hosts without one send reports (RFC
    // 9776 section 4.2.14, RFC 4541).
    let nameless = heading.src_addr.is_unspecified()
        && heading.protocol == IpProtocol::IGMP
        && heading.dst_addr.is_multicast();
    if !ipv4_source_is_plausible(heading.src_addr) && !nameless {
        return Err(DropReason::IpSourceInvalid);
    }
    let first = heading.dst_addr.octets()[0];
    if first == 0 || first == 127 {
        return Err(DropReason::IpDestinationInvalid);
    }
    Ok(())
}

/// As [`ipv4_addresses`], for IPv6 (RFC 4291 sections 2.5 and 2.7).
///
/// # Errors
/// As there.
#[inline]
pub fn ipv6_addresses(heading: &ArrivedHeading<Ipv6Addr>) -> Result<(), DropReason> {
    if !ipv6_source_is_plausible(heading.src_addr) && !heading.src_addr.is_unspecified() {
        return Err(DropReason::IpSourceInvalid);
    }
    let dst_addr = heading.dst_addr;
    if dst_addr.is_group() {
        // Scope 0 is reserved, scope 1 never leaves a node (RFC 4291 section 2.7).
        if dst_addr.octets()[1] & 0x0f <= 1 {
            return Err(DropReason::IpDestinationInvalid);
        }
    } else if !ipv6_source_is_plausible(dst_addr) {
        return Err(DropReason::IpDestinationInvalid);
    }
    Ok(())
}

/// Where the upper layer of an IPv4 packet begins, once its options have been checked.
///
/// # Errors
/// Source routes, broken options (which are answered).
#[inline]
pub fn ipv4_upper(
    packet: &PacketBuf,
    l3: usize,
    heading: &ArrivedHeading<Ipv4Addr>,
    access: &mut AccessCounters,
) -> Result<ArrivedUpper, RefusedAction> {
    debug_assert!(!heading.is_fragment, "fragments go to reassembly");
    if heading.header_len > ipv4::HEADER_LEN {
        ipv4_options(packet, l3, heading.header_len - ipv4::HEADER_LEN, access)?;
    }
    Ok(ArrivedUpper {
        protocol: heading.protocol,
        offset: heading.header_len,
        announced_at: 9,
        fragmented: false,
    })
}

/// Walks an IPv6 packet's extension headers to the upper layer, or to where reassembly begins.
///
/// # Errors
/// A refusal, with its ICMP error by RFC 8200 and RFC 8883.
#[inline]
pub fn ipv6_upper(
    packet: &PacketBuf,
    l3: usize,
    heading: &ArrivedHeading<Ipv6Addr>,
    limits: &ExtensionLimits,
    access: &mut AccessCounters,
) -> Result<Layers, RefusedAction> {
    if !heading.protocol.is_extension() && heading.protocol != IpProtocol::NO_NEXT_HEADER {
        let (protocol, offset) = (heading.protocol, ipv6::HEADER_LEN);
        let upper = ArrivedUpper { protocol, offset, announced_at: 6, fragmented: false };
        return Ok(Layers::Upper(upper));
    }
    walk(packet, l3, (heading.protocol, heading.total_len), limits, access)
}

/// What a walk would find in a fragment other than the first that has no further header, as nearly
/// all fragments are; `None` where a walk is needed.
#[inline]
fn later_fragment(
    packet: &PacketBuf,
    l3: usize,
    total_len: usize,
    limits: &ExtensionLimits,
) -> Option<FragmentPlace> {
    let header = packet.first_array::<{ ipv6_ext::HEADER_LEN_MIN }>(l3 + ipv6::HEADER_LEN)?;
    let whole = total_len >= ipv6::HEADER_LEN + header.len();
    let allowed = limits.headers_max > 0 && limits.chain_bytes_max >= header.len();
    FragmentPlace::of_later(header).filter(|_| whole && allowed)
}

/// Takes the first header and the packet's length by value: callers without extension headers keep
/// the heading in registers then.
#[inline(never)]
fn walk(
    packet: &PacketBuf,
    l3: usize,
    start: (IpProtocol, usize),
    limits: &ExtensionLimits,
    access: &mut AccessCounters,
) -> Result<Layers, RefusedAction> {
    if start.0 == IpProtocol::FRAGMENT
        && let Some(place) = later_fragment(packet, l3, start.1, limits)
    {
        access.borrow();
        return Ok(Layers::Fragment { place, upper: None });
    }
    let walk = chain::walk(packet, l3, start, limits, access)?;
    let (fragment, end) = (walk.fragment(), walk.end());
    let cut = fragment.filter(|place| !is_atomic(place));
    match (end, cut) {
        (Some(WalkEnd::UpperLayer { protocol, offset, announced_at }), cut) => {
            let fragmented = fragment.is_some();
            let upper = ArrivedUpper { protocol, offset, announced_at, fragmented };
            Ok(match cut {
                None => Layers::Upper(upper),
                Some(place) => Layers::Fragment { place, upper: Some(upper) },
            })
        }
        (Some(WalkEnd::LaterFragment { .. }), Some(place)) => {
            Ok(Layers::Fragment { place, upper: None })
        }
        (Some(WalkEnd::NoNextHeader { .. }), _) => Err(DropReason::NoNextHeader.into()),
        (None, _) | (Some(WalkEnd::LaterFragment { .. }), None) => {
            Err(DropReason::ExtensionMalformed.into())
        }
    }
}

/// The whole packet in one fragment: processed by itself (RFC 6946 section 4).
const fn is_atomic(place: &FragmentPlace) -> bool {
    place.fields.is_atomic()
}

pub(crate) const fn extension_reason(reason: ExtensionReason) -> DropReason {
    use ExtensionReason as R;
    match reason {
        R::ChainTooLong | R::PaddingTooLong | R::TooManyHeaders | R::TooManyOptions => {
            DropReason::ExtensionLimit
        }
        R::HopByHopNotFirst => DropReason::ExtensionOrder,
        R::JumboPayload | R::JumboUnsupported => DropReason::ExtensionJumbo,
        R::RoutingSegmentsLeft => DropReason::ExtensionRouting,
        R::UnknownOption => DropReason::ExtensionOptionUnknown,
        R::RepeatedFragment => DropReason::FragmentMalformed,
        R::OptionLength | R::Truncated => DropReason::ExtensionMalformed,
    }
}

/// Bytes of an ICMP header, for callers that look at one without validating it.
pub const ICMP_HEADER_LEN: usize = icmpv4::HEADER_LEN;
