//! Scenarios across crates: the tests lie in the folder `tests` beside this one; here is the bench
//! on which they put a stack.
#![forbid(unsafe_code)]

mod rig;

pub use rig::{Rig, ethernet_config};
