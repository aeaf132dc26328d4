//! `Dhcpv6Lease`: a server's Advertise or Reply, validated before use.
//!
//! Called by `client.rs` for each message that answers our request. Invariants: the address is one
//! that a host may have, and none of ours elsewhere; it is never preferred longer than valid; the
//! times of renewal are in order. Read first: RFC 8415 sections 18.2.9, 18.2.10, 21.4, 21.6; RFC
//! 3646.

use core::net::Ipv6Addr;
use core::time::Duration;

use floodwall_base::Instant;
use floodwall_base::limits::DHCP_DNS_MAX;
use floodwall_wire::dhcpv6::{IaAddr, IaNa, option};
use floodwall_wire::{Dhcpv6Message, Dhcpv6Status};
use thiserror::Error;

use super::Duid;
use crate::array_vec::ArrayVec;
use crate::lease::LEASE_MIN;
use crate::names::Names;

/// Time without end (RFC 8415 section 7.7).
const FOR_EVER: u32 = u32::MAX;
/// The earliest renewal: a server that asks for more would have us send without pause.
const RENEW_MIN: Duration = Duration::from_secs(5);

/// What a server says besides the address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dhcpv6Settings {
    /// Domain name servers, best first.
    pub dns: ArrayVec<Ipv6Addr, DHCP_DNS_MAX>,
    /// Domains to search, best first.
    pub search: Names,
    /// Servers and domains that were left out: impossible, or too many.
    pub left_out: u32,
}

/// A validated lease: address, times and settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dhcpv6Lease {
    /// Our address.
    pub addr: Ipv6Addr,
    /// The server that granted it.
    pub server: Duid,
    /// When to ask its server to extend it (T1); `None` for never.
    pub renew_at: Option<Instant>,
    /// When to ask any server (T2); `None` for never.
    pub rebind_at: Option<Instant>,
    /// Until when new flows may use it; `None` for ever.
    pub preferred_until: Option<Instant>,
    /// When it ends; `None` for ever.
    pub valid_until: Option<Instant>,
    /// What came with it.
    pub settings: Dhcpv6Settings,
}

/// Why a message was rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum Dhcpv6Refused {
    /// No request is pending.
    #[error("no request is pending")]
    Unasked,
    /// Another transaction, or another client.
    #[error("it answers no request of ours")]
    NotOurs,
    /// It is longer than any valid one.
    #[error("it is too long")]
    TooLong,
    /// It is no DHCPv6 message.
    #[error(transparent)]
    Malformed(#[from] floodwall_wire::Dhcpv6Error),
    /// Not a message type that is valid in this state.
    #[error("it is of a type that has no place here")]
    Kind,
    /// It names no server, or another one than the one requested.
    #[error("it is not from the requested server")]
    Server,
    /// The server refuses with this status code.
    #[error("the server refuses with status code {0}")]
    Status(u16),
    /// It holds no address for our identity association.
    #[error("it brings no address")]
    NoAddress,
    /// No host can have the address.
    #[error("no host can have the address {0}")]
    Address(Ipv6Addr),
    /// One of our other interfaces has the address.
    #[error("the address {0} is ours already")]
    AddressOurs(Ipv6Addr),
    /// The times are not in order, or too short.
    #[error("its times are too short or not in order")]
    Times,
}

impl Dhcpv6Settings {
    /// Reads the settings of a message.
    pub(crate) fn read(message: &Dhcpv6Message<'_>) -> Self {
        let mut settings = Self::default();
        for server in message.options().find(option::DNS).unwrap_or_default().as_chunks::<16>().0 {
            let server = Ipv6Addr::from(*server);
            let usable = is_host(server) || server.is_unicast_link_local();
            settings.left_out += u32::from(!(usable && settings.dns.push(server)));
        }
        let search = message.options().find(option::SEARCH).unwrap_or_default();
        settings.left_out += settings.search.push_list(search);
        settings
    }
}

impl Dhcpv6Lease {
    /// Validates what a message says of our identity association: its address `wanted`, or the
    /// first that can be used where that one is not there. `is_ours` reports which addresses other
    /// local interfaces use.
    pub(crate) fn judge(
        message: &Dhcpv6Message<'_>,
        (server, iaid): (Duid, u32),
        wanted: Option<Ipv6Addr>,
        now: Instant,
        is_ours: impl Fn(Ipv6Addr) -> bool,
    ) -> Result<Self, Dhcpv6Refused> {
        success(message.options().status())?;
        let ia = association(message, iaid).ok_or(Dhcpv6Refused::NoAddress)?;
        success(ia.options.status())?;
        if ia.t1 > ia.t2 && ia.t2 > 0 {
            return Err(Dhcpv6Refused::Times);
        }
        let mut why = Dhcpv6Refused::NoAddress;
        let mut chosen = None;
        for given in ia.addresses() {
            match usable(&given, &is_ours) {
                Ok(()) if chosen.is_none() || wanted == Some(given.addr) => chosen = Some(given),
                Ok(()) => {}
                Err(refused) => why = refused,
            }
        }
        let given = chosen.ok_or(why)?;
        let (renew, rebind) = times(&ia, &given);
        Ok(Self {
            addr: given.addr,
            server,
            renew_at: renew.map(|after| now + after),
            rebind_at: rebind.map(|after| now + after),
            preferred_until: seconds(given.preferred).map(|after| now + after),
            valid_until: seconds(given.valid).map(|after| now + after),
            settings: Dhcpv6Settings::read(message),
        })
    }

    /// Whether its time is over.
    #[must_use]
    pub fn is_over(&self, now: Instant) -> bool {
        self.valid_until.is_some_and(|end| end <= now)
    }
}

/// The identity association of this identifier.
fn association<'a>(message: &Dhcpv6Message<'a>, iaid: u32) -> Option<IaNa<'a>> {
    message.options().associations().find(|ia| ia.iaid == iaid)
}

/// Whether the server takes the address back: its valid lifetime is zero.
pub(crate) fn takes_back(message: &Dhcpv6Message<'_>, iaid: u32, addr: Ipv6Addr) -> bool {
    association(message, iaid)
        .is_some_and(|ia| ia.addresses().any(|given| given.addr == addr && given.valid == 0))
}

/// The outcome for our identity association, or that of the whole message.
pub(crate) fn outcome(message: &Dhcpv6Message<'_>, iaid: u32) -> Dhcpv6Status {
    match message.options().status() {
        Dhcpv6Status::SUCCESS => association(message, iaid)
            .map_or(Dhcpv6Status::SUCCESS, |association| association.options.status()),
        refused => refused,
    }
}

const fn success(status: Dhcpv6Status) -> Result<(), Dhcpv6Refused> {
    match status {
        Dhcpv6Status::SUCCESS => Ok(()),
        Dhcpv6Status(code) => Err(Dhcpv6Refused::Status(code)),
    }
}

fn usable(given: &IaAddr, is_ours: impl Fn(Ipv6Addr) -> bool) -> Result<(), Dhcpv6Refused> {
    success(given.status)?;
    if !is_host(given.addr) {
        return Err(Dhcpv6Refused::Address(given.addr));
    }
    if is_ours(given.addr) {
        return Err(Dhcpv6Refused::AddressOurs(given.addr));
    }
    let long = seconds(given.valid).is_none_or(|valid| valid >= LEASE_MIN);
    match long && given.preferred <= given.valid {
        true => Ok(()),
        false => Err(Dhcpv6Refused::Times),
    }
}

/// Whether a host beyond the link can have the address.
fn is_host(addr: Ipv6Addr) -> bool {
    !(addr.is_unspecified()
        || addr.is_loopback()
        || addr.is_multicast()
        || addr.is_unicast_link_local()
        || addr.to_ipv4_mapped().is_some())
}

fn seconds(count: u32) -> Option<Duration> {
    (count != FOR_EVER).then(|| Duration::from_secs(u64::from(count)))
}

/// When to renew and to rebind: the server's times, or where it leaves them to us half and four
/// fifths of the preferred lifetime (RFC 8415 section 21.4), within the valid one.
fn times(ia: &IaNa<'_>, given: &IaAddr) -> (Option<Duration>, Option<Duration>) {
    let preferred = seconds(given.preferred);
    let own = |server: u32, of_preferred: fn(Duration) -> Duration| match server {
        0 => preferred.map(of_preferred),
        server => seconds(server),
    };
    let within = |after: Option<Duration>, most: Option<Duration>| match (after, most) {
        (Some(after), Some(most)) => Some(after.max(RENEW_MIN).min(most)),
        (after, most) => after.map(|after| after.max(RENEW_MIN)).or(most),
    };
    let valid = seconds(given.valid);
    let rebind = within(own(ia.t2, |preferred| preferred * 4 / 5), valid);
    (within(own(ia.t1, |preferred| preferred / 2), rebind), rebind)
}
