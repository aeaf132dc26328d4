//! `instructions`: what small messages, short connections and datagrams execute, in instructions.
//!
//! Runs benches that do a number of each and measure nothing (`--count`) under valgrind's
//! callgrind, twice: the difference of the two totals, divided by that of the numbers, is the cost
//! of one. It does not depend on the machine's load, and changes of one percent are visible.

use std::path::Path;
use std::process::Command;

use crate::lwip;

/// What is counted: a row of a bench of `floodwall-stack`.
struct Row {
    bench: &'static str,
    name: &'static str,
    /// The two numbers.
    few: u64,
    many: u64,
    /// What the bench does for one of them.
    each: u64,
}

const fn tcp(name: &'static str) -> Row {
    Row { bench: "tcp", name, few: 1000, many: 3000, each: 1 }
}

/// Connections of which 64 are open at once.
const fn at_once(name: &'static str) -> Row {
    Row { few: 640, many: 3840, ..tcp(name) }
}

/// 64 KiB in bulk.
const fn bulk(name: &'static str) -> Row {
    Row { few: 100, many: 300, ..tcp(name) }
}

/// A burst of 32 datagrams.
const fn udp(name: &'static str) -> Row {
    Row { bench: "udp", name, few: 50, many: 150, each: 32 }
}

const ROWS: [Row; 16] = [
    tcp("Floodwall IPv4 ping-pong."),
    tcp("Floodwall IPv6 ping-pong."),
    tcp("Floodwall IPv4 connections."),
    tcp("Floodwall IPv6 connections."),
    at_once("Floodwall IPv4 connections, 64 at once"),
    at_once("Floodwall IPv6 connections, 64 at once"),
    bulk("Floodwall IPv4 bulk."),
    bulk("Floodwall IPv6 bulk."),
    tcp("smoltcp IPv4 ping-pong."),
    tcp("smoltcp IPv4 connections."),
    udp("Floodwall IPv4 64 B, bare IP, singly"),
    udp("Floodwall IPv6 64 B, bare IP, singly"),
    udp("Floodwall IPv4 1472 B, bare IP, singly"),
    udp("smoltcp IPv4 64 B"),
    udp("smoltcp IPv6 64 B"),
    udp("smoltcp IPv4 1472 B"),
];

/// Those of lwIP's program, which knows its rows without its name.
const LWIP_ROWS: [Row; 10] = [
    tcp("IPv4 ping-pong"),
    tcp("IPv6 ping-pong"),
    tcp("IPv4 connections"),
    tcp("IPv6 connections"),
    at_once("IPv4 connections, 64 at once"),
    bulk("IPv4 bulk"),
    udp("IPv4 64 B"),
    udp("IPv6 64 B"),
    udp("IPv4 1472 B"),
    udp("IPv6 1452 B"),
];

/// Builds the benches and prints a line for each row with `only` in its name.
pub(crate) fn run(root: &Path, only: &str) -> Result<(), String> {
    for bench in ["tcp", "udp"] {
        let rows = ROWS.iter().filter(|row| row.bench == bench && row.name.contains(only));
        let rows: Vec<&Row> = rows.collect();
        if rows.is_empty() {
            continue;
        }
        let path = build(root, bench)?;
        for Row { name, few, many, each, .. } in rows {
            print(name, difference(&path, name, [*few, *many])? / each);
        }
    }
    lwip(only)
}

/// lwIP's rows, if it has been built.
fn lwip(only: &str) -> Result<(), String> {
    let rows = LWIP_ROWS.iter().filter(|row| format!("lwIP {}", row.name).contains(only));
    for Row { name, few, many, each, .. } in rows {
        let Some(path) = lwip::driver(lwip::ROOMS[0]) else {
            println!("lwIP is skipped: `cargo xtask lwip` builds it");
            break;
        };
        let path = path.to_string_lossy();
        print(&format!("lwIP {name}"), difference(&path, name, [*few, *many])? / each);
    }
    Ok(())
}

fn print(name: &str, cost: u64) {
    println!("{:40} {cost:>8} instructions", name.trim_end_matches('.'));
}

/// What one executes, by the difference of two runs.
fn difference(path: &str, name: &str, [few, many]: [u64; 2]) -> Result<u64, String> {
    Ok(count(path, name, many)?.saturating_sub(count(path, name, few)?) / (many - few))
}

/// Builds a bench; returns the path of its program.
fn build(root: &Path, bench: &str) -> Result<String, String> {
    let build = ["bench", "-p", "floodwall-stack", "--bench", bench, "--no-run"];
    let mut cargo = Command::new("cargo");
    let built = capture(cargo.args(build).arg("--message-format=json").current_dir(root))?;
    let name = format!("\"name\":\"{bench}\"");
    let lines = built.lines().filter(|line| line.contains(&name));
    let path = lines.filter_map(|line| line.split("\"executable\":\"").nth(1)).next_back();
    let path = path.and_then(|rest| rest.split('"').next()).ok_or("cargo names no executable")?;
    Ok(path.to_owned())
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
