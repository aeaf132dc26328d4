//! Packet buffers, and what moves them.
//!
//! A [`PacketBuf`] is one owning handle of 8 bytes to memory that a [`Pool`] took at the start. It
//! is one chunk or a chain; headers are read in place ([`PacketBuf::header`]), and pulled down only
//! for a writer ([`PacketBuf::pulldown`]). Packets travel in a [`Burst`], wait in a [`PacketList`],
//! are paid for by an [`Account`], and are handled by an [`Engine`].
//!
//! Invariants: no allocation after the region is made; bytes with more than one owner are never
//! written; what is charged is released exactly once. Start reading at `buf.rs`.
//!
//! Checked by `tests/model.rs` (any program of operations against flat bytes, which the fuzz target
//! `pulldown` continues), by loom models in `refcount.rs` and `account.rs`, and by sanitizers, each
//! in a target directory of its own:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p floodwall-packet --release --lib
//!
//! RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address" \
//!   cargo test -p floodwall-packet --target x86_64-unknown-linux-gnu
//!
//! TSAN_OPTIONS="suppressions=$PWD/.ci/tsan.supp" RUSTC_BOOTSTRAP=1 \
//!   RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" \
//!   cargo test -p floodwall-packet --lib --tests --target x86_64-unknown-linux-gnu
//! ```

mod access;
mod account;
mod buf;
mod burst;
mod capacity_hints;
mod chunks;
mod claim;
mod descriptor;
mod engine;
mod handoff;
mod home;
mod lane;
mod lent;
mod list;
mod mailbox;
mod meta;
mod node_queues;
mod packet_queue;
mod pool;
mod pulldown;
mod redirect_offer;
mod refcount;
mod retired;
mod rx_filter;
mod sum;
mod syn_offers;

pub use access::AccessCounters;
pub use account::{Account, AccountFull};
pub use buf::{ChainFull, PacketBuf};
pub use burst::Burst;
pub use capacity_hints::{CapacityHint, CapacityHints};
pub use chunks::Chunks;
pub use descriptor::Class;
pub use engine::{Engine, Peers, Round, Triage};
pub use handoff::{Handoff, HandoffKind, HandoffList};
pub use lane::Lane;
pub use list::PacketList;
pub use mailbox::PacketMailbox;
pub use meta::{ChecksumState, Offload};
pub use node_queues::NodeQueues;
pub use packet_queue::PacketQueue;
pub use pool::{
    Available, HEADROOM, HEADROOM_SMALL, Pool, PoolConfig, PoolError, Region, SMALL_BYTES,
    SUPER_BYTES,
};
pub use pulldown::PulldownError;
pub use redirect_offer::RedirectOffer;
pub use rx_filter::RxFilter;
pub use syn_offers::{CookieKeys, SynOffer, SynOffers};
