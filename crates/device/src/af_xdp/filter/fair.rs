//! `FairCredit`: how the credit for unverified flows is divided among services and senders.
//!
//! Emitted by `code.rs` and `behind.rs` for what would be admitted otherwise. A service is a
//! protocol and a destination port; a sender is the first 24 bits of an IPv4 source, or 64 of an
//! IPv6 one. In each turn of the worker a service has no more than a limit, and within it a prefix
//! no more than another, once the service has had half of its part. Both limits are the same for
//! all and follow the load: while the credit is nearly used up they fall, and else they rise, so
//! that a service or prefix that asks for less than the limit loses nothing, and what it leaves is
//! lent to the others (max-min shares). Limits that follow are too high in some turns, and the
//! credit is used up before the turn is over: then a service that has had next to nothing in this
//! turn goes on all the same, and half of the credit is the most that all of them have beyond it.
//! The last eighth of a service's part is kept for prefixes that have had nothing of it in this
//! turn. Invariant: a limit is never zero.
//!
//! # Under flood
//! Bound: [`SERVICES`] and [`PREFIXES`] counters a queue, of fixed size; services and prefixes find
//! theirs by keyed hashes that change with each turn, and those that meet in one share it for that
//! turn. Work per frame: six products and two look-ups. A flood from prefixes at random exhausts
//! the limit of its service before that of any prefix: a newcomer of the same service then loses as
//! the flood does.

use std::io;

use floodwall_bpf::{AccessSize, Assembler, JumpCondition, Operation, Register};

use super::desk::{
    DESK_BEYOND, DESK_GRANTED, DESK_NEAR, DESK_PREFIX_MAX, DESK_SERVICE_HIGH, DESK_SERVICE_LEAST,
    DESK_SERVICE_MAX, DESK_TURN, DESK_USED, FilterRefusal, ProgramKind,
};
use super::emit::{CodePaths, L3, look_up, word};
use crate::af_xdp::mapped_words::MappedWords;
use crate::af_xdp::xdp_abi::{DATA_END, RX_QUEUE};

/// Counters of a queue, as powers of two.
const SERVICES_LOG: i32 = 10;
pub(super) const PREFIXES_LOG: i32 = 12;
pub(super) const SERVICES: u32 = 1 << SERVICES_LOG;
pub(super) const PREFIXES: u32 = 1 << PREFIXES_LOG;
/// Words of a counter: the turn that it is of, and what was admitted in it.
pub(super) const COUNTER_WORDS: usize = 2;
const TURN_AT: i16 = 0;
pub(super) const USED: i16 = 8;
/// The stack slot of the service's hash.
const SERVICE_SLOT: i16 = -24;

/// The counters, which the program alone writes, and the key of their hashes.
#[derive(Debug)]
pub(super) struct FairCredit {
    services: MappedWords,
    prefixes: MappedWords,
    key: u64,
}

/// Where the program finds them.
#[derive(Clone, Copy)]
pub(super) struct FairMaps {
    pub(super) services: i32,
    pub(super) prefixes: i32,
    pub(super) key: u64,
}

impl FairCredit {
    pub(super) fn create(queues: u32, key: u64) -> io::Result<Self> {
        Ok(Self {
            services: MappedWords::create(COUNTER_WORDS, queues * SERVICES)?,
            prefixes: MappedWords::create(COUNTER_WORDS, queues * PREFIXES)?,
            key,
        })
    }

    pub(super) fn maps(&self) -> FairMaps {
        FairMaps { services: self.services.fd(), prefixes: self.prefixes.fd(), key: self.key }
    }
}

/// The limits of a queue, as parts of the credit in 1,024.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FairLimits {
    service: u32,
    prefix: u32,
    /// What was used and counted at the last turn.
    granted: u64,
    near: u64,
}

/// Less credit is not divided: what is left would be nothing.
const DIVIDED_MIN: u64 = 8;
pub(super) const WHOLE_SHARE: u32 = 1024;
const LEAST_SHARE: u32 = 4;

impl Default for FairLimits {
    fn default() -> Self {
        Self { service: WHOLE_SHARE, prefix: WHOLE_SHARE, granted: 0, near: 0 }
    }
}

/// A limit after a turn in which what it divides was nearly used up, or was not.
pub(super) fn follow(limit: u32, is_short: bool) -> u32 {
    match is_short {
        true => (limit * 3 / 4).max(LEAST_SHARE),
        false => (limit + limit / 8 + 1).min(WHOLE_SHARE),
    }
}

impl FairLimits {
    /// A turn is over in which `left` of `granted` credit was not used, and services have come near
    /// their limit `near` times since the start.
    pub(super) fn turn(&mut self, granted: u64, left: u64, near: u64) {
        self.service = follow(self.service, left < granted.div_ceil(8));
        self.prefix = follow(self.prefix, near != self.near);
        (self.granted, self.near) = (granted, near);
    }

    /// The limits of a service, how much of it is near, and of a prefix, for so much credit.
    pub(super) fn of(self, credit: u64) -> [u64; 3] {
        let part = |whole: u64, part: u32| match whole {
            0..=DIVIDED_MIN | u64::MAX => whole,
            _ => (whole.saturating_mul(part.into()) / u64::from(WHOLE_SHARE)).max(1),
        };
        let service = part(credit, self.service);
        [service, service - service / 8, part(service, self.prefix)]
    }
}

/// Of credit that is divided: what services that have had little may have beyond it, and how much
/// of it each of them.
pub(super) const fn beyond(credit: u64) -> [u64; 2] {
    match credit {
        0..=DIVIDED_MIN | u64::MAX => [0, 0],
        _ => [credit / 2, credit / 8],
    }
}

/// Drops a frame where the credit is used up, and what services with little have beyond it.
pub(super) fn credit(a: &mut Assembler, ways: &CodePaths) {
    let used = word(DESK_USED + ProgramKind::Plain as usize);
    a.load(AccessSize::Double, Register::R1, Register::R9, word(DESK_BEYOND))
        .load(AccessSize::Double, Register::R2, Register::R9, used)
        .jump_if_reg(
            Register::R2,
            JumpCondition::AtLeast,
            Register::R1,
            ways.refuse(FilterRefusal::Unknown),
        );
}

/// Emits the count of a frame with protocol and ports at these offsets: jumps to a refusal
/// where service or prefix has had its part. `R8` is the frame's end afterwards.
pub(super) fn emit(
    a: &mut Assembler,
    maps: &FairMaps,
    (is_v6, protocol, ports): (bool, i16, i16),
    ways: &CodePaths,
) {
    let far = 64;
    a.load(AccessSize::Byte, Register::R1, Register::R7, protocol)
        .compute(Register::R1, Operation::ShiftLeft, 16)
        .load(AccessSize::Half, Register::R2, Register::R7, ports + 2)
        .compute_reg(Register::R1, Operation::Or, Register::R2);
    multiply(a, maps.key);
    a.store(AccessSize::Double, Register::R10, SERVICE_SLOT, Register::R1).compute(
        Register::R1,
        Operation::ShiftRight,
        far - SERVICES_LOG,
    );
    counter(a, maps.services, SERVICES_LOG, ways);
    a.copy(Register::R8, Register::R0)
        .load(AccessSize::Double, Register::R1, Register::R8, USED)
        .load(AccessSize::Double, Register::R2, Register::R9, word(DESK_SERVICE_MAX))
        .jump_if_reg(
            Register::R1,
            JumpCondition::AtLeast,
            Register::R2,
            ways.refuse(FilterRefusal::Service),
        );
    beyond_credit(a, ways);
    source_prefix(a, is_v6);
    a.load(AccessSize::Double, Register::R2, Register::R10, SERVICE_SLOT).compute_reg(
        Register::R1,
        Operation::Add,
        Register::R2,
    );
    multiply(a, maps.key.rotate_left(32));
    a.compute(Register::R1, Operation::ShiftRight, far - PREFIXES_LOG);
    counter(a, maps.prefixes, PREFIXES_LOG, ways);
    let (first, counted) = (a.label(), a.label());
    // A service that has had less than half of its part is not divided.
    a.load(AccessSize::Double, Register::R1, Register::R0, USED)
        .load(AccessSize::Double, Register::R3, Register::R8, USED)
        .compute(Register::R3, Operation::ShiftLeft, 1)
        .load(AccessSize::Double, Register::R2, Register::R9, word(DESK_SERVICE_MAX))
        .jump_if_reg(Register::R3, JumpCondition::Below, Register::R2, first)
        .load(AccessSize::Double, Register::R2, Register::R9, word(DESK_PREFIX_MAX))
        .jump_if_reg(
            Register::R1,
            JumpCondition::AtLeast,
            Register::R2,
            ways.refuse(FilterRefusal::Prefix),
        )
        .load(AccessSize::Double, Register::R3, Register::R8, USED)
        .load(AccessSize::Double, Register::R2, Register::R9, word(DESK_SERVICE_HIGH))
        .jump_if_reg(Register::R3, JumpCondition::Below, Register::R2, first)
        .jump_if(Register::R1, JumpCondition::Differs, 0, ways.refuse(FilterRefusal::Prefix));
    a.place(first);
    a.add(Register::R1, 1)
        .store(AccessSize::Double, Register::R0, USED, Register::R1)
        .load(AccessSize::Double, Register::R1, Register::R8, USED)
        .add(Register::R1, 1)
        .store(AccessSize::Double, Register::R8, USED, Register::R1)
        .load(AccessSize::Word, Register::R8, Register::R6, DATA_END)
        .load(AccessSize::Double, Register::R2, Register::R9, word(DESK_SERVICE_HIGH))
        .jump_if_reg(Register::R1, JumpCondition::Below, Register::R2, counted)
        .set(Register::R1, 1)
        .add_shared(Register::R9, word(DESK_NEAR), Register::R1);
    a.place(counted);
}

/// Drops a frame of a service that has had `R1` in this turn where the credit is used up, unless
/// that is little.
fn beyond_credit(a: &mut Assembler, ways: &CodePaths) {
    let within = a.label();
    let of = |first: usize| word(first + ProgramKind::Plain as usize);
    a.load(AccessSize::Double, Register::R2, Register::R9, of(DESK_GRANTED))
        .load(AccessSize::Double, Register::R3, Register::R9, of(DESK_USED))
        .jump_if_reg(Register::R3, JumpCondition::Below, Register::R2, within)
        .load(AccessSize::Double, Register::R2, Register::R9, word(DESK_SERVICE_LEAST))
        .jump_if_reg(
            Register::R1,
            JumpCondition::AtLeast,
            Register::R2,
            ways.refuse(FilterRefusal::Unknown),
        );
    a.place(within);
}

/// Loads the source's prefix into `R1`: 24 bits of an IPv4 address, 64 of an IPv6 one.
pub(super) fn source_prefix(a: &mut Assembler, is_v6: bool) {
    match is_v6 {
        false => a.load(AccessSize::Word, Register::R1, Register::R7, L3 + 12).compute(
            Register::R1,
            Operation::And,
            i32::from_ne_bytes([0xff, 0xff, 0xff, 0]),
        ),
        true => a
            .load(AccessSize::Word, Register::R1, Register::R7, L3 + 8)
            .load(AccessSize::Word, Register::R2, Register::R7, L3 + 12)
            .compute(Register::R2, Operation::ShiftLeft, 32)
            .compute_reg(Register::R1, Operation::Or, Register::R2),
    };
}

/// Multiplies `R1` by a number that changes with each turn: two that meet in one counter meet there
/// for one turn.
pub(super) fn multiply(a: &mut Assembler, key: u64) {
    a.load(AccessSize::Double, Register::R2, Register::R9, word(DESK_TURN))
        .set_wide(Register::R3, key.rotate_left(17) | 1)
        .compute_reg(Register::R2, Operation::Multiply, Register::R3)
        .set_wide(Register::R3, key)
        .compute_reg(Register::R2, Operation::Add, Register::R3)
        .compute_reg(Register::R1, Operation::Multiply, Register::R2);
}

/// Finds the counter with the number in `R1` among those of its queue, for `R0`; what it has of
/// another turn is forgotten.
pub(super) fn counter(a: &mut Assembler, map: i32, log: i32, ways: &CodePaths) {
    let same = a.label();
    a.load(AccessSize::Word, Register::R2, Register::R6, RX_QUEUE)
        .compute(Register::R2, Operation::ShiftLeft, log)
        .compute_reg(Register::R1, Operation::Add, Register::R2);
    look_up(a, map, ways.through);
    a.load(AccessSize::Double, Register::R1, Register::R0, TURN_AT)
        .load(AccessSize::Double, Register::R2, Register::R9, word(DESK_TURN))
        .jump_if_reg(Register::R1, JumpCondition::Equal, Register::R2, same)
        .store(AccessSize::Double, Register::R0, TURN_AT, Register::R2)
        .store_value(AccessSize::Double, Register::R0, USED, 0);
    a.place(same);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns in which `asked` wants the credit: what each of them gets in the last of them.
    fn shares(credit: u64, asked: &[u64]) -> Vec<u64> {
        let (mut limits, mut given) = (FairLimits::default(), Vec::new());
        for _ in 0..200 {
            let [service, ..] = limits.of(credit);
            let mut left = credit;
            given = asked
                .iter()
                .map(|asks| {
                    let gets = (*asks).min(service).min(left);
                    left -= gets;
                    gets
                })
                .collect();
            limits.turn(credit, left, 0);
        }
        given
    }

    #[test]
    fn what_asks_for_little_gets_it_beside_any_number_of_loud_ones() {
        for loud in 1..=20 {
            let mut asked = vec![1_000_000; loud];
            asked.push(3);
            assert_eq!(shares(256, &asked)[loud], 3, "{loud} loud ones before it");
        }
    }

    #[test]
    fn what_others_leave_is_lent_but_for_a_quarter_or_less() {
        let [given] = shares(256, &[1_000_000])[..] else { panic!("one") };
        assert!(given >= 160, "{given}");
        assert_eq!(shares(256, &[100, 50]), [100, 50]);
    }

    #[test]
    fn limits_are_never_zero_and_no_limit_stays_none() {
        let mut limits = FairLimits::default();
        for near in 1..200 {
            limits.turn(64, 0, near);
        }
        assert!(limits.of(DIVIDED_MIN + 1).iter().all(|limit| *limit == 1));
        assert_eq!(limits.of(3), [3, 3, 3]);
        assert_eq!(limits.of(u64::MAX)[0], u64::MAX);
    }
}
