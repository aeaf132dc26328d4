//! The honest clients, which query the echo service on a schedule of their own: on the link, with
//! datagrams that come in fragments, and behind the router; of each one for each family.
//!
//! Made by `traffic.rs` for each stretch of a drill. Invariant: latency counts from the moment at
//! which a question was meant to leave (`floodwall_pktgen::Honest`), and a stretch is over when
//! each of its questions is answered or lost, so that every question belongs to one phase.

use core::time::Duration;

use floodwall_base::Family;
use floodwall_pktgen::{
    Honest, HonestConfig, HonestStats, Latency, Pace, Peer, PortRange, StationConfig,
};

use crate::callers::{CallPurpose, Calling};
use crate::error::DrillError;
use crate::topology::{self, TopologyHost};

/// How long an answer is waited for: as long as a client's first retransmission would take.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Bytes of a large question: three fragments, and as many of its answer.
const LARGE_QUESTION: usize = 4000;
/// Bytes of IP payload in each of them.
const FRAGMENT_BYTES: usize = 1440;
/// The source port of established clients.
const ESTABLISHED_PORT: u16 = 39_999;
/// How much less often than the others the large and the far clients send.
const SELDOM_FACTOR: u64 = 5;

/// What honest clients of one stretch do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct QuestionSource {
    /// Questions a second, each family, of those on the link.
    pub(crate) rate: u64,
    /// For how long.
    pub(crate) length: Duration,
    /// Whether they have to find the host's link address first.
    pub(crate) discover: bool,
    /// Whether those on the link send from the same port again and again, so that the host knows
    /// them once it has answered twice.
    pub(crate) established: bool,
    /// Whether others open TCP connections meanwhile.
    pub(crate) calls: CallPlan,
    /// Distinguishes this stretch's answers from the last one's.
    pub(crate) id: u32,
}

/// Which TCP clients there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum CallPlan {
    /// None.
    #[default]
    None,
    /// Honest clients.
    Honest,
    /// Honest clients, while attackers come with this purpose, at so many times its price.
    Beside(CallPurpose, u64),
}

impl QuestionSource {
    /// Questions a second of a party's client.
    fn rate_of(&self, party: TopologyHost) -> u64 {
        if party == TopologyHost::Near { self.rate } else { (self.rate / SELDOM_FACTOR).max(1) }
    }

    /// The calls of a number: the honest ones, and the attackers'.
    pub(crate) fn calling(&self, number: usize) -> Option<Calling> {
        let length = self.length;
        let rate = (self.rate / SELDOM_FACTOR).max(1);
        match (self.calls, number) {
            (CallPlan::None, _) | (CallPlan::Honest, 1..) => None,
            (CallPlan::Honest, 0) => Some(Calling::per_second(CallPurpose::Asks, rate, length)),
            (CallPlan::Beside(purpose, _), 0) => Some(purpose.victims(rate, length)),
            (CallPlan::Beside(purpose, price), _) => Some(purpose.attack(price, self.rate, length)),
        }
    }

    /// The number of questions of each family's client.
    pub(crate) fn count(&self, party: TopologyHost) -> u64 {
        let count = self.length.as_nanos() * u128::from(self.rate_of(party)) / 1_000_000_000;
        u64::try_from(count).unwrap_or(u64::MAX).max(1)
    }

    /// The client of a party and family.
    pub(crate) fn client(&self, party: TopologyHost, family: Family) -> Result<Honest, DrillError> {
        let peer = if self.discover && party != TopologyHost::Far {
            Peer::Addr(topology::server_addr(family))
        } else {
            Peer::Link(topology::SERVER_MAC)
        };
        let station = StationConfig {
            mac: topology::client_mac(party, family),
            addrs: topology::client_addrs(party, family),
            peer,
            ..StationConfig::default()
        };
        // The families take turns, so that what one sees is not what the other sees.
        let half_gap = Duration::from_nanos(500_000_000 / self.rate_of(party).max(1));
        let start_after = if family == Family::V6 { half_gap } else { Duration::ZERO };
        let large = party == TopologyHost::Large;
        // The sequence number has the lowest bits: numbers that follow each other are of one
        // station.
        let id = (party as u32) << 29 | u32::from(family == Family::V6) << 28 | self.id;
        let defaults = HonestConfig::default();
        Ok(Honest::new(HonestConfig {
            station,
            start_after,
            id,
            src_ports: if self.established {
                PortRange::one(ESTABLISHED_PORT)
            } else {
                defaults.src_ports
            },
            payload: if large { LARGE_QUESTION } else { defaults.payload },
            fragment_bytes: large.then_some(FRAGMENT_BYTES),
            servers: vec![topology::service(family)],
            pace: Pace::per_second(self.rate_of(party)),
            count: Some(self.count(party)),
            timeout: ANSWER_TIMEOUT,
            ..defaults
        })?)
    }
}

/// What became of one family's questions.
#[derive(Clone, Debug, Default)]
pub(crate) struct SentQuestion {
    /// How many questions were scheduled.
    pub(crate) asked: u64,
    /// Answered in time.
    pub(crate) answered: u64,
    /// From the intended moment.
    pub(crate) latency: Latency,
}

impl SentQuestion {
    /// What a client has counted.
    pub(crate) fn of(stats: HonestStats, latency: &Latency) -> Self {
        Self { asked: stats.intended, answered: stats.answered, latency: latency.clone() }
    }

    /// The answered part of the questions; none where there were none.
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
