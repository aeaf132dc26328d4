//! How large a table may become, what it takes, and why a change is refused.
//!
//! Used by `writer.rs` and by the owners of tables.

use thiserror::Error;

use super::{ENTRY, VALUE_MAX};

/// How large a table may become: its memory is taken at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LpmCapacity {
    /// Nodes, of 64 bytes.
    pub lines: usize,
    /// Slots, of 2 bytes (IPv4) or 4 bytes (IPv6).
    pub slots: usize,
    /// Blocks of 2 KiB: of IPv6 one for each /16 with anything below; none of IPv4. Beside them a
    /// table has 256 in places of their own, which take memory when they are first used.
    pub directs: usize,
    /// Objects that wait for their grace period.
    pub retired: usize,
}

impl LpmCapacity {
    /// Enough for `prefixes` of today's Internet, and for as many that share nothing where they
    /// are few. A table of another structure may be full earlier, and refuses the change.
    #[must_use]
    pub const fn for_prefixes(prefixes: usize) -> Self {
        let spread = if prefixes < 4096 { prefixes } else { 4096 };
        Self {
            lines: 64 + prefixes / 2 + 8 * spread,
            slots: 4096 + 2 * prefixes + 16 * spread,
            directs: 4 + if spread < 384 { 2 * spread } else { 768 },
            retired: 4096,
        }
    }
}

/// Why a change was refused. The table is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UpdateError {
    /// There is no room for it.
    #[error("the routing table is full: its configured memory is used up")]
    Full,
    /// Too much waits for its grace period.
    #[error("too many changes wait for the workers to pause: try again later")]
    Pending,
    /// No route can have this number.
    #[error(
        "{0} is not a next hop's number (1 to {VALUE_MAX}; of a route that expires, below \
             {ENTRY}, as its entry)"
    )]
    Value(u32),
}

/// What a table takes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LpmMemory {
    /// What look-ups read, without what is free.
    pub lookup: usize,
    /// The same with what was freed and waits to be used again.
    pub lookup_high_water: usize,
    /// What the writer keeps for itself.
    pub writer: usize,
}
