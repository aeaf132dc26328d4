//! The floods: what the attackers send, and the gate that holds them to a rate.
//!
//! Made by `traffic.rs` for each stretch. What is sent is a plan of `pktgen` with packets that are
//! due at once; how fast is the gate's business: so much a second, and never more than a short
//! while's worth at a time, so that a drill with a thread that was held up does not make up for it
//! with a rate above the configured one. Invariant: the same seed gives the same packets in the
//! same order; how many of them depends on the rate and the time.

use core::time::Duration;

use floodwall_base::{Instant, Units};
use floodwall_packet::{Engine, Round};
use floodwall_pktgen::{Blast, Peer, Plan, StationConfig};

use crate::error::DrillError;
use crate::{streams, topology};

/// The most that the gate lets through at once.
pub(crate) const AT_ONCE: u64 = 64;
/// The longest pause that the gate makes up for.
const MADE_UP: Duration = Duration::from_millis(4);
/// How often a slow flood's gate is looked at, at most.
const GATE_LOOK: Duration = Duration::from_micros(20);

/// One kind of flood, both families.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FloodKind {
    /// Captured attacks and broken packets, as they are, aimed at the host, and mutated.
    Hostile,
    /// Datagrams to closed ports, from random sources.
    UdpClosed,
    /// Datagrams to the very service that honest clients use, from random sources; each is
    /// answered.
    UdpOpen,
    /// The same from sources that claim to be on the link: each answer needs a neighbour that does
    /// not exist.
    Neighbors,
    /// SYNs to the TCP service from random sources, some with text.
    Syn,
    /// SYNs with one and the same exclusive or of all words.
    SynOneRow,
    /// SYNs, ACKs and resets of the same sources, with guessed numbers.
    SynAndAck,
    /// ACKs and resets that belong to nothing, and the same with the addresses of honest callers.
    AckAndReset,
    /// Echo requests from random sources.
    IcmpEcho,
    /// ICMP errors that quote answers of the service to honest clients.
    IcmpErrors,
    /// Fragments: tiny, overlapping, and of packets that never become whole.
    Fragments,
    /// IPv6 extension headers and IPv4 options: long chains, many options, padding, routes.
    Headers,
    /// Neighbours that query all addresses, and claim every address that is not an honest client's.
    Sweeps,
    /// Unsolicited router advertisements, and redirects.
    Routers,
    /// Queries of every version of IGMP and MLD.
    Queries,
    /// "Packet too big" about answers to sources that have just sent a request, and to honest
    /// clients.
    TooBig,
    /// Redirects in the router's name about the same answers.
    Redirects,
}

impl FloodKind {
    /// Every kind.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 17] = [
        Self::Hostile,
        Self::UdpClosed,
        Self::UdpOpen,
        Self::Neighbors,
        Self::Syn,
        Self::SynOneRow,
        Self::SynAndAck,
        Self::AckAndReset,
        Self::IcmpEcho,
        Self::IcmpErrors,
        Self::Fragments,
        Self::Headers,
        Self::Sweeps,
        Self::Routers,
        Self::Queries,
        Self::TooBig,
        Self::Redirects,
    ];
}

impl FloodKind {
    /// Whether it is aimed at the TCP service, so that TCP clients are watched beside it.
    pub(crate) const fn is_tcp(self) -> bool {
        matches!(self, Self::Syn | Self::SynOneRow | Self::SynAndAck | Self::AckAndReset)
    }
}

/// A flood of one kind, and how fast.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Flood {
    pub(crate) kind: FloodKind,
    /// Packets a second.
    pub(crate) rate: u64,
    /// For how long.
    pub(crate) length: Duration,
    /// Decides its contents, with the randomness of the crowd.
    pub(crate) seed: u64,
}

impl Flood {
    fn plan(&self) -> Plan {
        let station = StationConfig {
            mac: topology::FLOOD_MAC,
            peer: Peer::Link(topology::SERVER_MAC),
            ..StationConfig::default()
        };
        Plan { station, streams: streams::of(self.kind, self.seed) }
    }
}

/// A flood under way.
pub(crate) struct Flooding {
    blast: Blast,
    gate: FloodGate,
    held: bool,
}

impl Flooding {
    /// Prepares a flood that begins with its first call.
    pub(crate) fn new(flood: &Flood) -> Result<Self, DrillError> {
        let (blast, gate) = (Blast::new(flood.plan())?, FloodGate::new(flood.rate, flood.length));
        Ok(Self { blast, gate, held: false })
    }

    /// Frames that were made and sent.
    pub(crate) const fn frames(&self) -> u64 {
        self.blast.stats().frames
    }

    /// Holds the flood back, or lets it go on. What is held back is not made up for.
    pub(crate) const fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// Packets that came back to the attackers.
    pub(crate) const fn returned(&self) -> u64 {
        self.blast.returned().total()
    }

    /// What came for the attackers.
    pub(crate) fn input(&mut self, round: &mut Round<'_>) -> Units {
        self.blast.round(round)
    }

    /// Sends what the gate lets through.
    pub(crate) fn work(&mut self, round: &mut Round<'_>) -> Units {
        let allowed = self.gate.pass(round.now, AT_ONCE.min(u64::from(round.budget.0)));
        if allowed == 0 || self.held {
            return Units(1);
        }
        let Round { now, pool, random, arrived, departing, .. } = round;
        let before = departing.len();
        // A blast spends one unit on being called.
        let budget = Units(allowed as u32 + 1);
        let spent = self.blast.work(&mut Round {
            now: *now,
            pool,
            random,
            arrived,
            departing,
            budget,
            peers: None,
        });
        // A packet in pieces is more frames than the one that was let through.
        self.gate.charge((departing.len().saturating_sub(before) as u64).saturating_sub(allowed));
        spent
    }

    /// When the gate opens again; `None` when the flood is over.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.gate.deadline()
    }
}

/// Lets so many packets through a second, for a while.
pub(crate) struct FloodGate {
    /// Nanoseconds between two packets, in 1/65536: exact enough for any rate.
    gap: u64,
    length: Duration,
    end: Option<Instant>,
    /// Until when packets have been let through.
    paid: Instant,
}

impl FloodGate {
    pub(crate) fn new(rate: u64, length: Duration) -> Self {
        let gap = (1_000_000_000 << 16) / rate.max(1);
        Self { gap: gap.max(1), length, end: None, paid: Instant::ORIGIN }
    }

    /// How many may pass now, at most `most`.
    pub(crate) fn pass(&mut self, now: Instant, most: u64) -> u64 {
        let (length, mut paid) = (self.length, self.paid);
        let end = *self.end.get_or_insert_with(|| {
            paid = now;
            now + length
        });
        let until = now.min(end);
        let made_up = MADE_UP.max(self.nanos());
        if until.saturating_since(paid) > made_up {
            paid = Instant::from_nanos(until.as_nanos() - made_up.as_nanos() as u64);
        }
        let waited = until.saturating_since(paid).as_nanos() as u64;
        let passed = ((waited << 16) / self.gap).min(most);
        self.paid = paid + Duration::from_nanos((passed * self.gap) >> 16);
        passed
    }

    /// So many more have passed than were let through.
    fn charge(&mut self, more: u64) {
        self.paid += Duration::from_nanos(more.saturating_mul(self.gap) >> 16);
    }

    /// The gap, rounded up: when so much has passed, a packet may.
    fn nanos(&self) -> Duration {
        Duration::from_nanos(self.gap.div_ceil(1 << 16))
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        let Some(end) = self.end else { return Some(Instant::ORIGIN) };
        let next = self.paid + self.nanos().max(GATE_LOOK);
        (next < end).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(1_000_000_000 + micros * 1000)
    }

    #[test]
    fn a_gate_with_a_fractional_gap_lets_packets_through_at_their_time() {
        for rate in [3, 7, 240, 999, 123_457] {
            let length = Duration::from_millis(1000);
            let mut gate = FloodGate::new(rate, length);
            let (start, mut now, mut passed, mut looks) = (at(0), at(0), 0, 0);
            while now < start + length {
                passed += gate.pass(now, AT_ONCE);
                looks += 1;
                let Some(next) = gate.deadline() else { break };
                assert!(next > now, "{rate}: it would be looked at for ever");
                now = next;
            }
            assert!(passed.abs_diff(rate) <= 1 + rate / 10_000, "{passed} of {rate}");
            assert!(looks <= rate + 2, "{looks} looks at {rate} packets");
        }
    }

    #[test]
    fn a_gate_keeps_its_rate_and_does_not_make_up_for_lost_time() {
        let mut gate = FloodGate::new(1_000_000, Duration::from_millis(100));
        assert_eq!(gate.pass(at(0), 64), 0);
        let passed: u64 = (1..=1000).map(|i| gate.pass(at(i * 10), 64)).sum();
        assert!((9_990..=10_000).contains(&passed), "{passed}");
        let made_up: u64 = (0..1000).map(|_| gate.pass(at(50_000), 64)).sum();
        assert!((3_990..=4_001).contains(&made_up), "4 milliseconds', not 40: {made_up}");
        assert!(gate.deadline().is_some());
        let _: u64 = (0..1000).map(|_| gate.pass(at(200_000), 64)).sum();
        assert_eq!(gate.pass(at(400_000), 64), 0, "it is over");
        assert_eq!(gate.deadline(), None);
        let mut gate = FloodGate::new(1_000_000, Duration::from_millis(100));
        gate.pass(at(0), 64);
        assert_eq!(gate.pass(at(10), 64), 10);
        gate.charge(20);
        assert_eq!(gate.pass(at(20), 64) + gate.pass(at(30), 64), 0, "it had them before");
        assert_eq!(gate.pass(at(40), 64), 10);
    }

    #[test]
    fn every_kind_of_flood_is_a_plan() {
        for kind in FloodKind::ALL {
            let flood = Flood { kind, rate: 1000, length: Duration::from_secs(1), seed: 1 };
            Flooding::new(&flood).unwrap();
        }
    }
}
