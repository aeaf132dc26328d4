//! `InterfaceRouters`: the state of router discovery of each interface; `Dns`: what was learned
//! about name servers.
//!
//! Made once with the stack (`build.rs`); used by `router.rs`.

use core::net::IpAddr;

use floodwall_base::{HashKey, IfIndex, Instant, Randomness};
use floodwall_ip::router_discovery::DomainName;
use floodwall_ip::{LinkMedium, RouterActions, RouterDiscovery, RouterDiscoveryConfig};

use crate::config::StackConfig;

/// The least MTU that IPv6 may have (RFC 8200 section 5).
const MTU_MIN: u32 = 1280;

/// What router discovery has learnt, for each interface that accepts router advertisements.
pub(crate) struct InterfaceRouters {
    pub(super) engines: Box<[(IfIndex, RouterDiscovery)]>,
    pub(super) actions: RouterActions,
    pub(super) dns_changes: u64,
}

/// The DNS servers and the search list of all links, for the embedding program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Dns {
    /// Each server with the interface that leads to it, which a link-local address needs.
    pub servers: Vec<(IpAddr, IfIndex)>,
    /// The domains in which short names are looked for, without a dot at the end.
    pub search: Vec<DomainName>,
    /// How often they have changed since the start.
    pub changes: u64,
}

impl InterfaceRouters {
    pub(crate) fn new(config: &StackConfig, random: &mut Randomness, now: Instant) -> Self {
        let secret = config.stable_secret.map(u128::from_be_bytes);
        let key = match secret {
            Some(secret) => HashKey::new((secret >> 64) as u64, secret as u64),
            None => random.secret.hash_key(),
        };
        let believing = config.interfaces.iter().enumerate().filter(|(_, c)| {
            c.accept_ra && matches!(c.medium, LinkMedium::Ethernet(_)) && c.mtu >= MTU_MIN
        });
        let engines = believing.map(|(at, interface)| {
            let config = RouterDiscoveryConfig {
                key,
                iface_name: &interface.name,
                autoconf: interface.autoconf,
                hop_limit_floor: config.hop_limit_floor,
                link_mtu: interface.mtu,
            };
            let engine = RouterDiscovery::new(&config, now, &mut random.public);
            (IfIndex(at as u16 + 1), engine)
        });
        Self { engines: engines.collect(), actions: RouterActions::new(), dns_changes: 0 }
    }

    pub(super) fn of(
        &mut self,
        iface: IfIndex,
    ) -> Option<(&mut RouterDiscovery, &mut RouterActions)> {
        let engine = self.engines.iter_mut().find(|(index, _)| *index == iface)?;
        Some((&mut engine.1, &mut self.actions))
    }

    /// The DNS servers or the search list have changed, here or by a DHCPv6 server.
    pub(crate) const fn count_dns_change(&mut self) {
        self.dns_changes = self.dns_changes.wrapping_add(1);
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.engines.iter().filter_map(|(_, engine)| engine.deadline()).min()
    }
}
