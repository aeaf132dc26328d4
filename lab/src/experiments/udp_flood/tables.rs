//! What `udp-flood` found as numbers, tables in the source's buckets, and pictures.
//!
//! Called by `udp_flood.rs`. Names of numbers: `model/nodes/design-counters/what`,
//! `threads/producers/queue/what`, `goodput/flood/family/what`.

use floodwall_base::Family;

use super::histogram::{Histogram, NAMES};
use super::threads::{Kind, Offer, Turn};
use super::{Findings, FloodRow, ModelRow, ThreadRow};
use crate::measure::{Measured, Metrics};
use crate::plot::{self, Axes, Plot, Series};
use crate::table::Table;

/// Everything that was found.
pub(super) fn measured(found: &Findings) -> Measured {
    let mut measured = Measured::default();
    let metrics = &mut measured.metrics;
    found.model.iter().for_each(|row| of_model(metrics, row));
    of_threads(metrics, &found.threads);
    found.floods.iter().for_each(|row| of_flood(metrics, row));
    measured.tables = vec![
        rates(&found.model),
        buckets(&found.model),
        queues(&found.threads),
        thread_buckets(&found.threads),
        goodput(&found.floods),
    ];
    measured.plots = vec![("enqueue.svg".to_owned(), picture(&found.model))];
    measured
}

fn label(row: &ModelRow) -> String {
    format!("{}-{}", row.design.name(), row.counters.name())
}

fn of_model(metrics: &mut Metrics, row: &ModelRow) {
    let name = format!("model/{}/{}", row.nodes, label(row));
    let mut set = |what: &str, value: f64| metrics.set(format!("{name}/{what}"), value);
    let outcome = &row.outcome;
    let refused = outcome.refused.max(1) as f64;
    set("below-2us", outcome.enqueue.below_2us());
    set("p99-ns", outcome.enqueue.percentile(0.99));
    set("delivered-per-second", outcome.delivered as f64 / row.seconds);
    set("refused-per-second", outcome.refused as f64 / row.seconds);
    if outcome.refused > 0 {
        set("nanos-per-refusal", outcome.refusing as f64 / refused);
        set("locks-per-refusal", outcome.locks as f64 / refused);
        set("shared-writes-per-refusal", outcome.shared_writes as f64 / refused);
    }
    set("overshoot", outcome.overshoot as f64);
}

/// The middle one of its turns.
fn median(turns: &[Turn], of: impl Fn(&Turn) -> f64) -> f64 {
    let mut all: Vec<f64> = turns.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

fn delivered(turn: &Turn) -> f64 {
    turn.delivered as f64 / turn.seconds
}

/// So many turns say something of time.
const TURNS_MIN: usize = 5;

/// Datagrams that the reader got for a second of its processor.
fn for_a_second(turn: &Turn) -> f64 {
    turn.delivered as f64 / turn.reader_seconds.max(1e-9)
}

fn of_threads(metrics: &mut Metrics, rows: &[ThreadRow]) {
    // The median of a few turns shows what else the machine was doing.
    let enough = rows.iter().all(|row| row.turns.len() >= TURNS_MIN);
    metrics.set("threads/long-enough", f64::from(u8::from(enough)));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for row in rows.iter().filter(|row| row.offer == Offer::AllThatCan) {
        let at = |kind: Kind, offer: Offer| {
            rows.iter().find(|r| (r.kind, r.producers, r.offer) == (kind, row.producers, offer))
        };
        let name = format!("threads/{}/{}", row.producers, row.kind.name());
        let mut set = |what: &str, value: f64| metrics.set(format!("{name}/{what}"), value);
        let p99 = |turn: &Turn| turn.enqueue.percentile(0.99);
        set("p99-ns", median(&row.turns, p99));
        set("delivered-per-second", median(&row.turns, delivered));
        let sum = |of: fn(&Turn) -> u64| row.turns.iter().map(of).sum::<u64>();
        let refused = sum(|turn| turn.refused).max(1) as f64;
        set("locks-per-refusal", sum(|turn| turn.refusals.locks) as f64 / refused);
        let writes = sum(|turn| turn.refusals.shared_writes) as f64;
        set("shared-writes-per-refusal", writes / refused);
        set("overshoot", row.turns.iter().map(|turn| turn.overshoot).max().unwrap_or(0) as f64);
        set("lost", row.turns.iter().map(|turn| turn.lost.unsigned_abs()).sum::<u64>() as f64);
        set("charged-at-the-end", sum(|turn| turn.charged) as f64);
        let mine = median(&row.turns, for_a_second);
        set("delivered-for-a-second", mine);
        if let Some(half) = at(row.kind, Offer::HalfOfWhatIsRead) {
            set("delivered-over-unloaded", mine / median(&half.turns, for_a_second));
        }
        if let Some(rings) = at(Kind::RtrbEach, Offer::AllThatCan) {
            let theirs = median(&rings.turns, for_a_second);
            set("delivered-for-a-second-over-rtrb", mine / theirs);
            set("p99-over-rtrb", median(&row.turns, p99) / median(&rings.turns, p99));
            let theirs = median(&rings.turns, delivered);
            set("delivered-over-rtrb", median(&row.turns, delivered) / theirs);
        }
        // Threads that wait for each other's core measure the scheduler.
        let enough = f64::from(u8::from(cores > row.producers + 1));
        metrics.set(format!("threads/{}/enough-cores", row.producers), enough);
    }
}

const fn family(family: Family) -> &'static str {
    match family {
        Family::V4 => "ipv4",
        Family::V6 => "ipv6",
    }
}

fn of_flood(metrics: &mut Metrics, row: &FloodRow) {
    let fair = if row.fair_drop { "fair" } else { "drop-tail" };
    let name = format!("goodput/{}/{}/{fair}", row.flood.name(), family(row.family));
    let mut set = |what: &str, value: f64| metrics.set(format!("{name}/{what}"), value);
    set("honest", row.goodput.honest);
    set("answered", row.goodput.answered);
    set("innocent", row.goodput.innocent);
    set("read", row.goodput.read);
}

fn rates(rows: &[ModelRow]) -> Table {
    let columns = [
        "design",
        "delivered/s",
        "refused/s",
        "below 2 us, %",
        "p99, ns",
        "ns a refusal",
        "shared writes a refusal",
    ];
    let mut table = Table::new("Model: rates on six memory nodes", &columns);
    for row in rows.iter().filter(|row| row.nodes == 6) {
        let outcome = &row.outcome;
        let refused = outcome.refused.max(1) as f64;
        table.row([
            label(row),
            format!("{:.0}", outcome.delivered as f64 / row.seconds),
            format!("{:.0}", outcome.refused as f64 / row.seconds),
            format!("{:.1}", outcome.enqueue.below_2us()),
            format!("{:.0}", outcome.enqueue.percentile(0.99)),
            format!("{:.0}", outcome.refusing as f64 / refused),
            format!("{:.2}", outcome.shared_writes as f64 / refused),
        ]);
    }
    table.note = "a model: what a line costs that crosses nodes is the plan's `far`, from the \
                  source's own bottleneck; locks are fair, so the busylock's times are narrower \
                  than the source's"
        .to_owned();
    table
}

fn row_of(name: String, histogram: &Histogram) -> Vec<String> {
    let all = histogram.count().max(1) as f64;
    let share = |count: &u64| format!("{:.2} %", 100.0 * *count as f64 / all);
    core::iter::once(name).chain(histogram.source.iter().map(share)).collect()
}

fn bucket_columns() -> Vec<&'static str> {
    core::iter::once("design").chain(NAMES).collect()
}

fn buckets(rows: &[ModelRow]) -> Table {
    let title = "Model's enqueue: microseconds, share of all, on six memory nodes";
    let mut table = Table::new(title, &bucket_columns());
    for row in rows.iter().filter(|row| row.nodes == 6) {
        table.row(row_of(label(row), &row.outcome.enqueue));
    }
    table
}

fn queues(rows: &[ThreadRow]) -> Table {
    let columns = [
        "queue",
        "producers",
        "p50, ns",
        "p99, ns",
        "p99.9, ns",
        "delivered/s",
        "refused/s",
        "delivered a reader's CPU s",
        "with half of that offered",
    ];
    let mut table = Table::new("Real threads: one enqueue, and what was read", &columns);
    let unloaded = |row: &ThreadRow| {
        let alike = |r: &&ThreadRow| (r.kind, r.producers) == (row.kind, row.producers);
        let half = rows.iter().filter(alike).find(|r| r.offer == Offer::HalfOfWhatIsRead);
        half.map_or(f64::NAN, |half| median(&half.turns, for_a_second))
    };
    for row in rows.iter().filter(|row| row.offer == Offer::AllThatCan) {
        let of = |share| median(&row.turns, move |turn| turn.enqueue.percentile(share));
        table.row([
            row.kind.name().to_owned(),
            row.producers.to_string(),
            format!("{:.0}", of(0.5)),
            format!("{:.0}", of(0.99)),
            format!("{:.0}", of(0.999)),
            format!("{:.0}", median(&row.turns, delivered)),
            format!("{:.0}", median(&row.turns, |turn| turn.refused as f64 / turn.seconds)),
            format!("{:.0}", median(&row.turns, for_a_second)),
            format!("{:.0}", unloaded(row)),
        ]);
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    table.note = format!("medians of turns; {cores} cores; memory nodes emulated by producers");
    table
}

fn thread_buckets(rows: &[ThreadRow]) -> Table {
    let title = "Real threads' enqueue: microseconds, share of all, most producers";
    let mut table = Table::new(title, &bucket_columns());
    let most = rows.iter().map(|row| row.producers).max().unwrap_or(0);
    let loaded = |row: &&ThreadRow| row.producers == most && row.offer == Offer::AllThatCan;
    for row in rows.iter().filter(loaded) {
        let mut all = Histogram::default();
        row.turns.iter().for_each(|turn| all.merge(&turn.enqueue));
        table.row(row_of(row.kind.name().to_owned(), &all));
    }
    table
}

fn goodput(rows: &[FloodRow]) -> Table {
    let columns = ["flood", "unverified", "answered peers", "innocent socket", "reader busy"];
    let mut table =
        Table::new("Goodput: honest datagrams read, at ten times the capacity", &columns);
    for row in rows {
        let fair = if row.fair_drop { "fair" } else { "drop-tail" };
        let percent = |value: f64| format!("{value:.1} %");
        table.row([
            format!("{}, {}, {fair}", row.flood.name(), family(row.family)),
            percent(row.goodput.honest),
            percent(row.goodput.answered),
            percent(row.goodput.innocent),
            percent(row.goodput.read),
        ]);
    }
    table
}

/// Shares of enqueues within so many microseconds.
fn picture(rows: &[ModelRow]) -> Plot {
    let ends = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];
    let series: Vec<Series> = rows
        .iter()
        .filter(|row| row.nodes == 6)
        .map(|row| {
            let all = row.outcome.enqueue.count().max(1) as f64;
            let mut sum = 0;
            let within = row.outcome.enqueue.source.iter().zip(ends).map(|(count, end)| {
                sum += count;
                (end, sum as f64 / all)
            });
            Series { name: label(row), points: within.collect() }
        })
        .collect();
    let title = "Model: enqueues done within, six memory nodes";
    let axes = Axes {
        title,
        x: "microseconds",
        y: "share of enqueues",
        x_max: 64.0,
        y_max: 1.0,
        marks: &[(2.0, "2 us")],
    };
    plot::lines(&axes, &series)
}
