//! Source filters of group memberships (RFC 9776 section 3), both families.
//!
//! Called by `membership.rs`, and by `stack` for the merged filters of the programs on an
//! interface. Invariants: a set holds [`GROUP_SOURCES_MAX`] sources at most, sorted, none twice; a
//! filter that would need more accepts more instead, never less.

use core::fmt;

use floodwall_base::Address;
use floodwall_base::limits::GROUP_SOURCES_MAX;

/// A few sources.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SourceSet<A> {
    len: u8,
    addrs: [A; GROUP_SOURCES_MAX],
}

/// There is no room for another source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a group's filter has {GROUP_SOURCES_MAX} sources at most")]
pub struct SourcesFull;

impl<A: Address> SourceSet<A> {
    /// No source.
    pub const EMPTY: Self = Self { len: 0, addrs: [A::UNSPECIFIED; GROUP_SOURCES_MAX] };

    /// The sources of `addrs`, each once.
    ///
    /// # Errors
    /// There are more than [`GROUP_SOURCES_MAX`].
    pub fn of(addrs: impl IntoIterator<Item = A>) -> Result<Self, SourcesFull> {
        let mut set = Self::EMPTY;
        for addr in addrs {
            set.insert(addr)?;
        }
        Ok(set)
    }

    /// Each in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = A> + '_ {
        self.addrs.iter().copied().take(usize::from(self.len))
    }

    /// How many.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether `addr` is among them.
    #[must_use]
    pub fn contains(&self, addr: A) -> bool {
        self.iter().any(|a| a == addr)
    }

    /// Adds one; nothing happens where it is there.
    ///
    /// # Errors
    /// There is no room.
    pub fn insert(&mut self, addr: A) -> Result<(), SourcesFull> {
        if self.contains(addr) {
            return Ok(());
        }
        let len = self.len();
        *self.addrs.get_mut(len).ok_or(SourcesFull)? = addr;
        self.len += 1;
        self.addrs.get_mut(..=len).unwrap_or_default().sort_unstable();
        Ok(())
    }

    /// Takes one out; false where it was not there.
    pub fn remove(&mut self, addr: A) -> bool {
        let before = self.len;
        *self = self.filter(|a| a != addr);
        self.len < before
    }

    /// The sources for which `keep` returns true.
    #[must_use]
    pub fn filter(&self, keep: impl Fn(A) -> bool) -> Self {
        let mut kept = Self::EMPTY;
        for addr in self.iter().filter(|a| keep(*a)) {
            // Never more than there were.
            let _ = kept.insert(addr);
        }
        kept
    }
}

impl<A: fmt::Debug> fmt::Debug for SourceSet<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.addrs.iter().take(usize::from(self.len))).finish()
    }
}

/// Which sources of a group are accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SourceFilter<A> {
    /// Only these; none: the group is not joined.
    Include(SourceSet<A>),
    /// All but these.
    Exclude(SourceSet<A>),
}

impl<A: Address> SourceFilter<A> {
    /// No source is accepted: not a member.
    pub const NO_SOURCES: Self = Self::Include(SourceSet::EMPTY);
    /// All sources are accepted: an ordinary membership.
    pub const ALL_SOURCES: Self = Self::Exclude(SourceSet::EMPTY);

    /// Whether no source is accepted.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        matches!(self, Self::Include(sources) if sources.is_empty())
    }

    /// Whether packets from `addr` are accepted.
    #[must_use]
    pub fn passes(&self, addr: A) -> bool {
        match self {
            Self::Include(sources) => sources.contains(addr),
            Self::Exclude(sources) => !sources.contains(addr),
        }
    }

    /// Its sources.
    #[must_use]
    pub const fn sources(&self) -> &SourceSet<A> {
        match self {
            Self::Include(sources) | Self::Exclude(sources) => sources,
        }
    }

    /// The union of two filters (RFC 9776 section 3.2); merging is commutative. Where that needs
    /// too many sources, all are accepted.
    #[must_use]
    pub fn merge(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Include(a), Self::Include(b)) => {
                SourceSet::of(a.iter().chain(b.iter())).map_or(Self::ALL_SOURCES, Self::Include)
            }
            (Self::Exclude(a), Self::Exclude(b)) => Self::Exclude(a.filter(|s| b.contains(s))),
            (Self::Include(a), Self::Exclude(b)) | (Self::Exclude(b), Self::Include(a)) => {
                Self::Exclude(b.filter(|s| !a.contains(s)))
            }
        }
    }
}
