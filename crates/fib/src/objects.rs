//! Next-hop objects with numbers of their own, and rules: what the operator sets beside routes.
//!
//! Called by the operator's commands. See [`crate::hop_writer`] for what is shared.

use floodwall_base::{IfIndex, Instant, limits};

use crate::collect::SWEPT_AT_ONCE;
use crate::error::RouteError;
use crate::fib::{Fib, Old};
use crate::hop_writer::Object;
use crate::lpm::LpmFamily;
use crate::next_hop::{Member, NextHop, NextHopId};
use crate::rule::{Rule, RuleAction, RuleError};

/// A next-hop object, for showing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShownHop<A: LpmFamily> {
    /// Its number.
    pub id: NextHopId,
    /// The way, unless it is a group.
    pub hop: Option<NextHop<A>>,
    /// The members, if it is a group.
    pub members: Vec<Member>,
    /// Routes and groups that go through it.
    pub users: u32,
    /// Whether its number was given explicitly; the others come and go with their routes.
    pub is_named: bool,
}

impl<A: LpmFamily> Fib<A> {
    /// Gives a way a number of its own.
    ///
    /// # Errors
    /// See [`RouteError`].
    pub fn add_next_hop(&mut self, id: NextHopId, hop: NextHop<A>) -> Result<(), RouteError> {
        self.hops.name(id, Object::Hop(hop))?;
        self.revision = self.revision.wrapping_add(1);
        Ok(())
    }

    /// Gives a group of ways a number of its own.
    ///
    /// # Errors
    /// See [`RouteError`].
    pub fn add_group(&mut self, id: NextHopId, members: &[Member]) -> Result<(), RouteError> {
        self.hops.name(id, Object::Group(members.into()))?;
        self.revision = self.revision.wrapping_add(1);
        Ok(())
    }

    /// Lets an object lead elsewhere, and all its routes with it: one store. Where it now leads
    /// into a link that is down, or out of one, some routes of a large table are looked at now, the
    /// others by [`Fib::sweep`], as after [`Fib::set_usable`].
    ///
    /// # Errors
    /// See [`RouteError`]; a group stays a group.
    pub fn replace_next_hop(
        &mut self,
        id: NextHopId,
        hop: NextHop<A>,
        now: Instant,
    ) -> Result<(), RouteError> {
        self.replace_object(id, Object::Hop(hop), now)
    }

    /// Gives a group other members or weights. Only those flows move that must.
    ///
    /// # Errors
    /// See [`RouteError`]; a hop stays a hop.
    pub fn replace_group(
        &mut self,
        id: NextHopId,
        members: &[Member],
        now: Instant,
    ) -> Result<(), RouteError> {
        self.replace_object(id, Object::Group(members.into()), now)
    }

    fn replace_object(
        &mut self,
        id: NextHopId,
        object: Object<A>,
        now: Instant,
    ) -> Result<(), RouteError> {
        let mut old = Vec::new();
        let usable = self.hops.is_usable(id.0, self.down);
        let done = self.hops.replace(id, object, &mut old);
        self.unlinked.extend(old.into_iter().map(Old::Hop));
        self.may_wait = true;
        done?;
        self.changed();
        if usable != self.hops.is_usable(id.0, self.down) {
            // It now leads into a link that is down, or out of one: its routes are to be looked at.
            self.sweep = Some(0);
            self.sweep(now, SWEPT_AT_ONCE);
        }
        Ok(())
    }

    /// Deletes an object through which nothing goes.
    ///
    /// # Errors
    /// See [`RouteError`].
    pub fn delete_next_hop(&mut self, id: NextHopId) -> Result<(), RouteError> {
        let mut old = Vec::new();
        let done = self.hops.unname(id, &mut old);
        self.unlinked.extend(old.into_iter().map(Old::Hop));
        self.may_wait = true;
        self.revision = self.revision.wrapping_add(1);
        done
    }

    /// Whether there is an ECMP group.
    #[must_use]
    pub const fn has_groups(&self) -> bool {
        self.hops.has_groups()
    }

    /// The gateways of the members of ECMP groups, some more than once. Visits all objects.
    pub fn group_gateways(&self) -> impl Iterator<Item = (IfIndex, A)> + '_ {
        self.hops.group_gateways()
    }

    /// The gateways of all routes, some more than once. Visits all objects.
    pub fn gateways(&self) -> impl Iterator<Item = (IfIndex, A)> + '_ {
        self.hops.gateways()
    }

    /// Notes whether a gateway answers: ECMP groups pass over one that does not, as long as another
    /// member's does. Lost where an object is replaced: its gateway is taken to answer. Visits all
    /// objects.
    pub fn set_silent(&mut self, iface: IfIndex, gateway: A, silent: bool) {
        self.hops.set_silent(iface, gateway, silent);
        self.changed();
    }

    /// All objects, by number; shared ones of routes too.
    pub fn next_hops(&self) -> impl Iterator<Item = ShownHop<A>> + '_ {
        self.hops.iter().map(|(id, object, users, is_named)| match object {
            Object::Hop(hop) => {
                ShownHop { id, hop: Some(*hop), members: Vec::new(), users, is_named }
            }
            Object::Group(members) => {
                ShownHop { id, hop: None, members: members.to_vec(), users, is_named }
            }
        })
    }

    /// The object of a number.
    #[must_use]
    pub fn next_hop(&self, id: NextHopId) -> Option<ShownHop<A>> {
        let (users, is_named) = (self.hops.users(id.0), self.hops.is_named(id.0));
        let (hop, members) = match self.hops.object(id.0)? {
            Object::Hop(hop) => (Some(*hop), Vec::new()),
            Object::Group(members) => (None, members.to_vec()),
        };
        Some(ShownHop { id, hop, members, users, is_named })
    }

    /// Adds a rule behind those of its priority.
    ///
    /// # Errors
    /// See [`RuleError`].
    pub fn add_rule(&mut self, rule: Rule<A>) -> Result<(), RuleError> {
        if matches!(rule.action, RuleAction::Decide(kind) if kind.is_unicast()) {
            return Err(RuleError::Action);
        }
        if self.rules.contains(&rule) {
            return Err(RuleError::Exists(rule.priority));
        }
        if self.rules.len() >= limits::ROUTE_RULES_MAX {
            return Err(RuleError::Full(limits::ROUTE_RULES_MAX));
        }
        let at = self.rules.partition_point(|other| other.priority <= rule.priority);
        self.rules.insert(at, rule);
        self.compile();
        Ok(())
    }

    /// Deletes the first rule that `which` names.
    ///
    /// # Errors
    /// It names none.
    pub fn delete_rule(
        &mut self,
        which: impl FnMut(&Rule<A>) -> bool,
    ) -> Result<Rule<A>, RuleError> {
        let at = self.rules.iter().position(which).ok_or(RuleError::NotFound)?;
        let rule = self.rules.remove(at);
        self.compile();
        Ok(rule)
    }

    /// The rules, in the order in which they are evaluated.
    #[must_use]
    pub fn rules(&self) -> &[Rule<A>] {
        &self.rules
    }
}
