//! The only lock-free memory of the Floodwall stack.
//!
//! One primitive a file, each with its essay, its paper and its loom model. Other crates build
//! on these and on nothing else where two cores meet: a worker never takes a lock that another
//! thread may hold.
//!
//! | primitive | who hands what to whom |
//! |---|---|
//! | [`spsc`] | one thread hands values, in order and bounded, to one other thread |
//! | [`take_all`] | any threads hand intrusive nodes to one, which takes all of them at once |
//! | [`snapshot`] | one thread shows its counters, whole, to any number of readers |
//! | [`PerCore`], [`PerNuma`] | nobody: one value each, on lines of its own |
//!
//! # Checking
//!
//! Each file's `model` runs under `--cfg loom` (`cargo test --release --lib`). The models are
//! tiny on purpose: two operations a thread, two or three threads, so that loom visits every
//! interleaving and every value that the memory model lets a relaxed load return. Payloads lie
//! in loom's `UnsafeCell`, which reports an access that nothing orders. Beside each model stands
//! which of its orderings were weakened by hand, and that the model then failed.

#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

mod cache_padded;
mod per_core;
mod per_numa;
pub mod shim;
pub mod snapshot;
pub mod spsc;
pub mod take_all;

pub use cache_padded::CachePadded;
pub use per_core::PerCore;
pub use per_numa::PerNuma;
