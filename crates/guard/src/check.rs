//! What would stand in a guard's way, found before anything is attached.
//!
//! Used by `guard --check`. Settings are read, the programs are loaded and dropped again, the rules
//! of the packet filter are looked through (`rules.rs`), and a connection is made to each port
//! through a guard on a cable of its own (`trial.rs`). Invariant: nothing is attached to the
//! interface, and nothing is left.

use floodwall_device::host_bpf::{carries, interface};
use floodwall_device::{HalfStanding, Placement};

use crate::error::GuardError;
use crate::facts::{Facts, ListeningPorts};
use crate::loaded::Loaded;
use crate::rules;
use crate::trial;

/// One thing that was looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GuardFinding {
    /// Whether it breaks the guard, or only may; `None` where it is well.
    pub trouble: Option<Trouble>,
    /// What was found, with the remedy.
    pub text: String,
}

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// The guard does not start, or breaks connections.
    Breaks,
    /// It depends.
    MayBreak,
}

impl GuardFinding {
    pub(crate) fn well(text: impl Into<String>) -> Self {
        Self { trouble: None, text: text.into() }
    }

    pub(crate) fn breaks(text: impl Into<String>) -> Self {
        Self { trouble: Some(Trouble::Breaks), text: text.into() }
    }

    pub(crate) fn may(text: impl Into<String>) -> Self {
        Self { trouble: Some(Trouble::MayBreak), text: text.into() }
    }
}

/// Looks at everything that a guard of these ports depends on.
#[must_use]
pub fn check(name: &str, ports: &[u16]) -> Vec<GuardFinding> {
    let mut found = Vec::new();
    let Ok((_, mtu)) = interface(name) else {
        return vec![GuardFinding::breaks(GuardError::NoInterface(name.to_owned()).to_string())];
    };
    if !carries(name).unwrap_or(false) {
        found.push(GuardFinding::may(format!("{name} is down or has no carrier")));
    }
    found.push(match Loaded::load(true) {
        Ok(_) => GuardFinding::well("the kernel takes the programs"),
        Err(error) => GuardFinding::breaks(error.to_string()),
    });
    found.push(match Facts::read(name, mtu).syncookies {
        0 => GuardFinding::breaks(GuardError::CookiesOff.to_string()),
        _ => GuardFinding::well("net.ipv4.tcp_syncookies is on"),
    });
    found.extend(half(name));
    let listening = ListeningPorts::read();
    found.extend(ports.iter().map(|port| match listening.has(*port) {
        true => GuardFinding::well(format!("a socket listens on port {port}")),
        false => GuardFinding::may(format!(
            "no socket of this network namespace listens on port {port}: nothing is guarded until \
             one does; one of a container must be guarded there"
        )),
    }));
    found.extend(rules::findings(ports));
    let is_possible = !found.iter().any(|finding| finding.trouble == Some(Trouble::Breaks));
    if is_possible && !ports.is_empty() {
        found.extend(trial::findings(ports));
    }
    found
}

/// Whether the receive half goes before programs on its core.
fn half(name: &str) -> Option<GuardFinding> {
    let remedy = "under flood its ring overflows while a program has the core, and clients are \
                  lost with the flood: `--kernel-half napi-thread` puts it into threads that go \
                  before programs while the guard runs (CAP_SYS_NICE)";
    Some(match Placement::look(name).ok()? {
        HalfStanding::Absent => return None,
        HalfStanding::Interrupts => GuardFinding::may(format!(
            "the receive half of {name} runs where interrupts put it; {remedy}"
        )),
        HalfStanding::Threads { nice: 0.. } => GuardFinding::may(format!(
            "the receive half of {name} has threads, which take turns with programs; {remedy}"
        )),
        HalfStanding::Threads { nice } => GuardFinding::well(format!(
            "the receive half of {name} has threads that go before programs (nice {nice})"
        )),
    })
}
