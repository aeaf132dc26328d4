//! What a human sees while a plan runs: a bar on a terminal, nothing elsewhere.
//!
//! Called by experiments through the frame. Everything goes to standard error.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// The receiver of a run's progress.
pub trait Progress {
    /// A run begins: which of how many.
    fn begin(&mut self, run: u64, of: u64, seed: u64);

    /// It is at this part now, `done` of `all`.
    fn step(&mut self, part: &str, done: u64, all: u64);

    /// All runs are over.
    fn end(&mut self);
}

/// Reports nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&mut self, _run: u64, _of: u64, _seed: u64) {}
    fn step(&mut self, _part: &str, _done: u64, _all: u64) {}
    fn end(&mut self) {}
}

/// What suits standard error.
#[must_use]
pub fn to_stderr() -> Box<dyn Progress> {
    if !std::io::stderr().is_terminal() {
        return Box::new(Silent);
    }
    let bar = ProgressBar::new(1);
    if let Ok(style) = ProgressStyle::with_template("{prefix:<20} {bar:24} {msg}") {
        bar.set_style(style);
    }
    Box::new(Bar(bar))
}

struct Bar(ProgressBar);

impl Progress for Bar {
    fn begin(&mut self, run: u64, of: u64, seed: u64) {
        self.0.set_prefix(format!("run {run} of {of}, seed {seed}"));
        self.0.set_position(0);
    }

    fn step(&mut self, part: &str, done: u64, all: u64) {
        self.0.set_length(all.max(1));
        self.0.set_position(done);
        self.0.set_message(part.to_owned());
    }

    fn end(&mut self) {
        self.0.finish_and_clear();
    }
}
