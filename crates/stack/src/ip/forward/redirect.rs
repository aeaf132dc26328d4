//! ICMP redirects that we send: a packet leaves by the link that it came by, so its sender could
//! send it to the next hop directly.
//!
//! Called by `forward.rs`, which forwards the packet regardless. Invariants: a redirect goes only
//! to a sender on that very link, names a neighbour on it, and is never sent about an error or
//! another packet that earns none (RFC 1812 section 4.3.2.7); each redirect counts as an error
//! does, against the peer's share and the global one (`ip/icmp_limit.rs`). Reading: RFC 1812
//! section 5.2.7.2, RFC 4861 section 8.2. Not here: redirects that we follow (`redirect.rs` beside
//! `forward.rs`).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use floodwall_base::{Address, Counter, IfIndex};
use floodwall_ip::{IcmpAllowance, IcmpError, Interface, LinkMedium, icmp, ndp};
use floodwall_packet::PacketBuf;
use floodwall_wire::ndp::RedirectFields;

use super::crossing::CrossingPacket;
use super::forward_path::ForwardPath;
use crate::ip::addr_pair::AddrPair;
use crate::ip::ip_family::IpFamily;
use crate::ip::outgoing_packet::OutgoingPacket;
use crate::ip::rx_meta::RxMeta;
use crate::round_context::RoundContext;
use crate::stack::Stack;

/// Hop limit of a message that no router has forwarded (RFC 4861 section 8.1).
const UNFORWARDED_HOP_LIMIT: u8 = 255;

impl Stack {
    /// Sends a redirect to the packet's sender, if it is on the link and the limits allow.
    pub(super) fn redirect_sender<A: CrossingPacket>(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: &PacketBuf,
        ascent: &RxMeta<A>,
        way: &ForwardPath<A>,
    ) {
        let Some(next_hop) = way.next_hop() else { return };
        let (from, iface) = (ascent.heading.src_addr, ascent.iface);
        let sends = self.policy.forwarding.as_ref().is_some_and(|f| f.port(iface).redirects);
        let interface = self.interfaces.get(usize::from(iface.0)).filter(|_| sends);
        let may = |i: &&Interface| may_redirect(i, from, next_hop, ascent.heading.dst_addr);
        let Some(interface) = interface.filter(may) else { return };
        let own = match next_hop.to_ip() {
            IpAddr::V4(_) => interface.solicit_source(from.to_ip()),
            IpAddr::V6(_) => interface.link_local_addr().map(IpAddr::V6),
        };
        let Some(own) = own else { return };
        let ends = (from, ascent.heading.dst_addr);
        // Any error will do that has no exception for groups.
        let (error, access) = (IcmpError::NoRoute, &mut self.stats.access);
        if !icmp::may_answer(packet, ascent.l3, ends, None, error, access) {
            return;
        }
        let counters = &mut self.stats.counters;
        match self.icmp.limit.allow_error(from.to_ip(), cx.now, &mut cx.random.secret) {
            IcmpAllowance::Yes => {}
            IcmpAllowance::PeerLimited => return counters.count(A::OUT_LIMITED_PEER),
            IcmpAllowance::GlobalLimited => return counters.count(A::OUT_LIMITED_ALL),
        }
        match (own, from.to_ip(), next_hop.to_ip(), ascent.heading.dst_addr.to_ip()) {
            (IpAddr::V4(own), IpAddr::V4(to), IpAddr::V4(gateway), _) => {
                let message = icmp::redirect_v4(cx.pool, gateway, packet, ascent.l3);
                let ends = AddrPair { src_addr: own, dst_addr: to };
                let hop_limit = self.hop_limit_of::<Ipv4Addr>(iface);
                self.send_redirect(
                    cx,
                    message,
                    ends,
                    (hop_limit, iface),
                    Counter::IcmpOutRedirects,
                );
            }
            (IpAddr::V6(own), IpAddr::V6(to), IpAddr::V6(target_addr), IpAddr::V6(dst_addr)) => {
                let known = self.v6.neighbors.neighbor(iface, target_addr);
                let target = known.and_then(|neighbor| neighbor.link_addr);
                let fields = RedirectFields { target_addr, dst_addr };
                let message = ndp::redirect(cx.pool, (own, to), fields, target, packet, ascent.l3);
                let ends = AddrPair { src_addr: own, dst_addr: to };
                let at = (UNFORWARDED_HOP_LIMIT, iface);
                self.send_redirect::<Ipv6Addr>(cx, message, ends, at, Counter::Icmp6OutRedirects);
            }
            _ => {}
        }
    }

    fn send_redirect<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        message: Option<PacketBuf>,
        ends: AddrPair<A>,
        (hop_limit, iface): (u8, IfIndex),
        counter: Counter,
    ) {
        let Some(packet) = message else { return self.stats.counters.count(A::OUT_DISCARDS) };
        self.stats.counters.count(A::OUT_ICMP);
        self.stats.counters.count(counter);
        let zone = Some(iface);
        self.output(
            cx,
            OutgoingPacket {
                packet,
                ends,
                protocol: A::ICMP,
                hop_limit,
                class: A::ERROR_CLASS,
                zone,
            },
        );
    }
}

/// Whether a redirect to this next hop may be sent to a host on the link.
fn may_redirect<A: Address>(interface: &Interface, from: A, next_hop: A, dst_addr: A) -> bool {
    let ethernet = matches!(interface.medium, LinkMedium::Ethernet(_));
    let target = match next_hop.to_ip() {
        addr @ IpAddr::V4(_) => interface.is_on_link(addr),
        // "MUST be a link-local address", or the destination itself, which is on the link then.
        IpAddr::V6(addr) => addr.is_unicast_link_local() || next_hop == dst_addr,
    };
    ethernet && target && interface.is_on_link(from.to_ip())
}
