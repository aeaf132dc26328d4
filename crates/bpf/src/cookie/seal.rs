//! The cookie itself: `cookie.rs` of `syncache` as instructions.
//!
//! Called by both programs once the words of the flow lie in the scratch value. Invariant: the
//! number is the one that `syncache` seals with the same key, flow, sequence number, flags and
//! option bits.

use super::segment::Family;
use super::tables::KeyTable;
use super::{Maps, at, look_up, stack};
use crate::siphash::{self, CAREFUL, FAST};
use crate::{Assembler, Does, Label, Reg, Size};

/// Set in the byte of option bits where timestamps are spoken.
pub(super) const SPOKEN: i32 = 0x80;
/// The option bits of a timestamp.
pub(super) const MARKS: i32 = 0x3f;
/// Nanoseconds of a tick of our timestamps, as a power of two.
const TICK: i32 = 20;
/// Where in the hash of a flow the bits are by which its clock is shifted.
const SHIFT: i32 = 24;

/// Puts the client's sequence number (`R1`), flags (`R2`) and option bits (`R3`) behind the words
/// of the flow.
pub(super) fn say(a: &mut Assembler, family: Family) {
    a.compute(Reg::R1, Does::ShiftLeft, 32)
        .compute(Reg::R2, Does::ShiftLeft, 8)
        .compute_reg(Reg::R1, Does::Or, Reg::R2)
        .compute_reg(Reg::R1, Does::Or, Reg::R3)
        .store(Size::Double, Reg::R9, said(family), Reg::R1);
}

const fn said(family: Family) -> i16 {
    at::WORDS + family.words() as i16 * 8
}

fn places(words: usize) -> Vec<siphash::Place> {
    (0..words as i16).map(|n| (Reg::R9, at::WORDS + n * 8)).collect()
}

/// Leaves the cookie of the words in `R1`, by the key whose number is in `R1`; goes to `none` where
/// there is no such key. The frame's end waits on the stack meanwhile.
pub(super) fn seal(a: &mut Assembler, maps: &Maps, family: Family, none: Label) {
    a.add(Reg::R1, 1);
    look_up(a, maps.keys, none);
    a.store(Size::Double, Reg::R10, stack::END, Reg::R8).copy(Reg::R8, Reg::R0);
    siphash::emit(a, CAREFUL, (Reg::R8, 0), &places(family.words() + 1));
    a.load(Size::Double, Reg::R8, Reg::R10, stack::END)
        .copy_word(Reg::R1, Reg::R0)
        .copy(Reg::R2, Reg::R1)
        .compute(Reg::R2, Does::ShiftRight, 24)
        .compute_word(Reg::R1, Does::And, !0xff)
        .load(Size::Double, Reg::R3, Reg::R9, said(family))
        .compute(Reg::R3, Does::ShiftRight, 8)
        .compute(Reg::R3, Does::And, 0xff)
        .compute_reg(Reg::R2, Does::Xor, Reg::R3)
        .compute_reg(Reg::R1, Does::Or, Reg::R2);
}

/// Our timestamp with the option bits in `R1`, into the scratch value: the greatest that has them
/// and is not ahead of the clock, as `timestamp.rs` of `syncache` has it. Keeps no register.
pub(super) fn timestamp(a: &mut Assembler, family: Family) {
    a.store(Size::Word, Reg::R9, at::CLOCK, Reg::R1)
        .store(Size::Double, Reg::R10, stack::END, Reg::R8)
        .load(Size::Double, Reg::R8, Reg::R10, stack::HEADER);
    let key = (Reg::R8, KeyTable::CLOCK_OFFSET);
    siphash::emit(a, FAST, key, &places(family.words()));
    a.load(Size::Double, Reg::R8, Reg::R10, stack::END)
        .compute(Reg::R0, Does::ShiftRight, SHIFT)
        .load(Size::Double, Reg::R1, Reg::R9, at::NOW)
        .compute(Reg::R1, Does::ShiftRight, TICK)
        .compute_word_reg(Reg::R1, Does::Add, Reg::R0)
        .load(Size::Word, Reg::R2, Reg::R9, at::CLOCK)
        .copy(Reg::R3, Reg::R1)
        .compute_word(Reg::R3, Does::And, !MARKS)
        .compute_word_reg(Reg::R3, Does::Or, Reg::R2)
        // A tick of the marks back where it is ahead: without a branch.
        .compute_word_reg(Reg::R1, Does::Subtract, Reg::R3)
        .compute_word(Reg::R1, Does::ShiftRight, 31)
        .compute_word(Reg::R1, Does::ShiftLeft, 6)
        .compute_word_reg(Reg::R3, Does::Subtract, Reg::R1)
        .store(Size::Word, Reg::R9, at::CLOCK, Reg::R3);
}
