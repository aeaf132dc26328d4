//! No packet makes the stack do more than a few plain ones of its size: by counts of work, over the
//! corpora, the captures, the floods, and what a seeded climb finds beside them.
//!
//! The bench `worst_cost` shows the same for time.

use std::collections::HashMap;

use floodwall_testkit::Seeded;
use floodwall_tests::worst::{Input, Machine, RATIO_MAX, Work, inputs, mutated, plain};

/// Rounds of the climb.
const ROUNDS: u32 = 20;
/// How many of the dearest are climbed from.
const KEPT: usize = 32;

struct Counted {
    machine: Machine,
    plain: HashMap<(bool, usize, bool), f64>,
}

impl Counted {
    fn ratio(&mut self, input: &Input) -> (f64, Work) {
        let work = self.machine.count(input);
        let (family, answered) = (input.family(), work.departed > 0);
        let len = input.len();
        let key = (family == floodwall_base::Family::V4, len, answered);
        let machine = &mut self.machine;
        let per_plain = *self.plain.entry(key).or_insert_with(|| {
            let work = machine.count(&plain(family, len, answered));
            work.points() as f64 / work.arrived as f64
        });
        (work.points() as f64 / work.arrived.max(1) as f64 / per_plain, work)
    }
}

#[test]
fn no_packet_costs_more_work_than_four_plain_ones() {
    let mut counted = Counted { machine: Machine::new(), plain: HashMap::new() };
    let mut dearest: Vec<(f64, Input, Work)> = Vec::new();
    let keep = |dearest: &mut Vec<(f64, Input, Work)>| {
        dearest.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        dearest.truncate(KEPT);
    };
    let all = inputs(1);
    assert!(all.len() > 5000, "{} inputs", all.len());
    for input in all {
        let (ratio, work) = counted.ratio(&input);
        dearest.push((ratio, input, work));
        if dearest.len() > 4 * KEPT {
            keep(&mut dearest);
        }
    }
    let mut random = Seeded::new(1);
    for _ in 0..ROUNDS {
        for at in 0..dearest.len() {
            let next = mutated(&dearest[at].1, &mut random);
            let (ratio, work) = counted.ratio(&next);
            dearest.push((ratio, next, work));
        }
        keep(&mut dearest);
    }
    for (ratio, input, work) in dearest.iter().take(10) {
        let first = input.frames.first().map_or(&[][..], Vec::as_slice);
        println!("{ratio:.2} {work:?} {}: {}", input.from, floodwall_wire::show::ShownFrame(first));
    }
    let (worst, input, work) = &dearest[0];
    assert!(*worst <= RATIO_MAX, "{worst:.2}: {work:?}, {}: {:02x?}", input.from, input.frames);
    assert!(*worst > 1.0, "something must cost more than a plain packet: {worst:.2}");
}
