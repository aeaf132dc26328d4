//! `FlowShares`: what established flows may cost under pressure, by flow and by source prefix.
//!
//! Emitted by `code.rs` for frames of flows in the table of established ones, and for newcomers of
//! the prefixes that these come from. Each flow has a token bucket that its progress fills
//! (`established.rs`): a frame without a token is dropped. So has each prefix for newcomers, which
//! without a token are unverified as any other. In each
//! turn of the worker there is room for some frames of established flows; once half of it is used,
//! a prefix (/24, /64) has no more than a limit, which is the same for all prefixes and follows the
//! load: it falls in turns that nearly use the room up, and rises in others. So a prefix that sends
//! less than its share loses nothing, and without pressure nothing is limited. Invariant: the limit
//! is never zero.
//!
//! # Under flood
//! Reachable by peers that have established flows. Bound: [`PREFIXES`] counters a queue, of fixed
//! size, found by a keyed hash that changes each turn; prefixes that meet in one share it for that
//! turn. Work per frame: a comparison with the flow's tokens, and beyond half of the room a product
//! and a look-up. A flow without progress is dropped down to [`TOKENS_AT_REST`] frames each
//! quarter of a second: `rx_flow_full`. Frames of loud prefixes: `rx_flow_prefix_full`.
//!
//! [`TOKENS_AT_REST`]: super::established::TOKENS_AT_REST

use std::io;

use floodwall_bpf::{AccessSize, Assembler, JumpCondition, Operation, Register};

use super::desk::{
    DESK_FLOW_PREFIX_MAX, DESK_FLOWS_DIVIDED, DESK_FLOWS_HIGH, DESK_FLOWS_NEAR, DESK_USED,
    FilterRefusal, ProgramKind,
};
use super::emit::{CodePaths, word};
use super::fair::{COUNTER_WORDS, PREFIXES, PREFIXES_LOG, USED, WHOLE_SHARE};
use super::fair::{counter, follow, multiply, source_prefix};
use crate::af_xdp::mapped_words::MappedWords;

/// The counters of prefixes, which the program alone writes, and the key of their hash.
#[derive(Debug)]
pub(super) struct FlowShares {
    prefixes: MappedWords,
    key: u64,
}

/// Where the program finds them.
#[derive(Clone, Copy)]
pub(super) struct FlowMaps {
    pub(super) prefixes: i32,
    pub(super) key: u64,
}

impl FlowShares {
    pub(super) fn create(queues: u32, key: u64) -> io::Result<Self> {
        Ok(Self { prefixes: MappedWords::create(COUNTER_WORDS, queues * PREFIXES)?, key })
    }

    pub(super) fn maps(&self) -> FlowMaps {
        FlowMaps { prefixes: self.prefixes.fd(), key: self.key }
    }
}

/// The limit of a prefix in a queue's room for established flows, as a part of it in 1,024.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowLimit {
    prefix: u32,
    /// What was counted at the last turn.
    near: u64,
}

impl Default for FlowLimit {
    fn default() -> Self {
        Self { prefix: WHOLE_SHARE, near: 0 }
    }
}

impl FlowLimit {
    /// A turn is over; its room has been nearly used up `near` times since the start.
    pub(super) fn turn(&mut self, near: u64) {
        self.prefix = follow(self.prefix, near != self.near);
        self.near = near;
    }

    /// For so much room: from where on prefixes are limited, from where on it is nearly used up,
    /// and the limit of a prefix.
    pub(super) fn of(self, room: u64) -> [u64; 3] {
        let prefix = room.saturating_mul(self.prefix.into()) / u64::from(WHOLE_SHARE);
        [room / 2, room - room / 8, prefix.max(1)]
    }
}

/// Emits the end of the way of a frame of an established flow that has a token: it goes on, or is
/// refused where its prefix has had its share.
pub(super) fn emit(a: &mut Assembler, maps: &FlowMaps, is_v6: bool, ways: &CodePaths) {
    let used = word(DESK_USED + ProgramKind::Established as usize);
    let spend = ways.spend(ProgramKind::Established);
    a.load(AccessSize::Double, Register::R1, Register::R9, used)
        .load(AccessSize::Double, Register::R2, Register::R9, word(DESK_FLOWS_DIVIDED))
        .jump_if_reg(Register::R1, JumpCondition::Below, Register::R2, spend);
    source_prefix(a, is_v6);
    multiply(a, maps.key);
    a.compute(Register::R1, Operation::ShiftRight, 64 - PREFIXES_LOG);
    counter(a, maps.prefixes, PREFIXES_LOG, ways);
    a.load(AccessSize::Double, Register::R1, Register::R0, USED)
        .load(AccessSize::Double, Register::R2, Register::R9, word(DESK_FLOW_PREFIX_MAX))
        .jump_if_reg(
            Register::R1,
            JumpCondition::AtLeast,
            Register::R2,
            ways.refuse(FilterRefusal::FlowPrefix),
        )
        .add(Register::R1, 1)
        .store(AccessSize::Double, Register::R0, USED, Register::R1)
        .load(AccessSize::Double, Register::R1, Register::R9, used)
        .load(AccessSize::Double, Register::R2, Register::R9, word(DESK_FLOWS_HIGH))
        .jump_if_reg(Register::R1, JumpCondition::Below, Register::R2, spend)
        .set(Register::R1, 1)
        .add_shared(Register::R9, word(DESK_FLOWS_NEAR), Register::R1);
    a.jump(spend);
}
