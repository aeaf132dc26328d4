//! One group of one interface: its filter, unreported changes and pending queries.
//!
//! Called by `membership.rs`, which has the timers. Invariant: a change that cannot be reported by
//! its sources is reported by the whole filter. Read first: RFC 9776 sections 5.1 and 5.2.

use floodwall_base::{Address, Instant, limits::GROUP_SOURCES_MAX};
use floodwall_wire::Generation;
use floodwall_wire::group::{GroupProtocol, RecordKind, ReportWriter, Sources};

use super::filter::{SourceFilter, SourceSet};

/// What to report in answer to a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum GroupQueryTarget<A> {
    /// Nothing.
    Nothing,
    /// The group's state.
    Whole,
    /// Whether these sources are accepted.
    About(SourceSet<A>),
}

impl<A: Address> GroupQueryTarget<A> {
    /// A query named these sources, none for the whole group. Too many sources to remember: the
    /// whole group.
    fn by(sources: Sources<'_, A>) -> Self
    where
        A: GroupProtocol,
    {
        if sources.is_empty() {
            return Self::Whole;
        }
        SourceSet::of(sources.iter()).map_or(Self::Whole, Self::About)
    }

    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nothing, asked) | (asked, Self::Nothing) => asked,
            (Self::About(a), Self::About(b)) => {
                SourceSet::of(a.iter().chain(b.iter())).map_or(Self::Whole, Self::About)
            }
            _ => Self::Whole,
        }
    }
}

/// The report state of one group.
#[derive(Clone, Debug)]
pub(super) struct GroupMembership<A> {
    pub(super) addr: A,
    pub(super) filter: SourceFilter<A>,
    /// How often the whole filter has yet to be reported as a change.
    filter_left: u8,
    /// Sources that were recently added or removed, and how often that has yet to be reported.
    changed: SourceSet<A>,
    left: [u8; GROUP_SOURCES_MAX],
    /// The change is due now.
    pub(super) change_due: bool,
    /// What was queried, and when it is to be answered.
    asked: GroupQueryTarget<A>,
    pub(super) answer_at: Option<Instant>,
    /// What is to be answered now.
    pub(super) answer: GroupQueryTarget<A>,
    /// In an old version: our report was the last one, so our leave message matters (RFC 2236
    /// section 6).
    pub(super) reported_last: bool,
}

impl<A: GroupProtocol> GroupMembership<A> {
    pub(super) const fn new(addr: A) -> Self {
        Self {
            addr,
            filter: SourceFilter::NO_SOURCES,
            filter_left: 0,
            changed: SourceSet::EMPTY,
            left: [0; GROUP_SOURCES_MAX],
            change_due: false,
            asked: GroupQueryTarget::Nothing,
            answer_at: None,
            answer: GroupQueryTarget::Nothing,
            reported_last: false,
        }
    }

    pub(super) const fn is_member(&self) -> bool {
        !self.filter.is_empty()
    }

    /// Whether a change of the group has yet to be reported.
    pub(super) const fn is_changing(&self) -> bool {
        self.filter_left > 0 || !self.changed.is_empty()
    }

    /// Whether nothing has to be remembered of it.
    pub(super) const fn is_over(&self) -> bool {
        !self.is_member() && !self.is_changing()
    }

    /// Takes a new filter; true where something is to be reported, `times` times.
    pub(super) fn change(
        &mut self,
        new: SourceFilter<A>,
        times: u8,
        generation: Generation,
    ) -> bool {
        let old = core::mem::replace(&mut self.filter, new);
        if old == new {
            return false;
        }
        if new.is_empty() {
            self.forget_question();
        }
        if generation < Generation::Third {
            return self.change_old(old.is_empty(), times, generation);
        }
        let same_mode = matches!(
            (&old, &new),
            (SourceFilter::Include(_), SourceFilter::Include(_))
                | (SourceFilter::Exclude(_), SourceFilter::Exclude(_))
        );
        if !same_mode || self.filter_left > 0 || !self.note(&old, times) {
            self.tell_all(times);
        }
        true
    }

    /// Old versions know of joining and leaving only; the first not even of leaving.
    fn change_old(&mut self, joined: bool, times: u8, generation: Generation) -> bool {
        self.changed = SourceSet::EMPTY;
        let leaves = self.filter.is_empty();
        self.filter_left = match (joined, leaves) {
            (true, false) => times,
            (false, true) if self.reported_last && generation == Generation::Second => 1,
            (false, false) => return false,
            _ => 0,
        };
        if leaves {
            self.change_due = false;
        }
        self.filter_left > 0
    }

    /// Notes which sources changed; false where they are too many.
    fn note(&mut self, old: &SourceFilter<A>, times: u8) -> bool {
        let new = self.filter;
        let (was, is) = (old.sources(), new.sources());
        let differ = |s: &A| was.contains(*s) != is.contains(*s);
        let fresh = was.iter().chain(is.iter()).filter(differ);
        let Ok(fresh) = SourceSet::of(fresh) else { return false };
        let Ok(all) = SourceSet::of(self.changed.iter().chain(fresh.iter())) else { return false };
        let mut left = [0; GROUP_SOURCES_MAX];
        for (slot, source) in left.iter_mut().zip(all.iter()) {
            *slot = if fresh.contains(source) { times } else { self.left_of(source) };
        }
        (self.changed, self.left) = (all, left);
        true
    }

    fn left_of(&self, source: A) -> u8 {
        self.changed.iter().zip(self.left).find(|(s, _)| *s == source).map_or(0, |(_, left)| left)
    }

    /// The whole filter is to be reported, so often.
    pub(super) fn tell_all(&mut self, times: u8) {
        (self.changed, self.filter_left) = (SourceSet::EMPTY, times);
    }

    /// The version changed: pending reports and answers are void (RFC 9776 section 7.2.1), but a
    /// member with an unreported change reports it once in the new form.
    pub(super) fn version_changed(&mut self) {
        let untold = self.is_member() && self.is_changing();
        self.tell_all(u8::from(untold));
        self.change_due &= untold;
        self.forget_question();
    }

    /// Another host reported the group in an old version.
    pub(super) fn suppress(&mut self) {
        self.tell_all(0);
        self.change_due = false;
        self.forget_question();
        self.reported_last = false;
    }

    pub(super) fn forget_question(&mut self) {
        (self.asked, self.answer, self.answer_at) =
            (GroupQueryTarget::Nothing, GroupQueryTarget::Nothing, None);
    }

    /// Rules 3 to 5 of RFC 9776 section 5.2: one pending answer, as early as any query requires.
    pub(super) fn ask(&mut self, sources: Sources<'_, A>, at: Instant) {
        let asked = GroupQueryTarget::by(sources);
        self.asked = if self.answer_at.is_some() { self.asked.and(asked) } else { asked };
        self.answer_at = Some(self.answer_at.map_or(at, |pending| pending.min(at)));
    }

    /// The answer's time has come.
    pub(super) fn answer_now(&mut self) {
        self.answer_at = None;
        let asked = core::mem::replace(&mut self.asked, GroupQueryTarget::Nothing);
        self.answer = self.answer.and(asked);
    }

    /// Writes what changed; false where it does not fit.
    pub(super) fn write_change(&mut self, out: &mut ReportWriter<'_, A>) -> bool {
        if self.filter_left > 0 {
            let kind = match self.filter {
                SourceFilter::Include(_) => RecordKind::TO_INCLUDE,
                SourceFilter::Exclude(_) => RecordKind::TO_EXCLUDE,
            };
            if !out.record(kind, self.addr, self.filter.sources().iter()) {
                return false;
            }
            self.filter_left -= 1;
        } else if !self.write_sources(out) {
            return false;
        }
        self.change_due = false;
        true
    }

    /// Both kinds of source change, or none where both do not fit.
    fn write_sources(&mut self, out: &mut ReportWriter<'_, A>) -> bool {
        let heard = self.changed.filter(|s| self.filter.passes(s));
        let not_heard = self.changed.filter(|s| !self.filter.passes(s));
        let lists = [(RecordKind::ALLOW_NEW, heard), (RecordKind::BLOCK_OLD, not_heard)];
        let lists = lists.iter().filter(|(_, sources)| !sources.is_empty());
        let needed: usize =
            lists.clone().map(|(_, s)| ReportWriter::<A>::record_len(s.len())).sum();
        if needed > out.room() {
            return false;
        }
        lists.for_each(|(kind, sources)| {
            out.record(*kind, self.addr, sources.iter());
        });
        self.told_sources();
        true
    }

    fn told_sources(&mut self) {
        let rest = self.changed.filter(|s| self.left_of(s) > 1);
        let mut left = [0; GROUP_SOURCES_MAX];
        for (slot, source) in left.iter_mut().zip(rest.iter()) {
            *slot = self.left_of(source) - 1;
        }
        (self.changed, self.left) = (rest, left);
    }

    /// Writes the answer; false where it does not fit.
    pub(super) fn write_answer(&mut self, out: &mut ReportWriter<'_, A>) -> bool {
        let (kind, sources) = match (&self.answer, &self.filter) {
            (GroupQueryTarget::Whole, SourceFilter::Exclude(sources)) => {
                (RecordKind::IS_EXCLUDE, *sources)
            }
            (GroupQueryTarget::Whole, SourceFilter::Include(sources)) => {
                (RecordKind::IS_INCLUDE, *sources)
            }
            (GroupQueryTarget::About(asked), filter) => {
                (RecordKind::IS_INCLUDE, asked.filter(|s| filter.passes(s)))
            }
            (GroupQueryTarget::Nothing, _) => return true,
        };
        // "If the resulting Current-State Record has an empty set of source addresses, then no
        // response is sent", and of a group that is not joined there is nothing to report.
        let silent = kind == RecordKind::IS_INCLUDE && sources.is_empty();
        if !silent && !out.record(kind, self.addr, sources.iter()) {
            return false;
        }
        self.answer = GroupQueryTarget::Nothing;
        true
    }

    /// An old version's report or leave has been written.
    pub(super) fn told_old(&mut self) {
        self.filter_left = self.filter_left.saturating_sub(1);
        self.change_due = false;
        self.answer = GroupQueryTarget::Nothing;
        self.reported_last = self.is_member();
    }
}
