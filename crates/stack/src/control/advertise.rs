//! Router advertisements that this host sends as a router: periodic, and in response to router
//! solicitations.
//!
//! Called by `neighbors.rs` for timed work and with router solicitations, and by `link.rs` when a
//! link goes down or comes up. Contents and timing are `floodwall_ip::advertiser`'s. Invariants:
//! only interfaces that are configured to advertise, and that forward IPv6, do; only the control
//! shard sends. Reading: RFC 4861 section 6.2.
//!
//! # Under flood
//! See `floodwall_ip::advertiser`: however many solicitations arrive, one multicast advertisement
//! in three seconds answers them all.

pub(crate) mod state;

use floodwall_base::{Counter, DropReason, IfIndex, Instant, PublicRandom, Units};
use floodwall_ip::advertiser::{ADVERTISED_MAX, Advertiser};
use floodwall_ip::ndp;
use floodwall_wire::ndp::NdpOption;

use crate::round_context::RoundContext;
use crate::stack::Stack;

impl Stack {
    /// The advertising interfaces with their advertisers, for display.
    pub fn advertisers(&self) -> impl Iterator<Item = (IfIndex, &Advertiser)> {
        self.control.advertisers.0.iter().map(|(iface, engine)| (*iface, engine))
    }

    /// Handles a router solicitation.
    pub(crate) fn router_asked(
        &mut self,
        cx: &mut RoundContext<'_>,
        iface: IfIndex,
    ) -> Result<(), DropReason> {
        let engine = self.control.advertisers.of(iface).ok_or(DropReason::IcmpTypeUnknown)?;
        engine.asked(cx.now, &mut cx.random.public);
        self.stats.counters.count(Counter::Icmp6InRouterSolicits);
        Ok(())
    }

    /// The link went down or came up.
    pub(crate) fn advertisers_link_changed(
        &mut self,
        iface: IfIndex,
        up: bool,
        now: Instant,
        random: &mut PublicRandom,
    ) {
        let Some(engine) = self.control.advertisers.of(iface) else { return };
        if up { engine.start(now, random) } else { engine.stop() }
    }

    /// Sends the advertisements that are due, up to `budget` units.
    pub(crate) fn advertiser_timers(&mut self, cx: &mut RoundContext<'_>, budget: Units) -> Units {
        let (mut left, mut at) = (budget, 0);
        while let Some((iface, engine)) =
            self.control.advertisers.0.get_mut(at).filter(|_| left.0 > 0)
        {
            let iface = *iface;
            if engine.work(cx.now, &mut cx.random.public) {
                self.advertise(cx, iface);
                left = left.minus(Units(1));
            }
            at += 1;
        }
        budget.minus(left)
    }

    /// Stops acting as a router: the final advertisements with lifetime zero (RFC 4861 section
    /// 6.2.5) leave on every link with the next timed work.
    pub fn cease_advertising(&mut self, now: Instant) {
        self.control.advertisers.0.iter_mut().for_each(|(_, engine)| engine.cease(now));
    }

    fn advertise(&mut self, cx: &mut RoundContext<'_>, iface: IfIndex) {
        let interface = self.interfaces.get(usize::from(iface.0)).filter(|i| i.up);
        let engine = self.control.advertisers.0.iter().find(|(index, _)| *index == iface);
        let (Some(interface), Some((_, engine))) = (interface, engine) else { return };
        let mut room = [NdpOption::Mtu(0); ADVERTISED_MAX + 3];
        let options = engine.options(interface.link_addr(), &mut room);
        let fields = engine.fields();
        // Without a usable link-local address nothing is sent; retried at the next due time.
        if interface.link_local_addr().is_none() {
            return;
        }
        let frame = ndp::router_advertisement(cx.pool, interface, &fields, options);
        self.depart_counted(cx, frame, Counter::Icmp6OutRouterAdvertisements);
    }
}
