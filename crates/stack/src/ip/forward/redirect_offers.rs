//! `RedirectOffers`: the pairs of hosts that were offered to devices since these took them last.
//!
//! Part of `Forwarding`; filled and emptied by `redirects.rs`, where the bound is described.

use floodwall_base::limits::REDIRECT_OFFERS_MAX;
use floodwall_packet::RedirectOffer;

/// The offers of this turn.
#[derive(Default)]
pub(crate) struct RedirectOffers {
    /// Whether a device takes them.
    pub(super) wanted: bool,
    pub(super) offers: Vec<RedirectOffer>,
}

impl RedirectOffers {
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.wanted && self.offers.len() < REDIRECT_OFFERS_MAX
    }
}
