//! The checksum against a plain 64-bit loop, interleaved; prints medians and ratios.
//!
//! Run: `cargo bench -p floodwall-checksum`. Numbers are nanoseconds per call with the bytes in
//! the first-level cache (64 KiB: second level).
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::hint::black_box;
use std::time::Instant;

use floodwall_checksum::{copy_sum, header20, kernels, sum};

/// The baseline: one 64-bit word at a time, with end-around carry.
fn plain(bytes: &[u8]) -> u64 {
    let (words, tail) = bytes.as_chunks::<8>();
    let mut total = 0u64;
    for word in words {
        let (value, carry) = total.overflowing_add(u64::from_le_bytes(*word));
        total = value + u64::from(carry);
    }
    let mut last = [0; 8];
    last[..tail.len()].copy_from_slice(tail);
    let (value, carry) = total.overflowing_add(u64::from_le_bytes(last));
    value + u64::from(carry)
}

fn folded(raw: u64) -> u16 {
    let mut value = raw;
    while value > 0xffff {
        value = (value & 0xffff) + (value >> 16);
    }
    (value as u16).swap_bytes()
}

fn nanoseconds(calls: u32, mut call: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..calls {
        call();
    }
    start.elapsed().as_nanos() as f64 / f64::from(calls)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    const ROUNDS: usize = 9;
    println!("bytes     plain64  scalar   sse2     avx2     sum      copy_sum  sum/plain");
    for len in [20usize, 40, 64, 127, 128, 256, 576, 1460, 9000, 65_536] {
        let bytes: Vec<u8> = (0..len).map(|i| (i * 167 + i / 251) as u8).collect();
        let mut copy = vec![0; len];
        assert_eq!(folded(plain(&bytes)), sum(&bytes).fold());
        assert_eq!(copy_sum(&mut copy, &bytes).fold(), sum(&bytes).fold());
        let calls = (20_000_000 / (len + 64)) as u32;
        let mut times = [const { Vec::new() }; 6];
        for _ in 0..ROUNDS {
            let b = &bytes;
            times[0].push(nanoseconds(calls, || _ = black_box(plain(black_box(b)))));
            times[1].push(nanoseconds(calls, || _ = black_box(kernels::sum_scalar(black_box(b)))));
            times[2].push(nanoseconds(calls, || _ = black_box(kernels::sum_sse2(black_box(b)))));
            times[3].push(nanoseconds(calls, || _ = black_box(kernels::sum_avx2(black_box(b)))));
            times[4].push(nanoseconds(calls, || _ = black_box(sum(black_box(b)).finish())));
            times[5].push(nanoseconds(calls, || {
                _ = black_box(copy_sum(black_box(&mut copy), black_box(b)));
            }));
        }
        let [a, b, c, d, e, f] = times.each_mut().map(|values| median(values));
        let ratio = e / a;
        println!("{len:<9} {a:<8.1} {b:<8.1} {c:<8.1} {d:<8.1} {e:<8.1} {f:<9.1} {ratio:.2}");
    }
    let header = [0x45u8; 20];
    let fixed = nanoseconds(1_000_000, || _ = black_box(header20(black_box(&header)).verifies()));
    println!("header20  {fixed:.1}");
}
