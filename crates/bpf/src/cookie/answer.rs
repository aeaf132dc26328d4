//! The SYN-ACK, written over the SYN.
//!
//! Called by `syn.rs` once the cookie is there. The answer has the options that the client offered
//! and no others, so it is never longer than the SYN was, and fits where that lay: everything is
//! written first, then the end is cut off. Checksums are summed from the words that are written.
//! The order of the options is that of `wire`'s `TcpOptionSet::emit_into`, the headers are those of
//! `ip`'s `output.rs`.

use super::segment::{L3, SegmentFamily, TCP_BYTES, fold, head, reach, wire};
use super::syn::{AGREED_ECN, AGREED_MSS, AGREED_SACK, AGREED_SCALE, AGREED_TIMESTAMPS, SynWays};
use super::tables::{Desk, Offer};
use super::{Maps, at, count, stack};
use crate::sample;
use crate::{AccessSize, Assembler, Function, JumpCondition, Label, Operation, Register, Width};

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
pub(super) fn write(
    a: &mut Assembler,
    maps: &Maps,
    family: SegmentFamily,
    (ways, short): (&SynWays, Label),
) {
    let finish = a.label();
    // The sum of the options, in `R1`, and which of them there are, in `R2`.
    a.set(Register::R1, 0).load(AccessSize::Word, Register::R2, Register::R9, at::AGREED);
    for says_mss in [false, true] {
        let other_mss = a.label();
        if !says_mss {
            a.jump_if(Register::R2, JumpCondition::Meets, AGREED_MSS, other_mss);
        }
        for middle in [Middle::Nothing, Middle::Sack, Middle::Timestamps] {
            let other = a.label();
            unless(a, middle, other);
            for scales in [false, true] {
                let scaled = a.label();
                if !scales {
                    a.jump_if(Register::R2, JumpCondition::Meets, AGREED_SCALE, scaled);
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
        SegmentFamily::V4 => header_v4(a),
        SegmentFamily::V6 => header_v6(a),
    }
    link(a, short);
    cut(a, maps, family, ways);
}

/// Goes to `other` where something else stands in the middle.
fn unless(a: &mut Assembler, middle: Middle, other: Label) {
    a.copy(Register::R3, Register::R2).compute(
        Register::R3,
        Operation::And,
        AGREED_SACK | AGREED_TIMESTAMPS,
    );
    match middle {
        Middle::Nothing => a.jump_if(Register::R3, JumpCondition::Differs, 0, other),
        Middle::Sack => a.jump_if(Register::R3, JumpCondition::Differs, AGREED_SACK, other),
        Middle::Timestamps => {
            a.jump_if(Register::R3, JumpCondition::Below, AGREED_TIMESTAMPS, other)
        }
    };
}

/// Writes one set of options at its place and sums it.
fn leaf(
    a: &mut Assembler,
    family: SegmentFamily,
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
        a.store(AccessSize::Word, Register::R7, to, Register::R3).compute_reg(
            Register::R1,
            Operation::Add,
            Register::R3,
        );
        to += 4;
    };
    reach(a, from + bytes, short);
    if says_mss {
        field(a, Offer::MSS_SHIFT, 0xffff);
        a.compute(Register::R3, Operation::Or, MSS).wire(Register::R3, Width::Word);
        put(a);
    }
    match middle {
        Middle::Nothing => {}
        Middle::Sack => {
            a.set_word(Register::R3, SACK_ALONE.to_be().cast_unsigned());
            put(a);
        }
        Middle::Timestamps => {
            // Without a branch: the head with SACK differs from the one without.
            let differs = TIMESTAMPS_ALONE ^ TIMESTAMPS_AND_SACK;
            a.copy(Register::R3, Register::R2)
                .compute(Register::R3, Operation::ShiftRight, 1)
                .compute(Register::R3, Operation::And, 1)
                .negate(Register::R3)
                .compute(Register::R3, Operation::And, differs)
                .compute(Register::R3, Operation::Xor, TIMESTAMPS_ALONE)
                .wire(Register::R3, Width::Word);
            put(a);
            a.load(AccessSize::Word, Register::R3, Register::R9, at::CLOCK)
                .wire(Register::R3, Width::Word);
            put(a);
            a.load(AccessSize::Word, Register::R3, Register::R9, at::VALUE);
            put(a);
        }
    }
    if scales {
        field(a, Offer::SCALE_SHIFT, 0xff);
        a.compute(Register::R3, Operation::Or, SCALE).wire(Register::R3, Width::Word);
        put(a);
    }
    a.store_value(AccessSize::Word, Register::R9, at::ANSWER, i32::from(bytes));
}

/// A field of the listener's word, in `R3`.
fn field(a: &mut Assembler, shift: i32, mask: i32) {
    a.load(AccessSize::Double, Register::R3, Register::R9, at::OFFER);
    if shift > 0 {
        a.compute(Register::R3, Operation::ShiftRight, shift);
    }
    a.compute(Register::R3, Operation::And, mask);
}

/// The TCP header; the sum of the options is in `R1`.
fn segment(a: &mut Assembler, family: SegmentFamily) {
    let l4 = family.l4();
    let (source, destination) = family.addresses();
    // Addresses change places, and ports: their sum stays.
    for address in [source, destination] {
        for word in (0..destination - source).step_by(4) {
            a.load(AccessSize::Word, Register::R2, Register::R7, address + word).compute_reg(
                Register::R1,
                Operation::Add,
                Register::R2,
            );
        }
    }
    a.load(AccessSize::Half, Register::R2, Register::R7, l4)
        .load(AccessSize::Half, Register::R3, Register::R7, l4 + 2)
        .store(AccessSize::Half, Register::R7, l4, Register::R3)
        .store(AccessSize::Half, Register::R7, l4 + 2, Register::R2)
        .compute_reg(Register::R1, Operation::Add, Register::R2)
        .compute_reg(Register::R1, Operation::Add, Register::R3);
    // Sequence number, acknowledgment of the SYN.
    a.load(AccessSize::Word, Register::R2, Register::R9, at::COOKIE)
        .wire(Register::R2, Width::Word)
        .store(AccessSize::Word, Register::R7, l4 + 4, Register::R2)
        .compute_reg(Register::R1, Operation::Add, Register::R2)
        .load(AccessSize::Word, Register::R2, Register::R9, at::CLIENT)
        .add(Register::R2, 1)
        .wire(Register::R2, Width::Word)
        .store(AccessSize::Word, Register::R7, l4 + 8, Register::R2)
        .compute_reg(Register::R1, Operation::Add, Register::R2);
    // Length, flags, window.
    field(a, 0, 0xffff);
    a.load(AccessSize::Word, Register::R2, Register::R9, at::ANSWER)
        .add(Register::R2, i32::from(TCP_BYTES))
        .copy(Register::R4, Register::R2)
        .compute(Register::R2, Operation::ShiftLeft, 26)
        .compute_reg(Register::R3, Operation::Or, Register::R2)
        .load(AccessSize::Word, Register::R2, Register::R9, at::AGREED)
        .compute(Register::R2, Operation::And, AGREED_ECN)
        .compute(Register::R2, Operation::ShiftLeft, 3)
        .compute(Register::R2, Operation::Or, SYN_ACK)
        .compute(Register::R2, Operation::ShiftLeft, 16)
        .compute_reg(Register::R3, Operation::Or, Register::R2)
        .wire(Register::R3, Width::Word)
        .store(AccessSize::Word, Register::R7, l4 + 12, Register::R3)
        .compute_reg(Register::R1, Operation::Add, Register::R3);
    const { assert!(AGREED_ECN << 3 == ECE, "the bit moves to its place") };
    // The pseudo header: bytes of the segment, protocol.
    a.wire(Register::R4, Width::Half)
        .compute_reg(Register::R1, Operation::Add, Register::R4)
        .add(Register::R1, wire(TCP as u16));
    fold(a, Register::R1, Register::R2);
    a.compute(Register::R1, Operation::Xor, 0xffff)
        .store(AccessSize::Half, Register::R7, l4 + 16, Register::R1)
        .store_value(AccessSize::Half, Register::R7, l4 + 18, 0);
}

/// The IPv4 header: don't fragment, no identification.
fn header_v4(a: &mut Assembler) {
    let bytes = i32::from(SegmentFamily::V4.header() + TCP_BYTES);
    field(a, Offer::CLASS_SHIFT, 0xff);
    a.load(AccessSize::Word, Register::R1, Register::R9, at::ANSWER)
        .add(Register::R1, bytes)
        .compute(Register::R3, Operation::ShiftLeft, 16)
        .compute_reg(Register::R1, Operation::Or, Register::R3)
        .set_word(Register::R3, 0x4500_0000)
        .compute_reg(Register::R1, Operation::Or, Register::R3)
        .wire(Register::R1, Width::Word)
        .store(AccessSize::Word, Register::R7, L3, Register::R1)
        .set_word(Register::R2, DONT_FRAGMENT.to_be().cast_unsigned())
        .store(AccessSize::Word, Register::R7, L3 + 4, Register::R2)
        .compute_reg(Register::R1, Operation::Add, Register::R2);
    field(a, Offer::HOP_LIMIT_SHIFT, 0xff);
    a.compute(Register::R3, Operation::ShiftLeft, 8)
        .compute(Register::R3, Operation::Or, TCP)
        .wire(Register::R3, Width::Half)
        .store(AccessSize::Half, Register::R7, L3 + 8, Register::R3)
        .compute_reg(Register::R1, Operation::Add, Register::R3)
        .load(AccessSize::Word, Register::R2, Register::R7, L3 + 12)
        .load(AccessSize::Word, Register::R3, Register::R7, L3 + 16)
        .store(AccessSize::Word, Register::R7, L3 + 12, Register::R3)
        .store(AccessSize::Word, Register::R7, L3 + 16, Register::R2)
        .compute_reg(Register::R1, Operation::Add, Register::R2)
        .compute_reg(Register::R1, Operation::Add, Register::R3);
    fold(a, Register::R1, Register::R2);
    a.compute(Register::R1, Operation::Xor, 0xffff).store(
        AccessSize::Half,
        Register::R7,
        L3 + 10,
        Register::R1,
    );
}

/// The IPv6 header: no flow label.
fn header_v6(a: &mut Assembler) {
    field(a, Offer::CLASS_SHIFT, 0xff);
    a.compute(Register::R3, Operation::ShiftLeft, 20)
        .set_word(Register::R1, 0x6000_0000)
        .compute_reg(Register::R1, Operation::Or, Register::R3)
        .wire(Register::R1, Width::Word)
        .store(AccessSize::Word, Register::R7, L3, Register::R1);
    field(a, Offer::HOP_LIMIT_SHIFT, 0xff);
    a.load(AccessSize::Word, Register::R1, Register::R9, at::ANSWER)
        .add(Register::R1, i32::from(TCP_BYTES))
        .compute(Register::R1, Operation::ShiftLeft, 16)
        .compute(Register::R1, Operation::Or, TCP << 8)
        .compute_reg(Register::R1, Operation::Or, Register::R3)
        .wire(Register::R1, Width::Word)
        .store(AccessSize::Word, Register::R7, L3 + 4, Register::R1);
    for half in [0, 8] {
        a.load(AccessSize::Double, Register::R1, Register::R7, L3 + 8 + half)
            .load(AccessSize::Double, Register::R2, Register::R7, L3 + 24 + half)
            .store(AccessSize::Double, Register::R7, L3 + 8 + half, Register::R2)
            .store(AccessSize::Double, Register::R7, L3 + 24 + half, Register::R1);
    }
}

/// Link addresses change places. They are where the frame begins, which `R7` is not where a VLAN
/// tag stands between.
fn link(a: &mut Assembler, short: Label) {
    head(a, short);
    for (size, at) in [(AccessSize::Word, 0), (AccessSize::Half, 4)] {
        a.load(size, Register::R1, Register::R4, at)
            .load(size, Register::R2, Register::R4, at + 6)
            .store(size, Register::R4, at, Register::R2)
            .store(size, Register::R4, at + 6, Register::R1);
    }
}

/// Cuts off what the SYN had behind the answer's end.
fn cut(a: &mut Assembler, maps: &Maps, family: SegmentFamily, ways: &SynWays) {
    let fits = a.label();
    a.load(AccessSize::Word, Register::R2, Register::R9, at::ANSWER)
        .add(Register::R2, i32::from(family.l4() + TCP_BYTES))
        .load(AccessSize::Word, Register::R1, Register::R9, at::FRAME)
        .compute_reg(Register::R2, Operation::Subtract, Register::R1)
        // Linux's SYN and its answer are as long as each other.
        .jump_if(Register::R2, JumpCondition::Equal, 0, fits)
        .copy(Register::R1, Register::R6)
        .call(Function::AdjustTail)
        .jump_if_word(Register::R0, JumpCondition::Differs, 0, ways.broken);
    a.place(fits);
    count(a, Desk::Answered);
    if let Some(samples) = maps.samples {
        a.copy(Register::R3, Register::R2)
            .load(AccessSize::Word, Register::R1, Register::R10, stack::LISTENER_PORT)
            .set(Register::R2, TCP);
        sample::service(a);
        a.store(AccessSize::Word, Register::R10, stack::SERVICE, Register::R1)
            .copy(Register::R2, Register::R3)
            .set(Register::R3, sample::ANSWERED as i32);
        sample::take(a, samples, (stack::SERVICE, stack::KEY), ways.answered);
    } else {
        a.jump(ways.answered);
    }
}
