//! `OrphanPatience`: how long connections that no program owns any more may wait, by how many
//! places are used.
//!
//! Asked by `timeouts.rs` and by the table where a connection loses its owner.

use core::time::Duration;

use floodwall_base::limits::{
    TCP_ORPHAN_PATIENCE, TCP_ORPHAN_PATIENCE_MIN, TCP_ORPHAN_STALL_PATIENCE,
    TCP_PLACES_KEPT_DIVISOR,
};

/// How long connections that no program owns any more may wait: less as places run out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OrphanPatience {
    /// For the peer's FIN, in FIN-WAIT-2.
    pub(crate) fin: Duration,
    /// Without progress.
    pub(crate) stall: Duration,
}

/// How many of all places are used: what the patience with connections without an owner depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlacesUsed {
    pub(crate) used: usize,
    pub(crate) places: usize,
}

impl PlacesUsed {
    /// How long connections without an owner may currently wait.
    #[inline(never)]
    pub(crate) fn orphans(self) -> OrphanPatience {
        OrphanPatience::at(self.used, self.places)
    }
}

impl OrphanPatience {
    /// While there are places.
    pub(crate) const FULL: Self =
        Self { fin: TCP_ORPHAN_PATIENCE, stall: TCP_ORPHAN_STALL_PATIENCE };

    /// Where so many of all places are used: the full time up to a half, then less and less.
    #[inline]
    pub(crate) fn at(used: usize, places: usize) -> Self {
        let half = places / 2;
        if used <= half {
            return Self::FULL;
        }
        // The last sixteenth is kept free (`table/room.rs`): there the least is reached.
        let room = (half - places / TCP_PLACES_KEPT_DIVISOR).max(1) as u32;
        let left = room.saturating_sub((used - half) as u32);
        let part = |full: Duration| {
            let more = full.saturating_sub(TCP_ORPHAN_PATIENCE_MIN);
            TCP_ORPHAN_PATIENCE_MIN + more * left / room
        };
        Self { fin: part(TCP_ORPHAN_PATIENCE), stall: part(TCP_ORPHAN_STALL_PATIENCE) }
    }
}
