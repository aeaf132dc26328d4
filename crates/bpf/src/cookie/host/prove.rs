//! The program that opens the cookies of ACKs to the kernel's listeners.
//!
//! Called by tail call from `classify.rs`. What a cookie says goes up as a note in the frame's
//! metadata; `adopt.rs` reads it. Packets of one poll reach tc before the first of them reaches
//! TCP, so the second segment of a client's first burst finds the listener too: the table of recent
//! proofs lets it pass without a note, and the kernel finds the connection. On another core it can
//! overtake the first, and would be reset: there it has a note of its own, and of two the kernel
//! takes one. An ACK with a cookie of the kernel's own, made while this program was asleep, is
//! asked for.

use super::answer::zone;
use super::keys;
use super::tables::{NO_SCALING, PROOFS, Tally};
use super::{HostMaps, MAGIC, META_BYTES, NOTE, PASS, begin, count, ends, own, refuse, spot};
use crate::cookie::ack::{AckWays, numbers, open};
use crate::cookie::seal::{OPTION_BITS, hash_flow};
use crate::cookie::segment::{L3, SegmentFamily, TCP_BYTES, families, reach, read};
use crate::cookie::tables::Offer;
use crate::cookie::{DATA, at, find_epoch, look_up, options, stack};
use crate::{AccessSize, Assembler, Function, JumpCondition, Label, Operation, Register, Width};

/// Ticks of 2^20 ns: within these the flow's next segments on the same core pass unread, and within
/// those what is no cookie passes.
const FRESH_TICKS: i32 = 19;
const KNOWN_TICKS: i32 = 954;
/// A proof's lower half: its time in ticks, and above that the low byte of its core's number.
const TICK_MASK: i32 = 0xff_ffff;
const CORE_SHIFT: i32 = 24;
/// How long after waking cookies of the kernel's own come back.
const KERNEL_COOKIES_NANOS: u64 = 60_000_000_000;
/// Of the context: where metadata begins.
const DATA_META: i16 = 8;
/// Segment sizes of a cookie, 16 bits each from the lowest: IPv4, IPv6, each in two words. The
/// first is raised to what the kernel takes.
const MSS_V4: [u64; 2] = [words([536, 536, 1220, 1360]), words([1400, 1440, 1460, 8960])];
const MSS_V6: [u64; 2] = [words([1220, 1220, 1280, 1360]), words([1380, 1420, 1440, 8940])];
/// Window scales of a cookie, four bits each from the lowest; the first stands for none.
const COOKIE_SCALES: u64 = 0xa876_420f;
/// Bits of what was agreed on in the note.
pub(super) const ECN: i32 = 1;
pub(super) const SCALING: i32 = 2;
pub(super) const SACK: i32 = 4;
pub(super) const TIMESTAMPS: i32 = 8;

const fn words(sizes: [u64; 4]) -> u64 {
    sizes[0] | sizes[1] << 16 | sizes[2] << 32 | sizes[3] << 48
}

/// Writes the program. `R1` is the context.
pub fn prove_ack(a: &mut Assembler, maps: &HostMaps) {
    let inner = maps.inner();
    let [pass, stray, proven, known, ready, v6, derive, refused] =
        core::array::from_fn(|_| a.label());
    begin(a, maps, pass);
    a.call(Function::BootNanos).store(AccessSize::Double, Register::R9, at::NOW, Register::R0);
    keys::turn(a, maps, derive, pass);
    find_epoch(a, &inner, pass);
    for (family, label) in SegmentFamily::BOTH.into_iter().zip(families(a, pass)) {
        a.place(label);
        read(a, family, stray, zone);
        numbers(a, family, stray);
        hash_flow(a, family);
        a.store(AccessSize::Double, Register::R9, own::HASH, Register::R0).jump(ready);
    }
    a.place(ready);
    remember(a, maps, known, pass);
    options::walk(a, stray);
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
        let forged = a.label();
        open(a, &inner, family, &AckWays { proven, forged, stray: pass });
        a.place(forged);
        other(a, family, (known, refused), pass);
    }
    a.place(proven);
    note(a);
    a.jump(pass);
    a.place(known);
    count(a, Tally::Repeated);
    a.jump(pass);
    a.place(stray);
    refuse(a, maps, Tally::Stray);
    a.place(refused);
    refuse(a, maps, Tally::Refused);
    ends(a, &[(pass, PASS)]);
    keys::derive(a, maps, derive);
}

/// Looks for a proof of the flow: goes to `known` where it is fresh and of this core, and says in
/// the scratch value whether there is one of the last second.
fn remember(a: &mut Assembler, maps: &HostMaps, known: Label, none: Label) {
    let none_recent = a.label();
    a.store_value(AccessSize::Word, Register::R9, own::IS_KNOWN, 0)
        .load(AccessSize::Double, Register::R1, Register::R9, own::HASH)
        .compute(Register::R1, Operation::And, PROOFS as i32 - 1);
    look_up(a, maps.proofs, none);
    a.store(AccessSize::Double, Register::R10, spot::PROOF, Register::R0);
    proof_now(a);
    a.load(AccessSize::Double, Register::R1, Register::R10, spot::PROOF)
        .load(AccessSize::Double, Register::R1, Register::R1, 0)
        .load(AccessSize::Double, Register::R2, Register::R9, own::HASH)
        .compute_reg(Register::R2, Operation::Xor, Register::R1)
        .compute(Register::R2, Operation::ShiftRight, 32)
        .jump_if(Register::R2, JumpCondition::Differs, 0, none_recent)
        .copy(Register::R2, Register::R0)
        .compute_reg(Register::R2, Operation::Subtract, Register::R1)
        .compute(Register::R2, Operation::And, TICK_MASK)
        .jump_if(Register::R2, JumpCondition::AtLeast, KNOWN_TICKS, none_recent)
        .store_value(AccessSize::Word, Register::R9, own::IS_KNOWN, 1)
        .jump_if(Register::R2, JumpCondition::AtLeast, FRESH_TICKS, none_recent)
        .compute_reg(Register::R0, Operation::Xor, Register::R1)
        .compute(Register::R0, Operation::ShiftRight, CORE_SHIFT)
        .compute(Register::R0, Operation::And, 0xff)
        .jump_if(Register::R0, JumpCondition::Equal, 0, known);
    a.place(none_recent);
}

/// The lower half of a proof of this time and core, in `R0`; changes `R1` to `R5`.
fn proof_now(a: &mut Assembler) {
    a.call(Function::Core)
        .compute(Register::R0, Operation::And, 0xff)
        .compute(Register::R0, Operation::ShiftLeft, CORE_SHIFT)
        .load(AccessSize::Double, Register::R1, Register::R9, at::NOW)
        .compute(Register::R1, Operation::ShiftRight, 20)
        .compute(Register::R1, Operation::And, TICK_MASK)
        .compute_reg(Register::R0, Operation::Or, Register::R1);
}

/// A number that is no cookie of ours: of a flow that was proven, or a cookie of the kernel's, or
/// forged.
fn other(a: &mut Assembler, family: SegmentFamily, (known, refused): (Label, Label), pass: Label) {
    let (ask, kernels) = (a.label(), a.label());
    a.load(AccessSize::Word, Register::R1, Register::R9, own::IS_KNOWN)
        .jump_if(Register::R1, JumpCondition::Differs, 0, known)
        .load(AccessSize::Double, Register::R2, Register::R9, at::NOW)
        .load(AccessSize::Double, Register::R1, Register::R10, stack::DESK)
        .load(AccessSize::Double, Register::R3, Register::R1, Tally::AwakeUntil.offset())
        .jump_if_reg(Register::R3, JumpCondition::AtMost, Register::R2, ask)
        .load(AccessSize::Double, Register::R3, Register::R1, Tally::AwakeSince.offset())
        .compute_reg(Register::R2, Operation::Subtract, Register::R3)
        .set_wide(Register::R3, KERNEL_COOKIES_NANOS)
        .jump_if_reg(Register::R2, JumpCondition::AtLeast, Register::R3, refused);
    a.place(ask);
    reach(a, family.l4() + TCP_BYTES, refused);
    a.copy(Register::R1, Register::R7)
        .add(Register::R1, i32::from(L3))
        .copy(Register::R2, Register::R7)
        .add(Register::R2, i32::from(family.l4()))
        .call(match family {
            SegmentFamily::V4 => Function::CheckKernelCookieV4,
            SegmentFamily::V6 => Function::CheckKernelCookieV6,
        })
        .jump_if_word(Register::R0, JumpCondition::Equal, 0, kernels)
        .jump(refused);
    a.place(kernels);
    count(a, Tally::KernelCookie);
    a.jump(pass);
}

/// Remembers the proof and writes the note.
fn note(a: &mut Assembler) {
    let (noted, failed) = (a.label(), a.label());
    proof_now(a);
    a.load(AccessSize::Double, Register::R2, Register::R9, own::HASH)
        .compute(Register::R2, Operation::ShiftRight, 32)
        .compute(Register::R2, Operation::ShiftLeft, 32)
        .compute_reg(Register::R2, Operation::Or, Register::R0)
        .load(AccessSize::Double, Register::R1, Register::R10, spot::PROOF)
        .store(AccessSize::Double, Register::R1, 0, Register::R2);
    agreed(a);
    a.copy(Register::R1, Register::R6)
        .set(Register::R2, -i32::from(META_BYTES))
        .call(Function::AdjustMeta)
        .jump_if_word(Register::R0, JumpCondition::Differs, 0, failed)
        .load(AccessSize::Word, Register::R7, Register::R6, DATA_META)
        .load(AccessSize::Word, Register::R8, Register::R6, DATA);
    reach(a, META_BYTES, failed);
    a.load(AccessSize::Word, Register::R1, Register::R9, own::PORT)
        .compute(Register::R1, Operation::Or, MAGIC << 8)
        .store(AccessSize::Word, Register::R7, NOTE, Register::R1);
    for (from, to) in [(own::IS_KNOWN, 4), (at::VALUE, 8), (at::ECHO, 12)] {
        a.load(AccessSize::Word, Register::R1, Register::R9, from).store(
            AccessSize::Word,
            Register::R7,
            NOTE + to,
            Register::R1,
        );
    }
    a.jump(noted);
    a.place(failed);
    count(a, Tally::NoMetadata);
    a.place(noted);
}

/// What was agreed on, into the scratch value where [`own::IS_KNOWN`] was: segment size in the low
/// half, our scale, the client's, four bits each, and the flags.
fn agreed(a: &mut Assembler) {
    let (spoken, said, sized) = (a.label(), a.label(), a.label());
    // The cookie's flags in `R1`; the offer in `R5`.
    a.load(AccessSize::Word, Register::R1, Register::R9, at::COOKIE)
        .copy(Register::R2, Register::R1)
        .compute(Register::R2, Operation::ShiftRight, 24)
        .compute_reg(Register::R1, Operation::Xor, Register::R2)
        .compute(Register::R1, Operation::And, 0xff)
        .load(AccessSize::Double, Register::R5, Register::R9, at::OFFER)
        // With timestamps the option bits of ours say scale, SACK and ECN: in `R2`, as there.
        .copy(Register::R2, Register::R5)
        .compute(Register::R2, Operation::ShiftRight, Offer::FLAGS_SHIFT + 1)
        .load(AccessSize::Word, Register::R3, Register::R9, at::SEEN)
        .compute(Register::R3, Operation::ShiftRight, 2)
        .compute_reg(Register::R2, Operation::And, Register::R3)
        .compute(Register::R2, Operation::And, 1)
        .jump_if(Register::R2, JumpCondition::Differs, 0, spoken)
        .copy(Register::R3, Register::R1)
        .compute(Register::R3, Operation::ShiftRight, 5)
        .compute(Register::R3, Operation::ShiftLeft, 2)
        .set_wide(Register::R2, COOKIE_SCALES)
        .compute_reg(Register::R2, Operation::ShiftRight, Register::R3)
        .compute(Register::R2, Operation::And, 0xf)
        .copy(Register::R3, Register::R1)
        .compute(Register::R3, Operation::And, 2)
        .compute(Register::R3, Operation::ShiftLeft, 3)
        .compute_reg(Register::R2, Operation::Or, Register::R3)
        .store_value(AccessSize::Word, Register::R9, at::VALUE, 0)
        .store_value(AccessSize::Word, Register::R9, at::ECHO, 0)
        .set(Register::R4, 0)
        .jump(said);
    a.place(spoken);
    a.load(AccessSize::Word, Register::R2, Register::R9, at::ECHO)
        .wire(Register::R2, Width::Word)
        .compute(Register::R2, Operation::And, OPTION_BITS)
        .set(Register::R4, TIMESTAMPS);
    a.place(said);
    flags(a);
    // The segment size.
    let v6 = a.label();
    a.compute(Register::R1, Operation::ShiftRight, 2)
        .compute(Register::R1, Operation::And, 7)
        .load(AccessSize::Word, Register::R3, Register::R9, at::FAMILY)
        .jump_if(Register::R3, JumpCondition::Equal, 6, v6);
    size(a, MSS_V4, sized);
    a.place(v6);
    size(a, MSS_V6, sized);
    a.place(sized);
    let uncut = a.label();
    a.load(AccessSize::Word, Register::R3, Register::R9, own::USER_MSS)
        .jump_if(Register::R3, JumpCondition::Equal, 0, uncut)
        .jump_if_reg(Register::R2, JumpCondition::AtMost, Register::R3, uncut)
        .copy(Register::R2, Register::R3);
    a.place(uncut);
    a.compute_reg(Register::R2, Operation::Or, Register::R4).store(
        AccessSize::Word,
        Register::R9,
        own::IS_KNOWN,
        Register::R2,
    );
}

/// Turns the option bits in `R2` and the bit of timestamps in `R4` into the upper half of the
/// note's word in `R4`; `R5` is the offer. Keeps `R1`.
fn flags(a: &mut Assembler) {
    let (unscaled, done) = (a.label(), a.label());
    a.copy(Register::R3, Register::R2)
        .compute(Register::R3, Operation::ShiftRight, 5)
        .compute(Register::R3, Operation::And, ECN)
        .compute_reg(Register::R4, Operation::Or, Register::R3)
        .copy(Register::R3, Register::R2)
        .compute(Register::R3, Operation::ShiftRight, 2)
        .compute(Register::R3, Operation::And, SACK)
        .compute_reg(Register::R4, Operation::Or, Register::R3)
        .compute(Register::R2, Operation::And, 0xf)
        .copy(Register::R3, Register::R5)
        .compute(Register::R3, Operation::ShiftRight, Offer::FLAGS_SHIFT)
        .jump_if(
            Register::R3,
            JumpCondition::Meets,
            (NO_SCALING >> Offer::FLAGS_SHIFT) as i32,
            unscaled,
        )
        .jump_if(Register::R2, JumpCondition::Equal, options::NO_SCALE, unscaled)
        .compute(Register::R4, Operation::Or, SCALING)
        .compute(Register::R4, Operation::ShiftLeft, 24)
        .compute(Register::R2, Operation::ShiftLeft, 20)
        .compute_reg(Register::R4, Operation::Or, Register::R2)
        .compute(Register::R5, Operation::ShiftRight, Offer::SCALE_SHIFT)
        .compute(Register::R5, Operation::And, 0xf)
        .compute(Register::R5, Operation::ShiftLeft, 16)
        .compute_reg(Register::R4, Operation::Or, Register::R5)
        .jump(done);
    a.place(unscaled);
    a.compute(Register::R4, Operation::ShiftLeft, 24);
    a.place(done);
}

/// The segment size with the number in `R1`, in `R2`; goes to `done`.
fn size(a: &mut Assembler, [low, high]: [u64; 2], done: Label) {
    let above = a.label();
    a.compute(Register::R1, Operation::ShiftLeft, 4)
        .set_wide(Register::R2, low)
        .jump_if(Register::R1, JumpCondition::Below, 64, above)
        .set_wide(Register::R2, high);
    a.place(above);
    a.compute(Register::R1, Operation::And, 63)
        .compute_reg(Register::R2, Operation::ShiftRight, Register::R1)
        .compute(Register::R2, Operation::And, 0xffff)
        .jump(done);
}
