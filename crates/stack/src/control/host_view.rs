//! What a host knows of itself, as plain values, and routes that a program adds.
//!
//! Called at the control shard's desk, between two bursts. Bounded: a call returns at most as many
//! entries as it is asked for.

use core::net::{IpAddr, SocketAddr};

use floodwall_base::{Address, IfIndex, Instant, IpCidr, MacAddr, Prefix};
use floodwall_fib::lpm::LpmFamily;
use floodwall_fib::{Fib, Put, Route, RouteError, RouteProtocol, TableId};
use floodwall_tcp::Info;
use thiserror::Error;

use crate::stack::Stack;

/// Places of connections that a look visits at once.
const LOOK_PLACES: usize = 4096;

/// One route of the main table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouteReport {
    /// What it is for.
    pub prefix: IpCidr,
    /// The router; `None` where the destination is on the link itself.
    pub gateway: Option<IpAddr>,
    /// The interface that leads there.
    pub iface: IfIndex,
    /// The lower, the better.
    pub metric: u32,
    /// Where it comes from.
    pub protocol: RouteProtocol,
    /// When it ceases to exist.
    pub expires: Option<Instant>,
}

/// One neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeighborReport {
    /// Its address.
    pub addr: IpAddr,
    /// Its interface.
    pub iface: IfIndex,
    /// Its link address, where it is known.
    pub link_addr: Option<MacAddr>,
    /// Its state, in the words of `ip neigh`.
    pub state: &'static str,
    /// Whether it is a router.
    pub is_router: bool,
}

/// Why a program's route was refused.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum HostRouteError {
    /// Prefix and gateway are of different families.
    #[error("the prefix and the gateway {0} are of different families")]
    Families(IpAddr),
    /// No interface leads to the gateway, and none was named.
    #[error("no interface has a prefix that covers {0}: name the interface")]
    OffLink(IpAddr),
    /// Neither a gateway nor an interface was named.
    #[error("a route needs a gateway or an interface")]
    NoWay,
    /// The table refused it.
    #[error(transparent)]
    Table(#[from] RouteError),
}

fn reports<A: Address + LpmFamily>(
    fib: &Fib<A>,
    most: usize,
    now: Instant,
) -> impl Iterator<Item = RouteReport> + '_ {
    let main = fib.dump_at(now).filter(|r| r.table == TableId::MAIN && r.kind.is_unicast());
    let one = |route: Route<A>| {
        let prefix = IpCidr::new(route.prefix.addr().to_ip(), route.prefix.len())?;
        Some(RouteReport {
            prefix,
            gateway: route.gateway.map(Address::to_ip),
            iface: route.iface,
            metric: route.metric,
            protocol: route.protocol,
            expires: route.expires,
        })
    };
    main.filter_map(one).take(most)
}

fn add<A: Address + LpmFamily>(
    fib: &mut Fib<A>,
    (prefix, gateway): (IpCidr, Option<IpAddr>),
    iface: IfIndex,
    now: Instant,
) -> Result<(), HostRouteError> {
    let Some(prefix) = prefix_of::<A>(prefix) else { return Err(HostRouteError::NoWay) };
    let route = match gateway {
        Some(addr) => {
            let gateway = A::from_ip(addr).ok_or(HostRouteError::Families(addr))?;
            Route::via(prefix, iface, gateway)
        }
        None => Route::on_link(prefix, iface),
    };
    Ok(fib.put(route, Put::Add, now)?)
}

fn prefix_of<A: Address>(cidr: IpCidr) -> Option<Prefix<A>> {
    Prefix::new(A::from_ip(cidr.addr())?, cidr.prefix_len())
}

fn remove<A: Address + LpmFamily>(
    fib: &mut Fib<A>,
    (prefix, gateway): (IpCidr, Option<IpAddr>),
    now: Instant,
) -> bool {
    let Some(prefix) = prefix_of::<A>(prefix) else { return false };
    let is = |route: &Route<A>| {
        route.protocol == RouteProtocol::Static
            && gateway.is_none_or(|gateway| route.gateway.map(Address::to_ip) == Some(gateway))
    };
    fib.remove_to(TableId::MAIN, prefix, now, is) > 0
}

impl Stack {
    /// The unicast routes of the main table, IPv4 first, `most` of each family. Walks the tables.
    #[must_use]
    pub fn main_routes(&self, most: usize, now: Instant) -> Vec<RouteReport> {
        let v4 = reports(&self.v4.routes, most, now);
        v4.chain(reports(&self.v6.routes, most, now)).collect()
    }

    /// Adds a static route. Without an interface the one with a prefix that covers the gateway is
    /// taken. For the control shard.
    ///
    /// # Errors
    /// See [`HostRouteError`]; nothing has changed then.
    pub fn add_main_route(
        &mut self,
        prefix: IpCidr,
        gateway: Option<IpAddr>,
        iface: Option<IfIndex>,
        now: Instant,
    ) -> Result<(), HostRouteError> {
        let found = |gateway: IpAddr| {
            let covers = self.interfaces.iter().find(|i| i.is_on_link(gateway));
            covers.map(|i| i.index).ok_or(HostRouteError::OffLink(gateway))
        };
        let iface = match (iface, gateway) {
            (Some(iface), _) => iface,
            (None, Some(gateway)) => found(gateway)?,
            (None, None) => return Err(HostRouteError::NoWay),
        };
        match prefix.addr() {
            IpAddr::V4(_) => add(&mut self.v4.routes, (prefix, gateway), iface, now)?,
            IpAddr::V6(_) => add(&mut self.v6.routes, (prefix, gateway), iface, now)?,
        }
        self.routes_changed();
        Ok(())
    }

    /// Removes static routes to exactly this prefix, through this gateway where one is named. False
    /// where there is none.
    pub fn remove_main_route(
        &mut self,
        prefix: IpCidr,
        gateway: Option<IpAddr>,
        now: Instant,
    ) -> bool {
        let removed = match prefix.addr() {
            IpAddr::V4(_) => remove(&mut self.v4.routes, (prefix, gateway), now),
            IpAddr::V6(_) => remove(&mut self.v6.routes, (prefix, gateway), now),
        };
        self.routes_changed();
        removed
    }

    /// The neighbours, IPv4 first, `most` of each family.
    #[must_use]
    pub fn neighbor_reports(&self, most: usize) -> Vec<NeighborReport> {
        let v4 = self.v4.neighbors.iter().take(most).map(|n| NeighborReport {
            addr: n.addr.into(),
            iface: n.iface,
            link_addr: n.link_addr,
            state: n.state.name(),
            is_router: n.is_router,
        });
        let v6 = self.v6.neighbors.iter().take(most).map(|n| NeighborReport {
            addr: n.addr.into(),
            iface: n.iface,
            link_addr: n.link_addr,
            state: n.state.name(),
            is_router: n.is_router,
        });
        v4.chain(v6).collect()
    }

    /// The DNS servers: those of routers first, then those of leases, each once.
    #[must_use]
    pub fn dns_servers(&self, now: Instant) -> Vec<IpAddr> {
        let mut all: Vec<IpAddr> = Vec::new();
        let advertised = self.dns(now).servers.into_iter().map(|(addr, _)| addr);
        let clients = self.interfaces.iter().filter_map(|i| self.dhcp(i.index)?.lease());
        let leased = clients.flat_map(|lease| lease.dns.iter().map(IpAddr::V4).collect::<Vec<_>>());
        for addr in advertised.chain(leased) {
            if !all.contains(&addr) {
                all.push(addr);
            }
        }
        all
    }

    /// The details of one connection of this shard. Visits the places of connections.
    #[must_use]
    pub fn connection_info(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        now: Instant,
    ) -> Option<Info> {
        let tcp = self.tcp.as_ref()?;
        let mut from = Some(0);
        while let Some(at) = from {
            let (ids, next) = tcp.set.connections_from(at, LOOK_PLACES);
            let found = ids.into_iter().find(|id| tcp.set.ends(*id) == Ok((local, remote)));
            if let Some(id) = found {
                return tcp.set.info(id, now).ok();
            }
            from = next;
        }
        None
    }
}
