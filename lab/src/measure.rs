//! What an experiment hands to the frame: numbers by name, tables, pictures.
//!
//! Made by experiments, merged over the seeds by `run.rs`. Names of numbers are paths
//! (`row/accessor/what`), so that a claim can name all rows with a star.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::plot::Plot;
use crate::table::Table;

/// Numbers by name.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    /// Notes one number; the last one of a name stays.
    pub fn set(&mut self, name: impl Into<String>, value: f64) {
        self.0.insert(name.into(), value);
    }

    /// One number, where it was measured.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }
}

/// What one run with one seed measured.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Measured {
    /// Numbers: all that a claim can name.
    pub metrics: Metrics,
    /// For humans.
    pub tables: Vec<Table>,
    /// File name (SVG) and data of each plot.
    pub plots: Vec<(String, Plot)>,
}

/// One number over all seeds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Spread {
    /// The middle one (the lower of two).
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// One for each seed, in the order of the seeds.
    pub values: Vec<f64>,
}

impl Spread {
    /// Of what was measured; `None` where nothing was.
    #[must_use]
    pub fn of(values: Vec<f64>) -> Option<Self> {
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let median = *sorted.get((sorted.len() - 1) / 2)?;
        Some(Self { median, min, max, values })
    }
}

/// The numbers of several runs, by name.
#[must_use]
pub(crate) fn spread(runs: &[Metrics]) -> BTreeMap<String, Spread> {
    let mut values: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (name, value) in runs.iter().flat_map(Metrics::iter) {
        values.entry(name).or_default().push(value);
    }
    let spreads = values.into_iter();
    spreads.filter_map(|(name, values)| Some((name.to_owned(), Spread::of(values)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_keeps_the_order_of_the_seeds_and_names_the_middle() {
        let spread = Spread::of(vec![3.0, 1.0, 2.0, 9.0]).unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (2.0, 1.0, 9.0));
        assert_eq!(spread.values, [3.0, 1.0, 2.0, 9.0]);
        assert_eq!(Spread::of(Vec::new()), None);
    }
}
