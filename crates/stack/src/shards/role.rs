//! `Role`: what a stack is among the workers of its host.
//!
//! Decided with its seat (`seat.rs`); kept for the stack's life.

use super::control::ControlShard;
use super::follower::Follower;
use super::notes::PeerNotes;

/// What a stack is among the workers of its host.
pub(crate) enum Role {
    /// The only one.
    Alone,
    /// The one that learns.
    Control(Box<ControlShard>),
    /// One of the others.
    Follower(Box<Follower>),
}

impl Role {
    pub(super) fn notes(&mut self) -> Option<&mut PeerNotes> {
        match self {
            Self::Alone => None,
            Self::Control(control) => Some(&mut control.notes),
            Self::Follower(follower) => Some(&mut follower.notes),
        }
    }
}
