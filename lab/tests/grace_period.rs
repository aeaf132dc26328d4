//! The plan `grace-period` in its quick form, in a process of its own: it measures real threads.
#![expect(clippy::unwrap_used, reason = "what a test cannot do without ends the test")]

mod broken;

use std::sync::{Mutex, PoisonError};

use broken::{Broken, failed};
use floodwall_lab::experiments::grace_period::GracePeriod;
use floodwall_lab::plot::Plot;
use floodwall_lab::{Claim, Experiment, Measured, Plan, Report, Silent, Size, run, run_experiment};

/// Tests that measure take turns: on two cores a reader and a writer are enough.
static QUIET: Mutex<()> = Mutex::new(());

fn plan() -> Plan {
    Plan::load("grace-period").unwrap()
}

fn measure(plan: &Plan) -> Report {
    let _turn = QUIET.lock().unwrap_or_else(PoisonError::into_inner);
    run(plan, Size::Quick, &mut Silent).unwrap()
}

/// Whether the machine is this test's, or says why the test does not run.
fn is_alone() -> bool {
    let is_set = std::env::var_os("FLOODWALL_ALONE").is_some_and(|value| value != "0");
    if !is_set {
        println!("skipped: it needs the machine for itself; FLOODWALL_ALONE=1 runs it");
    }
    is_set
}

/// Whether a claim is about grace periods that the machine must have left undisturbed.
fn wants_quiet(measure: &str) -> bool {
    measure.contains("undisturbed")
}

#[test]
fn the_plan_holds_in_its_quick_form() {
    if !is_alone() {
        return;
    }
    let report = measure(&plan());
    for claim in &report.claims {
        if claim.matched == 0 && wants_quiet(&claim.measure) {
            println!("skipped, the machine was too busy to tell: {}", claim.says);
            continue;
        }
        assert!(claim.holds, "{}: {report}", claim.id);
    }
    let drawn = |plot: &Plot| plot.svg().is_ok_and(|svg| svg.contains("<polyline"));
    assert!(report.plots.iter().all(|(_, plot)| drawn(plot)), "three pictures");
}

/// One short turn each: enough for everything without a percentile.
fn hasty(from: &str, to: &str) -> Plan {
    let text = plan().text;
    assert!(text.contains(from), "the plan has no `{from}`");
    let text = text.replace(from, to);
    let (whole, quick) = text.split_once("[quick]").unwrap();
    let quick = quick.replacen("turns = 5", "turns = 1", 1);
    let quick = quick.replacen("turn_millis = 40", "turn_millis = 5", 1);
    let quick = quick.replacen("undisturbed = 3", "undisturbed = 0", 1);
    Plan::parse("test", &format!("{whole}[quick]{quick}")).unwrap()
}

#[test]
fn every_claim_fails_on_a_result_that_breaks_it_and_only_that_claim() {
    if !is_alone() {
        return;
    }
    let plan = hasty("question", "question");
    let whole = whole(&plan);
    for claim in &plan.claims {
        let broken = Broken { whole: &whole, claim };
        let report = run_experiment(&broken, &plan, Size::Quick, &mut Silent).unwrap();
        assert_eq!(failed(&report), [&claim.id], "{report}");
    }
}

/// A result that every claim holds on. In turns of 5 ms a writer that has no core names no reader,
/// so there are more tries.
fn whole(plan: &Plan) -> Measured {
    let _turn = QUIET.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..10 {
        let measured = GracePeriod.run(plan, &plan.quick.settings, 1, &mut Silent).unwrap();
        let whole = with_quiet(measured, &plan.claims);
        if whole.metrics.value("threads/stuck/floodwall/named") == Some(1.0) {
            return whole;
        }
    }
    panic!("no stuck reader was named in ten runs");
}

/// The result with what a quiet machine would have added: a test of claims needs no quiet one.
fn with_quiet(mut whole: Measured, claims: &[Claim]) -> Measured {
    for claim in claims.iter().filter(|claim| wants_quiet(&claim.measure)) {
        whole.metrics.set(claim.measure.clone(), 30.0);
    }
    whole
}

#[test]
fn what_is_weaker_breaks_the_claims_about_it() {
    for (from, to, breaks) in [
        // A cap that nothing reaches proves nothing.
        ("\ncap_items = 2048", "\ncap_items = 200000", "cap-is-reached"),
        // A reader that is stuck for no longer than anybody may be is not named.
        ("stuck_millis = 50", "stuck_millis = 10", "stuck-is-named"),
        // Loads that do not grow.
        ("loads = [0.1, 0.5, 0.8,", "loads = [0.1, 0.9, 0.8,", "idle-grows-with-load"),
        // Fewer new destinations than the source's.
        ("flow_packets = 10", "flow_packets = 1000", "idle-piles-up"),
        // A worker that looks seldom at what waits.
        ("budget = 64", "budget = 256", "few-rounds-in-a-flood"),
        // A rival that was left out.
        ("    \"seize\",\n", "", "seize-has-no-cap"),
    ] {
        let report = measure(&hasty(from, to));
        assert!(failed(&report).contains(&breaks), "{to}: {:?}", failed(&report));
    }
}
