//! The only lock-free memory of the Floodwall stack.
//!
//! One primitive a file, each with its essay, its source and its loom model. Other crates build on
//! these and on nothing else where two cores meet: a worker never takes a lock that another thread
//! may hold.
//!
//! | primitive | what it hands over, from which thread to which |
//! |---|---|
//! | [`spsc`] | one thread hands values, in order and bounded, to one other thread |
//! | [`take_all`] | any threads hand intrusive nodes to one, which takes all of them at once |
//! | [`mailbox`], [`Credit`] | a connection's ends exchange chunks, and send credit (backpressure)
//! |
//! | [`Doorbell`], [`Call`] | any threads notify one worker of the slots that need service |
//! | [`AcceptQueue`] | workers hand finished connections to the program that listens |
//! | [`WakerCell`], [`WakeGroup`] | a waiting task leaves its waker; a worker hands a round's over
//! |
//! | [`Alarm`] | any threads wake one that sleeps, and do not interrupt one that is awake |
//! | [`snapshot`] | one thread shows its counters, whole, to any number of readers |
//! | [`qsbr`], [`RcuCell`] | one writer replaces what all workers read, and frees it later |
//! | [`Per`] | nothing: one value per worker, on lines of its own |
//! | [`prefetch()`] | nothing: a line is prefetched before it is read |
//! | [`zeroed()`] | nothing: an array of atomics takes its memory when it is touched |
//! | [`HugeArray`] | nothing: large tables on large pages |
//! | [`lock`] | nothing on the packets' path: `std`'s locks, visible to sanitizers |
//! | [`BitInstructions`] | nothing: work is compiled for them too |
//!
//! # Checking
//!
//! Each file's `model` runs under loom. The models are tiny on purpose: two operations a thread,
//! two or three threads, so that loom visits every interleaving (up to a bound on preemption
//! where one is written down) and every value that the memory model lets a relaxed load return.
//! Payloads are in loom's `UnsafeCell`, which reports an access that nothing orders. Beside each
//! model stands which of its orderings were weakened by hand, and that the model then failed. A
//! model that cannot fail proves nothing: weaken it again after each change. Where the weakening
//! is itself a test (`weaken.rs`: reclamation, the alarm), that happens at every run.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p floodwall-sync --release --lib
//!
//! TSAN_OPTIONS="suppressions=$PWD/.ci/tsan.supp" RUSTC_BOOTSTRAP=1 \
//!   RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" \
//!   cargo test -p floodwall-sync --lib --target x86_64-unknown-linux-gnu
//!
//! RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address" \
//!   cargo test -p floodwall-sync --lib --target x86_64-unknown-linux-gnu
//! ```
//!
//! Each in a target directory of its own. The stress tests fail under ThreadSanitizer, too, for
//! each ordering of the ring and of the list that is weakened (the snapshot is all atomics: there
//! only loom detects it).

#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

mod accept_queue;
mod alarm;
mod bit_instructions;
mod cache_padded;
mod call;
mod credit;
mod doorbell;
mod huge_array;
pub mod lock;
pub mod mailbox;
mod per;
mod prefetch;
pub mod qsbr;
mod rcu_cell;
pub mod shim;
pub mod snapshot;
pub mod spsc;
pub mod take_all;
mod wake_group;
mod waker;
mod weaken;
mod zeroed;

pub use accept_queue::{AcceptQueue, AcceptStalled};
pub use alarm::Alarm;
pub use bit_instructions::BitInstructions;
pub use cache_padded::CachePadded;
pub use call::Call;
pub use credit::Credit;
pub use doorbell::{Doorbell, DoorbellRung, DoorbellStopped, Ring};
pub use huge_array::{HugeArray, allocate};
pub use mailbox::Mailbox;
pub use per::{LocalIndex, Per};
pub use prefetch::prefetch;
pub use rcu_cell::{RcuCell, Retired};
pub use wake_group::WakeGroup;
pub use waker::WakerCell;
pub use zeroed::{CacheLine, Zero, zeroed, zeroed_box};
