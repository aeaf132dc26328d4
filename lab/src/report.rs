//! What a run found: verdicts, tables, numbers. The same as text, as JSON and as CSV.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use crate::claim::Verdict;
use crate::error::LabError;
use crate::machine::Machine;
use crate::measure::Spread;
use crate::plan::{Published, Size};
use crate::plot::Plot;
use crate::table::Table;

/// The result of a run: claims judged, numbers, tables and plots.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Which plan.
    pub plan: String,
    /// The plan's question.
    pub question: String,
    /// How much of it was run.
    pub size: Size,
    /// The seeds, in order.
    pub seeds: Vec<u64>,
    /// Where and of what.
    pub machine: Machine,
    /// Whether every claim that was judged holds, and at least one was.
    pub passed: bool,
    /// What became of each claim.
    pub claims: Vec<Verdict>,
    /// Tables of the first seed.
    pub tables: Vec<Table>,
    /// What others found.
    pub published: Vec<Published>,
    /// Every number of every seed.
    pub metrics: BTreeMap<String, Spread>,
    /// Plots of the first seed: file name (SVG) and data. Not part of the JSON: kept beside it.
    #[serde(skip)]
    pub plots: Vec<(String, Plot)>,
}

impl Report {
    /// One JSON document, on one line.
    ///
    /// # Errors
    /// None that is known: numbers that JSON has not are written as null.
    pub fn to_json(&self) -> Result<String, LabError> {
        Ok(serde_json::to_string(self)?)
    }

    /// Every number of every seed: a line for each number, a column for each seed.
    #[must_use]
    pub fn to_csv(&self) -> String {
        let mut text = String::from("metric");
        for seed in &self.seeds {
            let _ = write!(text, ",seed {seed}");
        }
        for (name, spread) in &self.metrics {
            let _ = write!(text, "\n{name}");
            for value in &spread.values {
                let _ = write!(text, ",{value}");
            }
        }
        text + "\n"
    }
}

/// A number in as few digits as it needs.
fn short(value: f64) -> String {
    if value == value.trunc() { format!("{value}") } else { format!("{value:.3}") }
}

impl core::fmt::Display for Report {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Machine { cpu, cores, system, build, commit, date, .. } = &self.machine;
        writeln!(f, "{}: {}", self.plan, self.question)?;
        writeln!(f, "{date}, {commit} ({build}), {cpu}, {cores} cores, {system}")?;
        let runs = self.seeds.len();
        if runs > 1 {
            writeln!(f, "{runs} runs, seeds 1 to {runs}; tables are of seed 1, claims of all")?;
        }
        for table in &self.tables {
            let number = table.title.split(':').next().unwrap_or_default();
            let published = self.published.iter().filter(|p| p.beside == number);
            let (same, other): (Vec<_>, Vec<_>) = published.partition(|p| p.fits(table));
            match same.first() {
                Some(published) => write!(f, "\n{}", published.under(table))?,
                None => write!(f, "\n{table}")?,
            }
            for published in other {
                write!(f, "\n{}", published.table())?;
            }
        }
        writeln!(f, "\nClaims")?;
        for claim in &self.claims {
            let word = match claim {
                Verdict { judged: false, .. } => "  -  ",
                Verdict { holds: true, .. } => "holds",
                _ => "FAILS",
            };
            let found = match claim.range {
                _ if !claim.judged => "not measured here".to_owned(),
                None => "nothing measured".to_owned(),
                Some((low, high)) if low == high => short(low),
                Some((low, high)) => format!("{} to {}", short(low), short(high)),
            };
            writeln!(f, "  {word}  {}: {found} (expected {})", claim.says, claim.expected)?;
            if let Some((name, value)) = claim.broken_by.as_ref().filter(|_| claim.judged) {
                writeln!(f, "         broken by {name}: {}", short(*value))?;
            }
        }
        let held = self.claims.iter().filter(|claim| claim.holds).count();
        let word = if self.passed { "PASS" } else { "FAIL" };
        let judged = self.claims.iter().filter(|claim| claim.judged).count();
        let rest = match self.claims.len() - judged {
            0 => String::new(),
            rest => format!("; {rest} not measured here"),
        };
        writeln!(f, "{word}: {held} of {judged} claims hold{rest}")
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::Published;
    use crate::table::Table;

    fn table(columns: &[&str], rows: &[&[&str]]) -> Table {
        let mut table = Table::new("Table 1: x", columns);
        rows.iter().for_each(|row| table.row(row.iter().map(|cell| (*cell).to_owned())));
        table
    }

    #[test]
    fn published_rows_stand_under_ours_where_the_columns_are_the_same() {
        let ours = table(&["test", "n"], &[&["(1) mixed", "5"], &["more", "6"]]);
        let theirs = table(&["test", "n"], &[&["(1)", "7"], &["(2)", "8"]]);
        let published = Published {
            beside: "Table 1".to_owned(),
            title: "x".to_owned(),
            source: "them".to_owned(),
            columns: theirs.columns,
            rows: theirs.rows,
        };
        assert!(published.fits(&ours) && !published.fits(&table(&["test", "m"], &[])));
        let both = published.under(&ours);
        let want: &[&[&str]] = &[&["(1) mixed", "5"], &["    published", "7"], &["more", "6"]];
        assert_eq!(both.rows, table(&[], want).rows);
        assert_eq!(both.note, "them");
    }
}
