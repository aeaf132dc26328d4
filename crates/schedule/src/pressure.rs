//! `Pressure`: whether more comes than the worker can handle, told from its polls alone.
//!
//! Asked by [`Gate`](crate::Gate) at each poll. There are two kinds. While refusable packets die,
//! every packet is looked at, for the next one is cheaper refused than answered: that is sifting,
//! and costs nobody else his place. Choosing among strangers is the other kind, and begins only
//! where polls come back full and neither a burst nor a pause explains it.
//!
//! What a burst leaves in the ring is no pressure: a sender that catches up after a pause of its
//! own fills more of it in a millisecond than the lines take, and who chose then would drop
//! strangers whom a worker that is not even half loaded would have served. So full polls count only
//! after [`GateConfig::patience`] or [`GateConfig::burst`]. Nor is what a pause leaves there: a
//! worker from which the system took its core for a while, and that is loaded to four fifths, has
//! caught up after four times that. Who makes polls full for longer than a burst lasts, again and
//! again, is not waited for each time: for [`ALERT_LASTS`] two full polls are enough.
//!
//! A ring that has overflowed is another matter: whatever explains it, friends were lost with the
//! rest. Then packets are looked at, so that a device learns who is a friend and may lose others
//! instead; nobody has to wait for it, and nobody dies of it here.
//!
//! Choosing lasts until nobody waits and no stranger has had to die for a while, or nobody has
//! waited for a millisecond: then strangers died of a burst, not of a load.

use core::time::Duration;

use floodwall_base::Instant;

use crate::gate::GateConfig;

/// After so many times the length of a pause, a worker at four fifths of what it can do has worked
/// off what came meanwhile.
const CAUGHT_UP: u32 = 4;
/// A shorter pause leaves no more than the lines take, and is not told from a long turn.
pub(crate) const PAUSE_MIN: Duration = Duration::from_micros(250);
/// The longest pause that is believed: an idle worker sleeps for longer.
const PAUSE_MAX: Duration = Duration::from_millis(16);
/// Both kinds last for so long after the last packet that had to die: a flood whose polls find room
/// now and then is one flood.
pub(crate) const LASTS: Duration = Duration::from_millis(10);
/// Who has had room for so long, with nobody waiting, has caught up.
pub(crate) const CALM: Duration = Duration::from_millis(1);
/// For so long after polls were full for longer than a burst is, the next burst is none: or friends
/// would die in a ring that is filled anew as soon as choosing ends.
pub(crate) const ALERT_LASTS: Duration = Duration::from_millis(100);
/// Full polls in a row that are pressure, where no burst and no pause explains them.
const FULL_POLLS: u32 = 2;

/// See the file's head.
#[derive(Debug)]
pub(crate) struct Pressure {
    patience: Duration,
    burst: usize,
    /// Full polls in a row, those apart that a burst or a pause has left.
    fulls: u32,
    /// How many packets full polls in a row have brought, how long their turns have taken, and the
    /// longest pause before one of them.
    brought: usize,
    behind: Duration,
    pause: Duration,
    /// Until when bursts are not believed.
    alert_until: Instant,
    /// Whether strangers are chosen among, and when polls last said so or a stranger had to die.
    choosing: bool,
    pressed: Instant,
    /// When the last refusable packet had to die, as far as it matters.
    refused: Option<Instant>,
    /// Since when polls have room and nobody waits.
    caught_up: Option<Instant>,
    /// When a device last lost packets for want of room, as far as it matters.
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

    /// Whether strangers are chosen among: they may have to wait, and to die.
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

    /// A poll at `now` has brought `taken` packets, all that were asked for if it is `full`, after
    /// a time that the worker did not mean to be away; `waiting` is whether strangers wait.
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
        let recent = |moment: Instant| now - moment <= LASTS;
        self.refused = self.refused.filter(|moment| recent(*moment));
        self.lost = self.lost.filter(|moment| now - *moment <= ALERT_LASTS);
        if self.fulls >= FULL_POLLS || self.patience.is_zero() {
            (self.choosing, self.pressed) = (true, now);
        } else if self.choosing {
            let caught_up = self.caught_up.is_some_and(|since| now - since >= CALM);
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

    /// A stranger had to die at `now`.
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

    /// A refusable packet had to die at `now`.
    pub(crate) const fn refused(&mut self, now: Instant) {
        self.refused = Some(now);
    }
}
