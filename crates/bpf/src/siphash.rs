//! SipHash over words of memory, as instructions.
//!
//! Called by the programs of `cookie`, and by tests against the `siphasher` crate. A key is kept as
//! the state that the hash starts with ([`start`]), which saves eight instructions a hash. The
//! rounds are unrolled: 32 instructions each, straight on. Reading: Aumasson and Bernstein,
//! "SipHash: a fast short-input PRF" (2012).

use crate::{AccessSize, Assembler, Operation, Register};

/// Rounds for each word, and at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rounds(pub u8, pub u8);

/// SipHash-2-4, of which cookies are made.
pub const CAREFUL: Rounds = Rounds(2, 4);
/// SipHash-1-3, by which tables are indexed.
pub const FAST: Rounds = Rounds(1, 3);

/// Where the key's state or a word lies.
pub type Place = (Register, i16);

const V0: Register = Register::R0;
const V1: Register = Register::R2;
const V2: Register = Register::R3;
const V3: Register = Register::R4;
/// What is absorbed.
const M: Register = Register::R1;
/// For rotations.
const T: Register = Register::R5;

/// The four words of state that a key starts with.
#[must_use]
pub const fn start(key: (u64, u64)) -> [u64; 4] {
    [
        key.0 ^ 0x736f_6d65_7073_6575,
        key.1 ^ 0x646f_7261_6e64_6f6d,
        key.0 ^ 0x6c79_6765_6e65_7261,
        key.1 ^ 0x7465_6462_7974_6573,
    ]
}

/// Leaves the hash of `words` in `R0`; takes `R0` to `R5`. The state of the key is four words at
/// `key`. Equal to hashing the words one after the other in this machine's order.
pub fn emit(a: &mut Assembler, rounds: Rounds, key: Place, words: &[Place]) {
    for (reg, at) in [V0, V1, V2, V3].into_iter().zip((key.1..).step_by(8)) {
        a.load(AccessSize::Double, reg, key.0, at);
    }
    for (reg, at) in words {
        a.load(AccessSize::Double, M, *reg, *at);
        absorb(a, rounds.0);
    }
    // The last block has the number of bytes on top.
    a.set(M, (8 * words.len() as i32) & 0xff).compute(M, Operation::ShiftLeft, 56);
    absorb(a, rounds.0);
    a.compute(V2, Operation::Xor, 0xff);
    (0..rounds.1).for_each(|_| round(a));
    a.compute_reg(V0, Operation::Xor, V1).compute_reg(V2, Operation::Xor, V3).compute_reg(
        V0,
        Operation::Xor,
        V2,
    );
}

fn absorb(a: &mut Assembler, rounds: u8) {
    a.compute_reg(V3, Operation::Xor, M);
    (0..rounds).for_each(|_| round(a));
    a.compute_reg(V0, Operation::Xor, M);
}

fn round(a: &mut Assembler) {
    mix(a, (V0, V1), 13);
    rotate(a, V0, 32);
    mix(a, (V2, V3), 16);
    mix(a, (V0, V3), 21);
    mix(a, (V2, V1), 17);
    rotate(a, V2, 32);
}

/// One adds the other, which is rotated and then takes the sum.
fn mix(a: &mut Assembler, (one, other): (Register, Register), bits: i32) {
    a.compute_reg(one, Operation::Add, other);
    rotate(a, other, bits);
    a.compute_reg(other, Operation::Xor, one);
}

fn rotate(a: &mut Assembler, reg: Register, bits: i32) {
    a.copy(T, reg)
        .compute(T, Operation::ShiftRight, 64 - bits)
        .compute(reg, Operation::ShiftLeft, bits)
        .compute_reg(reg, Operation::Or, T);
}

#[cfg(test)]
mod tests {
    use core::hash::Hasher;

    use proptest::prelude::*;
    use siphasher::sip::{SipHasher13, SipHasher24};

    use super::*;
    use crate::interpreter::Machine;

    fn hashed(rounds: Rounds, key: (u64, u64), words: &[u64]) -> u64 {
        let mut a = Assembler::new();
        for (word, at) in start(key).iter().chain(words).zip((-512_i16..).step_by(8)) {
            a.set_wide(Register::R1, *word).store(
                AccessSize::Double,
                Register::R10,
                at,
                Register::R1,
            );
        }
        let places: Vec<_> =
            words.iter().zip((-480..).step_by(8)).map(|(_, at)| (Register::R10, at)).collect();
        emit(&mut a, rounds, (Register::R10, -512), &places);
        a.exit();
        Machine::new().run(&a.finish().unwrap(), &mut Vec::new()).unwrap().verdict
    }

    proptest! {
        #[test]
        fn it_is_the_hash_that_the_tables_and_the_cookies_use(
            key: (u64, u64), words in proptest::collection::vec(any::<u64>(), 0..8),
        ) {
            let mut careful = SipHasher24::new_with_keys(key.0, key.1);
            let mut fast = SipHasher13::new_with_keys(key.0, key.1);
            for word in &words {
                careful.write_u64(*word);
                fast.write_u64(*word);
            }
            prop_assert_eq!(hashed(CAREFUL, key, &words), careful.finish());
            prop_assert_eq!(hashed(FAST, key, &words), fast.finish());
        }
    }
}
