//! Any sequence of frames into a host with sockets, in virtual time.

use std::cell::RefCell;
use std::time::Duration;

use floodwall_base::{IfIndex, Instant, IpCidr, MacAddr, Randomness, Units};
use floodwall_packet::{Burst, Engine, PacketBuf, PacketList, Pool, PoolConfig, Round, Triage};
use floodwall_services::{ServiceKind, UdpService};
use floodwall_stack::{Application, Host, InterfaceConfig, LinkMedium, StackConfig};
use floodwall_wire::{ArpPacket, EtherType, EthernetHeader, Ipv4Header, Ipv6Header};

use crate::cuts::Cut;

/// Frames of one run.
const FRAMES_MAX: usize = 64;
/// What a frame may have: an Ethernet header and a little more than the MTU.
const FRAME_BYTES_MAX: usize = 1600;
/// The host's station address; the corpus has frames for it.
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const MTU: u32 = 1500;

thread_local! {
    static POOL: RefCell<Pool> = RefCell::new(pool());
}

fn pool() -> Pool {
    let config = PoolConfig {
        small: 256,
        frames: 128,
        supers: 1,
        references: 64,
        accounts: 64,
        ..PoolConfig::default()
    };
    Pool::new(&config).expect("half a megabyte")
}

fn config() -> StackConfig {
    let interface = |name: &str, medium, addresses: &[&str], gateways: &[&str]| InterfaceConfig {
        name: name.into(),
        medium,
        mtu: MTU,
        addresses: addresses
            .iter()
            .map(|text| text.parse::<IpCidr>().expect("an address with its prefix"))
            .collect(),
        gateways: gateways.iter().map(|text| text.parse().expect("an address")).collect(),
        ..InterfaceConfig::default()
    };
    StackConfig {
        interfaces: vec![
            interface(
                "eth0",
                LinkMedium::Ethernet(MAC),
                &["10.0.0.1/24", "fd00::1/64", "fe80::1/64"],
                &["10.0.0.2", "fd00::2"],
            ),
            interface("tun0", LinkMedium::Ip, &["192.0.2.1/24", "2001:db8::1/64"], &[]),
        ],
        udp_sockets_max: 8,
        udp_receive_bytes: 16_384,
        neighbors_max: 8,
        duplicate_address_detection: false,
        ..StackConfig::default()
    }
}

/// The frames of `data`: three bytes each give how it comes and how long it is, then its bytes.
///
/// # Panics
/// A packet is not accounted for exactly once, or is not back in the pool at the end; or something
/// leaves that is malformed.
pub fn stack_frame(data: &[u8]) {
    POOL.with_borrow(|pool| {
        let before = pool.available();
        let _departed = run(pool, data);
        assert_eq!(pool.available(), before, "not all is home");
    });
}

/// Runs the frames; returns how many left.
fn run(pool: &Pool, data: &[u8]) -> u64 {
    let mut random = Randomness::from_number(1);
    let mut now = Instant::from_nanos(1_000_000_000);
    let applications: Vec<Box<dyn Application>> = vec![
        Box::new(UdpService::new(ServiceKind::Echo, 7)),
        Box::new(UdpService::new(ServiceKind::Discard, 9)),
    ];
    let mut host = Host::new(&config(), applications, pool, &mut random, now)
        .expect("the configuration makes sense");
    let (mut rest, mut burst) = (data, Burst::new());
    for _ in 0..FRAMES_MAX {
        let Some((how, packet, behind)) = next_frame(pool, rest) else { break };
        rest = behind;
        burst.push(packet).expect("the bound is a burst's");
        if how & 0x10 == 0 {
            now = step(&mut host, pool, &mut random, now, &mut burst);
        }
    }
    now = step(&mut host, pool, &mut random, now, &mut burst);
    for _ in 0..8 {
        now += Duration::from_secs(1);
        step(&mut host, pool, &mut random, now, &mut burst);
    }
    host.stack().stats().outcomes.transmitted
}

/// How the next frame comes, the frame in its chunks, and what is behind it.
fn next_frame<'a>(pool: &Pool, rest: &'a [u8]) -> Option<(u8, PacketBuf, &'a [u8])> {
    let (&[how, low, high], behind) = rest.split_first_chunk()?;
    let len = usize::from(u16::from_le_bytes([low, high])) % FRAME_BYTES_MAX;
    let (frame, behind) = behind.split_at_checked(len).unwrap_or((behind, &[]));
    // Small places first: headers are what should be cut.
    let cut = match how >> 5 {
        0 => Cut::default(),
        step => Cut::at((0..20).map(|n| n * usize::from(step) * 3 + usize::from(step)).collect()),
    };
    let mut packet = pool.packet_from_chunks(cut.of(frame))?;
    packet.set_iface(IfIndex(1 + u16::from(how & 1)));
    Some((how, packet, behind))
}

/// One round, and the timed work that is due then.
fn step(
    host: &mut Host,
    pool: &Pool,
    random: &mut Randomness,
    now: Instant,
    burst: &mut Burst,
) -> Instant {
    let mut departing = PacketList::new();
    let mut classes = [Triage::Unknown; 64];
    host.classify(burst, &mut classes);
    let budget = Units(64);
    let mut round =
        Round { now, pool, random, arrived: burst, departing: &mut departing, budget, peers: None };
    host.round(&mut round);
    host.work(&mut round);
    assert!(burst.is_empty(), "a round takes the whole burst");
    while let Some(packet) = departing.pop_front() {
        well_formed(&packet);
    }
    let stats = host.stack().stats();
    assert!(stats.conservation().holds(), "{stats:?}");
    now + Duration::from_millis(1)
}

/// What leaves can be read by anybody: link and network headers, lengths, checksum.
fn well_formed(packet: &PacketBuf) {
    let bytes: Vec<u8> = packet.chunks().flatten().copied().collect();
    let shown = floodwall_wire::show::ShownFrame(&bytes).to_string();
    let (kind, network) = if packet.iface() == IfIndex(1) {
        let header = EthernetHeader::parse(&bytes).expect("it leaves by Ethernet");
        assert_eq!(header.src_addr(), MAC, "{shown}");
        (header.ether_type(), &bytes[header.header_len()..])
    } else {
        let kind = if bytes.first().is_some_and(|first| first >> 4 == 6) {
            EtherType::IPV6
        } else {
            EtherType::IPV4
        };
        (kind, &bytes[..])
    };
    match kind {
        EtherType::ARP => {
            ArpPacket::parse(network).expect("it is ARP");
        }
        EtherType::IPV4 => {
            let header = Ipv4Header::parse(network, network.len()).expect("it is IPv4");
            assert!(header.total_len() <= MTU as usize, "{shown}");
        }
        EtherType::IPV6 => {
            let header = Ipv6Header::parse(network, network.len()).expect("it is IPv6");
            assert!(header.total_len() <= MTU as usize, "{shown}");
        }
        other => panic!("{other} leaves: {shown}"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn the_corpus_makes_the_host_answer() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/stack_frame");
        let pool = pool();
        let departed: Vec<u64> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| run(&pool, &fs::read(entry.unwrap().path()).unwrap()))
            .collect();
        // Two solicitations of routers or neighbours leave in any case.
        let silent = run(&pool, &[]);
        let answering = departed.iter().filter(|&&count| count > silent).count();
        assert!(answering >= 12, "{answering} of {} beyond {silent}", departed.len());
    }
}
