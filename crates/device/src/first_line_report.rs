//! `FirstLineReport`: what of the first line is in force at an interface, and why the rest is not.
//!
//! Made by a device on request (`Device::first_line_report`); printed by `floodwall run`, shown by
//! `stat`, `explain` and `self-test`. Invariant: each part is in it once, and one that is missing
//! gives its reason.

use std::fmt;

/// One thing that the program at an interface does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FirstLinePart {
    /// SYNs are answered with cookies, and ACKs are checked.
    Cookies,
    /// Established flows pass while they make progress; what belongs to none, and what the stack
    /// would refuse, is dropped.
    LiveFlows,
    /// Unverified packets have a credit, shared out by service and by source prefix.
    FairCredit,
    /// A router's packets of hosts that talk leave without reaching a worker.
    Redirect,
}

impl FirstLinePart {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Cookies, Self::LiveFlows, Self::FairCredit, Self::Redirect];

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cookies => "cookies",
            Self::LiveFlows => "live-flows",
            Self::FairCredit => "fair-credit",
            Self::Redirect => "redirect",
        }
    }
}

/// What one part does at this moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FirstLinePartState {
    /// It acts on what arrives.
    Awake,
    /// It is at the interface, and acts once the worker is under pressure.
    Asleep,
    /// Its program is loaded, and attached once a flood begins.
    OnDemand,
    /// It is not in force here, for this reason.
    Missing(String),
}

impl FirstLinePartState {
    /// Its name in reports.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Awake => "awake",
            Self::Asleep => "asleep",
            Self::OnDemand => "on-demand",
            Self::Missing(_) => "missing",
        }
    }

    /// The reason, of a part that is missing.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Missing(reason) => Some(reason),
            Self::Awake | Self::Asleep | Self::OnDemand => None,
        }
    }
}

/// All parts, in the order of [`FirstLinePart::ALL`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FirstLineReport {
    /// The state of each part.
    pub parts: [(FirstLinePart, FirstLinePartState); 4],
}

impl FirstLineReport {
    /// No part is in force, all for one reason.
    #[must_use]
    pub fn missing(reason: &str) -> Self {
        Self::of(|_| FirstLinePartState::Missing(reason.to_owned()))
    }

    /// Each part in the state that `state` gives.
    pub fn of(mut state: impl FnMut(FirstLinePart) -> FirstLinePartState) -> Self {
        Self { parts: FirstLinePart::ALL.map(|part| (part, state(part))) }
    }

    /// The state of one part.
    #[must_use]
    pub fn state(&self, part: FirstLinePart) -> &FirstLinePartState {
        let [cookies, flows, credit, redirect] = &self.parts;
        match part {
            FirstLinePart::Cookies => &cookies.1,
            FirstLinePart::LiveFlows => &flows.1,
            FirstLinePart::FairCredit => &credit.1,
            FirstLinePart::Redirect => &redirect.1,
        }
    }

    /// The reason why nothing is in force, where all parts share it.
    #[must_use]
    pub fn common_reason(&self) -> Option<&str> {
        let [(_, first), others @ ..] = &self.parts;
        first.reason().filter(|_| others.iter().all(|(_, other)| other == first))
    }
}

impl Default for FirstLineReport {
    /// Of a device without a program.
    fn default() -> Self {
        Self::missing("a device of this kind has no program at an interface")
    }
}

impl fmt::Display for FirstLineReport {
    /// `cookies asleep, live-flows asleep, fair-credit asleep; no redirect: REASON`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(reason) = self.common_reason() {
            return write!(f, "none: {reason}");
        }
        let mut separator = "";
        for (part, state) in self.parts.iter().filter(|(_, state)| state.reason().is_none()) {
            write!(f, "{separator}{} {}", part.name(), state.name())?;
            separator = ", ";
        }
        for (part, state) in &self.parts {
            if let Some(reason) = state.reason() {
                write!(f, "; no {}: {reason}", part.name())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_what_is_in_force_and_gives_the_reason_of_each_part_that_is_not() {
        let report = FirstLineReport::of(|part| match part {
            FirstLinePart::Cookies => FirstLinePartState::Awake,
            FirstLinePart::LiveFlows | FirstLinePart::FairCredit => FirstLinePartState::Asleep,
            FirstLinePart::Redirect => FirstLinePartState::Missing("it forwards nothing".into()),
        });
        assert_eq!(
            report.to_string(),
            "cookies awake, live-flows asleep, fair-credit asleep; no redirect: it forwards nothing"
        );
        assert_eq!(report.common_reason(), None);
        for (part, state) in &report.parts {
            assert_eq!(report.state(*part), state, "{part:?}");
        }
        let none = FirstLineReport::default();
        assert_eq!(none.to_string(), format!("none: {}", none.common_reason().unwrap()));
    }
}
