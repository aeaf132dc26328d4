//! What was measured as numbers for claims, as tables beside the source's figures, as pictures.
//!
//! Names of numbers: `<part>/<rate>/<family>/flowlen-<n>/<variant>/<what>` with the parts `source`,
//! `today` and `threads`, and `product/<what>`.

use floodwall_base::Family;

use super::core::{Bucket, Seen};
use super::product::Outcome;
use super::{Run, Variant};
use crate::experiments::grace_period::BUCKET_NANOS;
use crate::measure::{Measured, Metrics};
use crate::plot::{self, Axes, Plot, Series};
use crate::table::Table;

const fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

const fn family(family: Family) -> &'static str {
    match family {
        Family::V4 => "ipv4",
        Family::V6 => "ipv6",
    }
}

/// A grace period that is long enough to be seen among buckets: the source's are up to 300 ms.
const SPIKE: u64 = 10 * BUCKET_NANOS;

/// Everything for the frame.
pub(super) fn measured(runs: &[Run], product: &Outcome, threads: Option<bool>) -> Measured {
    let mut metrics = Metrics::default();
    for run in runs {
        numbers(&mut metrics, run, runs);
    }
    // Other seeds say nothing of threads.
    if let Some(threads) = threads {
        metrics.set("threads/measured", f64::from(u8::from(threads)));
    }
    of_product(&mut metrics, product);
    let mut tables = Vec::new();
    for (part, title) in [
        ("source", "Source: its machine in virtual time"),
        ("today", "Today: a core by the cost table, in virtual time"),
        ("threads", "Threads: real ones, this machine"),
    ] {
        tables.extend(table(part, title, runs));
    }
    tables.push(product_table(product));
    let plots = PICTURES.iter().map(|Picture { file, title, axis, value }| {
        ((*file).to_owned(), picture(runs, title, axis, value))
    });
    let plots = plots.collect();
    Measured { metrics, tables, plots }
}

/// What of each 4 ms is drawn.
struct Picture {
    file: &'static str,
    title: &'static str,
    axis: &'static str,
    value: fn(&Bucket) -> f64,
}

const PICTURES: [Picture; 6] = [
    Picture {
        file: "grace-over-time.svg",
        title: "Longest grace period in 4 ms",
        axis: "ms",
        value: |bucket| millis(bucket.grace_max),
    },
    Picture {
        file: "rounds-over-time.svg",
        title: "Handlers in 4 ms",
        axis: "handlers",
        value: |bucket| bucket.rounds as f64,
    },
    Picture {
        file: "waiting-over-time.svg",
        title: "Entries that wait to be freed",
        axis: "entries",
        value: |bucket| bucket.waiting as f64,
    },
    Picture {
        file: "overflow-over-time.svg",
        title: "Packets lost to the overflow in 4 ms",
        axis: "packets",
        value: |bucket| bucket.overflow as f64,
    },
    Picture {
        file: "forwarded-over-time.svg",
        title: "Packets forwarded in 4 ms",
        axis: "packets",
        value: |bucket| bucket.forwarded as f64,
    },
    Picture {
        file: "gap-over-time.svg",
        title: "The program without the core, longest in 4 ms",
        axis: "ms",
        value: |bucket| millis(bucket.gap_max),
    },
];

fn name(run: &Run) -> String {
    let Run { part, rate, flowlen, variant, .. } = run;
    let rate = if *part == "threads" { "all".to_owned() } else { rate.to_string() };
    format!("{part}/{rate}/{}/flowlen-{flowlen}/{}", family(run.family), variant.name())
}

fn numbers(metrics: &mut Metrics, run: &Run, all: &[Run]) {
    let (name, seen) = (name(run), &run.seen);
    let mut set = |what: &str, value: f64| metrics.set(format!("{name}/{what}"), value);
    set("grace-max-ms", millis(seen.grace_max));
    set("passes-max", seen.passes_max as f64);
    set("waiting-max", seen.waiting_max as f64);
    set("entries-max", seen.entries_max as f64);
    set("overflow", seen.overflow as f64);
    set("made", seen.made as f64);
    set("retired", seen.retired as f64);
    set("forwarded", seen.forwarded as f64);
    let outcomes = seen.ring_full + seen.overflow + seen.forwarded;
    set("lost-without-a-name", seen.offered.abs_diff(outcomes + waiting_in_ring(seen)) as f64);
    set("app-share", seen.app_share());
    set("app-gap-max-ms", millis(seen.gap_max));
    set("forwarded-last-over-first", last_over_first(seen, run));
    if let Some(share) = spikes_with_rounds(&seen.buckets) {
        set("spikes-with-rounds", share);
    }
    if let Some(ratio) = waiting_over_product(&seen.buckets) {
        set("waiting-over-product", ratio);
    }
    let same = |other: &&Run| {
        (other.part, other.rate, other.family, other.flowlen)
            == (run.part, run.rate, run.family, run.flowlen)
    };
    let of = |variant| all.iter().filter(same).find(|other| other.variant == variant);
    if let (Variant::FourCallbacks, Some(idle)) = (run.variant, of(Variant::QuiescentWhenIdle)) {
        let ratio = seen.grace_max as f64 / (idle.seen.grace_max as f64).max(1.0);
        set("shorter-percent", 100.0 * (1.0 - ratio));
    }
    if let (Variant::Stateless, Some(cached)) = (run.variant, of(Variant::Balanced)) {
        let ratio = seen.forwarded as f64 / (cached.seen.forwarded as f64).max(1.0);
        set("forwarded-over-balanced", ratio);
    }
    if let (Variant::PerHandler, Some(idle)) = (run.variant, of(Variant::QuiescentWhenIdle)) {
        let ratio = idle.seen.grace_max as f64 / (seen.grace_max as f64).max(1.0);
        set("idle-over-this", ratio);
    }
}

/// What is in the ring when a run ends.
const fn waiting_in_ring(seen: &Seen) -> u64 {
    let gone = seen.ring_full + seen.handled;
    seen.offered.saturating_sub(gone)
}

/// What was forwarded in the floods' last tenth, to their first.
fn last_over_first(seen: &Seen, run: &Run) -> f64 {
    let flooded: Vec<u64> = seen
        .buckets
        .iter()
        .enumerate()
        .filter(|(number, _)| {
            let from = *number as u64 * BUCKET_NANOS;
            let inside = |(a, b): &(u64, u64)| *a <= from && from + BUCKET_NANOS <= *b;
            run.traffic.floods.iter().any(inside)
        })
        .map(|(_, bucket)| bucket.forwarded)
        .collect();
    let tenth = (flooded.len() / 10).max(1);
    let first: u64 = flooded.iter().take(tenth).sum();
    let last: u64 = flooded.iter().rev().take(tenth).sum();
    last as f64 / (first as f64).max(1.0)
}

/// Of the 4 ms in which grace periods were long, the part in which more handlers ran than in the
/// middle one of the others; `None` where none was long, or all were.
fn spikes_with_rounds(buckets: &[Bucket]) -> Option<f64> {
    let is_spike = |bucket: &&Bucket| bucket.grace_max >= SPIKE;
    let mut others: Vec<u64> =
        buckets.iter().filter(|b| !is_spike(b)).map(|bucket| bucket.rounds).collect();
    others.sort_unstable();
    let middle = *others.get(others.len() / 2)?;
    let spikes = buckets.iter().filter(is_spike).count();
    let busy = buckets.iter().filter(is_spike).filter(|b| b.rounds > middle).count();
    (spikes > 0).then(|| busy as f64 / spikes as f64)
}

/// How many entries waited, to the age of the oldest times the rate at which new destinations took
/// the places of others meanwhile: over all 4 ms before the cache overflows for the first time.
fn waiting_over_product(buckets: &[Bucket]) -> Option<f64> {
    let (mut waited, mut product) = (0.0, 0.0);
    let before: Vec<&Bucket> = buckets.iter().take_while(|bucket| bucket.overflow == 0).collect();
    for (number, bucket) in before.iter().enumerate() {
        let back = (bucket.grace_max / BUCKET_NANOS) as usize;
        let Some(first) = number.checked_sub(back).and_then(|at| before.get(at)) else { continue };
        if back < 2 || bucket.waiting == 0 {
            continue;
        }
        let retired = bucket.retired.saturating_sub(first.retired);
        let rate = retired as f64 / (back as f64 * BUCKET_NANOS as f64);
        waited += bucket.waiting as f64;
        product += bucket.grace_max as f64 * rate;
    }
    (product > 0.0).then(|| waited / product)
}

fn of_product(metrics: &mut Metrics, product: &Outcome) {
    let mut set = |what: &str, value: f64| metrics.set(format!("product/{what}"), value);
    set("offered", product.offered as f64);
    set("taken", product.taken as f64);
    set("forwarded", product.forwarded as f64);
    set("forwarded-of-taken", product.forwarded as f64 / (product.taken as f64).max(1.0));
    set("rate", product.rate);
    set("app-share", product.app_share);
    set("app-gap-max-ms", millis(product.app_gap.as_nanos() as u64));
    set("state", product.state as f64);
}

fn table(part: &str, title: &str, runs: &[Run]) -> Option<Table> {
    let columns = [
        "packets a second, family, flowlen, variant",
        "longest grace period, ms",
        "passes",
        "entries waiting",
        "entries made",
        "overflow",
        "ring full",
        "forwarded",
        "program's share",
        "its longest gap, ms",
    ];
    let mut table = Table::new(title, &columns);
    for run in runs.iter().filter(|run| run.part == part) {
        let seen = &run.seen;
        let mut name = name(run).replace('/', " ");
        if let Some((_, rest)) = name.split_once(' ') {
            name = rest.to_owned();
        }
        table.row([
            name,
            format!("{:.3}", millis(seen.grace_max)),
            seen.passes_max.to_string(),
            seen.waiting_max.to_string(),
            seen.made.to_string(),
            seen.overflow.to_string(),
            seen.ring_full.to_string(),
            seen.forwarded.to_string(),
            format!("{:.2}", seen.app_share()),
            format!("{:.1}", millis(seen.gap_max)),
        ]);
    }
    "longest of a run; passes: the most that an entry waited for, of those freed; the program's \
     share is of the time of the floods; entries waiting: unlinked and not yet freed"
        .clone_into(&mut table.note);
    (!table.rows.is_empty()).then_some(table)
}

fn product_table(product: &Outcome) -> Table {
    let columns = ["offered", "ring full", "taken", "forwarded", "a second", "share", "gap, ms"];
    let mut table =
        Table::new("Product: the whole stack routes the flood, flowlen 1, both families", &columns);
    table.row([
        product.offered.to_string(),
        product.ring_full.to_string(),
        product.taken.to_string(),
        product.forwarded.to_string(),
        format!("{:.0}", product.rate),
        format!("{:.2}", product.app_share),
        format!("{:.2}", millis(product.app_gap.as_nanos() as u64)),
    ]);
    table.note = format!(
        "virtual time, priced by the cost table; share and gap are those of a program that always \
         wants the core; of all destinations {} left anything behind; {} were dropped at the gate",
        product.state, product.gate
    );
    table
}

/// One line a variant, of the first rate's IPv4 flood on the source's machine.
fn picture(runs: &[Run], title: &str, y: &str, value: impl Fn(&Bucket) -> f64) -> Plot {
    let Some(first) = runs.first() else { return Plot::default() };
    let same = |run: &&Run| {
        (run.part, run.rate, run.family, run.flowlen)
            == (first.part, first.rate, first.family, first.flowlen)
    };
    // Two seconds are enough to see.
    let line = |run: &Run| Series {
        name: run.variant.name().to_owned(),
        points: run
            .seen
            .buckets
            .iter()
            .take(500)
            .enumerate()
            .map(|(number, bucket)| (millis(number as u64 * BUCKET_NANOS), value(bucket)))
            .collect(),
    };
    let lines: Vec<Series> = runs.iter().filter(same).map(line).collect();
    let points = || lines.iter().flat_map(|line| &line.points);
    let axes = Axes {
        title,
        x: "time, ms",
        y,
        x_max: points().map(|(x, _)| *x).fold(0.0, f64::max),
        y_max: points().map(|(_, y)| *y).fold(1.0, f64::max),
        marks: &[],
    };
    plot::lines(&axes, &lines)
}
