//! One run in virtual time: a flood, honest clients, and a server of one core that pays for each
//! segment.
//!
//! Called by `syn_flood.rs`. The server is a queue: segments wait in a ring, are handled in order,
//! and what they cost is added up from [`Prices`]; a full ring drops them. Behind it stands a
//! [`HalfOpen`] value, called exactly as a listener calls it. Clients follow RFC 6298: a SYN or a
//! request is sent again after 1, 3, 7 s. Invariant: nothing but the seed is random. Not modelled:
//! interrupts that starve the program (so a saturated server here loses what does not fit, and no
//! more), congestion control, anything after the first byte.

use core::time::Duration;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use floodwall_base::{FlowKey, Instant, PublicRandom, Randomness, Units};
use floodwall_syncache::contract::HandshakeClient;
use floodwall_syncache::{
    AckOutcome, CacheSettings, CookieMoment, CookiePolicy, HalfOpen, HandshakeAck, ListenSettings,
    ListenerId, Secret, SynAck, SynCache,
};
use floodwall_world::{CostTable, Spent};

use crate::baselines::drop_list::DropList;

/// The store of the half-open connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Design {
    /// A linear list with random drop.
    List,
    /// The SYN cache; no cookie is accepted.
    Cache,
    /// Cookies, and nothing is ever kept.
    Cookies,
    /// The product.
    Hybrid,
}

impl Design {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Cache => "cache",
            Self::Cookies => "cookies",
            Self::Hybrid => "hybrid",
        }
    }
}

/// The side that sends the first byte of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Speaker {
    /// A request, then an answer.
    Client,
    /// A greeting, as of SMTP and SSH.
    Server,
}

impl Speaker {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Client => "client-first",
            Self::Server => "server-first",
        }
    }
}

/// Nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Prices {
    /// A segment taken in and handled, and one unit of the seam's work.
    pub(crate) segment: u64,
    /// A segment that is sent, and further units.
    pub(crate) answer: u64,
    /// An element walked over.
    pub(crate) element: u64,
}

impl Prices {
    /// By the measured cost table.
    pub(crate) fn today(element: u64) -> Self {
        let table = CostTable::default();
        let handled = Spent { packets: 1, bytes: 64, units: Units(1), ..Spent::default() };
        let sent = Spent { packets: 1, bytes: 64, ..Spent::default() };
        let nanos = |spent| table.price(&spent).0.div_ceil(1000);
        Self { segment: nanos(handled), answer: nanos(sent), element }
    }

    /// SYNs a second that a core answers which does nothing else.
    pub(crate) fn saturation(&self) -> f64 {
        1e9 / (self.segment + self.answer) as f64
    }
}

/// What one run is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Run {
    pub(crate) design: Design,
    pub(crate) backlog: usize,
    /// SYNs from nowhere, a second.
    pub(crate) rate: u64,
    /// Milliseconds.
    pub(crate) round_trip: f64,
    /// Chance that a segment of an honest client, or to one, is lost.
    pub(crate) loss: f64,
    pub(crate) speaker: Speaker,
    pub(crate) connects: u32,
    /// Microseconds between the starts of two honest clients.
    pub(crate) every_micros: u64,
    /// Milliseconds of flood before the first.
    pub(crate) warm_millis: u64,
    /// Milliseconds of waiting for the last.
    pub(crate) patience_millis: u64,
    pub(crate) ring: usize,
    pub(crate) prices: Prices,
}

impl Run {
    /// When the `n`th honest client starts, in nanoseconds.
    const fn nth_start(&self, n: u32) -> u64 {
        self.warm_millis * 1_000_000 + n as u64 * self.every_micros * 1000
    }
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// For each honest client: milliseconds until its connect returned; infinite where it never
    /// did.
    pub(crate) connected: Vec<f64>,
    /// The same until its first byte came.
    pub(crate) first_byte: Vec<f64>,
    /// Elements walked and SYNs that walked.
    pub(crate) walked: (u64, u64),
    /// Nanoseconds that the server worked, and of these that it walked.
    pub(crate) busy: u64,
    pub(crate) walking: u64,
    pub(crate) elapsed: u64,
    /// SYNs of the flood that were handled, answers sent, segments the ring dropped.
    pub(crate) flood_in: u64,
    pub(crate) answers: u64,
    pub(crate) ring_dropped: u64,
    /// Bytes of the flood and of what it was answered by, as Ethernet frames.
    pub(crate) flood_bytes: (u64, u64),
    /// Half-open connections at most.
    pub(crate) half_open_max: u64,
    /// Clients with window scale, SACK and timestamps kept, of those that completed the handshake.
    pub(crate) kept: (u64, u64),
}

impl Outcome {
    /// The share of clients with a time of at most `millis`.
    pub(crate) fn within(times: &[f64], millis: f64) -> f64 {
        times.iter().filter(|time| **time <= millis).count() as f64 / times.len().max(1) as f64
    }
}

/// A segment on its way to the server, or a client's timer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// The client's SYN arrives at the server.
    Syn(u32),
    /// Its ACK, or its request, which acknowledges as well.
    Ack(u32),
    /// A SYN-ACK with that sequence number and timestamp arrives at the client.
    Answer(u32, u32, u32),
    /// The first byte arrives at the client.
    Byte(u32),
    /// The client sends its SYN, for the nth time.
    Connect(u32, u32),
    /// The client sends its request, for the nth time.
    Request(u32, u32),
    /// Timed work of the server.
    Timer,
}

/// A client's half of the story.
#[derive(Clone, Copy, Debug)]
struct Honest {
    client: HandshakeClient,
    start: u64,
    answer: Option<(u32, u32)>,
    proven: bool,
    served: bool,
}

/// Where virtual time begins: long after the keys were loaded.
const START: u64 = 1_000_000_000_000;

struct Server<H> {
    half_open: H,
    walked: fn(&H) -> (u64, u64),
    listener: ListenerId,
    free_at: u64,
    ring: VecDeque<u64>,
    timer_at: u64,
}

struct Sim<'a, H> {
    run: &'a Run,
    server: Server<H>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    serial: u64,
    honest: Vec<Honest>,
    random: PublicRandom,
    outcome: Outcome,
}

/// Runs it.
pub(crate) fn run(run: &Run, seed: u64) -> Outcome {
    let mut random = Randomness::from_number(seed).secret;
    let start = CookieMoment::simulated(Instant::from_nanos(START - 100_000_000_000));
    let cookies = match run.design {
        Design::List => {
            return simulate(run, DropList::new(seed), DropList::walked, CookiePolicy::Never, seed);
        }
        Design::Cache => CookiePolicy::Never,
        Design::Cookies => CookiePolicy::Always,
        Design::Hybrid => CookiePolicy::Overflow,
    };
    let secret = Secret::random(&mut random);
    let cache = SynCache::new(CacheSettings::default(), secret, &mut random, start);
    simulate(run, cache, |_| (0, 0), cookies, seed)
}

fn simulate<H: HalfOpen>(
    run: &Run,
    mut half_open: H,
    walked: fn(&H) -> (u64, u64),
    cookies: CookiePolicy,
    seed: u64,
) -> Outcome {
    let settings = ListenSettings { cookies, ..ListenSettings::new(run.backlog) };
    let settings = ListenSettings { prefix_backlog: run.backlog, ..settings };
    let Some(listener) = half_open.listen(settings) else { return Outcome::default() };
    let timer_at = u64::MAX;
    let server =
        Server { half_open, walked, listener, free_at: START, ring: VecDeque::new(), timer_at };
    let honest = (0..run.connects).map(|n| Honest {
        client: HandshakeClient::nth(n, n % 2 == 1),
        start: START + run.nth_start(n),
        answer: None,
        proven: false,
        served: false,
    });
    let mut sim = Sim {
        run,
        server,
        events: BinaryHeap::new(),
        serial: 0,
        honest: honest.collect(),
        random: PublicRandom::new(seed ^ 0x5eed),
        outcome: Outcome::default(),
    };
    let never = vec![f64::INFINITY; run.connects as usize];
    sim.outcome = Outcome { connected: never.clone(), first_byte: never, ..Outcome::default() };
    sim.go();
    sim.outcome
}

impl<H: HalfOpen> Sim<'_, H> {
    fn go(&mut self) {
        for n in 0..self.run.connects {
            let start = self.honest.get(n as usize).map_or(START, |one| one.start);
            self.at(start, Event::Connect(n, 0));
        }
        let patience = self.run.patience_millis * 1_000_000;
        let end = START + self.run.nth_start(self.run.connects) + patience;
        let (mut next_flood, mut flood) = (self.flood_from(START), 1_u32 << 24);
        loop {
            let next = self.events.peek().map_or(u64::MAX, |Reverse((when, ..))| *when);
            if next.min(next_flood) > end || self.is_done() {
                break;
            }
            if next_flood <= next {
                let client = HandshakeClient::nth(flood & 0x3fff_ffff, flood % 2 == 1);
                self.outcome.flood_in += 1;
                self.syn(next_flood, &client, None);
                flood = flood.wrapping_add(1);
                next_flood = self.flood_from(next_flood);
            } else if let Some(Reverse((when, _, event))) = self.events.pop() {
                self.happens(when, event);
            }
        }
        self.outcome.elapsed = self.server.free_at.max(START + self.run.nth_start(0)) - START;
        self.outcome.walked = (self.server.walked)(&self.server.half_open);
        self.outcome.walking = self.outcome.walked.0 * self.run.prices.element;
    }

    /// Whether every client has its first byte.
    fn is_done(&self) -> bool {
        self.outcome.first_byte.last().is_some_and(|last| last.is_finite())
            && self.outcome.first_byte.iter().all(|time| time.is_finite())
    }

    /// When the flood's next SYN comes: a Poisson stream.
    fn flood_from(&mut self, now: u64) -> u64 {
        if self.run.rate == 0 {
            return u64::MAX;
        }
        let even = ((self.random.next_u64() >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
        now + (-even.ln() * 1e9 / self.run.rate as f64) as u64
    }

    fn at(&mut self, when: u64, event: Event) {
        self.serial += 1;
        self.events.push(Reverse((when, self.serial, event)));
    }

    /// Half a round trip, unless the segment is lost.
    fn over_the_wire(&mut self, now: u64, event: Event) {
        if !self.random.chance(self.run.loss) {
            self.at(now + (self.run.round_trip * 500_000.0) as u64, event);
        }
    }

    fn happens(&mut self, now: u64, event: Event) {
        match event {
            Event::Connect(n, times) => self.connect(now, n, times),
            Event::Request(n, times) => self.request(now, n, times),
            Event::Syn(n) => {
                if let Some(client) = self.honest.get(n as usize).map(|one| one.client) {
                    self.syn(now, &client, Some(n));
                }
            }
            Event::Ack(n) => self.ack(now, n),
            Event::Answer(n, iss, stamp) => self.answered(now, n, iss, stamp),
            Event::Byte(n) => {
                let start = self.honest.get(n as usize).map_or(now, |one| one.start);
                if let Some(time) = self.outcome.first_byte.get_mut(n as usize) {
                    *time = time.min((now - start) as f64 / 1e6);
                }
            }
            Event::Timer => self.timed(now),
        }
    }

    /// The client sends its SYN, again and again until it is answered.
    fn connect(&mut self, now: u64, n: u32, times: u32) {
        if times > 3 || self.honest.get(n as usize).is_none_or(|one| one.answer.is_some()) {
            return;
        }
        self.over_the_wire(now, Event::Syn(n));
        self.at(now + (1_000_000_000 << times), Event::Connect(n, times + 1));
    }

    /// The client sends its request, again and again until it is served.
    fn request(&mut self, now: u64, n: u32, times: u32) {
        let served = self.outcome.first_byte.get(n as usize).is_none_or(|time| time.is_finite());
        if times > 3 || served {
            return;
        }
        self.over_the_wire(now, Event::Ack(n));
        self.at(now + (1_000_000_000 << times), Event::Request(n, times + 1));
    }

    /// A SYN-ACK at the client: connect returns, and its ACK leaves, with a request where the
    /// client sends first. A second one is acknowledged again.
    fn answered(&mut self, now: u64, n: u32, iss: u32, stamp: u32) {
        let Some(one) = self.honest.get_mut(n as usize) else { return };
        let first = one.answer.is_none();
        if !first && one.answer.map(|(known, _)| known) != Some(iss) {
            return;
        }
        one.answer = Some((iss, stamp));
        let start = one.start;
        if first && let Some(time) = self.outcome.connected.get_mut(n as usize) {
            *time = (now - start) as f64 / 1e6;
        }
        match self.run.speaker {
            Speaker::Client if first => self.request(now, n, 0),
            _ => self.over_the_wire(now, Event::Ack(n)),
        }
    }

    /// A place in the server's ring for a segment that arrives now: when it is handled.
    fn taken(&mut self, now: u64) -> Option<u64> {
        while self.server.ring.front().is_some_and(|done| *done <= now) {
            self.server.ring.pop_front();
        }
        if self.server.ring.len() >= self.run.ring {
            self.outcome.ring_dropped += 1;
            return None;
        }
        Some(self.server.free_at.max(now))
    }

    /// The server has worked on a segment since `begun`: when it is done.
    fn done(&mut self, begun: u64, walked_before: u64, answers: u64) -> u64 {
        let Prices { segment, answer, element } = self.run.prices;
        let walked = (self.server.walked)(&self.server.half_open).0 - walked_before;
        let extra = self.server.half_open.take_spent().0.saturating_sub(1);
        let cost = segment + (answers + u64::from(extra)) * answer + walked * element;
        self.outcome.busy += cost;
        self.outcome.answers += answers;
        self.server.free_at = begun + cost;
        self.server.ring.push_back(begun + cost);
        let half_open = self.server.half_open.stats().half_open;
        self.outcome.half_open_max = self.outcome.half_open_max.max(half_open);
        self.set_timer();
        self.server.free_at
    }

    fn syn(&mut self, now: u64, client: &HandshakeClient, honest: Option<u32>) {
        let Some(begun) = self.taken(now) else { return };
        let walked = (self.server.walked)(&self.server.half_open).0;
        let at = CookieMoment::simulated(Instant::from_nanos(begun));
        let answer = self.server.half_open.syn(self.server.listener, &client.syn(), at);
        let sent = answer.syn_ack().copied();
        if honest.is_none() {
            self.outcome.flood_bytes.0 += syn_frame(client);
            self.outcome.flood_bytes.1 += sent.as_ref().map_or(0, syn_ack_frame);
        }
        let done = self.done(begun, walked, u64::from(sent.is_some()));
        if let Some((n, sent)) = honest.zip(sent) {
            let stamp = sent.timestamp.map_or(0, |(value, _)| value);
            self.over_the_wire(done, Event::Answer(n, sent.seq.0, stamp));
        }
    }

    fn ack(&mut self, now: u64, n: u32) {
        let Some(one) = self.honest.get(n as usize).copied() else { return };
        let Some((iss, stamp)) = one.answer else { return };
        let Some(begun) = self.taken(now) else { return };
        let done = if one.proven {
            self.done(begun, (self.server.walked)(&self.server.half_open).0, 0)
        } else {
            self.prove(begun, n, one, iss, stamp)
        };
        // The program accepts at once and sends its byte, once.
        let speaks = self.honest.get_mut(n as usize).filter(|one| one.proven && !one.served);
        if let Some(one) = speaks {
            one.served = self.run.loss == 0.0;
            self.outcome.answers += 1;
            self.over_the_wire(done, Event::Byte(n));
            if self.run.loss > 0.0 && self.run.speaker == Speaker::Server {
                // A connection sends its byte again; the handshake is over.
                self.at(
                    done + (self.run.round_trip * 500_000.0) as u64 + 1_000_000,
                    Event::Byte(n),
                );
            }
        }
    }

    fn prove(&mut self, begun: u64, n: u32, one: Honest, iss: u32, stamp: u32) -> u64 {
        let walked = (self.server.walked)(&self.server.half_open).0;
        let at = CookieMoment::simulated(Instant::from_nanos(begun));
        let ack = HandshakeAck {
            flow: one.client.flow,
            seq: one.client.irs + 1,
            ack: floodwall_base::Seq(iss) + 1,
            timestamp: one.client.options.timestamp.map(|mine| (mine.wrapping_add(30), stamp)),
        };
        if let AckOutcome::Proven(proof) = self.server.half_open.ack(self.server.listener, &ack, at)
        {
            self.server.half_open.accepted(proof.slot());
            let kept = proof.sack()
                && proof.window_scale() == Some((7, 7))
                && proof.timestamps().is_some();
            self.outcome.kept.0 += u64::from(kept);
            self.outcome.kept.1 += 1;
            if let Some(one) = self.honest.get_mut(n as usize) {
                one.proven = true;
            }
        }
        self.done(begun, walked, 0)
    }

    /// Sees to it that timed work is done when it is due.
    fn set_timer(&mut self) {
        let due = self.server.half_open.deadline();
        if due != Instant::FAR && due.as_nanos() < self.server.timer_at {
            let when = due.as_nanos().max(self.server.free_at);
            self.server.timer_at = when;
            self.at(when, Event::Timer);
        }
    }

    fn timed(&mut self, now: u64) {
        self.server.timer_at = u64::MAX;
        let begun = self.server.free_at.max(now);
        let mut again: Vec<SynAck> = Vec::new();
        let at = CookieMoment::simulated(Instant::from_nanos(begun));
        let spent = self.server.half_open.work(at, Units(64), &mut |one| again.push(*one));
        let cost = u64::from(spent.0) * self.run.prices.answer.max(20);
        self.server.free_at = begun + cost;
        self.outcome.busy += cost;
        self.outcome.answers += again.len() as u64;
        for one in again {
            let client = self.honest.iter().position(|honest| honest.client.flow == one.flow);
            if let Some(n) = client {
                let stamp = one.timestamp.map_or(0, |(value, _)| value);
                self.over_the_wire(begun + cost, Event::Answer(n as u32, one.seq.0, stamp));
            } else {
                self.outcome.flood_bytes.1 += syn_ack_frame(&one);
            }
        }
        let due = self.server.half_open.deadline();
        if due != Instant::FAR {
            // A slice a round: the rest of due work after a pause of its own length.
            let pause = Duration::from_micros(100).as_nanos() as u64;
            let when = due.as_nanos().max(self.server.free_at + pause);
            self.server.timer_at = when;
            self.at(when, Event::Timer);
        }
    }
}

/// Bytes of a segment with these options, as an Ethernet frame, which has 60 at least.
fn frame(v6: bool, (mss, scale, sack, stamp): (bool, bool, bool, bool)) -> u64 {
    let options = 4 * u64::from(mss) + 3 * u64::from(scale) + 2 * u64::from(sack);
    let options = (options + 10 * u64::from(stamp)).next_multiple_of(4);
    let ip = if v6 { 40 } else { 20 };
    (14 + ip + 20 + options).max(60)
}

fn is_v6(flow: &FlowKey) -> bool {
    flow.remote.addr.to_ipv4_mapped().is_none()
}

fn syn_frame(client: &HandshakeClient) -> u64 {
    let it = &client.options;
    let options = (it.mss.is_some(), it.window_scale.is_some(), it.sack, it.timestamp.is_some());
    frame(is_v6(&client.flow), options)
}

fn syn_ack_frame(it: &SynAck) -> u64 {
    let options = (it.mss.is_some(), it.window_scale.is_some(), it.sack, it.timestamp.is_some());
    frame(is_v6(&it.flow), options)
}
