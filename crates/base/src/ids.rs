//! Small numbers that name things.

use core::fmt;

/// An interface of one stack: 0 is the loopback, then in order of configuration.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct IfIndex(pub u16);

impl IfIndex {
    /// The loopback interface, present in every stack.
    pub const LOOPBACK: Self = Self(0);
}

/// A worker's core.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct CoreId(pub u16);

/// A worker of one host, and the shard of state that it runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct WorkerId(pub u16);

impl WorkerId {
    /// The control shard: the one writer of what all share, and the owner of everything that is
    /// not a flow (decision D15).
    pub const CONTROL: Self = Self(0);
}

/// A memory node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct NumaNode(pub u8);

impl fmt::Debug for IfIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "if{}", self.0)
    }
}

/// The maximum segment size of a TCP connection, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Mss(pub u16);

/// Units of work: what an engine spends, and what its caller grants (decision C10).
///
/// One unit is about one packet looked at, or one timed entry visited.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Units(pub u32);

impl Units {
    /// These and those, saturating.
    #[must_use]
    pub const fn plus(self, more: Self) -> Self {
        Self(self.0.saturating_add(more.0))
    }

    /// What is left of these once `spent` is gone.
    #[must_use]
    pub const fn minus(self, spent: Self) -> Self {
        Self(self.0.saturating_sub(spent.0))
    }

    /// Whether nothing is left.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}
