//! Reclamation step by step and under real threads.

use super::*;

fn limbo_of(domain: &Domain, items: usize) -> Limbo<u32> {
    domain.limbo(LimboCaps { items, bytes: 1000 })
}

fn reclaim(limbo: &mut Limbo<u32>, now: u64) -> Vec<u32> {
    let mut freed = Vec::new();
    limbo.reclaim(|| at(now), |value| freed.push(value));
    freed
}

#[test]
fn nothing_is_freed_before_every_worker_has_paused() {
    let domain = Domain::new(2);
    let (mut a, mut b) = (domain.reader().unwrap(), domain.reader().unwrap());
    let mut limbo = limbo_of(&domain, 8);
    limbo.reserve(1).unwrap().retire(7, at(0));
    for round in 1..5 {
        a.pass(Moment::RoundEnd, at(round));
        assert!(reclaim(&mut limbo, round).is_empty(), "worker b has not paused");
    }
    b.pass(Moment::RoundEnd, at(5));
    a.pass(Moment::RoundEnd, at(5));
    reclaim(&mut limbo, 5);
    b.pass(Moment::RoundEnd, at(6));
    a.pass(Moment::RoundEnd, at(6));
    let _ = reclaim(&mut limbo, 6);
    assert_eq!(limbo.stats().freed, 1);
    assert!(limbo.stats().grace_max <= Duration::from_nanos(6));
}

#[test]
fn a_grace_period_is_a_few_rounds_long_at_any_load() {
    let domain = Domain::new(1);
    let mut reader = domain.reader().unwrap();
    let mut limbo = limbo_of(&domain, 1000);
    for round in 0..10_000_u64 {
        for _ in 0..5 {
            limbo.reserve(1).unwrap().retire(0, at(round));
        }
        reader.pass(Moment::RoundEnd, at(round));
        reclaim(&mut limbo, round);
    }
    assert!(limbo.stats().grace_max <= Duration::from_nanos(3), "{:?}", limbo.stats());
    assert!(limbo.stats().items_max <= 20, "{:?}", limbo.stats());
}

#[test]
fn a_parked_worker_blocks_nothing_and_neither_does_one_that_ended() {
    let domain = Domain::new(2);
    let mut sleeper = domain.reader().unwrap();
    let ended = domain.reader().unwrap();
    let mut limbo = limbo_of(&domain, 8);
    drop(ended);
    let parked = sleeper.park();
    limbo.reserve(1).unwrap().retire(7, at(0));
    assert_eq!(reclaim(&mut limbo, 1), [7]);
    parked.wake(at(2));
    limbo.reserve(1).unwrap().retire(8, at(2));
    assert!(reclaim(&mut limbo, 3).is_empty(), "it is online again");
}

#[test]
fn at_the_cap_a_change_is_refused_counted_and_nothing_waits_longer() {
    let domain = Domain::new(1);
    let _stuck = domain.reader().unwrap();
    let mut limbo: Limbo<u32> = domain.limbo(LimboCaps { items: 3, bytes: 100 });
    for n in 0..3 {
        limbo.reserve(10).unwrap().retire(n, at(0));
    }
    assert_eq!(limbo.reserve(10).unwrap_err(), LimboFull { items: 3, bytes: 30 });
    let mut by_bytes: Limbo<u32> = domain.limbo(LimboCaps { items: 9, bytes: 100 });
    by_bytes.reserve(60).unwrap().retire(0, at(0));
    assert!(by_bytes.reserve(41).is_err());
    assert!(by_bytes.reserve(usize::MAX).is_err(), "the sum does not overflow");
    by_bytes.reserve(40).unwrap().retire(1, at(0));
    assert_eq!((limbo.stats().refused, by_bytes.stats().refused), (1, 2));
    assert_eq!(by_bytes.stats().bytes_max, 100);
}

#[test]
fn a_refused_replacement_changes_nothing_and_gives_the_value_back() {
    let domain = Domain::new(1);
    let reader = domain.reader().unwrap();
    let cell = RcuCell::new(&domain, Box::new(1));
    let mut limbo: Limbo<Retired<i32>> = domain.limbo(LimboCaps { items: 1, bytes: 8 });
    cell.replace(Box::new(2), 4, &mut limbo, at(0)).unwrap();
    let (back, _) = cell.replace(Box::new(3), 4, &mut limbo, at(0)).unwrap_err();
    assert_eq!((*back, *cell.load(reader.view())), (3, 2));
}

#[test]
fn a_stuck_worker_is_reported_with_its_number_and_age() {
    let domain = Domain::new(3);
    let mut readers: Vec<_> = (0..3).map(|_| domain.reader().unwrap()).collect();
    let ms = |n: u64| at(n * 1_000_000);
    readers[0].pass(Moment::RoundEnd, ms(99));
    readers[1].pass(Moment::RoundEnd, ms(10));
    readers[2].pass(Moment::RoundEnd, ms(5));
    let _asleep = readers[2].park();
    let stalls: Vec<_> = domain.stalled(ms(100), Duration::from_millis(20)).collect();
    assert_eq!(stalls, [ReaderStall { worker: 1, age: Duration::from_millis(90) }]);
}

#[test]
fn more_readers_than_workers_are_refused_and_an_ended_ones_place_is_free() {
    let domain = Domain::new(1);
    let reader = domain.reader().unwrap();
    assert_eq!(domain.reader().unwrap_err(), NoRecord(1));
    drop(reader);
    assert!(domain.reader().is_ok());
}

#[test]
fn passes_are_small_until_much_waits_and_small_again_when_little_does() {
    let mut hurried = false;
    assert_eq!(Paced.batch(50, &mut hurried), 10);
    assert_eq!(Paced.batch(10_000, &mut hurried), 78, "one in 2^7");
    assert_eq!(Paced.batch(10_001, &mut hurried), 10_000);
    assert_eq!(Paced.batch(100, &mut hurried), 10_000, "still in a hurry");
    assert_eq!(Paced.batch(99, &mut hurried), 10);
}

#[test]
fn a_pass_ends_with_its_time() {
    let domain = Domain::new(1);
    let mut limbo: Limbo<u32> = domain.limbo(LimboCaps { items: 20_000, bytes: 20_000 });
    for n in 0..10_001 {
        limbo.reserve(1).unwrap().retire(n, at(0));
    }
    let mut clock = 0;
    let tick = || {
        clock += Paced::PASS_MAX.as_nanos() as u64 / 2 + 1;
        at(clock)
    };
    assert_eq!(limbo.reclaim(tick, drop), 64, "two looks at the clock");
}

#[test]
fn a_policy_of_the_labs_may_announce_only_when_idle() {
    #[derive(Clone, Copy)]
    struct Lazy;
    impl Policy for Lazy {
        fn announces(&self, moment: Moment) -> bool {
            moment == Moment::Idle
        }
        fn batch(&self, _: usize, _: &mut bool) -> usize {
            4
        }
        fn pass_max(&self) -> Duration {
            Duration::MAX
        }
    }
    let domain = Domain::with_policy(1, Lazy);
    let mut reader = domain.reader().unwrap();
    let mut limbo: Limbo<u32, Lazy> = domain.limbo(CAPS);
    for n in 0..9 {
        limbo.reserve(1).unwrap().retire(n, at(0));
    }
    for round in 0..100 {
        reader.pass(Moment::RoundEnd, at(round));
        assert_eq!(limbo.reclaim(|| at(round), drop), 0);
    }
    reader.pass(Moment::Idle, at(100));
    limbo.reclaim(|| at(100), drop);
    reader.pass(Moment::Idle, at(101));
    assert_eq!(limbo.reclaim(|| at(101), drop), 4);
}

#[test]
fn drained_only_when_nothing_is_online() {
    let domain = Domain::new(1);
    let reader = domain.reader().unwrap();
    let mut limbo = limbo_of(&domain, 4);
    limbo.reserve(1).unwrap().retire(7, at(0));
    assert!(!limbo.drain(at(1), drop));
    drop(reader);
    assert!(limbo.drain(at(1), drop));
    assert_eq!((limbo.stats().items, limbo.stats().bytes), (0, 0));
}

#[test]
fn what_a_writer_leaves_behind_is_freed_with_the_domain() {
    struct Counted(Arc<AtomicU64>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Relaxed);
        }
    }
    let freed = Arc::new(AtomicU64::new(0));
    let domain = Domain::new(1);
    let reader = domain.reader().unwrap();
    let mut limbo = domain.limbo(CAPS);
    limbo.reserve(1).unwrap().retire(Counted(Arc::clone(&freed)), at(0));
    drop(limbo);
    drop(domain);
    assert_eq!(freed.load(Relaxed), 0, "the reader may still look");
    drop(reader);
    assert_eq!(freed.load(Relaxed), 1);
}

#[test]
#[should_panic(expected = "another domain")]
fn a_view_of_another_domain_is_refused() {
    let (ours, theirs) = (Domain::new(1), Domain::new(1));
    let cell = RcuCell::new(&ours, Box::new(1));
    let reader = theirs.reader().unwrap();
    let _ = cell.load(reader.view());
}

/// Readers, replacements and parking in real threads: no value is read after it was freed, and
/// all are freed in the end.
#[test]
fn readers_never_see_a_freed_value_while_a_writer_replaces() {
    const REPLACEMENTS: u32 = 20_000;
    let domain = Domain::new(2);
    let cell = RcuCell::new(&domain, Watched::boxed(0));
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers = [false, true].map(|parks| {
            let mut reader = domain.reader().unwrap();
            let (cell, done) = (&cell, &done);
            scope.spawn(move || {
                let mut rounds = 0_u64;
                while !done.load(Relaxed) {
                    let view = reader.view();
                    (0..8).for_each(|_| _ = cell.load(view).read());
                    rounds += 1;
                    reader.pass(Moment::RoundEnd, at(rounds));
                    if parks && rounds.is_multiple_of(16) {
                        let parked = reader.park();
                        std::thread::yield_now();
                        parked.wake(at(rounds));
                    }
                }
            })
        });
        let mut limbo: Limbo<Retired<Watched>> = domain.limbo(CAPS);
        let mut n = 0;
        while n < REPLACEMENTS {
            match cell.replace(Watched::boxed(n), 1, &mut limbo, at(u64::from(n))) {
                Ok(()) => n += 1,
                Err(_) => std::thread::yield_now(),
            }
            limbo.reclaim(|| at(u64::from(n)), drop);
        }
        done.store(true, Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        assert!(limbo.drain(at(0), drop));
        assert_eq!(limbo.stats().freed, u64::from(REPLACEMENTS));
    });
}
