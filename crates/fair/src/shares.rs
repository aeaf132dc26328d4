//! `Shares`: what each source prefix holds of one or several bounded resources.
//!
//! Used by `tcp` for connection places and for connection memory. A user joins with the address of
//! its peer, adds and subtracts what it holds, and quits. Invariants: the weight of a prefix is the
//! sum of what its users hold; every operation is a bounded number of steps, independent of the
//! number of users and prefixes.
//!
//! # Under flood
//! Reachable by any peer that can make its host a user. Bound: as many prefixes as the constructor
//! was told there are users, about 120 bytes each. Worst work: two hash look-ups, two chains of a
//! keyed hash, and two walks over at most 496 ranks, which only a jump over all weights in use
//! costs; usually one step. When full nothing is evicted: a user more than was stated is refused.

use core::net::IpAddr;

use floodwall_base::HashKey;

use crate::level::Level;

/// Where a user's share is accounted: an IPv4 address or an IPv6 /64, within its prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShareId(u32);

impl ShareId {
    /// A number below the number of users that the constructor was told.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0
    }
}

/// One group: a resource that is shared.
#[derive(Clone, Copy, Default)]
struct Group {
    total: u64,
    prefixes: usize,
}

/// What each source prefix holds of the resources of several groups.
pub struct Shares {
    groups: Box<[Group]>,
    prefixes: Level,
    parts: Level,
}

/// The prefix of an address (IPv4 /24, IPv6 /48), and the part of it (address, /64).
fn names(addr: IpAddr) -> (u64, u64) {
    match addr.to_canonical() {
        IpAddr::V4(v4) => (1 << 63 | u64::from(v4.to_bits() >> 8), u64::from(v4.to_bits() & 0xff)),
        IpAddr::V6(v6) => {
            let upper = (v6.to_bits() >> 64) as u64;
            (upper >> 16, upper & 0xffff)
        }
    }
}

impl Shares {
    /// Accounting for so many users in so many groups; allocates all memory now. The key keeps
    /// senders from choosing addresses that collide.
    #[must_use]
    pub fn new(users: usize, groups: usize, key: HashKey) -> Self {
        Self {
            groups: vec![Group::default(); groups].into(),
            prefixes: Level::new(users, groups, key),
            parts: Level::new(users, users.max(1), key),
        }
    }

    /// One more user of a group's resource, which holds nothing yet. `None` where there are more
    /// users than stated, or no such group.
    pub fn join(&mut self, group: usize, addr: IpAddr) -> Option<ShareId> {
        let (prefix, part) = names(addr);
        let (prefix, _) = self.prefixes.enter(u32::try_from(group).ok()?, prefix)?;
        match self.parts.enter(prefix, part) {
            Some((id, true)) => Some(ShareId(id)),
            Some((id, false)) => {
                // A part uses its prefix once.
                self.prefixes.leave(prefix);
                Some(ShareId(id))
            }
            None => {
                self.prefixes.leave(prefix);
                None
            }
        }
    }

    /// A user that holds nothing any more quits.
    pub fn quit(&mut self, id: ShareId) {
        let Some(prefix) = self.parts.parent(id.0) else { return };
        let rest = self.parts.weight(id.0);
        if self.parts.leave(id.0) {
            // Nothing is left behind, also where the last user did not give everything back.
            debug_assert_eq!(rest, 0, "the last user holds something");
            self.change(prefix, 0, rest);
            self.prefixes.leave(prefix);
        }
    }

    /// Adds to what a user holds.
    #[inline]
    pub fn add(&mut self, id: ShareId, weight: u64) {
        self.exchange(id, weight, 0);
    }

    /// Subtracts from what a user holds.
    #[inline]
    pub fn subtract(&mut self, id: ShareId, weight: u64) {
        self.exchange(id, 0, weight);
    }

    /// Both at once.
    #[inline]
    pub fn exchange(&mut self, id: ShareId, more: u64, less: u64) {
        let Some(prefix) = self.parts.parent(id.0) else { return };
        self.parts.set(id.0, (self.parts.weight(id.0) + more).saturating_sub(less));
        self.change(prefix, more, less);
    }

    fn change(&mut self, prefix: u32, more: u64, less: u64) {
        let before = self.prefixes.weight(prefix);
        let after = (before + more).saturating_sub(less);
        self.prefixes.set(prefix, after);
        let group = self.prefixes.parent(prefix).unwrap_or(u32::MAX);
        if let Some(group) = self.groups.get_mut(group as usize) {
            group.total = (group.total + after).saturating_sub(before);
            group.prefixes += usize::from(before == 0 && after > 0);
            group.prefixes -= usize::from(before > 0 && after == 0);
        }
    }

    /// What all users of a group hold.
    #[must_use]
    pub fn total(&self, group: usize) -> u64 {
        self.groups.get(group).map_or(0, |group| group.total)
    }

    /// The number of prefixes that hold something.
    #[must_use]
    pub fn prefixes(&self, group: usize) -> usize {
        self.groups.get(group).map_or(0, |group| group.prefixes)
    }

    /// What the prefix of an address holds.
    #[must_use]
    pub fn held_by(&self, group: usize, addr: IpAddr) -> u64 {
        let group = u32::try_from(group).unwrap_or(u32::MAX);
        let prefix = self.prefixes.find(group, names(addr).0);
        prefix.map_or(0, |prefix| self.prefixes.weight(prefix))
    }

    /// What the prefix of a user holds.
    #[inline]
    #[must_use]
    pub fn prefix_weight(&self, id: ShareId) -> u64 {
        self.parts.parent(id.0).map_or(0, |prefix| self.prefixes.weight(prefix))
    }

    /// What a user's address (IPv4) or /64 (IPv6) holds.
    #[must_use]
    pub fn part_weight(&self, id: ShareId) -> u64 {
        self.parts.weight(id.0)
    }

    /// Of the prefix that holds most, the part that holds most: both within an eighth of the true
    /// maximum. `None` where nothing is held.
    #[must_use]
    pub fn heaviest(&self, group: usize) -> Option<ShareId> {
        let prefix = self.prefixes.heaviest(u32::try_from(group).ok()?)?;
        self.parts.heaviest(prefix).map(ShareId)
    }

    /// The prefixes of a group that hold something, each by its part that holds most; from the
    /// heaviest on, in the order of ranks an eighth wide.
    pub fn heaviest_first(&self, group: usize) -> impl Iterator<Item = ShareId> {
        let group = u32::try_from(group).unwrap_or(u32::MAX);
        let prefixes = self.prefixes.heaviest_first(group);
        prefixes.filter_map(|prefix| self.parts.heaviest(prefix).map(ShareId))
    }

    /// Of the prefix of an address, the part that holds most.
    #[must_use]
    pub fn heaviest_beside(&self, group: usize, addr: IpAddr) -> Option<ShareId> {
        let prefix = self.prefixes.find(u32::try_from(group).ok()?, names(addr).0)?;
        self.parts.heaviest(prefix).map(ShareId)
    }

    /// Whether a user is of the prefix of that address.
    #[must_use]
    pub fn is_beside(&self, group: usize, id: ShareId, addr: IpAddr) -> bool {
        let group = u32::try_from(group).unwrap_or(u32::MAX);
        let prefix = self.prefixes.find(group, names(addr).0);
        prefix.is_some() && prefix == self.parts.parent(id.0)
    }
}

#[cfg(test)]
mod tests;
