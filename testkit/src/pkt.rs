//! Scripts in packetdrill's dialect: read, and played against a TCP.
//!
//! Called by `cargo xtask pkt` and by the conformance tests. A script is a list of timed events:
//! segments that are given to the TCP (`<`), segments that it must send (`>`), and calls of its
//! sockets with the results that they must have. Invariants: a script with an unsupported statement
//! is refused with its line and word before anything is played; equal back ends get equal events.
//! Built: the base of the dialect (sockets, segments, the usual options, aggregation, blocking
//! calls, timed commands) and its first two stages as far as Floodwall has what they are about:
//! code blocks, ICMP errors, ECN, `poll`, `epoll`, messages, options of the command line, and
//! profiles of Linux and FreeBSD (`profile.rs`). Options and flags of fast open, MD5 and accurate
//! ECN can be written, and Floodwall answers them as what it does not know. Not here, and refused:
//! calls about fast open, keys of MD5, zero copy and error queues, UDP, encapsulation.

mod addresses;
mod calls;
mod code;
mod differs;
mod expand;
mod fields;
mod icmp;
mod kernel;
mod knobs;
mod lexer;
mod memory;
mod messages;
mod options;
mod parser;
mod permitted;
mod profile;
mod runner;
mod script;
mod segment;
mod traced;
mod watch;

pub use differs::{KERNEL_DIFFERS, is_of_other_family, kernel_differs};
pub use kernel::Kernel;
pub use memory::Memory;
pub use options::takes_value;
pub use parser::{SyntaxError, parse, parse_with};
pub use permitted::{DIFFERENCES, Difference, permitted};
pub use profile::Profile;
pub use runner::{Backend, Call, Errno, Failure, play};
pub use script::Script;
pub use traced::Traced;
