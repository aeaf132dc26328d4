//! `sanitize thread|address [crate ...]`: the tests under ThreadSanitizer or AddressSanitizer.
//!
//! Called by hand and by whoever judges a release; not a step of `ci`, because it builds the house
//! once more with other flags. Invariant: the stable toolchain that builds the house is the one
//! that is used here, without parts that have to be installed: where it brings no runtime of the
//! sanitizer, the command says so and runs nothing.
//! Not here: loom, which is a step of `ci`, and the fuzz targets (`fuzz/`).
//!
//! # What it can see
//!
//! The standard library as shipped is not instrumented. AddressSanitizer loses little by that: its
//! allocator and the code compiled here are. ThreadSanitizer does not see orders that only the
//! library's own atomics and fences make. Our locks are therefore built from atomics here (`--cfg
//! sanitized`, `floodwall_sync::lock`), and tokio's are those of parking_lot. What is left stands
//! in `.ci/tsan.supp`, each alarm with its reason; nothing of ours may be added to it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::ci;

/// What is run where no crate is named.
const THREAD: &[Job] = &[
    Job(&["floodwall-sync"], &["--lib"]),
    Job(&["floodwall-packet"], &["--lib", "--tests"]),
    Job(&["floodwall-fib"], &["--lib", "--", "of_other_threads", "answers_are_whole"]),
    Job(&["floodwall-stack"], &["--lib"]),
    Job(&["floodwall-dispatch"], &["--lib", "--", "--skip", PACE]),
    SOCKETS,
    SCENES,
];

/// As above: the crates with `unsafe` and those that work on their memory.
const ADDRESS: &[Job] = &[
    Job(&["floodwall-checksum", "floodwall-sync", "floodwall-packet"], &["--lib", "--tests"]),
    Job(&["floodwall-device", "floodwall-fib", "floodwall-stack", "floodwall-udp"], &["--lib"]),
    Job(&["floodwall-dispatch"], &["--lib", "--", "--skip", PACE]),
    SOCKETS,
    SCENES,
];

/// What part of real time a worker leaves to others: code that is ten times slower than the product
/// has nothing to say about it.
const PACE: &str = "leaves_the_promised_part";

/// Sockets of programs on tokio, whose own locks are compiled here as well.
const SOCKETS: Job =
    Job(&["floodwall-tokio-sockets"], &["--lib", "--tests", "--features=visible-locks"]);

/// Whole hosts with real threads.
const SCENES: Job = Job(
    &["floodwall-tests"],
    &["--test=remote", "--test=shards", "--test=shards_threads", "--test=reclaim"],
);

/// Packages, and which of their tests.
struct Job(&'static [&'static str], &'static [&'static str]);

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sanitizer {
    Thread,
    Address,
}

impl Sanitizer {
    fn named(name: &str) -> Option<Self> {
        match name {
            "thread" => Some(Self::Thread),
            "address" => Some(Self::Address),
            _ => None,
        }
    }

    /// The end of its runtime's file name, which is its folder's name too.
    const fn short(self) -> &'static str {
        match self {
            Self::Thread => "tsan",
            Self::Address => "asan",
        }
    }

    const fn flags(self) -> &'static str {
        match self {
            // The library as shipped counts as another ABI; nothing of it passes by value what
            // the sanitizer changes.
            Self::Thread => {
                "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg sanitized"
            }
            Self::Address => "-Zsanitizer=address --cfg sanitized",
        }
    }

    /// Its options in the environment: name and value.
    fn options(self, root: &Path) -> (&'static str, String) {
        match self {
            Self::Thread => {
                let list = root.join(".ci/tsan.supp");
                ("TSAN_OPTIONS", format!("suppressions={} history_size=7", list.display()))
            }
            Self::Address => ("ASAN_OPTIONS", "detect_stack_use_after_return=1".to_owned()),
        }
    }

    const fn jobs(self) -> &'static [Job] {
        match self {
            Self::Thread => THREAD,
            Self::Address => ADDRESS,
        }
    }
}

/// Runs it; true if no test failed and the sanitizer saw nothing. An error where it cannot be run.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<bool, String> {
    let Some((name, crates)) = arguments.split_first() else {
        return Err("sanitize: which one, thread or address?".to_owned());
    };
    let sanitizer = Sanitizer::named(name)
        .ok_or_else(|| format!("sanitize: no sanitizer is called {name}; thread or address"))?;
    let packages = crates.iter().map(|name| package(root, name)).collect::<Result<Vec<_>, _>>()?;
    let host = runtime(sanitizer)?;
    let commands: Vec<Vec<String>> = if packages.is_empty() {
        sanitizer.jobs().iter().map(|Job(packages, which)| command(packages, which)).collect()
    } else {
        vec![command(&packages, &["--lib", "--tests"])]
    };
    let mut passed = true;
    for arguments in commands {
        passed &= test(root, sanitizer, &host, &arguments)?;
    }
    println!("sanitize {name}: {}", if passed { "clean" } else { "FAILED, see above" });
    Ok(passed)
}

/// The package that a crate's folder or its full name stands for.
fn package(root: &Path, name: &str) -> Result<String, String> {
    let short = name.strip_prefix("floodwall-").unwrap_or(name);
    let known = root.join("crates").join(short).is_dir() || root.join(short).is_dir();
    if !known {
        return Err(format!("sanitize: there is no crate {name}"));
    }
    Ok(if short == "floodwall" { short.to_owned() } else { format!("floodwall-{short}") })
}

fn command(packages: &[impl AsRef<str>], which: &[&str]) -> Vec<String> {
    let packages = packages.iter().map(|name| format!("--package={}", name.as_ref()));
    packages.chain(which.iter().map(|word| (*word).to_owned())).collect()
}

/// The host's triple, if the toolchain has the sanitizer's runtime for it.
fn runtime(sanitizer: Sanitizer) -> Result<String, String> {
    let version = ask(&["-vV"])?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.ok_or("sanitize: rustc does not say for which machine it compiles")?.to_owned();
    let sysroot = ask(&["--print", "sysroot"])?;
    let folder = PathBuf::from(sysroot.trim()).join("lib/rustlib").join(&host).join("lib");
    let end = format!("_rt.{}.a", sanitizer.short());
    let names = folder.read_dir().map_err(|e| format!("sanitize: {}: {e}", folder.display()))?;
    if names.flatten().any(|file| file.file_name().to_string_lossy().ends_with(&end)) {
        return Ok(host);
    }
    Err(format!(
        "sanitize: this toolchain has no {sanitizer:?}Sanitizer for {host}: no *{end} in {}. \
         The toolchains that rustup installs for x86_64-unknown-linux-gnu have it; those that \
         Linux distributions build often do not.",
        folder.display()
    ))
}

/// What rustc prints.
fn ask(arguments: &[&str]) -> Result<String, String> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(arguments).output();
    let output = output.map_err(|e| format!("sanitize: rustc cannot be run: {e}"))?;
    String::from_utf8(output.stdout).map_err(|_| "sanitize: rustc prints no text".to_owned())
}

fn test(root: &Path, sanitizer: Sanitizer, host: &str, which: &[String]) -> Result<bool, String> {
    println!("\n==> {sanitizer:?}Sanitizer: cargo test {}", which.join(" "));
    let (options, value) = sanitizer.options(root);
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).args(["test", "--no-fail-fast", "--target", host]).args(which);
    command.env("RUSTFLAGS", sanitizer.flags()).env("RUSTC_BOOTSTRAP", "1");
    command.env("CARGO_TARGET_DIR", ci::target(root).join(sanitizer.short()));
    if env::var_os(options).is_none() {
        command.env(options, value);
    }
    let status = command.status().map_err(|e| format!("sanitize: cargo cannot be run: {e}"))?;
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn what_cannot_be_run_is_refused_in_words() {
        let root = crate::root();
        let which = run(&root, &[]).unwrap_err();
        assert!(which.contains("thread or address"), "{which}");
        let memory = run(&root, &words(&["memory"])).unwrap_err();
        assert!(memory.contains("memory") && memory.contains("thread"), "{memory}");
        let nowhere = run(&root, &words(&["thread", "nowhere"])).unwrap_err();
        assert!(nowhere.contains("no crate nowhere"), "{nowhere}");
    }

    #[test]
    fn every_package_that_is_run_unasked_exists() {
        for Job(packages, _) in THREAD.iter().chain(ADDRESS) {
            for name in *packages {
                assert_eq!(package(&crate::root(), name).as_deref(), Ok(*name));
            }
        }
    }

    #[test]
    fn nothing_of_ours_is_among_the_suppressions() {
        let list = std::fs::read_to_string(crate::root().join(".ci/tsan.supp")).unwrap();
        for line in list.lines().filter(|line| !line.starts_with('#')) {
            assert!(!line.contains("floodwall"), "{line}");
        }
    }
}
