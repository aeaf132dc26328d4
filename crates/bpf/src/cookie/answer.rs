//! The SYN-ACK, written over the SYN.
//!
//! Called by `syn.rs` once the cookie is there. The answer has the options that the client offered
//! and no others, so it is never longer than the SYN was, and fits where that lay: everything is
//! written first, then the end is cut off. Checksums are summed from the words that are written.
//! The order of the options is that of `wire`'s `TcpOptionSet::emit_into`, the headers are those of
//! `ip`'s `output.rs`.

use super::segment::{Family, L3, TCP_BYTES, fold, reach, wire};
use super::syn::{AGREED_ECN, AGREED_MSS, AGREED_SACK, AGREED_SCALE, AGREED_TIMESTAMPS, SynWays};
use super::tables::{Desk, Offer};
use super::{at, count};
use crate::{Assembler, Does, Function, Label, Reg, Size, When, Width};

/// Heads of options as they stand on the wire.
const MSS: i32 = 0x0204_0000;
const SACK_ALONE: i32 = 0x0101_0402;
const TIMESTAMPS_ALONE: i32 = 0x0101_080a;
const TIMESTAMPS_AND_SACK: i32 = 0x0402_080a;
const SCALE: i32 = 0x0103_0300;
/// Flags of the answer: SYN and ACK; ECE.
const SYN_ACK: i32 = 0x12;
const ECE: i32 = 0x40;
const DONT_FRAGMENT: i32 = 0x4000;
const TCP: i32 = 6;

/// What stands between the segment size and the scale.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Middle {
    Nothing,
    Sack,
    Timestamps,
}

/// Writes the answer and leaves by one of `ways`; goes to `short` where the frame has no room for
/// it, which no SYN that was read has.
pub(super) fn write(a: &mut Assembler, family: Family, ways: &SynWays, short: Label) {
    let finish = a.label();
    // The sum of the options, in `R1`, and which of them there are, in `R2`.
    a.set(Reg::R1, 0).load(Size::Word, Reg::R2, Reg::R9, at::AGREED);
    for says_mss in [false, true] {
        let other_mss = a.label();
        if !says_mss {
            a.jump_if(Reg::R2, When::Meets, AGREED_MSS, other_mss);
        }
        for middle in [Middle::Nothing, Middle::Sack, Middle::Timestamps] {
            let other = a.label();
            unless(a, middle, other);
            for scales in [false, true] {
                let scaled = a.label();
                if !scales {
                    a.jump_if(Reg::R2, When::Meets, AGREED_SCALE, scaled);
                }
                leaf(a, family, (says_mss, middle, scales), short);
                a.jump(finish);
                if !scales {
                    a.place(scaled);
                }
            }
            a.place(other);
        }
        // All three were tried.
        a.jump(short);
        if !says_mss {
            a.place(other_mss);
        }
    }
    a.place(finish);
    reach(a, family.l4() + TCP_BYTES, short);
    segment(a, family);
    match family {
        Family::V4 => header_v4(a),
        Family::V6 => header_v6(a),
    }
    link(a);
    cut(a, family, ways);
}

/// Goes to `other` where something else stands in the middle.
fn unless(a: &mut Assembler, middle: Middle, other: Label) {
    a.copy(Reg::R3, Reg::R2).compute(Reg::R3, Does::And, AGREED_SACK | AGREED_TIMESTAMPS);
    match middle {
        Middle::Nothing => a.jump_if(Reg::R3, When::Differs, 0, other),
        Middle::Sack => a.jump_if(Reg::R3, When::Differs, AGREED_SACK, other),
        Middle::Timestamps => a.jump_if(Reg::R3, When::Below, AGREED_TIMESTAMPS, other),
    };
}

/// Writes one set of options at its place and sums it.
fn leaf(
    a: &mut Assembler,
    family: Family,
    (says_mss, middle, scales): (bool, Middle, bool),
    short: Label,
) {
    let from = family.l4() + TCP_BYTES;
    let middle_bytes = match middle {
        Middle::Nothing => 0,
        Middle::Sack => 4,
        Middle::Timestamps => 12,
    };
    let bytes = if says_mss { 4 } else { 0 } + middle_bytes + if scales { 4 } else { 0 };
    let mut to = from;
    let mut put = |a: &mut Assembler| {
        a.store(Size::Word, Reg::R7, to, Reg::R3).compute_reg(Reg::R1, Does::Add, Reg::R3);
        to += 4;
    };
    reach(a, from + bytes, short);
    if says_mss {
        field(a, Offer::MSS_SHIFT, 0xffff);
        a.compute(Reg::R3, Does::Or, MSS).wire(Reg::R3, Width::Word);
        put(a);
    }
    match middle {
        Middle::Nothing => {}
        Middle::Sack => {
            a.set_word(Reg::R3, SACK_ALONE.to_be().cast_unsigned());
            put(a);
        }
        Middle::Timestamps => {
            // Without a branch: the head with SACK differs from the one without.
            let differs = TIMESTAMPS_ALONE ^ TIMESTAMPS_AND_SACK;
            a.copy(Reg::R3, Reg::R2)
                .compute(Reg::R3, Does::ShiftRight, 1)
                .compute(Reg::R3, Does::And, 1)
                .negate(Reg::R3)
                .compute(Reg::R3, Does::And, differs)
                .compute(Reg::R3, Does::Xor, TIMESTAMPS_ALONE)
                .wire(Reg::R3, Width::Word);
            put(a);
            a.load(Size::Word, Reg::R3, Reg::R9, at::CLOCK).wire(Reg::R3, Width::Word);
            put(a);
            a.load(Size::Word, Reg::R3, Reg::R9, at::VALUE);
            put(a);
        }
    }
    if scales {
        field(a, Offer::SCALE_SHIFT, 0xff);
        a.compute(Reg::R3, Does::Or, SCALE).wire(Reg::R3, Width::Word);
        put(a);
    }
    a.store_value(Size::Word, Reg::R9, at::ANSWER, i32::from(bytes));
}

/// A field of the listener's word, in `R3`.
fn field(a: &mut Assembler, shift: i32, mask: i32) {
    a.load(Size::Double, Reg::R3, Reg::R9, at::OFFER);
    if shift > 0 {
        a.compute(Reg::R3, Does::ShiftRight, shift);
    }
    a.compute(Reg::R3, Does::And, mask);
}

/// The TCP header; the sum of the options is in `R1`.
fn segment(a: &mut Assembler, family: Family) {
    let l4 = family.l4();
    let (source, destination) = family.addresses();
    // Addresses change places, and ports: their sum stays.
    for address in [source, destination] {
        for word in (0..destination - source).step_by(4) {
            a.load(Size::Word, Reg::R2, Reg::R7, address + word).compute_reg(
                Reg::R1,
                Does::Add,
                Reg::R2,
            );
        }
    }
    a.load(Size::Half, Reg::R2, Reg::R7, l4)
        .load(Size::Half, Reg::R3, Reg::R7, l4 + 2)
        .store(Size::Half, Reg::R7, l4, Reg::R3)
        .store(Size::Half, Reg::R7, l4 + 2, Reg::R2)
        .compute_reg(Reg::R1, Does::Add, Reg::R2)
        .compute_reg(Reg::R1, Does::Add, Reg::R3);
    // Sequence number, acknowledgment of the SYN.
    a.load(Size::Word, Reg::R2, Reg::R9, at::COOKIE)
        .wire(Reg::R2, Width::Word)
        .store(Size::Word, Reg::R7, l4 + 4, Reg::R2)
        .compute_reg(Reg::R1, Does::Add, Reg::R2)
        .load(Size::Word, Reg::R2, Reg::R9, at::CLIENT)
        .add(Reg::R2, 1)
        .wire(Reg::R2, Width::Word)
        .store(Size::Word, Reg::R7, l4 + 8, Reg::R2)
        .compute_reg(Reg::R1, Does::Add, Reg::R2);
    // Length, flags, window.
    field(a, 0, 0xffff);
    a.load(Size::Word, Reg::R2, Reg::R9, at::ANSWER)
        .add(Reg::R2, i32::from(TCP_BYTES))
        .copy(Reg::R4, Reg::R2)
        .compute(Reg::R2, Does::ShiftLeft, 26)
        .compute_reg(Reg::R3, Does::Or, Reg::R2)
        .load(Size::Word, Reg::R2, Reg::R9, at::AGREED)
        .compute(Reg::R2, Does::And, AGREED_ECN)
        .compute(Reg::R2, Does::ShiftLeft, 3)
        .compute(Reg::R2, Does::Or, SYN_ACK)
        .compute(Reg::R2, Does::ShiftLeft, 16)
        .compute_reg(Reg::R3, Does::Or, Reg::R2)
        .wire(Reg::R3, Width::Word)
        .store(Size::Word, Reg::R7, l4 + 12, Reg::R3)
        .compute_reg(Reg::R1, Does::Add, Reg::R3);
    const { assert!(AGREED_ECN << 3 == ECE, "the bit moves to its place") };
    // The pseudo header: bytes of the segment, protocol.
    a.wire(Reg::R4, Width::Half)
        .compute_reg(Reg::R1, Does::Add, Reg::R4)
        .add(Reg::R1, wire(TCP as u16));
    fold(a, Reg::R1, Reg::R2);
    a.compute(Reg::R1, Does::Xor, 0xffff).store(Size::Half, Reg::R7, l4 + 16, Reg::R1).store_value(
        Size::Half,
        Reg::R7,
        l4 + 18,
        0,
    );
}

/// The IPv4 header: don't fragment, no identification.
fn header_v4(a: &mut Assembler) {
    let bytes = i32::from(Family::V4.header() + TCP_BYTES);
    field(a, Offer::CLASS_SHIFT, 0xff);
    a.load(Size::Word, Reg::R1, Reg::R9, at::ANSWER)
        .add(Reg::R1, bytes)
        .compute(Reg::R3, Does::ShiftLeft, 16)
        .compute_reg(Reg::R1, Does::Or, Reg::R3)
        .set_word(Reg::R3, 0x4500_0000)
        .compute_reg(Reg::R1, Does::Or, Reg::R3)
        .wire(Reg::R1, Width::Word)
        .store(Size::Word, Reg::R7, L3, Reg::R1)
        .set_word(Reg::R2, DONT_FRAGMENT.to_be().cast_unsigned())
        .store(Size::Word, Reg::R7, L3 + 4, Reg::R2)
        .compute_reg(Reg::R1, Does::Add, Reg::R2);
    field(a, Offer::HOP_LIMIT_SHIFT, 0xff);
    a.compute(Reg::R3, Does::ShiftLeft, 8)
        .compute(Reg::R3, Does::Or, TCP)
        .wire(Reg::R3, Width::Half)
        .store(Size::Half, Reg::R7, L3 + 8, Reg::R3)
        .compute_reg(Reg::R1, Does::Add, Reg::R3)
        .load(Size::Word, Reg::R2, Reg::R7, L3 + 12)
        .load(Size::Word, Reg::R3, Reg::R7, L3 + 16)
        .store(Size::Word, Reg::R7, L3 + 12, Reg::R3)
        .store(Size::Word, Reg::R7, L3 + 16, Reg::R2)
        .compute_reg(Reg::R1, Does::Add, Reg::R2)
        .compute_reg(Reg::R1, Does::Add, Reg::R3);
    fold(a, Reg::R1, Reg::R2);
    a.compute(Reg::R1, Does::Xor, 0xffff).store(Size::Half, Reg::R7, L3 + 10, Reg::R1);
}

/// The IPv6 header: no flow label.
fn header_v6(a: &mut Assembler) {
    field(a, Offer::CLASS_SHIFT, 0xff);
    a.compute(Reg::R3, Does::ShiftLeft, 20)
        .set_word(Reg::R1, 0x6000_0000)
        .compute_reg(Reg::R1, Does::Or, Reg::R3)
        .wire(Reg::R1, Width::Word)
        .store(Size::Word, Reg::R7, L3, Reg::R1);
    field(a, Offer::HOP_LIMIT_SHIFT, 0xff);
    a.load(Size::Word, Reg::R1, Reg::R9, at::ANSWER)
        .add(Reg::R1, i32::from(TCP_BYTES))
        .compute(Reg::R1, Does::ShiftLeft, 16)
        .compute(Reg::R1, Does::Or, TCP << 8)
        .compute_reg(Reg::R1, Does::Or, Reg::R3)
        .wire(Reg::R1, Width::Word)
        .store(Size::Word, Reg::R7, L3 + 4, Reg::R1);
    for half in [0, 8] {
        a.load(Size::Double, Reg::R1, Reg::R7, L3 + 8 + half)
            .load(Size::Double, Reg::R2, Reg::R7, L3 + 24 + half)
            .store(Size::Double, Reg::R7, L3 + 8 + half, Reg::R2)
            .store(Size::Double, Reg::R7, L3 + 24 + half, Reg::R1);
    }
}

/// Link addresses change places.
fn link(a: &mut Assembler) {
    for (size, at) in [(Size::Word, 0), (Size::Half, 4)] {
        a.load(size, Reg::R1, Reg::R7, at)
            .load(size, Reg::R2, Reg::R7, at + 6)
            .store(size, Reg::R7, at, Reg::R2)
            .store(size, Reg::R7, at + 6, Reg::R1);
    }
}

/// Cuts off what the SYN had behind the answer's end.
fn cut(a: &mut Assembler, family: Family, ways: &SynWays) {
    a.load(Size::Word, Reg::R2, Reg::R9, at::ANSWER)
        .add(Reg::R2, i32::from(family.l4() + TCP_BYTES))
        .load(Size::Word, Reg::R1, Reg::R9, at::FRAME)
        .compute_reg(Reg::R2, Does::Subtract, Reg::R1)
        .copy(Reg::R1, Reg::R6)
        .call(Function::AdjustTail)
        .jump_if_word(Reg::R0, When::Differs, 0, ways.broken);
    count(a, Desk::Answered);
    a.jump(ways.answered);
}
