//! `fib-gc`: what one collection of expired routes visits, and how long that takes.
//!
//! Source: Kui-Feng Lee, "Remove expired routes with a separated list of routes" (July 2023). A
//! table has P permanent routes, T that can expire of which E have, and X that own an exception
//! (`baselines/gc_list.rs`); one collection is counted and timed. Ours is the product's table. The
//! claims are about counts; times are what this machine took, for a table of their own.

use core::net::Ipv6Addr;
use core::time::Duration;
use std::time;

use floodwall_base::{HashKey, IfIndex, Instant, Prefix};
use floodwall_fib::{Fib, FibConfig, Route};
use serde::Deserialize;

use crate::baselines::gc_list::{Collector, Entry, Table as Kernel};
use crate::error::LabError;
use crate::experiments::Experiment;
use crate::measure::Measured;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::table::Table;

/// See the file's head.
#[derive(Clone, Copy, Debug, Default)]
pub struct FibGc;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hold {
    /// How many routes a step of ours removes at most.
    step: usize,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Amount {
    permanent: Vec<u32>,
    temporary: Vec<u32>,
    expired: Vec<u32>,
    exceptions: Vec<u32>,
}

/// One row: permanent routes, routes that can expire, those that have, those with exceptions.
#[derive(Clone, Copy, Debug)]
struct Row {
    permanent: u32,
    temporary: u32,
    expired: u32,
    exceptions: u32,
}

/// What one collection did.
#[derive(Clone, Copy, Debug, Default)]
struct Collection {
    visited: usize,
    removed: usize,
    nanos: u128,
    longest_step_nanos: u128,
}

const START: Instant = Instant::from_nanos(1_000_000_000_000);
/// When the expired ones end, when the others do, and when is collected.
const SOON: Duration = Duration::from_secs(2);
const LATE: Duration = Duration::from_secs(86_400);
const NOW: Duration = Duration::from_secs(5);

impl Experiment for FibGc {
    fn name(&self) -> &'static str {
        "fib-gc"
    }

    fn run(
        &self,
        plan: &Plan,
        amount: &toml::Table,
        _seed: u64,
        progress: &mut dyn Progress,
    ) -> Result<Measured, LabError> {
        let hold: Hold = plan.read("hold", &plan.hold)?;
        let amount: Amount = plan.read("full/quick", amount)?;
        let rows = rows(&amount);
        let mut measured = Measured::default();
        let columns = ["P / T / E / X", "tree", "list", "list+exceptions", "floodwall"];
        let mut visits = Table::new("Routes visited: by one collection", &columns);
        let mut times = Table::new("Nanoseconds: of one collection", &columns);
        times.note =
            "times of this machine; ours removes what it visits, frees and publishes".into();
        for (done, row) in rows.iter().enumerate() {
            progress.step("collections", done as u64, rows.len() as u64);
            let Row { permanent, temporary, expired, exceptions } = *row;
            let name = format!("{permanent}-{temporary}-{expired}-{exceptions}");
            let all = [
                ("tree", kernel(Collector::Tree, row)),
                ("list", kernel(Collector::List, row)),
                ("list-exceptions", kernel(Collector::ListWithExceptions, row)),
                ("floodwall", ours(row, hold.step)?),
            ];
            for (variant, collection) in all {
                let metrics = &mut measured.metrics;
                let mut set = |what: &str, value: f64| {
                    metrics.set(format!("{name}/{variant}/{what}"), value);
                };
                let surplus = collection.visited as f64 - f64::from(expired);
                set("visited", collection.visited as f64);
                set("visited-beyond-due", surplus);
                set("left-undone", f64::from(expired) - collection.removed as f64);
                set("nanos", collection.nanos as f64);
                set("longest-step-nanos", collection.longest_step_nanos as f64);
            }
            let title = format!("{permanent} / {temporary} / {expired} / {exceptions}");
            let cells = |of: &dyn Fn(&Collection) -> String| {
                core::iter::once(title.clone())
                    .chain(all.iter().map(|(_, c)| of(c)))
                    .collect::<Vec<_>>()
            };
            visits.row(cells(&|c| c.visited.to_string()));
            times.row(cells(&|c| c.nanos.to_string()));
        }
        measured.tables = vec![visits, times];
        Ok(measured)
    }
}

fn rows(amount: &Amount) -> Vec<Row> {
    let mut rows = Vec::new();
    for &permanent in &amount.permanent {
        for &temporary in &amount.temporary {
            for &expired in amount.expired.iter().filter(|expired| **expired <= temporary) {
                for &exceptions in amount.exceptions.iter().filter(|n| **n <= permanent) {
                    rows.push(Row { permanent, temporary, expired, exceptions });
                }
            }
        }
    }
    rows
}

fn kernel(collector: Collector, row: &Row) -> Collection {
    let mut table = Kernel::new(collector);
    for n in 0..row.permanent {
        table.add(Entry { expires: None, owns_exception: n < row.exceptions });
    }
    for n in 0..row.temporary {
        let end = if n < row.expired { SOON } else { LATE };
        let expires = Some((START + end).as_nanos());
        table.add(Entry { expires, owns_exception: false });
    }
    let now = (START + NOW).as_nanos();
    let ((visited, removed), nanos) = timed(|| table.collect(now));
    Collection { visited, removed, nanos, longest_step_nanos: nanos }
}

fn ours(row: &Row, step: usize) -> Result<Collection, LabError> {
    let all = (row.permanent + row.temporary) as usize;
    let config = FibConfig::for_routes(all);
    let mut fib = Fib::<Ipv6Addr>::alone(config, HashKey::new(1, 2), START);
    let refused = |error: floodwall_fib::RouteError| LabError::Plan {
        plan: "fib-gc".to_owned(),
        what: error.to_string(),
    };
    for n in 0..row.permanent + row.temporary {
        let bits = 0x2001_0db8_u128 << 96 | u128::from(n) << 64;
        let Some(prefix) = Prefix::new(Ipv6Addr::from_bits(bits), 64) else { continue };
        let nth = n.checked_sub(row.permanent);
        let end = nth.map(|n| START + if n < row.expired { SOON } else { LATE });
        let route = Route { expires: end, ..Route::on_link(prefix, IfIndex(1 + (n % 60) as u16)) };
        fib.add(route, START).map_err(refused)?;
    }
    let (before, now) = (fib.len(), START + NOW);
    let mut collection = Collection::default();
    loop {
        let (visited, nanos) = timed(|| {
            let visited = fib.collect(now, step);
            fib.publish(now);
            visited
        });
        collection.visited += visited;
        collection.nanos += nanos;
        collection.longest_step_nanos = collection.longest_step_nanos.max(nanos);
        if visited < step {
            break;
        }
    }
    collection.removed = before - fib.len();
    Ok(collection)
}

#[expect(clippy::disallowed_methods, reason = "an experiment measures time")]
fn timed<T>(act: impl FnOnce() -> T) -> (T, u128) {
    let before = time::Instant::now();
    let done = act();
    (done, before.elapsed().as_nanos())
}
