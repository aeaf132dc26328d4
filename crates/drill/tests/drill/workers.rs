//! Drills of a host of several workers, in virtual time: the criteria of one hold for it too.

use floodwall_drill::{Criterion, DrillOptions, Report, ServerConfig};

use crate::short;

fn run(workers: u16) -> Report {
    let options = short(DrillOptions::simulated(7));
    let server = ServerConfig { workers, ..options.server };
    crate::run(&DrillOptions { server, ..options })
}

fn passes(workers: u16) -> Report {
    let report = run(workers);
    let failed = report.verdicts.iter().find(|v| !v.passed);
    assert!(failed.is_none(), "{failed:?} {report}");
    assert!(report.verdicts.iter().any(|v| v.criterion == Criterion::EstablishedKept), "{report}");
    assert_eq!(report.shards.len(), usize::from(workers));
    let text = report.to_string();
    for shard in &report.shards {
        assert!(shard.received > 1000, "every worker has its part: {report}");
        assert!(shard.application_share.is_some_and(|share| share >= 490), "{report}");
        assert!(text.contains(&format!("shard {} ", shard.worker)), "{text}");
    }
    let adopted: u64 = report.shards.iter().map(|shard| shard.adopted).sum();
    assert!(adopted > 0, "what only the control shard may do is handed over");
    report
}

#[test]
fn the_criteria_hold_for_two_workers() {
    let again = run(2);
    assert_eq!(passes(2).to_json().unwrap(), again.to_json().unwrap(), "byte for byte");
}

/// Eight times the answers to neighbours that do not exist reach one control shard.
#[test]
fn the_criteria_hold_for_eight_workers() {
    passes(8);
}
