//! The rules that a compiler does not check, checked on the text of every source file.
//!
//! Called by `cargo run -p xtask -- tidy`, by `ci`, and by a test of this crate. Each complaint is
//! one line: where, what, and what to do about it. Two lists at the top are ratchets: they may only
//! get shorter. The length of functions is clippy's business (`too_many_lines`).

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use crate::source::{self, Source};

/// Drop reasons that no test explains yet. Only ever delete from this list.
const UNTESTED_ALLOWED: &[&str] = &[];

/// Bounds of `limits.rs` that `docs/threats.md` does not name yet. Only ever delete from this list.
const UNNAMED_LIMITS_ALLOWED: &[&str] = &[];

/// The crates that may hold `unsafe`, all on the side of memory and system calls.
const UNSAFE_CRATES: &[&str] =
    &["crates/checksum/", "crates/device/", "crates/packet/", "crates/sync/"];
/// Files elsewhere that cannot do without: a counting allocator is an `unsafe impl` by definition,
/// and a rival of the lab has no safe interface.
const UNSAFE_FILES: &[&str] =
    &["testkit/src/alloc.rs", "lab/src/experiments/grace_period/schemes/seize.rs"];
/// How far above an `unsafe` block its reason may stand, where comments are not directly above it.
const SAFETY_LINES: usize = 5;

const COLUMNS_MAX: usize = 100;
const FILE_LINES_MAX: usize = 900;

/// What may write to a terminal.
const MAY_PRINT: &[&str] = &["crates/cli/", "crates/drill/", "lab/", "xtask/"];
/// Macros that must not be left behind elsewhere.
const PRINTING: &[&str] = &["dbg", "eprint", "eprintln", "print", "println"];

/// Words of other systems for which the glossary has ours. Comments may cite them.
const FOREIGN_WORDS: &[(&str, &str)] =
    &[("mbuf", "say packet buffer or chunk"), ("skb", "say packet buffer")];
/// Names that say nothing about what they hold.
const EMPTY_NAMES: &[&str] = &["common", "helper", "helpers", "manager", "misc", "util", "utils"];
/// Identifiers that do not belong into the product.
const FORBIDDEN_CODE: &[(&str, &str)] = &[
    ("dst", "write dst_addr or dst_port, or name the thing (`into`, `to`)"),
    ("todo", "finish it, or return an error"),
    ("unimplemented", "finish it, or return an error"),
];

/// Historic designs, one file each.
const BASELINES: &str = "lab/src/baselines/";
/// What the head of each must have.
const PROVENANCE: &[(&str, &str)] = &[
    ("Models:", "Name system, version and file."),
    ("Simplified:", "Say what was left out, or that nothing was."),
    ("Serves:", "Name the claim."),
];

const DROP_REASONS: &str = "crates/base/src/drop_reason.rs";
const LIMITS: &str = "crates/base/src/limits.rs";
const THREATS: &str = "docs/threats.md";
/// Pages with tables that name the test of a case: in the column that is headed `test`.
const TABLES_OF_TESTS: &[&str] = &["docs/threats.md", "docs/design"];

/// What a run found: complaints fail it, notes do not.
pub(crate) struct Report {
    pub(crate) files: usize,
    pub(crate) complaints: Vec<String>,
    pub(crate) notes: Vec<String>,
}

/// Checks every Rust file of the repository at `root`.
pub(crate) fn check(root: &Path) -> Result<Report, String> {
    let sources = source::rust_files(root).map_err(|error| format!("cannot read: {error}"))?;
    let threats = fs::read_to_string(root.join(THREATS)).unwrap_or_default();
    let mut report = Report { files: sources.len(), complaints: Vec::new(), notes: Vec::new() };
    for source in &sources {
        shape(source, &mut report.complaints);
        danger(source, &mut report.complaints);
        printing(source, &mut report.complaints);
        words(source, &mut report.complaints);
        provenance(source, &mut report.complaints);
    }
    reasons_have_tests(&sources, UNTESTED_ALLOWED, &mut report);
    limits_are_threats(&sources, &threats, UNNAMED_LIMITS_ALLOWED, &mut report);
    let pages = pages(root).map_err(|error| format!("cannot read: {error}"))?;
    named_tests_exist(&sources, &pages, &mut report.complaints);
    report.complaints.extend(crate::words::complaints(&sources));
    report.complaints.extend(crate::links::complaints(root)?);
    Ok(report)
}

/// The opening line, the width of lines, the length of the file.
fn shape(source: &Source, out: &mut Vec<String>) {
    let path = &source.path;
    if !source.text.starts_with("//!") {
        out.push(format!(
            "{path}:1: does not open with `//!`. State what the file is and what calls it."
        ));
    }
    for (number, line) in source.text.lines().enumerate() {
        let width = line.chars().count();
        let link = line.trim_start().starts_with("//") && line.contains("://");
        if width > COLUMNS_MAX && !link {
            out.push(format!("{path}:{}: {width} columns, {COLUMNS_MAX} at most.", number + 1));
        }
    }
    let lines = source.text.lines().count();
    if lines > FILE_LINES_MAX {
        out.push(format!(
            "{path}: {lines} lines, {FILE_LINES_MAX} at most. Split it at a noun, or move its \
             tests into a folder of its own."
        ));
    }
}

/// `unsafe` only where it is allowed and explained, and every other crate forbids it.
fn danger(source: &Source, out: &mut Vec<String>) {
    let path = &source.path;
    let allowed = UNSAFE_CRATES.iter().any(|home| path.starts_with(home))
        || UNSAFE_FILES.contains(&path.as_str());
    let lines: Vec<&str> = source.text.lines().collect();
    let code: Vec<&str> = source.code.lines().collect();
    for number in source.lines_with_word("unsafe") {
        if !allowed {
            out.push(format!(
                "{path}:{}: `unsafe` outside checksum, device, packet and sync. Use their safe \
                 interface, or move the code there.",
                number + 1
            ));
        } else if needs_reason(&code, number) && !has_reason(&lines, number) {
            out.push(format!(
                "{path}:{}: `unsafe` without a `SAFETY:` comment above. Say why it is sound.",
                number + 1
            ));
        }
    }
    let has_exception = UNSAFE_FILES.iter().any(|file| crate_of(file) == crate_of(path));
    let gate = if has_exception { "deny(unsafe_code)" } else { "forbid(unsafe_code)" };
    let gated = source.code.contains(&format!("#![{gate}]"))
        || source.code.contains("#![forbid(unsafe_code)]");
    if is_crate_root(path) && !allowed && !gated {
        out.push(format!("{path}:1: the crate's root lacks `#![{gate}]`."));
    }
}

/// The folder of the crate that a file belongs to.
fn crate_of(path: &str) -> Option<&str> {
    path.split_once("/src/").map(|(home, _)| home)
}

fn is_crate_root(path: &str) -> bool {
    let inside = path.split_once("/src/").map(|(_, inside)| inside);
    inside.is_some_and(|file| matches!(file, "lib.rs" | "main.rs") || file.starts_with("bin/"))
}

/// Whether the `unsafe` on this line opens a block or an impl: those claim something.
fn needs_reason(code: &[&str], number: usize) -> bool {
    let rest = code.get(number..).unwrap_or_default().join("\n");
    rest.match_indices("unsafe").take(1).any(|(offset, word)| {
        let after = rest[offset + word.len()..].trim_start();
        after.starts_with('{') || source::first_word(after) == "impl"
    })
}

/// Whether a reason stands on this line, in the comment right above it, or a few lines up.
fn has_reason(lines: &[&str], number: usize) -> bool {
    let says = |line: &&str| line.contains("SAFETY:");
    let near = number.saturating_sub(SAFETY_LINES)..=number;
    let above = lines.get(..number).unwrap_or_default();
    let comment = above.iter().rev().take_while(|line| line.trim_start().starts_with("//"));
    lines.get(near).unwrap_or_default().iter().any(says) || comment.into_iter().any(says)
}

/// No print that was left behind.
fn printing(source: &Source, out: &mut Vec<String>) {
    let path = &source.path;
    let speaks = MAY_PRINT.iter().any(|home| path.starts_with(home))
        || path.contains("/examples/")
        || path.ends_with("build.rs");
    for name in PRINTING {
        let call = format!("{name}!");
        for number in source.lines_with_word(name) {
            let line = source.code.lines().nth(number).unwrap_or_default();
            let excused = *name != "dbg" && (speaks || source.is_test_line(number));
            if line.contains(&call) && !excused {
                out.push(format!(
                    "{path}:{}: `{call}` in a library. Count it, return it, or delete it.",
                    number + 1
                ));
            }
        }
    }
}

/// The glossary's forbidden words, in the product only.
fn words(source: &Source, out: &mut Vec<String>) {
    let path = &source.path;
    if !path.starts_with("crates/") {
        return;
    }
    for (word, remedy) in FOREIGN_WORDS {
        for (number, line) in source.code.lines().enumerate() {
            let line = line.to_lowercase();
            let mut parts = line.split(|c: char| !c.is_alphanumeric());
            if parts.any(|part| part == *word || part.strip_suffix('s') == Some(word)) {
                out.push(format!("{path}:{}: the word `{word}`: {remedy}.", number + 1));
            }
        }
    }
    for (word, remedy) in FORBIDDEN_CODE {
        for number in source.lines_with_word(word) {
            let line = source.code.lines().nth(number).unwrap_or_default();
            if *word == "dst" || line.contains(&format!("{word}!")) {
                out.push(format!("{path}:{}: `{word}`: {remedy}.", number + 1));
            }
        }
    }
    for part in path.split('/') {
        if EMPTY_NAMES.contains(&part.strip_suffix(".rs").unwrap_or(part)) {
            out.push(format!("{path}: `{part}` has no meaning. Name the file after its noun."));
        }
    }
    for (offset, _) in source.code.match_indices("mod ") {
        let name = source::first_word(source.code[offset + 4..].trim_start());
        if EMPTY_NAMES.contains(&name) {
            let line = source::line_of(&source.code, offset) + 1;
            out.push(format!(
                "{path}:{line}: `mod {name}` has no meaning. Name it after its noun."
            ));
        }
    }
}

/// Every historic design names its origin.
fn provenance(source: &Source, out: &mut Vec<String>) {
    let path = &source.path;
    if !path.starts_with(BASELINES) {
        return;
    }
    for (part, remedy) in PROVENANCE {
        let says =
            |line: &str| line.strip_prefix("//! ").is_some_and(|line| line.starts_with(part));
        if !source.text.lines().any(says) {
            out.push(format!("{path}:1: a baseline without a line `//! {part} ...`. {remedy}"));
        }
    }
}

/// Every drop reason is explained by a test somewhere that names it.
fn reasons_have_tests(sources: &[Source], allowed: &[&str], report: &mut Report) {
    let Some(source) = sources.iter().find(|source| source.path == DROP_REASONS) else {
        report
            .complaints
            .push(format!("{DROP_REASONS}: missing, so no packet can be dropped with a reason."));
        return;
    };
    let reasons = variants(&source.code);
    if reasons.is_empty() {
        report.complaints.push(format!("{DROP_REASONS}: no variant of DropReason found in it."));
    }
    let mut tested = BTreeSet::new();
    for source in sources.iter().filter(|source| !source.path.starts_with("crates/base/")) {
        let imported = ["DropReason::{", "DropReason::*", "DropReason as "]
            .iter()
            .any(|import| source.code.contains(import));
        let lines = source.code.lines().zip(source.text.lines()).enumerate();
        for (_, (code, text)) in lines.filter(|(number, _)| source.is_test_line(*number)) {
            let named = |reason: &&&str| {
                let path = format!("DropReason::{reason}");
                let whole = |word| source::words(code).any(|found| found == word);
                let by_path = code.contains(&path) && whole(**reason);
                by_path || (imported && whole(**reason)) || text.contains(&format!("\"{reason}\""))
            };
            tested.extend(reasons.iter().filter(named).copied());
        }
    }
    let explained = |reason: &&&str| tested.contains(*reason) || allowed.contains(*reason);
    let missing: Vec<&str> = reasons.iter().filter(|r| !explained(r)).copied().collect();
    if !missing.is_empty() {
        report.complaints.push(format!(
            "{DROP_REASONS}: of {} reasons {} are named by no test: {}. For each write the test \
             that shows a packet dropped for it, counted once.",
            reasons.len(),
            missing.len(),
            missing.join(", ")
        ));
    }
    ratchet(allowed, &reasons, &tested, "UNTESTED_ALLOWED", report);
}

/// Every bound is a row of the threat table.
fn limits_are_threats(sources: &[Source], threats: &str, allowed: &[&str], report: &mut Report) {
    let Some(source) = sources.iter().find(|source| source.path == LIMITS) else {
        report.complaints.push(format!("{LIMITS}: missing, so nothing has a bound."));
        return;
    };
    let limits = constants(&source.code);
    let named: BTreeSet<&str> = source::words(threats).collect();
    for limit in &limits {
        if !named.contains(limit) && !allowed.contains(limit) {
            report.complaints.push(format!(
                "{THREATS}: does not name {limit} of limits.rs. State what can reach the bound, \
                 what it costs, and which test shows it."
            ));
        }
    }
    ratchet(allowed, &limits, &named, "UNNAMED_LIMITS_ALLOWED", report);
}

/// The pages of [`TABLES_OF_TESTS`], by name.
fn pages(root: &Path) -> io::Result<Vec<(String, String)>> {
    let mut pages = Vec::new();
    for place in TABLES_OF_TESTS {
        let path = root.join(place);
        if !path.is_dir() {
            pages.push(((*place).to_owned(), fs::read_to_string(path)?));
            continue;
        }
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            pages.push((format!("{place}/{name}"), fs::read_to_string(entry.path())?));
        }
    }
    pages.sort_unstable();
    Ok(pages)
}

/// Every test named by a table exists.
fn named_tests_exist(sources: &[Source], pages: &[(String, String)], out: &mut Vec<String>) {
    let mut known = BTreeSet::new();
    for source in sources {
        let lines = source.code.lines().enumerate();
        let tests = lines.filter(|(number, _)| source.is_test_line(*number));
        known.extend(tests.flat_map(|(_, line)| source::words(line)));
    }
    for (page, text) in pages {
        let mut is_table_of_tests = false;
        for (number, line) in text.lines().enumerate() {
            let last = line.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
            is_table_of_tests = match line.starts_with('|') {
                true => is_table_of_tests || last.trim() == "test",
                false => false,
            };
            let quoted = if is_table_of_tests { last } else { "" };
            for name in quoted.split('`').skip(1).step_by(2).filter_map(test_name) {
                if !known.contains(name) {
                    out.push(format!(
                        "{page}:{}: no test is called {name}. Write it, or name the one that \
                         shows the case.",
                        number + 1
                    ));
                }
            }
        }
    }
}

/// The name of a test that a quoted word is: a sentence of three words at least. Files, modules and
/// endings (`_ipv6`) are none.
fn test_name(quoted: &str) -> Option<&str> {
    let name = quoted.rsplit("::").next().unwrap_or_default();
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let is_name = name.chars().all(is_word) && name.matches('_').count() >= 2;
    (is_name && !name.starts_with('_')).then_some(name)
}

/// What may leave a list of exceptions, and what should never have been on it.
fn ratchet(
    allowed: &[&str],
    existing: &[&str],
    done: &BTreeSet<&str>,
    list: &str,
    report: &mut Report,
) {
    for name in allowed {
        if !existing.contains(name) {
            report
                .complaints
                .push(format!("xtask/src/tidy.rs: {list} names {name}: no such thing."));
        } else if done.contains(name) {
            report.notes.push(format!("{name} needs {list} no more: delete it there."));
        }
    }
}

/// The variants of `DropReason`, whether it is written as an enum or as a table for a macro.
fn variants(code: &str) -> Vec<&str> {
    for opening in ["enum DropReason {", "\ndrop_reasons! {"] {
        let Some(start) = code.find(opening) else { continue };
        let body = &code[start + opening.len() - 1..];
        let body = &body[..source::item_end(body)];
        let found: Vec<&str> = source::words(body)
            .filter(|word| word.chars().next().is_some_and(char::is_uppercase))
            .collect();
        if !found.is_empty() && found != ["DropReason"] {
            return found;
        }
    }
    Vec::new()
}

/// The names of the public constants at the top level of a file.
fn constants(code: &str) -> Vec<&str> {
    let lines = code.lines().filter_map(|line| line.strip_prefix("pub const "));
    lines.map(source::first_word).filter(|name| *name != "fn").collect()
}

#[cfg(test)]
mod tests;
