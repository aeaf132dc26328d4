//! Work compiled for the bit instructions that nearly every processor has.
//!
//! Called for a burst of look-ups (`fib`), which are half counts of bits and shifts by a variable:
//! plain x86-64 has no instruction for the one and a slow one for the other. A function that is
//! given to [`BitInstructions::run`] is compiled twice where it is inlined there: so what it calls
//! must be `#[inline(always)]` to gain. A single look-up is too short for a call: it takes
//! [`BitInstructions::ones_from`]. Invariant: a value of this type exists only where the
//! processor has the instructions; no effect but time. Not here: vectors.

/// The proof that this processor has POPCNT, BMI1 and BMI2.
#[derive(Clone, Copy, Debug)]
pub struct BitInstructions(());

impl BitInstructions {
    /// The proof, where it can be had.
    #[must_use]
    pub fn detect() -> Option<Self> {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            let has = is_x86_feature_detected!("popcnt")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2");
            has.then_some(Self(()))
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        None
    }

    /// Does `work` with these instructions; about 1 ns for the call.
    #[inline(always)]
    pub fn run<T>(self, work: impl FnOnce() -> T) -> T {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            // SAFETY: `self` was made by `detect` alone, which checked the processor for all of
            // them.
            unsafe { with_bit_instructions(work) }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        work()
    }

    /// How many of the bits `j` (taken modulo 32) to 31 of `n` are set: two instructions, also in
    /// code that was not compiled for them, and so without the call that [`run`](Self::run) is.
    #[must_use]
    #[inline(always)]
    pub fn ones_from(self, n: u32, j: u32) -> u64 {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            let count: u64;
            // SAFETY: `self` was made by `detect` alone, which checked the processor for BMI2 and
            // POPCNT; the instructions change no memory, `shrx` takes its count modulo 32, and both
            // clear the upper half of what they write.
            unsafe {
                core::arch::asm!(
                    "shrx {count:e}, {n:e}, {j:e}",
                    "popcnt {count:e}, {count:e}",
                    count = lateout(reg) count,
                    n = in(reg) n,
                    j = in(reg) j,
                    options(pure, nomem, nostack)
                );
            }
            count
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        u64::from((n >> (j & 31)).count_ones())
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "popcnt,bmi1,bmi2")]
fn with_bit_instructions<T>(work: impl FnOnce() -> T) -> T {
    work()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_gives_the_same_with_and_without() {
        let work = |n: u64| (n.count_ones(), n >> (n & 63), n.trailing_zeros());
        for n in (0..10_000_u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
            let with = BitInstructions::detect().map(|bits| bits.run(|| work(n)));
            assert_eq!(with.unwrap_or_else(|| work(n)), work(n));
            let (half, j) = (n as u32, (n >> 40) as u32);
            let ones = (j & 31..32).filter(|j| half >> j & 1 != 0).count() as u64;
            let with = BitInstructions::detect().map(|bits| bits.ones_from(half, j));
            assert_eq!(with.unwrap_or(ones), ones);
        }
    }
}
