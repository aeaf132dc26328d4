//! What the control shard publishes of a stack, and when.
//!
//! Called at the end of every call of the stack, and before a host's state is read from outside.
//! Invariant: what could not be published yet is announced as withheld in the same call.

use core::mem;
use core::time::Duration;

use floodwall_base::{Counter, Instant, limits};

use super::super::snapshot::copy_interfaces;
use super::{ControlShard, PublishedMarks};
use crate::round_context::RoundContext;
use crate::shards::role::Role;
use crate::stack::Stack;

/// Neighbours of each family published in one call.
const NEIGHBORS_EACH: usize = 128;

/// How soon memory is reclaimed where nothing else is to be done.
const RECLAIM_EVERY: Duration = Duration::from_millis(5);

impl PublishedMarks {
    fn of(stack: &Stack) -> Self {
        Self {
            paths: stack.sockets.path_cache.generation(),
            exceptions: (stack.v4.exceptions.revision(), stack.v6.exceptions.revision()),
            changes: stack.stats.counters.of(Counter::FloodwallChanges),
            dhcp_asks: stack.control.dhcp.asks(),
        }
    }

    /// The same, of what is copied beside the interfaces.
    fn tables(self) -> Self {
        Self { paths: 0, changes: 0, ..self }
    }
}

impl ControlShard {
    /// When [`Stack::publish`] has something to do at the latest.
    pub(crate) fn deadline(&self, stack: &Stack) -> Option<Instant> {
        if self.neighbors_withheld && !self.waits() {
            return Some(Instant::ORIGIN);
        }
        if stack.has_decided() {
            return Some(self.next_look);
        }
        let looks = (self.marks != Some(PublishedMarks::of(stack))).then_some(self.next_look);
        looks.into_iter().chain(self.next_reclaim).min()
    }

    /// Shows interfaces, routes and exceptions, where they are others now.
    fn show(&mut self, stack: &Stack, now: Instant) {
        let marks = PublishedMarks::of(stack);
        if self.marks == Some(marks) || now < self.next_look {
            return;
        }
        self.next_look = now + limits::SNAPSHOT_EVERY;
        if self.interfaces != stack.interfaces {
            copy_interfaces(&mut self.interfaces, &stack.interfaces);
            self.interfaces_revision += 1;
        } else if self.marks.is_some_and(|before| before.tables() == marks.tables())
            && !self.withheld
        {
            self.marks = Some(marks);
            return;
        }
        self.withheld = !self.replace(stack, now);
        if !self.withheld {
            self.marks = Some(marks);
        }
    }

    /// False where too many snapshots wait for readers.
    fn replace(&mut self, stack: &Stack, now: Instant) -> bool {
        let Some(mut next) = self.spare.pop() else {
            self.snapshot_refused += 1;
            return false;
        };
        next.take_from(stack, self.interfaces_revision);
        next.generation = self.generation + 1;
        match self.published.snapshot.replace(next, self.bytes, &mut self.limbo, now) {
            Ok(()) => {
                self.generation += 1;
                true
            }
            Err((next, _)) => {
                self.spare.push(next);
                self.snapshot_refused += 1;
                false
            }
        }
    }
}

impl Stack {
    /// Takes the place of the control shard: everything is to be published.
    pub(crate) fn lead(&mut self) {
        if let Role::Control(control) = &mut self.shard.role {
            control.v4.follow(&mut self.v4.neighbors);
            control.v6.follow(&mut self.v6.neighbors);
        }
    }

    /// Publishes what has changed; nothing where this is no control shard. Bounded: a look at a
    /// handful of words, [`NEIGHBORS_EACH`] neighbours of each family, and once in a while a copy
    /// of the tables.
    #[inline]
    pub(crate) fn publish(&mut self, cx: &mut RoundContext<'_>) {
        if self.is_follower() {
            return;
        }
        let routes_shown = self.publish_routes(cx.now);
        if matches!(self.shard.role, Role::Control(_)) {
            self.publish_as_control(cx, routes_shown);
        }
    }

    #[inline(never)]
    fn publish_as_control(&mut self, cx: &mut RoundContext<'_>, routes_shown: bool) {
        let now = cx.now;
        let Role::Control(mut control) = mem::replace(&mut self.shard.role, Role::Alone) else {
            return;
        };
        control.reclaim(now);
        let ControlShard { published, v4, v6, neighbors_withheld, .. } = &mut *control;
        let v4 = v4.publish(&published.v4, self.v4.neighbors.unmarked(), NEIGHBORS_EACH, now);
        let v6 = v6.publish(&published.v6, self.v6.neighbors.unmarked(), NEIGHBORS_EACH, now);
        *neighbors_withheld = !(v4 && v6);
        control.show(self, now);
        control.routes_withheld = !routes_shown;
        let (v4, v6) = (&self.v4.routes, &self.v6.routes);
        let routes = u64::from(v4.generation()) + u64::from(v6.generation());
        let waits = control.waits() || v4.waits() || v6.waits();
        control.next_reclaim = waits.then(|| now + RECLAIM_EVERY);
        control.say(routes);
        self.shard.role = Role::Control(control);
        self.spread_commands(cx);
    }

    /// What the control shard has published, for its counters.
    pub(crate) fn count_published(&self, counters: &mut floodwall_base::Counters) {
        let Role::Control(control) = &self.shard.role else { return };
        let neighbors = control.v4.published + control.v6.published;
        let refused = control.v4.refused + control.v6.refused;
        for (counter, n) in [
            (Counter::FloodwallSnapshots, control.generation),
            (Counter::FloodwallSnapshotsRefused, control.snapshot_refused),
            (Counter::FloodwallNeighborsPublished, neighbors),
            (Counter::FloodwallNeighborsRefused, refused),
        ] {
            counters.set(counter, n);
        }
    }
}
