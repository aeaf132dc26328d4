//! The source filter of a group, and why a group cannot be joined.

use core::net::IpAddr;

use floodwall_base::limits::{GROUP_SOURCES_MAX, UDP_GROUPS_MAX};
use thiserror::Error;

use crate::id::SocketClosed;

/// The source filter of one group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupFilter {
    /// Whether all but the sources are accepted; else only they.
    pub exclude: bool,
    pub(crate) sources: Vec<IpAddr>,
}

impl GroupFilter {
    /// All sources: an ordinary membership.
    #[must_use]
    pub const fn all_sources() -> Self {
        Self { exclude: true, sources: Vec::new() }
    }

    /// No source yet: to be filled with sources.
    #[must_use]
    pub const fn no_sources() -> Self {
        Self { exclude: false, sources: Vec::new() }
    }

    /// Whether all sources are accepted.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.exclude && self.sources.is_empty()
    }

    /// The sources.
    #[must_use]
    pub fn sources(&self) -> &[IpAddr] {
        &self.sources
    }

    /// Names one source more; nothing happens where it is named.
    ///
    /// # Errors
    /// `TooManySources`, or `NotSource` where it is a group or unspecified.
    pub fn add(&mut self, source: IpAddr) -> Result<(), GroupError> {
        let source = source.to_canonical();
        if source.is_multicast() || source.is_unspecified() {
            return Err(GroupError::NotSource);
        }
        if self.sources.contains(&source) {
            return Ok(());
        }
        if self.sources.len() >= GROUP_SOURCES_MAX {
            return Err(GroupError::TooManySources);
        }
        self.sources.push(source);
        Ok(())
    }

    /// Names a source no more; false where it was not named.
    pub fn remove(&mut self, source: IpAddr) -> bool {
        let (source, before) = (source.to_canonical(), self.sources.len());
        self.sources.retain(|s| *s != source);
        self.sources.len() < before
    }

    /// Whether packets from `source` are accepted.
    #[must_use]
    pub fn passes(&self, source: IpAddr) -> bool {
        self.sources.contains(&source) != self.exclude
    }
}

/// One group of a socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct GroupSockets {
    pub(crate) group: u128,
    pub(crate) zone: u32,
    pub(crate) filter: GroupFilter,
}

/// Why a socket cannot join or leave a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The socket is closed.
    #[error(transparent)]
    Closed(#[from] SocketClosed),
    /// It is no group address of the socket's families.
    #[error("not a group address that the socket can join")]
    NotGroup,
    /// Joined before, or not joined when leaving.
    #[error("the socket is a member already, or was none")]
    Membership,
    /// The socket has joined as many groups as it may.
    #[error("a socket can join {UDP_GROUPS_MAX} groups at most")]
    TooMany,
    /// There is no such interface, or none is up.
    #[error("there is no such interface")]
    NoInterface,
    /// It is no sender's address of the group's family.
    #[error("not the address of a sender to this group")]
    NotSource,
    /// The filter names as many sources as it may.
    #[error("a filter can name {GROUP_SOURCES_MAX} sources at most")]
    TooManySources,
}
