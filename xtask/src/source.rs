//! A Rust source file as the checks see it: code apart from comments and strings.
//!
//! Called by `tidy`. The lexer handles just enough Rust to separate code from comments and
//! literals; what is blanked keeps its length and its lines, so a line number found here is the
//! file's own. Macros are not expanded and nothing is parsed beyond braces.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// One source file, read once and looked at in two ways.
pub(crate) struct Source {
    /// Where it is, relative to the root of the repository, with forward slashes.
    pub(crate) path: String,
    /// The text as written.
    pub(crate) text: String,
    /// The same text with comments and the insides of literals turned into spaces.
    pub(crate) code: String,
    /// The lines (counted from zero) that are compiled for tests only.
    test_lines: Vec<Range<usize>>,
}

impl Source {
    /// Takes a file apart.
    pub(crate) fn new(path: &str, text: String) -> Self {
        let code = blank(&text);
        let test_lines = test_regions(&code);
        Self { path: path.to_owned(), text, code, test_lines }
    }

    /// Whether the file as a whole is a test, a bench, or help for them.
    pub(crate) fn is_test_file(&self) -> bool {
        let mut parts = self.path.split('/');
        let top = parts.next().unwrap_or_default();
        matches!(top, "tests" | "testkit" | "fuzz")
            || self.path.split('/').any(|part| matches!(part, "tests" | "benches" | "tests.rs"))
            || self.path.ends_with("/contract.rs")
    }

    /// Whether this line (counted from zero) is compiled for tests only.
    pub(crate) fn is_test_line(&self, line: usize) -> bool {
        self.is_test_file() || self.test_lines.iter().any(|range| range.contains(&line))
    }

    /// Every line where `word` stands in the code as a whole identifier, counted from zero.
    pub(crate) fn lines_with_word(&self, word: &str) -> Vec<usize> {
        lines_with_word(&self.code, word)
    }
}

/// Every line of `text` in which `word` stands between two non-identifier characters.
pub(crate) fn lines_with_word(text: &str, word: &str) -> Vec<usize> {
    let has = |line: &str| words(line).any(|found| found == word);
    text.lines().enumerate().filter(|(_, line)| has(line)).map(|(number, _)| number).collect()
}

/// The identifiers (and numbers) of a text, in order.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !is_word(c)).filter(|word| !word.is_empty())
}

/// The word at the start of a text, empty if there is none.
pub(crate) fn first_word(text: &str) -> &str {
    let end = text.find(|c: char| !is_word(c)).unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}

/// All files under `root` with names that end in `.rs`, sorted, without build folders and data.
pub(crate) fn rust_files(root: &Path) -> io::Result<Vec<Source>> {
    let mut paths = Vec::new();
    walk(root, &mut paths)?;
    paths.sort();
    let mut sources = Vec::with_capacity(paths.len());
    for path in paths {
        let name = path.strip_prefix(root).unwrap_or(&path);
        let name = name.to_string_lossy().replace('\\', "/");
        sources.push(Source::new(&name, fs::read_to_string(&path)?));
    }
    Ok(sources)
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let skip = name.starts_with('.') || matches!(&*name, "target" | "data" | "corpus");
            if !skip {
                walk(&entry.path(), found)?;
            }
        } else if kind.is_file() && name.ends_with(".rs") {
            found.push(entry.path());
        }
    }
    Ok(())
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// Turns comments and the insides of string and character literals into spaces.
fn blank(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let (start, literal) = (at, literal_or_comment(&chars, at));
        at = literal.unwrap_or_else(|| word_end(&chars, at));
        let taken = chars[start..at].iter();
        code.extend(taken.map(|&c| if literal.is_some() && c != '\n' { ' ' } else { c }));
    }
    code
}

/// The end of the word at `at`, or of the one character there: words are taken whole, so that the
/// `r` of `var"` is never read as the prefix of a string.
fn word_end(chars: &[char], at: usize) -> usize {
    let word = chars[at..].iter().take_while(|&&c| is_word(c)).count();
    at + word.max(1)
}

/// Where the comment or literal that starts at `at` ends; none if code starts there.
fn literal_or_comment(chars: &[char], at: usize) -> Option<usize> {
    let next = chars.get(at + 1).copied();
    match chars[at] {
        '/' if next == Some('/') => Some(find(chars, at, '\n')),
        '/' if next == Some('*') => Some(block_comment_end(chars, at)),
        '"' => Some(string_end(chars, at + 1)),
        '\'' => char_end(chars, at),
        'b' | 'c' | 'r' => prefixed_end(chars, at),
        _ => None,
    }
}

/// Handles `b"…"`, `c"…"`, `r"…"`, `r#"…"#`, `br#"…"#`, `cr"…"` and `b'…'`.
fn prefixed_end(chars: &[char], at: usize) -> Option<usize> {
    let mut quote = at + 1;
    let mut raw = chars[at] == 'r';
    if !raw && chars.get(quote) == Some(&'r') {
        raw = true;
        quote += 1;
    }
    if !raw {
        return match chars.get(quote) {
            Some('"') => Some(string_end(chars, quote + 1)),
            Some('\'') if chars[at] == 'b' => char_end(chars, quote),
            _ => None,
        };
    }
    let hashes = chars[quote..].iter().take_while(|&&c| c == '#').count();
    quote += hashes;
    if chars.get(quote) != Some(&'"') {
        return None; // a raw identifier, or a word that only starts like a prefix
    }
    let mut end = quote + 1;
    while end < chars.len() {
        end = (find(chars, end, '"') + 1).min(chars.len());
        if chars[end..].iter().take(hashes).filter(|&&c| c == '#').count() == hashes {
            return Some((end + hashes).min(chars.len()));
        }
    }
    Some(chars.len())
}

fn string_end(chars: &[char], mut at: usize) -> usize {
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// The end of a character literal; none if the apostrophe starts a lifetime.
fn char_end(chars: &[char], at: usize) -> Option<usize> {
    match chars.get(at + 1)? {
        '\\' => Some((find(chars, at + 3, '\'') + 1).min(chars.len())),
        _ if chars.get(at + 2) == Some(&'\'') => Some(at + 3),
        _ => None,
    }
}

fn block_comment_end(chars: &[char], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while at + 1 < chars.len() {
        match (chars[at], chars[at + 1]) {
            ('/', '*') => depth += 1,
            ('*', '/') => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    chars.len()
}

fn find(chars: &[char], from: usize, wanted: char) -> usize {
    let rest = chars.get(from..).unwrap_or_default();
    rest.iter().position(|&c| c == wanted).map_or(chars.len(), |offset| from + offset)
}

/// The lines of every item that stands under a `#[cfg(test)]` of any form.
fn test_regions(code: &str) -> Vec<Range<usize>> {
    let mut regions = Vec::new();
    for (offset, attribute) in code.match_indices("#[cfg(") {
        let rest = &code[offset..];
        let Some(close) = rest.find(")]") else { continue };
        let condition = &rest[attribute.len()..close];
        if words(condition).any(|word| word == "test") && !condition.contains("not(") {
            let end = offset + item_end(rest);
            regions.push(line_of(code, offset)..line_of(code, end) + 1);
        }
    }
    regions
}

/// The line, counted from zero, of a byte offset.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    text[..offset.min(text.len())].matches('\n').count()
}

/// Where the item at the start of `code` ends: at its closing brace, or at its semicolon.
pub(crate) fn item_end(code: &str) -> usize {
    let mut braces = 0_usize;
    let mut others = 0_usize;
    for (offset, c) in code.char_indices() {
        match c {
            '{' => braces += 1,
            '}' => {
                braces = braces.saturating_sub(1);
                if braces == 0 {
                    return offset;
                }
            }
            '[' | '(' => others += 1,
            ']' | ')' => others = others.saturating_sub(1),
            ';' if braces == 0 && others == 0 => return offset,
            _ => {}
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_lines_stay() {
        let text = "a(/* x /* y */ z */ b); // c\n\"d \\\" e\nf\" g r#\"h \" i\"# j b\"k\" l";
        let code = blank(text);
        assert_eq!(words(&code).collect::<Vec<_>>(), ["a", "b", "g", "j", "l"]);
        assert_eq!(code.lines().count(), text.lines().count());
        assert_eq!(code.chars().count(), text.chars().count());
    }

    #[test]
    fn lifetimes_are_not_characters() {
        let code = blank("fn f<'a>(x: &'a str) { g('\\'', 'b', '\\u{41}', b'c', \"d\"); h }");
        let found: Vec<_> = words(&code).collect();
        assert_eq!(found, ["fn", "f", "a", "x", "a", "str", "g", "h"]);
    }

    #[test]
    fn words_that_end_like_a_prefix_are_words() {
        let code = blank("let var = number; br r#type for_b");
        let found: Vec<_> = words(&code).collect();
        assert_eq!(found, ["let", "var", "number", "br", "r", "type", "for_b"]);
    }

    #[test]
    fn a_test_region_ends_with_its_item() {
        let text = "#[cfg(test)]\nuse x::{a, b};\nfn c() {}\n#[cfg(all(test, not_loom))]\n\
                    mod tests {\n    fn d() {}\n}\nfn e() {}\n";
        let source = Source::new("crates/x/src/y.rs", text.to_owned());
        let lines: Vec<_> = (0..8).filter(|&line| source.is_test_line(line)).collect();
        assert_eq!(lines, [0, 1, 3, 4, 5, 6]);
    }

    #[test]
    fn whole_files_can_be_tests() {
        for (path, wanted) in [
            ("tests/sim/flood.rs", true),
            ("crates/udp/src/intake/tests.rs", true),
            ("crates/udp/benches/push.rs", true),
            ("crates/udp/src/intake.rs", false),
        ] {
            assert_eq!(Source::new(path, String::new()).is_test_file(), wanted, "{path}");
        }
    }
}
