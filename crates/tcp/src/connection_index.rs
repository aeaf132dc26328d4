//! `ConnectionIndex`: an optional time in the size of an [`Instant`]; a connection has many of
//! them.

use floodwall_base::Instant;

/// An optional [`Instant`] without extra size: [`Instant::FAR`] encodes `None`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ConnectionIndex(Instant);

impl ConnectionIndex {
    pub(crate) const NONE: Self = Self(Instant::FAR);

    #[inline]
    pub(crate) fn get(self) -> Option<Instant> {
        (self.0 != Instant::FAR).then_some(self.0)
    }

    /// Whether it is none, or not before `at`.
    #[inline(always)]
    pub(crate) fn is_not_before(self, at: Instant) -> bool {
        self.0 >= at
    }

    #[inline]
    pub(crate) fn is_none(self) -> bool {
        self.0 == Instant::FAR
    }
}

impl Default for ConnectionIndex {
    fn default() -> Self {
        Self::NONE
    }
}

impl From<Instant> for ConnectionIndex {
    #[inline]
    fn from(at: Instant) -> Self {
        Self(at)
    }
}

impl From<Option<Instant>> for ConnectionIndex {
    #[inline]
    fn from(at: Option<Instant>) -> Self {
        at.map_or(Self::NONE, Self)
    }
}
