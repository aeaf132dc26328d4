//! `header-pull`: four ways to read headers located anywhere, over the same packets in the same
//! pieces. Source: Hagino, "Mbuf issues in 4.4BSD IPv6/IPsec support" (FREENIX 2000), section 8.
//!
//! Each row's packets are walked (`walk.rs`) three times over: on the flat packet, which judges; on
//! one chain with the source's counters (`source_count.rs`), which gives its Tables 2 and 3; and by
//! every accessor on a copy of its own (`access.rs`), which gives the real cost. Table 1 is found
//! by probing (`probe.rs`). Counts only, no time: the same seed gives the same numbers.

mod access;
mod captures;
mod probe;
mod row;
mod source_count;
mod tables;
mod traffic;
mod walk;

pub use access::{Accessor, Asked, Audit, Flat, HeaderAccess, Own};
pub use captures::ip_packets;
pub use probe::{Bench, Habits};
pub use row::{Measurement, ProtocolCount, measure_packets};
pub use source_count::SourceCount;
pub use traffic::{Arrival, Mix, Packet, Row, Traffic, packets};
pub use walk::{End, Seen, walk};

use floodwall_packet::{Pool, PoolConfig};
use serde::Deserialize;

use crate::baselines::chain::Sizes;
use crate::error::LabError;
use crate::experiments::Experiment;
use crate::measure::Measured;
use crate::plan::Plan;
use crate::progress::Progress;

/// The experiment `header-pull`: the cost of reading headers split over chunks.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeaderPull;

/// The plan's `[vary]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Vary {
    accessors: Vec<Accessor>,
    rows: Vec<Row>,
}

/// The plan's `[hold]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hold {
    header: usize,
    data: usize,
    cluster: usize,
    counted_header: usize,
    scratch: usize,
    captures: Vec<String>,
}

/// The plan's `[full]` or `[quick]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Amount {
    packets: u64,
}

/// What every measurement shares.
pub struct Setting {
    /// The accessors measured.
    pub accessors: Vec<Accessor>,
    /// Buffers that accessors really run on.
    pub sizes: Sizes,
    /// Buffers that the source counted on.
    pub counted: Sizes,
    /// Bytes of scratch that the caller brings.
    pub scratch: usize,
    /// The product's memory.
    pub pool: Pool,
}

impl Setting {
    /// The source's buffers and a pool for one packet at a time.
    ///
    /// # Errors
    /// The memory could not be made.
    pub fn new(sizes: Sizes, counted_header: usize, scratch: usize) -> Result<Self, LabError> {
        // The longest packet in the least pieces needs 33 frames; each holds a cluster.
        let config = PoolConfig {
            small: 256,
            frames: 256,
            frame_bytes: 4096,
            references: 256,
            accounts: 0,
            ..PoolConfig::default()
        };
        Ok(Self {
            accessors: Accessor::ALL.to_vec(),
            sizes,
            counted: Sizes { header: counted_header, ..sizes },
            scratch,
            pool: Pool::new(&config)?,
        })
    }
}

impl Experiment for HeaderPull {
    fn name(&self) -> &'static str {
        "header-pull"
    }

    fn run(
        &self,
        plan: &Plan,
        amount: &toml::Table,
        seed: u64,
        progress: &mut dyn Progress,
    ) -> Result<Measured, LabError> {
        let vary: Vary = plan.read("vary", &plan.vary)?;
        let hold: Hold = plan.read("hold", &plan.hold)?;
        let Amount { packets: count } = plan.read("amount", amount)?;
        let sizes = Sizes { header: hold.header, data: hold.data, cluster: hold.cluster };
        let mut setting = Setting::new(sizes, hold.counted_header, hold.scratch)?;
        setting.accessors = vary.accessors;

        let steps = (vary.rows.len() + hold.captures.len() + 1) as u64;
        progress.step("limits", 0, steps);
        let mut habits = Vec::new();
        for &accessor in &setting.accessors {
            let bench = Bench { sizes, pool: &setting.pool, scratch: setting.scratch };
            let found = bench.probe(accessor).ok_or(LabError::NoBuffer(setting.scratch))?;
            habits.push((accessor, found));
        }
        let (mut rows, mut of_captures) = (Vec::new(), Vec::new());
        for (number, row) in vary.rows.iter().enumerate() {
            progress.step(&row.name, rows.len() as u64 + 1, steps);
            // Rows differ in their packets even where their shares are the same.
            let packets = packets(row, sizes, count, seed << 8 | number as u64)?;
            let measured = measure_packets(&setting, &packets, row.arrival)?;
            rows.push((row.name.clone(), row.published.clone(), measured));
        }
        for name in &hold.captures {
            let done = (rows.len() + of_captures.len()) as u64 + 1;
            progress.step(name, done, steps);
            let packets: Vec<_> = ip_packets(name)?.into_iter().map(Packet::received).collect();
            of_captures
                .push((tables::stem(name), measure_packets(&setting, &packets, Arrival::Driver)?));
        }
        Ok(tables::measured(&setting, &habits, &rows, &of_captures))
    }
}
