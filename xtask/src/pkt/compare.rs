//! Our own scripts against Floodwall in memory and against the kernel, and what differs.
//!
//! Called by `cargo xtask pkt` without a file. A script's play on the kernel takes real time: some
//! are played at once, and one that fails is played again, for a busy machine makes it late.

use std::path::Path;
use std::thread;

use floodwall_testkit::pkt::{
    KERNEL_DIFFERS, Kernel, Script, is_of_other_family, kernel_differs, parse,
};

/// Plays at a time.
const AT_ONCE: usize = 8;
/// Tries before the kernel is said to differ.
const TRIES: usize = 3;

/// One play: a script's name and family, and the script.
type Play = (String, Script);

/// How it went on the kernel.
enum Kernels {
    Passed,
    Differs(String),
}

/// Plays everything; prints a line for each difference, and a summary.
pub(super) fn run(folder: &Path) -> Result<bool, String> {
    let plays = plays(folder)?;
    let failed: Vec<String> = plays
        .iter()
        .filter_map(|(name, script)| {
            let why = super::play_one(script.clone(), false, false).err()?;
            Some(format!("{name}: {why}"))
        })
        .collect();
    for line in &failed {
        println!("in memory: {line}");
    }
    println!("in memory: {} of {} pass", plays.len() - failed.len(), plays.len());
    let mut good = failed.is_empty();
    if let Err(why) = thread::spawn(Kernel::own_namespace).join().unwrap_or(Ok(())) {
        println!("kernel: not played: {why}");
        return Ok(good);
    }
    // What a block of code asserts is our own state.
    let plays: Vec<Play> = plays.into_iter().filter(|(_, script)| !script.has_code()).collect();
    let (mut passed, mut known) = (0, 0);
    for ((name, script), outcome) in plays.iter().zip(on_kernel(&plays)) {
        let why = kernel_differs(name.split(' ').next().unwrap_or_default());
        let outcome = match outcome {
            // Alone on the machine: what is late by others' work is not by itself.
            Kernels::Differs(_) if why.is_none() => tried(script),
            outcome => outcome,
        };
        match (outcome, why) {
            (Kernels::Passed, None) => passed += 1,
            (Kernels::Passed, Some(why)) => {
                passed += 1;
                println!("kernel: {name} passes this time, listed as: {why}");
            }
            (Kernels::Differs(_), Some(why)) => {
                known += 1;
                println!("kernel: {name} differs: {why}");
            }
            (Kernels::Differs(line), None) => {
                good = false;
                println!("kernel: {name} differs, without a known reason: {line}");
            }
        }
    }
    let reasons = KERNEL_DIFFERS.len();
    let all = plays.len();
    println!("kernel: {passed} of {all} pass, {known} differ by {reasons} known reasons");
    Ok(good)
}

/// Every script of the folder, over each family that it is of.
fn plays(folder: &Path) -> Result<Vec<Play>, String> {
    let entries = std::fs::read_dir(folder);
    let entries = entries.map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths: Vec<_> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
    paths.sort();
    let mut plays = Vec::new();
    for path in paths {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{name}: {error}"))?;
        let script = parse(&text).map_err(|error| format!("{name}: {error}"))?;
        for is_ipv6 in [false, true] {
            if !is_of_other_family(&name, is_ipv6) {
                let family = if is_ipv6 { "over IPv6" } else { "over IPv4" };
                let script = if is_ipv6 { script.clone().over_ipv6() } else { script.clone() };
                plays.push((format!("{name} {family}"), script));
            }
        }
    }
    Ok(plays)
}

fn on_kernel(plays: &[Play]) -> Vec<Kernels> {
    let mut outcomes = Vec::new();
    for some in plays.chunks(AT_ONCE) {
        let begin = |(_, script): &Play| {
            let script = script.clone();
            thread::spawn(move || tried(&script))
        };
        let players: Vec<_> = some.iter().map(begin).collect();
        for player in players {
            let panicked = |_| Kernels::Differs("the runner panicked".to_owned());
            outcomes.push(player.join().unwrap_or_else(panicked));
        }
    }
    outcomes
}

/// Plays until it passes, a few times at most.
fn tried(script: &Script) -> Kernels {
    let mut last = String::new();
    for _ in 0..TRIES {
        match super::play_one(script.clone(), true, false) {
            Ok(()) => return Kernels::Passed,
            Err(why) => last = why,
        }
    }
    Kernels::Differs(last)
}
