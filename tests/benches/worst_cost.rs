//! The worst that a packet can cost, by time: every corpus, every capture, every flood, and what a
//! hill-climb finds beside them, against plain datagrams of the same size.
//!
//! `cargo bench -p floodwall-tests --bench worst_cost -- [--json] [--seed N] [--rounds N]`. Ends
//! with 1 where something costs more than `RATIO_MAX` plain packets. Each figure is the least of
//! many, so that other work on the machine disturbs little; what seems worst is measured again, in
//! turns with its plain packet. The count of work behind it is judged by the ordinary test
//! `worst_cost`.
#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::Instant;

use floodwall_base::Family;
use floodwall_testkit::Seeded;
use floodwall_tests::worst::{Input, Machine, RATIO_MAX, inputs, mutated, plain};
use floodwall_wire::show;

/// Measurements of an input at first, and of what seems dear.
const TRIES: [u32; 2] = [4, 60];
/// How many of the dearest are climbed from, and shown.
const KEPT: usize = 48;
const SHOWN: usize = 10;

struct Args {
    json: bool,
    seed: u64,
    rounds: u32,
}

fn args() -> Result<Args, String> {
    let mut args = Args { json: false, seed: 1, rounds: 40 };
    let mut words = std::env::args().skip(1);
    let number = |word: Option<String>| {
        word.and_then(|w| w.parse().ok()).ok_or("a number must follow".to_owned())
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--json" => args.json = true,
            "--seed" => args.seed = number(words.next())?,
            "--rounds" => args.rounds = number(words.next())? as u32,
            // The arguments that cargo passes.
            "--bench" => {}
            other => return Err(format!("what is `{other}`? --json, --seed N, --rounds N")),
        }
    }
    Ok(args)
}

/// What an input costs.
#[derive(Clone)]
struct Cost {
    input: Input,
    nanos: f64,
    plain_nanos: f64,
    answered: bool,
}

impl Cost {
    fn ratio(&self) -> f64 {
        self.nanos / self.plain_nanos.max(1.0)
    }
}

struct Search {
    machine: Machine,
    plain: HashMap<(Family, usize, bool), f64>,
}

impl Search {
    /// The least nanoseconds a packet of some tries, and whether anything left.
    fn time(&mut self, input: &Input, tries: u32) -> (f64, bool) {
        let (mut least, mut answered) = (f64::MAX, false);
        for _ in 0..tries {
            let mut nanos = 0;
            let packets = self.machine.arrive(input, |round| {
                let started = Instant::now();
                round();
                nanos += started.elapsed().as_nanos();
            });
            least = least.min(nanos as f64 / packets.max(1) as f64);
            answered |= self.machine.departed().0 > 0;
        }
        (least, answered)
    }

    fn cost(&mut self, input: &Input) -> Cost {
        let (nanos, answered) = self.time(input, TRIES[0]);
        let (family, len) = (input.family(), input.len());
        let key = (family, len.next_multiple_of(64), answered);
        let plain_nanos = match self.plain.get(&key) {
            Some(known) => *known,
            None => {
                let nanos = self.time(&plain(family, len, answered), TRIES[1]).0;
                *self.plain.entry(key).or_insert(nanos)
            }
        };
        Cost { input: input.clone(), nanos, plain_nanos, answered }
    }

    /// Measures again, in turns with the plain packet.
    fn again(&mut self, cost: &Cost) -> Cost {
        let plain = plain(cost.input.family(), cost.input.len(), cost.answered);
        let (mut nanos, mut plain_nanos) = (f64::MAX, f64::MAX);
        for _ in 0..TRIES[1] {
            nanos = nanos.min(self.time(&cost.input, 1).0);
            plain_nanos = plain_nanos.min(self.time(&plain, 1).0);
        }
        Cost { nanos, plain_nanos, ..cost.clone() }
    }
}

fn sort(costs: &mut [Cost]) {
    costs.sort_by(|a, b| b.ratio().total_cmp(&a.ratio()));
}

fn main() -> ExitCode {
    let args = match args() {
        Ok(args) => args,
        Err(error) => {
            eprintln!("worst_cost: {error}");
            return ExitCode::from(2);
        }
    };
    let mut search = Search { machine: Machine::new(), plain: HashMap::new() };
    let all = inputs(args.seed);
    eprintln!("{} inputs", all.len());
    let mut costs: Vec<Cost> = all.iter().map(|input| search.cost(input)).collect();
    sort(&mut costs);
    costs.truncate(KEPT);
    let mut random = Seeded::new(args.seed);
    for round in 0..args.rounds {
        let found: Vec<Cost> =
            costs.iter().map(|cost| search.cost(&mutated(&cost.input, &mut random))).collect();
        costs.extend(found);
        sort(&mut costs);
        costs.truncate(KEPT);
        // What was luck of the clock must not hold its place.
        if round % 10 == 9 {
            costs = costs.iter().map(|cost| search.again(cost)).collect();
        }
    }
    costs = costs.iter().map(|cost| search.again(cost)).collect();
    sort(&mut costs);
    costs.truncate(SHOWN);
    let passed = costs.iter().all(|cost| cost.ratio() <= RATIO_MAX);
    tell(&args, all.len(), &costs, passed);
    ExitCode::from(u8::from(!passed))
}

fn tell(args: &Args, count: usize, costs: &[Cost], passed: bool) {
    let line = |cost: &Cost| {
        let first = cost.input.frames.first().map_or(&[][..], Vec::as_slice);
        let more = cost.input.frames.len() - 1;
        let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
        format!("{}{more}", show::ShownFrame(first))
    };
    if args.json {
        let items: Vec<_> = costs
            .iter()
            .map(|cost| {
                serde_json::json!({
                    "ratio": cost.ratio(),
                    "nanos": cost.nanos,
                    "plain_nanos": cost.plain_nanos,
                    "answered": cost.answered,
                    "bytes": cost.input.len(),
                    "from": cost.input.from,
                    "line": line(cost),
                })
            })
            .collect();
        let all = serde_json::json!({
            "seed": args.seed,
            "inputs": count,
            "rounds": args.rounds,
            "ratio_max": RATIO_MAX,
            "passed": passed,
            "worst": items,
        });
        println!("{all:#}");
        return;
    }
    println!("{:>6} {:>8} {:>8} {:>6}  {:<20} packet", "ratio", "ns", "plain", "bytes", "from");
    for cost in costs {
        let from: String = cost.input.from.chars().take(20).collect();
        println!(
            "{:>6.2} {:>8.0} {:>8.0} {:>6}  {:<20} {}",
            cost.ratio(),
            cost.nanos,
            cost.plain_nanos,
            cost.input.len(),
            from,
            line(cost)
        );
    }
    let word = if passed { "PASS" } else { "FAIL" };
    println!("{word}: at most {RATIO_MAX} plain packets of its size, each");
}
