//! What all code of the filter is emitted with: offsets, look-ups, bounds, and the ends of paths.
//!
//! Used by `code.rs`, `destination.rs`, `fair.rs` and `flow_share.rs` while they assemble.

use floodwall_bpf::{AccessSize, Assembler, Function, JumpCondition, Label, Register};

use super::desk::{FilterRefusal, ProgramKind};
/// Stack slots of a key of four bytes and of the frame's length.
pub(super) const KEY_SLOT: i16 = -4;
/// Where headers and fields are in a frame without tag.
pub(super) const L3: i16 = 14;

/// Where a frame goes from its place in the code.
#[derive(Clone, Copy)]
pub(super) struct CodePaths {
    /// To the socket.
    pub(super) through: Label,
    /// It cannot be read to its ports, and not to its destination either.
    pub(super) other: Label,
    /// It goes to the socket, at the cost of its kind's credit; by the number of the kind.
    pub(super) spends: [Label; ProgramKind::COUNT],
    /// Dropped; by the number of the reason.
    pub(super) refused: [Label; FilterRefusal::COUNT],
}

impl CodePaths {
    pub(super) fn new(a: &mut Assembler, through: Label) -> Self {
        Self {
            through,
            other: a.label(),
            spends: core::array::from_fn(|_| a.label()),
            refused: core::array::from_fn(|_| a.label()),
        }
    }

    pub(super) fn refuse(&self, why: FilterRefusal) -> Label {
        self.refused[why as usize]
    }

    pub(super) fn spend(&self, kind: ProgramKind) -> Label {
        self.spends[kind as usize]
    }
}

/// The stack offset of a 64-bit word.
pub(super) const fn word(number: usize) -> i16 {
    (number * size_of::<u64>()) as i16
}

/// Looks up the key at `R1` into `R0`; jumps to `missing` where there is no entry.
pub(super) fn look_up(a: &mut Assembler, map: i32, missing: Label) {
    a.store(AccessSize::Word, Register::R10, KEY_SLOT, Register::R1)
        .map(Register::R1, map)
        .copy(Register::R2, Register::R10)
        .add(Register::R2, i32::from(KEY_SLOT))
        .call(Function::MapLookup)
        .jump_if(Register::R0, JumpCondition::Equal, 0, missing);
}

/// Goes to `short` where the frame has not so many bytes.
pub(in crate::af_xdp) fn reach(a: &mut Assembler, bytes: i16, short: Label) {
    a.copy(Register::R3, Register::R7).add(Register::R3, i32::from(bytes)).jump_if_reg(
        Register::R3,
        JumpCondition::Above,
        Register::R8,
        short,
    );
}

/// A two-byte field in network byte order, as loaded from memory.
pub(in crate::af_xdp) fn wire(value: u16) -> i32 {
    i32::from(value.to_be())
}
