//! A lane: one direction of a link, and all that may happen to a frame on it.
//!
//! Called by `world.rs` when a frame is sent. A lane is a queue of bounded bytes, a transmitter
//! of so many bytes a second, and a way that takes time and may lose, double, delay or damage.
//! Invariants: frames keep their order, except those that `reorder` picks; a frame arrives at
//! least one nanosecond after it was sent, so that no loop of nodes can stop the clock; every
//! random choice comes from the lane's own stream.

use core::time::Duration;

use floodwall_base::{Instant, PublicRandom};

use crate::error::WorldError;

/// How a lane treats frames. Bytes are those of the frame as its sender made it: a real wire adds
/// preamble and check sequence.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LaneConfig {
    /// Time on the way, for every frame.
    pub delay: Duration,
    /// Further time on the way, drawn evenly from zero up to this for each frame. Order is kept:
    /// a frame never overtakes the one before it.
    pub jitter: Duration,
    /// Bytes a second; `None` for no limit.
    pub rate: Option<u64>,
    /// Bytes that may wait for the transmitter, the frame in transmission included; what does not
    /// fit is dropped. An idle transmitter takes a frame of any size. Means nothing without a rate.
    pub queue_bytes: u64,
    /// Probability that a frame is lost on the way.
    pub loss: f64,
    /// Probability that a frame arrives twice.
    pub duplicate: f64,
    /// Probability that a frame is held back by `reorder_delay`, so that later ones overtake it.
    pub reorder: f64,
    /// How long it is held back.
    pub reorder_delay: Duration,
    /// Probability that one bit of the frame, drawn evenly, is flipped.
    pub corrupt: f64,
}

impl Default for LaneConfig {
    /// A perfect wire without limits.
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            rate: None,
            queue_bytes: 1 << 20,
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_delay: Duration::from_millis(1),
            corrupt: 0.0,
        }
    }
}

impl LaneConfig {
    /// A perfect wire of some length.
    #[must_use]
    pub fn with_delay(delay: Duration) -> Self {
        Self { delay, ..Self::default() }
    }

    fn check(&self) -> Result<(), WorldError> {
        let chances = [
            ("loss", self.loss),
            ("duplicate", self.duplicate),
            ("reorder", self.reorder),
            ("corrupt", self.corrupt),
        ];
        for (name, chance) in chances {
            if !(0.0..=1.0).contains(&chance) {
                return Err(WorldError::Probability(name));
            }
        }
        if self.rate == Some(0) { Err(WorldError::RateZero) } else { Ok(()) }
    }
}

/// Why a frame did not reach the receiver's ring.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum LaneDrop {
    /// The sender gave a GSO frame or an unfinished checksum that this wire cannot finish.
    Unfinished,
    /// The queue before the transmitter was full.
    QueueFull,
    /// The way lost it.
    Lost,
    /// The receiver's device ring was full: its core was too slow.
    RingFull,
    /// The receiver's packet pool was empty.
    NoBuffer,
}

/// What one lane carried and lost. Counts are frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LaneStats {
    /// Given by the sender.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Put into the receiver's ring.
    pub delivered: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// On the way now.
    pub in_flight: u64,
    /// Copies that the way made.
    pub duplicated: u64,
    /// Held back so that later ones overtook them.
    pub reordered: u64,
    /// Damaged.
    pub corrupted: u64,
    /// Dropped as [`LaneDrop::Unfinished`].
    pub unfinished: u64,
    /// Dropped as [`LaneDrop::QueueFull`].
    pub queue_full: u64,
    /// Dropped as [`LaneDrop::Lost`].
    pub lost: u64,
    /// Dropped as [`LaneDrop::RingFull`].
    pub ring_full: u64,
    /// Dropped as [`LaneDrop::NoBuffer`].
    pub no_buffer: u64,
}

impl LaneStats {
    /// Frames dropped, for any reason.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.unfinished + self.queue_full + self.lost + self.ring_full + self.no_buffer
    }

    /// Whether every frame that went in came out, was dropped and counted, or is on the way. Always
    /// true.
    #[must_use]
    pub const fn is_balanced(&self) -> bool {
        self.sent + self.duplicated == self.delivered + self.dropped() + self.in_flight
    }

    pub(crate) const fn count_drop(&mut self, why: LaneDrop) {
        match why {
            LaneDrop::Unfinished => self.unfinished += 1,
            LaneDrop::QueueFull => self.queue_full += 1,
            LaneDrop::Lost => self.lost += 1,
            LaneDrop::RingFull => self.ring_full += 1,
            LaneDrop::NoBuffer => self.no_buffer += 1,
        }
    }
}

/// What becomes of a frame that was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LaneOutcome {
    Dropped(LaneDrop),
    Carried {
        at: Instant,
        /// When a second copy arrives, if one does.
        again: Option<Instant>,
        /// Which bit is flipped, if one is.
        flip: Option<u64>,
    },
}

/// One direction of a link at work.
pub(crate) struct LinkLane {
    config: LaneConfig,
    random: PublicRandom,
    /// When the transmitter will have sent everything that it was given.
    free_at: Instant,
    /// What rounding took from the frames before, in bytes times 10^9 below the rate.
    carry: u64,
    /// When the last frame that keeps its order arrives.
    last_at: Instant,
    pub(crate) stats: LaneStats,
}

impl LinkLane {
    pub(crate) fn new(config: LaneConfig, seed: u64) -> Result<Self, WorldError> {
        config.check()?;
        Ok(Self {
            config,
            random: PublicRandom::new(seed),
            free_at: Instant::ORIGIN,
            carry: 0,
            last_at: Instant::ORIGIN,
            stats: LaneStats::default(),
        })
    }

    pub(crate) fn set_config(&mut self, config: LaneConfig) -> Result<(), WorldError> {
        config.check()?;
        self.config = config;
        Ok(())
    }

    /// Decides what becomes of a frame of `len` bytes that is sent at `now`, and counts it as
    /// sent, and as in flight or dropped.
    pub(crate) fn send(&mut self, now: Instant, len: usize) -> LaneOutcome {
        self.stats.sent += 1;
        self.stats.sent_bytes += len as u64;
        let Some(left) = self.serialize(now, len as u64) else {
            return self.drop_frame(LaneDrop::QueueFull);
        };
        if self.random.chance(self.config.loss) {
            return self.drop_frame(LaneDrop::Lost);
        }
        let flip = (len > 0 && self.random.chance(self.config.corrupt))
            .then(|| self.random.below(len as u64 * 8));
        self.stats.corrupted += u64::from(flip.is_some());
        let at = self.arrival(now, left);
        let again = self.random.chance(self.config.duplicate).then(|| at + Duration::from_nanos(1));
        let copies = u64::from(again.is_some());
        self.stats.duplicated += copies;
        self.stats.in_flight += 1 + copies;
        LaneOutcome::Carried { at, again, flip }
    }

    pub(crate) fn drop_frame(&mut self, why: LaneDrop) -> LaneOutcome {
        self.stats.count_drop(why);
        LaneOutcome::Dropped(why)
    }

    /// When the transmitter has sent the last of `len` bytes; `None` where the queue is full.
    fn serialize(&mut self, now: Instant, len: u64) -> Option<Instant> {
        let Some(rate) = self.config.rate else { return Some(now) };
        if self.free_at <= now {
            (self.free_at, self.carry) = (now, 0);
        } else {
            let wait = self.free_at.saturating_since(now).as_nanos();
            let waiting = (wait * u128::from(rate)).div_ceil(1_000_000_000);
            if waiting + u128::from(len) > u128::from(self.config.queue_bytes) {
                return None;
            }
        }
        let work = u128::from(len) * 1_000_000_000 + u128::from(self.carry);
        let nanos = u64::try_from(work / u128::from(rate)).unwrap_or(u64::MAX);
        self.carry = (work % u128::from(rate)) as u64;
        self.free_at += Duration::from_nanos(nanos);
        Some(self.free_at)
    }

    /// When a frame that left the transmitter at `left` arrives.
    fn arrival(&mut self, now: Instant, left: Instant) -> Instant {
        let jitter_nanos = u64::try_from(self.config.jitter.as_nanos()).unwrap_or(u64::MAX);
        let jitter = match jitter_nanos {
            0 => 0,
            most => self.random.below(most.saturating_add(1)),
        };
        let at = left + self.config.delay + Duration::from_nanos(jitter);
        let at = at.max(now + Duration::from_nanos(1));
        if self.random.chance(self.config.reorder) {
            self.stats.reordered += 1;
            return at + self.config.reorder_delay;
        }
        self.last_at = self.last_at.max(at);
        self.last_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(config: LaneConfig) -> LinkLane {
        LinkLane::new(config, 7).unwrap()
    }

    fn at(outcome: LaneOutcome) -> u64 {
        match outcome {
            LaneOutcome::Carried { at, .. } => at.as_nanos(),
            LaneOutcome::Dropped(why) => panic!("dropped: {why:?}"),
        }
    }

    #[test]
    fn the_rate_is_exact_over_many_frames() {
        // 3 bytes a microsecond: a frame of 100 bytes takes 33,333.3 ns.
        let mut lane = lane(LaneConfig {
            rate: Some(3_000_000),
            queue_bytes: 1 << 30,
            ..LaneConfig::default()
        });
        let last = (0..3000).map(|_| at(lane.send(Instant::ORIGIN, 100))).last();
        assert_eq!(last, Some(100_000_000));
    }

    #[test]
    fn a_full_queue_drops_the_newcomer_and_drains() {
        let mut lane =
            lane(LaneConfig { rate: Some(1000), queue_bytes: 250, ..LaneConfig::default() });
        let now = Instant::ORIGIN;
        assert_eq!(at(lane.send(now, 100)), 100_000_000);
        assert_eq!(at(lane.send(now, 100)), 200_000_000);
        assert_eq!(lane.send(now, 100), LaneOutcome::Dropped(LaneDrop::QueueFull));
        let later = now + Duration::from_millis(50);
        assert_eq!(at(lane.send(later, 100)), 300_000_000);
        assert!(lane.stats.is_balanced());
    }

    #[test]
    fn jitter_keeps_the_order_and_reordering_breaks_it() {
        let jitter = LaneConfig { jitter: Duration::from_millis(5), ..LaneConfig::default() };
        let times = |config: LaneConfig| {
            let mut lane = lane(config);
            (0..500).map(|i| at(lane.send(Instant::from_nanos(i * 1000), 1))).collect::<Vec<_>>()
        };
        assert!(times(jitter).is_sorted());
        assert!(times(jitter).iter().any(|t| *t > 1_000_000));
        assert!(!times(LaneConfig { reorder: 0.1, ..LaneConfig::default() }).is_sorted());
    }

    #[test]
    fn nothing_arrives_at_the_moment_it_was_sent() {
        assert_eq!(at(lane(LaneConfig::default()).send(Instant::from_nanos(5), 64)), 6);
    }

    #[test]
    fn impossible_settings_are_refused() {
        for bad in [f64::NAN, -0.1, 1.1] {
            let config = LaneConfig { corrupt: bad, ..LaneConfig::default() };
            assert_eq!(LinkLane::new(config, 0).err(), Some(WorldError::Probability("corrupt")));
        }
        let config = LaneConfig { rate: Some(0), ..LaneConfig::default() };
        assert_eq!(LinkLane::new(config, 0).err(), Some(WorldError::RateZero));
    }
}
