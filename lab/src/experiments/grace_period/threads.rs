//! A reader and a writer in real threads: paced replacements, rounds of packet work, and how long
//! what was unlinked waited.
//!
//! Called by the experiment, for each scheme and condition in turn, again and again: a slow moment
//! of the machine hits all schemes, and medians over the turns are compared. Invariant: under every
//! scheme the reader does the same work on the same bursts and the writer unlinks at the same pace;
//! a turn lasts as long as planned, and everything unlinked in it is freed and counted before it is
//! over.

use std::hint::{black_box, spin_loop};
use std::sync::Arc;
use std::time::Duration;

use floodwall_sync::qsbr::LimboCaps;
use serde::Deserialize;

use super::graces::Graces;
use super::objects::{ObjectPool, Presence};
use super::schemes::{ReadSide, Scheme, WriteSide};

/// What the reader and the writer do.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Work {
    /// Packets of a round, each with a look at the shared object.
    pub burst: usize,
    /// Steps of arithmetic on a packet, about a nanosecond each.
    pub packet_steps: u32,
    /// Replacements a second while rounds follow each other.
    pub flood_rate: u64,
    /// And while the reader is idle most of the time.
    pub rest_rate: u64,
    /// How long an idle reader sleeps.
    pub rest_micros: u64,
    /// A thread that is silent for longer was taken off its core: many rounds.
    pub gap_micros: u64,
    /// How long a stuck reader stays in a round.
    pub stuck_millis: u64,
    /// Bytes of an object, as it is counted.
    pub object_bytes: usize,
    /// Objects that may wait, for us.
    pub cap_items: usize,
    /// And for the historic policies: the route cache's own bound.
    pub historic_cap_items: usize,
}

impl Work {
    fn caps(&self, items: usize) -> LimboCaps {
        LimboCaps { items, bytes: items * self.object_bytes }
    }
}

/// What the reader lives through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Condition {
    /// A round now and then, and sleep.
    Rest,
    /// Round after round.
    Flood,
    /// Round after round, one of which does not end for long.
    Stuck,
}

impl Condition {
    /// What numbers call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rest => "rest",
            Self::Flood => "flood",
            Self::Stuck => "stuck",
        }
    }
}

/// What a turn has seen.
#[derive(Clone, Debug, Default)]
pub struct Turn {
    /// Grace periods.
    pub graces: Graces,
    /// Rounds of the reader.
    pub rounds: u64,
    /// How long the turn took, in nanoseconds.
    pub nanos: u64,
    /// Whether the reader was named as stuck while it was.
    pub named: bool,
}

impl Turn {
    /// Whether the machine left both threads alone for long enough to give a percentile.
    #[must_use]
    pub fn is_undisturbed(&self) -> bool {
        self.graces.undisturbed.len() >= 200
    }
}

/// One turn of one scheme.
#[must_use]
pub fn turn(scheme: Scheme, condition: Condition, work: &Work, millis: u64) -> Turn {
    let rate = if condition == Condition::Rest { work.rest_rate } else { work.flood_rate };
    let slots = (rate * millis).div_ceil(1000) as usize + 2;
    let objects = ObjectPool::new(slots);
    let caps = (work.caps(work.cap_items), work.caps(work.historic_cap_items));
    let (mut reads, mut writes) = scheme.halves(&objects, caps.0, caps.1);
    let mut seen = Turn::default();
    let (mut items_max, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        let reader = scope.spawn({
            let objects = Arc::clone(&objects);
            move || read(reads.as_mut(), &objects, condition, work)
        });
        let rests = condition == Condition::Rest;
        let (until, gap) = (millis * 1_000_000, work.gap_micros * 1000);
        let paced = Paced { rate, until, gap, rests };
        (items_max, refused) = write(writes.as_mut(), &objects, &paced, &mut seen.named);
        seen.nanos = objects.nanos();
        objects.stop();
        // A reader that panics is a test that fails: there is nothing to go on with.
        if let Err(panic) = reader.join() {
            std::panic::resume_unwind(panic);
        }
    });
    writes.finish();
    seen.rounds = objects.rounds();
    let counted = writes.high_water();
    drop(writes);
    seen.graces = objects.graces(seen.nanos);
    let (items, bytes) = counted.unwrap_or((items_max, items_max * work.object_bytes as u64));
    (seen.graces.items_max, seen.graces.bytes_max, seen.graces.refused) = (items, bytes, refused);
    seen
}

fn read(reads: &mut dyn ReadSide, objects: &ObjectPool, condition: Condition, work: &Work) {
    let mut sum = 0_u64;
    let mut presence = Presence::new(objects.nanos(), work.gap_micros * 1000);
    let mut was_stuck = false;
    while !objects.is_stopped() {
        // In the middle of the turn, so that there is something to hold up, and time to recover.
        let stuck = condition == Condition::Stuck && !was_stuck && objects.rounds() > 0;
        reads.round(&mut |shown| {
            let held = shown();
            for packet in 0..work.burst {
                let slot = shown();
                objects.look(slot);
                sum = sum.wrapping_add(process(slot as u64 ^ packet as u64, work.packet_steps));
            }
            if stuck {
                hold(Duration::from_millis(work.stuck_millis));
            }
            // What was looked up first may have been unlinked since, not freed.
            objects.look(held);
        });
        was_stuck |= stuck;
        objects.round_ended();
        if condition == Condition::Rest {
            reads.idle(&mut || hold(Duration::from_micros(work.rest_micros)));
        }
        if stuck || condition == Condition::Rest {
            presence.waited(objects.nanos());
        } else {
            presence.works(objects.nanos());
        }
    }
    objects.leave(presence);
    black_box(sum);
}

/// Work on a packet that no optimiser leaves out and no cache helps.
fn process(mut x: u64, steps: u32) -> u64 {
    for _ in 0..steps {
        x = (x ^ (x >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    x
}

#[expect(clippy::disallowed_methods, reason = "an idle or a stuck thread of the experiment waits")]
fn hold(time: Duration) {
    std::thread::sleep(time);
}

/// How fast and how long the writer works.
struct Paced {
    rate: u64,
    until: u64,
    gap: u64,
    rests: bool,
}

/// Replaces at its pace until time is up. Returns the most objects that waited, and refusals.
fn write(
    writes: &mut dyn WriteSide,
    objects: &ObjectPool,
    paced: &Paced,
    named: &mut bool,
) -> (u64, u64) {
    /// So many replacements between two looks at what may be freed.
    const TURN: usize = 64;
    let (mut items_max, mut refused) = (0, 0);
    // Slot 0 is shown at the start.
    let mut next = 1;
    let mut looked = 0;
    let mut presence = Presence::new(objects.nanos(), paced.gap);
    loop {
        let now = objects.nanos();
        if paced.rests {
            presence.waited(now);
        } else {
            presence.works(now);
        }
        if now >= paced.until {
            objects.leave(presence);
            return (items_max, refused);
        }
        let due = 1 + (u128::from(now) * u128::from(paced.rate) / 1_000_000_000) as usize;
        let to = due.min(next + TURN).min(objects.slots()).max(next);
        refused += writes.turn(next..to);
        next = to;
        items_max = items_max.max(objects.waiting());
        if now > looked + 1_000_000 {
            looked = now;
            *named |= writes.stuck().is_some_and(|(worker, _)| worker == 0);
        }
        if paced.rests {
            hold(Duration::from_micros(50));
        } else {
            (0..32).for_each(|_| spin_loop());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORK: Work = Work {
        burst: 64,
        packet_steps: 20,
        flood_rate: 20_000,
        rest_rate: 2000,
        rest_micros: 200,
        gap_micros: 200,
        stuck_millis: 40,
        object_bytes: 256,
        cap_items: 200,
        historic_cap_items: 32_768,
    };

    #[test]
    fn every_scheme_frees_every_object_once_and_nothing_reads_a_freed_one() {
        for scheme in Scheme::ALL {
            for condition in [Condition::Rest, Condition::Flood, Condition::Stuck] {
                let Turn { graces, rounds, .. } = turn(scheme, condition, &WORK, 60);
                let name = scheme.name();
                assert_eq!(graces.wrong_reads, 0, "{name}, {condition:?}");
                assert_eq!(graces.each.len() as u64, graces.retired, "{name}, {condition:?}");
                assert!(graces.retired > 10 && rounds > 0, "{name}, {condition:?}");
            }
        }
    }

    /// A machine that does other things as well may not let the writer work while the reader is
    /// stuck: then the reader is stuck for longer.
    #[test]
    fn a_stuck_reader_fills_our_cap_is_named_and_fills_more_elsewhere() {
        let stuck = |scheme, millis| {
            let work = Work { stuck_millis: millis, ..WORK };
            turn(scheme, Condition::Stuck, &work, millis + 20)
        };
        let longer = || (0..6).map(|doublings| 40 << doublings);
        let ours = longer().map(|millis| stuck(Scheme::Floodwall, millis));
        let ours = ours.inspect(|turn| assert!(turn.graces.items_max <= 200, "{turn:?}"));
        assert!(ours.into_iter().any(|turn| turn.named && turn.graces.refused > 0));
        let mut theirs = longer().map(|millis| stuck(Scheme::CrossbeamEpoch, millis));
        assert!(theirs.any(|turn| turn.graces.items_max > 200 && !turn.named));
    }

    /// The judge is not blind: a scheme that frees at once is caught.
    #[test]
    fn an_object_that_is_freed_too_early_is_a_wrong_read() {
        let objects = ObjectPool::new(4);
        assert!(objects.look(0));
        drop(objects.ticket(0));
        assert!(!objects.look(0));
        drop(objects.ticket(0));
        assert_eq!(objects.graces(9).wrong_reads, 2, "one look, one free too many");
    }
}
