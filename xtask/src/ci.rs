//! Everything that must hold before a change is taken, in order, with the time of each step.
//!
//! Called by `.ci/run` as `cargo run -p xtask -- ci`, and by hand with the names of single steps. A
//! failed step does not stop the next ones: one run tells the whole story, the exit code its end.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// One step: a name to call it by, and what it runs.
struct Step {
    name: &'static str,
    what: &'static str,
    run: Run,
}

enum Run {
    /// A cargo command with its environment.
    Cargo(&'static [&'static str], &'static [(&'static str, &'static str)]),
    /// Cargo commands whose target folder must not be shared, because their flags differ.
    Apart(
        &'static str,
        &'static [&'static [&'static str]],
        &'static [(&'static str, &'static str)],
    ),
    /// A check of this very program.
    Own(fn(&Path) -> bool),
}

const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        what: "cargo fmt --all -- --check",
        run: Run::Cargo(&["fmt", "--all", "--", "--check"], &[]),
    },
    Step { name: "layers", what: "imports go down the shelves", run: Run::Own(crate::layers) },
    Step { name: "tidy", what: "the rules that no compiler checks", run: Run::Own(crate::tidy) },
    Step {
        name: "clippy",
        what: "cargo clippy --workspace --all-targets -- -D warnings",
        run: Run::Cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[]),
    },
    Step {
        name: "test",
        what: "cargo test --workspace",
        run: Run::Cargo(&["test", "--workspace"], &[("FLOODWALL_APART", "interop")]),
    },
    // Its tests mostly wait, for the kernel and for the tools of others: two at a time, as many as
    // a small machine has cores, they last three times as long as six at a time.
    Step {
        name: "interop",
        what: "cargo test --workspace --test interop -- --test-threads=6",
        run: Run::Cargo(
            &["test", "--workspace", "--test", "interop", "--", "--test-threads=6"],
            &[],
        ),
    },
    Step {
        name: "doc",
        what: "RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps",
        run: Run::Cargo(&["doc", "--workspace", "--no-deps"], &[("RUSTDOCFLAGS", "-Dwarnings")]),
    },
    Step {
        name: "loom",
        what: "RUSTFLAGS=\"--cfg loom\" LOOM_MAX_PREEMPTIONS=2 cargo test --release --lib \
               -p floodwall-sync -p floodwall-packet; --test reader_and_writer -p floodwall-fib",
        run: Run::Apart(
            "loom",
            &[
                &["test", "--release", "--lib", "-p", "floodwall-sync", "-p", "floodwall-packet"],
                &["test", "--release", "--test", "reader_and_writer", "-p", "floodwall-fib"],
            ],
            &[
                ("RUSTFLAGS", "--cfg loom"),
                ("LOOM_MAX_PREEMPTIONS", "2"),
                // The models are small and the optimiser's last tenth is not worth its minutes.
                ("CARGO_PROFILE_RELEASE_LTO", "off"),
                ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
            ],
        ),
    },
];

/// Runs the named steps, or all; true if every one of them passed.
pub(crate) fn run(root: &Path, names: &[String]) -> Result<bool, String> {
    if let Some(unknown) = names.iter().find(|name| !STEPS.iter().any(|step| step.name == **name)) {
        let known: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        return Err(format!("no step is called {unknown}; there are {}", known.join(", ")));
    }
    let wanted = |step: &&Step| names.is_empty() || names.iter().any(|name| name == step.name);
    let steps: Vec<&Step> = STEPS.iter().filter(wanted).collect();
    let mut results = Vec::with_capacity(steps.len());
    for (number, step) in steps.iter().enumerate() {
        println!("\n==> [{}/{}] {}: {}", number + 1, steps.len(), step.name, step.what);
        let start = now();
        let passed = step.run(root);
        let took = start.elapsed();
        println!("<== {}: {} in {}", step.name, verdict(passed), seconds(took));
        results.push((step.name, passed, took));
    }
    println!("\n    step      result       time");
    for (name, passed, took) in &results {
        println!("    {name:<8}  {:<6}  {:>9}", verdict(*passed), seconds(*took));
    }
    let total: Duration = results.iter().map(|(_, _, took)| *took).sum();
    let passed = results.iter().all(|(_, passed, _)| *passed);
    println!("    {:<8}  {:<6}  {:>9}", "all", verdict(passed), seconds(total));
    Ok(passed)
}

impl Step {
    fn run(&self, root: &Path) -> bool {
        match self.run {
            Run::Own(check) => check(root),
            Run::Cargo(arguments, environment) => cargo(root, arguments, environment, None),
            Run::Apart(folder, commands, environment) => commands.iter().all(|arguments| {
                cargo(root, arguments, environment, Some(target(root).join(folder)))
            }),
        }
    }
}

fn cargo(root: &Path, arguments: &[&str], vars: &[(&str, &str)], target: Option<PathBuf>) -> bool {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root);
    for (name, value) in vars {
        // Whoever sets a variable means it; flags are the exception, they make the step what it is.
        if name.ends_with("FLAGS") || env::var_os(name).is_none() {
            command.env(name, value);
        }
    }
    if let Some(target) = target {
        command.env("CARGO_TARGET_DIR", target);
    }
    match command.status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("cannot run cargo {}: {error}", arguments.join(" "));
            false
        }
    }
}

/// The target folder in force.
pub(crate) fn target(root: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

#[expect(clippy::disallowed_methods, reason = "a person waits for these steps: real time is meant")]
fn now() -> Instant {
    Instant::now()
}

fn verdict(passed: bool) -> &'static str {
    if passed { "ok" } else { "FAILED" }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_step_is_an_error_that_lists_the_known_ones() {
        let error = run(&crate::root(), &["tset".to_owned()]).unwrap_err();
        assert!(error.contains("tset") && error.contains("test"), "{error}");
    }

    #[test]
    fn the_steps_say_what_they_run() {
        for step in STEPS {
            if let Run::Cargo(arguments, _) = &step.run {
                let line = format!("cargo {}", arguments.join(" "));
                assert!(step.what.ends_with(&line), "{}: {line}", step.name);
            }
        }
    }
}
