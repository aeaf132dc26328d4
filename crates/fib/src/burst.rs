//! Bursts of look-ups: many destinations through rules and tables at once.
//!
//! Called by [`crate::FibReader`] and [`crate::Fib`]. Each table is looked up once for all
//! destinations that have no answer yet, so that their accesses of memory are under way together;
//! in the usual plan, one table for everything, nothing is gathered. Invariant: each answer is that
//! of a look-up alone. Not here: what a rule means (`rule.rs`), the walk (`lpm`).

use floodwall_base::Instant;

use crate::lifetimes::ENTRY;
use crate::lpm::LpmFamily;
use crate::next_hop::Found;
use crate::query::Query;
use crate::reader::{HopResolver, LookupPlan, verdict};
use crate::rule::RuleAction;

/// Destinations that one pass looks up.
const LOOKUP_LANES: usize = 64;

/// The tables, as seen by the thread that looks up.
pub(crate) trait BurstLookup<A: LpmFamily> {
    /// The values of a burst in the trie of a table; false where that one is a list.
    fn trie(&self, table: u16, addrs: &[A], now: Instant, values: &mut [u32]) -> bool;
    /// The answer of a table that is a list.
    fn list(&self, table: u16, addr: A, now: Instant) -> Option<Found<A>>;
}

/// Looks up a burst of addresses: `found` is filled up to the shorter of both.
pub(crate) fn burst<A: LpmFamily>(
    resolver: &HopResolver<'_, A>,
    plan: &LookupPlan<A>,
    ask: &impl BurstLookup<A>,
    addrs: &[A],
    now: Instant,
    found: &mut [Option<Found<A>>],
) {
    for (addrs, found) in addrs.chunks(LOOKUP_LANES).zip(found.chunks_mut(LOOKUP_LANES)) {
        let addrs = addrs.get(..found.len()).unwrap_or(addrs);
        let mut values = [0; LOOKUP_LANES];
        match plan.only {
            Some(only) if ask.trie(only, addrs, now, &mut values) => {
                ask_for_lifetimes(resolver, &values);
                for ((addr, value), found) in addrs.iter().zip(values).zip(found) {
                    *found = resolver.resolve(value, &Query::to(*addr), now);
                }
            }
            _ => by_steps(resolver, plan, ask, addrs, now, found),
        }
    }
}

/// The lifetimes of all that may have ended, on their way together.
fn ask_for_lifetimes<A: LpmFamily>(resolver: &HopResolver<'_, A>, values: &[u32]) {
    for value in values.iter().filter(|value| **value & ENTRY != 0) {
        resolver.ask_for_lifetime(value & !ENTRY);
    }
}

/// The numbers of the bits that are set.
fn lanes(mut left: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let lane = left.trailing_zeros() as usize;
        left &= left.wrapping_sub(1);
        (lane < LOOKUP_LANES).then_some(lane)
    })
}

fn by_steps<A: LpmFamily>(
    resolver: &HopResolver<'_, A>,
    plan: &LookupPlan<A>,
    ask: &impl BurstLookup<A>,
    addrs: &[A],
    now: Instant,
    found: &mut [Option<Found<A>>],
) {
    found.fill(None);
    let mut left = u64::MAX.unbounded_shr((LOOKUP_LANES - addrs.len()) as u32);
    for step in &plan.steps {
        let means = |lane: &usize| {
            step.rule.is_for_all()
                || addrs.get(*lane).is_some_and(|addr| step.rule.means(&Query::to(*addr)))
        };
        let meant = lanes(left).filter(means).fold(0_u64, |meant, lane| meant | 1 << lane);
        let (mut some, mut values) = ([A::from_bits_aligned(0); LOOKUP_LANES], [0; LOOKUP_LANES]);
        let gathered = lanes(meant).filter_map(|lane| addrs.get(lane)).copied();
        some.iter_mut().zip(gathered).for_each(|(place, addr)| *place = addr);
        let some = some.get(..meant.count_ones() as usize).unwrap_or_default();
        let in_trie = match step.rule.action {
            RuleAction::Table(_) => ask.trie(step.table, some, now, &mut values),
            RuleAction::Decide(_) => false,
        };
        ask_for_lifetimes(resolver, &values);
        for ((lane, addr), value) in lanes(meant).zip(some).zip(values) {
            let answer = match step.rule.action {
                RuleAction::Decide(kind) => Some(verdict(kind)),
                RuleAction::Table(_) if in_trie => resolver.resolve(value, &Query::to(*addr), now),
                RuleAction::Table(_) => ask.list(step.table, *addr, now),
            };
            if answer.is_some() {
                left &= !(1 << lane);
                found.get_mut(lane).into_iter().for_each(|found| *found = answer);
            }
        }
    }
}
