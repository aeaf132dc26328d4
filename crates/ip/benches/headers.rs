//! The cost of headers at any position: `ip::input` on a contiguous packet against the same parse
//! of a flat slice; prints medians and ratios.
//!
//! Run: `cargo bench -p floodwall-ip`. Both sides find the same addresses, the same upper layer and
//! the same offset in the same bytes (checked before the clock starts). Rounds are interleaved, so
//! that a change of clock speed hits both alike; numbers are nanoseconds per packet. The bar is a
//! ratio of 1.05: above it, the command fails.
#![expect(clippy::unwrap_used, reason = "a bench stops at the first surprise")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::ExitCode;
use std::time::Instant;

use floodwall_ip::input;
use floodwall_packet::{AccessCounters, PacketBuf, Pool, PoolConfig};
use floodwall_wire::{
    ExtensionLimits, ExtensionWalk, IpProtocol, Ipv4Fields, Ipv4Header, Ipv6Fields, Ipv6Header,
    WalkEnd,
};

const ROUNDS: usize = 301;
const PER_ROUND: usize = 20_000;
/// The link header before the packets.
const L3: usize = 14;
const BAR: f64 = 1.05;

/// Addresses, hop limit, protocol and offset of the upper layer, bytes of the packet.
type Found<A> = (A, A, u8, IpProtocol, usize, usize);

#[inline(never)]
fn flat_v4(bytes: &[u8]) -> Option<Found<Ipv4Addr>> {
    let bytes = bytes.get(L3..)?;
    let h = Ipv4Header::parse(bytes, bytes.len()).ok()?;
    if h.is_fragment() || h.header_len() > 20 {
        return None;
    }
    Some((h.src_addr(), h.dst_addr(), h.ttl(), h.protocol(), h.header_len(), h.total_len()))
}

#[inline(never)]
fn ours_v4(packet: &PacketBuf, access: &mut AccessCounters) -> Option<Found<Ipv4Addr>> {
    let heading = input::ipv4(packet, L3, access).ok()?;
    if heading.is_fragment {
        return None;
    }
    let upper = input::ipv4_upper(packet, L3, &heading, access).ok()?;
    let (src_addr, dst_addr) = (heading.src_addr, heading.dst_addr);
    Some((src_addr, dst_addr, heading.hop_limit, upper.protocol, upper.offset, heading.total_len))
}

#[inline(never)]
fn flat_v6(bytes: &[u8], limits: &ExtensionLimits) -> Option<Found<Ipv6Addr>> {
    let bytes = bytes.get(L3..)?;
    let h = Ipv6Header::parse(bytes, bytes.len()).ok()?;
    let (mut protocol, mut at) = (h.next_header(), 40);
    if protocol.is_extension() {
        let walk = ExtensionWalk::of_packet(&h, bytes.len(), *limits);
        match walk.run(bytes, |_, _| {}).ok()? {
            (WalkEnd::UpperLayer { protocol: last, offset, .. }, _) => {
                (protocol, at) = (last, offset);
            }
            _ => return None,
        }
    }
    Some((h.src_addr(), h.dst_addr(), h.hop_limit(), protocol, at, h.total_len()))
}

#[inline(never)]
fn ours_v6(
    packet: &PacketBuf,
    limits: &ExtensionLimits,
    access: &mut AccessCounters,
) -> Option<Found<Ipv6Addr>> {
    let heading = input::ipv6(packet, L3, access).ok()?;
    let layers = input::ipv6_upper(packet, L3, &heading, limits, access).ok()?;
    let input::Layers::Upper(upper) = layers else { return None };
    let (src_addr, dst_addr) = (heading.src_addr, heading.dst_addr);
    Some((src_addr, dst_addr, heading.hop_limit, upper.protocol, upper.offset, heading.total_len))
}

/// A UDP datagram of 64 bytes behind `headers`, in a frame.
fn frame(family: IpAddr, headers: &[(IpProtocol, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0; L3];
    let behind: usize = headers.iter().map(|(_, h)| h.len()).sum::<usize>() + 64;
    let first = headers.first().map_or(IpProtocol::UDP, |(kind, _)| *kind);
    match family {
        IpAddr::V4(addr) => {
            let mut out = [0; 20];
            Ipv4Fields::new(addr, addr, first, 64, 20 + behind as u16).emit(&mut out);
            bytes.extend(out);
        }
        IpAddr::V6(addr) => {
            let mut out = [0; 40];
            Ipv6Fields::new(addr, addr, first, 64, behind as u16).emit(&mut out);
            bytes.extend(out);
        }
    }
    for (n, (_, header)) in headers.iter().enumerate() {
        bytes.push(headers.get(n + 1).map_or(IpProtocol::UDP, |(kind, _)| *kind).0);
        bytes.extend(&header[1..]);
    }
    bytes.extend([7; 64]);
    bytes
}

fn time(mut act: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..PER_ROUND {
        act();
    }
    start.elapsed().as_nanos() as f64 / PER_ROUND as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Both sides in turn; false where ours is above the bar.
fn compare(what: &str, mut flat: impl FnMut(), mut ours: impl FnMut()) -> bool {
    let (mut of_flat, mut of_ours, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..ROUNDS {
        // The two variants alternate in order.
        let (a, b) = if n % 2 == 0 {
            let a = time(&mut flat);
            (a, time(&mut ours))
        } else {
            let b = time(&mut ours);
            (time(&mut flat), b)
        };
        of_flat.push(a);
        of_ours.push(b);
        ratios.push(b / a);
    }
    let (a, b, ratio) = (median(of_flat), median(of_ours), median(ratios));
    let kept = ratio <= BAR;
    println!("{what:<28} {a:7.2} {b:7.2} {ratio:6.3}  {}", if kept { "" } else { "ABOVE" });
    kept
}

fn main() -> ExitCode {
    let pool = Pool::new(&PoolConfig { small: 8, frames: 8, ..PoolConfig::default() }).unwrap();
    let (v4, v6) = (Ipv4Addr::new(10, 0, 0, 1), Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1));
    let padding = [0, 0, 1, 4, 0, 0, 0, 0];
    let routing = [0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let three: [(IpProtocol, &[u8]); 3] = [
        (IpProtocol::HOP_BY_HOP, &padding),
        (IpProtocol::ROUTING, &routing),
        (IpProtocol::DESTINATION_OPTIONS, &padding),
    ];
    let (mut access, limits) = (AccessCounters::default(), ExtensionLimits::default());
    println!("{:<28} {:>7} {:>7} {:>6}", "", "flat", "packet", "ratio");
    let bytes = frame(v4.into(), &[]);
    let packet = pool.packet_from(&bytes).unwrap();
    assert_eq!(flat_v4(&bytes), ours_v4(&packet, &mut access));
    let mut all = compare(
        "IPv4",
        || {
            black_box(flat_v4(black_box(&bytes)));
        },
        || {
            black_box(ours_v4(black_box(&packet), &mut access));
        },
    );
    for (what, headers) in [("IPv6", &three[..0]), ("IPv6, one header", &three[..1])]
        .into_iter()
        .chain([("IPv6, three headers", &three[..])])
    {
        let bytes = frame(v6.into(), headers);
        let packet = pool.packet_from(&bytes).unwrap();
        assert!(flat_v6(&bytes, &limits).is_some());
        assert_eq!(flat_v6(&bytes, &limits), ours_v6(&packet, &limits, &mut access));
        all &= compare(
            what,
            || {
                black_box(flat_v6(black_box(&bytes), black_box(&limits)));
            },
            || {
                black_box(ours_v6(black_box(&packet), black_box(&limits), &mut access));
            },
        );
    }
    if all { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
