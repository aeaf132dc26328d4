//! Packet buffers, and what moves them.
//!
//! A [`PacketBuf`] is one owning handle of 8 bytes to memory that a [`Pool`] took at the start. It
//! is one chunk or a chain; headers are read where they lie ([`PacketBuf::header`]), and pulled
//! down only for a writer ([`PacketBuf::pulldown`]). Packets travel in a [`Burst`], wait in a
//! [`PacketList`], are paid for by an [`Account`], and are handled by an [`Engine`].
//!
//! Invariants: no allocation after the region is made; bytes with more than one owner are never
//! written; what is charged is released exactly once. Start reading at `buf.rs`.

mod access;
mod account;
mod buf;
mod burst;
mod chunks;
mod descriptor;
mod engine;
mod home;
mod lent;
mod list;
mod meta;
mod pool;
mod pulldown;
mod refcount;
mod sum;

pub use access::AccessCounters;
pub use account::{Account, AccountFull};
pub use buf::{ChainFull, PacketBuf};
pub use burst::Burst;
pub use chunks::Chunks;
pub use descriptor::Class;
pub use engine::{Engine, Round, Triage};
pub use list::PacketList;
pub use meta::{ChecksumState, Offload};
pub use pool::{
    Available, HEADROOM, HEADROOM_SMALL, Pool, PoolConfig, PoolError, Region, SMALL_BYTES,
    SUPER_BYTES,
};
pub use pulldown::PulldownError;
