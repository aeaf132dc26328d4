//! `floodwall drill`: the flood contract, tried on this machine, with a verdict for each criterion.
//!
//! Progress goes to standard error, the table (or, with `--json`, one document) to standard
//! output. Its exit codes are its own: a criterion that does not hold is a result, not a refusal.

use std::error::Error;
use std::fs;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use floodwall_drill::{
    ANSWERED_MIN, CostTable, Criterion, DrillError, DrillOptions, DrillPlace, ParseCostError,
    Report, drill as run, to_stderr,
};

use crate::html::{self, HtmlPage};
use crate::output;

const EXIT_CODES: &str = "\
Exit codes:
  0  every criterion holds
  1  a criterion does not hold
  2  the drill could not be run, or these words make no sense

Example:
  floodwall drill                 over a wire in memory: no root, about 35 seconds
  floodwall drill --sim --json    in virtual time: the same seed, the same report
  sudo floodwall drill --tap      the Linux kernel as the honest client";

/// A criterion does not hold.
const EXIT_FAILED: u8 = 1;
/// The drill could not be run, for a usage error too.
pub(crate) const NOT_RUN: u8 = 2;

/// `floodwall drill`
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct DrillArgs {
    /// In a simulated world, in virtual time: the same seed gives the same report, byte for byte
    #[arg(long)]
    sim: bool,
    /// On a TAP in a network namespace of its own, with the Linux kernel as the honest client
    /// (needs root)
    #[arg(long, conflicts_with = "sim")]
    tap: bool,
    /// Decides every packet: the same number, the same packets in the same order
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How long each phase lasts, from 0.1 to 3600
    #[arg(long, value_name = "N", value_parser = phase)]
    seconds: Option<Duration>,
    /// Workers of the host under test, each on a core of its own
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "tap")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=16))]
    workers: u16,
    /// What work costs in virtual time, as `floodwall cost --write` wrote it; by default what was
    /// measured for this release
    #[arg(long, value_name = "FILE", requires = "sim")]
    costs: Option<PathBuf>,
    /// Besides, write the report as one HTML page into a folder
    #[arg(long, value_name = "FOLDER")]
    report: Option<PathBuf>,
    /// One JSON document on standard output; words for humans go to standard error
    #[arg(long)]
    json: bool,
}

/// Runs the drill and reports.
pub(crate) fn drill(args: &DrillArgs) -> ExitCode {
    let mut options = match (args.sim, args.tap) {
        (true, _) => DrillOptions::simulated(args.seed),
        (_, true) => DrillOptions::on_tap(args.seed),
        _ => DrillOptions::new(args.seed),
    };
    if let Some(phase) = args.seconds {
        options.schedule.phase = phase;
    }
    if let Some(path) = &args.costs {
        match costs(path) {
            Ok(costs) => options.place = DrillPlace::World(costs),
            Err(error) => {
                eprintln!("floodwall drill: {}: {error}", path.display());
                return NOT_RUN.into();
            }
        }
    }
    options.server.workers = args.workers;
    // A folder that cannot be is told before the drill, not after.
    if let Some(folder) = &args.report
        && let Err(error) = fs::create_dir_all(folder)
    {
        eprintln!("floodwall drill: {}: cannot write the report: {error}", folder.display());
        return NOT_RUN.into();
    }
    let report = run(&options, to_stderr().as_mut());
    let told = report.map_err(Into::into);
    match told.and_then(|report| tell(args, &report).map(|()| report.passed)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => EXIT_FAILED.into(),
        Err(error) => {
            eprintln!("floodwall drill: {error}");
            NOT_RUN.into()
        }
    }
}

/// The length of a phase, in seconds.
fn phase(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    let seconds = seconds.ok_or("a number of seconds from 0.1 to 3600 is wanted")?;
    Ok(Duration::from_secs_f64(seconds))
}

/// The table in a file.
fn costs(path: &Path) -> Result<CostTable, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    text.parse().map_err(|error: ParseCostError| error.to_string())
}

/// The figure that is published for a criterion, in the words of `docs/benchmarks/floods.md`.
const fn published(criterion: Criterion) -> &'static str {
    match criterion {
        Criterion::Answered => "99.3 to 100 % at worst, both families",
        Criterion::Offered => "floods held back for up to 23 % of a phase",
        Criterion::EstablishedKept => "established peers of the host 100 %",
        Criterion::WorkerRun => "longest run of the worker under 0.1 ms of work",
        _ => "",
    }
}

/// The report as a page.
fn page(report: &Report) -> HtmlPage {
    let held = report.verdicts.iter().filter(|verdict| verdict.passed).count();
    let word = if report.passed { "PASS" } else { "FAIL" };
    let verdict = format!("{word}: {held} of {} criteria hold", report.verdicts.len());
    let question = "Do honest clients of both families keep their service under each flood, and \
                    is every packet accounted for?";
    let mut page = HtmlPage::new("floodwall drill", question, (report.passed, &verdict));
    page.note(&format!("{}, seed {}; {}", report.bench, report.seed, html::machine()));
    page.heading("Floors");
    let rows: Vec<_> = report
        .verdicts
        .iter()
        .map(|verdict| {
            let word = if verdict.passed { "holds" } else { "FAILS" };
            let (required, measured) = (verdict.required.clone(), verdict.measured.clone());
            let published = published(verdict.criterion).to_owned();
            vec![word.to_owned(), verdict.criterion.to_string(), required, measured, published]
        })
        .collect();
    page.table("", &["", "criterion", "required", "measured", "published"], &rows);
    page.note(
        "Published: over the memory wire, on shared machines (docs/benchmarks/floods.md); empty \
         where no figure beyond the guarantee is published.",
    );
    page.heading("Answers to honest clients");
    let honest = report.phases.iter().flat_map(|phase| {
        phase.honest.iter().map(|h| (format!("{}, {}", phase.name, h.family), h.share()))
    });
    let bars: Vec<_> = honest.collect();
    page.bars("Share of honest questions answered in time, by phase", &bars, ANSWERED_MIN);
    let rows: Vec<_> = report
        .phases
        .iter()
        .flat_map(|phase| phase.honest.iter().map(move |h| (phase, h)))
        .map(|(phase, h)| {
            let micros = |nanos: u64| format!("{:.1}", nanos as f64 / 1e3);
            vec![
                phase.name.to_owned(),
                h.family.to_owned(),
                phase.offered_pps.to_string(),
                h.asked.to_string(),
                h.answered.to_string(),
                micros(h.p50_ns),
                micros(h.p99_ns),
            ]
        })
        .collect();
    let columns =
        ["phase", "family", "flood, packets/s", "asked", "answered", "median, us", "99 %, us"];
    page.table("", &columns, &rows);
    let told = report.phases.iter().map(|phase| format!("{}: {}", phase.name, phase.what));
    page.note(&told.collect::<Vec<_>>().join(" "));
    page.heading("Drops by reason");
    let rows: Vec<_> = report
        .drops
        .iter()
        .map(|d| vec![d.reason.to_owned(), d.count.to_string(), d.sentence.to_owned()])
        .collect();
    page.table("", &["reason", "packets", "what happened"], &rows);
    report.notes.iter().for_each(|note| page.note(note));
    page.heading("The same again");
    page.command(&html::command_line());
    page
}

fn tell(args: &DrillArgs, report: &Report) -> Result<(), Box<dyn Error>> {
    if let Some(folder) = &args.report {
        let written = page(report).write(folder);
        let path =
            written.map_err(|source| DrillError::System { action: "write the report", source })?;
        eprintln!("floodwall drill: report: {}", path.display());
    }
    if args.json {
        eprintln!("\n{report}");
        return Ok(output::try_print(&(report.to_json()? + "\n"))?);
    }
    Ok(output::try_print(&format!("\n{report}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_figures_are_those_of_the_document() {
        let text = include_str!("../../../../docs/benchmarks/floods.md");
        let criteria = [
            Criterion::Answered,
            Criterion::Offered,
            Criterion::EstablishedKept,
            Criterion::WorkerRun,
        ];
        for criterion in criteria {
            let figure = published(criterion);
            assert!(!figure.is_empty() && text.contains(figure), "{figure}");
        }
    }
}
