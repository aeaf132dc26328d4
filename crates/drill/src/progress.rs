//! What a human sees while a drill runs: a moving line on a terminal, plain lines elsewhere.
//!
//! Called by `run.rs` from the crowd's thread, so it must be quick: a terminal is drawn a few
//! times a second at most. Everything goes to standard error.

use core::time::Duration;
use std::io::{IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};

use crate::report::PhaseReport;

/// Receives the progress of a drill: on the thread that the drill runs on.
pub trait DrillProgress: Send {
    /// A phase begins, and is meant to last so long.
    fn begin(&mut self, name: &'static str, what: &'static str, length: Duration);

    /// It goes on: questions, answers and flood packets so far.
    fn tick(&mut self, elapsed: Duration, asked: u64, answered: u64, flood: u64);

    /// It is over.
    fn end(&mut self, phase: &PhaseReport);
}

/// Prints nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct SilentProgress;

impl DrillProgress for SilentProgress {
    fn begin(&mut self, _name: &'static str, _what: &'static str, _length: Duration) {}
    fn tick(&mut self, _elapsed: Duration, _asked: u64, _answered: u64, _flood: u64) {}
    fn end(&mut self, _phase: &PhaseReport) {}
}

/// What suits standard error.
#[must_use]
pub fn to_stderr() -> Box<dyn DrillProgress> {
    if std::io::stderr().is_terminal() {
        Box::new(MovingProgress::default())
    } else {
        Box::new(LineProgress)
    }
}

/// One line when a phase begins, one when it is over.
struct LineProgress;

/// A terminal that is gone is no reason to stop.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// How a phase went, in one line.
fn summary(phase: &PhaseReport) -> String {
    let (asked, answered) =
        phase.honest.iter().fold((0, 0), |(a, b), row| (a + row.asked, b + row.answered));
    let flood = match phase.offered {
        0 => "no flood".to_owned(),
        n => format!("{n} flood packets at {}/s", phase.offered_pps),
    };
    format!("{:<15} {flood}, {answered} of {asked} honest questions answered", phase.name)
}

impl DrillProgress for LineProgress {
    fn begin(&mut self, name: &'static str, what: &'static str, length: Duration) {
        say(&format!("{name:<15} {what} ({:.1} s)", length.as_secs_f64()));
    }

    fn tick(&mut self, _elapsed: Duration, _asked: u64, _answered: u64, _flood: u64) {}

    fn end(&mut self, phase: &PhaseReport) {
        say(&summary(phase));
    }
}

/// A bar that moves.
#[derive(Default)]
struct MovingProgress {
    bar: Option<ProgressBar>,
    drawn: Duration,
}

/// How often the bar is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(100);

impl DrillProgress for MovingProgress {
    fn begin(&mut self, name: &'static str, _what: &'static str, length: Duration) {
        let bar = ProgressBar::new(length.as_millis() as u64);
        if let Ok(style) = ProgressStyle::with_template("{prefix:<15} {bar:24} {msg}") {
            bar.set_style(style);
        }
        bar.set_prefix(name);
        self.bar = Some(bar);
        self.drawn = Duration::ZERO;
    }

    fn tick(&mut self, elapsed: Duration, asked: u64, answered: u64, flood: u64) {
        if elapsed.saturating_sub(self.drawn) < DRAW_EVERY {
            return;
        }
        self.drawn = elapsed;
        let Some(bar) = &self.bar else { return };
        let rate = flood as f64 / elapsed.as_secs_f64();
        bar.set_message(format!("{rate:.0} flood/s, {answered} of {asked} answered"));
        bar.set_position(elapsed.as_millis() as u64);
    }

    fn end(&mut self, phase: &PhaseReport) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        say(&summary(phase));
    }
}
