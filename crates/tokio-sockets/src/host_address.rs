//! `HostAddress`: an address of a host, as programs see it.

use std::time::Duration;

use floodwall_base::{Instant, IpCidr};
use floodwall_stack::Stack;

/// One address of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct HostAddress {
    /// The address with its prefix length.
    pub address: IpCidr,
    /// The name of its interface.
    pub interface: String,
    /// Whether it may be used: duplicate address detection has passed.
    pub usable: bool,
    /// Whether it serves established flows only (RFC 4862).
    pub deprecated: bool,
    /// Whether it was learnt from the link, by DHCP or a router.
    pub learnt: bool,
    /// How much longer it is valid; `None` for ever.
    pub valid_for: Option<Duration>,
}

/// What the host's addresses are, at the control shard.
pub(crate) fn addresses_of(stack: &Stack, now: Instant) -> Vec<HostAddress> {
    let mut all = Vec::new();
    for interface in stack.interfaces() {
        for address in interface.addresses() {
            let Some(cidr) = IpCidr::new(address.addr, address.prefix_len) else { continue };
            let end = address.valid_until.filter(|until| *until != Instant::FAR);
            all.push(HostAddress {
                address: cidr,
                interface: interface.name.clone(),
                usable: address.state.is_assigned(),
                deprecated: address.state == floodwall_stack::AddressState::Deprecated,
                learnt: address.origin.is_of_the_link(),
                valid_for: end.map(|until| until.saturating_since(now)),
            });
        }
    }
    all
}
