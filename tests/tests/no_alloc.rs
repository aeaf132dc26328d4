//! Between a packet's arrival and its departure nothing is allocated, and a packet in one piece is
//! not copied.
//!
//! Everything that the stack does per packet is done once to warm up, then counted: sockets, echo,
//! errors, neighbours found and lost, drops of many kinds, timers; in both families.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use floodwall_base::{Counter, DropReason, Family, IfIndex, Units, solicited_node};
use floodwall_packet::{Burst, Engine, PacketBuf, PacketList, Round};
use floodwall_stack::{Host, PacketTap, StackConfig, TapConfig, TapEvent, TapFilter};
use floodwall_testkit::alloc::{CountingAllocator, counted};
use floodwall_tests::craft::{
    FAMILIES, HOST, PEER, addr, echo, fragments, frame, from_peer, icmp_of, ip, ipv6_chain, mac,
    options_header, udp_to_port, v4, v6,
};
use floodwall_tests::worst::floods;
use floodwall_tests::{Rig, ethernet_config};
use floodwall_udp::SocketSettings;
use floodwall_wire::ndp::NeighborSolicitationFields;
use floodwall_wire::{ArpOperation, ArpPacket, EtherType, IpProtocol, NdpOption, arp};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// A stack at rest, driven without the rig's vectors.
struct Bare {
    rig: Rig,
    burst: Burst,
    departing: PacketList,
}

impl Bare {
    fn new(config: &StackConfig) -> Self {
        let mut rig = Rig::with_neighbor(config, PEER);
        rig.run_for(Duration::from_secs(10));
        Self { rig, burst: Burst::new(), departing: PacketList::new() }
    }

    /// One round with this frame, or with none; what departs goes home. Returns how many departed.
    fn round(&mut self, frame: Option<&[u8]>) -> usize {
        let packet = frame.map(|bytes| self.rig.pool.packet_from(bytes).unwrap());
        self.run(packet, |stack, round| {
            stack.round(round);
            stack.work(round);
        })
    }

    fn run(
        &mut self,
        packet: Option<PacketBuf>,
        act: impl FnOnce(&mut floodwall_stack::Stack, &mut Round<'_>),
    ) -> usize {
        if let Some(mut packet) = packet {
            packet.set_iface(IfIndex(1));
            self.burst.push(packet).unwrap();
        }
        let mut round = Round {
            now: self.rig.now,
            pool: &self.rig.pool,
            random: &mut self.rig.random,
            arrived: &mut self.burst,
            departing: &mut self.departing,
            budget: Units(256),
            peers: None,
        };
        act(&mut self.rig.stack, &mut round);
        let departed = self.departing.len();
        drop(self.departing.take());
        departed
    }
}

/// Does `act` twice to warm up, then counts.
fn allocates_nothing(what: &str, mut act: impl FnMut()) {
    act();
    act();
    let (count, ()) = counted(&mut act);
    assert_eq!((count.allocations, count.frees), (0, 0), "{what}: {count:?}");
}

fn arp_request() -> Vec<u8> {
    let packet = ArpPacket {
        operation: ArpOperation::REQUEST,
        sender_link_addr: mac(7),
        sender_addr: v4(7),
        target_link_addr: mac(0),
        target_addr: v4(HOST),
    };
    let mut bytes = [0; arp::PACKET_LEN];
    packet.emit(&mut bytes);
    frame(mac(HOST), mac(7), EtherType::ARP, &bytes)
}

fn solicitation() -> Vec<u8> {
    let (mut bytes, group) = ([0; 64], solicited_node(v6(HOST)));
    let fields = NeighborSolicitationFields { target_addr: v6(HOST) };
    let options = [NdpOption::SourceLinkAddr(mac(7))];
    let len = fields.emit_into(&options, v6(7), group, &mut bytes).unwrap();
    from_peer(&ip(v6(7).into(), group.into(), IpProtocol::ICMPV6, &bytes[..len]))
}

#[test]
fn the_count_counts() {
    let (count, boxed) = counted(|| Box::new([0_u8; 64]));
    assert_eq!((count.allocations, count.bytes, boxed.len()), (1, 64, 64));
}

#[test]
fn packets_that_an_operator_captures_are_copied_without_an_allocation() {
    for family in FAMILIES {
        let mut bare = Bare::new(&ethernet_config(HOST));
        let closed = from_peer(&udp_to_port(family, 9, &[7; 700]));
        let echo = from_peer(&echo(addr(family, PEER), addr(family, HOST), &[7; 100]));
        for dropped_only in [false, true] {
            let config = TapConfig {
                filter: TapFilter::default(),
                dropped_only,
                is_sample: false,
                snap_len: 2048,
                records_max: usize::MAX,
            };
            let (tap, mut reader) = PacketTap::new(config);
            bare.rig.stack.set_tap(Some(Box::new(tap)));
            let mut events = Vec::with_capacity(10_000);
            allocates_nothing("captured", || {
                for _ in 0..100 {
                    bare.round(Some(&closed));
                    bare.round(Some(&echo));
                    while let Some(event) = reader.read(|record| (record.event, record.missed)) {
                        events.push(event);
                    }
                }
            });
            let count = |of: TapEvent| events.iter().filter(|event| event.0 == of).count();
            assert_eq!(count(TapEvent::DroppedIn(DropReason::UdpNoPort)), 300);
            let arrived = if dropped_only { 0 } else { 600 };
            assert_eq!(count(TapEvent::Arrived), arrived);
            assert!((count(TapEvent::Sent) >= 300) != dropped_only, "the answers");
            assert!(events.iter().all(|event| event.1 == 0));
        }
        assert!(bare.rig.stack.set_tap(None).is_some() && !bare.rig.stack.has_tap());
    }
}

#[test]
fn a_datagram_that_is_received_and_answered_allocates_nothing_and_is_not_copied() {
    for family in FAMILIES {
        let mut bare = Bare::new(&ethernet_config(HOST));
        let any = SocketAddr::new("::".parse().unwrap(), 7);
        let settings = SocketSettings::new(Family::V6);
        let id = bare.rig.sockets(|s| s.udp_bind(any, settings)).0.unwrap();
        let question = from_peer(&udp_to_port(family, 7, &[7; 700]));
        let mut buffer = [0; 1500];
        let before = bare.rig.stats().access;
        let mut answered = 0;
        allocates_nothing("received and answered", || {
            for _ in 0..100 {
                bare.round(Some(&question));
                answered += bare.run(None, |stack, round| {
                    let mut sockets = stack.sockets(round);
                    let received = sockets.udp_recv(id, &mut buffer).unwrap();
                    sockets.udp_reply(id, &received, &buffer[..received.len]).unwrap();
                });
            }
        });
        let after = bare.rig.stats().access;
        assert_eq!(answered, 300);
        assert_eq!((after.copied_bytes, after.pulldowns), (before.copied_bytes, 0));
        // The headers of link, network and transport, each looked at where it lay.
        let (checks, borrows) = (after.checks() - before.checks(), after.borrows - before.borrows);
        assert!(checks == borrows && checks <= 3 * 300, "{checks} checks, {borrows} borrows");
    }
}

#[test]
fn a_datagram_read_without_a_copy_allocates_nothing() {
    for family in FAMILIES {
        let mut bare = Bare::new(&ethernet_config(HOST));
        let any = SocketAddr::new("::".parse().unwrap(), 7);
        let settings = SocketSettings::new(Family::V6);
        let id = bare.rig.sockets(|s| s.udp_bind(any, settings)).0.unwrap();
        let question = from_peer(&udp_to_port(family, 7, &[7; 700]));
        allocates_nothing("received", || {
            bare.round(Some(&question));
            bare.run(None, |stack, round| {
                let received = stack.sockets(round).udp_recv_packet(id).unwrap();
                assert_eq!(received.packet.len(), question.len());
            });
        });
    }
}

#[test]
fn an_application_on_the_stacks_core_allocates_nothing() {
    use floodwall_services::{ServiceKind, UdpService};
    for family in FAMILIES {
        let mut rig = Rig::new(&ethernet_config(HOST));
        let services = vec![Box::new(UdpService::new(ServiceKind::Echo, 7000)) as _];
        let (config, now) = (ethernet_config(HOST), rig.now);
        let mut host = Host::new(&config, services, &rig.pool, &mut rig.random, now).unwrap();
        host.stack_mut().add_neighbor(IfIndex(1), addr(family, PEER), mac(PEER), now).unwrap();
        let question = from_peer(&udp_to_port(family, 7000, b"hello"));
        let (mut burst, mut departing) = (Burst::new(), PacketList::new());
        let mut answered = 0;
        allocates_nothing("served", || {
            let mut packet = rig.pool.packet_from(&question).unwrap();
            packet.set_iface(IfIndex(1));
            burst.push(packet).unwrap();
            let mut round = Round {
                now,
                pool: &rig.pool,
                random: &mut rig.random,
                arrived: &mut burst,
                departing: &mut departing,
                budget: Units(256),
                peers: None,
            };
            host.round(&mut round);
            answered += departing.len();
            drop(departing.take());
        });
        assert_eq!(answered, 3);
    }
}

#[test]
fn answers_of_the_stack_itself_allocate_nothing() {
    let config = StackConfig { echo_rate: 0, ..ethernet_config(HOST) };
    for family in FAMILIES {
        let (from, to) = (addr(family, PEER), addr(family, HOST));
        let questions = [
            ("an echo", from_peer(&echo(from, to, &[1; 999]))),
            ("a closed port", from_peer(&udp_to_port(family, 9, &[1; 999]))),
            ("an unknown protocol", from_peer(&ip(from, to, IpProtocol(200), &[1; 99]))),
            (
                "an ARP or neighbour question",
                match family {
                    Family::V4 => arp_request(),
                    Family::V6 => solicitation(),
                },
            ),
        ];
        for (what, question) in questions {
            let mut bare = Bare::new(&config);
            let mut answered = 0;
            let before = bare.rig.stats().access;
            allocates_nothing(what, || answered += bare.round(Some(&question)));
            let after = bare.rig.stats().access;
            assert_eq!(answered, 3, "{what}");
            // An echo is rewritten in place; nothing else is touched.
            assert_eq!(after.copied_bytes, before.copied_bytes, "{what}: {after:?}");
            assert_eq!(after.allocations, before.allocations, "{what}: {after:?}");
        }
    }
}

#[test]
fn a_neighbour_that_is_found_or_lost_allocates_nothing() {
    for family in FAMILIES {
        let mut bare = Bare::new(&ethernet_config(HOST));
        let any = SocketAddr::new("::".parse().unwrap(), 4000);
        let settings = SocketSettings::new(Family::V6);
        let id = bare.rig.sockets(|s| s.udp_bind(any, settings)).0.unwrap();
        let to = SocketAddr::new(addr(family, 9), 9);
        // Five sent, three wait, no answer arrives; then the failure is forgotten.
        allocates_nothing("lost", || {
            bare.run(None, |stack, round| {
                let mut sockets = stack.sockets(round);
                (0..5).for_each(|_| sockets.udp_send(id, Some(to), b"?").unwrap());
            });
            for _ in 0..600 {
                bare.rig.now += Duration::from_millis(100);
                bare.round(None);
            }
        });
        assert_eq!(bare.rig.stats().pending, 0);
        // A peer solicits us, is answered, and has an entry; then it is silent.
        let to = SocketAddr::new(addr(family, 7), 9);
        let asks = match family {
            Family::V4 => arp_request(),
            Family::V6 => solicitation(),
        };
        allocates_nothing("found", || {
            bare.round(Some(&asks));
            bare.run(None, |stack, round| {
                stack.sockets(round).udp_send(id, Some(to), b"?").unwrap();
            });
            for _ in 0..600 {
                bare.rig.now += Duration::from_millis(100);
                bare.round(None);
            }
        });
        assert!(bare.rig.conservation().holds());
    }
}

#[test]
fn drops_of_every_kind_allocate_nothing() {
    let mut frames = vec![vec![], vec![1; 13], frame(mac(HOST), mac(PEER), EtherType(0x88cc), b"")];
    for family in FAMILIES {
        let (from, to) = (addr(family, PEER), addr(family, HOST));
        let other: IpAddr = addr(family, 99);
        let good = from_peer(&udp_to_port(family, 9, b"hello"));
        frames.extend((14..good.len()).map(|len| good[..len].to_vec()));
        frames.extend((12..good.len()).map(|at| {
            let mut bytes = good.clone();
            bytes[at] ^= 0x5a;
            bytes
        }));
        frames.push(from_peer(&echo(from, other, b"?")));
        frames.push(from_peer(&ip(from, to, icmp_of(family), &[200; 8])));
    }
    let unknown = options_header(&[1, 0, 0x9e, 2, 0, 0]);
    let headers: [(IpProtocol, &[u8]); 1] = [(IpProtocol::DESTINATION_OPTIONS, &unknown)];
    frames.push(from_peer(&ipv6_chain(&headers, IpProtocol::UDP, b"")));
    let mut bare = Bare::new(&ethernet_config(HOST));
    let free = bare.rig.pool.available();
    allocates_nothing("drops", || {
        for frame in &frames {
            bare.round(Some(frame));
        }
    });
    assert_eq!(bare.rig.pool.available(), free);
    assert!(bare.rig.stats().drops_in.total() > 2 * frames.len() as u64);
}

#[test]
fn packets_in_pieces_allocate_nothing_either() {
    for family in FAMILIES {
        let mut bare = Bare::new(&ethernet_config(HOST));
        let question = from_peer(&echo(addr(family, PEER), addr(family, HOST), b"in pieces"));
        allocates_nothing("pieces", || {
            for len in [1, 2, 3, 5, 8, 13] {
                let (front, back) = question.split_at(question.len() - 40);
                let chunks = [front].into_iter().chain(back.chunks(len));
                let packet = bare.rig.pool.packet_from_chunks(chunks).unwrap();
                assert_eq!(
                    bare.run(Some(packet), |stack, round| {
                        stack.round(round);
                    }),
                    1
                );
            }
        });
    }
}

#[test]
fn datagrams_in_fragments_allocate_nothing_in_and_out() {
    for family in FAMILIES {
        let mut bare = Bare::new(&ethernet_config(HOST));
        let any = SocketAddr::new("::".parse().unwrap(), 7);
        let settings = SocketSettings::new(Family::V6);
        let id = bare.rig.sockets(|s| s.udp_bind(any, settings)).0.unwrap();
        let pieces: Vec<_> = fragments(&udp_to_port(family, 7, &[7; 20_000]), 9, 1400)
            .iter()
            .map(|piece| from_peer(piece))
            .collect();
        let (mut buffer, mut departed) = (vec![0; 65_536], 0);
        allocates_nothing("put together and cut", || {
            // Out of order, with one twice.
            pieces.iter().rev().chain(&pieces[..1]).for_each(|piece| {
                bare.round(Some(piece));
            });
            departed += bare.run(None, |stack, round| {
                let mut sockets = stack.sockets(round);
                let received = sockets.udp_recv(id, &mut buffer).unwrap();
                assert_eq!(received.len, 20_000);
                sockets.udp_reply(id, &received, &buffer[..received.len]).unwrap();
            });
            // The piece that came twice is waited for, and given up.
            for _ in 0..70 {
                bare.rig.now += Duration::from_secs(1);
                bare.round(None);
            }
        });
        assert!(departed >= 3 * 14, "{departed} fragments left");
        assert_eq!(bare.rig.stats().held, 0);
        assert!(bare.rig.conservation().holds());
    }
}

#[test]
fn floods_of_every_kind_allocate_nothing() {
    // Fragments, chains, options, routes, neighbours, routers, redirects, queries, errors.
    let mut config = ethernet_config(HOST);
    for interface in &mut config.interfaces {
        (interface.accept_ra, interface.autoconf) = (true, true);
        interface.addresses.push("fe80::1/64".parse().unwrap());
    }
    let mut bare = Bare::new(&config);
    let any = SocketAddr::new("::".parse().unwrap(), 7);
    let settings = SocketSettings::new(Family::V6);
    let id = bare.rig.sockets(|s| s.udp_bind(any, settings)).0.unwrap();
    for group in ["239.1.2.3", "ff02::1234"] {
        let group: IpAddr = group.parse().unwrap();
        bare.rig.sockets(|s| s.udp_join(id, group, IfIndex(1))).0.unwrap();
    }
    let inputs = floods(3);
    assert!(inputs.len() > 800);
    let mut buffer = vec![0; 65_536];
    allocates_nothing("floods", || {
        for frame in inputs.iter().flat_map(|input| &input.frames) {
            bare.round(Some(frame));
            bare.run(
                None,
                |stack, round| {
                    while stack.sockets(round).udp_recv(id, &mut buffer).is_ok() {}
                },
            );
        }
        for _ in 0..120 {
            bare.rig.now += Duration::from_secs(1);
            bare.round(None);
        }
    });
    let stats = bare.rig.stats();
    assert!(stats.outcomes.merged > 100 && stats.outcomes.answered > 400, "{:?}", stats.outcomes);
    assert!(stats.counters.of(Counter::Icmp6OutMLDv2Reports) > 0);
    assert!(bare.rig.conservation().holds());
}
