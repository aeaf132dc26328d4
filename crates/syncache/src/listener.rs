//! `CacheListener`: the per-listener state: its gate, its accept queue and its pauses.
//!
//! Used by `syn_cache.rs`. An attack on one listener affects that listener only: its gate opens,
//! its pause begins, its queue is full; other listeners are not affected (FreeBSD pauses the whole
//! host). Invariants: an id refers to one listener and never to a later one in the same slot, so
//! that state that outlives a listener becomes invalid with it; places of the accept queue are
//! counted once each. Not here: addresses and ports, sockets.

use core::time::Duration;

use floodwall_base::{Instant, limits};

use crate::secret::COOKIE_LIFETIME;
use crate::settings::{CookiePolicy, ListenSettings};
use crate::stats::ListenerStats;

/// The window of time in which early evictions (before an entry served) are counted; enough of
/// them begin a pause.
const EVICTION_WINDOW: Duration = Duration::from_secs(1);

/// The id of one listener, from [`crate::HalfOpen::listen`] to its end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ListenerId {
    pub(crate) slot: u16,
    pub(crate) generation: u16,
}

/// One reserved place in an accept queue, to be released once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct AcceptSlot {
    pub(crate) listener: ListenerId,
    pub(crate) share: u16,
}

impl ListenerId {
    /// The id of another implementation of [`crate::HalfOpen`] (feature `testing`).
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub const fn of_baseline(slot: u16, generation: u16) -> Self {
        Self { slot, generation }
    }

    /// Slot and generation (feature `testing`).
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub const fn parts(self) -> (u16, u16) {
        (self.slot, self.generation)
    }
}

impl AcceptSlot {
    /// A place of another implementation of [`crate::HalfOpen`] (feature `testing`).
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub const fn of_baseline(listener: ListenerId) -> Self {
        Self { listener, share: 0 }
    }

    /// The listener that owns the queue.
    #[must_use]
    pub const fn listener(self) -> ListenerId {
        self.listener
    }
}

/// The state of one listener: settings, gate, accept queue and pause.
pub(crate) struct CacheListener {
    pub(crate) settings: ListenSettings,
    pub(crate) stats: ListenerStats,
    /// Connections that wait to be accepted.
    pub(crate) waiting: usize,
    /// Until when an unknown ACK may be verified as a cookie.
    gate_until: Instant,
    /// Until when entries are considered to be evicted before they could be retransmitted.
    crowded_until: Instant,
    /// Until when nothing is cached, and the length of the last pause.
    pause_until: Instant,
    pause: Duration,
    /// Entries evicted before they served, and since when they are counted.
    lost: usize,
    lost_since: Instant,
}

impl CacheListener {
    fn new(settings: ListenSettings) -> Self {
        Self {
            settings: ListenSettings {
                window_scale: settings.window_scale.min(14),
                backlog: settings.backlog.max(1),
                ..settings
            },
            stats: ListenerStats::default(),
            waiting: 0,
            gate_until: Instant::ORIGIN,
            crowded_until: Instant::ORIGIN,
            pause_until: Instant::ORIGIN,
            pause: Duration::ZERO,
            lost: 0,
            lost_since: Instant::ORIGIN,
        }
    }

    /// Opens the gate: a handshake of this listener may depend on a cookie from now on.
    #[inline]
    pub(crate) fn open_gate(&mut self, now: Instant) {
        self.gate_until = now + COOKIE_LIFETIME;
    }

    /// Whether an unknown ACK may be a cookie.
    #[inline]
    pub(crate) fn gate_is_open(&self, now: Instant) -> bool {
        now < self.gate_until && self.settings.cookies != CookiePolicy::Never
    }

    /// Whether caching is paused now.
    #[inline]
    pub(crate) fn is_cookie_only(&self, now: Instant) -> bool {
        match self.settings.cookies {
            CookiePolicy::Never => false,
            CookiePolicy::Always => true,
            CookiePolicy::Overflow => now < self.pause_until,
        }
    }

    /// Whether entries are evicted before their SYN-ACK would be sent again. Then nothing is
    /// retransmitted: most of it would go to spoofed addresses.
    pub(crate) fn is_crowded(&self, now: Instant) -> bool {
        now < self.crowded_until || self.is_cookie_only(now)
    }

    pub(crate) fn crowd(&mut self, now: Instant) {
        self.crowded_until = now + EVICTION_WINDOW;
    }

    /// Records that one of its SYNs has evicted an entry that had not served yet. `enough` of
    /// them within a window begin a pause, twice as long as the last one unless that ended long
    /// ago. Returns whether a pause began.
    pub(crate) fn displaced(&mut self, now: Instant, enough: usize) -> bool {
        self.crowd(now);
        if now - self.lost_since > EVICTION_WINDOW {
            (self.lost, self.lost_since) = (0, now);
        }
        self.lost += 1;
        let pauses = self.lost >= enough && self.settings.cookies == CookiePolicy::Overflow;
        if pauses {
            let renewed = now - self.pause_until < self.pause * 2;
            let doubled = (self.pause * 2).min(limits::SYN_COOKIE_ONLY_MAX);
            self.pause = if renewed { doubled } else { limits::SYN_COOKIE_ONLY_MIN };
            self.pause_until = now + self.pause;
            self.lost = 0;
        }
        pauses
    }
}

/// A slot: its generation, and its listener if it is in use.
struct ListenerSlot {
    generation: u16,
    listener: Option<CacheListener>,
}

/// All listeners of a cache.
pub(crate) struct CacheListeners {
    slots: Vec<ListenerSlot>,
    max: usize,
}

impl CacheListeners {
    /// A table with room for `max` listeners, allocated now.
    pub(crate) fn new(max: usize) -> Self {
        let max = max.min(usize::from(u16::MAX));
        Self { slots: Vec::with_capacity(max), max }
    }

    pub(crate) fn add(&mut self, settings: ListenSettings) -> Option<ListenerId> {
        let free = self.slots.iter().position(|slot| slot.listener.is_none());
        if free.is_none() && self.slots.len() < self.max {
            self.slots.push(ListenerSlot { generation: 0, listener: None });
        }
        let at = free.unwrap_or(self.slots.len().checked_sub(1)?);
        let slot = self.slots.get_mut(at).filter(|slot| slot.listener.is_none())?;
        slot.listener = Some(CacheListener::new(settings));
        Some(ListenerId { slot: at as u16, generation: slot.generation })
    }

    pub(crate) fn remove(&mut self, id: ListenerId) -> Option<CacheListener> {
        let slot = self.slots.get_mut(usize::from(id.slot))?;
        if slot.generation != id.generation {
            return None;
        }
        let gone = slot.listener.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        Some(gone)
    }

    #[inline]
    pub(crate) fn of(&self, id: ListenerId) -> Option<&CacheListener> {
        let slot = self.slots.get(usize::from(id.slot))?;
        slot.listener.as_ref().filter(|_| slot.generation == id.generation)
    }

    #[inline]
    pub(crate) fn of_mut(&mut self, id: ListenerId) -> Option<&mut CacheListener> {
        let slot = self.slots.get_mut(usize::from(id.slot))?;
        slot.listener.as_mut().filter(|_| slot.generation == id.generation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn an_identity_outlives_its_listener_without_naming_the_next() {
        let mut all = CacheListeners::new(1);
        let first = all.add(ListenSettings::new(1)).unwrap();
        assert!(all.add(ListenSettings::new(1)).is_none(), "no room");
        assert!(all.remove(first).is_some() && all.remove(first).is_none());
        let second = all.add(ListenSettings::new(2)).unwrap();
        assert_eq!(first.slot, second.slot);
        assert!(all.of(first).is_none() && all.of_mut(first).is_none());
        assert_eq!(all.of(second).unwrap().settings.backlog, 2);
    }

    #[test]
    fn pauses_double_while_the_flood_is_renewed_and_begin_anew_after_a_silence() {
        let mut one = CacheListener::new(ListenSettings::new(1));
        let pause = |one: &mut CacheListener, second: u64| {
            assert!(!one.is_cookie_only(at(second)));
            assert!(!one.displaced(at(second), 2) && one.displaced(at(second), 2));
            (1..).find(|n| !one.is_cookie_only(at(second + n))).unwrap()
        };
        assert_eq!(pause(&mut one, 100), 15);
        assert_eq!(pause(&mut one, 115), 30);
        assert_eq!(pause(&mut one, 150), 60);
        assert_eq!(pause(&mut one, 210), 120);
        assert_eq!(pause(&mut one, 330), 240);
        assert_eq!(pause(&mut one, 570), 240);
        assert_eq!(pause(&mut one, 570 + 240 + 480), 15);
    }

    #[test]
    fn losses_that_are_spread_over_time_begin_no_pause() {
        let mut one = CacheListener::new(ListenSettings::new(1));
        assert!((0..100).all(|n| !one.displaced(at(2 * n), 2)));
    }

    #[test]
    fn a_gate_opens_for_a_lifetime_and_never_without_cookies() {
        let mut one = CacheListener::new(ListenSettings::new(1));
        assert!(!one.gate_is_open(at(5)));
        one.open_gate(at(5));
        assert!(one.gate_is_open(at(34)) && !one.gate_is_open(at(35)));
        one.settings.cookies = CookiePolicy::Never;
        assert!(!one.gate_is_open(at(6)));
    }
}
