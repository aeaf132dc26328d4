//! `Share`: a part of a whole, in thousandths, so that virtual time needs no fractions.
//!
//! Called by `balance.rs` and `gate.rs`, and by their configuration. Invariant: never more than the
//! whole.

use core::fmt;
use core::time::Duration;

/// A part of a whole in thousandths.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Share(u16);

impl Share {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Half.
    pub const HALF: Self = Self(500);
    /// Everything.
    pub const ALL: Self = Self(1000);

    /// So many thousandths; 1000 where it is more.
    #[must_use]
    pub const fn per_mille(thousandths: u16) -> Self {
        Self(if thousandths > 1000 { 1000 } else { thousandths })
    }

    /// `part` of `whole`, rounded down; nothing of nothing.
    #[must_use]
    pub fn of(part: Duration, whole: Duration) -> Self {
        let thousandths = (part.as_nanos() * 1000).checked_div(whole.as_nanos()).unwrap_or(0);
        Self(thousandths.min(1000) as u16)
    }

    /// In thousandths.
    #[must_use]
    pub const fn thousandths(self) -> u16 {
        self.0
    }

    /// What is left for others.
    #[must_use]
    pub const fn rest(self) -> Self {
        Self(1000 - self.0)
    }

    /// This part of a length of time.
    #[must_use]
    pub fn of_time(self, whole: Duration) -> Duration {
        nanos(whole.as_nanos() * u128::from(self.0) / 1000)
    }

    /// The whole of which `part` is this share; `None` for no share.
    #[must_use]
    pub fn whole_of(self, part: Duration) -> Option<Duration> {
        (part.as_nanos() * 1000).checked_div(u128::from(self.0)).map(nanos)
    }

    /// This part of a number, rounded down.
    #[must_use]
    pub const fn of_count(self, whole: usize) -> usize {
        (whole as u128 * self.0 as u128 / 1000) as usize
    }
}

/// Saturates after 584 years.
fn nanos(nanos: u128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

impl fmt::Display for Share {
    /// In percent, with one decimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{} %", self.0 / 10, self.0 % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_and_its_rest_make_the_whole_and_none_has_no_whole() {
        let ms = Duration::from_millis;
        assert_eq!(Share::per_mille(250).of_time(ms(4)), ms(1));
        assert_eq!(Share::per_mille(250).whole_of(ms(1)), Some(ms(4)));
        assert_eq!(Share::NONE.whole_of(ms(1)), None);
        assert_eq!(Share::per_mille(40_000), Share::ALL);
        assert_eq!(Share::per_mille(300).rest(), Share::per_mille(700));
        assert_eq!(Share::of(ms(1), ms(3)).to_string(), "33.3 %");
        assert_eq!((Share::of(ms(1), ms(0)), Share::of(ms(2), ms(1))), (Share::NONE, Share::ALL));
        assert_eq!(Share::HALF.of_count(65), 32);
        assert_eq!(Share::ALL.of_time(Duration::MAX), Duration::from_nanos(u64::MAX));
    }
}
