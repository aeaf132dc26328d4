//! What one call of the writer does at most: counted, not timed.
//!
//! Words are what the trie paints ([`words`](crate::lpm::LpmWriter::words)), units what a change
//! leaves below its prefix. The bounds are the sums of what `writer.rs` and
//! `ROUTE_STEP_UNITS` allow, set before anything was counted.

use floodwall_base::PublicRandom;
use floodwall_base::limits::{ROUTE_STEP_UNITS, ROUTES_LISTED_MAX};
use floodwall_sync::qsbr::Domain;

use super::*;
use crate::index::SmallIndex;
use crate::{NextHop, NextHopId, RouteKind, Selector, TableId};

both! {
    no_change_of_a_table_like_the_internets_touches_more_than_a_step_allows => bounded;
    a_table_that_grows_moves_a_small_part_of_what_it_has => grown;
    row_76_a_next_hop_that_changes_touches_no_route_and_no_answer_is_wrong => hops_change;
}

/// Words of a node.
const NODE: u64 = 8;
/// Nodes from the top to the end of an address, with the one that a chain hangs at.
const CHAIN: u64 = 17;
/// Lines that one step goes through, and the one with which it ends.
const LINES: u64 = ROUTE_STEP_UNITS as u64 / 16 + 1;
/// Words of a change: its node or a chain of new ones, what was left before, what it leaves.
const WORDS_MAX: u64 = NODE * (1 + CHAIN) + 2 * NODE * LINES;
/// Units of a change: what was left before, what it leaves; a line more than either.
const UNITS_MAX: u64 = 2 * (ROUTE_STEP_UNITS as u64 + 16);

/// Words and units since the beginning.
fn work<A: LpmFamily>(fib: &Fib<A>) -> (u64, u64) {
    let words = fib.tables.iter().map(|table| match &table.index {
        SmallIndex::Large(lpm) => lpm.words(),
        SmallIndex::Listed(_) => 0,
    });
    (words.sum(), fib.units)
}

/// Does something; keeps the most that was done in one call.
fn count<A: LpmFamily, T>(
    fib: &mut Fib<A>,
    most: &mut (u64, u64),
    act: impl FnOnce(&mut Fib<A>) -> T,
) -> T {
    let before = work(fib);
    let done = act(fib);
    let after = work(fib);
    *most = (most.0.max(after.0 - before.0), most.1.max(after.1 - before.1));
    done
}

/// Prefixes of all lengths, of which many nest: as the Internet's, three of four are long.
fn prefixes<A: Address>(count: usize) -> Vec<Prefix<A>> {
    let mut random = PublicRandom::new(5);
    let longest = if A::BITS == 32 { 24_u64 } else { 48 };
    // How many values each byte has: what is above the last is shared by many.
    let few = if A::BITS == 32 { [64, 40, 256, 1, 1, 1] } else { [4, 10, 16, 4, 2, 256] };
    let any = |_| {
        let byte = |bits: u128, few: u64| bits << 8 | u128::from(random.next_u64() % few);
        let bits = few.into_iter().fold(0, byte) << 80;
        let len = match random.next_u64() % 4 {
            0 => 1 + random.next_u64() % longest,
            _ => longest,
        };
        Prefix::new(A::from_bits_aligned(bits), len as u8).unwrap()
    };
    let mut all: Vec<Prefix<A>> = (0..count).map(any).collect();
    all.sort();
    all.dedup();
    all
}

fn bounded<A: LpmFamily>() {
    let prefixes = prefixes::<A>(20_000);
    let (domain, mut random) = (Domain::new(1), PublicRandom::new(6));
    let mut reader = domain.reader().unwrap();
    let config = FibConfig::for_routes(40_000);
    let mut fib = Fib::<A>::new(&domain, config, HashKey::new(1, 2), START);
    // A tenth of them can end, and learns what it uncovers whenever what covers it changes.
    let route = |n: usize, iface: u64| Route {
        expires: n.is_multiple_of(10).then(|| after(1000)),
        ..Route::on_link(prefixes[n], IfIndex(1 + (iface % 60) as u16))
    };
    let all: Vec<_> = (0..prefixes.len()).map(|n| route(n, n as u64)).collect();
    fib.load(&all, START).unwrap();
    let (mut most, mut refused, mut changed) = ((0, 0), 0, 0);
    for round in 0..12_000 {
        let n = random.next_u64() as usize % prefixes.len();
        let one = route(n, random.next_u64());
        let which = Selector::to(one.prefix);
        let done = match round % 4 {
            0 => count(&mut fib, &mut most, |fib| fib.delete(&which, START).map(drop)),
            1 => count(&mut fib, &mut most, |fib| fib.add(one, START)),
            2 => count(&mut fib, &mut most, |fib| fib.replace(one, START)),
            _ => count(&mut fib, &mut most, |fib| {
                fib.remove_to(TableId::MAIN, one.prefix, START, |_| true);
                Ok(())
            }),
        };
        refused += u64::from(matches!(done, Err(crate::RouteError::Pending)));
        changed += u64::from(done.is_ok());
        assert!(count(&mut fib, &mut most, |fib| fib.sweep(START, 128)) <= 128);
        count(&mut fib, &mut most, |fib| fib.publish(START));
        reader.quiescent(START);
    }
    assert!(changed > 6000 && refused < changed / 10, "{changed} done, {refused} refused");
    assert!(most.0 <= WORDS_MAX && most.1 <= UNITS_MAX, "{most:?} of {WORDS_MAX}, {UNITS_MAX}");
    assert!(most.0 > 8 && most.1 > 200, "{most:?}: what is counted is done");
    // All of them end at once.
    let mut steps = 0;
    while fib.expiring() > 0 {
        let visited = count(&mut fib, &mut most, |fib| fib.collect(after(2000), 64));
        assert!(visited <= 64);
        count(&mut fib, &mut most, |fib| fib.sweep(after(2000), 128));
        fib.publish(after(2000));
        reader.quiescent(after(2000));
        steps += 1;
    }
    let collected = 64 * NODE * (1 + CHAIN) + 2 * WORDS_MAX;
    assert!(most.0 <= collected && most.1 <= UNITS_MAX, "{most:?} of {collected}, {UNITS_MAX}");
    assert!(steps > 10, "{steps}");
}

/// From nothing to many, one by one: no call moves more than one small map, and memory that was
/// asked for at once; the first change that makes a list a trie moves the list.
fn grown<A: LpmFamily>() {
    let prefixes = prefixes::<A>(30_000);
    let mut fib = Fib::<A>::alone(FibConfig::for_routes(prefixes.len()), HashKey::new(1, 2), START);
    let (mut most, mut first) = ((0, 0), (0, 0));
    for (n, prefix) in prefixes.iter().enumerate() {
        let route = Route::on_link(*prefix, IfIndex(1 + (n % 60) as u16));
        let most = if n == ROUTES_LISTED_MAX { &mut first } else { &mut most };
        count(&mut fib, most, |fib| {
            fib.complete(START);
            fib.add(route, START).unwrap();
        });
    }
    assert!(most.0 <= WORDS_MAX, "{most:?}");
    let list = (ROUTES_LISTED_MAX as u64 + 1) * NODE * (1 + CHAIN);
    assert!(first.0 <= list && first.0 > most.0.min(64), "{first:?} of {list}");
    let fullest = fib.tables.iter().map(|table| table.fullest_map()).max().unwrap();
    // Thirty-two maps for thirty thousand; parts of the space are not alike.
    assert!(fullest < 4 * 1024, "{fullest} of {} move together", prefixes.len());
}

/// Thousands of routes go through a few next hops, and these change a thousand times: nothing of
/// the trie is painted again, and a reader finds each change once it is shown.
fn hops_change<A: LpmFamily>() {
    const WAYS: usize = 16;
    let prefixes = prefixes::<A>(20_000);
    let (domain, mut random) = (Domain::new(1), PublicRandom::new(7));
    let mut reader = domain.reader().unwrap();
    let config = FibConfig::for_routes(40_000);
    let mut fib = Fib::<A>::new(&domain, config, HashKey::new(1, 2), START);
    let id = |way: usize| NextHopId(1 + way as u32);
    let hop = |iface| NextHop {
        kind: RouteKind::Unicast,
        iface: IfIndex(iface),
        gateway: None,
        src_addr: None,
    };
    let mut ifaces = [1_u16; WAYS];
    for (way, iface) in ifaces.iter().enumerate() {
        fib.add_next_hop(id(way), hop(*iface)).unwrap();
    }
    let route = |n: usize| Route::through(prefixes[n], id(n % WAYS));
    fib.load(&(0..prefixes.len()).map(route).collect::<Vec<_>>(), START).unwrap();
    assert!(fib.publish(START));
    // Below these there is no other prefix.
    let longest = prefixes.iter().map(|prefix| prefix.len()).max().unwrap();
    let last: Vec<_> = (0..prefixes.len()).filter(|n| prefixes[*n].len() == longest).collect();
    let (routes, mut most) = (fib.reader(), (0, 0));
    for _ in 0..1000 {
        let way = random.next_u64() as usize % WAYS;
        ifaces[way] = 1 + (random.next_u64() % 60) as u16;
        let new = hop(ifaces[way]);
        count(&mut fib, &mut most, |fib| fib.replace_next_hop(id(way), new, START).unwrap());
        assert!(count(&mut fib, &mut most, |fib| fib.publish(START)), "nothing is left to do");
        for _ in 0..8 {
            let n = last[random.next_u64() as usize % last.len()];
            let found = routes.lookup(reader.view(), prefixes[n].addr(), START).unwrap();
            assert_eq!(found.iface, IfIndex(ifaces[n % WAYS]));
        }
        reader.quiescent(START);
    }
    assert_eq!(most, (0, 0), "words and units");
}
