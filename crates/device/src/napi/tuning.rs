//! The values that placement sets: of NAPI, and of the scheduler.
//!
//! Used by `napi.rs` and by `half_thread.rs`, which sets them again.

use std::time::Duration;

/// Empty looks in a row after which the card calls again.
pub(super) const EMPTY_POLLS_DEFERRED: u32 = 200;
/// After how many nanoseconds the thread looks by itself while the card does not call: behind the
/// worker, and before it, where nothing may be lost meanwhile (a veth's ring has 256 places: those
/// are filled in 100 us by 2.5 million packets a second, in 500 us by half a million).
pub(super) const THREAD_FLUSH_NANOS: u64 = 500_000;
pub(super) const BEFORE_FLUSH_NANOS: u64 = 100_000;
/// As [`EMPTY_POLLS_DEFERRED`], where we look ourselves: the first look that is the card's own is
/// its call.
pub(super) const POLL_DEFER: u32 = 1;
/// As [`THREAD_FLUSH_NANOS`]: far above our longest absence, else the half runs by itself under
/// flood, and never lets go.
pub(super) const POLL_FLUSH_NANOS: u64 = 20_000_000;
/// The rank of the kernel's half behind the worker, and before it: of a core that both want it gets
/// a quarter, or nine parts of ten. At the last rank it had no time beside a program of another
/// process: a fifth of 20,000 datagrams a second found a veth's ring full. Where it chooses it had
/// nineteen parts of twenty: what was left to a worker that lets in 2,000 connections a second was
/// just what it needs, and sometimes less.
pub(super) const NICE_BEHIND: i32 = 5;
pub(super) const NICE_BEFORE: i32 = -10;
pub(super) const NICE_CHOOSING: i32 = -10;
/// Its rank behind all programs, while the share of worker and half is used up.
pub(super) const NICE_DENIED: i32 = 19;
/// How long worker and kernel half run at a stretch while both want the core. The system's own
/// slices (some 3 ms) are longer than a veth's ring of 256 frames lasts.
pub(super) const CORE_SLICE: Duration = Duration::from_micros(100);
