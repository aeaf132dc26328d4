//! Scripts in packetdrill's dialect: read, and played against a TCP.
//!
//! Called by `cargo xtask pkt` and by the conformance tests. A script is a list of timed events:
//! segments that are given to the TCP (`<`), segments that it must send (`>`), and calls of its
//! sockets with the results that they must have. Invariants: a script that says what is not
//! supported is refused with its line and word before anything is played; equal back ends get equal
//! events. Built: the base of the dialect (sockets, segments, the usual options, aggregation,
//! blocking calls, timed commands) and its first two stages as far as Floodwall has what they are
//! about: code blocks, ICMP errors, ECN, `poll`, structures, settings of Linux and FreeBSD. Not
//! here, and refused: fast open, MD5, `epoll`, `sendmsg`, what only Linux has.

mod addresses;
mod code;
mod fields;
mod icmp;
mod kernel;
mod knobs;
mod lexer;
mod memory;
mod parser;
mod runner;
mod script;
mod segment;

pub use kernel::Kernel;
pub use memory::Memory;
pub use parser::{SyntaxError, parse};
pub use runner::{Backend, Call, Errno, Failure, play};
pub use script::Script;
