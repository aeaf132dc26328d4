//! A simulated world: engines, links, one clock, one seed, and a price for every piece of work.
//!
//! Any mix of engines (a stack, a generator, a router under test) runs here in virtual time, on
//! one thread: [`World::add_node`] gives an engine a core, memory and randomness of its own,
//! [`World::connect`] lays a link between two interfaces, [`World::run_for`] lets time pass. Used
//! by `drill`, by tests, and by users for tests of their own.
//!
//! Invariants: the same seed, nodes, links and calls give the same packets at the same times,
//! byte for byte; no packet vanishes without a name ([`LaneStats::is_balanced`]); a node's memory
//! is touched by that node alone, because links carry bytes and not handles; work takes time
//! ([`CostTable`]), so a flood costs its victim what it would cost on a real core.
//!
//! Start reading at `world.rs`. A host with several workers is a node for each of them
//! ([`World::add_workers`]). Not here: applications (an engine's `work` runs them).
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

mod core_share;
mod cost;
mod error;
mod flight;
mod frame;
mod lane;
mod link;
mod node;
mod node_config;
mod node_stats;
mod remake;
mod simulated_workers;
mod trace;
mod world;

pub use cost::{CostTable, ParseCostError, Picos, Spent, UnitMix};
pub use error::WorldError;
pub use frame::is_tcp_fragment;
pub use lane::{LaneConfig, LaneDrop, LaneStats};
pub use link::{LinkConfig, LinkId, LinkStats, Side};
pub use node_config::{NodeConfig, NodeId, SimulatedApplication};
pub use node_stats::NodeStats;
pub use remake::Remaking;
pub use trace::{TraceEvent, TraceKind};
pub use world::{RunEnd, World};
