//! All counters of a shard, and the conservation law that they obey.

use floodwall_base::{Counters, DropCounts};
use floodwall_packet::AccessCounters;
use floodwall_tcp::CoalescedEnd;

/// Packet accounting: the outcomes of packets other than drops.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fates {
    /// Packets that arrived, the loopback's included.
    pub received: u64,
    /// Arrived, and taken by a socket or by the stack's own protocols.
    pub delivered: u64,
    /// Arrived, and passed on.
    pub forwarded: u64,
    /// Arrived, and answered.
    pub answered: u64,
    /// Arrived as fragments, and became part of a reassembled packet that is accounted for itself.
    pub merged: u64,
    /// Arrived here, and handed over to another shard of the host.
    pub handed_in: u64,
    /// Arrived at another worker, and taken over here: from its shard, or from the worker itself,
    /// which steered it before any shard saw it.
    pub adopted_in: u64,
    /// Packets that we made; each fragment is one.
    pub originated: u64,
    /// Made, and handed to a device or to the loopback.
    pub transmitted: u64,
    /// Made here, and handed over to another shard to be sent.
    pub handed_out: u64,
    /// Made by another shard, and taken over to be sent.
    pub adopted_out: u64,
}

/// Everything that one shard counts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Under nstat's names.
    pub counters: Counters,
    /// Packets that arrived and were dropped, by reason.
    pub drops_in: DropCounts,
    /// Packets made by this stack and dropped, by reason.
    pub drops_out: DropCounts,
    /// What became of the rest.
    pub outcomes: Fates,
    /// How headers were read.
    pub access: AccessCounters,
    /// Made by us, and waiting for a link address now.
    pub pending: u64,
    /// Fragments that arrived, and wait for others now.
    pub held: u64,
}

/// Both sides of the input and the output accounting, which must be equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conservation {
    /// Arrived.
    pub arrived: u64,
    /// Sum over every outcome of packets that arrived.
    pub arrived_fates: u64,
    /// Made by us.
    pub originated: u64,
    /// Sum over every outcome of packets that this stack made.
    pub originated_fates: u64,
}

impl Conservation {
    /// Whether every packet is accounted for exactly once.
    #[must_use]
    pub const fn holds(&self) -> bool {
        self.arrived == self.arrived_fates && self.originated == self.originated_fates
    }
}

impl Stats {
    /// Each segment of a run has the same outcome.
    pub(crate) fn note_coalesced(&mut self, train: CoalescedEnd) {
        let count = u64::from(train.count);
        match train.dropped {
            None => self.outcomes.delivered += count,
            Some(reason) => self.drops_in.add(reason, count),
        }
    }

    /// Adds up both sides of the accounting.
    #[must_use]
    pub fn conservation(&self) -> Conservation {
        let f = &self.outcomes;
        Conservation {
            arrived: f.received + f.adopted_in,
            arrived_fates: f.delivered
                + f.forwarded
                + f.answered
                + f.merged
                + f.handed_in
                + self.held
                + self.drops_in.total(),
            originated: f.originated + f.adopted_out,
            originated_fates: f.transmitted + f.handed_out + self.pending + self.drops_out.total(),
        }
    }
}

#[cfg(test)]
mod tests {
    use floodwall_base::DropReason;

    use super::*;

    #[test]
    fn a_drop_without_a_name_breaks_the_law() {
        let mut stats = Stats::default();
        stats.outcomes.received = 3;
        stats.outcomes.delivered = 1;
        stats.outcomes.answered = 1;
        assert!(!stats.conservation().holds());
        stats.drops_in.count(DropReason::UdpNoPort);
        assert!(stats.conservation().holds());
        stats.outcomes.originated = 1;
        assert!(!stats.conservation().holds());
        stats.pending = 1;
        assert!(stats.conservation().holds());
    }
}
