//! The scoreboard's side of its marks: taken, read, changed and given back.
//!
//! Part of the scoreboard; see [`crate::scoreboard_marks`] for the invariant and the bound.

use super::Scoreboard;
use crate::scoreboard_marks::ScoreboardMarks;
use crate::sent_segments::{SegmentRange, SentSegments};
use crate::state_slab::NO_STATE;

impl Scoreboard {
    /// What is marked.
    #[inline]
    pub(super) fn known_marks(&self, records: &SentSegments) -> ScoreboardMarks {
        if self.marks == NO_STATE {
            return ScoreboardMarks::NONE;
        }
        records.marks.at(self.marks).copied().unwrap_or(ScoreboardMarks::NONE)
    }

    /// The same, to be changed; taken where it has none.
    pub(super) fn marks<'a>(
        &mut self,
        records: &'a mut SentSegments,
    ) -> Option<&'a mut ScoreboardMarks> {
        if self.marks == NO_STATE {
            self.marks = records.marks.take(ScoreboardMarks::NONE);
        }
        let marks = records.marks.at_mut(self.marks);
        debug_assert!(marks.is_some(), "there is one for each place");
        marks
    }

    /// Changes what is marked, where it has marks.
    pub(super) fn change_marks(
        &self,
        records: &mut SentSegments,
        change: impl FnOnce(&mut ScoreboardMarks),
    ) {
        if self.marks != NO_STATE
            && let Some(marks) = records.marks.at_mut(self.marks)
        {
            change(marks);
        }
    }

    /// Changes the list of lost records by an operation of the records.
    pub(super) fn change_lost_list(
        &self,
        records: &mut SentSegments,
        change: impl FnOnce(&mut SentSegments, &mut SegmentRange),
    ) {
        let mut list = self.known_marks(records).list;
        change(records, &mut list);
        self.change_marks(records, |marks| marks.list = list);
    }

    /// No more is presumed delivered than is in flight.
    pub(super) fn bound_presumption(&self, records: &mut SentSegments) {
        let outstanding = self.outstanding();
        self.change_marks(records, |marks| {
            marks.presumed = marks.presumed.min(outstanding - marks.sacked - marks.lost);
        });
    }

    /// Gives the marks back: nothing is outstanding.
    pub(super) fn clear_marks(&mut self, records: &mut SentSegments) {
        if self.marks != NO_STATE {
            records.marks.give_back(core::mem::replace(&mut self.marks, NO_STATE));
        }
    }
}
