//! Addresses of the interpreter, and what lies behind them.
//!
//! An address is a region in its upper bits and an offset in the lower 40, so that arithmetic on it
//! stays arithmetic and an access outside its region is an error. The region of the frame has
//! another number after the frame was moved: old addresses of it are good no more.

use super::fault::InterpreterFault;

const OFFSET_BITS: u32 = 40;
/// Bytes of one stack.
pub(super) const STACK_BYTES: usize = 512;
/// Functions that may be within each other.
pub(super) const DEPTH_MAX: usize = 8;

/// What an address is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MemoryRegion {
    Context,
    /// The frame, after so many moves.
    Frame(u64),
    /// The stack of the function at that depth.
    Stack(usize),
    /// Values of the map of that descriptor.
    Map(i32),
    /// The map itself, for helpers only.
    Handle(i32),
    /// Metadata in front of the frame, after so many moves.
    Metadata(u64),
    /// A socket that a look-up found, by number.
    Socket(usize),
    /// The same as the kernel's own structure.
    TcpSocket(usize),
}

const CONTEXT: u64 = 1;
const STACK: u64 = 0x10;
const FRAME: u64 = 0x100;
const MAP: u64 = 0x10_0000;
const HANDLE: u64 = 0x20_0000;
const METADATA: u64 = 0x40;
const SOCKET: u64 = 0x30_0000;
const TCP_SOCKET: u64 = 0x40_0000;

impl MemoryRegion {
    pub(super) const fn at(self, offset: u64) -> u64 {
        let number = match self {
            Self::Context => CONTEXT,
            Self::Frame(moves) => FRAME + moves,
            Self::Stack(depth) => STACK + depth as u64,
            Self::Map(fd) => MAP + fd as u64,
            Self::Handle(fd) => HANDLE + fd as u64,
            Self::Metadata(moves) => METADATA + moves,
            Self::Socket(number) => SOCKET + number as u64,
            Self::TcpSocket(number) => TCP_SOCKET + number as u64,
        };
        (number << OFFSET_BITS) + offset
    }

    /// What an address is of, and how far in.
    pub(super) fn of(address: u64) -> Result<(Self, usize), InterpreterFault> {
        let offset = (address & ((1 << OFFSET_BITS) - 1)) as usize;
        let number = address >> OFFSET_BITS;
        let region = match number {
            CONTEXT => Self::Context,
            METADATA..FRAME => Self::Metadata(number - METADATA),
            STACK..METADATA => Self::Stack((number - STACK) as usize),
            FRAME..MAP => Self::Frame(number - FRAME),
            MAP..HANDLE => Self::Map((number - MAP) as i32),
            HANDLE..SOCKET => Self::Handle((number - HANDLE) as i32),
            SOCKET..TCP_SOCKET => Self::Socket((number - SOCKET) as usize),
            TCP_SOCKET..0x50_0000 => Self::TcpSocket((number - TCP_SOCKET) as usize),
            _ => return Err(InterpreterFault::NoMemory),
        };
        Ok((region, offset))
    }
}

/// One stack, which knows what was written.
#[derive(Clone, Debug)]
pub(super) struct StackMemory {
    bytes: [u8; STACK_BYTES],
    written: [bool; STACK_BYTES],
}

impl StackMemory {
    pub(super) const fn new() -> Self {
        Self { bytes: [0; STACK_BYTES], written: [false; STACK_BYTES] }
    }

    pub(super) fn read(&self, at: usize, len: usize) -> Result<&[u8], InterpreterFault> {
        let written = self.written.get(at..at + len).ok_or(InterpreterFault::OutOfBounds)?;
        if !written.iter().all(|written| *written) {
            return Err(InterpreterFault::Unwritten);
        }
        self.bytes.get(at..at + len).ok_or(InterpreterFault::OutOfBounds)
    }

    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), InterpreterFault> {
        let end = at + bytes.len();
        self.bytes.get_mut(at..end).ok_or(InterpreterFault::OutOfBounds)?.copy_from_slice(bytes);
        self.written.get_mut(at..end).ok_or(InterpreterFault::OutOfBounds)?.fill(true);
        Ok(())
    }
}
