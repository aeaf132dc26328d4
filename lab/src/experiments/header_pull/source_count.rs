//! Counting as the source counted: all accessors on one chain, the one that m_pulldown leaves.
//!
//! The source ran only m_pulldown and added counters to it that say what m_pullup and m_pullup2
//! would have done at each call (KAME `sys/kern/uipc_mbuf2.c`, option PULLDOWN_STAT). They know two
//! things: how long the first piece of the chain is, and whether the call before was for the same
//! packet. For a further call of the same packet they take nothing for granted: what an earlier
//! call would have made contiguous is forgotten, except that m_pullup2 may use what m_pullup has
//! just made in this very call. So one packet can count several copies for the same bytes. That is
//! the source's method, reproduced here because its fifth row is claimed; what each accessor does
//! on a copy of its own is measured beside it (`access.rs`).

use crate::baselines::chain::{Chain, Costs, Cut, Sizes};
use crate::baselines::pulldown::pulldown;

use super::access::HeaderAccess;

/// A chain that m_pulldown works on, and what the counters say of all three.
pub struct SourceCount {
    chain: Chain,
    seen_before: bool,
    /// m_pulldown, truly.
    pub pulldown: Costs,
    /// m_pullup, as counted.
    pub pullup: Costs,
    /// m_pullup2, as counted.
    pub pullup2: Costs,
}

/// What a counter takes to be contiguous at the front, and the room of the buffer it is in.
#[derive(Clone, Copy)]
struct Front {
    bytes: usize,
    room: usize,
    cluster: bool,
}

impl Front {
    /// Counts one call for the first `wanted` bytes; whether they are contiguous afterwards.
    fn count(self, wanted: usize, limit: usize, costs: &mut Costs) -> bool {
        if wanted > limit {
            costs.failures += 1;
            return false;
        }
        if self.bytes < wanted {
            costs.calls += 1;
            costs.copies += 1;
            costs.copied_bytes += wanted as u64;
            costs.allocations += u64::from(self.cluster || self.room < wanted);
        }
        true
    }
}

impl SourceCount {
    /// A packet, cut.
    #[must_use]
    pub fn new(sizes: Sizes, flat: &[u8], cut: &Cut) -> Self {
        let none = Costs::default();
        let chain = Chain::new(sizes, flat, cut);
        Self { chain, seen_before: false, pulldown: none, pullup: none, pullup2: none }
    }

    /// What the two counters say to a call.
    fn count_pullups(&mut self, wanted: usize) {
        let sizes = self.chain.sizes();
        let Some(first) = self.chain.pieces().first() else { return };
        let (bytes, cluster) = (first.bytes().len(), first.is_cluster());
        let front = if self.seen_before {
            Front { bytes: 0, room: 0, cluster }
        } else {
            Front { bytes, room: bytes + first.trailing(), cluster }
        };
        let pulled_up = front.count(wanted, sizes.header, &mut self.pullup);
        let front = match self.seen_before && pulled_up {
            true => Front { bytes: wanted, room: sizes.header, cluster },
            false => front,
        };
        front.count(wanted, sizes.cluster, &mut self.pullup2);
        self.seen_before = true;
    }
}

impl HeaderAccess for SourceCount {
    fn header(&mut self, off: usize, len: usize) -> Option<&[u8]> {
        self.pulldown.checks += 1;
        if self.chain.first().len() < off + len {
            self.pulldown.calls += 1;
            self.count_pullups(off + len);
            pulldown(&mut self.chain, off, len, &mut self.pulldown).ok()?;
        }
        self.chain.contiguous(off, len)
    }

    fn check_own_copy(&mut self) {
        self.pulldown.checks += 1;
    }
}
