//! Standard output for commands, and texts of others made safe for a terminal.

use std::fmt::Display;
use std::io::{self, Write};

use crate::exit::Exit;

/// Writes to standard output. A closed pipe, as from `head`, is no failure.
pub(crate) fn print(text: &str) -> Exit {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Exit::Done,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
        Err(error) => {
            eprintln!("floodwall: cannot write to standard output: {error}");
            Exit::Usage
        }
    }
}

/// Writes a line to standard error; where that fails, it is lost.
pub(crate) fn complain(line: std::fmt::Arguments<'_>) {
    let _ = io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

/// A text with control characters escaped, so that no name can control a terminal or end a line.
pub(crate) fn shown(text: &impl Display) -> String {
    let mut out = String::new();
    for c in text.to_string().chars() {
        match c.is_control() || is_invisible(c) {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    out
}

/// Characters that reorder or hide the text around them.
const fn is_invisible(c: char) -> bool {
    matches!(
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
    fn no_text_controls_a_terminal() {
        assert_eq!(shown(&"eth0"), "eth0");
        assert_eq!(shown(&"a\x1b[2Jb\n\u{202e}c\u{9b}"), "a\\u{1b}[2Jb\\n\\u{202e}c\\u{9b}");
    }
}
