//! A whole frame validated, against the parsers of three other crates; prints medians and ratios.
//!
//! Run: `cargo bench -p floodwall-wire`. Every rival finds the same ports and the same payload
//! length in the same frames (checked before the clock starts). What each does for it differs and
//! is stated in its comment; none verifies the checksum of the payload. Rounds are interleaved, so
//! that a change of clock speed hits all alike; numbers are nanoseconds per frame.
#![expect(clippy::unwrap_used, reason = "a bench stops at the first surprise")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::hint::black_box;
use std::time::Instant;

use floodwall_base::MacAddr;
use floodwall_checksum::InternetSum;
use floodwall_wire::tcp_options::{TcpOptionSet, Timestamps};
use floodwall_wire::*;

/// Ports and payload length, or `None` if the frame was refused.
type Answer = Option<(u16, u16, usize)>;

/// A parser of Ethernet frames.
type Parser = fn(&[u8]) -> Answer;

/// No parser at all: what calling one costs.
fn nothing(frame: &[u8]) -> Answer {
    Some((0, 0, frame.len()))
}

/// Everything checked, IPv4 header checksum and lengths included.
fn floodwall(frame: &[u8]) -> Answer {
    let valid = validate(frame).ok()?;
    Some((valid.src_port, valid.dst_port, (valid.end - valid.payload) as usize))
}

/// Minimum sizes only: no version, no length field against the packet, no checksum.
fn pnet(frame: &[u8]) -> Answer {
    use pnet_packet::Packet;
    use pnet_packet::ethernet::{EtherTypes, EthernetPacket};
    use pnet_packet::ip::IpNextHeaderProtocols;
    use pnet_packet::tcp::TcpPacket;
    use pnet_packet::udp::UdpPacket;

    let ethernet = EthernetPacket::new(frame)?;
    let upper = |protocol, bytes: &[u8]| match protocol {
        IpNextHeaderProtocols::Udp => {
            let udp = UdpPacket::new(bytes)?;
            Some((udp.get_source(), udp.get_destination(), udp.payload().len()))
        }
        IpNextHeaderProtocols::Tcp => {
            let tcp = TcpPacket::new(bytes)?;
            Some((tcp.get_source(), tcp.get_destination(), tcp.payload().len()))
        }
        _ => None,
    };
    match ethernet.get_ethertype() {
        EtherTypes::Ipv6 => {
            let ip = pnet_packet::ipv6::Ipv6Packet::new(ethernet.payload())?;
            upper(ip.get_next_header(), ip.payload())
        }
        EtherTypes::Ipv4 => {
            let ip = pnet_packet::ipv4::Ipv4Packet::new(ethernet.payload())?;
            upper(ip.get_next_level_protocol(), ip.payload())
        }
        _ => None,
    }
}

/// Lengths and versions checked; no checksum.
fn etherparse(frame: &[u8]) -> Answer {
    use etherparse::{SlicedPacket, TransportSlice};
    match SlicedPacket::from_ethernet(frame).ok()?.transport? {
        TransportSlice::Udp(udp) => {
            Some((udp.source_port(), udp.destination_port(), udp.payload().len()))
        }
        TransportSlice::Tcp(tcp) => {
            Some((tcp.source_port(), tcp.destination_port(), tcp.payload().len()))
        }
        _ => None,
    }
}

/// Lengths, versions, and the IPv4 header checksum as ours; not the payload's.
fn smoltcp(frame: &[u8]) -> Answer {
    use smoltcp::wire::{
        EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Packet, Ipv6Packet, TcpPacket, UdpPacket,
    };
    let ethernet = EthernetFrame::new_checked(frame).ok()?;
    let upper = |protocol, bytes: &[u8]| match protocol {
        IpProtocol::Udp => {
            let udp = UdpPacket::new_checked(bytes).ok()?;
            Some((udp.src_port(), udp.dst_port(), udp.payload().len()))
        }
        IpProtocol::Tcp => {
            let tcp = TcpPacket::new_checked(bytes).ok()?;
            Some((tcp.src_port(), tcp.dst_port(), tcp.payload().len()))
        }
        _ => None,
    };
    match ethernet.ethertype() {
        EthernetProtocol::Ipv6 => {
            let ip = Ipv6Packet::new_checked(ethernet.payload()).ok()?;
            if ip.version() != 6 {
                return None;
            }
            upper(ip.next_header(), ip.payload())
        }
        EthernetProtocol::Ipv4 => {
            let ip = Ipv4Packet::new_checked(ethernet.payload()).ok()?;
            if ip.version() != 4 || !ip.verify_checksum() {
                return None;
            }
            upper(ip.next_header(), ip.payload())
        }
        _ => None,
    }
}

fn upper(protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
    let mut out = [0; 60];
    let len = if protocol == IpProtocol::UDP {
        let fields = UdpFields { src_port: 4000, dst_port: 7001, len: 8 + payload.len() as u16 };
        fields.emit_without_checksum(out.first_chunk_mut().unwrap());
        8
    } else {
        let timestamps = Some(Timestamps { value: 1, echo: 2 });
        let options = TcpOptionSet { timestamps, ..TcpOptionSet::NONE };
        let (flags, window, urgent) = (TcpFlags::ACK, 1000, 0);
        let fields =
            TcpFields { src_port: 4000, dst_port: 80, seq: 1, ack: 2, flags, window, urgent };
        fields.emit(&options, InternetSum::ZERO, InternetSum::ZERO, &mut out).unwrap()
    };
    [&out[..len], payload].concat()
}

fn frame(ether_type: EtherType, protocol: IpProtocol) -> Vec<u8> {
    let body = upper(protocol, &[7; 64]);
    let mut link = [0; 14];
    let (dst_addr, src_addr) = (MacAddr([2, 0, 0, 0, 0, 2]), MacAddr([2, 0, 0, 0, 0, 1]));
    EthernetFields { dst_addr, src_addr, ether_type }.emit(&mut link);
    if ether_type == EtherType::IPV6 {
        let (a, b) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        let mut ip = [0; 40];
        Ipv6Fields::new(a, b, protocol, 64, body.len() as u16).emit(&mut ip);
        return [&link[..], &ip, &body].concat();
    }
    let mut ip = [0; 20];
    let (a, b) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
    Ipv4Fields::new(a, b, protocol, 64, 20 + body.len() as u16).emit(&mut ip);
    [&link[..], &ip, &body].concat()
}

fn nanoseconds(frames: &[Vec<u8>], parse: Parser) -> f64 {
    const CALLS: usize = 200_000;
    let start = Instant::now();
    for frame in frames.iter().cycle().take(CALLS) {
        black_box(parse(black_box(frame)));
    }
    start.elapsed().as_nanos() as f64 / CALLS as f64
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    const ROUNDS: usize = 15;
    const PARSERS: [(&str, Parser); 5] = [
        ("the call alone", nothing),
        ("floodwall", floodwall),
        ("pnet_packet", pnet),
        ("etherparse", etherparse),
        ("smoltcp", smoltcp),
    ];
    for (name, ether_type, protocol) in [
        ("IPv6 UDP", EtherType::IPV6, IpProtocol::UDP),
        ("IPv4 UDP", EtherType::IPV4, IpProtocol::UDP),
        ("IPv6 TCP", EtherType::IPV6, IpProtocol::TCP),
        ("IPv4 TCP", EtherType::IPV4, IpProtocol::TCP),
    ] {
        let frames = vec![frame(ether_type, protocol); 64];
        let want = floodwall(&frames[0]);
        assert!(want.is_some_and(|(.., len)| len == 64));
        for (rival, parse) in PARSERS.iter().skip(1) {
            assert_eq!(parse(&frames[0]), want, "{rival} {name}");
        }
        let mut times = [const { Vec::new() }; 5];
        for _ in 0..ROUNDS {
            for ((_, parse), times) in PARSERS.iter().zip(&mut times) {
                times.push(nanoseconds(&frames, *parse));
            }
        }
        let medians = times.each_mut().map(|times| median(times));
        let [call, ours, ..] = medians;
        println!("{name}");
        for ((parser, _), time) in PARSERS.iter().zip(medians) {
            let (all, net) = (ours / time, (ours - call) / (time - call));
            println!("  {parser:<15} {time:6.2} ns   ours / it {all:.2}   less the call {net:.2}");
        }
    }
}
