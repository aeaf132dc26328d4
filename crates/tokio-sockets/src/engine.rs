//! `Shard`: a stack as a worker of a network runs it.
//!
//! A type of our own, because the stack must not know who publishes its counters, and a network
//! asks for them instead of publishing any.

use floodwall_base::{Instant, Units};
use floodwall_dispatch::Publish;
use floodwall_packet::{Burst, Engine, HandoffList, Round, Triage};
use floodwall_stack::Stack;

/// See the file's head.
pub(crate) struct Shard(pub(crate) Stack);

impl Engine for Shard {
    fn round(&mut self, round: &mut Round<'_>) -> Units {
        self.0.round(round)
    }

    fn work(&mut self, round: &mut Round<'_>) -> Units {
        self.0.work(round)
    }

    fn adopt(&mut self, round: &mut Round<'_>, handed: &mut HandoffList) -> Units {
        self.0.adopt(round, handed)
    }

    fn appetite(&self, now: Instant) -> usize {
        self.0.appetite(now)
    }

    fn departed(&mut self) {
        self.0.departed();
    }

    fn rests(&mut self) -> bool {
        self.0.rests()
    }

    fn deadline(&self) -> Option<Instant> {
        self.0.deadline()
    }

    fn classify(&self, burst: &Burst, classes: &mut [Triage]) {
        self.0.classify(burst, classes);
    }
}

impl Publish for Shard {
    fn words(&self, _: &mut [u64]) {}
}
