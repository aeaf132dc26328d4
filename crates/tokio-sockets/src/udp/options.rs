//! Socket options, with tokio's names.
//!
//! Reading an option costs a lock and a copy. Setting one is a request to the workers: when the
//! call returns, it is in force at all of them, as after `setsockopt`. The calls with tokio's
//! signatures block the thread for that, microseconds, or one round of a busy worker;
//! [`UdpSocket::set_settings`] awaits it instead, and changes many at once.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use floodwall_base::IfIndex;
use floodwall_stack::GroupInterface;
use floodwall_udp::{GroupFilter, SocketSettings};

use super::UdpSocket;
use crate::block::block_on;

/// What the kernel's sockets send with, and ours.
const DEFAULT_TTL: u32 = 64;

impl UdpSocket {
    /// All settings of the socket.
    #[must_use]
    pub fn settings(&self) -> SocketSettings {
        self.handle.settings()
    }

    /// Changes settings; in force at every worker when it returns. The family never changes, and
    /// `v6_only` and `reuse_address` do not after the bind.
    ///
    /// # Errors
    /// `WouldBlock` (too many requests wait), `BrokenPipe` (the network has ended).
    pub async fn set_settings(&self, change: impl FnOnce(&mut SocketSettings)) -> io::Result<()> {
        let mut settings = self.handle.settings();
        change(&mut settings);
        self.handle.set_settings(settings).await
    }

    fn set(&self, change: impl FnOnce(&mut SocketSettings)) -> io::Result<()> {
        block_on(self.set_settings(change))
    }

    /// Whether it may send to broadcast addresses.
    ///
    /// # Errors
    /// Never: the signature is tokio's. The same holds for all calls that only read.
    pub fn broadcast(&self) -> io::Result<bool> {
        Ok(self.settings().broadcast)
    }

    /// Lets it send to broadcast addresses, or not.
    ///
    /// # Errors
    /// As [`UdpSocket::set_settings`], and `TimedOut`. So with all that follow.
    pub fn set_broadcast(&self, on: bool) -> io::Result<()> {
        self.set(|settings| settings.broadcast = on)
    }

    /// The TTL of what is sent to one host.
    ///
    /// # Errors
    /// Never.
    pub fn ttl(&self) -> io::Result<u32> {
        Ok(self.settings().hop_limit.map_or(DEFAULT_TTL, u32::from))
    }

    /// Sets the TTL (IPv6: hop limit) of what is sent to one host.
    ///
    /// # Errors
    /// `InvalidInput` unless it is 1 to 255.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        let ttl = byte(ttl).filter(|ttl| *ttl > 0).ok_or(io::ErrorKind::InvalidInput)?;
        self.set(|settings| settings.hop_limit = Some(ttl))
    }

    /// The TOS byte of what is sent.
    ///
    /// # Errors
    /// Never.
    pub fn tos_v4(&self) -> io::Result<u32> {
        Ok(u32::from(self.settings().traffic_class))
    }

    /// Sets the TOS byte of what is sent.
    ///
    /// # Errors
    /// `InvalidInput` where it is more than a byte.
    pub fn set_tos_v4(&self, tos: u32) -> io::Result<()> {
        let class = byte(tos).ok_or(io::ErrorKind::InvalidInput)?;
        self.set(|settings| settings.traffic_class = class)
    }

    /// The traffic class of what is sent.
    ///
    /// # Errors
    /// Never.
    pub fn tclass_v6(&self) -> io::Result<u32> {
        self.tos_v4()
    }

    /// Sets the traffic class of what is sent.
    ///
    /// # Errors
    /// `InvalidInput` where it is more than a byte.
    pub fn set_tclass_v6(&self, tclass: u32) -> io::Result<()> {
        self.set_tos_v4(tclass)
    }

    /// Whether this host's own members receive what it sends to a group (multicast loop).
    ///
    /// # Errors
    /// Never.
    pub fn multicast_loop_v4(&self) -> io::Result<bool> {
        Ok(self.settings().group_loop)
    }

    /// Sets whether this host's own members receive what it sends to a group (multicast loop).
    ///
    /// # Errors
    /// As [`UdpSocket::set_broadcast`].
    pub fn set_multicast_loop_v4(&self, on: bool) -> io::Result<()> {
        self.set(|settings| settings.group_loop = on)
    }

    /// As [`UdpSocket::multicast_loop_v4`].
    ///
    /// # Errors
    /// Never.
    pub fn multicast_loop_v6(&self) -> io::Result<bool> {
        self.multicast_loop_v4()
    }

    /// As [`UdpSocket::set_multicast_loop_v4`].
    ///
    /// # Errors
    /// As there.
    pub fn set_multicast_loop_v6(&self, on: bool) -> io::Result<()> {
        self.set_multicast_loop_v4(on)
    }

    /// The TTL (IPv6: hop limit) of what is sent to groups.
    ///
    /// # Errors
    /// Never.
    pub fn multicast_ttl_v4(&self) -> io::Result<u32> {
        Ok(u32::from(self.settings().group_hop_limit))
    }

    /// Sets the TTL (IPv6: hop limit) of what is sent to groups.
    ///
    /// # Errors
    /// `InvalidInput` where it is more than 255.
    pub fn set_multicast_ttl_v4(&self, ttl: u32) -> io::Result<()> {
        let ttl = byte(ttl).ok_or(io::ErrorKind::InvalidInput)?;
        self.set(|settings| settings.group_hop_limit = ttl)
    }

    /// Joins an IPv4 group on the interface that has this address (`0.0.0.0`: the first that is
    /// up), for all senders.
    ///
    /// # Errors
    /// `AddrInUse` (a member already), `InvalidInput` (no group), no such interface (`ENODEV`), too
    /// many groups (`OutOfMemory`).
    pub fn join_multicast_v4(&self, multiaddr: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.join(multiaddr.into(), by_address(interface))
    }

    /// Joins an IPv6 group on the interface of this number (0: the first that is up).
    ///
    /// # Errors
    /// As [`UdpSocket::join_multicast_v4`].
    pub fn join_multicast_v6(&self, multiaddr: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.join((*multiaddr).into(), by_number(interface))
    }

    /// Joins an IPv4 group on the interface that has this address (`0.0.0.0`: the first that is
    /// up), for datagrams of one sender (RFC 4607; socket2's name). A group is joined once by a
    /// socket: for several senders see [`UdpSocket::join_sources`].
    ///
    /// # Errors
    /// As [`UdpSocket::join_multicast_v4`]; `InvalidInput` where the source is no sender's address.
    pub fn join_ssm_v4(
        &self,
        source: &Ipv4Addr,
        group: &Ipv4Addr,
        interface: &Ipv4Addr,
    ) -> io::Result<()> {
        self.join_by((*group).into(), by_address(*interface), &[(*source).into()])
    }

    /// Leaves a group that was joined by [`UdpSocket::join_ssm_v4`].
    ///
    /// # Errors
    /// `AddrNotAvailable`: no member there.
    pub fn leave_ssm_v4(
        &self,
        _source: &Ipv4Addr,
        group: &Ipv4Addr,
        interface: &Ipv4Addr,
    ) -> io::Result<()> {
        self.leave_multicast_v4(*group, *interface)
    }

    /// Joins a group of either family on the interface of this number (0: the first that is up),
    /// for datagrams of these senders (RFC 4607). The membership is reported with them (IGMPv3,
    /// MLDv2).
    ///
    /// # Errors
    /// As [`UdpSocket::join_multicast_v4`]; `InvalidInput` where there is no source, where one is
    /// no sender's address, or of too many.
    pub fn join_sources(
        &self,
        group: IpAddr,
        interface: u32,
        sources: &[IpAddr],
    ) -> io::Result<()> {
        self.join_by(group, by_number(interface), sources)
    }

    /// Leaves an IPv4 group.
    ///
    /// # Errors
    /// `AddrNotAvailable`: no member there.
    pub fn leave_multicast_v4(&self, multiaddr: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.leave(multiaddr.into(), by_address(interface))
    }

    /// Leaves an IPv6 group.
    ///
    /// # Errors
    /// `AddrNotAvailable`: no member there.
    pub fn leave_multicast_v6(&self, multiaddr: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.leave((*multiaddr).into(), by_number(interface))
    }

    /// Takes the pending error, as `SO_ERROR` does: the next call does not fail by it then.
    ///
    /// # Errors
    /// Never: the signature is tokio's.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.handle.take_error())
    }

    fn join(&self, group: IpAddr, iface: GroupInterface) -> io::Result<()> {
        block_on(self.handle.join(group, iface, GroupFilter::all_sources()))
    }

    fn join_by(&self, group: IpAddr, iface: GroupInterface, sources: &[IpAddr]) -> io::Result<()> {
        let mut filter = GroupFilter::no_sources();
        for source in sources {
            let fits = source.to_canonical().is_ipv4() == group.to_canonical().is_ipv4();
            let added = fits.then(|| filter.add(*source).ok()).flatten();
            added.ok_or(io::ErrorKind::InvalidInput)?;
        }
        if filter.sources().is_empty() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        block_on(self.handle.join(group, iface, filter))
    }

    fn leave(&self, group: IpAddr, iface: GroupInterface) -> io::Result<()> {
        // The kernel's error for a group that the socket has not joined.
        block_on(self.handle.leave(group, iface)).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => io::ErrorKind::AddrNotAvailable.into(),
            _ => error,
        })
    }
}

fn byte(number: u32) -> Option<u8> {
    u8::try_from(number).ok()
}

const fn by_address(addr: Ipv4Addr) -> GroupInterface {
    if addr.is_unspecified() { GroupInterface::Any } else { GroupInterface::Address(addr) }
}

fn by_number(number: u32) -> GroupInterface {
    match number {
        0 => GroupInterface::Any,
        // No interface has the last number.
        number => GroupInterface::Index(IfIndex(u16::try_from(number).unwrap_or(u16::MAX))),
    }
}
