//! The honest clients: one of each family, who ask the echo service on a schedule of their own.
//!
//! Made by `crowd.rs` for each stretch of a drill. Invariant: latency counts from the moment at
//! which a question was meant to leave (`floodwall_pktgen::Honest`), and a stretch is over when
//! each of its questions is answered or lost, so that every question belongs to one phase.

use core::time::Duration;

use floodwall_base::Family;
use floodwall_pktgen::{Honest, HonestConfig, HonestStats, Latency, Pace, Peer, StationConfig};

use crate::error::DrillError;
use crate::scene;

/// How long an answer is waited for: as long as a client's first retransmission would take.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(1);

/// What honest clients of one stretch do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Asking {
    /// Questions a second, each family.
    pub(crate) rate: u64,
    /// For how long.
    pub(crate) length: Duration,
    /// Whether they have to find the host's link address first.
    pub(crate) discover: bool,
    /// Tells this stretch's answers from the last one's.
    pub(crate) id: u32,
}

impl Asking {
    /// How many questions each family asks.
    pub(crate) fn count(&self) -> u64 {
        let count = self.length.as_nanos() * u128::from(self.rate) / 1_000_000_000;
        u64::try_from(count).unwrap_or(u64::MAX).max(1)
    }

    /// The client of a family.
    pub(crate) fn client(&self, family: Family) -> Result<Honest, DrillError> {
        let peer = if self.discover {
            Peer::Addr(scene::server_addr(family))
        } else {
            Peer::Link(scene::SERVER_MAC)
        };
        let station = StationConfig {
            mac: scene::client_mac(family),
            addrs: scene::client_addrs(family),
            peer,
            ..StationConfig::default()
        };
        // The families take turns, so that what one sees is not what the other sees.
        let half_gap = Duration::from_nanos(500_000_000 / self.rate.max(1));
        let start_after = if family == Family::V6 { half_gap } else { Duration::ZERO };
        Ok(Honest::new(HonestConfig {
            station,
            start_after,
            id: self.id << 1 | u32::from(family == Family::V6),
            servers: vec![scene::service(family)],
            pace: Pace::per_second(self.rate),
            count: Some(self.count()),
            timeout: TIMEOUT,
            ..HonestConfig::default()
        })?)
    }
}

/// What became of one family's questions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    /// How many were meant to be asked.
    pub(crate) asked: u64,
    /// Answered in time.
    pub(crate) answered: u64,
    /// From the intended moment.
    pub(crate) latency: Latency,
}

impl Asked {
    /// What a client has counted.
    pub(crate) fn of(stats: HonestStats, latency: &Latency) -> Self {
        Self { asked: stats.intended, answered: stats.answered, latency: latency.clone() }
    }

    /// The answered part of what was asked; none where nothing was.
    pub(crate) fn share(&self) -> f64 {
        if self.asked == 0 { 0.0 } else { self.answered as f64 / self.asked as f64 }
    }

    /// Adds another stretch of the same phase.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.asked += other.asked;
        self.answered += other.answered;
        self.latency.merge(&other.latency);
    }
}
