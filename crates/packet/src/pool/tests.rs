//! What a pool guarantees: nothing lost, nothing twice, exact charges, from any thread.

use super::*;

fn small_pool() -> Pool {
    let config =
        PoolConfig { small: 4, frames: 4, supers: 1, references: 4, ..PoolConfig::default() };
    Pool::new(&config).unwrap()
}

#[test]
fn what_is_taken_comes_home() {
    let pool = small_pool();
    let before = pool.available();
    let held: Vec<_> = std::iter::from_fn(|| pool.alloc(Class::Frame)).collect();
    assert_eq!((held.len(), pool.available().frames, pool.failures()), (4, 0, 1));
    drop(held);
    assert_eq!(pool.available(), before);
}

#[test]
fn a_packet_dropped_on_another_thread_comes_home() {
    let pool = small_pool();
    let packets: Vec<_> = (0..4).map(|_| pool.alloc(Class::Small).unwrap()).collect();
    std::thread::scope(|scope| scope.spawn(move || drop(packets)).join().unwrap());
    assert_eq!(pool.available().small, 4);
}

/// Those dropped elsewhere included.
#[test]
fn one_that_looks_sees_whether_more_than_a_quarter_is_free() {
    let pool = small_pool();
    let mut held: Vec<_> = (0..2).map(|_| pool.alloc(Class::Small).unwrap()).collect();
    assert!(pool.has_spare(Class::Small) && pool.has_spare(Class::Frame));
    held.push(pool.alloc(Class::Small).unwrap());
    assert!(!pool.has_spare(Class::Small) && pool.has_spare(Class::Reference));
    std::thread::scope(|scope| scope.spawn(move || drop(held)).join().unwrap());
    assert!(pool.has_spare(Class::Small));
}

#[test]
fn charges_are_exact_here_and_elsewhere() {
    let pool = small_pool();
    let account = pool.open_account(5000).unwrap();
    let mut a = pool.alloc(Class::Frame).unwrap();
    let mut b = pool.alloc(Class::Frame).unwrap();
    let mut c = pool.alloc(Class::Frame).unwrap();
    a.charge(&account).unwrap();
    b.charge(&account).unwrap();
    assert_eq!((account.used(), c.charge(&account)), (2 * 2176, Err(AccountFull)));
    assert_eq!(account.used(), 2 * 2176);
    std::thread::scope(|scope| scope.spawn(move || drop(a)).join().unwrap());
    assert_eq!(account.used(), 2176);
    drop(account);
    drop(b);
    let again = pool.open_account(1).unwrap();
    assert_eq!(again.used(), 0);
}

#[test]
fn two_pools_on_one_thread_do_not_mix() {
    let (one, other) = (small_pool(), small_pool());
    let (a, b) = (one.alloc(Class::Frame).unwrap(), other.alloc(Class::Frame).unwrap());
    drop((b, a));
    assert_eq!((one.available().frames, other.available().frames), (4, 4));
}

#[test]
fn a_packet_outlives_its_pool() {
    let pool = small_pool();
    let mut packet = pool.alloc(Class::Frame).unwrap();
    let account = pool.open_account(10_000).unwrap();
    packet.charge(&account).unwrap();
    assert!(packet.extend_from_slice(b"still here"));
    drop(account);
    drop(pool);
    assert_eq!(packet.first(), b"still here");
}

/// A process has 1,024 homes: each of these would have kept one.
#[test]
fn a_region_that_ends_before_its_last_packet_is_freed_later() {
    for n in 0..1100 {
        let pool = small_pool();
        let packet = pool.alloc(Class::Small);
        assert!(packet.is_some(), "{n}");
        drop(pool);
        drop(packet);
    }
}

#[test]
fn bad_configurations_are_refused_with_the_remedy() {
    let with = |c: PoolConfig| Region::new(&c).unwrap_err().to_string();
    assert!(
        with(PoolConfig { frame_bytes: 1000, ..PoolConfig::default() }).contains("2048 or 4096")
    );
    assert!(with(PoolConfig { workers: 0, ..PoolConfig::default() }).contains("workers"));
    let region = Region::new(&PoolConfig { workers: 2, ..PoolConfig::default() }).unwrap();
    let (_a, _b) = (region.attach().unwrap(), region.attach().unwrap());
    assert_eq!(region.attach().unwrap_err(), PoolError::NoHome);
}

use crate::account::{Account, AccountFull};

#[test]
fn a_header_is_pushed_before_a_packet_without_headroom() {
    let pool = small_pool();
    let account = pool.open_account(10_000).unwrap();
    let mut packet = pool.packet_from(b"payload").unwrap();
    packet.charge(&account).unwrap();
    let charged = account.used();
    while packet.prepend(1).is_some() {}
    let len = packet.len();
    let mut packet = packet.push_header(&pool, 20).unwrap();
    packet.first_mut().unwrap().fill(7);
    assert_eq!((packet.len(), packet.chunk_count(), packet.first()), (len + 20, 2, &[7; 20][..]));
    assert_eq!(account.used(), charged);
    drop(packet);
    assert_eq!((account.used(), pool.available().small), (0, 4));
}

#[test]
fn references_are_made_by_sharing_alone() {
    let pool = small_pool();
    let packet = pool.packet_from(b"bytes").unwrap();
    drop(packet.share(&pool, 0, 5).unwrap());
    drop(packet);
    let before = pool.available();
    // A descriptor that once was a reference must not give its old owner back once more.
    drop(pool.alloc(Class::Reference));
    assert_eq!(pool.available(), before);
    assert!(pool.alloc(Class::Reference).is_none());
    assert_eq!(pool.failures(), 0);
}

#[test]
fn a_configuration_beyond_all_memory_is_refused() {
    let huge = usize::MAX / 2;
    for config in [
        PoolConfig { frames: huge, ..PoolConfig::default() },
        PoolConfig { frames: 1 << 57, small: 0, references: 0, ..PoolConfig::default() },
        PoolConfig { references: usize::MAX, ..PoolConfig::default() },
        PoolConfig { supers: 1 << 50, ..PoolConfig::default() },
    ] {
        assert!(matches!(Region::new(&config), Err(PoolError::NoMemory(_))), "{config:?}");
    }
}

#[test]
fn a_watched_account_says_what_still_fits_here_and_elsewhere() {
    use crate::capacity_hints::{CapacityHint, CapacityHints};
    let pool = small_pool();
    let rooms = CapacityHints::new(40);
    // A frame and a small one, and a reference behind them.
    let account = pool.open_watched_account(2176 + 384 + 130, &rooms, 33).unwrap();
    let (mut frame, mut small) =
        (pool.alloc(Class::Frame).unwrap(), pool.alloc(Class::Small).unwrap());
    assert_eq!(rooms.of(33), CapacityHint::Frame);
    frame.charge(&account).unwrap();
    assert_eq!(rooms.of(33), CapacityHint::Small);
    small.charge(&account).unwrap();
    assert_eq!(rooms.of(33), CapacityHint::Reference);
    assert!(pool.alloc(Class::Small).unwrap().charge(&account).is_err());
    assert_eq!(
        (rooms.of(33), rooms.of(32), rooms.of(34)),
        (CapacityHint::Reference, CapacityHint::Frame, CapacityHint::Frame)
    );
    account.set_limit(2000);
    assert_eq!(rooms.of(33), CapacityHint::Nothing);
    account.set_limit(2176 + 384 + 130);
    drop(small);
    assert_eq!(rooms.of(33), CapacityHint::Small);
    std::thread::scope(|scope| scope.spawn(move || drop(frame)).join().unwrap());
    assert_eq!((account.used(), rooms.of(33)), (0, CapacityHint::Frame));
    let mut frame = pool.alloc(Class::Frame).unwrap();
    frame.charge(&account).unwrap();
    drop(account);
    assert_eq!(rooms.of(33), CapacityHint::Frame, "a closed account reports nothing");
    drop(frame);
    for (class, admitted) in
        [(Class::Super, 1), (Class::Frame, 1), (Class::Small, 2), (Class::Reference, 3)]
    {
        let all = [
            CapacityHint::Frame,
            CapacityHint::Small,
            CapacityHint::Reference,
            CapacityHint::Nothing,
        ];
        assert_eq!(all.iter().filter(|room| room.admits(class)).count(), admitted);
    }
}

#[test]
fn a_home_has_accounts_for_a_million_sockets() {
    let config = PoolConfig { accounts: 2_100_000, ..PoolConfig::default() };
    let pool = Pool::new(&config).unwrap();
    let accounts: Vec<_> = (0..2_100_000).map(|_| pool.open_account(10_000).unwrap()).collect();
    let mut packet = pool.alloc(Class::Small).unwrap();
    for at in [0, 5, 1 << 20, (1 << 20) + 5, (1 << 21) + 5] {
        // A dropped packet has its account by number alone.
        packet.charge(&accounts[at]).unwrap();
        let used: u64 = accounts.iter().map(Account::used).sum();
        assert_eq!((accounts[at].used(), used), (384, 384));
    }
    drop(packet);
    assert!(accounts.iter().all(|account| account.used() == 0));
}
