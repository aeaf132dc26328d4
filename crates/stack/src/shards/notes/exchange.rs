//! The stack's side of notes: those of other shards are taken over, those for others are sent.
//!
//! Called at the start of each call of the stack, and by `triage/note_answered.rs`.

use floodwall_base::{Instant, WorkerId};

use crate::stack::Stack;
use crate::triage::recent_peers::RecentPeer;

impl Stack {
    /// Takes over the peers that other shards have established. Costs a look at one word of each.
    #[inline]
    pub(crate) fn hear_notes(&mut self, now: Instant) {
        let Some(notes) = self.shard.role.notes() else { return };
        // A shard may receive notes for long without a packet, so the clock is advanced here.
        self.sockets.recent_peers.begin(now);
        for peer in notes.heard() {
            self.sockets.recent_peers.hear(&peer, now);
        }
    }

    /// Sends a note about an established peer to the owner of its flow.
    #[cold]
    pub(crate) fn tell_established_flow(
        &mut self,
        owner: WorkerId,
        peer: &RecentPeer,
        now: Instant,
    ) {
        let Some(notes) = self.shard.role.notes() else { return };
        if notes.tell(owner, *peer) {
            self.sockets.recent_peers.told(peer, now);
        }
    }
}
