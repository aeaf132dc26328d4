//! Packets that we originate: the IP header before the upper layer's bytes.
//!
//! Called by `stack` once route and source address are known. Reading: RFC 791, RFC 6864 (an
//! atomic packet's identification means nothing, so it is zero), RFC 8200 section 3, RFC 6437
//! (flow label 0: not labelled). Not here: what is larger than its link (`fragment.rs`).

use core::net::{Ipv4Addr, Ipv6Addr};

use floodwall_packet::{PacketBuf, Pool};
use floodwall_wire::{Dscp, Ecn, IpProtocol, Ipv4Fields, Ipv6Fields, ipv4, ipv6};

/// DF among the flags of an IPv4 header (RFC 791 section 3.1).
const DONT_FRAGMENT: u8 = 0x40;

/// Why a header could not be put before a packet, which is given back.
#[derive(Debug)]
pub enum HeaderError {
    /// No chunk was free for the header.
    NoBuffer(PacketBuf),
    /// The packet exceeds the header's length field.
    TooLong(PacketBuf),
}

/// Puts an IPv4 header before `packet`: don't fragment, no options; `class` is the whole TOS byte.
///
/// # Errors
/// See [`HeaderError`].
#[inline]
pub fn ipv4(
    pool: &Pool,
    packet: PacketBuf,
    src_addr: Ipv4Addr,
    dst_addr: Ipv4Addr,
    protocol: IpProtocol,
    ttl: u8,
    class: u8,
) -> Result<PacketBuf, HeaderError> {
    let Ok(total_len) = u16::try_from(packet.len() + ipv4::HEADER_LEN) else {
        return Err(HeaderError::TooLong(packet));
    };
    let mut packet = packet.push_header(pool, ipv4::HEADER_LEN).map_err(HeaderError::NoBuffer)?;
    let mut fields = Ipv4Fields::new(src_addr, dst_addr, protocol, ttl, total_len);
    fields.dont_fragment = true;
    (fields.dscp, fields.ecn) = (Dscp::of_traffic_class(class), Ecn::of_traffic_class(class));
    let out = packet.front_mut(ipv4::HEADER_LEN).and_then(|bytes| bytes.first_chunk_mut());
    if let Some(out) = out {
        fields.emit(out);
    }
    Ok(packet)
}

/// Puts an IPv4 header with options before `packet`: don't fragment.
///
/// # Errors
/// See [`HeaderError`]; options that no header holds are too long.
pub fn ipv4_with_options(
    pool: &Pool,
    packet: PacketBuf,
    mut fields: Ipv4Fields,
    options: &[u8],
) -> Result<PacketBuf, HeaderError> {
    let mut header = [0; ipv4::HEADER_LEN_MAX];
    let header_len = ipv4::HEADER_LEN + options.len().next_multiple_of(4);
    let Ok(total_len) = u16::try_from(packet.len() + header_len) else {
        return Err(HeaderError::TooLong(packet));
    };
    (fields.total_len, fields.dont_fragment) = (total_len, true);
    if fields.emit_with_options(options, &mut header).is_err() {
        return Err(HeaderError::TooLong(packet));
    }
    let mut packet = packet.push_header(pool, header_len).map_err(HeaderError::NoBuffer)?;
    if let (Some(out), Some(header)) = (packet.front_mut(header_len), header.get(..header_len)) {
        out.copy_from_slice(header);
    }
    Ok(packet)
}

/// Lets routers fragment a packet with this header: DF becomes clear, and `id` its identification.
pub fn let_fragment(header: &mut [u8; ipv4::HEADER_LEN], id: u16) {
    [header[4], header[5]] = id.to_be_bytes();
    header[6] &= !DONT_FRAGMENT;
    [header[10], header[11]] = [0; 2];
    let check = floodwall_checksum::header20(header).finish();
    [header[10], header[11]] = check.to_be_bytes();
}

/// Puts an IPv6 header before `packet`; `class` is the whole traffic class.
///
/// # Errors
/// See [`HeaderError`].
#[inline]
pub fn ipv6(
    pool: &Pool,
    packet: PacketBuf,
    src_addr: Ipv6Addr,
    dst_addr: Ipv6Addr,
    next_header: IpProtocol,
    hop_limit: u8,
    class: u8,
) -> Result<PacketBuf, HeaderError> {
    let Ok(payload_len) = u16::try_from(packet.len()) else {
        return Err(HeaderError::TooLong(packet));
    };
    let mut packet = packet.push_header(pool, ipv6::HEADER_LEN).map_err(HeaderError::NoBuffer)?;
    let mut fields = Ipv6Fields::new(src_addr, dst_addr, next_header, hop_limit, payload_len);
    (fields.dscp, fields.ecn) = (Dscp::of_traffic_class(class), Ecn::of_traffic_class(class));
    let out = packet.front_mut(ipv6::HEADER_LEN).and_then(|bytes| bytes.first_chunk_mut());
    if let Some(out) = out {
        fields.emit(out);
    }
    Ok(packet)
}
