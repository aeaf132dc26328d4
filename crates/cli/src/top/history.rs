//! The rates of the last looks, for the sparklines of `floodwall top`.

use std::collections::VecDeque;

use super::view::{SERIES, TopView};

/// Looks that are kept: more than a terminal has columns for.
const LOOKS_MAX: usize = 400;

/// Packets a second as of [`TopView::rates`]; the newest first.
#[derive(Debug, Default)]
pub(crate) struct History {
    looks: VecDeque<[f64; SERIES]>,
}

impl History {
    /// Another look.
    pub(crate) fn add(&mut self, view: &TopView) {
        self.looks.truncate(LOOKS_MAX - 1);
        self.looks.push_front(view.rates());
    }

    /// One of the rates, as many as there are columns.
    pub(super) fn rates(&self, which: usize, columns: u16) -> impl Iterator<Item = u64> {
        let one =
            move |rates: &[f64; SERIES]| rates.get(which).map_or(0, |rate| rate.round() as u64);
        self.looks.iter().take(columns.into()).map(one)
    }

    /// Whether this rate was ever above zero.
    pub(super) fn has(&self, which: usize) -> bool {
        self.rates(which, u16::MAX).any(|rate| rate > 0)
    }

    /// Whether there is anything to be seen.
    pub(super) fn is_empty(&self) -> bool {
        self.looks.is_empty()
    }
}
