//! The table of path MTUs and redirects: what counts for which flows, how long, and what is
//! evicted.

use core::net::{Ipv4Addr, Ipv6Addr};

use floodwall_base::Randomness;

use super::*;

const ONE: IfIndex = IfIndex(1);
const NOW: Instant = Instant::from_nanos(1);

fn nth<A: Address>(n: u32) -> A {
    A::from_bits_aligned(if A::BITS == 32 {
        u128::from(0x0a00_0000 + n) << 96
    } else {
        0xfd00 << 112 | u128::from(n)
    })
}

fn via<A: Address>(n: u32) -> FirstHop<A> {
    FirstHop { iface: ONE, via: Some(nth(n)) }
}

fn table<A: Address>() -> (Exceptions<A>, SecretRandom) {
    let mut random = Randomness::from_number(1).secret;
    (Exceptions::new(random.hash_key()), random)
}

fn counts<A: Address>() {
    let (mut table, mut random) = table::<A>();
    let (about, hop) = (nth(100), via(1));
    assert_eq!(table.lookup(about, hop, NOW), KnownException::NOTHING);
    table.learn(about, hop, PathUpdate::PathMtu(1400), NOW, &mut random);
    let known = |table: &Exceptions<A>, hop, now| table.lookup(about, hop, now);
    assert_eq!(known(&table, hop, NOW), KnownException { mtu: Some(1400), target_addr: None });
    assert_eq!(table.lookup(nth(101), hop, NOW), KnownException::NOTHING);
    assert_eq!(known(&table, via(2), NOW), KnownException::NOTHING, "the route leads elsewhere");
    let other_link = FirstHop { iface: IfIndex(2), ..hop };
    assert_eq!(known(&table, other_link, NOW), KnownException::NOTHING);
    // Each part has its own end.
    let later = NOW + Duration::from_secs(60);
    table.learn(about, hop, PathUpdate::Redirect(nth(7)), later, &mut random);
    assert_eq!(
        known(&table, hop, later),
        KnownException { mtu: Some(1400), target_addr: Some(nth(7)) }
    );
    assert_eq!((table.len(), table.iter(later).count()), (1, 1));
    let end = NOW + LIFETIME;
    assert_eq!(known(&table, hop, end), KnownException { mtu: None, target_addr: Some(nth(7)) });
    let end = later + LIFETIME;
    assert_eq!((known(&table, hop, end), table.iter(end).count()), (KnownException::NOTHING, 0));
}

#[test]
fn an_exception_counts_for_its_destination_and_next_hop_and_for_ten_minutes() {
    counts::<Ipv4Addr>();
    counts::<Ipv6Addr>();
}

fn forgotten<A: Address>() {
    let (mut table, mut random) = table::<A>();
    for n in 0..9 {
        table.learn(nth(n), via(1), PathUpdate::Redirect(nth(50 + n % 2)), NOW, &mut random);
        table.learn(nth(n), via(1), PathUpdate::PathMtu(1400), NOW, &mut random);
    }
    assert!(table.forget_redirects(|_, target_addr| target_addr == nth(50)));
    assert!(!table.forget_redirects(|_, target_addr| target_addr == nth(50)));
    let known = |n| table.lookup(nth(n), via(1), NOW);
    assert_eq!(known(0), KnownException { mtu: Some(1400), target_addr: None });
    assert_eq!(known(1), KnownException { mtu: Some(1400), target_addr: Some(nth(51)) });
    assert!(!table.forget_on(IfIndex(2)) && table.forget_on(ONE) && table.is_empty());
}

#[test]
fn a_redirect_is_forgotten_apart_and_a_link_with_all_that_it_taught() {
    forgotten::<Ipv4Addr>();
    forgotten::<Ipv6Addr>();
}

fn flooded<A: Address>() {
    let (mut table, mut random) = table::<A>();
    for n in 0..20_000 {
        table.learn(nth(n), via(1), PathUpdate::PathMtu(1400), NOW, &mut random);
        assert!(table.len() <= EXCEPTIONS_HOP_MAX, "{n}");
    }
    assert!(table.len() > EXCEPTIONS_HOP_MAX / 2, "{}", table.len());
    let before: Vec<_> = table.iter(NOW).collect();
    assert_eq!(before.len(), table.len());
    // Another next hop finds room of its own, and the first keeps most of what it has.
    for n in 0..20_000 {
        table.learn(nth(n), via(2), PathUpdate::PathMtu(1300), NOW, &mut random);
        assert!(table.len() <= EXCEPTIONS_MAX);
    }
    let of = |hop| table.iter(NOW).filter(|e| e.hop == via(hop)).count();
    assert!(of(2) <= EXCEPTIONS_HOP_MAX && of(2) > EXCEPTIONS_HOP_MAX / 4, "{} {}", of(1), of(2));
    // Ten minutes later a newcomer finds room without evicting anything.
    let later = NOW + LIFETIME;
    table.learn(nth(5), via(3), PathUpdate::PathMtu(1300), later, &mut random);
    assert_eq!(table.iter(later).count(), 1);
}

#[test]
fn a_flood_leaves_as_many_as_there_may_be_in_all_and_of_each_next_hop() {
    flooded::<Ipv4Addr>();
    flooded::<Ipv6Addr>();
}

/// CVE-2021-20322: with buckets of a fixed depth that evict the oldest, the fifth newcomer in a
/// bucket revealed the place of the first one.
#[test]
fn neither_the_size_of_a_bucket_nor_its_victim_can_be_predicted() {
    let (mut lasted, mut victims) = ([0_u32; 12], [0_u32; 9]);
    for seed in 0..120 {
        let mut random = Randomness::from_number(seed).secret;
        let mut table = Exceptions::<Ipv6Addr>::new(random.hash_key());
        let bucket = table.place(nth(0));
        let same: Vec<Ipv6Addr> =
            (0..).map(nth).filter(|addr| table.place(*addr) == bucket).take(11).collect();
        let learn = |table: &mut Exceptions<_>, n: usize, random: &mut SecretRandom| {
            table.learn(same[n], via(1), PathUpdate::PathMtu(1400), NOW, random);
        };
        (0..5).for_each(|n| learn(&mut table, n, &mut random));
        let all = |table: &Exceptions<_>, upto: usize| {
            same[..upto].iter().position(|a| table.lookup(*a, via(1), NOW).mtu.is_none())
        };
        let first = (5..11).find_map(|n| {
            learn(&mut table, n, &mut random);
            all(&table, n).map(|victim| (n, victim))
        });
        let (n, victim) = first.expect("ten do not fit");
        lasted[n] += 1;
        victims[victim] += 1;
    }
    assert!(lasted.iter().filter(|n| **n > 6).count() >= 3, "{lasted:?}");
    assert!(victims[..5].iter().all(|n| *n > 6), "{victims:?}");
}

#[test]
fn another_secret_puts_destinations_elsewhere() {
    let tables: Vec<Exceptions<Ipv4Addr>> =
        (0..2).map(|n| Exceptions::new(HashKey::new(1, n))).collect();
    let differ = (0..100).filter(|n| tables[0].place(nth(*n)) != tables[1].place(nth(*n)));
    assert!(differ.count() > 90);
}

fn copied<A: Address>() {
    let ((mut table, mut random), (mut copy, _)) = (table::<A>(), table::<A>());
    for n in 0..3000 {
        table.learn(nth(n), via(n % 5), PathUpdate::PathMtu(1400 + n % 7), NOW, &mut random);
        if n % 500 == 0 {
            table.forget_redirects(|_, _| true);
            table.forget_on(IfIndex(u16::from(n == 2000)));
        }
        if n % 37 == 0 {
            copy.copy_from(&table);
            assert_eq!(copy.revision(), table.revision());
            assert!(copy.iter(NOW).eq(table.iter(NOW)) && copy.len() == table.len());
            let known = |table: &Exceptions<A>| table.lookup(nth(n), via(n % 5), NOW);
            assert_eq!(known(&copy), known(&table));
        }
    }
}

#[test]
fn a_follower_copies_what_changed_and_has_the_same() {
    copied::<Ipv4Addr>();
    copied::<Ipv6Addr>();
}
