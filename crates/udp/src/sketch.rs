//! `PrefixSketch`: how much each source prefix was granted lately, in little memory, never too low.
//!
//! Called by `fair.rs`. A count-min sketch with conservative update (Cormode and Muthukrishnan
//! 2005; Estan and Varghese 2002) whose counters halve with every tick: by themselves, at the next
//! look, so that no sweep is owed. Two of them, for two lengths of prefix: /32 and /24 of IPv4, /64
//! and /48 of IPv6. A source that changes its address within what it was given stays one source by
//! the shorter one. Where a prefix has its counters is hashed once for looking and granting: a
//! multilinear hash with secret keys, of which nobody outside sees a value.
//!
//! # Bound of the error
//! An estimate is never below what the prefix was granted, halved as often as ticks went by. It is
//! above by more than e/width of all that was granted (halved alike), and 2 for rounding, for at
//! most one prefix in e^4, about 2 %, whatever the stream: width and rows are those of Cormode and
//! Muthukrishnan's theorem, conservative update only lowers it. `tests` hold it against an exact
//! list.
//!
//! # Under flood
//! Who can fill it: anybody, with forged sources. Bound: [`limits::UDP_FAIR_CELLS`] counters in
//! each of [`ROWS`] rows and two lengths, taken at the start. Worst work: two hashes of two words
//! and eight counters. Nobody is evicted; forged sources raise everybody's estimate by their part
//! of e/width at most, but for the 2 %. Whose counters they meet depends on the secret keys.

use core::net::IpAddr;
use core::time::Duration;

use floodwall_base::{HashKey, Instant, limits};

/// Rows of each sketch: the chance of an estimate beyond the bound is e to the minus this.
pub const ROWS: usize = 4;
/// Rows of both.
const BOTH: usize = 2 * ROWS;
/// Secret words of the hash: two sums of five.
const KEYS: usize = 10;

/// See the file's head.
#[derive(Debug)]
pub struct PrefixSketch {
    keys: [u64; KEYS],
    /// Nanoseconds.
    tick: u64,
    /// For each length, for each row, a power of two of counters.
    cells: Box<[Decaying]>,
    width: usize,
    granted: Decaying,
}

/// A weight that halves with every tick: as it was at one of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Decaying {
    weight: u32,
    tick: u32,
}

impl Decaying {
    /// Halved, upwards, once for each tick since.
    #[inline(always)]
    pub(crate) fn at(self, tick: u32) -> u32 {
        match tick.wrapping_sub(self.tick) {
            0 => self.weight,
            ticks @ 1..32 => ((u64::from(self.weight) + (1 << ticks) - 1) >> ticks) as u32,
            _ => 0,
        }
    }

    /// With so much more.
    #[inline(always)]
    pub(crate) fn add(&mut self, weight: u32, tick: u32) {
        *self = Self { weight: self.at(tick).saturating_add(weight), tick };
    }
}

/// What the two prefixes of a source were granted lately.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Granted {
    /// Its /32 or /64.
    pub narrow: u32,
    /// Its /24 or /48.
    pub wide: u32,
}

/// Where the counters of one source are, towards one scope.
#[derive(Clone, Copy, Debug)]
pub struct Places([u32; BOTH]);

/// The two prefixes, narrow and wide, two words each that no other prefix of that length has.
#[inline(always)]
fn prefixes(source: IpAddr) -> [(u32, u32); 2] {
    // A word that no allocated IPv6 prefix begins with: its upper bits are zero.
    const IPV4: u32 = 0xffff;
    match source {
        IpAddr::V4(addr) => [(IPV4, addr.to_bits()), (IPV4, addr.to_bits() >> 8)],
        IpAddr::V6(addr) => {
            let (upper, lower) = ((addr.to_bits() >> 96) as u32, (addr.to_bits() >> 64) as u32);
            [(upper, lower), (upper, lower >> 16)]
        }
    }
}

impl PrefixSketch {
    /// An empty one, whose weights halve every `tick`. Takes 64 bytes a counter of a row.
    #[must_use]
    pub fn new(key: HashKey, tick: Duration) -> Self {
        Self::with_width(key, tick, limits::UDP_FAIR_CELLS)
    }

    /// With another width: the next power of two, from 1 to 65,536.
    #[must_use]
    pub fn with_width(key: HashKey, tick: Duration, width: usize) -> Self {
        let width = width.clamp(1, 1 << 16).next_power_of_two();
        Self {
            keys: core::array::from_fn(|n| key.words(&[n as u64])),
            tick: u64::try_from(tick.as_nanos()).unwrap_or(u64::MAX).max(1),
            cells: vec![Decaying::default(); BOTH * width].into(),
            width,
            granted: Decaying::default(),
        }
    }

    /// Counters in a row.
    #[must_use]
    pub const fn width(&self) -> usize {
        self.width
    }

    /// What was granted to all lately.
    #[must_use]
    pub fn total(&self, now: Instant) -> u32 {
        self.granted.at(self.tick_of(now))
    }

    /// The tick that `now` lies in. A division: once a round will do.
    #[must_use]
    pub const fn tick_of(&self, now: Instant) -> u32 {
        match now.as_nanos().checked_div(self.tick) {
            Some(tick) => tick as u32,
            None => 0,
        }
    }

    /// Where the counters of `source` are towards `scope` (a socket). Two hashes, no load.
    #[must_use]
    #[inline(always)]
    pub fn places(&self, source: IpAddr, scope: u32) -> Places {
        let mut places = [0; BOTH];
        let lengths = places.chunks_exact_mut(ROWS).zip(prefixes(source));
        for (level, (rows, (upper, lower))) in (0_u32..).zip(lengths) {
            let sums = self.hash(upper, lower, scope, level);
            for ((row, place), bits) in (level * ROWS as u32..).zip(rows).zip(sums) {
                *place = row * self.width as u32 + (u32::from(bits) & (self.width as u32 - 1));
            }
        }
        Places(places)
    }

    /// Sixteen bits for each row, out of two sums of which the upper halves are good.
    #[inline(always)]
    fn hash(&self, upper: u32, lower: u32, scope: u32, level: u32) -> [u16; ROWS] {
        let [a0, a1, a2, a3, a4, b0, b1, b2, b3, b4] = self.keys;
        let one =
            a0.wrapping_add(pair(a1, upper, a2, lower)).wrapping_add(pair(a3, scope, a4, level));
        let two =
            b0.wrapping_add(pair(b1, upper, b2, lower)).wrapping_add(pair(b3, scope, b4, level));
        [(one >> 48) as u16, (one >> 32) as u16, (two >> 48) as u16, (two >> 32) as u16]
    }

    /// What was granted lately at these places, at a tick. Eight loads.
    #[must_use]
    #[inline(always)]
    pub fn granted(&self, places: &Places, tick: u32) -> Granted {
        let [mut narrow, mut wide] = [u32::MAX; 2];
        for (n, place) in places.0.iter().enumerate() {
            let weight = self.cells.get(*place as usize).map_or(0, |cell| cell.at(tick));
            let least = if n < ROWS { &mut narrow } else { &mut wide };
            *least = weight.min(*least);
        }
        Granted { narrow, wide }
    }

    /// What the prefixes of `source` were granted lately, towards `scope`: never less than they
    /// were.
    #[must_use]
    pub fn estimate(&self, source: IpAddr, scope: u32, now: Instant) -> Granted {
        self.granted(&self.places(source, scope), self.tick_of(now))
    }

    /// Grants `weight` where `granted` is what [`PrefixSketch::granted`] has just said.
    #[inline(always)]
    pub fn grant_at(&mut self, places: &Places, granted: Granted, weight: u32, tick: u32) {
        self.granted.add(weight, tick);
        for (n, place) in places.0.iter().enumerate() {
            let least = if n < ROWS { granted.narrow } else { granted.wide };
            if let Some(cell) = self.cells.get_mut(*place as usize) {
                let weight = cell.at(tick).max(least.saturating_add(weight));
                *cell = Decaying { weight, tick };
            }
        }
    }

    /// Grants `weight` to the prefixes of `source`.
    pub fn grant(&mut self, source: IpAddr, scope: u32, weight: u32, now: Instant) {
        let (places, tick) = (self.places(source, scope), self.tick_of(now));
        self.grant_at(&places, self.granted(&places, tick), weight, tick);
    }
}

/// Two words' share of a sum.
#[inline(always)]
const fn pair(key_a: u64, a: u32, key_b: u64, b: u32) -> u64 {
    key_a.wrapping_add(a as u64).wrapping_mul(key_b.wrapping_add(b as u64))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::net::{Ipv4Addr, Ipv6Addr};

    use floodwall_base::PublicRandom;
    use proptest::prelude::*;

    use super::*;

    const TICK: Duration = Duration::from_millis(10);
    const KEY: HashKey = HashKey::new(3, 4);

    fn source(n: u32, is_v6: bool) -> IpAddr {
        match is_v6 {
            false => IpAddr::V4(Ipv4Addr::from_bits(n)),
            // Hosts of one /64 are one source.
            true => IpAddr::V6(Ipv6Addr::from_bits(u128::from(n) << 64 | u128::from(n % 7))),
        }
    }

    /// Every weight there was, halved exactly.
    #[derive(Default)]
    struct Exact(HashMap<(u32, u32), f64>, f64);

    impl Exact {
        fn tick(&mut self) {
            self.0.values_mut().for_each(|weight| *weight /= 2.0);
            self.1 /= 2.0;
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn an_estimate_is_never_below_what_was_granted(
            grants in prop::collection::vec(
                (0_u32..400, 1_u32..3000, 0_u8..4, any::<bool>()),
                1..300,
            )
        ) {
            // Narrow enough that most prefixes share counters.
            let mut sketch = PrefixSketch::with_width(KEY, TICK, 16);
            let (mut narrow, mut wide) = (Exact::default(), Exact::default());
            let mut now = Instant::ORIGIN;
            for (n, weight, ticks, is_v6) in grants {
                for _ in 0..ticks / 3 {
                    now += TICK;
                    narrow.tick();
                    wide.tick();
                }
                let from = source(n, is_v6);
                sketch.grant(from, 9, weight, now);
                let [a, b] = prefixes(from);
                *narrow.0.entry(a).or_default() += f64::from(weight);
                *wide.0.entry(b).or_default() += f64::from(weight);
                let found = sketch.estimate(from, 9, now);
                // Less than a byte is nothing, after 32 ticks at the latest.
                prop_assert!(f64::from(found.narrow) >= narrow.0[&a].floor());
                prop_assert!(f64::from(found.wide) >= wide.0[&b].floor());
            }
        }
    }

    /// Ten thousand prefixes, some of them heavy, over many ticks: how many estimates are beyond
    /// the bound that the file's head states.
    #[test]
    fn few_estimates_are_beyond_the_stated_bound() {
        for is_v6 in [false, true] {
            let mut sketch = PrefixSketch::with_width(KEY, TICK, 1024);
            let (mut exact, mut random) = (Exact::default(), PublicRandom::new(8));
            let mut now = Instant::ORIGIN;
            for round in 0..60_000_u32 {
                if round % 10_000 == 9_999 {
                    now += TICK;
                    exact.tick();
                }
                let n = random.next_u64();
                let n = if n.is_multiple_of(2) { n >> 32 & 15 } else { n >> 32 & 0x3fff } as u32;
                let (from, weight) = (source(n << 9, is_v6), 100 + n % 1400);
                sketch.grant(from, 1, weight, now);
                *exact.0.entry((n, 0)).or_default() += f64::from(weight);
                exact.1 += f64::from(weight);
            }
            let bound = core::f64::consts::E / 1024.0 * exact.1 + 2.0;
            let beyond = |((n, _), weight): &(&(u32, u32), &f64)| {
                let found = f64::from(sketch.estimate(source(n << 9, is_v6), 1, now).narrow);
                assert!(found >= **weight);
                found > **weight + bound
            };
            let (all, beyond) = (exact.0.len(), exact.0.iter().filter(beyond).count());
            assert!(all > 10_000 && beyond * 50 <= all, "{beyond} of {all}");
            assert!(f64::from(sketch.total(now)) >= exact.1);
        }
    }

    #[test]
    fn what_was_granted_is_forgotten_by_halves() {
        let mut sketch = PrefixSketch::new(KEY, TICK);
        let (from, mut now) = (source(77 << 9, false), Instant::ORIGIN);
        sketch.grant(from, 1, 1000, now);
        for left in [1000, 500, 250, 125, 63] {
            assert_eq!(sketch.estimate(from, 1, now), Granted { narrow: left, wide: left });
            now += TICK;
        }
        assert_eq!(sketch.estimate(from, 1, now + TICK * 40).narrow, 0);
    }

    /// Sockets are told apart, prefixes of one network are not by the wide one.
    #[test]
    fn a_grant_counts_for_its_socket_and_its_network() {
        for is_v6 in [false, true] {
            let mut sketch = PrefixSketch::new(KEY, TICK);
            sketch.grant(source(0x100, is_v6), 1, 1000, Instant::ORIGIN);
            let of = |n, scope| sketch.estimate(source(n, is_v6), scope, Instant::ORIGIN);
            assert_eq!(of(0x100, 2), Granted { narrow: 0, wide: 0 });
            assert_eq!(of(0x101, 1), Granted { narrow: 0, wide: 1000 });
            assert_eq!(of(0x1_0000 << 8, 1), Granted { narrow: 0, wide: 0 });
        }
    }
}
