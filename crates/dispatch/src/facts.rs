//! What the loop counts of itself: rounds, sleeps, packets, and the packets that died in it.
//!
//! Written by the worker only, shown through its snapshot. Invariant: every packet that an engine
//! sent is transmitted, waits in a backlog, or is in exactly one of the three losses.

/// Writes the enum and its names from one table.
macro_rules! facts {
    ($($variant:ident = $name:literal, $sentence:literal,)*) => {
        /// One thing that a worker counts of itself.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum Fact {
            $(#[doc = $sentence] $variant,)*
        }

        impl Fact {
            /// Every fact, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name for programs.
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
    LongestRoundNanos = "longest_round_ns",
        "Longest turn so far in nanoseconds, what the system took away included.",
    Sleeps = "sleeps", "Times that the worker gave up the core to wait.",
    WakesDevice = "wakes_device", "Sleeps that a device ended.",
    WakesBell = "wakes_bell", "Sleeps that another thread ended.",
    WakesTimer = "wakes_timer", "Sleeps that ended because time was up.",
    Commands = "commands", "Requests of other threads carried out.",
    RxPackets = "rx_packets", "Packets taken from devices and handed to the engine.",
    SentPackets = "sent_packets", "Packets that the engine sent.",
    TxPackets = "tx_packets", "Packets that devices took.",
    Backlog = "backlog", "Packets that wait for a device now.",
    DropsDeviceFull = "drops_device_full",
        "Packets dropped because a device and its backlog were full.",
    DropsDeviceGone = "drops_device_gone", "Packets dropped because their device had vanished.",
    DropsInterfaceUnknown = "drops_interface_unknown",
        "Packets dropped because no device serves their interface.",
    DevicesLive = "devices_live", "Devices in service.",
}

const COUNT: usize = Fact::ALL.len();

/// One number per fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts([u64; COUNT]);

impl Default for Facts {
    fn default() -> Self {
        Self([0; COUNT])
    }
}

impl Facts {
    /// What a fact stands at.
    #[must_use]
    #[inline]
    pub const fn of(&self, fact: Fact) -> u64 {
        self.0[fact as usize]
    }

    /// Every fact with its name, in order.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Fact::ALL.iter().map(|fact| (fact.name(), self.of(*fact)))
    }

    /// Packets that died between the engine and the devices.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.of(Fact::DropsDeviceFull)
            + self.of(Fact::DropsDeviceGone)
            + self.of(Fact::DropsInterfaceUnknown)
    }

    #[inline]
    pub(crate) const fn add(&mut self, fact: Fact, n: u64) {
        self.0[fact as usize] += n;
    }

    #[inline]
    pub(crate) const fn set(&mut self, fact: Fact, n: u64) {
        self.0[fact as usize] = n;
    }

    #[inline]
    pub(crate) fn raise(&mut self, fact: Fact, n: u64) {
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
        let mut names: Vec<_> = Fact::ALL.iter().map(|fact| fact.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), COUNT);
        let mut facts = Facts::default();
        facts.add(Fact::TxPackets, 3);
        facts.raise(Fact::LongestRoundNanos, 7);
        facts.raise(Fact::LongestRoundNanos, 5);
        assert_eq!(Facts::from_words(facts.as_words()), facts);
        assert_eq!(facts.of(Fact::LongestRoundNanos), 7);
        assert!(Fact::ALL.iter().all(|fact| fact.sentence().ends_with('.')));
    }
}
