//! Everybody else: honest clients of both families and the flood, in one thread on the other core.
//!
//! Driven by `trials.rs`. The near end of the cable is an AF_XDP socket by generic XDP: nothing
//! sends faster from here, and of what comes back it sees the clients' answers alone. Clients go
//! first in each turn, so the flood does not hold up a question for longer than a burst.

use core::time::Duration;

use floodwall_base::{Instant, Randomness, Units};
use floodwall_device::{AfXdp, AfXdpConfig, Device, XdpMode};
use floodwall_dispatch::Clock;
use floodwall_packet::{Burst, Engine, PacketBuf, PacketList, Pool, PoolConfig, Round};
use floodwall_pktgen::{Blast, Honest};

use super::Hold;
use super::topology::{self, CLIENT, FAMILIES, Server};
use crate::error::LabError;
use crate::experiments::namespace::{self, VETH_NEAR};

/// What clients have before the flood begins: they are known by then.
const ACQUAINTED: Duration = Duration::from_millis(150);
/// What a flood has before anything counts.
const WARM_UP: Duration = Duration::from_millis(100);
/// How long a trial goes on at most that has not seen what it is to see.
const PATIENCE: Duration = Duration::from_secs(20);
/// Packets of the flood in one turn.
const TURN: Units = Units(64);
/// The type field of IPv6.
const IPV6: [u8; 2] = [0x86, 0xdd];

/// The thread outside the host: honest clients and the flood.
pub(super) struct Outside {
    device: AfXdp,
    pool: Pool,
    random: Randomness,
    arrived: Burst,
    departing: PacketList,
}

/// What counts at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    at: Instant,
    offered: u64,
    answers: u64,
    asked: [u64; 2],
    answered: [u64; 2],
}

/// What was seen within the window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// Packets a second of the flood, and of all that came back.
    pub(super) offered: f64,
    pub(super) answers: f64,
    /// The answered part of each family's questions.
    pub(super) honest: [f64; 2],
    /// The flood has left, and each family's clients have been answered, in the whole trial.
    pub(super) all_answered: bool,
}

/// The three senders.
struct Senders {
    honest: [Honest; 2],
    flood: Blast,
}

impl Outside {
    /// Opens the near end, which must be up.
    pub(super) fn open(seed: u64) -> Result<Self, LabError> {
        let wrong = |error: floodwall_device::DeviceError| LabError::Scene(error.to_string());
        let config = AfXdpConfig { mode: XdpMode::Generic, ..AfXdpConfig::new(CLIENT) };
        let device = AfXdp::open(VETH_NEAR, &config).map_err(wrong)?.queues.pop();
        let device = device.ok_or(LabError::Scene("a device without queues".to_owned()))?;
        Ok(Self {
            device,
            pool: Pool::new(&PoolConfig::default())?,
            random: Randomness::from_number(seed),
            arrived: Burst::new(),
            departing: PacketList::new(),
        })
    }

    /// How long before the window a trial begins.
    pub(super) const fn before_window() -> Duration {
        ACQUAINTED.saturating_add(WARM_UP)
    }

    /// Clients send requests to and unverified sources flood `server`, for `length` after the time
    /// before the window, and on until `is_over` is content with what was seen, or [`PATIENCE`] has
    /// passed.
    pub(super) fn run(
        &mut self,
        hold: &Hold,
        (server, rate): (Server, u64),
        length: Duration,
        is_over: impl Fn(&Seen) -> bool,
    ) -> Result<Seen, LabError> {
        let [v4, v6] = FAMILIES.map(|family| topology::honest(hold, server, family));
        let flood = topology::unknown(rate, server)?;
        let mut senders = Senders { honest: [v4?, v6?], flood };
        let clock = Clock::new();
        let start = clock.now();
        let (window, end) = (start + Self::before_window(), start + Self::before_window() + length);
        let (mut offered, mut first) = (0, None);
        loop {
            let now = clock.now();
            if now >= window && first.is_none() {
                first = Some(senders.counts(now, offered)?);
            }
            if now >= end {
                let seen = first.unwrap_or_default().until(&senders.counts(now, offered)?);
                if is_over(&seen) || now >= end + PATIENCE {
                    drop(self.departing.take());
                    return Ok(seen);
                }
            }
            offered += self.turn(&mut senders, now, now >= start + ACQUAINTED)?;
        }
    }

    /// One turn; how many packets of the flood have gone to the device.
    fn turn(&mut self, senders: &mut Senders, now: Instant, floods: bool) -> Result<u64, LabError> {
        let wrong = |error: floodwall_device::DeviceError| LabError::Scene(error.to_string());
        let mut arrived = core::mem::take(&mut self.arrived);
        arrived.set_limit(floodwall_base::limits::BURST_MAX);
        self.device.receive(&self.pool, &mut arrived).map_err(wrong)?;
        let mut bursts = [Burst::new(), Burst::new()];
        for packet in arrived.drain() {
            let of = usize::from(is_ipv6(&packet));
            if let Some(burst) = bursts.get_mut(of) {
                let _ = burst.push(packet);
            }
        }
        self.arrived = arrived;
        for (honest, mut burst) in senders.honest.iter_mut().zip(bursts) {
            let due = honest.deadline().is_some_and(|due| due <= now);
            let mut round = self.round(now, &mut burst);
            if !round.arrived.is_empty() {
                honest.round(&mut round);
            }
            if due {
                honest.work(&mut round);
            }
        }
        let mut sent = 0;
        let due = senders.flood.deadline().is_some_and(|due| due <= now);
        // What waits goes first, or the flood would be counted before it has left.
        if floods && due && self.departing.len() < TURN.0 as usize {
            let before = self.departing.len();
            let mut nothing = Burst::new();
            senders.flood.work(&mut self.round(now, &mut nothing));
            sent = (self.departing.len() - before) as u64;
        }
        if !self.departing.is_empty() {
            self.device.transmit(&mut self.departing).map_err(wrong)?;
        }
        Ok(sent)
    }

    fn round<'a>(&'a mut self, now: Instant, arrived: &'a mut Burst) -> Round<'a> {
        Round {
            now,
            pool: &self.pool,
            random: &mut self.random,
            arrived,
            departing: &mut self.departing,
            budget: TURN,
            peers: None,
        }
    }
}

impl Senders {
    fn counts(&self, at: Instant, offered: u64) -> Result<Counts, LabError> {
        let [v4, v6] = self.honest.each_ref().map(Honest::stats);
        Ok(Counts {
            at,
            offered,
            answers: namespace::received(VETH_NEAR).map_err(LabError::Scene)?,
            asked: [v4.intended, v6.intended],
            answered: [v4.answered, v6.answered],
        })
    }
}

impl Counts {
    /// What has happened between two moments.
    fn until(&self, last: &Self) -> Seen {
        let seconds = (last.at - self.at).as_secs_f64().max(f64::EPSILON);
        let part = |family: usize| {
            let of = |counts: &[u64; 2]| counts.get(family).copied().unwrap_or(0) as f64;
            let asked = of(&last.asked) - of(&self.asked);
            // An answer to a question from before the window may fall into it.
            ((of(&last.answered) - of(&self.answered)) / asked.max(1.0)).min(1.0)
        };
        Seen {
            offered: (last.offered - self.offered) as f64 / seconds,
            answers: (last.answers - self.answers) as f64 / seconds,
            honest: [part(0), part(1)],
            all_answered: last.offered > 0 && last.answered.iter().all(|count| *count > 0),
        }
    }
}

fn is_ipv6(packet: &PacketBuf) -> bool {
    packet.first().get(12..14) == Some(&IPV6)
}
