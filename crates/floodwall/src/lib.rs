//! An IPv4/IPv6 network stack in user space with guaranteed service under packet floods.
//!
//! This crate is the facade: it re-exports what a program needs, under one name. The workspace has
//! small crates, each with one subject; rarely needed items are in the modules named after them.
//!
//! # First example
//!
//! A UDP echo service on tokio, on a TAP (`examples/udp_echo_tokio.rs`; it takes root):
//!
//! ```no_run
//! use floodwall::net::{Network, UdpSocket};
//!
//! #[tokio::main]
//! async fn main() -> std::io::Result<()> {
//!     let network = Network::builder().device("tap:fw0").address("192.0.2.1/24").start().await?;
//!     let socket = UdpSocket::bind(&network, "[::]:7001").await?;
//!     let mut buffer = [0; 65_535];
//!     loop {
//!         let (len, from) = socket.recv_from(&mut buffer).await?;
//!         socket.send_to(&buffer[..len], from).await?;
//!     }
//! }
//! ```
//!
//! [`net::UdpSocket`] is tokio's, name for name; the difference is the network that it is bound on.
//! It needs feature `tokio`, which is on by default.
//!
//! # The pieces
//!
//! | piece | what it is |
//! |---|---|
//! | [`net::Network`], [`net::UdpSocket`] | a host on workers of its own, and sockets for tokio |
//! | [`StackConfig`] | interfaces, addresses, routes, bounds; checked by [`check`] |
//! | [`Stack`] | one core's host: a burst of packets in, a burst out; no system call, no clock |
//! | [`Sockets`] | what applications work with, for the length of one slice |
//! | [`Host`] | a stack and its [`Application`]s on one core; [`services`] has three |
//! | [`Device`] | where packets come from: [`device::MemoryWire`], `Tun`, `AfPacket`, captures |
//! | [`dispatch::Worker`] | the loop that runs an engine on devices, in real time |
//! | [`World`] | the same engines in virtual time, from one seed: for tests of your own |
//!
//! A [`Stack`] does no I/O and reads no clock (sans-I/O). Time and randomness are arguments, memory
//! is a [`packet::Pool`] taken at the start, and every packet is accounted for exactly once, which
//! [`Stats::conservation`] adds up. So the same code runs on a device, in a test, and in a
//! simulated flood.
//!
//! # A UDP echo in a simulated world
//!
//! An application opens its sockets once and then runs in slices between bursts. Here one sends a
//! query, and the echo service of [`services`] answers, over a link of five milliseconds each way.
//! It needs no root and no device, and takes no real time:
//!
//! ```
//! use std::time::Duration;
//! use floodwall::packet::{Pool, PoolConfig};
//! use floodwall::services::{ServiceKind, UdpService};
//! use floodwall::world::{LaneConfig, LinkConfig};
//! use floodwall::*;
//!
//! fn config(host: u8) -> StackConfig {
//!     let interface = InterfaceConfig {
//!         name: "eth0".to_owned(),
//!         medium: LinkMedium::Ethernet(MacAddr([2, 0, 0, 0, 0, host])),
//!         mtu: 1500,
//!         addresses: vec![format!("2001:db8::{host}/64").parse().expect("an address")],
//!         gateways: Vec::new(),
//!         ..InterfaceConfig::default()
//!     };
//!     let interfaces = vec![interface];
//!     StackConfig { interfaces, duplicate_address_detection: false, ..StackConfig::default() }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut world = World::new(42);
//! let mut random = Randomness::from_number(42);
//!
//! // The server: a host with one application.
//! let pool = Pool::new(&PoolConfig::default())?;
//! let echo = Box::new(UdpService::new(ServiceKind::Echo, 7001));
//! let host = Host::new(&config(1), vec![echo], &pool, &mut random, world.now())?;
//! let server = world.add_node("server", host, pool);
//!
//! // The client: a stack that we use ourselves.
//! let stack = Stack::new(&config(2), &mut random, world.now())?;
//! let client = world.add_node("client", stack, Pool::new(&PoolConfig::default())?);
//! let way = LinkConfig::both(LaneConfig::with_delay(Duration::from_millis(5)));
//! world.connect((server, IfIndex(1)), (client, IfIndex(1)), way)?;
//!
//! // Send a query. Neighbour discovery happens by itself.
//! let asked = world.visit(client, |stack: &mut Stack, round| -> Result<_, StartError> {
//!     let mut sockets = stack.sockets(round);
//!     let any = "[::]:0".parse().expect("an address");
//!     let socket = sockets.udp_bind(any, SocketSettings::new(Family::V6))?;
//!     let to = "[2001:db8::1]:7001".parse().expect("an address");
//!     sockets.udp_send(socket, Some(to), b"hello").expect("room in the send buffer");
//!     Ok(socket)
//! });
//! let socket = asked.expect("the client is there")?;
//! world.run_for(Duration::from_millis(50));
//!
//! // Receive the reply.
//! let mut answer = [0; 100];
//! let heard = world.visit(client, |stack: &mut Stack, round| {
//!     stack.sockets(round).udp_recv(socket, &mut answer)
//! });
//! let received = heard.expect("the client is there")?;
//! assert_eq!(&answer[..received.len], b"hello");
//!
//! // Every packet of the client is accounted for exactly once.
//! let stack = world.node_ref::<Stack>(client).expect("the client is there");
//! assert!(stack.stats().conservation().holds());
//! # Ok(())
//! # }
//! ```
//!
//! The same over a wire in memory and in real time, with a worker on a thread of its own, is in
//! `examples/udp_echo.rs`. On a machine with root, `floodwall run --device tap:fw0` puts a host on
//! a TAP, and `floodwall drill` floods one and judges it.
//!
//! # What is not here yet
//!
//! TCP and forwarding.
#![forbid(unsafe_code)]

pub use floodwall_base::{
    Counter, Counters, DropCounts, DropReason, Family, HashKey, IfIndex, Instant, IpCidr, MacAddr,
    Randomness, Units, limits,
};
pub use floodwall_device::{Device, DeviceError};
pub use floodwall_stack::{
    Application, ConfigError, Conservation, Fates, Host, HostError, InterfaceConfig, LinkMedium,
    SendError, Sockets, Stack, StackConfig, StartError, StaticRoute, Stats, accounts_needed, check,
};
pub use floodwall_udp::{
    BindError, Challenge, ChallengeHook, Challenged, ConnectError, GroupError, Received,
    ReceivedPacket, RecvError, RefusedDatagram, SendError as UdpSendError, SocketId,
    SocketSettings, UnverifiedSource, challenges,
};
pub use floodwall_world::World;

/// Devices: memory wires, TUN and TAP, packet sockets, captures replayed and recorded.
pub use floodwall_device as device;
/// Sockets for programs on tokio: a host on workers of its own, and UDP sockets shaped like
/// tokio's.
#[cfg(feature = "tokio")]
pub use floodwall_tokio_sockets as net;

/// The loop that runs engines on devices, and what reaches it from other threads.
pub use floodwall_dispatch as dispatch;
/// Packets, their memory, and the engine trait that turns packets into packets.
pub use floodwall_packet as packet;
/// Services on a stack's own core: echo, discard, chargen, HTTP.
pub use floodwall_services as services;
/// Header views and builders.
pub use floodwall_wire as wire;
/// The simulated world: links, cost tables, traces.
pub use floodwall_world as world;
