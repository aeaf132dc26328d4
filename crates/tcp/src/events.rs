//! `ConnectionEvents`: readiness of a connection for its application.
//!
//! Collected by the handlers, returned by [`crate::ConnectionTable::next_event`]. Events are hints:
//! an operation may still find nothing to do.

use core::ops::BitOr;

/// A set of readiness events.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ConnectionEvents(u8);

impl ConnectionEvents {
    /// The empty set.
    pub const NONE: Self = Self(0);
    /// Readable: data, end of stream, or an error is available.
    pub const READABLE: Self = Self(1);
    /// Writable: the send buffer has space, or an error is available.
    pub const WRITABLE: Self = Self(2);
    /// The handshake is complete.
    pub const OPENED: Self = Self(4);
    /// The connection is over.
    pub const ENDED: Self = Self(8);

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether it contains all of these.
    #[must_use]
    pub const fn contains(self, events: Self) -> bool {
        self.0 & events.0 == events.0
    }

    pub(crate) const fn add(&mut self, events: Self) {
        self.0 |= events.0;
    }

    pub(crate) const fn take(&mut self) -> Self {
        let all = *self;
        self.0 = 0;
        all
    }
}

impl BitOr for ConnectionEvents {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
