//! `XdpMode`: by which way an interface's frames come to a program of ours.
//!
//! Read from settings and device specifications, on every system; applied by `af_xdp.rs`.

use std::fmt;
use std::str::FromStr;

/// The mode in which an XDP program is attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum XdpMode {
    /// The driver's own where it has one, else the system's.
    #[default]
    Auto,
    /// The driver's own or none.
    Native,
    /// In front of the system's stack: any driver, slower.
    Generic,
}

impl XdpMode {
    /// Its keyword in a specification.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }
}

impl FromStr for XdpMode {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::Auto, Self::Native, Self::Generic]
            .into_iter()
            .find(|mode| mode.word() == text)
            .ok_or(())
    }
}

impl fmt::Display for XdpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
