//! `rfc`: what the standards require, clause by clause, and what shows that it is met.
//!
//! Reads `docs/rfc/*.txt`. Invariant: true only if every test that is named exists, every clause
//! that is met names one, and every clause that is refused has a reason.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Prints the table; what is wrong with it as errors.
pub(crate) fn run(root: &Path) -> Result<bool, String> {
    let tests = tests(root)?;
    let (mut table, mut complaints) = (String::new(), Vec::new());
    let mut counts = [0_usize; 3];
    for path in files(&root.join("docs/rfc"), "txt")? {
        let text =
            std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match clause(line, &tests) {
                Ok(kind) => {
                    counts[kind] += 1;
                    let _ = writeln!(table, "{line}");
                }
                Err(why) => {
                    complaints.push(format!("{}:{}: {why}", path.display(), number + 1));
                }
            }
        }
    }
    print!("{table}");
    complaints.iter().for_each(|line| eprintln!("rfc: {line}"));
    let [met, partly, refused] = counts;
    println!("rfc: {met} clauses met, {partly} partly, {refused} refused with their reasons");
    Ok(complaints.is_empty())
}

/// Which of the three kinds a line is, if it is right.
fn clause(line: &str, tests: &BTreeSet<String>) -> Result<usize, String> {
    let parts: Vec<&str> = line.split('|').map(str::trim).collect();
    let [what, verdict, shown] = parts.as_slice() else {
        return Err(format!("not three parts: {line}"));
    };
    let is_known = |word: &str| tests.contains(word);
    let named: Vec<&str> =
        shown.split_whitespace().map(|word| word.trim_end_matches([',', ':'])).collect();
    match *verdict {
        "met" if named.is_empty() => Err(format!("no test shows: {what}")),
        "met" => match named.iter().find(|word| !is_known(word)) {
            Some(word) => Err(format!("there is no test {word}")),
            None => Ok(0),
        },
        "partly" if named.iter().any(|word| is_known(word)) => Ok(1),
        "partly" => Err(format!("no test shows what is met of: {what}")),
        "refused" if named.len() < 4 => Err(format!("no reason: {what}")),
        "refused" => Ok(2),
        other => Err(format!("`{other}` is none of met, partly, refused")),
    }
}

/// The names of all test functions, and of all scripts.
fn tests(root: &Path) -> Result<BTreeSet<String>, String> {
    let mut names = BTreeSet::new();
    for folder in ["crates", "tests", "testkit"] {
        for path in files(&root.join(folder), "rs")? {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let lines = text.lines().map(str::trim_start);
            // The bodies that run at several places are generic and asynchronous.
            let named = lines.filter_map(|line| {
                let line = line.strip_prefix("pub(crate) ").unwrap_or(line);
                line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ")
            });
            names.extend(named.filter_map(|rest| rest.split(['(', '<']).next().map(str::to_owned)));
        }
    }
    for path in files(&root.join("tests/conformance"), "pkt")? {
        names.extend(path.file_name().map(|name| name.to_string_lossy().into_owned()));
    }
    Ok(names)
}

/// All files below a folder with this ending, sorted; nothing where there is no folder.
fn files(folder: &Path, ending: &str) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.map_err(|error| error.to_string())?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_clause_names_its_test_or_its_reason() {
        assert_eq!(run(&crate::root()), Ok(true));
    }

    #[test]
    fn a_table_that_claims_too_much_is_refused() {
        let tests = BTreeSet::from(["there".to_owned()]);
        assert_eq!(clause("RFC1 1 a | met | there", &tests), Ok(0));
        for bad in [
            "RFC1 1 a | met |",
            "RFC1 1 a | met | nowhere",
            "RFC1 1 a | partly | nowhere at all",
            "RFC1 1 a | refused | no",
            "RFC1 1 a | perhaps | there",
            "RFC1 1 a",
        ] {
            assert!(clause(bad, &tests).is_err(), "{bad}");
        }
    }
}
