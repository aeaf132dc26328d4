//! The multicast groups of one socket: where it joined them, and its source filters.
//!
//! Called by `sockets.rs` (joining, leaving) and `input.rs` (which sockets accept a datagram).
//! Invariants: a socket has [`UDP_GROUPS_MAX`] groups at most, none twice on one interface, and for
//! each [`GROUP_SOURCES_MAX`] sources at most: memory that programs take, never remote peers. Read
//! first: RFC 9776 section 2, RFC 3678. Not here: what the network layer makes of it.

use core::net::{IpAddr, SocketAddr};

use floodwall_base::IfIndex;
use floodwall_base::limits::UDP_GROUPS_MAX;

use crate::demux::{addr, bits, canonical, zone_of};
use crate::group_filter::{GroupError, GroupFilter, GroupSockets};
use crate::id::SocketId;
use crate::intake::Intake;
use crate::sockets::{SocketBody, Udp};

fn key(group: IpAddr, iface: IfIndex) -> (u128, u32) {
    (bits(canonical(SocketAddr::new(group, 0)).ip()), zone_of(iface))
}

impl<I: Intake> Udp<I> {
    /// Joins a group on an interface. The caller updates the network layer.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub fn join(&mut self, id: SocketId, group: IpAddr, iface: IfIndex) -> Result<(), GroupError> {
        let (group_bits, zone) = key(group, iface);
        let body = self.body_mut(id)?;
        if !addr(group_bits).is_multicast() || !body.hears(group) {
            return Err(GroupError::NotGroup);
        }
        let groups = body.groups.get_or_insert_default();
        if groups.iter().any(|g| g.group == group_bits && g.zone == zone) {
            return Err(GroupError::Membership);
        }
        if groups.len() == UDP_GROUPS_MAX {
            return Err(GroupError::TooMany);
        }
        groups.push(GroupSockets { group: group_bits, zone, filter: GroupFilter::all_sources() });
        Ok(())
    }

    /// Leaves a group.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub fn leave(&mut self, id: SocketId, group: IpAddr, iface: IfIndex) -> Result<(), GroupError> {
        let (group, zone) = key(group, iface);
        let groups = self.body_mut(id)?.groups.get_or_insert_default();
        let at = groups.iter().position(|g| g.group == group && g.zone == zone);
        groups.swap_remove(at.ok_or(GroupError::Membership)?);
        Ok(())
    }

    /// Sets the source filter of a group that the socket has joined; returns the previous one. The
    /// caller updates the network layer.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub fn set_group_filter(
        &mut self,
        id: SocketId,
        group: IpAddr,
        iface: IfIndex,
        filter: &GroupFilter,
    ) -> Result<GroupFilter, GroupError> {
        let (group_bits, zone) = key(group, iface);
        let v4 = addr(group_bits).is_ipv4();
        if filter.sources.iter().any(|s| s.is_ipv4() != v4) {
            return Err(GroupError::NotSource);
        }
        let groups = self.body_mut(id)?.groups.get_or_insert_default();
        let joined = groups.iter_mut().find(|g| g.group == group_bits && g.zone == zone);
        let joined = joined.ok_or(GroupError::Membership)?;
        Ok(core::mem::replace(&mut joined.filter, filter.clone()))
    }

    /// The source filter of a group that the socket has joined.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub fn group_filter(
        &self,
        id: SocketId,
        group: IpAddr,
        iface: IfIndex,
    ) -> Result<GroupFilter, GroupError> {
        let (group, zone) = key(group, iface);
        let mut joined = self.body(id)?.groups.iter().flat_map(|groups| groups.iter());
        let joined = joined.find(|g| g.group == group && g.zone == zone);
        joined.map(|g| g.filter.clone()).ok_or(GroupError::Membership)
    }

    /// Hands the filter of every socket that joined a group on an interface to `each`. One pass
    /// over all sockets.
    pub fn filters_of(&self, group: IpAddr, iface: IfIndex, mut each: impl FnMut(&GroupFilter)) {
        let (group, zone) = key(group, iface);
        for body in self.sockets.iter().filter_map(|s| s.body.as_ref()) {
            let joined = body.groups.iter().flat_map(|groups| groups.iter());
            joined.filter(|g| g.group == group && g.zone == zone).for_each(|g| each(&g.filter));
        }
    }

    /// The groups that the socket has joined: to leave them in the network layer before closing.
    ///
    /// # Errors
    /// It is closed.
    pub fn groups(
        &self,
        id: SocketId,
    ) -> Result<impl Iterator<Item = (IpAddr, IfIndex)> + '_, crate::SocketClosed> {
        let groups = &self.body(id)?.groups;
        let all = groups.iter().flat_map(|groups| groups.iter());
        Ok(all.map(|g| (addr(g.group), IfIndex(g.zone.wrapping_sub(1) as u16))))
    }
}

impl<I> SocketBody<I> {
    /// Whether the socket's families have this group.
    fn hears(&self, group: IpAddr) -> bool {
        self.settings.family == floodwall_base::Family::V6 || group.is_ipv4()
    }

    /// Whether the socket accepts what `source` sent to this group on this interface: by its own
    /// membership there, else by its setting for groups that others joined.
    pub(crate) fn wants_group(&self, group: u128, zone: u32, source: IpAddr) -> bool {
        let mut joined = self.groups.iter().flat_map(|groups| groups.iter());
        match joined.find(|g| g.group == group && g.zone == zone) {
            Some(joined) => joined.filter.passes(source.to_canonical()),
            None => self.settings.all_groups || !addr(group).is_multicast(),
        }
    }
}
