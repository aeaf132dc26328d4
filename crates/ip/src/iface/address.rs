//! One address of an interface: its state, its origin, its lifetimes.
//!
//! Called by `iface.rs`, which keeps them, and by the code that lists or changes addresses.
//! Invariant: an address is used for nothing while it is [`AddressState::Tentative`] or
//! [`AddressState::Duplicate`]. Read first: RFC 4862 sections 2 and 5.5. Not here: the state
//! transitions (`dad.rs`, and the stack's timed work).

use core::net::IpAddr;

use floodwall_base::{Address, Instant, IpCidr};

/// How far an address may be used (RFC 4862 section 2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AddressState {
    /// Its uniqueness is being verified: not ours yet.
    Tentative,
    /// For everything.
    Preferred,
    /// For what exists already, not for new flows.
    Deprecated,
    /// Another host uses it: not ours.
    Duplicate,
}

impl AddressState {
    /// Whether packets to the address are for us, and may be sent from it.
    #[must_use]
    #[inline]
    pub const fn is_assigned(self) -> bool {
        matches!(self, Self::Preferred | Self::Deprecated)
    }

    /// iproute2's keyword, empty for an address in ordinary use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tentative => "tentative",
            Self::Preferred => "",
            Self::Deprecated => "deprecated",
            Self::Duplicate => "dadfailed",
        }
    }
}

/// The origin of an address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum AddressOrigin {
    /// The operator.
    #[default]
    Manual,
    /// The interface itself: loopback and link-local addresses.
    Interface,
    /// A router's advertisement (RFC 4862).
    Autoconf,
    /// A DHCP server (RFC 2131).
    Dhcp,
}

impl AddressOrigin {
    /// A keyword for operators.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::Interface => "interface",
            Self::Autoconf => "autoconf",
            Self::Dhcp => "dhcp",
        }
    }

    /// Whether it is removed when the link goes down: it was learned from the link, and the next
    /// link may be another.
    #[must_use]
    pub const fn is_of_the_link(self) -> bool {
        matches!(self, Self::Autoconf | Self::Dhcp)
    }
}

/// One address of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct InterfaceAddress {
    /// The address.
    pub addr: IpAddr,
    /// How many leading bits the link's other addresses share.
    pub prefix_len: u8,
    /// How far it may be used.
    pub state: AddressState,
    /// The origin.
    pub origin: AddressOrigin,
    /// Until when new flows may use it; `None` for ever.
    pub preferred_until: Option<Instant>,
    /// Until when it is ours; `None` for ever.
    pub valid_until: Option<Instant>,
    /// Whether its prefix is on the link, so that a route leads there.
    pub prefix_route: bool,
}

impl InterfaceAddress {
    /// An address that the operator gave, for ever.
    #[must_use]
    pub const fn manual(cidr: IpCidr, state: AddressState) -> Self {
        Self {
            addr: cidr.addr(),
            prefix_len: cidr.prefix_len(),
            state,
            origin: AddressOrigin::Manual,
            preferred_until: None,
            valid_until: None,
            prefix_route: true,
        }
    }

    /// Address and prefix length together.
    #[must_use]
    pub fn cidr(&self) -> Option<IpCidr> {
        IpCidr::new(self.addr, self.prefix_len)
    }

    /// The state of the address, once it is known to be ours alone.
    #[must_use]
    pub fn state_at(&self, now: Instant) -> AddressState {
        match self.preferred_until {
            Some(until) if until <= now => AddressState::Deprecated,
            _ => AddressState::Preferred,
        }
    }
}

/// An address of one family, packed for the walk that every packet causes: the fields that delivery
/// reads come first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Assigned<A> {
    pub(super) addr: A,
    pub(super) prefix_len: u8,
    pub(super) state: AddressState,
    pub(super) origin: AddressOrigin,
    pub(super) prefix_route: bool,
    pub(super) preferred_until: Instant,
    pub(super) valid_until: Instant,
}

impl<A: Address> Assigned<A> {
    /// One of the interface's own making, for ever.
    pub(super) const fn own(addr: A, prefix_len: u8, state: AddressState) -> Self {
        Self {
            addr,
            prefix_len,
            state,
            origin: AddressOrigin::Interface,
            prefix_route: true,
            preferred_until: Instant::FAR,
            valid_until: Instant::FAR,
        }
    }

    pub(super) fn of(addr: A, from: &InterfaceAddress) -> Self {
        Self {
            addr,
            prefix_len: from.prefix_len,
            state: from.state,
            origin: from.origin,
            prefix_route: from.prefix_route,
            preferred_until: from.preferred_until.unwrap_or(Instant::FAR),
            valid_until: from.valid_until.unwrap_or(Instant::FAR),
        }
    }

    pub(super) fn shown(&self) -> InterfaceAddress {
        let until = |at: Instant| (at != Instant::FAR).then_some(at);
        InterfaceAddress {
            addr: self.addr.to_ip(),
            prefix_len: self.prefix_len,
            state: self.state,
            origin: self.origin,
            preferred_until: until(self.preferred_until),
            valid_until: until(self.valid_until),
            prefix_route: self.prefix_route,
        }
    }

    /// Where its two ends are kept: preferred, valid.
    pub(super) const fn ends(&mut self) -> (&mut Instant, &mut Instant) {
        (&mut self.preferred_until, &mut self.valid_until)
    }

    pub(super) fn covers(&self, addr: A) -> bool {
        floodwall_base::Prefix::new(self.addr, self.prefix_len).is_some_and(|p| p.contains(addr))
    }
}
