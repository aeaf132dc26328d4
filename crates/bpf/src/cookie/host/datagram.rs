//! The program that shares a protected UDP port among the prefixes that send to it.
//!
//! Called by tail call from `classify.rs`. Each source prefix, an IPv4 /24 or the first 64 bits of
//! an IPv6 address, has a credit (a token bucket kept as one time: GCRA) in a table by keyed hash.
//! It bounds one true source, or a network of them, that is louder than others. Forged sources that
//! are all different each find their own credit: against them `challenge.rs` is, where the port's
//! protocol has a challenge.

use super::tables::{BUCKETS, HostSettings, Tally};
use super::{HostMaps, PASS, Program, begin, count, ends, own, refuse};
use crate::cookie::segment::{SegmentFamily, families, reach};
use crate::cookie::{at, look_up};
use crate::siphash::{self, FAST};
use crate::{AccessSize, Assembler, Function, JumpCondition, Operation, Register, Width};

/// Writes the program. `R1` is the context.
pub fn share_datagrams(a: &mut Assembler, maps: &HostMaps) {
    let [pass, hashed, refused, owed] = core::array::from_fn(|_| a.label());
    begin(a, maps, pass);
    a.call(Function::BootNanos)
        .store(AccessSize::Double, Register::R9, at::NOW, Register::R0)
        .set(Register::R1, 0);
    for (family, label) in SegmentFamily::BOTH.into_iter().zip(families(a, pass)) {
        a.place(label);
        let (source, _) = family.addresses();
        reach(a, source + 8, pass);
        match family {
            SegmentFamily::V4 => a
                .load(AccessSize::Word, Register::R1, Register::R7, source)
                .wire(Register::R1, Width::Word)
                .compute(Register::R1, Operation::ShiftRight, 8),
            SegmentFamily::V6 => a.load(AccessSize::Double, Register::R1, Register::R7, source),
        };
        a.store(AccessSize::Double, Register::R9, at::WORDS, Register::R1).jump(hashed);
    }
    a.place(hashed);
    a.set(Register::R1, 0);
    look_up(a, maps.settings, pass);
    // Packet addresses are needed no more.
    a.copy(Register::R7, Register::R0);
    let words = [(Register::R9, at::WORDS)];
    siphash::emit(a, FAST, (Register::R7, HostSettings::CLOCK), &words);
    a.copy(Register::R1, Register::R0).compute(Register::R1, Operation::And, BUCKETS as i32 - 1);
    look_up(a, maps.buckets, pass);
    // Until when what was sent so far is paid for.
    a.load(AccessSize::Double, Register::R1, Register::R0, 0)
        .load(AccessSize::Double, Register::R2, Register::R9, at::NOW)
        .load(AccessSize::Double, Register::R3, Register::R7, HostSettings::BURST)
        .compute_reg(Register::R3, Operation::Add, Register::R2)
        .jump_if_reg(Register::R1, JumpCondition::Above, Register::R3, refused)
        .jump_if_reg(Register::R1, JumpCondition::Above, Register::R2, owed)
        .copy(Register::R1, Register::R2);
    a.place(owed);
    a.load(AccessSize::Double, Register::R3, Register::R7, HostSettings::INTERVAL)
        .compute_reg(Register::R1, Operation::Add, Register::R3)
        .store(AccessSize::Double, Register::R0, 0, Register::R1);
    let plain = a.label();
    a.load(AccessSize::Word, Register::R1, Register::R9, own::PROTOCOL)
        .jump_if(Register::R1, JumpCondition::Equal, 0, plain)
        .tail_call(Register::R6, maps.programs, Program::Challenge as i32);
    a.place(plain);
    count(a, Tally::Datagrams);
    a.jump(pass);
    a.place(refused);
    refuse(a, maps, Tally::Uncredited);
    ends(a, &[(pass, PASS)]);
}
