//! `m_pulldown`: bytes in the middle of a packet contiguous, everything before them untouched.
//!
//! Models: `m_pulldown` of the KAME IPv6 stack as of 2000 (`sys/kern/uipc_mbuf2.c`), the source's
//! own proposal. The product's pulldown (`floodwall_packet`) descends from it and differs: it never
//! loses the packet, and tests the piece that it writes to for sharing.
//! Simplified: callers always take an offset, so the case that splits a piece to give offset 0 is
//! left out; one memory, no failed allocation.
//! Serves: "pulldown copies at most once per straddling header" and the fifth row of the plan
//! `header-pull`.

use super::chain::{Chain, Costs, Kind, Lost};

/// Makes `len` bytes from `off` contiguous; [`Chain::contiguous`] gives them afterwards.
///
/// # Errors
/// More than a cluster holds, or than the packet has: the packet is lost.
pub fn pulldown(chain: &mut Chain, off: usize, len: usize, costs: &mut Costs) -> Result<(), Lost> {
    let sizes = chain.sizes();
    let found = chain.locate(off).filter(|_| len <= sizes.cluster && off + len <= chain.len());
    let Some((number, within)) = found else {
        costs.failures += 1;
        return Err(chain.lose());
    };
    let piece = &chain.pieces()[number];
    let here = piece.bytes().len() - within;
    if here >= len {
        return Ok(());
    }
    let missing = len - here;
    costs.copies += 1;
    if piece.trailing() >= missing {
        costs.copied_bytes += missing as u64;
        chain.pull_forward(number, missing);
        return Ok(());
    }
    let next = &chain.pieces()[number + 1];
    if next.leading() >= here && next.bytes().len() >= missing {
        costs.copied_bytes += here as u64;
        chain.push_back(number, here);
        return Ok(());
    }
    costs.allocations += 1;
    costs.copied_bytes += len as u64;
    let kind = if len <= sizes.data { Kind::Data } else { Kind::Cluster };
    chain.insert_behind(number, within, len, kind);
    Ok(())
}
