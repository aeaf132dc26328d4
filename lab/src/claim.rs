//! A claim: what is expected of a number, written down before it is measured.
//!
//! Read from a plan (`plan.rs`), evaluated by the frame (`run.rs`) on what was measured. Invariant:
//! a claim holds only if something was measured and every run of every seed keeps its bounds; so a
//! row that is renamed or left out breaks its claims instead of passing them. A measurement that a
//! machine may be unable to make has a number that reports this (`given`), and the report shows it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::measure::Spread;

/// One expectation. `measure` is the name of a number; a star stands for one part of it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Its name, for programs.
    pub id: String,
    /// What is claimed, for humans.
    pub says: String,
    /// Which numbers.
    pub measure: String,
    /// A number that must have been measured as 1 for the claim to be judged at all: for what not
    /// every machine can measure. Without, it is judged always.
    pub given: Option<String>,
    /// Exactly so much.
    pub equals: Option<f64>,
    /// So much or more.
    pub at_least: Option<f64>,
    /// So much or less.
    pub at_most: Option<f64>,
    /// More than that.
    pub above: Option<f64>,
    /// Less than that.
    pub below: Option<f64>,
}

/// One direction of a claim.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Bound {
    /// Exactly so much.
    Equals(f64),
    /// So much or more.
    AtLeast(f64),
    /// So much or less.
    AtMost(f64),
    /// More than that.
    Above(f64),
    /// Less than that.
    Below(f64),
}

impl Bound {
    /// Whether `value` keeps it. No number keeps nothing.
    #[must_use]
    pub fn keeps(self, value: f64) -> bool {
        match self {
            Self::Equals(n) => value == n,
            Self::AtLeast(n) => value >= n,
            Self::AtMost(n) => value <= n,
            Self::Above(n) => value > n,
            Self::Below(n) => value < n,
        }
    }
}

impl core::fmt::Display for Bound {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Equals(n) => write!(f, "= {n}"),
            Self::AtLeast(n) => write!(f, ">= {n}"),
            Self::AtMost(n) => write!(f, "<= {n}"),
            Self::Above(n) => write!(f, "> {n}"),
            Self::Below(n) => write!(f, "< {n}"),
        }
    }
}

/// What became of a claim.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Verdict {
    /// The claim's name.
    pub id: String,
    /// What was claimed.
    pub says: String,
    /// Which numbers were looked at.
    pub measure: String,
    /// What was expected of them.
    pub expected: String,
    /// Whether it was judged: what it is about could be measured here.
    pub judged: bool,
    /// Whether it holds; not where it was not judged.
    pub holds: bool,
    /// How many numbers that were: rows, not seeds.
    pub matched: usize,
    /// The least and the greatest of all of them; `None` where nothing was measured.
    pub range: Option<(f64, f64)>,
    /// The first number that broke it, and by how much it was there.
    pub broken_by: Option<(String, f64)>,
}

impl Claim {
    /// Its directions; at least one in a plan that was read.
    #[must_use]
    pub fn bounds(&self) -> Vec<Bound> {
        let all = [
            self.equals.map(Bound::Equals),
            self.at_least.map(Bound::AtLeast),
            self.at_most.map(Bound::AtMost),
            self.above.map(Bound::Above),
            self.below.map(Bound::Below),
        ];
        all.into_iter().flatten().collect()
    }

    /// Whether a number of that name is meant.
    #[must_use]
    pub fn means(&self, name: &str) -> bool {
        let (mut wanted, mut found) = (self.measure.split('/'), name.split('/'));
        loop {
            match (wanted.next(), found.next()) {
                (None, None) => return true,
                (Some(w), Some(f)) if w == "*" || w == f => {}
                _ => return false,
            }
        }
    }

    /// Looks at what was measured.
    pub(crate) fn judge(&self, metrics: &BTreeMap<String, Spread>) -> Verdict {
        let bounds = self.bounds();
        let mut verdict = Verdict {
            id: self.id.clone(),
            says: self.says.clone(),
            measure: self.measure.clone(),
            expected: bounds.iter().map(Bound::to_string).collect::<Vec<_>>().join(", "),
            judged: self.is_judged(metrics),
            holds: false,
            matched: 0,
            range: None,
            broken_by: None,
        };
        for (name, spread) in metrics.iter().filter(|(name, _)| self.means(name)) {
            verdict.matched += 1;
            let (low, high) = verdict.range.unwrap_or((spread.min, spread.max));
            verdict.range = Some((low.min(spread.min), high.max(spread.max)));
            let mut broken = spread.values.iter().filter(|v| !bounds.iter().all(|b| b.keeps(**v)));
            if verdict.broken_by.is_none() {
                verdict.broken_by = broken.next().map(|value| (name.clone(), *value));
            }
        }
        let kept = !bounds.is_empty() && verdict.broken_by.is_none();
        verdict.holds = verdict.judged && verdict.matched > 0 && kept;
        verdict
    }

    /// Whether what it is about could be measured in every run. The number must be there, so that
    /// one that is renamed does not silence its claims.
    fn is_judged(&self, metrics: &BTreeMap<String, Spread>) -> bool {
        let Some(given) = &self.given else { return true };
        metrics.get(given).is_none_or(|spread| spread.values.iter().all(|value| *value == 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(measure: &str, bound: Bound) -> Claim {
        let mut claim = Claim {
            id: "x".to_owned(),
            says: "x".to_owned(),
            measure: measure.to_owned(),
            given: None,
            equals: None,
            at_least: None,
            at_most: None,
            above: None,
            below: None,
        };
        match bound {
            Bound::Equals(n) => claim.equals = Some(n),
            Bound::AtLeast(n) => claim.at_least = Some(n),
            Bound::AtMost(n) => claim.at_most = Some(n),
            Bound::Above(n) => claim.above = Some(n),
            Bound::Below(n) => claim.below = Some(n),
        }
        claim
    }

    fn measured(all: &[(&str, &[f64])]) -> BTreeMap<String, Spread> {
        all.iter().map(|(n, v)| ((*n).to_owned(), Spread::of(v.to_vec()).unwrap())).collect()
    }

    #[test]
    fn a_claim_holds_only_if_every_seed_of_every_row_keeps_it() {
        let all = measured(&[("a/n", &[3.0, 4.0]), ("b/n", &[5.0]), ("b/m", &[0.0])]);
        let verdict = claim("*/n", Bound::AtLeast(3.0)).judge(&all);
        assert!(verdict.holds && verdict.matched == 2 && verdict.range == Some((3.0, 5.0)));
        let verdict = claim("*/n", Bound::Above(3.0)).judge(&all);
        assert!(!verdict.holds);
        assert_eq!(verdict.broken_by, Some(("a/n".to_owned(), 3.0)));
    }

    #[test]
    fn a_claim_that_measured_nothing_does_not_hold() {
        let all = measured(&[("a/n", &[0.0])]);
        for measure in ["b/n", "a", "a/n/more", "*/*/*"] {
            assert!(!claim(measure, Bound::Equals(0.0)).judge(&all).holds, "{measure}");
        }
        assert!(claim("*/*", Bound::Equals(0.0)).judge(&all).holds);
    }

    #[test]
    fn what_could_not_be_measured_is_not_judged_and_a_number_that_is_not_there_silences_nothing() {
        let all = measured(&[("a/n", &[0.0, 0.0]), ("can", &[1.0, 0.0]), ("could", &[1.0, 1.0])]);
        let mut one = claim("a/n", Bound::Equals(5.0));
        for (given, judged) in [("can", false), ("could", true), ("nosuch", true)] {
            one.given = Some(given.to_owned());
            let verdict = one.judge(&all);
            assert_eq!((verdict.judged, verdict.holds), (judged, false), "{given}");
        }
    }

    #[test]
    fn every_bound_has_a_side_that_breaks_it_and_no_number_keeps_none() {
        for (bound, good, bad) in [
            (Bound::Equals(2.0), 2.0, 2.5),
            (Bound::AtLeast(2.0), 2.0, 1.9),
            (Bound::AtMost(2.0), 2.0, 2.1),
            (Bound::Above(2.0), 2.1, 2.0),
            (Bound::Below(2.0), 1.9, 2.0),
        ] {
            assert!(bound.keeps(good) && !bound.keeps(bad) && !bound.keeps(f64::NAN), "{bound}");
        }
    }
}
