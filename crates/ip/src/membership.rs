//! A host's group memberships on one interface, as reported to routers and switches. IGMP and MLD
//! share one engine.
//!
//! Called by `stack`, which passes in every change and every message that arrived, and sends what
//! [`GroupProtocolState::work`] writes. Invariants: 224.0.0.1, ff02::1 and groups of node scope are
//! never reported; a change is reported as often as the robustness variable states; a query is
//! answered once, after a random delay; the protocol version is the oldest that a querier used
//! recently. Read first: RFC 9776 sections 5 and 7.2 (IGMPv3), RFC 9777 sections 6 and 8 (MLDv2),
//! RFC 2236 section 3, RFC 2710 section 4. Not here: routers' and proxies' parts; which sockets
//! joined (`iface.rs`, sockets).
//!
//! # Under flood
//! Reachable by stations on the link: hop limit 1, router alert and, in MLD, a link-local source
//! are required first (a report of the first MLD version too). Bounds: [`GROUPS_MAX`] groups an
//! interface, allocated at the start, of `INTERFACE_GROUPS_MAX` joined ones and one for each of
//! `ADDRESSES_MAX` addresses; `GROUP_SOURCES_MAX` sources a group. Remote peers add none. Worst
//! work per packet: one pass over the groups, and over one query's sources until they are too many
//! to remember. A flood of queries makes at most one answer wait for each group, and one for all;
//! no answer is earlier than [`RESPONSE_DELAY_MIN`], even where the query requests an immediate
//! one, no two of our messages are closer than [`REPORT_GAP`]: what is due stays in place. Nothing
//! is evicted. Honest routers lose nothing: a later query is answered by the pending report. A
//! station that uses an old version suppresses the sources of our reports, and by reports of its
//! own even those, which is why nothing here is to be relied on for more than delivery. Counters:
//! `Icmp6InGroupMembQueries`, `FloodwallIgmpInQueries` and their like.

mod filter;
mod group;
mod output;
mod querier;

use core::time::Duration;

use floodwall_base::limits::{ADDRESSES_MAX, INTERFACE_GROUPS_MAX};
use floodwall_base::{DropReason, Family, Instant, PublicRandom};
use floodwall_wire::group::{GroupAddrs, GroupMessage, GroupProtocol, GroupQuery, ReportWriter};
use floodwall_wire::{BufferTooShort, Generation};
use thiserror::Error;

pub use filter::{SourceFilter, SourceSet, SourcesFull};
pub use output::{HEADERS_MAX, packet};

use group::{GroupMembership, GroupQueryTarget};
use querier::Querier;

/// Groups that one interface may have: what programs join, and what its addresses need.
pub const GROUPS_MAX: usize = INTERFACE_GROUPS_MAX + ADDRESSES_MAX;
/// Minimum delay of an answer, regardless of the query.
pub const RESPONSE_DELAY_MIN: Duration = Duration::from_millis(10);
/// Between two messages of one interface and family.
pub const REPORT_GAP: Duration = Duration::from_millis(10);
/// Bytes that the largest single record needs, and more.
pub const MESSAGE_MIN: usize = 512;
/// Maximum interval between repeats of a change (RFC 9776 section 8.11, RFC 9777 section 9.11).
const UNSOLICITED_INTERVAL: Duration = Duration::from_secs(1);
/// The same in old versions (RFC 2236 section 8.10, RFC 2710 section 7.10).
const UNSOLICITED_INTERVAL_OLD: Duration = Duration::from_secs(10);

/// There is no room for another group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("an interface has {GROUPS_MAX} groups at most")]
pub struct GroupsFull;

/// The network layer's description of a received message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupHeading<A> {
    /// The source address.
    pub src_addr: A,
    /// The destination address.
    pub dst_addr: A,
    /// Time to live, or hop limit.
    pub hop_limit: u8,
    /// Whether the router alert option was there.
    pub router_alert: bool,
}

/// What a message is, for counting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupMessageKind {
    /// A query of any version.
    Query,
    /// A report of the first or second generation.
    Report,
    /// A leave, or done.
    Leave,
    /// A report with records.
    Records,
    /// None of these.
    Unknown,
}

impl GroupMessageKind {
    /// Of a message.
    #[must_use]
    pub const fn of<A>(message: &GroupMessage<'_, A>) -> Self {
        match message {
            GroupMessage::Query(_) => Self::Query,
            GroupMessage::Report { .. } => Self::Report,
            GroupMessage::Leave { .. } => Self::Leave,
            GroupMessage::Records(_) => Self::Records,
            GroupMessage::Unknown(_) => Self::Unknown,
        }
    }
}

/// A message that has been written, to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MembershipReport<A> {
    /// Source and destination: the checksum covers them.
    pub ends: GroupAddrs<A>,
    /// How many bytes.
    pub len: usize,
    /// What it is.
    pub kind: GroupMessageKind,
}

/// The membership state of one interface for one family.
#[derive(Debug)]
pub struct GroupProtocolState<A> {
    groups: Vec<GroupMembership<A>>,
    querier: Querier,
    /// The version in which the pending things are meant.
    generation: Generation,
    /// When changes are reported next.
    change_at: Option<Instant>,
    /// When a general query is to be answered.
    general_at: Option<Instant>,
    /// Nothing is sent before.
    quiet_until: Instant,
    /// Cached result of [`GroupProtocolState::deadline`].
    next: Option<Instant>,
}

impl<A: GroupProtocol> Default for GroupProtocolState<A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A: GroupProtocol> GroupProtocolState<A> {
    /// No groups yet, and memory for all.
    #[must_use]
    pub fn new() -> Self {
        Self {
            groups: Vec::with_capacity(GROUPS_MAX),
            querier: Querier::new(),
            generation: Generation::Third,
            change_at: None,
            general_at: None,
            quiet_until: Instant::ORIGIN,
            next: None,
        }
    }

    /// Whether this group is reported on the link at all.
    #[must_use]
    pub fn is_told(group: A) -> bool {
        let scope = (group.to_bits_aligned() >> 112) as u8 & 0x0f;
        let stays = A::FAMILY == Family::V6 && scope < 2;
        group.is_group() && group != A::ALL_SYSTEMS && !stays
    }

    /// From now on `filter` selects the accepted sources in `group`; changes are reported `wait`
    /// from now. Constant time but for a pass over the groups.
    ///
    /// # Errors
    /// There are [`GROUPS_MAX`] others. Groups that are never reported are no error, and ignored.
    pub fn set(
        &mut self,
        group: A,
        filter: SourceFilter<A>,
        now: Instant,
        wait: Duration,
    ) -> Result<(), GroupsFull> {
        if !Self::is_told(group) {
            return Ok(());
        }
        self.settle(now);
        let (times, generation) = (self.querier.robustness(), self.generation);
        let Some(found) = self.slot(group, &filter)? else { return Ok(()) };
        if found.change(filter, times, generation) {
            let at = now + wait;
            self.change_at = Some(self.change_at.map_or(at, |pending| pending.min(at)));
        }
        self.groups.retain(|g| !g.is_over());
        self.plan();
        Ok(())
    }

    /// The group's slot: made where it is joined, `None` where it is not there and not to be.
    fn slot(
        &mut self,
        group: A,
        filter: &SourceFilter<A>,
    ) -> Result<Option<&mut GroupMembership<A>>, GroupsFull> {
        let mut at = self.groups.iter().position(|g| g.addr == group);
        if at.is_none() && filter.is_empty() {
            return Ok(None);
        }
        if at.is_none() {
            if self.groups.len() == GROUPS_MAX {
                // A group that was left and is still being reported gives way.
                let left = self.groups.iter().position(|g| !g.is_member()).ok_or(GroupsFull)?;
                self.groups.swap_remove(left);
            }
            self.groups.push(GroupMembership::new(group));
            at = Some(self.groups.len() - 1);
        }
        Ok(at.and_then(|at| self.groups.get_mut(at)))
    }

    /// The filter of a group, as it was or is about to be reported.
    #[must_use]
    pub fn filter(&self, group: A) -> SourceFilter<A> {
        let found = self.groups.iter().find(|g| g.addr == group);
        found.map_or(SourceFilter::NO_SOURCES, |g| g.filter)
    }

    /// The groups that are joined.
    pub fn groups(&self) -> impl Iterator<Item = A> + '_ {
        self.groups.iter().filter(|g| g.is_member()).map(|g| g.addr)
    }

    /// Reports everything again, as a change: the link, or our address on it, is new.
    pub fn announce(&mut self, now: Instant, wait: Duration) {
        let times = self.querier.robustness();
        self.groups.retain(GroupMembership::is_member);
        self.groups.iter_mut().for_each(|group| group.tell_all(times));
        self.change_at = (!self.groups.is_empty()).then_some(now + wait);
        self.plan();
    }

    /// Clears all state: the link is down.
    pub fn clear(&mut self) {
        self.groups.clear();
        (self.querier, self.generation) = (Querier::new(), Generation::Third);
        (self.change_at, self.general_at) = (None, None);
        self.plan();
    }

    /// Takes a message after its checksum was verified.
    ///
    /// # Errors
    /// Why it is of no use: it broke a rule, or is not for hosts. Nothing has happened then.
    pub fn input(
        &mut self,
        heading: &GroupHeading<A>,
        message: &GroupMessage<'_, A>,
        now: Instant,
        random: &mut PublicRandom,
    ) -> Result<(), DropReason> {
        match message {
            GroupMessage::Query(query) => self.query(heading, query, now, random),
            GroupMessage::Report { group, .. } => self.report(heading, *group, now),
            GroupMessage::Leave { .. } | GroupMessage::Records(_) => {
                Err(DropReason::GroupMessageNotForUs)
            }
            GroupMessage::Unknown(_) => Err(DropReason::GroupMessageMalformed),
        }
    }

    fn query(
        &mut self,
        heading: &GroupHeading<A>,
        query: &GroupQuery<'_, A>,
        now: Instant,
        random: &mut PublicRandom,
    ) -> Result<(), DropReason> {
        let to = heading.dst_addr;
        let is_joined = self.groups.iter().any(|g| g.addr == to && g.is_member());
        check_query(heading, query, is_joined)?;
        self.querier.hear(query, now);
        self.settle(now);
        let delay = |random: &mut PublicRandom| {
            let span = query.max_response.saturating_sub(RESPONSE_DELAY_MIN);
            now + RESPONSE_DELAY_MIN + below(span, random)
        };
        if query.group != A::UNSPECIFIED {
            let asked = self.groups.iter_mut().find(|g| g.addr == query.group && g.is_member());
            let asked = asked.ok_or(DropReason::GroupMessageNotForUs)?;
            let at = delay(random);
            // Rule 1: everything will be reported before.
            if self.general_at.is_none_or(|general| general > at) {
                asked.ask(query.sources, at);
            }
        } else if self.generation == Generation::Third {
            let at = delay(random);
            // Rules 1 and 2.
            self.general_at = Some(self.general_at.map_or(at, |pending| pending.min(at)));
        } else {
            // Old versions: a timer for each group.
            for group in self.groups.iter_mut().filter(|g| g.is_member()) {
                group.ask(query.sources, delay(random));
            }
        }
        self.plan();
        Ok(())
    }

    /// Another host reported a group: in an old version our report is suppressed (RFC 2236 section
    /// 3).
    fn report(
        &mut self,
        heading: &GroupHeading<A>,
        group: A,
        now: Instant,
    ) -> Result<(), DropReason> {
        let near = heading.hop_limit == 1 && (A::FAMILY == Family::V4 || is_near(heading));
        if !near || heading.dst_addr != group {
            return Err(DropReason::GroupMessageInvalid);
        }
        self.settle(now);
        let old = self.generation < Generation::Third;
        let ours = self.groups.iter_mut().find(|g| old && g.addr == group && g.is_member());
        ours.ok_or(DropReason::GroupMessageNotForUs)?.suppress();
        self.plan();
        Ok(())
    }

    /// Adapts to the version that is to be spoken now.
    fn settle(&mut self, now: Instant) {
        let generation = self.querier.generation(now);
        if generation == self.generation {
            return;
        }
        self.generation = generation;
        self.general_at = None;
        self.groups.retain(GroupMembership::is_member);
        self.groups.iter_mut().for_each(GroupMembership::version_changed);
    }

    /// Writes the next message that is due to `out`, to be sent from `src_addr`: one at most, of
    /// one pass over the groups. `None` where nothing is due. `out` takes at least
    /// [`MESSAGE_MIN`] bytes, or what does not fit waits for ever.
    pub fn work(
        &mut self,
        src_addr: A,
        out: &mut [u8],
        now: Instant,
        random: &mut PublicRandom,
    ) -> Option<MembershipReport<A>> {
        if self.next.is_none_or(|next| next > now) {
            return None;
        }
        self.settle(now);
        self.ring(now, random);
        let report = match now < self.quiet_until {
            true => None,
            false if self.generation == Generation::Third => {
                self.write_records(src_addr, out).ok().flatten()
            }
            false => self.write_old(src_addr, out).ok().flatten(),
        };
        if report.is_some() {
            self.quiet_until = now + REPORT_GAP;
        }
        self.groups.retain(|g| !g.is_over());
        self.plan();
        report
    }

    /// Takes note of the timers that have come.
    fn ring(&mut self, now: Instant, random: &mut PublicRandom) {
        let come = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if come(self.change_at) {
            self.change_at = None;
            for group in self.groups.iter_mut().filter(|g| g.is_changing()) {
                group.change_due = true;
            }
        }
        if come(self.general_at) {
            self.general_at = None;
            for group in self.groups.iter_mut().filter(|g| g.is_member()) {
                group.forget_question();
                group.answer = GroupQueryTarget::Whole;
            }
        }
        for group in self.groups.iter_mut().filter(|g| come(g.answer_at)) {
            group.answer_now();
        }
        // What will have to be reported once more.
        let due = self.groups.iter().any(|g| g.change_due);
        if due && self.change_at.is_none() {
            let interval = match self.generation {
                Generation::Third => UNSOLICITED_INTERVAL,
                _ => UNSOLICITED_INTERVAL_OLD,
            };
            self.change_at = Some(now + REPORT_GAP + below(interval, random));
        }
    }

    /// Changes, or else answers, as many as fit.
    fn write_records(
        &mut self,
        src_addr: A,
        out: &mut [u8],
    ) -> Result<Option<MembershipReport<A>>, BufferTooShort> {
        let mut writer = ReportWriter::new(out)?;
        for group in self.groups.iter_mut().filter(|g| g.change_due) {
            if !group.write_change(&mut writer) {
                break;
            }
        }
        if writer.records() == 0 {
            for group in &mut self.groups {
                if !group.write_answer(&mut writer) {
                    break;
                }
            }
        }
        if writer.records() == 0 {
            return Ok(None);
        }
        let ends = GroupAddrs { src_addr, dst_addr: A::ALL_REPORT_ROUTERS };
        let len = writer.finish(ends);
        Ok(Some(MembershipReport { ends, len, kind: GroupMessageKind::Records }))
    }

    /// One message of one group.
    fn write_old(
        &mut self,
        src_addr: A,
        out: &mut [u8],
    ) -> Result<Option<MembershipReport<A>>, BufferTooShort> {
        let due =
            |g: &&mut GroupMembership<A>| g.change_due || g.answer != GroupQueryTarget::Nothing;
        let Some(group) = self.groups.iter_mut().find(due) else { return Ok(None) };
        let report = if group.is_member() {
            let ends = GroupAddrs { src_addr, dst_addr: group.addr };
            let len = A::emit_report(self.generation, group.addr, ends, out)?;
            MembershipReport { ends, len, kind: GroupMessageKind::Report }
        } else {
            let ends = GroupAddrs { src_addr, dst_addr: A::ALL_ROUTERS };
            let len = A::emit_leave(group.addr, ends, out)?;
            MembershipReport { ends, len, kind: GroupMessageKind::Leave }
        };
        group.told_old();
        Ok(Some(report))
    }

    /// When [`GroupProtocolState::work`] must be called at the latest.
    #[must_use]
    #[inline]
    pub const fn deadline(&self) -> Option<Instant> {
        self.next
    }

    /// Finds out when there is work next.
    fn plan(&mut self) {
        let waiting =
            self.groups.iter().any(|g| g.change_due || g.answer != GroupQueryTarget::Nothing);
        if !self.groups.iter().any(GroupMembership::is_changing) {
            self.change_at = None;
        }
        let timers = self.groups.iter().filter_map(|g| g.answer_at);
        let timers = timers.chain(self.change_at).chain(self.general_at);
        self.next = timers.chain(waiting.then_some(self.quiet_until)).min();
    }
}

/// The validity rules of RFC 9776 section 9.1, RFC 9777 section 6.2 and RFC 2236 section 9 for a
/// query: it must come from this link, and be sent to an address of this interface, unicast or
/// joined group, and may be about any (RFC 9776 section 4.1.12, RFC 9777 section 5.1.15).
fn check_query<A: GroupProtocol>(
    heading: &GroupHeading<A>,
    query: &GroupQuery<'_, A>,
    is_joined: bool,
) -> Result<(), DropReason> {
    // The first version has no router alert.
    let first = query.generation == Generation::First;
    let near = if first { heading.hop_limit == 1 } else { is_near(heading) };
    let to = heading.dst_addr;
    let general = query.group == A::UNSPECIFIED;
    let about = !general && to == query.group;
    let place = !to.is_group() || to == A::ALL_SYSTEMS || is_joined || about;
    // Sources without a group, a group that is none.
    let sense = if general { query.sources.is_empty() } else { query.group.is_group() };
    if near && place && sense { Ok(()) } else { Err(DropReason::GroupMessageInvalid) }
}

/// Whether the sender is on this link, as far as a message can show.
fn is_near<A: GroupProtocol>(heading: &GroupHeading<A>) -> bool {
    let link_local = A::FAMILY == Family::V4 || heading.src_addr.is_link_scope();
    heading.hop_limit == 1 && heading.router_alert && link_local
}

/// A random time below `max`.
fn below(max: Duration, random: &mut PublicRandom) -> Duration {
    Duration::from_nanos(random.below(u64::try_from(max.as_nanos()).unwrap_or(u64::MAX)))
}

#[cfg(test)]
#[path = "membership/tests.rs"]
mod tests;
