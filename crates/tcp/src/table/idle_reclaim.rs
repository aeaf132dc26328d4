//! Selection of an idle connection for eviction: approximate LRU by sampling.
//!
//! Called by services when connection places run out. A sample, not an exact order: an LRU list
//! would cost an update per segment, and a victim is needed only when an attacker has filled the
//! places; then most of the connections are its own.

use floodwall_syncache::HalfOpen;

use crate::connection_table::ConnectionTable;
use crate::id::ConnectionId;

impl<H: HalfOpen> ConnectionTable<H> {
    /// Whether at most an eighth of the places is free.
    #[must_use]
    pub fn has_few_places(&self) -> bool {
        let max = self.places_max();
        self.demux.len() >= max - max / 8
    }

    /// Among `looks` places from `from` on, cyclically, the connection of this owner with the
    /// longest time since a segment of its peer; connections that wait to be accepted are skipped.
    /// Costs one visit per place.
    #[must_use]
    pub fn silent_for_longest(&self, owner: u32, from: u32, looks: usize) -> Option<ConnectionId> {
        let from = from as usize % self.places.len().max(1);
        let (before, behind) = self.places.split_at_checked(from)?;
        let all = (from..).zip(behind).chain((0..).zip(before)).take(looks);
        let heard = all.filter(|(_, place)| place.owner == owner && place.slot.is_none());
        let heard = heard.filter_map(|(at, place)| {
            let connection = place.connection.as_ref().filter(|it| !it.released)?;
            Some((connection.heard, at))
        });
        heard.min().map(|(_, at)| self.id(at as u32))
    }
}
