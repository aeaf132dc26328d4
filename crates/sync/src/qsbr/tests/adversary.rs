//! What goes wrong in reclamation, one test each: workers that are stuck or asleep for ever,
//! counters at their end, memory freed by another thread than the one that took it, refusals that
//! would retire in their turn, dumps that take their time.

use core::sync::atomic::{AtomicBool, AtomicUsize};

use super::*;

fn ms(n: u64) -> Instant {
    at(n * 1_000_000)
}

fn fill<T: Send + 'static>(limbo: &mut Limbo<T>, count: usize, mut make: impl FnMut() -> T) {
    for _ in 0..count {
        limbo.reserve(1).unwrap().retire(make(), at(0));
    }
}

#[test]
fn every_figure_is_the_one_that_two_decades_of_floods_left_over() {
    assert_eq!(Paced::BATCH, 10);
    assert_eq!((Paced::HIGH_WATER, Paced::LOW_WATER), (10_000, 100));
    assert_eq!((Paced::BATCH_HURRIED, Paced::DIVISOR_BITS), (10_000, 7));
    assert_eq!(Paced::PASS_MAX, Duration::from_millis(3));
    assert_eq!((Paced::CHASE, Paced::LAZY_FLUSH), (20_000, 100));
    assert_eq!(Paced::STALL_AFTER, Duration::from_millis(20));
}

#[test]
fn an_ordinary_pass_frees_ten_and_a_hurried_one_what_it_can() {
    let domain = Domain::new(1);
    let mut reader = domain.reader().unwrap();
    let mut limbo: Limbo<u8> = domain.limbo(LimboCaps { items: 30_000, bytes: 30_000 });
    let pass = |reader: &mut Reader, limbo: &mut Limbo<u8>| {
        reader.pass(Moment::RoundEnd, at(1));
        limbo.reclaim(|| at(1), drop)
    };
    fill(&mut limbo, 1000, || 0);
    assert_eq!(pass(&mut reader, &mut limbo), 0, "its grace period has just begun");
    assert_eq!(pass(&mut reader, &mut limbo), 10);
    fill(&mut limbo, 9010, || 0);
    assert_eq!(pass(&mut reader, &mut limbo), 10_000 >> 7, "a 128th of ten thousand");
    fill(&mut limbo, 79, || 0);
    assert_eq!(pass(&mut reader, &mut limbo), 9922, "ten thousand and one are too many");
    let left = "79 came last, and fewer than a hundred are no hurry";
    assert_eq!(pass(&mut reader, &mut limbo), 10, "{left}");
}

#[test]
fn above_twenty_thousand_waiting_objects_slow_workers_are_told_to_pause() {
    let domain = Domain::new(3);
    let mut fast = domain.reader().unwrap();
    let mut slow = domain.reader().unwrap();
    let mut asleep = domain.reader().unwrap();
    let _parked = asleep.park();
    let mut limbo: Limbo<u8> = domain.limbo(LimboCaps { items: 30_000, bytes: 30_000 });
    fill(&mut limbo, 20_000, || 0);
    limbo.reclaim(|| at(1), drop);
    fast.pass(Moment::RoundEnd, at(1));
    assert!(!slow.is_chased() && limbo.stats().chased == 0, "not yet");
    fill(&mut limbo, 1, || 0);
    limbo.reclaim(|| at(2), drop);
    assert!(slow.is_chased());
    assert!(!fast.is_chased(), "it has paused since");
    slow.pass(Moment::SliceEnd, at(3));
    assert!(!slow.is_chased());
    assert!(limbo.reclaim(|| at(3), drop) > 10_000 - 1, "and that was worth it");
    assert_eq!(domain.stats(at(3)).limbo.chased, 1);
}

#[test]
fn lazy_objects_begin_no_grace_period_until_a_hundred_wait_or_they_are_old() {
    let caps = LimboCaps { items: 1000, bytes: 1000 };
    let round = |domain: &Domain, reader: &mut Reader, limbo: &mut Limbo<u8>, now: Instant| {
        let before = domain.stats(now).epoch;
        let mut freed = limbo.reclaim(|| now, drop);
        reader.pass(Moment::RoundEnd, now);
        freed += limbo.reclaim(|| now, drop);
        (domain.stats(now).epoch - before, freed)
    };
    let with_lazy = |count: usize, caps: LimboCaps, bytes: usize| {
        let domain = Domain::new(1);
        let (reader, mut limbo) = (domain.reader().unwrap(), domain.limbo(caps));
        for _ in 0..count {
            limbo.reserve(bytes).unwrap().retire_lazily(0_u8, at(0));
        }
        (domain, reader, limbo)
    };
    let (domain, mut reader, mut limbo) = with_lazy(99, caps, 1);
    assert_eq!(round(&domain, &mut reader, &mut limbo, at(5)), (0, 0));
    limbo.reserve(1).unwrap().retire_lazily(0, at(6));
    assert_eq!(round(&domain, &mut reader, &mut limbo, at(7)), (1, 10), "a hundred");
    // An object in a hurry takes them along.
    let (domain, mut reader, mut limbo) = with_lazy(5, caps, 1);
    limbo.reserve(1).unwrap().retire(0, at(1));
    assert_eq!(round(&domain, &mut reader, &mut limbo, at(2)), (1, 6));
    // Ten seconds.
    let (domain, mut reader, mut limbo) = with_lazy(5, caps, 1);
    assert_eq!(round(&domain, &mut reader, &mut limbo, ms(9_999)), (0, 0));
    assert_eq!(round(&domain, &mut reader, &mut limbo, ms(10_000)), (1, 5));
    // Half of the items, half of the bytes: refusals must not wait for laziness.
    let (domain, mut reader, mut limbo) = with_lazy(5, LimboCaps { items: 10, bytes: 1000 }, 1);
    assert_eq!(round(&domain, &mut reader, &mut limbo, at(2)), (1, 5));
    let (domain, mut reader, mut limbo) = with_lazy(2, caps, 250);
    assert_eq!(round(&domain, &mut reader, &mut limbo, at(2)), (1, 2));
}

#[test]
fn a_worker_stuck_in_a_batch_costs_no_more_than_the_cap_is_named_and_stops_nothing() {
    const CHANGES: u64 = 10_000;
    let domain = Domain::new(3);
    let cell = RcuCell::new(&domain, Box::new([0_u64; 4]));
    let caps = LimboCaps { items: 100, bytes: 100 * 32 };
    let mut limbo = domain.limbo_of("routes", caps);
    let mut stuck = domain.reader().unwrap();
    let mut others = [domain.reader().unwrap(), domain.reader().unwrap()];
    let held = cell.load(stuck.view());
    let (mut made, mut refused) = (0, 0);
    for n in 1..=CHANGES {
        match cell.replace(Box::new([n; 4]), 32, &mut limbo, ms(n)) {
            Ok(()) => made += 1,
            Err(_) => refused += 1,
        }
        limbo.reclaim(|| ms(n), drop);
        for other in &mut others {
            assert_eq!(cell.load(other.view())[0], made, "others see every change that was made");
            other.pass(Moment::RoundEnd, ms(n));
        }
        let stats = domain.stats(ms(n)).limbo;
        assert!(stats.items <= caps.items && stats.bytes <= caps.bytes, "{stats:?}");
    }
    assert_eq!(*held, [0; 4], "what it holds is as it was");
    assert_eq!((made, refused), (100, CHANGES - 100));
    let stats = domain.stats(ms(CHANGES));
    assert_eq!((stats.limbo.bytes_max, stats.limbo.refused), (caps.bytes, refused));
    let stalled: Vec<_> = domain.stalled(ms(CHANGES), Paced::STALL_AFTER).collect();
    let age = Duration::from_secs(10);
    assert_eq!(stalled, [ReaderStall { worker: 0, age }]);
    assert_eq!(stats.slowest, Some(stalled[0]));
    assert_eq!(stalled[0].to_string(), "worker 0 has not paused for 10s");
    assert_eq!(domain.classes(), [("routes", stats.limbo)]);

    stuck.pass(Moment::RoundEnd, ms(CHANGES));
    (0..10).for_each(|_| _ = limbo.reclaim(|| ms(CHANGES), drop));
    assert_eq!(limbo.stats().items, 0, "it paused once, and all is free");
    assert!(cell.replace(Box::new([9; 4]), 32, &mut limbo, ms(CHANGES)).is_ok());
}

#[test]
fn a_worker_parked_for_ever_makes_no_grace_period_longer() {
    let domain = Domain::new(2);
    let (mut sleeper, mut reader) = (domain.reader().unwrap(), domain.reader().unwrap());
    let _parked = sleeper.park();
    let mut limbo: Limbo<u8> = domain.limbo(LimboCaps { items: 8, bytes: 8 });
    for round in 0..100_000 {
        limbo.reserve(1).unwrap().retire(0, at(round));
        limbo.reclaim(|| at(round), drop);
        reader.pass(Moment::RoundEnd, at(round));
    }
    let stats = domain.stats(at(100_000));
    assert!(stats.limbo.grace_max <= Duration::from_nanos(1), "one round: {stats:?}");
    assert_eq!((stats.online, stats.limbo.refused), (1, 0));
}

#[test]
fn at_the_end_of_all_epochs_nothing_is_freed_early_and_the_cap_still_holds() {
    let domain = Domain::with_epoch(1, Paced, EPOCH_MAX - 2);
    let mut reader = domain.reader().unwrap();
    let mut limbo: Limbo<u64> = domain.limbo(LimboCaps { items: 6, bytes: 6 });
    let (mut refused, mut freed) = (0, 0);
    for n in 0..20 {
        match limbo.reserve(1) {
            Ok(slot) => slot.retire(n, at(n)),
            Err(_) => refused += 1,
        }
        assert!(limbo.reclaim(|| at(n), |value| assert!(value < n, "{value} at {n}")) <= 1);
        reader.pass(Moment::RoundEnd, at(n));
        freed = limbo.stats().freed;
        assert!(domain.stats(at(n)).epoch <= EPOCH_MAX);
    }
    // Two more grace periods there were; then one worker online is one too many.
    assert_eq!((freed, limbo.stats().items, refused), (2, 6, 12));
    drop(reader.park());
    assert_eq!(limbo.reclaim(|| at(20), drop), 0);
    let parked = reader.park();
    assert_eq!(limbo.reclaim(|| at(20), drop), 6, "there is no reader");
    parked.wake(at(21));
}

/// A cache that would have to make room at every refusal, which means to retire: it must be
/// refused, too, and neither grow nor recurse.
#[test]
fn a_refusal_that_makes_room_by_retiring_is_refused_itself() {
    struct Cache {
        entries: Vec<RcuCell<u32>>,
        limbo: Limbo<Retired<u32>>,
        evictions: u32,
    }
    impl Cache {
        fn insert(&mut self, n: u32) -> bool {
            let at_hash = n as usize % self.entries.len();
            if self.entries[at_hash].replace(Box::new(n), 1, &mut self.limbo, at(0)).is_ok() {
                return true;
            }
            // No room: an older entry has to go first.
            let victim = &self.entries[(at_hash + 1) % self.entries.len()];
            if victim.replace(Box::new(0), 1, &mut self.limbo, at(0)).is_ok() {
                self.evictions += 1;
            }
            false
        }
    }
    let domain = Domain::new(1);
    let reader = domain.reader().unwrap();
    let entries = (0..8).map(|_| RcuCell::new(&domain, Box::new(0))).collect();
    let limbo = domain.limbo(LimboCaps { items: 4, bytes: 4 });
    let mut cache = Cache { entries, limbo, evictions: 0 };
    let inserted = (1..=1000).filter(|n| cache.insert(*n)).count();
    assert_eq!((inserted, cache.evictions), (4, 0));
    let stats = cache.limbo.stats();
    assert_eq!((stats.items_max, stats.refused), (4, 2 * 996), "both refusals are counted");
    let shown: Vec<u32> = cache.entries.iter().map(|cell| *cell.load(reader.view())).collect();
    assert_eq!(shown, [0, 1, 2, 3, 4, 0, 0, 0], "as it was before the first refusal");
}

/// Freeing an object may unlink more (a node and its children): those go to a limbo of their own,
/// and what that refuses is kept, not lost and not freed early.
#[test]
fn what_is_freed_may_retire_more_and_its_refusal_loses_nothing() {
    let domain = Domain::new(1);
    let mut reader = domain.reader().unwrap();
    let mut parents: Limbo<Vec<u32>> = domain.limbo(LimboCaps { items: 4, bytes: 4 });
    let mut children: Limbo<u32> = domain.limbo(LimboCaps { items: 2, bytes: 2 });
    parents.reserve(1).unwrap().retire(vec![1, 2, 3], at(0));
    let (mut kept, mut freed) = (Vec::new(), Vec::new());
    for now in 1..6 {
        parents.reclaim(
            || at(now),
            |node| {
                for child in node {
                    match children.reserve(1) {
                        Ok(slot) => slot.retire(child, at(now)),
                        Err(_) => kept.push(child),
                    }
                }
            },
        );
        assert!(children.stats().items <= 2);
        children.reclaim(|| at(now), |child| freed.push(child));
        if !freed.is_empty() {
            let retry = core::mem::take(&mut kept);
            for child in retry {
                children.reserve(1).unwrap().retire(child, at(now));
            }
        }
        reader.pass(Moment::RoundEnd, at(now));
    }
    assert_eq!((freed, kept.len()), (vec![1, 2, 3], 0));
}

/// A dump that shows a table of many entries, in slices between which it pauses: it remembers how
/// far it came, not what it looked at.
#[test]
fn a_slow_dump_that_goes_in_slices_holds_no_old_snapshot() {
    const ENTRIES: usize = 1000;
    let domain = Domain::new(1);
    let cell = RcuCell::new(&domain, Box::new(vec![0_u64; ENTRIES]));
    let mut limbo = domain.limbo(LimboCaps { items: 64, bytes: 64 * ENTRIES * 8 });
    let mut dump = domain.reader().unwrap();
    let (mut shown, mut generation) = (0, 0);
    while shown < ENTRIES {
        let slice = cell.load(dump.view()).iter().skip(shown).take(10);
        shown += slice.inspect(|entry| assert_eq!(**entry, generation)).count();
        dump.pass(Moment::SliceEnd, at(generation));
        generation += 1;
        let next = Box::new(vec![generation; ENTRIES]);
        cell.replace(next, ENTRIES * 8, &mut limbo, at(generation)).unwrap();
        limbo.reclaim(|| at(generation), drop);
    }
    let stats = limbo.stats();
    assert_eq!((generation, stats.refused), (100, 0));
    assert!(stats.items_max <= 2, "generations at once: {stats:?}");
}

#[test]
fn bytes_are_capped_where_entries_are_few_and_large() {
    let domain = Domain::new(1);
    let _stuck = domain.reader().unwrap();
    let mut limbo: Limbo<Vec<u8>> = domain.limbo(LimboCaps { items: 1000, bytes: 1 << 20 });
    let mut kept = 0;
    for size in (0..1000).map(|n| 1 + n * 97 % 65_536) {
        if let Ok(slot) = limbo.reserve(size) {
            slot.retire(vec![0; size], at(0));
            kept += size;
        }
        assert!(kept <= 1 << 20);
    }
    let stats = limbo.stats();
    assert_eq!((stats.bytes, stats.bytes_max), (kept, kept));
    assert!(stats.items < 200 && stats.refused > 800, "{stats:?}");
}

#[test]
fn a_worker_that_has_just_come_is_not_taken_for_a_stuck_one() {
    let domain = Domain::new(2);
    let mut late = domain.reader_at(ms(1000)).unwrap();
    assert_eq!(domain.stalled(ms(1001), Paced::STALL_AFTER).count(), 0);
    late.park().wake(ms(5000));
    assert_eq!(domain.stalled(ms(5001), Paced::STALL_AFTER).count(), 0);
    assert_eq!(domain.stalled(ms(5021), Paced::STALL_AFTER).count(), 1);
    let _parked = late.park();
    assert_eq!(domain.stats(ms(9000)).slowest, None, "a sleeper is not stuck");
}

#[test]
fn a_limbo_that_ended_leaves_its_figures_to_the_domain() {
    let domain = Domain::new(1);
    let reader = domain.reader().unwrap();
    let mut limbo: Limbo<u8> = domain.limbo_of("short-lived", CAPS);
    fill(&mut limbo, 3, || 0);
    drop(limbo);
    let stats = domain.stats(at(1)).limbo;
    assert_eq!((stats.items, stats.items_max), (3, 3), "a reader may still look at them");
    drop(reader);
    let mut limbo: Limbo<u8> = domain.limbo_of("later", CAPS);
    fill(&mut limbo, 2, || 0);
    drop(limbo);
    assert_eq!(domain.classes()[1].1.items, 0, "no reader: they were freed at once");
}

/// Objects are made by two threads, handed to a third, and freed there, as many as they can make:
/// the flood of frees that comes from other cores.
#[test]
fn what_other_threads_made_is_freed_exactly_once_by_the_writer() {
    const EACH: usize = 5_000;
    struct Counted<'a>(Box<usize>, &'a AtomicUsize);
    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.1.fetch_add(*self.0, Relaxed);
        }
    }
    static FREED: AtomicUsize = AtomicUsize::new(0);
    let domain = Domain::new(3);
    let done = AtomicBool::new(false);
    let (sender, receiver) = std::sync::mpsc::sync_channel(64);
    std::thread::scope(|scope| {
        let makers = [0, 1].map(|_| {
            let (mut reader, sender) = (domain.reader().unwrap(), sender.clone());
            scope.spawn(move || {
                for n in 1..=EACH {
                    let mut value = Counted(Box::new(n), &FREED);
                    while let Err(back) = sender.try_send(value) {
                        value = match back {
                            std::sync::mpsc::TrySendError::Full(back) => back,
                            std::sync::mpsc::TrySendError::Disconnected(_) => return,
                        };
                        reader.pass(Moment::RoundEnd, at(n as u64));
                        std::thread::yield_now();
                    }
                    reader.pass(Moment::RoundEnd, at(n as u64));
                }
            })
        });
        // Figures are read by a fourth while all of this goes on.
        let (watched, finished) = (domain.clone(), &done);
        let watcher = scope.spawn(move || {
            let (mut freed, mut longest) = (0, Duration::ZERO);
            while !finished.load(Relaxed) {
                let stats = watched.stats(at(0)).limbo;
                assert!(stats.items <= CAPS.items && stats.bytes <= CAPS.bytes, "{stats:?}");
                assert!(stats.freed >= freed && stats.grace_max >= longest, "they only grow");
                (freed, longest) = (stats.freed, stats.grace_max);
                std::thread::yield_now();
            }
        });
        let mut limbo: Limbo<Counted<'_>> = domain.limbo(CAPS);
        let mut taken = 0;
        while taken < 2 * EACH {
            match limbo.reserve(1) {
                Ok(slot) => match receiver.try_recv() {
                    Ok(value) => {
                        slot.retire(value, at(taken as u64));
                        taken += 1;
                    }
                    Err(_) => std::thread::yield_now(),
                },
                Err(_) => std::thread::yield_now(),
            }
            limbo.reclaim(|| at(taken as u64), drop);
        }
        makers.into_iter().for_each(|maker| maker.join().unwrap());
        done.store(true, Relaxed);
        watcher.join().unwrap();
        assert!(limbo.drain(at(0), drop));
        assert_eq!(limbo.stats().freed, 2 * EACH as u64);
    });
    assert_eq!(FREED.load(Relaxed), EACH * (EACH + 1), "each once: the sum shows it");
}
