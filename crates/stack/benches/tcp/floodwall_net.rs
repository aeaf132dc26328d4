//! Two stacks, and a wire between them that moves handles.

use std::net::SocketAddr;
use std::time::Duration;

use floodwall_base::limits::BURST_MAX;
use floodwall_base::{Instant, Randomness, Units};
use floodwall_packet::{Burst, ChecksumState, Engine, PacketList, Pool, PoolConfig, Round};
use floodwall_stack::{InterfaceConfig, LinkMedium, Sockets, Stack, StackConfig, accounts_needed};
use floodwall_tcp::{ConnectionId, ListenerId, RecvError, SendError, TcpSettings};

use crate::TURN;
use crate::net::{IDLE_PORTS, Net, PORT, Shape, Side};

struct End {
    stack: Stack,
    random: Randomness,
    arrived: Burst,
    departing: PacketList,
    /// What the wire has for it.
    inbox: PacketList,
}

pub(crate) struct FloodwallNet {
    ends: [End; 2],
    pool: Pool,
    listener: ListenerId,
    idle: Vec<ListenerId>,
    /// Connections to the other listeners were opened.
    opens_idle: bool,
    /// The server's address.
    server: SocketAddr,
    settings: TcpSettings,
    sums: bool,
    nanos: u64,
}

fn address(v6: bool, host: u8) -> String {
    if v6 { format!("fd00::{host}") } else { format!("10.0.0.{host}") }
}

fn config(shape: Shape, host: u8) -> StackConfig {
    let prefix = if shape.v6 { 64 } else { 24 };
    StackConfig {
        interfaces: vec![InterfaceConfig {
            name: format!("wire{host}"),
            medium: LinkMedium::Ip,
            mtu: shape.mtu as u32,
            checksum_offload: !shape.sums,
            addresses: vec![format!("{}/{prefix}", address(shape.v6, host)).parse().unwrap()],
            ..InterfaceConfig::default()
        }],
        udp_sockets_max: 1,
        // A sixteenth of the places is kept free.
        tcp_connections_max: shape.connections + shape.connections / 8 + 64,
        duplicate_address_detection: false,
        ..StackConfig::default()
    }
}

impl End {
    fn new(config: &StackConfig, host: u8) -> Self {
        let mut random = Randomness::from_number(u64::from(host));
        let stack = Stack::new(config, &mut random, Instant::ORIGIN).unwrap();
        let (departing, inbox) = (PacketList::new(), PacketList::new());
        Self { stack, random, arrived: Burst::new(), departing, inbox }
    }

    fn with<R>(
        &mut self,
        pool: &Pool,
        nanos: u64,
        act: impl FnOnce(&mut Stack, &mut Round<'_>) -> R,
    ) -> R {
        let mut round = Round {
            now: Instant::from_nanos(nanos),
            pool,
            random: &mut self.random,
            arrived: &mut self.arrived,
            departing: &mut self.departing,
            budget: Units(256),
            peers: None,
        };
        act(&mut self.stack, &mut round)
    }

    /// Rounds as a worker makes them, until nothing waits on the wire.
    fn run(&mut self, pool: &Pool, nanos: u64, sums: bool) {
        while !self.inbox.is_empty() {
            while self.arrived.len() < BURST_MAX {
                let Some(mut packet) = self.inbox.pop_front() else { break };
                if !sums {
                    packet.set_checksum_state(ChecksumState::Verified);
                }
                self.arrived.push(packet).unwrap();
            }
            self.with(pool, nanos, |stack, round| stack.round(round));
        }
        if self.stack.deadline().is_some_and(|at| at <= Instant::from_nanos(nanos)) {
            self.with(pool, nanos, |stack, round| stack.work(round));
        }
    }
}

impl FloodwallNet {
    fn at<R>(&mut self, side: Side, act: impl FnOnce(&mut Sockets<'_>) -> R) -> R {
        let Self { ends, pool, nanos, .. } = self;
        ends[side as usize].with(pool, *nanos, |stack, round| act(&mut stack.sockets(round)))
    }
}

impl Net for FloodwallNet {
    type Conn = ConnectionId;

    fn new(shape: Shape) -> Self {
        let configs = [config(shape, 1), config(shape, 2)];
        let memory = PoolConfig {
            accounts: 2 * accounts_needed(&configs[0]),
            small: 16_384,
            frames: 16_384,
            references: 32_768,
            supers: 64,
            ..PoolConfig::default()
        };
        let pool = Pool::new(&memory).unwrap();
        let mut ends = [End::new(&configs[0], 1), End::new(&configs[1], 2)];
        let settings = TcpSettings {
            receive_bytes: shape.buffer as u32,
            receive_tuned: false,
            send_bytes: shape.buffer as u32,
            send_tuned: false,
            nodelay: true,
            ..TcpSettings::default()
        };
        let mut listen = |port| {
            let any = SocketAddr::new("::".parse().unwrap(), port);
            ends[1].with(&pool, 1, |stack, round| {
                stack.sockets(round).tcp_listen(any, &settings, 256, 0).unwrap()
            })
        };
        let listener = listen(PORT);
        let idle = (1..=IDLE_PORTS).map(|n| listen(PORT + n)).collect();
        let server = SocketAddr::new(address(shape.v6, 2).parse().unwrap(), PORT);
        let sums = shape.sums;
        Self { ends, pool, listener, idle, opens_idle: false, server, settings, sums, nanos: 1 }
    }

    fn connect(&mut self, port: u16) -> ConnectionId {
        self.opens_idle |= port != PORT;
        let Self { ends: [client, _], pool, nanos, settings, server, .. } = self;
        let to = SocketAddr::new(server.ip(), port);
        client.with(pool, *nanos, |stack, round| {
            stack.sockets(round).tcp_connect(to, settings, 0).unwrap()
        })
    }

    fn accept(&mut self) -> Option<ConnectionId> {
        let first = self.listener;
        let found = self.at(Side::Server, |sockets| sockets.tcp_accept(first).unwrap());
        if found.is_some() || !self.opens_idle {
            return found;
        }
        let idle = self.idle.clone();
        self.at(Side::Server, |sockets| {
            idle.into_iter().find_map(|one| sockets.tcp_accept(one).unwrap())
        })
    }

    fn send(&mut self, side: Side, conn: ConnectionId, bytes: &[u8]) -> usize {
        match self.at(side, |sockets| sockets.tcp_send(conn, bytes)) {
            Ok(n) => n,
            Err(SendError::WouldBlock) => 0,
            Err(error) => panic!("{side:?}: {error}"),
        }
    }

    fn recv(&mut self, side: Side, conn: ConnectionId, out: &mut [u8]) -> Option<usize> {
        match self.at(side, |sockets| sockets.tcp_recv(conn, out)) {
            Ok(n) => Some(n),
            Err(RecvError::WouldBlock) => None,
            Err(error) => panic!("{side:?}: {error}"),
        }
    }

    fn close(&mut self, side: Side, conn: ConnectionId) {
        self.at(side, |sockets| sockets.tcp_close(conn).unwrap());
    }

    fn turn(&mut self) {
        for at in [0, 1, 0] {
            self.nanos += TURN;
            let Self { ends: [client, server], pool, sums, nanos, .. } = self;
            let (from, to) = if at == 0 { (client, server) } else { (server, client) };
            from.run(pool, *nanos, *sums);
            to.inbox.append(&mut from.departing);
        }
    }

    fn wait(&mut self, time: Duration) {
        self.nanos += time.as_nanos() as u64;
    }
}

/// Bytes of a connection, buffers apart.
pub(crate) const fn connection_bytes() -> usize {
    <floodwall_tcp::ConnectionTable>::connection_bytes()
}
