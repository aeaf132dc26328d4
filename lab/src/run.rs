//! The frame: repeats an experiment for every seed, judges the claims, makes the report.
//!
//! Called by the program and by tests. Invariant: nothing here depends on what an experiment
//! measures.

use crate::error::LabError;
use crate::experiments::{self, Experiment};
use crate::machine::Machine;
use crate::measure;
use crate::plan::{Plan, Size};
use crate::progress::Progress;
use crate::report::Report;

/// Runs a plan with the experiment that it names.
///
/// # Errors
/// It could not be run. A claim that does not hold is no error: see [`Report::passed`].
pub fn run(plan: &Plan, size: Size, progress: &mut dyn Progress) -> Result<Report, LabError> {
    let experiment = experiments::named(&plan.experiment).ok_or_else(|| {
        LabError::NoExperiment { plan: plan.name.clone(), experiment: plan.experiment.clone() }
    })?;
    run_experiment(experiment, plan, size, progress)
}

/// As [`run`], with an experiment that need not be one of the list.
///
/// # Errors
/// As [`run`].
pub fn run_experiment(
    experiment: &dyn Experiment,
    plan: &Plan,
    size: Size,
    progress: &mut dyn Progress,
) -> Result<Report, LabError> {
    let amount = plan.amount(size);
    let (mut metrics, mut tables, mut plots) = (Vec::new(), Vec::new(), Vec::new());
    for seed in 1..=amount.seeds {
        progress.begin(seed, amount.seeds, seed);
        let measured = experiment.run(plan, &amount.settings, seed, progress)?;
        metrics.push(measured.metrics);
        if seed == 1 {
            (tables, plots) = (measured.tables, measured.plots);
        }
    }
    progress.end();
    let metrics = measure::spread(&metrics);
    let claims: Vec<_> = plan.claims.iter().map(|claim| claim.judge(&metrics)).collect();
    Ok(Report {
        plan: plan.name.clone(),
        question: plan.question.clone(),
        size,
        seeds: (1..=amount.seeds).collect(),
        machine: Machine::here(),
        passed: claims.iter().all(|claim| claim.holds || !claim.judged)
            && claims.iter().any(|claim| claim.holds),
        claims,
        tables,
        published: plan.published.clone(),
        metrics,
        plots,
    })
}
