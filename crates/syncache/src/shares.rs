//! `ListenerShares`: counts how much of the cache, and of each accept queue, one source prefix
//! uses.
//!
//! Used by `syn_cache.rs`. Counters under a keyed hash of the prefix (IPv4 /24, IPv6 /56); the
//! prefixes themselves are not stored. Two prefixes that collide in a counter share one share,
//! which makes it smaller and never larger. Invariant: each increment is undone exactly once, under
//! the index that the owner has stored. Not here: what happens to a source over its share.
//!
//! # Under flood
//! Fixed arrays of 4,096 counters; an attacker with many prefixes raises many of them a little.
//! With 15,359 forged prefixes each counter stands at 4 while a share is in the thousands: honest
//! traffic loses nothing.

use floodwall_base::{Endpoint, HashKey};

use crate::prefix::prefix;

/// Counters of each kind; a power of two.
const COUNTERS: usize = 4096;

/// The counters of half-open connections and accept-queue places by source prefix.
pub(crate) struct ListenerShares {
    key: HashKey,
    half_open: Box<[u16; COUNTERS]>,
    accepts: Box<[u16; COUNTERS]>,
}

impl ListenerShares {
    pub(crate) fn new(key: HashKey) -> Self {
        Self { key, half_open: Box::new([0; COUNTERS]), accepts: Box::new([0; COUNTERS]) }
    }

    /// The index of a client's prefix.
    #[inline]
    pub(crate) fn of(&self, remote: Endpoint) -> u16 {
        (self.key.words(&[prefix(remote)]) as usize % COUNTERS) as u16
    }

    /// Half-open connections of that index.
    #[inline]
    pub(crate) fn half_open(&self, share: u16) -> usize {
        self.half_open.get(usize::from(share)).map_or(0, |n| usize::from(*n))
    }

    /// One more of them.
    #[inline]
    pub(crate) fn add_half_open(&mut self, share: u16) {
        if let Some(n) = self.half_open.get_mut(usize::from(share)) {
            *n = n.saturating_add(1);
        }
    }

    /// One less of them.
    #[inline]
    pub(crate) fn drop_half_open(&mut self, share: u16) {
        if let Some(n) = self.half_open.get_mut(usize::from(share)) {
            *n = n.saturating_sub(1);
        }
    }

    /// The index of a prefix in one listener's accept queue.
    #[inline]
    pub(crate) const fn of_queue(share: u16, listener: u16) -> u16 {
        // Odd, so that each listener uses another permutation.
        (share ^ listener.wrapping_mul(0x9e37)) % COUNTERS as u16
    }

    /// Places of accept queues of that index.
    #[inline]
    pub(crate) fn accepts(&self, share: u16) -> usize {
        self.accepts.get(usize::from(share)).map_or(0, |n| usize::from(*n))
    }

    /// One more of them.
    #[inline]
    pub(crate) fn add_accept(&mut self, share: u16) {
        if let Some(n) = self.accepts.get_mut(usize::from(share)) {
            *n = n.saturating_add(1);
        }
    }

    /// One less of them.
    #[inline]
    pub(crate) fn drop_accept(&mut self, share: u16) {
        if let Some(n) = self.accepts.get_mut(usize::from(share)) {
            *n = n.saturating_sub(1);
        }
    }
}
