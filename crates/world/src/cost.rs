//! The cost table: what a piece of work costs in virtual time (decision C13).
//!
//! Called by `node.rs` after every call to an engine. Without it a simulated floor would prove
//! nothing: a node could handle any number of packets in no time. Invariant: integers only, so that
//! two machines agree to the picosecond. The default is a table that `floodwall cost` measured
//! through the product's own code and wrote to `data/cost.txt`, with machine and day, in the text
//! form in which [`CostTable`] parses and prints itself.

use core::fmt;
use core::str::FromStr;
use std::sync::LazyLock;

use floodwall_base::Units;
use thiserror::Error;

/// Thousandths of a nanosecond: a byte copied costs less than one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Picos(pub u64);

impl Picos {
    /// `n` whole nanoseconds.
    #[must_use]
    pub const fn from_nanos(n: u64) -> Self {
        Self(n.saturating_mul(1000))
    }

    const fn times(self, n: u64) -> u64 {
        self.0.saturating_mul(n)
    }
}

impl fmt::Display for Picos {
    /// In nanoseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 % 1000 {
            0 => write!(f, "{}", self.0 / 1000),
            part => write!(f, "{}.{part:03}", self.0 / 1000),
        }
    }
}

/// The parts of one [`Units`]. Engines report units only; this sets how a unit is priced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnitMix {
    /// Headers checked.
    pub headers: u32,
    /// Keyed hashes made.
    pub hashes: u32,
    /// Table probes that found something.
    pub probe_hits: u32,
    /// Table probes that found nothing.
    pub probe_misses: u32,
    /// Entries taken from their table's memory.
    pub entries: u32,
}

/// Prices of all kinds of work in virtual time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CostTable {
    /// One packet taken from, or given to, the device ring: the look at its descriptor.
    pub packet: Picos,
    /// One header checked.
    pub header: Picos,
    /// One table probe that finds something: its entry is likely in a cache.
    pub probe_hit: Picos,
    /// One table probe that finds nothing: likely a miss in every cache.
    pub probe_miss: Picos,
    /// One keyed hash.
    pub hash: Picos,
    /// One byte copied between a device and the node's memory.
    pub byte: Picos,
    /// One entry taken from a table's memory.
    pub entry: Picos,
    /// One packet of a burst that triage looks at before any work: its misses overlap with those of
    /// the others.
    pub triage: Picos,
    /// One call of the engine's worker: the device call, the clock, the publication of counters.
    pub wake_up: Picos,
    /// What a unit takes beyond its parts: calls, counters, the packet's own lines on their way
    /// from memory. Measured as what is left of a whole turn.
    pub rest: Picos,
    /// What a unit of an engine's work consists of.
    pub unit: UnitMix,
}

/// What a node did in one turn: what is to be paid for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spent {
    /// Turns of the worker.
    pub wake_ups: u64,
    /// Packets that came in or went out.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The units that the engine reports as spent.
    pub units: Units,
    /// Packets that triage looked at.
    pub triaged: u64,
}

impl CostTable {
    /// Everything is free: for generators and other parts that are not under test.
    pub const FREE: Self = Self {
        packet: Picos(0),
        header: Picos(0),
        probe_hit: Picos(0),
        probe_miss: Picos(0),
        hash: Picos(0),
        byte: Picos(0),
        entry: Picos(0),
        triage: Picos(0),
        wake_up: Picos(0),
        rest: Picos(0),
        unit: UnitMix { headers: 0, hashes: 0, probe_hits: 0, probe_misses: 0, entries: 0 },
    };

    /// An assumed machine: one core of 2024, its tables larger than its second cache.
    pub const ASSUMED: Self = Self {
        packet: Picos::from_nanos(25),
        header: Picos::from_nanos(5),
        probe_hit: Picos::from_nanos(20),
        probe_miss: Picos::from_nanos(150),
        hash: Picos::from_nanos(20),
        byte: Picos(100),
        entry: Picos::from_nanos(30),
        triage: Picos::from_nanos(40),
        wake_up: Picos::from_nanos(1000),
        rest: Picos(0),
        unit: UnitMix { headers: 3, hashes: 1, probe_hits: 1, probe_misses: 1, entries: 0 },
    };

    /// What one unit costs.
    #[must_use]
    pub const fn per_unit(&self) -> Picos {
        let UnitMix { headers, hashes, probe_hits, probe_misses, entries } = self.unit;
        let parts = [
            self.header.times(headers as u64),
            self.hash.times(hashes as u64),
            self.probe_hit.times(probe_hits as u64),
            self.probe_miss.times(probe_misses as u64),
            self.entry.times(entries as u64),
        ];
        let [a, b, c, d, e] = parts;
        let sum = a.saturating_add(b).saturating_add(c).saturating_add(d).saturating_add(e);
        Picos(sum.saturating_add(self.rest.0))
    }

    /// What `spent` costs.
    #[must_use]
    pub fn price(&self, spent: &Spent) -> Picos {
        let parts = [
            self.wake_up.times(spent.wake_ups),
            self.packet.times(spent.packets),
            self.byte.times(spent.bytes),
            self.triage.times(spent.triaged),
            self.per_unit().times(u64::from(spent.units.0)),
        ];
        Picos(parts.into_iter().fold(0, u64::saturating_add))
    }

    /// The table of a machine that is `factor` times slower in everything.
    #[must_use]
    pub fn times(mut self, factor: u64) -> Self {
        for (_, price) in self.prices_mut() {
            *price = Picos(price.times(factor));
        }
        self
    }

    fn prices_mut(&mut self) -> [(&'static str, &mut Picos); 10] {
        [
            ("packet", &mut self.packet),
            ("header", &mut self.header),
            ("probe_hit", &mut self.probe_hit),
            ("probe_miss", &mut self.probe_miss),
            ("hash", &mut self.hash),
            ("byte", &mut self.byte),
            ("entry", &mut self.entry),
            ("triage", &mut self.triage),
            ("wake_up", &mut self.wake_up),
            ("rest", &mut self.rest),
        ]
    }

    fn counts_mut(&mut self) -> [(&'static str, &mut u32); 5] {
        [
            ("unit_headers", &mut self.unit.headers),
            ("unit_hashes", &mut self.unit.hashes),
            ("unit_probe_hits", &mut self.unit.probe_hits),
            ("unit_probe_misses", &mut self.unit.probe_misses),
            ("unit_entries", &mut self.unit.entries),
        ]
    }
}

/// The table that `floodwall cost --write` last made: the machine and the day are in the file.
const MEASURED_COSTS: &str = include_str!("../data/cost.txt");

impl Default for CostTable {
    /// The machine that was measured last (`data/cost.txt`).
    fn default() -> Self {
        static TABLE: LazyLock<CostTable> =
            LazyLock::new(|| MEASURED_COSTS.parse().unwrap_or(CostTable::ASSUMED));
        *TABLE
    }
}

impl fmt::Display for CostTable {
    /// One `name value` a line: nanoseconds, then counts. Parses back to the same table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut copy = *self;
        for (name, price) in copy.prices_mut() {
            writeln!(f, "{name} {price}")?;
        }
        for (name, count) in copy.counts_mut() {
            writeln!(f, "{name} {count}")?;
        }
        Ok(())
    }
}

/// Why a text is not a cost table; lines count from 1.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum ParseCostError {
    /// The line is not a name and a value.
    #[error("line {0}: write a name, a space and a number, as in `header 5`")]
    Form(usize),
    /// The name is none of the table's.
    #[error("line {0}: the table has no such name")]
    Name(usize),
    /// The value is no number, has more than three decimals, or a count has decimals.
    #[error("line {0}: write nanoseconds with at most three decimals, or a whole count")]
    Value(usize),
}

impl FromStr for CostTable {
    type Err = ParseCostError;

    /// Names that are missing keep the value of [`CostTable::ASSUMED`]. Text behind `#` and empty
    /// lines are ignored.
    fn from_str(text: &str) -> Result<Self, ParseCostError> {
        let mut table = Self::ASSUMED;
        for (at, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                table.set(line, at + 1)?;
            }
        }
        Ok(table)
    }
}

impl CostTable {
    fn set(&mut self, line: &str, number: usize) -> Result<(), ParseCostError> {
        let mut words = line.split_whitespace();
        let (Some(name), Some(value), None) = (words.next(), words.next(), words.next()) else {
            return Err(ParseCostError::Form(number));
        };
        let wrong = ParseCostError::Value(number);
        if let Some((_, price)) = self.prices_mut().into_iter().find(|(n, _)| *n == name) {
            *price = parse_nanos(value).ok_or(wrong)?;
        } else if let Some((_, count)) = self.counts_mut().into_iter().find(|(n, _)| *n == name) {
            *count = value.parse().map_err(|_| wrong)?;
        } else {
            return Err(ParseCostError::Name(number));
        }
        Ok(())
    }
}

/// Nanoseconds with up to three decimals.
fn parse_nanos(text: &str) -> Option<Picos> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if part.len() > 3 || !digits(whole) || !digits(part) {
        return None;
    }
    let part: u64 = format!("{part:0<3}").parse().ok()?;
    Some(Picos(whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(part)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_prints_and_parses_to_itself() {
        let table = CostTable { byte: Picos(62), ..CostTable::ASSUMED };
        assert_eq!(table.to_string().parse(), Ok(table));
        assert!(table.to_string().contains("byte 0.062\n"));
        let parsed: CostTable = "# measured\n\nheader 7.5 # here\nunit_headers 2".parse().unwrap();
        assert_eq!(parsed.header, Picos(7500));
        assert_eq!(parsed.unit.headers, 2);
        assert_eq!(parsed.hash, CostTable::ASSUMED.hash);
    }

    #[test]
    fn the_stored_table_is_whole_and_says_where_it_is_from() {
        let table: CostTable = MEASURED_COSTS.parse().unwrap();
        assert_eq!(table, CostTable::default());
        for (name, price) in CostTable::default().prices_mut() {
            let line = |line: &str| line.split_whitespace().next() == Some(name);
            assert!(MEASURED_COSTS.lines().any(line), "{name} was not measured");
            assert!(*price > Picos(0) || name == "probe_hit", "{name} costs nothing");
        }
        for word in ["# machine:", "# date:", "# kernel:", "# build:"] {
            assert!(MEASURED_COSTS.contains(word), "{word}");
        }
    }

    #[test]
    fn a_wrong_line_is_named_with_its_number() {
        let parse = |text: &str| text.parse::<CostTable>().unwrap_err();
        assert_eq!(parse("header"), ParseCostError::Form(1));
        assert_eq!(parse("\nheader 1 2"), ParseCostError::Form(2));
        assert_eq!(parse("heather 1"), ParseCostError::Name(1));
        for bad in ["-1", "1.0001", "x", "+1", "1.-1", ""] {
            let error = parse(&format!("header 1\nheader {bad}"));
            assert!(matches!(error, ParseCostError::Value(2) | ParseCostError::Form(2)), "{bad}");
        }
        assert_eq!(parse("unit_headers 1.5"), ParseCostError::Value(1));
    }

    #[test]
    fn the_price_is_the_sum_of_its_parts_and_doubles_with_the_table() {
        let spent = Spent { wake_ups: 1, packets: 2, bytes: 100, units: Units(3), triaged: 2 };
        let table = CostTable::ASSUMED;
        let unit = 3 * 5 + 20 + 20 + 150;
        assert_eq!(table.price(&spent), Picos::from_nanos(1000 + 2 * 25 + 10 + 2 * 40 + 3 * unit));
        assert_eq!(table.times(2).price(&spent).0, 2 * table.price(&spent).0);
        assert_eq!(CostTable::FREE.price(&spent), Picos(0));
    }
}
