//! `Gate`: whose packets the engine gets while more come than it can handle.
//!
//! Asked by `dispatch` and `world` for each burst that they took from devices. As long as polls do
//! not come back full, it does nothing. Under pressure every packet is looked at ([`Triage`]):
//! friends go on at once; refusable packets die here, by name; strangers wait, each family in a
//! line of its own, and fill what friends leave of the burst.
//!
//! A poll that comes back full may have left friends behind it. So the gate looks ahead: it takes
//! the next burst instead of serving strangers, until a poll has room or looking has had its part
//! of the time ([`GateConfig::ahead`]); then strangers fill a burst. Nothing is kept free: while
//! the core can look at all that comes, every moment that looks leave is the strangers', and where
//! it cannot, they still have what looks may not take. Where no friend was seen for long, nobody
//! looks ahead.
//!
//! When that is, [`Pressure`] says. It is of two kinds: as long as refusable packets die, all are
//! looked at, and strangers go on as they came; strangers are chosen among only where polls stay
//! full for longer than a burst or a pause explains.
//!
//! Feedback: an engine without appetite is given no strangers; friends go on to it all the same,
//! for their consumer is another one, or they are refusable. Where there is no friend, nothing is
//! taken from devices then.
//!
//! Invariants: each packet is in the burst, in a line, or counted as dropped
//! ([`GateStats::conserves`]); packets of one class and family keep their order; no place of a
//! burst stays empty while a stranger waits, but for looking ahead and for want of appetite;
//! strangers are never shut out wholly, not by friends either.
//!
//! # Under flood
//! Anyone fills the lines. Bound: `STRANGERS_WAITING_MAX` packets a family; work per packet: one
//! move beside the look. When a line is full the newcomer goes, `TriageStranger`; refusable packets
//! go as `TriageRefusable`. Honest strangers lose as the flood does, by family; friends lose
//! nothing as long as the core can look at everything that arrives.

use core::time::Duration;

use floodwall_base::Instant;
use floodwall_base::limits::{BURST_MAX, STRANGERS_WAITING_MAX};
use floodwall_packet::{Burst, Engine, PacketBuf, PacketList, Triage};

use crate::pressure::Pressure;
use crate::share::Share;

/// For so many bursts under pressure after a friend's packet more friends are looked for: a
/// million packets, a fifth of a second or more. Where there is no friend, nobody looks ahead.
const FRIENDS_FOR: u32 = 16_384;
/// Without pressure one burst in so long is looked at for friends, where they are asked for.
const ACQUAINTS_EVERY: Duration = Duration::from_millis(1);
/// No turn takes longer than this: it is interrupted.
const TURN_MAX: Duration = Duration::from_millis(1);

/// Packets of strangers that devices may bring in a turn while the worker chooses: fewer than it
/// handles if the last poll came back full, enough to keep it busy if there was room. As measured:
/// with the smaller one alone strangers die while nobody else is there (`docs/design/balance.md`).
const CREDIT_FULL: usize = BURST_MAX / 2;
const CREDIT: usize = 4 * BURST_MAX;

/// How a worker chooses under pressure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GateConfig {
    /// What friends may have of a burst while strangers wait. One stranger is always let through.
    pub reserve: Share,
    /// What of the time, while polls come back full, may go into looking for friends ahead of
    /// strangers' service; with [`Share::NONE`] strangers are never held back.
    pub ahead: Share,
    /// Packets of strangers of one family that wait.
    pub waiting: usize,
    /// How long the worker may be at work with polls coming back full before that is pressure;
    /// zero is pressure always.
    pub patience: Duration,
    /// And how many packets these may bring before the next ones are pressure. A worker takes half
    /// of what the smallest ring of its devices holds, where that is known: a flood of twice its
    /// speed fills the other half meanwhile, and no friend dies.
    pub burst: usize,
    /// Whether friends are looked for without pressure too, now and then: for devices that are told
    /// of them, and let them through from the first moment of a flood on.
    pub acquaints: bool,
}

impl Default for GateConfig {
    fn default() -> Self {
        Self {
            reserve: Share::per_mille(940),
            ahead: Share::per_mille(750),
            waiting: STRANGERS_WAITING_MAX,
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
    /// How many packets devices were asked for.
    pub asked: usize,
    /// How many they gave. Of these, the burst may lack what is not for this engine.
    pub taken: usize,
    /// How many packets the engine is willing to take ([`Engine::appetite`]).
    pub appetite: usize,
}

/// What the time of a turn goes into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    /// Whatever comes.
    Any,
    /// Looking ahead.
    Ahead,
    /// Strangers, though more may be looked at.
    Serving,
}

/// What came to the gate under pressure, and what became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GateStats {
    /// Bursts that were looked at.
    pub bursts: u64,
    /// Friends: all of them went on.
    pub friends: u64,
    /// Strangers, whatever became of them.
    pub strangers: u64,
    /// Of these, how many went on.
    pub admitted: u64,
    /// Of these, how many died because too many waited ([`TriageStranger`]).
    ///
    /// [`TriageStranger`]: floodwall_base::DropReason::TriageStranger
    pub crowded_out: u64,
    /// Refusable packets: all of them died here ([`TriageRefusable`]).
    ///
    /// [`TriageRefusable`]: floodwall_base::DropReason::TriageRefusable
    pub refused: u64,
    /// The most strangers of one family that ever waited.
    pub waiting_peak: usize,
}

impl GateStats {
    /// Packets that were looked at.
    #[must_use]
    pub const fn looked_at(&self) -> u64 {
        self.friends + self.strangers + self.refused
    }

    /// Packets that died here.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.crowded_out + self.refused
    }

    /// Whether every stranger went on, died by name, or is one of the `waiting`.
    #[must_use]
    pub const fn conserves(&self, waiting: usize) -> bool {
        self.strangers == self.admitted + self.crowded_out + waiting as u64
    }
}

/// See the file's head.
#[derive(Debug)]
pub struct Gate {
    config: GateConfig,
    /// Room that friends leave to strangers that wait.
    least: usize,
    pressure: Pressure,
    /// Bursts for which friends are still reckoned with.
    friends_for: u32,
    /// When the last poll was, and how long the worker has meant to be away since.
    polled: Option<Instant>,
    meant: Duration,
    /// What this turn is for, and whether its length is still to be told.
    kind: Turn,
    untold: bool,
    /// What looking ahead owes to strangers, and how long it took to serve a burst of them.
    owed: Duration,
    serving: Duration,
    /// Who waits: IPv4 and all that is not IP, IPv6.
    lines: [PacketList; 2],
    /// Which line has the next word.
    turn: usize,
    /// Where a burst lies while it is sorted.
    sorting: Burst,
    /// When friends are looked for without pressure.
    acquaints_at: Instant,
    /// Whether the last poll came back full, and how many friends the last burst begins with.
    full: bool,
    friends: usize,
    stats: GateStats,
}

impl Gate {
    /// A gate at which nobody waits.
    #[must_use]
    pub fn new(config: GateConfig) -> Self {
        Self {
            least: config.reserve.rest().of_count(BURST_MAX).max(1),
            pressure: Pressure::new(&config),
            config,
            friends_for: 0,
            polled: None,
            meant: Duration::ZERO,
            kind: Turn::Any,
            untold: false,
            owed: Duration::ZERO,
            serving: Duration::ZERO,
            lines: [PacketList::new(), PacketList::new()],
            turn: 0,
            sorting: Burst::new(),
            acquaints_at: Instant::ORIGIN,
            full: false,
            friends: 0,
            stats: GateStats::default(),
        }
    }

    /// What it was told.
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
        v4.len() + v6.len()
    }

    /// Whether packets are looked at: they come faster than they are handled, or some of them are
    /// refused.
    #[must_use]
    #[inline]
    pub const fn is_under_pressure(&self) -> bool {
        self.pressure.looks()
    }

    /// Whether this turn looks ahead: all that is not a friend's waits, timed work too. Looking has
    /// no more than its part of the time, so another turn soon does not.
    #[must_use]
    #[inline]
    pub const fn looks_ahead(&self) -> bool {
        matches!(self.kind, Turn::Ahead)
    }

    /// How many packets to ask devices for, given the engine's `appetite`. Room is kept for
    /// strangers that wait, so that friends alone cannot shut them out. Where friends are about,
    /// they are looked for whatever the appetite.
    #[must_use]
    #[inline]
    pub fn ask(&self, appetite: usize) -> usize {
        let most = BURST_MAX - self.waiting().min(self.least);
        if self.friends_for > 0 { most } else { most.min(appetite) }
    }

    /// How many packets of strangers a device that can tell friends may bring in the next turn; all
    /// that come where it is `None`. While nothing but refusable packets has to die it is as many
    /// as there are, which says that those need not come.
    #[must_use]
    pub fn credit(&self) -> Option<usize> {
        let now = self.polled.unwrap_or(Instant::ORIGIN);
        // Where a device has just lost some, it has them in abundance, whatever room polls have.
        let short = self.pressure.has_lost(now);
        match (self.pressure.chooses(), self.full) {
            (true, true) => Some(CREDIT_FULL),
            (true, false) => Some(if short { BURST_MAX } else { CREDIT }),
            _ if self.pressure.is_alert(now) => {
                Some(if short { BURST_MAX } else { CREDIT.max(self.config.burst) })
            }
            _ => self.is_under_pressure().then_some(usize::MAX),
        }
    }

    /// A device had no room for all that came since the last poll, or no credit, at `now`.
    pub const fn overflowed(&mut self, now: Instant) {
        self.pressure.overflowed(now);
    }

    /// How many packets at the front of what the last [`Gate::admit`] left were found to be
    /// friends'.
    #[must_use]
    pub const fn friends(&self) -> usize {
        self.friends
    }

    /// The burst that a poll has brought, into what the engine shall have now. `engine` is asked
    /// whose the packets are under pressure, and where it has little appetite.
    #[inline]
    pub fn admit<E: Engine + ?Sized>(&mut self, engine: &E, burst: &mut Burst, poll: &Poll) {
        let full = poll.taken >= poll.asked;
        burst.set_limit(BURST_MAX);
        (self.full, self.friends) = (full, 0);
        self.reckon(poll, full);
        let sated = burst.len() > poll.appetite;
        if self.is_under_pressure() || self.waiting() > 0 || sated {
            self.sort(engine, burst, full, poll.appetite);
        } else if self.config.acquaints && poll.now >= self.acquaints_at && !burst.is_empty() {
            self.acquaints_at = poll.now + ACQUAINTS_EVERY;
            self.acquaint(engine, burst);
        }
    }

    /// Friends to the front, whoever else came behind them: nobody dies of being looked at.
    #[cold]
    fn acquaint<E: Engine + ?Sized>(&mut self, engine: &E, burst: &mut Burst) {
        let mut classes = [Triage::Stranger; BURST_MAX];
        engine.classify(burst, &mut classes);
        core::mem::swap(burst, &mut self.sorting);
        let mut others = PacketList::new();
        for (packet, class) in self.sorting.drain().zip(classes) {
            match class {
                Triage::Friend => drop(burst.push(packet)),
                Triage::Refusable | Triage::Stranger => others.push_back(packet),
            }
        }
        self.friends = burst.len();
        // There is room: no more than came.
        while let Some(packet) = others.pop_front() {
            let _ = burst.push(packet);
        }
    }

    /// What a poll says about pressure.
    #[inline]
    fn reckon(&mut self, poll: &Poll, full: bool) {
        let now = poll.now;
        let since = now - self.polled.replace(now).unwrap_or(now);
        if self.untold {
            self.ran(since);
        }
        (self.kind, self.untold) = (Turn::Any, true);
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

    /// The turn of the last [`Gate::admit`] has taken so long. Of a caller that does not say it,
    /// the time until the next is believed to be it.
    #[inline]
    pub fn ran(&mut self, took: Duration) {
        let took = took.min(TURN_MAX);
        self.untold = false;
        self.pressure.ran(took);
        match self.kind {
            Turn::Any => {}
            Turn::Ahead => {
                let (ahead, rest) = (self.config.ahead, self.config.ahead.rest());
                self.owed += ahead.whole_of(rest.of_time(took)).unwrap_or_default();
            }
            Turn::Serving => {
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
        appetite: usize,
    ) {
        let GateStats { crowded_out, refused, .. } = self.stats;
        if !burst.is_empty() {
            let mut classes = [Triage::Stranger; BURST_MAX];
            engine.classify(burst, &mut classes);
            self.stats.bursts += 1;
            self.friends_for = self.friends_for.saturating_sub(1);
            core::mem::swap(burst, &mut self.sorting);
            // Taken out, for the lines are changed meanwhile.
            let mut sorting = core::mem::take(&mut self.sorting);
            for (packet, class) in sorting.drain().zip(classes) {
                self.place(burst, packet, class);
            }
            self.sorting = sorting;
            self.friends = burst.len();
        }
        let now = self.polled.unwrap_or(Instant::ORIGIN);
        if self.stats.crowded_out > crowded_out {
            self.pressure.crowded_out(now);
        }
        if self.stats.refused > refused {
            self.pressure.refused(now);
        }
        for _ in 0..self.places(burst, full).min(appetite) {
            let Some(packet) = self.next_stranger() else { break };
            self.stats.admitted += 1;
            if burst.push(packet).is_err() {
                break;
            }
        }
    }

    /// How many strangers may follow the friends in `burst`: as many as there is room for, except
    /// while the gate looks ahead.
    fn places(&mut self, burst: &Burst, full: bool) -> usize {
        let chooses = self.pressure.chooses() && self.config.ahead != Share::NONE;
        let looks = full && chooses && self.friends_for > 0;
        let room = burst.room();
        if !looks {
            return room;
        }
        if self.owed > self.serving {
            self.kind = Turn::Serving;
            return room;
        }
        self.kind = Turn::Ahead;
        // Their part of what is handled all the same.
        let (friends, reserve) =
            (burst.len() * 1000, usize::from(self.config.reserve.thousandths()));
        let all = friends.checked_div(reserve).unwrap_or(BURST_MAX);
        all.saturating_sub(burst.len()).clamp(usize::from(!burst.is_empty()), room.max(1)).min(room)
    }

    fn place(&mut self, burst: &mut Burst, packet: PacketBuf, class: Triage) {
        match class {
            Triage::Friend => {
                self.stats.friends += 1;
                self.friends_for = FRIENDS_FOR;
                // There is room: no more friends than packets came.
                let _ = burst.push(packet);
            }
            Triage::Refusable => self.stats.refused += 1,
            Triage::Stranger => {
                self.stats.strangers += 1;
                let [v4, v6] = &mut self.lines;
                let line = if is_ipv6(&packet) { v6 } else { v4 };
                if line.len() < self.config.waiting {
                    line.push_back(packet);
                    self.stats.waiting_peak = self.stats.waiting_peak.max(line.len());
                } else {
                    self.stats.crowded_out += 1;
                }
            }
        }
    }

    /// The oldest of the line whose turn it is, else of the other.
    fn next_stranger(&mut self) -> Option<PacketBuf> {
        let [v4, v6] = &mut self.lines;
        let (first, second) = if self.turn == 0 { (v4, v6) } else { (v6, v4) };
        self.turn ^= 1;
        first.pop_front().or_else(|| second.pop_front())
    }

    /// Gives up all that wait: for a worker that ends. They are no longer counted as waiting, but
    /// as having gone on: whoever takes them says what became of them.
    pub fn take_waiting(&mut self) -> PacketList {
        let [v4, v6] = &mut self.lines;
        let mut all = v4.take();
        all.append(v6);
        self.stats.admitted += all.len() as u64;
        all
    }
}

/// Of which family a packet is, at a glance. One without link header is known by its version and
/// by a length that is its own; a frame by its type field.
fn is_ipv6(packet: &PacketBuf) -> bool {
    let bytes = packet.first();
    let word = |at: usize| {
        bytes.get(at..)?.first_chunk().map(|word| usize::from(u16::from_be_bytes(*word)))
    };
    match bytes.first().map(|byte| byte >> 4) {
        Some(6) if word(4).is_some_and(|len| len + 40 == packet.len()) => true,
        Some(4) if word(2) == Some(packet.len()) => false,
        _ => word(12) == Some(0x86dd),
    }
}

#[cfg(test)]
mod tests;
