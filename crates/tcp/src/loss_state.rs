//! `LossState`: what the sender of a connection must know only while its window limits it, a loss
//! is repaired, or a probe is in flight; and `LossStates`, the slab of them.
//!
//! Used by [`crate::recovery`] alone. A connection takes one at the first of these events, and
//! gives it back once all data is acknowledged and nothing of it matters any more: one at rest that
//! has lost nothing has none. Invariant: each state in use belongs to one connection, which gives
//! it back before it is freed.
//!
//! # Under flood
//! Reachable by a peer that acknowledges a window of data, loses some, or reports so. Bound: one
//! for each place, so that no connection waits for one of another; the memory is reserved at
//! construction, and touched as it is used. Work: one visit to a list of free ones. Where none is
//! left, which the bound excludes, the window is that of RFC 5681 without undo (`congestion.rs`),
//! and losses of a connection without SACK are repaired by timeouts.

use floodwall_base::Seq;

use crate::congestion::Controller;
use crate::prr::PrrState;
use crate::undo::RecoveryUndo;

/// No state.
pub(crate) const NO_LOSS_STATE: u32 = u32::MAX;

/// A segment that is larger than the others: a probe for a larger size (RFC 4821).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SizeProbe {
    /// There is none.
    Absent,
    /// It is in flight: where it begins, and its length.
    Flying(Seq, u16),
    /// Whether it arrived, until that is asked for.
    Judged(bool),
}

impl SizeProbe {
    /// Where it begins and its length, while it is in flight.
    pub(crate) fn flying(self) -> Option<(Seq, u32)> {
        match self {
            Self::Flying(start, len) => Some((start, len.into())),
            Self::Absent | Self::Judged(_) => None,
        }
    }
}

/// The state of a sender that its window limits, that repairs a loss, or that probes.
#[derive(Clone, Debug)]
pub(crate) struct LossState {
    pub(crate) controller: Controller,
    pub(crate) undo: RecoveryUndo,
    pub(crate) prr: PrrState,
    /// The end of the tail loss probe, and whether it was a retransmission.
    pub(crate) probe: Option<(Seq, bool)>,
    pub(crate) size_probe: SizeProbe,
    /// The window was reduced because of an ECN mark, up to here (RFC 3168 section 6.1.2).
    pub(crate) marked: Seq,
    /// Duplicate ACKs since the last progress, where SACK is not in use.
    pub(crate) duplicates: u8,
}

impl LossState {
    pub(crate) fn new(controller: Controller, una: Seq) -> Self {
        Self {
            controller,
            undo: RecoveryUndo::default(),
            prr: PrrState::default(),
            probe: None,
            size_probe: SizeProbe::Absent,
            marked: una,
            duplicates: 0,
        }
    }

    /// Whether nothing but the window is worth keeping, where all data is acknowledged.
    pub(crate) fn is_spent(&self) -> bool {
        self.probe.is_none()
            && self.size_probe == SizeProbe::Absent
            && !self.undo.is_armed()
            && self.controller.settled().is_some()
    }
}

const _: () = assert!(size_of::<LossState>() <= 232, "beside a connection of 640 bytes");

/// The slab of a shard's loss states: one for each place of a connection at most.
#[derive(Debug)]
pub(crate) struct LossStates {
    slab: Vec<LossState>,
    free: Vec<u32>,
    max: usize,
}

impl LossStates {
    /// Room for `max`; the memory is touched as they are used.
    pub(crate) fn new(max: usize) -> Self {
        Self { slab: Vec::with_capacity(max), free: Vec::with_capacity(max), max }
    }

    #[inline(always)]
    pub(crate) fn at(&self, index: u32) -> Option<&LossState> {
        self.slab.get(index as usize)
    }

    #[inline(always)]
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut LossState> {
        self.slab.get_mut(index as usize)
    }

    /// Takes one for `state`; [`NO_LOSS_STATE`] where none is left.
    pub(crate) fn take(&mut self, state: LossState) -> u32 {
        if let Some(index) = self.free.pop() {
            if let Some(place) = self.at_mut(index) {
                *place = state;
            }
            return index;
        }
        if self.slab.len() >= self.max {
            return NO_LOSS_STATE;
        }
        self.slab.push(state);
        self.slab.len() as u32 - 1
    }

    pub(crate) fn give_back(&mut self, index: u32) {
        if (index as usize) < self.slab.len() {
            self.free.push(index);
        }
    }

    /// How many are in use.
    #[cfg(test)]
    pub(crate) fn in_use(&self) -> usize {
        self.slab.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::Algorithm;

    #[test]
    fn as_many_as_places_are_given_and_each_is_given_again() {
        let state = || LossState::new(Controller::new(Algorithm::Reno, 1000), Seq(0));
        let mut states = LossStates::new(2);
        let (a, b) = (states.take(state()), states.take(state()));
        assert_eq!((states.take(state()), states.in_use()), (NO_LOSS_STATE, 2));
        states.give_back(NO_LOSS_STATE);
        states.give_back(a);
        assert_eq!((states.in_use(), states.take(state()), b), (1, a, 1));
        assert!(states.at(b).is_some() && states.at(NO_LOSS_STATE).is_none());
    }
}
