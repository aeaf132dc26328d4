//! Telling devices what SYNs are answered with, and the engine whether they are.
//!
//! Called by `turn.rs` once a turn, before anything leaves. Invariant: a device is told before the
//! keys that it has are of no use (it has those of two epochs to come), and the engine is told
//! before an ACK can come of what a device has answered.

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
        let Some(engine) = &mut self.engine else { return };
        let mut answered = false;
        for port in self.ports.iter_mut().filter(|port| port.knows_friends()) {
            self.offers.filled.clear();
            engine.syn_offers(now, port.iface(), &mut self.offers.filled);
            answered |= port.answer_syns(&self.offers.filled);
        }
        engine.syns_are_answered(answered);
    }
}
