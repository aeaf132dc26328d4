//! The key of a socket and the key of an arrived datagram, in the form that the tables compare.
//!
//! Addresses of both families are 128-bit numbers with IPv4 mapped (RFC 4291 section 2.5.5.2), so
//! that nothing behind the entry depends on the family. Invariant: a zone is 0 unless an address of
//! the key is valid on one link only (decision E20), so equal flows have equal keys.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use floodwall_base::IfIndex;

/// The upper bits of an IPv4-mapped address.
const MAPPED: u128 = 0xffff << 32;

/// Takes IPv4 datagrams.
pub(crate) const V4: u8 = 1;
/// Takes IPv6 datagrams.
pub(crate) const V6: u8 = 2;

/// How narrowly a socket listens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeyKind {
    /// To nothing: it has no port yet.
    Unbound,
    /// To a port at any address of its families.
    Wildcard,
    /// To a port at one address.
    Bound,
    /// To one peer.
    Connected,
}

/// What a socket listens to. One cache line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(align(64))]
pub(crate) struct SocketKey {
    pub(crate) local: u128,
    pub(crate) remote: u128,
    pub(crate) zone: u32,
    pub(crate) local_port: u16,
    pub(crate) remote_port: u16,
    pub(crate) families: u8,
    pub(crate) kind: KeyKind,
}

const _: () = assert!(size_of::<SocketKey>() == 64);

impl SocketKey {
    pub(crate) const UNBOUND: Self = Self {
        local: 0,
        remote: 0,
        zone: 0,
        local_port: 0,
        remote_port: 0,
        families: 0,
        kind: KeyKind::Unbound,
    };

    /// Of a socket that was bound and not connected.
    pub(crate) const fn bound(hold: &KeyHold) -> Self {
        Self {
            local: hold.local,
            zone: hold.zone,
            local_port: hold.port,
            families: hold.families,
            kind: if hold.is_wildcard() { KeyKind::Wildcard } else { KeyKind::Bound },
            ..Self::UNBOUND
        }
    }

    /// Of a connected socket.
    pub(crate) const fn connected(
        local: u128,
        local_port: u16,
        remote: u128,
        remote_port: u16,
        iface: u32,
    ) -> Self {
        let zone = if is_link_scope(local) || is_link_scope(remote) { iface } else { 0 };
        let families = if is_v4(local) { V4 } else { V6 };
        Self { local, remote, zone, local_port, remote_port, families, kind: KeyKind::Connected }
    }

    /// Whether the socket matches this datagram, as far as addresses go.
    #[inline(always)]
    pub(crate) fn accepts(&self, probe: &DemuxProbe) -> bool {
        if self.kind == KeyKind::Wildcard {
            return self.families & probe.families() != 0;
        }
        let zone_fits = self.zone == 0 || self.zone == probe.iface;
        match self.kind {
            KeyKind::Connected => {
                self.local == probe.local
                    && self.remote == probe.remote
                    && self.remote_port == probe.remote_port
                    && zone_fits
            }
            KeyKind::Bound => self.local == probe.local && zone_fits,
            KeyKind::Wildcard | KeyKind::Unbound => false,
        }
    }
}

/// The binding that a socket reserves: its bind, regardless of a later connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeyHold {
    /// The address; 0 (`::`) is every one of its families.
    pub(crate) local: u128,
    pub(crate) zone: u32,
    pub(crate) port: u16,
    pub(crate) families: u8,
    pub(crate) reuse: bool,
    /// One of several that are bound alike, among which flows are spread.
    pub(crate) spread: bool,
}

impl KeyHold {
    pub(crate) const NONE: Self =
        Self { local: 0, zone: 0, port: 0, families: 0, reuse: false, spread: false };

    pub(crate) const fn is_wildcard(&self) -> bool {
        self.local == 0
    }
}

/// The key of an arrived datagram; local is us.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DemuxProbe {
    pub(crate) local: u128,
    pub(crate) remote: u128,
    /// The interface, plus one.
    pub(crate) iface: u32,
    pub(crate) local_port: u16,
    pub(crate) remote_port: u16,
}

impl DemuxProbe {
    #[inline(always)]
    pub(crate) const fn families(&self) -> u8 {
        if is_v4(self.local) { V4 } else { V6 }
    }

    /// The key of a socket that is connected to exactly this peer.
    #[inline]
    pub(crate) const fn connected(&self) -> SocketKey {
        SocketKey::connected(self.local, self.local_port, self.remote, self.remote_port, self.iface)
    }

    /// The key of a socket that is bound to exactly this address.
    #[inline]
    pub(crate) const fn bound(&self) -> SocketKey {
        SocketKey {
            local: self.local,
            zone: if is_link_scope(self.local) { self.iface } else { 0 },
            local_port: self.local_port,
            families: self.families(),
            kind: KeyKind::Bound,
            ..SocketKey::UNBOUND
        }
    }
}

/// An interface as zones are kept: 0 is none.
#[inline(always)]
pub(crate) const fn zone_of(iface: IfIndex) -> u32 {
    iface.0 as u32 + 1
}

/// An address of either family as a number, IPv4 mapped.
#[inline(always)]
pub(crate) const fn bits(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(a) => MAPPED | a.to_bits() as u128,
        IpAddr::V6(a) => a.to_bits(),
    }
}

/// The address of a number, in its own family.
#[inline]
pub(crate) const fn addr(bits: u128) -> IpAddr {
    if is_v4(bits) {
        IpAddr::V4(Ipv4Addr::from_bits(bits as u32))
    } else {
        IpAddr::V6(Ipv6Addr::from_bits(bits))
    }
}

#[inline(always)]
pub(crate) const fn is_v4(bits: u128) -> bool {
    bits >> 32 == MAPPED >> 32
}

/// Whether the address is valid on one link only: fe80::/10, 169.254/16.
#[inline(always)]
pub(crate) const fn is_link_scope(bits: u128) -> bool {
    bits >> 118 == 0xfe80 >> 6 || bits >> 16 == (MAPPED | 0xa9fe_0000) >> 16
}

/// Whether the address is a group, or the broadcast address (255.255.255.255).
pub(crate) const fn is_group(bits: u128) -> bool {
    bits >> 120 == 0xff
        || bits >> 28 == (MAPPED | 0xe000_0000) >> 28
        || bits as u32 == u32::MAX && is_v4(bits)
}

/// An end in the form of the API: IPv4-mapped addresses become IPv4.
#[inline]
pub(crate) fn canonical(end: SocketAddr) -> SocketAddr {
    match end {
        SocketAddr::V4(_) => end,
        SocketAddr::V6(v6) => SocketAddr::new(v6.ip().to_canonical(), end.port()),
    }
}
