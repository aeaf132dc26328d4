//! The program that challenges sources of datagrams which nothing has proven yet.
//!
//! Called by tail call from `datagram.rs`, for ports with a protocol that has a challenge.
//! Datagrams of proven sources pass. Of others so many pass as the settings allow in a window of
//! 134 ms; beyond that a question is answered with a challenge, and what is no question is dropped.
//! DNS: the same message, truncated, so that the client asks again by TCP, which proves it
//! (`source.rs`). A2S: the protocol's own challenge, a keyed hash of the address, the port and the
//! time; a query that returns it proves its source.
//!
//! An answer is never longer than its question. Not checked: the question's UDP checksum, which a
//! veth leaves unfinished; a client compares what comes back with what it asked.

use super::tables::{DatagramProtocol, HostSettings, Tally};
use super::{
    DROP, HostMaps, PASS, TRANSMIT, begin, count, ends, find_frame, own, refuse, reply, source,
    spot,
};
use crate::cookie::segment::{SegmentFamily, families, reach};
use crate::cookie::{at, stack};
use crate::siphash::{self, CAREFUL};
use crate::{AccessSize, Assembler, Function, JumpCondition, Label, Operation, Register};

/// Bytes of a UDP header.
pub(super) const UDP_BYTES: i16 = 8;
/// What a query without a token has in its place.
const NO_TOKEN: i32 = -1;
/// A token is good for this power of two of nanoseconds (69 s), and as long again.
const TOKEN_UNIT: i32 = 36;
/// The window in which datagrams of unproven sources are counted: 134 ms.
const COUNT_WINDOW_LOG2: i32 = 27;
/// Kinds of queries: information, players, rules.
const QUERY_INFORMATION: i32 = 0x54;
const QUERY_PLAYERS: i32 = 0x55;
const QUERY_RULES: i32 = 0x56;
/// Bytes of UDP datagrams: players and rules, information without and with a token.
const PLAYERS_QUERY_LEN: i32 = 17;
const INFORMATION_QUERY_LEN: i32 = 33;
const INFORMATION_TOKEN_LEN: i32 = 37;
/// What a query for information says behind its kind.
const INFORMATION_TEXT: &[u8; 20] = b"Source Engine Query\0";

/// Writes the program. `R1` is the context.
pub fn challenge_source(a: &mut Assembler, maps: &HostMaps) {
    let [pass, proven, refused, addressed, over, answered, broken] =
        core::array::from_fn(|_| a.label());
    begin(a, maps, pass);
    a.call(Function::BootNanos)
        .store(AccessSize::Double, Register::R9, at::NOW, Register::R0)
        .store_value(AccessSize::Word, Register::R9, own::IS_QUERY, 0);
    for (family, label) in SegmentFamily::BOTH.into_iter().zip(families(a, pass)) {
        let other = a.label();
        a.place(label);
        source::address(a, family, pass);
        a.load(AccessSize::Word, Register::R1, Register::R9, own::PROTOCOL).jump_if(
            Register::R1,
            JumpCondition::Differs,
            DatagramProtocol::A2s as i32,
            other,
        );
        query(a, family, other);
        a.place(other);
        a.jump(addressed);
    }
    a.place(addressed);
    source::find(a, maps, pass);
    source::is_proven(a, proven);
    token(a, proven);
    within_budget(a, over);
    a.place(proven);
    count(a, Tally::Datagrams);
    a.jump(pass);
    a.place(over);
    find_frame(a, refused);
    let v6 = a.label();
    a.load(AccessSize::Word, Register::R1, Register::R9, own::FAMILY).jump_if(
        Register::R1,
        JumpCondition::Equal,
        6,
        v6,
    );
    for family in SegmentFamily::BOTH {
        let dns = a.label();
        if family == SegmentFamily::V6 {
            a.place(v6);
        }
        reply::may_answer(a, maps, family, refused);
        a.load(AccessSize::Word, Register::R1, Register::R9, own::PROTOCOL)
            .jump_if(Register::R1, JumpCondition::Equal, DatagramProtocol::Dns as i32, dns)
            .load(AccessSize::Word, Register::R1, Register::R9, own::IS_QUERY)
            .jump_if(Register::R1, JumpCondition::Equal, 0, refused);
        reply::token(a, family, refused);
        reply::cut(a, family, broken);
        a.jump(answered);
        a.place(dns);
        reply::truncated(a, family, refused);
        a.jump(answered);
    }
    a.place(refused);
    refuse(a, maps, Tally::Unproven);
    a.place(answered);
    count(a, Tally::Challenged);
    a.set(Register::R0, TRANSMIT).exit();
    ends(a, &[(pass, PASS), (broken, DROP)]);
}

/// Whether it is a query, and the token that it returns; goes to `other` where it is none.
fn query(a: &mut Assembler, family: SegmentFamily, other: Label) {
    let (l4, short, found) = (family.l4(), a.label(), a.label());
    let data = l4 + UDP_BYTES;
    reach(a, l4 + PLAYERS_QUERY_LEN as i16, other);
    a.load(AccessSize::Word, Register::R2, Register::R7, data)
        .jump_if_word(Register::R2, JumpCondition::Differs, u32::MAX, other)
        .load(AccessSize::Half, Register::R1, Register::R7, l4 + 4)
        .read_wire(Register::R1)
        .load(AccessSize::Byte, Register::R2, Register::R7, data + 4)
        .jump_if(Register::R2, JumpCondition::Equal, QUERY_PLAYERS, short)
        .jump_if(Register::R2, JumpCondition::Equal, QUERY_RULES, short)
        .jump_if(Register::R2, JumpCondition::Differs, QUERY_INFORMATION, other);
    reach(a, l4 + INFORMATION_QUERY_LEN as i16, other);
    for (word, at) in INFORMATION_TEXT.chunks_exact(4).zip((data + 5..).step_by(4)) {
        let word = word.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
        a.load(AccessSize::Word, Register::R2, Register::R7, at).jump_if_word(
            Register::R2,
            JumpCondition::Differs,
            word,
            other,
        );
    }
    a.set(Register::R2, NO_TOKEN)
        .jump_if(Register::R1, JumpCondition::Equal, INFORMATION_QUERY_LEN, found)
        .jump_if(Register::R1, JumpCondition::Differs, INFORMATION_TOKEN_LEN, other);
    reach(a, l4 + INFORMATION_TOKEN_LEN as i16, other);
    a.load(AccessSize::Word, Register::R2, Register::R7, data + 25).jump(found);
    a.place(short);
    a.jump_if(Register::R1, JumpCondition::Differs, PLAYERS_QUERY_LEN, other).load(
        AccessSize::Word,
        Register::R2,
        Register::R7,
        data + 5,
    );
    a.place(found);
    a.store(AccessSize::Word, Register::R9, own::TOKEN, Register::R2)
        .store_value(AccessSize::Word, Register::R9, own::IS_QUERY, 1)
        // The source's port is a part of what is proven.
        .load(AccessSize::Half, Register::R1, Register::R7, l4)
        .store(AccessSize::Double, Register::R9, at::WORDS + 40, Register::R1);
}

/// Makes the tokens of the last and the present time for a query; goes to `proven`, with the proof
/// written, where one of them was returned. `R7` are the settings.
fn token(a: &mut Assembler, proven: Label) {
    let (none, right) = (a.label(), a.label());
    a.load(AccessSize::Word, Register::R1, Register::R9, own::IS_QUERY).jump_if(
        Register::R1,
        JumpCondition::Equal,
        0,
        none,
    );
    let words = [0, 8, 32].map(|word| (Register::R9, at::WORDS + word));
    for back in [1, 0] {
        a.load(AccessSize::Double, Register::R1, Register::R9, at::NOW)
            .compute(Register::R1, Operation::ShiftRight, TOKEN_UNIT)
            .add(Register::R1, -back)
            .compute(Register::R1, Operation::ShiftLeft, 16)
            .load(AccessSize::Double, Register::R2, Register::R9, at::WORDS + 40)
            .compute_reg(Register::R1, Operation::Or, Register::R2)
            .store(AccessSize::Double, Register::R9, at::WORDS + 32, Register::R1);
        siphash::emit(a, CAREFUL, (Register::R7, HostSettings::SECRET), &words);
        // Never what stands for none, nor 0.
        a.copy_word(Register::R1, Register::R0)
            .compute(Register::R1, Operation::And, 0x7fff_ffff)
            .compute(Register::R1, Operation::Or, 1)
            .store(AccessSize::Word, Register::R9, own::TOKEN_NOW, Register::R1)
            .load(AccessSize::Word, Register::R2, Register::R9, own::TOKEN)
            .jump_if_reg(Register::R1, JumpCondition::Equal, Register::R2, right);
    }
    a.jump(none);
    a.place(right);
    source::mark(a);
    count(a, Tally::SourceProven);
    a.jump(proven);
    a.place(none);
}

/// Counts the datagram of an unproven source; goes to `over` where there are too many.
fn within_budget(a: &mut Assembler, over: Label) {
    let same = a.label();
    a.load(AccessSize::Double, Register::R1, Register::R10, stack::DESK)
        .load(AccessSize::Double, Register::R2, Register::R9, at::NOW)
        .compute(Register::R2, Operation::ShiftRight, COUNT_WINDOW_LOG2)
        .load(AccessSize::Double, Register::R3, Register::R1, Tally::Window.offset())
        .jump_if_reg(Register::R2, JumpCondition::Equal, Register::R3, same)
        .store(AccessSize::Double, Register::R1, Tally::Window.offset(), Register::R2)
        .store_value(AccessSize::Double, Register::R1, Tally::Syns.offset(), 0);
    a.place(same);
    a.load(AccessSize::Double, Register::R2, Register::R1, Tally::Syns.offset())
        .load(AccessSize::Double, Register::R3, Register::R10, spot::SETTINGS)
        .load(AccessSize::Double, Register::R3, Register::R3, HostSettings::UNPROVEN)
        .jump_if_reg(Register::R2, JumpCondition::AtLeast, Register::R3, over)
        .add(Register::R2, 1)
        .store(AccessSize::Double, Register::R1, Tally::Syns.offset(), Register::R2);
}
