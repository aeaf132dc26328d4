//! `InterpreterFault`: why the interpreter ended a run.
//!
//! The kernel's verifier refuses a program that could do any of these.

use thiserror::Error;

/// Why the interpreter stopped: what the kernel's verifier would have refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum InterpreterFault {
    /// A register or a byte of the stack was read that nothing was written to.
    #[error("something was read that was never written")]
    Unwritten,
    /// A load or store outside of what the address belongs to.
    #[error("a load or store out of bounds")]
    OutOfBounds,
    /// An address that belongs to nothing, 0 among them, or to a frame that has been moved since.
    #[error("a load or store at an address of nothing")]
    NoMemory,
    /// A store into what is only for reading.
    #[error("a store to the context")]
    ReadOnly,
    /// The end of the program without an exit, or a jump beyond it.
    #[error("the program ran past its end")]
    PastEnd,
    /// An instruction that there is none, or that this interpreter does not know.
    #[error("unknown instruction {0:#04x}")]
    Unknown(u8),
    /// A helper or kernel function that this interpreter does not know.
    #[error("unknown function {0}")]
    UnknownFunction(i32),
    /// A socket was not released, or more often than it was looked up.
    #[error("a socket is held at the end, or released twice")]
    NotHeld,
    /// A map that is none, or is not of the kind that a helper needs.
    #[error("no such map, or of another kind")]
    NoMap,
    /// More instructions than a run may take.
    #[error("too many instructions")]
    TooLong,
    /// More calls within each other than the kernel allows.
    #[error("too many calls within each other")]
    TooDeep,
}
