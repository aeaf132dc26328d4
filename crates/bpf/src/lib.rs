//! Programs for the kernel's BPF machine, composed in Rust: an assembler, an interpreter with
//! models of maps and helpers, a reader of the kernel's type information, and the SYN cookie
//! programs that run at an interface.
//!
//! Called by `device`, which loads the programs; nothing here makes a system call, so programs are
//! tested and fuzzed on any platform, without privilege. Start reading at [`Assembler`], then
//! [`cookie`]. Reading: RFC 9669 (the instruction set). Not here: bpf(2), maps of the kernel,
//! links.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

mod assembler;
pub mod btf;
pub mod cookie;
mod instruction;
pub mod interpreter;
pub mod redirect;
pub mod sample;
pub mod siphash;

pub use assembler::{Assembler, Label, NoProgram};
pub use instruction::{
    AccessSize, Function, Instruction, JumpCondition, Operation, Register, Width,
};
