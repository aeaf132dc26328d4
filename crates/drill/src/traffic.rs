//! `TrafficSource`: all stations at the other end of the host's cable, honest and not.
//!
//! One engine that holds the honest clients, the link's router and one flood, so that all share one
//! wire as on a real network, in real time (`wire.rs`) and in virtual time (`sim.rs`) alike. It
//! hands a frame to the station with its link address, groups' frames to all, and the router's to
//! their destinations behind it.

use core::net::IpAddr;
use core::time::Duration;

use floodwall_base::{Family, Instant, MacAddr, Units};
use floodwall_packet::{Burst, Engine, PacketBuf, PacketList, Round, Triage};
use floodwall_pktgen::{Blast, Honest};

use crate::callers::{self, Callers, Calling};
use crate::error::DrillError;
use crate::flood::{Flood, Flooding};
use crate::honest::{CallPlan, QuestionSource, SentQuestion};
use crate::router;
use crate::topology::{self, TopologyHost};

/// One stretch of a drill: what honest clients do, and what floods meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TrafficStretch {
    pub(crate) asking: Option<QuestionSource>,
    pub(crate) flood: Option<Flood>,
    /// It measures what the host takes: on the machine that floods are planned for, and with its
    /// ring full.
    pub(crate) probes: bool,
}

impl TrafficStretch {
    /// Whether packets are sent at a rate, beside what honest clients send.
    pub(crate) fn floods(&self) -> bool {
        let is_replay = |asking: QuestionSource| match asking.calls {
            CallPlan::Beside(purpose, _) => purpose.is_replay(),
            _ => false,
        };
        self.flood.is_some() || self.asking.is_some_and(is_replay)
    }

    /// How long packets are meant to be sent.
    pub(crate) fn length(&self) -> Duration {
        let asking = self.asking.map(|asking| asking.length);
        asking.max(self.flood.map(|flood| flood.length)).unwrap_or_default()
    }
}

/// What became of each party's questions, by family, IPv4 first.
pub(crate) type AskedBy = [[SentQuestion; 2]; TopologyHost::ALL.len()];

/// What a crowd saw of its stretch.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrafficSeen {
    /// In the order of [`TopologyHost::ALL`].
    pub(crate) asked: AskedBy,
    /// TCP connections, by family: opened, and completed with their answer.
    pub(crate) called: [SentQuestion; 2],
    /// Flood packets that were sent.
    pub(crate) flooded: u64,
    /// Packets that came back to the attackers, or to the router for no honest client.
    pub(crate) returned: u64,
}

/// An honest client and what arrived for it.
struct TrafficPeer {
    party: TopologyHost,
    family: Family,
    honest: Honest,
    inbox: Burst,
}

impl TrafficPeer {
    /// Whether a frame to this station is for it.
    fn wants(&self, to: MacAddr, packet: &PacketBuf) -> bool {
        if to.is_group() {
            return true;
        }
        let ours = to == topology::client_mac(self.party, self.family);
        ours && (self.party != TopologyHost::Far || is_far(self.family, packet))
    }
}

/// Whether a packet is for an honest client of a family behind the router.
fn is_far(family: Family, packet: &PacketBuf) -> bool {
    let bytes = packet.first();
    let to = match (family, bytes.get(12..14)) {
        (Family::V4, Some([8, 0])) => {
            bytes.get(30..34).and_then(|b| b.first_chunk::<4>()).map(|b| IpAddr::from(*b))
        }
        (Family::V6, Some([0x86, 0xdd])) => {
            bytes.get(38..54).and_then(|b| b.first_chunk::<16>()).map(|b| IpAddr::from(*b))
        }
        _ => None,
    };
    to.is_some_and(|to| topology::is_client(TopologyHost::Far, to))
}

/// The stations of a drill: honest clients, the router, one flood.
#[derive(Default)]
pub(crate) struct TrafficSource {
    /// None, or all of a stretch.
    members: Vec<TrafficPeer>,
    /// Once it is there it stays.
    router: Option<Blast>,
    flooding: Option<Flooding>,
    /// The TCP clients: once they are there they stay.
    callers: [Option<Callers>; 2],
    /// What they do in this stretch, until they have begun.
    calls: [Option<Calling>; 2],
    /// What arrived for the router, and for the attackers.
    inboxes: [Burst; 2],
    /// What had come back to the router when the stretch began.
    returned_before: u64,
}

impl TrafficSource {
    /// Forgets the last stretch and prepares the next, which begins with the next call; with or
    /// without its own clients on the link.
    pub(crate) fn begin(
        &mut self,
        stretch: &TrafficStretch,
        with_near: bool,
    ) -> Result<(), DrillError> {
        self.members.clear();
        if self.router.is_none() {
            self.router = Some(router::router()?);
        }
        let parties =
            TopologyHost::ALL.into_iter().filter(|party| with_near || *party != TopologyHost::Near);
        for (party, family) in parties.flat_map(|party| topology::FAMILIES.map(|f| (party, f))) {
            if let Some(asking) = &stretch.asking {
                let (honest, inbox) = (asking.client(party, family)?, Burst::new());
                self.members.push(TrafficPeer { party, family, honest, inbox });
            }
        }
        self.flooding = stretch.flood.as_ref().map(Flooding::new).transpose()?;
        self.returned_before = self.returned_to_router();
        for (number, calls) in self.calls.iter_mut().enumerate() {
            *calls = stretch.asking.as_ref().and_then(|asking| asking.calling(number));
        }
        self.callers.iter_mut().flatten().for_each(|callers| callers.begin(None));
        Ok(())
    }

    fn returned_to_router(&self) -> u64 {
        self.router.as_ref().map_or(0, |router| router.returned().total())
    }

    /// Holds the flood back, or lets it go on; honest clients go on in any case.
    pub(crate) fn hold_flood(&mut self, held: bool) {
        self.callers.iter_mut().flatten().for_each(|callers| callers.hold(held));
        if let Some(flooding) = &mut self.flooding {
            flooding.hold(held);
        }
    }

    /// Whether every question is answered or lost, and the flood is over.
    pub(crate) fn is_finished(&self) -> bool {
        let over = self.flooding.as_ref().is_none_or(|flooding| flooding.deadline().is_none());
        let called = self.calls.iter().all(Option::is_none)
            && self.callers.iter().flatten().all(Callers::is_finished);
        over && called && self.members.iter().all(|member| member.honest.is_finished())
    }

    /// What it saw so far.
    pub(crate) fn seen(&self) -> TrafficSeen {
        let mut seen = TrafficSeen::default();
        for TrafficPeer { party, family, honest, .. } in &self.members {
            let place =
                seen.asked.get_mut(*party as usize).and_then(|by| by.get_mut(*family as usize));
            if let Some(place) = place {
                *place = SentQuestion::of(honest.stats(), honest.latency());
            }
        }
        if let [Some(honest), _] = &self.callers {
            seen.called = honest.heard().clone();
        }
        seen.flooded = self.callers.iter().flatten().map(Callers::replayed).sum();
        seen.returned = self.returned_to_router() - self.returned_before;
        if let Some(flooding) = &self.flooding {
            seen.flooded += flooding.frames();
            seen.returned += flooding.returned();
        }
        seen
    }

    /// Questions and answers so far, for a progress line.
    pub(crate) fn tally(&self) -> (u64, u64, u64) {
        let sums = self.members.iter().fold((0, 0), |(asked, answered), member| {
            let stats = member.honest.stats();
            (asked + stats.intended, answered + stats.answered)
        });
        (sums.0, sums.1, self.flooding.as_ref().map_or(0, Flooding::frames))
    }

    /// Starts the TCP clients of this stretch that have not begun.
    fn begin_calls(&mut self, round: &mut Round<'_>) {
        for (number, (calls, callers)) in self.calls.iter_mut().zip(&mut self.callers).enumerate() {
            let Some(calling) = calls.take() else { continue };
            if callers.is_none() {
                let mac = topology::CALLER_MACS.get(number).copied().unwrap_or(topology::FLOOD_MAC);
                // A stack of these few words is always made.
                *callers = Callers::new(mac, topology::caller_addrs(number), round).ok();
            }
            if let Some(callers) = callers {
                callers.begin(Some((calling, round.now)));
            }
        }
    }

    /// Lets attackers go once each honest call is over.
    fn end_attacks(&mut self, round: &mut Round<'_>) {
        if let [Some(honest), Some(attackers)] = &mut self.callers
            && honest.is_finished()
        {
            attackers.leave(round);
        }
    }

    /// Puts a frame into the inboxes of its receivers: one gets it, others get copies.
    fn sort(&mut self, packet: PacketBuf, round: &Round<'_>) {
        let Some(to) = packet.first().first_chunk().map(|b| MacAddr(*b)) else { return };
        let [router, flood] = &mut self.inboxes;
        let mut receivers = 0;
        let mut give = |inbox: &mut Burst| {
            receivers += 1;
            // An inbox is as large as the burst that is sorted.
            let _ = packet.share(round.pool, 0, packet.len()).map(|copy| inbox.push(copy));
        };
        for member in &mut self.members {
            if member.wants(to, &packet) {
                give(&mut member.inbox);
            }
        }
        for (callers, mac) in self.callers.iter_mut().zip(topology::CALLER_MACS) {
            if let Some(callers) = callers.as_mut().filter(|_| to.is_group() || to == mac) {
                give(&mut callers.inbox);
            }
        }
        if to.is_group() {
            give(router);
            give(flood);
        }
        if receivers > 0 {
            return;
        }
        let inbox = match to {
            topology::ROUTER_MAC => router,
            topology::FLOOD_MAC => flood,
            _ => return,
        };
        let _ = inbox.push(packet);
    }
}

impl Engine for TrafficSource {
    fn round(&mut self, round: &mut Round<'_>) -> Units {
        let mut arrived = core::mem::take(round.arrived);
        arrived.drain().for_each(|packet| self.sort(packet, round));
        let mut spent = Units(1);
        for TrafficPeer { honest, inbox, .. } in &mut self.members {
            if !inbox.is_empty() {
                spent = spent.plus(honest.round(&mut with(round, inbox)));
            }
            inbox.drain().for_each(drop);
        }
        let [to_router, to_flood] = &mut self.inboxes;
        if let Some(router) = self.router.as_mut().filter(|_| !to_router.is_empty()) {
            spent = spent.plus(router.round(&mut with(round, to_router)));
        }
        if let Some(flooding) = self.flooding.as_mut().filter(|_| !to_flood.is_empty()) {
            spent = spent.plus(flooding.input(&mut with(round, to_flood)));
        }
        self.inboxes.iter_mut().for_each(|inbox| inbox.drain().for_each(drop));
        for callers in self.callers.iter_mut().flatten().filter(|it| !it.inbox.is_empty()) {
            let mut inbox = core::mem::take(&mut callers.inbox);
            callers::arrived(&mut inbox);
            spent = spent.plus(callers.input(&mut with(round, &mut inbox)));
            inbox.drain().for_each(drop);
            callers.inbox = inbox;
        }
        self.end_attacks(round);
        spent
    }

    fn work(&mut self, round: &mut Round<'_>) -> Units {
        let (mut spent, now) = (Units(1), round.now);
        let is_due = |deadline: Option<Instant>| deadline.is_some_and(|at| at <= now);
        if let Some(router) = self.router.as_mut().filter(|router| is_due(router.deadline())) {
            spent = spent.plus(router.work(round));
        }
        for TrafficPeer { honest, .. } in &mut self.members {
            if is_due(honest.deadline()) {
                spent = spent.plus(honest.work(round));
            }
        }
        self.begin_calls(round);
        for callers in self.callers.iter_mut().flatten() {
            if is_due(callers.deadline()) {
                spent = spent.plus(callers.work(round));
            }
        }
        self.end_attacks(round);
        if let Some(flooding) = self.flooding.as_mut().filter(|flood| is_due(flood.deadline())) {
            spent = spent.plus(flooding.work(round));
        }
        spent
    }

    fn deadline(&self) -> Option<Instant> {
        let honest = self.members.iter().filter_map(|member| member.honest.deadline());
        let router = self.router.as_ref().and_then(Engine::deadline);
        let begin = self.calls.iter().any(Option::is_some).then_some(Instant::ORIGIN);
        let calls = self.callers.iter().flatten().filter_map(Callers::deadline).chain(begin);
        honest
            .chain(router)
            .chain(calls)
            .chain(self.flooding.as_ref().and_then(Flooding::deadline))
            .min()
    }

    fn classify(&self, burst: &Burst, classes: &mut [Triage]) {
        classes.iter_mut().take(burst.len()).for_each(|class| *class = Triage::Established);
    }
}

/// The same round with another burst.
pub(crate) fn with<'a>(round: &'a mut Round<'_>, arrived: &'a mut Burst) -> Round<'a> {
    let Round { now, pool, random, departing, budget, .. } = round;
    Round { now: *now, pool, random, arrived, departing, budget: *budget, peers: None }
}

/// How many of the packets that found no room are honest, and how many are the flood's.
pub(crate) fn sort_losses(lost: &PacketList) -> (u64, u64) {
    let flood = |packet: &&PacketBuf| {
        packet.first().get(6..12).is_some_and(|from| from == topology::FLOOD_MAC.0)
    };
    let floods = lost.iter().filter(flood).count() as u64;
    (lost.len() as u64 - floods, floods)
}
