//! `Notes`: friends that one shard has made, told to the shard that their next packet comes to.
//!
//! A program's socket has one worker that sends for it and hears by all of them. So whom it answers
//! is known where the answer left (`answered.rs`), and the next question comes to whoever owns the
//! flow: there it is to be a friend too, for triage and for the reserve of a socket that fills up.
//! Called by `answered.rs` when a socket sends to a friend whose flow is another shard's, and by
//! `shard.rs` at the start of each call, before it looks at a packet. Invariants: only a peer that
//! was answered again is told, once in a step of some seconds while it is sent to, so neither an
//! answer to a friend nor one to whoever asks once writes to a line that two workers share; what is
//! told is a copy, and nobody waits for it.
//!
//! # Under flood
//! Reachable by anyone whom a program answers twice. Bound: [`BURST_MAX`] notes between any two
//! shards, taken at the start; a call of a shard hears as many of each other at most, a set of the
//! table each. When full the newcomer is not told, but with the next answer. Honest traffic loses
//! the preference until then, and nothing else: no packet dies of it, so there is no counter.

use floodwall_base::limits::BURST_MAX;
use floodwall_base::{Instant, WorkerId};
use floodwall_sync::spsc::{Consumer, Producer, ring};

use super::Role;
use crate::answered::Peer;
use crate::shard::Stack;

/// One shard's ends.
pub(crate) struct Notes {
    own: WorkerId,
    /// Of the others, in their order.
    tell: Vec<Producer<Peer>>,
    hear: Vec<Consumer<Peer>>,
}

impl Notes {
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

    /// Tells another shard of a friend; false where there is no room.
    fn tell(&mut self, to: WorkerId, peer: Peer) -> bool {
        let place = usize::from(if to > self.own { to.0 - 1 } else { to.0 });
        self.tell.get_mut(place).is_some_and(|ring| ring.push(peer).is_ok())
    }

    /// Of whom the others have told; of each a burst at most.
    fn heard(&mut self) -> impl Iterator<Item = Peer> {
        self.hear.iter_mut().flat_map(|ring| ring.pop_batch(BURST_MAX))
    }
}

impl Role {
    fn notes(&mut self) -> Option<&mut Notes> {
        match self {
            Self::Alone => None,
            Self::Control(control) => Some(&mut control.notes),
            Self::Follower(follower) => Some(&mut follower.notes),
        }
    }
}

impl Stack {
    /// Takes over which friends the other shards have made. Costs a look at a word of each.
    #[inline]
    pub(crate) fn hear_notes(&mut self, now: Instant) {
        let Some(notes) = self.role.notes() else { return };
        // It may hear without a packet for long, and is asked before the next one's round.
        self.answered.begin(now);
        for peer in notes.heard() {
            self.answered.hear(&peer, now);
        }
    }

    /// A friend is to be known to the owner of its flow as well.
    #[cold]
    pub(crate) fn tell_friend(&mut self, owner: WorkerId, peer: &Peer, now: Instant) {
        let Some(notes) = self.role.notes() else { return };
        if notes.tell(owner, *peer) {
            self.answered.told(peer, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn peer(port: u16) -> Peer {
        Peer { addr: 7, port, local_port: 53, zone: 0 }
    }

    #[test]
    fn each_shard_hears_what_each_other_tells_it_in_order() {
        let mut all = Notes::among(4);
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
        let mut all = Notes::among(2);
        let told = (0..10_000).filter(|n| all[0].tell(WorkerId(1), peer(*n))).count();
        assert_eq!(told, BURST_MAX);
        assert_eq!(all[1].heard().count(), told);
        assert!(all[0].tell(WorkerId(1), peer(1)), "there is room again");
    }
}
