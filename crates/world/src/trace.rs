//! Events for a trace hook: one for each step of a frame on a link.
//!
//! Made by `world.rs`. Invariant: events come in the order of virtual time, and the sequence of
//! all events is the same for the same seed.

use floodwall_base::Instant;

use crate::lane::LaneDrop;
use crate::link::{LinkId, Side};

/// What happened to a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum TraceKind {
    /// Its sender gave it to the link.
    Sent,
    /// It is in the receiver's device ring.
    Delivered,
    /// It was dropped on the link, or at the receiver's device.
    Dropped(LaneDrop),
}

/// One event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceEvent<'a> {
    /// When.
    pub at: Instant,
    /// On which link.
    pub link: LinkId,
    /// From which end the frame comes.
    pub from: Side,
    /// What happened.
    pub kind: TraceKind,
    /// The frame's bytes, as they are at that moment: after corruption, if it was corrupted.
    pub frame: &'a [u8],
}
