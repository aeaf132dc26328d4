//! The program that keeps the loudest sources of what is dropped.
//!
//! Called by tail call in the place of one drop in [`RANK_EACH`](super::RANK_EACH). Each entry of a
//! table is found by keyed hash of prefix, port and reason, and holds the one that was the majority
//! of late (Boyer and Moore's vote): its own frames count up, others of the entry count down, at
//! zero or after a minute without it another takes the place. So a prefix that sends more than all
//! others of its entry, one in [`RANKED`] of what is dropped, stands there; sources that are all
//! different wear each other out.

use super::tables::{HostSettings, RANKED, RankedSource};
use super::{DROP, HostMaps, begin, ends, own};
use crate::cookie::segment::{SegmentFamily, families, reach};
use crate::cookie::{at, look_up};
use crate::siphash::{self, FAST};
use crate::{AccessSize, Assembler, Function, JumpCondition, Operation, Register, Width};

/// A power of two of nanoseconds, 69 s, after which an entry is another's.
const STALE_LOG2: i32 = 36;

/// Writes the program. `R1` is the context.
pub fn rank_source(a: &mut Assembler, maps: &HostMaps) {
    let [drop, hashed, other, fresh, take] = core::array::from_fn(|_| a.label());
    begin(a, maps, drop);
    a.call(Function::BootNanos).store(AccessSize::Double, Register::R9, at::NOW, Register::R0);
    for (family, label) in SegmentFamily::BOTH.into_iter().zip(families(a, drop)) {
        a.place(label);
        let (source, _) = family.addresses();
        reach(a, source + 8, drop);
        match family {
            SegmentFamily::V4 => a
                .load(AccessSize::Word, Register::R1, Register::R7, source)
                .wire(Register::R1, Width::Word)
                .compute(Register::R1, Operation::ShiftRight, 8),
            SegmentFamily::V6 => a
                .load(AccessSize::Double, Register::R1, Register::R7, source)
                .wire(Register::R1, Width::Double),
        };
        a.store(AccessSize::Double, Register::R9, at::WORDS, Register::R1)
            .load(AccessSize::Word, Register::R1, Register::R9, own::REASON)
            .compute(Register::R1, Operation::ShiftLeft, RankedSource::REASON_SHIFT)
            .load(AccessSize::Word, Register::R2, Register::R9, own::PORT)
            .compute_reg(Register::R1, Operation::Or, Register::R2)
            .compute(Register::R1, Operation::Or, family.number() << RankedSource::FAMILY_SHIFT)
            .store(AccessSize::Double, Register::R9, at::WORDS + 8, Register::R1)
            .jump(hashed);
    }
    a.place(hashed);
    a.set(Register::R1, 0);
    look_up(a, maps.settings, drop);
    // Packet addresses are needed no more.
    a.copy(Register::R7, Register::R0);
    let words = [(Register::R9, at::WORDS), (Register::R9, at::WORDS + 8)];
    siphash::emit(a, FAST, (Register::R7, HostSettings::CLOCK), &words);
    a.copy(Register::R1, Register::R0).compute(Register::R1, Operation::And, RANKED as i32 - 1);
    look_up(a, maps.ranked, drop);
    a.load(AccessSize::Double, Register::R1, Register::R9, at::WORDS)
        .load(AccessSize::Double, Register::R2, Register::R9, at::WORDS + 8)
        .load(AccessSize::Double, Register::R3, Register::R9, at::NOW)
        .load(AccessSize::Double, Register::R5, Register::R0, RankedSource::COUNT)
        .load(AccessSize::Double, Register::R4, Register::R0, RankedSource::PREFIX)
        .jump_if_reg(Register::R4, JumpCondition::Differs, Register::R1, other)
        .load(AccessSize::Double, Register::R4, Register::R0, RankedSource::LABEL)
        .jump_if_reg(Register::R4, JumpCondition::Differs, Register::R2, other)
        .add(Register::R5, 1)
        .store(AccessSize::Double, Register::R0, RankedSource::COUNT, Register::R5)
        .store(AccessSize::Double, Register::R0, RankedSource::LAST, Register::R3)
        .jump(drop);
    a.place(other);
    a.jump_if(Register::R5, JumpCondition::Equal, 0, take)
        .load(AccessSize::Double, Register::R4, Register::R0, RankedSource::LAST)
        // Another core's clock may be a little ahead.
        .jump_if_reg(Register::R3, JumpCondition::Below, Register::R4, fresh)
        .copy(Register::R2, Register::R3)
        .compute_reg(Register::R2, Operation::Subtract, Register::R4)
        .compute(Register::R2, Operation::ShiftRight, STALE_LOG2)
        .jump_if(Register::R2, JumpCondition::Differs, 0, take);
    a.place(fresh);
    a.add(Register::R5, -1)
        .store(AccessSize::Double, Register::R0, RankedSource::COUNT, Register::R5)
        .jump(drop);
    a.place(take);
    a.load(AccessSize::Double, Register::R2, Register::R9, at::WORDS + 8)
        .store(AccessSize::Double, Register::R0, RankedSource::PREFIX, Register::R1)
        .store(AccessSize::Double, Register::R0, RankedSource::LABEL, Register::R2)
        .store(AccessSize::Double, Register::R0, RankedSource::LAST, Register::R3)
        .store_value(AccessSize::Double, Register::R0, RankedSource::COUNT, 1);
    ends(a, &[(drop, DROP)]);
}
