//! How `floodwall top` fills a terminal: tables that give up columns, lists that give up rows.
//!
//! Called by `top.rs`. Pure: values and a size in, lines out. Invariants: no line is wider than the
//! terminal, and there are no more of them than it has; a number or a name is whole or not there;
//! what is left out is said.

/// What separates two columns.
const GAP: usize = 2;
/// So much of a line is kept for names, of which a longer one has a line of its own.
const NAME_MIN: usize = 16;
/// Units that stand behind their number.
const UNITS: [&str; 2] = ["ms", "%"];
const NO_BREAK: char = '\u{a0}';
/// Two lists stand side by side in terminals of this width.
const PAIR_WIDTHS: std::ops::Range<usize> = 78..400;

/// A column of a table.
pub(super) struct Column {
    pub(super) title: &'static str,
    pub(super) cells: Vec<String>,
    /// The higher, the earlier it goes where the terminal is narrow.
    pub(super) rank: u8,
}

/// Something with a title that stands together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Section {
    pub(super) title: Option<String>,
    /// A row may have more than one line.
    pub(super) rows: Vec<String>,
    /// The higher, the earlier it goes where the terminal is low.
    pub(super) rank: u8,
}

fn width_of(text: &str) -> usize {
    text.chars().count()
}

/// Text in lines of at most `width`, broken between words where that can be, but not between a
/// number and its unit.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let text = UNITS.iter().fold(text.to_owned(), |text, unit| {
        text.replace(&format!(" {unit}"), &format!("{NO_BREAK}{unit}"))
    });
    let lines = wrap_words(&text, width);
    lines.into_iter().map(|line| line.replace(NO_BREAK, " ")).collect()
}

fn wrap_words(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut left = word;
        loop {
            let Some(line) = lines.last_mut() else { return lines };
            let gap = usize::from(!line.is_empty());
            let room = width.saturating_sub(width_of(line));
            if width_of(left) + gap <= room {
                line.extend(std::iter::repeat_n(' ', gap));
                line.push_str(left);
                break;
            }
            if line.is_empty() {
                // One word that is longer than a line.
                let end = left.char_indices().nth(width).map_or(left.len(), |(at, _)| at);
                let (head, tail) = left.split_at(end);
                line.push_str(head);
                left = tail;
            }
            lines.push(String::new());
        }
    }
    lines
}

/// A table no wider than `width`: columns go by their rank, the first one stays, and a name that
/// leaves no room for its numbers has a line of its own.
pub(super) fn table(mut columns: Vec<Column>, width: usize) -> Section {
    let natural = |c: &Column| {
        c.cells.iter().map(|cell| width_of(cell)).chain([width_of(c.title)]).max().unwrap_or(0)
    };
    // What is left of the width for the names.
    let left = |columns: &[Column]| {
        let others = columns.iter().skip(1).map(|c| natural(c) + GAP).sum();
        width.saturating_sub(others)
    };
    let longest = columns.first().map_or(0, natural);
    while columns.len() > 2 && left(&columns) < longest.min(NAME_MIN) {
        let last = columns.iter().enumerate().skip(1).max_by_key(|(at, c)| (c.rank, *at));
        let Some((at, _)) = last else { break };
        columns.remove(at);
    }
    let Some((first, others)) = columns.split_first() else { return Section::default() };
    let widths: Vec<_> = others.iter().map(natural).collect();
    let rest: usize = widths.iter().map(|w| w + GAP).sum();
    let room = width.saturating_sub(rest).max(width_of(first.title));
    let fits = first.cells.iter().map(|cell| width_of(cell)).filter(|w| *w <= room);
    let name = fits.chain([width_of(first.title)]).max().unwrap_or(0);
    let numbers = |of: &dyn Fn(&Column) -> String| {
        let cells = others.iter().zip(&widths);
        cells.map(|(c, w)| format!("{:GAP$}{:>w$}", "", of(c))).collect::<String>()
    };
    let rows = first.cells.iter().enumerate().map(|(n, cell)| {
        let numbers = numbers(&|c| c.cells.get(n).cloned().unwrap_or_default());
        if width_of(cell) <= room {
            return format!("{cell:<name$}{numbers}");
        }
        let mut lines = wrap(cell, width);
        lines.push(format!("{:name$}{numbers}", ""));
        lines.join("\n")
    });
    let rows = rows.collect();
    let title = format!("{:<name$}{}", first.title, numbers(&|c| c.title.to_owned()));
    Section { title: Some(title), rows, rank: 0 }
}

/// Two lists side by side where there is room for both.
pub(super) fn pair(left: Section, right: Section, width: usize) -> Vec<Section> {
    if !PAIR_WIDTHS.contains(&width) || left.rows.is_empty() || right.rows.is_empty() {
        return vec![left, right];
    }
    let half = width / 2;
    let line = |at: usize, section: &Section| match at {
        0 => section.title.clone(),
        at => section.rows.get(at - 1).cloned(),
    };
    let both = |at| {
        let (l, r) = (line(at, &left).unwrap_or_default(), line(at, &right).unwrap_or_default());
        format!("{l:<half$}{r}").trim_end().to_owned()
    };
    let rows = (1..=left.rows.len().max(right.rows.len())).map(both).collect();
    vec![Section { title: Some(both(0)), rows, rank: left.rank }]
}

impl Section {
    /// Its lines with so many of its rows.
    fn lines(&self, rows: usize) -> Vec<String> {
        let mut lines: Vec<_> = self.title.iter().cloned().collect();
        let whole = if rows < self.rows.len() { rows.saturating_sub(1) } else { rows };
        for row in self.rows.iter().take(whole) {
            lines.extend(row.lines().map(str::to_owned));
        }
        if whole < self.rows.len() {
            lines.push(format!("... and {} more", self.rows.len() - whole));
        }
        lines
    }
}

/// The sections in so many lines: empty lines go first, then rows of the longest list, then whole
/// sections by their rank.
pub(super) fn fit(sections: Vec<Section>, room: usize) -> Vec<String> {
    let mut shown: Vec<_> = sections
        .into_iter()
        .filter(|section| !section.rows.is_empty())
        .map(|section| (section.rows.len(), section))
        .collect();
    let (mut spaced, mut dropped) = (true, false);
    loop {
        let mut lines = Vec::new();
        for (rows, section) in &shown {
            if spaced && !lines.is_empty() {
                lines.push(String::new());
            }
            lines.extend(section.lines(*rows));
        }
        if dropped {
            lines.push("(a larger terminal shows more)".to_owned());
        }
        if lines.len() <= room {
            return lines;
        }
        // The head is not a list.
        let lists = shown.iter_mut().skip(1).filter(|(rows, s)| *rows > 2 && s.title.is_some());
        if std::mem::take(&mut spaced) {
            continue;
        }
        if let Some((rows, _)) = lists.max_by_key(|(rows, _)| *rows) {
            *rows -= 1;
            continue;
        }
        let last = shown.iter().enumerate().skip(1).max_by_key(|(at, (_, s))| (s.rank, *at));
        let Some((at, _)) = last else {
            lines.truncate(room);
            return lines;
        };
        shown.remove(at);
        dropped = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_whole_and_a_word_longer_than_a_line_is_broken() {
        assert_eq!(wrap("attack: SYN flood at 80", 12), ["attack: SYN", "flood at 80"]);
        assert_eq!(wrap("a 0123456789", 4), ["a", "0123", "4567", "89"]);
        assert_eq!(wrap("p99 0.1 ms, 5 %", 8), ["p99", "0.1 ms,", "5 %"]);
        assert_eq!(wrap("", 4), [""]);
    }

    #[test]
    fn a_narrow_table_gives_up_columns_and_then_the_line_of_a_long_name() {
        let column = |title, cell: &str, rank| {
            let cells = vec![cell.to_owned(), "1".to_owned()];
            Column { title, cells, rank }
        };
        let columns = || {
            let name = Column {
                title: "SERVICE",
                cells: vec!["tcp 80".to_owned(), "udp [2001:db8::1]:7".to_owned()],
                rank: 0,
            };
            vec![name, column("CONN/s", "12.3k", 1), column("QUEUE", "1 of 9", 2)]
        };
        let wide = table(columns(), 80);
        assert_eq!(wide.title.unwrap(), "SERVICE              CONN/s   QUEUE");
        assert_eq!(wide.rows[1], "udp [2001:db8::1]:7       1       1");
        let own_line = table(columns(), 33);
        assert_eq!(own_line.title.unwrap(), "SERVICE  CONN/s   QUEUE");
        assert_eq!(own_line.rows[1], "udp [2001:db8::1]:7\n              1       1");
        let narrow = table(columns(), 25);
        assert_eq!(narrow.title.unwrap(), "SERVICE  CONN/s");
        assert_eq!(narrow.rows, ["tcp 80    12.3k", "udp [2001:db8::1]:7\n              1"]);
    }

    #[test]
    fn a_low_terminal_says_what_it_leaves_out() {
        let list = |title: &str, count: usize, rank| Section {
            title: Some(title.to_owned()),
            rows: (0..count).map(|n| format!("{title}{n}")).collect(),
            rank,
        };
        let head = Section { title: None, rows: vec!["fine".to_owned()], rank: 0 };
        let all = || vec![head.clone(), list("a", 5, 1), list("b", 2, 2)];
        assert_eq!(fit(all(), 30).len(), 1 + 1 + 6 + 1 + 3, "with empty lines between");
        assert_eq!(fit(all(), 10).len(), 10);
        let tight = fit(all(), 8);
        assert_eq!(tight, ["fine", "a", "a0", "a1", "... and 3 more", "b", "b0", "b1"]);
        let least = fit(all(), 5);
        assert_eq!(least, ["fine", "a", "a0", "... and 4 more", "(a larger terminal shows more)"]);
        assert_eq!(fit(all(), 2), ["fine", "(a larger terminal shows more)"]);
        assert_eq!(fit(all(), 1), ["fine"]);
    }
}
