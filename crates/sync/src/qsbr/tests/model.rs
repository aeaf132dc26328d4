//! Every interleaving of two and three threads, under loom; and the same with each ordering
//! weakened, which a model must notice.

use loom::thread;

use super::*;
use crate::weaken::{WeakenPoint, is_noticed};

/// Checks a model with so many preemptions in one execution at most, or as many as
/// the number in `LOOM_MAX_PREEMPTIONS`.
fn bounded(preemptions: usize, model: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    builder.check(model);
}

fn replace(cell: &RcuCell<Watched>, limbo: &mut Limbo<Retired<Watched>>, number: u32) {
    cell.replace(Watched::boxed(number), 1, limbo, at(0)).ok().expect("room");
}

/// Frees what may be freed, twice, as a round does.
fn reclaim(limbo: &mut Limbo<Retired<Watched>>) {
    for _ in 0..2 {
        limbo.reclaim(|| at(0), drop);
    }
}

/// One reader that pauses, one writer. The yields mark where loom changes threads: without them it
/// looks at freeing only before the worker has paused and after its thread has ended.
fn pausing() {
    let domain = Domain::new(1);
    let cell = Arc::new(RcuCell::new(&domain, Watched::boxed(1)));
    let mut reader = domain.reader().unwrap();
    let shown = Arc::clone(&cell);
    let worker = thread::spawn(move || {
        for _ in 0..2 {
            shown.load(reader.view()).read();
            thread::yield_now();
            reader.pass(Moment::RoundEnd, at(0));
            thread::yield_now();
        }
        shown.load(reader.view()).read();
    });
    let mut limbo = domain.limbo(CAPS);
    replace(&cell, &mut limbo, 2);
    for _ in 0..2 {
        limbo.reclaim(|| at(0), drop);
        thread::yield_now();
    }
    limbo.reclaim(|| at(0), drop);
    worker.join().unwrap();
    assert!(limbo.drain(at(0), drop));
}

/// One reader with a first look after its pause, one writer. No yield before that look, and no look
/// before: loom shows no thread a value again that it had seen before it yielded, and so hides the
/// stale load that the fence of a quiescent state is there to prevent.
fn looking_after_a_pause() {
    let domain = Domain::new(1);
    let cell = Arc::new(RcuCell::new(&domain, Watched::boxed(1)));
    let mut reader = domain.reader().unwrap();
    let shown = Arc::clone(&cell);
    let worker = thread::spawn(move || {
        reader.pass(Moment::RoundEnd, at(0));
        shown.load(reader.view()).read();
        reader
    });
    let mut limbo = domain.limbo(CAPS);
    replace(&cell, &mut limbo, 2);
    reclaim(&mut limbo);
    drop(worker.join().unwrap());
    assert!(limbo.drain(at(0), drop));
}

/// One reader that sleeps and wakes twice, one writer.
fn sleeping() {
    let domain = Domain::new(1);
    let cell = Arc::new(RcuCell::new(&domain, Watched::boxed(1)));
    let mut reader = domain.reader().unwrap();
    let shown = Arc::clone(&cell);
    let worker = thread::spawn(move || {
        drop(reader.park());
        shown.load(reader.view()).read();
        drop(reader.park());
        shown.load(reader.view()).read();
    });
    let mut limbo = domain.limbo(CAPS);
    replace(&cell, &mut limbo, 2);
    reclaim(&mut limbo);
    worker.join().unwrap();
    reclaim(&mut limbo);
}

/// One reader that looks and goes to sleep, one writer that replaces and frees meanwhile.
fn falling_asleep() {
    let domain = Domain::new(1);
    let cell = Arc::new(RcuCell::new(&domain, Watched::boxed(1)));
    let mut reader = domain.reader().unwrap();
    let shown = Arc::clone(&cell);
    let worker = thread::spawn(move || {
        shown.load(reader.view()).read();
        let parked = reader.park();
        thread::yield_now();
        parked.wake(at(1));
        shown.load(reader.view()).read();
    });
    let mut limbo = domain.limbo(CAPS);
    replace(&cell, &mut limbo, 2);
    thread::yield_now();
    limbo.reclaim(|| at(0), drop);
    worker.join().unwrap();
    assert_eq!(limbo.stats().items + limbo.stats().freed as usize, 1);
}

/// A reader that came with a worker's thread and goes with it, and its place is taken again.
fn coming_and_going() {
    let domain = Domain::new(1);
    let cell = Arc::new(RcuCell::new(&domain, Watched::boxed(1)));
    let (place, shown) = (domain.clone(), Arc::clone(&cell));
    let worker = thread::spawn(move || {
        for _ in 0..2 {
            let reader = place.reader().unwrap();
            shown.load(reader.view()).read();
        }
    });
    let mut limbo = domain.limbo(CAPS);
    replace(&cell, &mut limbo, 2);
    reclaim(&mut limbo);
    worker.join().unwrap();
    assert!(limbo.drain(at(0), drop));
}

/// Two readers that pause, one writer: three threads.
fn two_readers() {
    let domain = Domain::new(2);
    let cell = Arc::new(RcuCell::new(&domain, Watched::boxed(1)));
    let workers = [(); 2].map(|()| {
        let (mut reader, shown) = (domain.reader().unwrap(), Arc::clone(&cell));
        thread::spawn(move || {
            shown.load(reader.view()).read();
            reader.pass(Moment::RoundEnd, at(0));
            thread::yield_now();
            shown.load(reader.view()).read();
            reader
        })
    });
    let mut limbo = domain.limbo(CAPS);
    replace(&cell, &mut limbo, 2);
    limbo.reclaim(|| at(0), drop);
    thread::yield_now();
    limbo.reclaim(|| at(0), drop);
    workers.into_iter().for_each(|worker| drop(worker.join().unwrap()));
    assert!(limbo.drain(at(0), drop));
}

/// One reader that pauses, one that sleeps and wakes, one writer: three threads.
fn one_pauses_one_sleeps() {
    let domain = Domain::new(2);
    let cell = Arc::new(RcuCell::new(&domain, Watched::boxed(1)));
    let (mut first, mut second) = (domain.reader().unwrap(), domain.reader().unwrap());
    let (of_first, of_second) = (Arc::clone(&cell), Arc::clone(&cell));
    let pausing = thread::spawn(move || {
        of_first.load(first.view()).read();
        first.pass(Moment::RoundEnd, at(0));
        of_first.load(first.view()).read();
        first
    });
    let sleeping = thread::spawn(move || {
        drop(second.park());
        of_second.load(second.view()).read();
        second
    });
    let mut limbo = domain.limbo(CAPS);
    replace(&cell, &mut limbo, 2);
    reclaim(&mut limbo);
    drop((pausing.join().unwrap(), sleeping.join().unwrap()));
    assert!(limbo.drain(at(0), drop));
}

/// Two writers with a limbo each, of which either may begin the other's grace period, and a
/// reader: three threads.
fn two_writers() {
    let domain = Domain::new(1);
    let cell = Arc::new(RcuCell::new(&domain, Watched::boxed(1)));
    let (mut reader, shown) = (domain.reader().unwrap(), Arc::clone(&cell));
    let worker = thread::spawn(move || {
        shown.load(reader.view()).read();
        reader.pass(Moment::RoundEnd, at(0));
        shown.load(reader.view()).read();
        reader
    });
    let mut limbo = domain.limbo(CAPS);
    let (second, mut other) = (Arc::clone(&cell), domain.limbo(CAPS));
    let writer = thread::spawn(move || {
        replace(&second, &mut other, 3);
        other.reclaim(|| at(0), drop);
        other
    });
    replace(&cell, &mut limbo, 2);
    limbo.reclaim(|| at(0), drop);
    drop(worker.join().unwrap());
    let mut other = writer.join().unwrap();
    assert!(limbo.drain(at(0), drop) && other.drain(at(0), drop));
}

#[test]
fn what_a_reader_sees_lives_until_it_pauses() {
    bounded(3, pausing);
}

#[test]
fn a_look_after_a_pause_finds_nothing_that_is_freed() {
    bounded(3, looking_after_a_pause);
}

#[test]
fn a_worker_that_comes_online_sees_nothing_that_is_freed() {
    bounded(3, sleeping);
}

#[test]
fn a_worker_that_goes_offline_has_read_before_anything_is_freed() {
    bounded(3, falling_asleep);
}

#[test]
fn a_place_that_changes_hands_protects_the_next_one_too() {
    bounded(3, coming_and_going);
}

#[test]
fn two_readers_and_a_writer_agree_on_when_to_free() {
    bounded(2, two_readers);
}

#[test]
fn a_sleeper_and_a_worker_and_a_writer_agree_on_when_to_free() {
    bounded(2, one_pauses_one_sleeps);
}

#[test]
fn two_writers_with_a_limbo_each_free_what_each_replaced() {
    bounded(2, two_writers);
}

/// Each ordering and the models that fail without it.
const MUTANTS: &[(WeakenPoint, &[(&str, fn())])] = &[
    (WeakenPoint::RetireFence, &[("sleeping", sleeping), ("one_pauses", one_pauses_one_sleeps)]),
    (WeakenPoint::OnlineFence, &[("sleeping", sleeping), ("one_pauses", one_pauses_one_sleeps)]),
    (WeakenPoint::QuiescentFence, &[("looking", looking_after_a_pause)]),
    (WeakenPoint::QuiescentRelease, &[("pausing", pausing), ("two_readers", two_readers)]),
    (WeakenPoint::OfflineRelease, &[("falling_asleep", falling_asleep)]),
    (WeakenPoint::HorizonAcquire, &[("pausing", pausing), ("falling_asleep", falling_asleep)]),
    (WeakenPoint::SwapRelease, &[("pausing", pausing), ("two_writers", two_writers)]),
    (WeakenPoint::Strictly, &[("pausing", pausing), ("two_writers", two_writers)]),
];

#[test]
fn every_weakened_ordering_is_noticed_by_each_of_its_models() {
    let mut missed = Vec::new();
    for (point, models) in MUTANTS {
        for (name, model) in *models {
            if !is_noticed(*point, || bounded(3, *model)) {
                missed.push((point, name));
            }
        }
    }
    assert!(missed.is_empty(), "models that cannot fail: {missed:?}");
}
