//! The plan `xdp-flood` in its quick form, in a process of its own: it measures real threads.
#![expect(clippy::unwrap_used, reason = "what a test cannot do without ends the test")]

mod broken;

use broken::{Broken, failed};
use floodwall_lab::experiments::xdp_flood::XdpFlood;
use floodwall_lab::{Experiment, LabError, Measured, Plan, Progress, Silent, Size, run_experiment};

/// What was found, as often as it is asked for.
struct Found(Measured);

impl Experiment for Found {
    fn name(&self) -> &'static str {
        "found"
    }

    fn run(
        &self,
        _: &Plan,
        _: &toml::Table,
        _: u64,
        _: &mut dyn Progress,
    ) -> Result<Measured, LabError> {
        Ok(self.0.clone())
    }
}

#[test]
fn the_quick_form_of_xdp_flood_holds_and_its_claims_can_fail() {
    if std::env::var_os("FLOODWALL_ALONE").is_none_or(|value| value == "0") {
        return println!("skipped: it needs the machine for itself; FLOODWALL_ALONE=1 runs it");
    }
    let plan = Plan::load("xdp-flood").unwrap();
    let found = Found(XdpFlood.run(&plan, &plan.quick.settings, 1, &mut Silent).unwrap());
    let report = run_experiment(&found, &plan, Size::Quick, &mut Silent).unwrap();
    assert!(report.passed, "{report}");
    let judged = plan.claims.iter().filter(|claim| {
        let given = claim.given.as_ref();
        given.is_none_or(|given| found.0.metrics.value(given) == Some(1.0))
    });
    for claim in judged {
        let broken = Broken { whole: &found.0, claim };
        let report = run_experiment(&broken, &plan, Size::Quick, &mut Silent).unwrap();
        assert_eq!(failed(&report), [claim.id.as_str()], "{report}");
    }
}
