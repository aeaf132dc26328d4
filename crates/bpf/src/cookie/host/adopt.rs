//! The program at tc ingress that has the kernel make the connections which cookies proved.
//!
//! Attached by a tcx link. A packet without our note leaves after one comparison. With it the
//! listener is looked up again and `bpf_sk_assign_tcp_reqsk` gives the packet a request socket; the
//! kernel goes on as with its own cookies. In front of the driver's stack (generic XDP) the packet
//! begins at its network header here, and the window of metadata is off by the link header: the
//! note is looked for at both places.

use super::prove::{ECN, SACK, SCALING, TIMESTAMPS};
use super::tables::Tally;
use super::{HostMaps, LISTENING, MAGIC, META_BYTES, NOTE, OWN_NAMESPACE, SOCKET_STATE, spot};
use crate::cookie::segment::{L3, SegmentFamily, TCP_BYTES, wire};
use crate::cookie::{look_up, stack};
use crate::{AccessSize, Assembler, Function, JumpCondition, Label, Operation, Register, Width};

/// The verdict that goes on.
const VERDICT_NEXT: i32 = -1;
/// Fields of the context.
const PROTOCOL: i16 = 16;
const DATA: i16 = 76;
const DATA_END: i16 = 80;
const DATA_META: i16 = 140;
/// The note, on the stack, and the attributes of the request.
const COPY: i16 = -128;
const ATTRIBUTES: i16 = -152;
const ATTRIBUTE_BYTES: i32 = 20;
/// Where the result waits.
const RESULT: i16 = -160;

/// Writes the program. `R1` is the context; `assign` is the number of `bpf_sk_assign_tcp_reqsk` in
/// the kernel's BTF.
pub fn adopt(a: &mut Assembler, maps: &HostMaps, assign: u32) {
    let [next, gone, native, generic, found, v6, listens] = core::array::from_fn(|_| a.label());
    a.copy(Register::R6, Register::R1)
        .load(AccessSize::Word, Register::R7, Register::R6, DATA)
        .load(AccessSize::Word, Register::R9, Register::R6, DATA_META)
        .copy(Register::R3, Register::R9)
        .add(Register::R3, i32::from(META_BYTES))
        .jump_if_reg(Register::R3, JumpCondition::Above, Register::R7, next)
        .load(AccessSize::Word, Register::R8, Register::R6, DATA_END);
    for (at, to) in [(NOTE, native), (NOTE - L3, generic)] {
        a.load(AccessSize::Word, Register::R1, Register::R9, at)
            .compute(Register::R1, Operation::ShiftRight, 8)
            .jump_if(Register::R1, JumpCondition::Equal, MAGIC, to);
    }
    a.jump(next);
    a.place(native);
    copy_note(a, NOTE);
    a.add(Register::R7, i32::from(L3)).jump(found);
    a.place(generic);
    copy_note(a, NOTE - L3);
    a.place(found);
    a.load(AccessSize::Word, Register::R1, Register::R10, COPY).compute(
        Register::R1,
        Operation::And,
        0xff,
    );
    look_up(a, maps.tallies, next);
    a.store(AccessSize::Double, Register::R10, stack::DESK, Register::R0);
    attributes(a);
    a.load(AccessSize::Word, Register::R1, Register::R6, PROTOCOL)
        .jump_if(Register::R1, JumpCondition::Equal, wire(0x86dd), v6)
        .jump_if(Register::R1, JumpCondition::Differs, wire(0x0800), gone);
    for family in SegmentFamily::BOTH {
        if family == SegmentFamily::V6 {
            a.place(v6);
        }
        find(a, family, gone);
        a.jump(listens);
    }
    a.place(listens);
    assign_request(a, assign);
    a.place(gone);
    super::count(a, Tally::NotAdopted);
    a.place(next);
    a.set(Register::R0, VERDICT_NEXT).exit();
}

fn copy_note(a: &mut Assembler, from: i16) {
    for word in (0..NOTE).step_by(4) {
        a.load(AccessSize::Word, Register::R1, Register::R9, from + word).store(
            AccessSize::Word,
            Register::R10,
            COPY + word,
            Register::R1,
        );
    }
}

/// `struct bpf_tcp_req_attrs` from the note.
fn attributes(a: &mut Assembler) {
    for (from, to) in [(8, 0), (12, 4)] {
        a.load(AccessSize::Word, Register::R1, Register::R10, COPY + from)
            .wire(Register::R1, Width::Word)
            .store(AccessSize::Word, Register::R10, ATTRIBUTES + to, Register::R1);
    }
    a.load(AccessSize::Word, Register::R1, Register::R10, COPY + 4).store(
        AccessSize::Half,
        Register::R10,
        ATTRIBUTES + 8,
        Register::R1,
    );
    let fields = [
        (16, 0xf, 10),
        (20, 0xf, 11),
        (24, ECN, 12),
        (24, SCALING, 13),
        (24, SACK, 14),
        (24, TIMESTAMPS, 15),
    ];
    for (shift, mask, to) in fields {
        a.copy(Register::R2, Register::R1)
            .compute(Register::R2, Operation::ShiftRight, shift)
            .compute(Register::R2, Operation::And, mask);
        if shift == 24 && mask > 1 {
            a.compute(Register::R2, Operation::ShiftRight, mask.trailing_zeros().cast_signed());
        }
        a.store(AccessSize::Byte, Register::R10, ATTRIBUTES + to, Register::R2);
    }
    a.store_value(AccessSize::Word, Register::R10, ATTRIBUTES + 16, 0);
}

/// Looks the packet's socket up again; goes to `gone` where there is none.
fn find(a: &mut Assembler, family: SegmentFamily, gone: Label) {
    let (source, l4) = (family.addresses().0 - L3, family.l4() - L3);
    a.copy(Register::R3, Register::R7)
        .add(Register::R3, i32::from(l4 + TCP_BYTES))
        .jump_if_reg(Register::R3, JumpCondition::Above, Register::R8, gone)
        .copy(Register::R1, Register::R6)
        .copy(Register::R2, Register::R7)
        .add(Register::R2, i32::from(source))
        .set(Register::R3, i32::from(l4 - source + 4))
        .set(Register::R4, OWN_NAMESPACE)
        .set(Register::R5, 0)
        .call(Function::LookupTcp)
        .jump_if(Register::R0, JumpCondition::Equal, 0, gone);
}

/// Gives the packet a request socket of the listener in `R0`; goes on where it could not. Where
/// there is a connection already the packet is the kernel's: an ACK that was sent again, or the
/// second of two that came on two cores.
fn assign_request(a: &mut Assembler, assign: u32) {
    let (release, connected) = (a.label(), a.label());
    a.store(AccessSize::Double, Register::R10, spot::SOCKET, Register::R0)
        .store_value(AccessSize::Double, Register::R10, RESULT, -1)
        .load(AccessSize::Word, Register::R1, Register::R0, SOCKET_STATE)
        .jump_if(Register::R1, JumpCondition::Differs, LISTENING, connected)
        .copy(Register::R1, Register::R0)
        .call(Function::ToTcpSocket)
        .jump_if(Register::R0, JumpCondition::Equal, 0, release)
        .copy(Register::R1, Register::R6)
        .copy(Register::R2, Register::R0)
        .copy(Register::R3, Register::R10)
        .add(Register::R3, i32::from(ATTRIBUTES))
        .set(Register::R4, ATTRIBUTE_BYTES)
        .call_kernel(assign)
        .store(AccessSize::Double, Register::R10, RESULT, Register::R0);
    a.place(release);
    a.load(AccessSize::Double, Register::R1, Register::R10, spot::SOCKET).call(Function::Release);
    let failed: Label = a.label();
    a.load(AccessSize::Double, Register::R1, Register::R10, RESULT).jump_if_word(
        Register::R1,
        JumpCondition::Differs,
        0,
        failed,
    );
    super::count(a, Tally::Adopted);
    a.set(Register::R0, VERDICT_NEXT).exit();
    a.place(connected);
    a.load(AccessSize::Double, Register::R1, Register::R10, spot::SOCKET).call(Function::Release);
    a.set(Register::R0, VERDICT_NEXT).exit();
    a.place(failed);
}
