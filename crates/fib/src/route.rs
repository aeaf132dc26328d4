//! A route: where packets for a prefix go.

use core::fmt;

use floodwall_base::{Address, IfIndex, Instant, Prefix};

/// What a route does with a packet, in iproute2's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RouteKind {
    /// Sends it on.
    #[default]
    Unicast,
    /// Drops it silently.
    Blackhole,
    /// Drops it and says so.
    Unreachable,
    /// Drops it and says that it is forbidden.
    Prohibit,
}

/// Who made a route, in iproute2's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RouteProtocol {
    /// The stack, for a prefix of an interface's own address.
    Kernel,
    /// A router advertisement.
    RouterAdvertisement,
    /// A DHCP server.
    Dhcp,
    /// The operator.
    #[default]
    Static,
}

/// One route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route<A: Address> {
    /// What it is for.
    pub prefix: Prefix<A>,
    /// The interface that leads there.
    pub iface: IfIndex,
    /// The router to hand packets to; `None` where the destination is on the link itself.
    pub gateway: Option<A>,
    /// The lower, the better.
    pub metric: u32,
    /// What it does.
    pub kind: RouteKind,
    /// Who made it.
    pub protocol: RouteProtocol,
    /// The source address that it prefers.
    pub src_addr: Option<A>,
    /// When it ceases to exist.
    pub expires: Option<Instant>,
}

impl<A: Address> Route<A> {
    /// An on-link route.
    #[must_use]
    pub fn on_link(prefix: Prefix<A>, iface: IfIndex) -> Self {
        Self {
            prefix,
            iface,
            gateway: None,
            metric: 0,
            kind: RouteKind::Unicast,
            protocol: RouteProtocol::Static,
            src_addr: None,
            expires: None,
        }
    }

    /// A route through a router.
    #[must_use]
    pub fn via(prefix: Prefix<A>, iface: IfIndex, gateway: A) -> Self {
        Self { gateway: Some(gateway), ..Self::on_link(prefix, iface) }
    }
}

impl<A: Address> fmt::Display for Route<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            RouteKind::Unicast => {}
            RouteKind::Blackhole => f.write_str("blackhole ")?,
            RouteKind::Unreachable => f.write_str("unreachable ")?,
            RouteKind::Prohibit => f.write_str("prohibit ")?,
        }
        if self.prefix.len() == 0 {
            f.write_str("default")?
        } else {
            write!(f, "{}", self.prefix)?
        }
        if let Some(gateway) = self.gateway {
            write!(f, " via {gateway}")?;
        }
        write!(f, " dev {:?}", self.iface)?;
        if self.metric != 0 { write!(f, " metric {}", self.metric) } else { Ok(()) }
    }
}
