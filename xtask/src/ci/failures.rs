//! The failures in the output of a step, kept to be printed again at the end of the run.
//!
//! A log of a whole run is long, and often only its end is kept.

/// Lines of detail that are kept of one test program.
const DETAIL: usize = 60;

/// Collects the failures of one stream of cargo and libtest, line by line.
#[derive(Default)]
pub(super) struct Failures {
    found: Found,
    part: Part,
    /// Lines of detail of the present part.
    detail: usize,
}

/// Failures of one or more streams.
#[derive(Default)]
pub(super) struct Found {
    /// The lines of the failures, in order.
    pub(super) lines: Vec<String>,
    /// The names of failed tests, in order.
    pub(super) tests: Vec<String>,
    /// Cargo's options for each test program that failed: `-p floodwall-tcp --test worlds`.
    pub(super) programs: Vec<String>,
}

impl Found {
    /// Adds the failures of another stream.
    pub(super) fn add(&mut self, other: Self) {
        self.lines.extend(other.lines);
        self.tests.extend(other.tests);
        self.programs.extend(other.programs);
    }
}

/// The part of the output that the next line belongs to.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Part {
    /// Nothing that failed.
    #[default]
    Passed,
    /// What failed tests printed: from `failures:` to the next such line.
    Details,
    /// The names of failed tests, up to the result of the program.
    Names,
    /// An error of cargo or of the compiler, up to an empty line.
    Error,
}

impl Failures {
    /// Takes the next line of the stream.
    pub(super) fn line(&mut self, line: &str) {
        let next = match (self.part, line) {
            (Part::Details, "failures:") => Part::Names,
            (Part::Passed | Part::Error, "failures:") => Part::Details,
            (Part::Details | Part::Names, line) if line.starts_with("test result:") => Part::Passed,
            (Part::Passed, line) if line.starts_with("error") => Part::Error,
            (Part::Error, "") => Part::Passed,
            (part, _) => part,
        };
        let begins = next != self.part;
        if begins {
            self.detail = 0;
        }
        if (begins || self.part != Part::Passed) && !line.is_empty() {
            self.keep(line);
        }
        self.part = next;
        if !begins && next == Part::Names && !line.is_empty() {
            self.found.tests.push(line.trim().to_owned());
        }
        if let Some((_, options)) = line.split_once("to rerun pass `") {
            self.found.programs.push(options.trim_end_matches('`').to_owned());
        }
    }

    fn keep(&mut self, line: &str) {
        self.detail += 1;
        if self.part == Part::Names || self.detail <= DETAIL {
            self.found.lines.push(line.to_owned());
        } else if self.detail == DETAIL + 1 {
            self.found.lines.push("(more of it above)".to_owned());
        }
    }

    /// What was found; nothing where nothing failed.
    pub(super) fn into_found(self) -> Found {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(output: &str) -> Found {
        let mut failures = Failures::default();
        output.lines().for_each(|line| failures.line(line));
        failures.into_found()
    }

    #[test]
    fn a_failed_test_is_kept_with_its_message_and_a_passed_program_is_not() {
        let output = "running 2 tests\ntest a ... ok\ntest b ... FAILED\n\nfailures:\n\n\
                      ---- b stdout ----\nthread 'b' panicked at x.rs:1:1:\nleft 1, right 2\n\n\n\
                      failures:\n    b\n\ntest result: FAILED. 1 passed; 1 failed\n\n\
                      running 1 test\ntest c ... ok\n\ntest result: ok. 1 passed";
        let kept = [
            "failures:",
            "---- b stdout ----",
            "thread 'b' panicked at x.rs:1:1:",
            "left 1, right 2",
            "failures:",
            "    b",
            "test result: FAILED. 1 passed; 1 failed",
        ];
        let found = of(output);
        assert_eq!((found.lines, found.tests), (kept.map(str::to_owned).into(), vec!["b".into()]));
    }

    #[test]
    fn names_are_kept_behind_an_output_that_is_too_long() {
        let output =
            format!("failures:\n{}failures:\n    b\ntest result: FAILED.", "x\n".repeat(900));
        let kept = of(&output).lines;
        assert!(kept.len() < 70 && kept.contains(&"    b".to_owned()), "{kept:?}");
    }

    #[test]
    fn an_error_of_the_compiler_and_the_programs_that_failed_are_kept() {
        let output = "   Compiling a\nerror[E0308]: mismatched types\n --> src/lib.rs:1:1\n\n\
                      error: test failed, to rerun pass `-p a --test b`\n     Running c\n\n\
                      warning: unused\nerror: 2 targets failed:\n    `-p a --test b`\n";
        let kept = [
            "error[E0308]: mismatched types",
            " --> src/lib.rs:1:1",
            "error: test failed, to rerun pass `-p a --test b`",
            "     Running c",
            "error: 2 targets failed:",
            "    `-p a --test b`",
        ];
        let found = of(output);
        assert_eq!(found.lines, kept);
        assert_eq!(found.programs, ["-p a --test b"]);
    }
}
