//! A fragment's bytes go where none are yet.
//!
//! Called by `reassembly.rs` once there is room. Invariant: bytes that arrived first stay; so a
//! fragment that overlaps others (IPv4 only) is cut to the gaps between them, which costs a copy
//! of all but the first gap. Nothing is stored unless all of it can be.

use floodwall_base::limits::REASSEMBLY_RUNS_MAX;
use floodwall_packet::{PacketBuf, PacketList, Pool};

use super::gather;
use super::runs::{ByteRange, FragmentChain, FragmentRuns, Grown};

/// Where bytes are missing: from, to.
type Gap = (u32, u32);

/// Puts `packet`, with bytes that belong to `span` behind `header` bytes of headers, into `chain`.
/// Returns how many bytes were missing and what it took.
///
/// # Errors
/// Gives the packet back where the pool or the runs are used up; nothing is changed then.
pub(super) fn fill(
    chain: &mut FragmentChain,
    runs: &mut FragmentRuns,
    pool: &Pool,
    (place, header): (ByteRange, usize),
    span: Gap,
    mut packet: PacketBuf,
) -> Result<(u32, Grown), PacketBuf> {
    let overlaps = runs.span(place.behind).is_some_and(|(start, _)| start < span.1);
    if !overlaps {
        let grown = runs.insert(chain, place, span, packet)?;
        return Ok((span.1 - span.0, grown));
    }
    let mut gaps = [(0, 0); REASSEMBLY_RUNS_MAX + 1];
    let count = gaps_of(runs, place, span, &mut gaps);
    let mut gaps = gaps.into_iter().take(count);
    // The packet itself goes into the first one.
    let Some(first) = gaps.next() else { return Err(packet) };
    let mut parts = PacketList::new();
    for (from, to) in gaps.clone() {
        let at = header + (from - span.0) as usize;
        match gather::copy_of(pool, packet.chunks_in(at, (to - from) as usize)) {
            Some(part) => parts.push_back(part),
            None => return Err(packet),
        }
    }
    packet.truncate(header + (first.1 - span.0) as usize);
    if first.0 > span.0 {
        packet.trim_front(header + (first.0 - span.0) as usize);
    }
    let place = runs.locate(chain, first.0);
    // A gap adjoins its neighbouring runs: no run need be made, and nothing can fail from here on.
    let mut grown = runs.insert(chain, place, first, packet)?;
    let mut missing = first.1 - first.0;
    for gap in gaps {
        let Some(part) = parts.pop_front() else { break };
        let place = runs.locate(chain, gap.0);
        let Ok(more) = runs.insert(chain, place, gap, part) else { break };
        grown.add(more);
        missing += gap.1 - gap.0;
    }
    Ok((missing, grown))
}

/// Writes the gaps of `span` to `out`; returns how many there are.
fn gaps_of(runs: &FragmentRuns, place: ByteRange, span: Gap, out: &mut [Gap]) -> usize {
    let (mut from, mut at, mut count) = (span.0, place.behind, 0);
    let mut put = |gap: Gap| {
        if let Some(slot) = out.get_mut(count).filter(|_| gap.0 < gap.1) {
            *slot = gap;
            count += 1;
        }
    };
    while let Some((start, end)) = runs.span(at).filter(|(start, _)| *start < span.1) {
        put((from, start.max(from)));
        from = end.max(from);
        at = runs.following(at);
    }
    put((from, span.1.max(from)));
    count
}
