//! The output of `cargo test` under a sanitizer, counted line by line.
//!
//! Called by `sanitize.rs` for each line as it comes. Invariant: a run of which nothing was counted
//! is not clean.

/// How a sanitizer's report begins, with any text before it in the line.
const REPORTS: &[&str] = &[
    "ERROR: AddressSanitizer",
    "ERROR: LeakSanitizer",
    "WARNING: ThreadSanitizer",
    "FATAL: ThreadSanitizer",
];

/// Tests, failures and sanitizer reports of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) passed: u64,
    pub(super) failed: u64,
    /// Not run: ignored, or left out by name.
    pub(super) left_out: u64,
    /// Reports of the sanitizer.
    pub(super) reports: u64,
}

impl Tally {
    /// Counts one line of output.
    pub(super) fn line(&mut self, line: &str) {
        self.reports += u64::from(REPORTS.iter().any(|report| line.contains(report)));
        let Some(result) = line.trim_start().strip_prefix("test result: ") else { return };
        for part in result.split(['.', ';']) {
            let Some((number, what)) = part.trim().split_once(' ') else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" | "filtered out" => self.left_out += number,
                _ => {}
            }
        }
    }

    /// Both together.
    pub(super) const fn and(self, other: Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            left_out: self.left_out + other.left_out,
            reports: self.reports + other.reports,
        }
    }

    /// Whether tests ran, none failed and the sanitizer was silent.
    pub(super) const fn is_clean(self) -> bool {
        self.passed > 0 && self.failed == 0 && self.reports == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[&str]) -> Tally {
        let mut tally = Tally::default();
        lines.iter().for_each(|line| tally.line(line));
        tally
    }

    #[test]
    fn results_of_several_binaries_add_up() {
        let tally = of(&[
            "running 4 tests",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished \
             in 1.25s",
            "test result: ok. 40 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished \
             in 0.00s",
        ]);
        assert_eq!(tally, Tally { passed: 43, failed: 0, left_out: 3, reports: 0 });
        assert!(tally.is_clean());
    }

    #[test]
    fn failures_reports_and_silence_are_not_clean() {
        let ok = "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";
        let failed = of(&["test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured"]);
        assert_eq!((failed.passed, failed.failed), (2, 1));
        assert!(!failed.is_clean());
        for report in [
            "==12==ERROR: AddressSanitizer: heap-use-after-free on address 0x50",
            "==12==ERROR: LeakSanitizer: detected memory leaks",
            "WARNING: ThreadSanitizer: data race (pid=3)",
            "FATAL: ThreadSanitizer: unexpected memory mapping 0x7",
        ] {
            let seen = of(&[ok, report]);
            assert_eq!((seen.passed, seen.reports), (3, 1), "{report}");
            assert!(!seen.is_clean(), "{report}");
        }
        assert!(!of(&["running 0 tests"]).is_clean());
    }

    #[test]
    fn tallies_add_up() {
        let one = Tally { passed: 1, failed: 2, left_out: 3, reports: 4 };
        assert_eq!(one.and(one), Tally { passed: 2, failed: 4, left_out: 6, reports: 8 });
    }
}
