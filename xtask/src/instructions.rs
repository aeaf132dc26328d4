//! `instructions`: what small messages, short connections and look-ups execute, in instructions.
//!
//! Runs benches that do a number of each and measure nothing (`--count`) under valgrind's
//! callgrind, twice: the difference of the two totals, divided by that of the numbers, is the cost
//! of one. It does not depend on the machine's load, and changes of one percent are visible.

use std::path::Path;
use std::process::Command;

/// The rows, each with the two numbers.
const ROWS: [(&str, u64, u64); 6] = [
    ("Floodwall IPv4 ping-pong.", 1000, 3000),
    ("Floodwall IPv6 ping-pong.", 1000, 3000),
    ("Floodwall IPv4 connections.", 1000, 3000),
    ("Floodwall IPv6 connections.", 1000, 3000),
    ("smoltcp IPv4 ping-pong.", 1000, 3000),
    ("smoltcp IPv4 connections.", 1000, 3000),
];

/// Builds the bench and prints a line for each row with `only` in its name.
pub(crate) fn run(root: &Path, only: &str) -> Result<(), String> {
    let build = ["bench", "-p", "floodwall-stack", "--bench", "tcp", "--no-run"];
    let mut cargo = Command::new("cargo");
    let built = capture(cargo.args(build).arg("--message-format=json").current_dir(root))?;
    let lines = built.lines().filter(|line| line.contains("\"name\":\"tcp\""));
    let path = lines.filter_map(|line| line.split("\"executable\":\"").nth(1)).next_back();
    let path = path.and_then(|rest| rest.split('"').next()).ok_or("cargo names no executable")?;
    for (row, few, many) in ROWS.iter().filter(|(row, ..)| row.contains(only)) {
        let cost = count(path, row, *many)?.saturating_sub(count(path, row, *few)?) / (many - few);
        println!("{:32} {cost:>8} instructions", row.trim_end_matches('.'));
    }
    Ok(())
}

/// Instructions of a run of `count`.
fn count(path: &str, row: &str, count: u64) -> Result<u64, String> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", path, "--count"]);
    let output = command.arg(count.to_string()).arg(row).output();
    let output = output.map_err(|error| format!("valgrind: {error}"))?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let total = told.lines().find_map(|line| line.split("refs:").nth(1));
    let total = total.map(|digits| digits.trim().replace(',', ""));
    total.and_then(|digits| digits.parse().ok()).ok_or_else(|| format!("valgrind says: {told}"))
}

fn capture(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}
