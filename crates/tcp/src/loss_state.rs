//! `LossState`: what the sender of a connection must know only while its window limits it, a loss
//! is repaired, or a probe is in flight.
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
    /// A recovery ends when this is acknowledged; no second reduction before (RFC 6582's recover).
    pub(crate) point: Seq,
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
            point: una,
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

const _: () = assert!(size_of::<LossState>() <= 232, "beside a connection of 512 bytes");
