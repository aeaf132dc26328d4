//! `udp-flood`: what one flooded UDP socket costs its host, its neighbours and its honest peers.
//!
//! Source: Eric Dumazet, "udp: add per NUMA queues" (Linux commit b650bf0977d3, September 2025): a
//! machine of six memory nodes with all cores spinning on one socket's lock. Three parts. A model
//! of that machine in virtual time (`model.rs`), labelled so, with historic designs, ours, and
//! three ways to count refusals. Real threads (`threads.rs`): the historic designs of
//! `baselines/udp_queues.rs`, three queues of other crates, and ours, in turns in one run; memory
//! nodes are emulated by groups of producers. And the product's own sockets in virtual time
//! (`goodput.rs`): which senders are served beside heavy and beside forged sources. Not here:
//! device rings and hand-offs (`starvation` and the drill have those).

mod goodput;
mod histogram;
mod model;
mod tables;
mod threads;

use std::time::Duration;

use floodwall_base::Family;
use serde::Deserialize;

use crate::error::LabError;
use crate::experiments::Experiment;
use crate::measure::Measured;
use crate::plan::Plan;
use crate::progress::Progress;
use goodput::{Flood, Goodput};
use model::{Counters, Design, Outcome, Prices, Run};
use threads::{Kind, Offer, Turn, Work};

/// The experiment `udp-flood`: the cost of one flooded UDP socket.
#[derive(Clone, Copy, Debug, Default)]
pub struct UdpFlood;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Vary {
    /// Designs of the model.
    designs: Vec<Design>,
    /// Ways to count of the model.
    counters: Vec<Counters>,
    /// Memory nodes of the model.
    nodes: Vec<usize>,
    /// Queues on real threads.
    queues: Vec<Kind>,
    /// Producers on real threads.
    producers: Vec<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hold {
    /// Total cores that receive, independent of the number of nodes.
    cores: usize,
    /// Datagrams that a socket may hold in the model.
    datagrams: u64,
    /// Datagrams of one worker's round.
    round: u64,
    prices: Prices,
    threads: Work,
    /// Emulated memory nodes of the real threads.
    thread_nodes: usize,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Amount {
    /// Virtual time of each run of the model.
    model_micros: u64,
    /// How often each queue has its turn on real threads.
    turns: u64,
    turn_millis: u64,
    /// Virtual time of each flood.
    flood_millis: u64,
}

/// One run of the model.
struct ModelRow {
    nodes: usize,
    design: Design,
    counters: Counters,
    seconds: f64,
    outcome: Outcome,
}

/// One queue with so many producers: its turns.
struct ThreadRow {
    kind: Kind,
    producers: usize,
    offer: Offer,
    turns: Vec<Turn>,
}

/// One flood.
struct FloodRow {
    flood: Flood,
    family: Family,
    fair_drop: bool,
    goodput: Goodput,
}

/// Everything.
struct Findings {
    model: Vec<ModelRow>,
    threads: Vec<ThreadRow>,
    floods: Vec<FloodRow>,
}

impl Experiment for UdpFlood {
    fn name(&self) -> &'static str {
        "udp-flood"
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
        progress.step("the model", 0, 3);
        let model = modelled(&vary, &hold, &amount);
        progress.step("real threads", 1, 3);
        let threads = threaded(&vary, &hold, &amount);
        progress.step("goodput", 2, 3);
        let floods = flooded(&amount, seed)?;
        Ok(tables::measured(&Findings { model, threads, floods }))
    }
}

fn modelled(vary: &Vary, hold: &Hold, amount: &Amount) -> Vec<ModelRow> {
    let mut rows = Vec::new();
    for &nodes in &vary.nodes {
        for &design in &vary.designs {
            for &counters in &vary.counters {
                // Ours counts by itself, and those before counted in one word.
                let usual = match design {
                    Design::TakeAll | Design::TakeAllFair => Counters::PerWorker,
                    Design::Mutex | Design::Busylock => Counters::One,
                    Design::OneList | Design::PerNode => counters,
                };
                if usual != counters {
                    continue;
                }
                let nanos = amount.model_micros * 1000;
                let outcome = model::simulate(&Run {
                    design,
                    counters,
                    nodes,
                    cores_per_node: hold.cores / nodes.max(1),
                    limit: hold.datagrams,
                    round: hold.round,
                    nanos,
                    prices: hold.prices,
                });
                let seconds = nanos as f64 / 1e9;
                rows.push(ModelRow { nodes, design, counters, seconds, outcome });
            }
        }
    }
    rows
}

fn threaded(vary: &Vary, hold: &Hold, amount: &Amount) -> Vec<ThreadRow> {
    let mut rows: Vec<ThreadRow> = Vec::new();
    for &producers in &vary.producers {
        for offer in [Offer::AllThatCan, Offer::HalfOfWhatIsRead] {
            for &kind in &vary.queues {
                rows.push(ThreadRow { kind, producers, offer, turns: Vec::new() });
            }
        }
    }
    let length = Duration::from_millis(amount.turn_millis);
    for _ in 0..amount.turns {
        for row in &mut rows {
            let (shape, nodes) = ((row.producers, row.offer), hold.thread_nodes);
            row.turns.extend(threads::turn(row.kind, shape, nodes, &hold.threads, length));
        }
    }
    rows
}

fn flooded(amount: &Amount, seed: u64) -> Result<Vec<FloodRow>, LabError> {
    let mut rows = Vec::new();
    for family in [Family::V4, Family::V6] {
        for flood in [Flood::Ten, Flood::Million] {
            for fair_drop in [false, true] {
                let goodput = goodput::run(flood, family, fair_drop, amount.flood_millis, seed)?;
                rows.push(FloodRow { flood, family, fair_drop, goodput });
            }
        }
    }
    Ok(rows)
}
