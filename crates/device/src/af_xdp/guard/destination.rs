//! What the program asks of a packet's ends: whether we want it from there, or there, at all.
//!
//! Called by `steering.rs` and `code.rs` while they assemble. Invariant: what goes to `foreign`,
//! `closed` or `denied` is wanted by no shard (`wants.rs`). `R6` to `R9` stay; the frame begins at
//! `R7`.

use floodwall_bpf::{Assembler, Does, Function, Label, Reg, Size, When};

use super::code::{L3, look_up, reach, wire, word};
use crate::af_xdp::wants::{Any, BY_PORT, DENIES, PORT_WORDS, WHATEVER};

/// Where an address of 16 bytes lies on the stack, and whether ports say what is wanted there.
const ADDRESS: i16 = -32;
const PORTS_SAY: i16 = -40;
/// Where a prefix of 20 bytes lies: how many bits count, and the address.
const SOURCE: i16 = -72;
/// Where the sources are in the headers.
const V4_SOURCE: i16 = 12;
const V6_SOURCE: i16 = 8;
/// Where the destination is in the headers.
const V4_DESTINATION: i16 = 16;
const V6_DESTINATION: i16 = 24;
/// The first bytes of groups, of IPv4 also of what is above them, which is everybody.
const FIRST_GROUP_V4: i32 = 224;
const GROUP_V6: i32 = 0xff;

/// The maps, by descriptor.
#[derive(Clone, Copy, Debug)]
pub(in crate::af_xdp) struct Maps {
    pub(in crate::af_xdp) board: i32,
    pub(in crate::af_xdp) ports: i32,
    pub(in crate::af_xdp) addresses: i32,
    pub(in crate::af_xdp) denied: i32,
}

/// Where a packet goes that is not for an address of ours.
#[derive(Clone, Copy, Debug)]
pub(in crate::af_xdp) struct Elsewhere {
    pub(in crate::af_xdp) foreign: Label,
    pub(in crate::af_xdp) group: Label,
}

/// Goes elsewhere with a packet whose destination we do not want, and notes whether ports say what
/// is wanted of it. The network header at `l3`, of `is_v6` or not, is in the frame.
pub(in crate::af_xdp) fn look(
    a: &mut Assembler,
    maps: &Maps,
    (is_v6, l3): (bool, i16),
    elsewhere: Elsewhere,
) {
    let (unknown, known) = (a.label(), a.label());
    if is_v6 {
        let at = l3 + V6_DESTINATION;
        a.load(Size::Byte, Reg::R1, Reg::R7, at).jump_if(
            Reg::R1,
            When::Equal,
            GROUP_V6,
            elsewhere.group,
        );
        for word in (0..16).step_by(4) {
            copy_word(a, at + word, ADDRESS + word);
        }
    } else {
        let at = l3 + V4_DESTINATION;
        a.load(Size::Byte, Reg::R1, Reg::R7, at)
            .jump_if(Reg::R1, When::AtLeast, FIRST_GROUP_V4, elsewhere.group)
            .set(Reg::R1, 0)
            .store(Size::Double, Reg::R10, ADDRESS, Reg::R1)
            // As IPv6 has it: RFC 4291 section 2.5.5.2.
            .set(Reg::R1, i32::from_ne_bytes([0, 0, 0xff, 0xff]))
            .store(Size::Word, Reg::R10, ADDRESS + 8, Reg::R1);
        copy_word(a, at, ADDRESS + 12);
    }
    a.map(Reg::R1, maps.addresses)
        .copy(Reg::R2, Reg::R10)
        .add(Reg::R2, i32::from(ADDRESS))
        .call(Function::MapLookup)
        .jump_if(Reg::R0, When::Equal, 0, unknown)
        .load(Size::Double, Reg::R1, Reg::R0, 0)
        .jump(known);
    a.place(unknown);
    wanted_anyway(a, maps, if is_v6 { Any::V6 } else { Any::V4 }, elsewhere.foreign);
    a.set(Reg::R1, WHATEVER as i32);
    a.place(known);
    a.store(Size::Double, Reg::R10, PORTS_SAY, Reg::R1);
}

fn copy_word(a: &mut Assembler, from: i16, to: i16) {
    a.load(Size::Word, Reg::R1, Reg::R7, from).store(Size::Word, Reg::R10, to, Reg::R1);
}

/// Notes that whatever comes is wanted, whatever its port.
pub(super) fn whatever(a: &mut Assembler) {
    a.set(Reg::R1, WHATEVER as i32).store(Size::Double, Reg::R10, PORTS_SAY, Reg::R1);
}

/// Goes to `unwanted` unless everything of a kind is wanted.
fn wanted_anyway(a: &mut Assembler, maps: &Maps, any: Any, unwanted: Label) {
    a.set(Reg::R1, 0);
    look_up(a, maps.board, unwanted);
    a.load(Size::Double, Reg::R1, Reg::R0, word(any as usize)).jump_if(
        Reg::R1,
        When::Equal,
        0,
        unwanted,
    );
}

/// Goes to `closed` with a packet for a port at which nobody wants it; the frame has its `ports`.
/// Takes `R8`.
pub(super) fn port(a: &mut Assembler, maps: &Maps, ports: i16, any: Any, closed: Label) {
    let open = a.label();
    let first = if any == Any::Tcp { PORT_WORDS as i32 } else { 0 };
    a.load(Size::Double, Reg::R1, Reg::R10, PORTS_SAY)
        .jump_if(Reg::R1, When::Differs, BY_PORT as i32, open)
        .load(Size::Half, Reg::R1, Reg::R7, ports + 2)
        .read_wire(Reg::R1)
        .copy(Reg::R8, Reg::R1)
        .compute(Reg::R1, Does::ShiftRight, 3)
        .add(Reg::R1, first);
    look_up(a, maps.ports, open);
    a.load(Size::Double, Reg::R1, Reg::R0, 0)
        .compute(Reg::R8, Does::And, 7)
        .compute(Reg::R8, Does::ShiftLeft, 3)
        .compute_reg(Reg::R1, Does::ShiftRight, Reg::R8)
        .compute(Reg::R1, Does::And, 0xff)
        .jump_if(Reg::R1, When::Differs, 0, open);
    wanted_anyway(a, maps, any, closed);
    a.place(open);
}

/// Goes to `denied` with what comes from where nothing is let in. The frame begins at `R7` and ends
/// at `R8`; what cannot be read goes on.
pub(super) fn source(a: &mut Assembler, maps: &Maps, denied: Label) {
    let (v6, ask, on) = (a.label(), a.label(), a.label());
    a.set(Reg::R1, 0);
    look_up(a, maps.board, on);
    a.load(Size::Double, Reg::R1, Reg::R0, word(DENIES)).jump_if(Reg::R1, When::Equal, 0, on);
    reach(a, L3, on);
    a.load(Size::Half, Reg::R1, Reg::R7, L3 - 2)
        .jump_if(Reg::R1, When::Equal, wire(0x86dd), v6)
        .jump_if(Reg::R1, When::Differs, wire(0x0800), on);
    reach(a, L3 + 20, on);
    a.set(Reg::R1, 0)
        .store(Size::Word, Reg::R10, SOURCE + 4, Reg::R1)
        .store(Size::Word, Reg::R10, SOURCE + 8, Reg::R1)
        .set(Reg::R1, i32::from_ne_bytes([0, 0, 0xff, 0xff]))
        .store(Size::Word, Reg::R10, SOURCE + 12, Reg::R1);
    copy_word(a, L3 + V4_SOURCE, SOURCE + 16);
    a.jump(ask);
    a.place(v6);
    reach(a, L3 + 40, on);
    for word in (0..16).step_by(4) {
        copy_word(a, L3 + V6_SOURCE + word, SOURCE + 4 + word);
    }
    a.place(ask);
    a.set(Reg::R1, 128)
        .store(Size::Word, Reg::R10, SOURCE, Reg::R1)
        .map(Reg::R1, maps.denied)
        .copy(Reg::R2, Reg::R10)
        .add(Reg::R2, i32::from(SOURCE))
        .call(Function::MapLookup)
        .jump_if(Reg::R0, When::Differs, 0, denied);
    a.place(on);
}
