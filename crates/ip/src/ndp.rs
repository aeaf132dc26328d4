//! Neighbour discovery (NDP) for IPv6: what neighbours and routers send, and our own messages as
//! frames.
//!
//! Called by `stack` with ICMPv6 messages of types 133 to 137, after it has verified their
//! checksum, and when [`NeighborEvent::Solicit`], [`Resolution::Waiting`] or `dad.rs` need
//! something sent. Invariants: nothing is done about a message that crossed a router or was a
//! fragment; an entry is made only of a solicitation for one of our addresses by a neighbour of the
//! link; an advertisement changes something only where the neighbour is known; nothing is accepted
//! about our own addresses. Read first: RFC 4861 sections 6.1, 7.1, 7.2 and 8.1, RFC 4862 section
//! 5.4, RFC 6980, RFC 7527. Not here: the states (`neighbor.rs`), what is done about a duplicate
//! (`dad.rs`), what routers advertise of routes and prefixes (`router_discovery.rs`) and redirects
//! (`floodwall_fib::exceptions`): their checked messages are handed to the caller unchanged.
//!
//! # Under flood
//! Reachable by any station on the link; off-link packets are dropped by their hop limit. It keeps
//! nothing itself; what it makes the neighbour cache keep is bounded there, as unverified
//! neighbours. Worst work per packet: 64 options, 32 compares of addresses, one table probe. Moves
//! the drops `NdpMalformed`, `NdpHopLimit`, `NdpNotForUs`, `NdpUnsolicited`, and the counters
//! `Icmp6InNeighborSolicits`, `Icmp6InNeighborAdvertisements`, `Icmp6InRouterAdvertisements`.
//!
//! [`NeighborEvent::Solicit`]: crate::NeighborEvent::Solicit
//! [`Resolution::Waiting`]: crate::Resolution::Waiting

mod output;

use core::net::{IpAddr, Ipv6Addr};

use floodwall_base::{Counter, Counters, DropReason, Instant, MacAddr, solicited_node};
use floodwall_packet::PacketList;
use floodwall_wire::Icmpv6Type;
use floodwall_wire::ndp::{
    NdpOption, NdpOptions, NeighborAdvertisement, NeighborAdvertisementFields,
    NeighborSolicitation, PrefixInfo, Redirect, RouterAdvertisement, RouterAdvertisementFields,
    RouterSolicitation,
};

pub use self::output::{
    advertisement, announce, probe, redirect, router_advertisement, router_solicitation,
    solicitation,
};

use crate::iface::{AddressState, Interface};
use crate::neighbor::{AdvertisementFlags, NeighborCache, NeighborEvidence};

/// The hop limit of every message: no router has lowered it.
const HOP_LIMIT: u8 = 255;

/// What distinguishes our own probes from another host's (RFC 7527 section 4): the nonce option's
/// six bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Nonce(pub [u8; 6]);

/// What stands around a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NdpHeading {
    /// The IPv6 source.
    pub src_addr: Ipv6Addr,
    /// The IPv6 destination.
    pub dst_addr: Ipv6Addr,
    /// The IPv6 hop limit as it arrived.
    pub hop_limit: u8,
    /// Whether the packet had a fragment header, an atomic one included (RFC 6980).
    pub fragmented: bool,
    /// The frame's source, where the link has addresses.
    pub link_src_addr: Option<MacAddr>,
    /// Whether a route puts the source on the link, although no address of ours covers it: a prefix
    /// that a router says is on the link (RFC 5942 section 4).
    pub on_link: bool,
}

/// An answer to send: [`advertisement`] makes it a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Advertisement {
    /// The address of ours that was solicited.
    pub target_addr: Ipv6Addr,
    /// The solicitor; all nodes where the solicitation had no source.
    pub dst_addr: Ipv6Addr,
    /// The link destination of the frame.
    pub link_dst_addr: MacAddr,
    /// Whether the solicitation had a source.
    pub solicited: bool,
}

/// A router's advertisement, checked (RFC 4861 section 6.1.2), nothing of it applied yet.
#[derive(Clone, Copy, Debug)]
pub struct RouterSummary<'a> {
    /// The router's link-local address.
    pub router_addr: Ipv6Addr,
    /// The router's link address, where the option is present.
    pub link_addr: Option<MacAddr>,
    /// Its header fields: lifetime, hop limit, timers.
    pub fields: RouterAdvertisementFields,
    /// Its remaining options.
    pub options: NdpOptions<'a>,
}

impl<'a> RouterSummary<'a> {
    /// Its prefixes, impossible lengths left out.
    pub fn prefixes(&self) -> impl Iterator<Item = PrefixInfo> + use<'a> {
        self.options.filter_map(|option| match option {
            NdpOption::PrefixInfo(info) if info.prefix_len <= 128 => Some(info),
            _ => None,
        })
    }
}

/// A redirect, checked (RFC 4861 section 8.1) as far as the message and its addresses allow.
#[derive(Clone, Copy, Debug)]
pub struct RedirectSummary<'a> {
    /// The sender: a link-local address.
    pub from: Ipv6Addr,
    /// The better first hop: a link-local address, or the destination.
    pub target_addr: Ipv6Addr,
    /// The destination that is redirected.
    pub dst_addr: Ipv6Addr,
    /// The target's link address, where the option is present.
    pub link_addr: Option<MacAddr>,
    /// The beginning of the packet that caused it, where it is quoted: unchecked bytes.
    pub quote: Option<&'a [u8]>,
}

/// What a message means to us.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub enum NdpVerdict<'a> {
    /// It solicits one of our addresses. Packets that were released leave to `link_dst_addr`.
    Advertise(Advertisement),
    /// It resolved or confirmed a known neighbour: what was released leaves to `link_addr`.
    Learnt {
        /// The neighbour.
        addr: Ipv6Addr,
        /// The neighbour's link address.
        link_addr: MacAddr,
        /// Whether it is a router, where the advertisement was accepted for that.
        router: Option<bool>,
        /// Whether it answered us.
        reachable: bool,
    },
    /// Another node probes for or uses an address of ours, or our own probe came back: `dad.rs`
    /// decides.
    DadConflict {
        /// The address.
        addr: Ipv6Addr,
        /// The nonce that the message carried.
        nonce: Option<Nonce>,
    },
    /// A router advertisement.
    Router(RouterSummary<'a>),
    /// A router solicitation, and we may be a router.
    Asked,
    /// A redirect.
    Redirect(RedirectSummary<'a>),
    /// It is dropped, for this reason.
    Drop(DropReason),
}

/// Takes a message, contiguous, from the ICMPv6 type to the end of the IPv6 payload. Packets that
/// waited for the neighbour go to `released`.
pub fn input<'a>(
    message: &'a [u8],
    heading: &NdpHeading,
    iface: &Interface,
    cache: &mut NeighborCache<Ipv6Addr>,
    now: Instant,
    released: &mut PacketList,
    counters: &mut Counters,
) -> NdpVerdict<'a> {
    if heading.hop_limit != HOP_LIMIT {
        return NdpVerdict::Drop(DropReason::NdpHopLimit);
    }
    if heading.fragmented {
        return NdpVerdict::Drop(DropReason::NdpMalformed);
    }
    let kind = message.first().map_or(Icmpv6Type(0), |kind| Icmpv6Type(*kind));
    let verdict = match kind {
        Icmpv6Type::NEIGHBOR_SOLICITATION => {
            counters.count(Counter::Icmp6InNeighborSolicits);
            solicitation_input(message, heading, iface, cache, now, released)
        }
        Icmpv6Type::NEIGHBOR_ADVERTISEMENT => {
            counters.count(Counter::Icmp6InNeighborAdvertisements);
            advertisement_input(message, heading, iface, cache, now, released)
        }
        Icmpv6Type::ROUTER_ADVERTISEMENT => {
            counters.count(Counter::Icmp6InRouterAdvertisements);
            router_input(message, heading, iface)
        }
        Icmpv6Type::ROUTER_SOLICITATION => {
            router_solicitation_input(message, heading, iface, cache, now, released)
        }
        Icmpv6Type::REDIRECT => redirect_input(message, heading),
        _ => Err(DropReason::IcmpTypeUnknown),
    };
    verdict.unwrap_or_else(NdpVerdict::Drop)
}

/// RFC 4861 section 7.1.1 (what is valid) and 7.2.3 (what is done).
fn solicitation_input(
    message: &[u8],
    heading: &NdpHeading,
    iface: &Interface,
    cache: &mut NeighborCache<Ipv6Addr>,
    now: Instant,
    released: &mut PacketList,
) -> Result<NdpVerdict<'static>, DropReason> {
    let question = NeighborSolicitation::parse(message).map_err(|_| DropReason::NdpMalformed)?;
    let (target_addr, options) = (question.target_addr(), question.options());
    let link_addr = station(options.source_link_addr())?;
    let probes = heading.src_addr.is_unspecified();
    if probes && (link_addr.is_some() || heading.dst_addr != solicited_node(target_addr)) {
        return Err(DropReason::NdpMalformed);
    }
    match iface.owns_v6(target_addr) {
        Some(state) if state.is_assigned() => {}
        // RFC 4862 section 5.4.3: a probe is a conflict; other solicitations are not answered yet.
        Some(AddressState::Tentative) if probes => {
            let nonce = options.nonce().and_then(|n| n.try_into().ok()).map(Nonce);
            return Ok(NdpVerdict::DadConflict { addr: target_addr, nonce });
        }
        // Other routers have it too: a probe for it is no conflict.
        None if !probes && iface.is_router_anycast(target_addr) => {}
        _ => return Err(DropReason::NdpNotForUs),
    }
    if probes {
        return Ok(NdpVerdict::Advertise(Advertisement {
            target_addr,
            dst_addr: output::ALL_NODES,
            link_dst_addr: MacAddr::of_ipv6_multicast(output::ALL_NODES),
            solicited: false,
        }));
    }
    let src_addr = heading.src_addr;
    if is_ourself_or_elsewhere(heading, link_addr, iface) {
        return Err(DropReason::NdpNotForUs);
    }
    if let Some(link_addr) = link_addr {
        cache.solicited_by(iface.index, src_addr, link_addr, now, released);
    }
    // Without the option the frame's own source is the destination of the answer; it is not stored.
    let link_dst_addr = link_addr.or_else(|| heading.link_src_addr.filter(|l| l.is_unicast()));
    let link_dst_addr = link_dst_addr.ok_or(DropReason::NdpMalformed)?;
    let dst_addr = src_addr;
    Ok(NdpVerdict::Advertise(Advertisement {
        target_addr,
        dst_addr,
        link_dst_addr,
        solicited: true,
    }))
}

/// Off-link senders would fill the cache with what is not on the link (CVE-2008-2476); one of our
/// own addresses, or our own link address, is ourselves or a forgery.
fn is_ourself_or_elsewhere(
    heading: &NdpHeading,
    link_addr: Option<MacAddr>,
    iface: &Interface,
) -> bool {
    let src_addr = heading.src_addr;
    iface.owns_v6(src_addr).is_some()
        || link_addr.is_some_and(|l| is_ours(l, iface))
        || src_addr.is_multicast()
        || !(heading.on_link || iface.is_on_link(IpAddr::V6(src_addr)))
}

/// RFC 4861 section 7.1.2 (what is valid) and 7.2.5 (what is done, by the cache).
fn advertisement_input(
    message: &[u8],
    heading: &NdpHeading,
    iface: &Interface,
    cache: &mut NeighborCache<Ipv6Addr>,
    now: Instant,
    released: &mut PacketList,
) -> Result<NdpVerdict<'static>, DropReason> {
    let answer = NeighborAdvertisement::parse(message).map_err(|_| DropReason::NdpMalformed)?;
    let NeighborAdvertisementFields { router, solicited, override_entry, target_addr } =
        answer.fields();
    let link_addr = station(answer.options().target_link_addr())?;
    if solicited && heading.dst_addr.is_multicast() {
        return Err(DropReason::NdpMalformed);
    }
    if iface.owns_v6(target_addr).is_some() {
        // Our own advertisement, come back to us, is no conflict.
        return if link_addr.is_some_and(|l| is_ours(l, iface)) {
            Err(DropReason::NdpNotForUs)
        } else {
            Ok(NdpVerdict::DadConflict { addr: target_addr, nonce: None })
        };
    }
    let flags = AdvertisementFlags { router, solicited, overriding: override_entry };
    cache
        .advertised(iface.index, target_addr, link_addr, flags, now, released)
        .map(|NeighborEvidence { link_addr, router, reachable }| {
            let addr = target_addr;
            NdpVerdict::Learnt { addr, link_addr, router, reachable }
        })
        .ok_or(DropReason::NdpUnsolicited)
}

/// RFC 4861 section 6.1.2.
fn router_input<'a>(
    message: &'a [u8],
    heading: &NdpHeading,
    iface: &Interface,
) -> Result<NdpVerdict<'a>, DropReason> {
    let advertisement =
        RouterAdvertisement::parse(message).map_err(|_| DropReason::NdpMalformed)?;
    if !heading.src_addr.is_unicast_link_local() {
        return Err(DropReason::NdpMalformed);
    }
    let options = advertisement.options();
    let link_addr = station(options.source_link_addr())?;
    // We are no router: this is a forgery, or another node has our address.
    if iface.owns_v6(heading.src_addr).is_some() || link_addr.is_some_and(|l| is_ours(l, iface)) {
        return Err(DropReason::NdpNotForUs);
    }
    Ok(NdpVerdict::Router(RouterSummary {
        router_addr: heading.src_addr,
        link_addr,
        fields: advertisement.fields(),
        options,
    }))
}

/// RFC 4861 section 6.1.1. Hosts do not answer; a router remembers the solicitor, and that it is a
/// host (section 6.2.6).
fn router_solicitation_input(
    message: &[u8],
    heading: &NdpHeading,
    iface: &Interface,
    cache: &mut NeighborCache<Ipv6Addr>,
    now: Instant,
    released: &mut PacketList,
) -> Result<NdpVerdict<'static>, DropReason> {
    let question = RouterSolicitation::parse(message).map_err(|_| DropReason::NdpMalformed)?;
    let link_addr = station(question.options().source_link_addr())?;
    let src_addr = heading.src_addr;
    if src_addr.is_unspecified() && link_addr.is_some() {
        return Err(DropReason::NdpMalformed);
    }
    if !iface.is_router {
        return Err(DropReason::IcmpTypeUnknown);
    }
    if let Some(link_addr) = link_addr {
        if is_ourself_or_elsewhere(heading, Some(link_addr), iface) {
            return Err(DropReason::NdpNotForUs);
        }
        cache.solicited_by(iface.index, src_addr, link_addr, now, released);
        cache.is_host(iface.index, src_addr);
    }
    Ok(NdpVerdict::Asked)
}

/// RFC 4861 section 8.1, as far as the message allows.
fn redirect_input<'a>(
    message: &'a [u8],
    heading: &NdpHeading,
) -> Result<NdpVerdict<'a>, DropReason> {
    let redirect = Redirect::parse(message).map_err(|_| DropReason::NdpMalformed)?;
    if !heading.src_addr.is_unicast_link_local() || !redirect.fields().is_target_allowed() {
        return Err(DropReason::NdpMalformed);
    }
    let (fields, mut options) = (redirect.fields(), redirect.options());
    let link_addr = station(options.target_link_addr())?;
    let quote = options.find_map(|option| match option {
        NdpOption::RedirectedHeader(bytes) => Some(bytes),
        _ => None,
    });
    Ok(NdpVerdict::Redirect(RedirectSummary {
        from: heading.src_addr,
        target_addr: fields.target_addr,
        dst_addr: fields.dst_addr,
        link_addr,
        quote,
    }))
}

/// A link address that an option supplies: none, or one that a station can have.
fn station(link_addr: Option<MacAddr>) -> Result<Option<MacAddr>, DropReason> {
    match link_addr {
        Some(link_addr) if !link_addr.is_unicast() => Err(DropReason::NdpMalformed),
        other => Ok(other),
    }
}

fn is_ours(link_addr: MacAddr, iface: &Interface) -> bool {
    iface.link_addr() == Some(link_addr)
}

#[cfg(test)]
#[path = "ndp/tests.rs"]
mod tests;
