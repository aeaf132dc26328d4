//! What happens to a script's text before it is read: `#ifdef`, and names that the command line
//! gave a value.
//!
//! Called by the parser. Invariant: every line stays where it was, so that an error names the line
//! of the file. Comments, strings, commands and code are left alone, as packetdrill leaves them.

use std::collections::BTreeMap;

use super::lexer::Lexer;
use super::parser::SyntaxError;

/// Names and what they stand for.
pub(super) type Defines = BTreeMap<String, String>;

/// What is copied as it stands: how it begins, and how it ends.
const QUOTED: &[(&str, &str)] =
    &[("//", "\n"), ("/*", "*/"), ("\"", "\""), ("`", "`"), ("%{", "}%")];

/// The text with every defined name replaced, and without what is not defined.
///
/// # Errors
/// An `#ifdef` without an end, or one inside of another.
pub(super) fn expand(text: &str, defines: &Defines) -> Result<String, SyntaxError> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    // The line that an open `#ifdef` stands in, and whether what follows is taken.
    let mut within: Option<(usize, bool)> = None;
    while let Some(first) = rest.chars().next() {
        let line = out.matches('\n').count() + 1;
        let wrong = |what: &str| SyntaxError {
            line,
            near: rest.split_whitespace().next().unwrap_or_default().to_owned(),
            what: what.to_owned(),
        };
        let taken = within.is_none_or(|(_, taken)| taken);
        if let Some(name) = rest.strip_prefix("#ifdef") {
            if within.is_some() {
                return Err(wrong("an #ifdef inside of another is not supported"));
            }
            let name = name.lines().next().unwrap_or_default().trim();
            within = Some((line, defines.contains_key(name)));
            rest = rest.get(rest.find('\n').unwrap_or(rest.len())..).unwrap_or_default();
        } else if rest.starts_with("#endif") {
            within = within.take().map(|_| None).ok_or_else(|| wrong("no #ifdef stands before"))?;
            rest = rest.get(rest.find('\n').unwrap_or(rest.len())..).unwrap_or_default();
        } else {
            let len = token(rest, first);
            let (piece, more) = rest.split_at(len);
            if !taken {
                out.extend(piece.matches('\n'));
            } else {
                out.push_str(defines.get(piece).map_or(piece, String::as_str));
            }
            rest = more;
        }
    }
    match within {
        None => Ok(out),
        Some((line, _)) => {
            let (near, what) = ("#ifdef".to_owned(), "`#endif` is missing".to_owned());
            Err(SyntaxError { line, near, what })
        }
    }
}

/// How long the next piece is that is replaced, or left alone, as a whole.
fn token(rest: &str, first: char) -> usize {
    for (begins, ends) in QUOTED {
        if let Some(inner) = rest.strip_prefix(begins) {
            let len = inner.find(ends).map_or(inner.len(), |at| at + ends.len());
            return begins.len() + len;
        }
    }
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if is_part(first) {
        return rest.find(|c| !is_part(c)).unwrap_or(rest.len());
    }
    first.len_utf8()
}

/// Reads `NAME=VALUE`, as `-D` takes it.
///
/// # Errors
/// There is no name, or no value.
pub(super) fn define(word: &str, defines: &mut Defines) -> Result<(), SyntaxError> {
    match word.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => {
            defines.insert(name.to_owned(), value.to_owned());
            Ok(())
        }
        _ => Err(Lexer::new(word).error("a definition is NAME=VALUE")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_where_they_are_words_of_the_script_and_lines_stay() {
        let mut defines = Defines::new();
        define("LEVEL=SOL_IP", &mut defines).expect("a definition");
        define("N=7", &mut defines).expect("a definition");
        for (text, wanted) in [
            ("f(LEVEL, N) = N", "f(SOL_IP, 7) = 7"),
            ("NN N_N 1N", "NN N_N 1N"),
            ("// N\n/* N\n*/N \"N\" `N` %{ N }%", "// N\n/* N\n*/7 \"N\" `N` %{ N }%"),
            ("a\n#ifdef N\nb N\n#endif\nc", "a\n\nb 7\n\nc"),
            ("a\n#ifdef M\nb /*\n*/\n#endif\nc", "a\n\n\n\n\nc"),
        ] {
            assert_eq!(expand(text, &defines).as_deref(), Ok(wanted), "{text}");
        }
        for (text, line) in [("\n#ifdef N\n", 2), ("#endif", 1), ("#ifdef A\n#ifdef B\n", 2)] {
            assert_eq!(expand(text, &defines).map_err(|error| error.line), Err(line), "{text}");
        }
        assert!(define("N", &mut defines).is_err() && define("=3", &mut defines).is_err());
    }
}
