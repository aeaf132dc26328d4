//! `pkt`: plays scripts in packetdrill's dialect, one after another.
//!
//! Against Floodwall in memory, or with `--kernel` against the kernel: then each script gets a
//! network namespace of its own, on a thread of its own. Invariant: true only if every script
//! passed.

#![expect(clippy::disallowed_methods, reason = "a namespace belongs to a thread")]

use std::thread;

use floodwall_testkit::pkt::{Kernel, Memory, Script, parse, play};

/// Plays the scripts that the words name.
pub(crate) fn run(words: &[String]) -> Result<bool, String> {
    let (options, files): (Vec<&String>, Vec<&String>) =
        words.iter().partition(|word| word.starts_with("--"));
    let (mut is_kernel, mut is_ipv6) = (false, false);
    for option in options {
        match option.as_str() {
            "--kernel" => is_kernel = true,
            "--ipv6" => is_ipv6 = true,
            other => return Err(format!("pkt: unknown option {other}")),
        }
    }
    if files.is_empty() {
        return Err("pkt: name a script".to_owned());
    }
    let mut passed = true;
    for file in files {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
        let outcome = parse(&text).map_err(|error| error.to_string()).and_then(|script| {
            let script = if is_ipv6 { script.over_ipv6() } else { script };
            let player = thread::spawn(move || match is_kernel {
                true => on_kernel(&script),
                false => in_memory(&script),
            });
            player.join().unwrap_or_else(|_| Err("the runner panicked".to_owned()))
        });
        match outcome {
            Ok(()) => println!("{file}: passed"),
            Err(why) => {
                println!("{file}: {why}");
                passed = false;
            }
        }
    }
    Ok(passed)
}

fn in_memory(script: &Script) -> Result<(), String> {
    let mut memory = Memory::new(script)?;
    play(script, &mut memory).map_err(|failure| failure.to_string())
}

fn on_kernel(script: &Script) -> Result<(), String> {
    Kernel::own_namespace()?;
    let mut kernel = Kernel::new(script)?;
    play(script, &mut kernel).map_err(|failure| failure.to_string())
}
