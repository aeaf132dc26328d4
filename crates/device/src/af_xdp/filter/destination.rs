//! BPF code that filters by source and destination: denied sources, addresses and ports.
//!
//! Called by `steering.rs` and `code.rs` while they assemble. Invariant: packets that go to
//! `foreign`, `closed` or `denied` are accepted by no shard (`filter_tables.rs`). `R6` to `R9` are
//! preserved; the frame begins at `R7`.

use floodwall_bpf::{AccessSize, Assembler, Function, JumpCondition, Label, Operation, Register};

use super::emit::{L3, look_up, reach, wire, word};
use crate::af_xdp::destination_maps::DestinationMaps;
use crate::af_xdp::filter_tables::{AnyAddress, BY_PORT, DENIES_WORD, EVERY_PORT, PORT_WORDS};

/// Stack slots of an address of 16 bytes, and of the flag that its ports are checked.
const ADDRESS_SLOT: i16 = -32;
const PORTS_SAY: i16 = -40;
/// Stack slot of a prefix of 20 bytes: its length in bits, and the address.
const SOURCE_SLOT: i16 = -72;
/// Where the sources are in the headers.
const V4_SOURCE: i16 = 12;
const V6_SOURCE: i16 = 8;
/// Where the destination is in the headers.
const V4_DESTINATION: i16 = 16;
const V6_DESTINATION: i16 = 24;
/// The first bytes of groups; for IPv4 also of the range above, with the broadcast address.
const FIRST_GROUP_V4: i32 = 224;
const GROUP_V6: i32 = 0xff;

/// Where a packet goes that is not for an address of ours.
#[derive(Clone, Copy, Debug)]
pub(in crate::af_xdp) struct OtherDestinations {
    pub(in crate::af_xdp) foreign: Label,
    pub(in crate::af_xdp) group: Label,
}

/// Jumps elsewhere with a packet for an address that the stack does not accept, and records whether
/// its ports must be checked. The network header at `l3`, of `is_v6` or not, is in the frame.
pub(in crate::af_xdp) fn look(
    a: &mut Assembler,
    maps: &DestinationMaps,
    (is_v6, l3): (bool, i16),
    elsewhere: OtherDestinations,
) {
    let (unknown, known) = (a.label(), a.label());
    if is_v6 {
        let at = l3 + V6_DESTINATION;
        a.load(AccessSize::Byte, Register::R1, Register::R7, at).jump_if(
            Register::R1,
            JumpCondition::Equal,
            GROUP_V6,
            elsewhere.group,
        );
        for word in (0..16).step_by(4) {
            copy_word(a, at + word, ADDRESS_SLOT + word);
        }
    } else {
        let at = l3 + V4_DESTINATION;
        a.load(AccessSize::Byte, Register::R1, Register::R7, at)
            .jump_if(Register::R1, JumpCondition::AtLeast, FIRST_GROUP_V4, elsewhere.group)
            .set(Register::R1, 0)
            .store(AccessSize::Double, Register::R10, ADDRESS_SLOT, Register::R1)
            // As IPv6 has it: RFC 4291 section 2.5.5.2.
            .set(Register::R1, i32::from_ne_bytes([0, 0, 0xff, 0xff]))
            .store(AccessSize::Word, Register::R10, ADDRESS_SLOT + 8, Register::R1);
        copy_word(a, at, ADDRESS_SLOT + 12);
    }
    a.map(Register::R1, maps.addresses)
        .copy(Register::R2, Register::R10)
        .add(Register::R2, i32::from(ADDRESS_SLOT))
        .call(Function::MapLookup)
        .jump_if(Register::R0, JumpCondition::Equal, 0, unknown)
        .load(AccessSize::Double, Register::R1, Register::R0, 0)
        .jump(known);
    a.place(unknown);
    wanted_anyway(a, maps, if is_v6 { AnyAddress::V6 } else { AnyAddress::V4 }, elsewhere.foreign);
    a.set(Register::R1, EVERY_PORT as i32);
    a.place(known);
    a.store(AccessSize::Double, Register::R10, PORTS_SAY, Register::R1);
}

fn copy_word(a: &mut Assembler, from: i16, to: i16) {
    a.load(AccessSize::Word, Register::R1, Register::R7, from).store(
        AccessSize::Word,
        Register::R10,
        to,
        Register::R1,
    );
}

/// Records that every port is accepted.
pub(super) fn accept_any_port(a: &mut Assembler) {
    a.set(Register::R1, EVERY_PORT as i32).store(
        AccessSize::Double,
        Register::R10,
        PORTS_SAY,
        Register::R1,
    );
}

/// Goes to `unwanted` unless everything of a kind is wanted.
fn wanted_anyway(a: &mut Assembler, maps: &DestinationMaps, any: AnyAddress, unwanted: Label) {
    a.set(Register::R1, 0);
    look_up(a, maps.board, unwanted);
    a.load(AccessSize::Double, Register::R1, Register::R0, word(any as usize)).jump_if(
        Register::R1,
        JumpCondition::Equal,
        0,
        unwanted,
    );
}

/// Jumps to `closed` with a packet for a port that no socket uses; the frame has its `ports`.
/// Clobbers `R8`.
pub(super) fn port(
    a: &mut Assembler,
    maps: &DestinationMaps,
    ports: i16,
    any: AnyAddress,
    closed: Label,
) {
    let open = a.label();
    let first = if any == AnyAddress::Tcp { PORT_WORDS as i32 } else { 0 };
    a.load(AccessSize::Double, Register::R1, Register::R10, PORTS_SAY)
        .jump_if(Register::R1, JumpCondition::Differs, BY_PORT as i32, open)
        .load(AccessSize::Half, Register::R1, Register::R7, ports + 2)
        .read_wire(Register::R1)
        .copy(Register::R8, Register::R1)
        .compute(Register::R1, Operation::ShiftRight, 3)
        .add(Register::R1, first);
    look_up(a, maps.ports, open);
    a.load(AccessSize::Double, Register::R1, Register::R0, 0)
        .compute(Register::R8, Operation::And, 7)
        .compute(Register::R8, Operation::ShiftLeft, 3)
        .compute_reg(Register::R1, Operation::ShiftRight, Register::R8)
        .compute(Register::R1, Operation::And, 0xff)
        .jump_if(Register::R1, JumpCondition::Differs, 0, open);
    wanted_anyway(a, maps, any, closed);
    a.place(open);
}

/// Goes to `denied` with what comes from where nothing is let in. The frame begins at `R7` and ends
/// at `R8`; what cannot be read goes on.
pub(super) fn source(a: &mut Assembler, maps: &DestinationMaps, denied: Label) {
    let (v6, ask, on) = (a.label(), a.label(), a.label());
    a.set(Register::R1, 0);
    look_up(a, maps.board, on);
    a.load(AccessSize::Double, Register::R1, Register::R0, word(DENIES_WORD)).jump_if(
        Register::R1,
        JumpCondition::Equal,
        0,
        on,
    );
    reach(a, L3, on);
    a.load(AccessSize::Half, Register::R1, Register::R7, L3 - 2)
        .jump_if(Register::R1, JumpCondition::Equal, wire(0x86dd), v6)
        .jump_if(Register::R1, JumpCondition::Differs, wire(0x0800), on);
    reach(a, L3 + 20, on);
    a.set(Register::R1, 0)
        .store(AccessSize::Word, Register::R10, SOURCE_SLOT + 4, Register::R1)
        .store(AccessSize::Word, Register::R10, SOURCE_SLOT + 8, Register::R1)
        .set(Register::R1, i32::from_ne_bytes([0, 0, 0xff, 0xff]))
        .store(AccessSize::Word, Register::R10, SOURCE_SLOT + 12, Register::R1);
    copy_word(a, L3 + V4_SOURCE, SOURCE_SLOT + 16);
    a.jump(ask);
    a.place(v6);
    reach(a, L3 + 40, on);
    for word in (0..16).step_by(4) {
        copy_word(a, L3 + V6_SOURCE + word, SOURCE_SLOT + 4 + word);
    }
    a.place(ask);
    a.set(Register::R1, 128)
        .store(AccessSize::Word, Register::R10, SOURCE_SLOT, Register::R1)
        .map(Register::R1, maps.denied)
        .copy(Register::R2, Register::R10)
        .add(Register::R2, i32::from(SOURCE_SLOT))
        .call(Function::MapLookup)
        .jump_if(Register::R0, JumpCondition::Differs, 0, denied);
    a.place(on);
}
