//! `Route`: where packets for a prefix go, as it is given and as it is shown.
//!
//! Made by `stack`, by the operator's commands and by tests; taken by [`crate::Fib`]. A plain value
//! without a link to any table. Words are iproute2's. Reading: RFC 1812 section 5.3.3 and RFC 4191
//! section 2.1 (preference).

use core::fmt;

use floodwall_base::{Address, IfIndex, Instant, Prefix};

use crate::next_hop::NextHopId;

/// What a route does with a packet, in iproute2's words.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum RouteKind {
    /// Sends it on.
    #[default]
    Unicast,
    /// Takes it as its own.
    Local,
    /// Drops it silently.
    Blackhole,
    /// Drops it and reports it as unreachable.
    Unreachable,
    /// Drops it and reports it as prohibited.
    Prohibit,
}

impl RouteKind {
    /// Whether its packets leave through an interface, so that it needs one.
    #[must_use]
    pub const fn is_unicast(self) -> bool {
        matches!(self, Self::Unicast)
    }

    /// iproute2's word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unicast => "unicast",
            Self::Local => "local",
            Self::Blackhole => "blackhole",
            Self::Unreachable => "unreachable",
            Self::Prohibit => "prohibit",
        }
    }
}

/// The protocol (origin) of a route, in iproute2's words.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum RouteProtocol {
    /// The stack, for a prefix of an interface's own address.
    Kernel,
    /// Set up at boot: `ip route add` without the word `proto`.
    Boot,
    /// A router advertisement.
    RouterAdvertisement,
    /// A DHCP server.
    Dhcp,
    /// The operator.
    #[default]
    Static,
    /// Another program: its number in `/etc/iproute2/rt_protos`.
    Other(u8),
}

impl RouteProtocol {
    /// Whether it was learnt from the link, without a request of the operator: such routes have
    /// caps of their own.
    #[must_use]
    pub const fn is_learnt(self) -> bool {
        matches!(self, Self::RouterAdvertisement)
    }

    /// The number that the kernel's interface uses.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Kernel => 2,
            Self::Boot => 3,
            Self::Static => 4,
            Self::RouterAdvertisement => 9,
            Self::Dhcp => 16,
            Self::Other(n) => n,
        }
    }

    /// The one of a number.
    #[must_use]
    pub const fn of_number(number: u8) -> Self {
        match number {
            2 => Self::Kernel,
            3 => Self::Boot,
            4 => Self::Static,
            9 => Self::RouterAdvertisement,
            16 => Self::Dhcp,
            n => Self::Other(n),
        }
    }
}

/// The preference of an advertised route among those of one metric (RFC 4191 section 2.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum RoutePreference {
    /// Before all others.
    High,
    /// The default.
    #[default]
    Medium,
    /// Behind all others.
    Low,
}

/// The number of a table, as in `ip route … table N`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TableId(pub u32);

impl TableId {
    /// The table that is looked up last.
    pub const DEFAULT: Self = Self(253);
    /// The table of routes and rules that name none.
    pub const MAIN: Self = Self(254);
    /// The table that is looked up first.
    pub const LOCAL: Self = Self(255);
}

impl Default for TableId {
    fn default() -> Self {
        Self::MAIN
    }
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::DEFAULT => f.write_str("default"),
            Self::MAIN => f.write_str("main"),
            Self::LOCAL => f.write_str("local"),
            Self(n) => write!(f, "{n}"),
        }
    }
}

/// One route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route<A: Address> {
    /// What it is for.
    pub prefix: Prefix<A>,
    /// The table that has it.
    pub table: TableId,
    /// The interface that leads there; of no meaning where the kind leads nowhere.
    pub iface: IfIndex,
    /// The router to hand packets to; `None` where the destination is on the link itself.
    pub gateway: Option<A>,
    /// The next-hop object that it goes through instead of its own interface and gateway. In what
    /// a table shows it is set where the object has a name or is a group.
    pub next_hop: Option<NextHopId>,
    /// The lower, the better.
    pub metric: u32,
    /// Which of those of one metric is better.
    pub preference: RoutePreference,
    /// What it does.
    pub kind: RouteKind,
    /// Its protocol (origin).
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
            table: TableId::MAIN,
            iface,
            gateway: None,
            next_hop: None,
            metric: 0,
            preference: RoutePreference::Medium,
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

    /// A route that leads nowhere: blackhole, unreachable, prohibit, local.
    #[must_use]
    pub fn nowhere(prefix: Prefix<A>, kind: RouteKind) -> Self {
        Self { kind, ..Self::on_link(prefix, IfIndex::LOOPBACK) }
    }

    /// A route through a next-hop object.
    #[must_use]
    pub fn through(prefix: Prefix<A>, next_hop: NextHopId) -> Self {
        Self { next_hop: Some(next_hop), ..Self::on_link(prefix, IfIndex::LOOPBACK) }
    }
}

impl<A: Address> fmt::Display for Route<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.kind.is_unicast() {
            write!(f, "{} ", self.kind.name())?;
        }
        if self.prefix.len() == 0 {
            f.write_str("default")?;
        } else {
            write!(f, "{}", self.prefix)?;
        }
        if let Some(gateway) = self.gateway {
            write!(f, " via {gateway}")?;
        }
        write!(f, " dev {:?}", self.iface)?;
        if self.table != TableId::MAIN {
            write!(f, " table {}", self.table)?;
        }
        if self.metric != 0 { write!(f, " metric {}", self.metric) } else { Ok(()) }
    }
}
