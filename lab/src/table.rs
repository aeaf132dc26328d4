//! A table: a title, columns, rows of words, a note; printed so that columns stand under each
//! other.
//!
//! Experiments make them, plans have published ones, `report.rs` prints both.

use serde::{Deserialize, Serialize};

/// A table of text cells with a title, column names and a note.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// The columns' names; the first is the rows'.
    pub columns: Vec<String>,
    /// The rows, each as wide as the columns.
    pub rows: Vec<Vec<String>>,
    /// What a reader must know.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl Table {
    /// A table without rows.
    #[must_use]
    pub fn new(title: &str, columns: &[&str]) -> Self {
        Self {
            title: title.to_owned(),
            columns: columns.iter().map(|&column| column.to_owned()).collect(),
            ..Self::default()
        }
    }

    /// Appends a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

impl core::fmt::Display for Table {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        writeln!(f, "{}", self.title)?;
        let mut widths: Vec<usize> = self.columns.iter().map(|c| c.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        for row in core::iter::once(&self.columns).chain(&self.rows) {
            let mut line = String::new();
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                line += &match column {
                    0 => format!("  {cell:<width$}"),
                    _ => format!("  {cell:>width$}"),
                };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        if !self.note.is_empty() {
            writeln!(f, "  ({})", self.note)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_under_each_other() {
        let mut table = Table::new("t", &["row", "n"]);
        table.row(["a".to_owned(), "1000".to_owned()]);
        assert_eq!(table.to_string(), "t\n  row     n\n  a    1000\n");
    }
}
