//! `sanitize thread|address [crate ...]`: the tests under ThreadSanitizer or AddressSanitizer.
//!
//! Called by hand before a release; not a step of `ci`, because it builds the workspace once more
//! with other flags. Invariant: the stable toolchain that builds the workspace is the one that is
//! used here, without parts that have to be installed: where it brings no runtime of the sanitizer,
//! the command reports this and runs nothing. Not here: loom, which is a step of `ci`, and the fuzz
//! targets (`fuzz/`).
//!
//! # What it can see
//!
//! The standard library as shipped is not instrumented. AddressSanitizer loses little by that: its
//! allocator and the code compiled here are. ThreadSanitizer does not see orders that only the
//! library's own atomics and fences make. Our locks are therefore built from atomics here (`--cfg
//! sanitized`, `floodwall_sync::lock`), and tokio's are those of parking_lot. What is left stands
//! in `.ci/tsan.supp`, each alarm with its reason; nothing of ours may be added to it.

mod tally;

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::ci;
use tally::Tally;

/// What is run where no crate is named.
const THREAD: &[Job] = &[
    Job("floodwall-sync", LIB_AND_TESTS),
    Job("floodwall-packet", LIB_AND_TESTS),
    Job("floodwall-fib", LIB_AND_TESTS),
    Job("floodwall-udp", LIB),
    Job("floodwall-device", LIB),
    Job("floodwall-remote", LIB),
    Job("floodwall-stack", LIB),
    Job("floodwall-dispatch", BUT_PACE),
    SOCKETS,
    SCENES,
];

/// As above: the crates with `unsafe` and those that work on their memory.
const ADDRESS: &[Job] = &[
    Job("floodwall-checksum", LIB_AND_TESTS),
    Job("floodwall-sync", LIB_AND_TESTS),
    Job("floodwall-packet", LIB_AND_TESTS),
    Job("floodwall-fib", LIB_AND_TESTS),
    Job("floodwall-udp", LIB),
    Job("floodwall-tcp", LIB),
    Job("floodwall-device", LIB_AND_TESTS),
    Job("floodwall-remote", LIB),
    Job("floodwall-stack", LIB),
    Job("floodwall-dispatch", BUT_PACE),
    SOCKETS,
    SCENES,
];

const LIB: &[&str] = &["--lib"];
const LIB_AND_TESTS: &[&str] = &["--lib", "--tests"];

/// All but what part of real time a worker leaves to others: code that is ten times slower than
/// the product has nothing to say about it.
const BUT_PACE: &[&str] = &["--lib", "--", "--skip", "leaves_the_reserved_part"];

/// Sockets of programs on tokio; tokio's own locks are compiled here as well.
const SOCKETS: Job =
    Job("floodwall-tokio-sockets", &["--lib", "--tests", "--features=visible-locks"]);

/// Whole hosts with real threads.
const SCENES: Job = Job(
    "floodwall-tests",
    &["--test=remote", "--test=shards", "--test=shards_threads", "--test=reclaim"],
);

/// A package, and which of its tests.
#[derive(Clone, Copy, Debug)]
struct Job(&'static str, &'static [&'static str]);

/// Where the deliberate faults are, and the text of each one's report.
const FAULTS: (&str, &str) = ("floodwall-sync", "--test=sanitizers");

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

    /// What it must report before its silence counts: a test's name, and words of the report.
    const fn faults(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Thread => &[("race", "WARNING: ThreadSanitizer: data race")],
            Self::Address => &[
                ("leak", "ERROR: LeakSanitizer: detected memory leaks"),
                ("use_after_free", "ERROR: AddressSanitizer: heap-use-after-free"),
            ],
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
    let bench = Bench { root, sanitizer, host };
    for fault in sanitizer.faults() {
        bench.must_report(*fault)?;
    }
    let mut rows = Vec::new();
    for (package, which) in jobs(sanitizer, packages) {
        let row = bench.test(package, which)?;
        println!("{row}");
        rows.push(row);
    }
    Ok(report(name, &rows))
}

/// What is to be run: of the packages named, or of all that matter. A package is run as the list
/// has it; wholly, where the list does not have it.
fn jobs(sanitizer: Sanitizer, named: Vec<String>) -> Vec<(String, &'static [&'static str])> {
    if named.is_empty() {
        return sanitizer
            .jobs()
            .iter()
            .map(|Job(name, which)| ((*name).to_owned(), *which))
            .collect();
    }
    let which = |package: &str| {
        let listed = sanitizer.jobs().iter().find(|Job(name, _)| *name == package);
        listed.map_or(LIB_AND_TESTS, |Job(_, which)| *which)
    };
    named.into_iter().map(|package| (package.clone(), which(&package))).collect()
}

/// The table of what was run; true if all of it is clean.
fn report(name: &str, rows: &[Row]) -> bool {
    println!("\n{:<26} {:>6} {:>6} {:>8} {:>8}", name, "tests", "failed", "left out", "reports");
    rows.iter().for_each(|row| println!("{row}"));
    let all = rows.iter().fold(Tally::default(), |all, row| all.and(row.tally));
    let (crates, clean) = (rows.len(), !rows.is_empty() && rows.iter().all(Row::is_clean));
    let verdict = if clean { "clean" } else { "FAILED, see above" };
    println!(
        "sanitize {name}: {crates} crates, {} tests, {} failed, {} reports: {verdict}",
        all.passed + all.failed,
        all.failed,
        all.reports
    );
    clean
}

/// What came of one package's tests.
struct Row {
    package: String,
    tally: Tally,
    /// Whether cargo and all that it ran ended well.
    ended_well: bool,
    took: Duration,
}

impl Row {
    fn is_clean(&self) -> bool {
        self.ended_well && self.tally.is_clean()
    }
}

impl core::fmt::Display for Row {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Tally { passed, failed, left_out, reports } = self.tally;
        let (tests, package) = (passed + failed, &self.package);
        let verdict = if self.is_clean() { "clean" } else { "FAILED" };
        write!(f, "{package:<26} {tests:>6} {failed:>6} {left_out:>8} {reports:>8}  {verdict}")?;
        write!(f, ", {} s with the build", self.took.as_secs())
    }
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

/// Where and how tests are run under one sanitizer.
struct Bench<'a> {
    root: &'a Path,
    sanitizer: Sanitizer,
    host: String,
}

impl Bench<'_> {
    /// Runs the tests of one package.
    fn test(&self, package: String, which: &[&str]) -> Result<Row, String> {
        println!(
            "\n==> {:?}Sanitizer: cargo test -p {package} {}",
            self.sanitizer,
            which.join(" ")
        );
        let (from, mut tally) = (now(), Tally::default());
        let ended_well = self.cargo_test(&package, which, |line| {
            println!("{line}");
            tally.line(line);
        })?;
        Ok(Row { package, tally, ended_well, took: from.elapsed() })
    }

    /// Commits a fault on purpose.
    ///
    /// # Errors
    /// It is not reported: then no silence means anything.
    fn must_report(&self, (fault, words): (&str, &str)) -> Result<(), String> {
        let (package, file) = FAULTS;
        let (mut seen, mut lines) = (false, Vec::new());
        let which = [file, "--", "--ignored", "--exact", fault];
        let ended_well = self.cargo_test(package, &which, |line| {
            seen |= line.contains(words);
            lines.push(line.to_owned());
        })?;
        if ended_well || !seen {
            let lines = lines.join("\n");
            return Err(format!("{lines}\nsanitize: a {fault} on purpose was not reported"));
        }
        println!("sanitize: a {fault} on purpose is reported");
        Ok(())
    }

    /// Shows each line of output to `see` as it comes; whether it ended well.
    fn cargo_test(
        &self,
        package: &str,
        which: &[&str],
        mut see: impl FnMut(&str),
    ) -> Result<bool, String> {
        let failed = |e: io::Error| format!("sanitize: cargo cannot be run: {e}");
        let (lines, writer) = io::pipe().map_err(failed)?;
        let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(self.root).args(["test", "--no-fail-fast", "--target", &self.host]);
        command.arg(format!("--package={package}")).args(which);
        command.env("RUSTFLAGS", self.sanitizer.flags()).env("RUSTC_BOOTSTRAP", "1");
        command.env("CARGO_TARGET_DIR", ci::target(self.root).join(self.sanitizer.short()));
        let (options, value) = self.sanitizer.options(self.root);
        if env::var_os(options).is_none() {
            command.env(options, value);
        }
        command.stdout(writer.try_clone().map_err(failed)?).stderr(writer);
        let mut child = command.spawn().map_err(failed)?;
        // Its ends of the pipe are closed with it; then the lines end with the last of its tests.
        drop(command);
        for line in BufReader::new(lines).split(b'\n') {
            see(&String::from_utf8_lossy(&line.map_err(failed)?));
            // Flushed at once, for interactive use.
            io::stdout().flush().map_err(failed)?;
        }
        Ok(child.wait().map_err(failed)?.success())
    }
}

#[expect(clippy::disallowed_methods, reason = "a person waits for these runs: real time is meant")]
fn now() -> Instant {
    Instant::now()
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
        for Job(name, _) in THREAD.iter().chain(ADDRESS) {
            assert_eq!(package(&crate::root(), name).as_deref(), Ok(*name));
        }
    }

    #[test]
    fn a_package_that_is_named_is_run_as_the_list_has_it() {
        let named = words(&["floodwall-tokio-sockets", "floodwall-syncache"]);
        let [sockets, other] = &jobs(Sanitizer::Thread, named)[..] else { panic!("two jobs") };
        assert!(sockets.1.contains(&"--features=visible-locks"), "{sockets:?}");
        assert_eq!(*other, ("floodwall-syncache".to_owned(), LIB_AND_TESTS));
        assert_eq!(jobs(Sanitizer::Address, Vec::new()).len(), ADDRESS.len());
    }

    #[test]
    fn the_whole_is_clean_only_if_every_row_is() {
        let row = |passed, ended_well| Row {
            package: "floodwall-sync".to_owned(),
            tally: Tally { passed, ..Tally::default() },
            ended_well,
            took: Duration::ZERO,
        };
        assert!(report("thread", &[row(3, true), row(4, true)]));
        assert!(!report("thread", &[row(3, true), row(0, true)]), "nothing was run");
        assert!(!report("thread", &[row(3, true), row(4, false)]), "it did not end well");
        assert!(!report("thread", &[]), "nothing at all");
    }

    #[test]
    fn nothing_of_ours_is_among_the_suppressions() {
        let list = std::fs::read_to_string(crate::root().join(".ci/tsan.supp")).unwrap();
        for line in list.lines().filter(|line| !line.starts_with('#')) {
            assert!(!line.contains("floodwall"), "{line}");
        }
    }
}
