//! The host under test as several workers: their memory and shards, and what they are together.
//!
//! Called by `sim.rs`. Criteria are judged of the host as a whole: ledgers, drops and efforts are
//! added up, and of shares and gaps the worst worker's counts. Invariant: what one worker handed
//! over is no second arrival: [`crate::run`] judges what came from the crowd.

use core::fmt;

use floodwall_base::{HashKey, Instant, Randomness, Steering, WorkerId};
use floodwall_packet::{Pool, PoolConfig, Region};
use floodwall_stack::{Seats, Stack};
use floodwall_sync::qsbr::Domain;
use serde::Serialize;

use crate::error::DrillError;
use crate::server::{FreeFrames, ServedCounts, ServerConfig, ServerView};

/// What one worker did in the whole drill.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ShardReport {
    /// Which worker.
    pub worker: usize,
    /// Packets that were taken from its own queue.
    pub received: u64,
    /// Packets that others handed over to it.
    pub adopted: u64,
    /// Packets that it sent.
    pub sent: u64,
    /// Packets of unverified sources and refusable packets that its gates dropped.
    pub triaged: u64,
    /// Nanoseconds of its longest run.
    pub longest_nanos: u64,
    /// Thousandths of its core that an application on it had; `None` where there was none.
    pub application_share: Option<u64>,
}

impl fmt::Display for ShardReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { worker, received, adopted, sent, triaged, .. } = self;
        write!(
            f,
            "shard {worker:<2} {received} packets received, {adopted} taken over, {sent} sent, \
             {triaged} refused under pressure; longest run {} us",
            self.longest_nanos / 1000
        )?;
        match self.application_share {
            Some(share) => write!(f, "; the application had {share} thousandths of its core"),
            None => Ok(()),
        }
    }
}

/// The shards of one host, and what ties them together.
pub(crate) struct ShardsMade {
    pub(crate) engines: Vec<(ServedCounts, Pool)>,
    pub(crate) domain: Domain,
    pub(crate) steering: Steering,
}

/// A host of as many workers as `config` sets, each with as much memory as an only one.
pub(crate) fn make(
    config: &ServerConfig,
    random: &mut Randomness,
) -> Result<ShardsMade, DrillError> {
    let workers = config.workers.max(1);
    let (domain, count) = (Domain::new(workers), usize::from(workers));
    let key = HashKey::new(random.secret.next_u64(), random.secret.next_u64());
    let steering = Steering::new(key, workers);
    let one = config.pool();
    let region = Region::new(&PoolConfig {
        workers: count,
        small: one.small * count,
        frames: one.frames * count,
        references: one.references * count,
        ..one
    })?;
    let stack = config.stack();
    let seats = Seats::new(&stack, &domain, steering, &mut random.secret);
    let (mut engines, now) = (Vec::new(), Instant::ORIGIN);
    for worker in 0..workers {
        let pool = region.attach()?;
        let seat =
            seats.take(WorkerId(worker)).map_err(|e| DrillError::WorkerEnded(e.to_string()))?;
        let stack = Stack::seated(&stack, seat, random, now)
            .map_err(|e| DrillError::WorkerEnded(e.to_string()))?;
        engines.push((ServedCounts::on(stack, config, &pool, random, now, None)?, pool));
    }
    Ok(ShardsMade { engines, domain, steering })
}

/// The sum over all shards of the host.
pub(crate) fn together(views: impl IntoIterator<Item = ServerView>) -> ServerView {
    let mut all = ServerView { looks: u64::MAX, ..ServerView::default() };
    for ServerView { stats, free, looks, effort, paths } in views {
        all.stats.drops_in.merge(&stats.drops_in);
        all.stats.drops_out.merge(&stats.drops_out);
        let (f, of) = (&mut all.stats.outcomes, &stats.outcomes);
        f.received += of.received;
        f.delivered += of.delivered;
        f.forwarded += of.forwarded;
        f.answered += of.answered;
        f.merged += of.merged;
        f.handed_in += of.handed_in;
        f.adopted_in += of.adopted_in;
        f.originated += of.originated;
        f.transmitted += of.transmitted;
        f.handed_out += of.handed_out;
        f.adopted_out += of.adopted_out;
        all.stats.held += stats.held;
        all.stats.pending += stats.pending;
        all.free = FreeFrames {
            small: all.free.small + free.small,
            frames: all.free.frames + free.frames,
            references: all.free.references + free.references,
        };
        all.looks = all.looks.min(looks);
        // One writes, all have a copy.
        all.paths.learnt += paths.learnt;
        all.paths.known = all.paths.known.max(paths.known);
        let e = &mut all.effort;
        e.bursts += effort.bursts;
        e.packets_max = e.packets_max.max(effort.packets_max);
        e.units_max = e.units_max.max(effort.units_max);
        e.units += effort.units;
        e.busy_nanos += effort.busy_nanos;
        e.longest_nanos = e.longest_nanos.max(effort.longest_nanos);
    }
    all
}
