//! Our own neighbour discovery messages, as complete frames.
//!
//! Called by `stack` through `ndp.rs`. Invariants: hop limit 255, checksum right, interface set,
//! every frame in one small packet. `None` means that the pool is empty or the interface is not
//! Ethernet. The caller counts what it sends. Read first: RFC 4861 sections 4 and 7.2, RFC 2464
//! section 7 (group frames).

use core::net::Ipv6Addr;

use floodwall_base::{MacAddr, solicited_node};
use floodwall_packet::{Class, PacketBuf, Pool};
use floodwall_wire::ndp::{
    NdpOption, NeighborAdvertisementFields, NeighborSolicitationFields, RedirectFields,
    RouterAdvertisementFields, RouterSolicitationFields,
};
use floodwall_wire::{
    BufferTooShort, EtherType, EthernetFields, IpProtocol, Ipv6Fields, ethernet, ipv6,
};

use super::{Advertisement, HOP_LIMIT, Nonce};
use crate::iface::Interface;

/// Every node of the link.
pub(super) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// Every router of the link.
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// Where the message starts.
const MESSAGE_AT: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN;
/// The longest message: a solicitation with two options of eight bytes.
const MESSAGE_MAX: usize = 24 + 2 * 8;
/// The longest advertisement of a router.
const MESSAGE_LONGEST: usize = crate::advertiser::MESSAGE_MAX;

/// A solicitation for the link address of `target_addr`: to its solicited-node group, or to the
/// neighbour at `unicast` to verify reachability. `src_addr` is one of our addresses.
#[must_use]
pub fn solicitation(
    pool: &Pool,
    iface: &Interface,
    src_addr: Ipv6Addr,
    target_addr: Ipv6Addr,
    unicast: Option<MacAddr>,
) -> Option<PacketBuf> {
    let group = solicited_node(target_addr);
    let (dst_addr, link_dst_addr) = match unicast {
        Some(link_addr) => (target_addr, link_addr),
        None => (group, MacAddr::of_ipv6_multicast(group)),
    };
    let options = [NdpOption::SourceLinkAddr(iface.link_addr()?)];
    frame(pool, iface, link_dst_addr, src_addr, dst_addr, |out| {
        NeighborSolicitationFields { target_addr }.emit_into(&options, src_addr, dst_addr, out)
    })
}

/// A probe for `addr`, without using it (RFC 4862 section 5.4.2), with a nonce by which we
/// recognise our own probe (RFC 7527).
#[must_use]
pub fn probe(pool: &Pool, iface: &Interface, addr: Ipv6Addr, nonce: Nonce) -> Option<PacketBuf> {
    let (src_addr, dst_addr) = (Ipv6Addr::UNSPECIFIED, solicited_node(addr));
    let options = [NdpOption::Nonce(&nonce.0)];
    frame(pool, iface, MacAddr::of_ipv6_multicast(dst_addr), src_addr, dst_addr, |out| {
        let fields = NeighborSolicitationFields { target_addr: addr };
        fields.emit_into(&options, src_addr, dst_addr, out)
    })
}

/// The answer to a solicitation, from the address that was solicited. For an anycast address the
/// override flag is clear (RFC 4861 section 7.2.7); it is sent at once, as Linux does, not after a
/// random delay.
#[must_use]
pub fn advertisement(pool: &Pool, iface: &Interface, answer: &Advertisement) -> Option<PacketBuf> {
    let &Advertisement { target_addr, dst_addr, link_dst_addr, solicited } = answer;
    let options = [NdpOption::TargetLinkAddr(iface.link_addr()?)];
    let anycast = iface.is_router_anycast(target_addr);
    let src_addr = if anycast { iface.link_local_addr()? } else { target_addr };
    frame(pool, iface, link_dst_addr, src_addr, dst_addr, |out| {
        let fields = NeighborAdvertisementFields {
            router: iface.is_router,
            solicited,
            override_entry: !anycast,
            target_addr,
        };
        fields.emit_into(&options, src_addr, dst_addr, out)
    })
}

/// Announces to all nodes that we use `addr` (RFC 4861 section 7.2.6).
#[must_use]
pub fn announce(pool: &Pool, iface: &Interface, addr: Ipv6Addr) -> Option<PacketBuf> {
    let answer = Advertisement {
        target_addr: addr,
        dst_addr: ALL_NODES,
        link_dst_addr: MacAddr::of_ipv6_multicast(ALL_NODES),
        solicited: false,
    };
    advertisement(pool, iface, &answer)
}

/// A router solicitation (RFC 4861 section 6.3.7), from our link-local address where there is one.
#[must_use]
pub fn router_solicitation(pool: &Pool, iface: &Interface) -> Option<PacketBuf> {
    let src_addr = iface.link_local_addr();
    // "MUST NOT be included if the Source Address is the unspecified address."
    let option = [NdpOption::SourceLinkAddr(iface.link_addr()?)];
    let options = if src_addr.is_some() { option.as_slice() } else { &[] };
    let (src_addr, dst_addr) = (src_addr.unwrap_or(Ipv6Addr::UNSPECIFIED), ALL_ROUTERS);
    frame(pool, iface, MacAddr::of_ipv6_multicast(dst_addr), src_addr, dst_addr, |out| {
        RouterSolicitationFields.emit_into(options, src_addr, dst_addr, out)
    })
}

/// An advertisement to all nodes of the link with `fields` and `options`, from our link-local
/// address (RFC 4861 section 6.2.3).
#[must_use]
pub fn router_advertisement(
    pool: &Pool,
    iface: &Interface,
    fields: &RouterAdvertisementFields,
    options: &[NdpOption<'_>],
) -> Option<PacketBuf> {
    let (src_addr, dst_addr) = (iface.link_local_addr()?, ALL_NODES);
    let link = MacAddr::of_ipv6_multicast(dst_addr);
    let room = pool.alloc(Class::Frame)?;
    frame_in(room, MESSAGE_LONGEST, iface, link, (src_addr, dst_addr), |out| {
        fields.emit_into(options, src_addr, dst_addr, out)
    })
}

/// Maximum bytes of a redirect, IPv6 header included (RFC 4861 section 4.5).
const REDIRECT_MAX: usize = 1280;
/// The fixed part of a redirect, a link address and the head of the option that quotes.
const REDIRECT_LEN: usize = 40 + 8 + 8;

/// A redirect to `ends.1`, from our link-local address `ends.0`, to a better first hop for
/// `packet`, which is quoted from `l3` on (RFC 4861 section 8.2): the message without its IP
/// header.
#[must_use]
pub fn redirect(
    pool: &Pool,
    ends: (Ipv6Addr, Ipv6Addr),
    fields: RedirectFields,
    target: Option<MacAddr>,
    packet: &PacketBuf,
    l3: usize,
) -> Option<PacketBuf> {
    let mut quote = [0; REDIRECT_MAX - ipv6::HEADER_LEN - REDIRECT_LEN];
    let quoted = packet.copy_out(l3, &mut quote) & !7;
    let quote = quote.get(..quoted)?;
    let link_addr = target.map(NdpOption::TargetLinkAddr);
    let all =
        [NdpOption::RedirectedHeader(quote), link_addr.unwrap_or(NdpOption::RedirectedHeader(&[]))];
    let options = if target.is_some() { all.as_slice() } else { all.get(..1)? };
    let mut message = pool.alloc_for(REDIRECT_LEN + quoted)?;
    let out = message.extend(REDIRECT_LEN + quoted)?;
    let len = fields.emit_into(options, ends.0, ends.1, out).ok()?;
    message.truncate(len);
    Some(message)
}

/// A frame around the message that `emit` writes.
fn frame(
    pool: &Pool,
    iface: &Interface,
    link_dst_addr: MacAddr,
    src_addr: Ipv6Addr,
    dst_addr: Ipv6Addr,
    emit: impl FnOnce(&mut [u8]) -> Result<usize, BufferTooShort>,
) -> Option<PacketBuf> {
    let room = pool.alloc(Class::Small)?;
    frame_in(room, MESSAGE_MAX, iface, link_dst_addr, (src_addr, dst_addr), emit)
}

/// The same in memory with room for a message of at most `most` bytes.
fn frame_in(
    mut frame: PacketBuf,
    most: usize,
    iface: &Interface,
    link_dst_addr: MacAddr,
    (src_addr, dst_addr): (Ipv6Addr, Ipv6Addr),
    emit: impl FnOnce(&mut [u8]) -> Result<usize, BufferTooShort>,
) -> Option<PacketBuf> {
    let link = EthernetFields {
        dst_addr: link_dst_addr,
        src_addr: iface.link_addr()?,
        ether_type: EtherType::IPV6,
    };
    let room = frame.extend(MESSAGE_AT + most)?;
    let (link_header, rest) = room.split_first_chunk_mut::<{ ethernet::HEADER_LEN }>()?;
    let (header, message) = rest.split_first_chunk_mut::<{ ipv6::HEADER_LEN }>()?;
    let len = emit(message).ok()?;
    let payload_len = u16::try_from(len).ok()?;
    link.emit(link_header);
    Ipv6Fields::new(src_addr, dst_addr, IpProtocol::ICMPV6, HOP_LIMIT, payload_len).emit(header);
    frame.truncate(MESSAGE_AT + len);
    frame.set_iface(iface.index);
    frame.set_layers(ethernet::HEADER_LEN, MESSAGE_AT, MESSAGE_AT);
    Some(frame)
}
