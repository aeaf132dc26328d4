//! After the pool is made, packets allocate nothing.
#![cfg(not(loom))]
#![expect(clippy::unwrap_used, reason = "a test's own functions are tests too")]

use floodwall_packet::{AccessCounters, Burst, Class, PacketList, Pool, PoolConfig};
use floodwall_testkit::alloc::{AllocationCount, CountingAllocator, counted};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Something of everything, with as many packets as there are.
fn use_all_of_it(pool: &Pool, burst: &mut Burst, list: &mut PacketList) {
    let account = pool.open_account(1 << 30).unwrap();
    let mut access = AccessCounters::default();
    while burst.room() > 0 {
        burst.push(pool.packet_from(b"small").unwrap()).unwrap();
    }
    let lent = pool.packet_from(b"lent").unwrap().lend().unwrap();
    drop(pool.region().take_back(lent));
    while let Some(mut packet) = pool.alloc(Class::Frame) {
        assert!(packet.extend_from_slice(&[7; 700]));
        let view = packet.share(pool, 100, 500);
        packet.charge(&account).unwrap();
        let _ = packet.pulldown(pool, 20, 40, &mut access);
        let packet = packet.push_header(pool, 60).unwrap_or_else(|packet| packet);
        list.push_back(packet);
        view.into_iter().for_each(|view| list.push_front(view));
    }
    drop(list.take());
    burst.drain().for_each(drop);
    assert_eq!(account.used(), 0);
}

#[test]
fn nothing_is_allocated_after_the_start() {
    let (made, pool) = counted(|| Pool::new(&PoolConfig::default()).unwrap());
    assert!(made.allocations > 0 && made.bytes > 16 << 20, "the counter counts: {made:?}");
    let before = pool.available();
    let (mut burst, mut list) = (Burst::new(), PacketList::new());
    let (count, ()) = counted(|| use_all_of_it(&pool, &mut burst, &mut list));
    assert_eq!(count, AllocationCount::default());
    assert_eq!(pool.available(), before);
}

#[test]
fn coming_home_from_another_thread_allocates_nothing_on_either() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let packets: Vec<_> = std::iter::from_fn(|| pool.alloc(Class::Small)).collect();
    let there = std::thread::scope(|scope| {
        scope.spawn(|| counted(|| packets.into_iter().for_each(drop)).0).join().unwrap()
    });
    assert_eq!(there.allocations, 0);
    let (here, available) = counted(|| pool.available());
    assert_eq!((here.allocations, available.small), (0, PoolConfig::default().small));
}
