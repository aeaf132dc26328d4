//! What is wrong with a plan, found before the first packet.
//!
//! Returned by `Blast::new`, `Honest::new` and `Template::new`.

use thiserror::Error;

/// Why a plan cannot be carried out.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanError {
    /// Source and destination are not of one family.
    #[error("source and destination must both be IPv4 or both be IPv6")]
    MixedFamilies,
    /// A range ends before it begins.
    #[error("`{0}` must not end before it begins")]
    RangeReversed(&'static str),
    /// The packet would exceed what an IP packet can carry.
    #[error("a payload of {0} bytes does not fit an IP packet")]
    PayloadTooLong(usize),
    /// A stamp does not fit the smallest payload.
    #[error("a stamp takes {need} bytes of payload, but the payload may be {have} bytes",
        need = crate::stamp::STAMP_BYTES)]
    StampTooLong {
        /// The smallest payload.
        have: usize,
    },
    /// Zero packets in a time, or a time of zero.
    #[error("a pace needs at least one packet, and a time above zero")]
    PaceZero,
    /// Nothing to replay.
    #[error("a replay needs at least one frame")]
    ReplayEmpty,
    /// Fragment sizes and overlaps come in units of 8 bytes.
    #[error("fragment bytes must be a multiple of 8 above the overlap, itself a multiple of 8")]
    FragmentBytes,
    /// Flows are kept in memory that is taken at the start.
    #[error("there may be 1 to {max} flows at a time", max = crate::spreads::FLOWS_MAX)]
    FlowCount,
    /// An honest client needs a server, and an address of its own in each server's family.
    #[error("the client needs a server, and an address of each server's family")]
    NoAddress,
    /// So many requests may be open that their memory would exceed the bound.
    #[error("pace times timeout allows {0} open requests, beyond the bound of {max}",
        max = crate::honest::OPEN_MAX)]
    TooManyOpen(u64),
    /// The peer is to be found by its address, but the station has none of that family.
    #[error("to resolve the peer's link address the station needs an address of its family")]
    PeerFamily,
}
