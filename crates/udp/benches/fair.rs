//! What fair drop costs a datagram: nanoseconds of one question, where the socket is calm, where it
//! is pressed and grants, where it refuses; sources of both families out of many prefixes.
//!
//! Run: `cargo bench -p floodwall-udp --bench fair`. Medians of rounds.
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use floodwall_base::{Family, HashKey, PublicRandom};
use floodwall_udp::{Ask, Demand, FairShare, Standing};

const ROUNDS: usize = 15;
const ASKS: usize = 20_000;
const LIMIT: u64 = 212_992;

fn main() {
    println!("{:28} {:>8} {:>8}", "ns a datagram", "ten", "million");
    for family in [Family::V4, Family::V6] {
        for (name, used) in [
            ("calm", LIMIT / 10),
            ("pressed, first half", LIMIT / 2),
            ("pressed, last quarter", 4 * LIMIT / 5),
            ("full but for the reserve", LIMIT - 100),
        ] {
            let of = |sources| measure(family, used, sources);
            println!("{:28} {:8.1} {:8.1}", format!("{family:?} {name}"), of(10), of(1_000_000));
        }
    }
}

fn measure(family: Family, used: u64, sources: u64) -> f64 {
    let mut random = PublicRandom::new(3);
    let asks: Vec<Ask> = (0..ASKS)
        .map(|_| {
            let n = random.below(sources) as u32;
            let source: IpAddr = match family {
                Family::V4 => Ipv4Addr::from_bits(0x0b00_0000 + n * 256).into(),
                Family::V6 => Ipv6Addr::from_bits(u128::from(n) << 80 | 1).into(),
            };
            Ask { source, socket: 7, true_size: 384, used, limit: LIMIT }
        })
        .collect();
    let mut fair = FairShare::new(HashKey::new(1, 2));
    let mut demand = Demand::default();
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|round| {
            fair.begin(floodwall_base::Instant::from_nanos(round as u64 * 10_000_000));
            let start = Instant::now();
            for ask in &asks {
                black_box(fair.grants(black_box(ask), &mut demand, || Standing::Stranger));
            }
            start.elapsed().as_nanos() as f64 / ASKS as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}
