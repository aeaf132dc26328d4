//! In simulation: two hosts on one thread, a seed that decides who does what next, both families.
//! The same words as on real threads; nothing in them reads time or knows threads.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use floodwall_base::{Counter, Family, PublicRandom};
use floodwall_packet::Engine;
use floodwall_stack::remote::{Remote, RemoteConfig, UdpHandle};
use floodwall_tests::{Rig, bytes_of, craft, ethernet_config};
use floodwall_udp::SocketSettings;

/// Sockets of each host.
const SOCKETS: usize = 4;
const PORT: u16 = 7000;

struct Host {
    rig: Rig,
    remote: Remote,
    addr: IpAddr,
}

impl Host {
    fn new(host: u8, other: u8, family: Family) -> Self {
        let mut rig = Rig::with_neighbor(&ethernet_config(host), other);
        let config = RemoteConfig { sockets_max: SOCKETS, lanes: 1, ..RemoteConfig::default() };
        let (remote, mut shards) = Remote::new(&config).unwrap();
        rig.stack.serve(shards.remove(0));
        let addr = match family {
            Family::V4 => format!("10.0.0.{host}"),
            Family::V6 => format!("fd00::{host}"),
        };
        Self { rig, remote, addr: addr.parse().unwrap() }
    }

    /// Everything that is due now; what leaves.
    fn turn(&mut self) -> Vec<Vec<u8>> {
        let left = self.rig.run_for(Duration::ZERO);
        self.rig.stack.departed();
        left.iter().map(bytes_of).collect()
    }

    fn arrive(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        let left = self.rig.frame(frame);
        self.rig.stack.departed();
        left.iter().map(bytes_of).collect()
    }

    fn bind(&mut self, port: u16) -> UdpHandle {
        let local = SocketAddr::new(self.addr, port);
        let settings = SocketSettings::new(Family::of(self.addr));
        let asked = self.remote.bind_udp(local, settings);
        self.turn();
        asked.wait(Duration::ZERO).unwrap()
    }
}

/// One run: all reads in their order, and how many datagrams were sent.
fn run(seed: u64, family: Family, closes: bool) -> (Vec<(usize, usize, u32)>, usize) {
    let mut random = PublicRandom::new(seed);
    let mut below = |n: usize| (random.next_u64() % n as u64) as usize;
    let mut hosts = [Host::new(1, 2, family), Host::new(2, 1, family)];
    let free = hosts.each_ref().map(|host| host.rig.pool.available());
    let memory = hosts.each_ref().map(|host| host.remote.memory());
    let mut sockets: Vec<Vec<UdpHandle>> = hosts
        .iter_mut()
        .map(|host| (0..SOCKETS).map(|n| host.bind(PORT + n as u16)).collect())
        .collect();
    let mut wires: [Vec<Vec<u8>>; 2] = [Vec::new(), Vec::new()];
    let (mut sent, mut next, mut reads) = (0, [[0_u32; SOCKETS]; 2], Vec::new());
    let mut last = [[None; SOCKETS]; 2];
    for step in 0..3000 {
        let (side, socket) = (below(2), below(SOCKETS));
        // In the end all is carried over and read.
        let action = if step < 2000 { below(6) } else { 2 + below(4) };
        match action {
            0 | 1 => {
                // Each socket sends to the one of its own number.
                let to = SocketAddr::new(hosts[1 - side].addr, PORT + socket as u16);
                let number = next[side][socket];
                if sockets[side][socket].try_send_to(&number.to_be_bytes(), to).is_ok() {
                    next[side][socket] += 1;
                    sent += 1;
                }
            }
            2 => {
                let left = hosts[side].turn();
                wires[1 - side].extend(left);
            }
            3 => {
                let some = wires[side].len().min(if step < 2000 { 3 } else { 64 });
                for frame in wires[side].drain(..some).collect::<Vec<_>>() {
                    let left = hosts[side].arrive(&frame);
                    wires[1 - side].extend(left);
                }
            }
            4 if closes && below(40) == 0 => {
                let old = sockets[side].remove(socket);
                drop(old);
                let again = hosts[side].bind(PORT + socket as u16);
                sockets[side].insert(socket, again);
            }
            _ => {
                let mut bytes = [0; 4];
                while let Ok(received) = sockets[side][socket].try_recv_from(&mut bytes) {
                    assert_eq!(usize::from(received.from.port() - PORT), socket);
                    let number = u32::from_be_bytes(bytes);
                    let before = last[side][socket].replace(number);
                    assert!(before.is_none_or(|before| before < number), "out of order");
                    reads.push((side, socket, number));
                }
            }
        }
    }
    drop(sockets);
    for host in &mut hosts {
        host.turn();
        assert!(host.rig.stack.stats().conservation().holds());
    }
    assert_eq!(hosts.each_ref().map(|host| host.rig.pool.available()), free);
    assert_eq!(hosts.each_ref().map(|host| host.remote.memory()), memory);
    (reads, sent)
}

#[test]
fn every_datagram_is_read_in_order_whatever_the_schedule() {
    for family in [Family::V4, Family::V6] {
        for seed in 0..10 {
            let (reads, sent) = run(seed, family, false);
            assert!(sent > 300, "seed {seed}: {sent} sent");
            assert_eq!(reads.len(), sent, "seed {seed}: all that was sent was read");
        }
    }
}

#[test]
fn sockets_that_close_and_open_again_lose_only_their_own() {
    for family in [Family::V4, Family::V6] {
        for seed in 100..108 {
            let (reads, sent) = run(seed, family, true);
            assert!(reads.len() <= sent && reads.len() > sent / 3, "seed {seed}");
        }
    }
}

#[test]
fn the_same_seed_makes_the_same_run() {
    for family in [Family::V4, Family::V6] {
        assert_eq!(run(7, family, true), run(7, family, true));
        assert_ne!(run(7, family, true), run(8, family, true));
    }
}

/// A program that stops to read costs what its socket holds; what else came is refused, told by
/// reason, and with each datagram that is read later.
#[test]
fn a_program_that_does_not_read_is_told_what_was_refused() {
    for family in [Family::V4, Family::V6] {
        let mut host = Host::new(1, 2, family);
        let free = host.rig.pool.available();
        let handle = host.bind(PORT);
        let from = SocketAddr::new(craft::addr(family, 2), 9);
        let frame = craft::from_peer(&craft::udp(from, handle.local_addr(), &[7; 32]));
        for _ in 0..1000 {
            host.arrive(&frame);
        }
        let refused = handle.refused();
        assert!(refused.over_share > 0 && refused.challenged == 0, "{refused:?}");
        let mut read = 0;
        let mut buffer = [0; 64];
        while let Ok(received) = handle.try_recv_from(&mut buffer) {
            assert_eq!((received.len, received.dropped), (32, 0), "it did not ask");
            read += 1;
        }
        assert_eq!(read + refused.total(), 1000, "{refused:?}");
        assert_eq!(host.rig.pool.available(), free, "all charges and all memory return");
        let counters = host.rig.stats().counters;
        let rcvbuf = [Counter::UdpRcvbufErrors, Counter::Udp6RcvbufErrors];
        assert_eq!(rcvbuf.map(|c| counters.of(c)).iter().sum::<u64>(), refused.total());
        assert!(host.rig.conservation().holds());
    }
}
