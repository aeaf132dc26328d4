//! What happens in the world when a worker's engine panics (decision D19): it is dropped and made
//! again, as `dispatch` does with a real one.
//!
//! Called by `node.rs` around each turn of a node with a `make` function
//! ([`World::set_remake`](crate::World::set_remake)). Without, a panic is the test's end.
//! Invariant: packets that the engine had sent leave, packets handed over to it later go to its
//! successor, packets that it had not touched are counted ([`crate::NodeStats::untouched`]).

use core::any::Any;

use floodwall_base::{Instant, Randomness, Units};
use floodwall_packet::{Burst, Engine, Pool, Round, Triage};

/// An engine that can be downcast to its own type.
pub(crate) trait AnyEngine: Engine + Any {}

impl<E: Engine + Any> AnyEngine for E {}

/// What an engine is made again with.
#[derive(Debug)]
pub struct Remaking<'a> {
    /// The time.
    pub now: Instant,
    /// The node's memory.
    pub pool: &'a Pool,
    /// The node's randomness.
    pub random: &'a mut Randomness,
}

/// How a node's engine is made again.
pub(crate) type Remake = Box<dyn FnMut(&mut Remaking<'_>) -> Box<dyn AnyEngine>>;

/// Placeholder while there is no engine.
pub(crate) struct NoRemake;

impl Engine for NoRemake {
    fn round(&mut self, _: &mut Round<'_>) -> Units {
        Units(0)
    }
    fn work(&mut self, _: &mut Round<'_>) -> Units {
        Units(0)
    }
    fn deadline(&self) -> Option<Instant> {
        None
    }
    fn classify(&self, _: &Burst, _: &mut [Triage]) {}
}
