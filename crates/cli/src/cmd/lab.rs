//! `floodwall lab`: experiments with claims, run on this machine, with a verdict for each claim.
//!
//! Progress goes to standard error (a terminal only), tables or, with `--json`, one document to
//! standard output. Its exit codes are its own, as the drill's: a claim that does not hold is a
//! result, not a refusal.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use floodwall_lab::{
    LabError, Plan, Report, Size, keep, listed, redraw, results_folder, run, to_stderr,
};

use crate::html::{self, HtmlPage};
use crate::output;

const EXIT_CODES: &str = "\
Exit codes:
  0  every claim holds
  1  a claim does not hold
  2  the plan could not be run

Results (plan, machine, commit, seeds, every number, report, pictures) are kept in the folder of
--out; without it, whole runs inside a checkout of the repository are kept in
lab/results/PLAN/DATE-COMMIT/, and nothing is written elsewhere.

Example:
  floodwall lab list
  floodwall lab header-pull
  floodwall lab header-pull --json --out /tmp/header-pull
  floodwall lab redraw /tmp/header-pull";

/// A claim does not hold.
const EXIT_FAILED: u8 = 1;
/// The plan could not be run.
const NOT_RUN: u8 = 2;
/// The word that names plans instead of running one.
const LIST_ARGUMENT: &str = "list";
/// The word that draws the plots of kept results again.
const REDRAW_ARGUMENT: &str = "redraw";

/// `floodwall lab`
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct LabArgs {
    /// A plan's name, a path to a plan (TOML), `list` for the names, or `redraw` to draw the plots
    /// of kept results again
    plan: String,
    /// With `redraw`: the folder of the results
    results: Option<PathBuf>,
    /// As little as tests can afford; the claims are the same
    #[arg(long)]
    quick: bool,
    /// One JSON document on standard output; words for humans go to standard error
    #[arg(long)]
    json: bool,
    /// Besides, write the report as one HTML page into a folder
    #[arg(long, value_name = "FOLDER")]
    report: Option<PathBuf>,
    /// Where to keep the results
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// Runs a plan and reports.
pub(crate) fn lab(args: &LabArgs) -> ExitCode {
    let done = match args.plan.as_str() {
        LIST_ARGUMENT => list(args).map(|()| true),
        REDRAW_ARGUMENT => draw_again(args).map(|()| true),
        _ => run_plan(args),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => EXIT_FAILED.into(),
        Err(error) => {
            eprintln!("floodwall lab: {error}");
            NOT_RUN.into()
        }
    }
}

fn list(args: &LabArgs) -> Result<(), Box<dyn Error>> {
    let plans = listed()?;
    let text = if args.json {
        serde_json::to_string_pretty(&plans)? + "\n"
    } else {
        let line = |plan: &floodwall_lab::Listed| {
            format!("{:<16} {} ({} claims)\n", plan.name, plan.question, plan.claims)
        };
        plans.iter().map(line).collect()
    };
    output::try_print(&text)?;
    Ok(())
}

fn draw_again(args: &LabArgs) -> Result<(), Box<dyn Error>> {
    let Some(folder) = &args.results else {
        let what = "name the folder: floodwall lab redraw lab/results/PLAN/DATE-COMMIT";
        return Err(what.into());
    };
    let kept = redraw(folder)?;
    output::try_print(&format!("{}: {}\n", kept.folder.display(), kept.files.join(", ")))?;
    Ok(())
}

/// Runs the plan, prints the report and stores it. Returns whether every claim holds.
fn run_plan(args: &LabArgs) -> Result<bool, Box<dyn Error>> {
    let plan = Plan::load(&args.plan)?;
    let size = if args.quick { Size::Quick } else { Size::Full };
    let report: Report = run(&plan, size, to_stderr().as_mut())?;
    if args.json {
        eprintln!("{report}");
        output::try_print(&(report.to_json()? + "\n"))?;
    } else {
        output::try_print(&report.to_string())?;
    }
    if let Some(folder) = &args.report {
        let written = page(&report)?.write(folder);
        let path = written.map_err(|source| LabError::File { path: folder.clone(), source })?;
        eprintln!("report: {}", path.display());
    }
    if let Some(folder) = args.out.clone().or_else(|| results_folder(&report)) {
        let kept = keep(&plan, &report, &folder)?;
        eprintln!("results: {} ({})", kept.folder.display(), kept.files.join(", "));
    }
    Ok(report.passed)
}

/// The report as a page: each table with the published figures under or beside its own.
fn page(report: &Report) -> Result<HtmlPage, LabError> {
    let held = report.claims.iter().filter(|claim| claim.holds).count();
    let judged = report.claims.iter().filter(|claim| claim.judged).count();
    let word = if report.passed { "PASS" } else { "FAIL" };
    let verdict = format!("{word}: {held} of {judged} claims hold");
    let mut page = HtmlPage::new(&report.plan, &report.question, (report.passed, &verdict));
    page.note(&format!("{}; seeds {:?}", html::machine(), report.seeds));
    page.heading("Claims");
    let rows: Vec<_> = report
        .claims
        .iter()
        .map(|claim| {
            let word = match (claim.judged, claim.holds) {
                (false, _) => "not measured here",
                (_, true) => "holds",
                _ => "FAILS",
            };
            let found = claim.range.map_or_else(String::new, |(low, high)| match low == high {
                true => format!("{low:.3}"),
                false => format!("{low:.3} to {high:.3}"),
            });
            vec![word.to_owned(), claim.says.clone(), claim.expected.clone(), found]
        })
        .collect();
    page.table("", &["", "claim", "expected", "measured"], &rows);
    for table in &report.tables {
        let number = table.title.split(':').next().unwrap_or_default();
        let beside: Vec<_> = report.published.iter().filter(|p| p.beside == number).collect();
        let same = beside.iter().find(|published| published.fits(table));
        let own = same.map_or_else(|| table.clone(), |published| published.under(table));
        page.table(&own.title, &own.columns, &own.rows);
        page.note(&own.note);
        for published in beside.iter().filter(|published| !published.fits(table)) {
            let theirs = published.table();
            page.table(&format!("Published: {}", theirs.title), &theirs.columns, &theirs.rows);
            page.note(&theirs.note);
        }
    }
    for (_, plot) in &report.plots {
        page.picture(&plot.svg()?, &plot.title);
    }
    page.heading("The same again");
    page.command(&html::command_line());
    Ok(page)
}
