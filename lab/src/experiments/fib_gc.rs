//! `fib-gc`: what one collection of expired routes visits, and how long that takes.
//!
//! Source: Kui-Feng Lee, "Remove expired routes with a separated list of routes" (July 2023). A
//! table has P permanent routes, T that can expire of which E have, and X that own an exception
//! (`baselines/gc_list.rs`); one collection is counted and timed. Ours is the product's table, with
//! another thread looking up all the while; additions and deletions are made by the one writer,
//! between two steps. The claims are about counts; times are what this machine took, for a table of
//! their own.

use core::net::Ipv6Addr;
use core::time::Duration;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::{thread, time};

use floodwall_base::{HashKey, IfIndex, Instant, Prefix};
use floodwall_fib::{Fib, FibConfig, FibReader, Route, RouteError, Selector};
use floodwall_sync::qsbr::{Domain, Reader};
use serde::Deserialize;

use crate::baselines::gc_list::{Collector, Entry, Table as Kernel};
use crate::error::LabError;
use crate::experiments::Experiment;
use crate::measure::Measured;
use crate::plan::Plan;
use crate::plot::{Axes, Plot, Series, lines};
use crate::progress::Progress;
use crate::table::Table;

/// The experiment `fib-gc`: what one collection of expired routes visits.
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
    /// Of ours: the longest that an addition and a deletion took between its steps, and what
    /// another thread's look-ups took meanwhile, the median and the longest.
    beside: [u128; 4],
    /// Of ours: the median of steps that find nothing due.
    idle_nanos: u128,
}

/// Steps that find nothing due, of which the median is reported.
const IDLE_STEPS: usize = 1001;

/// What is done beside a collection of ours.
const BESIDE: [&str; 4] =
    ["add-nanos", "delete-nanos", "lookup-median-nanos", "lookup-longest-nanos"];
/// Look-ups of which the times are kept; of what comes behind them only the longest counts.
const LOOKED_MAX: usize = 100_000;

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
        let columns = [
            "P / T / E / X",
            "step with nothing due, median",
            "longest step",
            "longest addition",
            "deletion",
            "another thread's look-up, median",
            "longest",
        ];
        let mut beside =
            Table::new("Nanoseconds: what others wait for while ours collects", &columns);
        let mut drawn = Vec::new();
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
                if variant == "floodwall" {
                    let pairs = BESIDE.iter().zip(collection.beside);
                    pairs.for_each(|(what, nanos)| set(what, nanos as f64));
                    set("idle-step-median-nanos", collection.idle_nanos as f64);
                }
            }
            drawn.push((*row, all.map(|(_, collection)| collection)));
            let title = format!("{permanent} / {temporary} / {expired} / {exceptions}");
            let cells = |of: &dyn Fn(&Collection) -> String| {
                core::iter::once(title.clone())
                    .chain(all.iter().map(|(_, c)| of(c)))
                    .collect::<Vec<_>>()
            };
            visits.row(cells(&|c| c.visited.to_string()));
            times.row(cells(&|c| c.nanos.to_string()));
            let [.., (_, ours)] = &all;
            let steps = [ours.idle_nanos, ours.longest_step_nanos];
            let waits = steps.into_iter().chain(ours.beside);
            beside.row([title].into_iter().chain(waits.map(|nanos| nanos.to_string())));
        }
        measured.tables = vec![visits, times, beside];
        measured.plots = vec![
            ("by-permanent.svg".to_owned(), by_permanent(&drawn)),
            ("by-unexpired.svg".to_owned(), by_unexpired(&drawn)),
        ];
        Ok(measured)
    }
}

type Drawn = (Row, [Collection; 4]);
const VARIANTS: [&str; 4] =
    ["walk of the tree", "list (July 2023)", "list with exceptions (today's)", "ours"];

/// Routes visited as permanent ones grow, with one that expired, and all exceptions there are.
fn by_permanent(drawn: &[Drawn]) -> Plot {
    let most = drawn.iter().map(|(row, _)| row.exceptions).max().unwrap_or(0);
    let wanted = |row: &Row| (row.temporary, row.expired, row.exceptions) == (1, 1, most);
    // The source's own range, where there is more than that.
    let within = |row: &Row| row.permanent <= 9000;
    picture(
        drawn,
        |row| wanted(row) && within(row),
        |row| row.permanent,
        ("One route of all expired: routes that a collection visits", "permanent routes"),
    )
}

/// The same as those grow that can expire and have not.
fn by_unexpired(drawn: &[Drawn]) -> Plot {
    let least = drawn.iter().map(|(row, _)| row.permanent).min().unwrap_or(0);
    picture(
        drawn,
        |row| (row.permanent, row.expired, row.exceptions) == (least, 1, 0),
        |row| row.temporary,
        ("One route of all expired: routes that a collection visits", "routes that can expire"),
    )
}

fn picture(
    drawn: &[Drawn],
    wanted: impl Fn(&Row) -> bool,
    across: impl Fn(&Row) -> u32,
    (title, x): (&str, &str),
) -> Plot {
    let chosen: Vec<&Drawn> = drawn.iter().filter(|(row, _)| wanted(row)).collect();
    let series: Vec<Series> = VARIANTS
        .iter()
        .enumerate()
        .map(|(at, name)| {
            let visited = |all: &[Collection; 4]| all.get(at).map_or(0, |c| c.visited) as f64;
            let points = chosen.iter().map(|(row, all)| (f64::from(across(row)), visited(all)));
            Series { name: (*name).to_owned(), points: points.collect() }
        })
        .collect();
    let greatest = |of: fn(&(f64, f64)) -> f64| {
        let all = series.iter().flat_map(|one| one.points.iter().map(of));
        all.fold(1.0, f64::max)
    };
    let (x_max, y_max) = (greatest(|point| point.0), greatest(|point| point.1));
    let axes = Axes { title, x, y: "routes visited", x_max, y_max, marks: &[] };
    lines(&axes, &series)
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
    Collection { visited, removed, nanos, longest_step_nanos: nanos, ..Collection::default() }
}

fn ours(row: &Row, step: usize) -> Result<Collection, LabError> {
    let all = (row.permanent + row.temporary) as usize;
    let config = FibConfig::for_routes(all + 1);
    let domain = Domain::new(1);
    let mut fib = Fib::<Ipv6Addr>::new(&domain, config, HashKey::new(1, 2), START);
    let refused =
        |error: RouteError| LabError::Plan { plan: "fib-gc".to_owned(), what: error.to_string() };
    for n in 0..row.permanent + row.temporary {
        let bits = 0x2001_0db8_u128 << 96 | u128::from(n) << 64;
        let Some(prefix) = Prefix::new(Ipv6Addr::from_bits(bits), 64) else { continue };
        let nth = n.checked_sub(row.permanent);
        let end = nth.map(|n| START + if n < row.expired { SOON } else { LATE });
        let route = Route { expires: end, ..Route::on_link(prefix, IfIndex(1 + (n % 60) as u16)) };
        fib.add(route, START).map_err(refused)?;
    }
    fib.publish(START);
    let before = fib.len();
    let (looks, goes) = (AtomicBool::new(false), AtomicBool::new(true));
    let Ok(reader) = domain.reader() else { return Ok(Collection::default()) };
    let seen = fib.reader();
    let mut collection = thread::scope(|scope| {
        let looker = scope.spawn(|| look(reader, &seen, &looks, &goes));
        while !looks.load(Relaxed) {
            thread::yield_now();
        }
        let collected = collect(&mut fib, step);
        goes.store(false, Relaxed);
        let looked = looker.join().unwrap_or_default();
        collected.map(|collection| {
            let [add, delete, ..] = collection.beside;
            Collection { beside: [add, delete, looked[0], looked[1]], ..collection }
        })
    })
    .map_err(refused)?;
    collection.removed = before - fib.len();
    Ok(collection)
}

/// One collection, in steps, with a route that comes and goes between any two.
fn collect(fib: &mut Fib<Ipv6Addr>, step: usize) -> Result<Collection, RouteError> {
    let (now, mut collection) = (START + NOW, Collection::default());
    loop {
        let (visited, nanos) = timed(|| {
            let visited = fib.collect(now, step);
            fib.publish(now);
            visited
        });
        collection.visited += visited;
        collection.nanos += nanos;
        collection.longest_step_nanos = collection.longest_step_nanos.max(nanos);
        beside(fib, now, &mut collection.beside)?;
        if visited < step {
            break;
        }
    }
    let mut idle: Vec<u128> = (0..IDLE_STEPS)
        .map(|_| {
            let (visited, nanos) = timed(|| {
                let visited = fib.collect(now, step);
                fib.publish(now);
                visited
            });
            collection.visited += visited;
            nanos
        })
        .collect();
    idle.sort_unstable();
    collection.idle_nanos = idle.get(IDLE_STEPS / 2).copied().unwrap_or(0);
    Ok(collection)
}

/// Looks up the first routes in turn until it is stopped: the median and the longest time.
fn look(
    mut reader: Reader,
    seen: &FibReader<Ipv6Addr>,
    looks: &AtomicBool,
    goes: &AtomicBool,
) -> [u128; 2] {
    let now = START + NOW;
    let (mut times, mut longest, mut n) = (Vec::with_capacity(LOOKED_MAX), 0, 0_u128);
    while goes.load(Relaxed) || times.is_empty() {
        let addr = Ipv6Addr::from_bits(0x2001_0db8_u128 << 96 | (n % 1000) << 64);
        let (_, nanos) = timed(|| std::hint::black_box(seen.lookup(reader.view(), addr, now)));
        reader.quiescent(now);
        // The first find nothing in the caches, and no collection runs yet.
        if n > 1000 {
            longest = nanos.max(longest);
            if times.len() < LOOKED_MAX {
                times.push(nanos);
            }
        }
        n += 1;
        looks.store(n > 1000, Relaxed);
    }
    times.sort_unstable();
    [times.get(times.len() / 2).copied().unwrap_or(0), longest]
}

/// A route comes and goes, as between any two steps; keeps the longest of each.
fn beside(
    fib: &mut Fib<Ipv6Addr>,
    now: Instant,
    longest: &mut [u128; 4],
) -> Result<(), RouteError> {
    let addr = Ipv6Addr::new(0x2001, 0xdb9, 0, 0, 0, 0, 0, 1);
    let Some(prefix) = Prefix::new(addr, 128) else { return Ok(()) };
    let route = Route::on_link(prefix, IfIndex(1));
    let (added, add) = timed(|| {
        let added = fib.add(route, now);
        fib.publish(now);
        added
    });
    added?;
    let (gone, delete) = timed(|| {
        let gone = fib.delete(&Selector::to(prefix), now);
        fib.publish(now);
        gone
    });
    gone?;
    longest.iter_mut().zip([add, delete]).for_each(|(most, one)| *most = one.max(*most));
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "an experiment measures time")]
fn timed<T>(act: impl FnOnce() -> T) -> (T, u128) {
    let before = time::Instant::now();
    let done = act();
    (done, before.elapsed().as_nanos())
}
