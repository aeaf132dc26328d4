//! Our own addresses and those of broadcasts: a SYN from one of them is not answered.
//!
//! Read from `/proc` at the start and once a second. Bound: `ADDRESSES_MAX`; beyond it the plain
//! checks of the programs remain.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Addresses that the programs are told at most.
pub(crate) const ADDRESSES_MAX: u32 = 1024;

/// All of them, IPv4 as IPv6 has it (RFC 4291 section 2.5.5.2).
pub(crate) fn read() -> BTreeSet<[u8; 16]> {
    let trie = fs::read_to_string("/proc/thread-self/net/fib_trie").unwrap_or_default();
    let six = fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap_or_default();
    let all = of_trie(&trie).map(|addr| addr.to_ipv6_mapped().octets());
    all.chain(six.lines().filter_map(of_line)).take(ADDRESSES_MAX as usize).collect()
}

/// The IPv4 addresses of the kernel's routing table that are ours or of a broadcast.
fn of_trie(text: &str) -> impl Iterator<Item = Ipv4Addr> + '_ {
    let mut last = None;
    text.lines().filter_map(move |line| {
        let line = line.trim_start();
        if let Some(addr) = line.strip_prefix("|-- ") {
            last = addr.parse().ok();
            return None;
        }
        let is_host = line.starts_with("/32 ");
        let is_ours = line.ends_with(" LOCAL") || line.ends_with(" BROADCAST");
        last.filter(|_| is_host && is_ours)
    })
}

fn of_line(line: &str) -> Option<[u8; 16]> {
    let word = line.split_whitespace().next()?;
    u128::from_str_radix(word, 16).ok().map(|bits| Ipv6Addr::from_bits(bits).octets())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_broadcasts_are_found_and_networks_are_not() {
        let text = [
            "     |-- 10.0.0.0",
            "        /24 link UNICAST",
            "     |-- 10.0.0.1",
            "        /32 host LOCAL",
            "     |-- 10.0.0.255",
            "        /32 link BROADCAST",
        ]
        .join("\n");
        let found: Vec<_> = of_trie(&text).collect();
        assert_eq!(found, [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 255)]);
        let line = "fe8000000000000000000000000000aa 02 40 20 80     eth0";
        assert_eq!(of_line(line), Some("fe80::aa".parse::<Ipv6Addr>().unwrap().octets()));
    }
}
