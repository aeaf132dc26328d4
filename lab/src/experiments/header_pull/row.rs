//! One row measured: the same packets flat, on the source's chain, and on a copy for each accessor.

use std::collections::BTreeMap;

use floodwall_wire::IpProtocol;

use crate::baselines::chain::{Costs, Kind};
use crate::error::LabError;

use super::Setting;
use super::access::{Accessor, Asked, Audit, Flat, Own};
use super::source_count::SourceCount;
use super::traffic::{Arrival, Packet};
use super::walk::{End, walk};

/// What the input of one upper protocol cost, counted as the source counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProtocolCount {
    /// Packets.
    pub packets: u64,
    /// Length checks.
    pub checks: u64,
    /// Calls of m_pulldown.
    pub calls: u64,
    /// The least checks of one packet.
    pub checks_min: u64,
}

/// What one accessor did on copies of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OwnCount {
    /// What it cost.
    pub costs: Costs,
    /// Packets with another end of the walk than the flat packet.
    pub lost: u64,
    /// Answers with wrong bytes.
    pub wrong: u64,
    /// The most copies of one header of one packet.
    pub copies_of_one: u64,
    /// Copies of headers that one piece had.
    pub copies_of_contiguous: u64,
    /// Bytes copied beyond the headers' own.
    pub bytes_beyond: u64,
    /// Calls beyond 4.4BSD's limit that were answered.
    pub kept_beyond_limit: u64,
    /// Calls within that limit that were not.
    pub lost_within_limit: u64,
}

/// What one row's packets cost each accessor.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Measurement {
    /// Packets that arrived.
    pub packets: u64,
    /// Times that one was given to input.
    pub inputs: u64,
    /// By upper protocol.
    pub protocols: BTreeMap<u8, ProtocolCount>,
    /// Inputs in one small piece, two small ones, or with a cluster.
    pub layouts: [u64; 3],
    /// m_pulldown, truly, on the source's chain.
    pub pulldown: Costs,
    /// m_pullup, as the source counted.
    pub pullup: Costs,
    /// m_pullup2, likewise.
    pub pullup2: Costs,
    /// Each accessor on its own copy.
    pub own: BTreeMap<&'static str, OwnCount>,
    /// Bytes of headers of each packet that input reads or hands to others, ascending.
    pub header_bytes: Vec<usize>,
}

/// Measures packets that arrive in one way.
///
/// # Errors
/// A packet does not fit the product's memory.
pub fn measure_packets(
    setting: &Setting,
    packets: &[Packet],
    arrival: Arrival,
) -> Result<Measurement, LabError> {
    let mut all = Measurement::default();
    let mut scratch = vec![0; setting.scratch];
    for packet in packets {
        let flat = packet.flat.as_slice();
        let family = flat.first().map_or(0, |first| first >> 4);
        let seen = walk(&mut Flat(flat), family, flat.len());
        all.packets += 1;
        all.inputs += seen.passes;
        if matches!(seen.end, End::Parsed | End::Beyond) {
            all.header_bytes.push(seen.header_bytes);
        }
        let cut = packet.cut(arrival, setting.counted);
        let layout = match cut.as_slice() {
            pieces if pieces.iter().any(|(kind, _)| *kind == Kind::Cluster) => 2,
            pieces => (pieces.len() - 1).min(1),
        };
        all.layouts[layout] += seen.passes;

        let mut count = SourceCount::new(setting.counted, flat, &cut);
        walk(&mut count, family, flat.len());
        all.count_protocol(seen.protocol, count.pulldown);
        all.pulldown += count.pulldown;
        all.pullup += count.pullup;
        all.pullup2 += count.pullup2;

        let cut = packet.cut(arrival, setting.sizes);
        for &accessor in &setting.accessors {
            let own = Own::new(accessor, setting.sizes, flat, &cut, &setting.pool, &mut scratch)
                .ok_or(LabError::NoBuffer(flat.len()))?;
            let mut audit = Audit::new(own, flat);
            let ended = walk(&mut audit, family, flat.len()).end;
            let (asked, costs, wrong) = audit.finish();
            let row = all.own.entry(accessor.name()).or_default();
            row.costs += costs;
            row.wrong += wrong;
            row.lost += u64::from(ended != seen.end);
            row.audit(accessor, &asked, setting.sizes.header);
        }
    }
    all.header_bytes.sort_unstable();
    Ok(all)
}

impl Measurement {
    fn count_protocol(&mut self, protocol: Option<IpProtocol>, costs: Costs) {
        let Some(IpProtocol(protocol)) = protocol else { return };
        let row = self.protocols.entry(protocol).or_default();
        row.packets += 1;
        row.checks += costs.checks;
        row.calls += costs.calls;
        let first = row.packets == 1;
        row.checks_min = if first { costs.checks } else { row.checks_min.min(costs.checks) };
    }

    /// What was counted for one protocol.
    #[must_use]
    pub fn of(&self, protocol: IpProtocol) -> ProtocolCount {
        self.protocols.get(&protocol.0).copied().unwrap_or_default()
    }
}

impl OwnCount {
    /// Looks at what one packet's headers cost, one by one.
    fn audit(&mut self, accessor: Accessor, asked: &[Asked], limit: usize) {
        let mut copies: BTreeMap<(usize, usize), u64> = BTreeMap::new();
        for one in asked {
            *copies.entry((one.off, one.len)).or_default() += one.costs.copies;
            if one.was_contiguous {
                self.copies_of_contiguous += one.costs.copies;
            }
            self.bytes_beyond += one.costs.copied_bytes.saturating_sub(one.len as u64);
            let beyond = one.off + one.len > limit;
            let called = one.costs.calls > 0 && accessor != Accessor::Scratch;
            let lost = one.costs.failures > 0;
            self.kept_beyond_limit += u64::from(called && beyond && !lost);
            self.lost_within_limit += u64::from(called && !beyond && lost);
        }
        let most = copies.values().copied().max().unwrap_or_default();
        self.copies_of_one = self.copies_of_one.max(most);
    }
}
