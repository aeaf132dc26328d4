//! The pseudo-headers that UDP, TCP and ICMPv6 checksums begin with.
//!
//! Called by `wire` and the protocol engines. Invariant: both are sums of an even number of
//! bytes. Read first: RFC 768 and RFC 9293 section 3.1 (IPv4), RFC 8200 section 8.1 (IPv6).

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::InternetSum;
use crate::scalar::fold128;

/// The sum of an IPv4 pseudo-header; `len` is the upper-layer header and payload in bytes.
#[inline]
pub const fn pseudo_header_v4(
    src_addr: Ipv4Addr,
    dst_addr: Ipv4Addr,
    protocol: u8,
    len: u16,
) -> InternetSum {
    let addrs =
        u32::from_le_bytes(src_addr.octets()) as u64 + u32::from_le_bytes(dst_addr.octets()) as u64;
    InternetSum(addrs + InternetSum::of_u16(protocol as u16).0 + InternetSum::of_u16(len).0)
}

/// The sum of an IPv6 pseudo-header; `len` is the upper-layer header and payload in bytes.
///
/// `dst_addr` is the final destination, `protocol` the upper-layer protocol: neither is
/// necessarily that of the IPv6 header itself.
#[inline]
pub const fn pseudo_header_v6(
    src_addr: Ipv6Addr,
    dst_addr: Ipv6Addr,
    protocol: u8,
    len: u32,
) -> InternetSum {
    let (from, to) =
        (u128::from_le_bytes(src_addr.octets()), u128::from_le_bytes(dst_addr.octets()));
    let rest = InternetSum::of_u16(protocol as u16).0 + InternetSum::of_u32(len).0;
    let (low, high) = (u64::MAX as u128, 64);
    let addrs = (from & low) + (from >> high) + (to & low) + (to >> high);
    InternetSum(fold128(addrs + rest as u128))
}
