//! What only tests need: counting allocations, cutting packets, reading captures, fuzz bodies,
//! scripts of segments.
//!
//! Called by tests, by benches and by the fuzz targets, never by the product. Invariant: the same
//! arguments give the same answers; what is random takes a seed.
#![deny(unsafe_code)]

pub mod alloc;
#[cfg(not(loom))]
pub mod by_byte;
pub mod captures;
pub mod cuts;
#[cfg(not(loom))]
pub mod fuzz_bodies;
#[cfg(not(loom))]
pub mod packet_model;
#[cfg(all(feature = "pkt", not(loom)))]
pub mod pkt;
mod seeded;

pub use seeded::Seeded;
