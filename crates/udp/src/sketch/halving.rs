//! `SketchHalving`: a weight that halves with every tick, as one ordered number.
//!
//! The counters of `sketch.rs`. What weighed w at tick t is kept as w times 2^t, in floating point:
//! halving is then the passing of time, nothing has to be written for it, and of two that were set
//! at different ticks the larger number is the heavier at every tick, so that the least of many is
//! found without working out any. Only where a weight is read, the time is divided out again: a
//! subtraction from the exponent. What is kept is a double's exponent, widened, and the upper half
//! of its fraction.
//!
//! Invariant: a weight is never less than it was, and more by less than its 2^27th part; what has
//! become less than the 2^32th part of one is nothing.

/// Bits of the fraction, below the exponent. An exponent of 37 bits: ticks of a millisecond last
/// four years, of 50 ms two hundred.
const FRACTION_BITS: u32 = 27;
/// Bits of a double's fraction that are not kept.
const DROPPED_BITS: u32 = f64::MANTISSA_DIGITS - 1 - FRACTION_BITS;
/// Halvings of one until it is nothing.
const FORGOTTEN_AFTER: u64 = 32;
/// What is left of it then, at the first tick.
const LEAST_COUNT: u64 = (1_f64.to_bits() >> DROPPED_BITS) - (FORGOTTEN_AFTER << FRACTION_BITS);

/// A weight with exponential decay, scaled so that stored values compare directly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct SketchHalving(u64);

impl SketchHalving {
    /// No weight at any tick.
    pub(super) const NOTHING: Self = Self(0);

    /// What weighs so much at a tick.
    #[inline(always)]
    pub(super) const fn of(weight: f64, tick: u64) -> Self {
        const ROUND: u64 = (1 << DROPPED_BITS) - 1;
        Self(((weight.to_bits() + ROUND) >> DROPPED_BITS).wrapping_add(tick << FRACTION_BITS))
    }

    /// What it weighs at a tick, which is none before the one that it was made at.
    #[inline(always)]
    pub(super) const fn at(self, tick: u64) -> f64 {
        let bits = self.0.wrapping_sub(tick << FRACTION_BITS);
        // A weight of long ago has an exponent below a double's, which shows as a sign. Masked, not
        // chosen: under flood the branch predictor cannot guess which counters are in use.
        let is_some = bits.cast_signed() >= LEAST_COUNT.cast_signed();
        f64::from_bits((bits << DROPPED_BITS) & (is_some as u64).wrapping_neg())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_weight_is_halved_with_every_tick_and_never_too_small(
            weight in 1..u32::MAX, tick in 0..1_u64 << 36, ticks in 0..3000_u64
        ) {
            let exact = f64::from(weight) * 0.5_f64.powi(ticks as i32);
            let found = SketchHalving::of(weight.into(), tick).at(tick + ticks);
            let least = 0.5_f64.powi(FORGOTTEN_AFTER as i32);
            if exact >= least {
                let bound = exact * (1.0 + 0.5_f64.powi(FRACTION_BITS as i32));
                prop_assert!(found >= exact && found <= bound, "{found} of {exact}");
            } else {
                prop_assert!(found <= least);
            }
        }

        #[test]
        fn the_larger_number_is_the_heavier_at_every_tick(
            a in (1..u32::MAX, 0..40_u64), b in (1..u32::MAX, 0..40_u64)
        ) {
            let halving = |(weight, tick): (u32, u64)| SketchHalving::of(weight.into(), 100 + tick);
            let [one, two] = [a, b].map(halving);
            for tick in 140..180 {
                prop_assert_eq!(one.max(two).at(tick), one.at(tick).max(two.at(tick)));
                prop_assert_eq!(one.min(two).at(tick), one.at(tick).min(two.at(tick)));
            }
        }
    }

    #[test]
    fn weights_that_fit_into_the_fraction_are_exact() {
        for weight in [1, 2, 3, 383, 384, 1 << 20, (1 << 28) - 1, 1 << 31] {
            assert_eq!(SketchHalving::of(weight.into(), 7).at(7), f64::from(weight));
        }
        assert_eq!(SketchHalving::of(0.0, 7).at(7), 0.0);
        assert_eq!(SketchHalving::of(1.0, 7).at(7 + 32), 0.5_f64.powi(32));
        assert_eq!(SketchHalving::of(1.0, 7).at(7 + 33), 0.0);
        assert_eq!(SketchHalving::NOTHING.at(0), 0.0);
    }
}
