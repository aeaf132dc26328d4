//! The program at the interface: which segments are to be judged.
//!
//! Attached as XDP. Frames of other ports cost one look-up in an array, segments of connections
//! that exist one in the kernel's socket table. What is not plain (IPv4 options, fragments,
//! extension headers, more than one VLAN tag) passes. Of a listener's segments SYNs and ACKs go on
//! to the other programs, the rest is dropped: it belongs to no connection.

use super::listener;
use super::tables::{HostSettings, PROTOCOL_SHIFT, PROVES_SHIFT, Tally};
use super::{
    HostMaps, LISTENING, ListenerFields, OWN_NAMESPACE, PASS, Program, SOCKET_STATE, count, ends,
    own, refuse, spot,
};
use crate::cookie::segment::{L3, SegmentFamily, TCP_BYTES, reach, wire};
use crate::cookie::{DATA, DATA_END, look_up, stack};
use crate::{AccessSize, Assembler, Function, JumpCondition, Label, Operation, Register};

const TCP: i32 = 6;
const UDP: i32 = 17;
const UDP_BYTES: i16 = 8;
const SYN: i32 = 0x02;
const ACK: i32 = 0x10;
/// A state of the kernel's sockets.
const ESTABLISHED: i32 = 1;

/// Where a frame leaves.
struct Ways {
    pass: Label,
    /// The socket on the stack is to be released first.
    release: Label,
    /// It is a connection's.
    established: Label,
}

/// Writes the program. `R1` is the context.
pub fn classify(a: &mut Assembler, maps: &HostMaps, fields: &ListenerFields) {
    let ways = Ways { pass: a.label(), release: a.label(), established: a.label() };
    let listens = a.label();
    a.copy(Register::R6, Register::R1)
        .load(AccessSize::Word, Register::R7, Register::R6, DATA)
        .load(AccessSize::Word, Register::R8, Register::R6, DATA_END);
    for (family, label) in SegmentFamily::BOTH.into_iter().zip(tag(a, ways.pass)) {
        a.place(label);
        segment(a, maps, family, &ways);
        a.jump(listens);
    }
    a.place(listens);
    listener::read(a, maps, fields, ways.release);
    judge(a, maps, &ways);
    a.place(ways.established);
    established(a, maps, &ways);
    a.place(ways.release);
    a.load(AccessSize::Double, Register::R1, Register::R10, spot::SOCKET).call(Function::Release);
    ends(a, &[(ways.pass, PASS)]);
}

/// Steps over one VLAN tag; goes on where the code of the frame's family is.
fn tag(a: &mut Assembler, pass: Label) -> [Label; 2] {
    let (tagged, plain, v4, v6) = (a.label(), a.label(), a.label(), a.label());
    reach(a, L3, pass);
    a.store_value(AccessSize::Word, Register::R10, spot::TAG, 0)
        .load(AccessSize::Half, Register::R1, Register::R7, L3 - 2)
        .jump_if(Register::R1, JumpCondition::Equal, wire(0x8100), tagged)
        .jump_if(Register::R1, JumpCondition::Differs, wire(0x88a8), plain);
    a.place(tagged);
    reach(a, L3 + 4, pass);
    a.store_value(AccessSize::Word, Register::R10, spot::TAG, 4).add(Register::R7, 4).load(
        AccessSize::Half,
        Register::R1,
        Register::R7,
        L3 - 2,
    );
    a.place(plain);
    a.jump_if(Register::R1, JumpCondition::Equal, wire(0x0800), v4)
        .jump_if(Register::R1, JumpCondition::Equal, wire(0x86dd), v6)
        .jump(pass);
    [v4, v6]
}

/// Goes on with a segment of a listener at a protected port: the socket and what else is known on
/// the stack.
fn segment(a: &mut Assembler, maps: &HostMaps, family: SegmentFamily, ways: &Ways) {
    let (l4, tcp) = (family.l4(), a.label());
    reach(a, l4 + UDP_BYTES, ways.pass);
    match family {
        SegmentFamily::V4 => a
            .load(AccessSize::Byte, Register::R1, Register::R7, L3)
            .jump_if(Register::R1, JumpCondition::Differs, 0x45, ways.pass)
            .load(AccessSize::Half, Register::R1, Register::R7, L3 + 6)
            .jump_if(Register::R1, JumpCondition::Meets, wire(0x3fff), ways.pass)
            .load(AccessSize::Byte, Register::R1, Register::R7, L3 + 9),
        SegmentFamily::V6 => a.load(AccessSize::Byte, Register::R1, Register::R7, L3 + 6),
    };
    a.jump_if(Register::R1, JumpCondition::Equal, TCP, tcp).jump_if(
        Register::R1,
        JumpCondition::Differs,
        UDP,
        ways.pass,
    );
    datagram(a, maps, family, ways.pass);
    a.place(tcp);
    reach(a, l4 + TCP_BYTES, ways.pass);
    a.load(AccessSize::Half, Register::R1, Register::R7, l4 + 2).read_wire(Register::R1);
    look_up(a, maps.ports, ways.pass);
    a.load(AccessSize::Double, Register::R1, Register::R0, 0)
        .copy(Register::R2, Register::R1)
        .compute(Register::R2, Operation::ShiftRight, PROVES_SHIFT)
        .store(AccessSize::Word, Register::R10, spot::PROVES, Register::R2)
        .compute(Register::R1, Operation::And, 0xff)
        .jump_if(Register::R1, JumpCondition::Equal, 0, ways.pass)
        .store(AccessSize::Word, Register::R10, spot::PORT, Register::R1)
        .load(AccessSize::Byte, Register::R1, Register::R7, l4 + 13)
        .store(AccessSize::Word, Register::R10, spot::FLAGS, Register::R1)
        .store_value(AccessSize::Word, Register::R10, spot::FAMILY, family.number());
    find(a, family);
    a.jump_if(Register::R0, JumpCondition::Equal, 0, ways.pass)
        .store(AccessSize::Double, Register::R10, spot::SOCKET, Register::R0)
        .load(AccessSize::Word, Register::R1, Register::R0, SOCKET_STATE)
        .jump_if(Register::R1, JumpCondition::Equal, ESTABLISHED, ways.established)
        .jump_if(Register::R1, JumpCondition::Differs, LISTENING, ways.release);
}

/// A segment of a connection: its source is noted where that proves it for datagrams.
fn established(a: &mut Assembler, maps: &HostMaps, ways: &Ways) {
    a.load(AccessSize::Word, Register::R1, Register::R10, spot::PROVES)
        .jump_if(Register::R1, JumpCondition::Equal, 0, ways.release)
        .load(AccessSize::Double, Register::R1, Register::R10, spot::SOCKET)
        .call(Function::Release)
        .set(Register::R1, 0);
    look_up(a, maps.scratch, ways.pass);
    keep(a, &[(spot::PORT, own::PORT), (spot::TAG, own::TAG)]);
    a.tail_call(Register::R6, maps.programs, Program::Remember as i32).jump(ways.pass);
}

/// Words of the stack into the scratch value in `R0`.
fn keep(a: &mut Assembler, words: &[(i16, i16)]) {
    for (from, to) in words {
        a.load(AccessSize::Word, Register::R1, Register::R10, *from).store(
            AccessSize::Word,
            Register::R0,
            *to,
            Register::R1,
        );
    }
}

/// Goes on with the program for datagrams where the port is protected.
fn datagram(a: &mut Assembler, maps: &HostMaps, family: SegmentFamily, pass: Label) {
    a.load(AccessSize::Half, Register::R1, Register::R7, family.l4() + 2).read_wire(Register::R1);
    look_up(a, maps.ports, pass);
    a.load(AccessSize::Double, Register::R1, Register::R0, 0)
        .copy(Register::R2, Register::R1)
        .compute(Register::R2, Operation::ShiftRight, PROTOCOL_SHIFT)
        .compute(Register::R2, Operation::And, 0xff)
        .store(AccessSize::Word, Register::R10, spot::FLAGS, Register::R2)
        .compute(Register::R1, Operation::ShiftRight, 8)
        .compute(Register::R1, Operation::And, 0xff)
        .jump_if(Register::R1, JumpCondition::Equal, 0, pass)
        .store(AccessSize::Word, Register::R10, spot::PORT, Register::R1)
        .set(Register::R1, 0);
    look_up(a, maps.scratch, pass);
    keep(a, &[(spot::PORT, own::PORT), (spot::TAG, own::TAG), (spot::FLAGS, own::PROTOCOL)]);
    a.tail_call(Register::R6, maps.programs, Program::Share as i32).jump(pass);
}

/// Asks the kernel for the socket of the segment: `R0`, or 0. Addresses and ports lie one behind
/// the other as the kernel wants them.
fn find(a: &mut Assembler, family: SegmentFamily) {
    let (source, _) = family.addresses();
    a.copy(Register::R1, Register::R6)
        .copy(Register::R2, Register::R7)
        .add(Register::R2, i32::from(source))
        .set(Register::R3, i32::from(family.l4() - source + 4))
        .set(Register::R4, OWN_NAMESPACE)
        .set(Register::R5, 0)
        .call(Function::LookupTcp);
}

/// What becomes of a listener's segment.
fn judge(a: &mut Assembler, maps: &HostMaps, ways: &Ways) {
    let (syn, ack, single) = (a.label(), a.label(), a.label());
    a.load(AccessSize::Word, Register::R1, Register::R9, own::PORT);
    look_up(a, maps.tallies, ways.pass);
    a.store(AccessSize::Double, Register::R10, stack::DESK, Register::R0)
        .load(AccessSize::Word, Register::R1, Register::R9, own::IS_MPTCP)
        .jump_if(Register::R1, JumpCondition::Equal, 0, single);
    count(a, Tally::Multipath);
    a.jump(ways.pass);
    a.place(single);
    a.set(Register::R1, 0);
    look_up(a, maps.settings, ways.pass);
    a.copy(Register::R7, Register::R0)
        .load(AccessSize::Double, Register::R1, Register::R7, HostSettings::MODE)
        .jump_if(Register::R1, JumpCondition::Meets, HostSettings::PAUSED, ways.pass);
    listener::offer(a, ways.pass);
    a.load(AccessSize::Word, Register::R1, Register::R9, own::FLAGS)
        .copy(Register::R2, Register::R1)
        .compute(Register::R2, Operation::And, 0x17)
        .jump_if(Register::R2, JumpCondition::Equal, SYN, syn)
        .compute(Register::R1, Operation::And, 0x16)
        .jump_if(Register::R1, JumpCondition::Equal, ACK, ack);
    refuse(a, maps, Tally::Stray);
    a.place(syn);
    a.load(AccessSize::Double, Register::R1, Register::R7, HostSettings::MODE)
        .jump_if(Register::R1, JumpCondition::Meets, HostSettings::ENDING, ways.pass)
        .load(AccessSize::Double, Register::R1, Register::R7, HostSettings::OWN_FILTER)
        .store(AccessSize::Double, Register::R9, own::OWN_FILTER, Register::R1);
    listener::awake(a, ways.pass);
    let room = a.label();
    a.load(AccessSize::Word, Register::R1, Register::R9, own::ACK_BACKLOG)
        .load(AccessSize::Word, Register::R2, Register::R9, own::MAX_ACK_BACKLOG)
        .jump_if_reg(Register::R1, JumpCondition::AtMost, Register::R2, room);
    refuse(a, maps, Tally::Full);
    a.place(room);
    a.tail_call(Register::R6, maps.programs, Program::Answer as i32).jump(ways.pass);
    a.place(ack);
    a.tail_call(Register::R6, maps.programs, Program::Prove as i32).jump(ways.pass);
}
