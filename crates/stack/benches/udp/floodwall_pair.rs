//! Two stacks, a wire between them that moves handles, one socket used at each end.

use std::net::{IpAddr, SocketAddr};

use floodwall_base::{Family, IfIndex, Instant, MacAddr, Randomness, Units};
use floodwall_packet::{Burst, Engine, PacketList, Pool, PoolConfig, Round};
use floodwall_stack::{InterfaceConfig, LinkMedium, Stack, StackConfig, accounts_needed};
use floodwall_udp::{SocketId, SocketSettings};

use crate::{BURST, Pair};

struct End {
    stack: Stack,
    pool: Pool,
    random: Randomness,
    arrived: Burst,
    departing: PacketList,
}

pub(crate) struct FloodwallPair {
    sender: End,
    receiver: End,
    from: SocketId,
    at: SocketId,
    to: SocketAddr,
    payload: Vec<u8>,
    buffer: Vec<u8>,
    now: u64,
    singly: bool,
}

/// What is between the two, and how programs call.
#[derive(Clone, Copy, Default)]
pub(crate) struct Shape {
    pub(crate) v6: bool,
    /// Bare IP in place of Ethernet.
    pub(crate) bare: bool,
    /// A call for each datagram in place of one for a burst.
    pub(crate) singly: bool,
}

impl End {
    fn new(host: u8, sockets: usize, bare: bool) -> Self {
        let mac = MacAddr([2, 0, 0, 0, 0, host]);
        let config = StackConfig {
            interfaces: vec![InterfaceConfig {
                name: format!("eth{host}"),
                medium: if bare { LinkMedium::Ip } else { LinkMedium::Ethernet(mac) },
                mtu: 1500,
                addresses: vec![
                    format!("10.0.0.{host}/24").parse().unwrap(),
                    format!("fd00::{host}/64").parse().unwrap(),
                ],
                gateways: Vec::new(),
                ..InterfaceConfig::default()
            }],
            udp_sockets_max: sockets + 1,
            duplicate_address_detection: false,
            ..StackConfig::default()
        };
        let accounts = accounts_needed(&config);
        let pool = Pool::new(&PoolConfig { accounts, ..PoolConfig::default() }).unwrap();
        let mut random = Randomness::from_number(u64::from(host));
        let mut stack = Stack::new(&config, &mut random, Instant::ORIGIN).unwrap();
        let other = 3 - host;
        let mac = MacAddr([2, 0, 0, 0, 0, other]);
        let neighbors = [format!("10.0.0.{other}"), format!("fd00::{other}")];
        for addr in neighbors.into_iter().filter(|_| !bare) {
            let addr: IpAddr = addr.parse().unwrap();
            stack.add_neighbor(IfIndex(1), addr, mac, Instant::ORIGIN).unwrap();
        }
        Self { stack, pool, random, arrived: Burst::new(), departing: PacketList::new() }
    }

    fn with<R>(&mut self, now: u64, act: impl FnOnce(&mut Stack, &mut Round<'_>) -> R) -> R {
        let mut round = Round {
            now: Instant::from_nanos(now),
            pool: &self.pool,
            random: &mut self.random,
            arrived: &mut self.arrived,
            departing: &mut self.departing,
            budget: Units(256),
            peers: None,
        };
        act(&mut self.stack, &mut round)
    }

    fn bind(&mut self, port: u16) -> SocketId {
        self.with(0, |stack, round| {
            let any = SocketAddr::new("::".parse().unwrap(), port);
            stack.sockets(round).udp_bind(any, SocketSettings::new(Family::V6)).unwrap()
        })
    }
}

impl FloodwallPair {
    pub(crate) fn new(len: usize, shape: Shape, sockets: u16) -> Self {
        let Shape { v6, bare, singly } = shape;
        let (mut sender, mut receiver) =
            (End::new(1, 1, bare), End::new(2, usize::from(sockets), bare));
        let from = sender.bind(4000);
        let bound: Vec<_> = (0..sockets).map(|i| receiver.bind(7000 + i)).collect();
        let used = bound.len() / 2;
        let host = if v6 { "fd00::2" } else { "10.0.0.2" };
        let to = SocketAddr::new(host.parse().unwrap(), 7000 + used as u16);
        let payload = (0..len).map(|i| i as u8).collect();
        let buffer = vec![0; len];
        Self { sender, receiver, from, at: bound[used], to, payload, buffer, now: 1, singly }
    }
}

impl Pair for FloodwallPair {
    fn exchange(&mut self) -> usize {
        self.now += 10_000;
        let Self { sender, receiver, from, at, to, payload, buffer, now, singly } = self;
        let share = if *singly { 1 } else { BURST };
        for first in (0..BURST).step_by(share) {
            sender.with(*now, |stack, round| {
                let mut sockets = stack.sockets(round);
                for i in first..first + share {
                    payload[0] = i as u8;
                    sockets.udp_send(*from, Some(*to), payload).unwrap();
                }
            });
        }
        while let Some(packet) = sender.departing.pop_front() {
            receiver.arrived.push(packet).unwrap();
        }
        receiver.with(*now, |stack, round| stack.round(round));
        let mut good = 0;
        for _ in (0..BURST).step_by(share) {
            receiver.with(*now, |stack, round| {
                let mut sockets = stack.sockets(round);
                for _ in 0..share {
                    let Ok(received) = sockets.udp_recv(*at, buffer) else { break };
                    payload[0] = good as u8;
                    good += usize::from(buffer[..received.len] == payload[..]);
                }
            });
        }
        good
    }
}
