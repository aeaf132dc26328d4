//! Colours and symbols of `floodwall top`, as the environment permits them.
//!
//! Made by `cmd/top.rs`, used by `picture.rs` and `list.rs`. Nothing is told by a colour alone:
//! each state has a word or a symbol besides. Read first: <https://no-color.org>.

use std::env;

use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::symbols::bar;

use crate::explain::TroubleKind;

/// Bars of text for terminals without UTF-8.
const PLAIN_BARS: bar::Set<'static> = bar::Set {
    full: "#",
    seven_eighths: "#",
    three_quarters: "*",
    five_eighths: "+",
    half: "+",
    three_eighths: ":",
    one_quarter: ":",
    one_eighth: ".",
    empty: " ",
};

/// What a terminal can show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    colours: bool,
    unicode: bool,
}

impl Look {
    /// Neither colours nor symbols beyond ASCII.
    pub(crate) const PLAIN: Self = Self { colours: false, unicode: false };

    /// Of a terminal in this process's environment.
    pub(crate) fn of_environment() -> Self {
        Self::new(|name| env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn new(variable: impl Fn(&str) -> Option<String>) -> Self {
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(&variable);
        let locale = locale.unwrap_or_default().to_ascii_lowercase();
        let is_dumb = variable("TERM").is_some_and(|terminal| terminal == "dumb");
        Self {
            colours: variable("NO_COLOR").is_none() && !is_dumb,
            unicode: locale.contains("utf-8") || locale.contains("utf8"),
        }
    }

    fn colour(self, colour: Color) -> Style {
        if self.colours { Style::new().fg(colour) } else { Style::new() }
    }

    /// The line at the top.
    pub(super) fn head(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// The titles of a table.
    pub(super) fn title(self) -> Style {
        self.colour(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    /// What matters less.
    pub(super) fn faint(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub(super) fn arrived(self) -> Style {
        self.colour(Color::Green)
    }

    pub(super) fn sent(self) -> Style {
        self.colour(Color::LightBlue)
    }

    /// What a program at an interface answered by itself.
    pub(super) fn answered(self) -> Style {
        self.colour(Color::Yellow)
    }

    /// What was refused; nothing is refused where the rate is zero.
    pub(super) fn refused(self, rate: f64) -> Style {
        if rate > 0.0 { self.colour(Color::Red) } else { self.faint() }
    }

    pub(super) fn verdict(self, worst: Option<TroubleKind>) -> Style {
        let colour = match worst {
            None => Color::Green,
            Some(TroubleKind::Attack) => Color::Red,
            Some(_) => Color::Yellow,
        };
        self.colour(colour).add_modifier(Modifier::BOLD)
    }

    /// The parts of a core: at work, left to others, idle.
    pub(super) fn shares(self) -> [(&'static str, Style); 3] {
        let [busy, left, idle] = if self.unicode { ["█", "▒", "░"] } else { ["#", "=", "."] };
        [(busy, self.arrived()), (left, self.colour(Color::Yellow)), (idle, self.faint())]
    }

    /// The steps of a sparkline.
    pub(super) const fn bars(self) -> bar::Set<'static> {
        if self.unicode { bar::NINE_LEVELS } else { PLAIN_BARS }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_color_and_the_locale_are_respected() {
        let look = |set: &[(&str, &str)]| {
            Look::new(|name| {
                let found = set.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        let usual = look(&[("LANG", "en_GB.UTF-8"), ("TERM", "xterm")]);
        assert!(usual.colours && usual.unicode);
        assert_eq!(usual.refused(1.0).fg, Some(Color::Red));
        let plain = look(&[("NO_COLOR", "1"), ("LC_ALL", "C"), ("LANG", "C.UTF-8")]);
        assert!(!plain.colours && !plain.unicode, "LC_ALL counts before LANG");
        let all = [plain.title(), plain.head(), plain.verdict(None), plain.refused(1.0)];
        assert!(all.iter().all(|style| style.fg.is_none() && style.bg.is_none()));
        assert!(plain.shares().iter().all(|(symbol, _)| symbol.is_ascii()));
        assert!(!look(&[("TERM", "dumb")]).colours);
    }
}
