//! `Pressure`: overload detection from the results of polls alone.
//!
//! Used by [`Gate`](crate::Gate) at each poll. There are two levels. While refusable packets are
//! dropped, every packet is classified, because dropping is cheaper than serving: that is sifting,
//! and costs no other flow its place. Choosing, which drops unverified packets, is the other level,
//! and begins only where polls come back full and neither a burst nor a pause explains it.
//!
//! A burst's backlog in the ring is no pressure: a sender that catches up after a pause of its own
//! fills more of it in a millisecond than the queues take, and choosing then would drop unverified
//! packets that a worker with less than half load would have served. So full polls count only after
//! [`GateConfig::patience`] or [`GateConfig::burst`]. Nor is the backlog of a pause: a worker that
//! was preempted for a while, at a load of four fifths, has caught up after four times that. When
//! polls are full for longer than a burst lasts again and again, the delay is not repeated: for
//! [`ALERT_LASTS`] two full polls are enough.
//!
//! A ring that has overflowed is another matter: for any reason, established flows have lost
//! packets too. Then packets are classified, so that a device learns the established flows and can
//! drop others instead; this delays and drops no packet here.
//!
//! Choosing lasts until no packet waits and no unverified packet was dropped for a while, or no
//! packet has waited for a millisecond: then the drops were due to a burst, not to load.

use core::time::Duration;

use floodwall_base::Instant;

use crate::gate::GateConfig;

/// After so many times the length of a pause, a worker at four fifths of what it can do has worked
/// off what came meanwhile.
const CAUGHT_UP: u32 = 4;
/// A shorter pause leaves no more than the queues take, and cannot be told from a long turn.
pub(crate) const PAUSE_MIN: Duration = Duration::from_micros(250);
/// Longest pause that is accepted as one: an idle worker sleeps for longer.
const PAUSE_MAX: Duration = Duration::from_millis(16);
/// Both levels last for so long after the last drop: a flood with occasional room in polls is one
/// flood.
pub(crate) const PRESSURE_LASTS: Duration = Duration::from_millis(10);
/// After so long with room in polls and without waiting packets, the worker has caught up.
pub(crate) const CAUGHT_UP_AFTER: Duration = Duration::from_millis(1);
/// For so long after polls were full for longer than a burst, full polls are not taken for a burst;
/// otherwise established flows would lose packets in a ring that is refilled as soon as choosing
/// ends.
pub(crate) const ALERT_LASTS: Duration = Duration::from_millis(100);
/// Full polls in a row that are pressure, where no burst and no pause explains them.
const FULL_POLLS: u32 = 2;

/// The state of overload detection.
#[derive(Debug)]
pub(crate) struct Pressure {
    patience: Duration,
    burst: usize,
    /// Full polls in a row, those apart that a burst or a pause has left.
    fulls: u32,
    /// Packets that consecutive full polls have delivered, the time of their turns, and the longest
    /// pause before one of them.
    brought: usize,
    behind: Duration,
    pause: Duration,
    /// Until when full polls are not taken for a burst.
    alert_until: Instant,
    /// Whether choosing is active, and when polls last required it or an unverified packet was
    /// dropped.
    choosing: bool,
    pressed: Instant,
    /// When the last refusable packet was dropped, if recent.
    refused: Option<Instant>,
    /// Since when polls have room and no packet waits.
    caught_up: Option<Instant>,
    /// When a device last lost packets for lack of room, if recent.
    lost: Option<Instant>,
}

impl Pressure {
    pub(crate) fn new(config: &GateConfig) -> Self {
        Self {
            patience: config.patience,
            burst: config.burst,
            fulls: 0,
            brought: 0,
            behind: Duration::ZERO,
            pause: Duration::ZERO,
            alert_until: Instant::ORIGIN,
            choosing: config.patience.is_zero(),
            pressed: Instant::ORIGIN,
            refused: None,
            caught_up: None,
            lost: None,
        }
    }

    /// Whether choosing is active: unverified packets may have to wait, and may be dropped.
    #[inline]
    pub(crate) const fn chooses(&self) -> bool {
        self.choosing
    }

    /// Whether packets are looked at, for any reason.
    #[inline]
    pub(crate) const fn looks(&self) -> bool {
        self.choosing || self.refused.is_some() || self.lost.is_some()
    }

    /// Whether polls were full lately for longer than a burst lasts, or a device lost packets, at
    /// the time of the last one.
    #[inline]
    pub(crate) fn is_alert(&self, now: Instant) -> bool {
        now < self.alert_until || self.lost.is_some()
    }

    /// Records a poll at `now` with `taken` packets, all that were requested if it is `full`, after
    /// a time of involuntary absence; `waiting` is whether unverified packets wait.
    #[inline]
    pub(crate) fn polled(
        &mut self,
        now: Instant,
        pause: Duration,
        taken: usize,
        (full, waiting): (bool, bool),
    ) {
        if pause >= PAUSE_MIN {
            self.pause = self.pause.max(pause.min(PAUSE_MAX));
        }
        if full {
            self.brought = self.brought.saturating_add(taken);
            self.count_full(now);
        } else {
            (self.pause, self.behind) = <_>::default();
            (self.fulls, self.brought) = (0, 0);
        }
        if full || waiting {
            self.caught_up = None;
        } else {
            self.caught_up.get_or_insert(now);
        }
        let recent = |moment: Instant| now - moment <= PRESSURE_LASTS;
        self.refused = self.refused.filter(|moment| recent(*moment));
        self.lost = self.lost.filter(|moment| now - *moment <= ALERT_LASTS);
        if self.fulls >= FULL_POLLS || self.patience.is_zero() {
            (self.choosing, self.pressed) = (true, now);
        } else if self.choosing {
            let caught_up = self.caught_up.is_some_and(|since| now - since >= CAUGHT_UP_AFTER);
            self.choosing = waiting || recent(self.pressed) && !caught_up;
        }
    }

    /// One more full poll: whether a burst or a pause has left it.
    #[inline]
    fn count_full(&mut self, now: Instant) {
        if self.behind < self.pause * CAUGHT_UP {
            return;
        }
        if self.behind >= self.patience || self.brought >= self.burst {
            self.alert_until = now + ALERT_LASTS;
        }
        if now < self.alert_until {
            self.fulls = self.fulls.saturating_add(1);
        }
    }

    /// The turn of the last poll has taken so long.
    #[inline]
    pub(crate) fn ran(&mut self, took: Duration) {
        self.behind += took;
    }

    /// Records that an unverified packet was dropped at `now`.
    pub(crate) const fn crowded_out(&mut self, now: Instant) {
        self.pressed = now;
    }

    /// A device has lost packets by `now`.
    pub(crate) const fn overflowed(&mut self, now: Instant) {
        self.lost = Some(now);
    }

    /// Whether a device has lost packets at that very poll.
    #[inline]
    pub(crate) fn has_lost(&self, polled: Instant) -> bool {
        self.lost == Some(polled)
    }

    /// Records that a refusable packet was dropped at `now`.
    pub(crate) const fn refused(&mut self, now: Instant) {
        self.refused = Some(now);
    }
}
