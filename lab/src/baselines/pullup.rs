//! `m_pullup`: the first bytes of a packet contiguous, up to one small buffer of them.
//!
//! Models: `m_pullup` of 4.4BSD-Lite2 (`sys/kern/uipc_mbuf.c`), as IPv4 input used it.
//! Simplified: it brings exactly what is requested, not the customary few bytes more.
//! Serves: "m_pullup fails beyond its limit" and the fifth row of the plan `header-pull`.

use super::chain::{Chain, Costs, Kind, Lost};

/// Makes the first `len` bytes contiguous. Pointers into them are invalid afterwards.
///
/// # Errors
/// More than a small buffer holds, or than the packet has: the packet is lost.
pub fn pullup(chain: &mut Chain, len: usize, costs: &mut Costs) -> Result<(), Lost> {
    let limit = chain.sizes().header;
    pull_front(chain, len, limit, false, costs)
}

/// What `m_pullup` and `m_pullup2` have in common. `in_clusters`: whether a first piece that is a
/// cluster may be filled up where it is.
pub(super) fn pull_front(
    chain: &mut Chain,
    len: usize,
    limit: usize,
    in_clusters: bool,
    costs: &mut Costs,
) -> Result<(), Lost> {
    let here = chain.first().len();
    if here >= len {
        return Ok(());
    }
    if len > limit || len > chain.len() {
        costs.failures += 1;
        return Err(chain.lose());
    }
    costs.copies += 1;
    let first = &chain.pieces()[0];
    if (in_clusters || !first.is_cluster()) && first.trailing() >= len - here {
        costs.copied_bytes += (len - here) as u64;
        chain.pull_forward(0, len - here);
        return Ok(());
    }
    costs.allocations += 1;
    costs.copied_bytes += len as u64;
    let kind = if len <= chain.sizes().header { Kind::Header } else { Kind::Cluster };
    chain.insert_first(len, kind);
    Ok(())
}
