//! What an XDP program sees of a frame, and what it may return (the kernel's `linux/bpf.h`).
//!
//! Used wherever such programs are assembled (`steering.rs`, `cookies.rs`, `filter/`).

use floodwall_bpf::{AccessSize, Assembler, Function, Register};
/// Verdicts of XDP programs.
pub(crate) const DROP: i32 = 1;
pub(crate) const PASS: i32 = 2;
pub(crate) const TRANSMIT: i32 = 3;
/// Where the context has the frame's first byte, its end, and the queue.
pub(crate) const DATA: i16 = 0;
pub(crate) const DATA_END: i16 = 4;
pub(super) const RX_QUEUE: i16 = 16;

/// Where frames for our station go that are not dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Deliver {
    /// To the socket of their receive queue.
    ToSockets,
    /// To the kernel; its packet socket has a copy for us.
    Onward,
}

impl Deliver {
    /// Emits the end of the program for such frames; `sockets` is the map of them.
    pub(super) fn emit(self, a: &mut Assembler, sockets: i32) {
        match self {
            Self::ToSockets => {
                a.map(Register::R1, sockets)
                    .load(AccessSize::Word, Register::R2, Register::R6, RX_QUEUE)
                    .set(Register::R3, DROP)
                    .call(Function::RedirectMap);
            }
            Self::Onward => {
                a.set(Register::R0, PASS);
            }
        }
        a.exit();
    }
}
