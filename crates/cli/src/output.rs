//! Standard output and standard error for commands, and texts of others made safe for a terminal.
//!
//! Names come from elsewhere (interfaces, DNS search lists, any process that answers on a socket),
//! so that no text reaches a terminal as it is: what is printed is escaped here, in one place.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;

use serde_json::Value;

use crate::exit::Exit;

/// Writes lines to standard output, with all other control characters escaped. A closed pipe, as
/// from `head`, is no failure.
pub(crate) fn print(text: &str) -> Exit {
    print_styled(&lines(text))
}

/// As [`print`], for a text with colours of ours and nothing of others that is not escaped.
pub(crate) fn print_styled(text: &str) -> Exit {
    match print_again(text) {
        ControlFlow::Continue(()) => Exit::Done,
        ControlFlow::Break(exit) => exit,
    }
}

/// As [`print_styled`], for what goes on until it is interrupted: it ends with its reader.
pub(crate) fn print_again(text: &str) -> ControlFlow<Exit> {
    match write(text) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ControlFlow::Break(Exit::Done),
        Err(error) => {
            eprintln!("floodwall: {}", unwritten(&error));
            ControlFlow::Break(Exit::Usage)
        }
    }
}

/// As [`print`]; on a terminal, lines that are wider than it go on below their text, which begins
/// at column `indent` where a line is indented.
pub(crate) fn print_folded(text: &str, indent: usize) -> Exit {
    let text = lines(text);
    match io::stdout().is_terminal() {
        true => print_styled(&folded(&text, indent, crate::terminal::size().1.into())),
        false => print_styled(&text),
    }
}

/// Breaks lines between words at that many columns; words that are wider stay whole.
fn folded(text: &str, indent: usize, columns: usize) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let below = if line.starts_with(' ') { indent } else { 0 };
        let mut at = 0;
        for (number, word) in line.split(' ').enumerate() {
            let width = word.chars().count();
            if number > 0 && at + 1 + width > columns && at > below {
                out.push('\n');
                out.extend(std::iter::repeat_n(' ', below));
                at = below;
            } else if number > 0 {
                out.push(' ');
                at += 1;
            }
            out.push_str(word);
            at += width;
        }
        out.push('\n');
    }
    out
}

/// Prints a JSON document for programs.
pub(crate) fn print_document(value: &impl Display) -> Exit {
    print_styled(&document(value))
}

/// A JSON document as a line. It keeps every name exactly, in JSON's own escapes.
pub(crate) fn document(value: &impl Display) -> String {
    let mut out = String::new();
    for c in value.to_string().chars() {
        match is_unsafe(c) && c != '\n' {
            // Such characters stand in strings only, and all of them have four digits.
            true => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => out.push(c),
        }
    }
    out + "\n"
}

/// Writes a text of ours as it is, for commands with exit codes of their own: the error as a
/// sentence. A closed pipe is no failure.
pub(crate) fn try_print(text: &str) -> Result<(), String> {
    match write(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(unwritten(&error)),
        _ => Ok(()),
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn unwritten(error: &io::Error) -> String {
    format!("cannot write to standard output: {error}")
}

/// Writes lines to standard error, escaped as by [`print`]; where that fails, they are lost.
pub(crate) fn complain(text: std::fmt::Arguments<'_>) {
    let _ = io::stderr().lock().write_all(lines(&text.to_string()).as_bytes());
}

/// A text with all control characters escaped but those between lines and columns.
pub(crate) fn lines(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match is_unsafe(c) && c != '\n' && c != '\t' {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    out
}

/// Escapes every string of an answer, before it is made into a text.
pub(crate) fn harmless(answer: &mut Value) {
    match answer {
        Value::String(text) => *text = shown(text),
        Value::Array(all) => all.iter_mut().for_each(harmless),
        Value::Object(all) => {
            all.values_mut().for_each(harmless);
            if all.keys().any(|key| key.contains(is_unsafe)) {
                *all = std::mem::take(all).into_iter().map(|(k, v)| (shown(&k), v)).collect();
            }
        }
        _ => {}
    }
}

/// A text with control characters escaped, so that no name can control a terminal or end a line.
pub(crate) fn shown(text: &impl Display) -> String {
    let mut out = String::new();
    for c in text.to_string().chars() {
        match is_unsafe(c) {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    out
}

/// Characters that control a terminal, or reorder or hide the text around them.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{200b}'..='\u{200f}'
                | '\u{202a}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
                | '\u{feff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_lines_go_on_below_their_text() {
        let text = "attack: a flood of something\n\n  what      datagrams for ports, 9 a second\n";
        let narrow = "attack: a flood of\nsomething\n\n  what      datagrams\n            for \
                      ports, 9\n            a second\n";
        assert_eq!(folded(text, 12, 24), narrow);
        assert_eq!(folded(text, 12, 80), text);
        // A terminal that is too narrow for anything.
        let fd00 = "  from      fd00::/48 47 %\n";
        assert_eq!(folded(fd00, 12, 1), "  from      fd00::/48\n            47\n            %\n");
    }

    #[test]
    fn no_text_controls_a_terminal() {
        assert_eq!(shown(&"eth0"), "eth0");
        assert_eq!(shown(&"a\x1b[2Jb\n\u{202e}c\u{9b}"), "a\\u{1b}[2Jb\\n\\u{202e}c\\u{9b}");
        assert_eq!(lines("a\tb\nc\r\x1b[1md\n"), "a\tb\nc\\r\\u{1b}[1md\n");
        let mut answer = serde_json::json!({ "a\x1b": ["b\n", { "c": "\u{9b}" }], "d": 1 });
        harmless(&mut answer);
        let clean = serde_json::json!({ "a\\u{1b}": ["b\\n", { "c": "\\u{9b}" }], "d": 1 });
        assert_eq!(answer, clean);
    }
}
