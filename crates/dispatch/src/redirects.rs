//! Telling devices which packets of a router they may pass on by themselves, and when no longer.
//!
//! Called by `turn.rs` before it transmits. Invariant: where anything changed that an engine's
//! offers depend on, devices pass nothing on by older offers before what came of the change is
//! sent.

use floodwall_base::Instant;
use floodwall_packet::{Engine, RedirectOffer};

use crate::port::Port;
use crate::publish::Publish;
use crate::worker::Worker;

/// What a worker has told its devices.
#[derive(Debug, Default)]
pub(crate) struct Redirects {
    /// Offers on their way; empty between turns.
    taken: Vec<RedirectOffer>,
    /// For which of the engines, its number then, and how many devices can be redirected to.
    told: Option<(u64, Option<u64>, usize)>,
}

impl<E: Engine + Publish + 'static> Worker<E> {
    /// Tells what has changed, and what is offered.
    #[inline]
    pub(crate) fn tell_redirects(&mut self, now: Instant) {
        if self.tells_wants {
            self.tell_redirects_to_devices(now);
        }
    }

    fn tell_redirects_to_devices(&mut self, now: Instant) {
        let targets = self.ports.iter().filter(|port| port.redirect_target().is_some()).count();
        let changed = self.engine.as_ref().map(E::redirects_changed);
        let is = Some((self.restarts.count, changed, targets));
        if let (Some(engine), true) = (&mut self.engine, targets > 0) {
            engine.take_redirects(&mut self.redirects.taken);
        }
        if self.redirects.told != is {
            self.redirects.told = is;
            self.redirects.taken.clear();
            self.ports.iter_mut().for_each(|port| port.forget_redirects(now));
        }
        for offer in self.redirects.taken.drain(..) {
            let port = |iface: u16| self.port_of.get(usize::from(iface)).copied().flatten();
            let target = port(offer.leaves.0).and_then(|at| self.ports.get(at));
            let target = target.and_then(Port::redirect_target);
            let at = port(offer.arrives.0).and_then(|at| self.ports.get_mut(at));
            if let (Some(at), Some(target)) = (at, target) {
                at.redirect(now, &offer, target);
            }
        }
    }
}
