//! A packet generator, an honest client, and the count of what comes back: engines all.
//!
//! [`Blast`] sends what a [`Plan`] describes, on a fixed schedule that no answer can slow down.
//! [`Honest`] sends requests to a UDP service and measures each answer from the intended send time
//! of its request. Both use raw frames, so they run in `world` against a stack in virtual time, and
//! under `dispatch` on a real device.
//!
//! Invariants: the same plan and randomness give the same bytes at the same intended times;
//! checksums are right unless the plan requests corruption; memory is taken at construction. Start
//! reading at `plan.rs`, then `blast.rs`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

mod blast;
mod count;
mod error;
mod forge;
mod fragment;
mod headers;
mod honest;
mod joined;
mod latency;
mod pace;
mod plan;
mod range;
mod replay;
mod script;
mod seen;
mod spreads;
mod stamp;
mod station;
mod template;

pub use blast::{Blast, BlastStats};
pub use count::Returned;
pub use error::PlanError;
pub use forge::Forgery;
pub use headers::Headers;
pub use honest::{Honest, HonestConfig, HonestStats};
pub use latency::Latency;
pub use pace::Pace;
pub use plan::{Content, Fragments, Plan, Stream, Withheld};
pub use range::{AddrRange, AddrSpan, PortRange, SizeRange, Spread};
pub use script::{ClassicScript, ScriptError};
pub use spreads::{FLOWS_MAX, Flows, Spreads};
pub use stamp::{STAMP_BYTES, Stamp};
pub use station::{Peer, StationConfig, StationMedium};
pub use template::Template;
