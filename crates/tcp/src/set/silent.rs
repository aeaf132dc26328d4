//! Who has been silent for longest, for whoever has to let somebody go.
//!
//! Asked by services when places run out. A sample, not an order: keeping all connections in the
//! order in which they were heard would cost something for each segment, and a sample is needed
//! only where somebody has filled the places, most of whose connections are then of his kind.

use floodwall_syncache::HalfOpen;

use crate::id::ConnectionId;
use crate::tcp::Tcp;

impl<H: HalfOpen> Tcp<H> {
    /// Whether no more than an eighth of the places is left.
    #[must_use]
    pub fn has_few_places(&self) -> bool {
        let max = self.places_max();
        self.demux.len() >= max - max / 8
    }

    /// Of `looks` places from `from` on, round and round, the connection of this owner whose peer
    /// was heard longest ago; none that waits to be accepted. Costs a look at each.
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
