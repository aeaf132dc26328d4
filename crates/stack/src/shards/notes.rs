//! `PeerNotes`: peers that one shard has established, passed to the shard that receives their next
//! packet.
//!
//! A program's socket has one worker that sends for it, and receives through all of them. So the
//! peers that it answers are known where the answer left (`recent_peers.rs`), and the next request
//! arrives at the owner of the flow: there the peer is to be established too, for triage and for
//! the reserve of a socket that fills up. Called by `recent_peers.rs` when a socket sends to an
//! established peer with a flow of another shard, and by `stack.rs` at the start of each call,
//! before it processes a packet. Invariants: a note is sent only for a peer that was answered
//! again, once in a step of some seconds while it is sent to; so neither an answer to an
//! established peer nor one to a peer that sends once writes to a cache line that two workers
//! share. A note is a copy, and no shard waits for it.
//!
//! # Under flood
//! Reachable from any peer that a program answers twice. Bound: [`BURST_MAX`] notes between any two
//! shards, taken at the start; a call of a shard reads as many of each other at most, one set of
//! the table each. When full the note is skipped and sent with the next answer. Honest traffic
//! loses the preference until then, and nothing else: no packet is dropped for it, so there is no
//! counter.

mod exchange;

use floodwall_base::WorkerId;
use floodwall_base::limits::BURST_MAX;
use floodwall_sync::spsc::{Consumer, Producer, ring};

use crate::triage::recent_peers::RecentPeer;

/// One shard's ends.
pub(crate) struct PeerNotes {
    own: WorkerId,
    /// Of the others, in their order.
    tell: Vec<Producer<RecentPeer>>,
    hear: Vec<Consumer<RecentPeer>>,
}

impl PeerNotes {
    /// Those of all shards of a host, in their order.
    pub(super) fn among(workers: u16) -> Vec<Self> {
        let ends = |own| Self { own: WorkerId(own), tell: Vec::new(), hear: Vec::new() };
        let mut all: Vec<Self> = (0..workers).map(ends).collect();
        for (from, to) in (0..workers).flat_map(|from| (0..workers).map(move |to| (from, to))) {
            if from == to {
                continue;
            }
            let (tell, hear) = ring(BURST_MAX);
            if let Some(notes) = all.get_mut(usize::from(from)) {
                notes.tell.push(tell);
            }
            if let Some(notes) = all.get_mut(usize::from(to)) {
                notes.hear.push(hear);
            }
        }
        all
    }

    /// Sends a note about an established peer to another shard; false where the ring is full.
    fn tell(&mut self, to: WorkerId, peer: RecentPeer) -> bool {
        let place = usize::from(if to > self.own { to.0 - 1 } else { to.0 });
        self.tell.get_mut(place).is_some_and(|ring| ring.push(peer).is_ok())
    }

    /// The notes of the other shards, of each a burst at most.
    fn heard(&mut self) -> impl Iterator<Item = RecentPeer> {
        self.hear.iter_mut().flat_map(|ring| ring.pop_batch(BURST_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn peer(port: u16) -> RecentPeer {
        RecentPeer { addr: 7, port, local_port: 53, zone: 0 }
    }

    #[test]
    fn each_shard_hears_what_each_other_tells_it_in_order() {
        let mut all = PeerNotes::among(4);
        for (from, to) in (0..4_u16).flat_map(|from| (0..4).map(move |to| (from, to))) {
            if from != to {
                for n in 0..2 {
                    let told = peer(from * 100 + to * 10 + n);
                    assert!(all[usize::from(from)].tell(WorkerId(to), told));
                }
            }
        }
        for (to, notes) in (0..4_u16).zip(&mut all) {
            let heard: Vec<u16> = notes.heard().map(|peer| peer.port).collect();
            let from = (0..4_u16).filter(|from| *from != to);
            let told: Vec<u16> =
                from.flat_map(|from| [0, 1].map(|n| from * 100 + to * 10 + n)).collect();
            assert_eq!(heard, told);
            assert_eq!(notes.heard().count(), 0);
        }
    }

    #[test]
    fn a_shard_that_does_not_listen_is_told_a_bounded_number() {
        let mut all = PeerNotes::among(2);
        let told = (0..10_000).filter(|n| all[0].tell(WorkerId(1), peer(*n))).count();
        assert_eq!(told, BURST_MAX);
        assert_eq!(all[1].heard().count(), told);
        assert!(all[0].tell(WorkerId(1), peer(1)), "there is room again");
    }
}
