//! Scripts in packetdrill's dialect: read, and played against a TCP.
//!
//! Called by `cargo xtask pkt` and by the conformance tests. A script is a list of timed events:
//! segments that are given to the TCP (`<`), segments that it must send (`>`), and calls of its
//! sockets with the results that they must have. Invariants: a script that says what is not
//! supported is refused with its line and word before anything is played; equal back ends get equal
//! events. Built: the base of the dialect (sockets, segments, the usual options, aggregation,
//! blocking calls, timed commands). Not here, and refused: code blocks, ICMP, fast open, MD5,
//! `poll` and its kin.

mod kernel;
mod lexer;
mod parser;
mod runner;
mod script;
mod segment;

pub use kernel::Kernel;
pub use parser::{SyntaxError, parse};
pub use runner::{Backend, Call, Errno, Failure, play};
pub use script::Script;
