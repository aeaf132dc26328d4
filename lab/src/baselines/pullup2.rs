//! `m_pullup2`: as `m_pullup`, up to one cluster.
//!
//! Models: `m_pullup2` of the NRL IPv6 stack for 4.4BSD (1996 to 2000), as the source describes it.
//! Simplified: as `pullup.rs`.
//! Serves: the fifth row of the plan `header-pull` and the comparison of bytes copied.

use super::chain::{Chain, Costs, Lost};
use super::pullup::pull_front;

/// Makes the first `len` bytes contiguous. Pointers into them are invalid afterwards.
///
/// # Errors
/// More than a cluster holds, or than the packet has: the packet is lost.
pub fn pullup2(chain: &mut Chain, len: usize, costs: &mut Costs) -> Result<(), Lost> {
    let limit = chain.sizes().cluster;
    let in_clusters = len > chain.sizes().header;
    pull_front(chain, len, limit, in_clusters, costs)
}
