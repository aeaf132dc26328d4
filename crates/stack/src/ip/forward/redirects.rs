//! `RedirectOffers`: pairs of hosts that talk through this router, for devices that can pass their
//! packets on without a worker.
//!
//! Filled by `forward.rs` with packets that have left, emptied by the dispatcher once a turn, and
//! only where a device takes them. A pair is offered for one direction at a time, while everything
//! that decides its way is known to change [`Stack::redirects_changed`]: routes, addresses, links,
//! MTUs, access lists, neighbours. Not offered: a choice among several next hops (ECMP), which
//! depends on ports; arrivals on an interface with an access list, because its rules are counted;
//! what leaves by the interface that it came by; a link without stations. While packets are
//! captured nothing is offered, so that the capture has them all.
//!
//! # Under flood
//! Reachable by pairs of hosts with packets forwarded in both directions (`flows.rs`). Bound:
//! [`REDIRECT_OFFERS_MAX`] offers a turn, in memory taken at the start. Work per packet: the place
//! of its pair and one cache line, and for an offer two look-ups.

use core::time::Duration;

use floodwall_base::limits::REDIRECT_OFFERS_MAX;
use floodwall_base::{Counter, IfIndex, Instant};
use floodwall_fib::Found;
use floodwall_packet::RedirectOffer;
use floodwall_wire::{IpProtocol, ethernet};

use super::crossing::CrossingPacket;
use super::redirect_offers::RedirectOffers;
use crate::ip::rx_meta::RxMeta;
use crate::round_context::RoundContext;
use crate::shards::Role;
use crate::stack::Stack;

/// How long a pair may pass without a packet here: well within the time after which `flows.rs`
/// takes it for silent.
const KEPT_MAX: Duration = Duration::from_secs(10);
/// The same while a neighbour's reachability is being probed, or a follower does not know.
const KEPT_UNSURE: Duration = Duration::from_secs(1);

impl Stack {
    /// As [`Engine::take_redirects`](floodwall_packet::Engine::take_redirects).
    pub(crate) fn take_redirect_offers(&mut self, taken: &mut Vec<RedirectOffer>) {
        let is_seen = self.is_captured();
        let Some(forwarding) = &mut self.policy.forwarding else { return };
        let RedirectOffers { wanted, offers } = &mut forwarding.redirects;
        if !*wanted {
            *wanted = true;
            offers.reserve_exact(REDIRECT_OFFERS_MAX);
        }
        if is_seen {
            offers.clear();
        }
        taken.append(offers);
    }

    /// A number that changes with everything that an offer depends on.
    pub(crate) fn redirects_changed(&self) -> u64 {
        let taken_over = match &self.shard.role {
            Role::Follower(follower) => follower.taken_over(),
            _ => 0,
        };
        let changes = [
            self.stats.counters.of(Counter::FloodwallChanges),
            u64::from(self.v4.routes.generation()),
            u64::from(self.v6.routes.generation()),
            self.v4.neighbors.moves(),
            self.v6.neighbors.moves(),
            self.policy.access_changes,
            taken_over,
        ];
        changes.into_iter().fold(0_u64, u64::wrapping_add) << 1 | u64::from(self.is_captured())
    }

    /// Offers the pair of a packet that was just sent on, where all of its packets take this way.
    pub(super) fn offer_redirect<A: CrossingPacket>(
        &mut self,
        cx: &RoundContext<'_>,
        ascent: &RxMeta<A>,
        found: Option<&Found<A>>,
    ) {
        let heading = &ascent.heading;
        let Some(found) = found.filter(|found| !found.is_choice && found.iface != ascent.iface)
        else {
            return;
        };
        let is_plain = matches!(heading.protocol, IpProtocol::UDP | IpProtocol::TCP)
            && !heading.is_fragment
            && ascent.l3 == ethernet::HEADER_LEN;
        if !is_plain || self.access_list(ascent.iface).is_some() || self.is_captured() {
            return;
        }
        let next_hop = found.gateway.unwrap_or(heading.dst_addr);
        let until = self.redirected_until::<A>(cx, found.iface, next_hop);
        let Some(interface) = self.interfaces.get(usize::from(found.iface.0)) else { return };
        let mtu = interface.mtu_of(A::BITS == 32);
        // What has just left is the last, with the stations of its link.
        let sent = cx.departing.last().filter(|sent| found.iface == sent.iface());
        let stations = sent.and_then(|sent| sent.first().first_chunk());
        let (Some(stations), true) = (stations, until > cx.now) else { return };
        let offer = RedirectOffer {
            arrives: ascent.iface,
            leaves: found.iface,
            from: heading.src_addr.to_ip(),
            to: heading.dst_addr.to_ip(),
            stations: *stations,
            mtu,
            until,
        };
        if let Some(forwarding) = &mut self.policy.forwarding {
            forwarding.redirects.offers.push(offer);
        }
    }

    fn redirected_until<A: CrossingPacket>(
        &mut self,
        cx: &RoundContext<'_>,
        iface: IfIndex,
        next_hop: A,
    ) -> Instant {
        if self.is_follower() {
            return cx.now + KEPT_UNSURE;
        }
        match A::neighbors(self).watch_from(iface, next_hop) {
            Instant::FAR => cx.now + KEPT_UNSURE,
            watch_from => watch_from.min(cx.now + KEPT_MAX),
        }
    }
}
