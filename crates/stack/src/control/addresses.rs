//! Addition, change and removal of interface addresses while the stack runs.
//!
//! Called between rounds: by operator commands, by address autoconfiguration (SLAAC) and by the
//! DHCP client. Nothing is transmitted here; announcements and probes leave with the next timed
//! work. Invariants: the connected route of a prefix exists exactly as long as some address of the
//! interface needs it; an address is used only after duplicate address detection has shown it to be
//! unique; after removal only the sockets bound to an address still refer to it, and their sends
//! return an error. Reading: RFC 4862 sections 5.4 and 5.5, RFC 5227, RFC 1122 section 3.3.1.6. Not
//! here: the two-hour rule and the checks of what a router or a server may request (in their own
//! modules).
//!
//! # Under flood
//! Reachable through those modules alone, within their own bounds. Bound: `ADDRESSES_MAX` of each
//! family and interface. Worst work of a call: one pass over an interface's addresses and one over
//! the routes; of timed work: one pass over all addresses to expire [`EXPIRIES_MAX`] of them.

use core::net::IpAddr;

use floodwall_base::{Counter, IfIndex, Instant, IpCidr, Prefix, Randomness, Units};
use floodwall_fib::lpm::LpmFamily as Routed;
use floodwall_fib::{Fib, Route, RouteError, RouteProtocol, TableId};
use floodwall_ip::{
    AddressOrigin, AddressState, Detection, InterfaceAddress, InterfaceError, LinkMedium,
};
use thiserror::Error;

use crate::build;
use crate::round_context::RoundContext;
use crate::stack::Stack;

/// Maximum number of addresses that one pass of timed work expires.
const EXPIRIES_MAX: usize = 16;

/// An address to be added to an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddAddress {
    /// The address.
    pub addr: IpAddr,
    /// Prefix length in bits.
    pub prefix_len: u8,
    /// Origin of the address: operator, autoconfiguration or DHCP.
    pub origin: AddressOrigin,
    /// End of the preferred lifetime: new flows may use it until then. `None`: no end.
    pub preferred_until: Option<Instant>,
    /// End of the valid lifetime. `None`: no end.
    pub valid_until: Option<Instant>,
    /// Whether it is probed before use. Never where the configuration disables detection.
    pub detection: Detection,
    /// Whether the prefix is on-link and gets a connected route.
    pub prefix_route: bool,
}

impl AddAddress {
    /// An operator's address without expiry: IPv6 is probed, IPv4 announced, as at start-up.
    #[must_use]
    pub const fn manual(address: IpCidr) -> Self {
        let addr = address.addr();
        Self {
            addr,
            prefix_len: address.prefix_len(),
            origin: AddressOrigin::Manual,
            preferred_until: None,
            valid_until: None,
            detection: if addr.is_ipv6() { Detection::Probe } else { Detection::Announce },
            prefix_route: true,
        }
    }
}

/// Why an address was not added, changed or removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The interface does not exist.
    #[error("there is no interface {0:?}")]
    NoInterface(IfIndex),
    /// The loopback's addresses are fixed.
    #[error("the loopback keeps its own addresses")]
    Loopback,
    /// Not a unicast host address.
    #[error("{addr}/{prefix_len} cannot be an interface's address: use a unicast address")]
    Invalid {
        /// The address.
        addr: IpAddr,
        /// The prefix length as given.
        prefix_len: u8,
    },
    /// The address is already assigned to an interface.
    #[error("{addr} is already assigned to interface {iface:?}")]
    Exists {
        /// The address.
        addr: IpAddr,
        /// The interface that has it.
        iface: IfIndex,
    },
    /// The interface does not have the address.
    #[error("{0} is not assigned to the interface")]
    Unknown(IpAddr),
    /// The interface is at its limit of addresses of this family.
    #[error("the interface has {max} addresses of this family already",
        max = floodwall_base::limits::ADDRESSES_MAX)]
    Full,
    /// The interface's MTU is below the IPv6 minimum.
    #[error("an MTU of {0} is below 1280 bytes, which IPv6 needs")]
    Mtu(u32),
    /// The preferred lifetime exceeds the valid one, or the valid one is over already.
    #[error("an address cannot be preferred longer than it is valid, nor end in the past")]
    Lifetimes,
    /// The routing table is full.
    #[error("the prefix cannot be reached: {0}")]
    Route(RouteError),
}

impl Stack {
    /// Adds an address to an interface. It is used and announced once duplicate address detection
    /// has passed (immediately where none is required). While the interface is down, detection is
    /// deferred.
    ///
    /// # Errors
    /// See [`AddressError`]; nothing has changed then.
    pub fn add_address(
        &mut self,
        iface: IfIndex,
        new: AddAddress,
        now: Instant,
        random: &mut Randomness,
    ) -> Result<(), AddressError> {
        let cidr = self.validate_address(iface, &new, now)?;
        let interface = self.interfaces.get_mut(usize::from(iface.0));
        let interface = interface.ok_or(AddressError::NoInterface(iface))?;
        let address = InterfaceAddress {
            origin: new.origin,
            preferred_until: new.preferred_until,
            valid_until: new.valid_until,
            prefix_route: new.prefix_route,
            ..InterfaceAddress::manual(cidr, AddressState::Tentative)
        };
        interface.insert_address(&address).map_err(|error| refused(error, &new, iface))?;
        if let Err(error) = self.connect(iface, cidr, new.prefix_route, now) {
            self.disown(iface, new.addr);
            return Err(error);
        }
        self.watch_end(new.preferred_until);
        self.watch_end(new.valid_until);
        self.verify(iface, new.addr, new.detection, now, random);
        self.address_changed(iface, new.addr, now, random);
        Ok(())
    }

    /// Sets an address's preferred and valid lifetimes; `None` for no end. A deprecated address
    /// that becomes preferred again serves new flows again. An end in the past takes effect with
    /// the next timed work.
    ///
    /// # Errors
    /// The interface does not have the address, or the preferred lifetime exceeds the valid one.
    pub fn refresh_address(
        &mut self,
        iface: IfIndex,
        addr: IpAddr,
        preferred_until: Option<Instant>,
        valid_until: Option<Instant>,
        now: Instant,
    ) -> Result<(), AddressError> {
        if ends_before(valid_until, preferred_until) {
            return Err(AddressError::Lifetimes);
        }
        let interface = self.interfaces.get_mut(usize::from(iface.0));
        let interface = interface.ok_or(AddressError::NoInterface(iface))?;
        let unknown = AddressError::Unknown(addr);
        interface.set_lifetimes(addr, preferred_until, valid_until).map_err(|_| unknown)?;
        let address = interface.address(addr).ok_or(unknown)?;
        if address.state.is_assigned() && address.state != address.state_at(now) {
            self.set_state(iface, addr, address.state_at(now));
        }
        self.watch_end(preferred_until);
        self.watch_end(valid_until);
        Ok(())
    }

    /// Removes an address from an interface, with the connected route that only it needed.
    ///
    /// # Errors
    /// The interface does not have the address.
    pub fn remove_address(
        &mut self,
        iface: IfIndex,
        addr: IpAddr,
        now: Instant,
        random: &mut Randomness,
    ) -> Result<(), AddressError> {
        if iface == IfIndex::LOOPBACK {
            return Err(AddressError::Loopback);
        }
        let interface = self.interfaces.get(usize::from(iface.0));
        let interface = interface.ok_or(AddressError::NoInterface(iface))?;
        let address = interface.address(addr).ok_or(AddressError::Unknown(addr))?;
        self.control.dad.stop(iface, addr);
        self.disown(iface, addr);
        if let Some(cidr) = address.cidr() {
            self.disconnect(iface, cidr, now);
        }
        self.address_changed(iface, addr, now, random);
        Ok(())
    }

    /// Handles a change of an address: added, removed, or its state changed. The one place that
    /// notifies dependent parts: path cache, DHCP client, group membership.
    fn address_changed(
        &mut self,
        iface: IfIndex,
        addr: IpAddr,
        now: Instant,
        random: &mut Randomness,
    ) {
        self.sockets.path_cache.forget();
        self.stats.counters.count(Counter::FloodwallChanges);
        self.dhcp_address(iface, addr, now, random);
        self.groups_changed(iface, now, random);
    }

    /// Validates an address to be added.
    fn validate_address(
        &self,
        iface: IfIndex,
        new: &AddAddress,
        now: Instant,
    ) -> Result<IpCidr, AddressError> {
        let (addr, prefix_len) = (new.addr, new.prefix_len);
        let interface = self.interfaces.get(usize::from(iface.0));
        let interface = interface.ok_or(AddressError::NoInterface(iface))?;
        if iface == IfIndex::LOOPBACK {
            return Err(AddressError::Loopback);
        }
        let cidr = IpCidr::new(addr, prefix_len).filter(|cidr| build::is_host(*cidr));
        let cidr = cidr.ok_or(AddressError::Invalid { addr, prefix_len })?;
        if addr.is_ipv6() && interface.link_mtu < build::MTU_MIN_V6 {
            return Err(AddressError::Mtu(interface.link_mtu));
        }
        let over = new.valid_until.is_some_and(|until| until <= now);
        if over || ends_before(new.valid_until, new.preferred_until) {
            return Err(AddressError::Lifetimes);
        }
        // A link-local address may be assigned once on each link.
        let of_one_link = matches!(addr, IpAddr::V6(a) if a.is_unicast_link_local());
        let has = |i: &&floodwall_ip::Interface| {
            i.owns(addr).is_some() && (i.index == iface || !of_one_link)
        };
        match self.interfaces.iter().find(has) {
            Some(other) => Err(AddressError::Exists { addr, iface: other.index }),
            None => Ok(cidr),
        }
    }

    /// Starts duplicate address detection for an address, or assigns it immediately.
    pub(crate) fn verify(
        &mut self,
        iface: IfIndex,
        addr: IpAddr,
        detection: Detection,
        now: Instant,
        random: &mut Randomness,
    ) {
        let Some(interface) = self.interfaces.get(usize::from(iface.0)) else { return };
        if !interface.up {
            return;
        }
        let stations = matches!(interface.medium, LinkMedium::Ethernet(_));
        let detection = if self.control.detects { detection } else { Detection::Announce };
        let probed = stations && detection == Detection::Probe;
        let state = match interface.address(addr) {
            _ if probed => AddressState::Tentative,
            Some(address) => address.state_at(now),
            None => return,
        };
        self.set_state(iface, addr, state);
        if stations {
            // The table has room for every address that an interface may have.
            let _ = self.control.dad.start(iface, addr, detection, now, random);
        }
    }

    /// Duplicate address detection passed: the address may be used from now on.
    pub(crate) fn address_is_ours(
        &mut self,
        cx: &mut RoundContext<'_>,
        iface: IfIndex,
        addr: IpAddr,
    ) {
        let interface = self.interfaces.get(usize::from(iface.0));
        let Some(address) = interface.and_then(|i| i.address(addr)) else { return };
        self.set_state(iface, addr, address.state_at(cx.now));
        self.address_changed(iface, addr, cx.now, cx.random);
    }

    /// Duplicate address detected: another station has the address, so it is not used.
    pub(crate) fn address_is_taken(
        &mut self,
        cx: &mut RoundContext<'_>,
        iface: IfIndex,
        addr: IpAddr,
    ) {
        self.set_state(iface, addr, AddressState::Duplicate);
        self.address_changed(iface, addr, cx.now, cx.random);
    }

    fn set_state(&mut self, iface: IfIndex, addr: IpAddr, state: AddressState) {
        if let Some(interface) = self.interfaces.get_mut(usize::from(iface.0)) {
            // It has the address, or the detection would have been cancelled.
            let _ = interface.set_address_state(addr, state);
        }
        self.sockets.path_cache.forget();
    }

    fn disown(&mut self, iface: IfIndex, addr: IpAddr) {
        if let Some(interface) = self.interfaces.get_mut(usize::from(iface.0)) {
            // The caller has found it there.
            let _ = interface.remove_address(addr);
        }
    }

    /// Adds the connected route of an address's prefix.
    fn connect(
        &mut self,
        iface: IfIndex,
        cidr: IpCidr,
        prefix_route: bool,
        now: Instant,
    ) -> Result<(), AddressError> {
        if !prefix_route {
            return Ok(());
        }
        let by = RouteProtocol::Kernel;
        let inserted = match cidr.addr() {
            IpAddr::V4(a) => build::insert(&mut self.v4.routes, a, cidr, (None, iface, by), now),
            IpAddr::V6(a) => build::insert(&mut self.v6.routes, a, cidr, (None, iface, by), now),
        };
        match inserted {
            // Two addresses of one prefix share one route.
            Ok(()) | Err(RouteError::Exists { .. }) => Ok(()),
            Err(error) => Err(AddressError::Route(error)),
        }
    }

    /// Removes the connected route of a prefix, unless another address of the interface needs it.
    fn disconnect(&mut self, iface: IfIndex, cidr: IpCidr, now: Instant) {
        let Some(interface) = self.interfaces.get(usize::from(iface.0)) else { return };
        let same = |a: &InterfaceAddress| {
            a.prefix_route && a.prefix_len == cidr.prefix_len() && cidr.contains(a.addr)
        };
        if interface.addresses().any(|a| same(&a)) {
            return;
        }
        fn drop_route<A: Routed>(
            fib: &mut Fib<A>,
            prefix: Option<Prefix<A>>,
            iface: IfIndex,
            now: Instant,
        ) {
            let Some(prefix) = prefix else { return };
            let ours = |r: &Route<A>| r.iface == iface && r.protocol == RouteProtocol::Kernel;
            fib.remove_to(TableId::MAIN, prefix, now, ours);
        }
        let len = cidr.prefix_len();
        match cidr.addr() {
            IpAddr::V4(a) => drop_route(&mut self.v4.routes, Prefix::new(a, len), iface, now),
            IpAddr::V6(a) => drop_route(&mut self.v6.routes, Prefix::new(a, len), iface, now),
        }
    }

    fn watch_end(&mut self, end: Option<Instant>) {
        self.control.address_deadline = self.control.address_deadline.into_iter().chain(end).min();
    }

    /// Expires addresses past their lifetime: one pass, and another where more are due.
    pub(crate) fn address_lifetimes(&mut self, cx: &mut RoundContext<'_>, budget: Units) -> Units {
        if budget.is_zero() || self.control.address_deadline.is_none_or(|at| at > cx.now) {
            return Units(0);
        }
        let (mut ended, mut count, mut next) = ([None; EXPIRIES_MAX], 0, None::<Instant>);
        for interface in &self.interfaces {
            for address in interface.addresses() {
                let Some(end) = next_end(&address) else { continue };
                match ended.get_mut(count) {
                    Some(slot) if end <= cx.now => {
                        *slot = Some((interface.index, address));
                        count += 1;
                    }
                    // Beyond this pass's limit: the next pass takes it.
                    _ => next = Some(next.map_or(end, |next| next.min(end))),
                }
            }
        }
        self.control.address_deadline = next;
        for (iface, address) in ended.into_iter().flatten() {
            if address.valid_until.is_some_and(|until| until <= cx.now) {
                // It was found there above.
                let _ = self.remove_address(iface, address.addr, cx.now, cx.random);
            } else {
                self.set_state(iface, address.addr, AddressState::Deprecated);
                self.watch_end(address.valid_until);
            }
        }
        Units(1 + count as u32)
    }
}

/// The next lifetime event of an address: deprecation or expiry.
fn next_end(address: &InterfaceAddress) -> Option<Instant> {
    let preferred = address.preferred_until.filter(|_| address.state == AddressState::Preferred);
    preferred.into_iter().chain(address.valid_until).min()
}

/// Whether one end comes before another; `None` means no end.
fn ends_before(valid: Option<Instant>, preferred: Option<Instant>) -> bool {
    valid.is_some_and(|valid| preferred.is_none_or(|preferred| valid < preferred))
}

fn refused(error: InterfaceError, new: &AddAddress, iface: IfIndex) -> AddressError {
    match error {
        InterfaceError::AddressExists(addr) => AddressError::Exists { addr, iface },
        InterfaceError::AddressesFull => AddressError::Full,
        _ => AddressError::Invalid { addr: new.addr, prefix_len: new.prefix_len },
    }
}
