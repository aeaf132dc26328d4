//! Telling devices what SYNs are answered with, and the engine whether they are.
//!
//! Called by `turn.rs` once a turn. Invariant: a device is told before the keys that it has are of
//! no use (it has those of two epochs to come), and the engine is told before it sees an ACK that
//! came of what a device has answered.

use floodwall_base::Instant;
use floodwall_packet::{Engine, SynOffers};

use crate::publish::Publish;
use crate::worker::Worker;

/// What a worker has told its devices.
#[derive(Debug, Default)]
pub(crate) struct Offers {
    /// Where an engine writes them; no memory is taken in a turn.
    filled: SynOffers,
    /// For which of the engines, and its number then.
    told: Option<(u64, u64)>,
    /// Which of the engines was told, and what, of SYNs that devices have answered.
    answered: Option<(u64, bool)>,
}

impl<E: Engine + Publish + 'static> Worker<E> {
    /// Tells what has changed.
    #[inline]
    pub(crate) fn tell_offers(&mut self, now: Instant) {
        let engine = self.engine.as_ref().filter(|_| self.tells_wants);
        let Some(changed) = engine.map(|engine| engine.syn_offers_changed(now)) else { return };
        if self.offers.told != Some((self.restarts.count, changed)) {
            self.offers.told = Some((self.restarts.count, changed));
            self.tell_offers_anew(now);
        }
    }

    #[cold]
    fn tell_offers_anew(&mut self, now: Instant) {
        let Some(engine) = &self.engine else { return };
        for port in self.ports.iter_mut().filter(|port| port.knows_established_flows()) {
            self.offers.filled.clear();
            engine.syn_offers(now, port.iface(), &mut self.offers.filled);
            port.answer_syns(&self.offers.filled);
        }
    }

    /// Tells the engine whether devices answer SYNs, before it sees what comes of it.
    #[inline]
    pub(crate) fn tell_answered(&mut self, now: Instant) {
        let Some(engine) = self.engine.as_mut().filter(|_| self.tells_wants) else { return };
        let answered = self.ports.iter().any(|port| port.has_answered_syns(now));
        if self.offers.answered != Some((self.restarts.count, answered)) {
            self.offers.answered = Some((self.restarts.count, answered));
            engine.syns_are_answered(answered);
        }
    }
}
