//! The ways to reclaim that real threads try, behind one interface: ours, ours with the historic
//! policy, and two crates as their documentation shows them.
//!
//! Called by `threads.rs`. A scheme decides which object a reader sees, what a reader reports at
//! the end of a round, and when an unlinked object's [`Ticket`] is dropped. Invariant: a scheme
//! touches an object only by [`ObjectPool`]'s means, so that all of them are measured and judged
//! alike.

mod crossbeam;
mod floodwall;
mod seize;

use core::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use floodwall_sync::qsbr::{LimboCaps, Paced};
use serde::Deserialize;

use super::objects::{ObjectPool, Ticket};
use crate::baselines::lazy_quiescence::LazyQuiescence;

/// The reader's half.
pub(super) trait ReadSide: Send {
    /// One round: `work` is given what looks up the object that is shown.
    fn round(&mut self, work: &mut dyn FnMut(&dyn Fn() -> usize));

    /// Nothing is to be done for as long as `sleep` takes.
    fn idle(&mut self, sleep: &mut dyn FnMut());
}

/// The writer's half.
pub(super) trait WriteSide {
    /// Shows each of these objects in turn, and frees what may be freed. Returns how many changes
    /// were refused.
    fn turn(&mut self, slots: Range<usize>) -> u64;

    /// The reader is gone: everything is freed.
    fn finish(&mut self);

    /// The most objects and bytes that waited, where the scheme counts them itself.
    fn high_water(&self) -> Option<(u64, u64)> {
        None
    }

    /// Which worker the scheme names as stuck, and for how long, if it can tell.
    fn stuck(&self) -> Option<(usize, Duration)> {
        None
    }
}

/// Both halves.
pub(super) type Halves = (Box<dyn ReadSide>, Box<dyn WriteSide>);

/// A way to reclaim.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Scheme {
    /// Ours: quiescent at every round's end.
    Floodwall,
    /// Linux 2.6.0: quiescent only when idle.
    QuiescentWhenIdle,
    /// The same with four callbacks a pass.
    FourCallbacks,
    /// `crossbeam-epoch`: pinned for a round.
    CrossbeamEpoch,
    /// The same, its writer flushing after every turn.
    CrossbeamFlushed,
    /// `seize`: a guard for a round.
    Seize,
    /// The same, its writer flushing after every turn.
    SeizeFlushed,
}

impl Scheme {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Floodwall,
        Self::QuiescentWhenIdle,
        Self::FourCallbacks,
        Self::CrossbeamEpoch,
        Self::CrossbeamFlushed,
        Self::Seize,
        Self::SeizeFlushed,
    ];

    /// What tables and numbers call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Floodwall => "floodwall",
            Self::QuiescentWhenIdle => "quiescent-when-idle",
            Self::FourCallbacks => "four-callbacks",
            Self::CrossbeamEpoch => "crossbeam-epoch",
            Self::CrossbeamFlushed => "crossbeam-flushed",
            Self::Seize => "seize",
            Self::SeizeFlushed => "seize-flushed",
        }
    }

    /// Both halves over a objects. `caps` is ours alone; `historic` is the route cache's bound; the
    /// crates have none.
    pub(super) fn halves(
        self,
        objects: &Arc<ObjectPool>,
        caps: LimboCaps,
        historic: LimboCaps,
    ) -> Halves {
        match self {
            Self::Floodwall => floodwall::halves(objects, Paced, caps),
            Self::QuiescentWhenIdle => {
                floodwall::halves(objects, LazyQuiescence::UNBOUNDED, historic)
            }
            Self::FourCallbacks => floodwall::halves(objects, LazyQuiescence::THROTTLED, historic),
            Self::CrossbeamEpoch => crossbeam::halves(objects, false),
            Self::CrossbeamFlushed => crossbeam::halves(objects, true),
            Self::Seize => seize::halves(objects, false),
            Self::SeizeFlushed => seize::halves(objects, true),
        }
    }
}
