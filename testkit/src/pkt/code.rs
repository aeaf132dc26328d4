//! Code blocks: what a script asserts about the connection under test.
//!
//! Called by the runner at the block's event. A block is statements: `assert`, `=`, `+=`, `print`.
//! Expressions are whole numbers, names, brackets, Python's operators of them. Invariants: a
//! name is a field, a constant, or was assigned before; reading ends, because every step moves on.

use std::collections::BTreeMap;

/// Names and what they stand for.
pub(super) type Names = BTreeMap<String, i64>;

/// Operators by how tightly they bind, the loosest first; comparisons chain and are apart.
const LEVELS: &[&[&str]] = &[&["or"], &["and"], &["|"], &["&"], &["+", "-"], &["*", "//", "%"]];
/// Where comparisons stand among them.
const COMPARES_AT: usize = 2;
const COMPARISONS: &[&str] = &["==", "!=", "<=", ">=", "<", ">"];

/// Carries out a block. `fields` are the connection's, `own` what blocks before have assigned.
///
/// # Errors
/// The assertion that does not hold, or what cannot be read.
pub(super) fn run(text: &str, fields: &Names, own: &mut Names) -> Result<(), String> {
    for statement in statements(text) {
        let words = words(&statement)?;
        let mut reader = Reader { words: &words, at: 0, fields, own };
        match words.first().map(String::as_str) {
            None | Some("print" | "import" | "pass") => {}
            Some("assert") => {
                reader.at = 1;
                if reader.level(0)? == 0 {
                    let seen = seen(&words, fields, own);
                    return Err(format!("`{}` does not hold: {seen}", statement.trim()));
                }
                reader.end(true)?;
            }
            Some(name) => {
                let name = name.to_owned();
                let sign = words.get(1).map(String::as_str);
                reader.at = 2;
                let value = reader.level(0)?;
                reader.end(false)?;
                let before = own.get(&name).copied();
                let value = match (sign, before) {
                    (Some("="), _) => value,
                    (Some("+="), Some(before)) => before.saturating_add(value),
                    _ => return Err(format!("`{}` cannot be read", statement.trim())),
                };
                own.insert(name, value);
            }
        }
    }
    Ok(())
}

/// The names of a statement, and their values.
fn seen(words: &[String], fields: &Names, own: &Names) -> String {
    let value = |word: &String| {
        let value = own.get(word).or_else(|| fields.get(word))?;
        Some(format!("{word} is {value}"))
    };
    words.iter().filter_map(value).collect::<Vec<_>>().join(", ")
}

fn statements(text: &str) -> Vec<String> {
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().map(|line| line.split('#').next().unwrap_or_default());
    lines.flat_map(|line| line.split(';')).map(str::to_owned).collect()
}

/// Cuts a statement into words; a string is one.
fn words(statement: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut rest = statement.trim();
    while let Some(first) = rest.chars().next() {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let len = if is_name(first) {
            rest.find(|c| !is_name(c)).unwrap_or(rest.len())
        } else if first == '"' || first == '\'' {
            let end = rest.get(1..).and_then(|rest| rest.find(first));
            end.ok_or_else(|| format!("a string has no end: {rest}"))? + 2
        } else {
            let double = ["==", "!=", "<=", ">=", "+=", "//"];
            if double.iter().any(|sign| rest.starts_with(sign)) { 2 } else { first.len_utf8() }
        };
        let (word, more) = rest.split_at(len);
        words.push(word.to_owned());
        rest = more.trim_start();
    }
    Ok(words)
}

struct Reader<'a> {
    words: &'a [String],
    at: usize,
    fields: &'a Names,
    own: &'a Names,
}

impl Reader<'_> {
    fn sees(&self) -> &str {
        self.words.get(self.at).map_or("", String::as_str)
    }

    fn end(&self, may_say_why: bool) -> Result<(), String> {
        match self.sees() {
            "" => Ok(()),
            "," if may_say_why => Ok(()),
            word => Err(format!("`{word}` is not expected here")),
        }
    }

    fn level(&mut self, level: usize) -> Result<i64, String> {
        if level == COMPARES_AT {
            return self.comparison();
        }
        self.operators(if level > COMPARES_AT { level - 1 } else { level }, level + 1)
    }

    fn operators(&mut self, signs: usize, next: usize) -> Result<i64, String> {
        let Some(signs) = LEVELS.get(signs) else { return self.one() };
        let mut value = self.level(next)?;
        while signs.contains(&self.sees()) {
            let sign = self.sees().to_owned();
            self.at += 1;
            let other = self.level(next)?;
            value = match sign.as_str() {
                "or" => i64::from(value != 0 || other != 0),
                "and" => i64::from(value != 0 && other != 0),
                "|" => value | other,
                "&" => value & other,
                "+" => value.saturating_add(other),
                "-" => value.saturating_sub(other),
                "*" => value.saturating_mul(other),
                "//" => value.checked_div(other).ok_or("a division by zero")?,
                _ => value.checked_rem(other).ok_or("a division by zero")?,
            };
        }
        Ok(value)
    }

    /// `a <= b <= c` holds where each does.
    fn comparison(&mut self) -> Result<i64, String> {
        let mut left = self.level(COMPARES_AT + 1)?;
        let mut holds = None;
        while COMPARISONS.contains(&self.sees()) {
            let sign = self.sees().to_owned();
            self.at += 1;
            let right = self.level(COMPARES_AT + 1)?;
            let here = match sign.as_str() {
                "==" => left == right,
                "!=" => left != right,
                "<=" => left <= right,
                ">=" => left >= right,
                "<" => left < right,
                _ => left > right,
            };
            holds = Some(holds.unwrap_or(true) && here);
            left = right;
        }
        Ok(holds.map_or(left, i64::from))
    }

    fn one(&mut self) -> Result<i64, String> {
        let word = self.sees().to_owned();
        self.at += 1;
        match word.as_str() {
            "(" => {
                let value = self.level(0)?;
                let closes = self.sees() == ")";
                self.at += 1;
                closes.then_some(value).ok_or_else(|| "a bracket is not closed".to_owned())
            }
            "not" => Ok(i64::from(self.level(COMPARES_AT)? == 0)),
            "-" => Ok(-self.one()?),
            "int" => self.one(),
            _ => self.named(&word),
        }
    }

    fn named(&self, word: &str) -> Result<i64, String> {
        let number = match word.strip_prefix("0x") {
            Some(hex) => i64::from_str_radix(hex, 16).ok(),
            None => word.parse().ok(),
        };
        let known =
            number.or_else(|| self.own.get(word).or_else(|| self.fields.get(word)).copied());
        known.ok_or_else(|| match word.starts_with("tcpi_") {
            true => format!("the field {word} is not supported"),
            false => format!("`{word}` is not known here"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assertions_hold_or_say_what_they_saw() {
        let fields: Names = [("a".to_owned(), 10), ("FLAG".to_owned(), 2)].into();
        let mut own = Names::new();
        for holds in [
            "assert a == 10",
            "assert 5 <= a <= 10, 'why'",
            "assert (a & FLAG) != 0, a",
            "x = a + 2 # a remark\nx += 1; assert x == 13",
            "assert not a == 3 and (a | 1) == 11 \\\n or 0",
            "print(a); assert 2 + 3 * 4 - 0x1 == 13",
        ] {
            assert_eq!(run(holds, &fields, &mut own), Ok(()), "{holds}");
        }
        for (fails, why) in [
            ("assert a == 11", "a is 10"),
            ("assert b == 1", "`b` is not known"),
            ("assert (a == 10", "not closed"),
            ("y += 1", "cannot be read"),
            ("assert a 3", "not expected"),
            ("assert 1 // 0", "division"),
        ] {
            let error = run(fails, &fields, &mut own).expect_err(fails);
            assert!(error.contains(why), "{fails}: {error}");
        }
    }
}
