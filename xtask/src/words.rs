//! The language of the project in figures: idiom in comments, names of types, the README.
//!
//! Called by `cargo xtask words`, which prints every figure beside its bound, and by `tidy`, which
//! fails where a bound is broken. Counts are of whole-line comments and of type definitions in
//! product code; macros are not expanded.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::source::{self, Source};

/// Words that name a person where a packet, peer or listener is meant.
const PERSONS: &[&str] = &["who", "whose", "whoever", "whatever", "nobody", "somebody"];
/// Most of [`PERSONS`] in 1,000 words of a crate's comments.
const PERSONS_MAX: f64 = 1.0;
/// Most types whose name is one bare word, in a hundred.
const BARE_MAX: f64 = 31.0;
/// Most type names that occur more than once, in a hundred.
const REPEATED_MAX: f64 = 14.0;
/// Most words of the README, and most characters of one of its table rows.
const README_WORDS_MAX: usize = 1200;
const README_ROW_MAX: usize = 200;
/// A sentence that documents nothing.
const EMPTY_DOC: &str = "See the file's head";
/// Terms by which a newcomer searches; each must be found in product code.
const TERMS: &[&str] = &[
    "ECMP",
    "coalesc",
    "token bucket",
    "RSS",
    "LRU",
    "TCB",
    "fast retransmit",
    "zero window",
    "persist timer",
    "delayed ACK",
    "backpressure",
];
/// What the compiler's keyword for a type is followed by its name.
const TYPE_KEYWORDS: &[&str] = &["struct", "enum", "trait", "union"];

/// A measured figure beside its bound.
pub(crate) struct Figure {
    what: String,
    value: f64,
    max: f64,
}

impl Figure {
    fn new(what: impl Into<String>, value: f64, max: f64) -> Self {
        Self { what: what.into(), value, max }
    }

    /// Whether the bound is kept.
    pub(crate) fn holds(&self) -> bool {
        self.value <= self.max
    }

    /// The figure in one line.
    pub(crate) fn line(&self) -> String {
        let verdict = if self.holds() { "holds" } else { "FAILS" };
        format!("{verdict}  {:>8.1}  at most {:>6.0}  {}", self.value, self.max, self.what)
    }
}

/// Every figure of the repository at `root`.
pub(crate) fn measure(root: &Path) -> Result<Vec<Figure>, String> {
    let sources = source::rust_files(root).map_err(|error| format!("cannot read: {error}"))?;
    let readme = fs::read_to_string(root.join("README.md"))
        .map_err(|error| format!("README.md: {error}"))?;
    let mut figures = persons(&sources);
    figures.extend(types(&sources));
    figures.extend(terms(&sources));
    figures.extend(cycles(&sources).into_iter().map(|(figure, _)| figure));
    let rows = readme.lines().filter(|line| line.starts_with('|'));
    let longest = rows.map(|row| row.chars().count()).max().unwrap_or(0);
    let words = readme.split_whitespace().count();
    figures.push(Figure::new("words of README.md", words as f64, README_WORDS_MAX as f64));
    figures.push(Figure::new(
        "longest table row of README.md",
        longest as f64,
        README_ROW_MAX as f64,
    ));
    Ok(figures)
}

/// The rules among them: one complaint for each that is broken.
pub(crate) fn complaints(sources: &[Source]) -> Vec<String> {
    let broken = persons(sources).into_iter().filter(|figure| !figure.holds());
    let mut out: Vec<String> = broken
        .map(|figure| {
            format!("{}: write plain technical English (cargo xtask words).", figure.what)
        })
        .collect();
    for (figure, modules) in cycles(sources) {
        if !figure.holds() {
            out.push(format!("{}: move a type out of {modules}.", figure.what));
        }
    }
    for (name, places) in repeated(&definitions(sources)) {
        if is_bare(name) {
            out.push(format!("{}: type name {name} occurs twice: say what of.", places.join(", ")));
        }
    }
    out
}

/// The largest import cycle of each crate, with its modules.
fn cycles(sources: &[Source]) -> Vec<(Figure, String)> {
    let figure = |(name, modules, max): (String, Vec<String>, usize)| {
        let what = format!("{name}: modules in one import cycle");
        (Figure::new(what, modules.len() as f64, max as f64), modules.join(", "))
    };
    crate::modules::largest(sources).into_iter().map(figure).collect()
}

fn persons(sources: &[Source]) -> Vec<Figure> {
    let mut crates: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for source in sources {
        let (words, hits) = crates.entry(crate_of(&source.path)).or_default();
        for comment in comments(source) {
            let all = comment.split(|c: char| !c.is_alphabetic() && c != '\'');
            for word in all.filter(|word| !word.is_empty()) {
                *words += 1;
                *hits += usize::from(PERSONS.contains(&word.to_lowercase().as_str()));
            }
        }
    }
    let per_thousand = |(words, hits): (usize, usize)| 1000.0 * hits as f64 / words.max(1) as f64;
    crates
        .into_iter()
        .map(|(name, counts)| {
            Figure::new(
                format!("{name}: who, whose, nobody ... in 1,000 words of comments"),
                per_thousand(counts),
                PERSONS_MAX,
            )
        })
        .collect()
}

/// The text of whole-line comments. This file's own list of words is code, not comment.
fn comments(source: &Source) -> impl Iterator<Item = &str> {
    source.text.lines().filter_map(|line| line.trim_start().strip_prefix("//"))
}

fn types(sources: &[Source]) -> Vec<Figure> {
    let found = definitions(sources);
    let all: usize = found.values().map(Vec::len).sum();
    let share = |part: usize| 100.0 * part as f64 / all.max(1) as f64;
    let bare = found.iter().filter(|(name, _)| is_bare(name)).map(|(_, at)| at.len()).sum();
    let repeats = repeated(&found).map(|(_, at)| at.len()).sum();
    let empty = sources.iter().map(|source| {
        comments(source)
            .filter(|comment| comment.trim_start_matches('/').trim_start().starts_with(EMPTY_DOC))
            .count()
    });
    vec![
        Figure::new("types whose name is one bare word, in a hundred", share(bare), BARE_MAX),
        Figure::new(
            "type names that occur more than once, in a hundred",
            share(repeats),
            REPEATED_MAX,
        ),
        Figure::new("items documented by the head of their file", empty.sum::<usize>() as f64, 0.0),
    ]
}

/// How many of [`TERMS`] no product file contains.
fn terms(sources: &[Source]) -> Vec<Figure> {
    let product: Vec<&Source> = sources.iter().filter(|source| is_product(source)).collect();
    let missing = TERMS.iter().filter(|term| !product.iter().any(|s| s.text.contains(**term)));
    let missing: Vec<&str> = missing.copied().collect();
    let what = format!("terms of the field not found in product code: {}", missing.join(", "));
    vec![Figure::new(what, missing.len() as f64, 0.0)]
}

/// Every type of product code by its name, with the files that define it.
fn definitions(sources: &[Source]) -> BTreeMap<&str, Vec<&str>> {
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for source in sources.iter().filter(|source| is_product(source)) {
        for (number, line) in source.code.lines().enumerate() {
            if let Some(name) = defined(line)
                && !source.is_test_line(number)
            {
                found.entry(name).or_default().push(&source.path);
            }
        }
    }
    found
}

/// The type that a line of code begins to define.
fn defined(line: &str) -> Option<&str> {
    let mut words = source::words(line.split(['{', '(', '<', ';', ':']).next()?)
        .skip_while(|word| matches!(*word, "pub" | "crate" | "super"));
    let line_start = line.trim_start();
    let direct = TYPE_KEYWORDS.iter().any(|keyword| line_start.starts_with(keyword));
    if !direct && !line_start.starts_with("pub") {
        return None;
    }
    let words: Vec<&str> = match line_start.starts_with("pub(") {
        // The visibility's bracket ended the split: the name stands behind it.
        true => source::words(line_start.split_once(')')?.1).collect(),
        false => words.by_ref().collect(),
    };
    match words.as_slice() {
        [keyword, name, ..] if TYPE_KEYWORDS.contains(keyword) => Some(name),
        _ => None,
    }
}

fn repeated<'a, 'b>(
    found: &'b BTreeMap<&'a str, Vec<&'a str>>,
) -> impl Iterator<Item = (&'a str, &'b Vec<&'a str>)> {
    found.iter().filter(|(_, places)| places.len() > 1).map(|(name, places)| (*name, places))
}

/// One capital, then no other: `Entry`, not `WheelEntry`.
fn is_bare(name: &str) -> bool {
    name.chars().filter(|c| c.is_uppercase()).count() == 1 && name.starts_with(char::is_uppercase)
}

fn is_product(source: &Source) -> bool {
    source.path.starts_with("crates/") && source.path.contains("/src/") && !source.is_test_file()
}

fn crate_of(path: &str) -> &str {
    let rest = path.strip_prefix("crates/").unwrap_or(path);
    rest.split('/').next().unwrap_or(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source::new(path, text.to_owned())
    }

    #[test]
    fn a_comment_with_a_person_in_it_is_a_complaint() {
        let text = "//! A peer that nobody knows.\n";
        let found = complaints(&[source("crates/udp/src/a.rs", text)]);
        assert!(found.len() == 1 && found[0].contains("udp"), "{found:?}");
        assert!(complaints(&[source("crates/udp/src/a.rs", "//! An unknown peer.\n")]).is_empty());
    }

    #[test]
    fn a_bare_type_name_occurs_once() {
        let one = source("crates/udp/src/a.rs", "//! A.\npub(crate) struct Entry<T> {\n}\n");
        let two = source("crates/tcp/src/a.rs", "//! A.\nenum Entry {\n}\n");
        let test =
            source("crates/tcp/src/b.rs", "//! A.\n#[cfg(test)]\nmod t {\n struct Entry;\n}\n");
        assert_eq!(complaints(&[one, two, test]).len(), 1);
        let long = |path| source(path, "//! A.\npub struct WheelEntry(u8);\n");
        assert!(complaints(&[long("crates/udp/src/a.rs"), long("crates/ip/src/a.rs")]).is_empty());
    }

    #[test]
    fn definitions_are_found_at_any_visibility() {
        assert_eq!(defined("pub struct A<T> {"), Some("A"));
        assert_eq!(defined("    pub(in crate::remote) enum B {"), Some("B"));
        assert_eq!(defined("trait C: Copy {}"), Some("C"));
        assert_eq!(defined("impl D for E {"), None);
        assert_eq!(defined("let structure = 1;"), None);
    }
}
