//! The Internet's routing table, as `data/bgp` has it, and packets to wherever it leads.
//!
//! Called by benches of routers. The prefixes lead to sixteen neighbours on the right of `transit`,
//! in turn; destinations are random addresses within random prefixes. Invariant: the same number
//! gives the same frames. Not here: tables that a test makes up.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};

use floodwall_base::{Address, Family, Instant, Prefix, PublicRandom};
use floodwall_fib::{Fib, Route, lpm};
use floodwall_wire::IpProtocol;

use crate::craft::{PEER, addr, udp};
use crate::transit::{RIGHT, from_left, right};

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/bgp/prefixes.txt.gz");
/// Neighbours that the table leads to, and the number of the first.
pub const NEIGHBORS: u8 = 16;
/// See [`NEIGHBORS`].
pub const FIRST: u8 = 100;
/// What the packets carry.
pub const PROTOCOL: IpProtocol = IpProtocol::UDP;

/// The prefixes of one family, `at_most` of them.
///
/// # Panics
/// The table is not there.
#[must_use]
pub fn prefixes<A: Address>(at_most: usize) -> Vec<Prefix<A>> {
    let file = File::open(TABLE).expect("data/bgp is in the repository");
    let mut found = Vec::new();
    for line in BufReader::new(flate2::read::GzDecoder::new(file)).lines() {
        let line = line.expect("text");
        let Some((addr, len)) = line.split_once('/') else { continue };
        let (Ok(addr), Ok(len)) = (addr.parse::<IpAddr>(), len.parse()) else { continue };
        if let Some(addr) = A::from_ip(addr) {
            found.extend(Prefix::new(addr, len));
        }
    }
    let step = found.len().div_ceil(at_most).max(1);
    found.into_iter().step_by(step).collect()
}

/// Routes for them.
///
/// # Panics
/// Never: neighbours are of the family.
pub fn fill<A: lpm::LpmFamily>(fib: &mut Fib<A>, prefixes: &[Prefix<A>], now: Instant) {
    for (n, prefix) in prefixes.iter().enumerate() {
        let via = right(A::FAMILY, FIRST + (n % usize::from(NEIGHBORS)) as u8);
        let gateway = A::from_ip(via).expect("of this family");
        // A few of the table's are given twice.
        let _ = fib.append(Route::via(*prefix, RIGHT, gateway), now);
    }
}

/// Frames of 64 bytes, with the frame's checksum that no wire here has, to random addresses within
/// random prefixes; and the addresses.
#[must_use]
pub fn frames<A: Address>(
    prefixes: &[Prefix<A>],
    count: usize,
    random: &mut PublicRandom,
) -> (Vec<Vec<u8>>, Vec<A>) {
    let (mut frames, mut addrs) = (Vec::new(), Vec::new());
    while frames.len() < count {
        let prefix = prefixes[random.below(prefixes.len() as u64) as usize];
        let bits = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
        let host = bits.checked_shr(u32::from(prefix.len())).unwrap_or(0);
        let to = A::from_bits_aligned(prefix.addr().to_bits_aligned() | host);
        if to.is_group() || to.is_link_scope() || to.is_loopback_addr() {
            continue;
        }
        let payload = if A::FAMILY == Family::V4 { 22 } else { 2 };
        let from = SocketAddr::new(addr(A::FAMILY, PEER), 4000);
        let packet = udp(from, SocketAddr::new(to.to_ip(), 9), &vec![0; payload]);
        frames.push(from_left(&packet));
        addrs.push(to);
    }
    (frames, addrs)
}
