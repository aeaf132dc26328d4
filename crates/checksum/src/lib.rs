//! The Internet checksum of RFC 1071: whole, chunk by chunk, copy-and-sum, incremental.
//!
//! Called by `wire` (headers), `packet` and `ip` (payloads), `udp`, `tcp` and the forwarder's
//! patching. A [`InternetSum`] is a partial one's complement sum that remembers nothing but its
//! value; an [`Accumulator`] also remembers whether the next byte is at an odd offset, so the
//! pieces of a packet may be of any length. Nothing here panics, allocates or looks at more than
//! the bytes given.
//!
//! Invariant: every kernel gives the same folded value as adding 16-bit big-endian words one
//! at a time with end-around carry, for every length and alignment (the tests hold them to it).
//!
//! Read first: RFC 1071 (sections 1 and 2), RFC 1624 (incremental update), RFC 8200 section
//! 8.1 (the IPv6 pseudo-header).
//!
//! This is one of the few crates that may hold `unsafe`: only `simd.rs` does.
#![deny(clippy::indexing_slicing, clippy::unwrap_used)]

mod accumulator;
mod incremental;
mod pseudo;
mod scalar;
#[cfg(target_arch = "x86_64")]
mod simd;
mod sum;

pub use accumulator::Accumulator;
pub use incremental::{update16, update32};
pub use pseudo::{pseudo_header_v4, pseudo_header_v6};
pub use sum::{InternetSum, copy_sum, header20, header40, sum};

/// The kernels one by one, for the benches and tests only; not part of the contract.
#[doc(hidden)]
pub mod kernels {
    pub use crate::scalar::sum_scalar;
    #[cfg(target_arch = "x86_64")]
    pub use crate::simd::{sum_avx2, sum_sse2};
}
