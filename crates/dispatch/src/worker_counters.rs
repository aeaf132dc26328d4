//! Counters of the loop itself: rounds, sleeps, packets, and the packets dropped in it.
//!
//! Written by the worker only, shown through its snapshot. Invariants, on each snapshot
//! ([`WorkerCounters::are_conserved`]):
//!
//! * what an engine sent, and what only leaves through this worker, is transmitted, waits in a
//!   backlog, was handed to the worker that has the device, or is in exactly one of the losses;
//! * what was for another worker is handed over or in exactly one of the hand-off losses.
//!
//! Over all workers at rest (all asleep, or ended) every packet that was handed over was adopted,
//! or is in a ring and is counted when the worker group ends. While they run, the snapshots of two
//! workers are of two moments, and their sum is not conserved for the rings between them.

/// Writes the enum and its names from one table.
macro_rules! facts {
    ($($variant:ident = $name:literal, $sentence:literal,)*) => {
        /// One thing that a worker counts of itself.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum WorkerCounter {
            $(#[doc = $sentence] $variant,)*
        }

        impl WorkerCounter {
            /// Every fact, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The counter's name in exported statistics.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What it is, in one sentence.
            #[must_use]
            pub const fn sentence(self) -> &'static str {
                match self { $(Self::$variant => $sentence,)* }
            }
        }
    };
}

facts! {
    Rounds = "rounds", "Turns of the loop.",
    BusyRounds = "busy_rounds", "Turns that found packets.",
    WorkSlices = "work_slices", "Slices of timed work.",
    Units = "units", "Units of work that the engine spent.",
    SliceUnits = "slice_units", "Of these, units spent in slices of timed work.",
    SliceNanos = "slice_ns", "Time in slices of timed work, with their sends.",
    LongestRoundNanos = "longest_round_ns",
        "Longest turn so far in nanoseconds, what the system took away included.",
    TurnNanos = "turn_ns", "Time spent in turns in nanoseconds, sleep not included.",
    TurnsTo10Micros = "turns_to_10us", "Turns of at most 10 microseconds.",
    TurnsTo50Micros = "turns_to_50us", "Turns of 10 to 50 microseconds.",
    TurnsTo200Micros = "turns_to_200us", "Turns of 50 to 200 microseconds.",
    TurnsTo1Milli = "turns_to_1ms", "Turns of 200 microseconds to a millisecond.",
    TurnsTo5Millis = "turns_to_5ms", "Turns of 1 to 5 milliseconds.",
    TurnsTo20Millis = "turns_to_20ms", "Turns of 5 to 20 milliseconds.",
    TurnsOver20Millis = "turns_over_20ms", "Turns of more than 20 milliseconds.",
    LongTurns = "long_turns",
        "Turns that took more than a millisecond, what the system took away included.",
    LongestTurnProcessorNanos = "longest_turn_processor_ns",
        "Longest turn by processor time: at most so much, interrupts and 0.1 ms before included.",
    LongestTurnNanos = "longest_turn_ns",
        "Length of the turn with the most processor time, what the system took away included.",
    LongestTurnEndNanos = "longest_turn_end_ns",
        "When that turn was over, in nanoseconds since the machine was started.",
    LongestTurnPackets = "longest_turn_packets", "Packets that this turn took from devices.",
    LongestTurnAdopted = "longest_turn_adopted",
        "Packets that it took from other workers.",
    LongestTurnSent = "longest_turn_sent", "Packets that the engine sent in it.",
    LongestTurnUnits = "longest_turn_units", "Units of work in it.",
    LongestTurnSliceUnits = "longest_turn_slice_units",
        "Of these, units in its slice of timed work.",
    LongestTurnCommands = "longest_turn_commands",
        "Requests of other threads that it carried out.",
    LongestTurnReceiveNanos = "longest_turn_receive_ns",
        "Time of it in which packets were taken from devices.",
    LongestTurnSliceNanos = "longest_turn_slice_ns",
        "Time of it in slices of timed work, with their sends.",
    LongestTurnTransmitNanos = "longest_turn_transmit_ns",
        "Time of it in which devices were given packets.",
    Sleeps = "sleeps", "Times that the worker gave up the core to wait.",
    WakesDevice = "wakes_device", "Sleeps that a device ended.",
    WakesBell = "wakes_bell", "Sleeps that another thread ended.",
    WakesTimer = "wakes_timer", "Sleeps that ended because time was up.",
    Commands = "commands", "Requests of other threads carried out.",
    RxPackets = "rx_packets", "Packets taken from devices.",
    ReceiveNanos = "receive_ns",
        "Time in which packets were taken from devices: by calls, or eight and more at once.",
    ReceiveCuts = "receive_cuts",
        "Times that packets were left in a device because a turn's time for them was over.",
    RxForeign = "rx_foreign", "Of these, packets that belong to another worker.",
    EngineHandoffs = "engine_handoffs", "Packets that the engine had for other workers.",
    HandedOver = "handed_over", "Packets put into the rings to other workers.",
    HandedDepartures = "handed_departures",
        "Of these, packets that only leave there: this worker has no queue of their device.",
    Adopted = "adopted", "Packets taken from the rings of other workers.",
    AdoptedDepartures = "adopted_departures",
        "Of these, packets that only leave here.",
    DropsHandoffFrame = "drops_handoff_frame",
        "Packets of another worker dropped because the ring to it was full.",
    DropsHandoffOutgoing = "drops_handoff_outgoing",
        "Packets dropped before neighbour resolution: the control shard's ring was full.",
    DropsHandoffReassembled = "drops_handoff_reassembled",
        "Datagrams reassembled here and dropped: the ring to their owner was full.",
    DropsHandoffDeparture = "drops_handoff_departure",
        "Packets for another worker's device dropped: the ring to it was full.",
    HandoffWaiting = "handoff_waiting", "Packets that wait for room in a ring now.",
    HandoffDeparturesWaiting = "handoff_departures_waiting",
        "Of these, packets for another worker's device.",
    SentPackets = "sent_packets", "Packets that the engine sent.",
    TxPackets = "tx_packets", "Packets that devices took.",
    TransmitNanos = "transmit_ns",
        "Time in which devices were given packets, what the system took away included.",
    Backlog = "backlog", "Packets that wait for a device now.",
    DropsDeviceFull = "drops_device_full",
        "Packets dropped because a device and its backlog were full.",
    DropsDeviceGone = "drops_device_gone", "Packets dropped because their device had vanished.",
    DropsInterfaceUnknown = "drops_interface_unknown",
        "Packets dropped because no device serves their interface.",
    DropsShardDown = "drops_shard_down",
        "Packets dropped because the shard had panicked, or is not up again yet.",
    Panics = "panics", "Times that the engine panicked and was left behind.",
    Restarts = "restarts", "Times that it was made again.",
    TriageLooks = "triage_looks", "Packets that triage looked at, under pressure only.",
    TriageEstablished = "triage_established", "Of these, packets of established flows.",
    TriageWaiting = "triage_waiting", "Packets of unverified flows that wait now.",
    DropsTriageRejectable = "drops_triage_rejectable",
        "Packets dropped under pressure that would have been dropped anyway.",
    DropsTriageUnknown = "drops_triage_unknown",
        "Packets of unverified flows dropped under pressure because too many waited.",
    TimeSqueeze = "time_squeeze",
        "Times that the worker's share of its core was used up while packets waited.",
    BalanceRanNanos = "balance_ran_ns", "Time that a worker which shares its core has used.",
    BalanceRestedNanos = "balance_rested_ns", "Time that it has left to others.",
    LongestRunNanos = "longest_run_ns",
        "The longest that it ran without a break, what the system took away included.",
    CoreShared = "core_shared", "1 while other programs are at work on the worker's core.",
    HalfNanos = "half_ns",
        "Time of the kernel's half in a thread on the worker's core, where that is watched.",
    HalfTakeovers = "half_takeovers",
        "Times that the worker took the kernel's half into its own calls.",
    HalfDenied = "half_denied",
        "Times that the kernel's half stood behind other programs: the share was used up.",
    DevicesLive = "devices_live", "Devices in service.",
}

use crate::turn_watch;

const COUNTER_COUNT: usize = WorkerCounter::ALL.len();

/// One number per fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerCounters([u64; COUNTER_COUNT]);

impl Default for WorkerCounters {
    fn default() -> Self {
        Self([0; COUNTER_COUNT])
    }
}

impl WorkerCounters {
    /// The value of a counter.
    #[must_use]
    #[inline]
    pub const fn of(&self, fact: WorkerCounter) -> u64 {
        self.0[fact as usize]
    }

    /// Those of several workers together: sums, and of what is a longest time the longest.
    #[must_use]
    pub fn of_all<'a>(all: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut sum = Self::default();
        for facts in all {
            let is_longest = facts.of(WorkerCounter::LongestTurnProcessorNanos)
                > sum.of(WorkerCounter::LongestTurnProcessorNanos);
            for fact in WorkerCounter::ALL {
                match fact {
                    WorkerCounter::LongestRoundNanos | WorkerCounter::LongestRunNanos => {
                        sum.raise(*fact, facts.of(*fact))
                    }
                    fact if turn_watch::OF_LONGEST.contains(fact) => {
                        if is_longest {
                            sum.set(*fact, facts.of(*fact));
                        }
                    }
                    _ => sum.add(*fact, facts.of(*fact)),
                }
            }
        }
        sum
    }

    /// Every fact with its name, in order.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        WorkerCounter::ALL.iter().map(|fact| (fact.name(), self.of(*fact)))
    }

    /// Packets for other workers that were dropped in the hand-off.
    #[must_use]
    pub const fn lost_in_handoff(&self) -> u64 {
        self.of(WorkerCounter::DropsHandoffFrame)
            + self.of(WorkerCounter::DropsHandoffOutgoing)
            + self.of(WorkerCounter::DropsHandoffReassembled)
            + self.of(WorkerCounter::DropsHandoffDeparture)
    }

    /// What of its core a worker that shares it has left to others, in thousandths; `None` for one
    /// that does not share, or has not begun.
    #[must_use]
    pub fn application_share(&self) -> Option<u64> {
        let (ran, rested) =
            (self.of(WorkerCounter::BalanceRanNanos), self.of(WorkerCounter::BalanceRestedNanos));
        let all = u128::from(ran) + u128::from(rested);
        Some((u128::from(rested) * 1000).checked_div(all)? as u64)
    }

    /// Packets dropped between the engine and the devices.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.of(WorkerCounter::DropsDeviceFull)
            + self.of(WorkerCounter::DropsDeviceGone)
            + self.of(WorkerCounter::DropsInterfaceUnknown)
    }

    /// Whether sent, handed-over and dropped packets balance. True of every snapshot.
    #[must_use]
    pub const fn are_conserved(&self) -> bool {
        let departed = self.of(WorkerCounter::HandedDepartures)
            + self.of(WorkerCounter::DropsHandoffDeparture)
            + self.of(WorkerCounter::HandoffDeparturesWaiting);
        let to_leave =
            self.of(WorkerCounter::SentPackets) + self.of(WorkerCounter::AdoptedDepartures);
        let left = self.of(WorkerCounter::TxPackets)
            + self.of(WorkerCounter::Backlog)
            + self.lost()
            + departed;
        let for_others =
            self.of(WorkerCounter::RxForeign) + self.of(WorkerCounter::EngineHandoffs) + departed;
        let handed = self.of(WorkerCounter::HandedOver)
            + self.lost_in_handoff()
            + self.of(WorkerCounter::HandoffWaiting);
        to_leave == left && for_others == handed
    }

    #[inline]
    pub(crate) const fn add(&mut self, fact: WorkerCounter, n: u64) {
        self.0[fact as usize] += n;
    }

    #[inline]
    pub(crate) const fn set(&mut self, fact: WorkerCounter, n: u64) {
        self.0[fact as usize] = n;
    }

    #[inline]
    pub(crate) fn raise(&mut self, fact: WorkerCounter, n: u64) {
        let slot = &mut self.0[fact as usize];
        *slot = (*slot).max(n);
    }

    pub(crate) const fn as_words(&self) -> &[u64] {
        &self.0
    }

    pub(crate) fn from_words(words: &[u64]) -> Self {
        let mut facts = Self::default();
        facts.0.iter_mut().zip(words).for_each(|(to, from)| *to = *from);
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_facts_survive_their_words() {
        let mut names: Vec<_> = WorkerCounter::ALL.iter().map(|fact| fact.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), COUNTER_COUNT);
        let mut facts = WorkerCounters::default();
        facts.add(WorkerCounter::TxPackets, 3);
        facts.raise(WorkerCounter::LongestRoundNanos, 7);
        facts.raise(WorkerCounter::LongestRoundNanos, 5);
        assert_eq!(WorkerCounters::from_words(facts.as_words()), facts);
        assert_eq!(facts.of(WorkerCounter::LongestRoundNanos), 7);
        assert!(WorkerCounter::ALL.iter().all(|fact| fact.sentence().ends_with('.')));
    }
}
