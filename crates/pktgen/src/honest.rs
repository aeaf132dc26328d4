//! `Honest`: a client that sends a UDP service requests on a schedule and checks the answers.
//!
//! Driven by `world` or `dispatch` through [`Engine`]. Each request carries a
//! [`Stamp`](crate::Stamp) that the service sends back. Latency counts from the *intended* send
//! time of the request, so a slow client or a slow resolution cannot hide a slow answer (Tene's
//! "coordinated omission"). Invariant: every request of the schedule is answered once, lost, or
//! still waited for: `intended == answered + lost + waiting`. Requests may leave in fragments, and
//! answers may come in fragments (`joined.rs`).
//!
//! # Under flood
//! Reachable by any host that can send to the client. Bound: the table of open requests, sized at
//! construction by pace and timeout, [`OPEN_MAX`] at most, and answers under way in fragments, a
//! fixed few. Worst work per packet: one look, one slot, one sum. What matches no open request is
//! counted and discarded.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use floodwall_base::{Instant, MacAddr, Units};
use floodwall_packet::{Burst, Engine, PacketBuf, Round, Triage};
use floodwall_wire::{IpProtocol, UdpHeader};

use crate::count::Returned;
use crate::error::PlanError;
use crate::fragment;
use crate::joined::JoiningSpreads;
use crate::latency::Latency;
use crate::pace::Pace;
use crate::plan::{Fragments, Withheld};
use crate::range::{PortRange, Spread};
use crate::seen::{LOOK_BYTES, SeenIp, SeenPacket, see};
use crate::stamp::{STAMP_BYTES, Stamp};
use crate::station::{PktgenStation, StationConfig};
use crate::template::Template;

/// Maximum number of open requests: 25 MB of memory.
pub(crate) const OPEN_MAX: u64 = 1 << 20;

/// The identification of the first request that a client sends in fragments. Clients with
/// consecutive numbers start a golden section apart, in 32 bits and in the lower 16, which are all
/// that IPv4 has: where one client replaces another at the same address, a host with an incomplete
/// request of the first does not mix in fragments of the second.
const fn first_id(client: u32) -> u32 {
    client.wrapping_mul(0x9e37_9e37)
}

/// What a client sends, to which servers, and how often. The default has no server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HonestConfig {
    /// The sender. Its addresses take turns as sources.
    pub station: StationConfig,
    /// The id in stamps, where several clients share addresses.
    pub id: u32,
    /// The servers, in turn.
    pub servers: Vec<SocketAddr>,
    /// From which ports, in turn.
    pub src_ports: PortRange,
    /// Bytes of a request's payload: at least [`STAMP_BYTES`].
    pub payload: usize,
    /// Bytes of IP payload in each fragment of a request: a multiple of 8. `None` where requests
    /// leave whole.
    pub fragment_bytes: Option<usize>,
    /// Time to live, or hop limit.
    pub hop_limit: u8,
    /// How often.
    pub pace: Pace,
    /// Total number of requests; `None` for no end.
    pub count: Option<u64>,
    /// The intended send time of the first request, from the engine's first call.
    pub start_after: Duration,
    /// From when on none is meant to leave, from the engine's first call.
    pub stop_after: Option<Duration>,
    /// How long an answer is waited for, from the intended moment.
    pub timeout: Duration,
}

impl Default for HonestConfig {
    fn default() -> Self {
        Self {
            station: StationConfig::default(),
            id: 0,
            servers: Vec::new(),
            src_ports: PortRange { first: 40_000, last: 49_999 },
            payload: 64,
            fragment_bytes: None,
            hop_limit: 64,
            pace: Pace::per_second(100),
            count: None,
            start_after: Duration::ZERO,
            stop_after: None,
            timeout: Duration::from_millis(500),
        }
    }
}

impl HonestConfig {
    /// Our addresses of the family of `like`.
    fn addrs_like(&self, like: IpAddr) -> impl Iterator<Item = IpAddr> {
        let addrs = self.station.addrs.iter().map(|cidr| cidr.addr());
        addrs.filter(move |addr| addr.is_ipv4() == like.is_ipv4())
    }

    fn check(&self) -> Result<(), PlanError> {
        self.pace.check()?;
        self.src_ports.check("src_ports")?;
        if self.payload < STAMP_BYTES {
            return Err(PlanError::StampTooLong { have: self.payload });
        }
        if self.fragment_bytes.is_some_and(|bytes| bytes == 0 || !bytes.is_multiple_of(8)) {
            return Err(PlanError::FragmentBytes);
        }
        let answerable = |server: &SocketAddr| self.addrs_like(server.ip()).next().is_some();
        if self.servers.is_empty() || !self.servers.iter().all(answerable) {
            return Err(PlanError::NoAddress);
        }
        let open = self.pace.most_within(self.timeout).saturating_add(1);
        if open > OPEN_MAX { Err(PlanError::TooManyOpen(open)) } else { Ok(()) }
    }

    fn intended(&self, seq: u64) -> Option<Duration> {
        if self.count.is_some_and(|count| seq >= count) {
            return None;
        }
        let at = self.start_after.saturating_add(self.pace.intended(seq));
        (self.stop_after.is_none_or(|stop| at < stop)).then_some(at)
    }
}

/// Outcome counts of the requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HonestStats {
    /// Requests that became due.
    pub intended: u64,
    /// Of these, how many left.
    pub sent: u64,
    /// Answered within the timeout.
    pub answered: u64,
    /// Not answered within the timeout, those that never left included.
    pub lost: u64,
    /// Still waited for.
    pub waiting: u64,
    /// Further answers to a request that was answered.
    pub duplicates: u64,
    /// Answers that came after the timeout.
    pub late: u64,
    /// Datagrams that answer no request of ours, or come from a source that is not a server.
    pub wrong: u64,
    /// Datagrams with a wrong length or checksum.
    pub damaged: u64,
}

/// The state of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RequestOutcome {
    Answered,
    Lost,
    Waiting,
}

/// One request.
#[derive(Clone, Copy)]
struct RequestSlot {
    seq: u64,
    intended: Instant,
    outcome: RequestOutcome,
}

/// The two ends of one request.
#[derive(Clone, Copy, PartialEq, Eq)]
struct HonestAddrs {
    server: SocketAddr,
    addr: IpAddr,
    port: u16,
}

/// A well-behaved request/response client, as an engine.
pub struct Honest {
    config: HonestConfig,
    station: PktgenStation,
    /// One for each server.
    templates: Vec<Template>,
    /// For each server, which of our addresses may send to it.
    sources: Vec<Vec<IpAddr>>,
    /// Request `seq` is in slot `seq % len`.
    slots: Vec<RequestSlot>,
    started: Option<Instant>,
    /// The next request.
    next: u64,
    /// The oldest request that may still be waiting.
    oldest: u64,
    stats: HonestStats,
    latency: Latency,
    returned: Returned,
    joining: JoiningSpreads,
    /// Where fragments are made.
    scratch: Vec<u8>,
}

impl Honest {
    /// A client with the configuration `config`.
    ///
    /// # Errors
    /// The configuration's first mistake.
    pub fn new(config: HonestConfig) -> Result<Self, PlanError> {
        config.check()?;
        let station = PktgenStation::new(config.station.clone())?;
        let link = (config.station.mac, station.peer().unwrap_or(MacAddr::ZERO));
        let (mut templates, mut sources) = (Vec::new(), Vec::new());
        for server in &config.servers {
            let ours: Vec<IpAddr> = config.addrs_like(server.ip()).collect();
            let first = *ours.first().ok_or(PlanError::NoAddress)?;
            let (addrs, medium) = ((first, server.ip()), config.station.medium);
            let mut template =
                Template::udp(medium, link, addrs, config.hop_limit, config.payload)?;
            template.set_dst_port(server.port());
            templates.push(template);
            sources.push(ours);
        }
        // One more than can be open, so that a slot's request is over before the next needs it.
        let slots = config.pace.most_within(config.timeout).saturating_add(1) as usize;
        let scratch = config.fragment_bytes.map_or(0, |bytes| fragment::HEADERS_MAX + bytes);
        let scratch = Vec::with_capacity(scratch);
        let unused =
            RequestSlot { seq: u64::MAX, intended: Instant::ORIGIN, outcome: RequestOutcome::Lost };
        Ok(Self {
            config,
            station,
            templates,
            sources,
            slots: vec![unused; slots],
            started: None,
            next: 0,
            oldest: 0,
            stats: HonestStats::default(),
            latency: Latency::default(),
            returned: Returned::default(),
            joining: JoiningSpreads::new(),
            scratch,
        })
    }

    /// The outcome counts so far.
    #[must_use]
    pub const fn stats(&self) -> HonestStats {
        self.stats
    }

    /// Latencies of the answers, from the intended moment.
    #[must_use]
    pub const fn latency(&self) -> &Latency {
        &self.latency
    }

    /// Clears the latencies, so that a new phase is measured by itself.
    pub fn clear_latency(&mut self) {
        self.latency.clear();
    }

    /// Everything that came back so far.
    #[must_use]
    pub const fn returned(&self) -> Returned {
        self.returned
    }

    /// Whether the last request was sent and no answer is pending.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.started.is_some() && self.next_at().is_none() && self.stats.waiting == 0
    }

    fn next_at(&self) -> Option<Instant> {
        Some(self.started? + self.config.intended(self.next)?)
    }

    fn slot_of(&mut self, seq: u64) -> Option<&mut RequestSlot> {
        let at = seq.checked_rem(self.slots.len() as u64)?;
        self.slots.get_mut(at as usize)
    }

    /// Source and destination of request `seq`.
    fn ends(&self, seq: u64) -> Option<HonestAddrs> {
        let servers = self.config.servers.len() as u64;
        let which = seq.checked_rem(servers)? as usize;
        let turn = seq / servers;
        let ours = self.sources.get(which)?;
        let addr = *ours.get(turn.checked_rem(ours.len() as u64)? as usize)?;
        let ports = self.config.src_ports;
        let port = ports.draw(Spread::InTurn, seq, &mut floodwall_base::PublicRandom::new(0));
        Some(HonestAddrs { server: *self.config.servers.get(which)?, addr, port })
    }

    /// Gives up requests that timed out, oldest first; returns how many it looked at.
    fn expire(&mut self, now: Instant, most: u32) -> u32 {
        let mut looked = 0;
        while self.oldest < self.next && looked < most {
            let (seq, timeout) = (self.oldest, self.config.timeout);
            let Some(slot) = self.slot_of(seq) else { return looked };
            if slot.seq == seq && slot.outcome == RequestOutcome::Waiting {
                if slot.intended + timeout > now {
                    break;
                }
                slot.outcome = RequestOutcome::Lost;
                self.stats.waiting -= 1;
                self.stats.lost += 1;
            }
            self.oldest += 1;
            looked += 1;
        }
        looked
    }

    /// Sends the next request, or counts it as lost where its time is over already.
    fn ask(&mut self, intended: Instant, round: &mut Round<'_>) {
        let seq = self.next;
        self.next += 1;
        self.stats.intended += 1;
        let in_time = intended + self.config.timeout > round.now;
        let sent = in_time && self.send(seq, intended, round);
        let outcome = if sent {
            self.stats.sent += 1;
            self.stats.waiting += 1;
            RequestOutcome::Waiting
        } else {
            self.stats.lost += 1;
            RequestOutcome::Lost
        };
        if let Some(slot) = self.slot_of(seq) {
            *slot = RequestSlot { seq, intended, outcome };
        }
    }

    fn send(&mut self, seq: u64, intended: Instant, round: &mut Round<'_>) -> bool {
        let Some((ends, peer)) = self.ends(seq).zip(self.station.peer()) else { return false };
        let which = (seq % self.templates.len().max(1) as u64) as usize;
        let Some(template) = self.templates.get_mut(which) else { return false };
        template.set_link(self.station.config.mac, peer);
        template.set_src_addr(ends.addr);
        template.set_src_port(ends.port);
        template.set_id(seq as u16);
        template.set_payload(0, &Stamp { stream: self.config.id, seq, intended }.to_bytes());
        let Some(bytes) = self.config.fragment_bytes else {
            return self.station.transmit(template.frame(), round);
        };
        let plan = Fragments { bytes, overlap: 0, withheld: Withheld::None };
        let id = (seq as u32).wrapping_add(first_id(self.config.id));
        let (mut all, station, network) = (true, &self.station, template.network());
        fragment::cut(template.frame(), network, plan, id, &mut self.scratch, |frame| {
            all &= station.transmit(frame, round);
        });
        all
    }

    /// Checks a datagram that came whole.
    fn input_udp(&mut self, packet: &PacketBuf, ip: &SeenIp<'_>, now: Instant) {
        let udp = UdpHeader::parse(ip.head, ip.body_len());
        let Some(udp) = udp.ok().filter(|_| ip.verifies(packet)) else {
            self.stats.damaged += 1;
            return;
        };
        let server = SocketAddr::new(ip.src_addr, udp.src_port());
        let ends = HonestAddrs { server, addr: ip.dst_addr, port: udp.dst_port() };
        self.judge(ends, ip.udp_payload(), now);
    }

    /// Takes a fragment, and checks the datagram that it completes.
    fn input_fragment(&mut self, packet: &PacketBuf, ip: &SeenIp<'_>, now: Instant) {
        let Some(joined) = self.joining.input(packet, ip) else { return };
        if !joined.verified {
            self.stats.damaged += 1;
            return;
        }
        let server = SocketAddr::new(joined.from, joined.src_port);
        let ends = HonestAddrs { server, addr: joined.to, port: joined.dst_port };
        self.judge(ends, &joined.payload, now);
    }

    /// Checks an answer that is undamaged.
    fn judge(&mut self, ends: HonestAddrs, payload: &[u8], now: Instant) {
        let mine = |stamp: &Stamp| stamp.stream == self.config.id && stamp.seq < self.next;
        let Some(stamp) = Stamp::read(payload).filter(mine) else {
            self.stats.wrong += 1;
            return;
        };
        if self.ends(stamp.seq) != Some(ends) {
            self.stats.wrong += 1;
            return;
        }
        let timeout = self.config.timeout;
        let Some(slot) = self.slot_of(stamp.seq) else { return };
        let known = slot.seq == stamp.seq;
        if known && slot.intended != stamp.intended {
            self.stats.wrong += 1;
        } else if known && slot.outcome == RequestOutcome::Answered {
            self.stats.duplicates += 1;
        } else if !known || slot.outcome == RequestOutcome::Lost || slot.intended + timeout <= now {
            // Where its slot was reused by a later request, it is certainly late.
            self.stats.late += 1;
        } else {
            slot.outcome = RequestOutcome::Answered;
            let latency = now - slot.intended;
            self.stats.waiting -= 1;
            self.stats.answered += 1;
            self.latency.record(latency);
        }
    }
}

impl Engine for Honest {
    fn round(&mut self, round: &mut Round<'_>) -> Units {
        let mut spent = 0;
        let mut scratch = [0; LOOK_BYTES];
        // The burst is taken aside, so that answers can be sent while it is gone through.
        let mut arrived = core::mem::take(round.arrived);
        for packet in arrived.drain() {
            let seen = see(&packet, self.station.config.medium, &mut scratch);
            self.returned.count(&seen, packet.len());
            spent += 1;
            if self.station.input(&packet, &seen, round) {
                continue;
            }
            match &seen {
                SeenPacket::Ip(ip) if ip.is_fragment => self.input_fragment(&packet, ip, round.now),
                SeenPacket::Ip(ip) if ip.protocol == IpProtocol::UDP => {
                    self.input_udp(&packet, ip, round.now);
                }
                _ => {}
            }
        }
        Units(spent)
    }

    fn work(&mut self, round: &mut Round<'_>) -> Units {
        self.started.get_or_insert(round.now);
        self.station.ask(round);
        let mut spent = 1_u32.saturating_add(self.expire(round.now, round.budget.0));
        while spent < round.budget.0.max(2) {
            let Some(at) = self.next_at().filter(|at| *at <= round.now) else { break };
            // A request waits for the peer's link address as long as its answer would be.
            if self.station.peer().is_none() && at + self.config.timeout > round.now {
                break;
            }
            self.ask(at, round);
            spent += 1;
        }
        Units(spent)
    }

    fn deadline(&self) -> Option<Instant> {
        if self.started.is_none() {
            return Some(Instant::ORIGIN);
        }
        let timeout = self.config.timeout;
        let unresolved = self.station.peer().is_none();
        let next = self.next_at().map(|at| if unresolved { at + timeout } else { at });
        let at = self.oldest.checked_rem(self.slots.len() as u64).unwrap_or(0) as usize;
        let open = self.slots.get(at).filter(|_| self.oldest < self.next);
        let over = open.map(|slot| slot.intended + timeout);
        [next, over, self.station.ask_deadline()].into_iter().flatten().min()
    }

    fn classify(&self, burst: &Burst, classes: &mut [Triage]) {
        classes.iter_mut().take(burst.len()).for_each(|class| *class = Triage::Established);
    }
}

impl core::fmt::Debug for Honest {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Honest({:?}, {:?})", self.stats, self.latency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_follow_each_other_begin_far_apart_in_16_bits() {
        let firsts: Vec<u16> = (0..30).map(|client| first_id(client) as u16).collect();
        for (n, one) in firsts.iter().enumerate() {
            for other in firsts.iter().skip(n + 1) {
                let apart = one.wrapping_sub(*other).min(other.wrapping_sub(*one));
                assert!(apart > 1000, "{firsts:?}");
            }
        }
    }
}
