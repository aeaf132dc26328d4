//! Project checks: `layers` (imports between crates), `tidy` (what no compiler checks), `words`
//! (the language in figures), `ci` (everything), `sanitize` (the tests under a sanitizer), `pkt`
//! (scripts of segments), `conformance` (collections of them), `rfc` (what standards require).
//!
//! Run as `cargo run -p xtask -- <command>`. Exit code 0: it holds; 1: it does not, one line per
//! complaint; 2: the command itself could not be run.
#![forbid(unsafe_code)]

mod ci;
#[cfg(feature = "scripts")]
mod conformance;
mod instructions;
mod layers;
mod links;
mod lwip;
mod modules;
#[cfg(feature = "scripts")]
mod pkt;
mod rfc;
mod sanitize;
mod source;
mod tidy;
mod words;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo run -p xtask -- <command>

  layers          check every import between crates against the table of shelves
  tidy            check the rules that no compiler checks
  words           measure comments, type names and the README against their bounds
  ci [step ...]   run everything, or the steps named: fmt layers tidy clippy test interop doc loom;
                  quick: those that need neither root nor many minutes
  sanitize thread|address [crate ...]
                  run the tests of these crates, or of those that matter, under a sanitizer
  pkt FILE.pkt ... [--kernel] [--ipv6]
                  play scripts in packetdrill's dialect against Floodwall in memory; --kernel:
                  against this system's TCP (root); packetdrill's own options override the
                  scripts' (--mtu=1520, --local_ip=..., -D NAME=VALUE)
  pkt             play our own scripts in memory and (as root) against this system's TCP, over
                  both families; list the differences with their reasons
  conformance [--write] [-v] FOLDER ...
                  play collections of others' scripts in memory: scripts, played, passed, permitted
                  differences with reasons; --write: into docs/conformance.md
  instructions [ROW]
                  what a round trip and a short connection execute, by valgrind: of all rows of the
                  TCP bench, or of those with this in their name
  lwip            fetch lwIP's Debian source and build it as a rival of the benches tcp and udp;
                  with FLOODWALL_LWIP=FOLDER from that source
  rfc             list what the standards ask for, clause by clause, and the test that shows it
";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let root = root();
    let passed = match arguments.split_first() {
        Some((command, [])) if command == "layers" => layers(&root),
        Some((command, [])) if command == "tidy" => tidy(&root),
        Some((command, [])) if command == "words" => match words::measure(&root) {
            Ok(figures) => figures.iter().fold(true, |passed, figure| {
                println!("{}", figure.line());
                passed && figure.holds()
            }),
            Err(error) => return unusable(&error),
        },
        Some((command, steps)) if command == "ci" => match ci::run(&root, steps) {
            Ok(passed) => passed,
            Err(error) => return unusable(&error),
        },
        Some((command, which)) if command == "sanitize" => match sanitize::run(&root, which) {
            Ok(passed) => passed,
            Err(error) => return unusable(&error),
        },
        #[cfg(feature = "scripts")]
        Some((command, words)) if command == "pkt" => match pkt::run(&root, words) {
            Ok(passed) => passed,
            Err(error) => return unusable(&error),
        },
        #[cfg(feature = "scripts")]
        Some((command, words)) if command == "conformance" => {
            match conformance::run(&root, words) {
                Ok(passed) => passed,
                Err(error) => return unusable(&error),
            }
        }
        Some((command, rows)) if command == "instructions" && rows.len() < 2 => {
            match instructions::run(&root, rows.first().map_or("", |row| row)) {
                Ok(()) => true,
                Err(error) => return unusable(&error),
            }
        }
        Some((command, [])) if command == "lwip" => match lwip::build(&root) {
            Ok(()) => true,
            Err(reason) => return unusable(&format!("lwIP is skipped: {reason}")),
        },
        Some((command, [])) if command == "rfc" => match rfc::run(&root) {
            Ok(passed) => passed,
            Err(error) => return unusable(&error),
        },
        Some((command, [])) if matches!(&**command, "help" | "--help" | "-h") => {
            print!("{USAGE}");
            true
        }
        _ => return unusable(USAGE),
    };
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn unusable(error: &str) -> ExitCode {
    eprintln!("{}", error.trim_end());
    ExitCode::from(2)
}

/// The root of the repository: the folder above this package.
fn root() -> PathBuf {
    let own = env::var_os("CARGO_MANIFEST_DIR");
    let own = own.map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    own.parent().map_or_else(|| own.clone(), Path::to_path_buf)
}

/// Prints what breaks the table of shelves; true if nothing does.
fn layers(root: &Path) -> bool {
    match layers::check(root) {
        Ok(complaints) => {
            complaints.iter().for_each(|line| eprintln!("layers: {line}"));
            if complaints.is_empty() {
                println!("layers: every import goes down");
            }
            complaints.is_empty()
        }
        Err(error) => {
            eprintln!("layers: {error}");
            false
        }
    }
}

/// Prints what is not tidy; true if everything is.
fn tidy(root: &Path) -> bool {
    match tidy::check(root) {
        Ok(report) => {
            report.notes.iter().for_each(|line| println!("tidy: note: {line}"));
            report.complaints.iter().for_each(|line| eprintln!("tidy: {line}"));
            let count = report.complaints.len();
            println!("tidy: {} files, {count} complaints", report.files);
            count == 0
        }
        Err(error) => {
            eprintln!("tidy: {error}");
            false
        }
    }
}
