//! `PrefixSketch`: how much each source was granted lately, in little memory, never too low.
//!
//! Called by `fair.rs`. A count-min sketch with conservative update (Cormode and Muthukrishnan
//! 2005; Estan and Varghese 2002) with counters that halve every tick: by themselves, at the next
//! look, so that no sweep is needed (`sketch/halving.rs`). One for each length of prefix that
//! addresses are given out by: the host itself (/32, /128), its network (/24, /64), and for IPv6
//! its site (/48). A source that changes its address within what it was given stays one source by
//! the shorter ones.
//!
//! What a datagram costs are the counters it touches, most of which miss the L1 cache under flood:
//! hence few rows, and wide ones. All lengths are hashed at once, for looking and granting: a
//! multilinear hash with secret keys, and its values never leave the host. The upper 32 bits of its
//! sums are uniform and pairwise independent (Lemire and Kaser 2014, "Strongly universal string
//! hashing is fast"): sixteen for each row.
//!
//! # Bound of the error
//! An estimate is never below what the prefix was granted, halved as often as ticks went by, but
//! for the 2^31th part of a byte. It is above by more than e^2/width of all that was granted
//! (halved alike) for at most one prefix in e^4, about 2 %, for any stream: in each of two rows for
//! one in e^2, by Markov's inequality (Cormode and Muthukrishnan's theorem); conservative update
//! only lowers it. `tests` hold it against an exact list.
//!
//! # Under flood
//! Reachable by any sender, with forged sources. Bound: [`limits::UDP_FAIR_CELLS`] counters in each
//! of [`SKETCH_ROWS`] rows and three lengths, taken at the start: 768 KiB. Worst work: six products
//! and six counters (IPv4: three and four). Nothing is evicted; forged sources raise every estimate
//! by their part of e^2/width at most, but for the 2 %. Which counters they hit depends on the
//! secret keys.

mod halving;

use core::net::{Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use floodwall_base::{HashKey, Instant, limits};

use halving::SketchHalving;

/// Rows of each sketch: the chance of an estimate beyond the bound is e^2 to the minus this.
const SKETCH_ROWS: usize = 2;
/// Lengths of prefix.
const PREFIX_LENGTHS: usize = 3;

/// A count-min sketch of bytes granted per prefix, with decay. `WIDTH` counters in a row: a power
/// of two, to 65,536.
#[derive(Debug)]
pub(crate) struct PrefixSketch<const WIDTH: usize = { limits::UDP_FAIR_CELLS }> {
    keys: SketchKeys,
    /// Nanoseconds.
    tick: u64,
    /// The rows of each length, the longest prefix first.
    rows: Box<[[SketchHalving; WIDTH]; SKETCH_ROWS * PREFIX_LENGTHS]>,
}

/// Secrets of the hash: the initial value of a sum in each family, and a factor for each 32-bit
/// word of the input.
#[derive(Debug)]
struct SketchKeys {
    begin: [u64; 2],
    scope: u64,
    v4: [u64; 2],
    v6: [u64; 5],
}

/// Where the counters of a source are, towards one scope, the longest prefix first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SketchCells<const N: usize>([[usize; SKETCH_ROWS]; N]);

/// What one look found of a source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SketchLook<const N: usize> {
    places: SketchCells<N>,
    cells: [[SketchHalving; SKETCH_ROWS]; N],
    /// What each of its prefixes was granted lately, the longest first: never less than it was.
    pub(crate) granted: [f64; N],
}

impl<const WIDTH: usize> PrefixSketch<WIDTH> {
    /// An empty one, with weights that halve every `tick`. Takes 48 bytes a counter of a row.
    pub(crate) fn new(key: HashKey, tick: Duration) -> Self {
        const { assert!(WIDTH.is_power_of_two() && WIDTH <= 1 << 16) };
        let [b0, b1, scope, v4 @ .., w0, w1, w2, w3, w4] =
            core::array::from_fn::<u64, 10, _>(|n| key.words(&[n as u64]));
        Self {
            keys: SketchKeys { begin: [b0, b1], scope, v4, v6: [w0, w1, w2, w3, w4] },
            tick: u64::try_from(tick.as_nanos()).unwrap_or(u64::MAX).max(1),
            rows: empty(),
        }
    }

    /// The tick of `now`. A division: once a round is enough.
    pub(crate) const fn tick_of(&self, now: Instant) -> u64 {
        match now.as_nanos().checked_div(self.tick) {
            Some(tick) => tick,
            None => 0,
        }
    }

    /// Hashes a source's /32 and /24, towards `scope` (a socket). No load but of the keys.
    #[inline(always)]
    pub(crate) fn places_v4(&self, source: Ipv4Addr, scope: u32) -> SketchCells<2> {
        let SketchKeys { begin: [begin, _], scope: by_scope, v4: [by_host, by_network], .. } =
            self.keys;
        let (addr, begin) = (source.to_bits(), begin.wrapping_add(times(by_scope, scope)));
        Self::places([
            begin.wrapping_add(times(by_host, addr)),
            begin.wrapping_add(times(by_network, addr >> 8)),
        ])
    }

    /// Hashes a source's /128, /64 and /48.
    #[inline(always)]
    pub(crate) fn places_v6(&self, source: Ipv6Addr, scope: u32) -> SketchCells<3> {
        let SketchKeys { begin: [_, begin], scope: by_scope, v6: [k0, k1, k2, k3, k4], .. } =
            self.keys;
        let [w0, w1, w2, w3] = [96, 64, 32, 0].map(|shift| (source.to_bits() >> shift) as u32);
        let begin = begin.wrapping_add(times(by_scope, scope)).wrapping_add(times(k0, w0));
        let network = begin.wrapping_add(times(k1, w1));
        Self::places([
            network.wrapping_add(times(k2, w2)).wrapping_add(times(k3, w3)),
            network,
            begin.wrapping_add(times(k4, w1 >> 16)),
        ])
    }

    /// Out of sums modulo 2^64, of which the upper halves are good, an index for each row.
    #[inline(always)]
    fn places<const N: usize>(sums: [u64; N]) -> SketchCells<N> {
        SketchCells(sums.map(|sum| {
            let bits = WIDTH.ilog2();
            let [first, second] = [sum.unbounded_shr(64 - bits), sum >> (64 - 2 * bits)];
            [first as usize % WIDTH, second as usize % WIDTH]
        }))
    }

    /// Looks what was granted lately, at a tick. Two loads for each length.
    #[inline(always)]
    pub(crate) fn look<const N: usize>(&self, places: SketchCells<N>, tick: u64) -> SketchLook<N> {
        let (mut cells, mut granted) = ([[SketchHalving::NOTHING; SKETCH_ROWS]; N], [0.0; N]);
        let lengths = self.rows.as_chunks().0.iter().zip(places.0).zip(&mut cells);
        for (((rows, places), found), granted) in lengths.zip(&mut granted) {
            let rows: &[_; SKETCH_ROWS] = rows;
            for ((row, place), found) in rows.iter().zip(places).zip(&mut *found) {
                *found = row.get(place).copied().unwrap_or(SketchHalving::NOTHING);
            }
            let [a, b] = *found;
            *granted = a.min(b).at(tick);
        }
        SketchLook { places, cells, granted }
    }

    /// Grants `weight` where [`PrefixSketch::look`] has just looked, at the same tick.
    #[inline(always)]
    pub(crate) fn grant<const N: usize>(&mut self, look: &SketchLook<N>, weight: u32, tick: u64) {
        let lengths = self.rows.as_chunks_mut().0.iter_mut().zip(look.places.0).zip(look.cells);
        for (((rows, places), found), granted) in lengths.zip(look.granted) {
            let rows: &mut [_; SKETCH_ROWS] = rows;
            let least = SketchHalving::of(granted + f64::from(weight), tick);
            for ((row, place), found) in rows.iter_mut().zip(places).zip(found) {
                if let Some(cell) = row.get_mut(place) {
                    *cell = found.max(least);
                }
            }
        }
    }
}

/// Rows without any weight, one after the other: all of them may not fit on a stack.
fn empty<const WIDTH: usize, const SKETCH_ROWS: usize>()
-> Box<[[SketchHalving; WIDTH]; SKETCH_ROWS]> {
    let rows: Box<[_]> = (0..SKETCH_ROWS).map(|_| [SketchHalving::NOTHING; WIDTH]).collect();
    match rows.try_into() {
        Ok(rows) => rows,
        Err(_) => unreachable!("as many rows as were collected"),
    }
}

/// The contribution of a word to a sum.
#[inline(always)]
const fn times(key: u64, word: u32) -> u64 {
    key.wrapping_mul(word as u64)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::net::IpAddr;

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

    /// The prefixes that count, the longest first: length and address.
    fn prefixes(source: IpAddr) -> Vec<(u32, u128)> {
        match source {
            IpAddr::V4(addr) => {
                [32, 24].map(|bits| (bits, u128::from(addr.to_bits() >> (32 - bits)))).to_vec()
            }
            IpAddr::V6(addr) => {
                [128, 64, 48].map(|bits| (bits, addr.to_bits() >> (128 - bits))).to_vec()
            }
        }
    }

    impl<const WIDTH: usize> PrefixSketch<WIDTH> {
        fn estimate(&self, source: IpAddr, scope: u32, now: Instant) -> Vec<f64> {
            let tick = self.tick_of(now);
            match source {
                IpAddr::V4(source) => {
                    self.look(self.places_v4(source, scope), tick).granted.to_vec()
                }
                IpAddr::V6(source) => {
                    self.look(self.places_v6(source, scope), tick).granted.to_vec()
                }
            }
        }

        fn grants(&mut self, source: IpAddr, scope: u32, weight: u32, now: Instant) {
            let tick = self.tick_of(now);
            match source {
                IpAddr::V4(source) => {
                    let look = self.look(self.places_v4(source, scope), tick);
                    self.grant(&look, weight, tick);
                }
                IpAddr::V6(source) => {
                    let look = self.look(self.places_v6(source, scope), tick);
                    self.grant(&look, weight, tick);
                }
            }
        }
    }

    /// Every weight there was, halved exactly.
    #[derive(Default)]
    struct Exact(HashMap<(u32, u128), f64>, f64);

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
            let mut sketch = PrefixSketch::<16>::new(KEY, TICK);
            let mut exact = Exact::default();
            let mut now = Instant::ORIGIN;
            for (n, weight, ticks, is_v6) in grants {
                for _ in 0..ticks / 3 {
                    now += TICK;
                    exact.tick();
                }
                let from = source(n, is_v6);
                sketch.grants(from, 9, weight, now);
                let found = sketch.estimate(from, 9, now);
                for (prefix, found) in prefixes(from).into_iter().zip(found) {
                    let sum = exact.0.entry(prefix).or_default();
                    *sum += f64::from(weight);
                    prop_assert!(found >= sum.floor());
                }
            }
        }
    }

    /// Ten thousand prefixes, some of them heavy, over many ticks: how many estimates exceed the
    /// bound that the module documentation states.
    #[test]
    fn few_estimates_are_beyond_the_stated_bound() {
        for is_v6 in [false, true] {
            let mut sketch = PrefixSketch::<4096>::new(KEY, TICK);
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
                sketch.grants(from, 1, weight, now);
                *exact.0.entry((n, 0)).or_default() += f64::from(weight);
                exact.1 += f64::from(weight);
            }
            let bound = core::f64::consts::E.powi(2) / 4096.0 * exact.1;
            let beyond = |((n, _), weight): &(&(u32, u128), &f64)| {
                let found = sketch.estimate(source(n << 9, is_v6), 1, now)[0];
                assert!(found >= **weight);
                found > **weight + bound
            };
            let (all, beyond) = (exact.0.len(), exact.0.iter().filter(beyond).count());
            assert!(all > 10_000 && beyond * 50 <= all, "{beyond} of {all}");
        }
    }

    #[test]
    fn what_was_granted_is_forgotten_by_halves() {
        let mut sketch: PrefixSketch = PrefixSketch::new(KEY, TICK);
        let (from, mut now) = (source(77 << 9, false), Instant::ORIGIN);
        sketch.grants(from, 1, 1000, now);
        for left in [1000.0, 500.0, 250.0, 125.0, 62.5] {
            assert_eq!(sketch.estimate(from, 1, now), [left; 2]);
            now += TICK;
        }
        assert_eq!(sketch.estimate(from, 1, now + TICK * 40), [0.0; 2]);
    }

    /// Sockets are kept apart, hosts of one network are not by the wider ones.
    #[test]
    fn a_grant_counts_for_its_socket_its_network_and_its_site() {
        let addr = |text: &str| text.parse::<IpAddr>().unwrap();
        for (from, is_of, expected) in [
            ("192.0.2.1", "192.0.2.1", &[1000.0, 1000.0][..]),
            ("192.0.2.1", "192.0.2.200", &[0.0, 1000.0]),
            ("192.0.2.1", "192.0.3.1", &[0.0, 0.0]),
            ("2001:db8::1", "2001:db8::1", &[1000.0, 1000.0, 1000.0]),
            ("2001:db8::1", "2001:db8::8000:0:0:1", &[0.0, 1000.0, 1000.0]),
            ("2001:db8::1", "2001:db8:0:1::1", &[0.0, 0.0, 1000.0]),
            ("2001:db8::1", "2001:db8:1::1", &[0.0, 0.0, 0.0]),
            ("192.0.2.1", "::ffff:192.0.2.1", &[0.0, 0.0, 0.0]),
        ] {
            let mut sketch: PrefixSketch = PrefixSketch::new(KEY, TICK);
            sketch.grants(addr(from), 1, 1000, Instant::ORIGIN);
            let of = |scope| sketch.estimate(addr(is_of), scope, Instant::ORIGIN);
            assert_eq!(of(1), expected, "{from} and {is_of}");
            assert!(of(2).into_iter().all(|granted| granted == 0.0), "{from} and {is_of}");
        }
    }
}
