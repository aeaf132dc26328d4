//! `SynOffers`: what SYNs are answered with, for devices that answer them by themselves.
//!
//! Filled by an engine that has listeners ([`Engine::syn_offers`](crate::Engine::syn_offers)),
//! given to devices by the dispatcher when it has changed, and when the keys turn. Invariant: where
//! an answer would differ from the engine's own, the listener is not in it.
//!
//! # Under flood
//! No peer makes it grow. Bound: `XDP_LISTENERS` listeners, each at one address; what is
//! beyond is not answered by devices.

use core::net::IpAddr;

use floodwall_base::limits::XDP_LISTENERS;
use floodwall_base::{IfIndex, Instant};

/// The keys that cookies are made with. Secret: only the kernel gets them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CookieKeys {
    /// The number of the present epoch.
    pub epoch: u64,
    /// When the next one begins.
    pub until: Instant,
    /// Keys of SipHash-2-4: of the last epoch, the present, the next, and the one after.
    pub keys: [(u64, u64); 4],
    /// The key of SipHash-1-3 by which timestamps are shifted for each flow.
    pub clock: (u64, u64),
}

impl CookieKeys {
    /// Each key with the number of its epoch.
    pub fn by_epoch(&self) -> impl Iterator<Item = (u64, (u64, u64))> {
        let epochs = (0..).map(|ahead: u64| self.epoch.wrapping_sub(1).wrapping_add(ahead));
        epochs.zip(self.keys)
    }
}

impl core::fmt::Debug for CookieKeys {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("CookieKeys").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

/// What one listener answers at one address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SynOffer {
    /// The address that the SYN is for.
    pub addr: IpAddr,
    /// And the port.
    pub port: u16,
    /// The window field of the SYN-ACK.
    pub window: u16,
    /// Our largest segment.
    pub mss: u16,
    /// Our window scale.
    pub window_scale: u8,
    /// Whether selective acknowledgments are permitted.
    pub sack: bool,
    /// Whether timestamps are sent.
    pub timestamps: bool,
    /// Whether ECN is agreed to.
    pub ecn: bool,
    /// The hop limit.
    pub hop_limit: u8,
    /// The traffic class.
    pub traffic_class: u8,
}

/// What the programs at an interface may answer SYNs with: ports and options.
#[derive(Debug)]
pub struct SynOffers {
    /// `None`: nothing is answered.
    pub keys: Option<CookieKeys>,
    /// The number of the link, which counts in cookies of link-local addresses.
    pub zone: IfIndex,
    listeners: Vec<SynOffer>,
}

impl Default for SynOffers {
    /// Nothing is answered.
    fn default() -> Self {
        Self { keys: None, zone: IfIndex::default(), listeners: Vec::with_capacity(XDP_LISTENERS) }
    }
}

impl SynOffers {
    /// Nothing is answered: where to begin.
    pub fn clear(&mut self) {
        self.keys = None;
        self.listeners.clear();
    }

    /// SYNs for this listener are answered so. False where there is no room.
    pub fn add(&mut self, offer: SynOffer) -> bool {
        let has_room = self.listeners.len() < XDP_LISTENERS;
        if has_room {
            self.listeners.push(offer);
        }
        has_room
    }

    /// All listeners.
    #[must_use]
    pub fn listeners(&self) -> &[SynOffer] {
        &self.listeners
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_beyond_the_bound_are_not_offered_and_keys_are_not_shown() {
        let mut offers = SynOffers::default();
        let offer = SynOffer {
            addr: "10.0.0.1".parse().unwrap(),
            port: 80,
            window: 1,
            mss: 2,
            window_scale: 3,
            sack: true,
            timestamps: true,
            ecn: true,
            hop_limit: 64,
            traffic_class: 0,
        };
        for n in 0..XDP_LISTENERS + 1 {
            assert_eq!(offers.add(SynOffer { port: n as u16, ..offer }), n < XDP_LISTENERS);
        }
        assert_eq!(offers.listeners().len(), XDP_LISTENERS);
        let keys =
            CookieKeys { epoch: 7, until: Instant::ORIGIN, keys: [(77_777, 1); 4], clock: (2, 3) };
        offers.keys = Some(keys);
        assert!(!format!("{offers:?}").contains("77777"));
        let first = CookieKeys { epoch: 0, ..keys };
        let epochs: Vec<_> = first.by_epoch().map(|(epoch, _)| epoch).collect();
        assert_eq!(epochs, [u64::MAX, 0, 1, 2], "the epoch before the first has a number too");
        offers.clear();
        assert!(offers.keys.is_none() && offers.listeners().is_empty());
    }
}
