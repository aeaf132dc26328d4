//! As much of a shell as the classic generator's scripts need.
//!
//! Called by `script.rs` for each line. Invariants: nothing is ever run; a variable's value is put
//! in once and not looked at again, so no text grows beyond its line and its values.

use super::{Fault, fault};

/// Bytes of a line with its variables put in, at most.
const LINE_MAX: usize = 4096;
/// Variables at most.
const VARIABLES_MAX: usize = 256;

/// What a line does.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ShellAction {
    Nothing,
    /// `echo`
    Say(String),
    /// `pgset`
    Set(String),
}

/// Variables, and whether a function is being passed over.
pub(super) struct Shell {
    variables: Vec<(String, String)>,
    /// The name of the function that is being skipped, and open braces.
    function: Option<(String, usize)>,
}

/// A token, and whether its first letter stands in quotes.
type Word = (String, bool);

fn is_name(text: &str) -> bool {
    let mut letters = text.chars();
    letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && letters.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl Shell {
    pub(super) fn new(given: &[(&str, &str)]) -> Self {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self { variables: given.iter().map(own).collect(), function: None }
    }

    /// The script is over.
    pub(super) fn end(self) -> Result<(), Fault> {
        match self.function {
            Some((name, _)) => Err(fault(&name, "the function does not end: `}` is missing")),
            None => Ok(()),
        }
    }

    /// Reads one line.
    pub(super) fn line(&mut self, line: &str) -> Result<ShellAction, Fault> {
        let bare = line.trim();
        if let Some((_, open)) = &mut self.function {
            let count = |brace| bare.matches(brace).count();
            *open = (*open + count('{')).saturating_sub(count('}'));
            // A body may begin on the line behind the name.
            if *open == 0 && bare.contains('}') {
                self.function = None;
            }
            return Ok(ShellAction::Nothing);
        }
        if let Some(name) = function(bare) {
            let open = bare.matches('{').count();
            let closed = bare.matches('}').count();
            if open == 0 || open > closed {
                self.function = Some((name.to_owned(), open.saturating_sub(closed)));
            }
            return Ok(ShellAction::Nothing);
        }
        let words = self.words(bare)?;
        let Some(((first, quoted), rest)) = words.split_first() else {
            return Ok(ShellAction::Nothing);
        };
        if let Some((name, value)) = first.split_once('=').filter(|(name, _)| is_name(name))
            && !quoted
        {
            if let Some((other, _)) = rest.first() {
                return Err(fault(other, "stands behind an assignment: put the value in quotes"));
            }
            self.assign(name, value)?;
            return Ok(ShellAction::Nothing);
        }
        let mut said: Vec<&str> = rest.iter().map(|(word, _)| word.as_str()).collect();
        let into = rest.iter().position(|(word, quoted)| word.starts_with('>') && !quoted);
        match first.as_str() {
            "pgset" => Ok(ShellAction::Set(said.join(" "))),
            "pg" => Ok(ShellAction::Set("inject".to_owned())),
            // A control-file command, not output for the user.
            "echo" if into.is_some() => {
                said.truncate(into.unwrap_or(0));
                Ok(ShellAction::Set(said.join(" ")))
            }
            "echo" => Ok(ShellAction::Say(said.join(" "))),
            "modprobe" | "cat" | "exit" | "set" => Ok(ShellAction::Nothing),
            other => Err(fault(other, "is no line of such a script: NAME=, pgset or echo")),
        }
    }

    fn assign(&mut self, name: &str, value: &str) -> Result<(), Fault> {
        self.variables.retain(|(known, _)| known != name);
        if self.variables.len() >= VARIABLES_MAX {
            return Err(fault(name, "is one variable too many"));
        }
        self.variables.push((name.to_owned(), value.to_owned()));
        Ok(())
    }

    fn value(&self, name: &str) -> &str {
        let found = self.variables.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }

    /// The tokens of a line: quotes taken off, variables put in, remarks left out.
    fn words(&self, line: &str) -> Result<Vec<Word>, Fault> {
        let (mut words, mut word, mut open): (Vec<Word>, Option<Word>, Option<char>) =
            (Vec::new(), None, None);
        let mut letters = line.chars().peekable();
        while let Some(letter) = letters.next() {
            match (letter, open) {
                (quote, Some(end)) if quote == end => open = None,
                ('$', None | Some('"')) => {
                    let braced = letters.next_if_eq(&'{').is_some();
                    let mut name = String::new();
                    while let Some(c) =
                        letters.next_if(|c| c.is_ascii_alphanumeric() || matches!(c, '_'))
                    {
                        name.push(c);
                    }
                    if braced && letters.next_if_eq(&'}').is_none() {
                        return Err(fault(&format!("${{{name}"), "`}` is missing"));
                    }
                    let (text, _) = word.get_or_insert_default();
                    text.push_str(self.value(&name));
                }
                ('"' | '\'', None) => {
                    open = Some(letter);
                    word.get_or_insert((String::new(), true));
                }
                (space, None) if space.is_whitespace() => words.extend(word.take()),
                ('#', None) if word.is_none() => break,
                (';', None) => words.extend(word.take()),
                (letter, _) => word.get_or_insert_default().0.push(letter),
            }
            if word.as_ref().is_some_and(|(word, _)| word.len() > LINE_MAX) {
                return Err(fault(line.get(..40).unwrap_or(line), "grows too long"));
            }
        }
        if let Some(quote) = open {
            let text = word.map(|(word, _)| word).unwrap_or_default();
            return Err(fault(&text, format!("the closing {quote} is missing")));
        }
        words.extend(word);
        Ok(words)
    }
}

/// The name of the function that begins here.
fn function(line: &str) -> Option<&str> {
    let name = line.strip_prefix("function ").unwrap_or(line).trim_start();
    let (name, rest) = name.split_once("()")?;
    let name = name.trim();
    let rest = rest.trim_start();
    (is_name(name) && (rest.is_empty() || rest.starts_with('{'))).then_some(name)
}
