//! A value of the settings, and where it was given.

use std::sync::Arc;

/// Where a value was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SettingPlace {
    /// In a file: its name, line and column, both from 1.
    File(Arc<str>, usize, usize),
    /// By a flag.
    Flag(&'static str),
    /// Nowhere: it is missing, and there is no place to point at.
    Nowhere,
}

/// A value and where it was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct GivenSettings<T> {
    pub(crate) value: T,
    pub(crate) place: SettingPlace,
}
