//! An assembler for BPF: instructions with registers and labels, and no offset counted by hand.
//!
//! Called by the composers of programs: `cookie`, and the programs of `device`. Invariant: every
//! jump goes forward to a label that was placed, else there is no program, so that every program
//! ends; only calls of functions of the program itself may go either way. Reading: RFC 9669.

use crate::instruction::{
    AccessSize, Function, Instruction, JumpCondition, Operation, Register, Width,
};

/// A place to jump to, or a function to call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label(usize);

/// What is to be filled in at the end.
#[derive(Clone, Copy, Debug)]
enum Open {
    /// The offset of a jump.
    Jump(Label),
    /// The distance of a call.
    Call(Label),
}

/// A program in the making. Every method appends; those without a result that matters return the
/// assembler for the next one.
#[derive(Debug, Default)]
pub struct Assembler {
    code: Vec<Instruction>,
    /// Where each label stands.
    labels: Vec<Option<usize>>,
    /// Instructions with a target that is patched later.
    open: Vec<(usize, Open)>,
}

/// Why there is no program: a label that was not placed, a jump backwards or too far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the program has a jump to nowhere, backwards or too far")]
pub struct NoProgram;

/// Of a source register of a load of 64 bits: the constant is a map's descriptor.
const PSEUDO_MAP: u8 = 1;
/// Of a source register of a call: the constant is a distance within the program.
const PSEUDO_CALL: u8 = 1;
/// Of a source register of a call: the constant is the number of a kernel function in its BTF.
const PSEUDO_KFUNC: u8 = 2;
/// The bit of an operation with a register as right side.
const BY_REGISTER: u8 = 0x08;
/// Classes.
const ALU32: u8 = 0x04;
const ALU64: u8 = 0x07;
const JUMP: u8 = 0x05;
const JUMP32: u8 = 0x06;
/// Move, as an operation.
const MOVE: u8 = 0xb0;

impl Assembler {
    /// An empty program.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many instructions there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.code.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.code.is_empty()
    }

    /// A label that is still to be placed.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// The label stands before the next instruction.
    pub fn place(&mut self, label: Label) {
        let here = self.code.len();
        if let Some(place) = self.labels.get_mut(label.0) {
            *place = Some(here);
        }
    }

    /// Whether anything jumps to the label so far: code that nothing leads to is refused by the
    /// kernel.
    #[must_use]
    pub fn is_used(&self, label: Label) -> bool {
        self.open.iter().any(|(_, Open::Jump(other) | Open::Call(other))| *other == label)
    }

    fn push(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> &mut Self {
        self.code.push(Instruction { code, registers: to | from << 4, offset, immediate });
        self
    }

    /// `to = from`.
    pub fn copy(&mut self, to: Register, from: Register) -> &mut Self {
        self.push(ALU64 | BY_REGISTER | MOVE, to.number(), from.number(), 0, 0)
    }

    /// `to` is the low 32 bits of `from`.
    pub fn copy_word(&mut self, to: Register, from: Register) -> &mut Self {
        self.push(ALU32 | BY_REGISTER | MOVE, to.number(), from.number(), 0, 0)
    }

    /// `to = value`, with its sign.
    pub fn set(&mut self, to: Register, value: i32) -> &mut Self {
        self.push(ALU64 | MOVE, to.number(), 0, 0, value)
    }

    /// `to = value`, of 32 bits without a sign.
    pub fn set_word(&mut self, to: Register, value: u32) -> &mut Self {
        self.push(ALU32 | MOVE, to.number(), 0, 0, value.cast_signed())
    }

    /// `to = value`, of 64 bits.
    pub fn set_wide(&mut self, to: Register, value: u64) -> &mut Self {
        let (low, high) = (value as u32, (value >> 32) as u32);
        self.push(0x18, to.number(), 0, 0, low.cast_signed());
        self.push(0, 0, 0, 0, high.cast_signed())
    }

    /// `to += value`.
    pub fn add(&mut self, to: Register, value: i32) -> &mut Self {
        self.compute(to, Operation::Add, value)
    }

    /// `to` by `value`, of 64 bits.
    pub fn compute(&mut self, to: Register, does: Operation, value: i32) -> &mut Self {
        self.push(ALU64 | does as u8, to.number(), 0, 0, value)
    }

    /// `to` by `other`, of 64 bits.
    pub fn compute_reg(&mut self, to: Register, does: Operation, other: Register) -> &mut Self {
        self.push(ALU64 | BY_REGISTER | does as u8, to.number(), other.number(), 0, 0)
    }

    /// `to` by `value`, of 32 bits; the upper ones are zero then.
    pub fn compute_word(&mut self, to: Register, does: Operation, value: i32) -> &mut Self {
        self.push(ALU32 | does as u8, to.number(), 0, 0, value)
    }

    /// `to` by `other`, of 32 bits; the upper ones are zero then.
    pub fn compute_word_reg(
        &mut self,
        to: Register,
        does: Operation,
        other: Register,
    ) -> &mut Self {
        self.push(ALU32 | BY_REGISTER | does as u8, to.number(), other.number(), 0, 0)
    }

    /// `to = -to`.
    pub fn negate(&mut self, to: Register) -> &mut Self {
        self.push(ALU64 | 0x80, to.number(), 0, 0, 0)
    }

    /// Reads the low 16 bits of `to` as a number from the wire; the other bits are gone.
    pub fn read_wire(&mut self, to: Register) -> &mut Self {
        self.wire(to, Width::Half)
    }

    /// Turns the low bits of `to` from the wire's order into the machine's, or back; the others
    /// are gone.
    pub fn wire(&mut self, to: Register, width: Width) -> &mut Self {
        self.push(0xdc, to.number(), 0, 0, width as i32)
    }

    /// Turns the low bits of `to` into little-endian order; the others are gone. Nothing on most
    /// machines.
    pub fn little_endian(&mut self, to: Register, width: Width) -> &mut Self {
        self.push(0xd4, to.number(), 0, 0, width as i32)
    }

    /// Reverses the bytes of the low bits of `to` on any machine; the others are gone. Since
    /// Linux 6.6.
    pub fn swap(&mut self, to: Register, width: Width) -> &mut Self {
        self.push(0xd7, to.number(), 0, 0, width as i32)
    }

    /// `memory[to + offset] += from`, of 64 bits, atomically.
    pub fn add_shared(&mut self, to: Register, offset: i16, from: Register) -> &mut Self {
        self.push(0xdb, to.number(), from.number(), offset, 0)
    }

    /// As [`Assembler::add_shared`], of 32 bits.
    pub fn add_shared_word(&mut self, to: Register, offset: i16, from: Register) -> &mut Self {
        self.push(0xc3, to.number(), from.number(), offset, 0)
    }

    /// `to = memory[from + offset]`.
    pub fn load(
        &mut self,
        size: AccessSize,
        to: Register,
        from: Register,
        offset: i16,
    ) -> &mut Self {
        self.push(0x61 | size as u8, to.number(), from.number(), offset, 0)
    }

    /// `memory[to + offset] = from`.
    pub fn store(
        &mut self,
        size: AccessSize,
        to: Register,
        offset: i16,
        from: Register,
    ) -> &mut Self {
        self.push(0x63 | size as u8, to.number(), from.number(), offset, 0)
    }

    /// `memory[to + offset] = value`.
    pub fn store_value(
        &mut self,
        size: AccessSize,
        to: Register,
        offset: i16,
        value: i32,
    ) -> &mut Self {
        self.push(0x62 | size as u8, to.number(), 0, offset, value)
    }

    /// `to` becomes the map behind this descriptor.
    pub fn map(&mut self, to: Register, fd: i32) -> &mut Self {
        self.push(0x18, to.number(), PSEUDO_MAP, 0, fd).push(0, 0, 0, 0, 0)
    }

    /// Calls a helper of the kernel.
    pub fn call(&mut self, function: Function) -> &mut Self {
        self.push(0x85, 0, 0, 0, function as i32)
    }

    /// Calls a function of this program. It has a stack of its own, and keeps `R6` to `R9`.
    pub fn call_own(&mut self, function: Label) -> &mut Self {
        self.open.push((self.code.len(), Open::Call(function)));
        self.push(0x85, 0, PSEUDO_CALL, 0, 0)
    }

    /// Calls a kernel function by its number in the kernel's BTF ([`crate::btf::Btf::function`]).
    pub fn call_kernel(&mut self, id: u32) -> &mut Self {
        self.push(0x85, 0, PSEUDO_KFUNC, 0, id.cast_signed())
    }

    /// Goes on with program `index` of a map of programs, with the same frame and a new stack.
    /// Falls through where there is none. Loses `R0` to `R5`; `context` must not be one of `R2` and
    /// `R3`.
    pub fn tail_call(&mut self, context: Register, programs: i32, index: i32) -> &mut Self {
        if context != Register::R1 {
            self.copy(Register::R1, context);
        }
        self.map(Register::R2, programs).set(Register::R3, index).call(Function::TailCall)
    }

    /// Ends the program, or the function, with `R0`.
    pub fn exit(&mut self) -> &mut Self {
        self.push(0x95, 0, 0, 0, 0)
    }

    fn open_jump(&mut self, to: Label) {
        self.open.push((self.code.len(), Open::Jump(to)));
    }

    /// Jumps.
    pub fn jump(&mut self, to: Label) -> &mut Self {
        self.open_jump(to);
        self.push(JUMP, 0, 0, 0, 0)
    }

    /// Jumps where a register and a value compare so, as 64-bit numbers.
    pub fn jump_if(
        &mut self,
        left: Register,
        when: JumpCondition,
        value: i32,
        to: Label,
    ) -> &mut Self {
        self.open_jump(to);
        self.push(JUMP | when as u8, left.number(), 0, 0, value)
    }

    /// The same, comparing two registers.
    pub fn jump_if_reg(
        &mut self,
        left: Register,
        when: JumpCondition,
        right: Register,
        to: Label,
    ) -> &mut Self {
        self.open_jump(to);
        self.push(JUMP | BY_REGISTER | when as u8, left.number(), right.number(), 0, 0)
    }

    /// As [`Assembler::jump_if`], comparing the low 32 bits only.
    pub fn jump_if_word(
        &mut self,
        left: Register,
        when: JumpCondition,
        value: u32,
        to: Label,
    ) -> &mut Self {
        self.open_jump(to);
        self.push(JUMP32 | when as u8, left.number(), 0, 0, value.cast_signed())
    }

    /// As [`Assembler::jump_if_reg`], comparing the low 32 bits only.
    pub fn jump_if_word_reg(
        &mut self,
        left: Register,
        when: JumpCondition,
        right: Register,
        to: Label,
    ) -> &mut Self {
        self.open_jump(to);
        self.push(JUMP32 | BY_REGISTER | when as u8, left.number(), right.number(), 0, 0)
    }

    /// The program, with every jump's distance filled in.
    ///
    /// # Errors
    /// See [`NoProgram`].
    pub fn finish(mut self) -> Result<Vec<Instruction>, NoProgram> {
        for (from, open) in self.open {
            let (Open::Jump(label) | Open::Call(label)) = open;
            let to = self.labels.get(label.0).copied().flatten().ok_or(NoProgram)?;
            let end = self.code.len();
            let place = self.code.get_mut(from).filter(|_| to < end).ok_or(NoProgram)?;
            match open {
                Open::Jump(_) => {
                    let way = to.checked_sub(from + 1).and_then(|way| i16::try_from(way).ok());
                    place.offset = way.ok_or(NoProgram)?;
                }
                Open::Call(_) => {
                    let way = to as i64 - (from as i64 + 1);
                    place.immediate = i32::try_from(way).map_err(|_| NoProgram)?;
                }
            }
        }
        Ok(self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_laid_out_as_the_kernel_reads_them() {
        assert_eq!(size_of::<Instruction>(), 8);
        let mut a = Assembler::new();
        let (end, own) = (a.label(), a.label());
        a.load(AccessSize::Word, Register::R2, Register::R1, 4);
        a.jump_if_word(Register::R2, JumpCondition::Differs, 0xffff_fffe, end);
        a.map(Register::R1, 7);
        a.set(Register::R0, 2);
        a.call_own(own);
        a.call_kernel(77);
        a.place(end);
        a.exit();
        a.place(own);
        a.compute_word_reg(Register::R5, Operation::Xor, Register::R9)
            .wire(Register::R5, Width::Double)
            .exit();
        let code = a.finish().unwrap();
        let all: Vec<_> =
            code.iter().map(|i| (i.code, i.registers, i.offset, i.immediate)).collect();
        assert_eq!(
            all,
            [
                (0x61, 0x12, 4, 0),
                (0x56, 0x02, 5, -2),
                (0x18, 0x11, 0, 7),
                (0, 0, 0, 0),
                (0xb7, 0x00, 0, 2),
                (0x85, 0x10, 0, 2),
                (0x85, 0x20, 0, 77),
                (0x95, 0, 0, 0),
                (0xac, 0x95, 0, 0),
                (0xdc, 0x05, 0, 64),
                (0x95, 0, 0, 0),
            ]
        );
    }

    #[test]
    fn a_jump_to_nowhere_or_backwards_is_no_program() {
        let mut nowhere = Assembler::new();
        let label = nowhere.label();
        nowhere.jump_if(Register::R0, JumpCondition::Equal, 0, label);
        assert_eq!(nowhere.finish(), Err(NoProgram));
        let mut back = Assembler::new();
        let label = back.label();
        back.place(label);
        back.exit();
        back.jump_if(Register::R0, JumpCondition::Equal, 0, label);
        assert_eq!(back.finish(), Err(NoProgram));
        let mut behind = Assembler::new();
        let label = behind.label();
        behind.jump(label);
        behind.place(label);
        assert_eq!(behind.finish(), Err(NoProgram), "there is nothing behind the end");
    }
}
