//! `floodwall check FILE`: reports what is wrong with a configuration, where, and the remedy.
//!
//! Needs no privilege and starts nothing.

use crate::args::{CheckArgs, RunArgs};
use crate::exit::Exit;
use crate::output;
use crate::settings::{self, RunSettings};

/// Reads and judges the file; problems go to standard error, one a line.
pub(crate) fn check(args: &CheckArgs) -> Exit {
    match settings::load(Some(&args.file), &RunArgs::default()) {
        Ok(settings) => {
            let file = output::shown(&args.file.display());
            output::print(&format!("{file}: good: {}\n", summary(&settings)))
        }
        Err(problems) => {
            problems.iter().for_each(|problem| eprintln!("{problem}"));
            Exit::Usage
        }
    }
}

fn summary(settings: &RunSettings) -> String {
    let addresses = settings.interfaces.iter().map(|i| i.addresses.len()).sum();
    let counted =
        |n: usize, one: &str, many: &str| format!("{n} {}", if n == 1 { one } else { many });
    [
        counted(settings.interfaces.len(), "interface", "interfaces"),
        counted(addresses, "address", "addresses"),
        counted(settings.services.len(), "service", "services"),
    ]
    .join(", ")
}
