//! Telling devices which packets of a router they may pass on by themselves, and when no longer.
//!
//! Called by `turn.rs` before it transmits. Invariant: where anything changed that an engine's
//! offers depend on, devices pass nothing on by older offers before what came of the change is
//! sent.

use floodwall_base::Instant;
use floodwall_packet::{Engine, RedirectOffer};

use crate::port::Port;

/// What a worker has told its devices.
#[derive(Debug, Default)]
pub(crate) struct Redirects {
    /// Offers on their way; empty between turns.
    taken: Vec<RedirectOffer>,
    /// For which of the engines, its number then, and how many devices can be redirected to.
    told: Option<(u64, Option<u64>, usize)>,
}

impl Redirects {
    /// Tells what has changed, and what `engine`, the so many-th, offers.
    pub(crate) fn tell<E: Engine>(
        &mut self,
        now: Instant,
        (engine, count): (Option<&mut E>, u64),
        (ports, port_of): (&mut [Port], &[Option<usize>]),
    ) {
        let targets = ports.iter().filter(|port| port.redirect_target().is_some()).count();
        let is = (count, engine.as_ref().map(|engine| engine.redirects_changed()), targets);
        if let (Some(engine), true) = (engine, targets > 0) {
            engine.take_redirects(&mut self.taken);
        }
        if self.told != Some(is) {
            self.told = Some(is);
            self.taken.clear();
            ports.iter_mut().for_each(|port| port.forget_redirects(now));
        }
        for offer in self.taken.drain(..) {
            let port = |iface: u16| port_of.get(usize::from(iface)).copied().flatten();
            let target = port(offer.leaves.0).and_then(|at| ports.get(at));
            let target = target.and_then(Port::redirect_target);
            let at = port(offer.arrives.0).and_then(|at| ports.get_mut(at));
            if let (Some(at), Some(target)) = (at, target) {
                at.redirect(now, &offer, target);
            }
        }
    }
}
