//! One run of a program: registers, stacks, the frame, and what each instruction does.
//!
//! Called by [`Machine::run`]. Invariant: every step takes bounded time, and there are
//! [`STEPS_MAX`] at most.

use super::fault::InterpreterFault;
use super::memory::{DEPTH_MAX, MemoryRegion, STACK_BYTES, StackMemory};
use super::{Machine, Outcome, STEPS_MAX, Target};
use crate::instruction::Instruction;

/// Registers; `None` is never written.
pub(super) type Registers = [Option<u64>; 11];

/// A function that waits for the one that it called.
struct Caller {
    next: usize,
    /// `R6` to `R10`.
    kept: [Option<u64>; 5],
}

/// An interpreter of the subset of BPF that our programs use.
pub(super) struct Run<'a> {
    pub(super) machine: &'a mut Machine,
    pub(super) frame: &'a mut Vec<u8>,
    /// How often the frame was moved.
    pub(super) moves: u64,
    pub(super) registers: Registers,
    stacks: Vec<StackMemory>,
    callers: Vec<Caller>,
    pub(super) tail_calls: u32,
    pub(super) target: Option<Target>,
    /// The program to go on with.
    pub(super) goes_on: Option<Vec<Instruction>>,
}

impl<'a> Run<'a> {
    pub(super) fn new(machine: &'a mut Machine, frame: &'a mut Vec<u8>) -> Self {
        Self {
            machine,
            frame,
            moves: 0,
            registers: [None; 11],
            stacks: Vec::new(),
            callers: Vec::new(),
            tail_calls: 0,
            target: None,
            goes_on: None,
        }
    }

    /// As at the start of a program.
    fn begin(&mut self) {
        self.registers = [None; 11];
        self.stacks = vec![StackMemory::new()];
        self.callers.clear();
        self.registers[1] = Some(MemoryRegion::Context.at(0));
        self.registers[10] = Some(MemoryRegion::Stack(0).at(STACK_BYTES as u64));
    }

    pub(super) fn run(mut self, code: &[Instruction]) -> Result<Outcome, InterpreterFault> {
        let mut own;
        let mut code = code;
        let (mut at, mut steps) = (0, 0);
        self.begin();
        self.machine.metadata.clear();
        self.machine.host.found.clear();
        self.machine.host.held = 0;
        loop {
            steps += 1;
            if steps > STEPS_MAX {
                return Err(InterpreterFault::TooLong);
            }
            let it = *code.get(at).ok_or(InterpreterFault::PastEnd)?;
            let next = at + 1;
            at = match it.code & 7 {
                0 => self.load_wide(it, code.get(next), next)?,
                1 => self.load(it).map(|()| next)?,
                2 | 3 => self.store(it).map(|()| next)?,
                4 | 7 => self.compute(it).map(|()| next)?,
                _ => match self.jump(it, next)? {
                    Some(next) => next,
                    None => {
                        self.nothing_held()?;
                        let verdict = self.get(0)?;
                        return Ok(Outcome { verdict, target: self.target, steps });
                    }
                },
            };
            if let Some(other) = self.goes_on.take() {
                self.nothing_held()?;
                own = other;
                (code, at) = (&own, 0);
                self.begin();
            }
        }
    }

    fn nothing_held(&self) -> Result<(), InterpreterFault> {
        if self.machine.host.held == 0 { Ok(()) } else { Err(InterpreterFault::NotHeld) }
    }

    pub(super) fn get(&self, register: u8) -> Result<u64, InterpreterFault> {
        let value =
            self.registers.get(usize::from(register)).ok_or(InterpreterFault::Unknown(register))?;
        value.ok_or(InterpreterFault::Unwritten)
    }

    pub(super) fn set(&mut self, register: u8, value: u64) -> Result<(), InterpreterFault> {
        if register >= 10 {
            return Err(InterpreterFault::ReadOnly);
        }
        let place = self.registers.get_mut(usize::from(register));
        *place.ok_or(InterpreterFault::Unknown(register))? = Some(value);
        Ok(())
    }

    fn load_wide(
        &mut self,
        it: Instruction,
        second: Option<&Instruction>,
        next: usize,
    ) -> Result<usize, InterpreterFault> {
        let second =
            second.filter(|_| it.code == 0x18).ok_or(InterpreterFault::Unknown(it.code))?;
        let value = match it.from() {
            0 => u64::from(it.immediate as u32) | u64::from(second.immediate as u32) << 32,
            1 if self.machine.maps.contains_key(&it.immediate) => {
                MemoryRegion::Handle(it.immediate).at(0)
            }
            1 => return Err(InterpreterFault::NoMap),
            _ => return Err(InterpreterFault::Unknown(it.code)),
        };
        self.set(it.to(), value)?;
        Ok(next + 1)
    }

    fn load(&mut self, it: Instruction) -> Result<(), InterpreterFault> {
        if it.code & 0xe0 != 0x60 {
            return Err(InterpreterFault::Unknown(it.code));
        }
        let address = self.get(it.from())?.wrapping_add_signed(i64::from(it.offset));
        let len = bytes_of(it.code);
        let value = match MemoryRegion::of(address)? {
            (MemoryRegion::Context, at) => self.of_context(at, len)?,
            _ => number(self.bytes(address, len)?),
        };
        self.set(it.to(), value)
    }

    /// A field of the context: the frame's ends, where metadata begins, interface and queue.
    fn of_context(&self, at: usize, len: usize) -> Result<u64, InterpreterFault> {
        if len != 4 {
            return Err(InterpreterFault::OutOfBounds);
        }
        let frame = MemoryRegion::Frame(self.moves);
        Ok(match at {
            0 => frame.at(0),
            8 if self.machine.metadata.is_empty() => frame.at(0),
            8 => MemoryRegion::Metadata(self.moves).at(0),
            4 => frame.at(self.frame.len() as u64),
            12 => u64::from(self.machine.interface.0),
            16 => u64::from(self.machine.interface.1),
            _ => return Err(InterpreterFault::OutOfBounds),
        })
    }

    /// Bytes of memory.
    fn bytes(&mut self, address: u64, len: usize) -> Result<&[u8], InterpreterFault> {
        let (region, at) = MemoryRegion::of(address)?;
        match region {
            MemoryRegion::Stack(depth) => {
                self.stacks.get(depth).ok_or(InterpreterFault::NoMemory)?.read(at, len)
            }
            MemoryRegion::Frame(moves) if moves == self.moves => {
                self.frame.get(at..at + len).ok_or(InterpreterFault::OutOfBounds)
            }
            MemoryRegion::Map(fd) => {
                let map = self.machine.maps.get_mut(&fd).ok_or(InterpreterFault::NoMap)?;
                map.bytes(at, len).map(|bytes| &*bytes)
            }
            MemoryRegion::Metadata(moves) if moves == self.moves => {
                self.machine.metadata.get(at..at + len).ok_or(InterpreterFault::OutOfBounds)
            }
            MemoryRegion::Socket(number) => self.of_socket(number, false, at, len),
            MemoryRegion::TcpSocket(number) => self.of_socket(number, true, at, len),
            MemoryRegion::Frame(_)
            | MemoryRegion::Metadata(_)
            | MemoryRegion::Context
            | MemoryRegion::Handle(_) => Err(InterpreterFault::NoMemory),
        }
    }

    /// A copy of bytes of memory.
    pub(super) fn read(&mut self, address: u64, len: usize) -> Result<Vec<u8>, InterpreterFault> {
        self.bytes(address, len).map(<[u8]>::to_vec)
    }

    pub(super) fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), InterpreterFault> {
        let (region, at) = MemoryRegion::of(address)?;
        let len = bytes.len();
        let place = match region {
            MemoryRegion::Stack(depth) => {
                return self
                    .stacks
                    .get_mut(depth)
                    .ok_or(InterpreterFault::NoMemory)?
                    .write(at, bytes);
            }
            MemoryRegion::Frame(moves) if moves == self.moves => {
                self.frame.get_mut(at..at + len).ok_or(InterpreterFault::OutOfBounds)?
            }
            MemoryRegion::Map(fd) => {
                self.machine.maps.get_mut(&fd).ok_or(InterpreterFault::NoMap)?.bytes(at, len)?
            }
            MemoryRegion::Metadata(moves) if moves == self.moves => {
                self.machine.metadata.get_mut(at..at + len).ok_or(InterpreterFault::OutOfBounds)?
            }
            MemoryRegion::Context | MemoryRegion::Socket(_) | MemoryRegion::TcpSocket(_) => {
                return Err(InterpreterFault::ReadOnly);
            }
            MemoryRegion::Frame(_) | MemoryRegion::Metadata(_) | MemoryRegion::Handle(_) => {
                return Err(InterpreterFault::NoMemory);
            }
        };
        place.copy_from_slice(bytes);
        Ok(())
    }

    fn store(&mut self, it: Instruction) -> Result<(), InterpreterFault> {
        let address = self.get(it.to())?.wrapping_add_signed(i64::from(it.offset));
        let len = bytes_of(it.code);
        match (it.code & 7, it.code & 0xe0) {
            (2, 0x60) => {
                let value = i64::from(it.immediate).cast_unsigned();
                self.write(address, low(&value.to_ne_bytes(), len))
            }
            (3, 0x60) => {
                let value = self.get(it.from())?;
                self.write(address, low(&value.to_ne_bytes(), len))
            }
            (3, 0xc0) if len >= 4 => self.atomic(it, address, len),
            _ => Err(InterpreterFault::Unknown(it.code)),
        }
    }

    fn atomic(
        &mut self,
        it: Instruction,
        address: u64,
        len: usize,
    ) -> Result<(), InterpreterFault> {
        const FETCH: i32 = 1;
        if !address.is_multiple_of(len as u64) {
            return Err(InterpreterFault::OutOfBounds);
        }
        let (old, other) = (number(self.bytes(address, len)?), self.get(it.from())?);
        let new = match it.immediate & !FETCH {
            0x00 => old.wrapping_add(other),
            0x40 => old | other,
            0x50 => old & other,
            0xa0 => old ^ other,
            0xe0 => other,
            0xf0 => {
                let expected = self.get(0)?;
                let is_same = number(low(&expected.to_ne_bytes(), len)) == old;
                self.set(0, old)?;
                if is_same { other } else { old }
            }
            _ => return Err(InterpreterFault::Unknown(it.code)),
        };
        self.write(address, low(&new.to_ne_bytes(), len))?;
        if it.immediate & FETCH != 0 && it.immediate & !FETCH != 0xf0 {
            self.set(it.from(), old)?;
        }
        Ok(())
    }

    fn compute(&mut self, it: Instruction) -> Result<(), InterpreterFault> {
        let (is_wide, operation) = (it.code & 7 == 7, it.code & 0xf0);
        if operation == 0xd0 {
            return self.swap(it);
        }
        let right = match it.code & 8 {
            0 if operation == 0x80 => 0,
            0 => i64::from(it.immediate).cast_unsigned(),
            _ => self.get(it.from())?,
        };
        let left = if operation == 0xb0 { 0 } else { self.get(it.to())? };
        let result = if is_wide {
            compute_64(operation, left, right)
        } else {
            compute_32(operation, left as u32, right as u32).map(u64::from)
        };
        self.set(it.to(), result.ok_or(InterpreterFault::Unknown(it.code))?)
    }

    fn swap(&mut self, it: Instruction) -> Result<(), InterpreterFault> {
        let value = self.get(it.to())?;
        let swaps = it.code == 0xd7 || (it.code == 0xdc) == cfg!(target_endian = "little");
        let value = match (it.immediate, swaps) {
            (16, true) => u64::from((value as u16).swap_bytes()),
            (32, true) => u64::from((value as u32).swap_bytes()),
            (64, true) => value.swap_bytes(),
            (16, false) => u64::from(value as u16),
            (32, false) => u64::from(value as u32),
            (64, false) => value,
            _ => return Err(InterpreterFault::Unknown(it.code)),
        };
        self.set(it.to(), value)
    }

    /// Where it goes on; `None` at the end of the program.
    fn jump(&mut self, it: Instruction, next: usize) -> Result<Option<usize>, InterpreterFault> {
        let is_wide = it.code & 7 == 5;
        let far = |way: i32| next.checked_add_signed(way as isize).ok_or(InterpreterFault::PastEnd);
        match (it.code & 0xf0, is_wide) {
            (0x00, true) => return far(i32::from(it.offset)).map(Some),
            (0x00, false) => return far(it.immediate).map(Some),
            (0x80, true) if it.from() == 1 => {
                return self.enter(next, far(it.immediate)?).map(Some);
            }
            (0x80, true) if it.from() == 0 => {
                return self.help(it.immediate).map(|()| Some(next));
            }
            (0x80, true) => return Err(InterpreterFault::UnknownFunction(it.immediate)),
            (0x90, true) => return Ok(self.leave()),
            _ => {}
        }
        let left = self.get(it.to())?;
        let right = match it.code & 8 {
            0 => i64::from(it.immediate).cast_unsigned(),
            _ => self.get(it.from())?,
        };
        let taken = if is_wide {
            compare(it.code & 0xf0, left, right, (left as i64, right as i64))
        } else {
            let (left, right) = (left as u32, right as u32);
            compare(
                it.code & 0xf0,
                u64::from(left),
                u64::from(right),
                (i64::from(left as i32), i64::from(right as i32)),
            )
        };
        let taken = taken.ok_or(InterpreterFault::Unknown(it.code))?;
        if taken { far(i32::from(it.offset)).map(Some) } else { Ok(Some(next)) }
    }

    /// Calls a function of the program.
    fn enter(&mut self, next: usize, to: usize) -> Result<usize, InterpreterFault> {
        if self.callers.len() + 1 >= DEPTH_MAX {
            return Err(InterpreterFault::TooDeep);
        }
        let [.., r6, r7, r8, r9, r10] = self.registers;
        self.callers.push(Caller { next, kept: [r6, r7, r8, r9, r10] });
        self.stacks.push(StackMemory::new());
        let top = MemoryRegion::Stack(self.stacks.len() - 1).at(STACK_BYTES as u64);
        let [_, _, _, _, _, _, kept @ ..] = &mut self.registers;
        *kept = [None, None, None, None, Some(top)];
        Ok(to)
    }

    /// Back to the caller; `None` where there is none.
    fn leave(&mut self) -> Option<usize> {
        let caller = self.callers.pop()?;
        self.stacks.pop();
        let [_, lost @ .., r6, r7, r8, r9, r10] = &mut self.registers;
        [*r6, *r7, *r8, *r9, *r10] = caller.kept;
        lost.fill(None);
        Some(caller.next)
    }
}

const fn bytes_of(code: u8) -> usize {
    match code & 0x18 {
        0x00 => 4,
        0x08 => 2,
        0x10 => 1,
        _ => 8,
    }
}

/// The number that one, two, four or eight bytes are.
fn number(bytes: &[u8]) -> u64 {
    match *bytes {
        [a] => u64::from(a),
        [a, b] => u64::from(u16::from_ne_bytes([a, b])),
        [a, b, c, d] => u64::from(u32::from_ne_bytes([a, b, c, d])),
        _ => bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes)),
    }
}

/// The bytes of the low part of a number.
fn low(bytes: &[u8; 8], len: usize) -> &[u8] {
    let range = if cfg!(target_endian = "little") { 0..len } else { 8 - len..8 };
    bytes.get(range).unwrap_or_default()
}

fn compute_64(operation: u8, left: u64, right: u64) -> Option<u64> {
    Some(match operation {
        0x00 => left.wrapping_add(right),
        0x10 => left.wrapping_sub(right),
        0x20 => left.wrapping_mul(right),
        0x30 => left.checked_div(right).unwrap_or(0),
        0x40 => left | right,
        0x50 => left & right,
        0x60 => left.wrapping_shl(right as u32),
        0x70 => left.wrapping_shr(right as u32),
        0x80 => left.wrapping_neg(),
        0x90 => left.checked_rem(right).unwrap_or(left),
        0xa0 => left ^ right,
        0xb0 => right,
        0xc0 => (left as i64).wrapping_shr(right as u32) as u64,
        _ => return None,
    })
}

fn compute_32(operation: u8, left: u32, right: u32) -> Option<u32> {
    Some(match operation {
        0x60 => left.wrapping_shl(right),
        0x70 => left.wrapping_shr(right),
        0xc0 => (left as i32).wrapping_shr(right) as u32,
        0x30 => left.checked_div(right).unwrap_or(0),
        0x90 => left.checked_rem(right).unwrap_or(left),
        _ => compute_64(operation, u64::from(left), u64::from(right))? as u32,
    })
}

fn compare(how: u8, left: u64, right: u64, signed: (i64, i64)) -> Option<bool> {
    Some(match how {
        0x10 => left == right,
        0x20 => left > right,
        0x30 => left >= right,
        0x40 => left & right != 0,
        0x50 => left != right,
        0x60 => signed.0 > signed.1,
        0x70 => signed.0 >= signed.1,
        0xa0 => left < right,
        0xb0 => left <= right,
        0xc0 => signed.0 < signed.1,
        0xd0 => signed.0 <= signed.1,
        _ => return None,
    })
}
