//! What the guard adds to the programs for SYNs and ACKs: what becomes of a frame that they left
//! alone, and how a flow is made known.
//!
//! Called by `cookies.rs` while it assembles. A frame that comes here is TCP's, of no known flow;
//! under pressure it has the same credit and is asked the same questions as in `code.rs`, without
//! pressure it goes to the socket. `R6` is the context.

use floodwall_bpf::{Assembler, Does, Label, Reg, Size, When};

use super::code::{
    Known, V4_PORTS, V4_WORDS, V6_PORTS, V6_WORDS, Ways, credit, destination, end, look_up, print,
    reach, wire, word,
};
use super::destination::port;
use super::{Kind, Refusal, SETS, WAYS};
use crate::af_xdp::steering::{DATA, DATA_END, RX_QUEUE};
use crate::af_xdp::wants::Any;

/// Where the kind of a frame is.
const TYPE: i16 = 12;

/// See the file's head. Frames that die end here; all others go on at `through`.
pub(super) fn emit(a: &mut Assembler, known: &Known<'_>, through: Label, is_syn: bool) {
    let (ways, v6) = (Ways::new(a, through), a.label());
    let kind = if is_syn { Kind::Plain } else { Kind::Segment };
    a.load(Size::Word, Reg::R1, Reg::R6, RX_QUEUE);
    look_up(a, known.desks, through);
    a.copy(Reg::R9, Reg::R0).load(Size::Double, Reg::R1, Reg::R9, 0).jump_if(
        Reg::R1,
        When::Equal,
        0,
        through,
    );
    frame(a);
    reach(a, V4_PORTS + 4, ways.other);
    credit(a, kind, &ways);
    a.load(Size::Half, Reg::R1, Reg::R7, TYPE).jump_if(Reg::R1, When::Equal, wire(0x86dd), v6);
    for (is_v6, ports) in [(false, V4_PORTS), (true, V6_PORTS)] {
        if is_v6 {
            a.place(v6);
            reach(a, ports + 4, ways.other);
        }
        destination(a, known, is_v6, &ways);
        port(a, &known.maps, ports, Any::Tcp, ways.refuse(Refusal::PortClosed));
        a.jump(ways.spend(kind));
    }
    end(a, &ways);
}

/// Enters the flow of a frame into a free place of its set, if there is one; goes on at `through`.
/// Only what has proved its source comes here, so a flood fills nothing; what the worker does not
/// confirm is swept out.
pub(super) fn befriend(a: &mut Assembler, known: &Known<'_>, through: Label) {
    let (printed, v6) = (a.label(), a.label());
    frame(a);
    reach(a, V4_PORTS + 4, through);
    a.load(Size::Half, Reg::R1, Reg::R7, TYPE).jump_if(Reg::R1, When::Equal, wire(0x86dd), v6);
    print(a, known, &V4_WORDS);
    a.jump(printed);
    a.place(v6);
    reach(a, V6_PORTS + 4, through);
    print(a, known, &V6_WORDS);
    a.place(printed);
    a.copy(Reg::R1, Reg::R8).compute(Reg::R1, Does::ShiftRight, 32).compute(
        Reg::R1,
        Does::And,
        SETS as i32 - 1,
    );
    look_up(a, known.friends, through);
    for way in 0..WAYS {
        let next = a.label();
        a.load(Size::Double, Reg::R1, Reg::R0, word(way))
            .jump_if_reg(Reg::R1, When::Equal, Reg::R8, through)
            .jump_if(Reg::R1, When::Differs, 0, next)
            .store(Size::Double, Reg::R0, word(way), Reg::R8)
            .jump(through);
        a.place(next);
    }
    a.jump(through);
}

/// The frame from `R7` to `R8`.
fn frame(a: &mut Assembler) {
    a.load(Size::Word, Reg::R7, Reg::R6, DATA).load(Size::Word, Reg::R8, Reg::R6, DATA_END);
}
