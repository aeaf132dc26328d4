//! A sample of what ends at an interface: for which service the last of these frames were.
//!
//! Composed into the programs of an interface by `cookie` (SYNs that are answered) and `device`
//! (frames that are dropped); read by `device` for reports. Of each reason one frame in [`EACH`]
//! leaves a word in a ring of [`RING`], so that a ring shows the last `EACH * RING` of them. A
//! service is a protocol and a destination port: [`SampledService`].
//!
//! # Under flood
//! Bound: [`ENTRIES`] words a queue. Work: a look-up for one refused frame in [`EACH`], a
//! comparison for the others, none for frames that go on. A sender that counts along can hide one
//! of several services that it floods; what it is dropped for does not depend on the sample.

use crate::{AccessSize, Assembler, Function, JumpCondition, Label, Operation, Register};

/// One frame in so many is sampled; a power of two.
pub const EACH: u64 = 16;
/// Words of a ring, and rings of a queue: one a reason.
pub const RING: usize = 16;
/// See [`RING`].
pub const RINGS: usize = 16;
/// Words of a queue.
pub const ENTRIES: usize = RING * RINGS;
/// The ring of SYNs that are answered.
pub const ANSWERED: usize = RINGS - 1;
const _: () = assert!(EACH.is_power_of_two() && RING.is_power_of_two(), "bits of a count");

/// Says in a word that a frame was sampled; alone it is one without ports.
pub const SAMPLED: i32 = 1 << 24;
const PROTOCOL_SHIFT: i32 = 16;
/// The field of the context with the number of the queue.
const RX_QUEUE: i16 = 16;

/// What a sampled frame was for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SampledService {
    /// The number of the protocol; 0 for a frame without ports.
    pub protocol: u8,
    /// The destination port.
    pub port: u16,
}

impl SampledService {
    /// Of a word of the map; `None` where nothing was sampled yet.
    #[must_use]
    pub const fn of(word: u64) -> Option<Self> {
        match word & SAMPLED as u64 {
            0 => None,
            _ => Some(Self { protocol: (word >> PROTOCOL_SHIFT) as u8, port: word as u16 }),
        }
    }
}

/// Makes the word of a service: its port, as a number, is in `R1`, its protocol in `R2`. The word
/// is in `R1` then.
pub fn service(a: &mut Assembler) {
    a.compute(Register::R2, Operation::ShiftLeft, PROTOCOL_SHIFT)
        .compute_reg(Register::R1, Operation::Or, Register::R2)
        .compute(Register::R1, Operation::Or, SAMPLED);
}

/// Writes a service down where its turn has come, and goes on at `done`. The reason's count, this
/// frame included, is in `R2`, the number of its ring in `R3`; `R6` is the context; the stack has
/// the service's word at `word`, and room for a key of four bytes at `key`. Takes `R0` to `R5`.
pub fn take(a: &mut Assembler, map: i32, (word, key): (i16, i16), done: Label) {
    a.copy(Register::R1, Register::R2)
        .compute(Register::R1, Operation::And, EACH as i32 - 1)
        .jump_if(Register::R1, JumpCondition::Differs, 0, done)
        .compute(Register::R2, Operation::ShiftRight, EACH.ilog2() as i32)
        .compute(Register::R2, Operation::And, RING as i32 - 1)
        .compute(Register::R3, Operation::ShiftLeft, RING.ilog2() as i32)
        .compute_reg(Register::R2, Operation::Or, Register::R3)
        .load(AccessSize::Word, Register::R1, Register::R6, RX_QUEUE)
        .compute(Register::R1, Operation::ShiftLeft, ENTRIES.ilog2() as i32)
        .compute_reg(Register::R1, Operation::Or, Register::R2)
        .store(AccessSize::Word, Register::R10, key, Register::R1)
        .map(Register::R1, map)
        .copy(Register::R2, Register::R10)
        .add(Register::R2, i32::from(key))
        .call(Function::MapLookup)
        .jump_if(Register::R0, JumpCondition::Equal, 0, done)
        .load(AccessSize::Word, Register::R1, Register::R10, word)
        .store(AccessSize::Double, Register::R0, 0, Register::R1)
        .jump(done);
}
