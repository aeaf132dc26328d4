//! One core's host as an engine: burst in, burst out.
//!
//! A [`Stack`] owns the interfaces, routes, neighbours and sockets of one core and is the only
//! crate that depends on all protocols. A [`Host`] adds applications on the same core. Invariants:
//! no allocation, lock or system call between a packet's arrival and its departure; every packet
//! has exactly one outcome ([`Stats::conservation`]). Start reading at `shard.rs`, then follow a
//! packet: `rx.rs`, `deliver.rs`, `tx.rs`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

mod accounting;
mod addresses;
mod advertise;
mod build;
mod config;
mod cut;
mod deliver;
mod dhcp;
mod drain;
mod echo;
mod errors;
mod exceptions;
mod forward;
mod host;
mod http_request;
mod http_service;
mod inspect;
mod ip_family;
mod link;
mod memory;
mod multicast;
mod neighbors;
mod partial;
mod parts;
mod path_cache;
mod ping;
mod raw;
mod ready_queue;
mod reassemble;
mod recent_peers;
mod redirect;
pub mod remote;
mod round_context;
mod router;
mod routes;
mod rx;
mod rx_filter;
mod service_listener;
pub mod services;
mod shard;
pub mod shards;
mod sockets;
mod stats;
mod syn;
mod syn_offers;
mod tap;
mod tcp;
mod tcp_service;
mod triage;
mod tx;
mod work_units;

pub use addresses::{AddAddress, AddressError};
pub use build::check;
pub use config::{ConfigError, InterfaceConfig, StackConfig, StaticRoute};
pub use drain::{Drained, HeldConnections};
pub use floodwall_dhcp as dhcp_client;
pub use floodwall_ip::access_list::{AccessList, AccessRule, AccessRuleError, RuleCount};
pub use floodwall_ip::advertiser::{self, AdvertiserConfig, AdvertiserError};
pub use floodwall_ip::forward::{Martians, ReversePath};
pub use floodwall_ip::router_discovery;
pub use floodwall_ip::{
    AddressOrigin, Icmpv6Filter, LinkMedium, PingId, PingOpenError, PingRecvError, PingReply,
    PingSettings, RawId, RawOpenError, RawReceived, RawRecvError, RawSettings,
};
pub use floodwall_tcp as tcp_set;
pub use floodwall_wire::IcmpReport;
pub use host::{Application, ApplicationChange, Host, HostError};
pub use http_service::{StreamKind, StreamService};
pub use inspect::{ConnectionReport, UdpSocketReport};
pub use multicast::GroupInterface;
pub use ping::PingSendError;
pub use raw::RawSendError;
pub use router::Dns;
pub use shard::{Stack, accounts_needed};
pub use shards::{NoSeat, Seat, Seats, seats};
pub use sockets::{SendError, Sockets, StartError};
pub use stats::{Conservation, Fates, Stats};
pub use syn::ListenerReport;
pub use tap::{
    PacketTap, TapConfig, TapEvent, TapFilter, TapProtocol, TapReader, TapRecord, TapSide,
};
pub use tcp::TcpError;
pub use tcp_service::TcpService;
