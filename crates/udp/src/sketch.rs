//! `PrefixSketch`: how much each source was granted lately, in little memory, never too low.
//!
//! Called by `fair.rs`. A count-min sketch with conservative update (Cormode and Muthukrishnan
//! 2005; Estan and Varghese 2002) whose counters halve with every tick: by themselves, at the next
//! look, so that no sweep is owed. One for each length of prefix that addresses are given out by:
//! the host itself (/32, /128), its network (/24, /64), and for IPv6 its site (/48). A source that
//! changes its address within what it was given stays one source by the shorter ones. Where a
//! prefix has its counters is hashed once for looking and granting: a multilinear hash with secret
//! keys, of which nobody outside sees a value.
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
//! each of [`ROWS`] rows and three lengths, taken at the start. Worst work: three hashes of six
//! words and twelve counters (IPv4: two and eight). Nobody is evicted; forged sources raise
//! everybody's estimate by their part of e/width at most, but for the 2 %. Whose counters they meet
//! depends on the secret keys.

use core::net::IpAddr;
use core::time::Duration;

use floodwall_base::{HashKey, Instant, limits};

/// Rows of each sketch: the chance of an estimate beyond the bound is e to the minus this.
pub const ROWS: usize = 4;
/// Lengths of prefix.
const LEVELS: usize = 3;
/// Rows of all lengths.
const ALL: usize = LEVELS * ROWS;
/// Secret words of the hash: two sums of seven.
const KEYS: usize = 14;

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

/// What a source was granted lately by each of its prefixes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Granted {
    /// Itself: its /32 or /128.
    pub host: u32,
    /// Its /24 or /64.
    pub network: u32,
    /// Its /48. What an IPv4 source was granted by its network.
    pub site: u32,
}

/// Where the counters of one source are, towards one scope.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    places: [u32; ALL],
    /// How many of them: IPv4 has no site.
    count: usize,
}

impl Places {
    /// Each counter's index, with the length of prefix that it is of.
    #[inline(always)]
    fn iter(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let places = self.places.iter().take(self.count).enumerate();
        places.map(|(n, place)| (n / ROWS, *place as usize))
    }
}

/// The prefixes, the longest first, four words each that no other prefix of that length has; and
/// how many there are.
#[inline(always)]
fn prefixes(source: IpAddr) -> ([[u32; 4]; LEVELS], usize) {
    // The word that tells IPv4, as in a mapped address: no allocated IPv6 prefix begins so.
    const IPV4: [u32; 3] = [0, 0, 0xffff];
    let [a, b, c] = IPV4;
    match source {
        IpAddr::V4(addr) => {
            let addr = addr.to_bits();
            ([[a, b, c, addr], [a, b, c, addr >> 8], [0; 4]], 2)
        }
        IpAddr::V6(addr) => {
            let [a, b, c, d] = [96, 64, 32, 0].map(|shift| (addr.to_bits() >> shift) as u32);
            ([[a, b, c, d], [a, b, 0, 0], [a, b >> 16, 0, 0]], 3)
        }
    }
}

impl PrefixSketch {
    /// An empty one, whose weights halve every `tick`. Takes 96 bytes a counter of a row.
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
            cells: vec![Decaying::default(); ALL * width].into(),
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

    /// Where the counters of `source` are towards `scope` (a socket). A hash a length, no load.
    #[must_use]
    #[inline(always)]
    pub fn places(&self, source: IpAddr, scope: u32) -> Places {
        let mut places = [0; ALL];
        let (prefixes, levels) = prefixes(source);
        let lengths = places.chunks_exact_mut(ROWS).zip(prefixes).take(levels);
        for (level, (rows, words)) in (0_u32..).zip(lengths) {
            let sums = self.hash(words, scope, level);
            for ((row, place), bits) in (level * ROWS as u32..).zip(rows).zip(sums) {
                *place = row * self.width as u32 + (u32::from(bits) & (self.width as u32 - 1));
            }
        }
        Places { places, count: levels * ROWS }
    }

    /// Sixteen bits for each row, out of two sums of which the upper halves are good.
    #[inline(always)]
    fn hash(&self, [w0, w1, w2, w3]: [u32; 4], scope: u32, level: u32) -> [u16; ROWS] {
        let [one, two, ..] = self.keys.as_chunks::<{ KEYS / 2 }>().0 else { return [0; ROWS] };
        let sum = |[a0, a1, a2, a3, a4, a5, a6]: [u64; KEYS / 2]| {
            a0.wrapping_add(pair(a1, w0, a2, w1))
                .wrapping_add(pair(a3, w2, a4, w3))
                .wrapping_add(pair(a5, scope, a6, level))
        };
        let (one, two) = (sum(*one), sum(*two));
        [(one >> 48) as u16, (one >> 32) as u16, (two >> 48) as u16, (two >> 32) as u16]
    }

    /// What was granted lately at these places, at a tick. Twelve loads, or eight.
    #[must_use]
    #[inline(always)]
    pub fn granted(&self, places: &Places, tick: u32) -> Granted {
        let mut least = [u32::MAX; LEVELS];
        for (level, place) in places.iter() {
            let weight = self.cells.get(place).map_or(0, |cell| cell.at(tick));
            if let Some(least) = least.get_mut(level) {
                *least = weight.min(*least);
            }
        }
        let [host, network, site] = least;
        let has_site = places.count == ALL;
        Granted { host, network, site: if has_site { site } else { network } }
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
        let granted = [granted.host, granted.network, granted.site];
        for (level, place) in places.iter() {
            let least = granted.get(level).copied().unwrap_or(0);
            if let Some(cell) = self.cells.get_mut(place) {
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
            true => IpAddr::V6(Ipv6Addr::from_bits(u128::from(n) << 64 | u128::from(n % 7))),
        }
    }

    /// Every weight there was, halved exactly.
    #[derive(Default)]
    struct Exact(HashMap<[u32; 4], f64>, f64);

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
            let mut exact: [Exact; LEVELS] = Default::default();
            let mut now = Instant::ORIGIN;
            for (n, weight, ticks, is_v6) in grants {
                for _ in 0..ticks / 3 {
                    now += TICK;
                    exact.iter_mut().for_each(Exact::tick);
                }
                let from = source(n, is_v6);
                let (prefixes, levels) = prefixes(from);
                sketch.grant(from, 9, weight, now);
                let after = sketch.estimate(from, 9, now);
                let after = [after.host, after.network, after.site];
                for (level, prefix) in prefixes.into_iter().enumerate().take(levels) {
                    let sum = exact[level].0.entry(prefix).or_default();
                    *sum += f64::from(weight);
                    // Less than a byte is nothing, after 32 ticks at the latest.
                    prop_assert!(f64::from(after[level]) >= sum.floor());
                }
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
                *exact.0.entry([n, 0, 0, 0]).or_default() += f64::from(weight);
                exact.1 += f64::from(weight);
            }
            let bound = core::f64::consts::E / 1024.0 * exact.1 + 2.0;
            let beyond = |([n, ..], weight): &(&[u32; 4], &f64)| {
                let found = f64::from(sketch.estimate(source(n << 9, is_v6), 1, now).host);
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
            assert_eq!(
                sketch.estimate(from, 1, now),
                Granted { host: left, network: left, site: left }
            );
            now += TICK;
        }
        assert_eq!(sketch.estimate(from, 1, now + TICK * 40).host, 0);
    }

    /// Sockets are told apart, hosts of one network are not by the wider ones.
    #[test]
    fn a_grant_counts_for_its_socket_its_network_and_its_site() {
        let granted = |host, network, site| Granted { host, network, site };
        let addr = |text: &str| text.parse::<IpAddr>().unwrap();
        for (from, is_of, expected) in [
            ("192.0.2.1", "192.0.2.1", granted(1000, 1000, 1000)),
            ("192.0.2.1", "192.0.2.200", granted(0, 1000, 1000)),
            ("192.0.2.1", "192.0.3.1", granted(0, 0, 0)),
            ("2001:db8::1", "2001:db8::1", granted(1000, 1000, 1000)),
            ("2001:db8::1", "2001:db8::8000:0:0:1", granted(0, 1000, 1000)),
            ("2001:db8::1", "2001:db8:0:1::1", granted(0, 0, 1000)),
            ("2001:db8::1", "2001:db8:1::1", granted(0, 0, 0)),
        ] {
            let mut sketch = PrefixSketch::new(KEY, TICK);
            sketch.grant(addr(from), 1, 1000, Instant::ORIGIN);
            let of = |scope| sketch.estimate(addr(is_of), scope, Instant::ORIGIN);
            assert_eq!(of(1), expected, "{from} and {is_of}");
            assert_eq!(of(2), granted(0, 0, 0), "{from} and {is_of}");
        }
    }
}
