//! What the filter adds to the program at the interface.
//!
//! Called by `steering.rs` while it assembles, for frames to our station. Invariant: a frame that
//! is refused here is also refused by the stack's triage (a test compares them for every capture).
//! A frame without readable ports has a credit of its own, separate from that of unverified flows.
//! Layouts: IEEE 802.3, RFC 791, RFC 8200, RFC 768, RFC 9293.

use floodwall_bpf::cookie::find_syn;
use floodwall_bpf::redirect::{self, RedirectMaps};
use floodwall_bpf::{
    AccessSize, Assembler, Function, JumpCondition, Label, Operation, Register, sample,
};

use super::desk::{
    DESK_GRANTED, DESK_PAIRS, DESK_REFUSED, DESK_USED, FilterRefusal, PAIRS_V4, PAIRS_V6,
    ProgramKind,
};
use super::destination::{OtherDestinations, accept_any_port, look, port, source};
use super::emit::{CodePaths, KEY_SLOT, L3, look_up, reach, wire, word};
use super::established::{ENTRY_WORDS, GRANTED, PREFIX_KEY_WORDS, SET_WAYS, SETS, USED, V4_PREFIX};
use super::fair::{self, FairMaps};
use super::flow_share::{self, FlowMaps};
use crate::af_xdp::destination_maps::DestinationMaps;
use crate::af_xdp::filter_tables::AnyAddress;
use crate::af_xdp::xdp_abi::{DATA, DATA_END, DROP, RX_QUEUE};

const LENGTH_SLOT: i16 = -16;
/// The service that a frame is for, four bytes.
const SERVICE_SLOT: i16 = -8;
pub(super) const V4_PORTS: i16 = L3 + 20;
pub(super) const V6_PORTS: i16 = L3 + 40;
/// Where the protocol of a plain packet is.
pub(super) const V4_PROTOCOL: i16 = L3 + 9;
pub(super) const V6_PROTOCOL: i16 = L3 + 6;
/// Where the hop limit is.
const V4_HOPS: i16 = L3 + 8;
const V6_HOPS: i16 = L3 + 7;
/// Of a flow's words, how many are no addresses: ports and protocol.
const NO_ADDRESSES: usize = 2;
/// Header words of plain IPv4 and IPv6 packets that form a flow's key, with their load sizes.
pub(super) const V4_WORDS: [(AccessSize, i16); 4] = [
    (AccessSize::Word, L3 + 12),
    (AccessSize::Word, L3 + 16),
    (AccessSize::Word, V4_PORTS),
    (AccessSize::Byte, V4_PROTOCOL),
];
pub(super) const V6_WORDS: [(AccessSize, i16); 10] = [
    (AccessSize::Word, L3 + 8),
    (AccessSize::Word, L3 + 12),
    (AccessSize::Word, L3 + 16),
    (AccessSize::Word, L3 + 20),
    (AccessSize::Word, L3 + 24),
    (AccessSize::Word, L3 + 28),
    (AccessSize::Word, L3 + 32),
    (AccessSize::Word, L3 + 36),
    (AccessSize::Word, V6_PORTS),
    (AccessSize::Byte, V6_PROTOCOL),
];
const UDP: i32 = 17;
const ICMPV6: i32 = 58;
const TCP: i32 = 6;

/// The maps that the code reads, and the secret key of the flow hash.
#[derive(Clone, Copy)]
pub(super) struct KnownFields<'a> {
    pub(super) desks: i32,
    pub(super) established: i32,
    pub(super) key: &'a [u64],
    pub(super) prefix_key: [u64; PREFIX_KEY_WORDS],
    pub(super) maps: DestinationMaps,
    pub(super) fair: FairMaps,
    /// The shares of prefixes; without them flows have no tokens either.
    pub(super) flows: Option<FlowMaps>,
    /// For which services frames were that end here: `floodwall_bpf::sample`.
    pub(super) samples: i32,
    /// The programs for SYNs and for other segments of unknown connections, at [`SYN_PROGRAM`] and
    /// [`SEGMENT_PROGRAM`].
    pub(super) programs: Option<i32>,
    /// Where packets of a router may leave without a worker.
    pub(super) redirects: Option<RedirectMaps<'a>>,
}

/// The index of each program.
pub(in crate::af_xdp) const SYN_PROGRAM: i32 = 0;
pub(in crate::af_xdp) const SEGMENT_PROGRAM: i32 = 1;

/// Emits the filter: frames to drop end here, all others continue at `through`. `R6` holds the
/// context and is preserved.
pub(super) fn emit(a: &mut Assembler, known: &KnownFields<'_>, through: Label) {
    let ways = CodePaths::new(a, through);
    desk(a, known, &ways);
    let (v4, v6) = link(a, &ways);
    a.place(v4);
    ipv4(a, known, &ways);
    a.place(v6);
    ipv6(a, known, &ways);
    end(a, known, &ways);
}

/// Emits the ends of the paths that are taken: frames that cannot be read have a credit, frames
/// that are refused are dropped.
pub(super) fn end(a: &mut Assembler, known: &KnownFields<'_>, ways: &CodePaths) {
    let (sampled, dropped) = (a.label(), a.label());
    a.place(ways.other);
    credit(a, ProgramKind::Other, ways);
    a.jump(ways.spend(ProgramKind::Other));
    for kind in ProgramKind::ALL {
        let label = ways.spend(kind);
        if a.is_used(label) {
            a.place(label);
            a.set(Register::R1, 1);
            a.add_shared(Register::R9, word(DESK_USED + kind as usize), Register::R1);
            a.jump(ways.through);
        }
    }
    for (number, label) in (0..).zip(ways.refused) {
        if a.is_used(label) {
            a.place(label);
            a.set(Register::R1, 1);
            a.add_shared(Register::R9, word(DESK_REFUSED + number), Register::R1);
            if FilterRefusal::SAMPLED.iter().any(|(why, _)| *why as usize == number) {
                a.load(AccessSize::Double, Register::R2, Register::R9, word(DESK_REFUSED + number))
                    .set(Register::R3, number as i32)
                    .jump(sampled);
            } else {
                a.jump(dropped);
            }
        }
    }
    if a.is_used(sampled) {
        a.place(sampled);
        sample::take(a, known.samples, (SERVICE_SLOT, KEY_SLOT), dropped);
    }
    if a.is_used(dropped) {
        a.place(dropped);
        a.set(Register::R0, DROP).exit();
    }
}

/// Finds the desk of the frame's queue, for `R9`; without pressure all frames go through that are
/// not denied.
fn desk(a: &mut Assembler, known: &KnownFields<'_>, ways: &CodePaths) {
    a.load(AccessSize::Word, Register::R1, Register::R6, RX_QUEUE);
    look_up(a, known.desks, ways.through);
    a.copy(Register::R9, Register::R0)
        .load(AccessSize::Word, Register::R7, Register::R6, DATA)
        .load(AccessSize::Word, Register::R8, Register::R6, DATA_END);
    source(a, &known.maps, ways.refuse(FilterRefusal::Denied));
    if let Some(redirects) = &known.redirects {
        let on = a.label();
        redirect::emit(a, redirects, on);
        a.place(on);
        a.load(AccessSize::Word, Register::R7, Register::R6, DATA).load(
            AccessSize::Word,
            Register::R8,
            Register::R6,
            DATA_END,
        );
    }
    let pressed = a.label();
    a.load(AccessSize::Double, Register::R1, Register::R9, 0);
    match known.programs {
        None => {
            a.jump_if(Register::R1, JumpCondition::Equal, 0, ways.through);
        }
        Some(programs) => {
            let syn = a.label();
            a.jump_if(Register::R1, JumpCondition::Differs, 0, pressed);
            // Without pressure only SYNs are looked at: they are counted, and answered if there are
            // many.
            find_syn(a, syn, ways.through);
            a.place(syn);
            a.tail_call(Register::R6, programs, SYN_PROGRAM).jump(ways.through);
        }
    }
    a.place(pressed);
    no_service(a);
    a.copy(Register::R1, Register::R6).call(Function::FrameBytes).store(
        AccessSize::Double,
        Register::R10,
        LENGTH_SLOT,
        Register::R0,
    );
}

/// The link header; where IPv4 and IPv6 go on.
fn link(a: &mut Assembler, ways: &CodePaths) -> (Label, Label) {
    let (v4, v6, tagged) = (a.label(), a.label(), a.label());
    reach(a, L3, ways.other);
    a.load(AccessSize::Byte, Register::R1, Register::R7, 6)
        .jump_if(Register::R1, JumpCondition::Meets, 1, ways.refuse(FilterRefusal::SourceGroup))
        .load(AccessSize::Half, Register::R1, Register::R7, 12)
        .jump_if(Register::R1, JumpCondition::Equal, wire(0x0800), v4)
        .jump_if(Register::R1, JumpCondition::Equal, wire(0x86dd), v6)
        .jump_if(Register::R1, JumpCondition::Equal, wire(0x0806), ways.other)
        .jump_if(Register::R1, JumpCondition::Equal, wire(0x8100), tagged)
        .jump_if(Register::R1, JumpCondition::Equal, wire(0x88a8), ways.other)
        .jump(ways.refuse(FilterRefusal::KindUnknown));
    a.place(tagged);
    reach(a, L3 + 4, ways.other);
    a.load(AccessSize::Half, Register::R1, Register::R7, L3)
        .jump_if(
            Register::R1,
            JumpCondition::Meets,
            wire(0x0fff),
            ways.refuse(FilterRefusal::VlanForeign),
        )
        .jump(ways.other);
    (v4, v6)
}

/// Checks that the packet's length, in `R2` and counted from `from`, fits the frame; else it is
/// malformed. Uses the frame's length as a number: pointer arithmetic needs CAP_PERFMON.
fn fits(a: &mut Assembler, from: i16, ways: &CodePaths) {
    a.add(Register::R2, i32::from(from))
        .load(AccessSize::Double, Register::R3, Register::R10, LENGTH_SLOT)
        .jump_if_reg(
            Register::R2,
            JumpCondition::Above,
            Register::R3,
            ways.refuse(FilterRefusal::HeaderMalformed),
        );
}

fn ipv4(a: &mut Assembler, known: &KnownFields<'_>, ways: &CodePaths) {
    let malformed = ways.refuse(FilterRefusal::HeaderMalformed);
    reach(a, V4_PORTS, ways.other);
    a.load(AccessSize::Byte, Register::R1, Register::R7, L3)
        .copy(Register::R2, Register::R1)
        .compute(Register::R2, Operation::ShiftRight, 4)
        .jump_if(Register::R2, JumpCondition::Differs, 4, malformed)
        .compute(Register::R1, Operation::And, 0xf)
        .compute(Register::R1, Operation::ShiftLeft, 2)
        .jump_if(Register::R1, JumpCondition::Below, 20, malformed)
        .load(AccessSize::Half, Register::R2, Register::R7, L3 + 2)
        .read_wire(Register::R2)
        .jump_if_reg(Register::R2, JumpCondition::Below, Register::R1, malformed);
    fits(a, L3, ways);
    let other = a.label();
    // With options, or in pieces.
    a.jump_if(Register::R1, JumpCondition::Differs, 20, other)
        .load(AccessSize::Half, Register::R1, Register::R7, L3 + 6)
        .jump_if(Register::R1, JumpCondition::Meets, wire(0x3fff), other);
    flow(a, known, (false, V4_PORTS, &V4_WORDS), other, ways);
    a.place(other);
    no_flow(a, known, false, ways);
}

fn ipv6(a: &mut Assembler, known: &KnownFields<'_>, ways: &CodePaths) {
    let malformed = ways.refuse(FilterRefusal::HeaderMalformed);
    let other = a.label();
    reach(a, V6_PORTS, ways.other);
    a.load(AccessSize::Byte, Register::R1, Register::R7, L3)
        .compute(Register::R1, Operation::ShiftRight, 4)
        .jump_if(Register::R1, JumpCondition::Differs, 6, malformed)
        .load(AccessSize::Half, Register::R2, Register::R7, L3 + 4)
        .read_wire(Register::R2);
    fits(a, V6_PORTS, ways);
    flow(a, known, (true, V6_PORTS, &V6_WORDS), other, ways);
    a.place(other);
    // Of neighbours' messages the target counts as well.
    a.load(AccessSize::Byte, Register::R1, Register::R7, L3 + 6).jump_if(
        Register::R1,
        JumpCondition::Equal,
        ICMPV6,
        ways.other,
    );
    no_flow(a, known, true, ways);
}

/// What is no flow of TCP or UDP spends the credit of its kind, where it is for us.
fn no_flow(a: &mut Assembler, known: &KnownFields<'_>, is_v6: bool, ways: &CodePaths) {
    credit(a, ProgramKind::Other, ways);
    destination(a, known, is_v6, ways);
    a.jump(ways.spend(ProgramKind::Other));
}

/// Drops packets for a destination that no shard accepts. Groups are not checked further: they have
/// no closed ports.
pub(super) fn destination(
    a: &mut Assembler,
    known: &KnownFields<'_>,
    is_v6: bool,
    ways: &CodePaths,
) {
    let (group, on) = (a.label(), a.label());
    let foreign = ways.refuse(FilterRefusal::AddressForeign);
    look(a, &known.maps, (is_v6, L3), OtherDestinations { foreign, group });
    a.jump(on);
    a.place(group);
    accept_any_port(a);
    a.place(on);
}

/// A TCP or UDP flow: established flows pass, others spend the credit of their kind. Without credit
/// they are dropped before any other check, which is what most of a flood costs. Jumps to `other`
/// with anything that is no such flow.
fn flow(
    a: &mut Assembler,
    known: &KnownFields<'_>,
    (is_v6, ports, words): (bool, i16, &[(AccessSize, i16)]),
    other: Label,
    ways: &CodePaths,
) {
    let (flow, newcomer) = (a.label(), a.label());
    let protocol = words.last().map_or(0, |(_, at)| *at);
    reach(a, ports + 4, other);
    a.load(AccessSize::Byte, Register::R1, Register::R7, protocol)
        .jump_if(Register::R1, JumpCondition::Equal, UDP, flow)
        .jump_if(Register::R1, JumpCondition::Differs, TCP, other);
    a.place(flow);
    print(a, known, words);
    established(a, known, is_v6, ways);
    transit(a, known, (is_v6, words), ways);
    if let Some(programs) = known.programs {
        unknown_segment(a, programs, (ports, protocol));
    }
    service(a, protocol, ports);
    known_prefix(a, known, is_v6, (newcomer, ways));
    fair::credit(a, ways);
    wanted(a, known, (is_v6, protocol, ports), ways);
    fair::emit(a, &known.fair, (is_v6, protocol, ports), ways);
    a.jump(ways.spend(ProgramKind::Plain));
    a.place(newcomer);
    wanted(a, known, (is_v6, protocol, ports), ways);
    share(a, known, is_v6, ways);
}

/// Drops what is for a destination or a port that no shard accepts.
fn wanted(
    a: &mut Assembler,
    known: &KnownFields<'_>,
    (is_v6, protocol, ports): (bool, i16, i16),
    ways: &CodePaths,
) {
    let (udp, wanted) = (a.label(), a.label());
    let closed = ways.refuse(FilterRefusal::PortClosed);
    destination(a, known, is_v6, ways);
    a.load(AccessSize::Byte, Register::R1, Register::R7, protocol).jump_if(
        Register::R1,
        JumpCondition::Equal,
        UDP,
        udp,
    );
    port(a, &known.maps, ports, AnyAddress::Tcp, closed);
    a.jump(wanted);
    a.place(udp);
    port(a, &known.maps, ports, AnyAddress::Udp, closed);
    a.place(wanted);
}

/// Keeps the service of a frame that was read to its ports, for the sample of those that end here.
pub(super) fn service(a: &mut Assembler, protocol: i16, ports: i16) {
    a.load(AccessSize::Byte, Register::R2, Register::R7, protocol)
        .load(AccessSize::Half, Register::R1, Register::R7, ports + 2)
        .read_wire(Register::R1);
    sample::service(a);
    a.store(AccessSize::Word, Register::R10, SERVICE_SLOT, Register::R1);
}

/// No service yet, as of a frame that has no readable ports.
pub(super) fn no_service(a: &mut Assembler) {
    a.store_value(AccessSize::Word, Register::R10, SERVICE_SLOT, sample::SAMPLED);
}

/// On a router, packets between hosts that talk go on as those of established flows do, and a
/// packet that may go no further has the credit of those without ports: its sender is owed an
/// error at most. Falls through for all others.
fn transit(
    a: &mut Assembler,
    known: &KnownFields<'_>,
    (is_v6, words): (bool, &[(AccessSize, i16)]),
    ways: &CodePaths,
) {
    const HOPS_MIN: i32 = 2;
    let (on, bit) = (a.label(), if is_v6 { PAIRS_V6 } else { PAIRS_V4 });
    let pairs = a.label();
    a.load(AccessSize::Double, Register::R1, Register::R9, word(DESK_PAIRS))
        .jump_if(Register::R1, JumpCondition::Meets, bit, pairs)
        .jump(on);
    a.place(pairs);
    print(a, known, words.split_last_chunk::<NO_ADDRESSES>().map_or(words, |(addrs, _)| addrs));
    established(a, known, is_v6, ways);
    let hops = if is_v6 { V6_HOPS } else { V4_HOPS };
    a.load(AccessSize::Byte, Register::R1, Register::R7, hops).jump_if(
        Register::R1,
        JumpCondition::Below,
        HOPS_MIN,
        ways.other,
    );
    a.place(on);
}

/// Continues with a segment of an unknown connection in the program for its kind, if there is one.
fn unknown_segment(a: &mut Assembler, programs: i32, (ports, protocol): (i16, i16)) {
    const FLAGS: i16 = 13;
    let (on, syn) = (a.label(), a.label());
    a.load(AccessSize::Byte, Register::R1, Register::R7, protocol).jump_if(
        Register::R1,
        JumpCondition::Differs,
        TCP,
        on,
    );
    // It held the flow's hash.
    a.load(AccessSize::Word, Register::R8, Register::R6, DATA_END);
    reach(a, ports + FLAGS + 1, on);
    a.load(AccessSize::Byte, Register::R1, Register::R7, ports + FLAGS)
        .compute(Register::R1, Operation::And, 0x17)
        .jump_if(Register::R1, JumpCondition::Equal, 2, syn)
        .tail_call(Register::R6, programs, SEGMENT_PROGRAM)
        .jump(on);
    a.place(syn);
    a.tail_call(Register::R6, programs, SYN_PROGRAM);
    a.place(on);
}

/// The hash (print) of a flow, as computed by `EstablishedFlows::print`, in `R8`. The protocol is
/// the last of the words.
pub(super) fn print(a: &mut Assembler, known: &KnownFields<'_>, words: &[(AccessSize, i16)]) {
    let (start, factors) = known.key.split_first().unwrap_or((&0, &[]));
    a.set_wide(Register::R8, *start);
    for ((size, at), factor) in words.iter().zip(factors) {
        a.load(*size, Register::R1, Register::R7, *at)
            .set_wide(Register::R2, *factor)
            .compute_reg(Register::R1, Operation::Multiply, Register::R2)
            .compute_reg(Register::R8, Operation::Add, Register::R1);
    }
    a.compute(Register::R8, Operation::Or, 1);
}

/// Ends the way of established flows, with their hash in `R8`: they go on while they have tokens
/// and their prefix has room. Falls through for all others.
fn established(a: &mut Assembler, known: &KnownFields<'_>, is_v6: bool, ways: &CodePaths) {
    let (established, unknown) = (a.label(), a.label());
    find(a, known, (established, ways.through));
    a.jump(unknown);
    a.place(established);
    if known.flows.is_some() {
        spend_token(a, ways.refuse(FilterRefusal::Flow));
    }
    share(a, known, is_v6, ways);
    a.place(unknown);
}

/// Ends the way of a frame that may go on where its prefix has room.
pub(super) fn share(a: &mut Assembler, known: &KnownFields<'_>, is_v6: bool, ways: &CodePaths) {
    match &known.flows {
        Some(flows) => flow_share::emit(a, flows, is_v6, ways),
        None => _ = a.jump(ways.spend(ProgramKind::Established)),
    }
}

/// Looks for the print in `R8` among the established ones: jumps to `found` with its entry in
/// `R0`, or falls through.
fn find(a: &mut Assembler, known: &KnownFields<'_>, (found, missing): (Label, Label)) {
    a.copy(Register::R1, Register::R8).compute(Register::R1, Operation::ShiftRight, 32).compute(
        Register::R1,
        Operation::And,
        SETS as i32 - 1,
    );
    look_up(a, known.established, missing);
    for way in 0..SET_WAYS {
        // `R0` is at the entry.
        if way > 0 {
            a.add(Register::R0, i32::from(word(ENTRY_WORDS)));
        }
        a.load(AccessSize::Double, Register::R1, Register::R0, 0).jump_if_reg(
            Register::R1,
            JumpCondition::Equal,
            Register::R8,
            found,
        );
    }
}

/// Takes a token of the entry at `R0`; jumps to `none` where it has none.
fn spend_token(a: &mut Assembler, none: Label) {
    a.load(AccessSize::Double, Register::R1, Register::R0, word(USED))
        .load(AccessSize::Double, Register::R2, Register::R0, word(GRANTED))
        .jump_if_reg(Register::R1, JumpCondition::AtLeast, Register::R2, none)
        .add(Register::R1, 1)
        .store(AccessSize::Double, Register::R0, word(USED), Register::R1);
}

/// Goes to `newcomer` with a frame of an unverified flow from a prefix with established flows in
/// progress, at the cost of a token of the prefix. Falls through for all others.
pub(super) fn known_prefix(
    a: &mut Assembler,
    known: &KnownFields<'_>,
    is_v6: bool,
    (newcomer, ways): (Label, &CodePaths),
) {
    let (found, unknown) = (a.label(), a.label());
    let [v4, v6, first, second] = known.prefix_key;
    a.set_wide(Register::R8, if is_v6 { v6 } else { v4 });
    let words: &[(i16, u64)] = match is_v6 {
        false => &[(L3 + 12, first)],
        true => &[(L3 + 8, first), (L3 + 12, second)],
    };
    for (at, factor) in words {
        a.load(AccessSize::Word, Register::R1, Register::R7, *at);
        if !is_v6 {
            a.compute(Register::R1, Operation::And, V4_PREFIX.cast_signed());
        }
        a.set_wide(Register::R2, *factor)
            .compute_reg(Register::R1, Operation::Multiply, Register::R2)
            .compute_reg(Register::R8, Operation::Add, Register::R1);
    }
    a.compute(Register::R8, Operation::Or, 1);
    find(a, known, (found, ways.through));
    a.jump(unknown);
    a.place(found);
    spend_token(a, unknown);
    a.jump(newcomer);
    a.place(unknown);
}

/// Drops the frame where the credit of its kind is used up.
pub(super) fn credit(a: &mut Assembler, kind: ProgramKind, ways: &CodePaths) {
    let (granted, used) = (word(DESK_GRANTED + kind as usize), word(DESK_USED + kind as usize));
    let why = match kind {
        ProgramKind::Segment => FilterRefusal::Segment,
        _ => FilterRefusal::Unknown,
    };
    a.load(AccessSize::Double, Register::R1, Register::R9, granted)
        .load(AccessSize::Double, Register::R2, Register::R9, used)
        .jump_if_reg(Register::R2, JumpCondition::AtLeast, Register::R1, ways.refuse(why));
}
