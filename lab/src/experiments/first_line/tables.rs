//! What was found, as numbers, tables and pictures.
//!
//! Called by `first_line.rs` at the end of a run. Invariant: every number named by a claim is set
//! here, and only from what was measured.

use core::time::Duration;

use super::trials::{Results, Trial};
use super::victims::Victim;
use super::{Flood, TrialCase};
use crate::measure::Measured;
use crate::plot::{Axes, Plot, Series, lines};
use crate::table::Table;

pub(super) fn measured(results: &Results, only_works: bool) -> Measured {
    let mut measured = Measured::default();
    let flag = |yes: bool| f64::from(u8::from(yes));
    measured.metrics.set("ran", flag(!results.trials.is_empty()));
    measured.metrics.set("measured", flag(!results.trials.is_empty() && !only_works));
    for trial in &results.trials {
        let name = trial.case(&results.load_name(trial));
        if results.has_least(trial) {
            measured.metrics.set(format!("{}/honest", trial.case("least")), trial.honest);
        }
        let mut set = |what: &str, value| measured.metrics.set(format!("{name}/{what}"), value);
        set("honest", trial.honest);
        set("p99-ms", trial.p99_millis);
        set("offered-pps", trial.offered);
        set("arrived-pps", trial.arrived);
        set("idle", trial.idle);
        set("spoilt", trial.spoilt);
        set("honest-outside-stalls", trial.outside_stalls);
        if let Some(stalled) = trial.stalled {
            set("stalled-ms", stalled.as_secs_f64() * 1e3);
        }
        if let Some(kernel) = results.kernel_beside(trial) {
            set("over-kernel", trial.honest - kernel.honest);
            if let (Some(ours), Some(theirs)) = (trial.flows, kernel.flows) {
                set("flows-over-kernel", ours - theirs);
            }
        }
        if let Some(flows) = trial.flows {
            set("flows", flows);
        }
        if let Some(datagrams) = trial.datagrams {
            set("same-port", datagrams.same_port);
            set("other-port", datagrams.other_port);
        }
        let rivals = results.rivals_beside(trial);
        if trial.case.victim == Victim::Guard && !rivals.is_empty() {
            let best = |of: fn(&Trial) -> f64| rivals.iter().copied().map(of).fold(0.0, f64::max);
            set("over-rivals", trial.honest - best(|rival| rival.honest));
            set("taken-times", trial.arrived / best(|rival| rival.arrived).max(1.0));
        }
        if let Some(stamps) = &trial.stamps {
            set("program", stamps.share());
            set("gap-p99-ms", stamps.p99.as_secs_f64() * 1e3);
            set("gap-longest-ms", stamps.longest.as_secs_f64() * 1e3);
        }
    }
    let has = |flood: &Flood| results.trials.iter().any(|trial| trial.case.flood == *flood);
    for flood in Flood::ALL.into_iter().filter(|flood| results.trials.is_empty() || has(flood)) {
        measured.tables.push(results.table(flood));
        if results.trials.is_empty() || results.trials.iter().any(|trial| trial.case.shares) {
            measured.tables.push(results.beside_a_program(flood));
        }
        measured.plots.extend(results.plots(flood));
    }
    measured
}

fn millis(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

const fn family(six: bool) -> &'static str {
    if six { "v6" } else { "v4" }
}

impl Trial {
    fn case(&self, load: &str) -> String {
        let TrialCase { flood, six, victim, shares, .. } = self.case;
        // A measure's stars stand for one part each: those beside a program have one part more.
        let beside = if shares { "beside/" } else { "" };
        format!("{beside}{}/{}/{}/{load}", flood.name(), victim.name(), family(six))
    }
}

impl Results {
    /// The highest load is called so, because no core sends what the plan has there.
    fn load_name(&self, trial: &Trial) -> String {
        let loads = || self.trials.iter().map(|trial| trial.case.planned);
        let is_most =
            loads().max() == Some(trial.case.planned) && loads().min() != Some(trial.case.planned);
        if is_most { "most".to_owned() } else { trial.case.planned.to_string() }
    }

    /// Whether its load is the least of all.
    fn has_least(&self, trial: &Trial) -> bool {
        self.trials.iter().all(|other| trial.case.planned <= other.case.planned)
    }

    fn kernel_beside(&self, of: &Trial) -> Option<&Trial> {
        let kernels = self
            .trials
            .iter()
            .filter(|trial| trial.case.victim == Victim::Kernel && !trial.case.shares);
        let is = |trial: &&Trial| {
            (trial.case.flood, trial.case.six, trial.case.planned)
                == (of.case.flood, of.case.six, of.case.planned)
        };
        kernels.filter(|_| of.case.victim != Victim::Kernel && !of.case.shares).find(is)
    }

    fn rivals_beside(&self, of: &Trial) -> Vec<&Trial> {
        let is = |trial: &&Trial| {
            trial.case.victim.is_rival()
                && !trial.case.shares
                && (trial.case.flood, trial.case.six, trial.case.planned)
                    == (of.case.flood, of.case.six, of.case.planned)
        };
        self.trials.iter().filter(is).collect()
    }

    fn table(&self, flood: Flood) -> Table {
        let title = match flood {
            Flood::Syn => "SYN flood at the port of honest clients: connect and echo",
            Flood::Ack => "ACK flood at the port of honest clients: connect and echo",
            Flood::Rst => "RST flood at the port of honest clients: connect and echo",
            Flood::Udp => {
                "UDP flood at another port: TCP connect and echo, and datagrams, meanwhile"
            }
            Flood::Mixed => {
                "SYNs, ACKs and RSTs at the port of honest clients, and datagrams at another"
            }
            Flood::Routed => "Datagrams to random destinations behind a router's gateway",
            Flood::OnLink => "Datagrams to random destinations on a router's link",
        };
        let mut columns = vec![
            "victim",
            "family",
            "planned/s",
            "offered/s",
            "arrived/s",
            "honest",
            "p99",
            "idle",
            "stalled",
            "spoilt",
            "outside",
        ];
        if flood.is_transit() {
            columns.push("flows");
        }
        if flood.has_datagrams() {
            columns.extend(["same port", "other port"]);
        }
        let mut table = Table::new(title, &columns);
        let is = |trial: &&Trial| trial.case.flood == flood && !trial.case.shares;
        for trial in self.trials.iter().filter(is) {
            let row = [
                trial.case.victim.name().to_owned(),
                family(trial.case.six).to_owned(),
                self.load_name(trial),
                format!("{:.0}", trial.offered),
                format!("{:.0}", trial.arrived),
                percent(trial.honest),
                format!("{:.1} ms", trial.p99_millis),
                percent(trial.idle),
                trial.stalled.map_or_else(|| "-".to_owned(), millis),
                percent(trial.spoilt),
                percent(trial.outside_stalls),
            ];
            let datagrams = trial.datagrams.map(|them| [them.same_port, them.other_port]);
            let more = trial.flows.into_iter().chain(datagrams.into_iter().flatten());
            table.row(row.into_iter().chain(more.map(percent)));
        }
        table.note = match &self.why_not {
            Some(why) => format!("not measured: {why}"),
            None => format!(
                "medians of {} turns, all victims in turns; what did not arrive found the veth's \
                 ring full; idle is the victim's core; stalled is how long no thread \
                 could have one of the two cores, at most in a turn; spoilt is the part of the \
                 calls from 2 ms before such a stall to 10 ms after it, and outside what is \
                 answered of the others: all calls are judged",
                self.rounds
            ),
        };
        table
    }

    /// The same victims beside a program on their core.
    fn beside_a_program(&self, flood: Flood) -> Table {
        let title = match flood {
            Flood::Syn => "SYN flood beside a program on the victim's core",
            Flood::Ack => "ACK flood beside a program on the victim's core",
            Flood::Rst => "RST flood beside a program on the victim's core",
            Flood::Udp => "UDP flood beside a program on the victim's core",
            Flood::Mixed => "Mixed flood beside a program on the victim's core",
            Flood::Routed | Flood::OnLink => "Through a router, beside a program on its core",
        };
        let columns = [
            "victim",
            "family",
            "planned/s",
            "offered/s",
            "arrived/s",
            "honest",
            "program",
            "gap p99",
            "longest",
        ];
        let mut table = Table::new(title, &columns);
        for trial in self.trials.iter().filter(|trial| trial.case.flood == flood) {
            let Some(stamps) = &trial.stamps else { continue };
            table.row([
                trial.case.victim.name().to_owned(),
                family(trial.case.six).to_owned(),
                self.load_name(trial),
                format!("{:.0}", trial.offered),
                format!("{:.0}", trial.arrived),
                percent(trial.honest),
                percent(stamps.share()),
                millis(stamps.p99),
                millis(stamps.longest),
            ]);
        }
        table.note = match &self.why_not {
            Some(why) => format!("not measured: {why}"),
            None => "the program takes timestamps: its part of the core, and its gaps".to_owned(),
        };
        table
    }

    /// The honest part over what is offered, a picture for each family.
    fn plots(&self, flood: Flood) -> Vec<(String, Plot)> {
        let mut plots = Vec::new();
        for six in [false, true] {
            let is = |trial: &&Trial| {
                trial.case.flood == flood && trial.case.six == six && !trial.case.shares
            };
            let trials: Vec<_> = self.trials.iter().filter(is).collect();
            let series = |victim: Victim| Series {
                name: victim.name().to_owned(),
                points: trials
                    .iter()
                    .filter(|trial| trial.case.victim == victim)
                    .map(|trial| (trial.offered / 1000.0, trial.honest))
                    .collect(),
            };
            let victims = [
                Victim::Xdp,
                Victim::Packet,
                Victim::PacketGeneric,
                Victim::Guard,
                Victim::Synproxy,
                Victim::Kernel,
            ];
            let is_here = |victim: &Victim| trials.iter().any(|trial| trial.case.victim == *victim);
            let all: Vec<_> = victims.into_iter().filter(is_here).map(series).collect();
            if all.iter().all(|one| one.points.len() < 2) {
                continue;
            }
            let most = trials.iter().map(|trial| trial.offered / 1000.0).fold(1.0, f64::max);
            let axes = Axes {
                title: &format!(
                    "Honest TCP connects answered beside a {} flood ({})",
                    flood.name(),
                    family(six)
                ),
                x: "packets offered a second, in thousands",
                y: "answered part",
                x_max: (most / 100.0).ceil() * 100.0,
                y_max: 1.0,
                marks: &[],
            };
            let name = format!("{}-{}.svg", flood.name(), family(six));
            plots.push((name, lines(&axes, &all)));
        }
        plots
    }
}
