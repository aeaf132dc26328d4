//! Results that are broken on purpose, so that claims are seen to fail: for the tests of plans.

use floodwall_lab::{Bound, Claim, Experiment, LabError, Measured, Plan, Progress, Report};

/// The claims that do not hold.
pub(crate) fn failed(report: &Report) -> Vec<&str> {
    let failed = report.claims.iter().filter(|claim| claim.judged && !claim.holds);
    failed.map(|claim| claim.id.as_str()).collect()
}

/// An experiment with a result that is broken on purpose, in the one number of a claim.
pub(crate) struct Broken<'a> {
    /// The result as it was.
    pub(crate) whole: &'a Measured,
    /// The claim of which the number is broken.
    pub(crate) claim: &'a Claim,
}

impl Experiment for Broken<'_> {
    fn name(&self) -> &'static str {
        "broken"
    }

    fn run(
        &self,
        _plan: &Plan,
        _amount: &toml::Table,
        _seed: u64,
        _progress: &mut dyn Progress,
    ) -> Result<Measured, LabError> {
        let mut measured = self.whole.clone();
        let (name, value) = self.whole.metrics.iter().find(|m| self.claim.means(m.0)).unwrap();
        let broken = match self.claim.bounds()[0] {
            Bound::Equals(_) => value + 1.0,
            Bound::AtLeast(n) | Bound::Above(n) => n - 1.0,
            Bound::AtMost(n) | Bound::Below(n) => n + 1.0,
        };
        measured.metrics.set(name, broken);
        Ok(measured)
    }
}
