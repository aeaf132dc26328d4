//! The keys of cookies, derived where they are used.
//!
//! Called at the start of both programs. Each core keeps the keys of the last and the present epoch
//! as [`KeyTable`] lays them out, and derives them anew where the epoch has turned or user space
//! has changed secret or clock: four hashes, once in 15 seconds. Equal to `secret.rs` of
//! `syncache`: key = SipHash-2-4(secret; epoch, which half).

use super::HostMaps;
use super::tables::HostSettings;
use crate::cookie::tables::{EPOCH_NANOS, KEY_ENTRIES, KeyTable};
use crate::cookie::{at, look_up, stack};
use crate::siphash::{self, CAREFUL};
use crate::{AccessSize, Assembler, JumpCondition, Label, Operation, Register};

/// Of the header: which generation of the settings the keys are of, and since when they are valid.
const GENERATION: i16 = 48;
const SINCE: i16 = 56;

/// Sees to it that the core's keys are those of now, which the scratch value says; goes to `none`
/// where there are no settings. `derive` is placed by [`derive`]. Keeps no register below `R6`.
pub(super) fn turn(a: &mut Assembler, maps: &HostMaps, derive: Label, none: Label) {
    let (stale, fresh) = (a.label(), a.label());
    a.set(Register::R1, 0);
    look_up(a, maps.keys, none);
    a.store(AccessSize::Double, Register::R10, stack::HEADER, Register::R0).set(Register::R1, 0);
    look_up(a, maps.settings, none);
    a.load(AccessSize::Double, Register::R1, Register::R10, stack::HEADER)
        .load(AccessSize::Double, Register::R2, Register::R1, GENERATION)
        .load(AccessSize::Double, Register::R3, Register::R0, HostSettings::GENERATION)
        .jump_if_reg(Register::R2, JumpCondition::Differs, Register::R3, stale)
        .load(AccessSize::Double, Register::R2, Register::R1, KeyTable::UNTIL_OFFSET)
        .load(AccessSize::Double, Register::R3, Register::R9, at::NOW)
        .jump_if_reg(Register::R3, JumpCondition::Below, Register::R2, fresh);
    a.place(stale);
    a.copy(Register::R1, Register::R9).call_own(derive).jump_if(
        Register::R0,
        JumpCondition::Equal,
        0,
        none,
    );
    a.place(fresh);
}

/// The function that derives the keys: scratch value in `R1`, 1 in `R0` where it did. Stands behind
/// the program's last exit.
pub(super) fn derive(a: &mut Assembler, maps: &HostMaps, function: Label) {
    let none = a.label();
    a.place(function);
    a.copy(Register::R9, Register::R1).set(Register::R1, 0);
    look_up(a, maps.settings, none);
    // The generation is read first: what is written meanwhile then makes another one.
    a.copy(Register::R6, Register::R0)
        .load(AccessSize::Double, Register::R1, Register::R6, HostSettings::GENERATION)
        .store(AccessSize::Double, Register::R9, at::WORDS + 16, Register::R1)
        .load(AccessSize::Double, Register::R8, Register::R9, at::NOW)
        .load(AccessSize::Double, Register::R1, Register::R6, HostSettings::WALL)
        .compute_reg(Register::R8, Operation::Add, Register::R1)
        .set_wide(Register::R1, EPOCH_NANOS)
        .compute_reg(Register::R8, Operation::Divide, Register::R1);
    for back in [1, 0] {
        key(a, maps, back, none);
    }
    a.set(Register::R1, 0);
    look_up(a, maps.keys, none);
    for word in 0..4 {
        a.load(AccessSize::Double, Register::R1, Register::R6, HostSettings::CLOCK + word * 8)
            .store(
                AccessSize::Double,
                Register::R0,
                KeyTable::CLOCK_OFFSET + word * 8,
                Register::R1,
            );
    }
    a.load(AccessSize::Double, Register::R1, Register::R6, HostSettings::ZONE)
        .store(AccessSize::Double, Register::R0, KeyTable::ZONE_OFFSET, Register::R1)
        .load(AccessSize::Double, Register::R1, Register::R9, at::WORDS + 16)
        .store(AccessSize::Double, Register::R0, GENERATION, Register::R1)
        .load(AccessSize::Double, Register::R1, Register::R9, at::NOW)
        .store(AccessSize::Double, Register::R0, SINCE, Register::R1)
        // The end of the epoch by our clock, with the epoch's number in the low bits.
        .copy(Register::R1, Register::R8)
        .add(Register::R1, 1)
        .set_wide(Register::R2, EPOCH_NANOS)
        .compute_reg(Register::R1, Operation::Multiply, Register::R2)
        .load(AccessSize::Double, Register::R2, Register::R6, HostSettings::WALL)
        .compute_reg(Register::R1, Operation::Subtract, Register::R2)
        .compute(Register::R1, Operation::And, !3)
        .copy(Register::R2, Register::R8)
        .compute(Register::R2, Operation::And, 3)
        .compute_reg(Register::R1, Operation::Or, Register::R2)
        .store(AccessSize::Double, Register::R0, KeyTable::UNTIL_OFFSET, Register::R1)
        .set(Register::R0, 1)
        .exit();
    a.place(none);
    a.set(Register::R0, 0).exit();
}

/// Derives and stores the key of the epoch in `R8` less `back`.
fn key(a: &mut Assembler, maps: &HostMaps, back: i32, none: Label) {
    let words = [(Register::R9, at::WORDS), (Register::R9, at::WORDS + 8)];
    for half in [0, 1] {
        a.copy(Register::R1, Register::R8)
            .add(Register::R1, -back)
            .store(AccessSize::Double, Register::R9, at::WORDS, Register::R1)
            .store_value(AccessSize::Double, Register::R9, at::WORDS + 8, half);
        siphash::emit(a, CAREFUL, (Register::R6, HostSettings::SECRET), &words);
        match half {
            0 => a.copy(Register::R7, Register::R0),
            _ => a.store(AccessSize::Double, Register::R9, at::WORDS, Register::R0),
        };
    }
    a.copy(Register::R1, Register::R8)
        .add(Register::R1, -back)
        .compute(Register::R1, Operation::And, 3)
        .add(Register::R1, 1);
    const { assert!(KEY_ENTRIES == 5, "one value for each of four epochs behind the header") };
    look_up(a, maps.keys, none);
    // The state that the hash begins with: words of the key in turn, each with a constant.
    for (n, constant) in (0..).zip(siphash::start((0, 0))) {
        if n % 2 == 0 {
            a.copy(Register::R1, Register::R7);
        } else {
            a.load(AccessSize::Double, Register::R1, Register::R9, at::WORDS);
        }
        a.set_wide(Register::R2, constant)
            .compute_reg(Register::R1, Operation::Xor, Register::R2)
            .store(AccessSize::Double, Register::R0, n * 8, Register::R1);
    }
}
