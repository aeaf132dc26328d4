//! Answers to questions by UDP, written over them.
//!
//! Called by `challenge.rs`. Everything is in the frame already but a few bytes: addresses and
//! ports change places, the header is anew. Invariant: nothing is answered that came from or went
//! to a group or a broadcast, nor from an address of ours.

use super::HostMaps;
use super::challenge::UDP_BYTES;
use super::own;
use crate::cookie::at;
use crate::cookie::segment::{self, L3, SegmentFamily, fold, head, header_sum, reach, wire};
use crate::{AccessSize, Assembler, Function, JumpCondition, Label, Operation, Register, Width};

const UDP: u16 = 17;
const HOP_LIMIT: u16 = 64;
const DONT_FRAGMENT: u32 = 0x4000;
/// Bytes of the UDP datagram with a token, and its kind.
const TOKEN_BYTES: i16 = 17;
const TOKEN_KIND: i32 = 0x41;
/// The least bytes of a DNS question: header, the root's name, type, class.
const QUESTION_BYTES_MIN: i16 = 17;
/// The most bytes of a DNS question that are summed.
const MESSAGE_MAX: i16 = 512;
/// Bits of a DNS message's flags: response and operation code; truncated; recursion desired and
/// available; checking disabled; authoritative.
const DNS_KIND: i32 = 0xf800;
const DNS_RESPONSE: i32 = 0x8000;
const DNS_TRUNCATED: i32 = 0x0200;
const DNS_DESIRED: i32 = 0x0100;
const CHECKING_OFF: i32 = 0x0010;

/// Goes to `odd` with a frame that is not to be answered. Takes `R0` to `R5`.
pub(super) fn may_answer(a: &mut Assembler, maps: &HostMaps, family: SegmentFamily, odd: Label) {
    let (l4, (_, destination)) = (family.l4(), family.addresses());
    reach(a, l4 + UDP_BYTES, odd);
    if family == SegmentFamily::V4 {
        header_sum(a, odd);
    }
    let own = segment::OwnAddresses { map: maps.addresses, filter: None };
    segment::source(a, family, Some(own), odd);
    head(a, odd);
    a.load(AccessSize::Byte, Register::R1, Register::R4, 0)
        .jump_if(Register::R1, JumpCondition::Meets, 1, odd)
        .load(AccessSize::Byte, Register::R1, Register::R7, destination);
    match family {
        SegmentFamily::V4 => a.jump_if(Register::R1, JumpCondition::AtLeast, 224, odd),
        SegmentFamily::V6 => a.jump_if(Register::R1, JumpCondition::Equal, 0xff, odd),
    };
    // The lengths agree, and the frame has it all.
    a.load(AccessSize::Half, Register::R1, Register::R7, l4)
        .jump_if(Register::R1, JumpCondition::Equal, 0, odd)
        .load(AccessSize::Half, Register::R1, Register::R7, l4 + 4)
        .read_wire(Register::R1);
    match family {
        SegmentFamily::V4 => a
            .load(AccessSize::Half, Register::R2, Register::R7, L3 + 2)
            .read_wire(Register::R2)
            .add(Register::R2, -i32::from(family.header())),
        SegmentFamily::V6 => {
            a.load(AccessSize::Half, Register::R2, Register::R7, L3 + 4).read_wire(Register::R2)
        }
    };
    a.jump_if_reg(Register::R1, JumpCondition::Differs, Register::R2, odd)
        .add(Register::R1, i32::from(l4))
        .load(AccessSize::Word, Register::R2, Register::R9, at::FRAME)
        .jump_if_reg(Register::R1, JumpCondition::Above, Register::R2, odd);
}

/// Makes the truncated answer to a DNS question; goes to `odd` where it is none.
pub(super) fn truncated(a: &mut Assembler, family: SegmentFamily, odd: Label) {
    let l4 = family.l4();
    let data = l4 + UDP_BYTES;
    reach(a, data + QUESTION_BYTES_MIN, odd);
    a.load(AccessSize::Half, Register::R1, Register::R7, l4 + 4)
        .read_wire(Register::R1)
        .jump_if(Register::R1, JumpCondition::Below, i32::from(UDP_BYTES + QUESTION_BYTES_MIN), odd)
        // One question, and no more behind it than a record of options.
        .load(AccessSize::Half, Register::R1, Register::R7, data + 4)
        .jump_if(Register::R1, JumpCondition::Differs, wire(1), odd)
        .load(AccessSize::Word, Register::R1, Register::R7, data + 6)
        .jump_if(Register::R1, JumpCondition::Differs, 0, odd)
        .load(AccessSize::Half, Register::R1, Register::R7, data + 10)
        .read_wire(Register::R1)
        .jump_if(Register::R1, JumpCondition::Above, 1, odd)
        .load(AccessSize::Half, Register::R1, Register::R7, data + 2)
        .read_wire(Register::R1)
        .jump_if(Register::R1, JumpCondition::Meets, DNS_KIND, odd)
        .copy(Register::R2, Register::R1)
        .compute(Register::R2, Operation::And, DNS_DESIRED | CHECKING_OFF)
        .compute(Register::R2, Operation::Or, DNS_RESPONSE | DNS_TRUNCATED)
        // Available where it is desired, else with authority: what is neither is no answer to some.
        .compute(Register::R1, Operation::And, DNS_DESIRED)
        .copy(Register::R3, Register::R1)
        .compute(Register::R3, Operation::ShiftRight, 1)
        .compute_reg(Register::R2, Operation::Or, Register::R3)
        .compute(Register::R1, Operation::Xor, DNS_DESIRED)
        .compute(Register::R1, Operation::ShiftLeft, 2)
        .compute_reg(Register::R2, Operation::Or, Register::R1)
        .wire(Register::R2, Width::Half)
        .store(AccessSize::Half, Register::R7, data + 2, Register::R2);
    addresses_and_ports(a, family);
    // The length counts twice: in the pseudo header, too.
    a.load(AccessSize::Half, Register::R5, Register::R7, l4 + 4)
        .compute_reg(Register::R1, Operation::Add, Register::R5)
        .compute_reg(Register::R1, Operation::Add, Register::R5)
        .read_wire(Register::R5)
        .add(Register::R5, -i32::from(UDP_BYTES));
    message(a, data, odd);
    finish_sum(a, l4);
    headers(a, family, None, odd);
}

/// Adds the bytes of a message, of which there are as many as `R5` says, to the sum in `R1`; goes
/// to `odd` where there are too many. What the question's sum was is not used: a veth leaves that
/// unfinished.
fn message(a: &mut Assembler, data: i16, odd: Label) {
    let [end, done, half] = core::array::from_fn(|_| a.label());
    a.jump_if(Register::R5, JumpCondition::Above, i32::from(MESSAGE_MAX), odd)
        .copy(Register::R4, Register::R7)
        .add(Register::R4, i32::from(data));
    for word in (0..MESSAGE_MAX).step_by(4) {
        a.jump_if(Register::R5, JumpCondition::Below, i32::from(word + 4), end)
            .copy(Register::R3, Register::R4)
            .add(Register::R3, 4)
            .jump_if_reg(Register::R3, JumpCondition::Above, Register::R8, odd)
            .load(AccessSize::Word, Register::R2, Register::R4, 0)
            .compute_reg(Register::R1, Operation::Add, Register::R2)
            .copy(Register::R4, Register::R3);
    }
    a.place(end);
    a.jump_if(Register::R5, JumpCondition::Meets, 2, half);
    last(a, odd, done);
    a.place(half);
    a.copy(Register::R3, Register::R4)
        .add(Register::R3, 2)
        .jump_if_reg(Register::R3, JumpCondition::Above, Register::R8, odd)
        .load(AccessSize::Half, Register::R2, Register::R4, 0)
        .compute_reg(Register::R1, Operation::Add, Register::R2)
        .copy(Register::R4, Register::R3);
    last(a, odd, done);
    a.place(done);
}

/// The last byte at `R4`, where their number in `R5` is odd; it stands first in its half.
fn last(a: &mut Assembler, odd: Label, done: Label) {
    a.copy(Register::R3, Register::R5)
        .compute(Register::R3, Operation::And, 1)
        .jump_if(Register::R3, JumpCondition::Equal, 0, done)
        .copy(Register::R3, Register::R4)
        .add(Register::R3, 1)
        .jump_if_reg(Register::R3, JumpCondition::Above, Register::R8, odd)
        .load(AccessSize::Byte, Register::R2, Register::R4, 0)
        .compute(Register::R2, Operation::ShiftLeft, 8)
        .wire(Register::R2, Width::Half)
        .compute_reg(Register::R1, Operation::Add, Register::R2)
        .jump(done);
}

/// The sum over addresses, ports and the protocol's number, in `R1`.
fn addresses_and_ports(a: &mut Assembler, family: SegmentFamily) {
    let (source, destination) = family.addresses();
    a.set(Register::R1, wire(UDP));
    let ends = source..destination + (destination - source);
    for word in ends.step_by(4).chain([family.l4()]) {
        a.load(AccessSize::Word, Register::R2, Register::R7, word).compute_reg(
            Register::R1,
            Operation::Add,
            Register::R2,
        );
    }
}

/// Makes the answer with a token; goes to `odd` where the frame has no room for it, which no query
/// has.
pub(super) fn token(a: &mut Assembler, family: SegmentFamily, odd: Label) {
    let l4 = family.l4();
    let data = l4 + UDP_BYTES;
    reach(a, l4 + TOKEN_BYTES, odd);
    a.store_value(AccessSize::Half, Register::R7, l4 + 4, wire(TOKEN_BYTES as u16))
        .store_value(AccessSize::Word, Register::R7, data, -1)
        .store_value(AccessSize::Byte, Register::R7, data + 4, TOKEN_KIND)
        .load(AccessSize::Word, Register::R1, Register::R9, own::TOKEN_NOW)
        .store(AccessSize::Word, Register::R7, data + 5, Register::R1);
    addresses_and_ports(a, family);
    // The length counts twice: in the pseudo header, too. The last byte stands first in its half.
    a.add(Register::R1, wire(TOKEN_BYTES as u16) * 2)
        .load(AccessSize::Byte, Register::R2, Register::R7, data + 8)
        .compute(Register::R2, Operation::ShiftLeft, 8)
        .wire(Register::R2, Width::Half)
        .compute_reg(Register::R1, Operation::Add, Register::R2);
    for word in [data, data + 4] {
        a.load(AccessSize::Word, Register::R2, Register::R7, word).compute_reg(
            Register::R1,
            Operation::Add,
            Register::R2,
        );
    }
    finish_sum(a, l4);
    headers(a, family, Some(TOKEN_BYTES), odd);
}

/// The UDP checksum of the sum in `R1`.
fn finish_sum(a: &mut Assembler, l4: i16) {
    let some = a.label();
    fold(a, Register::R1, Register::R2);
    a.compute(Register::R1, Operation::Xor, 0xffff)
        .jump_if(Register::R1, JumpCondition::Differs, 0, some)
        .set(Register::R1, 0xffff);
    a.place(some);
    a.store(AccessSize::Half, Register::R7, l4 + 6, Register::R1);
}

/// Ports, addresses and link addresses change places; the network header is anew, for a datagram of
/// so many bytes, or of as many as it had.
fn headers(a: &mut Assembler, family: SegmentFamily, bytes: Option<i16>, odd: Label) {
    let (l4, (source, destination)) = (family.l4(), family.addresses());
    swap(a, Register::R7, (AccessSize::Half, l4, l4 + 2));
    for word in (0..destination - source).step_by(4) {
        swap(a, Register::R7, (AccessSize::Word, source + word, destination + word));
    }
    match family {
        SegmentFamily::V4 => {
            a.store_value(AccessSize::Half, Register::R7, L3, wire(0x4500))
                .store_value(
                    AccessSize::Word,
                    Register::R7,
                    L3 + 4,
                    DONT_FRAGMENT.to_be().cast_signed(),
                )
                .store_value(AccessSize::Half, Register::R7, L3 + 8, wire(HOP_LIMIT << 8 | UDP))
                .store_value(AccessSize::Half, Register::R7, L3 + 10, 0);
            if let Some(bytes) = bytes {
                let bytes = wire((family.header() + bytes) as u16);
                a.store_value(AccessSize::Half, Register::R7, L3 + 2, bytes);
            }
            a.set(Register::R1, 0);
            for word in (0..family.header()).step_by(4) {
                a.load(AccessSize::Word, Register::R2, Register::R7, L3 + word).compute_reg(
                    Register::R1,
                    Operation::Add,
                    Register::R2,
                );
            }
            fold(a, Register::R1, Register::R2);
            a.compute(Register::R1, Operation::Xor, 0xffff).store(
                AccessSize::Half,
                Register::R7,
                L3 + 10,
                Register::R1,
            );
        }
        SegmentFamily::V6 => {
            a.store_value(
                AccessSize::Word,
                Register::R7,
                L3,
                0x6000_0000_u32.to_be().cast_signed(),
            )
            .store_value(AccessSize::Byte, Register::R7, L3 + 7, i32::from(HOP_LIMIT));
            if let Some(bytes) = bytes {
                a.store_value(AccessSize::Half, Register::R7, L3 + 4, wire(bytes as u16));
            }
        }
    }
    head(a, odd);
    for (size, at) in [(AccessSize::Word, 0), (AccessSize::Half, 4)] {
        swap(a, Register::R4, (size, at, at + 6));
    }
}

fn swap(a: &mut Assembler, base: Register, (size, one, other): (AccessSize, i16, i16)) {
    a.load(size, Register::R1, base, one)
        .load(size, Register::R2, base, other)
        .store(size, base, one, Register::R2)
        .store(size, base, other, Register::R1);
}

/// Cuts off what the query had behind the answer's end.
pub(super) fn cut(a: &mut Assembler, family: SegmentFamily, broken: Label) {
    a.set(Register::R2, i32::from(family.l4() + TOKEN_BYTES))
        .load(AccessSize::Word, Register::R1, Register::R9, at::FRAME)
        .compute_reg(Register::R2, Operation::Subtract, Register::R1)
        .copy(Register::R1, Register::R6)
        .call(Function::AdjustTail)
        .jump_if_word(Register::R0, JumpCondition::Differs, 0, broken);
}
