//! `floodwall cost`: what each unit of work costs on this machine, for simulated time.
//!
//! Progress goes to standard error (a terminal only), the table or, with `--json`, one document to
//! standard output. Exit codes as the lab's: a table that is wrong about a flood is a result, not a
//! refusal.

use std::fs;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use floodwall_drill::{COST_ROUNDS, CostReport, measure_costs};
use floodwall_lab::Machine;
use serde_json::json;

use crate::output;

const EXIT_CODES: &str = "\
Exit codes:
  0  the table is right about every flood of the drill, within a factor of 1.5
  1  it is not (a debug build, a busy machine, or units that do not count what is done)
  2  it could not be measured or written

Example:
  floodwall cost                       about 5 seconds; use a release build on a quiet machine
  floodwall cost --write costs.txt     for `floodwall drill --sim --costs costs.txt`";

/// The table is wrong about a flood.
const EXIT_FAILED: u8 = 1;
/// It could not be measured or written.
pub(crate) const NOT_RUN: u8 = 2;

/// `floodwall cost`
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct CostArgs {
    /// One JSON document on standard output; words for humans go to standard error
    #[arg(long)]
    json: bool,
    /// Where to write the table, as text, with the machine and the day
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Rounds of each measurement; medians are taken
    #[arg(long, value_name = "N", default_value_t = COST_ROUNDS as u64)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=10_000))]
    rounds: u64,
}

/// Measures, prints and writes the cost table.
pub(crate) fn cost(args: &CostArgs) -> ExitCode {
    let terminal = std::io::stderr().is_terminal();
    let mut step = |what: &str, percent: usize| {
        if terminal {
            progress(&format!("\r{what}: {percent} %        "));
        }
    };
    let rounds = usize::try_from(args.rounds).unwrap_or(COST_ROUNDS);
    let report = measure_costs(rounds, 1, &mut step);
    if terminal {
        progress("\r\x1b[K");
    }
    let told = report
        .map_err(|error| error.to_string())
        .and_then(|report| tell(args, &report).map(|()| report.passed));
    match told {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => EXIT_FAILED.into(),
        Err(error) => {
            eprintln!("floodwall cost: {error}");
            NOT_RUN.into()
        }
    }
}

/// The line of progress on a terminal; where that is gone, it is lost.
fn progress(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

fn tell(args: &CostArgs, report: &CostReport) -> Result<(), String> {
    let machine = Machine::here();
    if args.json {
        eprintln!("{report}");
        let document = json!({ "machine": machine, "costs": report });
        output::try_print(&format!("{document:#}\n"))?;
    } else {
        output::try_print(&report.to_string())?;
    }
    args.write.as_deref().map_or(Ok(()), |path| write_table(path, report, &machine))
}

/// The table with notes for its readers.
fn write_table(path: &Path, report: &CostReport, machine: &Machine) -> Result<(), String> {
    let Machine { cpu, cores, system, build, version, commit, date } = machine;
    let mut text = format!(
        "# What work costs, in nanoseconds; unit_ lines are counts.\n\
         # Made by `floodwall cost --write`.\n\
         # machine: {cpu}, {cores} cores\n# kernel: {system}\n\
         # build: {build}, floodwall {version}, {commit}\n# date: {date}\n"
    );
    for price in &report.prices {
        text.push_str(&format!("# {}: {}\n", price.name, price.how));
    }
    text.push_str(&report.table.to_string());
    fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    eprintln!("written: {}", path.display());
    Ok(())
}
