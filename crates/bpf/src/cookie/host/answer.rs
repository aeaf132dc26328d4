//! The program that answers SYNs for the kernel's listeners.
//!
//! Called by tail call from `classify.rs`, which has left the listener's offer, the clock and the
//! filter of own addresses in the scratch value.
//! A SYN that no cookie can stand for goes to the kernel: a signature, a segment size below what
//! the kernel lets a cookie have, an implausible source. Timestamps tick in milliseconds, as the
//! kernel's do, which goes on from what comes back.

use super::keys;
use super::listener::LEAST_MSS;
use super::tables::{LEFT_MAX, NO_SCALING, Tally};
use super::{DROP, HostMaps, PASS, TRANSMIT, begin, count, ends, own, refuse};
use crate::cookie::segment::{OwnAddresses, SegmentFamily, families, header_sum, read, source};
use crate::cookie::syn::{self, SynWays};
use crate::cookie::tables::{KeyTable, Offer};
use crate::cookie::{answer, at, find_epoch, options, stack};
use crate::{AccessSize, Assembler, JumpCondition, Label, Operation, Register};

/// Writes the program. `R1` is the context.
pub fn answer_syn(a: &mut Assembler, maps: &HostMaps) {
    let inner = maps.inner();
    let (pass, left, ready, derive) = (a.label(), a.label(), a.label(), a.label());
    let ways = SynWays { answered: a.label(), asleep: pass, left, broken: a.label() };
    begin(a, maps, pass);
    keys::turn(a, maps, derive, left);
    find_epoch(a, &inner, left);
    milliseconds(a);
    for (family, label) in SegmentFamily::BOTH.into_iter().zip(families(a, left)) {
        a.place(label);
        read(a, family, left, zone);
        if family == SegmentFamily::V4 {
            header_sum(a, left);
        }
        let own = OwnAddresses { map: maps.addresses, filter: Some(own::OWN_FILTER) };
        source(a, family, Some(own), left);
        syn::flags(a, family, left);
        a.jump(ready);
    }
    a.place(ready);
    options::walk(a, left);
    acceptable(a, left);
    syn::agree(a);
    let v6 = a.label();
    a.load(AccessSize::Word, Register::R1, Register::R9, at::FAMILY).jump_if(
        Register::R1,
        JumpCondition::Equal,
        6,
        v6,
    );
    for family in SegmentFamily::BOTH {
        if family == SegmentFamily::V6 {
            a.place(v6);
        }
        syn::make(a, &inner, family, left);
        answer::write(a, &maps.inner(), family, (&ways, left));
    }
    a.place(left);
    let refused = a.label();
    a.load(AccessSize::Double, Register::R1, Register::R10, stack::DESK)
        .load(AccessSize::Double, Register::R2, Register::R1, Tally::LeftInWindow.offset())
        .jump_if(Register::R2, JumpCondition::AtLeast, LEFT_MAX as i32, refused);
    count(a, Tally::LeftInWindow);
    count(a, Tally::Left);
    a.jump(pass);
    a.place(refused);
    refuse(a, maps, Tally::LeftRefused);
    ends(a, &[(pass, PASS), (ways.broken, DROP), (ways.answered, TRANSMIT)]);
    keys::derive(a, maps, derive);
}

/// The number of the link in `R3`.
pub(super) fn zone(a: &mut Assembler) {
    a.load(AccessSize::Double, Register::R3, Register::R10, stack::HEADER).load(
        AccessSize::Double,
        Register::R3,
        Register::R3,
        KeyTable::ZONE_OFFSET,
    );
}

/// Converts the clock in the scratch value: 2^20 units are one millisecond afterwards.
fn milliseconds(a: &mut Assembler) {
    a.load(AccessSize::Double, Register::R1, Register::R9, at::NOW)
        .compute(Register::R1, Operation::Divide, 1_000_000)
        .compute(Register::R1, Operation::ShiftLeft, 20)
        .store(AccessSize::Double, Register::R9, at::NOW, Register::R1);
}

/// Goes to `left` with options that the kernel takes from no cookie, and forgets a scale where none
/// is to be said.
fn acceptable(a: &mut Assembler, left: Label) {
    let (v6, sized, done) = (a.label(), a.label(), a.label());
    a.load(AccessSize::Word, Register::R1, Register::R9, at::SEEN)
        .jump_if(Register::R1, JumpCondition::Meets, options::SAID_SIGNATURE, left)
        .load(AccessSize::Word, Register::R2, Register::R9, at::MSS)
        .load(AccessSize::Word, Register::R1, Register::R9, at::FAMILY)
        .jump_if(Register::R1, JumpCondition::Equal, 6, v6)
        .jump_if(Register::R2, JumpCondition::Below, LEAST_MSS.0, left)
        .jump(sized);
    a.place(v6);
    a.jump_if(Register::R2, JumpCondition::Below, LEAST_MSS.1, left);
    a.place(sized);
    a.load(AccessSize::Double, Register::R1, Register::R9, at::OFFER)
        .compute(Register::R1, Operation::ShiftRight, Offer::FLAGS_SHIFT)
        .compute(Register::R1, Operation::And, (NO_SCALING >> Offer::FLAGS_SHIFT) as i32)
        .jump_if(Register::R1, JumpCondition::Equal, 0, done)
        .store_value(AccessSize::Word, Register::R9, at::SCALE, options::NO_SCALE);
    a.place(done);
}
