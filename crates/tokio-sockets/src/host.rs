//! What a program's host knows of itself: addresses, routes, neighbours, name servers; and changes
//! to them.
//!
//! Methods of [`Network`], answered by the control shard between two bursts. Lists are bounded:
//! [`ROUTES_MAX`] and [`NEIGHBORS_MAX`] of each family.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use floodwall_base::{Family, IpCidr, Randomness};
use floodwall_dispatch::{ControlQueue, Shown};
use floodwall_stack::{
    AddAddress, AddressError, HostRouteError, NeighborReport, RouteReport, Stack,
};
use floodwall_tcp::Info;
use thiserror::Error;

use crate::error::NetworkError;
use crate::host_address::{HostAddress, addresses_of};
use crate::network::Network;

/// Routes of each family that [`Network::routes`] returns.
pub const ROUTES_MAX: usize = 65_536;
/// Neighbours of each family that [`Network::neighbours`] returns.
pub const NEIGHBORS_MAX: usize = 4096;
/// How often [`Network::online`] looks.
const ONLINE_LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Why a change of the host was refused.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HostChangeError {
    /// The text makes no sense.
    #[error("{0:?} is no address or prefix: write one as in 192.0.2.1/24")]
    Text(String),
    /// The host has no such interface.
    #[error("the host has no interface {0:?}")]
    Interface(String),
    /// The address was refused.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The route was refused.
    #[error(transparent)]
    Route(#[from] HostRouteError),
    /// The network has ended.
    #[error(transparent)]
    Network(#[from] NetworkError),
}

fn is_global(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(addr) => !addr.is_loopback() && !addr.is_link_local(),
        IpAddr::V6(addr) => !addr.is_loopback() && !addr.is_unicast_link_local(),
    }
}

impl Network {
    /// The host's addresses, those of the loopback included.
    ///
    /// # Errors
    /// `Ended`.
    pub async fn addresses(&self) -> Result<Vec<HostAddress>, NetworkError> {
        self.ask_control(|desk| addresses_of(&desk.engine.engine, desk.now)).await
    }

    /// Waits until the host has a usable address of this family that is valid beyond its link; with
    /// one configured that is at once. Give it a time limit where the link may have no router.
    ///
    /// # Errors
    /// `Ended`.
    pub async fn online(&self, family: Family) -> Result<IpAddr, NetworkError> {
        loop {
            let all = self.addresses().await?;
            let found = all.into_iter().find(|address| {
                let addr = address.address.addr();
                address.usable && is_global(addr) && Family::of(addr) == family
            });
            if let Some(address) = found {
                return Ok(address.address.addr());
            }
            tokio::time::sleep(ONLINE_LOOK_INTERVAL).await;
        }
    }

    /// The DNS servers that routers and DHCP servers have named, best first.
    ///
    /// # Errors
    /// `Ended`.
    pub async fn dns_servers(&self) -> Result<Vec<IpAddr>, NetworkError> {
        self.ask_control(|desk| desk.engine.engine.dns_servers(desk.now)).await
    }

    /// Adds an address, as in `192.0.2.9/24`, to an interface; without a name to the first. It is
    /// used once duplicate address detection has passed: [`Network::addresses`] shows when.
    ///
    /// # Errors
    /// See [`HostChangeError`]; nothing has changed then.
    pub async fn add_address(
        &self,
        address: &str,
        interface: Option<&str>,
    ) -> Result<(), HostChangeError> {
        let cidr: IpCidr =
            address.parse().map_err(|_| HostChangeError::Text(address.to_owned()))?;
        let name = interface.map(str::to_owned);
        self.ask_control(move |desk| {
            let (now, stack) = (desk.now, &mut desk.engine.engine);
            let iface = interface_of(stack, name.as_deref())?;
            // For delays, which need not be unpredictable.
            let mut random = Randomness::from_number(now.as_nanos());
            Ok(stack.add_address(iface, AddAddress::manual(cidr), now, &mut random)?)
        })
        .await?
    }

    /// Removes an address from the interface that has it.
    ///
    /// # Errors
    /// See [`HostChangeError`].
    pub async fn remove_address(&self, address: IpAddr) -> Result<(), HostChangeError> {
        self.ask_control(move |desk| {
            let (now, stack) = (desk.now, &mut desk.engine.engine);
            let owner = stack.interfaces().iter().find(|i| i.address(address).is_some());
            let iface = owner.map(|i| i.index).ok_or(AddressError::Unknown(address))?;
            let mut random = Randomness::from_number(now.as_nanos());
            Ok(stack.remove_address(iface, address, now, &mut random)?)
        })
        .await?
    }

    /// Adds a static route to a prefix, as in `203.0.113.0/24`, through a gateway or, where there
    /// is none, directly on an interface.
    ///
    /// # Errors
    /// See [`HostChangeError`]; nothing has changed then.
    pub async fn add_route(
        &self,
        prefix: &str,
        gateway: Option<IpAddr>,
        interface: Option<&str>,
    ) -> Result<(), HostChangeError> {
        let cidr: IpCidr = prefix.parse().map_err(|_| HostChangeError::Text(prefix.to_owned()))?;
        let name = interface.map(str::to_owned);
        self.ask_control(move |desk| {
            let (now, stack) = (desk.now, &mut desk.engine.engine);
            let iface = match name.as_deref() {
                Some(name) => Some(interface_of(stack, Some(name))?),
                None => None,
            };
            Ok(stack.add_main_route(cidr, gateway, iface, now)?)
        })
        .await?
    }

    /// Removes the static routes to a prefix, through this gateway where one is named. False where
    /// there is none.
    ///
    /// # Errors
    /// See [`HostChangeError`].
    pub async fn remove_route(
        &self,
        prefix: &str,
        gateway: Option<IpAddr>,
    ) -> Result<bool, HostChangeError> {
        let cidr: IpCidr = prefix.parse().map_err(|_| HostChangeError::Text(prefix.to_owned()))?;
        let removed = self
            .ask_control(move |desk| desk.engine.engine.remove_main_route(cidr, gateway, desk.now));
        Ok(removed.await?)
    }

    /// The unicast routes of the main table, [`ROUTES_MAX`] of each family at most.
    ///
    /// # Errors
    /// `Ended`.
    pub async fn routes(&self) -> Result<Vec<RouteReport>, NetworkError> {
        self.ask_control(|desk| desk.engine.engine.main_routes(ROUTES_MAX, desk.now)).await
    }

    /// The neighbours, [`NEIGHBORS_MAX`] of each family at most.
    ///
    /// # Errors
    /// `Ended`.
    pub async fn neighbours(&self) -> Result<Vec<NeighborReport>, NetworkError> {
        self.ask_control(|desk| desk.engine.engine.neighbor_reports(NEIGHBORS_MAX)).await
    }

    /// The details of a connection, at whichever worker has it; `None` where it is gone.
    pub(crate) async fn connection_info(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<Option<Info>, NetworkError> {
        let of = move |desk: &mut ControlQueue<'_, Shown<Stack>>| {
            desk.engine.engine.connection_info(local, remote, desk.now)
        };
        Ok(self.ask(of).await?.into_iter().flatten().next())
    }
}

/// The interface of this name; without one the first that is not the loopback.
pub(crate) fn interface_of(
    stack: &Stack,
    name: Option<&str>,
) -> Result<floodwall_base::IfIndex, HostChangeError> {
    let unknown = || HostChangeError::Interface(name.unwrap_or_default().to_owned());
    match name {
        Some(name) => stack.interface_named(name).ok_or_else(unknown),
        None => stack.interfaces().get(1).map(|i| i.index).ok_or_else(unknown),
    }
}
