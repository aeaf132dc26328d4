//! What was measured as numbers for claims, as tables beside the source's figures, as pictures.
//!
//! Names of numbers: `virtual/<load>/<policy>/…`, `virtual/growth/<policy>/…`,
//! `timeline/<policy>/…` and `threads/<condition>/<scheme>/…`.

use crate::measure::{Measured, Metrics, Spread};
use crate::plot::{self, Axes, Plot, Series as Line};
use crate::table::Table;

use super::graces::{BUCKET_NANOS, Bucket, Graces};
use super::{Condition, Costs, Discipline, Findings, Row, Scheme, Seen, Series, Turn, Work};

/// Percentiles, in thousandths, and what numbers call them.
const SHARES: [(usize, &str); 3] =
    [(500, "grace-p50-us"), (990, "grace-p99-us"), (999, "grace-p999-us")];

const fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1000.0
}

/// Nothing of nothing is all of it.
fn ratio(part: f64, whole: f64) -> f64 {
    match (part > 0.0, whole > 0.0) {
        (_, true) => part / whole,
        (true, false) => f64::MAX,
        (false, false) => 1.0,
    }
}

/// Everything for the frame.
pub(super) fn measured(found: &Findings) -> Measured {
    let mut metrics = Metrics::default();
    found.rows.iter().for_each(|row| of_load(&mut metrics, row, &found.costs));
    growth(&mut metrics, &found.rows);
    of_timeline(&mut metrics, &found.timeline);
    found.series.iter().for_each(|series| of_series(&mut metrics, series, found));
    let tables = vec![
        by_load(found),
        flood(&metrics),
        by_scheme(&metrics, found, Condition::Rest, "At rest"),
        by_scheme(&metrics, found, Condition::Flood, "Under flood"),
        stuck(&metrics, found),
    ];
    let plots = vec![
        ("grace-over-time.svg".to_owned(), over_time(&found.timeline)),
        ("rounds-over-time.svg".to_owned(), rounds_over_time(&found.timeline)),
        ("grace-by-load.svg".to_owned(), over_load(&found.rows)),
    ];
    Measured { metrics, tables, plots }
}

fn numbers(graces: &Graces) -> Vec<(&'static str, f64)> {
    let mut numbers: Vec<_> =
        SHARES.iter().map(|(share, name)| (*name, micros(graces.per_mille(*share)))).collect();
    let mut worst: Vec<u64> = graces.buckets.iter().map(|bucket| bucket.grace_max).collect();
    worst.sort_unstable();
    let typical = worst.get(worst.len() / 2).copied().unwrap_or_default();
    numbers.extend([
        ("grace-max-us", micros(graces.max())),
        ("bucket-max-us", micros(typical)),
        ("items-max", graces.items_max as f64),
        ("bytes-max", graces.bytes_max as f64),
        ("refused", graces.refused as f64),
        ("retired", graces.retired as f64),
    ]);
    numbers
}

fn of_load(metrics: &mut Metrics, row: &Row, costs: &Costs) {
    let p99 = |wanted: Discipline| {
        let found = row.seen.iter().find(|(one, _)| *one == wanted);
        found.map_or(0.0, |(_, seen)| micros(seen.graces.per_mille(990)))
    };
    for (discipline, seen) in &row.seen {
        let name = discipline.scheme().name();
        let mut set = |what: &str, value: f64| {
            metrics.set(format!("virtual/{}/{name}/{what}", row.load), value);
        };
        numbers(&seen.graces).into_iter().for_each(|(what, value)| set(what, value));
        set("grace-max-rounds", ratio(seen.graces.max() as f64, costs.round() as f64));
        set("rounds-per-bucket", rounds_of(&seen.graces.buckets));
        set("dropped", seen.dropped as f64);
        if *discipline == Discipline::FourCallbacks {
            set("p99-over-when-idle", ratio(p99(*discipline), p99(Discipline::WhenIdle)));
        }
    }
}

fn rounds_of(buckets: &[Bucket]) -> f64 {
    let rounds: u64 = buckets.iter().map(|bucket| bucket.rounds).sum();
    ratio(rounds as f64, buckets.len() as f64)
}

/// How the 99th percentile changes from load to load.
fn growth(metrics: &mut Metrics, rows: &[Row]) {
    for (number, discipline) in Discipline::ALL.into_iter().enumerate() {
        let p99 = |row: &Row| {
            let seen = row.seen.get(number);
            (row.load, seen.map_or(0.0, |(_, seen)| micros(seen.graces.per_mille(990))))
        };
        let p99: Vec<(f64, f64)> = rows.iter().map(p99).collect();
        // A worker that has no idle moment left has nothing left to grow into.
        let steps = p99.windows(2).filter_map(|pair| match pair {
            [(_, before), (load, after)] if *load <= 1.0 => Some(ratio(*after, *before)),
            _ => None,
        });
        let name = discipline.scheme().name();
        let mut set = |what: &str, value: f64| {
            metrics.set(format!("virtual/growth/{name}/{what}"), value);
        };
        set("least-step", steps.fold(f64::MAX, f64::min));
        if let (Some(first), Some(last)) = (p99.first(), p99.last()) {
            set("rest-to-flood", ratio(last.1, first.1));
            let full = p99.iter().find(|(load, _)| *load >= 1.0).unwrap_or(last);
            set("full-to-flood", ratio(last.1, full.1));
        }
    }
}

fn of_timeline(metrics: &mut Metrics, row: &Row) {
    let mut when_idle = 0.0;
    for (discipline, seen) in &row.seen {
        let worst = micros(seen.graces.max()) / 1000.0;
        if *discipline == Discipline::WhenIdle {
            when_idle = worst;
        }
        let name = discipline.scheme().name();
        let mut set =
            |what: &str, value: f64| metrics.set(format!("timeline/{name}/{what}"), value);
        set("grace-max-ms", worst);
        set("items-max", seen.graces.items_max as f64);
        set("refused", seen.graces.refused as f64);
        if *discipline == Discipline::FourCallbacks {
            set("shorter-percent", 100.0 * (1.0 - ratio(worst, when_idle)));
        }
    }
}

/// The middle of some numbers, one for each turn.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    Spread::of(values.collect()).map(|spread| spread.median)
}

fn of_series(metrics: &mut Metrics, series: &Series, found: &Findings) {
    let (condition, name) = (series.condition, series.scheme.name());
    let mut set = |what: &str, value: Option<f64>| {
        if let Some(value) = value {
            metrics.set(format!("threads/{}/{name}/{what}", condition.name()), value);
        }
    };
    let graces = || series.turns.iter().map(|turn| &turn.graces);
    let names = numbers(&Graces::default()).into_iter().map(|(what, _)| what);
    for (number, what) in names.enumerate() {
        let of_turn = |graces: &Graces| numbers(graces).get(number).map(|(_, value)| *value);
        set(what, median(graces().filter_map(of_turn)));
    }
    set("undisturbed-p50-us", undisturbed(series, 500));
    set("undisturbed-p99-us", undisturbed(series, 990));
    set("rounds-per-bucket", median(series.turns.iter().map(rounds_per_bucket)));
    // These are never to be forgiven, in any turn.
    set("wrong-reads", Some(graces().map(|graces| graces.wrong_reads as f64).sum()));
    let freed = |graces: &Graces| ratio(graces.each.len() as f64, graces.retired as f64);
    set("freed-share", graces().map(freed).reduce(f64::min));
    let most = graces().map(|graces| graces.bytes_max as f64).reduce(f64::max);
    let cap = (found.work.cap_items * found.work.object_bytes) as f64;
    set("bytes-over-our-cap", most.map(|most| ratio(most, cap)));
    if condition == Condition::Stuck {
        set(
            "named",
            series.turns.iter().map(|turn| f64::from(u8::from(turn.named))).reduce(f64::min),
        );
    }
    let ours = found
        .series
        .iter()
        .find(|other| other.condition == condition && other.scheme == Scheme::Floodwall);
    if let Some(ours) = ours.filter(|_| series.scheme != Scheme::Floodwall) {
        let turns = series.turns.iter().zip(&ours.turns);
        let p99 = |turn: &Turn| turn.graces.per_mille(990) as f64;
        let over = turns.clone().map(|(their, our)| ratio(p99(their), p99(our)));
        set("p99-over-floodwall", median(over));
        if let (Some(their), Some(our)) = (undisturbed(series, 990), undisturbed(ours, 990)) {
            set("undisturbed-p99-over-floodwall", Some(ratio(their, our)));
        }
    }
}

/// What this share of a scheme's undisturbed grace periods does not exceed: the median over the
/// turns that had many, in microseconds.
fn undisturbed(series: &Series, share: usize) -> Option<f64> {
    let turns = series.turns.iter().filter(|turn| turn.is_undisturbed());
    median(turns.map(|turn| micros(turn.graces.undisturbed_per_mille(share))))
}

fn rounds_per_bucket(turn: &Turn) -> f64 {
    ratio(turn.rounds as f64 * BUCKET_NANOS as f64, turn.nanos as f64)
}

/// A number in as few digits as it needs.
fn short(value: f64) -> String {
    match value {
        f64::MAX => "-".to_owned(),
        v if v >= 100.0 || v == v.trunc() => format!("{v:.0}"),
        v => format!("{v:.1}"),
    }
}

fn by_load(found: &Findings) -> Table {
    let mut table = Table::new(
        "By load: grace periods in virtual time, us",
        &[
            "load, policy",
            "p50",
            "p99",
            "p99.9",
            "max",
            "max, rounds",
            "objects waiting",
            "refused",
            "rounds in 4 ms",
        ],
    );
    for row in &found.rows {
        for (discipline, Seen { graces, .. }) in &row.seen {
            let mut cells = vec![format!("{} {}", row.load, discipline.scheme().name())];
            cells.extend(SHARES.iter().map(|(share, _)| short(micros(graces.per_mille(*share)))));
            cells.extend([
                short(micros(graces.max())),
                short(ratio(graces.max() as f64, found.costs.round() as f64)),
                graces.items_max.to_string(),
                graces.refused.to_string(),
                short(rounds_of(&graces.buckets)),
            ]);
            table.row(cells);
        }
    }
    table.note = format!(
        "two workers; load: packets offered as a share of what a worker can do; a whole round is \
         {} us; one object of {} bytes for every {} packets",
        short(micros(found.costs.round())),
        found.costs.object_bytes,
        found.costs.flow_packets
    );
    table
}

fn flood(metrics: &Metrics) -> Table {
    let mut table = Table::new(
        "Flood: rest, ten times what a worker can do, rest",
        &["policy", "longest grace period, ms", "objects waiting", "refused", "shorter, %"],
    );
    for discipline in Discipline::ALL {
        let name = discipline.scheme().name();
        let value = |what: &str| {
            let value = metrics.value(&format!("timeline/{name}/{what}"));
            value.map_or("-".to_owned(), short)
        };
        table.row([
            name.to_owned(),
            value("grace-max-ms"),
            value("items-max"),
            value("refused"),
            value("shorter-percent"),
        ]);
    }
    "virtual time; the source's flood was of 100,000 packets a second, each to another destination"
        .clone_into(&mut table.note);
    table
}

fn by_scheme(metrics: &Metrics, found: &Findings, condition: Condition, title: &str) -> Table {
    let columns = [
        "scheme",
        "p50",
        "p99",
        "p99.9",
        "max",
        "longest in 4 ms",
        "p99 to ours",
        "undisturbed: p50",
        "p99",
        "p99 to ours",
        "objects waiting",
        "refused",
        "rounds in 4 ms",
    ];
    let mut table = Table::new(&format!("{title}: grace periods of real threads, us"), &columns);
    let names = [
        "grace-p50-us",
        "grace-p99-us",
        "grace-p999-us",
        "grace-max-us",
        "bucket-max-us",
        "p99-over-floodwall",
        "undisturbed-p50-us",
        "undisturbed-p99-us",
        "undisturbed-p99-over-floodwall",
        "items-max",
        "refused",
        "rounds-per-bucket",
    ];
    for series in found.series.iter().filter(|series| series.condition == condition) {
        let scheme = series.scheme.name();
        let cell = |what: &&str| {
            let value = metrics.value(&format!("threads/{}/{scheme}/{what}", condition.name()));
            value.map_or("-".to_owned(), short)
        };
        table.row(core::iter::once(scheme.to_owned()).chain(names.iter().map(cell)));
    }
    let Work { flood_rate, rest_rate, burst, .. } = found.work;
    table.note = match condition {
        Condition::Rest => format!("{rest_rate} replacements a second, the reader mostly idle"),
        _ => format!("{flood_rate} replacements a second, rounds of {burst} packets back to back"),
    };
    table.note += "; medians over the turns; \"undisturbed\": of those alone in which the machine \
                   took a core away from neither thread";
    table
}

fn stuck(metrics: &Metrics, found: &Findings) -> Table {
    let columns = ["scheme", "objects waiting", "bytes", "of our cap", "refused", "worker named"];
    let Work { stuck_millis, flood_rate, cap_items, historic_cap_items, .. } = found.work;
    let mut table = Table::new("Stuck: a reader that does not end its round", &columns);
    for series in found.series.iter().filter(|series| series.condition == Condition::Stuck) {
        let scheme = series.scheme.name();
        let value = |what: &str| metrics.value(&format!("threads/stuck/{scheme}/{what}"));
        let cell = |what: &str| value(what).map_or("-".to_owned(), short);
        table.row([
            scheme.to_owned(),
            cell("items-max"),
            cell("bytes-max"),
            value("bytes-over-our-cap").map_or("-".to_owned(), |share| format!("{share:.2}")),
            cell("refused"),
            if value("named") == Some(1.0) { "yes" } else { "no" }.to_owned(),
        ]);
    }
    table.note = format!(
        "for {stuck_millis} ms, {flood_rate} replacements a second; our cap is {cap_items} \
         objects, that of the historic policies {historic_cap_items}, the crates have none"
    );
    table
}

/// One line for each policy: a number of each bucket over time.
fn lines_over_time(row: &Row, value: impl Fn(&Bucket) -> f64) -> Vec<Line> {
    let line = |(discipline, seen): &(Discipline, Seen)| {
        let point = |(number, bucket): (usize, &Bucket)| {
            ((number as u64 * BUCKET_NANOS) as f64 / 1e6, value(bucket))
        };
        let points = seen.graces.buckets.iter().enumerate().map(point).collect();
        Line { name: discipline.scheme().name().to_owned(), points }
    };
    row.seen.iter().map(line).collect()
}

fn draw(title: &str, axis: (&str, &str), lines: &[Line]) -> Plot {
    let points = || lines.iter().flat_map(|line| &line.points);
    let axes = Axes {
        title,
        x: axis.0,
        y: axis.1,
        x_max: points().map(|(x, _)| *x).fold(0.0, f64::max),
        y_max: points().map(|(_, y)| *y).fold(0.0, f64::max).ceil(),
        marks: &[],
    };
    plot::lines(&axes, lines)
}

fn over_time(row: &Row) -> Plot {
    let lines = lines_over_time(row, |bucket| bucket.grace_max as f64 / 1e6);
    let axis = ("time, ms", "longest wait seen in 4 ms, ms");
    draw("Grace periods before, in and after a flood", axis, &lines)
}

fn rounds_over_time(row: &Row) -> Plot {
    let lines = lines_over_time(row, |bucket| bucket.rounds as f64);
    draw("Rounds before, in and after a flood", ("time, ms", "rounds in 4 ms"), &lines)
}

fn over_load(rows: &[Row]) -> Plot {
    let below = || rows.iter().filter(|row| row.load < 1.0);
    let line = |(number, discipline): (usize, Discipline)| {
        let p99 = |row: &Row| {
            let seen = row.seen.get(number)?;
            Some((100.0 * row.load, micros(seen.1.graces.per_mille(990)) / 1000.0))
        };
        let name = discipline.scheme().name().to_owned();
        Line { name, points: below().filter_map(p99).collect() }
    };
    let lines: Vec<_> = Discipline::ALL.into_iter().enumerate().map(line).collect();
    let axis = ("load, % of what a worker can do", "99th percentile, ms");
    draw("Grace periods by load", axis, &lines)
}
