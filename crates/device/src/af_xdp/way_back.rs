//! `PassingAnswers`: the way back for answers to a peer that takes no frames from a program.
//!
//! Loaded by `cookies.rs` on a veth. While its peer has neither GRO nor a program, a frame that is
//! redirected there vanishes. So the program for SYNs lets the answer go up with a mark in front
//! of it, and a program at the system's ingress, before any other part of the system, sends what
//! has the mark back by the interface, as an ordinary packet. Invariant: what has not our mark goes
//! on untouched; the mark is a random number that no sender sees, and is no part of the frame.
//!
//! # Under flood
//! Work per answer: a socket buffer, which a veth has made already. Every other packet that goes up
//! to the system pays one comparison, and only while this way is in use.

use std::io;
use std::sync::OnceLock;

use floodwall_bpf::{AccessSize, Assembler, Function, JumpCondition, Label, Register};

use super::bpf::{Attachment, BpfProgram};
use super::filter::secret_word;
use super::xdp_abi::{DATA, PASS};

/// Where the context of an XDP program has the front of the frame's metadata.
const CONTEXT_META: i16 = 8;
/// The same, and the frame's first byte, in the context of a program at the ingress.
const PACKET_META: i16 = 140;
const PACKET_DATA: i16 = 76;
/// Bytes of the mark.
const MARK_BYTES: i32 = 8;
/// The verdict by which other programs and the system go on with a packet.
const VERDICT_NEXT: i32 = -1;

/// The program for SYNs that passes answers on, and the one that sends them back.
#[derive(Debug)]
pub(super) struct PassingAnswers {
    syns: BpfProgram,
    ingress: BpfProgram,
    index: u32,
    /// Attached when it is used first.
    attached: OnceLock<Attachment>,
}

impl PassingAnswers {
    /// Loads both for the interface `index`; `syns` loads the first for a mark.
    pub(super) fn load(
        index: u32,
        syns: impl FnOnce(u64) -> io::Result<BpfProgram>,
    ) -> io::Result<Self> {
        let mark = secret_word()?;
        let mut a = Assembler::new();
        let on = a.label();
        a.load(AccessSize::Word, Register::R2, Register::R1, PACKET_META)
            .load(AccessSize::Word, Register::R3, Register::R1, PACKET_DATA)
            .copy(Register::R4, Register::R2)
            .add(Register::R4, MARK_BYTES)
            .jump_if_reg(Register::R4, JumpCondition::Above, Register::R3, on)
            .load(AccessSize::Double, Register::R4, Register::R2, 0)
            .set_wide(Register::R5, mark)
            .jump_if_reg(Register::R4, JumpCondition::Differs, Register::R5, on)
            .set(Register::R1, index.cast_signed())
            .set(Register::R2, 0)
            .call(Function::Redirect)
            .exit();
        a.place(on);
        a.set(Register::R0, VERDICT_NEXT).exit();
        let code = a.finish().map_err(|_| io::Error::other("the program has a jump to nowhere"))?;
        let ingress = BpfProgram::load_for_ingress(&code)?;
        // Whether the system lets one attach such a program is found now, not under flood.
        drop(ingress.attach_to_ingress(index)?);
        Ok(Self { syns: syns(mark)?, ingress, index, attached: OnceLock::new() })
    }

    /// The program for SYNs, once what it passes on is sent back.
    pub(super) fn program(&self) -> io::Result<&BpfProgram> {
        if self.attached.get().is_none() {
            let _ = self.attached.set(self.ingress.attach_to_ingress(self.index)?);
        }
        Ok(&self.syns)
    }
}

/// Emits what becomes of an answer: it goes up with the mark in front, once the program ends.
/// `R6` holds the context.
pub(super) fn pass(a: &mut Assembler, mark: u64, broken: Label) {
    a.copy(Register::R1, Register::R6)
        .set(Register::R2, -MARK_BYTES)
        .call(Function::AdjustMeta)
        .jump_if(Register::R0, JumpCondition::Differs, 0, broken)
        .load(AccessSize::Word, Register::R2, Register::R6, CONTEXT_META)
        .load(AccessSize::Word, Register::R3, Register::R6, DATA)
        .copy(Register::R4, Register::R2)
        .add(Register::R4, MARK_BYTES)
        .jump_if_reg(Register::R4, JumpCondition::Above, Register::R3, broken)
        .set_wide(Register::R5, mark)
        .store(AccessSize::Double, Register::R2, 0, Register::R5)
        .set(Register::R0, PASS);
}
