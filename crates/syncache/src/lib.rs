//! Half-open TCP connections without connection state: a bounded cache of SYNs, and SYN cookies for
//! its overflow (mechanism S3: Lemon, BSDCon 2002; RFC 4987).
//!
//! Used by `tcp`'s listeners and by guards; takes and returns plain values (decision E22). Start
//! reading at [`HalfOpen`], the interface; [`SynCache`] is the product's implementation. The
//! cookies are explained in `docs/design/syn-cookie.md`.
//!
//! Invariant: no connection memory is spent for a client before it has proved its address: a
//! passive connection requires a [`Proven`], and only this crate makes one. Not here: packets,
//! headers, sockets, connection timers, resets for refused segments.
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
    AckOutcome, AckRefusal, ChallengeAck, HalfOpen, ResetReply, SynAck, SynAnswer, SynRefusal,
    Unreachable,
};
pub use interface::InterfaceKeys;
pub use listener::{AcceptSlot, ListenerId};
pub use moment::{CookieEpoch, CookieMoment};
#[cfg(any(test, feature = "testing"))]
pub use proven::ProvenParts;
pub use proven::{Proven, ProvenBy, ProvenTimestamps};
pub use secret::{Secret, SecretError};
pub use segment::{HandshakeAck, SegmentKind, SynOptions, SynSegment};
pub use settings::{CacheSettings, CookiePolicy, ListenSettings};
pub use stats::{ListenerStats, Stats};
pub use syn_cache::SynCache;
