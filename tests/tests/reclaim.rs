//! Memory that several workers share, under churn and floods: routes that change thousands of times
//! while readers look, packets that are freed by other workers than those that took them, a dump of
//! a table that is being changed.
#![expect(clippy::unwrap_used, reason = "what a test cannot do without ends the test")]

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use floodwall_base::{Instant, Prefix};
use floodwall_fib::lpm::{LpmCapacity, LpmFamily, LpmWriter, UpdateError};
use floodwall_packet::{PacketBuf, PoolConfig, Region};
use floodwall_sync::RcuCell;
use floodwall_sync::qsbr::{Domain, Limbo, LimboCaps, Moment, Paced};

const fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

/// Signals a thread to end, also where the test fails before it would.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// A more specific route comes and goes, thousands of times, while two workers look it up in
/// round after round and a third sleeps: each look-up finds the one or the other, and nothing of
/// what was unlinked waits longer than its cap.
fn churn<A: LpmFamily>(outer: Prefix<A>, inner: Prefix<A>, inside: A, beside: A) {
    const CHANGES: u64 = 5_000;
    let domain = Domain::new(3);
    let capacity = LpmCapacity { retired: 256, ..LpmCapacity::for_prefixes(1000) };
    let mut writer = LpmWriter::<A>::new(&domain, capacity);
    writer.insert(outer, 1, at(0)).unwrap();
    let (done, looks) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut asleep = domain.reader().unwrap();
    let parked = asleep.park();
    thread::scope(|scope| {
        for _ in 0..2 {
            let (mut reader, lpm) = (domain.reader().unwrap(), writer.reader());
            let (done, looks) = (&done, &looks);
            scope.spawn(move || {
                while !done.load(Relaxed) {
                    let mut found = [0; 2];
                    for _ in 0..32 {
                        lpm.lookup_burst(reader.view(), &[inside, beside], at(0), &mut found);
                        assert!(matches!(found, [1 | 2, 1]), "{found:?}");
                    }
                    looks.fetch_add(1, Relaxed);
                    reader.pass(Moment::RoundEnd, at(0));
                }
            });
        }
        let _ends = Ends(&done);
        let (mut made, mut refused) = (0, 0);
        while made < CHANGES || looks.load(Relaxed) < 100 {
            let change = match made % 2 {
                0 => writer.insert(inner, 2, at(made)),
                _ => writer.remove(inner, at(made)),
            };
            match change {
                Ok(before) => {
                    assert_eq!(before, [None, Some(2)][(made % 2) as usize]);
                    made += 1;
                }
                Err(UpdateError::Pending) => {
                    refused += 1;
                    thread::yield_now();
                }
                Err(error) => panic!("{error}"),
            }
        }
        let stats = domain.stats(at(made)).limbo;
        assert!(stats.items_max <= 256 && stats.freed > 0, "{refused} refused: {stats:?}");
    });
    drop(parked);
    assert_eq!(writer.len(), 1 + usize::from(writer.exact(inner).is_some()));
}

#[test]
fn routes_that_change_thousands_of_times_are_looked_up_right_and_freed_ipv4() {
    let addr = |last| Ipv4Addr::new(198, 51, 100, last);
    let outer = Prefix::new(Ipv4Addr::new(198, 51, 0, 0), 16).unwrap();
    churn(outer, Prefix::new(addr(128), 25).unwrap(), addr(200), addr(3));
}

#[test]
fn routes_that_change_thousands_of_times_are_looked_up_right_and_freed_ipv6() {
    let addr = |net, last| Ipv6Addr::new(0x2001, 0xdb8, 0, net, 0, 0, 0, last);
    let outer = Prefix::new(addr(0, 0), 32).unwrap();
    churn(outer, Prefix::new(addr(7, 0), 64).unwrap(), addr(7, 9), addr(8, 9));
}

/// One worker takes packets from its pool as fast as it can; all of them are retired and freed by
/// another. Frames come home, none is lost, and the first worker is never out of them for long.
#[test]
fn packets_freed_by_another_worker_than_took_them_all_come_home() {
    const PACKETS: usize = 10_000;
    let config = PoolConfig { workers: 2, small: 512, frames: 512, ..PoolConfig::default() };
    let region = Region::new(&config).unwrap();
    let domain = Domain::new(2);
    let (sender, receiver) = std::sync::mpsc::sync_channel::<PacketBuf>(64);
    let mut taker = domain.reader().unwrap();
    let shared = &region;
    let before = thread::scope(|scope| {
        let takes = scope.spawn(move || {
            let pool = shared.attach().unwrap();
            let before = pool.available();
            let mut sent = 0;
            while sent < PACKETS {
                taker.pass(Moment::RoundEnd, at(sent as u64));
                let bytes = sent.to_be_bytes();
                let Some(packet) = pool.packet_from(&bytes) else {
                    thread::yield_now();
                    continue;
                };
                // A worker that waits for another does so offline, as when it sleeps.
                let parked = taker.park();
                sender.send(packet).unwrap();
                drop(parked);
                sent += 1;
            }
            drop(taker);
            drop(sender);
            before
        });
        // The limbo is that of a worker with a pool of its own: frames must not end up there.
        let pool = shared.attach().unwrap();
        let own = pool.available();
        let caps = LimboCaps { items: 128, bytes: 128 * 2048 };
        let mut limbo: Limbo<PacketBuf> = domain.limbo_of("packets", caps);
        let mut freed = 0_usize;
        let mut free = |packet: PacketBuf| {
            let bytes: Vec<u8> = packet.chunks().flatten().copied().collect();
            assert_eq!(bytes, freed.to_be_bytes(), "in the order in which they came");
            freed += 1;
        };
        for (number, packet) in receiver.iter().enumerate() {
            while limbo.room() == 0 {
                limbo.reclaim(|| at(number as u64), &mut free);
                thread::yield_now();
            }
            limbo.reserve(2048).unwrap().retire(packet, at(number as u64));
            limbo.reclaim(|| at(number as u64), &mut free);
        }
        assert!(limbo.drain(at(0), &mut free), "the taker is gone");
        assert_eq!(freed, PACKETS);
        assert_eq!(limbo.stats().refused, 0, "room was requested before");
        assert_eq!(pool.available(), own, "no frame of the other's stays here");
        takes.join().unwrap()
    });
    let after = region.attach().unwrap().available();
    assert_eq!(after, before, "every frame came home");
}

/// A reader lists a table of neighbours page by page while it changes: between pages it pauses, so
/// no old table is kept for it, and each page is whole.
#[test]
fn a_dump_that_takes_its_time_keeps_no_old_table_alive() {
    const ENTRIES: usize = 512;
    /// Then nothing changes any more, and the test fails.
    const DUMPS_MAX: usize = 1_000_000;
    let domain = Domain::new(1);
    let cell = RcuCell::new(&domain, Box::new([0_u64; ENTRIES]));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let (mut dump, shown) = (domain.reader().unwrap(), &cell);
        let _ends = Ends(&done);
        let finished = &done;
        let dumps = scope.spawn(move || {
            let (mut dumps, mut generations) = (0, 0_u64);
            // However late the other thread comes: twenty, and twenty changes seen.
            while (dumps < 20 || generations <= 20 && dumps < DUMPS_MAX) && !finished.load(Relaxed)
            {
                for page in (0..ENTRIES).step_by(32) {
                    let entries = &shown.load(dump.view())[page..page + 32];
                    assert!(entries.iter().all(|entry| *entry == entries[0]), "a torn page");
                    assert!(entries[0] >= generations, "an older table than before");
                    generations = entries[0];
                    dump.pass(Moment::SliceEnd, at(generations));
                    thread::yield_now();
                }
                dumps += 1;
            }
            drop(dump);
            dumps
        });
        let bytes = size_of::<[u64; ENTRIES]>();
        let mut limbo = domain.limbo_of("neighbours", LimboCaps { items: 64, bytes: 64 * bytes });
        let mut generation = 0;
        while !dumps.is_finished() {
            generation += 1;
            let next = Box::new([generation; ENTRIES]);
            if cell.replace(next, bytes, &mut limbo, at(generation)).is_err() {
                generation -= 1;
                thread::yield_now();
            }
            limbo.reclaim(|| at(generation), drop);
        }
        assert!((20..DUMPS_MAX).contains(&dumps.join().unwrap()));
        let stats = limbo.stats();
        assert!(stats.bytes_max <= 64 * bytes && stats.freed > 0, "{stats:?}");
        assert!(limbo.drain(at(generation), drop) && generation > 20, "{generation} tables");
    });
}

/// A worker that hangs while routes change: changes are refused in the end, its number and the time
/// are told, and when it goes on, so do they.
#[test]
fn a_worker_that_hangs_is_named_and_costs_only_changes() {
    let domain = Domain::new(2);
    let capacity = LpmCapacity { retired: 128, ..LpmCapacity::for_prefixes(1000) };
    let mut writer = LpmWriter::<Ipv6Addr>::new(&domain, capacity);
    let (mut works, mut hangs) = (domain.reader().unwrap(), domain.reader().unwrap());
    let lpm = writer.reader();
    let addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 1);
    let prefix = Prefix::new(addr, 128).unwrap();
    let mut refused_at = None;
    for n in 0..1000 {
        let now = at(n * 1_000_000);
        let change = match writer.exact(prefix) {
            None => writer.insert(prefix, 7, now).map(drop),
            Some(_) => writer.remove(prefix, now).map(drop),
        };
        match change {
            Err(UpdateError::Pending) => _ = refused_at.get_or_insert(n),
            other => other.unwrap(),
        }
        let expected = writer.exact(prefix).unwrap_or(0);
        assert_eq!(lpm.lookup(works.view(), addr, at(0)), expected, "the other one goes on");
        works.pass(Moment::RoundEnd, now);
    }
    assert!(refused_at.is_some_and(|n| n < 128), "{refused_at:?}");
    let now = at(1_000_000_000);
    let named: Vec<usize> =
        domain.stalled(now, Paced::STALL_AFTER).map(|stall| stall.worker).collect();
    assert_eq!(named, [1]);
    assert_eq!(domain.stats(now).slowest.unwrap().age, Duration::from_secs(1));
    assert!(domain.stats(now).limbo.items_max <= 128);
    hangs.pass(Moment::RoundEnd, now);
    works.pass(Moment::RoundEnd, now);
    for _ in 0..100 {
        let change = writer.insert(prefix, 9, now);
        works.pass(Moment::RoundEnd, now);
        hangs.pass(Moment::RoundEnd, now);
        if change.is_ok() {
            return;
        }
    }
    panic!("it paused, and changes are refused still");
}
