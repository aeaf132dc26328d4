//! The cost of fair drop per datagram: nanoseconds of one decision, where the socket is calm, where
//! it is pressed and grants, where it refuses, and where ten times as many arrive as are read, so
//! that the result is hard to predict for the processor; sources of both families out of many
//! prefixes.
//!
//! Run: `cargo bench -p floodwall-udp --bench fair`. Medians of rounds, and the minimum, which
//! excludes the load of other programs on the machine. The aim is 20 ns.
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use floodwall_base::{Family, HashKey, PublicRandom};
use floodwall_udp::{FairRequest, FairShare, SenderStanding, ShareDemand};

const ROUNDS: usize = 45;
const ASKS: usize = 20_000;
const LIMIT: u64 = 212_992;
const SIZE: u32 = 384;

/// What a socket holds.
#[derive(Clone, Copy)]
enum Used {
    Always(u64),
    /// What was granted and not read: one is read while ten come.
    Flooded,
}

fn main() {
    println!("{:28} {:>16} {:>16}", "ns a datagram", "ten (least)", "million (least)");
    for family in [Family::V4, Family::V6] {
        for (name, used) in [
            ("calm", Used::Always(LIMIT / 10)),
            ("pressed, first half", Used::Always(LIMIT / 2)),
            ("pressed, past the half", Used::Always(13 * LIMIT / 25)),
            ("pressed, last quarter", Used::Always(4 * LIMIT / 5)),
            ("full but for the reserve", Used::Always(LIMIT - 100)),
            ("flooded tenfold", Used::Flooded),
        ] {
            let of = |sources| {
                let (median, least) = measure(family, used, sources);
                format!("{median:.1} ({least:.1})")
            };
            println!("{:28} {:>16} {:>16}", format!("{family:?} {name}"), of(10), of(1_000_000));
        }
    }
}

fn measure(family: Family, used: Used, sources: u64) -> (f64, f64) {
    let mut random = PublicRandom::new(3);
    let mut asks: Vec<FairRequest> = (0..ASKS)
        .map(|_| {
            let n = random.below(sources) as u32;
            let source: IpAddr = match family {
                Family::V4 => Ipv4Addr::from_bits(0x0b00_0000 + n * 256).into(),
                Family::V6 => Ipv6Addr::from_bits(u128::from(n) << 80 | 1).into(),
            };
            FairRequest { source, socket: 7, true_size: SIZE, used: 0, limit: LIMIT }
        })
        .collect();
    let mut fair = FairShare::new(HashKey::new(1, 2));
    let (mut demand, mut held) = (ShareDemand::default(), 0);
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|round| {
            fair.begin(floodwall_base::Instant::from_nanos(round as u64 * 10_000_000));
            let start = Instant::now();
            for (n, ask) in asks.iter_mut().enumerate() {
                ask.used = match used {
                    Used::Always(used) => used,
                    Used::Flooded => held,
                };
                let granted = fair.grants(black_box(ask), &mut demand, || SenderStanding::Unknown);
                held += u64::from(black_box(granted)) * u64::from(SIZE);
                held -= u64::from(n % 10 == 9) * held.min(u64::from(SIZE));
            }
            start.elapsed().as_nanos() as f64 / ASKS as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    (rounds[ROUNDS / 2], rounds[0])
}
