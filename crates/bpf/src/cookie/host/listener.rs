//! What the kernel's listener says: its queues, its options, whether it is under pressure.
//!
//! Called by `classify.rs` with the listener's socket on the stack. Its fields are read once into
//! the scratch value and the socket is released at once; what is made of them is computed there.

use super::tables::{HostSettings, NO_SCALING, Tally};
use super::{HostMaps, ListenerFields, count, own, spot};
use crate::cookie::syn::{AWAKE_NANOS, SYN_WINDOW_LOG2};
use crate::cookie::tables::Offer;
use crate::cookie::{at, look_up, stack};
use crate::{AccessSize, Assembler, Function, JumpCondition, Label, Operation, Register};

/// Of the user's locks: the receive buffer was set.
const BUFFER_LOCK: i32 = 2;
/// The least segment size that the kernel lets a cookie have: IPv4, IPv6.
pub(super) const LEAST_MSS: (i32, i32) = (536, 1220);

/// Reads the listener's fields and releases its socket; goes to `release` where it cannot be read.
/// `R9` is the scratch value from here on.
pub(super) fn read(a: &mut Assembler, maps: &HostMaps, fields: &ListenerFields, release: Label) {
    a.set(Register::R1, 0);
    look_up(a, maps.scratch, release);
    a.copy(Register::R9, Register::R0);
    let kept = [
        (spot::PORT, own::PORT),
        (spot::TAG, own::TAG),
        (spot::FLAGS, own::FLAGS),
        (spot::FAMILY, own::FAMILY),
    ];
    for (from, to) in kept {
        a.load(AccessSize::Word, Register::R1, Register::R10, from).store(
            AccessSize::Word,
            Register::R9,
            to,
            Register::R1,
        );
    }
    a.load(AccessSize::Double, Register::R1, Register::R10, spot::SOCKET)
        .call(Function::ToTcpSocket)
        .jump_if(Register::R0, JumpCondition::Equal, 0, release)
        .store_value(AccessSize::Word, Register::R9, own::IS_MPTCP, 0);
    let words = [
        (AccessSize::Word, fields.ack_backlog, own::ACK_BACKLOG),
        (AccessSize::Word, fields.max_ack_backlog, own::MAX_ACK_BACKLOG),
        (AccessSize::Word, fields.half_open, own::HALF_OPEN),
        (AccessSize::Word, fields.receive_buffer, own::RECEIVE_BUFFER),
        (AccessSize::Byte, fields.user_locks, own::USER_LOCKS),
        (AccessSize::Half, fields.user_mss, own::USER_MSS),
    ];
    for (size, from, to) in words {
        a.load(size, Register::R1, Register::R0, from).store(
            AccessSize::Word,
            Register::R9,
            to,
            Register::R1,
        );
    }
    if let Some(from) = fields.is_mptcp {
        a.load(AccessSize::Byte, Register::R1, Register::R0, from)
            .compute(Register::R1, Operation::And, 1)
            .store(AccessSize::Word, Register::R9, own::IS_MPTCP, Register::R1);
    }
    a.load(AccessSize::Double, Register::R1, Register::R10, spot::SOCKET).call(Function::Release);
}

/// The word of the listener's offer into the scratch value: that of the family, cut by what the
/// listener has set itself. Goes to `pass` with a segment size that the kernel lets no cookie have.
/// `R7` are the settings.
pub(super) fn offer(a: &mut Assembler, pass: Label) {
    let (v6, chosen, said, done) = (a.label(), a.label(), a.label(), a.label());
    a.load(AccessSize::Word, Register::R2, Register::R9, own::USER_MSS)
        .load(AccessSize::Word, Register::R1, Register::R9, own::FAMILY)
        .jump_if(Register::R1, JumpCondition::Equal, 6, v6)
        .load(AccessSize::Double, Register::R1, Register::R7, HostSettings::OFFER_V4)
        .jump_if(Register::R2, JumpCondition::Equal, 0, said)
        .jump_if(Register::R2, JumpCondition::Below, LEAST_MSS.0, pass)
        .jump(chosen);
    a.place(v6);
    a.load(AccessSize::Double, Register::R1, Register::R7, HostSettings::OFFER_V6)
        .jump_if(Register::R2, JumpCondition::Equal, 0, said)
        .jump_if(Register::R2, JumpCondition::Below, LEAST_MSS.1, pass);
    a.place(chosen);
    a.copy(Register::R3, Register::R1)
        .compute(Register::R3, Operation::ShiftRight, Offer::MSS_SHIFT)
        .compute(Register::R3, Operation::And, 0xffff)
        .jump_if_reg(Register::R2, JumpCondition::AtLeast, Register::R3, said)
        .compute_reg(Register::R3, Operation::Xor, Register::R2)
        .compute(Register::R3, Operation::ShiftLeft, Offer::MSS_SHIFT)
        .compute_reg(Register::R1, Operation::Xor, Register::R3);
    a.place(said);
    a.store(AccessSize::Double, Register::R9, at::OFFER, Register::R1)
        .load(AccessSize::Word, Register::R2, Register::R9, own::USER_LOCKS)
        .compute(Register::R2, Operation::And, BUFFER_LOCK)
        .jump_if(Register::R2, JumpCondition::Equal, 0, done);
    buffer(a);
    a.place(done);
}

/// Window and scale of a listener that has set its receive buffer, of which the half is offered.
fn buffer(a: &mut Assembler) {
    let window = a.label();
    a.load(AccessSize::Word, Register::R1, Register::R9, own::RECEIVE_BUFFER)
        .compute(Register::R1, Operation::ShiftRight, 1)
        .set(Register::R2, 0);
    // How many powers of two beyond 64 KiB it reaches, without a branch.
    for bits in 16..=30 {
        a.set(Register::R3, ((1_u32 << bits) - 1).cast_signed())
            .compute_reg(Register::R3, Operation::Subtract, Register::R1)
            .compute(Register::R3, Operation::ShiftRight, 63)
            .compute_reg(Register::R2, Operation::Add, Register::R3);
    }
    a.compute(Register::R2, Operation::ShiftLeft, Offer::SCALE_SHIFT)
        .load(AccessSize::Double, Register::R4, Register::R9, at::OFFER)
        // Whole segments of it.
        .copy(Register::R3, Register::R4)
        .compute(Register::R3, Operation::ShiftRight, Offer::MSS_SHIFT)
        .compute(Register::R3, Operation::And, 0xffff)
        .copy(Register::R5, Register::R1)
        .jump_if_reg(Register::R1, JumpCondition::AtMost, Register::R3, window)
        .compute_reg(Register::R1, Operation::Modulo, Register::R3)
        .compute_reg(Register::R5, Operation::Subtract, Register::R1);
    a.place(window);
    let small = a.label();
    a.copy(Register::R3, Register::R4)
        .compute(Register::R3, Operation::And, 0xffff)
        .jump_if_reg(Register::R5, JumpCondition::AtMost, Register::R3, small)
        .copy(Register::R5, Register::R3);
    a.place(small);
    // Flags, hop limit and class stay, and the segment size.
    let stays = !0xff_0000_ffff_u64 & !(0xff << Offer::SCALE_SHIFT);
    a.set_wide(Register::R3, stays)
        .compute_reg(Register::R4, Operation::And, Register::R3)
        .compute_reg(Register::R4, Operation::Or, Register::R2)
        .compute_reg(Register::R4, Operation::Or, Register::R5)
        .store(AccessSize::Double, Register::R9, at::OFFER, Register::R4);
    const { assert!(NO_SCALING >> Offer::FLAGS_SHIFT == 8, "a flag, which stays") };
}

/// Counts the SYN and goes on where it is to be answered; one that is not is counted and goes to
/// `pass`. `R7` are the settings. The clock is in the scratch value then.
pub(super) fn awake(a: &mut Assembler, pass: Label) {
    let (same, wakes, renewed, awake) = (a.label(), a.label(), a.label(), a.label());
    let word = |word: Tally| word.offset();
    a.call(Function::BootNanos)
        .store(AccessSize::Double, Register::R9, at::NOW, Register::R0)
        .load(AccessSize::Double, Register::R1, Register::R10, stack::DESK)
        .copy(Register::R4, Register::R0)
        .compute(Register::R4, Operation::ShiftRight, SYN_WINDOW_LOG2)
        .load(AccessSize::Double, Register::R5, Register::R1, word(Tally::Window))
        .jump_if_reg(Register::R4, JumpCondition::Equal, Register::R5, same)
        .store(AccessSize::Double, Register::R1, word(Tally::Window), Register::R4)
        .store_value(AccessSize::Double, Register::R1, word(Tally::Syns), 0)
        .store_value(AccessSize::Double, Register::R1, word(Tally::LeftInWindow), 0);
    a.place(same);
    a.load(AccessSize::Double, Register::R5, Register::R1, word(Tally::Syns))
        .add(Register::R5, 1)
        .store(AccessSize::Double, Register::R1, word(Tally::Syns), Register::R5)
        .load(AccessSize::Double, Register::R3, Register::R1, word(Tally::AwakeUntil))
        .load(AccessSize::Double, Register::R2, Register::R7, HostSettings::MODE)
        .jump_if(Register::R2, JumpCondition::Meets, HostSettings::ALWAYS, wakes)
        .load(AccessSize::Double, Register::R2, Register::R7, HostSettings::WAKES)
        .jump_if_reg(Register::R5, JumpCondition::AtLeast, Register::R2, wakes)
        .load(AccessSize::Double, Register::R2, Register::R7, HostSettings::WATCH_SHIFT)
        .compute(Register::R2, Operation::And, 31)
        .load(AccessSize::Word, Register::R4, Register::R9, own::MAX_ACK_BACKLOG)
        .compute_reg(Register::R4, Operation::ShiftRight, Register::R2)
        .load(AccessSize::Word, Register::R2, Register::R9, own::HALF_OPEN)
        .jump_if_reg(Register::R2, JumpCondition::Above, Register::R4, wakes)
        .jump_if_reg(Register::R3, JumpCondition::Above, Register::R0, awake);
    count(a, Tally::Asleep);
    a.jump(pass);
    a.place(wakes);
    a.jump_if_reg(Register::R3, JumpCondition::Above, Register::R0, renewed)
        .store(AccessSize::Double, Register::R1, word(Tally::AwakeSince), Register::R0)
        .load(AccessSize::Double, Register::R2, Register::R1, word(Tally::Woken))
        .add(Register::R2, 1)
        .store(AccessSize::Double, Register::R1, word(Tally::Woken), Register::R2);
    a.place(renewed);
    a.set_wide(Register::R2, AWAKE_NANOS)
        .compute_reg(Register::R2, Operation::Add, Register::R0)
        .store(AccessSize::Double, Register::R1, word(Tally::AwakeUntil), Register::R2);
    a.place(awake);
}
