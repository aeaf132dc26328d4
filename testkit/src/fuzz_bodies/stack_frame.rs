//! Any sequence of frames into a host with sockets, in virtual time; and into its twin; the twin's
//! access lists permit everything, which keeps every packet on the general path: what is read in
//! one go (`stack`'s `ip/udp_predict.rs`, `tcp/predict.rs`) has the outcome of that path.

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
/// leaves that is malformed; or the twin does something else.
pub fn stack_frame(data: &[u8]) {
    POOL.with_borrow(|pool| {
        let before = pool.available();
        let [predicted, general] = [false, true].map(|general| run(pool, data, general));
        assert_eq!(predicted.departed, general.departed, "the twin says something else");
        assert_eq!(predicted.counted, general.counted, "the twin counts something else");
        assert_eq!(pool.available(), before, "not all is home");
    });
}

/// What a host did with its frames.
struct Outcome {
    departed: Vec<Vec<u8>>,
    /// Drops by reason, and outcomes.
    counted: String,
    #[cfg(test)]
    transmitted: u64,
    #[cfg(test)]
    borrows: u64,
}

/// Runs the frames into a host; with `general`, one that predicts nothing.
fn run(pool: &Pool, data: &[u8], general: bool) -> Outcome {
    let mut random = Randomness::from_number(1);
    let mut now = Instant::from_nanos(1_000_000_000);
    let applications: Vec<Box<dyn Application>> = vec![
        Box::new(UdpService::new(ServiceKind::Echo, 7)),
        Box::new(UdpService::new(ServiceKind::Discard, 9)),
    ];
    let mut host = Host::new(&config(), applications, pool, &mut random, now)
        .expect("the configuration makes sense");
    for iface in [1, 2].into_iter().filter(|_| general) {
        let permit = "permit from any to any".parse().expect("a rule");
        assert!(host.stack_mut().set_access_list(IfIndex(iface), &[permit]), "an interface");
    }
    let mut departed = Vec::new();
    let (mut rest, mut burst) = (data, Burst::new());
    for _ in 0..FRAMES_MAX {
        let Some((how, packet, behind)) = next_frame(pool, rest) else { break };
        rest = behind;
        burst.push(packet).expect("the bound is a burst's");
        if how & 0x10 == 0 {
            now = step(&mut host, pool, &mut random, now, (&mut burst, &mut departed));
        }
    }
    now = step(&mut host, pool, &mut random, now, (&mut burst, &mut departed));
    for _ in 0..8 {
        now += Duration::from_secs(1);
        step(&mut host, pool, &mut random, now, (&mut burst, &mut departed));
    }
    let stats = host.stack().stats();
    Outcome {
        departed,
        counted: format!("{:?} {:?}", stats.drops_in, stats.outcomes),
        #[cfg(test)]
        transmitted: stats.outcomes.transmitted,
        #[cfg(test)]
        borrows: stats.counters.of(floodwall_base::Counter::FloodwallHeaderBorrows),
    }
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
    (burst, departed): (&mut Burst, &mut Vec<Vec<u8>>),
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
        departed.push(well_formed(&packet));
    }
    let stats = host.stack().stats();
    assert!(stats.conservation().holds(), "{stats:?}");
    now + Duration::from_millis(1)
}

/// What leaves can be read by anybody: link and network headers, lengths, checksum.
fn well_formed(packet: &PacketBuf) -> Vec<u8> {
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
    bytes
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
            .map(|entry| run(&pool, &fs::read(entry.unwrap().path()).unwrap(), false).transmitted)
            .collect();
        // Two solicitations of routers or neighbours leave in any case.
        let silent = run(&pool, &[], false).transmitted;
        let answering = departed.iter().filter(|&&count| count > silent).count();
        assert!(answering >= 12, "{answering} of {} beyond {silent}", departed.len());
    }

    /// Datagrams for the echo service, over bare IP and of both families: the same ends often
    /// enough that they are expected, and some of them nearly right.
    #[test]
    fn datagrams_that_are_expected_have_the_outcome_of_the_general_path() {
        let pool = pool();
        for v6 in [false, true] {
            let mut data = Vec::new();
            for n in 0..24_u8 {
                let mut packet = datagram(v6);
                // From the twelfth on a bit is wrong, of each header field in turn.
                if n >= 12 {
                    let at = usize::from(n - 12) * packet.len() / 12;
                    packet[at] ^= 1 << (n % 8);
                }
                data.extend([1, packet.len() as u8, 0]);
                data.extend(packet);
            }
            stack_frame(&data);
            let [predicted, general] = [false, true].map(|general| run(&pool, &data, general));
            assert!(predicted.transmitted >= 12, "{}", predicted.counted);
            // Three looks or more at the headers of a datagram on the general path, one at best.
            let spared = general.borrows.saturating_sub(predicted.borrows);
            assert!(spared >= 10, "{} of {}", predicted.borrows, general.borrows);
        }
    }

    /// A datagram for port 7 of the host, with right checksums, as it comes over bare IP.
    fn datagram(v6: bool) -> Vec<u8> {
        let sum = |bytes: &[u8]| {
            let sum: u32 =
                bytes.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
            let sum = (sum & 0xffff) + (sum >> 16);
            (!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes()
        };
        let mut udp = vec![0x11, 0x22, 0, 7, 0, 12, 0, 0, b'a', b'b', b'c', b'd'];
        let mut addrs = if v6 {
            let addr = |n| [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n];
            [addr(9), addr(1)].concat()
        } else {
            vec![192, 0, 2, 9, 192, 0, 2, 1]
        };
        let pseudo = [&addrs[..], &[0, 17, 0, 12], &udp].concat();
        udp[6..8].copy_from_slice(&sum(&pseudo));
        let mut ip = if v6 {
            vec![0x60, 0, 0, 0, 0, 12, 17, 64]
        } else {
            vec![0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0]
        };
        ip.append(&mut addrs);
        if !v6 {
            let check = sum(&ip);
            ip[10..12].copy_from_slice(&check);
        }
        ip.append(&mut udp);
        ip
    }
}
