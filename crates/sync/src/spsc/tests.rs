//! The ring under ordinary threads, and under loom.

use super::*;

/// Indices start here in tests that should see them wrap.
const NEAR_WRAP: usize = usize::MAX - 1;

#[cfg(not(loom))]
mod threads {
    use std::{
        iter, mem,
        panic::{AssertUnwindSafe, catch_unwind},
        rc::Rc,
    };

    use super::*;

    #[test]
    fn capacity_is_the_next_power_of_two_and_at_least_one() {
        for (min, capacity) in [(0, 1), (1, 1), (2, 2), (3, 4), (64, 64), (65, 128)] {
            let (producer, consumer) = ring::<u8>(min);
            assert_eq!((producer.capacity(), consumer.capacity()), (capacity, capacity));
        }
    }

    #[test]
    fn full_ring_gives_the_item_back_and_empty_ring_gives_none() {
        let (mut producer, mut consumer) = ring_from(2, NEAR_WRAP);
        assert_eq!(consumer.pop(), None);
        assert_eq!((producer.room(), consumer.ready()), (2, 0));
        assert_eq!(producer.push("a"), Ok(()));
        assert_eq!(producer.push("b"), Ok(()));
        assert_eq!(producer.push("c"), Err("c"));
        assert_eq!((producer.room(), consumer.ready()), (0, 2));
        assert_eq!(consumer.pop(), Some("a"));
        assert_eq!(producer.push("c"), Ok(()));
        assert_eq!((consumer.pop(), consumer.pop(), consumer.pop()), (Some("b"), Some("c"), None));
    }

    #[test]
    fn order_is_kept_across_the_wrap_for_every_fill_level() {
        for fill in 1..=4 {
            let (mut producer, mut consumer) = ring_from(4, usize::MAX - 5);
            for round in 0..8 {
                let items = || (0..fill).map(|item| round * 10 + item);
                assert!(items().all(|item| producer.push(item).is_ok()));
                assert!(items().all(|item| consumer.pop() == Some(item)));
            }
        }
    }

    #[test]
    fn batch_takes_what_fits_and_leaves_the_rest_in_the_iterator() {
        let (mut producer, mut consumer) = ring_from(4, NEAR_WRAP);
        let mut items = 0..10;
        assert_eq!(producer.push_batch(&mut items), 4);
        assert_eq!(producer.push_batch(&mut items), 0);
        assert_eq!(consumer.pop_batch(3).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(producer.push_batch(&mut items), 3);
        assert_eq!(consumer.pop_batch(usize::MAX).collect::<Vec<_>>(), [3, 4, 5, 6]);
        assert_eq!(items, 7..10);
        assert_eq!(producer.push_batch(iter::from_fn(|| Some(7))), 4);
        assert_eq!(producer.push_batch(iter::empty()), 0);
        assert_eq!(consumer.pop_batch(0).len(), 0);
    }

    #[test]
    fn batch_not_drained_stays_in_the_ring() {
        let (mut producer, mut consumer) = ring(4);
        producer.push_batch(0..4);
        let mut batch = consumer.pop_batch(4);
        assert_eq!((batch.next(), batch.len()), (Some(0), 3));
        drop(batch);
        assert_eq!(producer.room(), 1);
        assert_eq!(consumer.pop_batch(4).collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn forgotten_batch_yields_no_item_twice() {
        let item = Rc::new(());
        let (mut producer, mut consumer) = ring(4);
        producer.push_batch(iter::repeat_n(Rc::clone(&item), 3));
        let mut batch = consumer.pop_batch(3);
        drop(batch.next());
        mem::forget(batch);
        assert_eq!(Rc::strong_count(&item), 3);
        drop((producer, consumer));
        assert_eq!(Rc::strong_count(&item), 1);
    }

    #[test]
    fn batch_of_a_panicking_iterator_keeps_what_it_had() {
        let (mut producer, mut consumer) = ring(4);
        let items = (0..4).inspect(|&item| assert!(item < 2, "as planned"));
        assert!(catch_unwind(AssertUnwindSafe(|| producer.push_batch(items))).is_err());
        assert_eq!(consumer.pop_batch(4).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn remaining_items_are_dropped_with_the_ring_in_any_order_of_ends() {
        for consumer_first in [false, true] {
            let item = Rc::new(());
            let (mut producer, mut consumer) = ring_from(4, NEAR_WRAP);
            assert_eq!(producer.push_batch(iter::repeat_n(Rc::clone(&item), 4)), 4);
            drop(consumer.pop());
            if consumer_first {
                drop(consumer);
                assert_eq!(Rc::strong_count(&item), 4);
                drop(producer);
            } else {
                drop(producer);
                assert_eq!(Rc::strong_count(&item), 4);
                drop(consumer);
            }
            assert_eq!(Rc::strong_count(&item), 1);
        }
    }

    #[test]
    fn items_without_size_are_counted_all_the_same() {
        let (mut producer, mut consumer) = ring(2);
        assert_eq!(producer.push_batch([(), (), ()]), 2);
        assert_eq!(consumer.pop_batch(9).count(), 2);
        assert_eq!(consumer.pop(), None);
    }

    #[test]
    fn stress_of_two_threads_keeps_every_item_in_order() {
        const ITEMS: u64 = 60_000;
        let (mut producer, mut consumer) = ring_from(8, usize::MAX - 1_000);
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || produce(&mut producer, ITEMS));
            let mut next = 0;
            while next < ITEMS {
                let batch = if next % 3 == 0 { 1 } else { 5 };
                for item in consumer.pop_batch(batch) {
                    assert_eq!(*item, next);
                    next += 1;
                }
                std::thread::yield_now();
            }
            thread.join().expect("producer");
            assert!(consumer.pop().is_none());
        });
    }

    /// Pushes by ones and by batches, in turn.
    fn produce(producer: &mut Producer<Box<u64>>, count: u64) {
        let mut items = (0..count).map(Box::new);
        loop {
            producer.push_batch(items.by_ref().take(3));
            let Some(mut item) = items.next() else { break };
            while let Err(back) = producer.push(item) {
                item = back;
                std::thread::yield_now();
            }
        }
    }
}

/// Two operations a thread, no bound on preemption: two threads end soon enough. The slots are
/// loom's cells, so each unordered access fails. Weakened by hand, each alone made these models
/// fail: the release of `Producer::publish`, the acquire of `Consumer::ready`, the release of
/// `Consumer::publish`, and the acquire of `Producer::room`, to relaxed.
#[cfg(loom)]
mod model {
    use loom::{model, thread};

    use super::*;

    #[test]
    fn items_come_in_order_through_a_ring_that_wraps_and_is_empty_at_times() {
        model(|| {
            let (mut producer, mut consumer) = ring_from(2, usize::MAX);
            let thread = thread::spawn(move || {
                assert_eq!(producer.push(Box::new(1)), Ok(()));
                assert_eq!(producer.push(Box::new(2)), Ok(()));
            });
            let mut items: Vec<_> =
                [consumer.pop(), consumer.pop()].into_iter().flatten().collect();
            thread.join().expect("producer");
            items.extend(consumer.pop_batch(2));
            assert_eq!(items, [Box::new(1), Box::new(2)]);
        });
    }

    #[test]
    fn slot_is_used_again_only_after_its_item_was_read() {
        model(|| {
            let (mut producer, mut consumer) = ring_from(1, usize::MAX);
            assert_eq!(producer.push(Box::new(1)), Ok(()));
            let thread = thread::spawn(move || producer.push(Box::new(2)));
            let first = consumer.pop();
            let second = consumer.pop();
            assert_eq!(first, Some(Box::new(1)));
            match thread.join().expect("producer") {
                Ok(()) => assert_eq!(second.or_else(|| consumer.pop()), Some(Box::new(2))),
                Err(back) => assert_eq!((back, second), (Box::new(2), None)),
            }
        });
    }

    #[test]
    fn batches_are_handed_over_and_back() {
        model(|| {
            let (mut producer, mut consumer) = ring_from(2, NEAR_WRAP);
            let thread = thread::spawn(move || {
                let mut items = (0..4).map(Box::new);
                [producer.push_batch(&mut items), producer.push_batch(&mut items)]
            });
            let mut items: Vec<_> = consumer.pop_batch(2).collect();
            items.extend(consumer.pop_batch(2));
            let pushed = thread.join().expect("producer");
            items.extend(consumer.pop_batch(2));
            assert!(items.iter().map(|item| **item).eq(0..pushed.iter().sum()));
        });
    }

    #[test]
    fn remaining_items_are_dropped_once_when_both_ends_leave_at_once() {
        model(|| {
            let item = loom::sync::Arc::new(());
            let (mut producer, mut consumer) = ring_from(2, NEAR_WRAP);
            let other = item.clone();
            let thread = thread::spawn(move || {
                drop(producer.push(other.clone()));
                drop(producer.push(other));
            });
            drop(consumer.pop());
            drop(consumer);
            thread.join().expect("producer");
            assert_eq!(loom::sync::Arc::strong_count(&item), 1);
        });
    }
}
