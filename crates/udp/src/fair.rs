//! `FairShare`: whose datagram a socket takes while more come than are read.
//!
//! For intakes, between the port look-up and anything that is spent on the datagram (decision E24).
//! A pure value: time comes in, a verdict goes out. Half of a socket's bytes are for whoever comes
//! first, as everywhere. Of the other half a stranger's prefix gets so much that what is left is
//! never taken by few: the fuller the socket, the less may have been granted to it lately. The
//! last eighth is for peers that are known: connected, or answered lately.
//! Invariants: it only refuses more than the exact cap does, never less; where it refuses a
//! stranger, that one's estimate or the reserve says so. Reading: `sketch.rs` for the estimate's
//! bound; Choudhury and Hahne 1998 for thresholds that follow the room that is left.
//! Not here: the cap itself (`allowance.rs`).
//!
//! # Under flood
//! Who can fill it: anybody, with forged sources. Bound and worst work: the sketch's. Who is
//! refused: prefixes that were granted much, of those /24 and /48 too that send from many
//! addresses. Honest traffic: a light sender loses what a full reserve and the sketch's error take.

use core::net::IpAddr;
use core::time::Duration;

use floodwall_base::{HashKey, Instant};

use crate::sketch::PrefixSketch;

/// How fast grants are forgotten.
const TICK: Duration = Duration::from_millis(10);
/// Part of a socket's bytes for known peers alone.
const RESERVE_PART: u64 = 8;
/// Part of the room left to strangers that one narrow prefix may have been granted lately.
const NARROW_PART: u64 = 4;
/// The same of a wide one.
const WIDE_PART: u64 = 2;

/// A datagram that asks to be taken.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// Where it says it comes from.
    pub source: IpAddr,
    /// The socket.
    pub socket: u32,
    /// Its true bytes.
    pub true_size: u32,
    /// True bytes that the socket holds.
    pub used: u64,
    /// True bytes that it may hold.
    pub limit: u64,
    /// Whether the socket is connected to it, or has answered it lately.
    pub is_known: bool,
}

/// See the file's head.
#[derive(Debug)]
pub struct FairShare {
    sketch: PrefixSketch,
    is_on: bool,
}

impl FairShare {
    /// For all sockets of a shard: 256 KiB.
    #[must_use]
    pub fn new(key: HashKey) -> Self {
        Self { sketch: PrefixSketch::new(key, TICK), is_on: true }
    }

    /// Switches it off or on: while it is off, every datagram has its share.
    pub const fn set_on(&mut self, is_on: bool) {
        self.is_on = is_on;
    }

    /// Whether the datagram has a share in its socket at `now`; if so that is noted. Of an empty
    /// socket everybody has. Four hashes at most.
    pub fn grants(&mut self, ask: &Ask, now: Instant) -> bool {
        if !self.is_on || ask.is_known {
            return true;
        }
        let is_granted = ask.used <= ask.limit / 2 || self.is_light(ask, now);
        if is_granted {
            self.sketch.grant(ask.source, ask.socket, ask.true_size, now);
        }
        is_granted
    }

    fn is_light(&self, ask: &Ask, now: Instant) -> bool {
        let for_strangers = ask.limit - ask.limit / RESERVE_PART;
        let asked = u64::from(ask.true_size);
        let Some(room) = for_strangers.checked_sub(ask.used).filter(|room| *room >= asked) else {
            return false;
        };
        let granted = self.sketch.estimate(ask.source, ask.socket, now);
        // Whoever was granted nothing lately may always begin, while there is room.
        let fits = |granted: u32, part| u64::from(granted) + asked <= room.max(4 * asked) / part;
        fits(granted.narrow, NARROW_PART) && fits(granted.wide, WIDE_PART)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::net::{Ipv4Addr, Ipv6Addr};

    use floodwall_base::PublicRandom;

    use super::*;

    const LIMIT: u64 = 212_992;
    const SIZE: u32 = 1024;
    /// What the reader takes in a millisecond.
    const READ: u32 = 50;

    /// Who floods.
    #[derive(Clone, Copy, Debug)]
    enum Flood {
        /// Ten addresses, far from each other.
        Ten,
        /// Every address of one wide prefix.
        Network,
    }

    fn addr(network: u32, host: u32, is_v6: bool) -> IpAddr {
        match is_v6 {
            false => IpAddr::V4(Ipv4Addr::from_bits((network << 8) | (host % 256))),
            true => IpAddr::V6(Ipv6Addr::from_bits(
                u128::from(network) << 80 | u128::from(host & 0xffff) << 64 | 1,
            )),
        }
    }

    /// What light senders lost of what they sent, and what the reader got, while strangers offer
    /// ten times what is read: 40 light ones, 25 datagrams a second each.
    fn flooded(flood: Flood, is_v6: bool, is_on: bool) -> (u32, u32, u32) {
        let mut fair = FairShare::new(HashKey::new(5, 6));
        fair.set_on(is_on);
        let (mut queue, mut random) = (VecDeque::new(), PublicRandom::new(1));
        let (mut sent, mut lost, mut read) = (0, 0, 0);
        for millisecond in 0..4000_u64 {
            let now = Instant::from_nanos(millisecond * 1_000_000);
            for n in 0..10 * READ {
                let word = random.next_u64() as u32;
                let is_light = n == word % (10 * READ);
                let source = match flood {
                    _ if is_light => addr(9_000 + 77 * (millisecond as u32 % 40), 1, is_v6),
                    Flood::Ten => addr(100 * (1 + word % 10), 3, is_v6),
                    Flood::Network => addr(5, word >> 8, is_v6),
                };
                let used = queue.len() as u64 * u64::from(SIZE);
                let limit = LIMIT;
                let ask = Ask { source, socket: 1, true_size: SIZE, used, limit, is_known: false };
                let fits = used + u64::from(SIZE) <= LIMIT;
                let is_taken = fair.grants(&ask, now) && fits;
                if is_taken {
                    queue.push_back(());
                }
                sent += u32::from(is_light);
                lost += u32::from(is_light && !is_taken);
            }
            let before = queue.len();
            queue.drain(..before.min(READ as usize));
            read += (before - queue.len()) as u32;
        }
        (sent, lost, read)
    }

    #[test]
    fn light_senders_keep_99_in_a_hundred_while_ten_or_a_network_flood_tenfold() {
        for is_v6 in [false, true] {
            for flood in [Flood::Ten, Flood::Network] {
                let (sent, lost, read) = flooded(flood, is_v6, true);
                assert!(sent > 1000 && lost * 100 <= sent, "{flood:?}: {lost} of {sent}");
                // Fairness costs the reader nothing: there is always something to read.
                assert!(read >= (4000 - 1) * READ, "{flood:?}: {read} read");
                let (sent, lost, _) = flooded(flood, is_v6, false);
                assert!(lost * 2 > sent, "without it most are lost: {lost} of {sent}");
            }
        }
    }

    fn ask(used: u64, is_known: bool) -> Ask {
        let source = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Ask { source, socket: 1, true_size: SIZE, used, limit: LIMIT, is_known }
    }

    #[test]
    fn the_reserve_is_for_known_peers_alone() {
        let mut fair = FairShare::new(HashKey::new(5, 6));
        let full = LIMIT - LIMIT / RESERVE_PART;
        assert!(!fair.grants(&ask(full, false), Instant::ORIGIN));
        assert!(fair.grants(&ask(full, true), Instant::ORIGIN));
        assert!(fair.grants(&ask(LIMIT / 2 + 1, false), Instant::ORIGIN), "a light stranger");
    }

    /// Where the limit is tiny, or is shrunk below what waits, nothing panics and an empty socket
    /// takes whatever comes.
    #[test]
    fn odd_limits_are_lived_with() {
        let mut fair = FairShare::new(HashKey::new(5, 6));
        for limit in [0, 1, 2, u64::from(SIZE), u64::MAX] {
            assert!(fair.grants(&Ask { limit, ..ask(0, false) }, Instant::ORIGIN), "{limit}");
        }
        assert!(!fair.grants(&Ask { limit: 1, ..ask(u64::MAX, false) }, Instant::ORIGIN));
    }
}
