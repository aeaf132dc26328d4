//! SYN cookies at the interface: the programs that answer SYNs and believe ACKs before they cost a
//! turn of a worker.
//!
//! Composed by `device`, which loads them behind its own program by tail calls; tested and fuzzed
//! in the interpreter against `syncache`, which makes the same cookies, bit for bit: the same keys,
//! the same epochs, the same options. Two programs: [`answer_syn`] and [`check_ack`]. Each reads
//! the frame itself and leaves by one of the labels that its caller gives, so that the caller
//! decides what becomes of frames that are not answered. Start reading at [`Maps`], then `syn.rs`.
//!
//! Conventions of the code, those of the programs of `device` too: `R6` is the context, the frame
//! begins at `R7` and ends at `R8`, `R9` is the scratch value of this core. Intermediate results
//! that the verifier should not follow lie in the scratch value, which is a map's: what is loaded
//! from there is any number to it, and so branches do not multiply its work.
//!
//! # Under flood
//! Reachable by anyone on the link. No memory grows: the maps have fixed sizes, nothing is kept of
//! a SYN. Work per frame: four look-ups and two hashes at most, the options are walked once, 40
//! bytes at most. An answer is never longer than the frame that caused it. Forged ACKs: one in 2^24
//! is believed, as by `syncache`. Honest clients lose our retransmission of the SYN-ACK while the
//! programs are awake. Counted: answered, proven, forged and left SYNs ([`Desk`]).

mod ack;
mod answer;
pub mod host;
mod options;
mod seal;
mod segment;
mod syn;
mod tables;

pub use self::ack::{AckWays, check_ack};
pub use self::segment::{SegmentFamily, find_syn};
pub use self::syn::{SynWays, answer_syn};
pub use self::tables::{
    Desk, EPOCH_NANOS, KEY_ENTRIES, KEY_WORDS, KeyTable, LISTENER_KEY_BYTES, Offer, listener_key,
};
use crate::{AccessSize, Assembler, Function, JumpCondition, Label, Operation, Register};

/// The maps of both programs, by descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Maps {
    /// An array of [`Desk::WORDS`] 64-bit words for each receive queue.
    pub desks: i32,
    /// A per-core array of one value of [`SCRATCH_BYTES`].
    pub scratch: i32,
    /// An array of [`KEY_ENTRIES`] values of [`KEY_WORDS`] 64-bit words: see [`KeyTable`].
    pub keys: i32,
    /// A hash of [`LISTENER_KEY_BYTES`] ([`listener_key`]) with one 64-bit word ([`Offer`]).
    pub listeners: i32,
    /// A hash of our own addresses, 16 bytes each: a SYN from one of them is not answered. `None`
    /// checks only that it is not from the address that it is for.
    pub addresses: Option<i32>,
    /// An array of 64-bit words, [`crate::sample::ENTRIES`] for each receive queue: for which
    /// services SYNs were answered. `None` where none are kept.
    pub samples: Option<i32>,
}

/// Bytes of the scratch value.
pub const SCRATCH_BYTES: usize = 192;

/// Where things are in the scratch value: four bytes each unless it says otherwise.
mod at {
    /// A copy of the options, 40 bytes.
    pub(super) const OPTIONS: i16 = 0;
    /// Where the next option begins, and where they end, from [`OPTIONS`].
    pub(super) const NEXT: i16 = 40;
    pub(super) const OPTIONS_END: i16 = 44;
    /// Which options were seen: [`super::options::SAID_MSS`] and so on.
    pub(super) const SEEN: i16 = 48;
    /// The segment size, with default and floor; the window scale, 15 for none.
    pub(super) const MSS: i16 = 52;
    pub(super) const SCALE: i16 = 56;
    /// The timestamps as they lie in the option.
    pub(super) const VALUE: i16 = 60;
    pub(super) const ECHO: i16 = 64;
    /// Bytes of the frame.
    pub(super) const FRAME: i16 = 68;
    /// Nanoseconds since the start, eight bytes.
    pub(super) const NOW: i16 = 72;
    /// The words under the hash, eight bytes each.
    pub(super) const WORDS: i16 = 80;
    /// The word of the listener, eight bytes.
    pub(super) const OFFER: i16 = 128;
    /// Our timestamp, and the cookie.
    pub(super) const CLOCK: i16 = 136;
    pub(super) const COOKIE: i16 = 140;
    /// The number of the key in force.
    pub(super) const SLOT: i16 = 144;
    /// What was agreed on: [`super::syn::AGREED_SACK`] and so on.
    pub(super) const AGREED: i16 = 148;
    /// Bytes of the options of the answer.
    pub(super) const ANSWER: i16 = 152;
    /// The client's initial sequence number.
    pub(super) const CLIENT: i16 = 156;
    /// The option bits of our timestamp with the bit that says that there is one; else 0.
    pub(super) const MARKS: i16 = 160;
    /// The family: 4 or 6.
    pub(super) const FAMILY: i16 = 164;
}

/// Where things are on the stack.
mod stack {
    /// A key of four bytes.
    pub(super) const KEY: i16 = -4;
    /// The key of a listener: an address of 16 bytes, a port.
    pub(super) const LISTENER: i16 = -32;
    pub(super) const LISTENER_PORT: i16 = LISTENER + 16;
    /// Addresses of values: of the queue's desk, of the first value of the keys.
    pub(super) const DESK: i16 = -40;
    pub(super) const HEADER: i16 = -48;
    /// The frame's end, while `R8` is something else.
    pub(super) const END: i16 = -56;
    /// Another address of 16 bytes.
    pub(super) const SOURCE: i16 = -72;
    /// The service of a sample, four bytes.
    pub(super) const SERVICE: i16 = -8;
}

/// Fields of the context.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const RX_QUEUE: i16 = 16;

/// Looks up what lies under a key in `R1`, in `R0`; goes to `missing` where there is nothing.
fn look_up(a: &mut Assembler, map: i32, missing: Label) {
    a.store(AccessSize::Word, Register::R10, stack::KEY, Register::R1)
        .map(Register::R1, map)
        .copy(Register::R2, Register::R10)
        .add(Register::R2, i32::from(stack::KEY))
        .call(Function::MapLookup)
        .jump_if(Register::R0, JumpCondition::Equal, 0, missing);
}

/// Adds one to a word of the queue's desk, which only this queue's frames count.
fn count(a: &mut Assembler, word: Desk) {
    a.load(AccessSize::Double, Register::R1, Register::R10, stack::DESK)
        .load(AccessSize::Double, Register::R2, Register::R1, word.offset())
        .add(Register::R2, 1)
        .store(AccessSize::Double, Register::R1, word.offset(), Register::R2);
}

/// What both programs begin with: registers, scratch value, desk. Goes to `missing` where a map has
/// no such value.
fn begin(a: &mut Assembler, maps: &Maps, missing: Label) {
    a.copy(Register::R6, Register::R1)
        .load(AccessSize::Word, Register::R7, Register::R6, DATA)
        .load(AccessSize::Word, Register::R8, Register::R6, DATA_END)
        .set(Register::R1, 0);
    look_up(a, maps.scratch, missing);
    a.copy(Register::R9, Register::R0).load(AccessSize::Word, Register::R1, Register::R6, RX_QUEUE);
    look_up(a, maps.desks, missing);
    a.store(AccessSize::Double, Register::R10, stack::DESK, Register::R0);
}

/// The clock into the scratch value, and into `R0`.
fn read_clock(a: &mut Assembler) {
    a.call(Function::BootNanos).store(AccessSize::Double, Register::R9, at::NOW, Register::R0);
}

/// The number of the key in force into the scratch value; goes to `none` where the keys are of
/// another time, or there are none.
fn find_epoch(a: &mut Assembler, maps: &Maps, none: Label) {
    let (found, late) = (a.label(), a.label());
    a.set(Register::R1, 0);
    look_up(a, maps.keys, none);
    a.store(AccessSize::Double, Register::R10, stack::HEADER, Register::R0)
        .load(AccessSize::Double, Register::R2, Register::R0, KeyTable::UNTIL_OFFSET)
        .jump_if(Register::R2, JumpCondition::Equal, 0, none)
        .load(AccessSize::Double, Register::R3, Register::R9, at::NOW)
        .copy(Register::R1, Register::R2)
        .jump_if_reg(Register::R3, JumpCondition::AtLeast, Register::R2, late)
        .jump(found);
    // The keys of the next epoch are there already.
    a.place(late);
    a.set_wide(Register::R4, EPOCH_NANOS)
        .compute_reg(Register::R4, Operation::Add, Register::R2)
        .jump_if_reg(Register::R3, JumpCondition::AtLeast, Register::R4, none)
        .add(Register::R1, 1);
    a.place(found);
    a.compute(Register::R1, Operation::And, 3).store(
        AccessSize::Word,
        Register::R9,
        at::SLOT,
        Register::R1,
    );
}

/// The listener under the key on the stack, its word into the scratch value; goes to `none` where
/// there is none.
fn find_listener(a: &mut Assembler, maps: &Maps, none: Label) {
    a.map(Register::R1, maps.listeners)
        .copy(Register::R2, Register::R10)
        .add(Register::R2, i32::from(stack::LISTENER))
        .call(Function::MapLookup)
        .jump_if(Register::R0, JumpCondition::Equal, 0, none)
        .load(AccessSize::Double, Register::R1, Register::R0, 0)
        .store(AccessSize::Double, Register::R9, at::OFFER, Register::R1);
}

#[cfg(test)]
mod tests;
