//! ICMP messages that we make: errors about packets, and answers to echoes.
//!
//! Called by `stack`. What is made is the ICMP message alone, checksum included; `output.rs` puts
//! the IP header before it. Reading: RFC 792, RFC 1122 section 3.2.2, RFC 4443 sections 2.4 and 3.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use floodwall_base::{Address, IfIndex, ipv4_is_configurable, ipv6_source_is_plausible, limits};
use floodwall_checksum::{InternetSum, pseudo_header_v6, sum, update16};
use floodwall_packet::{AccessCounters, PacketBuf, Pool};
use floodwall_wire::icmpv4::{self, Icmpv4Message, Icmpv4Type};
use floodwall_wire::icmpv6::{self, Icmpv6Message, Icmpv6Type, ParameterProblemCode};
use floodwall_wire::{IpProtocol, ipv4, ipv6, ipv6_ext};

use crate::action::IcmpError;
use crate::input::ArrivedUpper;

/// Maximum bytes of an ICMPv4 error, IP header included (RFC 1812 section 4.3.2.3).
const ERROR_MAX_V4: usize = 576;
/// Maximum bytes of an ICMPv6 error, IP header included (RFC 4443 section 2.4(c)).
const ERROR_MAX_V6: usize = 1280;

/// Maximum number of extension headers that are stepped over to see what a broken packet carries.
const STEPS_MAX: usize = 2 * limits::EXTENSION_HEADERS_MAX;

/// Whether an error about a packet may be sent at all, as far as the packet itself shows (RFC 1122
/// section 3.2.2, RFC 4443 section 2.4(e)): not about errors, not about what went to a group, not
/// about later fragments, not to a source that is no single host. `upper` is `None` where the walk
/// did not get that far; what the packet carries is looked for again then.
#[must_use]
pub fn may_answer<A: Address>(
    packet: &PacketBuf,
    l3: usize,
    addresses: (A, A),
    upper: Option<ArrivedUpper>,
    error: IcmpError,
    access: &mut AccessCounters,
) -> bool {
    let (src_addr, dst_addr) = addresses;
    // A loopback source is always our own: input refuses it on every other interface.
    let source_is_host = match src_addr.to_ip() {
        IpAddr::V4(a) => a.is_loopback() || ipv4_is_configurable(a),
        IpAddr::V6(a) => a.is_loopback() || ipv6_source_is_plausible(a),
    };
    // Loopback addresses are no host's on any wire; here they are our own programs'.
    let source_is_host =
        source_is_host || packet.iface() == IfIndex::LOOPBACK && src_addr.to_ip().is_loopback();
    let excepted = src_addr.to_ip().is_ipv6() && error.is_owed_to_groups();
    let to_group = packet.is_link_group() || dst_addr.is_group() || is_all_ones(dst_addr);
    if !source_is_host || (to_group && !excepted) {
        return false;
    }
    let icmp = match src_addr.to_ip() {
        IpAddr::V4(_) => IpProtocol::ICMPV4,
        IpAddr::V6(_) => IpProtocol::ICMPV6,
    };
    let carried = match upper {
        Some(upper) => Some((upper.protocol, upper.offset)),
        None if icmp == IpProtocol::ICMPV4 => match carried_v4(packet, l3, access) {
            CarriedQuote::LaterFragment => return false,
            CarriedQuote::Upper(protocol, offset) => Some((protocol, offset)),
            CarriedQuote::Unknown => None,
        },
        None => carried_v6(packet, l3, access),
    };
    match carried.filter(|(protocol, _)| *protocol == icmp) {
        None => true,
        Some((_, offset)) => {
            let mut scratch = [0; 1];
            match packet.header_array(l3 + offset, &mut scratch, access) {
                None => false,
                Some(&[kind]) if icmp == IpProtocol::ICMPV4 => !Icmpv4Type(kind).is_error(),
                Some(&[kind]) => {
                    !Icmpv6Type(kind).is_error() && Icmpv6Type(kind) != Icmpv6Type::REDIRECT
                }
            }
        }
    }
}

/// What a refused IPv4 packet carries.
enum CarriedQuote {
    /// This packet does not show it, and no error may be sent about it.
    LaterFragment,
    /// A protocol, and where it starts from the first byte of the IP header.
    Upper(IpProtocol, usize),
    /// The header does not show it.
    Unknown,
}

#[cold]
fn carried_v4(packet: &PacketBuf, l3: usize, access: &mut AccessCounters) -> CarriedQuote {
    let mut scratch = [0; ipv4::HEADER_LEN];
    let fixed: Option<&[u8; ipv4::HEADER_LEN]> = packet.header_array(l3, &mut scratch, access);
    let Some((fixed, len)) = fixed.and_then(|f| Some((f, ipv4::header_len(f)?))) else {
        return CarriedQuote::Unknown;
    };
    match u16::from_be_bytes([fixed[6], fixed[7]]) & 0x1fff {
        0 => CarriedQuote::Upper(IpProtocol(fixed[9]), len),
        _ => CarriedQuote::LaterFragment,
    }
}

/// What a refused IPv6 packet carries behind its extension headers; of these only the lengths are
/// read. `None` where that does not lead to an upper layer.
#[cold]
fn carried_v6(
    packet: &PacketBuf,
    l3: usize,
    access: &mut AccessCounters,
) -> Option<(IpProtocol, usize)> {
    let mut scratch = [0; 1];
    let next: &[u8; 1] = packet.header_array(l3 + 6, &mut scratch, access)?;
    let (mut next, mut offset) = (IpProtocol(next[0]), ipv6::HEADER_LEN);
    for _ in 0..STEPS_MAX {
        if !next.is_extension() {
            return Some((next, offset));
        }
        let mut scratch = [0; ipv6_ext::HEADER_LEN_MIN];
        let first = packet.header_array(l3 + offset, &mut scratch, access)?;
        offset += ipv6_ext::header_len(next, first)?;
        next = IpProtocol(first[0]);
    }
    None
}

fn is_all_ones<A: Address>(addr: A) -> bool {
    addr.to_ip() == IpAddr::V4(Ipv4Addr::BROADCAST)
}

/// An ICMPv4 error that quotes `packet` from `l3` on. `None` where the pool is empty.
#[must_use]
pub fn error_v4(pool: &Pool, error: IcmpError, packet: &PacketBuf, l3: usize) -> Option<PacketBuf> {
    use icmpv4::UnreachableCode as Code;
    let unreachable = |code| Icmpv4Message::DestinationUnreachable { code, next_hop_mtu: 0 };
    let message = match error {
        IcmpError::PortUnreachable => unreachable(Code::PORT),
        IcmpError::ProtocolUnreachable { .. } => unreachable(Code::PROTOCOL),
        IcmpError::HostUnreachable => unreachable(Code::HOST),
        IcmpError::NoRoute => unreachable(Code::NETWORK),
        IcmpError::Prohibited => unreachable(Code::PROHIBITED),
        IcmpError::BeyondScope => unreachable(Code::HOST),
        IcmpError::PacketTooBig { mtu } => Icmpv4Message::DestinationUnreachable {
            code: Code::FRAGMENTATION_NEEDED,
            next_hop_mtu: u16::try_from(mtu).unwrap_or(u16::MAX),
        },
        IcmpError::HopLimitExceeded => time_exceeded_v4(icmpv4::TimeExceededCode::TTL),
        IcmpError::ReassemblyTimeExceeded => time_exceeded_v4(icmpv4::TimeExceededCode::REASSEMBLY),
        IcmpError::ParameterProblem { code, pointer, .. } => {
            let pointer = u8::try_from(pointer).unwrap_or(u8::MAX);
            Icmpv4Message::ParameterProblem { code, pointer }
        }
    };
    let room = ERROR_MAX_V4 - ipv4::HEADER_LEN - icmpv4::HEADER_LEN;
    let (mut quote, body) = quote(pool, packet, l3, room)?;
    message.emit(body, quote.prepend_array()?);
    Some(quote)
}

/// An ICMPv4 redirect to `gateway` for the host that `packet` is for, quoting it from `l3` on
/// (RFC 792, RFC 1812 section 5.2.7.2). `None` where the pool is empty.
#[must_use]
pub fn redirect_v4(
    pool: &Pool,
    gateway: Ipv4Addr,
    packet: &PacketBuf,
    l3: usize,
) -> Option<PacketBuf> {
    let room = ERROR_MAX_V4 - ipv4::HEADER_LEN - icmpv4::HEADER_LEN;
    let (mut quote, body) = quote(pool, packet, l3, room)?;
    Icmpv4Message::Redirect { code: 1, gateway }.emit(body, quote.prepend_array()?);
    Some(quote)
}

const fn time_exceeded_v4(code: icmpv4::TimeExceededCode) -> Icmpv4Message {
    Icmpv4Message::TimeExceeded { code }
}

const fn time_exceeded_v6(code: icmpv6::TimeExceededCode) -> Icmpv6Message {
    Icmpv6Message::TimeExceeded { code }
}

/// An ICMPv6 error from `src_addr` to `dst_addr` that quotes `packet` from `l3` on. `None` where
/// the pool is empty.
#[must_use]
pub fn error_v6(
    pool: &Pool,
    error: IcmpError,
    packet: &PacketBuf,
    l3: usize,
    src_addr: Ipv6Addr,
    dst_addr: Ipv6Addr,
) -> Option<PacketBuf> {
    use icmpv6::UnreachableCode as Code;
    let unreachable = |code| Icmpv6Message::DestinationUnreachable { code };
    let message = match error {
        IcmpError::PortUnreachable => unreachable(Code::PORT),
        IcmpError::ProtocolUnreachable { pointer } => Icmpv6Message::ParameterProblem {
            code: ParameterProblemCode::UNRECOGNIZED_NEXT_HEADER,
            pointer,
        },
        IcmpError::HostUnreachable => unreachable(Code::ADDRESS),
        IcmpError::NoRoute => unreachable(Code::NO_ROUTE),
        IcmpError::Prohibited => unreachable(Code::PROHIBITED),
        IcmpError::BeyondScope => unreachable(Code::BEYOND_SCOPE),
        IcmpError::PacketTooBig { mtu } => Icmpv6Message::PacketTooBig { mtu },
        IcmpError::HopLimitExceeded => time_exceeded_v6(icmpv6::TimeExceededCode::HOP_LIMIT),
        IcmpError::ReassemblyTimeExceeded => time_exceeded_v6(icmpv6::TimeExceededCode::REASSEMBLY),
        IcmpError::ParameterProblem { code, pointer, .. } => {
            Icmpv6Message::ParameterProblem { code: ParameterProblemCode(code), pointer }
        }
    };
    let room = ERROR_MAX_V6 - ipv6::HEADER_LEN - icmpv6::HEADER_LEN;
    let (mut quote, body) = quote(pool, packet, l3, room)?;
    let len = u32::try_from(quote.len() + icmpv6::HEADER_LEN).ok()?;
    let pseudo = pseudo_header_v6(src_addr, dst_addr, IpProtocol::ICMPV6.0, len);
    message.emit(pseudo, body, quote.prepend_array()?);
    Some(quote)
}

/// As much of `packet` from `l3` on as fits `room`, with its sum.
fn quote(
    pool: &Pool,
    packet: &PacketBuf,
    l3: usize,
    room: usize,
) -> Option<(PacketBuf, InternetSum)> {
    let len = packet.len().saturating_sub(l3).min(room);
    let mut quote = pool.alloc_for(len)?;
    let bytes = quote.extend(len)?;
    packet.copy_out(l3, bytes);
    let body = sum(bytes);
    Some((quote, body))
}

/// Turns an echo request into its reply: `packet` starts with the ICMP header; the caller has
/// verified its checksum. The bytes stay where they are; type and checksum are patched (RFC 1624).
/// The addresses change places, so the sum of the pseudo header stays; where they do not, and the
/// family's checksum covers them, `replaced` has the address that was summed and the one that
/// replaces it.
///
/// # Errors
/// Gives the packet back where it is shared and the pool is empty.
pub fn echo_reply<A: Address>(
    pool: &Pool,
    mut packet: PacketBuf,
    kinds: (u8, u8),
    replaced: Option<(A, A)>,
    access: &mut AccessCounters,
) -> Result<PacketBuf, PacketBuf> {
    let Ok(bytes) = packet.pulldown(pool, 0, 4, access) else { return Err(packet) };
    let Some(bytes) = bytes.first_chunk_mut::<4>() else { return Err(packet) };
    let (asked, answered) = kinds;
    let word = |kind: u8| u16::from(kind) << 8;
    let check = u16::from_be_bytes([bytes[2], bytes[3]]);
    let mut check = update16(check, word(asked), word(answered));
    if let Some((was, is)) = replaced {
        let words = |addr: A| (0..8).map(move |n| (addr.to_bits_aligned() >> (16 * n)) as u16);
        for (was, is) in words(was).zip(words(is)) {
            check = update16(check, was, is);
        }
    }
    bytes[0] = answered;
    [bytes[2], bytes[3]] = check.to_be_bytes();
    Ok(packet)
}
