//! The cookie itself: `cookie.rs` of `syncache` as instructions.
//!
//! Called by both programs once the words of the flow lie in the scratch value. Invariant: the
//! number is the one that `syncache` seals with the same key, flow, sequence number, flags and
//! option bits.

use super::segment::SegmentFamily;
use super::tables::KeyTable;
use super::{Maps, at, look_up, stack};
use crate::siphash::{self, CAREFUL, FAST};
use crate::{AccessSize, Assembler, Label, Operation, Register};

/// Set in the byte of option bits where timestamps are spoken.
pub(super) const TIMESTAMPS_SPOKEN: i32 = 0x80;
/// The option bits of a timestamp.
pub(super) const OPTION_BITS: i32 = 0x3f;
/// Nanoseconds of a tick of our timestamps, as a power of two.
const TIMESTAMP_TICK_LOG2: i32 = 20;
/// Where in the hash of a flow the bits are by which its clock is shifted.
const CLOCK_SHIFT_AT: i32 = 24;

/// Puts the client's sequence number (`R1`), flags (`R2`) and option bits (`R3`) behind the words
/// of the flow.
pub(super) fn say(a: &mut Assembler, family: SegmentFamily) {
    a.compute(Register::R1, Operation::ShiftLeft, 32)
        .compute(Register::R2, Operation::ShiftLeft, 8)
        .compute_reg(Register::R1, Operation::Or, Register::R2)
        .compute_reg(Register::R1, Operation::Or, Register::R3)
        .store(AccessSize::Double, Register::R9, said(family), Register::R1);
}

const fn said(family: SegmentFamily) -> i16 {
    at::WORDS + family.words() as i16 * 8
}

fn places(words: usize) -> Vec<siphash::Place> {
    (0..words as i16).map(|n| (Register::R9, at::WORDS + n * 8)).collect()
}

/// Leaves the cookie of the words in `R1`, by the key with the number in `R1`; goes to `none` where
/// there is no such key. The frame's end waits on the stack meanwhile.
pub(super) fn seal(a: &mut Assembler, maps: &Maps, family: SegmentFamily, none: Label) {
    a.add(Register::R1, 1);
    look_up(a, maps.keys, none);
    a.store(AccessSize::Double, Register::R10, stack::END, Register::R8)
        .copy(Register::R8, Register::R0);
    siphash::emit(a, CAREFUL, (Register::R8, 0), &places(family.words() + 1));
    a.load(AccessSize::Double, Register::R8, Register::R10, stack::END)
        .copy_word(Register::R1, Register::R0)
        .copy(Register::R2, Register::R1)
        .compute(Register::R2, Operation::ShiftRight, 24)
        .compute_word(Register::R1, Operation::And, !0xff)
        .load(AccessSize::Double, Register::R3, Register::R9, said(family))
        .compute(Register::R3, Operation::ShiftRight, 8)
        .compute(Register::R3, Operation::And, 0xff)
        .compute_reg(Register::R2, Operation::Xor, Register::R3)
        .compute_reg(Register::R1, Operation::Or, Register::R2);
}

/// Leaves a keyed hash of the flow in `R0`: the fast one, by the key that shifts clocks. Takes `R1`
/// to `R5`.
pub(super) fn hash_flow(a: &mut Assembler, family: SegmentFamily) {
    a.store(AccessSize::Double, Register::R10, stack::END, Register::R8).load(
        AccessSize::Double,
        Register::R8,
        Register::R10,
        stack::HEADER,
    );
    let key = (Register::R8, KeyTable::CLOCK_OFFSET);
    siphash::emit(a, FAST, key, &places(family.words()));
    a.load(AccessSize::Double, Register::R8, Register::R10, stack::END);
}

/// Our timestamp with the option bits in `R1`, into the scratch value: the greatest that has them
/// and is not ahead of the clock, as `timestamp.rs` of `syncache` has it. Keeps no register.
pub(super) fn timestamp(a: &mut Assembler, family: SegmentFamily) {
    a.store(AccessSize::Word, Register::R9, at::CLOCK, Register::R1);
    hash_flow(a, family);
    a.compute(Register::R0, Operation::ShiftRight, CLOCK_SHIFT_AT)
        .load(AccessSize::Double, Register::R1, Register::R9, at::NOW)
        .compute(Register::R1, Operation::ShiftRight, TIMESTAMP_TICK_LOG2)
        .compute_word_reg(Register::R1, Operation::Add, Register::R0)
        .load(AccessSize::Word, Register::R2, Register::R9, at::CLOCK)
        .copy(Register::R3, Register::R1)
        .compute_word(Register::R3, Operation::And, !OPTION_BITS)
        .compute_word_reg(Register::R3, Operation::Or, Register::R2)
        // A tick of the marks back where it is ahead: without a branch.
        .compute_word_reg(Register::R1, Operation::Subtract, Register::R3)
        .compute_word(Register::R1, Operation::ShiftRight, 31)
        .compute_word(Register::R1, Operation::ShiftLeft, 6)
        .compute_word_reg(Register::R3, Operation::Subtract, Register::R1)
        .store(AccessSize::Word, Register::R9, at::CLOCK, Register::R3);
}
