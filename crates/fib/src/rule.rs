//! `Rule`: which table is looked up for which packets, in iproute2's words.
//!
//! Kept by [`crate::Fib`] in order of priority; the first rule that fits and has an answer in its
//! table decides. Without any change there are Linux's three: local, main, default.

use floodwall_base::{Address, IfIndex, Prefix};
use thiserror::Error;

use crate::query::Query;
use crate::route::{RouteKind, TableId};

/// What a rule does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuleAction {
    /// Looks up a table.
    Table(TableId),
    /// Decides by itself: blackhole, unreachable or prohibit.
    Decide(RouteKind),
}

/// One rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule<A: Address> {
    /// The lower, the earlier.
    pub priority: u32,
    /// Only for packets from here; `None` for all.
    pub from: Option<Prefix<A>>,
    /// Only for packets to here; `None` for all.
    pub to: Option<Prefix<A>>,
    /// Only for packets that came in there; the loopback for what this host sends itself.
    pub iif: Option<IfIndex>,
    /// What is done with them.
    pub action: RuleAction,
}

/// Priorities of the rules that are there at the start.
pub(crate) const PRIORITIES: [(u32, TableId); 3] =
    [(0, TableId::LOCAL), (32_766, TableId::MAIN), (32_767, TableId::DEFAULT)];

impl<A: Address> Rule<A> {
    /// A rule that looks up `table` for every packet.
    #[must_use]
    pub const fn all(priority: u32, table: TableId) -> Self {
        Self { priority, from: None, to: None, iif: None, action: RuleAction::Table(table) }
    }

    /// Whether it is for everything.
    #[must_use]
    pub fn is_for_all(&self) -> bool {
        let all = |prefix: Option<Prefix<A>>| prefix.is_none_or(|prefix| prefix.len() == 0);
        all(self.from) && all(self.to) && self.iif.is_none()
    }

    /// Whether a packet matches. One without a source address yet is of no prefix.
    #[must_use]
    #[inline]
    pub fn means(&self, query: &Query<A>) -> bool {
        let within = |prefix: Option<Prefix<A>>, addr: Option<A>| match (prefix, addr) {
            (None, _) => true,
            (Some(prefix), Some(addr)) => prefix.contains(addr),
            (Some(prefix), None) => prefix.len() == 0,
        };
        within(self.from, query.src_addr)
            && within(self.to, Some(query.dst_addr))
            && self.iif.is_none_or(|iif| query.iif.unwrap_or(IfIndex::LOOPBACK) == iif)
    }
}

/// Why a rule was not added or deleted. The rules are as they were.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleError {
    /// The very same is there.
    #[error("the very same rule exists, of priority {0}: give it another priority")]
    Exists(u32),
    /// None is meant.
    #[error("there is no such rule: see those that there are")]
    NotFound,
    /// There are as many as may be.
    #[error("there are {0} rules, as many as may be: delete some")]
    Full(usize),
    /// A kind that does not decide.
    #[error("a rule decides blackhole, unreachable or prohibit, or it looks up a table")]
    Action,
}
