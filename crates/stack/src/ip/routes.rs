//! The stack and its routing tables: look-up, ownership, removal of expired routes.
//!
//! A host has one set of tables: the control shard's, which alone changes them. A stack that is
//! alone, or that control shard, looks into its own; a follower reads the control shard's in place,
//! under the view of its round, so that a route is visible to all shards from the moment it is
//! published, at the end of the call that changed it. Called by `tx.rs` for every packet without a
//! cached path, by `neighbors.rs` for timed work, by `shards/control.rs` to publish. Invariant: no
//! result waits for timed work; the clock of the round decides whether a route has expired.
//!
//! # Under flood
//! Reachable through advertisements (`router.rs`) and leases (`dhcp.rs`); both limit their routes:
//! see [`floodwall_fib::Fib`]. Worst work per packet: one look-up.

use core::net::{Ipv4Addr, Ipv6Addr};

use floodwall_base::{Instant, Units};
use floodwall_fib::{Fib, Found};

use crate::ip::ip_family::IpFamily;
use crate::round_context::RoundContext;
use crate::shards::Role;
use crate::stack::Stack;

impl Stack {
    /// Where a packet of ours to `dst_addr` goes now.
    #[inline]
    pub(crate) fn route_to<A: IpFamily>(
        &self,
        cx: &RoundContext<'_>,
        dst_addr: A,
    ) -> Option<Found<A>> {
        match &self.shard.role {
            Role::Follower(follower) => {
                let view = cx.peers.as_ref()?.view;
                A::fib_reader(&follower.routes).lookup(view, dst_addr, cx.now)
            }
            _ => A::fib(self).lookup(dst_addr, cx.now),
        }
    }

    /// Whether what would lead there is a link that is down.
    pub(crate) fn leads_into_a_dead_link<A: IpFamily>(
        &self,
        cx: &RoundContext<'_>,
        dst_addr: A,
    ) -> bool {
        match (&self.shard.role, &cx.peers) {
            (Role::Follower(follower), Some(peers)) => {
                A::fib_reader(&follower.routes).leads_into_a_dead_link(peers.view, dst_addr)
            }
            _ => A::fib(self).leads_into_a_dead_link(dst_addr),
        }
    }

    /// Removes routes that are over, and goes on with what a link that went or came left to do.
    pub(crate) fn route_timers<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        budget: Units,
    ) -> Units {
        let fib = A::fib_mut(self);
        let before = fib.generation();
        let mut visited = fib.sweep(cx.now, budget.0 as usize);
        visited += fib.collect(cx.now, (budget.0 as usize).saturating_sub(visited));
        if fib.generation() != before {
            self.sockets.path_cache.forget();
        }
        Units(visited as u32)
    }

    /// Shows the other shards what has changed. False where too much waits for them.
    pub(crate) fn publish_routes(&mut self, now: Instant) -> bool {
        // Publish both families, even if the first fails.
        // What is shown has no deadline.
        let (v4, v6) = (self.v4.routes.unmarked(), self.v6.routes.unmarked());
        let (v4, v6) = (v4.publish(now), v6.publish(now));
        v4 && v6
    }

    /// The routing table of a family, to be changed: for the operator's commands. Only the control
    /// shard's counts; [`Stack::routes_changed`] is to be called afterwards.
    pub fn routes_v4_mut(&mut self) -> &mut Fib<Ipv4Addr> {
        &mut self.v4.routes
    }

    /// As [`Stack::routes_v4_mut`].
    pub fn routes_v6_mut(&mut self) -> &mut Fib<Ipv6Addr> {
        &mut self.v6.routes
    }

    /// Routes were changed from outside: invalidates the cached paths of sockets.
    pub fn routes_changed(&mut self) {
        self.sockets.path_cache.forget();
    }
}
