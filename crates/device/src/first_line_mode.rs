//! `FirstLineMode`: how much the program at an XDP interface does before a packet reaches a worker.
//!
//! Read from settings, on every system; obeyed by `af_xdp.rs`.

use std::fmt;
use std::str::FromStr;

/// How much of the first line is in force at an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FirstLineMode {
    /// As much as kernel, driver and privileges allow; what is missing is said in the notes.
    #[default]
    Auto,
    /// Frames are steered, and nothing else.
    Off,
    /// Under pressure what is not wanted or not known is dropped there.
    Filter,
    /// Besides, SYNs are answered by cookies there and ACKs are checked; it is an error if they
    /// cannot be.
    Cookies,
}

impl FirstLineMode {
    /// What to write.
    pub const REMEDY: &str = "use off, filter, cookies or auto";

    /// Its name in settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Off => "off",
            Self::Filter => "filter",
            Self::Cookies => "cookies",
        }
    }
}

impl FromStr for FirstLineMode {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let all = [Self::Auto, Self::Off, Self::Filter, Self::Cookies];
        all.into_iter().find(|mode| mode.name() == text).ok_or(())
    }
}

impl fmt::Display for FirstLineMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_is_read_by_its_name_and_nothing_else_is() {
        for mode in
            [FirstLineMode::Auto, FirstLineMode::Off, FirstLineMode::Filter, FirstLineMode::Cookies]
        {
            assert_eq!(mode.to_string().parse(), Ok(mode));
            assert!(FirstLineMode::REMEDY.contains(mode.name()));
        }
        assert_eq!("on".parse::<FirstLineMode>(), Err(()));
    }
}
