//! What the fuzz targets do with their bytes, as plain functions.
//!
//! Called by the targets of `fuzz/`, and by `testkit/tests/fuzz_replay.rs`, which runs each over
//! its corpus in every ordinary test run. Invariant: a body panics exactly where something is
//! wrong, and leaves nothing behind for the next one.

#[cfg(feature = "stack")]
mod calls;
mod canary;
#[cfg(feature = "stack")]
mod ndp;
mod pulldown;
#[cfg(feature = "stack")]
mod reassembly;
#[cfg(feature = "stack")]
mod sequence;
#[cfg(feature = "stack")]
mod stack_frame;
mod syncache;
#[cfg(feature = "stack")]
mod tcp;
mod wire;

#[cfg(feature = "stack")]
pub use calls::calls;
pub use canary::canary;
#[cfg(feature = "stack")]
pub use ndp::ndp;
pub use pulldown::pulldown;
#[cfg(feature = "stack")]
pub use reassembly::reassembly;
#[cfg(feature = "stack")]
pub use sequence::sequence;
#[cfg(feature = "stack")]
pub use stack_frame::stack_frame;
pub use syncache::{Completed, cookie, play as syncache_play, syncache};
#[cfg(feature = "stack")]
pub use tcp::tcp;
pub use wire::wire;

/// A body: panics where something is wrong with what it makes of the bytes.
pub struct Body {
    /// The name of its target, which is also that of its corpus.
    pub name: &'static str,
    /// Runs it.
    pub run: fn(&[u8]),
}

/// Every body that is replayed.
pub const ALL: &[Body] = &[
    Body { name: "pulldown", run: pulldown },
    Body { name: "wire", run: wire },
    Body { name: "cookie", run: cookie },
    Body { name: "syncache", run: syncache },
    #[cfg(feature = "stack")]
    Body { name: "stack_frame", run: stack_frame },
    #[cfg(feature = "stack")]
    Body { name: "sequence", run: sequence },
    #[cfg(feature = "stack")]
    Body { name: "reassembly", run: reassembly },
    #[cfg(feature = "stack")]
    Body { name: "ndp", run: ndp },
    #[cfg(feature = "stack")]
    Body { name: "tcp", run: tcp },
    #[cfg(feature = "stack")]
    Body { name: "calls", run: calls },
];
