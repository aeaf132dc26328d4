//! Everything that must hold before a change is taken, in order, with the time of each step.
//!
//! Called by `.ci/run` as `cargo run -p xtask -- ci`, and by hand with the names of single steps. A
//! failed step does not stop the next ones: one run reports every step, the exit code the result.
//! A failed test is run once more alone: it fails the step if it fails again, else the step is
//! reported as unstable, with the output of the failure.

mod again;
mod failures;

use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use failures::{Failures, Found};

/// One step: a name to call it by, and what it runs.
struct Step {
    name: &'static str,
    what: &'static str,
    run: Run,
    place: Place,
}

/// When a step runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// When the one before has ended, and what runs beside that.
    After,
    /// Beside the one before, which mostly waits: with what that leaves of the processor, and said
    /// when it has ended.
    Beside,
}

enum Run {
    /// A cargo command with its environment.
    Cargo(&'static [&'static str], &'static [(&'static str, &'static str)]),
    /// Cargo commands with a target folder that must not be shared, because their flags differ.
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
        place: Place::After,
    },
    Step {
        name: "layers",
        what: "imports go down the shelves",
        run: Run::Own(crate::layers),
        place: Place::After,
    },
    Step {
        name: "tidy",
        what: "the rules that no compiler checks",
        run: Run::Own(crate::tidy),
        place: Place::After,
    },
    Step {
        name: "test",
        what: "cargo test --workspace --no-fail-fast",
        run: Run::Cargo(
            &["test", "--workspace", "--no-fail-fast"],
            &[("FLOODWALL_APART", "waiting")],
        ),
        place: Place::After,
    },
    Step {
        name: "lib",
        what: "cargo test --workspace --lib",
        run: Run::Cargo(&["test", "--workspace", "--lib"], &[]),
        place: Place::After,
    },
    // These tests mostly wait, for the kernel, for other processes and for foreign tools: the
    // compilers of the next steps have the cores meanwhile, in the idle class. With those that need
    // the machine for themselves.
    Step {
        name: "interop",
        what: "FLOODWALL_ALONE=1 cargo test --workspace --no-fail-fast --test interop \
               --test daemon --test lab --test xdp_flood --test grace_period",
        run: Run::Cargo(
            &[
                "test",
                "--workspace",
                "--no-fail-fast",
                "--test",
                "interop",
                "--test",
                "daemon",
                "--test",
                "lab",
                "--test",
                "xdp_flood",
                "--test",
                "grace_period",
            ],
            &[("FLOODWALL_ALONE", "1")],
        ),
        place: Place::After,
    },
    // Their target folder is not the tests': a build in that one keeps others waiting.
    Step {
        name: "loom",
        what: "RUSTFLAGS=\"--cfg loom\" LOOM_MAX_PREEMPTIONS=2 cargo test --release --lib \
               -p floodwall-sync -p floodwall-packet; --test reader_and_writer -p floodwall-fib; \
               --test parallel -p floodwall-syncache",
        run: Run::Apart(
            "loom",
            &[
                &["test", "--release", "--lib", "-p", "floodwall-sync", "-p", "floodwall-packet"],
                &["test", "--release", "--test", "reader_and_writer", "-p", "floodwall-fib"],
                &["test", "--release", "--test", "parallel", "-p", "floodwall-syncache"],
            ],
            &[
                ("RUSTFLAGS", "--cfg loom"),
                ("LOOM_MAX_PREEMPTIONS", "2"),
                // The models are small and the optimiser's last tenth is not worth its minutes.
                ("CARGO_PROFILE_RELEASE_LTO", "off"),
                ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
            ],
        ),
        place: Place::Beside,
    },
    Step {
        name: "clippy",
        what: "cargo clippy --workspace --all-targets -- -D warnings",
        run: Run::Cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[]),
        place: Place::Beside,
    },
    Step {
        name: "doc",
        what: "RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps",
        run: Run::Cargo(&["doc", "--workspace", "--no-deps"], &[("RUSTDOCFLAGS", "-Dwarnings")]),
        place: Place::Beside,
    },
];

/// What `quick` stands for: the inner loop, without root.
const QUICK: &[&str] = &["fmt", "layers", "tidy", "lib"];

/// Runs the named steps, or all; true if every one of them passed.
pub(crate) fn run(root: &Path, names: &[String]) -> Result<bool, String> {
    let quick: Vec<String> = QUICK.iter().map(|name| (*name).to_owned()).collect();
    let names = if names == ["quick"] { quick.as_slice() } else { names };
    if let Some(unknown) = names.iter().find(|name| !STEPS.iter().any(|step| step.name == **name)) {
        let known: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        return Err(format!("no step is called {unknown}; there are {}", known.join(", ")));
    }
    // `test` runs what `lib` does.
    let all = |step: &Step| names.is_empty() && step.name != "lib";
    let wanted = |step: &&Step| all(step) || names.iter().any(|name| name == step.name);
    let steps: Vec<&Step> = STEPS.iter().filter(wanted).collect();
    let start = now();
    let mut ended = Vec::with_capacity(steps.len());
    for group in steps.chunk_by(|_, next| next.place == Place::Beside) {
        ended.extend(together(root, group));
    }
    for Ended { step, verdict, failures, .. } in ended.iter().filter(|ended| ended.said_more()) {
        println!("\n==> {} {}:", step.name, verdict.name());
        failures.iter().for_each(|line| println!("{line}"));
    }
    println!("\n    step      result        time");
    for Ended { step, verdict, took, .. } in &ended {
        println!("    {:<8}  {:<8}  {:>8}", step.name, verdict.name(), seconds(*took));
    }
    let worst = ended.iter().map(|ended| ended.verdict).max().unwrap_or(Verdict::Passed);
    println!("    {:<8}  {:<8}  {:>8}", "all", worst.name(), seconds(start.elapsed()));
    Ok(worst != Verdict::Failed)
}

/// How a step ended; the worst comes last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Passed,
    /// Tests failed, and each passed when it was run again alone.
    Unstable,
    Failed,
}

impl Verdict {
    fn of(passed: bool) -> Self {
        if passed { Self::Passed } else { Self::Failed }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Passed => "ok",
            Self::Unstable => "UNSTABLE",
            Self::Failed => "FAILED",
        }
    }
}

/// A step that has ended.
struct Ended<'a> {
    step: &'a Step,
    verdict: Verdict,
    took: Duration,
    /// Its failures in its output's own words.
    failures: Vec<String>,
}

/// The first step, and what runs beside it, one after the other.
fn together<'a>(root: &Path, steps: &[&'a Step]) -> Vec<Ended<'a>> {
    let Some((first, beside)) = steps.split_first() else { return Vec::new() };
    thread::scope(|scope| {
        let beside = scope.spawn(|| beside.iter().map(|step| step.take_quietly(root)).collect());
        let mut ended = vec![first.take(root)];
        let others: Vec<(Ended<'_>, String)> =
            beside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        for (other, said) in others {
            println!("\n==> {} (beside {}): {}", other.step.name, first.name, other.step.what);
            if other.verdict != Verdict::Passed {
                println!("{said}");
            }
            println!("{}", other.line());
            ended.push(other);
        }
        ended
    })
}

impl Ended<'_> {
    fn line(&self) -> String {
        format!("<== {}: {} in {}", self.step.name, self.verdict.name(), seconds(self.took))
    }

    /// Whether its failures are to be printed at the end of the run.
    fn said_more(&self) -> bool {
        self.verdict != Verdict::Passed && !self.failures.is_empty()
    }
}

impl Step {
    /// Runs it and passes on its output.
    fn take(&self, root: &Path) -> Ended<'_> {
        println!("\n==> {}: {}", self.name, self.what);
        let start = now();
        let mut found = Found::default();
        let passed = match self.run {
            Run::Own(check) => check(root),
            Run::Cargo(..) | Run::Apart(..) => {
                self.commands(root).iter_mut().all(|command| succeeds(command, &mut found))
            }
        };
        let verdict = match self.run {
            Run::Cargo(["test", ..], vars) if !passed && again::all_pass(root, &found, vars) => {
                Verdict::Unstable
            }
            _ => Verdict::of(passed),
        };
        let ended = Ended { step: self, verdict, took: start.elapsed(), failures: found.lines };
        println!("{}", ended.line());
        ended
    }

    /// Runs it with the time that others leave of the processor; returns its output too.
    fn take_quietly(&self, root: &Path) -> (Ended<'_>, String) {
        let start = now();
        let mut said = String::new();
        let passed = self.commands(root).iter_mut().all(|command| {
            let output = idle(command).output();
            let (passed, streams) = match &output {
                Ok(output) => (output.status.success(), [&output.stdout, &output.stderr]),
                Err(error) => {
                    said += &format!("cannot run {command:?}: {error}\n");
                    return false;
                }
            };
            streams.iter().for_each(|stream| said += &String::from_utf8_lossy(stream));
            passed
        });
        let mut failures = Failures::default();
        said.lines().for_each(|line| failures.line(line));
        let (verdict, failures) = (Verdict::of(passed), failures.into_found().lines);
        (Ended { step: self, verdict, took: start.elapsed(), failures }, said)
    }

    /// What it runs in turn; nothing where it is a check of this program.
    fn commands(&self, root: &Path) -> Vec<Command> {
        match self.run {
            Run::Own(_) => Vec::new(),
            Run::Cargo(arguments, environment) => vec![cargo(root, arguments, environment)],
            Run::Apart(folder, commands, environment) => {
                let apart = |arguments: &&'static [&'static str]| {
                    let mut command = cargo(root, arguments, environment);
                    command.env("CARGO_TARGET_DIR", target(root).join(folder));
                    command
                };
                commands.iter().map(apart).collect()
            }
        }
    }
}

fn cargo(root: &Path, arguments: &[&str], vars: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root);
    for (name, value) in vars {
        // A variable set by the caller is kept; flags are the exception, they make the step what it
        // is.
        if name.ends_with("FLAGS") || env::var_os(name).is_none() {
            command.env(name, value);
        }
    }
    command
}

/// Runs the command, passes its output on, and adds the failures in it.
fn succeeds(command: &mut Command, found: &mut Found) -> bool {
    let mut child = match command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(error) => {
            found.lines.push(format!("cannot run {command:?}: {error}"));
            return false;
        }
    };
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (of_stdout, of_stderr) = thread::scope(|scope| {
        let errors = scope.spawn(|| stderr.map(|stream| pass_on(stream, io::stderr())));
        let of_stdout = stdout.map(|stream| pass_on(stream, io::stdout()));
        (of_stdout, errors.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    [of_stdout, of_stderr].into_iter().flatten().for_each(|stream| found.add(stream));
    child.wait().is_ok_and(|status| status.success())
}

/// Copies the stream, line by line, up to its end; returns the failures in it.
fn pass_on(stream: impl Read, mut to: impl Write) -> Found {
    let mut failures = Failures::default();
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    while stream.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        // A closed output is no reason to stop the run.
        let _ = to.write_all(&line);
        failures.line(String::from_utf8_lossy(&line).trim_end_matches('\n'));
        line.clear();
    }
    failures.into_found()
}

/// The same command in the idle class of the scheduler: it runs where nothing else would.
fn idle(command: &Command) -> Command {
    let mut idle = Command::new("chrt");
    idle.args(["--idle", "0"]).arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        idle.current_dir(folder);
    }
    idle.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    idle
}

/// The target folder in force.
pub(crate) fn target(root: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

#[expect(clippy::disallowed_methods, reason = "a person waits for these steps: real time is meant")]
fn now() -> Instant {
    Instant::now()
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
