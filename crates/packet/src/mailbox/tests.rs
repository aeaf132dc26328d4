//! Packets through a mailbox, under ordinary threads and under loom.

use super::*;
use crate::buf::PacketBuf;
use crate::descriptor::Class;

#[cfg(not(loom))]
mod threads {
    use super::*;
    use crate::pool::{Pool, PoolConfig, Region};

    fn numbered(pool: &Pool, number: u32) -> PacketBuf {
        let mut packet = pool.alloc(Class::Small).unwrap();
        assert!(packet.extend_from_slice(&number.to_be_bytes()));
        packet
    }

    fn list(pool: &Pool, numbers: impl IntoIterator<Item = u32>) -> PacketList {
        let mut list = PacketList::new();
        numbers.into_iter().for_each(|number| list.push_back(numbered(pool, number)));
        list
    }

    fn numbers(mut list: PacketList) -> Vec<u32> {
        let (len, mut all) = (list.len(), Vec::new());
        while let Some(packet) = list.pop_front() {
            all.push(u32::from_be_bytes(packet.first().try_into().unwrap()));
        }
        assert_eq!(all.len(), len, "a list has its length");
        all
    }

    #[test]
    fn batches_arrive_in_order_with_their_flags() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let before = pool.available();
        let mailbox = PacketMailbox::new();
        assert_eq!(mailbox.push(list(&pool, 0..3), Bits::QUEUED), Bits::NONE);
        assert_eq!(mailbox.push(list(&pool, 3..4), Bits::QUEUED), Bits::QUEUED);
        assert_eq!(mailbox.push(list(&pool, []), Bits::FIN), Bits::QUEUED, "flags alone");
        assert_eq!(mailbox.push(list(&pool, 4..9), Bits::NONE), Bits::QUEUED.and(Bits::FIN));
        let (taken, bits) = mailbox.take(Bits::QUEUED);
        assert_eq!(bits, Bits::QUEUED.and(Bits::FIN));
        assert_eq!(numbers(taken), (0..9).collect::<Vec<_>>());
        assert!(mailbox.is_empty() && mailbox.take(Bits::NONE).0.is_empty());
        assert_eq!(pool.available(), before);
    }

    #[test]
    fn a_list_that_was_taken_is_an_ordinary_list() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let mailbox = PacketMailbox::new();
        mailbox.push(list(&pool, 1..3), Bits::NONE);
        let (mut taken, _) = mailbox.take(Bits::NONE);
        taken.push_back(numbered(&pool, 3));
        taken.push_front(numbered(&pool, 0));
        let mut more = list(&pool, 4..6);
        taken.append(&mut more);
        assert_eq!(numbers(taken), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_dropped_mailbox_gives_back_what_it_held() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let before = pool.available();
        let mailbox = PacketMailbox::new();
        mailbox.push(list(&pool, 0..5), Bits::FIN);
        assert_ne!(pool.available(), before);
        drop(mailbox);
        assert_eq!(pool.available(), before);
    }

    /// Three workers push batches, a reader takes: each one's order is kept, nothing is lost.
    #[test]
    fn each_pusher_keeps_its_order() {
        const EACH: u32 = 1000;
        let config = PoolConfig { workers: 3, small: 3 * 512, ..PoolConfig::default() };
        let region = Region::new(&config).unwrap();
        let mailbox = PacketMailbox::new();
        std::thread::scope(|scope| {
            for worker in 0..3 {
                let (mailbox, region) = (&mailbox, &region);
                scope.spawn(move || {
                    let pool = region.attach().unwrap();
                    let mut next = 0;
                    while next < EACH {
                        let mut batch = PacketList::new();
                        while batch.len() < 7 && next < EACH && pool.available().small > 0 {
                            batch.push_back(numbered(&pool, worker << 16 | next));
                            next += 1;
                        }
                        mailbox.push(batch, Bits::NONE);
                        std::thread::yield_now();
                    }
                });
            }
            let mut next = [0; 3];
            while next != [EACH; 3] {
                for number in numbers(mailbox.take(Bits::NONE).0) {
                    let worker = (number >> 16) as usize;
                    assert_eq!(number & 0xffff, next[worker], "order");
                    next[worker] += 1;
                }
                std::thread::yield_now();
            }
        });
    }
}

/// The orderings are `Mailbox`'s, and weakened there; here the packets' links are walked.
#[cfg(loom)]
mod model {
    use std::sync::Arc;

    use floodwall_sync::shim::Arc as Shared;
    use loom::thread;

    use super::*;

    /// Packets without a home, which are only ever looked at by their number.
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
    fn two_batches_arrive_whole_and_in_order() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound.get_or_insert(3);
        builder.check(|| {
            let ours = Shared::new(PacketMailbox::new());
            let theirs = Shared::clone(&ours);
            let told = Arc::new(());
            let thread = thread::spawn(move || {
                theirs.push(list(&[1, 2]), Bits::NONE);
                theirs.push(list(&[3]), Bits::FIN);
                drop(told);
            });
            let mut seen = numbers(ours.take(Bits::NONE).0);
            thread.join().unwrap();
            let (rest, bits) = ours.take(Bits::NONE);
            assert!(bits.has(Bits::FIN));
            seen.extend(numbers(rest));
            assert_eq!(seen, [1, 2, 3]);
        });
    }
}
