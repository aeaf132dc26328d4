//! `Gate`: priority between packets under overload.
//!
//! Called by `dispatch` and `world` for each burst taken from devices. As long as polls do not come
//! back full, it does nothing. Under pressure every packet is classified ([`Triage`]): packets of
//! established flows go on at once; refusable packets are dropped here, with their counter;
//! unverified packets wait, each family in a queue of its own, and fill the rest of the burst.
//!
//! A poll that comes back full may have left established flows behind it. So the gate looks ahead:
//! it takes the next burst instead of serving unverified packets, until a poll has room or the
//! look-ahead has used its part of the time ([`GateConfig::ahead`]); then unverified packets fill a
//! burst. It is work-conserving: while the core can classify all arrivals, unverified packets get
//! all remaining time, and otherwise they get the time that the look-ahead may not take. Where no
//! established flow was seen for long, there is no look-ahead.
//!
//! [`Pressure`] decides when. It has two levels: as long as refusable packets are dropped, all
//! packets are classified, and unverified ones go on in order of arrival; unverified packets are
//! delayed and dropped only where polls stay full for longer than a burst or a pause explains.
//!
//! Feedback (backpressure): an engine without receive capacity is given no unverified packets;
//! established flows go on to it all the same, because they have another consumer, or are
//! refusable. Without established flows, nothing is taken from devices then.
//!
//! Unverified packets from prefixes that established flows come from ([`KnownPrefixes`]) wait apart
//! from the others, [`NEWCOMERS_MAX`] at most, and every second place for unverified packets is
//! theirs.
//!
//! Invariants: each packet is in the burst, in a queue, or counted as dropped
//! ([`GateStats::conserves`]); packets of one class and family keep their order, but that those
//! from known prefixes may go before others; no place of a burst stays empty while an unverified
//! packet waits, except for the look-ahead and for lack of receive capacity; unverified packets are
//! never shut out wholly, not by established flows either.
//!
//! # Under flood
//! Any sender fills the queues. Bound: `UNVERIFIED_WAITING_MAX` packets a family, and a fifth of
//! the free frames, so that a burst that comes meanwhile finds room, beside [`NEWCOMERS_MAX`] from
//! known prefixes; work per packet: one move beside the classification, and two hashes of its
//! source prefix. When a queue is full the new packet is dropped, or the oldest where that is of a
//! prefix that holds more than an eighth of the queue and twice as much as the new one's
//! (`waiting_line.rs`), `TriageUnknown`; refusable packets are dropped as `TriageRejectable`.
//! Legitimate but unverified flows lose as the flood does, by family, but for those from known
//! prefixes; established flows lose nothing as long as the core can classify everything that
//! arrives.

use core::time::Duration;

use floodwall_base::Instant;
use floodwall_base::limits::{BURST_MAX, UNVERIFIED_WAITING_MAX};
use floodwall_packet::{Burst, Engine, PacketBuf, PacketList, Triage};

use crate::known_prefixes::KnownPrefixes;
use crate::pressure::Pressure;
use crate::share::Share;
use crate::waiting_line::{self, WaitingLine};

/// Bursts under pressure after a packet of an established flow in which more are expected: a
/// million packets, a fifth of a second or more. Without established flows there is no look-ahead.
const ESTABLISHED_ROUNDS: u32 = 16_384;
/// Without pressure one burst in so long is classified, where `acquaints` is set.
const ACQUAINTS_EVERY: Duration = Duration::from_millis(1);
/// No turn takes longer than this: it is interrupted.
const TURN_MAX: Duration = Duration::from_millis(1);

/// Packets of unverified flows that devices may deliver in a turn while the worker drops such
/// packets: fewer than it handles if the last poll came back full, enough to keep it busy if there
/// was room. As measured: with the smaller one alone unverified packets are dropped without need
/// (`docs/design/balance.md`).
const CREDIT_FULL: usize = BURST_MAX / 2;
const GATE_CREDIT: usize = 4 * BURST_MAX;

/// Of the free frames the packets of one family that wait may be this part: with both families
/// waiting, most of what connections and fragments leave is left for what arrives.
const FREE_DIVISOR: usize = 5;
/// However few are free, half a burst may wait.
const WAITING_MIN: usize = BURST_MAX / 2;

/// Packets from known prefixes that wait apart, at most.
const NEWCOMERS_MAX: usize = BURST_MAX / 2;

/// How a worker chooses under pressure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GateConfig {
    /// The share of a burst for established flows while unverified packets wait. At least one
    /// unverified packet is always let through.
    pub reserve: Share,
    /// The share of time, while polls come back full, for the look-ahead before unverified packets
    /// are served; with [`Share::NONE`] they are never held back.
    pub ahead: Share,
    /// Maximum waiting packets of unverified flows of one family.
    pub waiting: usize,
    /// How long the worker may be at work with polls coming back full before that is pressure;
    /// zero is pressure always.
    pub patience: Duration,
    /// Maximum packets of such polls before the next ones are pressure. A worker takes half of the
    /// smallest ring of its devices, where that is known: a flood of twice its speed fills the
    /// other half meanwhile, and no established flow loses a packet.
    pub burst: usize,
    /// Whether packets are sampled for established flows without pressure too: for devices that
    /// keep a table of them, and pass them from the first moment of a flood on.
    pub acquaints: bool,
}

impl Default for GateConfig {
    fn default() -> Self {
        Self {
            reserve: Share::per_mille(940),
            ahead: Share::per_mille(750),
            waiting: UNVERIFIED_WAITING_MAX,
            patience: Duration::from_millis(16),
            burst: 0,
            acquaints: false,
        }
    }
}

/// What a turn has taken from devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Poll {
    /// When.
    pub now: Instant,
    /// Packets requested from devices.
    pub asked: usize,
    /// How many they gave. Of these, the burst may lack what is not for this engine.
    pub taken: usize,
    /// How many packets the engine is willing to take ([`Engine::rx_capacity`]).
    pub capacity: usize,
}

/// What the time of a turn goes into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GateTurn {
    /// Any packets, in order of arrival.
    Any,
    /// Looking ahead.
    Ahead,
    /// Serves unverified packets, though more may wait to be classified.
    Serving,
}

/// What came to the gate under pressure, and what became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GateStats {
    /// Bursts that were looked at.
    pub bursts: u64,
    /// Packets of established flows: all of them went on.
    pub established: u64,
    /// Packets of unverified flows, with any outcome.
    pub unknown: u64,
    /// Of these, how many went on.
    pub admitted: u64,
    /// Of these, dropped because too many waited ([`TriageUnknown`]).
    ///
    /// [`TriageUnknown`]: floodwall_base::DropReason::TriageUnknown
    pub crowded_out: u64,
    /// Refusable packets: all of them were dropped here ([`TriageRejectable`]).
    ///
    /// [`TriageRejectable`]: floodwall_base::DropReason::TriageRejectable
    pub refused: u64,
    /// Peak number of waiting packets of unverified flows, of one family.
    pub waiting_peak: usize,
}

impl GateStats {
    /// Packets that were looked at.
    #[must_use]
    pub const fn looked_at(&self) -> u64 {
        self.established + self.unknown + self.refused
    }

    /// Packets dropped here.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.crowded_out + self.refused
    }

    /// Whether every unverified packet went on, was dropped and counted, or is `waiting`.
    #[must_use]
    pub const fn conserves(&self, waiting: usize) -> bool {
        self.unknown == self.admitted + self.crowded_out + waiting as u64
    }
}

/// The priority queue between devices and an engine under overload.
#[derive(Debug)]
pub struct Gate {
    config: GateConfig,
    /// How many packets of a family may wait, with the memory that was free last.
    waiting_max: usize,
    /// Room that established flows leave to unverified packets that wait.
    least: usize,
    pressure: Pressure,
    /// Bursts for which established flows are still expected.
    established_flows_for: u32,
    /// When the last poll was, and how long the worker has meant to be away since.
    polled: Option<Instant>,
    meant: Duration,
    /// The purpose of this turn, and whether its length is still to be reported.
    kind: GateTurn,
    untold: bool,
    /// The look-ahead's debt to unverified packets, and the time to serve a burst of them.
    owed: Duration,
    serving: Duration,
    /// Waiting packets: IPv4 and all that is not IP; IPv6.
    lines: [WaitingLine; 2],
    /// Packets of new flows that do not wait with those, and the prefixes that they are from.
    newcomers: PacketList,
    known: KnownPrefixes,
    /// Whether the last place for an unverified packet was one of the others.
    strangers_next: bool,
    /// The queue to be served next.
    turn: usize,
    /// Scratch burst for sorting.
    sorting: Burst,
    /// When packets are sampled next without pressure.
    acquaints_at: Instant,
    /// Whether the last poll came back full, and how many packets of established flows the last
    /// burst begins with.
    full: bool,
    established: usize,
    stats: GateStats,
}

impl Gate {
    /// A gate without waiting packets.
    #[must_use]
    pub fn new(config: GateConfig) -> Self {
        Self {
            least: config.reserve.rest().of_count(BURST_MAX).max(1),
            pressure: Pressure::new(&config),
            waiting_max: config.waiting,
            config,
            established_flows_for: 0,
            polled: None,
            meant: Duration::ZERO,
            kind: GateTurn::Any,
            untold: false,
            owed: Duration::ZERO,
            serving: Duration::ZERO,
            lines: [WaitingLine::default(), WaitingLine::default()],
            newcomers: PacketList::new(),
            known: KnownPrefixes::default(),
            strangers_next: true,
            turn: 0,
            sorting: Burst::new(),
            acquaints_at: Instant::ORIGIN,
            full: false,
            established: 0,
            stats: GateStats::default(),
        }
    }

    /// Its configuration.
    #[must_use]
    pub const fn config(&self) -> &GateConfig {
        &self.config
    }

    /// What has happened so far.
    #[must_use]
    pub const fn stats(&self) -> &GateStats {
        &self.stats
    }

    /// How many packets wait.
    #[must_use]
    #[inline]
    pub const fn waiting(&self) -> usize {
        let [v4, v6] = &self.lines;
        v4.len() + v6.len() + self.newcomers.len()
    }

    /// Whether packets are looked at: they come faster than they are handled, or some of them are
    /// refused.
    #[must_use]
    #[inline]
    pub const fn is_under_pressure(&self) -> bool {
        self.pressure.looks()
    }

    /// Whether this turn looks ahead: all but established flows wait, timed work too. The
    /// look-ahead has no more than its part of the time, so another turn soon does not.
    #[must_use]
    #[inline]
    pub const fn looks_ahead(&self) -> bool {
        matches!(self.kind, GateTurn::Ahead)
    }

    /// The number of packets to request from devices, given the engine's `rx_capacity`. Room is
    /// kept for unverified packets that wait, so that established flows cannot shut them out. Where
    /// established flows are expected, packets are requested regardless of the receive capacity.
    #[must_use]
    #[inline]
    pub fn ask(&self, capacity: usize) -> usize {
        let most = BURST_MAX - self.waiting().min(self.least);
        if self.established_flows_for > 0 { most } else { most.min(capacity) }
    }

    /// Credit for unverified flows of a device that can distinguish them, in the next turn; `None`
    /// is no limit. While only refusable packets are dropped it is the number of places, which
    /// makes the device drop refusable packets itself.
    #[must_use]
    pub fn credit(&self) -> Option<usize> {
        let now = self.polled.unwrap_or(Instant::ORIGIN);
        // A device that has just lost some has an excess of them, regardless of the room in polls.
        let short = self.pressure.has_lost(now);
        match (self.pressure.chooses(), self.full) {
            (true, true) => Some(CREDIT_FULL),
            (true, false) => Some(if short { BURST_MAX } else { GATE_CREDIT }),
            _ if self.pressure.is_alert(now) => {
                Some(if short { BURST_MAX } else { GATE_CREDIT.max(self.config.burst) })
            }
            _ => self.is_under_pressure().then_some(usize::MAX),
        }
    }

    /// A device had no room for all that came since the last poll, or no credit, at `now`.
    pub const fn overflowed(&mut self, now: Instant) {
        self.pressure.overflowed(now);
    }

    /// Whether the number of free frames matters to the next [`Gate::admit`].
    #[must_use]
    #[inline]
    pub const fn uses_free_frames(&self) -> bool {
        self.is_under_pressure() || self.waiting() > 0
    }

    /// Sets the number of frames that are free: packets wait in a part of them.
    pub fn set_free_frames(&mut self, frames: usize) {
        let part = (frames / FREE_DIVISOR).max(WAITING_MIN);
        self.waiting_max = self.config.waiting.min(part);
    }

    /// The number of packets of established flows at the front of what the last [`Gate::admit`]
    /// left.
    #[must_use]
    pub const fn established(&self) -> usize {
        self.established
    }

    /// Reduces the burst of a poll to what the engine gets now. `engine` classifies the packets
    /// under pressure, and where it has little receive capacity.
    #[inline]
    pub fn admit<E: Engine + ?Sized>(&mut self, engine: &E, burst: &mut Burst, poll: &Poll) {
        let full = poll.taken >= poll.asked;
        burst.set_limit(BURST_MAX);
        (self.full, self.established) = (full, 0);
        self.reckon(poll, full);
        let sated = burst.len() > poll.capacity;
        if self.is_under_pressure() || self.waiting() > 0 || sated {
            self.sort(engine, burst, full, poll.capacity);
        } else if self.config.acquaints && poll.now >= self.acquaints_at && !burst.is_empty() {
            self.acquaints_at = poll.now + ACQUAINTS_EVERY;
            self.acquaint(engine, burst);
        }
    }

    /// Moves packets of established flows to the front; nothing is dropped by classification here.
    #[cold]
    fn acquaint<E: Engine + ?Sized>(&mut self, engine: &E, burst: &mut Burst) {
        let mut classes = [Triage::Unknown; BURST_MAX];
        engine.classify(burst, &mut classes);
        core::mem::swap(burst, &mut self.sorting);
        let mut others = PacketList::new();
        for (packet, class) in self.sorting.drain().zip(classes) {
            match class {
                Triage::Established => {
                    self.known.earn(&packet);
                    let _ = burst.push(packet);
                }
                Triage::Rejectable | Triage::Unknown => others.push_back(packet),
            }
        }
        self.established = burst.len();
        // There is room: no more than came.
        while let Some(packet) = others.pop_front() {
            let _ = burst.push(packet);
        }
    }

    /// Updates the pressure with the result of a poll.
    #[inline]
    fn reckon(&mut self, poll: &Poll, full: bool) {
        let now = poll.now;
        let since = now - self.polled.replace(now).unwrap_or(now);
        if self.untold {
            self.ran(since);
        }
        (self.kind, self.untold) = (GateTurn::Any, true);
        let pause = since.saturating_sub(core::mem::take(&mut self.meant));
        if !full {
            self.owed = Duration::ZERO;
        }
        let waiting = self.waiting() > 0;
        self.pressure.polled(now, pause, poll.taken, (full, waiting));
    }

    /// The worker leaves its core to others for so long, and means it: this is no pause.
    pub fn rests(&mut self, length: Duration) {
        self.meant += length;
    }

    /// Reports the time that the turn of the last [`Gate::admit`] has taken. Without this call the
    /// time until the next is used.
    #[inline]
    pub fn ran(&mut self, took: Duration) {
        let took = took.min(TURN_MAX);
        self.untold = false;
        self.pressure.ran(took);
        match self.kind {
            GateTurn::Any => {}
            GateTurn::Ahead => {
                let (ahead, rest) = (self.config.ahead, self.config.ahead.rest());
                self.owed += ahead.whole_of(rest.of_time(took)).unwrap_or_default();
            }
            GateTurn::Serving => {
                self.serving = took;
                self.owed = self.owed.saturating_sub(took);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn sort<E: Engine + ?Sized>(
        &mut self,
        engine: &E,
        burst: &mut Burst,
        full: bool,
        capacity: usize,
    ) {
        let GateStats { crowded_out, refused, .. } = self.stats;
        if !burst.is_empty() {
            let mut classes = [Triage::Unknown; BURST_MAX];
            engine.classify(burst, &mut classes);
            self.stats.bursts += 1;
            self.established_flows_for = self.established_flows_for.saturating_sub(1);
            core::mem::swap(burst, &mut self.sorting);
            // Taken out, for the lines are changed meanwhile.
            let mut sorting = core::mem::take(&mut self.sorting);
            for (packet, class) in sorting.drain().zip(classes) {
                self.place(burst, packet, class);
            }
            self.sorting = sorting;
            self.established = burst.len();
        }
        let now = self.polled.unwrap_or(Instant::ORIGIN);
        if self.stats.crowded_out > crowded_out {
            self.pressure.crowded_out(now);
        }
        if self.stats.refused > refused {
            self.pressure.refused(now);
        }
        for _ in 0..self.places(burst, full).min(capacity) {
            let Some(packet) = self.next_unverified_packet() else { break };
            self.stats.admitted += 1;
            if burst.push(packet).is_err() {
                break;
            }
        }
    }

    /// The number of unverified packets that may follow the established ones in `burst`: all the
    /// room there is, except while the gate looks ahead.
    fn places(&mut self, burst: &Burst, full: bool) -> usize {
        let chooses = self.pressure.chooses() && self.config.ahead != Share::NONE;
        let looks = full && chooses && self.established_flows_for > 0;
        let room = burst.room();
        if !looks {
            return room;
        }
        if self.owed > self.serving {
            self.kind = GateTurn::Serving;
            return room;
        }
        self.kind = GateTurn::Ahead;
        // Their part of what is handled all the same.
        let (established, reserve) =
            (burst.len() * 1000, usize::from(self.config.reserve.thousandths()));
        let all = established.checked_div(reserve).unwrap_or(BURST_MAX);
        all.saturating_sub(burst.len()).clamp(usize::from(!burst.is_empty()), room.max(1)).min(room)
    }

    fn place(&mut self, burst: &mut Burst, packet: PacketBuf, class: Triage) {
        match class {
            Triage::Established => {
                self.stats.established += 1;
                self.established_flows_for = ESTABLISHED_ROUNDS;
                self.known.earn(&packet);
                // There is room: no more packets than arrived.
                let _ = burst.push(packet);
            }
            Triage::Rejectable => self.stats.refused += 1,
            Triage::Unknown => {
                self.stats.unknown += 1;
                if self.newcomers.len() < NEWCOMERS_MAX && self.known.spend(&packet) {
                    self.newcomers.push_back(packet);
                    return;
                }
                let [v4, v6] = &mut self.lines;
                let line = if waiting_line::is_ipv6(&packet) { v6 } else { v4 };
                if line.push(packet, self.waiting_max) {
                    self.stats.waiting_peak = self.stats.waiting_peak.max(line.len());
                } else {
                    self.stats.crowded_out += 1;
                }
            }
        }
    }

    /// The oldest packet from a known prefix or of the others, in turn.
    fn next_unverified_packet(&mut self) -> Option<PacketBuf> {
        self.strangers_next ^= true;
        match self.strangers_next {
            true => self.next_stranger().or_else(|| self.newcomers.pop_front()),
            false => self.newcomers.pop_front().or_else(|| self.next_stranger()),
        }
    }

    /// The oldest packet of the queue that is served next, else of the other.
    fn next_stranger(&mut self) -> Option<PacketBuf> {
        let [v4, v6] = &mut self.lines;
        let (first, second) = if self.turn == 0 { (v4, v6) } else { (v6, v4) };
        self.turn ^= 1;
        first.pop_front().or_else(|| second.pop_front())
    }

    /// Removes all waiting packets, for a worker that ends. They no longer count as waiting, but as
    /// having gone on: the caller accounts for them.
    pub fn take_waiting(&mut self) -> PacketList {
        let [v4, v6] = &mut self.lines;
        let mut all = self.newcomers.take();
        all.append(&mut v4.take());
        all.append(&mut v6.take());
        self.stats.admitted += all.len() as u64;
        all
    }
}

#[cfg(test)]
mod tests;
