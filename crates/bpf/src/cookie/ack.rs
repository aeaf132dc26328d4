//! The program that believes ACKs.
//!
//! Called by tail call, under pressure, with segments of no connection that the interface knows.
//! An ACK with a number that is a cookie of ours plus one proves its source: its sender has had our
//! SYN-ACK. It is opened as `syncache` opens it, whether the cache, this interface or a sister
//! instance with the same secret made it; data and FIN may come with it. What a proven flow sends
//! next has other numbers, so the caller notes the flow.

use super::seal::{OPTION_BITS, TIMESTAMPS_SPOKEN, say, seal};
use super::segment::{SegmentFamily, families, read};
use super::tables::{Desk, KeyTable, Offer};
use super::{Maps, at, begin, count, find_epoch, find_listener, options, read_clock, stack};
use crate::{AccessSize, Assembler, Function, JumpCondition, Label, Operation, Register, Width};

/// Where a segment leaves the program. `R6` is the context, `R7` to `R9` as [`super`] says.
#[derive(Clone, Copy, Debug)]
pub struct AckWays {
    /// It carries a cookie of ours.
    pub proven: Label,
    /// It is an ACK for a port where we listen, and its number is no cookie.
    pub forged: Label,
    /// It is anything else that belongs to no connection: RST, SYN-ACK, no flags, a port where
    /// we do not listen, a frame that is no plain segment; or there are no keys.
    pub stray: Label,
}

/// Writes the program. `R1` is the context; every way out is one of the labels, which the caller
/// places behind this.
pub fn check_ack(a: &mut Assembler, maps: &Maps, ways: &AckWays) {
    let (ready, v6) = (a.label(), a.label());
    begin(a, maps, ways.stray);
    read_clock(a);
    a.copy(Register::R1, Register::R6).call(Function::FrameBytes).store(
        AccessSize::Word,
        Register::R9,
        at::FRAME,
        Register::R0,
    );
    find_epoch(a, maps, ways.stray);
    for (family, label) in SegmentFamily::BOTH.into_iter().zip(families(a, ways.stray)) {
        a.place(label);
        read(a, family, ways.stray, |a| {
            a.load(AccessSize::Double, Register::R3, Register::R10, stack::HEADER).load(
                AccessSize::Double,
                Register::R3,
                Register::R3,
                KeyTable::ZONE_OFFSET,
            );
        });
        numbers(a, family, ways.stray);
        a.jump(ready);
    }
    a.place(ready);
    find_listener(a, maps, ways.stray);
    options::walk(a, ways.stray);
    a.load(AccessSize::Word, Register::R1, Register::R9, at::FAMILY).jump_if(
        Register::R1,
        JumpCondition::Equal,
        6,
        v6,
    );
    for family in SegmentFamily::BOTH {
        if family == SegmentFamily::V6 {
            a.place(v6);
        }
        open(a, maps, family, ways);
    }
}

/// The numbers that the handshake would have begun with, into the scratch value. Goes to `odd` with
/// what is no ACK.
pub(super) fn numbers(a: &mut Assembler, family: SegmentFamily, odd: Label) {
    let l4 = family.l4();
    a.load(AccessSize::Byte, Register::R1, Register::R7, l4 + 13)
        .compute(Register::R1, Operation::And, 0x16)
        .jump_if(Register::R1, JumpCondition::Differs, 0x10, odd);
    for (from, to) in [(l4 + 4, at::CLIENT), (l4 + 8, at::COOKIE)] {
        a.load(AccessSize::Word, Register::R1, Register::R7, from)
            .wire(Register::R1, Width::Word)
            .compute_word(Register::R1, Operation::Subtract, 1)
            .store(AccessSize::Word, Register::R9, to, Register::R1);
    }
}

/// Seals what the cookie says and compares.
pub(super) fn open(a: &mut Assembler, maps: &Maps, family: SegmentFamily, ways: &AckWays) {
    let (forged, sealed) = (a.label(), a.label());
    // The option bits of the timestamp that comes back, where both speak timestamps.
    a.load(AccessSize::Double, Register::R1, Register::R9, at::OFFER)
        .compute(Register::R1, Operation::ShiftRight, Offer::FLAGS_SHIFT + 1)
        .load(AccessSize::Word, Register::R2, Register::R9, at::SEEN)
        .compute(Register::R2, Operation::ShiftRight, 2)
        .compute_reg(Register::R1, Operation::And, Register::R2)
        .compute(Register::R1, Operation::And, 1)
        .set(Register::R3, 0)
        .jump_if(Register::R1, JumpCondition::Equal, 0, sealed)
        .load(AccessSize::Word, Register::R3, Register::R9, at::ECHO)
        .wire(Register::R3, Width::Word)
        .compute(Register::R3, Operation::And, OPTION_BITS)
        .compute(Register::R3, Operation::Or, TIMESTAMPS_SPOKEN);
    a.place(sealed);
    // The flags' byte, and by it the key.
    a.load(AccessSize::Word, Register::R2, Register::R9, at::COOKIE)
        .copy(Register::R1, Register::R2)
        .compute(Register::R1, Operation::ShiftRight, 24)
        .compute_reg(Register::R2, Operation::Xor, Register::R1)
        .compute(Register::R2, Operation::And, 0xff)
        .load(AccessSize::Word, Register::R4, Register::R9, at::SLOT)
        .copy(Register::R1, Register::R4)
        .compute_reg(Register::R1, Operation::Xor, Register::R2)
        .compute(Register::R1, Operation::And, 1)
        .compute_reg(Register::R4, Operation::Subtract, Register::R1)
        .compute(Register::R4, Operation::And, 3)
        .store(AccessSize::Word, Register::R9, at::SLOT, Register::R4)
        .load(AccessSize::Word, Register::R1, Register::R9, at::CLIENT);
    say(a, family);
    a.load(AccessSize::Word, Register::R1, Register::R9, at::SLOT);
    seal(a, maps, family, ways.stray);
    a.load(AccessSize::Word, Register::R2, Register::R9, at::COOKIE).jump_if_reg(
        Register::R1,
        JumpCondition::Differs,
        Register::R2,
        forged,
    );
    count(a, Desk::Proven);
    a.jump(ways.proven);
    a.place(forged);
    count(a, Desk::Forged);
    a.jump(ways.forged);
}
