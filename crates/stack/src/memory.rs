//! Division of a shard's packet memory among its parts, so that some is left for packets that
//! arrive and leave, and for their answers.
//!
//! Called by `stack.rs` before each round. Each part is bounded by a fraction of the pool's frames:
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

use crate::stack::Stack;

impl Stack {
    /// Updates TCP's memory limit to what the other parts leave, if that may have changed.
    #[inline]
    pub(crate) fn share_memory(&mut self, pool: &Pool) {
        if self.memory.has_moved {
            self.share_memory_anew(pool);
        }
    }

    #[inline(never)]
    fn share_memory_anew(&mut self, pool: &Pool) {
        if !self.memory.is_fitted {
            self.fit_memory(pool);
        }
        self.memory.has_moved = false;
        let Some(tcp) = &mut self.tcp else { return };
        let others = self.sockets.udp.memory_held()
            + self.v4.reassembly.bytes()
            + self.v6.reassembly.bytes()
            + self.v4.neighbors.waiting_bytes()
            + self.v6.neighbors.waiting_bytes();
        // While connections are limited below their maximum, the limit is computed again each
        // round.
        self.memory.has_moved = tcp.set.share_memory(pool, others);
    }

    /// Sets each part's bound from the size of the pool.
    #[cold]
    fn fit_memory(&mut self, pool: &Pool) {
        self.memory.is_fitted = true;
        self.v4.reassembly.fit(pool);
        self.v6.reassembly.fit(pool);
        self.v4.neighbors.fit(pool);
        self.v6.neighbors.fit(pool);
        self.sockets.ping.fit(pool);
        self.sockets.raw.fit(pool);
    }
}
