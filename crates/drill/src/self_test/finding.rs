//! `Finding`: one thing that a self-test looked at, and what it found; `SelfTest`: all of them.
//!
//! Made by the parts of `self_test.rs`; shown by the program, as a table or as one document.

use core::fmt;

use serde::Serialize;

use super::capacity::DeviceCapacity;
use crate::error::DrillError;

/// What became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingOutcome {
    /// It was tried, and it works.
    Works,
    /// It should work here, and does not.
    Fails,
    /// It is not available here, or could not be tried, and is not claimed.
    Lacks,
}

impl FindingOutcome {
    const fn word(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::Fails => "FAILS",
            Self::Lacks => "lacks",
        }
    }
}

/// One result of the self-test.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// The word of the device, as it was opened for this.
    pub device: String,
    /// What was looked at.
    pub check: &'static str,
    /// What became of it.
    pub outcome: FindingOutcome,
    /// What was seen, or why it is not so.
    pub words: String,
    /// What to do where it is not so.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

/// Findings as they are made.
#[derive(Debug, Default)]
pub(super) struct Findings {
    device: String,
    all: Vec<Finding>,
    capacities: Vec<DeviceCapacity>,
}

impl Findings {
    /// What follows is about the device opened so.
    pub(super) fn about(&mut self, device: &impl ToString) {
        self.device = device.to_string();
    }

    pub(super) fn works(&mut self, check: &'static str, words: impl Into<String>) {
        self.add(check, FindingOutcome::Works, words.into(), String::new());
    }

    pub(super) fn fails(&mut self, check: &'static str, words: impl Into<String>, remedy: &str) {
        self.add(check, FindingOutcome::Fails, words.into(), remedy.to_owned());
    }

    pub(super) fn lacks(&mut self, check: &'static str, words: impl Into<String>, remedy: &str) {
        self.add(check, FindingOutcome::Lacks, words.into(), remedy.to_owned());
    }

    /// What a path can take is a figure, and no failure however small.
    pub(super) fn capacity(&mut self, capacity: DeviceCapacity) {
        self.works("capacity", capacity.to_string());
        self.capacities.push(capacity);
    }

    /// Works where `is_so`.
    pub(super) fn judge(
        &mut self,
        check: &'static str,
        is_so: bool,
        words: impl Into<String>,
        remedy: &str,
    ) {
        if is_so { self.works(check, words) } else { self.fails(check, words, remedy) }
    }

    fn add(&mut self, check: &'static str, outcome: FindingOutcome, words: String, remedy: String) {
        let device = self.device.clone();
        self.all.push(Finding { device, check, outcome, words, remedy });
    }
}

/// The report of a self-test.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SelfTest {
    /// The device's word, as it was given.
    pub device: String,
    /// `namespace` (on a cable of its own) or `interface` (on one that was there).
    pub place: &'static str,
    /// Whether all that is claimed works.
    pub works: bool,
    /// In the order in which they were made.
    pub findings: Vec<Finding>,
    /// The measured capacity of each way, where that was requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub capacities: Vec<DeviceCapacity>,
}

impl SelfTest {
    pub(super) fn new(device: String, alone: bool, findings: Findings) -> Self {
        let Findings { all: findings, capacities, .. } = findings;
        let works =
            !findings.is_empty() && findings.iter().all(|f| f.outcome != FindingOutcome::Fails);
        let place = if alone { "namespace" } else { "interface" };
        Self { device, place, works, findings, capacities }
    }

    /// The document for programs.
    ///
    /// # Errors
    /// Never for what a self-test makes.
    pub fn to_json(&self) -> Result<String, DrillError> {
        Ok(serde_json::to_string_pretty(self)?)
    }
}

impl fmt::Display for SelfTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut device = "";
        for finding in &self.findings {
            if finding.device != device {
                device = &finding.device;
                let place = match self.place {
                    "namespace" => "on a cable of its own",
                    _ => "as it is; nothing was sent",
                };
                writeln!(f, "{device}, {place}")?;
            }
            let Finding { check, outcome, words, remedy, .. } = finding;
            writeln!(f, "  {}  {check:<22} {words}", outcome.word())?;
            if !remedy.is_empty() {
                writeln!(f, "{:33}to do: {remedy}", "")?;
            }
        }
        let of = |outcome| self.findings.iter().filter(|f| f.outcome == outcome).count();
        let [works, fails, lacks] =
            [FindingOutcome::Works, FindingOutcome::Fails, FindingOutcome::Lacks].map(of);
        writeln!(f, "{works} work, {fails} fail, {lacks} cannot be had here")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(last: impl FnOnce(&mut Findings)) -> SelfTest {
        let mut findings = Findings::default();
        findings.about(&"xdp:e");
        findings.works("ping IPv4", "10 of 10");
        findings.lacks("GSO frames", "AF_XDP has none", "use a TAP");
        last(&mut findings);
        SelfTest::new("xdp:e".to_owned(), false, findings)
    }

    #[test]
    fn what_cannot_be_had_is_no_failure_and_a_failure_is_one_with_its_remedy() {
        let fine = report(|_| {});
        assert!(fine.works && fine.to_string().contains("1 work, 0 fail, 1 cannot"), "{fine}");
        let broken = report(|f| f.judge("ping IPv6", false, "none came", "look at the link"));
        assert!(!broken.works);
        let shown = broken.to_string();
        assert!(shown.contains("FAILS  ping IPv6"), "{shown}");
        assert!(shown.contains("to do: look at the link"), "{shown}");
        let json: serde_json::Value = serde_json::from_str(&broken.to_json().unwrap()).unwrap();
        assert_eq!(json["findings"][2]["outcome"], "fails");
        assert_eq!(json["works"], false);
    }

    #[test]
    fn nothing_found_proves_nothing() {
        assert!(!SelfTest::new("tap:t".to_owned(), true, Findings::default()).works);
    }
}
