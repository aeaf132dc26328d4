//! `PrefixSketch`: how much each source prefix was granted lately, in little memory, never too low.
//!
//! Called by `fair.rs`. A count-min sketch with conservative update (Cormode and Muthukrishnan
//! 2005; Estan and Varghese 2002) whose counters halve with every tick: by themselves, at the next
//! look, so that no sweep is owed. Two of them, for two lengths of prefix: /32 and /24 of IPv4, /64
//! and /48 of IPv6. A source that changes its address within what it was given stays one source by
//! the shorter one.
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
//! each of [`ROWS`] rows and two lengths, taken at the start. Worst work: two keyed hashes and
//! eight counters. Nobody is evicted; forged sources raise everybody's estimate by their part of
//! e/width at most, but for the 2 %. Whose counters they meet depends on the secret key.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use floodwall_base::{HashKey, Instant, limits};

/// Rows of each sketch: the chance of an estimate beyond the bound is e to the minus this.
pub const ROWS: usize = 4;

/// See the file's head.
#[derive(Debug)]
pub struct PrefixSketch {
    key: HashKey,
    tick: Duration,
    /// For each length, for each row, a power of two of counters.
    cells: Box<[Cell]>,
    width: usize,
    granted: Cell,
}

/// What was granted, as it was at a tick.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    weight: u32,
    tick: u32,
}

impl Cell {
    /// Halved, upwards, once for each tick since.
    #[inline]
    fn at(self, tick: u32) -> u32 {
        match tick.wrapping_sub(self.tick) {
            0 => self.weight,
            ticks @ 1..32 => ((u64::from(self.weight) + (1 << ticks) - 1) >> ticks) as u32,
            _ => 0,
        }
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

/// The two prefixes, as addresses.
fn prefixes(source: IpAddr) -> [IpAddr; 2] {
    match source {
        IpAddr::V4(addr) => {
            let wide = Ipv4Addr::from_bits(addr.to_bits() & !0xff);
            [IpAddr::V4(addr), IpAddr::V4(wide)]
        }
        IpAddr::V6(addr) => {
            let keep =
                |len: u32| IpAddr::V6(Ipv6Addr::from_bits(addr.to_bits() & !0 << (128 - len)));
            [keep(64), keep(48)]
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
        let cells = vec![Cell::default(); 2 * ROWS * width].into();
        Self {
            key,
            tick: tick.max(Duration::from_nanos(1)),
            cells,
            width,
            granted: Cell::default(),
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

    fn tick_of(&self, now: Instant) -> u32 {
        (u128::from(now.as_nanos()) / self.tick.as_nanos()) as u32
    }

    /// Where the counters of a prefix are, a row each: 16 bits of the hash for each.
    fn places(&self, level: usize, prefix: IpAddr, scope: u32) -> [usize; ROWS] {
        let hash = self.key.addr(prefix, scope << 1 | level as u32);
        core::array::from_fn(|row| {
            let at = (hash >> (16 * row)) as usize & (self.width - 1);
            (level * ROWS + row) * self.width + at
        })
    }

    fn lowest(&self, places: &[usize; ROWS], tick: u32) -> u32 {
        let weights = places.iter().filter_map(|place| self.cells.get(*place));
        weights.map(|cell| cell.at(tick)).min().unwrap_or(0)
    }

    /// What the prefixes of `source` were granted lately, towards `scope` (a socket): never less
    /// than they were. Two hashes, eight loads.
    #[must_use]
    pub fn estimate(&self, source: IpAddr, scope: u32, now: Instant) -> Granted {
        let tick = self.tick_of(now);
        let [narrow, wide] = prefixes(source);
        let of = |level, prefix| self.lowest(&self.places(level, prefix, scope), tick);
        Granted { narrow: of(0, narrow), wide: of(1, wide) }
    }

    /// Grants `weight` to the prefixes of `source`.
    pub fn grant(&mut self, source: IpAddr, scope: u32, weight: u32, now: Instant) {
        let tick = self.tick_of(now);
        self.granted = Cell { weight: self.granted.at(tick).saturating_add(weight), tick };
        for (level, prefix) in prefixes(source).into_iter().enumerate() {
            let places = self.places(level, prefix, scope);
            let least = self.lowest(&places, tick).saturating_add(weight);
            for place in places {
                if let Some(cell) = self.cells.get_mut(place) {
                    *cell = Cell { weight: cell.at(tick).max(least), tick };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

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
    struct Exact(HashMap<IpAddr, f64>, f64);

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
                *exact.0.entry(prefixes(from)[0]).or_default() += f64::from(weight);
                exact.1 += f64::from(weight);
            }
            let bound = core::f64::consts::E / 1024.0 * exact.1 + 2.0;
            let beyond = |(from, weight): &(&IpAddr, &f64)| {
                let found = f64::from(sketch.estimate(**from, 1, now).narrow);
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
