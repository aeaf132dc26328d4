//! The cost table measured on this machine, and whether it is accurate (decision C13).
//!
//! Called by the program `floodwall` (`floodwall cost`) through [`measure_costs`]. Prices come from
//! the product's own code (`cost/price.rs`); then a whole worker takes every flood of the drill
//! turn by turn (`cost/turn.rs`), and what a turn took is compared with the table's price of its
//! packets, bytes and units. Of what the parts do not explain a unit's [`rest`](CostTable::rest) is
//! made, one number for all floods: so a flood with too few or too many units still shows as a
//! ratio far from 1. Invariants: medians of rounds that take turns, so that a slow moment hits all
//! alike; nothing of it reaches a test, which would judge the machine.

mod price;
mod turn;

use core::fmt;

use floodwall_dispatch::Clock;
use floodwall_world::{CostTable, Picos, UnitMix};
use serde::Serialize;

use crate::error::DrillError;
use crate::run::FLOODS;
use price::{PriceItem, PriceItems};
use turn::{TurnCost, TurnCosts};

/// Rounds by default: 3 s, most of it for the floods.
pub const COST_ROUNDS: usize = 31;
/// Turns of a worker in one round of one flood.
const TURNS_PER_ROUND: usize = 16;
/// By how much a table may be wrong about a flood, either way.
pub const COST_RATIO_MAX: f64 = 1.5;
/// What a unit consists of in the table: a packet's headers, one keyed look into a table that is
/// warm. Tables that are not warm come from many unverified sources, and the drill's host has none
/// so large.
const UNIT_MIX: UnitMix =
    UnitMix { headers: 3, hashes: 1, probe_hits: 1, probe_misses: 0, entries: 0 };

/// One price of the table.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PriceReport {
    /// The table's name for it.
    pub name: &'static str,
    /// Nanoseconds.
    pub nanos: f64,
    /// How it was measured.
    pub how: &'static str,
}

/// One flood: its measured cost, and the table's.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct BurstReport {
    /// The flood's name, as the drill's.
    pub name: &'static str,
    /// What it is.
    pub what: &'static str,
    /// Units of work a packet.
    pub units: f64,
    /// Packets that left for each that arrived.
    pub answers: f64,
    /// Nanoseconds a packet, measured.
    pub nanos: f64,
    /// Nanoseconds a packet, by the table.
    pub priced_nanos: f64,
    /// The table's over the measured.
    pub ratio: f64,
}

/// What a machine was found to be like.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CostReport {
    /// Rounds that were measured.
    pub rounds: usize,
    /// The prices, as they are in the table.
    pub prices: Vec<PriceReport>,
    /// The table against whole turns.
    pub bursts: Vec<BurstReport>,
    /// Whether no flood is off by more than [`COST_RATIO_MAX`].
    pub passed: bool,
    /// The table itself.
    #[serde(skip)]
    pub table: CostTable,
}

/// Measures this machine. `step` gets what is measured, and how far that is of 100. Takes some
/// seconds, 100 MiB, one thread.
///
/// # Errors
/// The machine has no memory for it, or the wire in memory broke.
pub fn measure_costs(
    rounds: usize,
    seed: u64,
    step: &mut dyn FnMut(&str, usize),
) -> Result<CostReport, DrillError> {
    let (rounds, clock) = (rounds.max(1), Clock::new());
    let mut table = prices(rounds, seed, clock, step)?;
    let mut floods = Vec::with_capacity(FLOODS.len());
    for (at, (_, _, kind)) in FLOODS.into_iter().enumerate() {
        step("floods: warming up", at * 100 / FLOODS.len());
        floods.push(TurnCosts::new(Some(kind), seed, clock)?);
    }
    let mut idle = TurnCosts::new(None, seed, clock)?;
    let mut took = vec![Vec::with_capacity(rounds); FLOODS.len()];
    let (mut wake_ups, mut looks) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        step("floods", round * 100 / rounds);
        for (flood, took) in floods.iter_mut().zip(&mut took) {
            took.push(flood.some(TURNS_PER_ROUND)?);
        }
        wake_ups.push(idle.some(TURNS_PER_ROUND)?.nanos as f64 / TURNS_PER_ROUND as f64);
        looks.extend(floods.iter_mut().map(TurnCosts::look));
    }
    table.wake_up = picos(median(&mut wake_ups));
    table.triage = picos(median(&mut looks));
    let medians: Vec<TurnCost> = took.iter_mut().filter_map(|took| middle(took)).collect();
    table.rest = rest(&table, &medians);
    Ok(report(table, &medians, rounds))
}

/// What a unit takes beyond its parts, all floods alike: the middle of them, as ratios have one.
fn rest(table: &CostTable, medians: &[TurnCost]) -> Picos {
    let parts = table.per_unit().0 as f64 / 1000.0;
    let unit = |took: &TurnCost| {
        let units = f64::from(took.spent.units.0).max(1.0);
        let all = took.nanos as f64 - took.priced(table) * took.arrived as f64;
        (all / units + parts).max(1.0).ln()
    };
    let mean = medians.iter().map(unit).sum::<f64>() / medians.len().max(1) as f64;
    picos(mean.exp() - parts)
}

fn report(table: CostTable, medians: &[TurnCost], rounds: usize) -> CostReport {
    let burst = |((name, what, _), took): (&(&'static str, &'static str, _), &TurnCost)| {
        let (nanos, priced_nanos) = (took.each(), took.priced(&table));
        let arrived = took.arrived.max(1) as f64;
        BurstReport {
            name,
            what,
            units: f64::from(took.spent.units.0) / arrived,
            answers: (took.spent.packets - took.arrived) as f64 / arrived,
            nanos,
            priced_nanos,
            ratio: priced_nanos / nanos.max(1.0),
        }
    };
    let bursts: Vec<BurstReport> = FLOODS.iter().zip(medians).map(burst).collect();
    let within =
        |burst: &BurstReport| (1.0 / COST_RATIO_MAX..=COST_RATIO_MAX).contains(&burst.ratio);
    let passed = bursts.len() == FLOODS.len() && bursts.iter().all(within);
    CostReport { rounds, prices: named(&table), bursts, passed, table }
}

/// The prices of single pieces; the rest of the table is measured with whole turns.
fn prices(
    rounds: usize,
    seed: u64,
    clock: Clock,
    step: &mut dyn FnMut(&str, usize),
) -> Result<CostTable, DrillError> {
    step("prices", 0);
    let mut pieces = PriceItems::new(seed, clock)?;
    let mut all = PriceItem::ALL.map(|_| Vec::with_capacity(rounds));
    for round in 0..rounds {
        step("prices", round * 100 / rounds);
        for (piece, nanos) in PriceItem::ALL.into_iter().zip(&mut all) {
            nanos.push(pieces.measure(piece)?);
        }
    }
    let [cross, header, hash, hit, miss, short, long, entry] =
        all.map(|mut nanos| median(&mut nanos));
    Ok(CostTable {
        packet: picos(cross),
        header: picos(header),
        hash: picos(hash),
        probe_hit: picos(hit - hash),
        probe_miss: picos(miss - hash),
        byte: picos((long - short) / price::copied_more() as f64),
        entry: picos(entry),
        unit: UNIT_MIX,
        ..CostTable::FREE
    })
}

fn named(table: &CostTable) -> Vec<PriceReport> {
    let price = |name, picos: Picos, how| PriceReport { name, nanos: picos.0 as f64 / 1000.0, how };
    vec![
        price("packet", table.packet, "a burst across a memory wire, each end's half"),
        price("header", table.header, "link, IPv4 and UDP header of a frame, a third"),
        price("hash", table.hash, "an address and a port, base::HashKey"),
        price("probe_hit", table.probe_hit, "one UDP socket again and again, less its hash"),
        price("probe_miss", table.probe_miss, "one of 60,000 sockets at random, less its hash"),
        price("byte", table.byte, "1,514 bytes into the pool against 64"),
        price("entry", table.entry, "a small packet of the pool, taken and given back"),
        price("triage", table.triage, "Engine::classify, all floods, bursts of 64"),
        price("wake_up", table.wake_up, "a worker's turn that finds nothing"),
        price("rest", table.rest, "what whole turns take beyond all that, a unit"),
    ]
}

/// In thousandths; nothing where the clock saw less than nothing.
fn picos(nanos: f64) -> Picos {
    Picos((nanos * 1000.0).round().max(0.0) as u64)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// The round of the middle.
fn middle(rounds: &mut [TurnCost]) -> Option<TurnCost> {
    rounds.sort_by(|a, b| a.each().total_cmp(&b.each()));
    rounds.get(rounds.len() / 2).copied()
}

impl fmt::Display for CostReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<12}{:>10}  measured by ({} rounds by turns, medians)",
            "price", "ns", self.rounds
        )?;
        for price in &self.prices {
            writeln!(f, "{:<12}{:>10.3}  {}", price.name, price.nanos, price.how)?;
        }
        let unit = self.table.per_unit();
        writeln!(f, "{:<12}{:>10}  all its parts and the rest\n", "one unit", unit.to_string())?;
        writeln!(
            f,
            "{:<12}{:>8}{:>9}{:>10}{:>10}{:>8}",
            "a packet of", "units", "answers", "takes ns", "table ns", "ratio"
        )?;
        for burst in &self.bursts {
            writeln!(
                f,
                "{:<12}{:>8.2}{:>9.2}{:>10.0}{:>10.0}{:>8.2}",
                burst.name,
                burst.units,
                burst.answers,
                burst.nanos,
                burst.priced_nanos,
                burst.ratio
            )?;
        }
        let word = if self.passed { "PASS" } else { "FAIL" };
        writeln!(
            f,
            "\n{word}: the table is right about each flood within a factor of {COST_RATIO_MAX}"
        )
    }
}

#[cfg(test)]
mod tests {
    use floodwall_base::Units;
    use floodwall_world::Spent;

    use super::*;

    fn took(units: u32, nanos: u64) -> TurnCost {
        let spent = Spent { wake_ups: 1, packets: 64, units: Units(units), ..Spent::default() };
        TurnCost { spent, arrived: 64, nanos }
    }

    #[test]
    fn the_rest_is_what_makes_the_table_right_on_the_whole() {
        let table = CostTable { header: Picos::from_nanos(10), unit: UNIT_MIX, ..CostTable::FREE };
        let medians = [took(64, 64 * 100), took(128, 2 * 64 * 100)];
        let rest = rest(&table, &medians);
        assert!(rest.0.abs_diff(70_000) < 10, "100 a unit, 30 of it headers: {rest}");
        let table = CostTable { rest, ..table };
        assert!((medians[1].priced(&table) - 200.0).abs() < 0.1);
    }

    #[test]
    fn a_flood_that_is_dearer_than_its_units_say_is_seen() {
        let table = CostTable { rest: Picos::from_nanos(100), ..CostTable::FREE };
        let mut medians = vec![took(64, 6400); FLOODS.len()];
        assert!(report(table, &medians, 1).passed);
        medians[3].nanos = 6400 * 16 / 10;
        let report = report(table, &medians, 1);
        assert!(!report.passed && report.to_string().contains("FAIL"), "{report}");
    }

    #[test]
    fn a_measurement_makes_a_whole_table() {
        let mut steps = 0;
        let report = measure_costs(1, 1, &mut |_, _| steps += 1).unwrap();
        assert!(steps > 2 && report.table.per_unit() > Picos(0), "{report}");
        assert_eq!(report.table.to_string().parse(), Ok(report.table));
        assert_eq!(report.bursts.len(), FLOODS.len());
        let plain = report.bursts.iter().find(|burst| burst.name == "udp open").unwrap();
        assert!(plain.answers > 0.9 && plain.units >= 4.0, "each is answered: {plain:?}");
    }
}
