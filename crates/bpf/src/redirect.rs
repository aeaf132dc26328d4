//! The part of an interface's program that passes a router's packets on by itself: for pairs of
//! hosts that talk, straight to the interface of the next hop.
//!
//! Composed into the program of an `xdp:` interface by `device`, which writes the entries. A packet
//! is redirected where an entry for exactly its two addresses is in force: made under the present
//! generation, and not expired. Everything that a router decides by more than that goes up: IPv4
//! options, extension headers, fragments, a hop limit that is used up, a packet longer than the MTU
//! of its next link, one with a wrong header sum or length, a partial checksum. Invariant: a packet
//! that is not redirected is unchanged. Reading: RFC 1812 section 5.3, RFC 8200 section 3, RFC 1624
//! (the header sum).
//!
//! # Under flood
//! Reachable by any sender on the link. Bound: [`SETS`] sets of [`WAYS`] entries, which the program
//! only reads. Work per frame: a hash of the addresses, one look-up, four comparisons; nothing
//! where no entry was ever made.

use crate::{AccessSize, Assembler, Function, JumpCondition, Label, Operation, Register};

/// Entries of a set, and sets.
pub const WAYS: usize = 4;
/// A power of two.
pub const SETS: usize = 2048;
const _: () = assert!(SETS.is_power_of_two(), "a set is some bits of a hash");

/// Words of the board: whether there is any entry, the generation that is in force, the packets
/// that were redirected and their bytes.
pub const ACTIVE: usize = 0;
/// The generation that is in force.
pub const GENERATION: usize = 1;
/// Packets that were redirected.
pub const PACKETS: usize = 2;
/// Their bytes, link headers included.
pub const BYTES: usize = 3;
/// How many words a board has.
pub const BOARD_WORDS: usize = 4;

/// Words of an entry: the hash of its addresses, odd; 0 where there is none.
pub const TAG: usize = 0;
/// The generation under which it was made.
pub const MADE_UNDER: usize = 1;
/// When it expires, in nanoseconds of the monotonic clock.
pub const UNTIL: usize = 2;
/// The longest IP packet that its next link takes.
pub const MTU: usize = 3;
/// Its next link, by index in the map of interfaces.
pub const SLOT: usize = 4;
/// 4 or 6.
pub const FAMILY: usize = 5;
/// The addresses as they stand in the header: of IPv4 one word, of IPv6 four.
pub const ADDRESSES: usize = 6;
/// The stations of the new link header: destination, then source; the last four bytes are unused.
pub const STATIONS: usize = 10;
/// How many words an entry has.
pub const ENTRY_WORDS: usize = 12;

/// Words of the hash key: the initial value, and one for each 32 bits of addresses.
pub const KEY_WORDS: usize = 9;

/// The maps that the code uses, and the secret key of its hash.
#[derive(Clone, Copy, Debug)]
pub struct RedirectMaps<'a> {
    /// An array of one value of [`BOARD_WORDS`] words.
    pub board: i32,
    /// An array of [`SETS`] values of [`WAYS`] entries.
    pub entries: i32,
    /// The interfaces to redirect to, by slot.
    pub interfaces: i32,
    /// The key.
    pub key: &'a [u64; KEY_WORDS],
}

/// The hash of a pair of addresses, as 32-bit words as they stand in the header.
#[must_use]
pub fn tag_of(key: &[u64; KEY_WORDS], words: impl Iterator<Item = u32>) -> u64 {
    let [start, factors @ ..] = key;
    let all = words.zip(factors);
    all.fold(*start, |sum, (word, factor)| sum.wrapping_add(u64::from(word).wrapping_mul(*factor)))
        | 1
}

/// The set of a hash.
#[must_use]
pub const fn set_of(tag: u64) -> usize {
    (tag >> 32) as usize & (SETS - 1)
}

const DATA: i16 = 0;
const DATA_END: i16 = 4;
const L3: i16 = 14;
const REDIRECT: i32 = 4;
const UDP: i32 = 17;
const TCP: i32 = 6;
/// Where the checksum is in the transport's header.
const UDP_SUM: i16 = 6;
const TCP_SUM: i16 = 16;
/// Stack slots: a key of four bytes, the address of the board, the generation, the packet's and
/// the frame's length.
const KEY: i16 = -4;
const BOARD: i16 = -80;
const PRESENT: i16 = -88;
const PACKET_LENGTH: i16 = -96;
const FRAME_LENGTH: i16 = -104;

/// Where the fields of a family are, from the start of the frame.
struct FieldPlaces {
    is_v6: bool,
    header: i16,
    addresses: i16,
    address_words: i16,
    length: i16,
    hops: i16,
    protocol: i16,
}

const V4: FieldPlaces = FieldPlaces {
    is_v6: false,
    header: 20,
    addresses: L3 + 12,
    address_words: 2,
    length: L3 + 2,
    hops: L3 + 8,
    protocol: L3 + 9,
};
const V6: FieldPlaces = FieldPlaces {
    is_v6: true,
    header: 40,
    addresses: L3 + 8,
    address_words: 8,
    length: L3 + 4,
    hops: L3 + 7,
    protocol: L3 + 6,
};

/// Emits it. A packet that is not redirected goes on at `on`. `R6` holds the context and `R9` is
/// the caller's; both are kept, all else is lost.
pub fn emit(a: &mut Assembler, maps: &RedirectMaps<'_>, on: Label) {
    let v6 = a.label();
    a.set(Register::R1, 0);
    look_up(a, maps.board, on);
    a.load(AccessSize::Double, Register::R1, Register::R0, word(ACTIVE))
        .jump_if(Register::R1, JumpCondition::Equal, 0, on)
        .load(AccessSize::Double, Register::R1, Register::R0, word(GENERATION))
        .store(AccessSize::Double, Register::R10, PRESENT, Register::R1)
        .store(AccessSize::Double, Register::R10, BOARD, Register::R0)
        .copy(Register::R1, Register::R6)
        .call(Function::FrameBytes)
        .store(AccessSize::Double, Register::R10, FRAME_LENGTH, Register::R0)
        .load(AccessSize::Word, Register::R7, Register::R6, DATA)
        .load(AccessSize::Word, Register::R8, Register::R6, DATA_END);
    reach(a, L3 + V4.header, on);
    a.load(AccessSize::Byte, Register::R1, Register::R7, 6)
        .jump_if(Register::R1, JumpCondition::Meets, 1, on)
        .load(AccessSize::Half, Register::R1, Register::R7, L3 - 2)
        .jump_if(Register::R1, JumpCondition::Equal, wire(0x86dd), v6)
        .jump_if(Register::R1, JumpCondition::Differs, wire(0x0800), on);
    ipv4_header(a, on);
    family(a, maps, &V4, on);
    a.place(v6);
    reach(a, L3 + V6.header, on);
    a.load(AccessSize::Byte, Register::R1, Register::R7, L3)
        .compute(Register::R1, Operation::ShiftRight, 4)
        .jump_if(Register::R1, JumpCondition::Differs, 6, on);
    family(a, maps, &V6, on);
}

/// Neither options nor a piece, and a header sum that is right.
fn ipv4_header(a: &mut Assembler, on: Label) {
    a.load(AccessSize::Byte, Register::R1, Register::R7, L3)
        .jump_if(Register::R1, JumpCondition::Differs, 0x45, on)
        .load(AccessSize::Half, Register::R1, Register::R7, L3 + 6)
        .jump_if(Register::R1, JumpCondition::Meets, wire(0x3fff), on)
        .set(Register::R1, 0);
    add_words(a, L3, V4.header / 4);
    fold(a);
    a.jump_if(Register::R1, JumpCondition::Differs, 0xffff, on);
}

/// What follows the checks of the header alone.
fn family(a: &mut Assembler, maps: &RedirectMaps<'_>, at: &FieldPlaces, on: Label) {
    a.load(AccessSize::Byte, Register::R1, Register::R7, at.hops)
        .jump_if(Register::R1, JumpCondition::Below, 2, on)
        .load(AccessSize::Half, Register::R2, Register::R7, at.length)
        .read_wire(Register::R2);
    if at.is_v6 {
        a.add(Register::R2, i32::from(at.header));
    }
    // The frame may be longer: short ones are padded.
    a.store(AccessSize::Double, Register::R10, PACKET_LENGTH, Register::R2)
        .copy(Register::R1, Register::R2)
        .add(Register::R1, i32::from(L3))
        .load(AccessSize::Double, Register::R3, Register::R10, FRAME_LENGTH)
        .jump_if_reg(Register::R1, JumpCondition::Above, Register::R3, on);
    complete(a, at, on);
    find(a, maps, at, on);
    leave(a, maps, at, on);
}

/// Goes to `on` with what is neither TCP nor UDP, and with a packet that has a partial checksum:
/// its field holds the pseudo header's sum.
fn complete(a: &mut Assembler, at: &FieldPlaces, on: Label) {
    let (udp, sum) = (a.label(), a.label());
    let l4 = L3 + at.header;
    a.load(AccessSize::Byte, Register::R5, Register::R7, at.protocol)
        .jump_if(Register::R5, JumpCondition::Equal, UDP, udp)
        .jump_if(Register::R5, JumpCondition::Differs, TCP, on);
    for (field, header, number) in [(TCP_SUM, 20, TCP), (UDP_SUM, 8, UDP)] {
        if number == UDP {
            a.place(udp);
        }
        reach(a, l4 + header, on);
        a.load(AccessSize::Half, Register::R4, Register::R7, l4 + field);
        a.jump(sum);
    }
    a.place(sum);
    // The length of what the transport covers, and the protocol, as 16 bits each.
    a.load(AccessSize::Double, Register::R1, Register::R10, PACKET_LENGTH)
        .compute(Register::R1, Operation::Subtract, i32::from(at.header))
        .jump_if(Register::R1, JumpCondition::Above, 0xffff, on)
        .read_wire(Register::R1)
        .read_wire(Register::R5)
        .compute_reg(Register::R1, Operation::Add, Register::R5);
    add_words(a, at.addresses, at.address_words);
    fold(a);
    a.jump_if_reg(Register::R1, JumpCondition::Equal, Register::R4, on);
}

/// Finds the entry for the packet's addresses, for `R8`.
fn find(a: &mut Assembler, maps: &RedirectMaps<'_>, at: &FieldPlaces, on: Label) {
    let found = a.label();
    let [start, factors @ ..] = maps.key;
    a.set_wide(Register::R8, *start);
    for (number, factor) in (0..at.address_words).zip(factors) {
        a.load(AccessSize::Word, Register::R1, Register::R7, at.addresses + 4 * number)
            .set_wide(Register::R2, *factor)
            .compute_reg(Register::R1, Operation::Multiply, Register::R2)
            .compute_reg(Register::R8, Operation::Add, Register::R1);
    }
    a.compute(Register::R8, Operation::Or, 1)
        .copy(Register::R1, Register::R8)
        .compute(Register::R1, Operation::ShiftRight, 32)
        .compute(Register::R1, Operation::And, SETS as i32 - 1);
    look_up(a, maps.entries, on);
    for way in 0..WAYS {
        if way > 0 {
            a.add(Register::R0, i32::from(word(ENTRY_WORDS)));
        }
        a.load(AccessSize::Double, Register::R1, Register::R0, word(TAG)).jump_if_reg(
            Register::R1,
            JumpCondition::Equal,
            Register::R8,
            found,
        );
    }
    a.jump(on);
    a.place(found);
    a.copy(Register::R8, Register::R0)
        .load(AccessSize::Double, Register::R1, Register::R8, word(MADE_UNDER))
        .load(AccessSize::Double, Register::R2, Register::R10, PRESENT)
        .jump_if_reg(Register::R1, JumpCondition::Differs, Register::R2, on)
        .load(AccessSize::Double, Register::R1, Register::R8, word(FAMILY))
        .jump_if(Register::R1, JumpCondition::Differs, if at.is_v6 { 6 } else { 4 }, on);
    // A hash is no proof.
    for number in 0..at.address_words {
        a.load(AccessSize::Word, Register::R1, Register::R7, at.addresses + 4 * number)
            .load(AccessSize::Word, Register::R2, Register::R8, word(ADDRESSES) + 4 * number)
            .jump_if_reg(Register::R1, JumpCondition::Differs, Register::R2, on);
    }
    a.load(AccessSize::Double, Register::R1, Register::R8, word(MTU))
        .load(AccessSize::Double, Register::R2, Register::R10, PACKET_LENGTH)
        .jump_if_reg(Register::R2, JumpCondition::Above, Register::R1, on)
        .call(Function::MonotonicNanos)
        .load(AccessSize::Double, Register::R1, Register::R8, word(UNTIL))
        .jump_if_reg(Register::R0, JumpCondition::AtLeast, Register::R1, on);
}

/// Sends the packet out by the entry at `R8`. It is changed only where its interface is there.
fn leave(a: &mut Assembler, maps: &RedirectMaps<'_>, at: &FieldPlaces, on: Label) {
    a.map(Register::R1, maps.interfaces)
        .load(AccessSize::Word, Register::R2, Register::R8, word(SLOT))
        .set(Register::R3, 0)
        .call(Function::RedirectMap)
        .jump_if(Register::R0, JumpCondition::Differs, REDIRECT, on)
        .load(AccessSize::Double, Register::R1, Register::R8, word(STATIONS))
        .store(AccessSize::Double, Register::R7, 0, Register::R1)
        .load(AccessSize::Word, Register::R1, Register::R8, word(STATIONS + 1))
        .store(AccessSize::Word, Register::R7, 8, Register::R1)
        .load(AccessSize::Byte, Register::R1, Register::R7, at.hops)
        .add(Register::R1, -1)
        .store(AccessSize::Byte, Register::R7, at.hops, Register::R1);
    if !at.is_v6 {
        lower_sum(a);
    }
    a.load(AccessSize::Double, Register::R2, Register::R10, BOARD)
        .set(Register::R1, 1)
        .add_shared(Register::R2, word(PACKETS), Register::R1)
        .load(AccessSize::Double, Register::R1, Register::R10, FRAME_LENGTH)
        .add_shared(Register::R2, word(BYTES), Register::R1)
        .set(Register::R0, REDIRECT)
        .exit();
}

/// The header sum after the hop limit was lowered by one: the sum grows by that much, with the
/// carry around the end (RFC 1624, equation 3).
fn lower_sum(a: &mut Assembler) {
    const SUM: i16 = L3 + 10;
    a.load(AccessSize::Half, Register::R1, Register::R7, SUM)
        .read_wire(Register::R1)
        .add(Register::R1, 0x0100)
        .copy(Register::R2, Register::R1)
        .compute(Register::R2, Operation::ShiftRight, 16)
        .compute_reg(Register::R1, Operation::Add, Register::R2)
        .read_wire(Register::R1)
        .store(AccessSize::Half, Register::R7, SUM, Register::R1);
}

/// Adds so many words of 32 bits of the frame to `R1`. Takes `R2`.
fn add_words(a: &mut Assembler, from: i16, count: i16) {
    for number in 0..count {
        a.load(AccessSize::Word, Register::R2, Register::R7, from + 4 * number).compute_reg(
            Register::R1,
            Operation::Add,
            Register::R2,
        );
    }
}

/// Folds the sum in `R1`, of few enough words, to 16 bits. Takes `R2`.
fn fold(a: &mut Assembler) {
    a.copy_word(Register::R2, Register::R1)
        .compute(Register::R1, Operation::ShiftRight, 32)
        .compute_reg(Register::R1, Operation::Add, Register::R2);
    for _ in 0..3 {
        a.copy(Register::R2, Register::R1)
            .compute(Register::R2, Operation::ShiftRight, 16)
            .compute(Register::R1, Operation::And, 0xffff)
            .compute_reg(Register::R1, Operation::Add, Register::R2);
    }
}

const fn word(number: usize) -> i16 {
    (number * size_of::<u64>()) as i16
}

fn wire(value: u16) -> i32 {
    i32::from(value.to_be())
}

/// Looks up the key at `R1` into `R0`; jumps to `missing` where there is no entry.
fn look_up(a: &mut Assembler, map: i32, missing: Label) {
    a.store(AccessSize::Word, Register::R10, KEY, Register::R1)
        .map(Register::R1, map)
        .copy(Register::R2, Register::R10)
        .add(Register::R2, i32::from(KEY))
        .call(Function::MapLookup)
        .jump_if(Register::R0, JumpCondition::Equal, 0, missing);
}

/// Goes to `short` where the frame has not so many bytes.
fn reach(a: &mut Assembler, bytes: i16, short: Label) {
    a.copy(Register::R3, Register::R7).add(Register::R3, i32::from(bytes)).jump_if_reg(
        Register::R3,
        JumpCondition::Above,
        Register::R8,
        short,
    );
}

#[cfg(test)]
mod tests;
