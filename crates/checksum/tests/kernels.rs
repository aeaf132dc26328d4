//! Holds every kernel and every way of combining sums against a naive 16-bit oracle.

use std::net::{Ipv4Addr, Ipv6Addr};

use floodwall_checksum::{
    Accumulator, InternetSum, copy_sum, header20, header40, kernels, pseudo_header_v4,
    pseudo_header_v6, sum, update16, update32,
};
use proptest::prelude::*;

/// RFC 1071, word by word, with end-around carry at each step.
fn oracle(bytes: &[u8]) -> u16 {
    let mut total = 0u32;
    for pair in bytes.chunks(2) {
        let low = pair.get(1).copied().unwrap_or(0);
        total += u32::from(u16::from_be_bytes([pair[0], low]));
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// The folded value of a kernel's raw sum, of any width.
fn folded(raw: u64) -> u16 {
    let mut value = raw;
    while value > 0xffff {
        value = (value & 0xffff) + (value >> 16);
    }
    (value as u16).swap_bytes()
}

fn check_all(bytes: &[u8]) {
    let want = oracle(bytes);
    assert_eq!(sum(bytes).fold(), want, "dispatch, {} bytes", bytes.len());
    assert_eq!(folded(kernels::sum_scalar(bytes)), want, "scalar, {} bytes", bytes.len());
    #[cfg(target_arch = "x86_64")]
    {
        assert_eq!(folded(kernels::sum_sse2(bytes)), want, "sse2, {} bytes", bytes.len());
        if let Some(raw) = kernels::sum_avx2(bytes) {
            assert_eq!(folded(raw), want, "avx2, {} bytes", bytes.len());
        }
    }
}

fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn every_length_and_alignment_agrees_with_the_oracle() {
    let bytes = noise(4096 + 32);
    for len in 0..=4096 {
        check_all(&bytes[len % 32..][..len]);
    }
    for start in 0..32 {
        for len in (0..200).chain([1459, 1460, 1461, 2047, 4095, 4096]) {
            check_all(&bytes[start..][..len]);
        }
    }
}

#[test]
fn all_ones_and_all_zeros_agree_with_the_oracle() {
    for len in 0..=4096 {
        check_all(&vec![0xff; len]);
        check_all(&vec![0; len]);
    }
    for len in [65_535, 65_536, 65_537, 1 << 20, (1 << 20) + 13] {
        check_all(&vec![0xff; len]);
        check_all(&vec![0; len]);
        check_all(&noise(len));
    }
}

#[test]
fn fixed_headers_agree_with_the_oracle() {
    let bytes = noise(400);
    for start in 0..360 {
        let header: &[u8; 20] = bytes[start..].first_chunk().unwrap();
        assert_eq!(header20(header).fold(), oracle(header));
        let header: &[u8; 40] = bytes[start..].first_chunk().unwrap();
        assert_eq!(header40(header).fold(), oracle(header));
    }
    assert_eq!(header20(&[0xff; 20]).fold(), 0xffff);
    assert_eq!(header40(&[0xff; 40]).fold(), 0xffff);
}

#[test]
fn copying_copies_and_sums_what_both_sides_can_hold() {
    for (into_len, from_len) in [(0, 0), (5, 9), (9, 5), (20_001, 20_001), (8193, 30_000)] {
        let from = noise(from_len);
        let mut into = vec![0; into_len];
        let len = into_len.min(from_len);
        assert_eq!(copy_sum(&mut into, &from).fold(), oracle(&from[..len]));
        assert_eq!(into[..len], from[..len]);
        assert!(into[len..].iter().all(|&b| b == 0));
    }
}

#[test]
fn copies_of_every_length_and_alignment_are_summed_and_whole() {
    let from = noise(2048 + 64);
    for len in 0..=2048 {
        let (at, to) = (len % 33, len % 31);
        let bytes = &from[at..][..len];
        let mut into = vec![0xa5; 2048 + 64];
        assert_eq!(copy_sum(&mut into[to..][..len], bytes).fold(), oracle(bytes), "{len} bytes");
        assert_eq!(into[to..][..len], *bytes, "{len} bytes");
        let around = into[..to].iter().chain(&into[to + len..]);
        assert!(around.copied().all(|byte| byte == 0xa5), "{len} bytes");
    }
}

#[test]
fn a_known_ipv4_header_has_its_known_checksum() {
    let header =
        [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 192, 168, 0, 1, 192, 168, 0, 199u8];
    assert_eq!(header20(&header).finish(), 0xb861);
}

#[test]
fn pseudo_headers_are_the_sums_of_their_bytes() {
    let (a, b) = (Ipv4Addr::new(255, 255, 254, 1), Ipv4Addr::new(192, 0, 2, 255));
    let mut bytes = [a.octets(), b.octets()].concat();
    bytes.extend([0, 17, 0xff, 0xfe]);
    assert_eq!(pseudo_header_v4(a, b, 17, 0xfffe).fold(), oracle(&bytes));

    let a: Ipv6Addr = "fd00:ffff:ffff:ffff:ffff:ffff:ffff:ffff".parse().unwrap();
    let b: Ipv6Addr = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:1".parse().unwrap();
    let mut bytes = [a.octets(), b.octets()].concat();
    bytes.extend([0x00, 0x01, 0xff, 0xfd, 0, 0, 0, 58]);
    assert_eq!(pseudo_header_v6(a, b, 58, 0x1_fffd).fold(), oracle(&bytes));
}

proptest! {
    #[test]
    fn chunks_of_any_length_sum_like_the_whole(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..8)
    ) {
        let whole = chunks.concat();
        let mut all = Accumulator::new();
        let mut by_sums = InternetSum::ZERO;
        let mut offset = 0;
        for chunk in &chunks {
            all.add(chunk);
            by_sums = by_sums.append(offset % 2 == 1, sum(chunk));
            offset += chunk.len();
        }
        prop_assert_eq!(all.sum().fold(), oracle(&whole));
        prop_assert_eq!(by_sums.fold(), oracle(&whole));
        prop_assert_eq!(all.finish(), !oracle(&whole));
    }

    #[test]
    fn patched_checksums_verify(
        mut bytes in prop::collection::vec(any::<u8>(), 20),
        at in 1usize..5,
        new16: u16,
        new32: u32,
    ) {
        bytes[0] |= 1; // A packet is never all zeros, and then its sum is never zero.
        bytes[18..].fill(0);
        let check = sum(&bytes).finish();
        bytes[18..].copy_from_slice(&check.to_be_bytes());
        prop_assert!(sum(&bytes).verifies());

        let field = at * 2;
        let old16 = u16::from_be_bytes([bytes[field], bytes[field + 1]]);
        bytes[field..field + 2].copy_from_slice(&new16.to_be_bytes());
        let check = update16(check, old16, new16);
        bytes[18..].copy_from_slice(&check.to_be_bytes());
        prop_assert!(sum(&bytes).verifies());

        let field = 10;
        let old32 = u32::from_be_bytes(*bytes[field..].first_chunk().unwrap());
        bytes[field..field + 4].copy_from_slice(&new32.to_be_bytes());
        let check = update32(check, old32, new32);
        bytes[18..].copy_from_slice(&check.to_be_bytes());
        prop_assert!(sum(&bytes).verifies());
    }
}
