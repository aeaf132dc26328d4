//! Router advertisements that we send: when, on which links, and the answer to who asks.
//!
//! Called by `neighbors.rs` for timed work and with router solicitations, and by `link.rs` when a
//! link goes or comes. What is said and when is `floodwall_ip::advertiser`'s. Invariants: only
//! interfaces that are configured to speak, and that forward IPv6, do; the control shard alone
//! speaks. Reading: RFC 4861 section 6.2.
//!
//! # Under flood
//! See `floodwall_ip::advertiser`: however many ask, all are told once in three seconds.

use floodwall_base::{Counter, DropReason, IfIndex, Instant, PublicRandom, Units};
use floodwall_ip::advertiser::{ADVERTISED_MAX, Advertiser};
use floodwall_ip::{LinkMedium, ndp};
use floodwall_wire::ndp::NdpOption;

use crate::config::StackConfig;
use crate::cx::Cx;
use crate::shard::Stack;

/// Who speaks.
pub(crate) struct Advertisers(Box<[(IfIndex, Advertiser)]>);

impl Advertisers {
    pub(crate) fn new(config: &StackConfig, random: &mut PublicRandom, now: Instant) -> Self {
        let speaking = config.interfaces.iter().enumerate().filter_map(|(at, interface)| {
            let forwards = config.ipv6_forwarding && interface.forwarding;
            let ethernet = matches!(interface.medium, LinkMedium::Ethernet(_));
            let said = interface.advertise.as_ref().filter(|_| forwards && ethernet)?;
            Some((IfIndex(at as u16 + 1), Advertiser::new(said.clone(), now, random)))
        });
        Self(speaking.collect())
    }

    pub(crate) fn none() -> Self {
        Self(Box::default())
    }

    fn of(&mut self, iface: IfIndex) -> Option<&mut Advertiser> {
        self.0.iter_mut().find(|(index, _)| *index == iface).map(|(_, engine)| engine)
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.0.iter().filter_map(|(_, engine)| engine.deadline()).min()
    }
}

impl Stack {
    /// What we advertise, for each interface that does: for showing.
    pub fn advertisers(&self) -> impl Iterator<Item = (IfIndex, &Advertiser)> {
        self.advertisers.0.iter().map(|(iface, engine)| (*iface, engine))
    }

    /// A host asks for routers.
    pub(crate) fn router_asked(
        &mut self,
        cx: &mut Cx<'_>,
        iface: IfIndex,
    ) -> Result<(), DropReason> {
        let engine = self.advertisers.of(iface).ok_or(DropReason::IcmpTypeUnknown)?;
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
        let Some(engine) = self.advertisers.of(iface) else { return };
        if up { engine.start(now, random) } else { engine.stop() }
    }

    /// Speaks where it is time, up to `budget` units.
    pub(crate) fn advertiser_timers(&mut self, cx: &mut Cx<'_>, budget: Units) -> Units {
        let (mut left, mut at) = (budget, 0);
        while let Some((iface, engine)) = self.advertisers.0.get_mut(at).filter(|_| left.0 > 0) {
            let iface = *iface;
            if engine.work(cx.now, &mut cx.random.public) {
                self.advertise(cx, iface);
                left = left.minus(Units(1));
            }
            at += 1;
        }
        budget.minus(left)
    }

    /// We are a router no more: what says so on every link (RFC 4861 section 6.2.5) goes out with
    /// the next timed work.
    pub fn cease_advertising(&mut self, now: Instant) {
        self.advertisers.0.iter_mut().for_each(|(_, engine)| engine.cease(now));
    }

    fn advertise(&mut self, cx: &mut Cx<'_>, iface: IfIndex) {
        let interface = self.interfaces.get(usize::from(iface.0)).filter(|i| i.up);
        let engine = self.advertisers.0.iter().find(|(index, _)| *index == iface);
        let (Some(interface), Some((_, engine))) = (interface, engine) else { return };
        let mut room = [NdpOption::Mtu(0); ADVERTISED_MAX + 3];
        let options = engine.options(interface.link_addr(), &mut room);
        let fields = engine.fields();
        // Without a link-local address that may be used nothing is said; the next time it is there.
        if interface.link_local_addr().is_none() {
            return;
        }
        let frame = ndp::router_advertisement(cx.pool, interface, &fields, options);
        self.depart_counted(cx, frame, Counter::Icmp6OutRouterAdvertisements);
    }
}
