//! The cost of finding the worker that owns a frame; prints medians.
//!
//! Run: `cargo bench -p floodwall-wire --bench steer`. Plain frames of both families with ports
//! that differ, so that the branch predictor learns no answer; fragments, echoes and errors beside
//! them. Rounds are interleaved; numbers are nanoseconds per frame. "The hash alone" is the keyed
//! function over a flow that is at hand: the rest is reading.
#![expect(clippy::unwrap_used, reason = "a bench stops at the first surprise")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::hint::black_box;
use std::net::SocketAddr;
use std::time::Instant;

use floodwall_base::{HashKey, MacAddr, Steering};
use floodwall_wire::*;

fn frame(v6: bool, protocol: IpProtocol, body: &[u8]) -> Vec<u8> {
    let mut link = [0; 14];
    let (dst_addr, src_addr) = (MacAddr([2, 0, 0, 0, 0, 2]), MacAddr([2, 0, 0, 0, 0, 1]));
    let ether_type = if v6 { EtherType::IPV6 } else { EtherType::IPV4 };
    EthernetFields { dst_addr, src_addr, ether_type }.emit(&mut link);
    if v6 {
        let (a, b) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        let mut ip = [0; 40];
        Ipv6Fields::new(a, b, protocol, 64, body.len() as u16).emit(&mut ip);
        return [&link[..], &ip, body].concat();
    }
    let mut ip = [0; 20];
    let (a, b) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
    Ipv4Fields::new(a, b, protocol, 64, 20 + body.len() as u16).emit(&mut ip);
    [&link[..], &ip, body].concat()
}

fn udp(v6: bool, port: u16) -> Vec<u8> {
    let body = [&port.to_be_bytes()[..], &[0, 53, 0, 20, 0, 0], &[7; 12]].concat();
    frame(v6, IpProtocol::UDP, &body)
}

/// An error about such a datagram.
fn error(v6: bool, port: u16) -> Vec<u8> {
    let (kind, protocol) = if v6 { (1, IpProtocol::ICMPV6) } else { (3, IpProtocol::ICMPV4) };
    let quoted = udp(v6, port);
    frame(v6, protocol, &[&[kind, 0, 0, 0, 0, 0, 0, 0][..], &quoted[14..]].concat())
}

fn nanoseconds(frames: &[Vec<u8>], mut ask: impl FnMut(&[u8]) -> u16) -> f64 {
    const CALLS: usize = 200_000;
    let start = Instant::now();
    let mut sum = 0_u64;
    for frame in frames.iter().cycle().take(CALLS) {
        sum += u64::from(ask(black_box(frame)));
    }
    black_box(sum);
    start.elapsed().as_nanos() as f64 / CALLS as f64
}

fn main() {
    const ROUNDS: usize = 15;
    let steering = Steering::new(HashKey::new(3, 4), 4);
    let all = |make: &dyn Fn(u16) -> Vec<u8>| (1024..1280).map(make).collect::<Vec<_>>();
    let kinds = [
        ("IPv4 UDP", all(&|port| udp(false, port))),
        ("IPv6 UDP", all(&|port| udp(true, port))),
        ("IPv4 error about UDP", all(&|port| error(false, port))),
        ("IPv6 error about UDP", all(&|port| error(true, port))),
        ("ARP", vec![[&[2; 12][..], &[8, 6], &[0; 46]].concat()]),
    ];
    let ends: (SocketAddr, SocketAddr) =
        ("192.0.2.1:1024".parse().unwrap(), "192.0.2.2:53".parse().unwrap());
    let mut times = vec![Vec::new(); kinds.len() + 1];
    for _ in 0..ROUNDS {
        let (alone, rest) = times.split_first_mut().unwrap();
        alone.push(nanoseconds(&kinds[0].1, |_| {
            let (from, to) = black_box(ends);
            steering.flow(from, to, 17).0
        }));
        for ((_, frames), times) in kinds.iter().zip(rest) {
            times.push(nanoseconds(frames, |frame| steer::frame(&steering, frame).0));
        }
    }
    let names = ["the hash alone"].into_iter().chain(kinds.iter().map(|(name, _)| *name));
    for (name, times) in names.zip(&mut times) {
        times.sort_by(f64::total_cmp);
        println!("{name:<22} {:6.2} ns", times[times.len() / 2]);
    }
}
