//! `Crowd`: everybody at the other end of the host's cable, honest and not.
//!
//! One engine that holds the honest client of each family and one flood, so that all share one
//! wire as they would in life, in real time (`wire.rs`) and in virtual time (`sim.rs`) alike. It
//! hands what arrives to the station whose link address it bears, and groups' frames to all.

use core::time::Duration;

use floodwall_base::{Family, Instant, MacAddr, Units};
use floodwall_packet::{Burst, Engine, PacketBuf, PacketList, Round, Triage};
use floodwall_pktgen::Honest;

use crate::error::DrillError;
use crate::flood::{Flood, Flooding};
use crate::honest::{Asked, Asking};
use crate::scene;

/// One stretch of a drill: what honest clients do, and what floods meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stretch {
    pub(crate) asking: Option<Asking>,
    pub(crate) flood: Option<Flood>,
}

impl Stretch {
    /// How long packets are meant to be sent.
    pub(crate) fn length(&self) -> Duration {
        let asking = self.asking.map(|asking| asking.length);
        asking.max(self.flood.map(|flood| flood.length)).unwrap_or_default()
    }
}

/// What a crowd saw of its stretch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// By family, IPv4 first.
    pub(crate) asked: [Asked; 2],
    /// Flood packets that were sent.
    pub(crate) flooded: u64,
    /// Packets that came back to the attackers.
    pub(crate) returned: u64,
}

/// See the file's head.
#[derive(Default)]
pub(crate) struct Crowd {
    /// None, or one of each family in the order of [`scene::FAMILIES`].
    honest: Vec<(Family, Honest)>,
    flooding: Option<Flooding>,
    /// What arrived for each of the honest, and for the attackers.
    inboxes: [Burst; 3],
}

impl Crowd {
    /// Forgets the last stretch and prepares the next, which begins with the next call.
    pub(crate) fn begin(&mut self, stretch: &Stretch) -> Result<(), DrillError> {
        self.honest.clear();
        for family in scene::FAMILIES {
            if let Some(asking) = &stretch.asking {
                self.honest.push((family, asking.client(family)?));
            }
        }
        self.flooding = stretch.flood.as_ref().map(Flooding::new).transpose()?;
        Ok(())
    }

    /// Holds the flood back, or lets it go on; honest clients go on in any case.
    pub(crate) const fn hold_flood(&mut self, held: bool) {
        if let Some(flooding) = &mut self.flooding {
            flooding.hold(held);
        }
    }

    /// Whether every question is answered or lost, and the flood is over.
    pub(crate) fn is_finished(&self) -> bool {
        let over = self.flooding.as_ref().is_none_or(|flooding| flooding.deadline().is_none());
        over && self.honest.iter().all(|(_, honest)| honest.is_finished())
    }

    /// What it saw so far.
    pub(crate) fn seen(&self) -> Seen {
        let mut seen = Seen::default();
        for (asked, (_, honest)) in seen.asked.iter_mut().zip(&self.honest) {
            *asked = Asked::of(honest.stats(), honest.latency());
        }
        if let Some(flooding) = &self.flooding {
            (seen.flooded, seen.returned) = (flooding.frames(), flooding.returned());
        }
        seen
    }

    /// Questions asked and answered so far, for a progress line.
    pub(crate) fn tally(&self) -> (u64, u64, u64) {
        let sums = self.honest.iter().fold((0, 0), |(asked, answered), (_, honest)| {
            let stats = honest.stats();
            (asked + stats.intended, answered + stats.answered)
        });
        (sums.0, sums.1, self.flooding.as_ref().map_or(0, Flooding::frames))
    }

    /// Which inboxes a frame is for.
    fn receivers(packet: &PacketBuf) -> [bool; 3] {
        let Some(to) = packet.first().first_chunk().map(|b| MacAddr(*b)) else { return [false; 3] };
        let [v4, v6] = scene::FAMILIES.map(scene::client_mac);
        if to.is_group() { [true; 3] } else { [to == v4, to == v6, to == scene::FLOOD_MAC] }
    }

    /// Puts a frame into the inboxes of its receivers: the last gets it, others get copies.
    fn sort(&mut self, packet: PacketBuf, round: &Round<'_>) {
        let receivers = Self::receivers(&packet);
        let Some(last) = receivers.iter().rposition(|wanted| *wanted) else { return };
        for (at, inbox) in self.inboxes.iter_mut().enumerate().take(last) {
            if receivers.get(at) == Some(&true)
                && let Some(copy) = packet.share(round.pool, 0, packet.len())
            {
                // An inbox is as large as the burst that is sorted.
                let _ = inbox.push(copy);
            }
        }
        if let Some(inbox) = self.inboxes.get_mut(last) {
            let _ = inbox.push(packet);
        }
    }
}

impl Engine for Crowd {
    fn round(&mut self, round: &mut Round<'_>) -> Units {
        let mut arrived = core::mem::take(round.arrived);
        arrived.drain().for_each(|packet| self.sort(packet, round));
        let mut spent = Units(1);
        let [v4, v6, flood] = &mut self.inboxes;
        for (inbox, family) in [(v4, Family::V4), (v6, Family::V6)] {
            let client = self.honest.iter_mut().find(|(of, _)| *of == family);
            if let Some((_, honest)) = client.filter(|_| !inbox.is_empty()) {
                spent = spent.plus(honest.round(&mut with(round, inbox)));
            }
            inbox.drain().for_each(drop);
        }
        if let Some(flooding) = self.flooding.as_mut().filter(|_| !flood.is_empty()) {
            spent = spent.plus(flooding.input(&mut with(round, flood)));
        }
        flood.drain().for_each(drop);
        spent
    }

    fn work(&mut self, round: &mut Round<'_>) -> Units {
        let mut spent = Units(1);
        for (_, honest) in &mut self.honest {
            if honest.deadline().is_some_and(|deadline| deadline <= round.now) {
                spent = spent.plus(honest.work(round));
            }
        }
        if let Some(flooding) = &mut self.flooding
            && flooding.deadline().is_some_and(|deadline| deadline <= round.now)
        {
            spent = spent.plus(flooding.work(round));
        }
        spent
    }

    fn deadline(&self) -> Option<Instant> {
        let honest = self.honest.iter().filter_map(|(_, honest)| honest.deadline());
        honest.chain(self.flooding.as_ref().and_then(Flooding::deadline)).min()
    }

    fn classify(&self, burst: &Burst, classes: &mut [Triage]) {
        classes.iter_mut().take(burst.len()).for_each(|class| *class = Triage::Friend);
    }
}

/// The same round with another burst.
fn with<'a>(round: &'a mut Round<'_>, arrived: &'a mut Burst) -> Round<'a> {
    let Round { now, pool, random, departing, budget, .. } = round;
    Round { now: *now, pool, random, arrived, departing, budget: *budget }
}

/// How many of the packets that found no room are honest, and how many are the flood's.
pub(crate) fn sort_losses(lost: &PacketList) -> (u64, u64) {
    let flood = |packet: &&PacketBuf| {
        packet.first().get(6..12).is_some_and(|from| from == scene::FLOOD_MAC.0)
    };
    let floods = lost.iter().filter(flood).count() as u64;
    (lost.len() as u64 - floods, floods)
}
