//! Whole drills, short: they pass, they repeat, and each criterion can be seen failing in one.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

mod workers;

use std::sync::LazyLock;
use std::time::Duration;

use floodwall_drill::{
    CostTable, Criterion, DrillOptions, DrillPlace, Report, Schedule, ServerConfig, SilentProgress,
    drill,
};

/// A drill of a tenth of a second a phase.
fn short(options: DrillOptions) -> DrillOptions {
    let phase = Duration::from_millis(100);
    let probe = Duration::from_millis(5);
    DrillOptions { schedule: Schedule { phase, probe, ..options.schedule }, ..options }
}

fn run(options: &DrillOptions) -> Report {
    drill(options, &mut SilentProgress).unwrap()
}

/// The usual drill, which several tests look at.
static USUAL: LazyLock<Report> = LazyLock::new(|| run(&short(DrillOptions::simulated(7))));

fn failed(report: &Report) -> Vec<Criterion> {
    report
        .verdicts
        .iter()
        .filter(|verdict| !verdict.passed)
        .map(|verdict| verdict.criterion)
        .collect()
}

#[test]
fn a_simulated_drill_passes() {
    let report = &*USUAL;
    assert_eq!(failed(report), [], "{report}");
    assert!(report.passed && report.shards.is_empty());
    // Of the statements about paths some were true, and accepted; of redirects none.
    let learnt = |name: &str| {
        let phase = report.phases.iter().find(|phase| phase.name == name).unwrap();
        assert!(phase.paths_known <= 4608 && phase.paths_allowed < 1000, "{report}");
        phase.paths_learnt
    };
    assert!(learnt("too big") > 150 && learnt("redirects") == 0, "{report}");
    // Unverified sources were too many to be served, and established clients were.
    let established = report.phases.iter().find(|phase| phase.name == "established").unwrap();
    let (offered, looked) = (established.offered_pps, established.triage_pps.unwrap());
    assert!(offered * 100 > looked * 78 && offered * 100 < looked * 82, "{offered} of {looked}");
    assert!(established.capacity_pps.unwrap() * 2 < offered, "{report}");
    assert!(established.established.iter().all(|row| row.answered > 0));
}

#[test]
fn a_simulated_drill_repeats_itself_byte_for_byte() {
    let (first, again) = (&*USUAL, run(&short(DrillOptions::simulated(7))));
    assert_eq!(first.to_json().unwrap(), again.to_json().unwrap());
    assert_eq!(first.to_string(), again.to_string());
    // In its whole length, which a connection that outlives its attacker can fail.
    let other = run(&DrillOptions::simulated(1));
    assert!(other.passed, "{other}");
    assert_ne!(first.drops, other.drops, "another seed sends other packets");
    let criteria =
        |report: &Report| report.verdicts.iter().map(|v| v.criterion).collect::<Vec<_>>();
    assert_eq!(criteria(first), criteria(&other));
}

#[test]
fn a_drill_in_real_time_gives_the_same_verdicts_with_one_worker_and_with_two() {
    // What other work on this machine can spoil is not asserted here: whether every question was
    // answered in time.
    let options = short(DrillOptions::new(7));
    let options = DrillOptions {
        schedule: Schedule { flood_rate_max: 20_000, honest_rate: 200, ..options.schedule },
        ..options
    };
    for workers in [1, 2] {
        let server = ServerConfig { workers, ..options.server.clone() };
        let report = run(&DrillOptions { server, ..options.clone() });
        assert_eq!(report.shards.len(), if workers == 1 { 0 } else { 2 }, "{report}");
        assert!(report.shards.iter().all(|shard| shard.received > 100), "{report}");
        let held = [
            Criterion::Conservation,
            Criterion::Memory,
            Criterion::NamedDrops,
            Criterion::WorkerRun,
        ];
        assert!(failed(&report).iter().all(|criterion| !held.contains(criterion)), "{report}");
        // And one for the application, where the worker has a core for itself.
        assert_eq!(report.phases.iter().filter(|phase| phase.name != "application").count(), 39);
        let asked = |phase: &floodwall_drill::PhaseReport| phase.honest[0].asked;
        assert!(report.phases.iter().take(37).all(|phase| asked(phase) == 20), "{report}");
        assert!(report.phases[0].honest.iter().all(|row| row.answered > 0), "{report}");
    }
}

#[test]
fn without_its_service_the_host_fails() {
    let server = ServerConfig { service: false, ..ServerConfig::default() };
    let report = run(&DrillOptions { server, ..short(DrillOptions::simulated(1)) });
    let all = [
        Criterion::Answered,
        Criterion::Fragmented,
        Criterion::Far,
        Criterion::Connected,
        Criterion::Paths,
        Criterion::Recovery,
        Criterion::EstablishedKept,
    ];
    assert_eq!(failed(&report), all, "{report}");
    let rows = report.phases.iter().flat_map(|phase| phase.honest.iter().chain(&phase.established));
    assert!(rows.map(|row| row.answered).all(|answered| answered == 0));
    assert!(!report.passed);
}

#[test]
fn with_a_handful_of_packets_honest_clients_lose_their_share() {
    let server = ServerConfig { small: 4, frames: 4, ..ServerConfig::default() };
    let report = run(&DrillOptions { server, ..short(DrillOptions::simulated(1)) });
    assert!(failed(&report).contains(&Criterion::Answered), "{report}");
    assert!(!failed(&report).contains(&Criterion::Conservation), "what is lost is still counted");
    assert!(!failed(&report).contains(&Criterion::NamedDrops));
}

#[test]
fn without_a_reassembly_store_large_questions_are_not_answered() {
    // Too small for the fragments of one question; larger than the host's memory.
    let (small, large) = (2000, u64::MAX);
    let run_with = |reassembly_bytes, frames| {
        let defaults = ServerConfig::default();
        let reassembly_datagrams = 1 << 16;
        let small = frames;
        let server =
            ServerConfig { reassembly_bytes, reassembly_datagrams, frames, small, ..defaults };
        run(&DrillOptions { server, ..short(DrillOptions::simulated(1)) })
    };
    // Each step of the recovery waits for answers that do not come.
    let without = run_with(small, 4096);
    assert_eq!(failed(&without), [Criterion::Fragmented, Criterion::Recovery], "{without}");
    // It is given its part of the memory, independent of its configured share.
    let boundless = run_with(large, 4096);
    assert_eq!(failed(&boundless), [], "{boundless}");
}

#[test]
fn without_router_advertisements_those_behind_the_router_are_not_answered() {
    let server = ServerConfig { accept_ra: false, ..ServerConfig::default() };
    let report = run(&DrillOptions { server, ..short(DrillOptions::simulated(1)) });
    // Each step of the recovery waits for answers that do not come.
    assert_eq!(failed(&report), [Criterion::Far, Criterion::Recovery], "{report}");
    let far = |family: usize| {
        report.phases.iter().filter_map(move |phase| Some(phase.far.get(family)?.answered))
    };
    assert!(far(0).all(|n| n > 0) && far(1).all(|n| n == 0), "IPv4's router was configured");
}

/// By default redirects are ignored; hosts that accept them can be misled by a neighbour.
#[test]
fn a_host_that_accepts_redirects_cannot_answer_those_behind_the_router() {
    let server = ServerConfig { accept_redirects: true, ..ServerConfig::default() };
    let report = run(&DrillOptions { server, ..short(DrillOptions::simulated(1)) });
    assert!(failed(&report).contains(&Criterion::Far), "{report}");
    assert!(!failed(&report).contains(&Criterion::Paths), "{report}");
    let far = |name: &str| {
        let phase = report.phases.iter().find(|phase| phase.name == name).unwrap();
        phase.far.iter().map(|row| row.share()).collect::<Vec<_>>()
    };
    assert!(far("too big").iter().all(|share| *share > 0.99), "{report}");
    assert!(far("redirects").iter().all(|share| *share < 0.9), "{report}");
}

#[test]
fn on_a_machine_a_hundred_times_slower_a_round_is_too_long() {
    let place = DrillPlace::World(CostTable::default().times(100));
    let slow = run(&DrillOptions { place, ..short(DrillOptions::simulated(7)) });
    assert!(!failed(&USUAL).contains(&Criterion::WorkerRun));
    assert!(failed(&slow).contains(&Criterion::WorkerRun));
}

#[test]
fn a_worker_that_shares_nothing_starves_the_application() {
    let server = ServerConfig { application_share: 0, ..ServerConfig::default() };
    let report = run(&DrillOptions { server, ..short(DrillOptions::simulated(1)) });
    assert!(failed(&report).contains(&Criterion::Share), "{report}");
    let share = |name: &str| {
        let phase = report.phases.iter().find(|phase| phase.name == name).unwrap();
        phase.application_share.unwrap()
    };
    assert!(share("baseline") > 0.9 && share("udp open") < 0.5, "it falls with the load");
}

/// Of a drill of few real connections: the least share of honest clients that were served beside
/// each attack, and the longest run of the worker in nanoseconds.
fn beside_connections(server: ServerConfig) -> (Vec<(&'static str, f64)>, u64) {
    let options = short(DrillOptions::simulated(7));
    let schedule = Schedule { connections_only: true, ..options.schedule };
    let report = run(&DrillOptions { server, schedule, ..options });
    let share = |phase: &floodwall_drill::PhaseReport| {
        let shares = phase.called.iter().map(floodwall_drill::HonestReport::share);
        (phase.name, shares.fold(1.0, f64::min))
    };
    let attacks = report.phases.iter().filter(|phase| !phase.called.is_empty());
    // So many a second are one price.
    let replayed = |phase: &&floodwall_drill::PhaseReport| phase.offered > 0;
    let rates = report.phases.iter().filter(replayed).map(|phase| phase.offered_pps / 800_000);
    assert_eq!(rates.collect::<Vec<_>>(), [1, 4, 1, 4], "{report}");
    (attacks.map(share).collect(), report.worker.run_nanos)
}

/// Names of the attacks beside which honest clients had less than is guaranteed.
fn lost_beside(shares: &[(&'static str, f64)]) -> Vec<&'static str> {
    shares.iter().filter(|(_, share)| *share < 0.99).map(|(name, _)| *name).collect()
}

#[test]
fn each_mechanism_against_few_real_connections_can_be_seen_failing() {
    let (shares, usual) = beside_connections(ServerConfig::default());
    assert_eq!(lost_beside(&shares), [""; 0], "{shares:?}");
    assert!(usual <= 1_000_000, "{usual} ns");
    // No eviction: what takes all places keeps them.
    let server = ServerConfig { evicts: false, ..ServerConfig::default() };
    let (shares, _) = beside_connections(server);
    let places = ["half closed", "half closed x4", "not taken", "not taken x4", "idle", "idle x4"];
    assert_eq!(lost_beside(&shares), places, "{shares:?}");
    // Memory that is not shared between prefixes: slow readers have it.
    let server = ServerConfig { fair_memory: false, ..ServerConfig::default() };
    let (shares, _) = beside_connections(server);
    assert_eq!(lost_beside(&shares), ["drips x4"], "{shares:?}");
    // Replays of an established flow that cost it nothing.
    let server = ServerConfig { flow_credit: false, ..ServerConfig::default() };
    let (shares, _) = beside_connections(server);
    assert_eq!(lost_beside(&shares), ["replayed x4", "beside pages x4"], "{shares:?}");
    // No end of a service's turn.
    let server = ServerConfig { turns_end: false, ..ServerConfig::default() };
    let (_, longest) = beside_connections(server);
    assert!(longest > 1_000_000, "{longest} ns");
}

#[test]
fn on_a_machine_half_as_fast_the_same_floods_are_too_much() {
    // Planned for the machine of the table, where `a_simulated_drill_passes`.
    let usual = CostTable::default();
    let options = short(DrillOptions::simulated(7));
    let schedule = Schedule { planned_for: Some(usual), ..options.schedule };
    let report =
        run(&DrillOptions { place: DrillPlace::World(usual.times(2)), schedule, ..options });
    assert!(!report.passed, "{report}");
    let unharmed = [Criterion::Conservation, Criterion::NamedDrops, Criterion::Share];
    assert!(failed(&report).iter().all(|criterion| !unharmed.contains(criterion)), "{report}");
}
