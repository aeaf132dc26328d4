//! The rounds in which a stack runs: an [`Engine`].
//!
//! Called by `dispatch` on real cores and by `world` in virtual time. Each call brings the shard up
//! to date, works, and publishes what has changed.

use floodwall_base::{IfIndex, Instant, Units};
use floodwall_packet::{
    Burst, Engine, HandoffList, Peers, RedirectOffer, Round, RxFilter, SynOffers, Triage,
};

use super::Stack;
use crate::round_context::RoundContext;

/// The part of a call's units that timers have at least.
const TIMERS_DIVISOR: u32 = 4;

impl Engine for Stack {
    fn round(&mut self, round: &mut Round<'_>) -> Units {
        let Round { now, pool, random, arrived, departing, peers, .. } = round;
        self.burst.at = *now;
        let tapped = self.tap_begin(*now, arrived.iter(), departing.len());
        let peers = peers.as_mut().map(Peers::again);
        let mut cx = RoundContext { now: *now, pool, random, departing, peers };
        self.share_memory(cx.pool);
        self.catch_up(&mut cx);
        let spent = self.receive(&mut cx, arrived);
        // What an ICMP error has made ready: segments themselves transmit as they arrive.
        self.tcp_transmit(&mut cx);
        self.deliver_to_programs(&mut cx);
        self.publish(&mut cx);
        self.tap_end(cx.departing, tapped);
        spent
    }

    fn adopt(&mut self, round: &mut Round<'_>, handed: &mut HandoffList) -> Units {
        let tapped = self.tap_begin_handed(round.now, handed, round.departing.len());
        let mut cx = RoundContext::of(round);
        self.share_memory(cx.pool);
        self.catch_up(&mut cx);
        let spent = self.adopt_all(&mut cx, handed);
        self.tcp_transmit(&mut cx);
        self.deliver_to_programs(&mut cx);
        self.publish(&mut cx);
        self.tap_end(cx.departing, tapped);
        spent
    }

    fn work(&mut self, round: &mut Round<'_>) -> Units {
        let tapped = self.tap_begin(round.now, core::iter::empty(), round.departing.len());
        let budget = round.budget;
        let mut cx = RoundContext::of(round);
        self.shard.restless = false;
        self.shard.wall.begin(cx.now);
        self.share_memory(cx.pool);
        self.catch_up(&mut cx);
        let mut spent = Units(0);
        // What had no room before goes first.
        self.tcp_transmit(&mut cx);
        if !self.burst.loopback.is_empty() {
            spent = self.receive(&mut cx, &mut Burst::new());
        }
        spent = spent.plus(self.serve_programs(&mut cx, budget));
        self.deliver_to_programs(&mut cx);
        // However much programs have taken, timers have a part.
        let part = if self.shard.timers_have_part { budget.0.div_ceil(TIMERS_DIVISOR) } else { 0 };
        let left = Units(budget.minus(spent).0.max(part));
        let spent = spent.plus(self.timers(&mut cx, left));
        self.deliver_streams(&mut cx);
        self.drain_on(&mut cx);
        self.publish(&mut cx);
        self.tap_end(cx.departing, tapped);
        spent
    }

    fn touch_memory(&mut self) -> usize {
        self.tcp.as_mut().map_or(0, |tcp| tcp.set.touch_memory())
    }

    fn set_tx_room(&mut self, packets: usize) {
        self.burst.tx_room = packets;
    }

    fn departed(&mut self) {
        if let Some(remote) = &mut self.shard.remote {
            remote.departed();
        }
    }

    fn rests(&mut self) -> bool {
        let rests =
            !self.has_to_repeat() && self.shard.remote.as_ref().is_none_or(|remote| remote.rests());
        // What keeps it from its rest is to be seen to, also where no packet comes.
        self.shard.restless = !rests;
        rests
    }

    fn deadline(&self) -> Option<Instant> {
        // Asked every turn: one branch for what is rare.
        let may_have_work =
            self.shard.restless | self.burst.owes_segments | !self.burst.loopback.is_empty();
        if may_have_work && self.has_work_now() {
            return Some(Instant::ORIGIN);
        }
        let first = self.deadline_beside_tcp().min(self.tcp_deadline());
        (first != Instant::FAR).then_some(first)
    }

    fn classify(&self, burst: &Burst, classes: &mut [Triage]) {
        crate::triage::classify(self, burst, classes);
    }

    fn rx_filter(&self, iface: IfIndex, wanted: &mut RxFilter) {
        crate::link::rx_filter::fill(self, iface, wanted);
    }

    fn syn_offers(&self, now: Instant, iface: IfIndex, offers: &mut SynOffers) {
        crate::tcp::syn_offers::fill(self, now, iface, offers);
    }

    fn syn_offers_changed(&self, now: Instant) -> u64 {
        crate::tcp::syn_offers::changed(self, now)
    }

    fn syns_are_answered(&mut self, answered: bool) {
        if let Some(tcp) = &mut self.tcp {
            tcp.set.set_interface_answers(answered);
        }
    }

    fn take_redirects(&mut self, offers: &mut Vec<RedirectOffer>) {
        self.take_redirect_offers(offers);
    }

    fn redirects_changed(&self) -> u64 {
        Self::redirects_changed(self)
    }

    fn wants_changed(&self) -> u64 {
        crate::link::rx_filter::changed(self)
    }
}

impl Stack {
    /// Whether there is work that waits for no time.
    #[inline(never)]
    fn has_work_now(&self) -> bool {
        self.shard.restless || self.may_transmit_more() || !self.burst.loopback.is_empty()
    }
}
