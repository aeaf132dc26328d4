//! A stack is dropped: what it leaves in its place for the next one.
//!
//! Called by `Drop` of the stack, after a panic too. Invariant: what it held is accounted for as
//! dropped, so that the counters of the place balance.

use floodwall_base::{Counter, DropReason};

use crate::shards::role::Role;
use crate::stack::Stack;
use crate::stats::Stats;

impl Stack {
    /// The stack is dropped: what the next one in its place needs stays there.
    pub(crate) fn leave_place(&mut self) {
        let Some(place) = self.shard.place.take() else { return };
        let looped = self.burst.loopback.len() as u64;
        let mut stats = bereaved(self.stats(), looped);
        // The accounting has them as delivered.
        stats.counters.add(Counter::FloodwallPanicDatagrams, self.sockets.udp.waiting());
        let role = core::mem::replace(&mut self.shard.role, Role::Alone);
        let mut left = place.left();
        left.stats = Some(stats);
        if let Role::Follower(mut follower) = role {
            follower.forget();
            left.follower = Some(follower);
        }
    }
}

/// The counters of a shard that panicked: packets that it held, its loopback queue, and the packet
/// it was working on are counted as dropped.
fn bereaved(stats: Stats, looped: u64) -> Stats {
    let mut stats = Stats { held: 0, pending: 0, ..stats };
    stats.outcomes.received += looped;
    let law = stats.conservation();
    let reason = DropReason::ShardPanicked;
    stats.drops_in.add(reason, law.arrived.saturating_sub(law.arrived_fates));
    stats.drops_out.add(reason, law.originated.saturating_sub(law.originated_fates));
    stats
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_shard_held_died_by_name() {
        let mut stats = Stats { held: 2, pending: 3, ..Stats::default() };
        stats.outcomes.received = 7;
        stats.outcomes.delivered = 4;
        stats.outcomes.originated = 5;
        stats.outcomes.transmitted = 2;
        let dead = bereaved(stats, 1);
        assert!(dead.conservation().holds(), "{:?}", dead.conservation());
        // Two fragments, the packet that was worked on, the one that was looped back.
        assert_eq!(dead.drops_in.of(DropReason::ShardPanicked), 4);
        assert_eq!(dead.drops_out.of(DropReason::ShardPanicked), 3);
    }
}
