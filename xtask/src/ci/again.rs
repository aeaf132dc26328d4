//! Failed tests once more, without the others beside them.
//!
//! The tests with devices, namespaces and other processes share a machine with each other and with
//! compilers. What fails again alone is a failure; what passes is reported as unstable, with what
//! the first run printed: a fault of the test or of the product, to be found by its output.

use std::path::Path;
use std::process::Command;

use super::failures::{Failures, Found};

/// Failed tests of which no more are run again: so many at once are not one unstable test.
const TESTS_MAX: usize = 4;

/// Whether all that failed passes alone: each test by its name, in the program that it failed in.
pub(super) fn all_pass(root: &Path, found: &Found, vars: &[(&str, &str)]) -> bool {
    let (tests, programs) = (&found.tests, &found.programs);
    if tests.is_empty() || programs.is_empty() || tests.len() > TESTS_MAX {
        return false;
    }
    println!("\n==> again, alone: {}", tests.join(", "));
    let runs: Option<Vec<usize>> =
        programs.iter().map(|program| passed(once_more(root, program, tests, vars))).collect();
    // Fewer would be a failed test that did not run.
    runs.is_some_and(|runs| runs.iter().sum::<usize>() >= tests.len())
}

fn once_more(root: &Path, program: &str, tests: &[String], vars: &[(&str, &str)]) -> Command {
    let arguments: Vec<&str> = ["test"]
        .into_iter()
        .chain(program.split(' '))
        .chain(["--", "--exact"])
        .chain(tests.iter().map(String::as_str))
        .collect();
    super::cargo(root, &arguments, vars)
}

/// How many tests passed; `None` where one failed or nothing could be run.
fn passed(mut command: Command) -> Option<usize> {
    let output = command.output().ok()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let mut failures = Failures::default();
    said.lines().for_each(|line| failures.line(line));
    failures.into_found().lines.iter().for_each(|line| println!("{line}"));
    output.status.success().then(|| said.lines().filter_map(count).sum())
}

/// The number in `test result: ok. 2 passed; ...`.
fn count(line: &str) -> Option<usize> {
    line.strip_prefix("test result: ok. ")?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(tests: &[&str], programs: &[&str]) -> Found {
        let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        Found { lines: Vec::new(), tests: owned(tests), programs: owned(programs) }
    }

    #[test]
    fn the_number_of_passed_tests_is_read() {
        let lines = ["test result: ok. 12 passed; 0 failed", "test result: FAILED. 1 passed", "x"];
        assert_eq!(lines.map(count), [Some(12), None, None]);
    }

    #[test]
    fn nothing_passes_without_a_name_or_a_program_or_with_too_many_names() {
        let root = crate::root();
        let many: Vec<&str> = vec!["a"; TESTS_MAX + 1];
        for found in [found(&[], &["-p a"]), found(&["a"], &[]), found(&many, &["-p a"])] {
            assert!(!all_pass(&root, &found, &[]));
        }
    }
}
