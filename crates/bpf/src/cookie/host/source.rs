//! Sources of datagrams that are known to be where they say.
//!
//! Called by `challenge.rs`; [`remember_source`] by tail call from `classify.rs` for segments of a
//! connection at a port that proves sources. A source is an IPv4 address or the first 64 bits of an
//! IPv6 one. Its entry in the table is found by keyed hash: the hash's upper 40 bits, and when it
//! was proven, in units of 2^30 ns. A collision takes the place of the older proof, and
//! that source is challenged again.

use super::tables::{HostSettings, SOURCES};
use super::{HostMaps, PASS, begin, ends, own, spot};
use crate::cookie::segment::{SegmentFamily, families, reach};
use crate::cookie::{at, look_up};
use crate::siphash::{self, FAST};
use crate::{AccessSize, Assembler, Function, JumpCondition, Label, Operation, Register, Width};

/// Bits of the time in an entry, and how old a proof may be: about 18 minutes.
const PROOF_TIME_BITS: i32 = 0xff_ffff;
const TIME_BITS: i32 = 24;
const PROOF_UNIT_LOG2: i32 = 30;
const PROOF_LIFE_UNITS: i32 = 1024;

/// Writes the program that remembers the source of a segment. `R1` is the context.
pub fn remember_source(a: &mut Assembler, maps: &HostMaps) {
    let [pass, read] = core::array::from_fn(|_| a.label());
    begin(a, maps, pass);
    a.call(Function::BootNanos).store(AccessSize::Double, Register::R9, at::NOW, Register::R0);
    for (family, label) in SegmentFamily::BOTH.into_iter().zip(families(a, pass)) {
        a.place(label);
        address(a, family, pass);
        a.jump(read);
    }
    a.place(read);
    find(a, maps, pass);
    mark(a);
    ends(a, &[(pass, PASS)]);
}

/// The source's address into the first two words under the hash, and for IPv6 once more as
/// `segment::source` wants it.
pub(super) fn address(a: &mut Assembler, family: SegmentFamily, short: Label) {
    let (source, destination) = family.addresses();
    reach(a, destination, short);
    match family {
        SegmentFamily::V4 => {
            a.load(AccessSize::Word, Register::R1, Register::R7, source)
                .store(AccessSize::Double, Register::R9, at::WORDS, Register::R1)
                .store_value(AccessSize::Double, Register::R9, at::WORDS + 8, 0);
        }
        SegmentFamily::V6 => {
            for half in [0, 8] {
                a.load(AccessSize::Double, Register::R1, Register::R7, source + half)
                    .store(AccessSize::Double, Register::R9, at::WORDS + half, Register::R1)
                    .wire(Register::R1, Width::Double)
                    .store(AccessSize::Double, Register::R9, at::WORDS + 16 + half, Register::R1);
            }
        }
    }
    a.store_value(AccessSize::Word, Register::R9, own::FAMILY, family.number());
}

/// The source's entry, on the stack with the settings; takes the place of the frame's address.
pub(super) fn find(a: &mut Assembler, maps: &HostMaps, missing: Label) {
    a.set(Register::R1, 0);
    look_up(a, maps.settings, missing);
    a.copy(Register::R7, Register::R0).store(
        AccessSize::Double,
        Register::R10,
        spot::SETTINGS,
        Register::R0,
    );
    let words = [(Register::R9, at::WORDS)];
    siphash::emit(a, FAST, (Register::R7, HostSettings::CLOCK), &words);
    a.store(AccessSize::Double, Register::R9, own::HASH, Register::R0)
        .copy(Register::R1, Register::R0)
        .compute(Register::R1, Operation::And, SOURCES as i32 - 1);
    look_up(a, maps.sources, missing);
    a.store(AccessSize::Double, Register::R10, spot::PROOF, Register::R0);
}

/// Goes to `proven` where the entry that was found is the source's, and not too old.
pub(super) fn is_proven(a: &mut Assembler, proven: Label) {
    let other = a.label();
    a.load(AccessSize::Double, Register::R1, Register::R10, spot::PROOF)
        .load(AccessSize::Double, Register::R1, Register::R1, 0)
        .jump_if(Register::R1, JumpCondition::Equal, 0, other)
        .load(AccessSize::Double, Register::R2, Register::R9, own::HASH)
        .compute_reg(Register::R2, Operation::Xor, Register::R1)
        .compute(Register::R2, Operation::ShiftRight, TIME_BITS)
        .jump_if(Register::R2, JumpCondition::Differs, 0, other)
        .load(AccessSize::Double, Register::R2, Register::R9, at::NOW)
        .compute(Register::R2, Operation::ShiftRight, PROOF_UNIT_LOG2)
        .compute_reg(Register::R2, Operation::Subtract, Register::R1)
        .compute(Register::R2, Operation::And, PROOF_TIME_BITS)
        .jump_if(Register::R2, JumpCondition::AtMost, PROOF_LIFE_UNITS, proven);
    a.place(other);
}

/// Writes the source's proof into the entry that was found.
pub(super) fn mark(a: &mut Assembler) {
    a.load(AccessSize::Double, Register::R1, Register::R9, at::NOW)
        .compute(Register::R1, Operation::ShiftRight, PROOF_UNIT_LOG2)
        .compute(Register::R1, Operation::And, PROOF_TIME_BITS)
        .load(AccessSize::Double, Register::R2, Register::R9, own::HASH)
        .compute(Register::R2, Operation::ShiftRight, TIME_BITS)
        .compute(Register::R2, Operation::ShiftLeft, TIME_BITS)
        .compute_reg(Register::R1, Operation::Or, Register::R2)
        .load(AccessSize::Double, Register::R2, Register::R10, spot::PROOF)
        .store(AccessSize::Double, Register::R2, 0, Register::R1);
}
