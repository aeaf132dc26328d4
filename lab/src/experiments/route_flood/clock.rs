//! The clock of a run: virtual time, which prices advance, or the thread's own time.
//!
//! Called by `core.rs`. Invariant: no clock goes back.

use std::hint::{black_box, spin_loop};
use std::time::Instant as Real;

/// A run's clock. Times are nanoseconds since the run began.
pub(super) trait Clock {
    /// What time it is.
    fn now(&self) -> u64;
    /// So much work is done: in virtual time it takes its price, in real time it has taken its own.
    fn spend(&mut self, nanos: u64);
    /// Nothing is done until then; the program has the core, and takes timestamps.
    fn leave(&mut self, until: u64);
}

/// Virtual time.
#[derive(Debug, Default)]
pub(super) struct Virtual(u64);

impl Clock for Virtual {
    fn now(&self) -> u64 {
        self.0
    }
    fn spend(&mut self, nanos: u64) {
        self.0 += nanos;
    }
    fn leave(&mut self, until: u64) {
        self.0 = self.0.max(until);
    }
}

/// The time of this thread's machine; a price is spent in arithmetic.
#[derive(Debug)]
pub(super) struct Wall(Real);

impl Wall {
    #[expect(clippy::disallowed_methods, reason = "an experiment with real threads is a shell")]
    pub(super) fn start() -> Self {
        Self(Real::now())
    }
}

impl Clock for Wall {
    fn now(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
    fn spend(&mut self, nanos: u64) {
        let mut x = nanos;
        for _ in 0..nanos {
            x = (x ^ (x >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        black_box(x);
    }
    fn leave(&mut self, until: u64) {
        // The program that only takes timestamps.
        while self.now() < until {
            spin_loop();
        }
    }
}
