//! `Events`: what has become possible for a connection's application.
//!
//! Collected by the handlers, given out by [`crate::Tcp::next_event`]. Hints: whoever acts on one
//! asks again and may find nothing.

use core::ops::BitOr;

/// A set of things that may have become possible.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Events(u8);

impl Events {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Data, the peer's end, or an error waits.
    pub const READABLE: Self = Self(1);
    /// There is room to write, or an error waits.
    pub const WRITABLE: Self = Self(2);
    /// The handshake is complete.
    pub const OPENED: Self = Self(4);
    /// The connection is over.
    pub const ENDED: Self = Self(8);

    /// Whether nothing is in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether it has all of these.
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

impl BitOr for Events {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
