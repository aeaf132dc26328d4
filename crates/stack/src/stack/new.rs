//! How a stack is made: alone, or as one shard of a host.
//!
//! Called by programs and by the code that makes workers' stacks; the parts are built by
//! `build.rs`.

use floodwall_base::{Instant, Randomness, Steering};

use crate::config::{ConfigError, StackConfig};
use crate::shards::Seat;
use crate::stack::Stack;

impl Stack {
    /// A stack with everything allocated that it will ever need.
    ///
    /// # Errors
    /// A configuration that makes no sense: see [`ConfigError`].
    pub fn new(
        config: &StackConfig,
        random: &mut Randomness,
        now: Instant,
    ) -> Result<Self, ConfigError> {
        let alone = Steering::new(random.secret.hash_key(), 1);
        Self::seated(config, Seat::alone(alone), random, now)
    }

    /// As [`Stack::new`], as one shard of a host with several workers. All its shards are made of
    /// the same configuration; each has its own memory and randomness.
    ///
    /// # Errors
    /// As there.
    pub fn seated(
        config: &StackConfig,
        seat: Seat,
        random: &mut Randomness,
        now: Instant,
    ) -> Result<Self, ConfigError> {
        crate::build::stack(config, seat, random, now)
    }
}
