//! The walk over the options of a segment, as `wire`'s `TcpOptions` reads them.
//!
//! Called by both programs, on the copy in the scratch value. Every place where an option can begin
//! has its own code, with all offsets known: no loop, no address that depends on the packet. Which
//! place is next lies in memory, where the verifier does not follow it. The two forms that nearly
//! every SYN and every other segment of today's hosts has are told at a glance. Reading: RFC 9293
//! section 3.2, RFC 7323.

use super::at;
use super::segment::{OPTIONS_MAX, wire};
use crate::{AccessSize, Assembler, JumpCondition, Label, Operation, Register, Width};

/// Bits of what was seen.
pub(super) const SAID_MSS: i32 = 1;
pub(super) const SAID_SACK: i32 = 2;
pub(super) const SAID_TIMESTAMPS: i32 = 4;
/// A signature (RFC 2385, RFC 5925); above all bits that are agreed on.
pub(super) const SAID_SIGNATURE: i32 = 0x100;

/// What stands for no window scale, and the largest one.
pub(super) const NO_SCALE: i32 = 15;
const SCALE_MAX: i32 = 14;
/// The smallest segment size that is believed: `TCP_MSS_FLOOR`.
const MSS_FLOOR: i32 = 88;
/// Bytes of the options that Linux's SYNs have, and of timestamps alone.
const USUAL_SYN: i32 = 20;
const USUAL_ACK: i32 = 12;

/// Walks the options; goes to `bad` where one lies about its length.
pub(super) fn walk(a: &mut Assembler, bad: Label) {
    let done = a.label();
    a.store_value(AccessSize::Word, Register::R9, at::NEXT, 0)
        .store_value(AccessSize::Word, Register::R9, at::SEEN, 0)
        .store_value(AccessSize::Word, Register::R9, at::SCALE, NO_SCALE);
    default_mss(a);
    usual_syn(a, done);
    usual_ack(a, done);
    for place in 0..OPTIONS_MAX {
        option(a, place, done, bad);
    }
    a.place(done);
}

/// What a client takes that does not say it (RFC 9293 section 3.7.1).
fn default_mss(a: &mut Assembler) {
    let v4 = a.label();
    a.set(Register::R2, 536)
        .load(AccessSize::Word, Register::R1, Register::R9, at::FAMILY)
        .jump_if(Register::R1, JumpCondition::Equal, 4, v4)
        .set(Register::R2, 1220);
    a.place(v4);
    a.store(AccessSize::Word, Register::R9, at::MSS, Register::R2);
}

/// MSS, SACK permitted, timestamps, no-operation, window scale.
fn usual_syn(a: &mut Assembler, done: Label) {
    let other = a.label();
    a.load(AccessSize::Word, Register::R1, Register::R9, at::OPTIONS_END)
        .jump_if(Register::R1, JumpCondition::Differs, USUAL_SYN, other)
        .load(AccessSize::Half, Register::R1, Register::R9, at::OPTIONS)
        .jump_if(Register::R1, JumpCondition::Differs, wire(0x0204), other)
        .load(AccessSize::Word, Register::R1, Register::R9, at::OPTIONS + 4)
        .jump_if_word(Register::R1, JumpCondition::Differs, 0x0402_080a_u32.to_be(), other)
        .load(AccessSize::Word, Register::R1, Register::R9, at::OPTIONS + 16)
        .wire(Register::R1, Width::Word)
        .copy(Register::R2, Register::R1)
        .compute(Register::R2, Operation::ShiftRight, 8)
        .jump_if(Register::R2, JumpCondition::Differs, 0x01_0303, other)
        .compute(Register::R1, Operation::And, 0xff);
    take_scale(a);
    take_mss(a, at::OPTIONS + 2);
    take_timestamps(a, at::OPTIONS + 8);
    a.store_value(AccessSize::Word, Register::R9, at::SEEN, SAID_MSS | SAID_SACK | SAID_TIMESTAMPS)
        .jump(done);
    a.place(other);
}

/// Two no-operations and timestamps (RFC 7323 appendix A).
fn usual_ack(a: &mut Assembler, done: Label) {
    let other = a.label();
    a.load(AccessSize::Word, Register::R1, Register::R9, at::OPTIONS_END)
        .jump_if(Register::R1, JumpCondition::Differs, USUAL_ACK, other)
        .load(AccessSize::Word, Register::R1, Register::R9, at::OPTIONS)
        .jump_if_word(Register::R1, JumpCondition::Differs, 0x0101_080a_u32.to_be(), other);
    take_timestamps(a, at::OPTIONS + 4);
    a.store_value(AccessSize::Word, Register::R9, at::SEEN, SAID_TIMESTAMPS).jump(done);
    a.place(other);
}

/// The code of an option that begins at `place`.
fn option(a: &mut Assembler, place: i16, done: Label, bad: Label) {
    let (next, here) = (a.label(), i32::from(place));
    let data = at::OPTIONS + place + 2;
    if place % 4 == 0 {
        // They end at a whole word.
        a.load(AccessSize::Word, Register::R1, Register::R9, at::OPTIONS_END).jump_if(
            Register::R1,
            JumpCondition::AtMost,
            here,
            done,
        );
    }
    a.load(AccessSize::Word, Register::R1, Register::R9, at::NEXT).jump_if(
        Register::R1,
        JumpCondition::Differs,
        here,
        next,
    );
    let (plain, mss, scale, sack, blocks, timestamps) =
        (a.label(), a.label(), a.label(), a.label(), a.label(), a.label());
    let signature = a.label();
    a.load(AccessSize::Byte, Register::R1, Register::R9, at::OPTIONS + place)
        .jump_if(Register::R1, JumpCondition::Equal, 0, done)
        .jump_if(Register::R1, JumpCondition::Differs, 1, plain)
        .store_value(AccessSize::Word, Register::R9, at::NEXT, here + 1)
        .jump(next);
    a.place(plain);
    a.load(AccessSize::Word, Register::R4, Register::R9, at::OPTIONS_END)
        .jump_if(Register::R4, JumpCondition::AtMost, here + 1, bad)
        .load(AccessSize::Byte, Register::R2, Register::R9, at::OPTIONS + place + 1)
        .jump_if(Register::R2, JumpCondition::Below, 2, bad)
        .copy(Register::R3, Register::R2)
        .add(Register::R3, here)
        .jump_if_reg(Register::R3, JumpCondition::Above, Register::R4, bad)
        .store(AccessSize::Word, Register::R9, at::NEXT, Register::R3)
        .jump_if(Register::R1, JumpCondition::Equal, 2, mss)
        .jump_if(Register::R1, JumpCondition::Equal, 3, scale)
        .jump_if(Register::R1, JumpCondition::Equal, 4, sack)
        .jump_if(Register::R1, JumpCondition::Equal, 5, blocks)
        .jump_if(Register::R1, JumpCondition::Equal, 8, timestamps)
        .jump_if(Register::R1, JumpCondition::Equal, 19, signature)
        .jump_if(Register::R1, JumpCondition::Differs, 29, next);
    a.place(signature);
    see(a, SAID_SIGNATURE, next);
    a.place(mss);
    a.jump_if(Register::R2, JumpCondition::Differs, 4, bad);
    take_mss(a, data);
    see(a, SAID_MSS, next);
    a.place(scale);
    a.jump_if(Register::R2, JumpCondition::Differs, 3, bad).load(
        AccessSize::Byte,
        Register::R1,
        Register::R9,
        data,
    );
    take_scale(a);
    a.jump(next);
    a.place(sack);
    a.jump_if(Register::R2, JumpCondition::Differs, 2, bad);
    see(a, SAID_SACK, next);
    a.place(blocks);
    a.jump_if(Register::R2, JumpCondition::Equal, 2, bad)
        .add(Register::R2, -2)
        .jump_if(Register::R2, JumpCondition::Meets, 7, bad)
        .jump(next);
    a.place(timestamps);
    a.jump_if(Register::R2, JumpCondition::Differs, 10, bad);
    take_timestamps(a, data);
    see(a, SAID_TIMESTAMPS, next);
    a.place(next);
}

fn see(a: &mut Assembler, bit: i32, next: Label) {
    a.load(AccessSize::Word, Register::R1, Register::R9, at::SEEN)
        .compute(Register::R1, Operation::Or, bit)
        .store(AccessSize::Word, Register::R9, at::SEEN, Register::R1)
        .jump(next);
}

/// The segment size at `data`, with the floor under it.
fn take_mss(a: &mut Assembler, data: i16) {
    let enough = a.label();
    a.load(AccessSize::Half, Register::R1, Register::R9, data)
        .read_wire(Register::R1)
        .jump_if(Register::R1, JumpCondition::AtLeast, MSS_FLOOR, enough)
        .set(Register::R1, MSS_FLOOR);
    a.place(enough);
    a.store(AccessSize::Word, Register::R9, at::MSS, Register::R1);
}

/// The window scale in `R1`.
fn take_scale(a: &mut Assembler) {
    let within = a.label();
    a.jump_if(Register::R1, JumpCondition::AtMost, SCALE_MAX, within).set(Register::R1, SCALE_MAX);
    a.place(within);
    a.store(AccessSize::Word, Register::R9, at::SCALE, Register::R1);
}

/// The timestamps at `data`, as they lie there.
fn take_timestamps(a: &mut Assembler, data: i16) {
    a.load(AccessSize::Word, Register::R1, Register::R9, data)
        .store(AccessSize::Word, Register::R9, at::VALUE, Register::R1)
        .load(AccessSize::Word, Register::R1, Register::R9, data + 4)
        .store(AccessSize::Word, Register::R9, at::ECHO, Register::R1);
}
