//! Rows of `syn-flood` as numbers, tables, and pictures in the form of the source's Figures 2 to 4.
//!
//! Called by `syn_flood.rs`. Names of numbers: `part/row/what`.

use super::Row;
use super::simulated::Outcome;
use crate::measure::{Measured, Metrics};
use crate::plot::{self, Axes, Plot, Series};
use crate::table::Table;

/// Everything that was found.
pub(super) fn measured(rows: &[Row]) -> Measured {
    let mut measured = Measured::default();
    for row in rows {
        numbers(&mut measured.metrics, row);
    }
    knee(&mut measured.metrics, rows);
    measured.tables = vec![source(rows), today(rows)];
    let list = ("figure-2", "The list, by backlog (Figure 2)", 8.0);
    let cache = ("figure-3", "The SYN cache (Figure 3)", 1.2);
    let cookies = ("figure-4", "Cookies (Figure 4)", 1.2);
    let rows_of = |names: &'static [&'static str]| -> Vec<&Row> {
        let all = rows.iter().filter(|row| row.name.starts_with("source/"));
        all.filter(|row| names.iter().any(|name| row.name.contains(name))).collect()
    };
    for (figure, rows) in [
        (list, rows_of(&["source/list-", "source/idle-list"])),
        (cache, rows_of(&["source/list-1024", "idle-", "source/cache"])),
        (cookies, rows_of(&["source/cookies", "source/cache", "source/hybrid"])),
    ] {
        measured.plots.extend(pictures(figure, &rows));
    }
    measured
}

/// A figure of connects, and one of first bytes.
fn pictures((file, title, x_max): (&str, &str, f64), rows: &[&Row]) -> [(String, Plot); 2] {
    let of = [
        (false, "", "milliseconds until connect returned"),
        (true, "-first-byte", "milliseconds until the first byte came"),
    ];
    of.map(|(bytes, suffix, x)| {
        let series = rows.iter().map(|row| {
            let Outcome { connected, first_byte, .. } = &row.outcome;
            cdf(row, if bytes { first_byte } else { connected })
        });
        let axes = Axes { title, x, y: "share of connects", x_max, y_max: 1.0, marks: &[] };
        (format!("{file}{suffix}.svg"), plot::lines(&axes, &series.collect::<Vec<_>>()))
    })
}

/// Where the list stops to keep up with the source's flood: the largest backlog at which hardly a
/// segment in a hundred is lost, and the next one.
fn knee(metrics: &mut Metrics, rows: &[Row]) {
    let lists = rows.iter().filter(|row| row.name.starts_with("source/list-"));
    let mut lists: Vec<_> = lists.collect();
    lists.sort_by_key(|row| row.run.backlog);
    let keeps_up =
        |row: &&Row| (row.outcome.ring_dropped as f64) < 0.01 * row.outcome.flood_in as f64;
    let below = lists.iter().copied().take_while(|row| keeps_up(row)).last();
    let above = lists.iter().copied().find(|row| !keeps_up(row));
    for (name, row) in [("source/knee-below", below), ("source/knee-above", above)] {
        if let Some(row) = row {
            metrics.set(name.to_owned(), row.run.backlog as f64);
        }
    }
}

fn numbers(metrics: &mut Metrics, Row { name, run, outcome }: &Row) {
    let mut set = |what: &str, value: f64| metrics.set(format!("{name}/{what}"), value);
    let grace = run.round_trip + 0.3;
    set("connect-within-trip", 100.0 * Outcome::within(&outcome.connected, grace));
    set("connect-within-500ms", 100.0 * Outcome::within(&outcome.connected, 500.0));
    set("first-byte-within-500ms", 100.0 * Outcome::within(&outcome.first_byte, 500.0));
    set("first-byte-within-3s", 100.0 * Outcome::within(&outcome.first_byte, 3000.0));
    // Connect, ACK and byte: one and a half round trips, two where the client sends first.
    let whole = 2.0 * run.round_trip + 0.3;
    set("first-byte-within-trips", 100.0 * Outcome::within(&outcome.first_byte, whole));
    let ratio = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    if outcome.walked.1 > 0 {
        let each = ratio(outcome.walked.0, outcome.walked.1);
        set("walked-per-syn", each);
        set("walked-of-backlog", each / run.backlog as f64);
    }
    set("walking-share", 100.0 * ratio(outcome.walking, outcome.busy));
    set("busy", 100.0 * ratio(outcome.busy, outcome.elapsed));
    set("left-for-programs", 100.0 - 100.0 * ratio(outcome.busy, outcome.elapsed));
    if run.rate > 0 {
        set("answers-per-flood-syn", ratio(outcome.answers, outcome.flood_in));
        let (heard, said) = outcome.flood_bytes;
        set("bytes-out-per-byte-in", ratio(said, heard));
    }
    // Of the segments that came, hundredths.
    set("ring-dropped", 100.0 * ratio(outcome.ring_dropped, outcome.flood_in));
    set("half-open-max", outcome.half_open_max as f64);
    set("options-lost", outcome.kept.1.saturating_sub(outcome.kept.0) as f64);
}

fn percent(value: f64) -> String {
    format!("{:.1} %", 100.0 * value)
}

fn source(rows: &[Row]) -> Table {
    let columns = ["design", "within 500 ms", "within 300 us", "walked a SYN", "walking", "busy"];
    let mut table = Table::new("Source's machine: honest connects under its flood", &columns);
    for Row { name, outcome, .. } in rows {
        let Some(short) = name.strip_prefix("source/") else { continue };
        let (walked, dropped) = outcome.walked;
        table.row([
            short.to_owned(),
            percent(Outcome::within(&outcome.connected, 500.0)),
            percent(Outcome::within(&outcome.connected, 0.3)),
            format!("{:.0}", walked as f64 / dropped.max(1) as f64),
            percent(outcome.walking as f64 / outcome.busy.max(1) as f64),
            percent(outcome.busy as f64 / outcome.elapsed.max(1) as f64),
        ]);
    }
    table.note =
        "a saturated server here loses what does not fit its ring; interrupts that starve \
                  everything else are not modelled"
            .to_owned();
    table
}

fn today(rows: &[Row]) -> Table {
    let columns = [
        "row",
        "connect, trip + 300 us",
        "first byte, 500 ms",
        "first byte, 3 s",
        "out / in",
        "left for programs",
    ];
    let mut table = Table::new("Today's machine: by rate, round trip, loss", &columns);
    for Row { name, run, outcome } in rows {
        if name.starts_with("source/") {
            continue;
        }
        let within = |times: &[f64], millis| percent(Outcome::within(times, millis));
        table.row([
            name.clone(),
            within(&outcome.connected, run.round_trip + 0.3),
            within(&outcome.first_byte, 500.0),
            within(&outcome.first_byte, 3000.0),
            match outcome.flood_in {
                0 => "-".to_owned(),
                all => format!("{:.2}", outcome.answers as f64 / all as f64),
            },
            percent(1.0 - outcome.busy as f64 / outcome.elapsed.max(1) as f64),
        ]);
    }
    table
}

/// A row's times, sorted: the share that was over by then.
fn cdf(row: &Row, all: &[f64]) -> Series {
    let mut times: Vec<_> = all.iter().copied().filter(|time| time.is_finite()).collect();
    times.sort_by(f64::total_cmp);
    let all = all.len().max(1) as f64;
    let step = (times.len() / 200).max(1);
    let last = times.len().saturating_sub(1);
    let points = times.iter().enumerate().filter(|(n, _)| n % step == 0 || *n == last);
    let points = points.map(|(n, time)| (*time, (n + 1) as f64 / all)).collect();
    Series { name: row.name.trim_start_matches("source/").to_owned(), points }
}
