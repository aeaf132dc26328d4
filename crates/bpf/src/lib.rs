//! Programs for the kernel's BPF machine, composed in Rust: an assembler, an interpreter with models
//! of maps and helpers, and a reader of the kernel's type information.
//!
//! Called by `device`, which loads the programs; nothing here makes a system call, so programs are
//! tested and fuzzed on any platform, without privilege. Start reading at [`Assembler`]
//! and [`interpreter`]. Reading: RFC 9669 (the instruction set). Not here: bpf(2), maps of the kernel, links.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

mod assembler;
pub mod btf;
mod instruction;
pub mod interpreter;

pub use assembler::{Assembler, Label, NoProgram};
pub use instruction::{Does, Function, Instruction, Reg, Size, When, Width};
