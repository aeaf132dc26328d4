//! `ByByte`: an engine that classifies packets by their last byte, for tests of the gates.
//!
//! Called by the tests of `schedule`, `world` and `dispatch`. Invariant: `f` is established, `s`
//! unverified, everything else refusable. Its rounds do nothing: packets are left to the test.

use std::cell::Cell;

use floodwall_base::{Instant, Units};
use floodwall_packet::{Burst, Engine, Round, Triage};

/// An engine that classifies packets by their last byte.
#[derive(Debug, Default)]
pub struct ByByte {
    /// How often it classified a burst.
    pub asked: Cell<u64>,
}

/// Writes each packet's class, as [`ByByte`] classifies it.
pub fn classify(burst: &Burst, classes: &mut [Triage]) {
    for (packet, class) in burst.iter().zip(classes) {
        *class = match packet.first().last() {
            Some(b'f') => Triage::Established,
            Some(b's') => Triage::Unknown,
            _ => Triage::Rejectable,
        };
    }
}

impl Engine for ByByte {
    fn round(&mut self, _: &mut Round<'_>) -> Units {
        Units(0)
    }

    fn work(&mut self, _: &mut Round<'_>) -> Units {
        Units(0)
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn classify(&self, burst: &Burst, classes: &mut [Triage]) {
        self.asked.set(self.asked.get() + 1);
        classify(burst, classes);
    }
}
