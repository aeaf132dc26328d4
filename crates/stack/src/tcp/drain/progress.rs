//! `DrainProgress`: how far the end of a stack's connections has come, and what it will report.
//!
//! Made by [`Stack::drain`](crate::Stack::drain); the steps are in `drain.rs`.

use floodwall_base::Instant;

/// How connections ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Drained {
    /// In order: both sides have closed, and the peer has acknowledged all data.
    pub closed: u64,
    /// Not in order: reset, by us when the time was over or by the peer, or given up.
    pub reset: u64,
}

impl core::ops::AddAssign for Drained {
    fn add_assign(&mut self, other: Self) {
        self.closed += other.closed;
        self.reset += other.reset;
    }
}

/// What happens to connections that programs on other threads still hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeldConnections {
    /// Their programs may go on with them until the time is over.
    Keep,
    /// They are closed at once, behind all that was written, as a kernel does when a process ends.
    Close,
}

/// What is called with the outcome.
pub(super) type DrainReply = Box<dyn FnOnce(Drained) + Send>;

/// The next thing to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DrainStep {
    Begin,
    CloseListeners,
    /// From this place on.
    Notify(u32),
    /// From this slot on.
    CloseHeld(u32),
    Wait,
    /// From this place on.
    Reset(u32),
    Over,
}

/// The state of a stack that ends its connections.
pub(crate) struct DrainProgress {
    pub(super) step: DrainStep,
    pub(super) closes_held: bool,
    pub(super) until: Instant,
    pub(super) neighbors_until: Instant,
    /// Connections at the beginning, and those that had ended abnormally before.
    pub(super) had: u64,
    pub(super) broken: u64,
    pub(super) replies: Vec<DrainReply>,
}
