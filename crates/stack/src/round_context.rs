//! `RoundContext`: the round's arguments that the stack's parts borrow.

use floodwall_base::{Instant, Randomness};
use floodwall_packet::{PacketList, Peers, Pool, Round};

/// The round's arguments without its packets: see [`floodwall_packet::Round`].
pub(crate) struct RoundContext<'a> {
    pub(crate) now: Instant,
    pub(crate) pool: &'a Pool,
    pub(crate) random: &'a mut Randomness,
    pub(crate) departing: &'a mut PacketList,
    pub(crate) peers: Option<Peers<'a>>,
}

impl<'a> RoundContext<'a> {
    /// Borrows the context from a round.
    pub(crate) fn of(round: &'a mut Round<'_>) -> Self {
        let Round { now, pool, random, departing, peers, .. } = round;
        let peers = peers.as_mut().map(Peers::again);
        RoundContext { now: *now, pool, random, departing, peers }
    }

    /// Reborrows the context for another call.
    pub(crate) fn again(&mut self) -> RoundContext<'_> {
        RoundContext {
            now: self.now,
            pool: self.pool,
            random: self.random,
            departing: self.departing,
            peers: self.peers.as_mut().map(Peers::again),
        }
    }
}
