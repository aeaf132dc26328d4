//! A script's text, read one piece after another.
//!
//! Invariant: every step moves on or returns an error; the line is known at any place.

use super::parser::SyntaxError;

#[derive(Clone)]
pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Lexer<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self { text, at: 0, line: 1 }
    }

    pub(super) const fn line(&self) -> usize {
        self.line
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn advance(&mut self, bytes: usize) -> &'a str {
        let taken = self.rest().get(..bytes).unwrap_or_default();
        self.at += taken.len();
        self.line += taken.matches('\n').count();
        taken
    }

    /// Skips white space and comments.
    pub(super) fn skip(&mut self) {
        loop {
            let rest = self.rest();
            let blank = rest.len() - rest.trim_start().len();
            if blank > 0 {
                self.advance(blank);
            } else if rest.starts_with("//") {
                self.advance(rest.find('\n').unwrap_or(rest.len()));
            } else if rest.starts_with("/*") {
                self.advance(rest.find("*/").map_or(rest.len(), |end| end + 2));
            } else {
                return;
            }
        }
    }

    pub(super) fn is_at_end(&mut self) -> bool {
        self.skip();
        self.rest().is_empty()
    }

    /// Takes `wanted` where it is next.
    pub(super) fn eat(&mut self, wanted: &str) -> bool {
        self.skip();
        let found = self.rest().starts_with(wanted);
        if found {
            self.advance(wanted.len());
        }
        found
    }

    /// Whether `wanted` is next.
    pub(super) fn sees(&mut self, wanted: &str) -> bool {
        self.skip();
        self.rest().starts_with(wanted)
    }

    /// `wanted` must be next.
    pub(super) fn expect(&mut self, wanted: &str) -> Result<(), SyntaxError> {
        if self.eat(wanted) { Ok(()) } else { Err(self.error(&format!("`{wanted}` is missing"))) }
    }

    fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        self.skip();
        let rest = self.rest();
        self.advance(rest.find(|c| !is_part(c)).unwrap_or(rest.len()))
    }

    /// Whether a digit is next: an absolute time, where no number is expected.
    pub(super) fn starts_a_time(&mut self) -> bool {
        self.skip();
        self.rest().starts_with(|c: char| c.is_ascii_digit())
    }

    /// Whether a letter is next.
    pub(super) fn starts_a_word(&mut self) -> bool {
        self.skip();
        self.rest().starts_with(|c: char| c.is_ascii_alphabetic())
    }

    /// A word of letters, digits and underlines.
    pub(super) fn word(&mut self) -> &'a str {
        self.take_while(|c| c.is_ascii_alphanumeric() || c == '_')
    }

    /// The value of an option of the script: up to white space.
    pub(super) fn value(&mut self) -> &'a str {
        self.take_while(|c| !c.is_whitespace())
    }

    /// A string, its escapes resolved; strings that follow each other are one.
    pub(super) fn text(&mut self) -> Result<String, SyntaxError> {
        let mut out = String::new();
        while self.eat("\"") {
            let inner = self.until("\"")?;
            let mut rest = inner.chars();
            while let Some(c) = rest.next() {
                out.push(match (c, if c == '\\' { rest.next() } else { None }) {
                    ('\\', Some('n')) => '\n',
                    ('\\', Some('r')) => '\r',
                    ('\\', Some('t')) => '\t',
                    ('\\', Some('f')) => '\x0c',
                    ('\\', Some('v')) => '\x0b',
                    ('\\', Some('x')) => {
                        let digits: String = rest.by_ref().take(2).collect();
                        let byte = u8::from_str_radix(&digits, 16).ok();
                        let byte = byte.filter(|_| digits.len() == 2);
                        char::from(byte.ok_or_else(|| self.error("two digits follow \\x"))?)
                    }
                    ('\\', Some(other)) if !other.is_ascii_alphanumeric() => other,
                    ('\\', _) => return Err(self.error("this escape is not supported")),
                    (plain, _) => plain,
                });
            }
        }
        Ok(out)
    }

    /// The flags of a segment; a digit may end them.
    pub(super) fn flags(&mut self) -> &'a str {
        self.skip();
        let rest = self.rest();
        let is_letter = |c: char| c.is_ascii_alphabetic() || c == '.' || c == '-';
        let letters = rest.find(|c| !is_letter(c)).unwrap_or(rest.len());
        let has_digit = |at| rest[at..].starts_with(|c: char| c.is_ascii_digit());
        let is_number = letters > 0 && has_digit(letters) && !has_digit(letters + 1);
        self.advance(letters + usize::from(is_number))
    }

    /// A whole number, decimal or hexadecimal, possibly negative.
    pub(super) fn integer(&mut self) -> Result<i64, SyntaxError> {
        let before = self.clone();
        let sign = if self.eat("-") { -1 } else { 1 };
        let word = self.word();
        let parsed = match word.strip_prefix("0x") {
            Some(hex) => i64::from_str_radix(hex, 16),
            None => word.parse(),
        };
        parsed.map(|n| sign * n).map_err(|_| before.error("a number is missing"))
    }

    /// A number that must fit.
    pub(super) fn number<T: TryFrom<i64>>(&mut self) -> Result<T, SyntaxError> {
        let before = self.clone();
        T::try_from(self.integer()?).map_err(|_| before.error("the number does not fit"))
    }

    /// Seconds, with a fraction.
    pub(super) fn seconds(&mut self) -> Result<std::time::Duration, SyntaxError> {
        let before = self.clone();
        let whole = self.take_while(|c| c.is_ascii_digit());
        let rest = self.rest();
        // `0...0.1`: the dots of a blocking call are no fraction.
        let fraction = if rest.starts_with('.') && !rest.starts_with("..") {
            self.advance(1);
            let digits = self.rest();
            self.advance(digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len()))
        } else {
            ""
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(before.error("a time is missing"));
        }
        let micros = format!("{fraction:0<6}");
        let micros: u64 = micros.get(..6).unwrap_or_default().parse().unwrap_or(0);
        let whole: u64 = if whole.is_empty() { Ok(0) } else { whole.parse() }
            .map_err(|_| before.error("the time is too long"))?;
        Ok(std::time::Duration::from_secs(whole) + std::time::Duration::from_micros(micros))
    }

    /// What stands up to `end`, which is taken too.
    pub(super) fn until(&mut self, end: &str) -> Result<&'a str, SyntaxError> {
        let Some(len) = self.rest().find(end) else {
            return Err(self.error(&format!("`{end}` is missing")));
        };
        let found = self.advance(len);
        self.advance(end.len());
        Ok(found)
    }

    /// An error at the current line.
    pub(super) fn error(&self, what: &str) -> SyntaxError {
        let mut here = self.clone();
        here.skip();
        let near = here.rest().split_whitespace().next().unwrap_or("end of the script");
        SyntaxError {
            line: here.line,
            near: near.chars().take(40).collect(),
            what: what.to_owned(),
        }
    }
}
