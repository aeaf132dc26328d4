//! `Gate`: whose packets the engine gets while more come than it can handle.
//!
//! Asked by `dispatch` and `world` for each burst that they took from devices. As long as polls do
//! not come back full, it does nothing. Under pressure every packet is looked at ([`Triage`]):
//! friends go on at once; refusable packets die here, by name; strangers wait, each family in a
//! line of its own, and get what friends leave of the burst once a poll has come back with room,
//! and until then no more than what is not reserved for friends. So the core keeps looking at
//! packets at the price of a look for as long as the ring is full, and a friend's packet never
//! waits behind a stranger's. Where no friend was seen for long, strangers have the whole burst.
//!
//! Invariants: each packet is in the burst, in a line, or counted as dropped
//! ([`GateStats::conserves`]); packets of one class and family keep their order; strangers are
//! never shut out wholly, not by friends either.
//!
//! # Under flood
//! Anyone fills the lines. Bound: `STRANGERS_WAITING_MAX` packets a family; work per packet: one
//! move beside the look. When a line is full the newcomer goes, `TriageStranger`; refusable packets
//! go as `TriageRefusable`. Honest strangers lose as the flood does, by family; friends lose
//! nothing as long as the core can look at everything that arrives.

use floodwall_base::limits::{BURST_MAX, STRANGERS_WAITING_MAX};
use floodwall_packet::{Burst, Engine, PacketBuf, PacketList, Triage};

use crate::share::Share;

/// For so many bursts under pressure after a friend's packet the reserve is kept for friends: a
/// million packets, a fifth of a second or more. Where there is no friend, nothing is reserved.
const FRIENDS_FOR: u32 = 16_384;

/// How a worker chooses under pressure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GateConfig {
    /// What of each round is reserved for friends under pressure; with [`Share::NONE`] strangers
    /// are not held back. One stranger a round is always let through.
    pub reserve: Share,
    /// Packets of strangers of one family that wait.
    pub waiting: usize,
    /// So many more full polls than others are pressure, and as many others end it; 0 is pressure
    /// always.
    pub patience: u32,
}

impl Default for GateConfig {
    fn default() -> Self {
        Self { reserve: Share::per_mille(940), waiting: STRANGERS_WAITING_MAX, patience: 2 }
    }
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
    /// Strangers let through in a round while polls come back full.
    least: usize,
    /// Goes up with each full poll, down with each other, and no further than to twice the
    /// patience: a flood whose polls find room now and then is one flood.
    level: u32,
    /// Bursts for which friends are still reckoned with.
    friends_for: u32,
    /// Who waits: IPv4 and all that is not IP, IPv6.
    lines: [PacketList; 2],
    /// Which line has the next word.
    turn: usize,
    /// Where a burst lies while it is sorted.
    sorting: Burst,
    stats: GateStats,
}

impl Gate {
    /// A gate at which nobody waits.
    #[must_use]
    pub fn new(config: GateConfig) -> Self {
        Self {
            least: config.reserve.rest().of_count(BURST_MAX).max(1),
            config,
            level: 0,
            friends_for: 0,
            lines: [PacketList::new(), PacketList::new()],
            turn: 0,
            sorting: Burst::new(),
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

    /// Whether packets come faster than they are handled.
    #[must_use]
    #[inline]
    pub const fn is_under_pressure(&self) -> bool {
        self.level >= self.config.patience
    }

    /// How many packets to ask devices for, given the engine's `appetite`. Room is kept for
    /// strangers that wait, so that friends alone cannot shut them out.
    #[must_use]
    #[inline]
    pub fn ask(&self, appetite: usize) -> usize {
        appetite.min(BURST_MAX - self.waiting().min(self.least))
    }

    /// What a poll that `asked` for so many packets has brought, `taken`, into what the engine
    /// shall have now. Of what was taken, the burst may lack what is not for this engine. `engine`
    /// is asked whose the packets are under pressure only.
    #[inline]
    pub fn admit<E: Engine + ?Sized>(
        &mut self,
        engine: &E,
        burst: &mut Burst,
        asked: usize,
        taken: usize,
    ) {
        let full = taken >= asked;
        burst.set_limit(BURST_MAX);
        if !full {
            self.level = self.level.saturating_sub(1);
        } else if taken > 0 {
            // Of a poll that asked for nothing, nothing is learnt.
            self.level = (self.level + 1).min(self.config.patience.saturating_mul(2));
        }
        if self.is_under_pressure() || self.waiting() > 0 {
            self.sort(engine, burst, full);
        }
    }

    #[cold]
    #[inline(never)]
    fn sort<E: Engine + ?Sized>(&mut self, engine: &E, burst: &mut Burst, full: bool) {
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
        }
        let held_back = full && self.friends_for > 0;
        let room = burst.room();
        let most = if held_back { self.least.min(room) } else { room };
        for _ in 0..most {
            let Some(packet) = self.next_stranger() else { break };
            self.stats.admitted += 1;
            if burst.push(packet).is_err() {
                break;
            }
        }
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
