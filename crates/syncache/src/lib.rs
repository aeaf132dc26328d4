//! Half-open TCP connections without connections: a bounded cache of what SYNs said, and cookies
//! for when it overflows (mechanism S3: Lemon, BSDCon 2002; RFC 4987).
//!
//! Called by `tcp`'s listeners and by guards; takes and returns plain values (decision E22). Start
//! reading at [`HalfOpen`], the seam; [`SynCache`] is the product's, an essay on its cookies stands
//! in `docs/design/syn-cookie.md`.
//!
//! Invariant: no connection memory is spent for a client before it has proved its address: the
//! only way to a passive connection is [`Proven`], and only this crate makes one. Not here:
//! packets, headers, sockets, timers of connections, resets for what is refused.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

mod bucket;
mod budget;
mod cache;
mod cookie;
mod entry;
mod half_open;
mod interface;
mod listener;
mod moment;
mod prefix;
mod proven;
mod secret;
mod segment;
mod settings;
mod shares;
mod stats;
mod syn_cache;
mod timestamp;

#[cfg(any(test, feature = "testing"))]
pub mod contract;

pub use half_open::{
    Acked, Answered, ChallengeAck, HalfOpen, Refusal, Reset, SynAck, SynRefusal, Unreachable,
};
pub use interface::InterfaceKeys;
pub use listener::{AcceptSlot, ListenerId};
pub use moment::{Epoch, Moment};
#[cfg(any(test, feature = "testing"))]
pub use proven::ProvenParts;
pub use proven::{By, Proven, Timestamps};
pub use secret::{Secret, SecretError};
pub use segment::{Ack, Options, SegmentKind, Syn};
pub use settings::{CacheSettings, CookiePolicy, ListenSettings};
pub use stats::{ListenerStats, Stats};
pub use syn_cache::SynCache;
