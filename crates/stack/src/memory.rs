//! Division of a shard's packet memory among its parts, so that some is left for packets that
//! arrive and leave, and for their answers.
//!
//! Called by `shard.rs` before each round. Each part is bounded by a fraction of the pool's frames:
//! sockets have a quarter at most (`udp/src/memory.rs`), the fragments of each family an eighth,
//! packets that wait for neighbours a 32nd. TCP's connections have the rest, a half at most, except
//! for an eighth that stays unassigned: only TCP can be made to release memory at once. So filling
//! one part cannot starve another of its minimum, and with all of them filled at once there are
//! still packets for the rest of the stack.
//!
//! # Under flood
//! Bound: seven eighths of the frames, and what one round brings; where programs have ping and raw
//! sockets, a 32nd more for each of these kinds. Cost: some sums a round. Eviction: as documented
//! in each part. Not counted: what programs on other threads have taken to write, and what devices
//! keep ready to receive into.

use floodwall_packet::Pool;

use crate::shard::Stack;

impl Stack {
    /// Updates TCP's memory limit to what the other parts leave, if that may have changed.
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
        // While connections are limited below their maximum, the limit is computed again each
        // round.
        self.memory_moved = tcp.set.share_memory(pool, others);
    }

    /// Sets each part's bound from the size of the pool.
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
