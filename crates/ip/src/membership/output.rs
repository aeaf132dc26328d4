//! Membership messages of ours, with their IP header: hop limit 1 and router alert.
//!
//! Called by `stack` with what [`super::GroupProtocolState::work`] wrote. Invariant: one chunk, one
//! packet; the checksum is the writer's. Read first: RFC 9776 section 4, RFC 9777 section 5, RFC
//! 2113, RFC 2711.

use core::net::IpAddr;

use floodwall_base::Address;
use floodwall_packet::{PacketBuf, Pool};
use floodwall_wire::group::GroupAddrs;
use floodwall_wire::ipv6_ext::emit_options;
use floodwall_wire::{BufferTooShort, Dscp, IpProtocol, Ipv4Fields, Ipv6Fields, ipv4, ipv6};

/// Bytes that go before a message at most: the IPv6 header and its hop-by-hop options.
pub const HEADERS_MAX: usize = ipv6::HEADER_LEN + 8;
/// The router alert options: type, length, value 0 ("MLD", "routers shall examine").
const ROUTER_ALERT_V4: [u8; 4] = [148, 4, 0, 0];
const ROUTER_ALERT_V6: [u8; 4] = [5, 2, 0, 0];
/// "Internetwork control" (RFC 9776 section 4: TOS 0xc0).
const MEMBERSHIP_DSCP: Dscp = Dscp::new(48);

/// The IP packet around a message. `None` where the pool is empty.
#[must_use]
pub fn packet<A: Address>(pool: &Pool, ends: GroupAddrs<A>, message: &[u8]) -> Option<PacketBuf> {
    let mut headers = [0; HEADERS_MAX];
    let len = match (ends.src_addr.to_ip(), ends.dst_addr.to_ip()) {
        (IpAddr::V4(src_addr), IpAddr::V4(dst_addr)) => {
            let total_len = ipv4::HEADER_LEN + ROUTER_ALERT_V4.len() + message.len();
            let total_len = u16::try_from(total_len).ok()?;
            let mut fields = Ipv4Fields::new(src_addr, dst_addr, IpProtocol::IGMP, 1, total_len);
            (fields.dscp, fields.dont_fragment) = (MEMBERSHIP_DSCP, true);
            fields.emit_with_options(&ROUTER_ALERT_V4, &mut headers).ok()?
        }
        (IpAddr::V6(src_addr), IpAddr::V6(dst_addr)) => {
            let payload_len = u16::try_from(8 + message.len()).ok()?;
            let next = IpProtocol::HOP_BY_HOP;
            let fields = Ipv6Fields::new(src_addr, dst_addr, next, 1, payload_len);
            emit_v6(fields, &mut headers).ok()?
        }
        _ => return None,
    };
    let headers = headers.get(..len)?;
    let mut packet = pool.alloc_for(len + message.len())?;
    let room = packet.extend(len + message.len())?;
    let (front, rest) = room.split_at_mut_checked(len)?;
    front.copy_from_slice(headers);
    rest.copy_from_slice(message);
    packet.set_layers(0, len, len);
    Some(packet)
}

fn emit_v6(fields: Ipv6Fields, out: &mut [u8]) -> Result<usize, BufferTooShort> {
    let short = BufferTooShort { needed: HEADERS_MAX };
    let (header, options) = out.split_first_chunk_mut::<{ ipv6::HEADER_LEN }>().ok_or(short)?;
    fields.emit(header);
    Ok(ipv6::HEADER_LEN + emit_options(IpProtocol::ICMPV6, &ROUTER_ALERT_V6, options)?)
}
