//! Path MTUs and redirects of a host with several workers: the owner of the flow decides whether a
//! message is accepted, wherever it arrives, and all workers learn of it (rows 34, 37 and 64 of the
//! list of attacks), both families.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use floodwall_base::{Counter, Family, MacAddr, PublicRandom, WorkerId, limits};
use floodwall_fib::exceptions::Exception;
use floodwall_packet::{Available, Engine};
use floodwall_services::{ServiceKind, UdpService};
use floodwall_stack::{Application, InterfaceConfig, StackConfig, Stats};
use floodwall_tests::craft::{
    FAMILIES, HOST, addr, destination, echo, frame, icmpv4, icmpv6, ip, mac, udp, v4, v6,
};
use floodwall_tests::router::{message_frame, router_addr, router_mac};
use floodwall_tests::{Shards, ethernet_config};
use floodwall_wire::icmpv4::UnreachableCode;
use floodwall_wire::ndp::RedirectFields;
use floodwall_wire::{EtherType, Icmpv4Message, Icmpv6Message, IpProtocol, NdpOption};

const ECHO: u16 = 7000;
const LARGE: usize = 1400;
/// Both families accept it, and each less than the one before.
const NARROW: u32 = 1300;
const LINK: usize = 14;
const COUNTERS: [Counter; 5] = [
    Counter::FloodwallExceptionsLearnt,
    Counter::FloodwallExceptionsNoFlow,
    Counter::FloodwallExceptionsBelowFloor,
    Counter::FloodwallExceptionsNotLower,
    Counter::FloodwallExceptionsLimited,
];

fn gateway(family: Family) -> IpAddr {
    match family {
        Family::V4 => v4(254).into(),
        Family::V6 => router_addr(1).into(),
    }
}

/// Another router of the link.
fn better(family: Family) -> IpAddr {
    match family {
        Family::V4 => v4(253).into(),
        Family::V6 => router_addr(2).into(),
    }
}

/// The `n`th host behind the gateway, each in a network of its own.
fn far(family: Family, n: u16) -> IpAddr {
    let [a, b] = n.to_be_bytes();
    match family {
        Family::V4 => Ipv4Addr::new(203, a, b, 9).into(),
        Family::V6 => Ipv6Addr::new(0x2001, 0xdb8, 1, n, 0, 0, 0, 9).into(),
    }
}

/// A host of so many workers, each with an echo service; it follows redirects.
fn host(workers: u16) -> Shards {
    let base = ethernet_config(HOST);
    let interface =
        InterfaceConfig { gateways: FAMILIES.map(gateway).into(), ..base.interfaces[0].clone() };
    let config = StackConfig { interfaces: vec![interface], accept_redirects: true, ..base };
    let services = || -> Vec<Box<dyn Application>> {
        vec![Box::new(UdpService::new(ServiceKind::Echo, ECHO))]
    };
    let mut shards = Shards::new(&config, workers, services);
    shards.run_for(Duration::from_secs(5), Duration::from_millis(50));
    for family in FAMILIES {
        shards.add_neighbor(gateway(family), router_mac(1));
        shards.add_neighbor(better(family), router_mac(2));
    }
    shards.settle();
    shards.departed();
    shards
}

const fn ether_type(family: Family) -> EtherType {
    match family {
        Family::V4 => EtherType::IPV4,
        Family::V6 => EtherType::IPV6,
    }
}

/// The host's end of every flow.
fn service(family: Family) -> SocketAddr {
    SocketAddr::new(addr(family, HOST), ECHO)
}

/// A large question to the service.
fn question(from: SocketAddr) -> Vec<u8> {
    let family = Family::of(from.ip());
    let packet = udp(from, service(family), &[7; LARGE]);
    frame(mac(HOST), router_mac(1), ether_type(family), &packet)
}

/// The host's answer, as a router would quote it.
fn answer(to: SocketAddr) -> Vec<u8> {
    udp(service(Family::of(to.ip())), to, &[7; LARGE])
}

/// A far host with a flow that this worker owns.
fn peer_of(shards: &Shards, family: Family, n: u16, worker: u16) -> SocketAddr {
    let mut ports = (2000..u16::MAX).map(|port| SocketAddr::new(far(family, n), port));
    let peer = ports.find(|peer| shards.owner(&question(*peer)) == WorkerId(worker));
    peer.expect("some flow comes to each worker")
}

/// Sends a request, at the flow's worker; returns the sizes of the IP packets in which the answer
/// leaves, and the station that they leave to.
fn ask(shards: &mut Shards, peer: SocketAddr) -> (Vec<usize>, Option<MacAddr>) {
    // The worker remembers a socket's path for so long.
    shards.now += Duration::from_millis(101);
    shards.departed();
    shards.arrive(&[question(peer)]);
    let to_peer = |bytes: &Vec<u8>| destination(&bytes[LINK..]) == Some(peer.ip());
    let left: Vec<_> = shards.departed().into_iter().filter(to_peer).collect();
    let station = left.first().and_then(|bytes| bytes.first_chunk().map(|b| MacAddr(*b)));
    (left.iter().map(|bytes| bytes.len() - LINK).collect(), station)
}

/// "Your packet `quote` is larger than `mtu`", from a router on the path.
fn too_big(family: Family, mtu: u32, quote: &[u8]) -> Vec<u8> {
    let packet = match far(family, 0xff01) {
        IpAddr::V4(from) => {
            let (code, next_hop_mtu) = (UnreachableCode::FRAGMENTATION_NEEDED, mtu as u16);
            let message = Icmpv4Message::DestinationUnreachable { code, next_hop_mtu };
            icmpv4(from, v4(HOST), message, &quote[..28])
        }
        IpAddr::V6(from) => {
            icmpv6(from, v6(HOST), Icmpv6Message::PacketTooBig { mtu }, &quote[..48])
        }
    };
    frame(mac(HOST), router_mac(1), ether_type(family), &packet)
}

/// "For that one there is a better router", from the gateway.
fn redirect(family: Family, quote: &[u8]) -> Vec<u8> {
    match (gateway(family), better(family), destination(quote)) {
        (IpAddr::V4(from), IpAddr::V4(gateway), _) => {
            let message = Icmpv4Message::Redirect { code: 1, gateway };
            let packet = icmpv4(from, v4(HOST), message, &quote[..28]);
            frame(mac(HOST), router_mac(1), EtherType::IPV4, &packet)
        }
        (IpAddr::V6(from), IpAddr::V6(target_addr), Some(IpAddr::V6(dst_addr))) => {
            let mut out = [0; 256];
            let options = [NdpOption::RedirectedHeader(&quote[..48])];
            let fields = RedirectFields { target_addr, dst_addr };
            let len = fields.emit_into(&options, from, v6(HOST), &mut out).expect("it fits");
            message_frame(router_mac(1), from, v6(HOST), &out[..len])
        }
        _ => panic!("of two families"),
    }
}

/// One worker's entries for a destination: its path MTU, its better first hop.
fn known(shards: &Shards, worker: u16, of: IpAddr) -> (Option<u32>, Option<IpAddr>) {
    fn parts<A: Into<IpAddr>>(e: Exception<A>) -> (IpAddr, Option<u32>, Option<IpAddr>) {
        let (mtu, target) = (e.mtu.map(|(mtu, _)| mtu), e.target_addr);
        (e.dst_addr.into(), mtu, target.map(|(target, _)| target.into()))
    }
    let (stack, now) = (shards.stack(worker), shards.now);
    let (v4, v6) = (stack.exceptions_v4().iter(now), stack.exceptions_v6().iter(now));
    let mut all = v4.map(parts).chain(v6.map(parts));
    let found = all.find(|(dst_addr, ..)| *dst_addr == of);
    found.map_or((None, None), |(_, mtu, target)| (mtu, target))
}

/// The counters of all workers together, in the order of [`COUNTERS`].
fn counts(shards: &Shards) -> [u64; 5] {
    let workers = shards.workers.len() as u16;
    COUNTERS.map(|counter| (0..workers).map(|w| shards.stats(w).counters.of(counter)).sum())
}

/// All that was handed over is done, and every worker has had a round since, in which it takes
/// over what the control shard shows.
fn settle(shards: &mut Shards) {
    shards.settle();
    for worker in 0..shards.workers.len() as u16 {
        shards.act(worker, |host, round, _| host.work(round));
    }
}

/// What changes with every lesson, at each worker.
fn revisions(shards: &Shards) -> Vec<[u32; 2]> {
    let workers = 0..shards.workers.len() as u16;
    let of = |worker| {
        let stack = shards.stack(worker);
        [stack.exceptions_v4().revision(), stack.exceptions_v6().revision()]
    };
    workers.map(of).collect()
}

#[test]
fn a_packet_too_big_is_believed_by_its_flow_s_worker_wherever_it_arrives_and_all_learn_it() {
    for (family, workers) in FAMILIES.into_iter().flat_map(|f| [(f, 2), (f, 4)]) {
        let mut shards = host(workers);
        let mut n = 0;
        for (owner, arrives_at) in (0..workers).flat_map(|o| (0..workers).map(move |a| (o, a))) {
            n += 1;
            let peer = peer_of(&shards, family, n, owner);
            assert_eq!(ask(&mut shards, peer).0.len(), 1);
            shards.turn(arrives_at, &[too_big(family, NARROW, &answer(peer))]);
            settle(&mut shards);
            assert!(shards.departed().is_empty(), "nothing is answered");
            let (sizes, _) = ask(&mut shards, peer);
            assert_eq!(sizes.len(), 2, "{family:?} of {owner}, at {arrives_at}: {sizes:?}");
            assert!(sizes.iter().all(|size| *size <= NARROW as usize), "{sizes:?}");
            for worker in 0..workers {
                assert_eq!(known(&shards, worker, peer.ip()), (Some(NARROW), None), "{worker}");
            }
            assert_eq!(counts(&shards), [n.into(), 0, 0, 0, 0]);
        }
        let learnt = |w| shards.stats(w).counters.of(Counter::FloodwallExceptionsLearnt);
        assert!((1..workers).all(|worker| learnt(worker) == 0), "one writer");
        shards.assert_conserved();
    }
}

/// What leaves for a large ping from `peer`, wherever it was to arrive.
fn ping(shards: &mut Shards, peer: IpAddr) -> Vec<Vec<u8>> {
    let family = Family::of(peer);
    let packet = echo(peer, addr(family, HOST), &[7; LARGE]);
    shards.arrive(&[frame(mac(HOST), router_mac(1), ether_type(family), &packet)]);
    let to_peer = |bytes: &Vec<u8>| destination(&bytes[LINK..]) == Some(peer);
    shards.departed().into_iter().filter(to_peer).collect()
}

/// Request, reply and what quotes the reply are one worker's, which keeps to it alone.
#[test]
fn a_packet_too_big_about_an_echo_reply_reaches_the_worker_that_answers() {
    for (family, workers) in FAMILIES.into_iter().flat_map(|f| [(f, 2), (f, 4)]) {
        let mut shards = host(workers);
        for n in 1..=20 {
            let peer = far(family, n);
            let whole = ping(&mut shards, peer);
            assert_eq!(whole.len(), 1);
            let message = too_big(family, NARROW, &whole[0][LINK..]);
            shards.arrive(&[message]);
            settle(&mut shards);
            let cut = ping(&mut shards, peer);
            assert_eq!(cut.len(), 2, "{family:?} {n}");
            assert!((0..workers).all(|worker| known(&shards, worker, peer) == (None, None)));
        }
        shards.assert_conserved();
    }
}

#[test]
fn a_spoofed_quote_is_refused_under_its_reason_wherever_it_arrives() {
    for (family, workers) in FAMILIES.into_iter().flat_map(|f| [(f, 2), (f, 4)]) {
        let mut shards = host(workers);
        let mut sent = [0; 5];
        for (owner, arrives_at) in (0..workers).flat_map(|o| (0..workers).map(move |a| (o, a))) {
            let peer = peer_of(&shards, family, 1, owner);
            ask(&mut shards, peer);
            let quote = answer(peer);
            let header = if family == Family::V4 { 20 } else { 40 };
            let mut guess = quote.clone();
            guess[header + 2] ^= 0x40;
            let me = addr(family, HOST);
            let never_asked = udp(service(family), (far(family, 99), 5).into(), &[7; LARGE]);
            let other_protocol = ip(me, peer.ip(), IpProtocol(200), &quote[header..]);
            let foreign = ip(addr(family, 77), peer.ip(), IpProtocol::UDP, &quote[header..]);
            let mut messages = vec![];
            for wrong in [guess, never_asked, other_protocol, foreign] {
                messages.push((1, too_big(family, NARROW, &wrong)));
            }
            for mtu in [0, 68, if family == Family::V4 { 551 } else { 1279 }] {
                messages.push((2, too_big(family, mtu, &quote)));
            }
            for mtu in [1500, 1501, 9000] {
                messages.push((3, too_big(family, mtu, &quote)));
            }
            let before = (revisions(&shards), known(&shards, owner, peer.ip()));
            for (reason, message) in messages {
                shards.turn(arrives_at, &[message]);
                settle(&mut shards);
                sent[reason] += 1;
                let what = format!("{family:?} of {owner}, at {arrives_at}");
                assert_eq!(counts(&shards), sent, "{what}");
            }
            assert!(shards.departed().is_empty(), "nothing is answered");
            assert_eq!((revisions(&shards), known(&shards, owner, peer.ip())), before);
            assert_eq!(ask(&mut shards, peer).0.len(), 1);
        }
        shards.assert_conserved();
    }
}

/// Each worker accepts its part of the rate: a peer with many flows at one worker gets that part.
#[test]
fn together_the_workers_believe_at_the_host_s_rate() {
    for (family, workers) in FAMILIES.into_iter().flat_map(|f| [(f, 2), (f, 4)]) {
        let mut shards = host(workers);
        let mut frames = vec![];
        for n in 1..=800 {
            let peer = peer_of(&shards, family, n, n % workers);
            // From now on: the answers are all sent in one moment.
            shards.arrive(&[question(peer)]);
            frames.push(too_big(family, NARROW, &answer(peer)));
        }
        shards.departed();
        for (n, message) in frames.iter().enumerate() {
            shards.turn(n as u16 % workers, std::slice::from_ref(message));
            settle(&mut shards);
        }
        let [learnt, no_flow, _, _, limited] = counts(&shards);
        assert_eq!((learnt + limited, no_flow), (800, 0), "{family:?}, {workers} workers");
        let burst = u64::from(limits::EXCEPTION_BURST);
        assert!((burst / 2..burst * 2).contains(&learnt), "{workers}: {learnt} of {burst}");
        let entries = match family {
            Family::V4 => shards.stack(0).exceptions_v4().len(),
            Family::V6 => shards.stack(0).exceptions_v6().len(),
        };
        assert_eq!(entries as u64, learnt);
        shards.assert_conserved();
    }
}

#[test]
fn a_redirect_is_believed_by_its_flow_s_worker_wherever_it_arrives_and_all_follow_it() {
    for (family, workers) in FAMILIES.into_iter().flat_map(|f| [(f, 2), (f, 4)]) {
        let mut shards = host(workers);
        let mut n = 0;
        for (owner, arrives_at) in (0..workers).flat_map(|o| (0..workers).map(move |a| (o, a))) {
            n += 1;
            let peer = peer_of(&shards, family, n, owner);
            assert_eq!(ask(&mut shards, peer).1, Some(router_mac(1)));
            let never_asked = udp(service(family), (peer.ip(), 1).into(), &[7; LARGE]);
            let before = revisions(&shards);
            shards.turn(arrives_at, &[redirect(family, &never_asked)]);
            settle(&mut shards);
            assert_eq!(revisions(&shards), before, "a guess");
            shards.turn(arrives_at, &[redirect(family, &answer(peer))]);
            settle(&mut shards);
            let what = format!("{family:?} of {owner}, at {arrives_at} of {workers}");
            for worker in 0..workers {
                let known = known(&shards, worker, peer.ip());
                assert_eq!(known, (None, Some(better(family))), "{what}: {worker}");
            }
            assert_eq!(ask(&mut shards, peer).1, Some(router_mac(2)), "{what}");
            assert_eq!(counts(&shards), [n.into(), n.into(), 0, 0, 0], "{what}");
        }
        shards.assert_conserved();
    }
}

/// All that can be seen of a host at the end.
#[derive(PartialEq, Debug)]
struct End {
    stats: Vec<Stats>,
    counts: [u64; 5],
    known: Vec<(IpAddr, Option<u32>, Option<IpAddr>)>,
    departed: Vec<Vec<u8>>,
    free: Vec<Available>,
}

/// A storm of messages, true ones and others, at random workers; questions between them.
fn storm(seed: u64, workers: u16) -> (End, Vec<Available>) {
    const PEERS: u16 = 60;
    let (mut shards, mut random) = (host(workers), PublicRandom::new(seed));
    let mut below = |n: u64| random.next_u64() % n;
    let free = |shards: &Shards| shards.workers.iter().map(|w| w.pool.available()).collect();
    let before = free(&shards);
    let peers: Vec<SocketAddr> = FAMILIES
        .into_iter()
        .flat_map(|family| (0..PEERS).map(move |n| (family, n)))
        .map(|(family, n)| peer_of(&shards, family, n, n % workers))
        .collect();
    let mut departed = vec![];
    for _ in 0..2000 {
        shards.now += Duration::from_micros(below(2000));
        let peer = peers[below(peers.len() as u64) as usize];
        let (family, mut quote) = (Family::of(peer.ip()), answer(peer));
        let worker = below(workers.into()) as u16;
        let mtu = 500 + below(1100) as u32;
        match below(8) {
            0 | 1 => shards.arrive(&[question(peer)]),
            2 => {
                let at = quote.len() - LARGE - 6;
                quote[at] ^= 1 << below(8);
                shards.turn(worker, &[too_big(family, mtu, &quote)]);
            }
            3 => shards.turn(worker, &[redirect(family, &quote)]),
            4 => shards.turn(below(workers.into()) as u16, &[]),
            _ => shards.turn(worker, &[too_big(family, mtu, &quote)]),
        }
        departed.extend(shards.departed());
    }
    settle(&mut shards);
    shards.run_for(Duration::from_millis(100), Duration::from_millis(10));
    departed.extend(shards.departed());
    shards.assert_conserved();
    let all_known = |worker| {
        let all = peers.iter().map(|peer| (peer.ip(), known(&shards, worker, peer.ip())));
        all.map(|(of, (mtu, target))| (of, mtu, target)).collect::<Vec<_>>()
    };
    let control = all_known(0);
    assert!((1..workers).all(|worker| all_known(worker) == control), "all workers know the same");
    let stats = (0..workers).map(|worker| shards.stats(worker)).collect();
    let end = End { stats, counts: counts(&shards), known: control, departed, free: free(&shards) };
    (end, before)
}

#[test]
fn a_storm_at_several_workers_replays_exactly_and_takes_no_memory() {
    for workers in [2, 4] {
        let (end, free) = storm(1, workers);
        assert!(end.counts.iter().take(4).all(|count| *count > 20), "{:?}", end.counts);
        assert_eq!(end.free, free, "all packets are home");
        assert_eq!(storm(1, workers).0, end);
        assert_ne!(storm(2, workers).0.departed, end.departed);
    }
}
