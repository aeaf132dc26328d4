//! What the guard adds to the program at the interface.
//!
//! Called by `steering.rs` while it assembles, for frames to our station. Invariant: what is called
//! refusable here, the stack's triage calls so too (a test compares them for every capture); what
//! cannot be read to its ports is no friend's and no plain stranger's: it has a credit of its own.
//! Layouts: IEEE 802.3, RFC 791, RFC 8200, RFC 768, RFC 9293.

use floodwall_bpf::cookie::find_syn;
use floodwall_bpf::{Assembler, Does, Function, Label, Reg, Size, When};

use super::destination::{Elsewhere, Maps, look, port, source, whatever};
use super::{DESK_GRANTED, DESK_REFUSED, DESK_USED, Kind, Refusal, SETS, WAYS};
use crate::af_xdp::steering::{DATA, DATA_END, DROP, RX_QUEUE};
use crate::af_xdp::wants::Any;

/// Where a key of four bytes and the frame's length lie on the stack.
const KEY: i16 = -4;
const LENGTH: i16 = -16;
/// Where headers and fields are in a frame without tag.
pub(super) const L3: i16 = 14;
pub(super) const V4_PORTS: i16 = L3 + 20;
pub(super) const V6_PORTS: i16 = L3 + 40;
/// Words of plain IPv4 and IPv6 headers that make a flow, with the sizes of their loads.
pub(super) const V4_WORDS: [(Size, i16); 4] =
    [(Size::Word, L3 + 12), (Size::Word, L3 + 16), (Size::Word, V4_PORTS), (Size::Byte, L3 + 9)];
pub(super) const V6_WORDS: [(Size, i16); 10] = [
    (Size::Word, L3 + 8),
    (Size::Word, L3 + 12),
    (Size::Word, L3 + 16),
    (Size::Word, L3 + 20),
    (Size::Word, L3 + 24),
    (Size::Word, L3 + 28),
    (Size::Word, L3 + 32),
    (Size::Word, L3 + 36),
    (Size::Word, V6_PORTS),
    (Size::Byte, L3 + 6),
];
const UDP: i32 = 17;
const ICMPV6: i32 = 58;
const TCP: i32 = 6;

/// The maps that it reads, and the secret by which flows are told apart.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) desks: i32,
    pub(super) friends: i32,
    pub(super) key: &'a [u64],
    pub(super) maps: Maps,
    /// The programs for SYNs and other segments of no known connection, by index [`SYNS`] and
    /// [`SEGMENTS`].
    pub(super) programs: Option<i32>,
}

/// Which of the programs is for what.
pub(in crate::af_xdp) const SYNS: i32 = 0;
pub(in crate::af_xdp) const SEGMENTS: i32 = 1;

/// Where a frame goes from its place in the code.
#[derive(Clone, Copy)]
pub(super) struct Ways {
    /// To the socket.
    pub(super) through: Label,
    /// It cannot be read to its ports, and not to its destination either.
    pub(super) other: Label,
    /// It goes to the socket, at the cost of its kind's credit; by the number of the kind.
    spends: [Label; Kind::COUNT],
    /// It dies; by the number of the reason.
    refused: [Label; Refusal::COUNT],
}

impl Ways {
    pub(super) fn new(a: &mut Assembler, through: Label) -> Self {
        Self {
            through,
            other: a.label(),
            spends: core::array::from_fn(|_| a.label()),
            refused: core::array::from_fn(|_| a.label()),
        }
    }

    pub(super) fn refuse(&self, why: Refusal) -> Label {
        self.refused[why as usize]
    }

    pub(super) fn spend(&self, kind: Kind) -> Label {
        self.spends[kind as usize]
    }
}

/// Frames that die end here; all others go on at `through`. `R6` is the context, and stays.
pub(super) fn emit(a: &mut Assembler, known: &Known<'_>, through: Label) {
    let ways = Ways::new(a, through);
    desk(a, known, &ways);
    let (v4, v6) = link(a, &ways);
    a.place(v4);
    ipv4(a, known, &ways);
    a.place(v6);
    ipv6(a, known, &ways);
    end(a, &ways);
}

/// Where the ways lead that are taken: what cannot be read has a credit, what is refused dies.
pub(super) fn end(a: &mut Assembler, ways: &Ways) {
    a.place(ways.other);
    credit(a, Kind::Other, ways);
    a.jump(ways.spend(Kind::Other));
    for kind in Kind::ALL {
        let label = ways.spend(kind);
        if a.is_used(label) {
            a.place(label);
            a.set(Reg::R1, 1);
            a.add_shared(Reg::R9, word(DESK_USED + kind as usize), Reg::R1);
            a.jump(ways.through);
        }
    }
    for (number, label) in (0..).zip(ways.refused) {
        if a.is_used(label) {
            a.place(label);
            a.set(Reg::R1, 1);
            a.add_shared(Reg::R9, word(DESK_REFUSED + number), Reg::R1);
            a.set(Reg::R0, DROP).exit();
        }
    }
}

/// The byte offset of a word.
pub(super) const fn word(number: usize) -> i16 {
    (number * size_of::<u64>()) as i16
}

/// Looks up what lies under a key in `R1`, in `R0`; goes to `missing` where there is nothing.
pub(super) fn look_up(a: &mut Assembler, map: i32, missing: Label) {
    a.store(Size::Word, Reg::R10, KEY, Reg::R1)
        .map(Reg::R1, map)
        .copy(Reg::R2, Reg::R10)
        .add(Reg::R2, i32::from(KEY))
        .call(Function::MapLookup)
        .jump_if(Reg::R0, When::Equal, 0, missing);
}

/// Finds the desk of the frame's queue, for `R9`; without pressure all frames go through that are
/// not denied.
fn desk(a: &mut Assembler, known: &Known<'_>, ways: &Ways) {
    a.load(Size::Word, Reg::R1, Reg::R6, RX_QUEUE);
    look_up(a, known.desks, ways.through);
    a.copy(Reg::R9, Reg::R0).load(Size::Word, Reg::R7, Reg::R6, DATA).load(
        Size::Word,
        Reg::R8,
        Reg::R6,
        DATA_END,
    );
    source(a, &known.maps, ways.refuse(Refusal::Denied));
    let pressed = a.label();
    a.load(Size::Double, Reg::R1, Reg::R9, 0);
    match known.programs {
        None => drop(a.jump_if(Reg::R1, When::Equal, 0, ways.through)),
        Some(programs) => {
            let syn = a.label();
            a.jump_if(Reg::R1, When::Differs, 0, pressed);
            // Without pressure SYNs alone are looked at: they are counted, and answered if there
            // are many.
            find_syn(a, syn, ways.through);
            a.place(syn);
            a.tail_call(Reg::R6, programs, SYNS).jump(ways.through);
        }
    }
    a.place(pressed);
    a.copy(Reg::R1, Reg::R6).call(Function::FrameBytes).store(
        Size::Double,
        Reg::R10,
        LENGTH,
        Reg::R0,
    );
}

/// Goes to `short` where the frame has not so many bytes.
pub(in crate::af_xdp) fn reach(a: &mut Assembler, bytes: i16, short: Label) {
    a.copy(Reg::R3, Reg::R7).add(Reg::R3, i32::from(bytes)).jump_if_reg(
        Reg::R3,
        When::Above,
        Reg::R8,
        short,
    );
}

/// A field of two bytes as it lies in memory.
pub(in crate::af_xdp) fn wire(value: u16) -> i32 {
    i32::from(value.to_be())
}

/// The link header; where IPv4 and IPv6 go on.
fn link(a: &mut Assembler, ways: &Ways) -> (Label, Label) {
    let (v4, v6, tagged) = (a.label(), a.label(), a.label());
    reach(a, L3, ways.other);
    a.load(Size::Byte, Reg::R1, Reg::R7, 6)
        .jump_if(Reg::R1, When::Meets, 1, ways.refuse(Refusal::SourceGroup))
        .load(Size::Half, Reg::R1, Reg::R7, 12)
        .jump_if(Reg::R1, When::Equal, wire(0x0800), v4)
        .jump_if(Reg::R1, When::Equal, wire(0x86dd), v6)
        .jump_if(Reg::R1, When::Equal, wire(0x0806), ways.other)
        .jump_if(Reg::R1, When::Equal, wire(0x8100), tagged)
        .jump_if(Reg::R1, When::Equal, wire(0x88a8), ways.other)
        .jump(ways.refuse(Refusal::KindUnknown));
    a.place(tagged);
    reach(a, L3 + 4, ways.other);
    a.load(Size::Half, Reg::R1, Reg::R7, L3)
        .jump_if(Reg::R1, When::Meets, wire(0x0fff), ways.refuse(Refusal::VlanForeign))
        .jump(ways.other);
    (v4, v6)
}

/// A packet whose length, in `R2`, counts from `from` on is in the frame, or it is malformed. By
/// the frame's length as a number: a packet's address plus one is for those with CAP_PERFMON.
fn fits(a: &mut Assembler, from: i16, ways: &Ways) {
    a.add(Reg::R2, i32::from(from)).load(Size::Double, Reg::R3, Reg::R10, LENGTH).jump_if_reg(
        Reg::R2,
        When::Above,
        Reg::R3,
        ways.refuse(Refusal::HeaderMalformed),
    );
}

fn ipv4(a: &mut Assembler, known: &Known<'_>, ways: &Ways) {
    let malformed = ways.refuse(Refusal::HeaderMalformed);
    reach(a, V4_PORTS, ways.other);
    a.load(Size::Byte, Reg::R1, Reg::R7, L3)
        .copy(Reg::R2, Reg::R1)
        .compute(Reg::R2, Does::ShiftRight, 4)
        .jump_if(Reg::R2, When::Differs, 4, malformed)
        .compute(Reg::R1, Does::And, 0xf)
        .compute(Reg::R1, Does::ShiftLeft, 2)
        .jump_if(Reg::R1, When::Below, 20, malformed)
        .load(Size::Half, Reg::R2, Reg::R7, L3 + 2)
        .read_wire(Reg::R2)
        .jump_if_reg(Reg::R2, When::Below, Reg::R1, malformed);
    fits(a, L3, ways);
    let other = a.label();
    // With options, or in pieces.
    a.jump_if(Reg::R1, When::Differs, 20, other)
        .load(Size::Half, Reg::R1, Reg::R7, L3 + 6)
        .jump_if(Reg::R1, When::Meets, wire(0x3fff), other);
    flow(a, known, (false, V4_PORTS, &V4_WORDS), other, ways);
    a.place(other);
    no_flow(a, known, false, ways);
}

fn ipv6(a: &mut Assembler, known: &Known<'_>, ways: &Ways) {
    let malformed = ways.refuse(Refusal::HeaderMalformed);
    let other = a.label();
    reach(a, V6_PORTS, ways.other);
    a.load(Size::Byte, Reg::R1, Reg::R7, L3)
        .compute(Reg::R1, Does::ShiftRight, 4)
        .jump_if(Reg::R1, When::Differs, 6, malformed)
        .load(Size::Half, Reg::R2, Reg::R7, L3 + 4)
        .read_wire(Reg::R2);
    fits(a, V6_PORTS, ways);
    flow(a, known, (true, V6_PORTS, &V6_WORDS), other, ways);
    a.place(other);
    // Of neighbours' messages the target counts as well.
    a.load(Size::Byte, Reg::R1, Reg::R7, L3 + 6).jump_if(Reg::R1, When::Equal, ICMPV6, ways.other);
    no_flow(a, known, true, ways);
}

/// What is no flow of TCP or UDP spends the credit of its kind, where it is for us.
fn no_flow(a: &mut Assembler, known: &Known<'_>, is_v6: bool, ways: &Ways) {
    credit(a, Kind::Other, ways);
    destination(a, known, is_v6, ways);
    a.jump(ways.spend(Kind::Other));
}

/// What is for nobody here dies. What is for a group is looked at no closer: it has no ports that
/// are closed.
pub(super) fn destination(a: &mut Assembler, known: &Known<'_>, is_v6: bool, ways: &Ways) {
    let (group, on) = (a.label(), a.label());
    let foreign = ways.refuse(Refusal::AddressForeign);
    look(a, &known.maps, (is_v6, L3), Elsewhere { foreign, group });
    a.jump(on);
    a.place(group);
    whatever(a);
    a.place(on);
}

/// A TCP or UDP flow: friends go through, strangers spend the credit of their kind. Without credit
/// they die before anything else is asked of them, which is what most of a flood costs. Goes to
/// `other` with what is no such flow.
fn flow(
    a: &mut Assembler,
    known: &Known<'_>,
    (is_v6, ports, words): (bool, i16, &[(Size, i16)]),
    other: Label,
    ways: &Ways,
) {
    let (udp, flow) = (a.label(), a.label());
    let protocol = words.last().map_or(0, |(_, at)| *at);
    let closed = ways.refuse(Refusal::PortClosed);
    reach(a, ports + 4, other);
    a.load(Size::Byte, Reg::R1, Reg::R7, protocol)
        .jump_if(Reg::R1, When::Equal, UDP, flow)
        .jump_if(Reg::R1, When::Differs, TCP, other);
    a.place(flow);
    print(a, known, words);
    friend(a, known, ways);
    if let Some(programs) = known.programs {
        unknown_segment(a, programs, (ports, protocol));
    }
    credit(a, Kind::Plain, ways);
    destination(a, known, is_v6, ways);
    a.load(Size::Byte, Reg::R1, Reg::R7, protocol).jump_if(Reg::R1, When::Equal, UDP, udp);
    port(a, &known.maps, ports, Any::Tcp, closed);
    a.jump(ways.spend(Kind::Plain));
    a.place(udp);
    port(a, &known.maps, ports, Any::Udp, closed);
    a.jump(ways.spend(Kind::Plain));
}

/// A segment of no known connection goes on in the program for its kind, where there is one.
fn unknown_segment(a: &mut Assembler, programs: i32, (ports, protocol): (i16, i16)) {
    const FLAGS: i16 = 13;
    let (on, syn) = (a.label(), a.label());
    a.load(Size::Byte, Reg::R1, Reg::R7, protocol).jump_if(Reg::R1, When::Differs, TCP, on);
    // The print was there.
    a.load(Size::Word, Reg::R8, Reg::R6, DATA_END);
    reach(a, ports + FLAGS + 1, on);
    a.load(Size::Byte, Reg::R1, Reg::R7, ports + FLAGS)
        .compute(Reg::R1, Does::And, 0x17)
        .jump_if(Reg::R1, When::Equal, 2, syn)
        .tail_call(Reg::R6, programs, SEGMENTS)
        .jump(on);
    a.place(syn);
    a.tail_call(Reg::R6, programs, SYNS);
    a.place(on);
}

/// The print of a flow, as `Friends::print` has it, in `R8`. The last of the words is the protocol.
pub(super) fn print(a: &mut Assembler, known: &Known<'_>, words: &[(Size, i16)]) {
    let (start, factors) = known.key.split_first().unwrap_or((&0, &[]));
    a.set_wide(Reg::R8, *start);
    for ((size, at), factor) in words.iter().zip(factors) {
        a.load(*size, Reg::R1, Reg::R7, *at)
            .set_wide(Reg::R2, *factor)
            .compute_reg(Reg::R1, Does::Multiply, Reg::R2)
            .compute_reg(Reg::R8, Does::Add, Reg::R1);
    }
    a.compute(Reg::R8, Does::Or, 1);
}

/// Friends, whose print is in `R8`, go through; falls through for strangers.
fn friend(a: &mut Assembler, known: &Known<'_>, ways: &Ways) {
    a.copy(Reg::R1, Reg::R8).compute(Reg::R1, Does::ShiftRight, 32).compute(
        Reg::R1,
        Does::And,
        SETS as i32 - 1,
    );
    look_up(a, known.friends, ways.through);
    for way in 0..WAYS {
        a.load(Size::Double, Reg::R1, Reg::R0, word(way)).jump_if_reg(
            Reg::R1,
            When::Equal,
            Reg::R8,
            ways.through,
        );
    }
}

/// Dies where the credit of its kind is used up.
pub(super) fn credit(a: &mut Assembler, kind: Kind, ways: &Ways) {
    let (granted, used) = (word(DESK_GRANTED + kind as usize), word(DESK_USED + kind as usize));
    let why = if kind == Kind::Segment { Refusal::Segment } else { Refusal::Stranger };
    a.load(Size::Double, Reg::R1, Reg::R9, granted)
        .load(Size::Double, Reg::R2, Reg::R9, used)
        .jump_if_reg(Reg::R2, When::AtLeast, Reg::R1, ways.refuse(why));
}
