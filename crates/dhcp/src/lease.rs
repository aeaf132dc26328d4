//! `Lease`: a server's offer or acknowledgement, validated before use.
//!
//! Called by `client.rs` for each offer and acknowledgement that answers our request. Invariants:
//! the address is one that a host may have in its prefix, and none of ours elsewhere; a route's
//! gateway is a neighbour of that prefix, or one that the lease itself puts on the link: by a
//! route, or because its prefix is a single address (/32), which leaves no neighbour else; the
//! three times are in order. What is wrong with the address, the mask, the server or the time
//! rejects the message; other invalid options are left out, with the reason (`left_out.rs`). Read
//! first: RFC 2131 sections 4.3 and 4.4.5, RFC 2132, RFC 3442.

use core::net::Ipv4Addr;
use core::time::Duration;

use floodwall_base::limits::{DHCP_DNS_MAX, DHCP_ROUTES_MAX};
use floodwall_base::{Instant, Prefix, ipv4_is_configurable};
use floodwall_wire::dhcpv4::option;
use floodwall_wire::{Dhcpv4Message, Dhcpv4Type};
use thiserror::Error;

use crate::array_vec::ArrayVec;
use crate::left_out::{LeftOut, LeftOutList, RouteFault};
use crate::names::Names;

/// The shortest lease that is accepted: a shorter one would cause constant renewals.
pub(crate) const LEASE_MIN: Duration = Duration::from_secs(10);
/// The widest prefix that is accepted as on-link.
const PREFIX_LEN_MIN: u8 = 8;
/// The least MTU that every IPv4 host takes (RFC 791).
const MTU_MIN: u16 = 576;
/// A lease for ever (RFC 2131 section 3.3).
const FOR_EVER: u32 = u32::MAX;
/// Bytes of an option in pieces that are joined.
const JOINED_MAX: usize = 512;

/// A route of a lease, best first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseRoute {
    /// What it is for.
    pub prefix: Prefix<Ipv4Addr>,
    /// The router; `None` where the prefix is on the link.
    pub gateway: Option<Ipv4Addr>,
}

/// A validated lease: address, prefix, routes, servers and times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    /// Our address.
    pub addr: Ipv4Addr,
    /// How many leading bits the link's other addresses share.
    pub prefix_len: u8,
    /// The server that granted it.
    pub server: Ipv4Addr,
    /// Where to send what is not for the link.
    pub routes: ArrayVec<LeaseRoute, DHCP_ROUTES_MAX>,
    /// Domain name servers, best first.
    pub dns: ArrayVec<Ipv4Addr, DHCP_DNS_MAX>,
    /// Domains to search, best first; the domain name where there is no list.
    pub search: Names,
    /// The MTU of the link, where the server sends one.
    pub mtu: Option<u16>,
    /// When we requested it: all times count from there.
    pub asked_at: Instant,
    /// When to ask its server to extend it (T1).
    pub renew_at: Instant,
    /// When to ask any server (T2).
    pub rebind_at: Instant,
    /// When it ends; `None` for ever.
    pub expires: Option<Instant>,
    /// Options of the server that were left out, and why.
    pub left_out: LeftOutList,
}

/// Why a message was rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum LeaseRefused {
    /// No request is pending.
    #[error("no request is pending")]
    Unasked,
    /// Another transaction, or another station.
    #[error("it answers no request of ours")]
    NotOurs,
    /// It is longer than any valid one.
    #[error("it is too long")]
    TooLong,
    /// It is no DHCP message.
    #[error(transparent)]
    Malformed(#[from] floodwall_wire::Dhcpv4Error),
    /// Not a message type that is valid in this state.
    #[error("it is of a kind that has no place here")]
    Kind,
    /// Another offer was taken.
    #[error("another offer was taken")]
    Late,
    /// It comes from another server than the one requested, or from none.
    #[error("it is not from the requested server")]
    Server,
    /// No host can have the address.
    #[error("no host can have the address {0}")]
    Address(Ipv4Addr),
    /// One of our other interfaces has the address.
    #[error("the address {0} is ours already")]
    AddressOurs(Ipv4Addr),
    /// Not the address that was requested.
    #[error("the address {0} is not the requested one")]
    AddressChanged(Ipv4Addr),
    /// The mask is none, or would put the world on the link.
    #[error("the mask {0} cannot be the link's")]
    Mask(Ipv4Addr),
    /// No time, or too little.
    #[error("a lease of {0} seconds is too short")]
    LeaseTime(u32),
}

impl Lease {
    /// Validates an offer or an acknowledgement, which came from the address `from`, of a request
    /// sent at `asked_at`. `is_ours` reports which addresses other local interfaces use.
    pub(crate) fn judge(
        message: &Dhcpv4Message<'_>,
        from: Ipv4Addr,
        asked_at: Instant,
        is_ours: impl Fn(Ipv4Addr) -> bool,
    ) -> Result<Self, LeaseRefused> {
        let addr = message.yiaddr();
        if !ipv4_is_configurable(addr) {
            return Err(LeaseRefused::Address(addr));
        }
        if is_ours(addr) {
            return Err(LeaseRefused::AddressOurs(addr));
        }
        let server = server(message, from).filter(|s| ipv4_is_configurable(*s));
        let server = server.filter(|server| *server != addr).ok_or(LeaseRefused::Server)?;
        let prefix_len = prefix_len(message, addr)?;
        // An offer may leave it to the acknowledgement, although RFC 2131 table 3 requires it.
        let is_later =
            message.kind() == Some(Dhcpv4Type::OFFER) && message.find(option::LEASE_TIME).is_none();
        let seconds = if is_later { Some(FOR_EVER) } else { message.number(option::LEASE_TIME) };
        let seconds = seconds.unwrap_or(0);
        let length = Duration::from_secs(u64::from(seconds));
        if length < LEASE_MIN {
            return Err(LeaseRefused::LeaseTime(seconds));
        }
        let (renew, rebind) = times(message, seconds);
        let mut lease = Self {
            addr,
            prefix_len,
            server,
            routes: ArrayVec::default(),
            dns: ArrayVec::default(),
            search: Names::default(),
            mtu: None,
            asked_at,
            renew_at: asked_at + renew,
            rebind_at: asked_at + rebind,
            expires: (seconds != FOR_EVER).then(|| asked_at + length),
            left_out: LeftOutList::default(),
        };
        lease.take_routes(message);
        lease.take_names(message);
        match message.array::<2>(option::MTU).map(u16::from_be_bytes) {
            Some(mtu) if mtu < MTU_MIN => lease.left_out.push(LeftOut::Mtu(mtu)),
            mtu => lease.mtu = mtu,
        }
        Ok(lease)
    }

    fn prefix(&self) -> Option<Prefix<Ipv4Addr>> {
        Prefix::new(self.addr, self.prefix_len)
    }

    /// Classless routes where there are any, else the routers (RFC 3442). An empty list is none.
    fn take_routes(&mut self, message: &Dhcpv4Message<'_>) {
        let mut room = [0; JOINED_MAX];
        for code in [option::ROUTES, option::ROUTES_MICROSOFT] {
            let list = message.join(code, &mut room).filter(|list| !list.is_empty());
            let Some(list) = list else { continue };
            if !ClasslessRoutes(list).all(|route| route.is_some()) {
                self.left_out.push(LeftOut::Routes(code));
                continue;
            }
            // What is on the link first: others may lead through it.
            for on_link in [true, false] {
                let of_kind = |r: &LeaseRoute| r.gateway.is_none() == on_link;
                for route in ClasslessRoutes(list).flatten().filter(of_kind) {
                    self.take_route(route);
                }
            }
            let is_default = |route: LeaseRoute| route.prefix.len() == 0;
            let leads_out = ClasslessRoutes(list).flatten().any(is_default);
            if !leads_out && message.find(option::ROUTERS).is_some() {
                self.left_out.push(LeftOut::Routers(code));
            }
            return;
        }
        let routers = message.join(option::ROUTERS, &mut room).unwrap_or_default();
        for router in routers.as_chunks::<4>().0 {
            let gateway = Some(Ipv4Addr::from(*router));
            self.take_route(LeaseRoute { prefix: Prefix::all(), gateway });
        }
    }

    fn take_route(&mut self, route: LeaseRoute) {
        let taken = self.may_route(&route).and_then(|by_itself| {
            let near = route.gateway.filter(|_| by_itself).and_then(|gateway| {
                Some(LeaseRoute { prefix: Prefix::new(gateway, 32)?, gateway: None })
            });
            let room = near.is_none_or(|near| self.routes.push(near)) && self.routes.push(route);
            room.then_some(()).ok_or(RouteFault::TooMany)
        });
        if let Err(fault) = taken {
            self.left_out.push(LeftOut::Route(route, fault));
        }
    }

    /// Whether a route can be used; true where its gateway is put on the link for it.
    fn may_route(&self, route: &LeaseRoute) -> Result<bool, RouteFault> {
        let (first, len) = (route.prefix.addr(), route.prefix.len());
        let target = len == 0 || (len >= PREFIX_LEN_MIN && ipv4_is_configurable(first));
        let Some(gateway) = route.gateway else {
            let near = target && len >= PREFIX_LEN_MIN;
            return near.then_some(false).ok_or(RouteFault::Destination);
        };
        if !target {
            return Err(RouteFault::Destination);
        }
        if !ipv4_is_configurable(gateway) || gateway == self.addr {
            return Err(RouteFault::Gateway);
        }
        let near = self.prefix().is_some_and(|prefix| prefix.contains(gateway))
            || self.routes.iter().any(|r| r.gateway.is_none() && r.prefix.contains(gateway));
        let alone = self.prefix_len == 32;
        (near || alone).then_some(!near).ok_or(RouteFault::OffLink)
    }

    fn take_names(&mut self, message: &Dhcpv4Message<'_>) {
        let mut room = [0; JOINED_MAX];
        for server in message.join(option::DNS, &mut room).unwrap_or_default().as_chunks::<4>().0 {
            let server = Ipv4Addr::from(*server);
            if !(ipv4_is_configurable(server) && self.dns.push(server)) {
                self.left_out.push(LeftOut::Dns(server));
            }
        }
        if let Some(list) = message.join(option::SEARCH, &mut room) {
            let domains = self.search.push_list(list);
            if domains > 0 {
                self.left_out.push_many(LeftOut::Domains(domains), domains);
            }
        }
        if let Some(domain) = message.find(option::DOMAIN).filter(|_| self.search.is_empty())
            && !self.search.push_text(domain)
        {
            self.left_out.push(LeftOut::Domains(1));
        }
    }
}

/// The server: the one that the message names, or where it names none, its sender (as servers of
/// some clouds leave it out, although RFC 2131 table 3 requires it).
pub(crate) fn server(message: &Dhcpv4Message<'_>, from: Ipv4Addr) -> Option<Ipv4Addr> {
    match message.find(option::SERVER_ID) {
        Some(_) => message.addr(option::SERVER_ID),
        None => Some(from),
    }
}

/// The length of the link's prefix: the mask's, or that of the address's class where there is none
/// (RFC 2131 section 4.4.1 leaves it to us).
fn prefix_len(message: &Dhcpv4Message<'_>, addr: Ipv4Addr) -> Result<u8, LeaseRefused> {
    let len = match message.addr(option::MASK) {
        Some(mask) => {
            let len = mask.to_bits().leading_ones() as u8;
            if mask.to_bits().count_ones() != u32::from(len) || len < PREFIX_LEN_MIN {
                return Err(LeaseRefused::Mask(mask));
            }
            len
        }
        None => match addr.octets()[0] {
            ..128 => 8,
            128..192 => 16,
            192.. => 24,
        },
    };
    let host = u32::MAX.checked_shr(u32::from(len)).unwrap_or(0);
    let edge = host > 1 && (addr.to_bits() & host == 0 || addr.to_bits() & host == host);
    if edge { Err(LeaseRefused::Address(addr)) } else { Ok(len) }
}

/// When to renew and to rebind: the server's times where they are in order, else the usual halves
/// and eighths (RFC 2131 section 4.4.5).
fn times(message: &Dhcpv4Message<'_>, seconds: u32) -> (Duration, Duration) {
    let usual = (seconds / 2, seconds - seconds / 8);
    let renew = message.number(option::RENEWAL_TIME).unwrap_or(usual.0);
    let rebind = message.number(option::REBINDING_TIME).unwrap_or(usual.1);
    let in_order = renew >= 5 && renew < rebind && rebind < seconds;
    let (renew, rebind) = if in_order { (renew, rebind) } else { usual };
    (Duration::from_secs(u64::from(renew)), Duration::from_secs(u64::from(rebind)))
}

/// A walk over option 121: `None` for what cannot be read, and then it ends.
struct ClasslessRoutes<'a>(&'a [u8]);

impl Iterator for ClasslessRoutes<'_> {
    type Item = Option<LeaseRoute>;

    fn next(&mut self) -> Option<Self::Item> {
        let (len, rest) = self.0.split_first()?;
        let route = Self::read(*len, rest);
        self.0 = route.map_or(&[], |(_, rest)| rest);
        Some(route.map(|(route, _)| route))
    }
}

impl ClasslessRoutes<'_> {
    fn read(len: u8, rest: &[u8]) -> Option<(LeaseRoute, &[u8])> {
        let (significant, rest) = rest.split_at_checked(usize::from(len.div_ceil(8)))?;
        let mut first = [0; 4];
        first.get_mut(..significant.len())?.copy_from_slice(significant);
        let (gateway, rest) = rest.split_first_chunk::<4>()?;
        let gateway = Ipv4Addr::from(*gateway);
        let prefix = Prefix::new(Ipv4Addr::from(first), len)?;
        let gateway = (!gateway.is_unspecified()).then_some(gateway);
        Some((LeaseRoute { prefix, gateway }, rest))
    }
}
