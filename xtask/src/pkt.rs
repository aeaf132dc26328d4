//! `pkt`: plays scripts in packetdrill's dialect, one after another.
//!
//! Against Floodwall in memory, or with `--kernel` against the kernel: then each script gets a
//! network namespace of its own, on a thread of its own. Other options are packetdrill's own, and
//! override those of the scripts. Without a file: our own scripts against both, over both families,
//! and a summary (`pkt/compare.rs`). Invariant: true only if every script passed; without a file,
//! where the kernel may differ as it is known to.

#![expect(clippy::disallowed_methods, reason = "a namespace belongs to a thread")]

mod compare;

use std::path::Path;
use std::thread;

use floodwall_testkit::pkt::{
    Backend, Kernel, Memory, Script, Traced, parse_with, play, takes_value,
};

/// The text of `--help`.
const HELP: &str = "\
Plays scripts in packetdrill's dialect.

usage: cargo xtask pkt [OPTION]... [FILE.pkt]...

Without a file: the scripts of tests/conformance/tcp in memory and against the kernel, over both
families, and a summary.

  --kernel          against the kernel, each script in a network namespace of its own (as root)
  --ipv6            over IPv6
  -v, --verbose     say every packet and call, also what the script does not ask for
  -D NAME=VALUE     NAME stands for VALUE in the scripts
  -h, --help        this text

Other options are packetdrill's own, such as --tolerance_usecs=N, and override the script's.
Exit code: 0 only if every script passed.";

/// Plays the scripts that the words name, or our own ones.
pub(crate) fn run(root: &Path, words: &[String]) -> Result<bool, String> {
    if words.is_empty() {
        return compare::run(&root.join("tests/conformance/tcp"));
    }
    if words.iter().any(|word| word == "-h" || word == "--help") {
        println!("{HELP}");
        return Ok(true);
    }
    let (mut is_kernel, mut is_ipv6, mut is_verbose) = (false, false, false);
    let (mut options, mut files) = (Vec::new(), Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--kernel" => is_kernel = true,
            "--ipv6" => is_ipv6 = true,
            "-v" | "--verbose" => is_verbose = true,
            "-D" | "--define" => {
                options.push(word.clone());
                options.extend(words.next().cloned());
            }
            word if word.strip_prefix("--").is_some_and(takes_value) => {
                options.push(word.to_owned());
                options.extend(words.next().cloned());
            }
            // Drivers give several options in one word.
            word if word.starts_with('-') => {
                options.extend(word.split_whitespace().map(str::to_owned));
            }
            file => files.push(file),
        }
    }
    if files.is_empty() {
        return Err("pkt: name a script; see `cargo xtask pkt --help`".to_owned());
    }
    let mut passed = true;
    for file in files {
        let text = std::fs::read(file).map_err(|error| format!("{file}: {error}"))?;
        let text = String::from_utf8_lossy(&text).into_owned();
        match parse_with(&text, &options) {
            Ok(script) => {
                let script = if is_ipv6 { script.over_ipv6() } else { script };
                let how = if is_kernel { "the kernel" } else { script.profile().describe() };
                let outcome = play_one(script, is_kernel, is_verbose);
                passed &= outcome.is_ok();
                let outcome = outcome.map_or_else(|why| why, |()| "passed".to_owned());
                println!("{file}: {outcome} [{how}]");
            }
            Err(why) => {
                println!("{file}: {why}");
                passed = false;
            }
        }
    }
    Ok(passed)
}

/// Plays a script, on a thread of its own.
fn play_one(script: Script, is_kernel: bool, is_verbose: bool) -> Result<(), String> {
    let player = thread::spawn(move || match is_kernel {
        true => {
            Kernel::own_namespace()?;
            play_on(&mut Kernel::new(&script)?, &script, is_verbose)
        }
        false => play_on(&mut Memory::new(&script)?, &script, is_verbose),
    });
    player.join().unwrap_or_else(|_| Err("the runner panicked".to_owned()))
}

fn play_on(backend: &mut dyn Backend, script: &Script, is_verbose: bool) -> Result<(), String> {
    let outcome = if is_verbose {
        let mut say = |line: &str| println!("{line}");
        let mut traced = Traced::new(backend, &mut say);
        let outcome = play(script, &mut traced);
        traced.end();
        outcome
    } else {
        play(script, backend)
    };
    outcome.map_err(|failure| failure.to_string())
}
