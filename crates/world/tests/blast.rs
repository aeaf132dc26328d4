//! What a plan sends, seen on a link of a simulated world: when, how much, and how valid.
//!
//! Run by `cargo test`. Here and not beside the generator, because imports go down the shelves.

use core::hash::Hasher;
use core::net::IpAddr;
use core::time::Duration;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::hash::DefaultHasher;
use std::rc::Rc;

use floodwall_base::{IfIndex, Instant, MacAddr, Units};
use floodwall_packet::{Burst, Engine, Pool, PoolConfig, Round, Triage};
use floodwall_pktgen::{
    Blast, Content, Fragments, Pace, Peer, Plan, PlanError, PortRange, SizeRange, Spread, Stamp,
    StationConfig, Stream, Withheld,
};
use floodwall_wire::{EthernetHeader, IpProtocol, TcpFlags, validate};
use floodwall_world::{LinkConfig, NodeConfig, NodeId, TraceKind, World};

/// Takes everything and answers nothing.
struct Sink;

impl Engine for Sink {
    fn round(&mut self, round: &mut Round<'_>) -> Units {
        Units(round.arrived.drain().count() as u32)
    }

    fn work(&mut self, _: &mut Round<'_>) -> Units {
        Units(0)
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn classify(&self, _: &Burst, _: &mut [Triage]) {}
}

/// Every frame that was sent, with its time in nanoseconds.
type Frames = Rc<RefCell<Vec<(u64, Vec<u8>)>>>;

fn pool(frames: usize) -> Pool {
    let config = PoolConfig { frames, small: frames, ..PoolConfig::default() };
    Pool::new(&config).expect("memory")
}

/// A world with `plan` and a sink, and what will be seen on their link.
fn world(seed: u64, plan: Plan, frames: usize) -> (World, NodeId, Frames) {
    let mut world = World::new(seed);
    let blast = Blast::new(plan).expect("a plan");
    let blast = world.add_node_with("blast", blast, pool(frames), NodeConfig::free());
    let sink = world.add_node_with("sink", Sink, pool(8192), NodeConfig::free());
    let ends = ((blast, IfIndex(1)), (sink, IfIndex(1)));
    world.connect(ends.0, ends.1, LinkConfig::default()).expect("free interfaces");
    let seen = Frames::default();
    let hook = Rc::clone(&seen);
    world.set_trace(move |event| {
        if event.kind == TraceKind::Sent {
            hook.borrow_mut().push((event.at.as_nanos(), event.frame.to_vec()));
        }
    });
    (world, blast, seen)
}

fn plan(streams: Vec<Stream>) -> Plan {
    let mac = MacAddr([2, 0, 0, 0, 0, 9]);
    let peer = Peer::Link(MacAddr([2, 0, 0, 0, 0, 1]));
    Plan { station: StationConfig { mac, peer, ..StationConfig::default() }, streams }
}

fn stream(content: Content, v4: bool, pace: Pace, count: u64) -> Stream {
    let (from, to) = if v4 { ("10.1.0.0/16", "10.2.0.1") } else { ("fd01::/64", "fd02::1") };
    let (from, to) = (from.parse().expect("a range"), to.parse().expect("a range"));
    Stream { count: Some(count), ..Stream::new(content, from, to, pace) }
}

#[test]
fn every_packet_leaves_at_its_intended_time_to_the_nanosecond() {
    let pace = Pace::per_second(3_000_000);
    let first = stream(Content::Udp, true, pace, 1000);
    let start_after = Duration::from_micros(10);
    let second = Stream {
        start_after,
        stop_after: Some(Duration::from_micros(30)),
        count: None,
        ..stream(Content::IcmpEcho, false, Pace::every(Duration::from_micros(1)), 0)
    };
    let (mut world, blast, seen) = world(1, plan(vec![first, second]), 8192);
    world.run_for(Duration::from_secs(1));
    let mut want: Vec<u64> = (0..1000).map(|i| i * 1000 / 3).collect();
    want.extend((10..30).map(|i| i * 1000));
    want.sort_unstable();
    let times: Vec<u64> = seen.borrow().iter().map(|(at, _)| *at).collect();
    assert_eq!(times, want);
    let blast = world.node_ref::<Blast>(blast).unwrap();
    assert_eq!((blast.stats().sent, blast.stats().late_max), (1020, Duration::ZERO));
    assert!(blast.is_finished());
}

#[test]
fn the_same_seed_sends_the_same_bytes() {
    let hash = |seed| {
        let frames = vec![vec![7; 90]];
        let replay = Content::Replay { frames, mutate: true };
        let streams = [Content::Udp, Content::Tcp(TcpFlags::SYN), replay]
            .into_iter()
            .flat_map(|c| [true, false].map(|v4| (c.clone(), v4)))
            .map(|(c, v4)| stream(c, v4, Pace::per_second(100_000), 200))
            .collect();
        let (mut world, _, seen) = world(seed, plan(streams), 8192);
        world.run_for(Duration::from_secs(1));
        let mut hash = DefaultHasher::new();
        for (at, frame) in seen.borrow().iter() {
            hash.write_u64(*at);
            hash.write(frame);
        }
        assert_eq!(seen.borrow().len(), 1200);
        hash.finish()
    };
    assert_eq!(hash(5), hash(5));
    assert_ne!(hash(5), hash(6));
}

#[test]
fn all_kinds_of_packets_are_valid_frames_in_both_families() {
    let kinds = [
        (Content::Udp, [IpProtocol::UDP; 2]),
        (Content::Tcp(TcpFlags::SYN), [IpProtocol::TCP; 2]),
        (Content::Tcp(TcpFlags::ACK), [IpProtocol::TCP; 2]),
        (Content::Tcp(TcpFlags::RST), [IpProtocol::TCP; 2]),
        (Content::IcmpEcho, [IpProtocol::ICMPV4, IpProtocol::ICMPV6]),
    ];
    for (content, protocols) in kinds {
        for (v4, protocol) in [true, false].into_iter().zip(protocols) {
            let some = Stream {
                payload: SizeRange { min: 24, max: 900 },
                stamp: true,
                ..stream(content.clone(), v4, Pace::per_second(1_000_000), 500)
            };
            let (mut world, _, seen) = world(1, plan(vec![some]), 8192);
            world.run_for(Duration::from_secs(1));
            let (mut sources, mut sizes) = (BTreeSet::new(), BTreeSet::new());
            for (i, (at, frame)) in seen.borrow().iter().enumerate() {
                let ethernet = EthernetHeader::parse(frame).unwrap();
                assert_eq!(ethernet.src_addr(), MacAddr([2, 0, 0, 0, 0, 9]));
                let checked = validate(frame).unwrap();
                assert_eq!((checked.protocol, checked.end as usize), (protocol, frame.len()));
                let stamp = Stamp::read(match protocol {
                    IpProtocol::UDP | IpProtocol::TCP => &frame[checked.payload as usize..],
                    _ => &frame[checked.transport as usize + 8..],
                });
                let intended = Instant::from_nanos(*at);
                assert_eq!(stamp, Some(Stamp { stream: 0, seq: i as u64, intended }));
                sources.insert(frame[26..34].to_vec());
                sizes.insert(frame.len());
            }
            assert_eq!(seen.borrow().len(), 500);
            assert!(sources.len() > 400 && sizes.len() > 200, "{content:?}");
        }
    }
}

#[test]
fn flows_keep_their_addresses_for_as_many_packets_as_asked() {
    let sweep = Stream {
        dst_addrs: "10.2.0.0/24".parse().unwrap(),
        src_addrs: "10.9.9.9".parse().unwrap(),
        spread: Spread::InTurn,
        flow_packets: 10,
        dst_ports: PortRange { first: 1, last: 3 },
        ..stream(Content::Udp, true, Pace::per_second(1_000_000), 2560)
    };
    let (mut world, _, seen) = world(1, plan(vec![sweep]), 8192);
    world.run_for(Duration::from_secs(1));
    for (i, (_, frame)) in seen.borrow().iter().enumerate() {
        let flow = i / 10;
        assert_eq!(frame[30..34], [10, 2, 0, flow as u8]);
        assert_eq!(frame[36..38], [0, (flow % 3) as u8 + 1]);
    }
    assert_eq!(seen.borrow().len(), 2560);
}

#[test]
fn fragments_of_a_packet_leave_together_and_fit_their_size() {
    for v4 in [true, false] {
        let cut = Stream {
            payload: SizeRange::one(100),
            fragments: Some(Fragments { bytes: 16, overlap: 8, withheld: Withheld::Last }),
            ..stream(Content::Udp, v4, Pace::per_second(1000), 20)
        };
        let (mut world, blast, seen) = world(1, plan(vec![cut]), 8192);
        world.run_for(Duration::from_secs(1));
        // 108 bytes in pieces of 16, each 8 further: 13 pieces, of which the last is kept back.
        let stats = world.node_ref::<Blast>(blast).unwrap().stats();
        assert_eq!((stats.sent, stats.frames), (20, 20 * 12));
        for (i, (at, frame)) in seen.borrow().iter().enumerate() {
            assert_eq!(*at, i as u64 / 12 * 1_000_000);
            assert!(validate(frame).unwrap().is_fragment);
        }
    }
}

#[test]
fn an_empty_pool_loses_packets_and_keeps_the_schedule() {
    let burst = stream(Content::Udp, true, Pace::per_second(1_000_000_000), 64);
    let late = Stream {
        start_after: Duration::from_millis(1),
        ..stream(Content::Udp, true, Pace::per_second(1000), 5)
    };
    let (mut world, blast, seen) = world(1, plan(vec![burst, late]), 1);
    world.run_for(Duration::from_secs(1));
    let stats = world.node_ref::<Blast>(blast).unwrap().stats();
    assert_eq!((stats.sent, stats.frames + stats.no_buffer), (69, 69));
    assert_eq!(seen.borrow().last().map(|(at, _)| *at), Some(5_000_000));
}

/// A second of a stream with a peer that resolves after 10.5 ms: the generator, and what it sent
/// after its request.
fn with_a_late_peer(stream: Stream) -> (floodwall_pktgen::BlastStats, Vec<(u64, Vec<u8>)>) {
    let mut late = plan(vec![stream]);
    late.station.addrs = vec!["10.1.0.1".parse().expect("an address")];
    late.station.peer = Peer::Addr("10.1.0.2".parse::<IpAddr>().expect("an address"));
    let (mut world, blast, seen) = world(1, late, 8192);
    world.run_for(Duration::from_micros(10_500));
    assert_eq!(seen.borrow().len(), 1, "one ARP request");
    // The owner of the address replies at last.
    let mut reply = seen.borrow()[0].1.clone();
    let asker: Vec<u8> = reply[6..12].to_vec();
    reply[..6].copy_from_slice(&asker);
    reply[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 7]);
    reply[20..22].copy_from_slice(&[0, 2]);
    reply[22..32].copy_from_slice(&[2, 0, 0, 0, 0, 7, 10, 1, 0, 2]);
    world.visit(blast, |blast: &mut Blast, round| {
        round.arrived.push(round.pool.packet_from(&reply).expect("memory")).expect("room");
        blast.round(round);
    });
    world.run_for(Duration::from_secs(1));
    let stats = world.node_ref::<Blast>(blast).expect("it is there").stats();
    let sent = seen.borrow().iter().skip(1).cloned().collect();
    (stats, sent)
}

#[test]
fn what_is_meant_before_the_peer_is_known_is_not_sent_later() {
    let paced = stream(Content::Udp, true, Pace::per_second(1000), 100);
    let (stats, sent) = with_a_late_peer(paced);
    assert_eq!((stats.no_peer, stats.sent), (11, 89));
    let times: Vec<u64> = sent.iter().map(|(at, _)| *at).collect();
    assert_eq!(times, (11..100).map(|i| i * 1_000_000).collect::<Vec<_>>());
    assert_eq!(sent[0].1[..6], [2, 0, 0, 0, 0, 7]);
}

#[test]
fn one_that_goes_as_fast_as_it_can_waits_for_its_peer() {
    let boundless = stream(Content::Udp, true, Pace::per_second(1_000_000_000), 100);
    let (stats, sent) = with_a_late_peer(boundless);
    assert_eq!((stats.no_peer, stats.sent, sent.len()), (0, 100, 100));
}

#[test]
fn impossible_plans_are_refused() {
    let good = || stream(Content::Udp, true, Pace::per_second(1), 1);
    let error = |stream| Blast::new(plan(vec![stream])).err();
    assert_eq!(error(good()), None);
    let mixed = Stream { dst_addrs: "fd00::1".parse().unwrap(), ..good() };
    assert_eq!(error(mixed), Some(PlanError::MixedFamilies));
    assert_eq!(error(Stream { stamp: true, ..good() }), Some(PlanError::StampTooLong { have: 18 }));
    let ports = PortRange { first: 2, last: 1 };
    let reversed = Some(PlanError::RangeReversed("src_ports"));
    assert_eq!(error(Stream { src_ports: ports, ..good() }), reversed);
    let tooth = Fragments { bytes: 16, overlap: 16, ..Fragments::default() };
    assert_eq!(error(Stream { fragments: Some(tooth), ..good() }), Some(PlanError::FragmentBytes));
    let nothing = Content::Replay { frames: vec![], mutate: false };
    assert_eq!(error(Stream { content: nothing, ..good() }), Some(PlanError::ReplayEmpty));
    assert_eq!(error(Stream { pace: Pace::per_second(0), ..good() }), Some(PlanError::PaceZero));
}
