//! The program that believes ACKs.
//!
//! Called by tail call, under pressure, with segments of no connection that the interface knows.
//! An ACK whose number is a cookie of ours plus one proves its source: its sender has had our
//! SYN-ACK. It is opened as `syncache` opens it, whether the cache, this interface or a sister
//! instance with the same secret made it; data and FIN may come with it. What a proven flow sends
//! next has other numbers, so the caller notes the flow.

use super::seal::{MARKS, SPOKEN, say, seal};
use super::segment::{Family, families, read};
use super::tables::{Desk, KeyTable, Offer};
use super::{Maps, at, begin, count, find_epoch, find_listener, options, read_clock, stack};
use crate::{Assembler, Does, Function, Label, Reg, Size, When, Width};

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
    a.copy(Reg::R1, Reg::R6).call(Function::FrameBytes).store(
        Size::Word,
        Reg::R9,
        at::FRAME,
        Reg::R0,
    );
    find_epoch(a, maps, ways.stray);
    for (family, label) in Family::BOTH.into_iter().zip(families(a, ways.stray)) {
        a.place(label);
        read(a, family, ways.stray, |a| {
            a.load(Size::Double, Reg::R3, Reg::R10, stack::HEADER).load(
                Size::Double,
                Reg::R3,
                Reg::R3,
                KeyTable::ZONE_OFFSET,
            );
        });
        numbers(a, family, ways.stray);
        a.jump(ready);
    }
    a.place(ready);
    find_listener(a, maps, ways.stray);
    options::walk(a, ways.stray);
    a.load(Size::Word, Reg::R1, Reg::R9, at::FAMILY).jump_if(Reg::R1, When::Equal, 6, v6);
    for family in Family::BOTH {
        if family == Family::V6 {
            a.place(v6);
        }
        open(a, maps, family, ways);
    }
}

/// The numbers that the handshake would have begun with, into the scratch value. Goes to `odd` with
/// what is no ACK.
fn numbers(a: &mut Assembler, family: Family, odd: Label) {
    let l4 = family.l4();
    a.load(Size::Byte, Reg::R1, Reg::R7, l4 + 13).compute(Reg::R1, Does::And, 0x16).jump_if(
        Reg::R1,
        When::Differs,
        0x10,
        odd,
    );
    for (from, to) in [(l4 + 4, at::CLIENT), (l4 + 8, at::COOKIE)] {
        a.load(Size::Word, Reg::R1, Reg::R7, from)
            .wire(Reg::R1, Width::Word)
            .compute_word(Reg::R1, Does::Subtract, 1)
            .store(Size::Word, Reg::R9, to, Reg::R1);
    }
}

/// Seals what the cookie says and compares.
fn open(a: &mut Assembler, maps: &Maps, family: Family, ways: &AckWays) {
    let (forged, sealed) = (a.label(), a.label());
    // The option bits of the timestamp that comes back, where both speak timestamps.
    a.load(Size::Double, Reg::R1, Reg::R9, at::OFFER)
        .compute(Reg::R1, Does::ShiftRight, Offer::FLAGS_SHIFT + 1)
        .load(Size::Word, Reg::R2, Reg::R9, at::SEEN)
        .compute(Reg::R2, Does::ShiftRight, 2)
        .compute_reg(Reg::R1, Does::And, Reg::R2)
        .compute(Reg::R1, Does::And, 1)
        .set(Reg::R3, 0)
        .jump_if(Reg::R1, When::Equal, 0, sealed)
        .load(Size::Word, Reg::R3, Reg::R9, at::ECHO)
        .wire(Reg::R3, Width::Word)
        .compute(Reg::R3, Does::And, MARKS)
        .compute(Reg::R3, Does::Or, SPOKEN);
    a.place(sealed);
    // The flags' byte, and by it the key.
    a.load(Size::Word, Reg::R2, Reg::R9, at::COOKIE)
        .copy(Reg::R1, Reg::R2)
        .compute(Reg::R1, Does::ShiftRight, 24)
        .compute_reg(Reg::R2, Does::Xor, Reg::R1)
        .compute(Reg::R2, Does::And, 0xff)
        .load(Size::Word, Reg::R4, Reg::R9, at::SLOT)
        .copy(Reg::R1, Reg::R4)
        .compute_reg(Reg::R1, Does::Xor, Reg::R2)
        .compute(Reg::R1, Does::And, 1)
        .compute_reg(Reg::R4, Does::Subtract, Reg::R1)
        .compute(Reg::R4, Does::And, 3)
        .store(Size::Word, Reg::R9, at::SLOT, Reg::R4)
        .load(Size::Word, Reg::R1, Reg::R9, at::CLIENT);
    say(a, family);
    a.load(Size::Word, Reg::R1, Reg::R9, at::SLOT);
    seal(a, maps, family, ways.stray);
    a.load(Size::Word, Reg::R2, Reg::R9, at::COOKIE).jump_if_reg(
        Reg::R1,
        When::Differs,
        Reg::R2,
        forged,
    );
    count(a, Desk::Proven);
    a.jump(ways.proven);
    a.place(forged);
    count(a, Desk::Forged);
    a.jump(ways.forged);
}
