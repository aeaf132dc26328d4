//! `NapiPolicy`: where the kernel's half of a device shall run; `NapiPriority`: whether before or
//! behind the worker.
//!
//! Read from the configuration; applied by `napi.rs`. The comparison of the places is in
//! `docs/design/placement.md`.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Where the kernel's half of a device (NAPI) runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum NapiPolicy {
    /// The best place that this machine and our privileges allow.
    #[default]
    Auto,
    /// Within the worker's own system calls.
    BusyPoll,
    /// In a thread of its own beside the worker, behind or before it in rank ([`NapiPriority`]).
    NapiThread,
    /// Wherever the system runs it.
    Leave,
}

/// Which goes first on a core that the worker and the kernel's half, as a thread, share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NapiPriority {
    /// The worker first: packets that it has no time for stay in the card's ring and are dropped
    /// there at no cost. For a worker with much work per packet.
    #[default]
    Behind,
    /// The kernel's half first, with nine parts of ten of a core that both need: the worker sees as
    /// many packets as it can inspect, and selects by itself. For a worker that inspects packets
    /// much faster than it handles them, and knows the established flows: a router.
    Before,
    /// As `Before`: for a kernel half that drops unverified traffic
    /// by itself (XDP), at no cost to the worker. Packets that it has no time for are lost
    /// regardless of their flow.
    Choosing,
    /// Before other programs, where no worker of ours is: `guard`. Nothing else of the half
    /// changes, neither its control group nor when the card calls.
    Guarding,
}

impl NapiPolicy {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Auto, Self::BusyPoll, Self::Leave, Self::NapiThread];

    /// Its keyword in the configuration.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::BusyPoll => "busy-poll",
            Self::Leave => "leave",
            Self::NapiThread => "napi-thread",
        }
    }
}

/// Why a text names no place.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{text:?} is no place for the kernel's half; {}", Self::REMEDY)]
pub struct InvalidNapiPolicy {
    /// The text.
    pub text: String,
}

impl InvalidNapiPolicy {
    /// What to write instead.
    pub const REMEDY: &str = "write auto, busy-poll, napi-thread or leave";
}

impl FromStr for NapiPolicy {
    type Err = InvalidNapiPolicy;

    fn from_str(text: &str) -> Result<Self, InvalidNapiPolicy> {
        let found = Self::ALL.into_iter().find(|half| half.word() == text);
        found.ok_or_else(|| InvalidNapiPolicy { text: text.to_owned() })
    }
}

impl fmt::Display for NapiPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_and_written_back() {
        for half in NapiPolicy::ALL {
            assert_eq!(half.to_string().parse(), Ok(half));
        }
        let refused = "softirq".parse::<NapiPolicy>().unwrap_err().to_string();
        assert!(refused.contains("busy-poll"), "{refused}");
    }
}
