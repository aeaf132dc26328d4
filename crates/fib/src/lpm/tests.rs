//! The table against a list that is obviously right, in both families.

use core::net::{Ipv4Addr, Ipv6Addr};
use std::collections::BTreeMap;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, SeqCst},
};

use floodwall_base::{Address, Instant, Prefix};
use floodwall_sync::qsbr::{Domain, Moment};

use super::*;

const NOW: Instant = Instant::ORIGIN;
/// Changes made while another thread looks.
const CHANGES: u64 = 40_000;

/// A small generator: tests replay.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// An address in a crowded part of the space, so that prefixes nest.
    fn addr<A: Address>(&mut self) -> A {
        let mut bits = u128::from(self.next()) << 64 | u128::from(self.next());
        for at in [8, 16, 24, 32, 40, 48, 64, 96] {
            if self.below(3) != 0 {
                bits &= !(0xfe_u128 << (120 - at));
            }
        }
        bits = bits & !(0xfc << 120) | 0x20 << 120;
        A::from_bits_aligned(bits)
    }

    fn prefix<A: Address>(&mut self) -> Prefix<A> {
        let len = match self.below(8) {
            0 => self.below(17),
            1 => u64::from(A::BITS),
            _ => self.below(u64::from(A::BITS) + 1),
        };
        Prefix::new(self.addr(), len as u8).unwrap()
    }
}

/// The longest match by looking at all.
fn oracle<A: Address>(list: &BTreeMap<Prefix<A>, u32>, addr: A) -> u32 {
    let fits = list.iter().filter(|(prefix, _)| prefix.contains(addr));
    fits.max_by_key(|(prefix, _)| prefix.len()).map_or(0, |(_, value)| *value)
}

fn small() -> LpmCapacity {
    LpmCapacity { lines: 20_000, slots: 400_000, directs: 1024, retired: 4096 }
}

/// Addresses at which an answer may change: the ends of every prefix and their neighbours.
fn edges<A: Address>(list: &BTreeMap<Prefix<A>, u32>, random: &mut Random) -> Vec<A> {
    let mut addrs: Vec<A> = (0..300).map(|_| random.addr()).collect();
    for prefix in list.keys() {
        let first = prefix.addr().to_bits_aligned();
        let size = 1_u128.checked_shl(128 - u32::from(prefix.len())).unwrap_or(0);
        let unit = 1_u128 << (128 - u32::from(A::BITS));
        for bits in [first, first.wrapping_sub(unit), first.wrapping_add(size)] {
            addrs.push(A::from_bits_aligned(bits));
            addrs.push(A::from_bits_aligned(bits.wrapping_sub(unit)));
        }
    }
    addrs
}

fn equals<A: LpmFamily>(
    lpm: &Lpm<A>,
    view: DomainView<'_>,
    list: &BTreeMap<Prefix<A>, u32>,
    random: &mut Random,
) {
    let addrs = edges(list, random);
    let mut found = vec![u32::MAX; addrs.len()];
    lpm.lookup_burst(view, &addrs, NOW, &mut found);
    for (addr, found) in addrs.iter().zip(found) {
        let want = oracle(list, *addr);
        assert_eq!(lpm.lookup(view, *addr, NOW), want, "{addr}");
        assert_eq!(lpm.bind(view).lookup(*addr, NOW), want, "{addr} in a bound table");
        assert_eq!(found, want, "{addr} in a burst");
    }
}

fn changes_like_the_list<A: LpmFamily>(seed: u64, rounds: usize) {
    let domain = Domain::new(1);
    let mut reader = domain.reader().unwrap();
    let mut writer = LpmWriter::<A>::new(&domain, small());
    let lpm = writer.reader();
    let (mut list, mut random) = (BTreeMap::new(), Random(seed));
    for round in 0..rounds {
        for _ in 0..random.below(20) {
            let known = list.keys().nth(random.below(list.len() as u64 + 1) as usize).copied();
            let prefix = match known {
                Some(known) if random.below(3) == 0 => known,
                _ => random.prefix(),
            };
            if random.below(5) < 2 || list.len() > 120 {
                let gone = known.unwrap_or(prefix);
                assert_eq!(writer.remove(gone, NOW), Ok(list.remove(&gone)), "{gone}");
            } else {
                let value = match random.below(3) {
                    0 => random.below(u64::from(VALUE_MAX)) as u32 + 1,
                    _ => random.below(5) as u32 + 1,
                };
                let before = writer.insert(prefix, value, NOW);
                assert_eq!(before, Ok(list.insert(prefix, value)), "{prefix}");
                assert_eq!(writer.exact(prefix), Some(value));
            }
        }
        assert_eq!(writer.len(), list.len());
        if round % 4 == 0 {
            equals(&lpm, reader.view(), &list, &mut random);
        }
        reader.pass(Moment::RoundEnd, NOW);
    }
    for prefix in list.keys() {
        assert!(writer.remove(*prefix, NOW).unwrap().is_some());
    }
    for _ in 0..2000 {
        reader.pass(Moment::RoundEnd, NOW);
        let _ = writer.remove(Prefix::all(), NOW);
    }
    let empty = LpmWriter::<A>::new(&domain, small()).memory().lookup;
    assert!(writer.is_empty());
    assert_eq!(writer.memory().lookup, empty, "every node and slot is free again");
    assert_eq!(writer.limbo().items, 0);
}

#[test]
fn random_changes_leave_what_the_list_has_ipv4() {
    (1..=6).for_each(|seed| changes_like_the_list::<Ipv4Addr>(seed, 120));
}

#[test]
fn random_changes_leave_what_the_list_has_ipv6() {
    (1..=6).for_each(|seed| changes_like_the_list::<Ipv6Addr>(seed, 120));
}

fn loads_like_it_inserts<A: LpmFamily>() {
    let domain = Domain::new(1);
    let reader = domain.reader().unwrap();
    let mut random = Random(9);
    let mut list = BTreeMap::new();
    for n in 0..400 {
        list.insert(random.prefix::<A>(), n % 7 + 1);
    }
    let mut loaded = LpmWriter::<A>::new(&domain, small());
    loaded.load(list.iter().map(|(p, v)| (*p, *v)), NOW).unwrap();
    equals(&loaded.reader(), reader.view(), &list, &mut random);
    assert_eq!(loaded.len(), list.len());
    let mut inserted = LpmWriter::<A>::new(&domain, small());
    for (prefix, value) in &list {
        // With the reader online nothing is freed: the cap must be large enough, or inserts fail.
        inserted.insert(*prefix, *value, NOW).unwrap();
    }
    assert!(loaded.memory().lookup <= inserted.memory().lookup_high_water);
}

#[test]
fn a_loaded_table_answers_like_an_inserted_one_in_both_families() {
    loads_like_it_inserts::<Ipv4Addr>();
    loads_like_it_inserts::<Ipv6Addr>();
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let domain = Domain::new(1);
    let mut reader = domain.reader().unwrap();
    let tiny = LpmCapacity { lines: 40, slots: 2000, directs: 4, retired: 4096 };
    let mut writer = LpmWriter::<Ipv6Addr>::new(&domain, tiny);
    let lpm = writer.reader();
    let (mut list, mut random) = (BTreeMap::new(), Random(3));
    let mut refused = 0;
    for _ in 0..300 {
        let prefix = random.prefix::<Ipv6Addr>();
        match writer.insert(prefix, 5, NOW) {
            Ok(_) => _ = list.insert(prefix, 5),
            Err(UpdateError::Full) => refused += 1,
            Err(other) => panic!("{other}"),
        }
        reader.pass(Moment::RoundEnd, NOW);
    }
    assert!(refused > 0 && !list.is_empty());
    equals(&lpm, reader.view(), &list, &mut random);
}

#[test]
fn a_worker_that_never_pauses_makes_the_writer_refuse_not_wait() {
    let domain = Domain::new(1);
    let stuck = domain.reader().unwrap();
    let few = LpmCapacity { retired: 64, ..small() };
    let mut writer = LpmWriter::<Ipv4Addr>::new(&domain, few);
    let addr = Ipv4Addr::new(10, 0, 0, 1);
    let mut change = |n| writer.insert(Prefix::host(addr), n, NOW);
    let refused = (1..1000).find_map(|n| change(n).err());
    assert_eq!(refused, Some(UpdateError::Pending));
    let last = writer.exact(Prefix::host(addr)).unwrap();
    assert_eq!(writer.reader().lookup(stuck.view(), addr, NOW), last);
}

#[test]
fn numbers_that_are_no_next_hops_are_refused() {
    let domain = Domain::new(1);
    let mut writer = LpmWriter::<Ipv4Addr>::new(&domain, small());
    for value in [0, VALUE_MAX + 1, u32::MAX] {
        assert_eq!(writer.insert(Prefix::all(), value, NOW), Err(UpdateError::Value(value)));
    }
    assert_eq!(writer.insert(Prefix::all(), VALUE_MAX, NOW), Ok(None));
}

/// Prefixes come and go, one at a time, while another thread looks. A look-up during which at most
/// one change happened answers with that prefix or without it; one that was held up over several
/// answers with some prefix that fits.
fn answers_are_whole<A: LpmFamily>() {
    let domain = Domain::new(1);
    let mut writer = LpmWriter::<A>::new(&domain, small());
    let mut random = Random(11);
    let mut list: BTreeMap<Prefix<A>, u32> = BTreeMap::new();
    for n in 0..100 {
        let prefix = random.prefix();
        list.insert(prefix, n + 1);
        writer.insert(prefix, n + 1, NOW).unwrap();
    }
    let addrs = edges(&list, &mut random);
    let prefixes: Vec<_> = list.iter().map(|(p, v)| (*p, *v)).collect();
    let fits = |addr: &A| {
        let mut fits: Vec<_> = prefixes.iter().filter(|(p, _)| p.contains(*addr)).collect();
        fits.sort_by_key(|(p, _)| core::cmp::Reverse(p.len()));
        fits.iter().map(|(_, value)| *value).chain([0]).collect::<Vec<u32>>()
    };
    let fits: Vec<Vec<u32>> = addrs.iter().map(fits).collect();
    let (begun, ended) = (AtomicU64::new(0), AtomicU64::new(0));
    let lpm = writer.reader();
    let mut reader = domain.reader().unwrap();
    std::thread::scope(|scope| {
        let (begun, ended, addrs) = (&begun, &ended, &addrs);
        let looks = scope.spawn(move || {
            let (mut found, mut strict) = (vec![0; 16], 0_u64);
            while ended.load(Acquire) != CHANGES || strict == 0 {
                for (addrs, fits) in addrs.chunks(16).zip(fits.chunks(16)) {
                    let before = ended.load(Acquire);
                    lpm.lookup_burst(reader.view(), addrs, NOW, &mut found);
                    let changes = begun.load(SeqCst) - before;
                    let allowed = if changes <= 1 { 2 } else { usize::MAX };
                    strict += u64::from(changes == 1);
                    for ((addr, fits), found) in addrs.iter().zip(fits).zip(&found) {
                        let allowed = fits.get(..allowed.min(fits.len())).unwrap();
                        assert!(allowed.contains(found), "{addr}: {found}, not {allowed:?}");
                    }
                    reader.pass(Moment::RoundEnd, NOW);
                }
            }
        });
        let mut change = |n: u64| {
            let (prefix, value) = prefixes[(n / 2) as usize % prefixes.len()];
            begun.store(n + 1, SeqCst);
            while match n % 2 {
                0 => writer.remove(prefix, NOW).is_err(),
                _ => writer.insert(prefix, value, NOW).is_err(),
            } {
                std::thread::yield_now();
            }
            ended.store(n + 1, SeqCst);
        };
        (0..CHANGES).for_each(&mut change);
        looks.join().unwrap();
    });
}

#[test]
fn answers_are_whole_while_prefixes_come_and_go_ipv4() {
    answers_are_whole::<Ipv4Addr>();
}

#[test]
fn answers_are_whole_while_prefixes_come_and_go_ipv6() {
    answers_are_whole::<Ipv6Addr>();
}

/// The moment from which on look-ups find entries.
const END: Instant = Instant::from_nanos(1000);
const BEFORE: Instant = Instant::from_nanos(999);

/// What look-ups may find before anything has ended: the value; where direct blocks or escapes
/// have the route, its entry also.
fn fits<A: LpmFamily>(found: u32, target: Option<(Prefix<A>, RouteTarget)>) -> bool {
    let Some((prefix, target)) = target else { return found == 0 };
    let entry = target.expires.map(|(entry, _)| ENTRY | entry);
    found == target.value
        || (Some(found) == entry && (prefix.len() <= A::LINES_FROM || A::BITS == 32))
}

fn best<A: Address>(
    list: &BTreeMap<Prefix<A>, RouteTarget>,
    addr: A,
) -> Option<(Prefix<A>, RouteTarget)> {
    let fits = list.iter().filter(|(prefix, _)| prefix.contains(addr));
    fits.max_by_key(|(prefix, _)| prefix.len()).map(|(prefix, target)| (*prefix, *target))
}

fn random_target(random: &mut Random, entry: u32) -> RouteTarget {
    let value = match random.below(8) {
        0 => random.below(u64::from(ENTRY) - 1) as u32 + 1,
        _ => random.below(5) as u32 + 1,
    };
    if random.below(2) == 0 {
        RouteTarget::forever(value)
    } else {
        RouteTarget::until(value, entry, END)
    }
}

/// Random changes by steps of one unit; between any two, each look-up finds what was there before
/// the change or what is there after it, in a burst and alone.
fn steps_like_the_list<A: LpmFamily>(seed: u64) -> u64 {
    let domain = Domain::new(1);
    let mut reader = domain.reader().unwrap();
    let mut writer = LpmWriter::<A>::new(&domain, small());
    let lpm = writer.reader();
    let (mut list, mut random) = (BTreeMap::<Prefix<A>, RouteTarget>::new(), Random(seed));
    let (mut halfway, mut found) = (0, Vec::new());
    for round in 0..250_u32 {
        let known = list.keys().nth(random.below(list.len() as u64 + 1) as usize).copied();
        let prefix = known.filter(|_| random.below(3) == 0).unwrap_or_else(|| random.prefix());
        let target = (random.below(5) > 1).then(|| random_target(&mut random, round));
        let before = list.clone();
        match target {
            Some(target) => _ = list.insert(prefix, target),
            None => _ = list.remove(&prefix),
        }
        writer.begin(prefix, target, NOW).unwrap();
        let mut addrs: Vec<A> = (0..20).map(|_| random.addr()).collect();
        for other in list.keys().filter(|p| prefix.contains(p.addr()) || p.contains(prefix.addr()))
        {
            let size = 1_u128.checked_shl(128 - u32::from(other.len())).unwrap_or(0);
            let last = other.addr().to_bits_aligned().wrapping_add(size).wrapping_sub(1);
            addrs.extend([other.addr(), A::from_bits_aligned(last)]);
        }
        loop {
            let progress = writer.step(1, NOW);
            halfway += u64::from(progress == PushProgress::More);
            for (now, ended) in [(BEFORE, false), (END, true)] {
                found.resize(addrs.len(), 0);
                lpm.lookup_burst(reader.view(), &addrs, now, &mut found);
                for (addr, found) in addrs.iter().zip(&found) {
                    let alone = lpm.lookup(reader.view(), *addr, now);
                    assert_eq!(lpm.bind(reader.view()).lookup(*addr, now), alone, "{addr}");
                    let (old, new) = (best(&before, *addr), best(&list, *addr));
                    let may = |found: u32| {
                        let fits = |target: Option<(Prefix<A>, RouteTarget)>| {
                            let known = target.and_then(|(_, target)| target.expires);
                            match known.filter(|_| ended) {
                                Some((entry, _)) => found == ENTRY | entry,
                                None => fits(found, target),
                            }
                        };
                        fits(new) || (progress == PushProgress::More && fits(old))
                    };
                    assert!(may(*found), "{addr} of {prefix}: {found:x}, {old:?} {new:?}");
                    assert!(may(alone), "{addr} of {prefix} alone: {alone:x}, {old:?} {new:?}");
                }
            }
            if progress == PushProgress::Done {
                break;
            }
        }
        let last =
            list.get(&prefix).map(|target| target.expires.map_or(target.value, |e| ENTRY | e.0));
        assert_eq!(writer.exact(prefix), last);
        reader.pass(Moment::RoundEnd, NOW);
    }
    for prefix in list.keys() {
        writer.remove(*prefix, NOW).unwrap();
    }
    for _ in 0..2000 {
        reader.pass(Moment::RoundEnd, NOW);
        let _ = writer.remove(Prefix::all(), NOW);
    }
    assert_eq!(
        writer.memory().lookup,
        LpmWriter::<A>::new(&domain, small()).memory().lookup,
        "every node and slot is free again"
    );
    halfway
}

#[test]
fn between_steps_each_address_finds_the_old_or_the_new_ipv4() {
    let halfway: u64 = (1..=4).map(steps_like_the_list::<Ipv4Addr>).sum();
    assert!(halfway > 100, "only {halfway} changes were met halfway");
}

#[test]
fn between_steps_each_address_finds_the_old_or_the_new_ipv6() {
    let halfway: u64 = (1..=4).map(steps_like_the_list::<Ipv6Addr>).sum();
    assert!(halfway > 100, "only {halfway} changes were met halfway");
}

/// A short prefix with thousands of lines below it: no step looks at more than it was granted.
#[test]
fn a_step_is_bounded_however_much_lies_below() {
    let domain = Domain::new(1);
    let reader = domain.reader().unwrap();
    let mut writer = LpmWriter::<Ipv6Addr>::new(&domain, small());
    let lpm = writer.reader();
    let wide: Prefix<Ipv6Addr> = Prefix::new("2001:d00::".parse().unwrap(), 28).unwrap();
    let mut holes = Vec::new();
    for n in 0..4000_u32 {
        let addr = Ipv6Addr::new(0x2001, 0xd00 | (n >> 8) as u16, (n << 8) as u16, 0, 0, 0, 0, 0);
        writer.insert(Prefix::new(addr, 47).unwrap(), 1, NOW).unwrap();
        holes.push(Ipv6Addr::from_bits(addr.to_bits() | 0xff << 80));
    }
    let changed = |value| {
        let new = holes.iter().filter(|addr| lpm.lookup(reader.view(), **addr, NOW) == value);
        new.count()
    };
    writer.begin(wide, Some(RouteTarget::forever(9)), NOW).unwrap();
    let (mut steps, mut before) = (0, changed(9));
    assert_eq!(before, 0, "nothing below is done at once");
    while writer.step(64, NOW) == PushProgress::More {
        let after = changed(9);
        // A line costs sixteen units, and has one of these addresses.
        assert!(after - before <= 5, "{before} to {after} in one step");
        (before, steps) = (after, steps + 1);
    }
    assert!(steps > 900, "{steps}");
    assert_eq!(changed(9), holes.len());
    writer.begin(wide, None, NOW).unwrap();
    assert!(changed(9) > 0);
    writer.insert(Prefix::all(), 3, NOW).unwrap();
    assert_eq!(changed(9), 0, "the next change completes the last");
}

/// A prefix of a bit stands in 128 blocks of the second byte: one of them a step, of which each
/// answer is the old one or the new.
fn one_block_a_step<A: LpmFamily>() {
    let domain = Domain::new(1);
    let reader = domain.reader().unwrap();
    let mut writer = LpmWriter::<A>::new(&domain, small());
    let lpm = writer.reader();
    let addr = |byte: u8| A::from_bits_aligned(u128::from(byte) << 120 | 0x55 << 104);
    let half = Prefix::new(addr(0), 1).unwrap();
    writer.insert(half, 3, NOW).unwrap();
    writer.insert(Prefix::new(addr(40), 8).unwrap(), 5, NOW).unwrap();
    writer.insert(Prefix::new(addr(50), 16).unwrap(), 5, NOW).unwrap();
    let find = |value| {
        let found = (0..=255).filter(|n| lpm.lookup(reader.view(), addr(*n), NOW) == value);
        found.count()
    };
    assert_eq!((find(3), find(5), find(0)), (126, 2, 128));
    writer.begin(half, Some(RouteTarget::forever(9)), NOW).unwrap();
    let mut steps = 1;
    while writer.step(1, NOW) == PushProgress::More {
        assert!(find(9) <= steps && find(9) + find(3) == 126, "{} after {steps}", find(9));
        steps += 1;
    }
    assert_eq!((steps, find(9), find(5), find(0)), (128, 126, 2, 128));
    assert_eq!(writer.remove(half, NOW), Ok(Some(9)));
    assert_eq!((find(5), find(0)), (2, 254));
}

#[test]
fn a_prefix_of_a_bit_is_shown_a_block_at_a_time_in_both_families() {
    one_block_a_step::<Ipv4Addr>();
    one_block_a_step::<Ipv6Addr>();
}

/// What ends within the root's bits of IPv4 stands in the lines below: a step reaches few of them.
#[test]
fn a_short_prefix_of_ipv4_reaches_two_lines_a_step() {
    let domain = Domain::new(1);
    let reader = domain.reader().unwrap();
    let mut writer = LpmWriter::<Ipv4Addr>::new(&domain, small());
    let lpm = writer.reader();
    let wide = Prefix::new(Ipv4Addr::new(10, 0, 0, 0), 8).unwrap();
    for n in 0..=255 {
        writer.insert(Prefix::new(Ipv4Addr::new(10, n, 1, 0), 24).unwrap(), 1, NOW).unwrap();
    }
    let late = RouteTarget::until(9, 4, END);
    for (target, shown) in [(RouteTarget::forever(9), 9), (late, ENTRY | 4)] {
        let changed = || {
            let here =
                (0..=255).map(|n| lpm.lookup(reader.view(), Ipv4Addr::new(10, n, 2, 3), NOW));
            here.filter(|found| *found == shown).count()
        };
        writer.begin(wide, Some(target), NOW).unwrap();
        let (mut steps, mut before) = (0, changed());
        while writer.step(1, NOW) == PushProgress::More {
            assert!(changed() - before <= 2, "{before} to {} in one step", changed());
            (before, steps) = (changed(), steps + 1);
        }
        assert!((120..=256).contains(&steps), "{steps}");
        assert_eq!(changed(), 256);
    }
}

fn values_until_the_first_end<A: LpmFamily>(addr: A, short: u8, long: u8) {
    let domain = Domain::new(1);
    let reader = domain.reader().unwrap();
    let mut writer = LpmWriter::<A>::new(&domain, small());
    let lpm = writer.reader();
    let later = END + END.saturating_since(NOW);
    let (short, long) = (Prefix::new(addr, short).unwrap(), Prefix::new(addr, long).unwrap());
    writer.replace(long, Some(RouteTarget::until(7, 2, END)), NOW).unwrap();
    writer.replace(short, Some(RouteTarget::until(8, 1, later)), NOW).unwrap();
    let at = |now| {
        let mut found = [0];
        lpm.lookup_burst(reader.view(), &[addr], now, &mut found);
        assert_eq!(lpm.lookup(reader.view(), addr, now), found[0]);
        found[0]
    };
    assert_eq!((at(BEFORE), at(END)), (7, ENTRY | 2));
    assert_eq!(writer.remove(long, END), Ok(Some(ENTRY | 2)));
    assert_eq!(at(END), ENTRY | 1);
    writer.none_ends_before(later);
    assert_eq!((at(END), at(later)), (8, ENTRY | 1));
    writer.ends_at(BEFORE);
    assert_eq!(at(END), ENTRY | 1);
}

#[test]
fn values_are_found_until_the_first_end_and_again_when_it_was_collected() {
    values_until_the_first_end(Ipv4Addr::new(10, 1, 2, 3), 20, 24);
    values_until_the_first_end("2001:db8::1".parse::<Ipv6Addr>().unwrap(), 32, 48);
}

#[test]
fn a_small_table_takes_little() {
    let domain = Domain::new(1);
    let mut writer = LpmWriter::<Ipv4Addr>::new(&domain, LpmCapacity::for_prefixes(16));
    for n in 0..16 {
        writer
            .insert(Prefix::new(Ipv4Addr::new(10 + n % 3, n, 0, 0), 20).unwrap(), 1, NOW)
            .unwrap();
    }
    assert!(writer.memory().lookup < 16 << 10, "{:?}", writer.memory());
}
