//! What the filter adds to the programs for SYNs and ACKs: what becomes of a frame that they left
//! alone, and how a flow is made known.
//!
//! Called by `cookies.rs` while it assembles. A frame that comes here is TCP's, of no known flow;
//! under pressure it has the same credit and is asked the same questions as in `code.rs`, without
//! pressure it goes to the socket. `R6` is the context.

use floodwall_bpf::{AccessSize, Assembler, JumpCondition, Label, Operation, Register};

use super::code::{
    KnownFields, V4_PORTS, V4_PROTOCOL, V4_WORDS, V6_PORTS, V6_PROTOCOL, V6_WORDS, credit,
    destination, end, known_prefix, no_service, print, service, share,
};
use super::destination::port;
use super::emit::{CodePaths, look_up, reach, wire, word};
use super::established::TOKENS_AT_REST;
use super::fair;
use super::{ENTRY_WORDS, FilterRefusal, GRANTED, ProgramKind, SET_WAYS, SETS, USED};
use crate::af_xdp::filter_tables::AnyAddress;
use crate::af_xdp::xdp_abi::{DATA, DATA_END, RX_QUEUE};

/// Where the kind of a frame is.
const ETHERTYPE_AT: i16 = 12;

/// Emits the checks behind the classification. Dropped frames end here; all others go on at
/// `through`.
pub(super) fn emit(a: &mut Assembler, known: &KnownFields<'_>, through: Label, is_syn: bool) {
    let (ways, v6) = (CodePaths::new(a, through), a.label());
    let kind = if is_syn { ProgramKind::Plain } else { ProgramKind::Segment };
    a.load(AccessSize::Word, Register::R1, Register::R6, RX_QUEUE);
    look_up(a, known.desks, through);
    a.copy(Register::R9, Register::R0)
        .load(AccessSize::Double, Register::R1, Register::R9, 0)
        .jump_if(Register::R1, JumpCondition::Equal, 0, through);
    no_service(a);
    frame(a);
    reach(a, V4_PORTS + 4, ways.other);
    a.load(AccessSize::Half, Register::R1, Register::R7, ETHERTYPE_AT).jump_if(
        Register::R1,
        JumpCondition::Equal,
        wire(0x86dd),
        v6,
    );
    for (is_v6, ports) in [(false, V4_PORTS), (true, V6_PORTS)] {
        if is_v6 {
            a.place(v6);
            reach(a, ports + 4, ways.other);
        }
        service(a, if is_v6 { V6_PROTOCOL } else { V4_PROTOCOL }, ports);
        let (newcomer, closed) = (a.label(), ways.refuse(FilterRefusal::PortClosed));
        if is_syn {
            known_prefix(a, known, is_v6, (newcomer, &ways));
        }
        match is_syn {
            true => fair::credit(a, &ways),
            false => credit(a, kind, &ways),
        }
        destination(a, known, is_v6, &ways);
        port(a, &known.maps, ports, AnyAddress::Tcp, closed);
        if is_syn {
            let protocol = if is_v6 { V6_PROTOCOL } else { V4_PROTOCOL };
            fair::emit(a, &known.fair, (is_v6, protocol, ports), &ways);
        }
        a.jump(ways.spend(kind));
        if is_syn {
            a.place(newcomer);
            destination(a, known, is_v6, &ways);
            port(a, &known.maps, ports, AnyAddress::Tcp, closed);
            share(a, known, is_v6, &ways);
        }
    }
    end(a, known, &ways);
}

/// Enters the flow of a frame into a free place of its set, if there is one; goes on at `through`.
/// Only what has proved its source comes here, so a flood fills nothing; what the worker does not
/// confirm is swept out.
pub(super) fn mark_established(a: &mut Assembler, known: &KnownFields<'_>, through: Label) {
    let (printed, v6) = (a.label(), a.label());
    frame(a);
    reach(a, V4_PORTS + 4, through);
    a.load(AccessSize::Half, Register::R1, Register::R7, ETHERTYPE_AT).jump_if(
        Register::R1,
        JumpCondition::Equal,
        wire(0x86dd),
        v6,
    );
    print(a, known, &V4_WORDS);
    a.jump(printed);
    a.place(v6);
    reach(a, V6_PORTS + 4, through);
    print(a, known, &V6_WORDS);
    a.place(printed);
    a.copy(Register::R1, Register::R8).compute(Register::R1, Operation::ShiftRight, 32).compute(
        Register::R1,
        Operation::And,
        SETS as i32 - 1,
    );
    look_up(a, known.established, through);
    for way in 0..SET_WAYS {
        let (next, entry) = (a.label(), way * ENTRY_WORDS);
        a.load(AccessSize::Double, Register::R1, Register::R0, word(entry))
            .jump_if_reg(Register::R1, JumpCondition::Equal, Register::R8, through)
            .jump_if(Register::R1, JumpCondition::Differs, 0, next)
            .store_value(AccessSize::Double, Register::R0, word(entry + USED), 0)
            .store_value(
                AccessSize::Double,
                Register::R0,
                word(entry + GRANTED),
                TOKENS_AT_REST as i32,
            )
            .store(AccessSize::Double, Register::R0, word(entry), Register::R8)
            .jump(through);
        a.place(next);
    }
    a.jump(through);
}

/// The frame from `R7` to `R8`.
fn frame(a: &mut Assembler) {
    a.load(AccessSize::Word, Register::R7, Register::R6, DATA).load(
        AccessSize::Word,
        Register::R8,
        Register::R6,
        DATA_END,
    );
}
