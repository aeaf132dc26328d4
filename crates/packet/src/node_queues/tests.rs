//! Two workers on two nodes, one reader, and an end: under ordinary threads and under loom.

use super::*;

#[cfg(not(loom))]
mod threads {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::descriptor::Class;
    use crate::pool::{Pool, PoolConfig, Region};

    fn list(pool: &Pool, numbers: impl IntoIterator<Item = u32>) -> PacketList {
        let mut list = PacketList::new();
        for number in numbers {
            let mut packet = pool.alloc(Class::Small).unwrap();
            assert!(packet.extend_from_slice(&number.to_be_bytes()));
            list.push_back(packet);
        }
        list
    }

    fn numbers(mut list: PacketList) -> Vec<u32> {
        let next = || list.pop_front().map(|p| u32::from_be_bytes(p.first().try_into().unwrap()));
        core::iter::from_fn(next).collect()
    }

    #[test]
    fn each_node_keeps_its_order_and_one_look_takes_all() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let before = pool.available();
        for nodes in [1, 2, 6] {
            let queues = NodeQueues::new(nodes);
            for batch in 0..3_u32 {
                for node in 0..nodes as u32 {
                    let numbers = (0..2).map(|n| node << 8 | batch << 1 | n);
                    queues.push(NumaNode(node as u8), list(&pool, numbers), Bits::NONE);
                }
            }
            let seen = numbers(queues.take(Bits::NONE).0);
            assert_eq!(seen.len(), nodes * 6);
            for node in 0..nodes as u32 {
                let of_node = seen.iter().filter(|n| **n >> 8 == node).map(|n| n & 0xff);
                assert_eq!(of_node.collect::<Vec<_>>(), (0..6).collect::<Vec<_>>());
            }
            // A node that has no queue of its own uses the first one's.
            queues.push(NumaNode(99), list(&pool, [7]), Bits::FIN);
            let (seen, bits) = queues.take(Bits::FIN);
            assert!(bits.has(Bits::FIN) && numbers(seen) == [7]);
            queues.push(NumaNode(nodes as u8 - 1), list(&pool, 0..9), Bits::NONE);
        }
        assert_eq!(pool.available(), before, "what was not read is given back");
    }

    #[test]
    fn a_reader_that_sleeps_is_to_be_woken_by_the_first_of_any_node() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let queues = NodeQueues::new(3);
        for node in 0..3 {
            assert!(queues.park(Bits::FIN));
            let push = |n| queues.push(NumaNode(node), list(&pool, [n]), Bits::NONE);
            assert!(push(1).has(Bits::WAIT), "the first wakes");
            assert!(!push(2).has(Bits::WAIT), "and no other");
            assert!(!queues.park(Bits::FIN), "what waits keeps it awake");
            assert_eq!(numbers(queues.take(Bits::NONE).0), [1, 2]);
        }
        queues.set(Bits::FIN);
        assert!(!queues.park(Bits::FIN), "so does the end");
    }

    /// Workers on two nodes push under an account's limit while a reader takes: nothing is lost,
    /// each one's order is kept, the limit holds at every look, and all charges return.
    #[test]
    fn in_mid_flood_the_cap_holds_and_all_charges_return() {
        const EACH: u32 = 3000;
        const LIMIT: u64 = 20_000;
        let config = PoolConfig { workers: 2, small: 1024, ..PoolConfig::default() };
        let region = Region::new(&config).unwrap();
        let (queues, over) = (Arc::new(NodeQueues::new(2)), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..2_u32)
                .map(|worker| {
                    let (queues, region) = (Arc::clone(&queues), &region);
                    scope.spawn(move || {
                        let pool = region.attach().unwrap();
                        let account = pool.open_account(LIMIT / 2).unwrap();
                        let mut refused = 0;
                        for number in 0..EACH {
                            let Some(mut packet) = pool.alloc(Class::Small) else {
                                refused += 1;
                                continue;
                            };
                            let word = worker << 24 | number;
                            assert!(packet.extend_from_slice(&word.to_be_bytes()));
                            if packet.charge(&account).is_err() {
                                refused += 1;
                                continue;
                            }
                            assert!(account.used() <= LIMIT / 2);
                            let mut batch = PacketList::new();
                            batch.push_back(packet);
                            queues.push(NumaNode(worker as u8), batch, Bits::NONE);
                        }
                        while account.used() > 0 {
                            std::thread::yield_now();
                        }
                        refused
                    })
                })
                .collect();
            let (queues, over) = (&queues, &over);
            let reader = scope.spawn(move || {
                let (mut last, mut read) = ([None; 2], 0);
                loop {
                    let done = over.load(Ordering::Acquire);
                    let seen = numbers(queues.take(Bits::NONE).0);
                    read += seen.len() as u32;
                    for word in &seen {
                        let (worker, number) = ((word >> 24) as usize, word & 0xff_ffff);
                        assert!(last[worker] < Some(number), "order");
                        last[worker] = Some(number);
                    }
                    if done && seen.is_empty() {
                        return read;
                    }
                    std::thread::yield_now();
                }
            });
            let refused: u32 = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
            over.store(true, Ordering::Release);
            assert_eq!(reader.join().unwrap() + refused, 2 * EACH);
        });
    }
}

/// Push, drain, read, close: two producers on two nodes, one reader. The orderings are
/// `Mailbox`'s, and weakened there (`sync/mailbox/tests.rs`); what is shown here is that a reader
/// which parks queue after queue is woken all the same, and that nothing is lost at the end.
#[cfg(loom)]
mod model {
    use floodwall_sync::shim::Arc;
    use floodwall_sync::shim::atomic::{AtomicU32, Ordering};
    use loom::thread;

    use super::*;
    use crate::buf::PacketBuf;
    use crate::descriptor::{Class, Descriptor};

    fn packet(number: u32) -> PacketBuf {
        let descriptor = Box::new(Descriptor::new(Class::Frame, u16::MAX, core::ptr::null_mut()));
        descriptor.hash.set(number);
        // SAFETY: live, and without another owner. It is leaked: `numbers` frees it.
        unsafe { PacketBuf::from_descriptor(Box::into_raw(descriptor)) }
    }

    fn list(numbers: &[u32]) -> PacketList {
        let mut list = PacketList::new();
        numbers.iter().for_each(|number| list.push_back(packet(*number)));
        list
    }

    fn numbers(mut list: PacketList) -> Vec<u32> {
        let mut all = Vec::new();
        while let Some(packet) = list.pop_front() {
            all.push(packet.flow_hash());
            // SAFETY: made of a box in `packet`, and given up by its only owner.
            drop(unsafe { Box::from_raw(packet.into_descriptor().cast_mut()) });
        }
        all
    }

    #[test]
    fn a_parked_reader_is_woken_and_nothing_is_lost() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound.get_or_insert(3);
        builder.check(|| {
            let queues = Arc::new(NodeQueues::new(2));
            let wakes = Arc::new(AtomicU32::new(0));
            let producers = [0, 1].map(|node| {
                let (queues, wakes) = (Arc::clone(&queues), Arc::clone(&wakes));
                thread::spawn(move || {
                    let before = queues.push(NumaNode(node), list(&[u32::from(node)]), Bits::NONE);
                    if before.has(Bits::WAIT) {
                        wakes.fetch_add(1, Ordering::AcqRel);
                    }
                })
            });
            let mut seen = numbers(queues.take(Bits::NONE).0);
            let slept = queues.park(Bits::FIN);
            producers.into_iter().for_each(|producer| producer.join().unwrap());
            let late = numbers(queues.take(Bits::NONE).0);
            // Asleep with both still to come means that one of them wakes.
            assert!(!slept || late.is_empty() || wakes.load(Ordering::Acquire) > 0);
            seen.extend(late);
            seen.sort_unstable();
            assert_eq!(seen, [0, 1]);
        });
    }

    #[test]
    fn what_is_pushed_while_the_reader_closes_is_taken_by_the_last() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound.get_or_insert(3);
        builder.check(|| {
            let queues = Arc::new(NodeQueues::new(2));
            let producers = [0, 1].map(|node| {
                let queues = Arc::clone(&queues);
                thread::spawn(move || {
                    queues.push(NumaNode(node), list(&[u32::from(node)]), Bits::NONE);
                })
            });
            // The reader reads once, marks itself as gone, and the thread that frees the slot
            // later, when no producer is left, takes the rest: `AccountSlot::clear`.
            queues.set(Bits::GONE);
            let mut seen = numbers(queues.take(Bits::NONE).0);
            producers.into_iter().for_each(|producer| producer.join().unwrap());
            let (rest, bits) = queues.take(Bits::GONE);
            assert!(bits.has(Bits::GONE));
            seen.extend(numbers(rest));
            seen.sort_unstable();
            assert_eq!(seen, [0, 1]);
        });
    }
}
