//! One core's host as an engine: burst in, burst out.
//!
//! A [`Stack`] owns the interfaces, routes, neighbours and sockets of one core and is the only
//! crate that depends on all protocols. A [`Host`] adds applications on the same core. Invariants:
//! no allocation, lock or system call between a packet's arrival and its departure; every packet
//! has exactly one outcome ([`Stats::conservation`]). Start reading at `stack.rs`, then follow a
//! packet: `ip/rx.rs`, `ip/deliver.rs`, `ip/tx.rs`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

mod accounting;
mod build;
mod config;
mod control;
mod host;
mod ip;
mod link;
mod memory;
mod parts;
pub mod remote;
mod round_context;
pub mod shards;
mod sockets;
mod stack;
mod stats;
mod tap;
mod tcp;
mod triage;
mod watched;
mod work_snapshot;
mod work_units;

pub use build::check;
pub use config::{ConfigError, InterfaceConfig, StackConfig, StaticRoute};
pub use control::addresses::{AddAddress, AddressError};
pub use control::host_view::{HostRouteError, NeighborReport, RouteReport};
pub use control::router::state::Dns;
pub use floodwall_dhcp as dhcp_client;
pub use floodwall_ip::access_list::{AccessList, AccessRule, AccessRuleError, RuleCount};
pub use floodwall_ip::advertiser::{self, AdvertiserConfig, AdvertiserError};
pub use floodwall_ip::forward::{Martians, ReversePath};
pub use floodwall_ip::router_discovery;
pub use floodwall_ip::{
    AddressOrigin, AddressState, Icmpv6Filter, LinkMedium, PingId, PingOpenError, PingRecvError,
    PingReply, PingSettings, RawId, RawOpenError, RawReceived, RawRecvError, RawSettings,
};
pub use floodwall_tcp as tcp_set;
pub use floodwall_udp::GroupInterface;
pub use floodwall_wire::IcmpReport;
pub use host::{Application, ApplicationChange, Host, HostError};
pub use shards::{NoSeat, Seat, Seats, seats};
pub use sockets::Sockets;
pub use sockets::error::{SendError, StartError};
pub use sockets::inspect::{ConnectionReport, UdpSocketReport};
pub use sockets::ping::PingSendError;
pub use sockets::raw::RawSendError;
pub use stack::{Stack, accounts_needed};
pub use stats::{Conservation, Fates, Stats};
pub use tap::{
    PacketTap, TapConfig, TapEvent, TapFilter, TapProtocol, TapReader, TapRecord, TapSide,
    source_of,
};
pub use tcp::drain::progress::{Drained, HeldConnections};
pub use tcp::error::TcpError;
pub use tcp::syn::ListenerReport;
