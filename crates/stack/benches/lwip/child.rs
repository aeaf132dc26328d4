//! lwIP in a process of its own, which `driver.c` is: a line with a number asks for so many of its
//! row, its answer has the processor time that one took. `cargo xtask lwip` builds it.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Connections that an end has room for: of most rows, and where many are open.
const FEW: usize = 80;
const MANY: usize = 10_080;

/// A row of lwIP's.
pub(crate) struct Lwip {
    process: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// The program for a row, if it has been built into this build's target folder.
fn driver(row: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let room = if row.contains("over many") { MANY } else { FEW };
    let path = own.ancestors().nth(3)?.join(format!("lwip/driver-{room}"));
    path.exists().then_some(path)
}

/// Whether lwIP's rows can be run; says how they can where not.
pub(crate) fn is_built() -> bool {
    let built = driver("").is_some();
    if !built {
        println!("lwIP is not beside: `cargo xtask lwip` builds it");
    }
    built
}

impl Lwip {
    pub(crate) fn new(row: &str) -> Self {
        let mut command = Command::new(driver(row).unwrap());
        command.arg(row).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let (requests, answers) = (process.stdin.take(), process.stdout.take().unwrap());
        Self { process, requests, answers: BufReader::new(answers) }
    }

    /// Does `n`, after some that bring its memory back into the caches; nanoseconds of one.
    pub(crate) fn timed(&mut self, n: usize) -> f64 {
        writeln!(self.requests.as_mut().unwrap(), "{n}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        let nanos =
            line.split("\"nanos\": ").nth(1).and_then(|rest| rest.trim_end().strip_suffix('}'));
        nanos.and_then(|digits| digits.parse().ok()).expect("lwIP's row failed")
    }
}

impl Drop for Lwip {
    /// The end of its input ends it.
    fn drop(&mut self) {
        self.requests = None;
        _ = self.process.wait();
    }
}
