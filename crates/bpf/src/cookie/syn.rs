//! The program that answers SYNs.
//!
//! Called by tail call with frames that [`super::find_syn`] found. While it is asleep every SYN
//! goes on to the stack: its cache keeps what the client offered and sends its SYN-ACK again; it
//! wakes where more SYNs come in a window than the cache serves well, or where the worker says that
//! it is behind, and stays awake for ten seconds from then on. Waking loses no handshake: every
//! sequence number of the cache is a cookie too.

use super::seal::{TIMESTAMPS_SPOKEN, say, seal, timestamp};
use super::segment::{OwnAddresses, SegmentFamily, families, header_sum, read, source};
use super::tables::{Desk, KeyTable, Offer};
use super::{
    Maps, answer, at, begin, count, find_epoch, find_listener, options, read_clock, stack,
};
use crate::{AccessSize, Assembler, Function, JumpCondition, Label, Operation, Register, Width};

/// What was agreed on, as bits.
pub(super) const AGREED_MSS: i32 = 1;
pub(super) const AGREED_SACK: i32 = 2;
pub(super) const AGREED_TIMESTAMPS: i32 = 4;
pub(super) const AGREED_ECN: i32 = 8;
pub(super) const AGREED_SCALE: i32 = 16;

/// Nanoseconds of a window in which SYNs are counted, as a power of two: 134 ms.
pub(super) const SYN_WINDOW_LOG2: i32 = 27;
/// SYNs in a window that wake the program: 10,000 a second.
pub(super) const SYN_WINDOW_WAKES: i32 = 1_342;
/// How long it stays awake.
pub(super) const AWAKE_NANOS: u64 = 10_000_000_000;

/// Segment sizes that a cookie can say, above the least; and which number a window scale has, four
/// bits for each from the lowest, 15 being none. As in `cookie.rs` of `syncache`.
const MSS_V4: [i32; 7] = [536, 1220, 1360, 1400, 1440, 1460, 8960];
const MSS_V6: [i32; 7] = [1220, 1280, 1360, 1380, 1420, 1440, 8940];
const COOKIE_SCALES: u64 = 0x0777_7766_5433_2211;

/// Where a SYN leaves the program. `R6` is the context, `R7` to `R9` as [`super`] says.
#[derive(Clone, Copy, Debug)]
pub struct SynWays {
    /// The frame is the answer now: to be sent back by the interface.
    pub answered: Label,
    /// The program is asleep: the SYN is the stack's.
    pub asleep: Label,
    /// It is none that can be answered here: the SYN is the stack's if there is credit.
    pub left: Label,
    /// The frame was changed, but the answer could not be finished: it is lost.
    pub broken: Label,
}

/// Writes the program. `R1` is the context; every way out is one of the labels, which the caller
/// places behind this.
pub fn answer_syn(a: &mut Assembler, maps: &Maps, ways: &SynWays) {
    let (left, ready) = (a.label(), a.label());
    begin(a, maps, ways.left);
    read_clock(a);
    awake(a, ways.asleep);
    a.copy(Register::R1, Register::R6).call(Function::FrameBytes).store(
        AccessSize::Word,
        Register::R9,
        at::FRAME,
        Register::R0,
    );
    find_epoch(a, maps, left);
    for (family, label) in SegmentFamily::BOTH.into_iter().zip(families(a, left)) {
        a.place(label);
        read(a, family, left, |a| {
            a.load(AccessSize::Double, Register::R3, Register::R10, stack::HEADER).load(
                AccessSize::Double,
                Register::R3,
                Register::R3,
                KeyTable::ZONE_OFFSET,
            );
        });
        if family == SegmentFamily::V4 {
            header_sum(a, left);
        }
        let own = maps.addresses.map(|map| OwnAddresses { map, filter: None });
        source(a, family, own, left);
        flags(a, family, left);
        a.jump(ready);
    }
    a.place(ready);
    find_listener(a, maps, left);
    options::walk(a, left);
    agree(a);
    let v6 = a.label();
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
        make(a, maps, family, left);
        answer::write(a, maps, family, (ways, left));
    }
    a.place(left);
    count(a, Desk::Left);
    a.jump(ways.left);
}

/// Counts the SYN; goes to `asleep` where none is answered now. The clock is in `R0`.
fn awake(a: &mut Assembler, asleep: Label) {
    let (same, wakes, awake) = (a.label(), a.label(), a.label());
    let word = |word: Desk| word.offset();
    a.load(AccessSize::Double, Register::R1, Register::R10, stack::DESK)
        .copy(Register::R4, Register::R0)
        .compute(Register::R4, Operation::ShiftRight, SYN_WINDOW_LOG2)
        .load(AccessSize::Double, Register::R5, Register::R1, word(Desk::Window))
        .jump_if_reg(Register::R4, JumpCondition::Equal, Register::R5, same)
        .store(AccessSize::Double, Register::R1, word(Desk::Window), Register::R4)
        .store_value(AccessSize::Double, Register::R1, word(Desk::Syns), 0);
    a.place(same);
    a.load(AccessSize::Double, Register::R5, Register::R1, word(Desk::Syns))
        .add(Register::R5, 1)
        .store(AccessSize::Double, Register::R1, word(Desk::Syns), Register::R5)
        .load(AccessSize::Double, Register::R3, Register::R1, word(Desk::AwakeUntil))
        .load(AccessSize::Double, Register::R2, Register::R1, word(Desk::Pressed))
        .jump_if(Register::R2, JumpCondition::Differs, 0, wakes)
        .jump_if(Register::R5, JumpCondition::AtLeast, SYN_WINDOW_WAKES, wakes)
        .jump_if_reg(Register::R3, JumpCondition::Above, Register::R0, awake)
        .jump(asleep);
    a.place(wakes);
    let renewed = a.label();
    a.jump_if_reg(Register::R3, JumpCondition::Above, Register::R0, renewed)
        .load(AccessSize::Double, Register::R2, Register::R1, word(Desk::Woken))
        .add(Register::R2, 1)
        .store(AccessSize::Double, Register::R1, word(Desk::Woken), Register::R2);
    a.place(renewed);
    a.set_wide(Register::R2, AWAKE_NANOS)
        .compute_reg(Register::R2, Operation::Add, Register::R0)
        .store(AccessSize::Double, Register::R1, word(Desk::AwakeUntil), Register::R2);
    a.place(awake);
}

/// The flags' byte, until it is agreed, and the client's sequence number into the scratch value;
/// goes to `odd` with what is no plain SYN.
pub(super) fn flags(a: &mut Assembler, family: SegmentFamily, odd: Label) {
    a.load(AccessSize::Byte, Register::R1, Register::R7, family.l4() + 13)
        .store(AccessSize::Word, Register::R9, at::AGREED, Register::R1)
        .compute(Register::R1, Operation::And, 0x17)
        .jump_if(Register::R1, JumpCondition::Differs, 2, odd);
    a.load(AccessSize::Word, Register::R1, Register::R7, family.l4() + 4)
        .wire(Register::R1, Width::Word)
        .store(AccessSize::Word, Register::R9, at::CLIENT, Register::R1);
}

/// What the client offers and the listener allows, without a branch: `agree` of `syncache`.
pub(super) fn agree(a: &mut Assembler) {
    // The listener's flags, from the lowest: SACK, timestamps, ECN. The client's the same.
    a.load(AccessSize::Double, Register::R1, Register::R9, at::OFFER)
        .compute(Register::R1, Operation::ShiftRight, Offer::FLAGS_SHIFT)
        .load(AccessSize::Word, Register::R2, Register::R9, at::AGREED)
        .copy(Register::R3, Register::R2)
        .compute(Register::R3, Operation::ShiftRight, 7)
        .compute(Register::R2, Operation::ShiftRight, 6)
        .compute_reg(Register::R2, Operation::And, Register::R3)
        .compute(Register::R2, Operation::And, 1)
        .compute(Register::R2, Operation::ShiftLeft, 2)
        .load(AccessSize::Word, Register::R3, Register::R9, at::SEEN)
        .copy(Register::R4, Register::R3)
        .compute(Register::R4, Operation::ShiftRight, 1)
        .compute_reg(Register::R2, Operation::Or, Register::R4)
        .compute_reg(Register::R2, Operation::And, Register::R1)
        .compute(Register::R2, Operation::And, 7)
        // ECN has a bit in the timestamp alone: without one it is not agreed to.
        .copy(Register::R4, Register::R2)
        .compute(Register::R4, Operation::ShiftLeft, 1)
        .compute(Register::R4, Operation::Or, 3)
        .compute_reg(Register::R2, Operation::And, Register::R4)
        .compute(Register::R2, Operation::ShiftLeft, 1)
        .compute(Register::R3, Operation::And, AGREED_MSS)
        .compute_reg(Register::R2, Operation::Or, Register::R3);
    // A scale below 15 is one.
    a.load(AccessSize::Word, Register::R3, Register::R9, at::SCALE)
        .add(Register::R3, -options::NO_SCALE)
        .compute(Register::R3, Operation::ShiftRight, 63)
        .compute(Register::R3, Operation::ShiftLeft, 4)
        .compute_reg(Register::R2, Operation::Or, Register::R3)
        .store(AccessSize::Word, Register::R9, at::AGREED, Register::R2);
}

/// Our timestamp and the cookie, into the scratch value; goes to `none` without a key.
pub(super) fn make(a: &mut Assembler, maps: &Maps, family: SegmentFamily, none: Label) {
    let sealed = a.label();
    a.store_value(AccessSize::Word, Register::R9, at::MARKS, 0)
        .load(AccessSize::Word, Register::R2, Register::R9, at::AGREED)
        .copy(Register::R1, Register::R2)
        .compute(Register::R1, Operation::And, AGREED_TIMESTAMPS)
        .jump_if(Register::R1, JumpCondition::Equal, 0, sealed)
        // The option bits: scale, SACK, ECN.
        .load(AccessSize::Word, Register::R1, Register::R9, at::SCALE)
        .copy(Register::R3, Register::R2)
        .compute(Register::R3, Operation::And, AGREED_SACK)
        .compute(Register::R3, Operation::ShiftLeft, 3)
        .compute_reg(Register::R1, Operation::Or, Register::R3)
        .compute(Register::R2, Operation::And, AGREED_ECN)
        .compute(Register::R2, Operation::ShiftLeft, 2)
        .compute_reg(Register::R1, Operation::Or, Register::R2)
        .copy(Register::R2, Register::R1)
        .compute(Register::R2, Operation::Or, TIMESTAMPS_SPOKEN)
        .store(AccessSize::Word, Register::R9, at::MARKS, Register::R2);
    timestamp(a, family);
    a.place(sealed);
    kept(a, family);
    a.load(AccessSize::Word, Register::R1, Register::R9, at::CLIENT).load(
        AccessSize::Word,
        Register::R3,
        Register::R9,
        at::MARKS,
    );
    say(a, family);
    a.load(AccessSize::Word, Register::R1, Register::R9, at::SLOT);
    seal(a, maps, family, none);
    a.store(AccessSize::Word, Register::R9, at::COOKIE, Register::R1);
}

/// The flags' byte of the cookie in `R2`: scale, segment size, SACK, whether the epoch is odd.
fn kept(a: &mut Assembler, family: SegmentFamily) {
    let sizes = if family == SegmentFamily::V4 { MSS_V4 } else { MSS_V6 };
    a.load(AccessSize::Word, Register::R1, Register::R9, at::SCALE)
        .compute(Register::R1, Operation::And, 0xf)
        .compute(Register::R1, Operation::ShiftLeft, 2)
        .set_wide(Register::R2, COOKIE_SCALES)
        .compute_reg(Register::R2, Operation::ShiftRight, Register::R1)
        .compute(Register::R2, Operation::And, 7)
        .compute(Register::R2, Operation::ShiftLeft, 3)
        .load(AccessSize::Word, Register::R1, Register::R9, at::MSS);
    // How many sizes fit, without a branch: size - 1 - mss is negative where one does.
    for size in sizes {
        a.set(Register::R3, size - 1)
            .compute_reg(Register::R3, Operation::Subtract, Register::R1)
            .compute(Register::R3, Operation::ShiftRight, 63)
            .compute_reg(Register::R2, Operation::Add, Register::R3);
    }
    a.compute(Register::R2, Operation::ShiftLeft, 2)
        .load(AccessSize::Word, Register::R1, Register::R9, at::AGREED)
        .compute(Register::R1, Operation::And, AGREED_SACK)
        .compute_reg(Register::R2, Operation::Or, Register::R1)
        .load(AccessSize::Word, Register::R1, Register::R9, at::SLOT)
        .compute(Register::R1, Operation::And, 1)
        .compute_reg(Register::R2, Operation::Or, Register::R1);
}
