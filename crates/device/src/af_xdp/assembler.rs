//! An assembler for BPF: instructions with registers and labels, and computed jump offsets.
//!
//! Called by `steering.rs` and `guard/code.rs`. Invariant: every jump goes forward to a label that
//! was placed, else there is no program. Reading: RFC 9669. Deliberately small: for these two.

/// One instruction as the kernel reads it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Instruction {
    code: u8,
    /// Destination in the low four bits, source in the high ones.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// A register. `R1` holds the context at the start, `R0` the verdict at the end; calls take `R1`
/// to `R5` and lose them; `R10` is the end of the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R6,
    R7,
    R8,
    R9,
    R10,
}

impl Register {
    const fn number(self) -> u8 {
        match self {
            Self::R0 => 0,
            Self::R1 => 1,
            Self::R2 => 2,
            Self::R3 => 3,
            Self::R4 => 4,
            Self::R6 => 6,
            Self::R7 => 7,
            Self::R8 => 8,
            Self::R9 => 9,
            Self::R10 => 10,
        }
    }
}

/// How many bytes a load or store moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AccessSize {
    Byte = 0x10,
    Half = 0x08,
    Word = 0x00,
    Double = 0x18,
}

/// When a jump is taken: the left register beside the right value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JumpCondition {
    Equal = 0x10,
    Above = 0x20,
    AtLeast = 0x30,
    /// They have a bit in common.
    Meets = 0x40,
    Differs = 0x50,
    Below = 0xa0,
}

/// What is done to a register, as 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    Add = 0x00,
    Multiply = 0x20,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
}

/// A place to jump to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Label(usize);

/// Functions of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Function {
    MapLookup = 1,
    RedirectMap = 51,
    FrameBytes = 188,
}

/// A program in the making.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    code: Vec<Instruction>,
    /// The position of each label, once placed.
    labels: Vec<Option<usize>>,
    /// Jumps to be resolved: the instruction and its label.
    jumps: Vec<(usize, Label)>,
}

/// Why there is no program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoProgram;

impl Assembler {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Places the label before the next instruction.
    pub(crate) fn place(&mut self, label: Label) {
        let here = self.code.len();
        if let Some(place) = self.labels.get_mut(label.0) {
            *place = Some(here);
        }
    }

    fn push(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> &mut Self {
        self.code.push(Instruction { code, registers: to | from << 4, offset, immediate });
        self
    }

    /// `to = from`.
    pub(crate) fn copy(&mut self, to: Register, from: Register) -> &mut Self {
        self.push(0xbf, to.number(), from.number(), 0, 0)
    }

    /// `to = value`.
    pub(crate) fn set(&mut self, to: Register, value: i32) -> &mut Self {
        self.push(0xb7, to.number(), 0, 0, value)
    }

    /// `to += value`.
    pub(crate) fn add(&mut self, to: Register, value: i32) -> &mut Self {
        self.compute(to, Operation::Add, value)
    }

    /// `to` by `value`.
    pub(crate) fn compute(&mut self, to: Register, does: Operation, value: i32) -> &mut Self {
        self.push(0x07 | does as u8, to.number(), 0, 0, value)
    }

    /// `to` by `other`.
    pub(crate) fn compute_reg(
        &mut self,
        to: Register,
        does: Operation,
        other: Register,
    ) -> &mut Self {
        self.push(0x0f | does as u8, to.number(), other.number(), 0, 0)
    }

    /// Reads the low 16 bits of `to` as a number from the wire; the other bits are gone.
    pub(crate) fn read_wire(&mut self, to: Register) -> &mut Self {
        self.push(0xdc, to.number(), 0, 0, 16)
    }

    /// `to = value`, of 64 bits.
    pub(crate) fn set_wide(&mut self, to: Register, value: u64) -> &mut Self {
        let (low, high) = (value as u32, (value >> 32) as u32);
        self.push(0x18, to.number(), 0, 0, low.cast_signed());
        self.push(0, 0, 0, 0, high.cast_signed())
    }

    /// `memory[to + offset] += from`, of 64 bits, as an atomic operation.
    pub(crate) fn add_shared(&mut self, to: Register, offset: i16, from: Register) -> &mut Self {
        self.push(0xdb, to.number(), from.number(), offset, 0)
    }

    /// `to = memory[from + offset]`.
    pub(crate) fn load(
        &mut self,
        size: AccessSize,
        to: Register,
        from: Register,
        offset: i16,
    ) -> &mut Self {
        self.push(0x61 | size as u8, to.number(), from.number(), offset, 0)
    }

    /// `memory[to + offset] = from`.
    pub(crate) fn store(
        &mut self,
        size: AccessSize,
        to: Register,
        offset: i16,
        from: Register,
    ) -> &mut Self {
        self.push(0x63 | size as u8, to.number(), from.number(), offset, 0)
    }

    /// `to` becomes the map behind this descriptor.
    pub(crate) fn map(&mut self, to: Register, fd: i32) -> &mut Self {
        const PSEUDO_MAP: u8 = 1;
        self.push(0x18, to.number(), PSEUDO_MAP, 0, fd).push(0, 0, 0, 0, 0)
    }

    pub(crate) fn call(&mut self, function: Function) -> &mut Self {
        self.push(0x85, 0, 0, 0, function as i32)
    }

    pub(crate) fn exit(&mut self) -> &mut Self {
        self.push(0x95, 0, 0, 0, 0)
    }

    pub(crate) fn jump(&mut self, to: Label) -> &mut Self {
        self.jumps.push((self.code.len(), to));
        self.push(0x05, 0, 0, 0, 0)
    }

    /// Jumps where a register and a value compare so, as unsigned 64-bit numbers.
    pub(crate) fn jump_if(
        &mut self,
        left: Register,
        when: JumpCondition,
        value: i32,
        to: Label,
    ) -> &mut Self {
        self.jumps.push((self.code.len(), to));
        self.push(0x05 | when as u8, left.number(), 0, 0, value)
    }

    /// The same, comparing two registers.
    pub(crate) fn jump_if_reg(
        &mut self,
        left: Register,
        when: JumpCondition,
        right: Register,
        to: Label,
    ) -> &mut Self {
        self.jumps.push((self.code.len(), to));
        self.push(0x0d | when as u8, left.number(), right.number(), 0, 0)
    }

    /// As [`Assembler::jump_if`], comparing the low 32 bits only.
    pub(crate) fn jump_if_word(
        &mut self,
        left: Register,
        when: JumpCondition,
        value: u32,
        to: Label,
    ) -> &mut Self {
        self.jumps.push((self.code.len(), to));
        self.push(0x06 | when as u8, left.number(), 0, 0, value.cast_signed())
    }

    /// The program, with every jump's way filled in.
    pub(crate) fn finish(mut self) -> Result<Vec<Instruction>, NoProgram> {
        for (from, label) in self.jumps {
            let to = self.labels.get(label.0).copied().flatten().ok_or(NoProgram)?;
            let way = to.checked_sub(from + 1).and_then(|way| i16::try_from(way).ok());
            let jump = self.code.get_mut(from).ok_or(NoProgram)?;
            jump.offset = way.ok_or(NoProgram)?;
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
        let end = a.label();
        a.load(AccessSize::Word, Register::R2, Register::R1, 4);
        a.jump_if_word(Register::R2, JumpCondition::Differs, 0xffff_fffe, end);
        a.map(Register::R1, 7);
        a.set(Register::R0, 2);
        a.place(end);
        a.exit();
        let code = a.finish().unwrap();
        let all: Vec<_> =
            code.iter().map(|i| (i.code, i.registers, i.offset, i.immediate)).collect();
        assert_eq!(
            all,
            [
                (0x61, 0x12, 4, 0),
                (0x56, 0x02, 3, -2),
                (0x18, 0x11, 0, 7),
                (0, 0, 0, 0),
                (0xb7, 0x00, 0, 2),
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
    }
}
