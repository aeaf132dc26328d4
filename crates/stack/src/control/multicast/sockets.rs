//! The programs' interface to multicast groups: join, leave, source filters, and sending to a group
//! that has members on this host.
//!
//! Called by applications through [`Sockets`], with the names of `std::net::UdpSocket`, and by
//! `sockets.rs` when a datagram goes to a group. Invariant: an interface is in a group for exactly
//! as many sockets as joined it there; a socket that closes leaves. Reading: RFC 9776 section 2
//! (the interface to programs) and section 3.2, RFC 3678.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use floodwall_base::{Address, Counter, DropReason, Family, IfIndex};
use floodwall_ip::{SourceFilter, SourceSet};
use floodwall_packet::ChecksumState;
use floodwall_udp::{
    DatagramInput, DatagramVerdict, GroupError, GroupFilter, GroupInterface, SocketClosed,
    SocketId, SocketSettings, Udp,
};
use floodwall_wire::IpProtocol;
use floodwall_wire::group::GroupProtocol;

use crate::ip::ip_family::IpFamily;
use crate::ip::outgoing_packet::{OutgoingPacket, OutputPath};
use crate::round_context::RoundContext;
use crate::sockets::Sockets;
use crate::stack::Stack;

impl Sockets<'_> {
    /// Joins a group on an interface, for this socket and for the host, from any source (ASM).
    ///
    /// # Errors
    /// See [`GroupError`].
    pub fn udp_join(
        &mut self,
        id: SocketId,
        group: IpAddr,
        iface: IfIndex,
    ) -> Result<(), GroupError> {
        self.udp_join_filtered(id, group, iface, &GroupFilter::all_sources())
    }

    /// Joins with a filter, which is reported to the link as one change.
    fn udp_join_filtered(
        &mut self,
        id: SocketId,
        group: IpAddr,
        iface: IfIndex,
        filter: &GroupFilter,
    ) -> Result<(), GroupError> {
        self.stack.sockets.udp.join(id, group, iface)?;
        if let Err(error) = self.stack.sockets.udp.set_group_filter(id, group, iface, filter) {
            // It was joined just above: leaving succeeds.
            let _ = self.stack.sockets.udp.leave(id, group, iface);
            return Err(error);
        }
        let interface = self.stack.interfaces.get_mut(usize::from(iface.0));
        match interface.map(|i| i.join(group.to_canonical())) {
            Some(Ok(_)) => {}
            refused => {
                let _ = self.stack.sockets.udp.leave(id, group, iface);
                let unknown = refused.is_none();
                return Err(if unknown { GroupError::NoInterface } else { GroupError::TooMany });
            }
        }
        self.stack.control.groups.filtered += usize::from(!filter.is_all());
        self.stack.groups_changed(iface, self.cx.now, self.cx.random);
        Ok(())
    }

    /// Leaves a group on an interface.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub fn udp_leave(
        &mut self,
        id: SocketId,
        group: IpAddr,
        iface: IfIndex,
    ) -> Result<(), GroupError> {
        let filter = self.stack.sockets.udp.group_filter(id, group, iface)?;
        self.stack.control.groups.filtered -= usize::from(!filter.is_all());
        self.stack.sockets.udp.leave(id, group, iface)?;
        if let Some(interface) = self.stack.interfaces.get_mut(usize::from(iface.0)) {
            interface.leave(group.to_canonical());
        }
        self.stack.groups_changed(iface, self.cx.now, self.cx.random);
        Ok(())
    }

    /// Sets the source filter of a group that the socket has joined (RFC 9776 section 2, RFC 3678's
    /// full-state form). A filter that excludes all sources does not leave the group.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub fn udp_set_group_filter(
        &mut self,
        id: SocketId,
        group: IpAddr,
        iface: IfIndex,
        filter: &GroupFilter,
    ) -> Result<(), GroupError> {
        let before = self.stack.sockets.udp.set_group_filter(id, group, iface, filter)?;
        let filtered = &mut self.stack.control.groups.filtered;
        *filtered += usize::from(!filter.is_all());
        *filtered -= usize::from(!before.is_all());
        self.stack.groups_changed(iface, self.cx.now, self.cx.random);
        Ok(())
    }

    /// Joins a group for one source, or adds a source (source-specific multicast, SSM, RFC 4607).
    ///
    /// # Errors
    /// See [`GroupError`]; also where the socket's filter of the group is in exclude mode.
    pub fn udp_join_source(
        &mut self,
        id: SocketId,
        source: IpAddr,
        group: IpAddr,
        iface: IfIndex,
    ) -> Result<(), GroupError> {
        match self.stack.sockets.udp.group_filter(id, group, iface) {
            Ok(filter) if filter.exclude => Err(GroupError::Membership),
            Ok(mut filter) => {
                filter.add(source)?;
                self.udp_set_group_filter(id, group, iface, &filter)
            }
            Err(GroupError::Membership) => {
                let mut filter = GroupFilter::no_sources();
                filter.add(source)?;
                self.udp_join_filtered(id, group, iface, &filter)
            }
            Err(error) => Err(error),
        }
    }

    /// Removes a source that [`Sockets::udp_join_source`] added; removing the last one leaves the
    /// group.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub fn udp_leave_source(
        &mut self,
        id: SocketId,
        source: IpAddr,
        group: IpAddr,
        iface: IfIndex,
    ) -> Result<(), GroupError> {
        let mut filter = self.stack.sockets.udp.group_filter(id, group, iface)?;
        if filter.exclude || !filter.remove(source) {
            return Err(GroupError::Membership);
        }
        match filter.sources().len() {
            0 => self.udp_leave(id, group, iface),
            _ => self.udp_set_group_filter(id, group, iface, &filter),
        }
    }

    /// `std::net::UdpSocket::join_multicast_v4`: the interface by its address, or unspecified for
    /// any.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub fn udp_join_multicast_v4(
        &mut self,
        id: SocketId,
        group: Ipv4Addr,
        interface: Ipv4Addr,
    ) -> Result<(), GroupError> {
        let iface = self.group_interface(by_address(interface))?;
        self.udp_join(id, group.into(), iface)
    }

    /// `std::net::UdpSocket::leave_multicast_v4`.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub fn udp_leave_multicast_v4(
        &mut self,
        id: SocketId,
        group: Ipv4Addr,
        interface: Ipv4Addr,
    ) -> Result<(), GroupError> {
        let iface = self.group_interface(by_address(interface))?;
        self.udp_leave(id, group.into(), iface)
    }

    /// `std::net::UdpSocket::join_multicast_v6`: the interface by its number, or 0 for any.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub fn udp_join_multicast_v6(
        &mut self,
        id: SocketId,
        group: Ipv6Addr,
        interface: u32,
    ) -> Result<(), GroupError> {
        let iface = self.group_interface(by_number(interface))?;
        self.udp_join(id, group.into(), iface)
    }

    /// `std::net::UdpSocket::leave_multicast_v6`.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub fn udp_leave_multicast_v6(
        &mut self,
        id: SocketId,
        group: Ipv6Addr,
        interface: u32,
    ) -> Result<(), GroupError> {
        let iface = self.group_interface(by_number(interface))?;
        self.udp_leave(id, group.into(), iface)
    }

    /// Resolves the interface that a program specified.
    ///
    /// # Errors
    /// `NoInterface`.
    pub fn group_interface(&self, wanted: GroupInterface) -> Result<IfIndex, GroupError> {
        let mut all = self.stack.interfaces.iter();
        let found = match wanted {
            GroupInterface::Any => self.stack.first_up(),
            GroupInterface::Address(addr) => {
                all.find(|i| i.owns_v4(addr).is_some()).map(|i| i.index)
            }
            GroupInterface::Index(iface) => all.find(|i| i.index == iface).map(|i| i.index),
        };
        found.ok_or(GroupError::NoInterface)
    }

    /// Changes a socket's settings: hop limit to groups, loopback, outgoing interface and the like.
    /// Fixed settings are unaffected (see `floodwall_udp`).
    ///
    /// # Errors
    /// The socket is closed.
    pub fn udp_set(
        &mut self,
        id: SocketId,
        change: impl FnOnce(&mut SocketSettings),
    ) -> Result<(), SocketClosed> {
        let mut settings = self.stack.sockets.udp.settings(id)?.clone();
        change(&mut settings);
        self.stack.sockets.udp.set_settings(id, settings)?;
        self.stack.sockets.path_cache.forget();
        Ok(())
    }

    /// `std::net::UdpSocket::set_multicast_ttl_v4`; sets the hop limit of IPv6 groups too.
    ///
    /// # Errors
    /// The socket is closed.
    pub fn udp_set_multicast_ttl(&mut self, id: SocketId, ttl: u8) -> Result<(), SocketClosed> {
        self.udp_set(id, |settings| settings.group_hop_limit = ttl)
    }

    /// `std::net::UdpSocket::set_multicast_loop_v4` and `set_multicast_loop_v6`: whether the
    /// socket's datagrams to a group are delivered to this host's own members.
    ///
    /// # Errors
    /// The socket is closed.
    pub fn udp_set_multicast_loop(&mut self, id: SocketId, on: bool) -> Result<(), SocketClosed> {
        self.udp_set(id, |settings| settings.group_loop = on)
    }

    /// The interface on which the socket's datagrams to groups leave, unless the destination
    /// specifies one (`IP_MULTICAST_IF`, `IPV6_MULTICAST_IF`).
    ///
    /// # Errors
    /// The socket is closed.
    pub fn udp_set_multicast_interface(
        &mut self,
        id: SocketId,
        iface: Option<IfIndex>,
    ) -> Result<(), SocketClosed> {
        self.udp_set(id, |settings| settings.group_iface = iface)
    }
}

const fn by_address(addr: Ipv4Addr) -> GroupInterface {
    if addr.is_unspecified() { GroupInterface::Any } else { GroupInterface::Address(addr) }
}

const fn by_number(number: u32) -> GroupInterface {
    match number {
        0 => GroupInterface::Any,
        1..=0xffff => GroupInterface::Index(IfIndex(number as u16)),
        // No interface has this index.
        _ => GroupInterface::Index(IfIndex(u16::MAX)),
    }
}

/// Replaces the filters of an interface's groups by the union of its sockets' filters (RFC 9776
/// section 3.2). One pass over all sockets.
pub(super) fn merge_filters<A: GroupProtocol>(
    udp: &Udp,
    iface: IfIndex,
    groups: &mut [Option<(A, SourceFilter<A>)>],
) {
    for (group, filter) in groups.iter_mut().flatten() {
        let mut merged = SourceFilter::NO_SOURCES;
        udp.filters_of(group.to_ip(), iface, |wanted| merged = merged.merge(&converted(wanted)));
        *filter = merged;
    }
}

/// Converts a socket's filter to the network layer's. With more sources than that supports: any
/// source.
fn converted<A: Address>(filter: &GroupFilter) -> SourceFilter<A> {
    match SourceSet::of(filter.sources().iter().filter_map(|s| A::from_ip(*s))) {
        Ok(sources) if filter.exclude => SourceFilter::Exclude(sources),
        Ok(sources) => SourceFilter::Include(sources),
        Err(_) => SourceFilter::ALL_SOURCES,
    }
}

impl Stack {
    /// Leaves every group of a socket that is about to be closed.
    pub(crate) fn leave_groups(&mut self, cx: &mut RoundContext<'_>, id: SocketId) {
        loop {
            let Ok(mut joined) = self.sockets.udp.groups(id) else { return };
            let Some((group, iface)) = joined.next() else { return };
            drop(joined);
            let filter = self.sockets.udp.group_filter(id, group, iface);
            if filter.is_ok_and(|filter| !filter.is_all()) {
                self.control.groups.filtered -= 1;
            }
            if self.sockets.udp.leave(id, group, iface).is_err() {
                return;
            }
            if let Some(interface) = self.interfaces.get_mut(usize::from(iface.0)) {
                interface.leave(group);
            }
            self.groups_changed(iface, cx.now, cx.random);
        }
    }

    /// The interface on which a socket's datagrams to a group leave, where it set one.
    pub(crate) fn group_zone<A: Address>(&self, id: SocketId, dst_addr: A) -> Option<IfIndex> {
        let settings = self.sockets.udp.settings(id).ok().filter(|_| dst_addr.is_group());
        settings.and_then(|settings| settings.group_iface)
    }

    /// Sends a datagram to a group: to the link, and to our own members unless the socket disabled
    /// loopback. With hop limit 0 it does not leave this host (RFC 1112 section 6.1).
    #[cold]
    pub(crate) fn output_to_group<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        id: SocketId,
        outgoing: OutgoingPacket<A>,
        path: OutputPath<A>,
    ) {
        if let OutputPath::Via { iface, .. } = path {
            if self.sockets.udp.settings(id).is_ok_and(|settings| settings.group_loop) {
                self.loop_to_members(cx, &outgoing, iface);
            }
            if outgoing.hop_limit == 0 {
                self.originate::<A>(outgoing.packet.len() + A::HEADER_LEN);
                self.stats.outcomes.transmitted += 1;
                return;
            }
        }
        self.output_on(cx, outgoing, path, None);
    }

    /// Delivers a copy of a datagram that we send to a group to our own members. The packet begins
    /// with its UDP header.
    fn loop_to_members<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        &OutgoingPacket { ref packet, ends, class, .. }: &OutgoingPacket<A>,
        iface: IfIndex,
    ) {
        let (src_addr, dst_addr) = (ends.src_addr.to_ip(), ends.dst_addr.to_ip());
        let interface = self.interfaces.get(usize::from(iface.0));
        if interface.is_none_or(|i| !i.is_member(dst_addr)) {
            return;
        }
        self.stats.outcomes.received += 1;
        let (receives, delivers) = match A::FAMILY {
            Family::V4 => (Counter::IpInReceives, Counter::IpInDelivers),
            Family::V6 => (Counter::Ip6InReceives, Counter::Ip6InDelivers),
        };
        self.stats.counters.count(receives);
        // Readers look at the network header for the sender.
        let copy = cx.pool.packet_from_chunks(packet.chunks());
        let copy = copy.and_then(|c| A::header(cx.pool, c, ends, IpProtocol::UDP, 1, class).ok());
        let Some(mut copy) = copy else {
            return self.stats.drops_in.count(DropReason::NoBuffer);
        };
        self.stats.counters.count(delivers);
        copy.set_checksum_state(ChecksumState::Verified);
        let (l4, len) = (A::HEADER_LEN, packet.len());
        let input = DatagramInput { src_addr, dst_addr, iface, l3: 0, l4, len, group: true };
        let stats = &mut self.stats;
        match self.sockets.udp.input(&input, copy, cx.pool, &mut stats.counters, &mut stats.access)
        {
            DatagramVerdict::Delivered { .. } | DatagramVerdict::DeliveredToGroup { .. } => {
                stats.outcomes.delivered += 1;
            }
            DatagramVerdict::Dropped(copy, reason) => self.drop_packet(copy, reason),
            DatagramVerdict::PortUnreachable(copy) => self.drop_packet(copy, DropReason::UdpNoPort),
            DatagramVerdict::Challenged { packet, .. } => {
                self.drop_packet(packet, DropReason::UdpChallenged)
            }
        }
    }
}
