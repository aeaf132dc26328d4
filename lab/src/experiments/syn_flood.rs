//! `syn-flood`: which clients connect while a listener is flooded with spoofed SYNs.
//!
//! Source: Jonathan Lemon, "Resisting SYN flood DoS attacks with a SYN cache" (BSDCon 2002), its
//! Figures 2 to 4. Four designs behind one seam (`HalfOpen`): a linear list with random drop
//! (`baselines/drop_list.rs`), a SYN cache alone, cookies alone, and the product's cache with
//! cookies. A server of one core pays for every packet (`syn_flood/simulated.rs`); honest clients
//! connect one after another through it. Two machines: the source's, with prices that follow from
//! its own figures, and today's, priced by the cost table. Counts and virtual time only: the same
//! seed gives the same numbers. Real packets and the kernel beside us are not measured here.

mod simulated;
mod tables;

use serde::Deserialize;

use crate::error::LabError;
use crate::experiments::Experiment;
use crate::measure::Measured;
use crate::plan::Plan;
use crate::progress::Progress;
use simulated::{Design, Outcome, Prices, Run, Speaker, run};

/// The experiment `syn-flood`: connection time under a SYN flood, by design.
#[derive(Clone, Copy, Debug, Default)]
pub struct SynFlood;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Vary {
    /// Backlogs of the source's Figure 2.
    backlogs: Vec<usize>,
    /// Round trips of clients, milliseconds.
    round_trips: Vec<f64>,
    /// Losses of handshake segments, hundredths.
    losses: Vec<f64>,
    /// SYNs a second on today's machine.
    rates: Vec<u64>,
    /// The same as parts of what the machine can answer.
    loads: Vec<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hold {
    /// SYNs a second of the source.
    source_rate: u64,
    /// Round trip in the source's laboratory, milliseconds.
    source_round_trip: f64,
    /// Nanoseconds that the source's machine pays for a SYN, all but the walk.
    source_syn_nanos: u64,
    /// The same where no socket is made.
    source_cache_nanos: u64,
    /// Nanoseconds that it pays for one element of the list.
    source_element_nanos: u64,
    /// Nanoseconds that today's machine pays for one element.
    element_nanos: u64,
    /// Backlog of everything but Figure 2.
    backlog: usize,
    /// SYNs a second beside which losses are looked at.
    noise_rate: u64,
    /// Packets that wait for the server at most.
    ring: usize,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Amount {
    /// Honest connections of the source's figures.
    connects: u32,
    /// Honest connections of each row on today's machine.
    connects_today: u32,
}

/// A run with its name.
pub(crate) struct Row {
    name: String,
    run: Run,
    outcome: Outcome,
}

const DESIGNS: [Design; 4] = [Design::List, Design::Cache, Design::Cookies, Design::Hybrid];

impl Experiment for SynFlood {
    fn name(&self) -> &'static str {
        "syn-flood"
    }

    fn run(
        &self,
        plan: &Plan,
        amount: &toml::Table,
        seed: u64,
        progress: &mut dyn Progress,
    ) -> Result<Measured, LabError> {
        let vary: Vary = plan.read("vary", &plan.vary)?;
        let hold: Hold = plan.read("hold", &plan.hold)?;
        let amount: Amount = plan.read("full/quick", amount)?;
        let runs: Vec<_> = [source(&vary, &hold, &amount), today(&vary, &hold, &amount)].concat();
        let (mut rows, all) = (Vec::new(), runs.len() as u64);
        for (done, (name, one)) in runs.into_iter().enumerate() {
            progress.step(&name, done as u64, all);
            rows.push(Row { name, run: one, outcome: run(&one, seed) });
        }
        Ok(tables::measured(&rows))
    }
}

/// The source's laboratory: Figures 2, 3 and 4.
fn source(vary: &Vary, hold: &Hold, amount: &Amount) -> Vec<(String, Run)> {
    let base = Run {
        design: Design::List,
        backlog: hold.backlog,
        rate: hold.source_rate,
        round_trip: hold.source_round_trip,
        loss: 0.0,
        speaker: Speaker::Client,
        connects: amount.connects,
        every_micros: 4000,
        warm_millis: 400,
        patience_millis: 700,
        ring: hold.ring,
        prices: Prices {
            segment: hold.source_syn_nanos,
            answer: 0,
            element: hold.source_element_nanos,
        },
    };
    let mut runs = vec![("source/idle-list".to_owned(), Run { rate: 0, ..base })];
    for &backlog in &vary.backlogs {
        runs.push((format!("source/list-{backlog}"), Run { backlog, ..base }));
    }
    for design in [Design::Cache, Design::Cookies, Design::Hybrid] {
        let name = design.name();
        let prices = Prices { segment: hold.source_cache_nanos, ..base.prices };
        runs.push((format!("source/idle-{name}"), Run { design, prices, rate: 0, ..base }));
        runs.push((format!("source/{name}"), Run { design, prices, ..base }));
    }
    runs
}

/// Today's machine: every design at every rate; round trips, losses and the side that sends first.
fn today(vary: &Vary, hold: &Hold, amount: &Amount) -> Vec<(String, Run)> {
    let base = Run {
        design: Design::Hybrid,
        backlog: hold.backlog,
        rate: hold.source_rate,
        round_trip: 0.1,
        loss: 0.0,
        speaker: Speaker::Server,
        connects: amount.connects_today,
        every_micros: 500,
        warm_millis: 200,
        patience_millis: 520,
        ring: hold.ring,
        prices: Prices::today(hold.element_nanos),
    };
    let mut runs = Vec::new();
    for design in DESIGNS {
        let name = design.name();
        for &rate in &vary.rates {
            let run = Run { design, rate, ..base };
            runs.push((format!("rate/{rate}/{name}"), run));
        }
        for &round_trip in &vary.round_trips {
            // A second and a half fills every cache: then entries live as long as they ever will.
            let far = round_trip > 1000.0;
            let patience_millis = if round_trip > 100.0 { 3500 } else { 700 };
            let warm_millis = if far { 1500 } else { 400 };
            let run = Run { design, round_trip, warm_millis, patience_millis, ..base };
            runs.push((format!("trip/{round_trip}/{name}"), run));
        }
        for &loss in &vary.losses {
            for speaker in [Speaker::Client, Speaker::Server] {
                let (loss_share, rate, patience_millis) = (loss / 100.0, hold.noise_rate, 3500);
                let run = Run {
                    design,
                    loss: loss_share,
                    speaker,
                    round_trip: 50.0,
                    rate,
                    patience_millis,
                    ..base
                };
                runs.push((format!("loss/{loss}-{}/{name}", speaker.name()), run));
            }
        }
    }
    for &load in &vary.loads {
        let rate = (load * base.prices.saturation()) as u64;
        let run = Run { rate, warm_millis: 50, patience_millis: 100, ..base };
        runs.push((format!("load/{load}/hybrid"), run));
    }
    let short = Run { design: Design::List, backlog: 128, round_trip: 50.0, ..base };
    runs.push(("trip/50/list-128".to_owned(), short));
    runs
}
