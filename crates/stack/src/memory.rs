//! What the parts of a shard hold of its packet memory together, so that some is left for packets
//! that arrive and leave, and for their answers.
//!
//! Called by `shard.rs` before each round. Each part bounds itself by the pool's frames: sockets
//! have a quarter at most (`udp/src/memory.rs`), the fragments of each family an eighth, packets
//! that wait for neighbours a 32nd. TCP's connections have the rest, a half at most, but for the
//! eighth that is nobody's: they alone can be made to give something back at once. So whoever fills
//! one part cannot take from another what that must have, and all of them filled at once leave
//! packets to everybody else.
//!
//! # Under flood
//! Bound: seven eighths of the frames, and what one round brings; where programs have ping and raw
//! sockets, a 32nd more for each of these kinds. Cost: some sums a round. Who goes: as each part
//! says. Not counted: what programs on other threads have taken to write, and what devices keep
//! ready to receive into.

use floodwall_packet::Pool;

use crate::shard::Stack;

impl Stack {
    /// Tells TCP's connections what the others have left, if that may be another than before.
    #[inline]
    pub(crate) fn share_memory(&mut self, pool: &Pool) {
        if self.memory_moved {
            self.share_memory_anew(pool);
        }
    }

    #[inline(never)]
    fn share_memory_anew(&mut self, pool: &Pool) {
        if !self.memory_fitted {
            self.fit_memory(pool);
        }
        self.memory_moved = false;
        let Some(tcp) = &mut self.tcp else { return };
        let others = self.udp.memory_held()
            + self.reassembly_v4.bytes()
            + self.reassembly_v6.bytes()
            + self.neighbors_v4.waiting_bytes()
            + self.neighbors_v6.waiting_bytes();
        // Where they have less than they might, they are told when that is over.
        self.memory_moved = tcp.set.share_memory(pool, others);
    }

    /// Lets each part hold no more than its part of the pool.
    #[cold]
    fn fit_memory(&mut self, pool: &Pool) {
        self.memory_fitted = true;
        self.reassembly_v4.fit(pool);
        self.reassembly_v6.fit(pool);
        self.neighbors_v4.fit(pool);
        self.neighbors_v6.fit(pool);
        self.ping.fit(pool);
        self.raw.fit(pool);
    }
}
