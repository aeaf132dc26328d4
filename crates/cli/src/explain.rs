//! What is wrong, by rules on counters: an attack, a slow application, a bound that is too small,
//! the path, or nothing.
//!
//! Called by `explain`, `top` and the watch of `run`. Pure: two reports in, findings out. Each
//! finding carries the counters that prove it. Invariants: nothing is claimed without a counter
//! that moved between the two reports, or a queue that is full in the second; at rest the list is
//! empty.

mod at_interface;
pub(crate) mod attack;
mod attack_facts;
mod bounds;
#[cfg(test)]
mod slow_reader;
#[cfg(test)]
mod tests;

use serde::Serialize;

pub(crate) use self::at_interface::{ServiceRate, services as services_at_interface};
use self::attack_facts::AttackFacts;
use crate::rates::ReportDifference;

/// What kind of trouble.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TroubleKind {
    Attack,
    SlowApplication,
    TooSmall,
    Path,
}

impl TroubleKind {
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Attack => "attack",
            Self::SlowApplication => "slow application",
            Self::TooSmall => "too small",
            Self::Path => "path",
        }
    }
}

/// One finding.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Explanation {
    pub(crate) kind: TroubleKind,
    /// A short name: `SYN flood`.
    pub(crate) name: String,
    /// The service, queue, bound or interface; empty where it is the whole host.
    pub(crate) place: String,
    /// One sentence.
    pub(crate) sentence: String,
    /// What can be done; empty where nothing need be.
    pub(crate) remedy: String,
    /// Counters and their rates.
    pub(crate) evidence: Vec<String>,
    /// Events per second, by which findings of one kind are ordered.
    pub(crate) rate: f64,
    /// Of an attack, what else an operator asks.
    #[serde(flatten)]
    pub(crate) attack: Option<AttackFacts>,
}

impl Explanation {
    fn new(kind: TroubleKind, name: &str, place: impl Into<String>, rate: f64) -> Self {
        let (name, place) = (name.to_owned(), place.into());
        let (sentence, remedy, evidence) = (String::new(), String::new(), Vec::new());
        Self { kind, name, place, sentence, remedy, evidence, rate, attack: None }
    }

    fn says(mut self, sentence: impl Into<String>) -> Self {
        self.sentence = sentence.into();
        self
    }

    fn remedy(mut self, remedy: &str) -> Self {
        remedy.clone_into(&mut self.remedy);
        self
    }

    fn shows(mut self, counter: &str, rate: f64) -> Self {
        if rate > 0.0 {
            self.evidence.push(format!("{counter} {}/s", crate::rates::short(rate)));
        }
        self
    }

    fn fact(mut self, fact: String) -> Self {
        self.evidence.push(fact);
        self
    }
}

/// Everything that is wrong: attacks first, each kind by its rate.
pub(crate) fn findings(between: &ReportDifference<'_>) -> Vec<Explanation> {
    let mut all = attack::attacks(between);
    all.extend(bounds::slow_applications(between));
    all.extend(bounds::too_small(between));
    all.extend(bounds::path(between));
    all.sort_by(|a, b| a.kind.cmp(&b.kind).then(b.rate.total_cmp(&a.rate)));
    all
}

/// What is worst, without its sentence: for narrow terminals.
pub(crate) fn short_verdict(findings: &[Explanation]) -> String {
    let Some(first) = findings.first() else { return "fine".to_owned() };
    let at = if first.place.is_empty() { String::new() } else { format!(" at {}", first.place) };
    format!("{}: {}{at}{}", first.kind.words(), first.name, others(findings))
}

/// How many findings there are besides the first.
fn others(findings: &[Explanation]) -> String {
    match findings.len().saturating_sub(1) {
        0 => String::new(),
        n => format!(" (and {n} more)"),
    }
}

/// One sentence about the whole.
pub(crate) fn verdict(findings: &[Explanation]) -> String {
    let Some(first) = findings.first() else { return "fine: nothing is wrong".to_owned() };
    let more = others(findings);
    let at = if first.place.is_empty() { String::new() } else { format!(" at {}", first.place) };
    format!("{}: {}{at}: {}{more}", first.kind.words(), first.name, first.sentence)
}
