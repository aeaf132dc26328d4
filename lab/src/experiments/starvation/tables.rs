//! What was found, as numbers, tables and pictures.
//!
//! Called by `starvation.rs` at the end of a run. Invariant: every number named by a claim is set
//! here, and only from what was measured.

use super::simulated::Point;
use super::threads::{System, Threads};
use super::{Curves, Variant};
use crate::measure::{Measured, Metrics};
use crate::plot::{Axes, Plot, Series, lines};
use crate::table::Table;

pub(super) fn measured(all: &[Curves], threads: Option<&Threads>) -> Measured {
    let mut measured = Measured::default();
    for curves in all {
        curves.numbers(&mut measured.metrics);
        measured.tables.push(curves.table());
        measured.plots.extend(curves.plots());
    }
    if let Some(threads) = threads {
        numbers_of(threads, &mut measured.metrics);
        measured.tables.push(table_of(threads));
        measured.plots.extend(threads.plot());
    }
    measured
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

fn millis(length: core::time::Duration) -> f64 {
    length.as_secs_f64() * 1e3
}

impl Curves {
    /// The established peer's goodput at a point, in parts of the same variant's without a flood.
    fn kept(points: &[Point], point: &Point) -> f64 {
        let unloaded = points.first().map_or(0.0, Point::goodput);
        if unloaded > 0.0 { point.goodput() / unloaded } else { 0.0 }
    }

    /// The same at the load up to which the contract promises.
    fn promised_kept(&self) -> f64 {
        let both = self.variants.iter().find(|(variant, _)| *variant == Variant::Both);
        both.map_or(0.0, |(_, points)| Self::kept(points, &self.promised.1))
    }

    /// Unverified packets served, in parts of what the same worker serves without triage; none
    /// where there is no flood.
    fn unverified_part(&self, variant: Variant, load: f64, point: &Point) -> Option<f64> {
        let blind = if variant.balances() { Variant::Balance } else { Variant::Neither };
        let (_, points) = self.variants.iter().find(|(other, _)| *other == blind)?;
        let (_, other) = self.loads.iter().zip(points).find(|(other, _)| **other == load)?;
        (load > 0.0).then(|| point.unverified_served / other.unverified_served.max(1.0))
    }

    fn numbers(&self, metrics: &mut Metrics) {
        metrics.set(format!("{}/capacity-pps", self.name), self.capacity as f64);
        metrics.set(format!("{}/triage-pps", self.name), self.triage as f64);
        let (rate, promised) = &self.promised;
        let mut set = |what: &str, value| {
            metrics.set(format!("{}/promised/{what}", self.name), value);
        };
        set("offered-pps", *rate as f64);
        set("established-kept", self.promised_kept());
        set("app-owed-ms", millis(promised.app_owed));
        set("unverified-served", promised.unverified_served);
        for (variant, points) in &self.variants {
            let name = format!("{}/{}", self.name, variant.name());
            for (load, point) in self.loads.iter().zip(points) {
                let mut set = |what: &str, value| {
                    metrics.set(format!("{name}/{load}/{what}"), value);
                };
                set("app-share", point.app_share);
                set("app-gap-ms", millis(point.app_gap));
                set("app-gap-part", point.app_gap.as_secs_f64() / point.length.as_secs_f64());
                set("app-owed-ms", millis(point.app_owed));
                set("worker-run-ms", millis(point.run_max));
                set("established-goodput", point.goodput());
                set("established-kept", Self::kept(points, point));
                set("established-p99-ms", millis(point.p99));
                set("unverified-served", point.unverified_served);
                if let Some(part) = self.unverified_part(*variant, *load, point) {
                    set("unverified-part", part);
                }
                set("ring-full", point.ring_full);
                set("triage-refused", point.refused);
            }
            if let [first, .., last] = points.as_slice() {
                let fall = first.app_share - last.app_share;
                metrics.set(format!("{name}/app-share-fall"), fall);
            }
        }
    }

    fn title(&self) -> String {
        let what = match self.name {
            "virtual" => "Virtual time: unverified datagrams are worked on",
            _ => "Bare stack in virtual time: unverified datagrams are thrown away",
        };
        format!("{what}; a load of 1 is {} packets/s", self.capacity)
    }

    fn table(&self) -> Table {
        let columns = [
            "variant",
            "load",
            "app's share",
            "longest gap",
            "established kept",
            "p99",
            "unverified/s",
            "ring full",
            "refused",
        ];
        let mut table = Table::new(&self.title(), &columns);
        for (variant, points) in &self.variants {
            for (load, point) in self.loads.iter().zip(points) {
                table.row([
                    variant.name().to_owned(),
                    format!("{load}"),
                    percent(point.app_share),
                    format!("{:.2} ms", millis(point.app_gap)),
                    percent(Self::kept(points, point)),
                    format!("{:.2} ms", millis(point.p99)),
                    format!("{:.0}", point.unverified_served),
                    percent(point.ring_full),
                    percent(point.refused),
                ]);
            }
        }
        let (rate, promised) = &self.promised;
        table.note = format!(
            "a gap is time in which the application wanted the core and did not have it; \
             established kept is goodput in parts of the same variant's without a flood; ring full \
             and refused are parts of all that was offered; triage looks at {} packets/s of a \
             boundless flood, and where {rate} are offered established flows keep {} and {:.0} \
             unverified/s are served",
            self.triage,
            percent(self.promised_kept()),
            promised.unverified_served
        );
        table
    }

    fn plots(&self) -> Vec<(String, Plot)> {
        let series = |value: &dyn Fn(&[Point], &Point) -> f64| -> Vec<Series> {
            let of = |(variant, points): &(Variant, Vec<Point>)| Series {
                name: variant.name().to_owned(),
                points: self
                    .loads
                    .iter()
                    .copied()
                    .zip(points.iter().map(|p| value(points, p)))
                    .collect(),
            };
            self.variants.iter().map(of).collect()
        };
        let x_max = self.loads.iter().copied().fold(1.0, f64::max);
        let draw = |title: &str, y: &str, series: Vec<Series>| {
            let x = "unverified packets, in capacities";
            lines(&Axes { title, x, y, x_max, y_max: 1.0, marks: &[] }, &series)
        };
        let share = draw(
            "What the flooded core leaves to the application",
            "part of the time",
            series(&|_, point| point.app_share),
        );
        let kept = draw(
            "What the flood leaves of established flows' goodput",
            "part of the goodput without a flood",
            series(&Self::kept),
        );
        let name = self.name;
        vec![(format!("{name}-share.svg"), share), (format!("{name}-established.svg"), kept)]
    }
}

impl Threads {
    /// What each system leaves to the program, over what is offered; none without results.
    fn plot(&self) -> Option<(String, Plot)> {
        let series = |system: &System| Series {
            name: system.name().to_owned(),
            points: self
                .results
                .iter()
                .filter(|result| result.system == *system)
                .map(|result| (result.offered / 1000.0, result.share))
                .collect(),
        };
        let series: Vec<_> = System::ALL.iter().map(series).collect();
        let x_max = self.results.iter().map(|result| result.offered / 1000.0).fold(0.0, f64::max);
        let title = "Real threads: what the flooded core leaves to a program";
        let (x, y) = ("unverified packets a second, in thousands", "part of the time");
        let axes = Axes { title, x, y, x_max: x_max.ceil(), y_max: 1.0, marks: &[] };
        (!self.results.is_empty()).then(|| ("threads-share.svg".to_owned(), lines(&axes, &series)))
    }
}

fn numbers_of(threads: &Threads, metrics: &mut Metrics) {
    let flag = |yes: bool| f64::from(u8::from(yes));
    metrics.set("threads/measured", flag(!threads.results.is_empty()));
    metrics.set("threads/undisturbed", flag(threads.is_undisturbed()));
    for result in &threads.results {
        let name = format!("threads/{}/{}", result.system.name(), result.planned);
        let mut set = |what: &str, value| metrics.set(format!("{name}/{what}"), value);
        set("offered-pps", result.offered);
        set("app-share", result.share);
        set("thirds-part", result.thirds);
        set("app-gap-ms", millis(result.gap));
        set("taken-pps", result.taken);
        if let Some(stolen) = result.stolen {
            set("stolen-part", stolen);
        }
    }
    let most = [("lead", threads.lead()), ("kept", threads.kept()), ("gaps", threads.gaps())];
    for (what, value) in most {
        if let Some(value) = value {
            metrics.set(format!("threads/most/{what}"), value);
        }
    }
}

fn table_of(threads: &Threads) -> Table {
    let columns =
        ["system", "offered/s", "program's share", "longest gap", "taken/s", "thirds", "stolen"];
    let mut table =
        Table::new("Threads: one core, a program that takes timestamps, a flood", &columns);
    for result in &threads.results {
        table.row([
            result.system.name().to_owned(),
            format!("{:.0}", result.offered),
            percent(result.share),
            format!("{:.1} ms", millis(result.gap)),
            format!("{:.0}", result.taken),
            percent(result.thirds),
            result.stolen.map_or_else(|| "-".to_owned(), percent),
        ]);
    }
    table.note = match &threads.why_not {
        Some(why) => format!("not measured: {why}"),
        None => format!(
            "medians of {} turns, all systems in turns; the program and the receiver are two \
             threads on one core, the flood is sent from another; the kernel's receive half is \
             steered to the same core (RPS); thirds is the part of the time for which other work \
             on the machine had the core while the program was ready, and shares are of the rest; \
             stolen is what the machine's host reports that it took",
            threads.rounds
        ),
    };
    table
}
